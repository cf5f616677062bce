//! From the core to the sockets: seals, cuts runs, sends, keeps what could not be sent.

mod held;

use metaroce_core::Endpoint;
use metaroce_core::HeapStorage;
use metaroce_core::crc::{self, Checksum};
use metaroce_core::time::Instant;
use metaroce_core::transmit::{Transmit, segmented_run};

use crate::faults::{Fate, Faults, Injector};
use crate::memory::{RawPart, SCRATCH_BYTES};
use crate::regions::RegionTable;
use crate::socket::{Capabilities, Sockets};
use crate::stats::DriverStats;
use crate::sys::{self, Gather, SEGMENTS_MAX, SEND_BYTES_MAX, SendFault, Target};
use crate::tap::Tapped;
use held::Held;

/// Takes descriptors from the core, a batch at a time, and sends them. No batch is taken before the last one is gone,
/// so what waits for a full socket is bounded; it is never dropped.
pub(crate) struct Sender {
    batch: Box<[Transmit]>,
    /// The part of the batch not sent yet.
    next: usize,
    filled: usize,
    /// Up to here each datagram is sent on its own, since a segmented send was refused.
    single_until: usize,
    /// A segmented send was refused as unsupported; the next single send tells whether segmentation is to blame.
    doubt_gso: bool,
    retry_at: Option<Instant>,
    capabilities: Capabilities,
    segments_max: usize,
    checksum: &'static dyn Checksum,
    injector: Injector,
    held: Held,
    scratch: Box<[u8; SCRATCH_BYTES]>,
    copy: Vec<u8>,
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

/// The other parts of the driver that sending touches.
pub(crate) struct Outlet<'a> {
    pub(crate) now: Instant,
    pub(crate) sockets: &'a mut Sockets,
    pub(crate) regions: &'a RegionTable,
    pub(crate) stats: &'a mut DriverStats,
}

/// What became of the datagrams of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// They are sent, or lost for good: the protocol deals with that.
    Gone,
    /// They must be sent one by one.
    Singly,
    /// They must be sent later.
    Later,
}

impl Sender {
    pub(crate) fn new(
        capabilities: Capabilities,
        segments_max: u8,
        burst_packets: u8,
        checksum: &'static dyn Checksum,
        faults: Faults,
    ) -> Self {
        // Whole bursts, so that none is torn between two batches.
        let burst = usize::from(burst_packets).clamp(1, BATCH);
        let batch = BATCH / burst * burst;
        Self {
            batch: vec![Transmit::EMPTY; batch].into_boxed_slice(),
            next: 0,
            filled: 0,
            single_until: 0,
            doubt_gso: false,
            retry_at: None,
            capabilities,
            segments_max: usize::from(segments_max).clamp(1, SEGMENTS_MAX),
            checksum,
            injector: Injector::new(faults),
            held: Held::default(),
            scratch: Box::new([0; SCRATCH_BYTES]),
            copy: Vec::new(),
        }
    }

