//! Linux: `sendmsg` with gather list and control messages, `recvmmsg`, and the socket options that `socket2` lacks.

use std::fs::File;
use std::io;
use std::mem::{self, MaybeUninit};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;
use std::time::Duration;

use libc::{c_int, c_void};
use metaroce_core::transmit::Ecn;
use mio::net::UdpSocket;
use socket2::{SockAddr, SockFilter, Socket};

use super::{Gather, RECEIVE_MESSAGES_MAX, ReceiveBatch, ReceiveFeatures, Received, Target, canonical};
use crate::config::SocketOptions;
use crate::memory::RawPart;

/// Room for source address and control messages of one message.
#[derive(Clone, Copy)]
pub struct MessageExtra {
    name: libc::sockaddr_storage,
    control: Control,
}

impl MessageExtra {
    pub(super) fn new() -> Self {
        // SAFETY: a `sockaddr_storage` of zeros is a valid value (family AF_UNSPEC).
        let name = unsafe { mem::zeroed() };
        Self { name, control: Control::ZERO }
    }
}

/// Sends the pieces as one datagram, or as several of `segment_bytes`.
pub(super) fn send(
    socket: &UdpSocket,
    to: SocketAddr,
    target: &Target,
    gather: &Gather<'_>,
) -> io::Result<usize> {
    const { assert!(size_of::<RawPart<'_>>() == size_of::<libc::iovec>(), "a gather list is an array of iovec") };
    let name = SockAddr::from(to);
    let (mut control, used) = Control::for_send(target);
    // SAFETY: a `msghdr` of zeros is a valid value: no name, no parts, no control messages.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_name = name.as_ptr().cast_mut().cast();
    message.msg_namelen = name.len();
    message.msg_iov = gather.parts().as_ptr().cast::<libc::iovec>().cast_mut();
    message.msg_iovlen = gather.parts().len() as _;
    if used > 0 {
        message.msg_control = control.as_mut_ptr();
        message.msg_controllen = used as _;
    }
    // SAFETY: `name`, `control` and the gather list, whose pieces are readable during its lifetime, outlive the call.
    // The kernel only reads through them. A `RawPart` is laid out like an `iovec`: address, then length.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_DONTWAIT) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Receives up to as many messages as the batch has slots.
pub(super) fn receive(socket: &UdpSocket, batch: &mut ReceiveBatch) -> io::Result<usize> {
    let mut parts = [const { MaybeUninit::<libc::iovec>::uninit() }; RECEIVE_MESSAGES_MAX];
    let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; RECEIVE_MESSAGES_MAX];
    let slots = batch.buffer.chunks_exact_mut(batch.slot_bytes.max(1));
    let mut prepared = 0;
    for (((slot, extra), part), header) in slots.zip(&mut batch.extra).zip(&mut parts).zip(&mut headers) {
        let part = part.write(libc::iovec { iov_base: slot.as_mut_ptr().cast(), iov_len: slot.len() });
        // SAFETY: a `mmsghdr` of zeros is a valid value.
        let header = header.write(unsafe { mem::zeroed() });
        header.msg_hdr.msg_name = (&raw mut extra.name).cast();
        header.msg_hdr.msg_namelen = length_of::<libc::sockaddr_storage>();
        header.msg_hdr.msg_iov = part;
        header.msg_hdr.msg_iovlen = 1;
        header.msg_hdr.msg_control = extra.control.as_mut_ptr();
        header.msg_hdr.msg_controllen = CONTROL_BYTES as _;
        prepared += 1;
    }
    let first = headers.as_mut_ptr().cast::<libc::mmsghdr>();
    // SAFETY: the first `prepared` headers are initialised; they point at buffers, names and control buffers of `batch`
    // and at `parts`, all alive and borrowed by nobody else until the call returns, each with its true length.
    let count = unsafe {
        libc::recvmmsg(socket.as_raw_fd(), first, prepared, libc::MSG_DONTWAIT as _, ptr::null_mut())
    };
    let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
    for ((message, extra), header) in batch.received.iter_mut().zip(&batch.extra).zip(&headers).take(count) {
        // SAFETY: `count` is at most `prepared`, and that many headers are initialised.
        *message = parse(unsafe { header.assume_init_ref() }, extra);
    }
    Ok(count)
}

/// Sets the options of a receive socket; says which ones hold.
pub(super) fn configure_receive(socket: &Socket, v6: bool, options: &SocketOptions) -> ReceiveFeatures {
    force_buffers(socket, options.receive_buffer_bytes, options.send_buffer_bytes);
    set_no_fragments(socket, v6);
    let tos = set(socket, libc::IPPROTO_IP, libc::IP_RECVTOS, 1);
    let ecn = if v6 { set(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1) } else { tos };
    let overflow = set(socket, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1);
    let gro = options.gro && set(socket, libc::SOL_UDP, libc::UDP_GRO, 1);
    ReceiveFeatures { ecn, gro, overflow }
}

/// Sets the options of a socket that only sends, and keeps everything from arriving there.
pub(super) fn configure_send(socket: &Socket, v6: bool, options: &SocketOptions) {
    force_buffers(socket, 0, options.send_buffer_bytes);
    set_no_fragments(socket, v6);
    let drop_all = SockFilter::new(BPF_RETURN_CONSTANT, 0, 0, 0);
    let _ = socket.attach_filter(&[drop_all]);
}

/// Whether the kernel knows `UDP_SEGMENT`.
pub(super) fn has_segmentation(socket: &Socket) -> bool {
    set(socket, libc::SOL_UDP, libc::UDP_SEGMENT, 1500) && set(socket, libc::SOL_UDP, libc::UDP_SEGMENT, 0)
}

/// Allocates the blocks of a file.
pub(super) fn allocate_blocks(file: &File, length: u64) -> io::Result<()> {
    let length = libc::off64_t::try_from(length).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the call takes no pointer; the descriptor is open.
    match unsafe { libc::posix_fallocate64(file.as_raw_fd(), 0, length) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Waits until a descriptor is readable or `timeout` has passed, with the resolution of the system's timers.
pub(super) fn wait_readable(descriptor: &impl AsRawFd, timeout: Duration) -> io::Result<()> {
    let mut poll = libc::pollfd { fd: descriptor.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let timeout = libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    // SAFETY: one `pollfd` and a `timespec`, both alive during the call; a null mask leaves the signals as they are.
    let ready = unsafe { libc::ppoll(&raw mut poll, 1, &raw const timeout, ptr::null()) };
    if ready < 0 {
        let error = io::Error::last_os_error();
        return if error.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(error) };
    }
    Ok(())
}

/// Buffer for control messages, aligned as they must be.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub struct Control([u8; CONTROL_BYTES]);

impl Control {
    /// An empty one.
    pub const ZERO: Self = Self([0; CONTROL_BYTES]);

    /// What a send needs: ECN codepoint and segment size; with it, the bytes used.
    #[must_use]
    pub fn for_send(target: &Target) -> (Self, usize) {
        let mut control = Self::ZERO;
        let mut used = 0;
        if target.ecn != Ecn::NotEct {
            let bits = c_int::from(target.ecn.bits());
            // An IPv4 destination takes IP_TOS on an IPv6 socket too.
            used = if target.to.is_ipv4() {
                control.push(used, libc::IPPROTO_IP, libc::IP_TOS, bits)
            } else {
                control.push(used, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, bits)
            };
        }
        if let Some(bytes) = target.segment_bytes {
            used = control.push(used, libc::SOL_UDP, libc::UDP_SEGMENT, bytes);
        }
        (control, used)
    }

    /// Where it starts.
    pub fn as_mut_ptr(&mut self) -> *mut c_void {
        self.0.as_mut_ptr().cast()
    }

    /// Appends a control message after `used` bytes; returns the bytes used then. Without room it is left out.
    fn push<T: Copy>(&mut self, used: usize, level: c_int, kind: c_int, value: T) -> usize {
        let bytes = length_of::<T>();
        // SAFETY: these two only compute.
        let (space, length) = unsafe { (libc::CMSG_SPACE(bytes) as usize, libc::CMSG_LEN(bytes)) };
        let Some(room) = self.0.get_mut(used..used + space) else { return used };
        #[expect(
            clippy::cast_ptr_alignment,
            reason = "the buffer and all sizes of messages are multiples of 8"
        )]
        let header = room.as_mut_ptr().cast::<libc::cmsghdr>();
        // SAFETY: `room` holds a header and a value with the padding between, and is aligned for a header.
        unsafe {
            (*header).cmsg_level = level;
            (*header).cmsg_type = kind;
            (*header).cmsg_len = length as _;
            ptr::write_unaligned(libc::CMSG_DATA(header).cast::<T>(), value);
        }
        used + space
    }
}

fn parse(header: &libc::mmsghdr, extra: &MessageExtra) -> Received {
    #[allow(clippy::unnecessary_cast, reason = "another type with other C libraries")]
    let control = extra.control.0.get(..header.msg_hdr.msg_controllen as usize).unwrap_or(&[]);
    // SAFETY: a `sockaddr_storage` is plain bytes, all initialised: zeros at first, then what the kernel wrote.
    let name = unsafe {
        std::slice::from_raw_parts((&raw const extra.name).cast::<u8>(), size_of::<libc::sockaddr_storage>())
    };
    parse_message(name, control, header.msg_len as usize, header.msg_hdr.msg_flags)
}

/// A received message from what `recvmsg` gives beside the payload: source address (a `sockaddr_in` or
/// `sockaddr_in6`), control messages, bytes of payload, flags.
#[must_use]
pub fn parse_message(name: &[u8], control: &[u8], length: usize, flags: c_int) -> Received {
    let mut message = Received { length, segment_bytes: length, ..Received::NOTHING };
    message.source = parse_name(name).map_or(message.source, canonical);
    message.truncated = flags & libc::MSG_TRUNC != 0;
    let mut rest = control;
    while let Some((level, kind, data, after)) = next_control(rest) {
        match (level, kind) {
            (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                // One byte for IPv4, an int for IPv6.
                let bits = read_int(data).unwrap_or_else(|| data.first().copied().unwrap_or(0).into());
                message.ecn = Ecn::from_bits(bits.to_le_bytes()[0]);
            }
            (libc::SOL_UDP, libc::UDP_GRO) => {
                message.segment_bytes = read_int(data).map_or(length, |bytes| bytes as usize);
            }
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => message.overflows = read_int(data),
            _ => {}
        }
        rest = after;
    }
    message
}

/// Splits off the first control message: level, kind, data, and what follows.
fn next_control(bytes: &[u8]) -> Option<(c_int, c_int, &[u8], &[u8])> {
    // SAFETY: these two only compute.
    let (data_start, data_space) = unsafe { (libc::CMSG_LEN(0) as usize, libc::CMSG_SPACE(0) as usize) };
    if bytes.len() < data_start {
        return None;
    }
    // SAFETY: there are enough bytes for a header, which may hold any bits.
    let header = unsafe { ptr::read_unaligned(bytes.as_ptr().cast::<libc::cmsghdr>()) };
    let length = header.cmsg_len as usize;
    let data = bytes.get(data_start..length)?;
    // SAFETY: it only computes; a length is an int's worth of bytes at most here.
    let space = unsafe { libc::CMSG_SPACE(libc::c_uint::try_from(data.len()).ok()?) } as usize;
    let after = bytes.get(space.max(data_space)..).unwrap_or(&[]);
    Some((header.cmsg_level, header.cmsg_type, data, after))
}

fn read_int(data: &[u8]) -> Option<u32> {
    data.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

/// The address in a `sockaddr_in` or `sockaddr_in6`: family in host order, port and address in network order, then for
/// IPv6 the scope in host order.
fn parse_name(name: &[u8]) -> Option<SocketAddr> {
    let (family, rest) = name.split_first_chunk()?;
    let (port, rest) = rest.split_first_chunk()?;
    let port = u16::from_be_bytes(*port);
    match c_int::from(libc::sa_family_t::from_ne_bytes(*family)) {
        libc::AF_INET => {
            let ip: [u8; 4] = *rest.first_chunk()?;
            Some(SocketAddrV4::new(Ipv4Addr::from(ip), port).into())
        }
        libc::AF_INET6 => {
            let (_flow, rest) = rest.split_first_chunk::<4>()?;
            let (ip, rest) = rest.split_first_chunk::<16>()?;
            let scope = u32::from_ne_bytes(*rest.first_chunk()?);
            Some(SocketAddrV6::new(Ipv6Addr::from(*ip), port, 0, scope).into())
        }
        _ => None,
    }
}

/// Bytes of memory that wait in the send queue of a socket, in the terms of its `SO_SNDBUF`.
///
/// # Errors
/// What the system says.
pub fn send_queue_bytes(socket: &impl AsRawFd) -> io::Result<usize> {
    let mut bytes: c_int = 0;
    // SAFETY: the call writes an int, which is alive.
    if unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(usize::try_from(bytes).unwrap_or(0))
}

/// Passes the system's limit where the process may.
fn force_buffers(socket: &Socket, receive_bytes: usize, send_bytes: usize) {
    for (name, bytes) in [(libc::SO_RCVBUFFORCE, receive_bytes), (libc::SO_SNDBUFFORCE, send_bytes)] {
        if bytes > 0 {
            let _ = set(socket, libc::SOL_SOCKET, name, c_int::try_from(bytes).unwrap_or(c_int::MAX));
        }
    }
}

/// Never fragments, and lets no cached path MTU stand in the way: the core finds out itself what a path carries.
fn set_no_fragments(socket: &Socket, v6: bool) {
    let _ = set(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE);
    if v6 {
        let _ = set(socket, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE);
        let _ = set(socket, libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG, 1);
    }
}

/// Sets an integer option; `false` if the system refuses.
fn set(socket: &impl AsFd, level: c_int, name: c_int, value: c_int) -> bool {
    let descriptor = socket.as_fd().as_raw_fd();
    // SAFETY: the value is alive during the call and has the length that is given.
    unsafe { libc::setsockopt(descriptor, level, name, (&raw const value).cast(), length_of::<c_int>()) == 0 }
}

/// The size of a type as system calls take it.
#[expect(clippy::cast_possible_truncation, reason = "only small structs")]
const fn length_of<T>() -> libc::socklen_t {
    size_of::<T>() as libc::socklen_t
}

/// Room for the control messages of one message: ECN 24, GRO 24, overflow 24 bytes, and something to spare.
pub const CONTROL_BYTES: usize = 128;

/// The instruction "return constant" of classic BPF; 0 bytes are kept.
const BPF_RETURN_CONSTANT: u16 = 6;
