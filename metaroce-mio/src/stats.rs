//! Counters of the driver; those of the protocol are in [`Endpoint::stats`](metaroce_core::Endpoint::stats).

use crate::socket::PathCounters;
use crate::sys::SendFault;

/// What a driver has done since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DriverStats {
    /// System calls made to send, to receive and to wait, all together; opening sockets is not counted.
    pub system_calls: u64,
    /// System calls that sent; with `io_uring`, requests to send.
    pub send_calls: u64,
    /// Datagrams given to the system.
    pub datagrams_sent: u64,
    /// UDP payload bytes given to the system.
    pub bytes_sent: u64,
    /// Sends of more than one datagram by segmentation offload.
    pub gso_batches: u64,
    /// System calls that received, those that found nothing included; with `io_uring`, messages received.
    pub receive_calls: u64,
    /// Datagrams received.
    pub datagrams_received: u64,
    /// UDP payload bytes received.
    pub bytes_received: u64,
    /// Reads that brought more than one datagram by coalescing.
    pub gro_batches: u64,
    /// Datagrams that the system dropped since a receive buffer was full (`SO_RXQ_OVFL`).
    pub receive_overflows: u64,
    /// Datagrams that arrived longer than the receive buffer, and were dropped.
    pub receive_truncated: u64,
    /// Errors on receiving: mostly ICMP messages about earlier sends. Never fatal.
    pub receive_errors: u64,
    /// Errors on sending, by kind.
    pub send_errors: SendErrors,
    /// Path sockets opened.
    pub path_sockets_opened: u64,
    /// Path sockets closed to make room.
    pub path_sockets_evicted: u64,
    /// Path sockets that got another port than asked for, since that was taken.
    pub path_port_conflicts: u64,
    /// Datagrams sent from the receive socket since no path socket could be opened.
    pub path_socket_failures: u64,
    /// Datagrams not sent since their region was deregistered in the meantime.
    pub stale_payloads: u64,
    /// Artificial faults.
    pub injected: InjectedFaults,
    /// Times that the loop was run.
    pub turns: u64,
}

impl DriverStats {
    /// Enters the counters of path sockets.
    pub fn add_path_sockets(&mut self, paths: PathCounters) {
        self.path_sockets_opened = paths.opened;
        self.path_sockets_evicted = paths.evicted;
        self.path_port_conflicts = paths.conflicts;
        self.path_socket_failures = paths.failures;
    }
}

/// Errors on sending, in datagrams where not said otherwise. All but the retried ones are losses to the protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SendErrors {
    /// Times that a send buffer was full (`EAGAIN`); retried.
    pub would_block: u64,
    /// Times that the system had no buffers (`ENOBUFS`, `ENOMEM`); retried.
    pub no_buffers: u64,
    /// Larger than the link or the path carries (`EMSGSIZE`).
    pub too_large: u64,
    /// Refused by an ICMP message about an earlier datagram (`ECONNREFUSED`).
    pub refused: u64,
    /// No route, host or network down (`EHOSTUNREACH`, `ENETUNREACH`, `ENETDOWN`, `EADDRNOTAVAIL`).
    pub unreachable: u64,
    /// A plane that does not exist, or an address of another family than the plane's.
    pub unroutable: u64,
    /// Forbidden by a local filter (`EPERM`, `EACCES`).
    pub forbidden: u64,
    /// Segmented sends that the system refused, and that were sent again singly.
    pub gso_refused: u64,
    /// Anything else.
    pub other: u64,
}

impl SendErrors {
    /// Counts a fault that `datagrams` met; `true` if they are to be sent again.
    pub fn count(&mut self, fault: SendFault, datagrams: usize) -> bool {
        let datagrams = datagrams as u64;
        match fault {
            SendFault::WouldBlock => self.would_block += 1,
            SendFault::NoBuffers | SendFault::Interrupted => self.no_buffers += 1,
            SendFault::TooLarge => self.too_large += datagrams,
            SendFault::Refused => self.refused += datagrams,
            SendFault::Unreachable => self.unreachable += datagrams,
            SendFault::Forbidden => self.forbidden += datagrams,
            SendFault::Unsupported | SendFault::Other => self.other += datagrams,
        }
        matches!(fault, SendFault::WouldBlock | SendFault::NoBuffers | SendFault::Interrupted)
    }
}

/// Datagrams that met an artificial fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct InjectedFaults {
    /// Lost.
    pub lost: u64,
    /// Held back.
    pub reordered: u64,
    /// Sent twice.
    pub duplicated: u64,
    /// Sent with a bit flipped.
    pub corrupted: u64,
}
