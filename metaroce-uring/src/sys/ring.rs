//! The two queues.

use std::io;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use io_uring::types::{CancelBuilder, Fd, Fixed, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};

use crate::options::UringOptions;

/// A ring, its requests counted.
pub(crate) struct Ring {
    queues: IoUring,
    deferred: bool,
    started: bool,
    /// Requests whose last completion has not been seen.
    outstanding: usize,
    pub(crate) requests: u64,
    pub(crate) enters: u64,
    pub(crate) overflows: u64,
}

/// Which request a completion is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tag {
    /// Receiving on a plane.
    Receive(u8),
    /// The send in a slot.
    Send(u32),
    /// Being woken.
    Wake,
    /// Cancelling.
    Cancel,
}

/// A completion.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completion {
    pub(crate) tag: Tag,
    /// Bytes, or the negative of an error number.
    pub(crate) result: i32,
    flags: u32,
}

/// A socket as a request names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum File {
    /// An index of the ring's table.
    Fixed(u32),
    /// A descriptor.
    Descriptor(RawFd),
}

impl Ring {
    /// Makes a ring that no thread owns yet: the first that submits will.
    pub(crate) fn new(options: &UringOptions) -> io::Result<Self> {
        match Self::build(options, true) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Self::build(options, false),
            result => result,
        }
    }

    fn build(options: &UringOptions, deferred: bool) -> io::Result<Self> {
        let mut builder: io_uring::Builder = IoUring::builder();
        let entries = options.entries.clamp(ENTRIES_MIN, ENTRIES_MAX);
        builder.setup_submit_all().setup_r_disabled().setup_cqsize(entries * 4);
        let deferred = deferred && options.sq_poll_idle.is_none();
        if let Some(idle) = options.sq_poll_idle {
            builder.setup_sqpoll(u32::try_from(idle.as_millis()).unwrap_or(u32::MAX));
        } else if deferred {
            builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag();
        } else {
            builder.setup_coop_taskrun().setup_taskrun_flag();
        }
        let queues = builder.build(entries)?;
        Ok(Self { queues, deferred, started: false, outstanding: 0, requests: 0, enters: 0, overflows: 0 })
    }

    /// Whether the kernel hands completions over only when asked for.
    pub(crate) fn is_deferred(&self) -> bool {
        self.deferred
    }

    /// Whether a thread owns it.
    pub(crate) fn is_started(&self) -> bool {
        self.started
    }

    /// Makes it the calling thread's.
    pub(crate) fn start(&mut self) -> io::Result<()> {
        self.queues.submitter().register_enable_rings()?;
        self.started = true;
        Ok(())
    }

    /// What registers files and buffers.
    pub(crate) fn submitter(&self) -> io_uring::Submitter<'_> {
        self.queues.submitter()
    }

    /// Requests whose last completion has not been seen.
    pub(crate) fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// Requests that the kernel has not seen.
    pub(crate) fn unsubmitted(&mut self) -> usize {
        self.queues.submission().len()
    }

    /// Whether the kernel has something to hand over that takes a call.
    pub(crate) fn has_deferred(&mut self) -> bool {
        let queue = self.queues.submission();
        queue.taskrun() || queue.cq_overflow()
    }

    /// Adds a request; it goes to the kernel with the next [`submit`](Self::submit), or at once if the queue is full.
    ///
    /// # Safety
    /// What the request refers to must stay as it is until its last completion was taken from here.
    pub(crate) unsafe fn push(&mut self, entry: squeue::Entry, tag: Tag) -> io::Result<()> {
        let entry = entry.user_data(tag.encode());
        // SAFETY: the caller sees to it.
        if unsafe { self.queues.submission().push(&entry) }.is_err() {
            self.submit_all()?;
            // SAFETY: as above.
            let pushed = unsafe { self.queues.submission().push(&entry) };
            pushed
                .map_err(|_| io::Error::new(io::ErrorKind::WouldBlock, "the submission queue stays full"))?;
        }
        self.outstanding += 1;
        self.requests += 1;
        Ok(())
    }

    /// Gives the kernel all requests, and has it hand over what is complete. Never blocks. No call if there is neither.
    pub(crate) fn submit(&mut self) -> io::Result<()> {
        let queue = self.queues.submission();
        let (idle, overflow) = (queue.is_empty() && !queue.taskrun(), queue.cq_overflow());
        drop(queue);
        self.overflows += u64::from(overflow);
        if idle && !overflow {
            return Ok(());
        }
        self.enters += 1;
        passing(self.queues.submit().map(drop))
    }

    /// Submits, and sleeps until something is complete or the time is up.
    pub(crate) fn submit_and_sleep(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.enters += 1;
        let result = match timeout {
            None => self.queues.submit_and_wait(1),
            Some(timeout) => {
                let timeout = Timespec::from(timeout);
                self.queues.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&timeout))
            }
        };
        passing(result.map(drop))
    }

    /// Waits until the kernel has taken over all requests: at once, but for a thread of the kernel that submits.
    pub(crate) fn submit_all(&mut self) -> io::Result<()> {
        let start = Instant::now();
        loop {
            self.submit()?;
            if self.unsubmitted() == 0 {
                return Ok(());
            }
            match start.elapsed() {
                spent if spent > SUBMIT_LIMIT => break,
                spent if spent > SUBMIT_PATIENCE => std::thread::sleep(SUBMIT_PATIENCE),
                _ => std::thread::yield_now(),
            }
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, "the kernel does not take over requests"))
    }

    /// The next completion that is there.
    pub(crate) fn take(&mut self) -> Option<Completion> {
        let entry = self.queues.completion().next()?;
        let completion =
            Completion { tag: Tag::decode(entry.user_data()), result: entry.result(), flags: entry.flags() };
        if completion.is_last() {
            self.outstanding -= 1;
        }
        Some(completion)
    }

    /// Whether a completion is there.
    pub(crate) fn has_completion(&mut self) -> bool {
        !self.queues.completion().is_empty()
    }

    /// Takes completions until no request is outstanding; `false` if that takes too long.
    pub(crate) fn drain(&mut self) -> bool {
        for _ in 0..DRAIN_TRIES {
            while self.take().is_some() {}
            if self.outstanding == 0 {
                return true;
            }
            if self.submit_and_sleep(Some(DRAIN_STEP)).is_err() {
                return false;
            }
        }
        false
    }

    /// Asks the kernel to cancel one request, or all.
    pub(crate) fn cancel(&mut self, tag: Option<Tag>) -> io::Result<()> {
        let which = match tag {
            Some(tag) => CancelBuilder::user_data(tag.encode()),
            None => CancelBuilder::any(),
        };
        // SAFETY: the request refers to no memory.
        unsafe { self.push(opcode::AsyncCancel2::new(which).build(), Tag::Cancel) }
    }
}

