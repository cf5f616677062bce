//! Work requests: what an application posts.

use crate::ids::{QueueId, RegionId, RegionKey};
use crate::memory::AtomicOperation;
use crate::transmit::PAYLOAD_PARTS_MAX;

/// Segments that one work request can gather from or scatter to.
//= MR-OP-18
pub const SEGMENTS_MAX: usize = PAYLOAD_PARTS_MAX;

/// Bytes that a work request can carry inline.
pub const INLINE_BYTES_MAX: usize = 64;

/// A stretch of local memory (an SGE).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Segment {
    /// The region.
    pub region: RegionId,
    /// First byte, counted from the start of the region.
    pub offset: u64,
    /// Bytes.
    pub length: u32,
}

/// A place in the peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteAddress {
    /// The key that the peer gave out.
    pub key: RegionKey,
    /// Address in the terms of the peer's region (its base address plus an offset).
    pub address: u64,
}

/// What a work request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Sends a message into the peer's next posted receive.
    Send {
        /// 32 bits that the receive completion carries.
        immediate: Option<u32>,
    },
    /// As `Send`, and takes away a key of the peer's: it is dead when the receive completes.
    SendInvalidate {
        /// The key, of a region of the peer's.
        key: RegionKey,
    },
    /// Sends a message into the first of the peer's tagged receives that matches: `(bits ^ entry) & mask == 0`.
    SendTagged {
        /// What the peer's entries are compared with.
        bits: u64,
        /// 32 bits that the receive completion carries.
        immediate: Option<u32>,
    },
    /// Writes into the peer's memory.
    Write {
        /// Where to.
        remote: RemoteAddress,
        /// With it, the message consumes a posted receive, whose completion carries these 32 bits.
        immediate: Option<u32>,
    },
    /// Writes into the peer's memory, then adds to a 64-bit word of the peer's, after all that this stream sent
    /// before: who sees the word change may read the data.
    WriteSignal {
        /// Where to write.
        remote: RemoteAddress,
        /// The word, at an address that is a multiple of 8.
        signal: RemoteAddress,
        /// What to add to it, wrapping.
        addend: u64,
    },
    /// Reads from the peer's memory into the local segments.
    Read {
        /// Where from.
        remote: RemoteAddress,
    },
    /// A 64-bit operation on the peer's memory; the value before it goes to the one local segment, of 8 bytes.
    Atomic {
        /// An address that is a multiple of 8.
        remote: RemoteAddress,
        /// What to do.
        operation: AtomicOperation,
    },
}

/// One work request for a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkRequest<'a> {
    /// Returned in the completion.
    pub id: u64,
    /// What to do.
    pub operation: Operation,
    /// Local memory: read from (Send, Write) or written to (Read, Atomic). At most [`SEGMENTS_MAX`], in sum at most
    /// 2^32 − 1 bytes.
    pub segments: &'a [Segment],
    /// Up to [`INLINE_BYTES_MAX`] bytes to send instead of segments (Send and Write kinds): copied at posting, so
    /// that they need no region.
    pub inline: &'a [u8],
    /// Starts only when all earlier READs and atomics of the stream are complete.
    pub fence: bool,
    /// Asks the peer to report the receive completion as solicited.
    pub solicited: bool,
    /// Completes silently unless it fails.
    pub unsignalled: bool,
}

impl<'a> WorkRequest<'a> {
    /// A request with no flag set.
    #[must_use]
    pub const fn new(id: u64, operation: Operation, segments: &'a [Segment]) -> Self {
        Self { id, operation, segments, inline: &[], fence: false, solicited: false, unsignalled: false }
    }
}

/// An unreliable datagram for a queue of the peer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramRequest<'a> {
    /// Returned in the completion, which comes when the datagram was handed to the network.
    pub id: u64,
    /// Number of the queue that the peer may answer to.
    pub source_queue: u32,
    /// Number of the peer's queue.
    pub destination_queue: u32,
    /// Key of the peer's queue; with a wrong one the datagram is dropped.
    pub key: u32,
    /// 32 bits that the receive completion carries.
    pub immediate: Option<u32>,
    /// The payload, in one packet.
    pub segments: &'a [Segment],
}

/// What a stream draws on, set before it is first used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct StreamOptions {
    /// Receives come from this queue, shared with other streams.
    pub shared_queue: Option<QueueId>,
    /// Tagged messages match in the order of their arrival, not in the order of the stream.
    pub unordered_match: bool,
}

/// A queue of receives that streams share, or that takes datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct QueueOptions {
    /// The protection domain of its receives.
    pub domain: crate::ids::ProtectionDomain,
    /// Takes datagrams sent to this number with this key.
    pub datagrams: Option<DatagramAddress>,
}

/// How a peer names a queue for datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramAddress {
    /// Number, unique in the endpoint.
    pub number: u32,
    /// Key that a datagram has to carry.
    pub key: u32,
}

/// Why a work request was not taken. Nothing was queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PostError {
    /// The connection does not exist, or is closing.
    NoConnection,
    /// The stream is ending, or the peer's and the local limit of streams is reached.
    NoStream,
    /// The table of work requests or of receives is full; try again after a completion.
    Full,
    /// A segment names no region of the connection's protection domain, or passes the region's end.
    Segment,
    /// No such queue, or its number is taken, or streams still use it.
    NoQueue,
    /// Too many segments, or more than 2^32 − 1 bytes in sum, or an atomic whose segment is not 8 bytes, or inline
    /// data that is too long or has no place in this operation, or a datagram that fits no packet.
    Length,
}

impl core::fmt::Display for PostError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::NoConnection => "no such connection, or it is closing",
            Self::NoStream => "stream is ending, or the limit of streams is reached",
            Self::Full => "table of work requests is full: poll completions, or raise the limits",
            Self::Segment => "segment names no region of this protection domain, or passes its end",
            Self::NoQueue => "no such queue, or its number is taken, or streams still use it",
            Self::Length => "too many segments or bytes for one work request",
        })
    }
}

impl core::error::Error for PostError {}
