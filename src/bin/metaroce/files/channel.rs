//! The messages of one transfer: a connection, its stream, and a small region to send from and to receive into.

use std::collections::VecDeque;

use anyhow::Context as _;
use metaroce::{
    Access, Completion, CompletionKind, ConnectionHandle, Operation, PostError, ProtectionDomain,
    RemoteAddress, Segment, Status, StreamId, WorkRequest,
};
use metaroce_mio::{Region, RegionMemory};

use super::failure::TransferError;
use super::message::{MESSAGE_BYTES_MAX, Message};
use super::ring::immediate_of;
use crate::backend::Driver;
use crate::trace;

/// A connection and the protection domain whose regions its peer may reach.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) connection: ConnectionHandle,
    pub(crate) domain: ProtectionDomain,
}

/// One side of a transfer's conversation.
#[derive(Debug)]
pub(crate) struct Channel {
    connection: ConnectionHandle,
    stream: StreamId,
    region: Region,
    free_slots: Vec<u32>,
    waiting: VecDeque<Vec<u8>>,
}

/// What a completion means.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// A message of the peer.
    Message(Message),
    /// The peer wrote a chunk of that many bytes, with this immediate.
    Chunk { immediate: u32, bytes: u32 },
    /// A chunk of ours is in the peer's window.
    Written,
    /// Nothing of note.
    Nothing,
}

impl Channel {
    /// Takes over stream 0, with room for messages in both directions.
    ///
    /// # Errors
    /// When the endpoint has no room.
    pub(crate) fn new(driver: &mut Driver, peer: Peer) -> anyhow::Result<Self> {
        let bytes = (RECEIVE_SLOTS + SEND_SLOTS) as usize * MESSAGE_BYTES_MAX;
        let memory = RegionMemory::zeroed(bytes).context("no memory for messages")?;
        let region = driver.register_region(memory, Access::LOCAL_WRITE, peer.domain)?;
        let free_slots = (RECEIVE_SLOTS..RECEIVE_SLOTS + SEND_SLOTS).collect();
        let waiting = VecDeque::new();
        let this = Self { connection: peer.connection, stream: STREAM, region, free_slots, waiting };
        for slot in 0..RECEIVE_SLOTS {
            this.post_receive(driver, slot)?;
        }
        Ok(this)
    }

    /// Sends a message, now or when a slot is free.
    ///
    /// # Errors
    /// When the connection or stream is gone.
    pub(crate) fn send(&mut self, driver: &mut Driver, message: &Message) -> Result<(), TransferError> {
        self.waiting.push_back(message.encode());
        self.flush(driver)
    }

    /// Whether messages wait for a slot: a reason not to make more of them.
    pub(crate) fn is_busy(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether everything sent has arrived.
    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.free_slots.len() == SEND_SLOTS as usize
    }

    /// Writes a stretch of `source` to the peer as chunk number `chunk`; `false` if that must be tried again later.
    ///
    /// # Errors
    /// When the connection or stream is gone.
    pub(crate) fn write_chunk(
        &mut self,
        driver: &mut Driver,
        source: Segment,
        remote: RemoteAddress,
        chunk: u64,
    ) -> Result<bool, TransferError> {
        let operation = Operation::Write { remote, immediate: Some(immediate_of(chunk)) };
        let request = WorkRequest::new(chunk & CHUNK_ID_MASK, operation, std::slice::from_ref(&source));
        match driver.post(self.connection, self.stream, request) {
            Ok(()) => Ok(true),
            Err(PostError::Full) => Ok(false),
            Err(error) => Err(TransferError::protocol(error.to_string())),
        }
    }

