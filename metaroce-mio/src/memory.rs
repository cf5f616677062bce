//! The memory behind a region: a zeroed buffer, a mapped file, or memory lent by the embedding program.
//!
//! No Rust reference is made over such memory, since the peer, the kernel and other processes (mapped files) may
//! change it at any time. Everything here copies through raw pointers, with the bounds checked at each call.
//! [`RegionMemory`] is owned by one place at a time (the application, then the driver's [`RegionTable`]), so threads of
//! this program never race on it, unless the memory was [lent](RegionMemory::lent).
//!
//! [`RegionTable`]: crate::regions::RegionTable

use std::fmt;
use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::ptr;
#[cfg(target_has_atomic = "64")]
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};
use metaroce_core::crc::Checksum;
use metaroce_core::memory::{AtomicOperation, MemoryError};

/// Bytes of the scratch buffer that [`RawPart::checksum`] works through.
pub const SCRATCH_BYTES: usize = 4096;

/// Bytes that can be registered as a region.
pub struct RegionMemory {
    base: *mut u8,
    length: usize,
    writable: bool,
    backing: Backing,
}

// SAFETY: the mapping belongs to this value alone, and lent memory is usable from every thread by the contract of
// `lent`; all access goes through `&self` (reads) or `&mut self` (writes).
unsafe impl Send for RegionMemory {}
// SAFETY: as above; `&self` allows nothing but reading, and an atomic word is only ever changed through `&mut self`.
unsafe impl Sync for RegionMemory {}

impl RegionMemory {
    /// `length` bytes of zeros, page-aligned. Pages take up RAM when they are first touched.
    ///
    /// # Errors
    /// What the system says when it has no room for the mapping.
    pub fn zeroed(length: usize) -> io::Result<Self> {
        if length == 0 {
            return Ok(Self::empty());
        }
        let map = MmapOptions::new().len(mapped_bytes(length)).map_anon()?;
        #[cfg(target_os = "linux")]
        if length >= HUGE_PAGES_FROM {
            // Fewer page faults and TLB misses; a kernel without huge pages says so, which changes nothing.
            let _ = map.advise(memmap2::Advice::HugePage);
        }
        Ok(Self::mapped(MmapRaw::from(map), length, true, false))
    }

