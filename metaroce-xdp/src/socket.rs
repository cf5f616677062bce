//! An `AF_XDP` socket on one queue, with its UMEM, its rings and the frames that wait for use.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use crate::error::OpenError;
use crate::memory::{FilledFrame, FreeFrame, ReceivedFrame, Umem};
use crate::options::{CopyMode, XdpOptions};
use crate::ring::{Consumer, Producer};
use crate::sys::ring::Descriptor;
use crate::sys::xsk::{self, RingSizes};

/// A socket, opened, filled and bound.
#[derive(Debug)]
pub(crate) struct QueueSocket {
    fd: OwnedFd,
    queue: u32,
    umem: Umem,
    fill: Producer<u64>,
    completion: Consumer<u64>,
    receive: Consumer<Descriptor>,
    transmit: Producer<Descriptor>,
    /// Frames that are to go into the fill ring.
    to_fill: Vec<FreeFrame>,
    /// Frames that may be sent from.
    to_send: Vec<FreeFrame>,
    multi_buffer: bool,
    zero_copy: bool,
    busy_poll: bool,
    counters: QueueCounters,
}

/// What a socket has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueCounters {
    /// Calls that had the kernel send.
    pub kicks: u64,
    /// Of these, those after which nothing had gone.
    pub kicks_in_vain: u64,
    /// Calls that had the kernel look for frames to receive into, or poll the device.
    pub wakeups: u64,
    /// Frames that the kernel returned without having them. Always 0, or the driver is broken.
    pub strays: u64,
}

/// How far sending got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Flushed {
    /// The kernel has taken, or will take, everything.
    All,
    /// The kernel takes no more for now.
    Blocked,
}

impl QueueSocket {
    /// Opens the queue. `native` if the filter runs in the driver, `fragments` if it takes packets in several buffers.
    ///
    /// # Errors
    /// [`OpenError`].
    pub(crate) fn open(
        options: &XdpOptions,
        interface: u32,
        native: bool,
        fragments: bool,
    ) -> Result<Self, OpenError> {
        let (receive_frames, transmit_frames) = (options.receive_frames, options.transmit_frames);
        let fd = xsk::open().map_err(OpenError::io("open an AF_XDP socket"))?;
        let chunks = receive_frames + transmit_frames;
        let (umem, mut to_fill) =
            Umem::new(chunks, options.chunk_bytes).map_err(OpenError::io("map memory for frames"))?;
        let to_send = to_fill.split_off(receive_frames as usize);
        xsk::register_umem(fd.as_fd(), umem.mapping(), umem.chunk_bytes()).map_err(|error| {
            match error.raw_os_error() {
                Some(libc::ENOBUFS | libc::ENOMEM) => {
                    OpenError::LockedMemory { bytes: umem.mapping().length() as u64 }
                }
                _ => OpenError::io("register memory for frames")(error),
            }
        })?;
        let sizes = RingSizes {
            fill: receive_frames,
            completion: transmit_frames,
            receive: receive_frames,
            transmit: transmit_frames,
        };
        let rings = xsk::make_rings(fd.as_fd(), sizes).map_err(OpenError::io("make the rings"))?;
        let mut socket = Self {
            fd,
            queue: options.queue,
            umem,
            fill: Producer::new(rings.fill),
            completion: Consumer::new(rings.completion),
            receive: Consumer::new(rings.receive),
            transmit: Producer::new(rings.transmit),
            to_fill,
            to_send,
            multi_buffer: false,
            zero_copy: false,
            busy_poll: false,
            counters: QueueCounters::default(),
        };
        socket.replenish();
        socket.bind(options, interface, native, fragments)?;
        socket.tune(options)?;
        Ok(socket)
    }

    /// The queue.
    pub(crate) fn queue(&self) -> u32 {
        self.queue
    }

    /// Whether packets may take several chunks.
    pub(crate) fn is_multi_buffer(&self) -> bool {
        self.multi_buffer
    }

