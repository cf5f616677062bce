//! An inbound message that has not taken effect yet.

use crate::ids::{Msn, RegionKey};
use crate::list::{Linked, Links};
use crate::memory::AtomicOperation;
use crate::stream::{Receive, Work};
use crate::table::Idx;
use crate::wire::Opcode;

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
    pub(crate) in_stream: Links<Self>,
}

/// What happens when all earlier messages of the stream have taken effect, and this one is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing: a plain WRITE.
    None,
    /// The receive completes.
    Receive(Idx<Receive>),
    /// The response, reserved already, is sent.
    Read(Idx<Work>),
    /// The operation is carried out, and the response, reserved already, is sent.
    Atomic { response: Idx<Work>, key: RegionKey, address: u64, operation: AtomicOperation },
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
        in_stream: Links::UNLINKED,
    };
}
