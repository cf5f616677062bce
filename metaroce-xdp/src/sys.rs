//! System calls and shared memory: mappings, the four rings' memory, `AF_XDP` socket options, `bpf(2)`.
//!
//! Together with `memory.rs` the only place with `unsafe` code. Own rings instead of a crate: `xsk-rs` 0.11 builds libxdp
//! in C (clang, libelf), hands out frames as `Copy` descriptors behind `unsafe` calls, and its default program takes every
//! packet of the queue; `xdpilone` 1.3 is pure Rust, but under a licence (EUPL) that this project does not take.

pub(crate) mod bpf;
pub(crate) mod mapping;
pub(crate) mod poll;
pub(crate) mod ring;
pub(crate) mod xsk;

use std::io;

/// The result of a system call that returns -1 on failure.
fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