    /// Whether the device reads and writes the frames itself.
    pub(crate) fn is_zero_copy(&self) -> bool {
        self.zero_copy
    }

    /// Bytes of a chunk, all of which can be sent.
    pub(crate) fn chunk_bytes(&self) -> usize {
        self.umem.chunk_bytes() as usize
    }

    /// What it has done.
    pub(crate) fn counters(&self) -> QueueCounters {
        self.counters
    }

    /// What the kernel has counted.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn kernel_statistics(&self) -> io::Result<libc::xdp_statistics> {
        xsk::statistics(self.fd.as_fd())
    }

    /// The next received frame, or part of one. Its bytes stay until it is [recycled](Self::recycle).
    pub(crate) fn next_received(&mut self) -> Option<ReceivedFrame> {
        // Bounded by the size of the ring.
        while let Some(descriptor) = self.receive.pop() {
            if let Some(frame) = self.umem.take_received(descriptor) {
                return Some(frame);
            }
            self.counters.strays += 1;
        }
        None
    }

    /// The bytes of a received frame.
    pub(crate) fn bytes(&self, frame: &ReceivedFrame) -> &[u8] {
        self.umem.bytes(frame)
    }

    /// The frame was read; it goes back to the kernel with the next [`replenish`](Self::replenish).
    pub(crate) fn recycle(&mut self, frame: ReceivedFrame) {
        self.to_fill.push(frame.recycle());
    }

    /// Gives the kernel the slots of what was received, and the frames to receive into.
    pub(crate) fn replenish(&mut self) {
        self.receive.release();
        let mut put = false;
        while self.fill.room(1) > 0 {
            let Some(frame) = self.to_fill.pop() else { break };
            let address = self.umem.lend_to_fill(frame);
            // There was room.
            put |= self.fill.push(address);
        }
        if put {
            self.fill.publish();
        }
        if self.fill.needs_wakeup() {
            self.wake();
        }
    }

    /// With busy polling: has the kernel poll the device.
    pub(crate) fn poll_device(&mut self) {
        if self.busy_poll {
            self.wake();
        }
    }

    /// Whether there is nothing to receive.
    pub(crate) fn is_idle(&self) -> bool {
        self.receive.is_empty()
    }

    /// A frame to fill; `None` if all are under way.
    pub(crate) fn take_free(&mut self) -> Option<FreeFrame> {
        if self.to_send.is_empty() {
            self.reap();
        }
        self.to_send.pop()
    }

    /// Frames that can be taken.
    pub(crate) fn free(&mut self, wanted: usize) -> usize {
        if self.to_send.len() < wanted {
            self.reap();
        }
        self.to_send.len()
    }

    /// A frame that is not sent after all.
    pub(crate) fn put_back(&mut self, frame: FreeFrame) {
        self.to_send.push(frame);
    }

    /// The bytes of a free frame.
    pub(crate) fn buffer(&mut self, frame: &mut FreeFrame) -> &mut [u8] {
        self.umem.buffer(frame)
    }

    /// The bytes of a filled frame.
    pub(crate) fn filled(&mut self, frame: &mut FilledFrame) -> &mut [u8] {
        self.umem.filled(frame)
    }

    /// Queues a filled frame; the kernel sees it at the next [`flush`](Self::flush). The parts of a packet follow one
    /// another.
    pub(crate) fn send(&mut self, frame: FilledFrame) {
        let descriptor = self.umem.lend_to_transmit(frame);
        // The ring has as many slots as there are frames to send from.
        let queued = self.transmit.push(descriptor);
        debug_assert!(queued, "more frames than slots");
    }

    /// Shows the kernel what is queued, and has it send.
    pub(crate) fn flush(&mut self) -> Flushed {
        self.transmit.publish();
        let mut pending = self.transmit.pending();
        while pending > 0 {
            if self.zero_copy && !self.transmit.needs_wakeup() {
                return Flushed::All;
            }
            self.counters.kicks += 1;
            // Whatever it says (EAGAIN: there is more; ENOBUFS: the device's queue is full), the ring tells what went.
            let refused = xsk::kick(self.fd.as_fd()).is_err();
            self.reap();
            let left = self.transmit.pending();
            if left == pending && (refused || !self.zero_copy) {
                self.counters.kicks_in_vain += 1;
                return Flushed::Blocked;
            }
            pending = left;
            if self.zero_copy {
                return Flushed::All;
            }
        }
        Flushed::All
    }

    /// Takes back the frames that were sent.
    fn reap(&mut self) {
        let mut taken = false;
        while let Some(address) = self.completion.pop() {
            taken = true;
            match self.umem.take_completed(address) {
                Some(frame) => self.to_send.push(frame),
                None => self.counters.strays += 1,
            }
        }
        if taken {
            self.completion.release();
        }
    }

    fn wake(&mut self) {
        self.counters.wakeups += 1;
        // EAGAIN and EBUSY say that somebody else is at it.
        let _ = xsk::wake_receive(self.fd.as_fd());
    }

    fn bind(
        &mut self,
        options: &XdpOptions,
        interface: u32,
        native: bool,
        fragments: bool,
    ) -> Result<(), OpenError> {
        let copy = match options.copy {
            CopyMode::ZeroCopy => libc::XDP_ZEROCOPY,
            // A generic filter sees copies; the device can't receive past it.
            CopyMode::Automatic if native => 0,
            CopyMode::Automatic | CopyMode::Copy => libc::XDP_COPY,
        };
        let mut parts = fragments && options.multi_buffer;
        let patience = options.start_waiting();
        loop {
            let flags = copy | libc::XDP_USE_NEED_WAKEUP | if parts { XDP_USE_SG } else { 0 };
            let error = match xsk::bind(self.fd.as_fd(), interface, options.queue, flags) {
                Ok(()) => break,
                Err(error) => error,
            };
            match error.raw_os_error() {
                Some(libc::EBUSY) if patience.wait() => {}
                Some(libc::EBUSY) => {
                    let interface = options.interface.clone();
                    return Err(OpenError::QueueBusy { interface, queue: options.queue });
                }
                // A kernel before 6.6, or a driver that can't.
                Some(libc::EINVAL | libc::EOPNOTSUPP) if parts => parts = false,
                Some(libc::EOPNOTSUPP) if copy == libc::XDP_ZEROCOPY => {
                    return Err(OpenError::NoZeroCopy(options.interface.clone()));
                }
                _ => return Err(OpenError::io("bind the AF_XDP socket to its queue")(error)),
            }
        }
        self.multi_buffer = parts;
        self.zero_copy = xsk::is_zero_copy(self.fd.as_fd()).unwrap_or(false);
        Ok(())
    }

    fn tune(&mut self, options: &XdpOptions) -> Result<(), OpenError> {
        xsk::raise_send_budget(self.fd.as_fd(), SEND_BUDGET.min(options.transmit_frames));
        xsk::raise_send_buffer(self.fd.as_fd(), SEND_BUFFER_BYTES);
        if let Some(poll) = options.busy_poll {
            xsk::prefer_busy_poll(self.fd.as_fd(), poll.micros, u32::from(poll.packets))
                .map_err(OpenError::io("switch on busy polling"))?;
            self.busy_poll = true;
        }
        Ok(())
    }
}

impl AsFd for QueueSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for QueueSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// `XDP_USE_SG` of `linux/if_xdp.h`: packets may take several chunks.
const XDP_USE_SG: u16 = 1 << 4;

/// Frames that one kick may send, where the kernel lets that be set.
const SEND_BUDGET: u32 = 512;

/// Bytes that may wait in the device's queue.
const SEND_BUFFER_BYTES: libc::c_int = 16 << 20;
