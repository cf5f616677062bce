//! The filter on its interface: loaded, attached, and gone with the last driver that uses it.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use crate::error::{OpenError, missing_capabilities};
use crate::filter::Filter;
use crate::netlink::{Interface, Netlink};
use crate::options::{Attach, XdpOptions};
use crate::socket::QueueSocket;
use crate::sys::bpf::{self, Hook};

/// A filter that is attached to an interface. The link that holds it is a descriptor of this process: it goes when the
/// value is dropped and when the process ends, however it ends.
#[derive(Debug)]
pub(crate) struct Attachment {
    interface: Interface,
    sockets: OwnedFd,
    hook: Hook,
    fragments: bool,
    #[expect(dead_code, reason = "held for its destructor, which detaches")]
    link: OwnedFd,
}

impl Attachment {
    /// Loads the filter and attaches it.
    ///
    /// # Errors
    /// [`OpenError`]; then nothing is attached.
    pub(crate) fn new(options: &XdpOptions, filter: Filter) -> Result<Self, OpenError> {
        let missing = missing_capabilities(&fs::read_to_string("/proc/self/status").unwrap_or_default());
        if !missing.is_empty() {
            return Err(OpenError::Capabilities(missing));
        }
        let patience = options.start_waiting();
        loop {
            match Self::attempt(options, &filter) {
                Err(error) if may_be_leaving(&error) && patience.wait() => {}
                other => return other,
            }
        }
    }

    fn attempt(options: &XdpOptions, filter: &Filter) -> Result<Self, OpenError> {
        let interface = find(options)?;
        if interface.program.is_some() {
            return Err(attached(options, interface.program));
        }
        let sockets = bpf::create_socket_map(interface.queues)
            .map_err(OpenError::io("make the map of AF_XDP sockets"))?;
        let code = filter.assemble(sockets.as_raw_fd());
        let mut refused = None;
        for (hook, fragments) in attempts(options) {
            let program = match bpf::load_xdp(*PROGRAM_NAME, &code, fragments) {
                Ok(program) => program,
                // EINVAL without a word of the verifier: a kernel that does not know the flag.
                Err(load) if load.log.is_empty() => {
                    refused = Some(OpenError::io("load the XDP program")(load.error));
                    continue;
                }
                Err(load) => return Err(OpenError::Filter(format!("{}: {}", load.error, load.log))),
            };
            match bpf::link_xdp(program.as_fd(), interface.index, hook) {
                Ok(link) => return Ok(Self { interface, sockets, hook, fragments, link }),
                Err(error) => refused = Some(explain(options, &interface, error)?),
            }
        }
        Err(refused.unwrap_or(OpenError::Config("XdpOptions::attach")))
    }

    /// What the kernel says of the interface.
    pub(crate) fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Whether the filter runs in the driver.
    pub(crate) fn is_native(&self) -> bool {
        self.hook == Hook::Native
    }

    /// Whether the filter may be shown packets in several buffers.
    pub(crate) fn takes_fragments(&self) -> bool {
        self.fragments
    }

    /// From now on the datagrams of its queue go to `socket`.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn steer_to(&self, socket: &QueueSocket) -> io::Result<()> {
        bpf::insert_socket(self.sockets.as_fd(), socket.queue(), socket.as_fd())
    }
}

/// The interface of the options.
///
/// # Errors
/// [`OpenError::NoInterface`], [`OpenError::Io`].
pub(crate) fn find(options: &XdpOptions) -> Result<Interface, OpenError> {
    let asking = OpenError::io("ask for the interface");
    let found = Netlink::new().and_then(|mut netlink| netlink.interface(&options.interface));
    found.map_err(asking)?.ok_or_else(|| OpenError::NoInterface(options.interface.clone()))
}

/// Ways to attach, the best first: in the driver and with fragments.
fn attempts(options: &XdpOptions) -> Vec<(Hook, bool)> {
    let hooks: &[Hook] = match options.attach {
        Attach::Automatic => &[Hook::Native, Hook::Generic],
        Attach::Native => &[Hook::Native],
        Attach::Generic => &[Hook::Generic],
    };
    // Without fragments some drivers take no program at a large MTU, whatever the datagrams of ours are.
    let fragments = [true, false];
    hooks.iter().flat_map(|hook| fragments.iter().map(|fragments| (*hook, *fragments))).collect()
}

/// Why attaching failed: `Ok` if another way may still work.
fn explain(options: &XdpOptions, interface: &Interface, error: io::Error) -> Result<OpenError, OpenError> {
    match error.raw_os_error() {
        Some(libc::EBUSY | libc::EEXIST) => {
            Err(attached(options, find(options).ok().and_then(|found| found.program)))
        }
        Some(libc::EPERM | libc::EACCES) => Err(OpenError::io("attach the XDP program")(error)),
        Some(libc::ERANGE) => Ok(OpenError::MtuTooLarge {
            interface: options.interface.clone(),
            mtu_bytes: interface.mtu_bytes,
        }),
        _ => Ok(OpenError::io("attach the XDP program")(error)),
    }
}

fn attached(options: &XdpOptions, id: Option<u32>) -> OpenError {
    OpenError::ProgramAttached {
        interface: options.interface.clone(),
        id,
        name: id.and_then(bpf::program_name),
    }
}

/// The kernel detaches the filter of a driver that was dropped in its own time. Until then it looks like somebody else's.
fn may_be_leaving(error: &OpenError) -> bool {
    let OpenError::ProgramAttached { name, .. } = error else { return false };
    // Without a name it was gone before one could ask for it.
    name.as_ref().is_none_or(|name| PROGRAM_NAME.starts_with(name.as_bytes()))
}

/// Shown by `ip link` and `bpftool`.
const PROGRAM_NAME: &[u8; 16] = b"metaroce_udp\0\0\0\0";
