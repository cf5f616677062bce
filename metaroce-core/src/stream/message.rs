//! An inbound message that has not taken effect yet.

use crate::ids::{Msn, ReceiveIndex, RegionKey};
use crate::list::{Linked, Links};
use crate::memory::AtomicOperation;
use crate::stream::{Receive, Work};
use crate::table::Idx;
use crate::wire::{Opcode, Signal};

/// One inbound message, from its first packet until it takes effect in its turn.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    pub(crate) msn: Msn,
    pub(crate) opcode: Opcode,
    pub(crate) length: u32,
    /// Bytes in place.
    pub(crate) placed: u32,
    /// Every packet is here.
    pub(crate) whole: bool,
    pub(crate) effect: Effect,
    pub(crate) immediate: Option<u32>,
    pub(crate) solicited: bool,
    pub(crate) invalidate: Option<RegionKey>,
    pub(crate) tag: Option<u64>,
    pub(crate) signal: Option<Signal>,
    pub(crate) tail: Tail,
    pub(crate) in_stream: Links<Self>,
}

/// What happens when all earlier messages of the stream have taken effect, and this one is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing: a plain WRITE.
    None,
    /// The receive completes.
    Receive(Idx<Receive>),
    /// A tagged message, by its count in the stream, for which no entry was posted yet.
    Unmatched(ReceiveIndex),
    /// The response, reserved already, is sent.
    Read(Idx<Work>),
    /// The operation is carried out, and the response, reserved already, is sent.
    Atomic { response: Idx<Work>, key: RegionKey, address: u64, operation: AtomicOperation },
}

/// The last cache line of a WRITE to a region with ordered tails, held until the message takes effect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tail {
    pub(crate) key: RegionKey,
    pub(crate) address: u64,
    pub(crate) length: u8,
    pub(crate) bytes: [u8; TAIL_BYTES],
}

/// Bytes of a cache line.
pub(crate) const TAIL_BYTES: usize = 64;

impl Tail {
    pub(crate) const NONE: Self = Self { key: RegionKey(0), address: 0, length: 0, bytes: [0; TAIL_BYTES] };
}

/// The list of a stream's inbound messages.
#[derive(Debug)]
pub struct InResponder;

impl Linked<InResponder> for Message {
    fn links(&self) -> &Links<Self> {
        &self.in_stream
    }
    fn links_mut(&mut self) -> &mut Links<Self> {
        &mut self.in_stream
    }
}

impl Message {
    /// A slot of a pool, not in use.
    pub const EMPTY: Self = Self {
        msn: Msn::new(0),
        opcode: Opcode::Send,
        length: 0,
        placed: 0,
        whole: false,
        effect: Effect::None,
        immediate: None,
        solicited: false,
        invalidate: None,
        tag: None,
        signal: None,
        tail: Tail::NONE,
        in_stream: Links::UNLINKED,
    };
}
