//! System calls: sending gather lists with control messages, receiving batches, socket options.
//!
//! Linux has an implementation of its own in [`linux`]; [`portable`] serves every other system, and on Linux whoever
//! asks for it. Hand-written over `libc` since neither candidate fits: `quinn-udp` 0.6 takes one contiguous buffer per
//! send (`Transmit::contents: &[u8]`), so that every payload would be copied to follow its header, and `rustix` 1.1 has
//! no ancillary message for `UDP_SEGMENT`, `IP_TOS` or `IPV6_TCLASS` (`SendAncillaryMessage` is rights, credentials and
//! transmission time). `socket2` does the set-up that it knows.
//!
//! This module is public for other backends of this workspace; programs do not need it.

#[cfg(target_os = "linux")]
pub mod linux;
pub mod portable;

use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use metaroce_core::transmit::Ecn;
use mio::Poll;
use mio::net::UdpSocket;
use socket2::Socket;

use crate::config::SocketOptions;
use crate::memory::RawPart;

/// Datagrams in one segmented send at most (the kernel takes 128 since 6.9, and 64 before).
pub const SEGMENTS_MAX: usize = 64;

/// UDP payload bytes of one send at most: what fits an IPv4 packet, segmented or not.
pub const SEND_BYTES_MAX: usize = 65_507;

/// Elements of a gather list at most: header, four parts of payload and padding for each segment.
pub const GATHER_MAX: usize = SEGMENTS_MAX * 6;

/// Messages that one receiving call takes at most.
pub const RECEIVE_MESSAGES_MAX: usize = 64;

/// What a receive socket has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiveFeatures {
    /// The ECN field of received datagrams is reported.
    pub ecn: bool,
    /// Datagrams are coalesced.
    pub gro: bool,
    /// Drops by a full buffer are reported.
    pub overflow: bool,
}

/// A gather list: pieces that are sent one after another.
pub struct Gather<'a> {
    parts: [MaybeUninit<RawPart<'a>>; GATHER_MAX],
    length: usize,
    bytes: usize,
    memory: PhantomData<RawPart<'a>>,
}

impl<'a> Gather<'a> {
    /// An empty list.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            parts: [const { MaybeUninit::uninit() }; GATHER_MAX],
            length: 0,
            bytes: 0,
            memory: PhantomData,
        }
    }

    /// Appends a piece; empty ones are left out. `false` if the list is full.
    #[must_use]
    pub fn push(&mut self, part: RawPart<'a>) -> bool {
        if part.is_empty() {
            return true;
        }
        let Some(slot) = self.parts.get_mut(self.length) else { return false };
        slot.write(part);
        self.length += 1;
        self.bytes += part.len();
        true
    }

    /// The pieces.
    #[must_use]
    pub fn parts(&self) -> &[RawPart<'a>] {
        // SAFETY: the first `length` elements were written by `push`.
        unsafe { std::slice::from_raw_parts(self.parts.as_ptr().cast::<RawPart<'a>>(), self.length) }
    }

    /// Bytes of all pieces together.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Default for Gather<'_> {
    fn default() -> Self {
        Self::new()
    }
}

/// One received message: a datagram, or several of equal size (but for the last) that were coalesced.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    /// Where it came from; IPv4 also when the socket is an IPv6 one.
    pub source: SocketAddr,
    /// Bytes in its slot of the buffer.
    pub length: usize,
    /// Bytes of each datagram in it, but for the last.
    pub segment_bytes: usize,
    /// Its ECN field.
    pub ecn: Ecn,
    /// Datagrams that this socket has dropped so far, cumulative modulo 2^32, if reported.
    pub overflows: Option<u32>,
    /// Whether a part of it did not fit the slot.
    pub truncated: bool,
}

impl Received {
    const NOTHING: Self = Self {
        source: SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
        length: 0,
        segment_bytes: 0,
        ecn: Ecn::NotEct,
        overflows: None,
        truncated: false,
    };
}

/// Buffers for one receiving call, and what came of it.
pub struct ReceiveBatch {
    slot_bytes: usize,
    buffer: Vec<u8>,
    received: Vec<Received>,
    filled: usize,
    drained: bool,
    #[cfg(target_os = "linux")]
    extra: Vec<linux::MessageExtra>,
}

