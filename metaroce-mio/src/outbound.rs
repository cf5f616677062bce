//! From the core to a backend: seals, injects faults, cuts runs, keeps what could not be sent.

mod held;

use metaroce_core::crc::{self, Checksum};
use metaroce_core::time::Instant;
use metaroce_core::transmit::{Transmit, segmented_run};

use crate::backend::{Backend, Outcome};
use crate::faults::{Fate, Faults, Injector};
use crate::host::Host;
use crate::memory::{RawPart, SCRATCH_BYTES};
use crate::regions::RegionTable;
use crate::socket::Capabilities;
use crate::sys::{Gather, SEGMENTS_MAX, SEND_BYTES_MAX};
use crate::tap::Tapped;
use held::Held;

/// Takes descriptors from the core, a batch at a time, and has a backend send them. No batch is taken before the last
/// one is gone, so what waits for a full socket is bounded; it is never dropped.
pub(crate) struct Sender {
    batch: Box<[Transmit]>,
    /// The part of the batch not sent yet.
    next: usize,
    filled: usize,
    /// Up to here each datagram is sent on its own, since a segmented send was refused.
    single_until: usize,
    retry_at: Option<Instant>,
    checksum: &'static dyn Checksum,
    injector: Injector,
    held: Held,
    scratch: Box<[u8; SCRATCH_BYTES]>,
}

/// How a round of sending ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Flow {
    /// The core has nothing more to send.
    #[default]
    Idle,
    /// The budget is used up.
    More,
    /// A socket takes no more for now.
    Blocked,
}

/// What a round of sending did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SendRound {
    /// Datagrams taken from the core and disposed of.
    pub(crate) datagrams: usize,
    /// How it ended.
    pub(crate) flow: Flow,
}

impl Sender {
    pub(crate) fn new(burst_packets: u8, checksum: &'static dyn Checksum, faults: Faults) -> Self {
        // Whole bursts, so that none is torn between two batches.
        let burst = usize::from(burst_packets).clamp(1, BATCH);
        let batch = BATCH / burst * burst;
        Self {
            batch: vec![Transmit::EMPTY; batch].into_boxed_slice(),
            next: 0,
            filled: 0,
            single_until: 0,
            retry_at: None,
            checksum,
            injector: Injector::new(faults),
            held: Held::default(),
            scratch: Box::new([0; SCRATCH_BYTES]),
        }
    }

    pub(crate) fn set_faults(&mut self, faults: Faults) {
        self.injector = Injector::new(faults);
    }