impl Completion {
    /// Whether its request is over.
    pub(crate) fn is_last(&self) -> bool {
        !cqueue::more(self.flags)
    }

    /// Whether it only says that the kernel has let go of the memory of a send.
    pub(crate) fn is_notice(&self) -> bool {
        cqueue::notif(self.flags)
    }

    /// The provided buffer that was filled.
    pub(crate) fn buffer(&self) -> Option<u16> {
        cqueue::buffer_select(self.flags)
    }

    /// The error, if it is one.
    pub(crate) fn error(&self) -> Option<io::Error> {
        (self.result < 0).then(|| io::Error::from_raw_os_error(-self.result))
    }
}

impl Tag {
    fn encode(self) -> u64 {
        match self {
            Self::Receive(plane) => u64::from(plane),
            Self::Send(slot) => SEND | u64::from(slot),
            Self::Wake => WAKE,
            Self::Cancel => CANCEL,
        }
    }

    fn decode(data: u64) -> Self {
        let [low, ..] = data.to_le_bytes();
        match data & KIND {
            SEND => Self::Send(u32::try_from(data & !KIND).unwrap_or(u32::MAX)),
            WAKE => Self::Wake,
            CANCEL => Self::Cancel,
            _ => Self::Receive(low),
        }
    }
}

impl File {
    /// A request made for either kind.
    pub(crate) fn entry(
        self,
        fixed: impl FnOnce(Fixed) -> squeue::Entry,
        descriptor: impl FnOnce(Fd) -> squeue::Entry,
    ) -> squeue::Entry {
        match self {
            Self::Fixed(index) => fixed(Fixed(index)),
            Self::Descriptor(raw) => descriptor(Fd(raw)),
        }
    }
}

/// What of an error of `io_uring_enter` is no failure: the time is up, a signal came, or the kernel is short of room and
/// wants completions taken first. And it says what it means to call from another thread.
fn passing(result: io::Result<()>) -> io::Result<()> {
    let Err(error) = result else { return Ok(()) };
    match error.raw_os_error() {
        Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => Ok(()),
        Some(libc::EEXIST) => Err(io::Error::other(
            "an io_uring driver belongs to the thread that first ran it: make it, or run it first, where it stays",
        )),
        _ => Err(error),
    }
}

const ENTRIES_MIN: u32 = 8;
const ENTRIES_MAX: u32 = 4096;

/// How long to wait for a submitting thread of the kernel without sleeping, and at all.
const SUBMIT_PATIENCE: Duration = Duration::from_micros(200);
const SUBMIT_LIMIT: Duration = Duration::from_secs(5);

/// How long ending all requests may take.
const DRAIN_TRIES: usize = 100;
const DRAIN_STEP: Duration = Duration::from_millis(20);

const KIND: u64 = 0xff << 56;
const SEND: u64 = 1 << 56;
const WAKE: u64 = 2 << 56;
const CANCEL: u64 = 3 << 56;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_survive_the_ring() {
        for tag in
            [Tag::Receive(0), Tag::Receive(7), Tag::Send(0), Tag::Send(u32::MAX), Tag::Wake, Tag::Cancel]
        {
            assert_eq!(Tag::decode(tag.encode()), tag);
        }
    }
}