impl ReceiveBatch {
    /// Room for `slots` messages (1 to [`RECEIVE_MESSAGES_MAX`]) of up to `slot_bytes` each.
    #[must_use]
    pub fn new(slots: usize, slot_bytes: usize) -> Self {
        let slots = slots.clamp(1, RECEIVE_MESSAGES_MAX);
        Self {
            slot_bytes,
            buffer: vec![0; slots * slot_bytes],
            received: vec![Received::NOTHING; slots],
            filled: 0,
            drained: false,
            #[cfg(target_os = "linux")]
            extra: vec![linux::MessageExtra::new(); slots],
        }
    }

    /// Messages that it has room for.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.received.len()
    }

    /// Receives what is there, and returns the number of messages.
    ///
    /// # Errors
    /// What the system says: `WouldBlock` if there is nothing.
    pub fn receive(&mut self, socket: &UdpSocket, portable: bool) -> io::Result<usize> {
        self.filled = 0;
        #[cfg(target_os = "linux")]
        if !portable {
            self.filled = linux::receive(socket, self)?;
            self.drained = self.filled < self.slots();
            return Ok(self.filled);
        }
        let _ = portable;
        (self.filled, self.drained) = portable::receive(socket, self)?;
        Ok(self.filled)
    }

    /// Whether the last call took all that was there: the poll reports what comes later.
    #[must_use]
    pub fn drained(&self) -> bool {
        self.drained
    }

    /// The messages of the last call, each with its bytes.
    pub fn messages(&self) -> impl Iterator<Item = (&Received, &[u8])> {
        let slots = self.buffer.chunks_exact(self.slot_bytes.max(1));
        self.received.iter().zip(slots).take(self.filled).map(|(message, slot)| {
            let bytes = slot.get(..message.length).unwrap_or(slot);
            (message, bytes)
        })
    }
}

/// Why a send failed, as far as anybody acts on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendFault {
    /// The send buffer is full.
    WouldBlock,
    /// The system has no buffers.
    NoBuffers,
    /// Too large for the link or the path.
    TooLarge,
    /// An ICMP message said that nobody listens there.
    Refused,
    /// No route, or the host or network is down.
    Unreachable,
    /// Forbidden by a local filter.
    Forbidden,
    /// The kind of call is not supported: segmented sends, if it was one.
    Unsupported,
    /// A signal came in between.
    Interrupted,
    /// Anything else.
    Other,
}

impl SendFault {
    /// The fault that an error stands for.
    #[must_use]
    pub fn of(error: &io::Error) -> Self {
        #[cfg(unix)]
        match error.raw_os_error() {
            Some(libc::EMSGSIZE) => return Self::TooLarge,
            Some(libc::ENOBUFS | libc::ENOMEM) => return Self::NoBuffers,
            Some(libc::EINVAL | libc::EIO | libc::EOPNOTSUPP) => return Self::Unsupported,
            Some(libc::EPERM | libc::EACCES) => return Self::Forbidden,
            _ => {}
        }
        #[cfg(windows)]
        match error.raw_os_error() {
            Some(WSAEMSGSIZE) => return Self::TooLarge,
            Some(WSAENOBUFS) => return Self::NoBuffers,
            _ => {}
        }
        match error.kind() {
            io::ErrorKind::WouldBlock => Self::WouldBlock,
            io::ErrorKind::OutOfMemory => Self::NoBuffers,
            io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => Self::Refused,
            io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::NetworkDown
            | io::ErrorKind::AddrNotAvailable => Self::Unreachable,
            io::ErrorKind::PermissionDenied => Self::Forbidden,
            io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported => Self::Unsupported,
            io::ErrorKind::Interrupted => Self::Interrupted,
            _ => Self::Other,
        }
    }
}

/// Where and how to send.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Destination, of any family that the socket can reach.
    pub to: SocketAddr,
    /// Whether the socket is an IPv6 one.
    pub socket_v6: bool,
    /// ECN codepoint.
    pub ecn: Ecn,
    /// Bytes of each datagram but the last, for a segmented send.
    pub segment_bytes: Option<u16>,
    /// Use the portable implementation, which knows neither ECN nor segments.
    pub portable: bool,
}

