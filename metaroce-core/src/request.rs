//! Work requests: what an application posts.

use crate::ids::{RegionId, RegionKey};
use crate::memory::AtomicOperation;
use crate::transmit::PAYLOAD_PARTS_MAX;

/// Segments that one work request can gather from or scatter to.
pub const SEGMENTS_MAX: usize = PAYLOAD_PARTS_MAX;

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
    /// Writes into the peer's memory.
    Write {
        /// Where to.
        remote: RemoteAddress,
        /// With it, the message consumes a posted receive, whose completion carries these 32 bits.
        immediate: Option<u32>,
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
        Self { id, operation, segments, fence: false, solicited: false, unsignalled: false }
    }
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
    /// Too many segments, or more than 2^32 − 1 bytes in sum, or an atomic whose segment is not 8 bytes.
    Length,
}

impl core::fmt::Display for PostError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::NoConnection => "no such connection, or it is closing",
            Self::NoStream => "stream is ending, or the limit of streams is reached",
            Self::Full => "table of work requests is full: poll completions, or raise the limits",
            Self::Segment => "segment names no region of this protection domain, or passes its end",
            Self::Length => "too many segments or bytes for one work request",
        })
    }
}

impl core::error::Error for PostError {}