    /// A buffer as long as `bytes`, filled with them.
    ///
    /// # Errors
    /// As for [`zeroed`](Self::zeroed).
    pub fn copied_from(bytes: &[u8]) -> io::Result<Self> {
        let mut memory = Self::zeroed(bytes.len())?;
        memory.copy_from(0, bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
        Ok(memory)
    }

    /// `length` bytes of `file` from `offset` on, to read from (and to send from). Writes to it are refused.
    ///
    /// While it is mapped nobody should shorten the file: touching what is gone ends the process with SIGBUS.
    ///
    /// # Errors
    /// What the system says, or `UnexpectedEof` when the file ends before `offset + length`.
    pub fn file_read_only(file: &File, offset: u64, length: usize) -> io::Result<Self> {
        check_file(file, offset, length)?;
        if length == 0 {
            return Ok(Self { writable: false, ..Self::empty() });
        }
        let map = MmapOptions::new().offset(offset).len(length).map_raw_read_only(file)?;
        Ok(Self::mapped(map, length, false, true))
    }

    /// `length` bytes of `file` from `offset` on, to read and to write; what is written reaches the file.
    ///
    /// The file must be open for reading and writing and have its blocks allocated, or a full disk ends the process
    /// with SIGBUS: see [`allocate_file`]. The warning of [`file_read_only`](Self::file_read_only) holds here too.
    ///
    /// # Errors
    /// What the system says, or `UnexpectedEof` when the file ends before `offset + length`.
    pub fn file(file: &File, offset: u64, length: usize) -> io::Result<Self> {
        check_file(file, offset, length)?;
        if length == 0 {
            return Ok(Self::empty());
        }
        let map = MmapOptions::new().offset(offset).len(length).map_raw(file)?;
        Ok(Self::mapped(map, length, true, true))
    }

    /// `length` bytes from `base` on, which belong to the caller.
    ///
    /// # Safety
    /// From now until this value is dropped (deregistering gives it back), the bytes must be readable and writable, from
    /// any thread. While a transfer that touches them is under way the caller may touch them only in ways that tolerate
    /// a concurrent writer, as with any RDMA device.
    #[must_use]
    pub unsafe fn lent(base: ptr::NonNull<u8>, length: usize) -> Self {
        Self { base: base.as_ptr(), length, writable: true, backing: Backing::Lent }
    }

    /// Bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are no bytes at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Whether it can be written to: all but files mapped for reading.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Copies the bytes from `offset` on into `out`.
    ///
    /// # Errors
    /// [`MemoryError`] when that passes the end.
    pub fn copy_to(&self, offset: u64, out: &mut [u8]) -> Result<(), MemoryError> {
        let start = self.start(offset, out.len())?;
        // SAFETY: `start` checked that `out.len()` bytes from there on lie inside the memory, which is readable as long
        // as `self` lives. `copy` tolerates that `out` lies in lent memory.
        unsafe { ptr::copy(self.base.add(start).cast_const(), out.as_mut_ptr(), out.len()) };
        Ok(())
    }

    /// Copies `bytes` to `offset`.
    ///
    /// # Errors
    /// [`MemoryError`] when that passes the end, or the memory is mapped for reading only.
    pub fn copy_from(&mut self, offset: u64, bytes: &[u8]) -> Result<(), MemoryError> {
        if !self.writable {
            return Err(MemoryError);
        }
        let start = self.start(offset, bytes.len())?;
        // SAFETY: `start` checked that `bytes.len()` bytes from there on lie inside the memory, which is writable as
        // long as `self` lives. `copy` tolerates that `bytes` lies in lent memory.
        unsafe { ptr::copy(bytes.as_ptr(), self.base.add(start), bytes.len()) };
        Ok(())
    }

    /// Applies `operation` to the 64-bit word at `offset`, atomically for every user of the word; returns the old value.
    ///
    /// # Errors
    /// [`MemoryError`] when the word passes the end, its address is no multiple of 8, the memory is mapped for reading
    /// only, or the processor has no 64-bit atomics.
    pub fn atomic(&mut self, offset: u64, operation: AtomicOperation) -> Result<u64, MemoryError> {
        if !self.writable {
            return Err(MemoryError);
        }
        let start = self.start(offset, size_of::<u64>())?;
        // SAFETY: `start` checked that 8 bytes from there on lie inside the memory.
        let word = unsafe { self.base.add(start) };
        if word.addr() % size_of::<u64>() == 0 { apply_atomic(word, operation) } else { Err(MemoryError) }
    }

    /// The `length` bytes from `offset` on, to hand to the kernel; `None` when that passes the end.
    #[must_use]
    pub fn raw(&self, offset: u64, length: usize) -> Option<RawPart<'_>> {
        let start = self.start(offset, length).ok()?;
        // SAFETY: `start` checked that `length` bytes from there on lie inside the memory.
        let base = unsafe { self.base.add(start) }.cast_const();
        Some(RawPart { base, length, memory: PhantomData })
    }

    /// The whole mapping, if it has room for a backend behind the region: memory of [`zeroed`](Self::zeroed) and
    /// [`copied_from`](Self::copied_from) of 1 MiB or more, on Linux. So a backend can have headers and payload in one
    /// buffer that it registers with the kernel. It may write to the [`Mapping::apron`], nobody else does; what is in it
    /// means nothing to anybody else.
    #[must_use]
    pub fn mapping(&self) -> Option<Mapping> {
        let Backing::Anonymous(map) = &self.backing else { return None };
        let apron_start = map.len().checked_sub(APRON_BYTES)?;
        (apron_start >= self.length).then_some(Mapping { base: self.base, bytes: map.len(), apron_start })
    }

    /// Waits until what was written is in the file; does nothing for other memory.
    ///
    /// # Errors
    /// What the system says.
    pub fn flush(&self) -> io::Result<()> {
        match &self.backing {
            Backing::File(map) if self.writable => map.flush(),
            _ => Ok(()),
        }
    }

