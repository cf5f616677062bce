//! What it costs to send with and without a copy, measured over loopback.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use io_uring::opcode::{Send, SendZc};
use io_uring::types::Fd;

use super::ring::{Ring, Tag};
use crate::options::UringOptions;

/// How long sends take until the kernel has let go of the memory, medians.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prices {
    /// Of [`SMALL_BYTES`], copied.
    pub(crate) small: Duration,
    /// Of [`LARGE_BYTES`], copied.
    pub(crate) large: Duration,
    /// Of [`SMALL_BYTES`], asked to go out without a copy.
    pub(crate) small_direct: Duration,
    /// The same, from a registered buffer; `None` where there can be none.
    pub(crate) small_registered: Option<Duration>,
}

/// How a send goes out while it is measured.
#[derive(Clone, Copy)]
enum How {
    Copied,
    Direct,
    Registered,
}

/// Measures; takes some milliseconds.
pub(crate) fn measure() -> io::Result<Prices> {
    let receiver = UdpSocket::bind("127.0.0.1:0")?;
    receiver.set_read_timeout(Some(PATIENCE))?;
    let sender = UdpSocket::bind("127.0.0.1:0")?;
    sender.connect(receiver.local_addr()?)?;
    let mut ring = Ring::new(&UringOptions { entries: 8, ..UringOptions::default() })?;
    ring.start()?;
    let bytes = vec![0; LARGE_BYTES];
    let range = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: the kernel pins the pages, and reads them only for the sends below.
    let registered = unsafe { ring.submitter().register_buffers(&[range]) }.is_ok();
    let mut time = |length, how| median(&mut ring, &sender, &receiver, &bytes, length, how);
    let prices =
        (time(SMALL_BYTES, How::Copied), time(LARGE_BYTES, How::Copied), time(SMALL_BYTES, How::Direct));
    let small_registered = if registered { time(SMALL_BYTES, How::Registered) } else { None };
    let (Some(small), Some(large), Some(small_direct)) = prices else {
        // The kernel may still read them.
        std::mem::forget(bytes);
        return Err(io::ErrorKind::TimedOut.into());
    };
    if ring.outstanding() > 0 {
        std::mem::forget(bytes);
    }
    Ok(Prices { small, large, small_direct, small_registered })
}

fn median(
    ring: &mut Ring,
    sender: &UdpSocket,
    receiver: &UdpSocket,
    bytes: &[u8],
    length: usize,
    how: How,
) -> Option<Duration> {
    let mut inbox = [0; 1];
    let start = bytes.get(..length)?.as_ptr();
    let length = u32::try_from(length).ok()?;
    let mut times = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let before = Instant::now();
        let file = Fd(sender.as_raw_fd());
        let entry = match how {
            How::Copied => Send::new(file, start, length).build(),
            How::Direct => SendZc::new(file, start, length).build(),
            How::Registered => SendZc::new(file, start, length).buf_index(Some(0)).build(),
        };
        // SAFETY: the bytes outlive the request: it is waited for right here, or else they are never freed.
        unsafe { ring.push(entry, Tag::Send(0)) }.ok()?;
        ring.submit().ok()?;
        receiver.recv(&mut inbox).ok()?;
        if !ring.drain() {
            return None;
        }
        times.push(before.elapsed());
    }
    times.sort_unstable();
    times.get(ROUNDS / 2).copied()
}

pub(crate) const SMALL_BYTES: usize = 4 << 10;
pub(crate) const LARGE_BYTES: usize = 60 << 10;
const ROUNDS: usize = 33;
const PATIENCE: Duration = Duration::from_secs(1);
