//! The memory that a ring shares with the kernel.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;

use super::mapping::Mapping;

/// A descriptor in a receive or transmit ring: `struct xdp_desc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C)]
pub(crate) struct Descriptor {
    /// First byte, counted from the start of the UMEM.
    pub(crate) address: u64,
    /// Bytes.
    pub(crate) length: u32,
    /// [`CONTINUES`], or 0.
    pub(crate) options: u32,
}

/// `XDP_PKT_CONTD`: the packet goes on in the next descriptor.
pub(crate) const CONTINUES: u32 = 1;

/// What a ring can hold: plain data, any bits of which are a value.
///
/// # Safety
/// The type must be `Copy`, without padding, and valid for every bit pattern.
pub(crate) unsafe trait Entry: Copy {}

// SAFETY: an integer.
unsafe impl Entry for u64 {}
// SAFETY: three integers without padding.
unsafe impl Entry for Descriptor {}

/// Indices, flags and entries of one ring.
#[derive(Debug)]
pub(crate) struct RingMemory<T> {
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    size: u32,
    #[expect(dead_code, reason = "held for its destructor, which unmaps")]
    mapping: Mapping,
}

// SAFETY: the pointers lead into the mapping, which the value owns; nothing about them is bound to a thread.
unsafe impl<T: Entry> Send for RingMemory<T> {}

impl<T: Entry> RingMemory<T> {
    /// Maps the ring of `size` entries (a power of two) that `page_offset` names; `offsets` is what the kernel says of
    /// its layout.
    ///
    /// # Errors
    /// What the system says; `InvalidData` for a layout that does not fit the mapping.
    pub(crate) fn map(
        socket: BorrowedFd<'_>,
        size: u32,
        offsets: &libc::xdp_ring_offset,
        page_offset: libc::off_t,
    ) -> io::Result<Self> {
        let bad = || io::Error::new(io::ErrorKind::InvalidData, "the kernel's ring layout makes no sense");
        let start = |offset: u64| usize::try_from(offset).map_err(|_| bad());
        let entries_bytes = size_of::<T>().checked_mul(size as usize).ok_or_else(bad)?;
        let length = start(offsets.desc)?.checked_add(entries_bytes).ok_or_else(bad)?;
        let mapping = Mapping::ring(socket, length, page_offset)?;
        let base = mapping.base();
        let at = |offset: u64, bytes: usize, align: usize| {
            let start = start(offset)?;
            let inside = start.checked_add(bytes).is_some_and(|end| end <= length);
            if !size.is_power_of_two() || !inside || !start.is_multiple_of(align) {
                return Err(bad());
            }
            // SAFETY: `bytes` bytes from there on lie inside the mapping, which begins at a page.
            Ok(unsafe { base.add(start) })
        };
        let (word, entry) = (size_of::<AtomicU32>(), align_of::<T>());
        Ok(Self {
            producer: at(offsets.producer, word, word)?.cast(),
            consumer: at(offsets.consumer, word, word)?.cast(),
            flags: at(offsets.flags, word, word)?.cast(),
            entries: at(offsets.desc, entries_bytes, entry)?.cast(),
            size,
            mapping,
        })
    }

    /// Entries, a power of two.
    pub(crate) fn size(&self) -> u32 {
        self.size
    }

    /// The index that the producer has reached.
    pub(crate) fn producer(&self) -> &AtomicU32 {
        // SAFETY: aligned and inside the mapping (`map`), which lives as long as `self`; both sides use it atomically.
        unsafe { self.producer.as_ref() }
    }

    /// The index that the consumer has reached.
    pub(crate) fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as for `producer`.
        unsafe { self.consumer.as_ref() }
    }

    /// The kernel's flags.
    pub(crate) fn flags(&self) -> &AtomicU32 {
        // SAFETY: as for `producer`.
        unsafe { self.flags.as_ref() }
    }

    /// The entry at `index`, modulo the size.
    pub(crate) fn read(&self, index: u32) -> T {
        let slot = (index & (self.size - 1)) as usize;
        // SAFETY: `slot` is below the size, so that it lies inside the mapping; any bits are a valid `T`. The kernel may
        // be writing if the caller reads an entry that is not his: volatile, and plain data.
        unsafe { self.entries.add(slot).read_volatile() }
    }

    /// Stores an entry at `index`, modulo the size.
    pub(crate) fn write(&mut self, index: u32, entry: T) {
        let slot = (index & (self.size - 1)) as usize;
        // SAFETY: as for `read`.
        unsafe { self.entries.add(slot).write_volatile(entry) };
    }
}

#[cfg(test)]
impl<T: Entry> RingMemory<T> {
    /// A ring in memory of its own, for tests that play the kernel's part.
    pub(crate) fn detached(size: u32) -> Self {
        let mapping = Mapping::anonymous(64 + size as usize * size_of::<T>()).unwrap();
        let base = mapping.base();
        // SAFETY: all four lie inside the mapping, which is as long as that.
        let at = |offset| unsafe { base.add(offset) };
        Self {
            producer: at(0).cast(),
            consumer: at(4).cast(),
            flags: at(8).cast(),
            entries: at(64).cast(),
            size,
            mapping,
        }
    }
}