    fn empty() -> Self {
        Self {
            base: ptr::NonNull::<u64>::dangling().as_ptr().cast(),
            length: 0,
            writable: true,
            backing: Backing::Lent,
        }
    }

    fn mapped(map: MmapRaw, length: usize, writable: bool, file: bool) -> Self {
        let base = map.as_mut_ptr();
        let backing = if file { Backing::File(map) } else { Backing::Anonymous(map) };
        Self { base, length, writable, backing }
    }

    /// `offset` as an index, if `length` bytes from there on exist.
    fn start(&self, offset: u64, length: usize) -> Result<usize, MemoryError> {
        let start = usize::try_from(offset).map_err(|_| MemoryError)?;
        match start.checked_add(length) {
            Some(end) if end <= self.length => Ok(start),
            _ => Err(MemoryError),
        }
    }
}

impl fmt::Debug for RegionMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.backing {
            Backing::Anonymous(_) => "anonymous",
            Backing::File(_) => "file",
            Backing::Lent => "lent",
        };
        f.debug_struct("RegionMemory")
            .field("kind", &kind)
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

/// Where a region and the room behind it lie; valid as long as the [`RegionMemory`] lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    base: *mut u8,
    bytes: usize,
    apron_start: usize,
}

impl Mapping {
    /// Address of the first byte, which is the region's first.
    #[must_use]
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// Bytes, with the apron, which is its end.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The room for a backend, [`APRON_BYTES`] long, at a multiple of a page.
    #[must_use]
    pub fn apron(&self) -> *mut u8 {
        self.base.wrapping_add(self.apron_start)
    }
}

/// A stretch of bytes for the kernel to read: an element of a gather list, laid out like `struct iovec`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct RawPart<'a> {
    base: *const u8,
    length: usize,
    memory: PhantomData<&'a RegionMemory>,
}

impl<'a> RawPart<'a> {
    /// Bytes that nobody changes: a header, or padding.
    #[must_use]
    pub fn of(bytes: &'a [u8]) -> Self {
        Self { base: bytes.as_ptr(), length: bytes.len(), memory: PhantomData }
    }

    /// Bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are no bytes at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Address of the first byte.
    #[must_use]
    pub fn as_ptr(&self) -> *const u8 {
        self.base
    }

    /// Continues a running checksum over the bytes. They are copied to `scratch` piece by piece (at some 40 GB/s, in
    /// the first-level cache), since a checksum takes a slice and none may be made over this memory.
    #[must_use]
    pub fn checksum(&self, checksum: &dyn Checksum, state: u32, scratch: &mut [u8; SCRATCH_BYTES]) -> u32 {
        let mut state = state;
        let mut done = 0;
        while done < self.length {
            let step = (self.length - done).min(SCRATCH_BYTES);
            // SAFETY: `done + step` is at most `length`, and that many bytes are readable during `'a`; `scratch` is
            // `SCRATCH_BYTES` long and borrowed mutably.
            unsafe { ptr::copy(self.base.add(done), scratch.as_mut_ptr(), step) };
            state = checksum.update(state, scratch.get(..step).unwrap_or(&[]));
            done += step;
        }
        state
    }

    /// Copies the bytes from `offset` on to `out`, as far as there are any.
    pub fn copy_out(&self, offset: usize, out: &mut [u8]) {
        let length = self.length.saturating_sub(offset).min(out.len());
        if length > 0 {
            // SAFETY: `offset + length` is at most `self.length`, and that many bytes are readable during `'a`; `out`
            // is at least `length` long and borrowed mutably. `copy` tolerates that it lies in lent memory.
            unsafe { ptr::copy(self.base.add(offset), out.as_mut_ptr(), length) };
        }
    }

    /// Appends the bytes to `out`.
    pub fn append_to(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + self.length, 0);
        let Some(room) = out.get_mut(start..) else { return };
        // SAFETY: `length` bytes are readable during `'a`, and `room` has just been made that long.
        unsafe { ptr::copy(self.base, room.as_mut_ptr(), self.length) };
    }
}

impl RawPart<'static> {
    /// Zeros, as padding: up to the size of the largest datagram, 9216.
    #[must_use]
    pub fn zeros(length: usize) -> Self {
        static ZEROS: [u8; 9216] = [0; 9216];
        Self::of(ZEROS.get(..length).unwrap_or(&ZEROS))
    }
}

