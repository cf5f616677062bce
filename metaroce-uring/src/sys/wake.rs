//! Being woken by other threads: an event counter that the ring reads.

use std::fs::File as StdFile;
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::sync::Arc;

use io_uring::opcode;
use io_uring::types::Fd;
use metaroce_mio::Waker;

use super::ring::{Ring, Tag};

/// The counter, and where the ring reads it into.
pub(crate) struct WakeCounter {
    counter: Arc<StdFile>,
    value: Box<u64>,
    armed: bool,
}

impl WakeCounter {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: the call takes no pointer.
        let raw = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is open and nobody else's.
        let counter = Arc::new(unsafe { StdFile::from_raw_fd(raw) });
        Ok(Self { counter, value: Box::new(0), armed: false })
    }

    pub(crate) fn waker(&self) -> Waker {
        let counter = Arc::clone(&self.counter);
        Waker::new(move || (&*counter).write_all(&1u64.to_ne_bytes()))
    }

    /// Has the ring read the counter, if it does not.
    pub(crate) fn arm(&mut self, ring: &mut Ring) -> io::Result<()> {
        if self.armed {
            return Ok(());
        }
        let value = (&raw mut *self.value).cast::<u8>();
        let entry = opcode::Read::new(Fd(self.counter.as_raw_fd()), value, WORD_BYTES).build();
        // SAFETY: the value is boxed, and its owner ends all requests before it drops it, or does not drop it.
        unsafe { ring.push(entry, Tag::Wake) }?;
        self.armed = true;
        Ok(())
    }

    /// The read is over.
    pub(crate) fn on_read(&mut self) {
        self.armed = false;
    }
}

const WORD_BYTES: u32 = 8;
