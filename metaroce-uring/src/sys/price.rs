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
    let mut time = |length, direct| median(&mut ring, &sender, &receiver, &bytes, length, direct);
    let prices = (time(SMALL_BYTES, false), time(LARGE_BYTES, false), time(SMALL_BYTES, true));
    let (Some(small), Some(large), Some(small_direct)) = prices else {
        // The kernel may still read them.
        std::mem::forget(bytes);
        return Err(io::ErrorKind::TimedOut.into());
    };
    Ok(Prices { small, large, small_direct })
}

fn median(
    ring: &mut Ring,
    sender: &UdpSocket,
    receiver: &UdpSocket,
    bytes: &[u8],
    length: usize,
    direct: bool,
) -> Option<Duration> {
    let mut inbox = [0; 1];
    let start = bytes.get(..length)?.as_ptr();
    let length = u32::try_from(length).ok()?;
    let mut times = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let before = Instant::now();
        let file = Fd(sender.as_raw_fd());
        let entry = if direct {
            SendZc::new(file, start, length).build()
        } else {
            Send::new(file, start, length).build()
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
