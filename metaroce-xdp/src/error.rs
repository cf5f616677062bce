//! Why an interface cannot be used, in words that say what to do.

use std::fmt;
use std::io;

/// Why a queue of an interface could not be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// There is no interface of that name.
    NoInterface(String),
    /// The interface has no such queue.
    NoQueue {
        /// The queue asked for.
        queue: u32,
        /// Queues that there are, from 0 on.
        queues: u32,
    },
    /// The process lacks capabilities; their names.
    Capabilities(Vec<&'static str>),
    /// The interface has an XDP program that this process did not attach. It is left alone.
    ProgramAttached {
        /// The interface.
        interface: String,
        /// The kernel's id of the program, where it tells.
        id: Option<u32>,
        /// Its name, where the kernel tells.
        name: Option<String>,
    },
    /// Another socket has the queue.
    QueueBusy {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
    },
    /// The process may not lock that much memory.
    LockedMemory {
        /// Bytes wanted.
        bytes: u64,
    },
    /// The driver takes no XDP program at this MTU.
    MtuTooLarge {
        /// The interface.
        interface: String,
        /// Its MTU, bytes.
        mtu_bytes: u32,
    },
    /// The device or its driver does not read and write the frames itself, and that was asked for.
    NoZeroCopy(String),
    /// The kernel refuses the filter; what its verifier said.
    Filter(String),
    /// A value of the configuration is out of its range.
    Config(&'static str),
    /// The system refuses a step.
    Io {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        error: io::Error,
    },
}

impl OpenError {
    /// For a step that the system refused.
    pub(crate) fn io(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Io { what, error }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoInterface(name) => write!(f, "there is no interface {name}"),
            Self::NoQueue { queue, queues: 1 } => {
                write!(f, "there is no queue {queue}: the interface has only queue 0")
            }
            Self::NoQueue { queue, queues } => {
                write!(
                    f,
                    "there is no queue {queue}: the interface has queues 0 to {}",
                    queues.saturating_sub(1)
                )
            }
            Self::Capabilities(missing) => write!(
                f,
                "AF_XDP needs {}, which this process lacks: run it as root, or give the program the capabilities \
                 (setcap cap_net_raw,cap_net_admin,cap_bpf=ep PROGRAM)",
                missing.join(" and ")
            ),
            Self::ProgramAttached { interface, id, name } => {
                let id = id.map_or(String::new(), |id| format!(" (id {id})"));
                let name = name.as_deref().filter(|name| !name.is_empty()).unwrap_or("without a name");
                write!(
                    f,
                    "an XDP program {name}{id} is attached to {interface} and is not replaced: stop whoever attached \
                     it, or detach it with `ip link set dev {interface} xdp off`"
                )
            }
            Self::QueueBusy { interface, queue } => {
                write!(f, "queue {queue} of {interface} has an AF_XDP socket already: choose another queue")
            }
            Self::LockedMemory { bytes } => write!(
                f,
                "{} MiB of memory for frames may not be locked: raise RLIMIT_MEMLOCK (ulimit -l), give the program \
                 CAP_IPC_LOCK, or ask for fewer frames",
                bytes.div_ceil(1 << 20)
            ),
            Self::MtuTooLarge { interface, mtu_bytes } => write!(
                f,
                "the driver of {interface} takes no XDP program at an MTU of {mtu_bytes} bytes: lower it, or attach in \
                 generic mode"
            ),
            Self::NoZeroCopy(interface) => {
                write!(f, "the driver of {interface} has no zero-copy mode: use copy mode")
            }
            Self::Filter(log) => write!(f, "the kernel refuses the XDP program: {log}"),
            Self::Config(field) => write!(f, "{field} is out of the range that its documentation gives"),
            Self::Io { what, error } => write!(f, "cannot {what}: {error}"),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { error, .. } => Some(error),
            _ => None,
        }
    }
}

/// Names of the capabilities that the backend needs and `status` (the text of `/proc/self/status`) says are not there.
///
/// `CAP_SYS_ADMIN` stands in for `CAP_BPF`, which Linux has had only since 5.8.
pub(crate) fn missing_capabilities(status: &str) -> Vec<&'static str> {
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    // If it can't be told, the kernel will.
    let Some(effective) = effective else { return Vec::new() };
    let has = |bit: u32| effective & (1 << bit) != 0;
    let mut missing = Vec::new();
    if !has(NET_RAW) {
        missing.push("CAP_NET_RAW");
    }
    if !has(NET_ADMIN) {
        missing.push("CAP_NET_ADMIN");
    }
    if !has(BPF) && !has(SYS_ADMIN) {
        missing.push("CAP_BPF");
    }
    missing
}

// Of `linux/capability.h`.
const NET_ADMIN: u32 = 12;
const NET_RAW: u32 = 13;
const SYS_ADMIN: u32 = 21;
const BPF: u32 = 39;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_missing_capability_is_named() {
        let status =
            |effective: u64| format!("Name:\tx\nCapPrm:\t0000\nCapEff:\t{effective:016x}\nCapBnd:\t0\n");
        assert_eq!(missing_capabilities(&status(u64::MAX)), [""; 0]);
        assert_eq!(missing_capabilities(&status(0)), ["CAP_NET_RAW", "CAP_NET_ADMIN", "CAP_BPF"]);
        assert_eq!(missing_capabilities(&status(1 << 13 | 1 << 39)), ["CAP_NET_ADMIN"]);
        assert_eq!(missing_capabilities(&status(1 << 13 | 1 << 12 | 1 << 21)), [""; 0]);
        assert_eq!(missing_capabilities("nothing of the kind"), [""; 0]);
        let text = OpenError::Capabilities(vec!["CAP_NET_RAW", "CAP_BPF"]).to_string();
        assert!(text.contains("needs CAP_NET_RAW and CAP_BPF"), "{text}");
    }

    #[test]
    fn a_program_of_somebody_else_is_named() {
        let error = OpenError::ProgramAttached {
            interface: "eth0".to_owned(),
            id: Some(7),
            name: Some("firewall".to_owned()),
        };
        assert!(error.to_string().starts_with("an XDP program firewall (id 7) is attached to eth0"));
    }
}
