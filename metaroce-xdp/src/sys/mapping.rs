//! Memory mapped into this process.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};

/// A mapping, unmapped on drop.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping belongs to this value alone; nothing about it is bound to a thread.
unsafe impl Send for Mapping {}
// SAFETY: `&Mapping` gives out an address only; whoever uses it states why that is sound.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// `length` bytes of zeros, in huge pages where the system has them: every packet touches another page.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn anonymous(length: usize) -> io::Result<Self> {
        let mapping = Self::new(length, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)?;
        // SAFETY: the range is this mapping's, and the advice changes no bytes. A kernel without huge pages refuses it,
        // which changes nothing either.
        unsafe { libc::madvise(mapping.base.as_ptr().cast(), length, libc::MADV_HUGEPAGE) };
        Ok(mapping)
    }

    /// `length` bytes of a ring of an `AF_XDP` socket, which `offset` names.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn ring(socket: BorrowedFd<'_>, length: usize, offset: libc::off_t) -> io::Result<Self> {
        Self::new(length, libc::MAP_SHARED | libc::MAP_POPULATE, socket.as_raw_fd(), offset)
    }

    fn new(length: usize, flags: libc::c_int, file: libc::c_int, offset: libc::off_t) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the system chooses the address, so that no mapping in use is touched.
        let base = unsafe { libc::mmap(ptr::null_mut(), length, protection, flags, file, offset) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, length })
    }

    /// Address of the first byte, aligned to a page.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Bytes.
    pub(crate) fn length(&self) -> usize {
        self.length
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `new` mapped exactly this, and nothing made from `&self` outlives the value.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.length) };
    }
}
