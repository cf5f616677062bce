//! Whether this system's `io_uring` has what is needed, and if not, what to tell the user.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;

use io_uring::Probe;
use io_uring::opcode::{AsyncCancel, Read, RecvMsg, SendMsg, SendMsgZc};
use metaroce_mio::BuildError;

use crate::options::UringOptions;
use crate::sys::buffers::Buffers;
use crate::sys::ring::{File, Ring};

/// What is optional.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Features {
    /// Sending without a copy.
    pub(crate) zero_copy: bool,
}

/// Finds out whether the backend can work here, with a ring and a socket of its own.
///
/// # Errors
/// [`BuildError::Unsupported`], with a text that says what is missing and what to take instead.
pub fn check() -> Result<(), BuildError> {
    probe().map(drop)
}

/// On a thread of its own: when a ring goes, the kernel interrupts the thread that used it some time later, so that a
/// call of the caller's would end with `EINTR`.
pub(crate) fn probe() -> Result<Features, BuildError> {
    match std::thread::spawn(look).join() {
        Ok(result) => result,
        Err(_) => Err(io::Error::other("looking for io_uring failed").into()),
    }
}

fn look() -> Result<Features, BuildError> {
    let options = UringOptions { entries: 8, ..UringOptions::default() };
    let mut ring = Ring::new(&options).map_err(|error| explain("making a ring", "5.19", &error))?;
    let mut known = Probe::new();
    ring.submitter()
        .register_probe(&mut known)
        .map_err(|error| explain("asking for the operations that there are", "5.6", &error))?;
    for (code, name) in [
        (RecvMsg::CODE, "IORING_OP_RECVMSG"),
        (SendMsg::CODE, "IORING_OP_SENDMSG"),
        (AsyncCancel::CODE, "IORING_OP_ASYNC_CANCEL"),
        (Read::CODE, "IORING_OP_READ"),
    ] {
        if !known.is_supported(code) {
            return Err(missing(name, "5.6"));
        }
    }
    let buffers = Buffers::register(&ring, 2, 2048)
        .map_err(|error| explain("registering a ring of receive buffers", "5.19", &error))?;
    let socket = UdpSocket::bind("0.0.0.0:0").or_else(|_| UdpSocket::bind("[::]:0"))?;
    socket.set_nonblocking(true)?;
    ring.start().map_err(|error| explain("starting the ring", "5.10", &error))?;
    buffers.receive(&mut ring, File::Descriptor(socket.as_raw_fd()), 0)?;
    ring.submit()?;
    // A kernel that knows no multishot receive refuses it at once; one that does waits for datagrams.
    let refusal = ring.take().and_then(|completion| completion.error());
    ring.cancel(None)?;
    if !ring.drain() {
        std::mem::forget(buffers);
    }
    match refusal {
        Some(error) => Err(explain("receiving many datagrams by one request", "6.0", &error)),
        None => Ok(Features { zero_copy: known.is_supported(SendMsgZc::CODE) }),
    }
}

/// A text for an error of a set-up call.
pub(crate) fn explain(doing: &str, since: &str, error: &io::Error) -> BuildError {
    let why = match error.raw_os_error() {
        Some(libc::ENOSYS) => format!("this kernel has no io_uring; Linux {KERNEL_MIN} or newer is needed"),
        Some(libc::EPERM | libc::EACCES) => {
            "io_uring is forbidden here: by the sysctl kernel.io_uring_disabled, or by a seccomp filter, as many \
             containers have one"
                .to_owned()
        }
        Some(libc::EINVAL | libc::EOPNOTSUPP) => {
            format!("this kernel's io_uring does not support {doing} (Linux {since}); {KERNEL_MIN} or newer is needed")
        }
        Some(libc::ENOMEM) => {
            format!("no memory for {doing}: raise the limit of locked memory (ulimit -l)")
        }
        _ => format!("{doing} failed: {error}"),
    };
    BuildError::Unsupported(format!("{why}. {INSTEAD}"))
}

fn missing(name: &str, since: &str) -> BuildError {
    BuildError::Unsupported(format!(
        "this kernel's io_uring lacks {name} (Linux {since}); {KERNEL_MIN} or newer is needed. {INSTEAD}"
    ))
}

/// The oldest kernel that has all that is needed.
const KERNEL_MIN: &str = "6.0";

const INSTEAD: &str =
    "The mio backend works everywhere: cargo feature `mio`, or `--backend mio` with the program";
