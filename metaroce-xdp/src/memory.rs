//! The UMEM: the memory in which the kernel and this process pass frames to each other, and the chunks that it is cut
//! into, each owned by one side at a time.
//!
//! ```text
//!            lend_to_fill               take_received                 drop, recycle
//! FreeFrame ─────────────▶ (kernel) ──────────────────▶ ReceivedFrame ─────────────▶ FreeFrame
//!
//!            finish                  lend_to_transmit             take_completed
//! FreeFrame ────────▶ FilledFrame ───────────────────▶ (kernel) ───────────────▶ FreeFrame
//! ```
//!
//! A frame is a token that cannot be copied: whoever holds it owns the chunk. Each step consumes the token, so that a
//! chunk lent to the kernel can't be written to, given back twice, or sent while it is filled. Beside the types a table
//! says who owns each chunk, and what the kernel returns is checked against it: a driver that returns a chunk that it
//! does not have is counted, never believed.

use std::io;
use std::ptr::NonNull;

use crate::sys::mapping::Mapping;
use crate::sys::ring::{CONTINUES, Descriptor};

/// A chunk that this side owns, to be filled with a frame or lent for one.
#[derive(Debug)]
#[must_use = "a frame that is dropped is lost to the UMEM"]
pub(crate) struct FreeFrame {
    chunk: u32,
}

/// A chunk with a received frame, or a part of one.
#[derive(Debug)]
#[must_use = "a frame that is dropped is lost to the UMEM"]
pub(crate) struct ReceivedFrame {
    chunk: u32,
    /// Within the chunk.
    offset: u32,
    length: u32,
    continues: bool,
}

/// A chunk with a frame to be sent, or a part of one.
#[derive(Debug)]
#[must_use = "a frame that is dropped is lost to the UMEM"]
pub(crate) struct FilledFrame {
    chunk: u32,
    length: u32,
    continues: bool,
}

impl FreeFrame {
    /// The first `length` bytes are written; `continues` if the packet goes on in the next frame.
    pub(crate) fn finish(self, length: u32, continues: bool) -> FilledFrame {
        FilledFrame { chunk: self.chunk, length, continues }
    }
}

impl ReceivedFrame {
    /// Whether the packet goes on in the next frame.
    pub(crate) fn continues(&self) -> bool {
        self.continues
    }

    /// It was read.
    pub(crate) fn recycle(self) -> FreeFrame {
        FreeFrame { chunk: self.chunk }
    }
}

/// Who may touch a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// This process.
    Process,
    /// The kernel, to receive into.
    Fill,
    /// The kernel, to send from.
    Transmit,
}

/// The memory and who owns which part of it.
#[derive(Debug)]
pub(crate) struct Umem {
    mapping: Mapping,
    owners: Box<[Owner]>,
    chunk_bytes: u32,
}

