//! Buffers that the kernel fills as datagrams arrive: a ring of provided buffers.

use std::io;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::opcode::RecvMsgMulti;
use io_uring::types::{BufRingEntry, RecvMsgOut};
use libc::c_int;
use memmap2::{Advice, MmapMut, MmapOptions, MmapRaw};
use metaroce_mio::sys::linux::{CONTROL_BYTES, parse_message};
use metaroce_mio::sys::{Received, SEND_BYTES_MAX};

use super::ring::{File, Ring, Tag};

/// The buffers. Each belongs either to the kernel or, between the completion that names it and
/// [`give_back`](Self::give_back), to the driver.
pub(crate) struct Buffers {
    entries: MmapRaw,
    memory: MmapRaw,
    buffer_bytes: usize,
    count: u16,
    /// Buffers given to the kernel so far, modulo 2^16.
    tail: u16,
    /// What `recvmsg` is told: only the sizes of address and control messages are read.
    message: Box<libc::msghdr>,
}

// SAFETY: the pointers are to memory that belongs to this value alone.
unsafe impl Send for Buffers {}

impl Buffers {
    /// `count` buffers, a power of two, for messages of up to `payload_bytes`, all given to the kernel.
    pub(crate) fn register(ring: &Ring, count: u16, payload_bytes: usize) -> io::Result<Self> {
        let buffer_bytes = (HEAD_BYTES + payload_bytes).next_multiple_of(ALIGNMENT);
        let entries = MmapOptions::new().len(usize::from(count) * size_of::<BufRingEntry>()).map_anon()?;
        let memory = map_memory(usize::from(count) * buffer_bytes)?;
        // SAFETY: a `msghdr` of zeros is a valid value.
        let mut message: Box<libc::msghdr> = Box::new(unsafe { std::mem::zeroed() });
        message.msg_namelen = NAME_BYTES;
        message.msg_controllen = CONTROL_BYTES as _;
        let (entries, memory) = (MmapRaw::from(entries), MmapRaw::from(memory));
        let mut this = Self { entries, memory, buffer_bytes, count, tail: 0, message };
        let base = this.entries.as_mut_ptr().addr() as u64;
        // SAFETY: the mapping is page-aligned, has room for `count` entries, and outlives the ring's use of it: the
        // owner ends all requests before it drops this, or does not drop it at all.
        unsafe { ring.submitter().register_buf_ring_with_flags(base, count, GROUP, 0) }?;
        for buffer in 0..count {
            this.add(buffer);
        }
        this.publish();
        Ok(this)
    }

    /// Has the ring receive into the buffers, datagram after datagram. The owner ends that before it drops this, or does
    /// not drop it at all.
    pub(crate) fn receive(&self, ring: &mut Ring, file: File, plane: u8) -> io::Result<()> {
        let message = &raw const *self.message;
        let entry = file.entry(
            |fixed| RecvMsgMulti::new(fixed, message, GROUP).build(),
            |raw| RecvMsgMulti::new(raw, message, GROUP).build(),
        );
        // SAFETY: the template is boxed and never changed; it and the buffers stay as long as the request does.
        unsafe { ring.push(entry, Tag::Receive(plane)) }
    }

    /// The message in a buffer whose completion said `length` bytes, and its payload; `None` if it is malformed.
    pub(crate) fn received(&self, buffer: u16, length: usize) -> Option<(Received, &[u8])> {
        if buffer >= self.count || length > self.buffer_bytes {
            return None;
        }
        // SAFETY: the buffer lies inside the mapping and is the driver's: the kernel has said that it was filled, and
        // gets it back only by `give_back`, which takes `&mut self`.
        let bytes = unsafe { std::slice::from_raw_parts(self.start(buffer), length) };
        let out = RecvMsgOut::parse(bytes, &self.message).ok()?;
        #[expect(clippy::cast_possible_wrap, reason = "bits")]
        let flags = out.flags() as c_int;
        let payload = bytes.get(HEAD_BYTES..)?.get(..out.payload_data().len())?;
        let message = parse_message(out.name_data(), out.control_data(), payload.len(), flags);
        Some((message, payload))
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.count.into()
    }

    /// Gives a buffer back; the kernel learns of it with the next [`publish`](Self::publish).
    pub(crate) fn give_back(&mut self, buffer: u16) {
        if buffer < self.count {
            self.add(buffer);
        }
    }

    /// Tells the kernel of all buffers that were given back.
    pub(crate) fn publish(&mut self) {
        let base = self.first_entry();
        // SAFETY: the tail overlays a reserved field of the first entry, which is mapped, aligned, and read by the
        // kernel as an atomic.
        let tail = unsafe { &*BufRingEntry::tail(base).cast::<AtomicU16>() };
        tail.store(self.tail, Ordering::Release);
    }

    fn add(&mut self, buffer: u16) {
        let at = usize::from(self.tail & (self.count - 1));
        // SAFETY: `at` is below `count`, a power of two, so the entry is mapped. The kernel reads entries only below
        // the published tail, and this one is not. The setters leave the tail in the first entry alone.
        let entry = unsafe { &mut *self.first_entry().add(at) };
        entry.set_addr(self.start(buffer).addr() as u64);
        entry.set_len(u32::try_from(self.buffer_bytes).unwrap_or(0));
        entry.set_bid(buffer);
        self.tail = self.tail.wrapping_add(1);
    }

    fn first_entry(&self) -> *mut BufRingEntry {
        self.entries.as_mut_ptr().cast()
    }

    fn start(&self, buffer: u16) -> *const u8 {
        // SAFETY: callers give numbers below `count`, so that this stays inside the mapping.
        unsafe { self.memory.as_ptr().add(usize::from(buffer) * self.buffer_bytes) }
    }
}

/// Memory that both the kernel and the driver go through again and again: in huge pages, which spare misses of the
/// address cache, if it is large enough to deserve one.
fn map_memory(bytes: usize) -> io::Result<MmapMut> {
    if bytes < HUGE_PAGES_FROM {
        return MmapOptions::new().len(bytes).map_anon();
    }
    let memory = MmapOptions::new().len(bytes.next_multiple_of(HUGE_PAGE_BYTES)).map_anon()?;
    // A kernel without huge pages says so, which changes nothing.
    let _ = memory.advise(Advice::HugePage);
    Ok(memory)
}

/// The group of the provided buffers.
const GROUP: u16 = 1;

/// Payload of the largest message: several datagrams, coalesced.
pub(crate) const COALESCED_BYTES: usize = SEND_BYTES_MAX + 29;

/// A `sockaddr_in6`, rounded up.
const NAME_BYTES: libc::socklen_t = 32;

/// What precedes the payload in a buffer: the kernel's header, address, control messages.
const HEAD_BYTES: usize = 16 + NAME_BYTES as usize + CONTROL_BYTES;

/// Buffers start at the lines of the processor's cache.
const ALIGNMENT: usize = 64;

/// Sizes from which on a huge page is asked for, and the size of one on most processors.
const HUGE_PAGES_FROM: usize = 256 << 10;
const HUGE_PAGE_BYTES: usize = 2 << 20;
