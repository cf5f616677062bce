//! Work: an outbound message, from posting to completion. Requests of the application and responses owed to the peer.

use crate::connection::Connection;
use crate::event::{CompletionKind, Status};
use crate::ids::{Msn, ReceiveIndex, RegionKey};
use crate::list::{Linked, Links};
use crate::memory::AtomicOperation;
use crate::request::{INLINE_BYTES_MAX, RemoteAddress, SEGMENTS_MAX, Segment};
use crate::stream::Stream;
use crate::table::Idx;
use crate::transmit::PayloadPart;
use crate::wire::{OpFlags, Opcode, Remote, Signal};

/// One outbound message.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    pub(crate) connection: Idx<Connection>,
    pub(crate) stream: Idx<Stream>,
    /// Stream id on the wire; a response outlives its stream.
    pub(crate) stream_id: crate::ids::StreamId,
    pub(crate) kind: WorkKind,
    pub(crate) id: u64,
    pub(crate) msn: Msn,
    /// Bytes of the message.
    pub(crate) length: u32,
    pub(crate) segments: [Segment; SEGMENTS_MAX],
    pub(crate) segment_count: u8,
    /// Bytes to send instead of segments, and how many.
    pub(crate) inline: [u8; INLINE_BYTES_MAX],
    pub(crate) inline_length: u8,
    pub(crate) options: Options,
    pub(crate) receive_index: ReceiveIndex,
    pub(crate) progress: Cut,
    /// Packets without verdict, those that wait to go again included.
    pub(crate) outstanding: u32,
    /// Bytes of the response that are in place, and whether that is all of it.
    pub(crate) responded: u32,
    pub(crate) answered: bool,
    /// It counts among the responses that are due.
    pub(crate) counted: bool,
    /// Set once it can only fail.
    pub(crate) failed: Option<Status>,
    pub(crate) in_stream: Links<Self>,
    pub(crate) responding: Links<Self>,
}

/// How much of a message has been cut into packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// Bytes from here on have not been sent.
    From(u32),
    /// All of it has.
    Done,
}

/// Flags of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Options {
    pub(crate) fence: bool,
    pub(crate) solicited: bool,
    pub(crate) unsignalled: bool,
}

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkKind {
    /// SEND.
    Send {
        /// Carried by the receive completion.
        immediate: Option<u32>,
        /// Key of the peer's to take away.
        invalidate: Option<RegionKey>,
        /// Match bits.
        tag: Option<u64>,
    },
    /// WRITE, with or without immediate.
    Write {
        /// Where to.
        remote: RemoteAddress,
        /// Carried by the receive completion.
        immediate: Option<u32>,
        /// The word to add to.
        signal: Option<Signal>,
    },
    /// READ.
    Read {
        /// Where from.
        remote: RemoteAddress,
    },
    /// A 64-bit operation.
    Atomic {
        /// On what.
        remote: RemoteAddress,
        /// What.
        operation: AtomicOperation,
    },
    /// An unreliable datagram.
    Datagram {
        /// Where to and from.
        address: DatagramHeader,
        /// Carried by the receive completion.
        immediate: Option<u32>,
    },
    /// The answer to a READ.
    ReadResponse,
    /// The answer to an atomic: the value before it.
    AtomicResponse {
        /// The value.
        value: u64,
    },
    /// The final status of a message that failed here.
    Result {
        /// The status, as on the wire.
        code: u32,
    },
    /// The end of a stream.
    StreamReset {
        /// Why, as on the wire.
        code: u32,
    },
}

/// Queues and key of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramHeader {
    /// Number of the sender's queue.
    pub source_queue: u32,
    /// Number of the receiver's queue.
    pub destination_queue: u32,
    /// Key of the receiver's queue.
    pub key: u32,
}

/// The list of a stream's requests, in MSN order.
#[derive(Debug)]
pub struct InStream;
/// The list of a connection's responses that have not been cut.
#[derive(Debug)]
pub struct Responding;

impl Linked<InStream> for Work {
    fn links(&self) -> &Links<Self> {
        &self.in_stream
    }
    fn links_mut(&mut self) -> &mut Links<Self> {
        &mut self.in_stream
    }
}

impl Linked<Responding> for Work {
    fn links(&self) -> &Links<Self> {
        &self.responding
    }
    fn links_mut(&mut self) -> &mut Links<Self> {
        &mut self.responding
    }
}

