//! The backend: its parts, and how it starts and ends.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant as SystemInstant};

use metaroce_core::ids::RegionId;
use metaroce_core::time::Instant;
use metaroce_core::transmit::{SourcePort, Transmit};
use metaroce_mio::backend::{
    Backend, DATAGRAMS_PER_ROUND, OpenBackend, Outcome, Packet, ReceiveRound, Waker, spin_time,
};
use metaroce_mio::socket::{Capabilities, Sockets};
use metaroce_mio::sys::SEGMENTS_MAX;
use metaroce_mio::{BuildError, DriverConfig, DriverStats, Host};

use crate::completions::Arrival;
use crate::files::Files;
use crate::options::UringOptions;
use crate::probe::{explain, probe};
use crate::stats::UringStats;
use crate::sys::buffers::{Buffers, COALESCED_BYTES};
use crate::sys::registered::Registered;
use crate::sys::ring::{File, Ring, Tag};
use crate::sys::slots::Slots;
use crate::sys::wake::WakeCounter;
use crate::zero_copy::Policy;

/// UDP sockets through a ring of `io_uring`: the backend of [`Driver`](crate::Driver).
///
/// It may be moved to another thread until it has first run; from then on it belongs to the thread that ran it.
pub struct Uring {
    pub(crate) ring: Ring,
    pub(crate) sockets: Sockets,
    pub(crate) files: Files,
    pub(crate) planes: Vec<Receiving>,
    /// Taken out only to be leaked: see [`shut_down`](Backend::shut_down).
    pub(crate) buffers: Option<Buffers>,
    pub(crate) slots: Slots,
    pub(crate) wake: Option<WakeCounter>,
    pub(crate) zero_copy: Policy,
    pub(crate) registered: Registered,
    pub(crate) capabilities: Capabilities,
    pub(crate) segments_max: usize,
    pub(crate) submit_bytes: usize,
    /// Bytes of datagrams that the kernel was not given yet.
    pub(crate) collected_bytes: usize,
    /// Sends that the kernel was not given yet, and how many of them are collected: in each round few at first, so that the
    /// peer has something to do early, then more and more.
    pub(crate) collected: usize,
    pub(crate) quota: usize,
    /// A segmented send was refused as unsupported; the next single send tells whether segmentation is to blame.
    pub(crate) doubt_gso: bool,
    /// What has arrived and was not handed to the core yet.
    pub(crate) inbox: VecDeque<Arrival>,
    /// Sends that the system had no buffers for, in order.
    pub(crate) repeats: VecDeque<u32>,
    pub(crate) repeat_at: Option<Instant>,
    /// The driver's time when it last ran.
    pub(crate) now: Instant,
    /// What made the backend useless while it could not say so.
    pub(crate) failure: Option<io::Error>,
    pub(crate) woken: bool,
    pub(crate) stats: UringStats,
    /// System calls beside those of the ring.
    pub(crate) other_calls: u64,
}

/// The receiving of a plane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receiving {
    pub(crate) file: File,
    /// Whether the ring has a request for it.
    pub(crate) armed: bool,
    /// Errors in a row.
    pub(crate) errors: usize,
}

impl OpenBackend for Uring {
    type Options = UringOptions;

    fn open(config: &DriverConfig, options: UringOptions) -> Result<Self, BuildError> {
        let features = probe()?;
        if config.sockets.portable {
            let text = "`portable` sockets and io_uring exclude each other: take the mio backend for them";
            return Err(BuildError::Unsupported(text.to_owned()));
        }
        let mut sockets = Sockets::bind(&config.local, config.sockets)?;
        let capabilities = sockets.capabilities();
        let mut ring = Ring::new(&options).map_err(|error| explain("making a ring", "5.19", &error))?;
        let mut files = Files::new(&ring, config.sockets.path_sockets_max);
        let mut planes = Vec::new();
        for plane in (0..sockets.planes()).filter_map(|plane| u8::try_from(plane).ok()) {
            let outlet = sockets
                .outlet(plane, SourcePort::Receive)
                .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
            let file = files.file(&mut ring, &outlet)?;
            planes.push(Receiving { file, armed: false, errors: 0 });
        }
        let (count, bytes) = if capabilities.gro {
            (COALESCED_BUFFERS, COALESCED_BYTES)
        } else {
            let mtu_bytes = usize::from(config.endpoint.mtu_bytes).max(DATAGRAM_BYTES_MIN);
            (SINGLE_BUFFERS, mtu_bytes + 1)
        };
        let count = options.receive_buffers.unwrap_or(count).clamp(2, BUFFERS_MAX).next_power_of_two();
        let buffers = Buffers::register(&ring, count, bytes)
            .map_err(|error| explain("registering a ring of receive buffers", "5.19", &error))?;
        let stats = UringStats {
            registered_files: files.is_registered(),
            deferred: ring.is_deferred(),
            ..UringStats::default()
        };
        Ok(Self {
            ring,
            sockets,
            files,
            planes,
            buffers: Some(buffers),
            slots: Slots::new(options.sends_max),
            wake: None,
            zero_copy: Policy::new(options.zero_copy, features.zero_copy),
            registered: Registered::new(options.registered_bytes_max),
            capabilities,
            segments_max: usize::from(config.sockets.gso_segments_max).clamp(1, SEGMENTS_MAX),
            submit_bytes: options.submit_bytes,
            collected_bytes: 0,
            collected: 0,
            quota: QUOTA_FIRST,
            doubt_gso: false,
            inbox: VecDeque::new(),
            repeats: VecDeque::new(),
            repeat_at: None,
            now: Instant::ZERO,
            failure: None,
            woken: false,
            stats,
            other_calls: 0,
        })
    }
}