impl Umem {
    /// `chunks` chunks of `chunk_bytes` (a power of two), and the frames of all of them.
    ///
    /// # Errors
    /// What the system says when it has no memory.
    pub(crate) fn new(chunks: u32, chunk_bytes: u32) -> io::Result<(Self, Vec<FreeFrame>)> {
        let too_much =
            || io::Error::new(io::ErrorKind::InvalidInput, "that many frames do not fit the memory");
        if !chunk_bytes.is_power_of_two() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the size of a chunk is no power of two",
            ));
        }
        let bytes = (chunks as usize).checked_mul(chunk_bytes as usize).ok_or_else(too_much)?;
        let mapping = Mapping::anonymous(bytes)?;
        let owners = vec![Owner::Process; chunks as usize].into_boxed_slice();
        Ok((Self { mapping, owners, chunk_bytes }, (0..chunks).map(|chunk| FreeFrame { chunk }).collect()))
    }

    /// The memory, to register it with the kernel.
    pub(crate) fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// Bytes of each chunk.
    pub(crate) fn chunk_bytes(&self) -> u32 {
        self.chunk_bytes
    }

    /// The bytes of a free frame, [`chunk_bytes`](Self::chunk_bytes) of them, to write to.
    pub(crate) fn buffer(&mut self, frame: &mut FreeFrame) -> &mut [u8] {
        self.bytes_mut(frame.chunk, self.chunk_bytes)
    }

    /// The written bytes of a frame that is about to be sent.
    pub(crate) fn filled(&mut self, frame: &mut FilledFrame) -> &mut [u8] {
        self.bytes_mut(frame.chunk, frame.length)
    }

    fn bytes_mut(&mut self, chunk: u32, length: u32) -> &mut [u8] {
        match self.start(chunk, 0, length) {
            // SAFETY: `start` checked that the bytes lie inside the mapping and that this process owns their chunk: the
            // kernel does not touch it, and no other slice of the UMEM lives beside the `&mut self` that this one holds.
            Some(start) => unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), length as usize) },
            None => &mut [],
        }
    }

    /// The bytes of a received frame.
    pub(crate) fn bytes(&self, frame: &ReceivedFrame) -> &[u8] {
        match self.start(frame.chunk, frame.offset, frame.length) {
            // SAFETY: `start` checked that the bytes lie inside the mapping and that this process owns their chunk: the
            // kernel does not touch it, and nobody writes while the `&self` that this one holds lives.
            Some(start) => unsafe { std::slice::from_raw_parts(start.as_ptr(), frame.length as usize) },
            None => &[],
        }
    }

    /// The address to put into the fill ring.
    #[expect(clippy::needless_pass_by_value, reason = "the token is used up: that is the point")]
    pub(crate) fn lend_to_fill(&mut self, frame: FreeFrame) -> u64 {
        let FreeFrame { chunk } = frame;
        self.lend(chunk, Owner::Fill)
    }

    /// The descriptor to put into the transmit ring.
    #[expect(clippy::needless_pass_by_value, reason = "the token is used up: that is the point")]
    pub(crate) fn lend_to_transmit(&mut self, frame: FilledFrame) -> Descriptor {
        let FilledFrame { chunk, length, continues } = frame;
        let address = self.lend(chunk, Owner::Transmit);
        Descriptor { address, length, options: if continues { CONTINUES } else { 0 } }
    }

    /// The frame of a descriptor from the receive ring; `None` if the kernel could not have it.
    pub(crate) fn take_received(&mut self, descriptor: Descriptor) -> Option<ReceivedFrame> {
        let chunk = self.take(descriptor.address, Owner::Fill)?;
        let offset = u32::try_from(descriptor.address % u64::from(self.chunk_bytes)).ok()?;
        // A length beyond the chunk shows as no bytes at all (`start`).
        let continues = descriptor.options & CONTINUES != 0;
        Some(ReceivedFrame { chunk, offset, length: descriptor.length, continues })
    }

    /// The frame of an address from the completion ring; `None` if the kernel could not have it.
    pub(crate) fn take_completed(&mut self, address: u64) -> Option<FreeFrame> {
        Some(FreeFrame { chunk: self.take(address, Owner::Transmit)? })
    }

    fn lend(&mut self, chunk: u32, to: Owner) -> u64 {
        if let Some(owner) = self.owners.get_mut(chunk as usize) {
            *owner = to;
        }
        u64::from(chunk) * u64::from(self.chunk_bytes)
    }

    fn take(&mut self, address: u64, from: Owner) -> Option<u32> {
        let chunk = u32::try_from(address / u64::from(self.chunk_bytes)).ok()?;
        let owner = self.owners.get_mut(chunk as usize).filter(|owner| **owner == from)?;
        *owner = Owner::Process;
        Some(chunk)
    }

    /// Address of `length` bytes at `offset` of a chunk, if they lie inside it and this process owns it.
    fn start(&self, chunk: u32, offset: u32, length: u32) -> Option<NonNull<u8>> {
        if *self.owners.get(chunk as usize)? != Owner::Process
            || offset.checked_add(length)? > self.chunk_bytes
        {
            return None;
        }
        let start = (chunk as usize).checked_mul(self.chunk_bytes as usize)?.checked_add(offset as usize)?;
        let end = start.checked_add(length as usize)?;
        if end > self.mapping.length() {
            return None;
        }
        // SAFETY: `start` lies inside the mapping, by the line above.
        Some(unsafe { self.mapping.base().add(start) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_goes_out_and_comes_back() {
        let (mut umem, mut frames) = Umem::new(4, 2048).unwrap();
        let mut frame = frames.pop().unwrap();
        umem.buffer(&mut frame)[..3].copy_from_slice(b"abc");
        assert_eq!(umem.buffer(&mut frame).len(), 2048);
        let mut filled = frame.finish(3, false);
        assert_eq!(umem.filled(&mut filled), b"abc");
        let descriptor = umem.lend_to_transmit(filled);
        assert_eq!(descriptor, Descriptor { address: 3 * 2048, length: 3, options: 0 });
        let mut back = umem.take_completed(descriptor.address).unwrap();
        assert_eq!(&umem.buffer(&mut back)[..3], b"abc");
    }

    #[test]
    fn a_received_frame_starts_where_the_kernel_says() {
        let (mut umem, mut frames) = Umem::new(2, 4096).unwrap();
        let mut frame = frames.pop().unwrap();
        umem.buffer(&mut frame)[256..259].copy_from_slice(b"abc");
        let address = umem.lend_to_fill(frame);
        let received =
            umem.take_received(Descriptor { address: address + 256, length: 3, options: CONTINUES }).unwrap();
        assert_eq!(umem.bytes(&received), b"abc");
        assert!(received.continues());
        let mut frame = received.recycle();
        assert_eq!(umem.buffer(&mut frame).len(), 4096);
    }

    #[test]
    fn what_the_kernel_does_not_have_is_not_taken_from_it() {
        let (mut umem, mut frames) = Umem::new(3, 4096).unwrap();
        let filling = umem.lend_to_fill(frames.pop().unwrap());
        let sending = umem.lend_to_transmit(frames.pop().unwrap().finish(60, false)).address;
        let descriptor = |address| Descriptor { address, length: 60, options: 0 };
        assert!(umem.take_completed(filling).is_none(), "it was lent to be filled");
        assert!(umem.take_received(descriptor(sending)).is_none(), "it was lent to be sent");
        assert!(umem.take_received(descriptor(0)).is_none(), "it was not lent");
        assert!(umem.take_received(descriptor(1 << 40)).is_none(), "it does not exist");
        assert!(umem.take_received(descriptor(u64::MAX)).is_none(), "it does not exist");
        let received = umem.take_received(descriptor(filling)).unwrap();
        assert!(umem.take_received(descriptor(filling)).is_none(), "it was returned before");
        let _ = received.recycle();
    }

    #[test]
    fn a_length_beyond_the_chunk_gives_no_bytes() {
        let (mut umem, mut frames) = Umem::new(1, 4096).unwrap();
        let address = umem.lend_to_fill(frames.pop().unwrap());
        let descriptor = Descriptor { address: address + 256, length: 4096, options: 0 };
        let received = umem.take_received(descriptor).unwrap();
        assert_eq!(umem.bytes(&received), b"");
    }

    #[test]
    fn a_token_of_another_umem_reaches_nothing_that_is_lent() {
        let (mut one, mut frames) = Umem::new(1, 4096).unwrap();
        let (mut other, others) = Umem::new(1, 4096).unwrap();
        one.lend_to_fill(frames.pop().unwrap());
        for mut stranger in others {
            assert!(one.buffer(&mut stranger).is_empty());
            assert_eq!(other.buffer(&mut stranger).len(), 4096);
        }
    }

    #[test]
    fn chunks_have_a_size_that_is_a_power_of_two() {
        assert!(Umem::new(1, 3000).is_err());
        assert!(Umem::new(u32::MAX, 1 << 31).is_err());
    }
}