impl Work {
    /// A slot of a pool, not in use.
    pub const EMPTY: Self = Self {
        connection: Idx::NONE,
        stream: Idx::NONE,
        stream_id: crate::ids::StreamId::NONE,
        kind: WorkKind::ReadResponse,
        id: 0,
        msn: Msn::new(0),
        length: 0,
        segments: [Segment { region: crate::ids::RegionId { slot: 0, generation: 0 }, offset: 0, length: 0 };
            SEGMENTS_MAX],
        segment_count: 0,
        inline: [0; INLINE_BYTES_MAX],
        inline_length: 0,
        options: Options { fence: false, solicited: false, unsignalled: false },
        receive_index: ReceiveIndex::new(0),
        progress: Cut::From(0),
        outstanding: 0,
        responded: 0,
        answered: false,
        counted: false,
        failed: None,
        in_stream: Links::UNLINKED,
        responding: Links::UNLINKED,
    };

    /// The local memory that it refers to.
    pub(crate) fn segments(&self) -> &[Segment] {
        self.segments.get(..usize::from(self.segment_count)).unwrap_or_default()
    }

    /// The bytes that it carries inline.
    pub(crate) fn inline(&self) -> &[u8] {
        self.inline.get(..usize::from(self.inline_length)).unwrap_or_default()
    }

    /// Bytes that its packets carry: none for READ and atomic requests.
    pub(crate) const fn carried(&self) -> u32 {
        match self.kind {
            WorkKind::Send { .. }
            | WorkKind::Write { .. }
            | WorkKind::Datagram { .. }
            | WorkKind::ReadResponse => self.length,
            _ => 0,
        }
    }

    /// Whether a response of the peer belongs to it.
    pub(crate) const fn wants_response(&self) -> bool {
        matches!(self.kind, WorkKind::Read { .. } | WorkKind::Atomic { .. })
    }

    /// Whether it takes an index of the peer's receives that needs credit: tagged ones count on their own.
    pub(crate) const fn needs_credit(&self) -> bool {
        matches!(self.kind, WorkKind::Send { tag: None, .. } | WorkKind::Write { immediate: Some(_), .. })
    }

    /// Whether it consumes a posted receive of the peer.
    pub(crate) const fn consumes_receive(&self) -> bool {
        matches!(self.kind, WorkKind::Send { .. } | WorkKind::Write { immediate: Some(_), .. })
    }

    /// Whether it takes an MSN and is ordered with the requests of its stream.
    pub(crate) const fn is_request(&self) -> bool {
        matches!(
            self.kind,
            WorkKind::Send { .. } | WorkKind::Write { .. } | WorkKind::Read { .. } | WorkKind::Atomic { .. }
        )
    }

    /// Whether nothing is missing for its completion.
    pub(crate) fn is_finished(&self) -> bool {
        let answered = self.failed.is_some() || !self.wants_response() || self.answered;
        //= MR-STR-21
        self.progress == Cut::Done && self.outstanding == 0 && answered
    }

    /// The kind that its completion reports.
    pub(crate) const fn completion_kind(&self) -> CompletionKind {
        match self.kind {
            WorkKind::Write { .. } => CompletionKind::Write,
            WorkKind::Read { .. } | WorkKind::ReadResponse => CompletionKind::Read,
            WorkKind::Atomic { .. } | WorkKind::AtomicResponse { .. } => CompletionKind::Atomic,
            _ => CompletionKind::Send,
        }
    }

    /// Opcode of its packets.
    pub(crate) const fn opcode(&self) -> Opcode {
        match self.kind {
            WorkKind::Send { .. } => Opcode::Send,
            WorkKind::Write { .. } => Opcode::Write,
            WorkKind::Datagram { .. } => Opcode::Datagram,
            WorkKind::Read { .. } => Opcode::ReadRequest,
            WorkKind::Atomic { operation, .. } => match operation {
                AtomicOperation::FetchAdd(_) => Opcode::FetchAdd,
                AtomicOperation::CompareSwap { .. } => Opcode::CompareSwap,
                AtomicOperation::Swap(_) => Opcode::Swap,
                AtomicOperation::Min(_) => Opcode::Min,
                AtomicOperation::Max(_) => Opcode::Max,
                AtomicOperation::And(_) => Opcode::And,
                AtomicOperation::Or(_) => Opcode::Or,
                AtomicOperation::Xor(_) => Opcode::Xor,
            },
            WorkKind::ReadResponse => Opcode::ReadResponse,
            WorkKind::AtomicResponse { .. } => Opcode::AtomicResponse,
            WorkKind::Result { .. } => Opcode::Result,
            WorkKind::StreamReset { .. } => Opcode::StreamReset,
        }
    }

    /// The peer's memory that the packet at `offset` addresses.
    pub(crate) const fn remote_at(&self, offset: u32) -> Option<Remote> {
        match self.kind {
            WorkKind::Write { remote, .. } | WorkKind::Read { remote } | WorkKind::Atomic { remote, .. } => {
                Some(Remote { key: remote.key, address: remote.address.wrapping_add(offset as u64) })
            }
            _ => None,
        }
    }