impl Uring {
    /// The sockets.
    #[must_use]
    pub fn sockets(&self) -> &Sockets {
        &self.sockets
    }

    /// The sockets, to open one or to set options.
    pub fn sockets_mut(&mut self) -> &mut Sockets {
        &mut self.sockets
    }

    /// What only this backend counts.
    #[must_use]
    pub fn counters(&self) -> UringStats {
        UringStats {
            requests: self.ring.requests,
            enters: self.ring.enters,
            completion_overflows: self.ring.overflows,
            sends_under_way: self.slots.taken(),
            regions_registered: self.registered.count(),
            regions_refused: self.registered.refused,
            ..self.stats
        }
    }

    /// Makes the ring this thread's, if it is nobody's, and asks for what is not asked for: datagrams, being woken,
    /// sends to be repeated.
    fn arm(&mut self) -> io::Result<()> {
        if let Some(error) = self.failure.take() {
            return Err(error);
        }
        if !self.ring.is_started() {
            self.ring.start()?;
        }
        let Some(buffers) = &self.buffers else { return Err(io::ErrorKind::NotConnected.into()) };
        // With all of them filled and not read yet it would end at once.
        let free = self.inbox.len() < buffers.count();
        for (plane, index) in self.planes.iter_mut().zip(0..) {
            if free && !plane.armed {
                buffers.receive(&mut self.ring, plane.file, index)?;
                plane.armed = true;
            }
        }
        if let Some(wake) = &mut self.wake {
            wake.arm(&mut self.ring)?;
        }
        if self.repeat_at.is_some_and(|at| at <= self.now) { self.repeat() } else { Ok(()) }
    }

    /// Waits until no slot refers to a region; cancels what takes too long.
    fn let_go(&mut self, region: RegionId, host: &mut Host) -> io::Result<()> {
        let start = SystemInstant::now();
        let mut cancelled = false;
        self.poll(host);
        while self.slots.of_region(region).next().is_some() {
            let waiting: Vec<u32> = self.slots.of_region(region).collect();
            for slot in waiting {
                self.drop_unsubmitted(slot);
                if !cancelled && start.elapsed() > RELEASE_PATIENCE {
                    self.ring.cancel(Some(Tag::Send(slot)))?;
                    self.stats.cancelled += 1;
                }
            }
            cancelled |= start.elapsed() > RELEASE_PATIENCE;
            if start.elapsed() > RELEASE_LIMIT {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if self.slots.of_region(region).next().is_some() {
                self.ring.submit_and_sleep(Some(RELEASE_STEP))?;
                self.poll(host);
            }
        }
        Ok(())
    }
}

impl Backend for Uring {
    fn name(&self) -> &'static str {
        "uring"
    }