/// Makes `file` exactly `length` bytes long with all blocks allocated, so that a mapping of it can be written to
/// without meeting a full disk half way.
///
/// # Errors
/// What the system says: `StorageFull` on a full disk. Where the system has no such call the file is only lengthened.
pub fn allocate_file(file: &File, length: u64) -> io::Result<()> {
    file.set_len(length)?;
    if length == 0 { Ok(()) } else { crate::sys::allocate_blocks(file, length) }
}

enum Backing {
    Anonymous(MmapRaw),
    File(MmapRaw),
    Lent,
}

/// Anonymous memory asks for huge pages from this size on.
#[cfg(target_os = "linux")]
const HUGE_PAGES_FROM: usize = 4 << 20;
#[cfg(target_os = "linux")]
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Bytes of the room behind a region that has some: see [`RegionMemory::mapping`]. It takes up RAM only when it is used.
pub const APRON_BYTES: usize = 256 << 10;

/// Anonymous memory has an apron from this size on.
#[cfg(target_os = "linux")]
const APRON_FROM: usize = 1 << 20;

/// Bytes to map for a region: with an apron, if it is large, and whole huge pages, if it asks for them.
#[cfg(target_os = "linux")]
fn mapped_bytes(length: usize) -> usize {
    let with_apron = || length.checked_next_multiple_of(PAGE_BYTES)?.checked_add(APRON_BYTES);
    match with_apron() {
        Some(bytes) if length >= HUGE_PAGES_FROM => {
            bytes.checked_next_multiple_of(HUGE_PAGE_BYTES).unwrap_or(length)
        }
        Some(bytes) if length >= APRON_FROM => bytes,
        _ => length,
    }
}

/// A multiple of the page size of every processor.
#[cfg(target_os = "linux")]
const PAGE_BYTES: usize = 64 << 10;

#[cfg(not(target_os = "linux"))]
fn mapped_bytes(length: usize) -> usize {
    length
}

fn check_file(file: &File, offset: u64, length: usize) -> io::Result<()> {
    let end = offset.checked_add(length as u64).ok_or(io::ErrorKind::InvalidInput)?;
    if end > file.metadata()?.len() {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file is shorter than the part to map"));
    }
    Ok(())
}

/// Applies an operation to an aligned word of live, writable memory.
#[cfg(target_has_atomic = "64")]
#[expect(clippy::unnecessary_wraps, reason = "there are processors without 64-bit atomics")]
fn apply_atomic(word: *mut u8, operation: AtomicOperation) -> Result<u64, MemoryError> {
    const ORDER: Ordering = Ordering::AcqRel;
    #[expect(clippy::cast_ptr_alignment, reason = "checked by the caller")]
    let word = word.cast::<u64>();
    // SAFETY: the caller checked bounds and alignment, and the memory outlives this call. Whoever else touches the word
    // does so atomically (remote atomics come through here; the application's copies need `&mut` or the driver).
    let word = unsafe { AtomicU64::from_ptr(word) };
    Ok(match operation {
        AtomicOperation::FetchAdd(operand) => word.fetch_add(operand, ORDER),
        AtomicOperation::CompareSwap { compare, swap } => {
            word.compare_exchange(compare, swap, ORDER, Ordering::Acquire).unwrap_or_else(|old| old)
        }
        AtomicOperation::Swap(operand) => word.swap(operand, ORDER),
        AtomicOperation::Min(operand) => word.fetch_min(operand, ORDER),
        AtomicOperation::Max(operand) => word.fetch_max(operand, ORDER),
        AtomicOperation::And(operand) => word.fetch_and(operand, ORDER),
        AtomicOperation::Or(operand) => word.fetch_or(operand, ORDER),
        AtomicOperation::Xor(operand) => word.fetch_xor(operand, ORDER),
    })
}

#[cfg(not(target_has_atomic = "64"))]
fn apply_atomic(_word: *mut u8, _operation: AtomicOperation) -> Result<u64, MemoryError> {
    Err(MemoryError)
}

#[cfg(test)]
mod tests;