    /// What the system can do, as far as sending has found out.
    pub(crate) fn capabilities(&self) -> Capabilities {
        self.capabilities
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
    pub(crate) fn send(&mut self, endpoint: &mut Endpoint<HeapStorage>, mut outlet: Outlet<'_>) -> SendRound {
        let mut round = SendRound::default();
        let was_blocked = self.retry_at.take().is_some();
        round.flow = loop {
            if !self.release_held(&mut outlet) || !self.send_batch(&mut round.datagrams, &mut outlet) {
                break Flow::Blocked;
            }
            if round.datagrams >= DATAGRAMS_PER_ROUND {
                break Flow::More;
            }
            self.next = 0;
            self.single_until = 0;
            self.filled = endpoint.poll_transmit(outlet.now, &mut self.batch).min(self.batch.len());
            if self.filled == 0 {
                break Flow::Idle;
            }
            if self.injector.is_active() {
                round.datagrams += self.inject_faults(&mut outlet);
            }
        };
        if was_blocked && round.flow != Flow::Blocked {
            outlet.sockets.has_room();
        }
        round
    }

    /// Sends the rest of the batch; `false` if a socket is full.
    fn send_batch(&mut self, sent: &mut usize, outlet: &mut Outlet<'_>) -> bool {
        while self.next < self.filled {
            let single = !self.capabilities.gso || self.next < self.single_until;
            let segments = if single { 1 } else { self.segments_max };
            let rest = self.batch.get(self.next..self.filled).unwrap_or(&[]);
            let count = segmented_run(rest, segments, SEND_BYTES_MAX).len().max(1);
            let count = self.seal_run(count, outlet.regions);
            if count == 0 {
                outlet.stats.stale_payloads += 1;
                self.next += 1;
                continue;
            }
            match self.send_run(count, outlet) {
                Outcome::Gone => {
                    self.next += count;
                    *sent += count;
                    self.held.on_sent(count);
                    if !self.release_held(outlet) {
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

    /// Sends the next `count` descriptors, sealed and legal for one call.
    fn send_run(&mut self, count: usize, outlet: &mut Outlet<'_>) -> Outcome {
        let run = self.batch.get(self.next..self.next + count).unwrap_or(&[]);
        let Some(first) = run.first() else { return Outcome::Gone };
        let mut gather = Gather::new();
        for transmit in run {
            if !push_transmit(&mut gather, transmit, outlet.regions) {
                outlet.stats.stale_payloads += count as u64;
                return Outcome::Gone;
            }
        }
        let Some((socket, socket_v6)) = outlet.sockets.sending(first.plane, first.source) else {
            outlet.stats.send_errors.unroutable += count as u64;
            return Outcome::Gone;
        };
        let segment_bytes = if count > 1 { u16::try_from(first.datagram_length()).ok() } else { None };
        let target = Target {
            to: first.destination,
            socket_v6,
            ecn: first.ecn,
            segment_bytes,
            portable: self.capabilities.portable,
        };
        let mut result = sys::send(socket, &target, &gather, &mut self.copy);
        outlet.stats.send_calls += 1;
        if result.as_ref().is_err_and(|error| SendFault::of(error) == SendFault::Refused) {
            // The message was about an earlier datagram; reporting it has cleared it.
            outlet.stats.send_errors.refused += 1;
            result = sys::send(socket, &target, &gather, &mut self.copy);
            outlet.stats.send_calls += 1;
        }
        match result {
            Ok(_) => {
                outlet.stats.datagrams_sent += count as u64;
                outlet.stats.bytes_sent += gather.bytes() as u64;
                outlet.stats.gso_batches += u64::from(count > 1);
                self.on_sent_singly(count);
                self.tap_run(count, outlet);
                Outcome::Gone
            }
            Err(error) => {
                let (plane, source) = (first.plane, first.source);
                let outcome = self.on_fault(SendFault::of(&error), count, outlet);
                if outcome == Outcome::Later {
                    outlet.sockets.await_room(plane, source);
                }
                outcome
            }
        }
    }

    /// Shows the next `count` descriptors, which were sent, to the tap.
    fn tap_run(&mut self, count: usize, outlet: &mut Outlet<'_>) {
        let Some(mut tap) = outlet.sockets.tap.0.take() else { return };
        for transmit in self.batch.get(self.next..self.next + count).unwrap_or(&[]) {
            let mut gather = Gather::new();
            let source = outlet.sockets.source_address(transmit.plane, transmit.source);
            let (true, Some(source)) = (push_transmit(&mut gather, transmit, outlet.regions), source) else {
                continue;
            };
            let mut bytes = Vec::with_capacity(transmit.datagram_length());
            gather.parts().iter().for_each(|part| part.append_to(&mut bytes));
            tap(&Tapped {
                at: outlet.now,
                sent: true,
                source,
                destination: transmit.destination,
                ecn: transmit.ecn,
                bytes: &bytes,
            });
        }
        outlet.sockets.tap.0 = Some(tap);
    }

    /// A single datagram went out where a segmented send was refused: segmentation does not work here.
    fn on_sent_singly(&mut self, count: usize) {
        if self.doubt_gso && count == 1 {
            self.capabilities.gso = false;
            self.doubt_gso = false;
        }
    }

    fn on_fault(&mut self, fault: SendFault, count: usize, outlet: &mut Outlet<'_>) -> Outcome {
        let errors = &mut outlet.stats.send_errors;
        let datagrams = count as u64;
        match fault {
            SendFault::WouldBlock => errors.would_block += 1,
            SendFault::NoBuffers | SendFault::Interrupted => errors.no_buffers += 1,
            SendFault::TooLarge | SendFault::Unsupported if count > 1 => {
                errors.gso_refused += 1;
                self.doubt_gso = fault == SendFault::Unsupported;
                return Outcome::Singly;
            }
            SendFault::TooLarge => errors.too_large += datagrams,
            SendFault::Refused => errors.refused += datagrams,
            SendFault::Unreachable => errors.unreachable += datagrams,
            SendFault::Forbidden => errors.forbidden += datagrams,
            SendFault::Unsupported | SendFault::Other => errors.other += datagrams,
        }
        if matches!(fault, SendFault::WouldBlock | SendFault::NoBuffers | SendFault::Interrupted) {
            self.retry_at = Some(outlet.now.after(RETRY_NS));
            return Outcome::Later;
        }
        self.doubt_gso = false;
        Outcome::Gone
    }

    /// Draws a fate for each descriptor of a fresh batch, and takes out those that are not to be sent as they are;
    /// returns how many.
    fn inject_faults(&mut self, outlet: &mut Outlet<'_>) -> usize {
        let mut kept = 0;
        for index in 0..self.filled {
            let fate = self.injector.draw();
            let Some(transmit) = self.batch.get_mut(index) else { break };
            let injected = &mut outlet.stats.injected;
            let keep = match fate {
                Fate::Pass => true,
                Fate::Lose => {
                    injected.lost += 1;
                    false
                }
                fate => {
                    let sealed = seal(transmit, outlet.regions, self.checksum, &mut self.scratch);
                    let mut bytes = Vec::with_capacity(transmit.datagram_length());
                    let mut gather = Gather::new();
                    if !sealed || !push_transmit(&mut gather, transmit, outlet.regions) || self.held.is_full()
                    {
                        true
                    } else {
                        gather.parts().iter().for_each(|part| part.append_to(&mut bytes));
                        self.held.hold(fate, transmit, bytes, outlet.now, injected)
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
    fn release_held(&mut self, outlet: &mut Outlet<'_>) -> bool {
        while let Some(copy) = self.held.take_due(outlet.now) {
            let Some((socket, socket_v6)) = outlet.sockets.sending(copy.plane, copy.source) else { continue };
            let mut gather = Gather::new();
            let _ = gather.push(RawPart::of(&copy.bytes));
            let portable = self.capabilities.portable;
            let target =
                Target { to: copy.destination, socket_v6, ecn: copy.ecn, segment_bytes: None, portable };
            outlet.stats.send_calls += 1;
            match sys::send(socket, &target, &gather, &mut self.copy) {
                Ok(_) => {
                    outlet.stats.datagrams_sent += 1;
                    outlet.stats.bytes_sent += copy.bytes.len() as u64;
                }
                Err(error) => {
                    if self.on_fault(SendFault::of(&error), 1, outlet) == Outcome::Later {
                        outlet.sockets.await_room(copy.plane, copy.source);
                        self.held.put_back(copy);
                        return false;
                    }
                }
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
fn push_transmit<'a>(gather: &mut Gather<'a>, transmit: &'a Transmit, regions: &'a RegionTable) -> bool {
    let padding = ZEROS.get(..transmit.padding()).unwrap_or(&ZEROS);
    gather.push(RawPart::of(transmit.header()))
        && transmit.payload().iter().all(|part| regions.raw(part).is_some_and(|raw| gather.push(raw)))
        && gather.push(RawPart::of(padding))
}

/// Descriptors taken from the core at once, about.
const BATCH: usize = 64;

/// Datagrams sent in one round before the receive sockets are looked at again; a batch may pass it by its own size.
const DATAGRAMS_PER_ROUND: usize = 256;

/// When to try again after a full socket, at the latest, ns.
const RETRY_NS: u64 = 1_000_000;

/// Padding, as long as the largest datagram.
static ZEROS: [u8; 9216] = [0; 9216];