    /// Operands of an atomic, in the order of the wire.
    pub(crate) const fn operands(&self) -> Option<[u64; 2]> {
        let WorkKind::Atomic { operation, .. } = self.kind else { return None };
        Some(match operation {
            //= MR-WIRE-20
            AtomicOperation::CompareSwap { compare, swap } => [compare, swap],
            AtomicOperation::FetchAdd(operand)
            | AtomicOperation::Swap(operand)
            | AtomicOperation::Min(operand)
            | AtomicOperation::Max(operand)
            | AtomicOperation::And(operand)
            | AtomicOperation::Or(operand)
            | AtomicOperation::Xor(operand) => [operand, 0],
        })
    }

    /// The immediate that the packet carries, the last one or the only one of a message.
    pub(crate) const fn immediate(&self, last: bool) -> Option<u32> {
        match self.kind {
            WorkKind::Send { immediate, invalidate, .. } if last => match invalidate {
                Some(key) => Some(key.0),
                None => immediate,
            },
            WorkKind::Write { immediate, .. } | WorkKind::Datagram { immediate, .. } if last => immediate,
            WorkKind::Result { code } | WorkKind::StreamReset { code } => Some(code),
            _ => None,
        }
    }

    /// Op flags of a packet, acknowledge-now aside.
    pub(crate) const fn flags(&self, last: bool) -> OpFlags {
        let mut flags = OpFlags::NONE;
        if last {
            flags = flags.with(OpFlags::LAST);
            if self.options.solicited {
                flags = flags.with(OpFlags::SOLICITED);
            }
        }
        if last && matches!(self.kind, WorkKind::Send { invalidate: Some(_), .. }) {
            flags = flags.with(OpFlags::INVALIDATE);
        } else if self.immediate(last).is_some() {
            flags = flags.with(OpFlags::IMMEDIATE);
        }
        if self.tag().is_some() {
            flags = flags.with(OpFlags::TAGGED);
        }
        if self.signal(last).is_some() {
            flags = flags.with(OpFlags::SIGNAL);
        }
        flags
    }

    /// The match bits that every packet carries.
    pub(crate) const fn tag(&self) -> Option<u64> {
        match self.kind {
            WorkKind::Send { tag, .. } => tag,
            _ => None,
        }
    }

    /// The signal that the last packet carries.
    pub(crate) const fn signal(&self, last: bool) -> Option<Signal> {
        match self.kind {
            WorkKind::Write { signal, .. } if last => signal,
            _ => None,
        }
    }

    /// The parts of local memory that make up `length` bytes of the message from `offset` on, and how many.
    pub(crate) fn gather(&self, offset: u32, length: u32) -> ([PayloadPart; SEGMENTS_MAX], u8) {
        gather(self.segments(), offset, length)
    }
}

/// The stretch `offset`, `length` of a list of segments. At most one step per segment.
pub(crate) fn gather(segments: &[Segment], offset: u32, length: u32) -> ([PayloadPart; SEGMENTS_MAX], u8) {
    let mut parts = [PayloadPart::default(); SEGMENTS_MAX];
    let mut slots = parts.iter_mut();
    let mut count = 0;
    let (mut skip, mut left) = (offset, length);
    for segment in segments {
        if skip >= segment.length {
            skip -= segment.length;
            continue;
        }
        let step = (segment.length - skip).min(left);
        if step == 0 {
            break;
        }
        if let Some(slot) = slots.next() {
            *slot = PayloadPart {
                region: segment.region,
                offset: segment.offset.saturating_add(u64::from(skip)),
                length: step,
            };
            count += 1;
        }
        left -= step;
        skip = 0;
    }
    (parts, count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::RegionId;

    #[test]
    fn gathering_walks_over_segment_borders_and_empty_segments() {
        let segment =
            |slot, offset, length| Segment { region: RegionId { slot, generation: 1 }, offset, length };
        let segments = [segment(0, 100, 10), segment(1, 0, 0), segment(2, 50, 4), segment(3, 7, 100)];
        let (parts, count) = gather(&segments, 8, 10);
        let seen: std::vec::Vec<_> = parts
            .iter()
            .take(usize::from(count))
            .map(|part| (part.region.slot, part.offset, part.length))
            .collect();
        assert_eq!(seen, [(0, 108, 2), (2, 50, 4), (3, 7, 4)]);
        assert_eq!(gather(&segments, 114, 1).1, 0, "past the end there is nothing");
        assert_eq!(gather(&segments, 0, 0).1, 0);
    }
}
