//! `bpf(2)`: a program, a map of sockets, and the link that holds the program to an interface.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

/// One instruction: `struct bpf_insn`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Instruction {
    pub(crate) code: u8,
    /// Destination in the low half, source in the high half (on little-endian machines).
    pub(crate) registers: u8,
    pub(crate) offset: i16,
    pub(crate) immediate: i32,
}

/// A program that the kernel refused, with what its verifier said.
#[derive(Debug)]
pub(crate) struct LoadError {
    pub(crate) error: io::Error,
    pub(crate) log: String,
}

/// How a program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hook {
    /// In the driver.
    Native,
    /// In the stack, for every device.
    Generic,
}

/// A map from queue to `AF_XDP` socket, for queues 0 to `queues` - 1.
///
/// # Errors
/// What the system says.
pub(crate) fn create_socket_map(queues: u32) -> io::Result<OwnedFd> {
    let attributes =
        MapCreate { kind: MAP_TYPE_XSKMAP, key_bytes: 4, value_bytes: 4, entries: queues, flags: 0 };
    call_for_descriptor(MAP_CREATE, &attributes)
}

/// Enters a socket, which leaves the map by itself when it is closed.
///
/// # Errors
/// What the system says.
pub(crate) fn insert_socket(map: BorrowedFd<'_>, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
    let value = socket.as_raw_fd();
    let attributes = MapElement {
        map: descriptor(map),
        padding: 0,
        key: ptr::from_ref(&queue).addr() as u64,
        value: ptr::from_ref(&value).addr() as u64,
        flags: 0,
    };
    call(MAP_UPDATE_ELEMENT, &attributes).map(|_| ())
}

/// Loads an XDP program called `name`; `fragments` if it may be shown packets that lie in several buffers.
///
/// # Errors
/// [`LoadError`].
pub(crate) fn load_xdp(
    name: [u8; 16],
    program: &[Instruction],
    fragments: bool,
) -> Result<OwnedFd, LoadError> {
    let mut log = vec![0u8; 1 << 16];
    // Nothing of GPL-only helpers is called; the licence is the project's.
    let licence = c"Dual MIT/GPL";
    let attributes = ProgramLoad {
        kind: PROGRAM_TYPE_XDP,
        instructions: u32::try_from(program.len()).unwrap_or(u32::MAX),
        code: program.as_ptr().addr() as u64,
        licence: licence.as_ptr().addr() as u64,
        log_level: 1,
        log_bytes: u32::try_from(log.len()).unwrap_or(0),
        log: log.as_mut_ptr().expose_provenance() as u64,
        kernel_version: 0,
        flags: if fragments { PROGRAM_HAS_FRAGMENTS } else { 0 },
        name,
        interface: 0,
        attach_type: ATTACH_XDP,
    };
    call_for_descriptor(PROGRAM_LOAD, &attributes).map_err(|error| {
        let text = log.split(|byte| *byte == 0).next().unwrap_or(&[]);
        LoadError { error, log: String::from_utf8_lossy(text).trim().to_owned() }
    })
}

/// Attaches a program for as long as the descriptor returned is open: it goes with the process, however that ends.
///
/// # Errors
/// What the system says: `EBUSY` or `EEXIST` if the interface has a program already.
pub(crate) fn link_xdp(program: BorrowedFd<'_>, interface: u32, hook: Hook) -> io::Result<OwnedFd> {
    let flags = match hook {
        Hook::Generic => XDP_FLAGS_SKB_MODE,
        Hook::Native => XDP_FLAGS_DRV_MODE,
    };
    let attributes = LinkCreate { program: descriptor(program), interface, attach_type: ATTACH_XDP, flags };
    call_for_descriptor(LINK_CREATE, &attributes)
}

/// The name of the program with this id, if it may be asked for.
pub(crate) fn program_name(id: u32) -> Option<String> {
    let attributes = ById { id, next: 0, flags: 0 };
    let program = call_for_descriptor(PROGRAM_BY_ID, &attributes).ok()?;
    let mut info = [0u8; PROGRAM_INFO_BYTES];
    let attributes = Info {
        descriptor: descriptor(program.as_raw_fd_borrowed()),
        bytes: u32::try_from(info.len()).ok()?,
        into: info.as_mut_ptr().expose_provenance() as u64,
    };
    call(INFO_BY_DESCRIPTOR, &attributes).ok()?;
    let name = info.get(PROGRAM_INFO_NAME..PROGRAM_INFO_NAME + 16)?.split(|byte| *byte == 0).next()?;
    Some(String::from_utf8_lossy(name).into_owned())
}

/// Lets `OwnedFd` be named as the borrowed descriptor that the calls here take.
trait Borrowed {
    fn as_raw_fd_borrowed(&self) -> BorrowedFd<'_>;
}

impl Borrowed for OwnedFd {
    fn as_raw_fd_borrowed(&self) -> BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(self)
    }
}

fn descriptor(fd: BorrowedFd<'_>) -> u32 {
    u32::try_from(fd.as_raw_fd()).unwrap_or(u32::MAX)
}

fn call_for_descriptor<T: Copy>(command: libc::c_int, attributes: &T) -> io::Result<OwnedFd> {
    let fd = call(command, attributes)?;
    // SAFETY: the command returns a descriptor that is new and belongs to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `attributes` is one of the structures below, each a prefix of `union bpf_attr` for its command.
fn call<T: Copy>(command: libc::c_int, attributes: &T) -> io::Result<libc::c_int> {
    let attributes: *const T = attributes;
    // SAFETY: `attributes` lives through the call and is as long as said; addresses in it lead to memory of the callers
    // above that lives through the call too, and is as long as they say beside it.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attributes, mem::size_of::<T>()) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    libc::c_int::try_from(result).map_err(|_| io::ErrorKind::InvalidData.into())
}

#[derive(Clone, Copy)]
#[repr(C)]
struct MapCreate {
    kind: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
    flags: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct MapElement {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct ProgramLoad {
    kind: u32,
    instructions: u32,
    code: u64,
    licence: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach_type: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct LinkCreate {
    program: u32,
    interface: u32,
    attach_type: u32,
    flags: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct ById {
    id: u32,
    next: u32,
    flags: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Info {
    descriptor: u32,
    bytes: u32,
    into: u64,
}

// Of `linux/bpf.h`.
const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE_ELEMENT: libc::c_int = 2;
const PROGRAM_LOAD: libc::c_int = 5;
const PROGRAM_BY_ID: libc::c_int = 13;
const INFO_BY_DESCRIPTOR: libc::c_int = 15;
const LINK_CREATE: libc::c_int = 28;
const MAP_TYPE_XSKMAP: u32 = 17;
const PROGRAM_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
const PROGRAM_HAS_FRAGMENTS: u32 = 1 << 5;
/// `struct bpf_prog_info` up to and including its name.
const PROGRAM_INFO_BYTES: usize = 80;
const PROGRAM_INFO_NAME: usize = 64;

// Of `linux/if_link.h`.
const XDP_FLAGS_SKB_MODE: u32 = 2;
const XDP_FLAGS_DRV_MODE: u32 = 4;
