//! The receiving side of a transfer: from our window into a file.

use metaroce::Access;
use metaroce_mio::{Region, RegionMemory};

use super::channel::{Channel, Peer, release};
use super::disk::{WriteResult, Writer};
use super::failure::TransferError;
use super::message::{Failure, Hash, Message, Window};
use super::ring::{CHUNK_BYTES, CHUNKS, Layout, ReceiveRing};
use crate::backend::Driver;

/// A registered window, before the size of the file is known.
#[derive(Debug)]
pub(crate) struct ReceiveWindow {
    region: Region,
}

impl ReceiveWindow {
    /// Registers a window for the peer.
    ///
    /// # Errors
    /// When there is no memory or no room.
    pub(crate) fn register(driver: &mut Driver, peer: Peer) -> Result<Self, TransferError> {
        let memory = RegionMemory::zeroed(CHUNK_BYTES as usize * usize::from(CHUNKS));
        let memory = memory.map_err(|error| TransferError::io("the receive window", &error))?;
        let access = Access::LOCAL_WRITE.and(Access::REMOTE_WRITE);
        let region = driver.register_region(memory, access, peer.domain);
        let region = region.map_err(|error| TransferError::new(Failure::Other, error.to_string()))?;
        Ok(Self { region })
    }

    /// What the peer is told of it.
    pub(crate) fn describe(&self) -> Window {
        let start = self.region.remote(0);
        Window { key: start.key.0, address: start.address, chunk_bytes: CHUNK_BYTES, chunks: CHUNKS }
    }

    /// Gives the memory back, once the connection is over.
    pub(crate) fn release(self, driver: &mut Driver) {
        release(driver, self.region);
    }
}

/// A file on its way in.
#[derive(Debug)]
pub(crate) struct Inflow {
    layout: Layout,
    ring: ReceiveRing,
    window: ReceiveWindow,
    writer: Writer,
    buffers: Vec<Vec<u8>>,
    taken: u64,
    told: u64,
    expected: Option<Hash>,
    stored: Option<Hash>,
    bytes_taken: u64,
}

impl Inflow {
    /// Goes on with a window, and the writer of a file of `size` bytes.
    pub(crate) fn new(window: ReceiveWindow, writer: Writer, size: u64) -> Self {
        let layout = Layout::new(size, CHUNK_BYTES);
        Self {
            layout,
            ring: ReceiveRing::new(layout.chunks(), CHUNKS),
            window,
            writer,
            buffers: Vec::new(),
            taken: 0,
            told: 0,
            expected: None,
            stored: None,
            bytes_taken: 0,
        }
    }

    /// The peer wrote a chunk.
    ///
    /// # Errors
    /// When it isn't the next one, or has another length than its place in the file gives it.
    pub(crate) fn on_chunk(
        &mut self,
        driver: &Driver,
        immediate: u32,
        bytes: u32,
    ) -> Result<(), TransferError> {
        let chunk = self.ring.on_arrived(immediate);
        let chunk = chunk.filter(|&chunk| self.layout.length(chunk) == bytes);
        let chunk = chunk.ok_or_else(|| TransferError::protocol("the peer wrote a chunk out of turn"))?;
        let mut buffer = self.buffers.pop().unwrap_or_default();
        buffer.resize(bytes as usize, 0);
        let offset = self.ring.slot(chunk) * u64::from(CHUNK_BYTES);
        let copied = driver.copy_out(self.window.region, offset, &mut buffer);
        copied.map_err(|_| TransferError::new(Failure::Other, "the receive window is gone"))?;
        self.writer.write(buffer);
        Ok(())
    }

    /// The peer says that this was all.
    ///
    /// # Errors
    /// When chunks are missing.
    pub(crate) fn on_finish(&mut self, hash: Hash) -> Result<(), TransferError> {
        if self.expected.is_some() || !self.ring.all_arrived() {
            return Err(TransferError::protocol("the peer finished before it had sent everything"));
        }
        self.expected = Some(hash);
        self.writer.finish(hash);
        Ok(())
    }

    /// Moves on: takes the disk's results and tells the peer. `true` if anything was posted.
    ///
    /// # Errors
    /// When writing fails, the file is damaged, or the connection is gone.
    pub(crate) fn pump(&mut self, driver: &mut Driver, channel: &mut Channel) -> Result<bool, TransferError> {
        while let Some(result) = self.writer.poll()? {
            match result {
                WriteResult::Taken(buffer) => {
                    self.taken = self.ring.on_taken();
                    self.bytes_taken += buffer.len() as u64;
                    self.buffers.push(buffer);
                }
                WriteResult::Stored(hash) => {
                    self.stored = Some(hash);
                    channel.send(driver, &Message::Stored { hash })?;
                    return Ok(true);
                }
            }
        }
        // While earlier counts wait for a slot a newer one can wait too: it makes them superfluous.
        if self.told == self.taken || channel.is_busy() {
            return Ok(false);
        }
        self.told = self.taken;
        channel.send(driver, &Message::Freed { chunks: self.taken })?;
        Ok(true)
    }

    /// The hash of the file, once it is stored.
    pub(crate) const fn stored(&self) -> Option<Hash> {
        self.stored
    }

    /// Bytes in the file.
    pub(crate) const fn bytes_done(&self) -> u64 {
        self.bytes_taken
    }

    /// Gives the memory back, once the connection is over.
    pub(crate) fn release(self, driver: &mut Driver) {
        self.window.release(driver);
    }
}
