//! The backend on mio: sockets that are polled for readiness.

mod receive;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use metaroce_core::time::Instant;
use metaroce_core::transmit::{SourcePort, Transmit};
use mio::{Events, Interest, Poll, Registry, Token, event};

use crate::backend::{Backend, OpenBackend, Outcome, Packet, ReceiveRound, Waker};
use crate::config::DriverConfig;
use crate::driver::{BuildError, HostDriver};
use crate::host::Host;
use crate::memory::RawPart;
use crate::outbound::push_transmit;
use crate::socket::{Capabilities, Sockets};
use crate::stats::DriverStats;
use crate::sys::{self, Gather, SEGMENTS_MAX, SendFault, Target};
use crate::wait::wait;
use receive::Receiver;

/// UDP sockets that mio polls: the backend of [`Driver`](crate::Driver).
pub struct Polled {
    sockets: Sockets,
    receiver: Receiver,
    capabilities: Capabilities,
    segments_max: usize,
    /// A segmented send was refused as unsupported; the next single send tells whether segmentation is to blame.
    doubt_gso: bool,
    copy: Vec<u8>,
    poll: Option<OwnPoll>,
}

/// The poll of a driver whose caller has none.
struct OwnPoll {
    poll: Poll,
    events: Events,
    waker: Arc<mio::Waker>,
}

impl OpenBackend for Polled {
    type Options = ();

    fn open(config: &DriverConfig, (): ()) -> Result<Self, BuildError> {
        let sockets = Sockets::bind(&config.local, config.sockets)?;
        let capabilities = sockets.capabilities();
        Ok(Self {
            receiver: Receiver::new(capabilities, usize::from(config.endpoint.mtu_bytes)),
            sockets,
            capabilities,
            segments_max: usize::from(config.sockets.gso_segments_max).clamp(1, SEGMENTS_MAX),
            doubt_gso: false,
            copy: Vec::new(),
            poll: None,
        })
    }
}

impl Polled {
    /// The sockets.
    #[must_use]
    pub fn sockets(&self) -> &Sockets {
        &self.sockets
    }

    /// The sockets, to open one or to set options.
    pub fn sockets_mut(&mut self) -> &mut Sockets {
        &mut self.sockets
    }

    fn send_gather(
        &mut self,
        to: Destination,
        count: usize,
        gather: &Gather<'_>,
        stats: &mut DriverStats,
    ) -> Outcome {
        let Some((socket, socket_v6)) = self.sockets.sending(to.plane, to.source) else {
            stats.send_errors.unroutable += count as u64;
            return Outcome::Gone;
        };
        let target = Target {
            to: to.address,
            socket_v6,
            ecn: to.ecn,
            segment_bytes: to.segment_bytes,
            portable: self.capabilities.portable,
        };
        let mut result = sys::send(socket, &target, gather, &mut self.copy);
        let mut calls = 1;
        if result.as_ref().is_err_and(|error| SendFault::of(error) == SendFault::Refused) {
            // The message was about an earlier datagram; reporting it has cleared it.
            stats.send_errors.refused += 1;
            result = sys::send(socket, &target, gather, &mut self.copy);
            calls += 1;
        }
        stats.send_calls += calls;
        stats.system_calls += calls;
        match result {
            Ok(_) => {
                stats.datagrams_sent += count as u64;
                stats.bytes_sent += gather.bytes() as u64;
                stats.gso_batches += u64::from(count > 1);
                self.on_sent_singly(count);
                Outcome::Gone
            }
            Err(error) => {
                let outcome = self.on_fault(SendFault::of(&error), count, stats);
                if outcome == Outcome::Later {
                    self.sockets.await_room(to.plane, to.source);
                }
                outcome
            }
        }
    }

    /// A single datagram went out where a segmented send was refused: segmentation does not work here.
    fn on_sent_singly(&mut self, count: usize) {
        if self.doubt_gso && count == 1 {
            self.capabilities.gso = false;
            self.doubt_gso = false;
        }
    }

    fn on_fault(&mut self, fault: SendFault, count: usize, stats: &mut DriverStats) -> Outcome {
        if count > 1 && matches!(fault, SendFault::TooLarge | SendFault::Unsupported) {
            stats.send_errors.gso_refused += 1;
            self.doubt_gso = fault == SendFault::Unsupported;
            return Outcome::Singly;
        }
        if stats.send_errors.count(fault, count) {
            return Outcome::Later;
        }
        self.doubt_gso = false;
        Outcome::Gone
    }