    /// Takes a completion of this connection.
    ///
    /// # Errors
    /// When the work failed, or the peer's bytes are no message.
    pub(crate) fn on_completion(
        &mut self,
        driver: &mut Driver,
        done: Completion,
    ) -> Result<Heard, TransferError> {
        if matches!(done.status, Status::Flushed | Status::PeerClosed) {
            return Ok(Heard::Nothing); // Why, the end of the stream or connection tells, whose event follows.
        }
        if done.status != Status::Success {
            return Err(TransferError::protocol(format!(
                "the transfer broke off: {}",
                trace::status(done.status)
            )));
        }
        let slot = u32::try_from(done.id & !SLOT_TAG).unwrap_or(0);
        match done.kind {
            CompletionKind::Receive => {
                let mut bytes = vec![0; done.bytes as usize];
                let offset = u64::from(slot) * MESSAGE_BYTES_MAX as u64;
                let copied = driver.copy_out(self.region, offset, &mut bytes);
                copied.map_err(|_| TransferError::protocol("the peer's message is too long"))?;
                self.post_receive(driver, slot)?;
                let message =
                    Message::decode(&bytes).map_err(|error| TransferError::protocol(error.to_string()))?;
                Ok(Heard::Message(message))
            }
            CompletionKind::ReceiveWrite => {
                self.post_receive(driver, slot)?;
                Ok(Heard::Chunk { immediate: done.immediate.unwrap_or(0), bytes: done.bytes })
            }
            CompletionKind::Send => {
                self.free_slots.push(slot);
                self.flush(driver)?;
                Ok(Heard::Nothing)
            }
            CompletionKind::Write => Ok(Heard::Written),
            _ => Ok(Heard::Nothing),
        }
    }

    /// Gives the memory back, once the connection is over.
    pub(crate) fn release(self, driver: &mut Driver) {
        release(driver, self.region);
    }

    fn flush(&mut self, driver: &mut Driver) -> Result<(), TransferError> {
        while let Some(bytes) = self.waiting.front() {
            let Some(slot) = self.free_slots.pop() else { break };
            let offset = u64::from(slot) * MESSAGE_BYTES_MAX as u64;
            let copied = driver.copy_in(self.region, offset, bytes);
            copied.map_err(|_| TransferError::protocol("a message of ours is too long"))?;
            let length = u32::try_from(bytes.len()).unwrap_or(0);
            let segment = self.region.segment(offset, length);
            let operation = Operation::Send { immediate: None };
            let request =
                WorkRequest::new(SLOT_TAG | u64::from(slot), operation, std::slice::from_ref(&segment));
            match driver.post(self.connection, self.stream, request) {
                Ok(()) => {
                    self.waiting.pop_front();
                }
                Err(PostError::Full) => {
                    self.free_slots.push(slot);
                    break;
                }
                Err(error) => return Err(TransferError::protocol(error.to_string())),
            }
        }
        Ok(())
    }

    fn post_receive(&self, driver: &mut Driver, slot: u32) -> Result<(), TransferError> {
        let offset = u64::from(slot) * MESSAGE_BYTES_MAX as u64;
        let length = u32::try_from(MESSAGE_BYTES_MAX).unwrap_or(0);
        let segment = self.region.segment(offset, length);
        let id = SLOT_TAG | u64::from(slot);
        let posted = driver.post_recv(self.connection, self.stream, id, std::slice::from_ref(&segment));
        posted.map_err(|error| TransferError::protocol(error.to_string()))
    }
}

/// Deregisters a region; if something still refers to it, it stays until the program ends.
pub(crate) fn release(driver: &mut Driver, region: Region) {
    if let Err(error) = driver.deregister_region(region) {
        trace::line(|| format!("a region stays registered: {error:?}"));
    }
}

/// The stream of a transfer, the same for both sides without a word about it.
const STREAM: StreamId = StreamId(0);

/// Receives kept posted: more than a window has chunks, so that credit is never short.
const RECEIVE_SLOTS: u32 = 64;

/// Messages under way at a time.
const SEND_SLOTS: u32 = 16;

/// Tells the ids of messages from those of chunks.
const SLOT_TAG: u64 = 1 << 63;
const CHUNK_ID_MASK: u64 = SLOT_TAG - 1;
