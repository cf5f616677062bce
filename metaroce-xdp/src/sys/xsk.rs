//! `AF_XDP` sockets: the calls, without what they mean.

use std::ffi::c_void;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use super::checked;
use super::mapping::Mapping;
use super::ring::{Descriptor, RingMemory};

/// Entries of the four rings, each a power of two.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingSizes {
    pub(crate) fill: u32,
    pub(crate) completion: u32,
    pub(crate) receive: u32,
    pub(crate) transmit: u32,
}

/// The memory of the four rings.
#[derive(Debug)]
pub(crate) struct Rings {
    pub(crate) fill: RingMemory<u64>,
    pub(crate) completion: RingMemory<u64>,
    pub(crate) receive: RingMemory<Descriptor>,
    pub(crate) transmit: RingMemory<Descriptor>,
}

/// A new `AF_XDP` socket.
///
/// # Errors
/// What the system says: `EPERM` without `CAP_NET_RAW`, `EAFNOSUPPORT` where the kernel has no `AF_XDP`.
pub(crate) fn open() -> io::Result<OwnedFd> {
    // SAFETY: the call takes no pointer.
    let fd = checked(unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: the descriptor is new and belongs to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Makes `memory` the socket's UMEM, in chunks of `chunk_bytes`.
///
/// # Errors
/// What the system says: `ENOBUFS` when the memory may not be locked (`RLIMIT_MEMLOCK`).
pub(crate) fn register_umem(socket: BorrowedFd<'_>, memory: &Mapping, chunk_bytes: u32) -> io::Result<()> {
    let registration = libc::xdp_umem_reg {
        addr: memory.base().as_ptr().addr() as u64,
        len: memory.length() as u64,
        chunk_size: chunk_bytes,
        headroom: 0,
        flags: 0,
        tx_metadata_len: 0,
    };
    // The kernel pins the pages: they stay even if the mapping goes first. Into which chunks it writes is what
    // `memory.rs` keeps account of.
    set_option(socket, libc::SOL_XDP, libc::XDP_UMEM_REG, &registration)
}

/// Makes the four rings and maps them.
///
/// # Errors
/// What the system says.
pub(crate) fn make_rings(socket: BorrowedFd<'_>, sizes: RingSizes) -> io::Result<Rings> {
    for (option, size) in [
        (libc::XDP_UMEM_FILL_RING, sizes.fill),
        (libc::XDP_UMEM_COMPLETION_RING, sizes.completion),
        (libc::XDP_RX_RING, sizes.receive),
        (libc::XDP_TX_RING, sizes.transmit),
    ] {
        set_option(socket, libc::SOL_XDP, option, &size)?;
    }
    // SAFETY: a structure of integers, for which zeros are a value.
    let empty: libc::xdp_mmap_offsets = unsafe { mem::zeroed() };
    let offsets = option(socket, libc::XDP_MMAP_OFFSETS, empty)?;
    let page = |offset: u64| libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidData);
    Ok(Rings {
        fill: RingMemory::map(socket, sizes.fill, &offsets.fr, page(libc::XDP_UMEM_PGOFF_FILL_RING)?)?,
        completion: RingMemory::map(
            socket,
            sizes.completion,
            &offsets.cr,
            page(libc::XDP_UMEM_PGOFF_COMPLETION_RING)?,
        )?,
        receive: RingMemory::map(socket, sizes.receive, &offsets.rx, libc::XDP_PGOFF_RX_RING)?,
        transmit: RingMemory::map(socket, sizes.transmit, &offsets.tx, libc::XDP_PGOFF_TX_RING)?,
    })
}

/// Binds to a queue of an interface; `flags` are `XDP_COPY` and the like.
///
/// # Errors
/// What the system says: `EBUSY` if the queue has a socket, also for a while after that was closed.
pub(crate) fn bind(socket: BorrowedFd<'_>, interface: u32, queue: u32, flags: u16) -> io::Result<()> {
    // SAFETY: a structure of integers, for which zeros are a value.
    let mut address: libc::sockaddr_xdp = unsafe { mem::zeroed() };
    address.sxdp_family = libc::sa_family_t::try_from(libc::AF_XDP).unwrap_or(0);
    address.sxdp_flags = flags;
    address.sxdp_ifindex = interface;
    address.sxdp_queue_id = queue;
    let length = length_of::<libc::sockaddr_xdp>();
    // SAFETY: `address` lives through the call and is `length` bytes long.
    checked(unsafe { libc::bind(socket.as_raw_fd(), ptr::from_ref(&address).cast(), length) })?;
    Ok(())
}

/// Has the kernel look at the transmit ring. In copy mode it sends up to 32 frames (or the budget set) and says
/// `EAGAIN` if there are more.
///
/// # Errors
/// What the system says.
pub(crate) fn kick(socket: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: neither buffer nor address are given, only lengths of 0.
    let sent =
        unsafe { libc::sendto(socket.as_raw_fd(), ptr::null(), 0, libc::MSG_DONTWAIT, ptr::null(), 0) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Has the kernel look at the fill ring, or poll the device (busy polling).
///
/// # Errors
/// What the system says.
pub(crate) fn wake_receive(socket: BorrowedFd<'_>) -> io::Result<()> {
    let (buffer, from, length) = (ptr::null_mut::<c_void>(), ptr::null_mut(), ptr::null_mut());
    // SAFETY: neither buffer nor address are given, only a length of 0.
    let got = unsafe { libc::recvfrom(socket.as_raw_fd(), buffer, 0, libc::MSG_DONTWAIT, from, length) };
    if got < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// What the kernel dropped on the way to this socket, and what it refused to send.
///
/// # Errors
/// What the system says.
pub(crate) fn statistics(socket: BorrowedFd<'_>) -> io::Result<libc::xdp_statistics> {
    // SAFETY: a structure of integers, for which zeros are a value.
    let empty: libc::xdp_statistics = unsafe { mem::zeroed() };
    option(socket, libc::XDP_STATISTICS, empty)
}

/// Whether the device reads and writes the UMEM itself.
///
/// # Errors
/// What the system says.
pub(crate) fn is_zero_copy(socket: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(option(socket, libc::XDP_OPTIONS, 0u32)? & libc::XDP_OPTIONS_ZEROCOPY != 0)
}

/// Lets a call of [`kick`] send more than 32 frames, where the kernel has that option (6.17); says whether it does.
pub(crate) fn raise_send_budget(socket: BorrowedFd<'_>, frames: u32) -> bool {
    set_option(socket, libc::SOL_XDP, XDP_MAX_TX_SKB_BUDGET, &frames).is_ok()
}

/// Lets more bytes wait in the device's queue before a kick says `EAGAIN`.
pub(crate) fn raise_send_buffer(socket: BorrowedFd<'_>, bytes: libc::c_int) {
    if set_option(socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &bytes).is_err() {
        // Then it stays as it is: fewer frames at a time, but they go out.
        let _ = set_option(socket, libc::SOL_SOCKET, libc::SO_SNDBUF, &bytes);
    }
}

/// Has the device polled from this socket's calls instead of by interrupts, `packets` at a time.
///
/// # Errors
/// What the system says.
pub(crate) fn prefer_busy_poll(socket: BorrowedFd<'_>, micros: u32, packets: u32) -> io::Result<()> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_PREFER_BUSY_POLL, &1i32)?;
    set_option(socket, libc::SOL_SOCKET, libc::SO_BUSY_POLL, &micros)?;
    set_option(socket, libc::SOL_SOCKET, libc::SO_BUSY_POLL_BUDGET, &packets)
}

/// A type that the kernel reads or writes as plain bytes; private, so that only the types above are used.
fn set_option<T: Copy>(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> io::Result<()> {
    let value: *const T = value;
    // SAFETY: `value` lives through the call and is as long as said.
    checked(unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value.cast(), length_of::<T>()) })?;
    Ok(())
}

/// Reads an option of level `SOL_XDP` into `value`, which stays as it is where the kernel knows less.
fn option<T: Copy>(socket: BorrowedFd<'_>, name: libc::c_int, mut value: T) -> io::Result<T> {
    let mut length = length_of::<T>();
    let into: *mut T = &raw mut value;
    // SAFETY: `value` and `length` live through the call, which writes at most `length` bytes; the types used here are
    // integers and structures of integers, any bits of which are a value.
    checked(unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_XDP, name, into.cast(), &raw mut length)
    })?;
    Ok(value)
}

fn length_of<T>() -> libc::socklen_t {
    libc::socklen_t::try_from(size_of::<T>()).unwrap_or(0)
}

/// Of `linux/if_xdp.h` since 6.17; libc does not have it yet.
const XDP_MAX_TX_SKB_BUDGET: libc::c_int = 9;