    /// The poll of its own, made when first needed.
    fn own_poll(&mut self) -> io::Result<&mut OwnPoll> {
        if self.poll.is_none() {
            if self.sockets.is_registered() {
                let text = "the driver is registered in a poll of the caller: wait there";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
            let poll = Poll::new()?;
            self.sockets.register(poll.registry(), SOCKETS)?;
            let waker = Arc::new(mio::Waker::new(poll.registry(), WAKER)?);
            self.poll = Some(OwnPoll { poll, events: Events::with_capacity(EVENTS), waker });
        }
        self.poll.as_mut().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Backend for Polled {
    fn name(&self) -> &'static str {
        "mio"
    }

    fn local_addresses(&self) -> Vec<SocketAddr> {
        self.sockets.local_addresses().collect()
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn add_stats(&self, stats: &mut DriverStats) {
        stats.add_path_sockets(self.sockets.path_counters());
    }

    fn source_address(&self, plane: u8, source: SourcePort) -> Option<SocketAddr> {
        self.sockets.source_address(plane, source)
    }

    fn receive(&mut self, now: Instant, host: &mut Host) -> io::Result<ReceiveRound> {
        self.receiver.receive(now, &self.sockets, host)
    }

    fn segments_max(&self) -> usize {
        if self.capabilities.gso { self.segments_max } else { 1 }
    }

    fn send_run(&mut self, _now: Instant, run: &[Transmit], host: &mut Host) -> Outcome {
        let Some(first) = run.first() else { return Outcome::Gone };
        let mut gather = Gather::new();
        if !run.iter().all(|transmit| push_transmit(&mut gather, transmit, &host.regions)) {
            host.stats.stale_payloads += run.len() as u64;
            return Outcome::Gone;
        }
        let segmented = run.len() > 1;
        let to = Destination {
            address: first.destination,
            plane: first.plane,
            source: first.source,
            ecn: first.ecn,
            segment_bytes: if segmented { u16::try_from(first.datagram_length()).ok() } else { None },
        };
        self.send_gather(to, run.len(), &gather, &mut host.stats)
    }

    fn send_packet(&mut self, _now: Instant, packet: &Packet<'_>, host: &mut Host) -> Outcome {
        let mut gather = Gather::new();
        let _ = gather.push(RawPart::of(packet.bytes));
        let &Packet { destination: address, plane, source, ecn, .. } = packet;
        self.send_gather(
            Destination { address, plane, source, ecn, segment_bytes: None },
            1,
            &gather,
            &mut host.stats,
        )
    }

    fn on_unblocked(&mut self) {
        self.sockets.has_room();
    }

    fn wait(&mut self, timeout: Option<Duration>, spin: Duration, host: &mut Host) -> io::Result<()> {
        let own = self.own_poll()?;
        host.stats.system_calls += wait(&mut own.poll, &mut own.events, timeout, spin)?;
        Ok(())
    }

    fn waker(&mut self) -> io::Result<Waker> {
        let waker = Arc::clone(&self.own_poll()?.waker);
        Ok(Waker::new(move || waker.wake()))
    }
}

impl fmt::Debug for Polled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Polled").field("sockets", &self.sockets).finish_non_exhaustive()
    }
}

impl event::Source for HostDriver<Polled> {
    fn register(&mut self, registry: &Registry, token: Token, _interests: Interest) -> io::Result<()> {
        let polled = self.backend_mut();
        if let Some(own) = polled.poll.take() {
            polled.sockets.deregister(own.poll.registry())?;
        }
        polled.sockets.register(registry, token)
    }

    fn reregister(&mut self, registry: &Registry, token: Token, _interests: Interest) -> io::Result<()> {
        let sockets = &mut self.backend_mut().sockets;
        sockets.deregister(registry)?;
        sockets.register(registry, token)
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        self.backend_mut().sockets.deregister(registry)
    }
}

/// Where to send, and how.
#[derive(Clone, Copy)]
struct Destination {
    address: SocketAddr,
    plane: u8,
    source: SourcePort,
    ecn: metaroce_core::Ecn,
    segment_bytes: Option<u16>,
}

const SOCKETS: Token = Token(0);
const WAKER: Token = Token(1);
const EVENTS: usize = 16;
