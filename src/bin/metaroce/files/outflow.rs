//! The sending side of a transfer: from a file through a ring of chunks into the peer's window.

use std::fs::File;

use metaroce::{Access, RegionKey, RemoteAddress};
use metaroce_mio::{Region, RegionMemory};

use super::channel::{Channel, Peer, release};
use super::disk::{ReadResult, Reader, Wake};
use super::failure::TransferError;
use super::message::{Failure, Hash, Message, Window};
use super::ring::{CHUNK_BYTES_MAX, CHUNKS, Layout, SendRing};
use crate::backend::Driver;

/// A file on its way out.
#[derive(Debug)]
pub(crate) struct Outflow {
    layout: Layout,
    ring: SendRing,
    window: Window,
    region: Region,
    reader: Reader,
    buffers: Vec<Vec<u8>>,
    hash: Option<Hash>,
    finished: bool,
    bytes_written: u64,
}

impl Outflow {
    /// Starts to read `file`, of `size` bytes, for the window of a peer.
    ///
    /// # Errors
    /// When the window is absurd or there is no memory.
    pub(crate) fn start(
        driver: &mut Driver,
        peer: Peer,
        source: Source,
        window: Window,
        wake: Wake,
    ) -> Result<Self, TransferError> {
        if window.chunk_bytes > CHUNK_BYTES_MAX {
            return Err(TransferError::protocol(format!(
                "the peer asks for chunks of {} bytes, more than {CHUNK_BYTES_MAX}",
                window.chunk_bytes
            )));
        }
        let layout = Layout::new(source.size, window.chunk_bytes);
        let reader = Reader::start(source.file, source.shown, layout, wake)?;
        let slots = window.chunks.min(CHUNKS);
        let memory = RegionMemory::zeroed(window.chunk_bytes as usize * usize::from(slots));
        let memory = memory.map_err(|error| TransferError::io("the send window", &error))?;
        let region = driver.register_region(memory, Access::LOCAL_READ, peer.domain);
        let region = region.map_err(|error| TransferError::new(Failure::Other, error.to_string()))?;
        let ring = SendRing::new(layout.chunks(), slots, window.chunks);
        Ok(Self {
            layout,
            ring,
            window,
            region,
            reader,
            buffers: Vec::new(),
            hash: None,
            finished: false,
            bytes_written: 0,
        })
    }

    /// Moves on: orders chunks from the disk, posts what is there. `true` if anything was posted.
    ///
    /// # Errors
    /// When reading fails or the connection is gone.
    pub(crate) fn pump(&mut self, driver: &mut Driver, channel: &mut Channel) -> Result<bool, TransferError> {
        let mut posted = false;
        while self.ring.next_fill().is_some() {
            self.reader.order(self.buffers.pop().unwrap_or_default());
        }
        while let Some(result) = self.reader.poll()? {
            match result {
                ReadResult::Chunk(chunk) => self.on_chunk(driver, chunk)?,
                ReadResult::Hash(hash) => self.hash = Some(hash),
            }
        }
        while let Some(chunk) = self.ring.next_post() {
            let chunk_bytes = u64::from(self.window.chunk_bytes);
            let offset = self.ring.local_slot(chunk) * chunk_bytes;
            let source = self.region.segment(offset, self.layout.length(chunk));
            let address = self.window.address.wrapping_add(self.ring.remote_slot(chunk) * chunk_bytes);
            let remote = RemoteAddress { key: RegionKey(self.window.key), address };
            if !channel.write_chunk(driver, source, remote, chunk)? {
                break;
            }
            self.ring.on_posted();
            posted = true;
        }
        if let (Some(hash), false, true) = (self.hash, self.finished, self.ring.is_complete()) {
            self.finished = true;
            channel.send(driver, &Message::Finish { hash })?;
            posted = true;
        }
        Ok(posted)
    }

    /// A chunk is in the peer's window.
    pub(crate) fn on_written(&mut self) {
        self.bytes_written += u64::from(self.layout.length(self.ring.completed()));
        self.ring.on_completed();
    }

    /// The peer has taken so many chunks.
    ///
    /// # Errors
    /// When that can't be.
    pub(crate) fn on_freed(&mut self, chunks: u64) -> Result<(), TransferError> {
        if self.ring.on_freed(chunks) {
            Ok(())
        } else {
            Err(TransferError::protocol("the peer says that it took chunks which it never got"))
        }
    }

    /// The peer has stored the file under this hash.
    ///
    /// # Errors
    /// When that is another one, or comes too early.
    pub(crate) fn on_stored(&self, hash: &Hash) -> Result<(), TransferError> {
        if self.finished && self.hash.as_ref() == Some(hash) {
            Ok(())
        } else {
            Err(TransferError::new(Failure::Damaged, "the peer stored something else than what was sent"))
        }
    }

    /// Bytes that have arrived.
    pub(crate) const fn bytes_done(&self) -> u64 {
        self.bytes_written
    }

    /// Gives the memory back, once the connection is over.
    pub(crate) fn release(self, driver: &mut Driver) {
        release(driver, self.region);
    }

    fn on_chunk(&mut self, driver: &mut Driver, chunk: Vec<u8>) -> Result<(), TransferError> {
        let index = self.ring.filled();
        let offset = self.ring.local_slot(index) * u64::from(self.window.chunk_bytes);
        let copied = driver.copy_in(self.region, offset, &chunk);
        copied.map_err(|_| TransferError::new(Failure::Other, "the send window is gone"))?;
        self.ring.on_filled();
        self.buffers.push(chunk);
        Ok(())
    }
}

/// An open file to send.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) file: File,
    /// Its name in messages for people.
    pub(crate) shown: String,
    pub(crate) size: u64,
}