    /// When to try again at the latest, or to let go what is held back.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match (self.retry_at, self.held.deadline()) {
            (Some(retry), Some(held)) => Some(retry.min(held)),
            (retry, held) => retry.or(held),
        }
    }

    /// Sends what is left of the last batch, then batch after batch until the core has nothing more, the budget is used
    /// up, or a socket is full.
    pub(crate) fn send<B: Backend + ?Sized>(
        &mut self,
        now: Instant,
        host: &mut Host,
        backend: &mut B,
    ) -> SendRound {
        let mut round = SendRound::default();
        let was_blocked = self.retry_at.take().is_some();
        round.flow = loop {
            if !self.release_held(now, host, backend)
                || !self.send_batch(&mut round.datagrams, now, host, backend)
            {
                self.retry_at = Some(now.after(RETRY_NS));
                break Flow::Blocked;
            }
            if round.datagrams >= DATAGRAMS_PER_ROUND {
                break Flow::More;
            }
            self.next = 0;
            self.single_until = 0;
            self.filled = host.endpoint.poll_transmit(now, &mut self.batch).min(self.batch.len());
            if self.filled == 0 {
                break Flow::Idle;
            }
            if self.injector.is_active() {
                round.datagrams += self.inject_faults(now, host);
            }
        };
        if was_blocked && round.flow != Flow::Blocked {
            backend.on_unblocked();
        }
        round
    }

    /// Sends the rest of the batch; `false` if a socket is full.
    fn send_batch<B: Backend + ?Sized>(
        &mut self,
        sent: &mut usize,
        now: Instant,
        host: &mut Host,
        backend: &mut B,
    ) -> bool {
        while self.next < self.filled {
            let segments = if self.next < self.single_until { 1 } else { backend.segments_max() };
            let rest = self.batch.get(self.next..self.filled).unwrap_or(&[]);
            let count = segmented_run(rest, segments, SEND_BYTES_MAX).len().max(1);
            // A tap sees what goes out, so it must be complete here.
            let sealed = backend.seals() && host.tap.0.is_none();
            let count = if sealed { count } else { self.seal_run(count, &host.regions) };
            if count == 0 {
                host.stats.stale_payloads += 1;
                self.next += 1;
                continue;
            }
            let run = self.batch.get(self.next..self.next + count).unwrap_or(&[]);
            match backend.send_run(now, run, host) {
                Outcome::Gone => {
                    self.tap_run(count, now, host, backend);
                    self.next += count;
                    *sent += count;
                    self.held.on_sent(count);
                    if !self.release_held(now, host, backend) {
                        return false;
                    }
                }
                Outcome::Singly => self.single_until = self.next + count,
                Outcome::Later => return false,
            }
        }
        true
    }

    /// Seals the next `count` descriptors; returns how many, up to the first whose region is gone.
    fn seal_run(&mut self, count: usize, regions: &RegionTable) -> usize {
        let run = self.batch.get_mut(self.next..self.next + count).unwrap_or(&mut []);
        let mut sealed = 0;
        for transmit in run {
            if !seal(transmit, regions, self.checksum, &mut self.scratch) {
                break;
            }
            sealed += 1;
        }
        sealed
    }

    /// Shows the next `count` descriptors, which are on their way, to the tap.
    fn tap_run<B: Backend + ?Sized>(&self, count: usize, now: Instant, host: &mut Host, backend: &B) {
        let Some(tap) = &mut host.tap.0 else { return };
        for transmit in self.batch.get(self.next..self.next + count).unwrap_or(&[]) {
            let mut gather = Gather::new();
            let source = backend.source_address(transmit.plane, transmit.source);
            let (true, Some(source)) = (push_transmit(&mut gather, transmit, &host.regions), source) else {
                continue;
            };
            let mut bytes = Vec::with_capacity(transmit.datagram_length());
            gather.parts().iter().for_each(|part| part.append_to(&mut bytes));
            tap(&Tapped {
                at: now,
                sent: true,
                source,
                destination: transmit.destination,
                ecn: transmit.ecn,
                bytes: &bytes,
            });
        }
    }

    /// Draws a fate for each descriptor of a fresh batch, and takes out those that are not to be sent as they are;
    /// returns how many.
    fn inject_faults(&mut self, now: Instant, host: &mut Host) -> usize {
        let mut kept = 0;
        for index in 0..self.filled {
            let fate = self.injector.draw();
            let Some(transmit) = self.batch.get_mut(index) else { break };
            let injected = &mut host.stats.injected;
            let keep = match fate {
                Fate::Pass => true,
                Fate::Lose => {
                    injected.lost += 1;
                    false
                }
                fate => {
                    let sealed = seal(transmit, &host.regions, self.checksum, &mut self.scratch);
                    let mut bytes = Vec::with_capacity(transmit.datagram_length());
                    let mut gather = Gather::new();
                    if !sealed || !push_transmit(&mut gather, transmit, &host.regions) || self.held.is_full()
                    {
                        true
                    } else {
                        gather.parts().iter().for_each(|part| part.append_to(&mut bytes));
                        self.held.hold(fate, transmit, bytes, now, injected)
                    }
                }
            };
            if keep {
                self.batch.swap(kept, index);
                kept += 1;
            }
        }
        let removed = self.filled - kept;
        self.filled = kept;
        removed
    }

    /// Sends copies that were held back long enough; `false` if a socket is full.
    fn release_held<B: Backend + ?Sized>(&mut self, now: Instant, host: &mut Host, backend: &mut B) -> bool {
        while let Some(copy) = self.held.take_due(now) {
            if backend.send_packet(now, &copy.packet(), host) == Outcome::Later {
                self.held.put_back(copy);
                return false;
            }
        }
        true
    }
}

/// Packets to send in a row on one path so that they fill one segmented send; 1 without segmentation.
pub(crate) fn burst_packets(capabilities: Capabilities, segments_max: u8, mtu_bytes: u16) -> u8 {
    if !capabilities.gso {
        return 1;
    }
    let fitting = SEND_BYTES_MAX / usize::from(mtu_bytes.max(1));
    let segments = usize::from(segments_max).min(fitting).clamp(1, SEGMENTS_MAX);
    u8::try_from(segments).unwrap_or(1)
}

/// Writes the checksum of a descriptor; `false` if a region that it refers to is gone. May be called again.
fn seal(
    transmit: &mut Transmit,
    regions: &RegionTable,
    checksum: &dyn Checksum,
    scratch: &mut [u8; SCRATCH_BYTES],
) -> bool {
    if !transmit.wants_checksum() {
        return transmit.payload().iter().all(|part| regions.raw(part).is_some());
    }
    // The checksum is over a field of zeros; there is one in it when a full socket had it sealed before.
    transmit.write_checksum(0);
    let mut state = checksum.update(crc::SEED, transmit.header());
    for part in transmit.payload() {
        let Some(raw) = regions.raw(part) else { return false };
        state = raw.checksum(checksum, state, scratch);
    }
    let state = transmit.checksum_padding(checksum, state);
    transmit.write_checksum(crc::finish(state));
    true
}

/// Appends header, payload and padding; `false` if a region is gone or the list is full.
pub(crate) fn push_transmit<'a>(
    gather: &mut Gather<'a>,
    transmit: &'a Transmit,
    regions: &'a RegionTable,
) -> bool {
    gather.push(RawPart::of(transmit.header()))
        && transmit.payload().iter().all(|part| regions.raw(part).is_some_and(|raw| gather.push(raw)))
        && gather.push(RawPart::zeros(transmit.padding()))
}

/// Descriptors taken from the core at once, about.
const BATCH: usize = 64;

/// Datagrams sent in one round before the receive sockets are looked at again; a batch may pass it by its own size.
const DATAGRAMS_PER_ROUND: usize = 256;

/// When to try again after a full socket, at the latest, ns.
const RETRY_NS: u64 = 1_000_000;