/// Sends a gather list as one datagram, or as several if `target` says so.
///
/// # Errors
/// What the system says; [`SendFault::of`] sorts it. `Unsupported` for segments where there is no such thing.
pub fn send(
    socket: &UdpSocket,
    target: &Target,
    gather: &Gather<'_>,
    scratch: &mut Vec<u8>,
) -> io::Result<usize> {
    let Some(to) = destination(target.to, target.socket_v6) else {
        return Err(io::ErrorKind::NetworkUnreachable.into());
    };
    #[cfg(target_os = "linux")]
    if !target.portable {
        return linux::send(socket, to, target, gather);
    }
    if target.segment_bytes.is_some() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    portable::send(socket, to, gather, scratch)
}

/// Sets the options of a receive socket, before it is bound.
///
/// # Errors
/// If not even the portable ones can be set.
pub fn configure_receive(socket: &Socket, v6: bool, options: &SocketOptions) -> io::Result<ReceiveFeatures> {
    portable::configure(socket, options.receive_buffer_bytes, options.send_buffer_bytes)?;
    #[cfg(target_os = "linux")]
    if !options.portable {
        return Ok(linux::configure_receive(socket, v6, options));
    }
    let _ = v6;
    Ok(ReceiveFeatures::default())
}

/// Sets the options of a socket that only sends, before it is bound.
///
/// # Errors
/// If not even the portable ones can be set.
pub fn configure_send(socket: &Socket, v6: bool, options: &SocketOptions) -> io::Result<()> {
    portable::configure(socket, PATH_RECEIVE_BUFFER_BYTES, options.send_buffer_bytes)?;
    #[cfg(target_os = "linux")]
    if !options.portable {
        linux::configure_send(socket, v6, options);
    }
    let _ = v6;
    Ok(())
}

/// Whether the system knows segmented sends at all. A device may still refuse them.
#[must_use]
pub fn has_segmentation(socket: &Socket) -> bool {
    #[cfg(target_os = "linux")]
    {
        linux::has_segmentation(socket)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = socket;
        false
    }
}

/// Allocates the first `length` bytes of a file, which is as long already.
#[cfg_attr(not(target_os = "linux"), expect(clippy::unnecessary_wraps, reason = "Linux can fail"))]
pub(crate) fn allocate_blocks(file: &File, length: u64) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        linux::allocate_blocks(file, length)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (file, length);
        Ok(())
    }
}

/// Sleeps until a descriptor is readable or `timeout` has passed, where the system can do that with the resolution of
/// its timers; says whether it did.
#[cfg_attr(not(target_os = "linux"), expect(clippy::unnecessary_wraps, reason = "Linux can fail"))]
pub(crate) fn wait_readable(poll: &Poll, timeout: Duration) -> io::Result<bool> {
    #[cfg(target_os = "linux")]
    {
        linux::wait_readable(poll, timeout).map(|()| true)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (poll, timeout);
        Ok(false)
    }
}

/// The address to hand to a socket of the given family; `None` if it cannot reach that.
#[must_use]
pub fn destination(to: SocketAddr, socket_v6: bool) -> Option<SocketAddr> {
    match to {
        SocketAddr::V4(v4) if socket_v6 => Some(SocketAddr::new(v4.ip().to_ipv6_mapped().into(), v4.port())),
        SocketAddr::V6(_) if !socket_v6 => None,
        same => Some(same),
    }
}

/// A source address as the core should see it: IPv4 is IPv4 on whatever socket, and no flow label.
fn canonical(source: SocketAddr) -> SocketAddr {
    match source {
        SocketAddr::V6(v6) => match v6.ip().to_ipv4_mapped() {
            Some(v4) => SocketAddr::new(v4.into(), v6.port()),
            None => std::net::SocketAddrV6::new(*v6.ip(), v6.port(), 0, v6.scope_id()).into(),
        },
        v4 @ SocketAddr::V4(_) => v4,
    }
}

/// Nobody sends to a path socket; the system raises this to its minimum.
const PATH_RECEIVE_BUFFER_BYTES: usize = 1024;

#[cfg(windows)]
const WSAEMSGSIZE: i32 = 10_040;
#[cfg(windows)]
const WSAENOBUFS: i32 = 10_055;

#[cfg(test)]
mod tests;