    fn local_addresses(&self) -> Vec<SocketAddr> {
        self.sockets.local_addresses().collect()
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn add_stats(&self, stats: &mut DriverStats) {
        stats.add_path_sockets(self.sockets.path_counters());
        stats.system_calls += self.ring.enters + self.other_calls;
    }

    fn source_address(&self, plane: u8, source: SourcePort) -> Option<SocketAddr> {
        self.sockets.source_address(plane, source)
    }

    fn receive(&mut self, now: Instant, host: &mut Host) -> io::Result<ReceiveRound> {
        self.now = now;
        let mut datagrams = 0;
        loop {
            self.arm()?;
            self.poll(host);
            if self.inbox.is_empty() && (self.ring.has_deferred() || self.ring.unsubmitted() > 0) {
                self.ring.submit()?;
                self.poll(host);
            }
            datagrams += self.hand_in(now, host);
            // If all buffers were filled there is more, and one acknowledgement for each path answers it too. But what
            // comes later is not waited for: who sent the first waits for it to be answered.
            if datagrams >= DATAGRAMS_PER_ROUND || self.planes.iter().all(|plane| plane.armed) {
                break;
            }
        }
        Ok(ReceiveRound { datagrams, drained: self.inbox.is_empty() && !self.ring.has_deferred() })
    }

    fn segments_max(&self) -> usize {
        if self.capabilities.gso { self.segments_max } else { 1 }
    }

    fn send_run(&mut self, _now: Instant, run: &[Transmit], host: &mut Host) -> Outcome {
        self.send(run, host)
    }

    fn send_packet(&mut self, _now: Instant, packet: &Packet<'_>, host: &mut Host) -> Outcome {
        self.send_copy(packet, host)
    }

    fn flush(&mut self, now: Instant, host: &mut Host) -> io::Result<()> {
        self.now = now;
        self.arm()?;
        self.ring.submit()?;
        self.collected_bytes = 0;
        self.collected = 0;
        self.quota = QUOTA_FIRST;
        self.poll(host);
        Ok(())
    }

    fn has_input(&mut self) -> bool {
        !self.inbox.is_empty() || self.ring.has_completion() || self.ring.has_deferred()
    }

    fn deadline(&self) -> Option<Instant> {
        self.repeat_at
    }

    fn wait(&mut self, timeout: Option<Duration>, spin: Duration, host: &mut Host) -> io::Result<()> {
        self.arm()?;
        self.ring.submit()?;
        self.poll(host);
        let spin = spin_time(timeout, spin);
        let start = SystemInstant::now();
        while !(std::mem::take(&mut self.woken) || self.has_input()) {
            let spent = start.elapsed();
            if timeout.is_some_and(|timeout| spent >= timeout) {
                break;
            }
            if spent >= spin {
                let left = timeout.map(|timeout| timeout.saturating_sub(spent));
                self.ring.submit_and_sleep(left)?;
                break;
            }
            for _ in 0..SPINS_PER_LOOK {
                std::hint::spin_loop();
            }
        }
        Ok(())
    }

    fn waker(&mut self) -> io::Result<Waker> {
        if self.wake.is_none() {
            self.wake = Some(WakeCounter::new()?);
        }
        self.wake.as_ref().map(WakeCounter::waker).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn release_region(&mut self, region: RegionId, host: &mut Host) -> io::Result<()> {
        if self.slots.taken() > 0 {
            self.let_go(region, host)?;
        }
        self.registered.release(&self.ring, region);
        Ok(())
    }

    fn shut_down(&mut self) {
        if self.buffers.is_none() {
            return;
        }
        let ended = !self.ring.is_started()
            || self.ring.outstanding() == 0
            || (self.ring.cancel(None).is_ok() && self.ring.submit().is_ok() && self.ring.drain());
        if !ended {
            // The kernel may still write into the buffers and read the rest, which happens when another thread than
            // the ring's drops it: then nothing of it is ever freed.
            std::mem::forget(self.buffers.take());
            std::mem::forget(self.wake.take());
            std::mem::forget(std::mem::replace(&mut self.slots, Slots::new(1)));
        }
        self.buffers = None;
        // Or else the ring keeps the sockets, and they their ports, until the kernel gets round to it.
        let _ = self.ring.submitter().unregister_files();
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        self.shut_down();
    }
}

impl fmt::Debug for Uring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Uring")
            .field("stats", &self.counters())
            .field("outstanding", &self.ring.outstanding())
            .finish_non_exhaustive()
    }
}

/// Buffers for coalesced messages, each of up to 64 KiB: few, since they are used in turn, and those of half a megabyte
/// stay in the second-level cache.
const COALESCED_BUFFERS: u16 = 8;

/// Buffers for single datagrams.
const SINGLE_BUFFERS: u16 = 128;

const BUFFERS_MAX: u16 = 4096;

/// Room for the smallest legal datagram size and then some.
const DATAGRAM_BYTES_MIN: usize = 2048;

/// Sends that are collected at the start of a round.
const QUOTA_FIRST: usize = 4;

/// Pauses between looks at the queues, whose lines of the cache the kernel writes at the other end.
const SPINS_PER_LOOK: usize = 8;

/// How long a region's sends may take before they are cancelled, and until that is given up.
const RELEASE_PATIENCE: Duration = Duration::from_millis(50);
const RELEASE_LIMIT: Duration = Duration::from_secs(2);
const RELEASE_STEP: Duration = Duration::from_millis(5);
