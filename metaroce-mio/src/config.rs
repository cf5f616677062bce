//! What a caller sets before a driver is made.

use std::io;
use std::net::SocketAddr;

use metaroce_core::config::{Config, Limits};

use crate::crc::HardwareChecksum;
use crate::faults::Faults;

/// How to make a [`Driver`](crate::Driver): addresses, sizes, behaviour, sockets.
#[derive(Clone)]
#[non_exhaustive]
pub struct DriverConfig {
    /// Local addresses on which to receive, one for each plane, 1 to 8. Port 0 takes any free port. `[::]` also serves
    /// IPv4 where the system allows that. Peers are told those of the further planes, which therefore must be addresses
    /// of this host, not `[::]` or `0.0.0.0`.
    pub local: Vec<SocketAddr>,
    /// Sizes of the endpoint's tables; default [`Limits::HOST`].
    pub limits: Limits,
    /// Behaviour of the endpoint; default [`Config::sockets`] with a seed from the system's entropy and the hardware
    /// checksum. Its `burst_packets` is set by the driver unless [`burst_packets`](Self::burst_packets) says otherwise,
    /// and its `planes` always.
    pub endpoint: Config,
    /// Packets sent in a row on one path, 1 to 64. `None`, the default: with segmentation offload as many as fit one
    /// send, at most [`SocketOptions::gso_segments_max`]; without it 1.
    pub burst_packets: Option<u8>,
    /// The sockets.
    pub sockets: SocketOptions,
    /// Artificial faults on sending; default none.
    pub faults: Faults,
}

impl DriverConfig {
    /// Defaults, receiving at `local`.
    ///
    /// # Errors
    /// If the system gives no entropy for the seed.
    pub fn new(local: SocketAddr) -> io::Result<Self> {
        Ok(Self::with_seed(local, getrandom::u64().map_err(io::Error::from)?))
    }

    /// Defaults, receiving at `local`, with a seed of one's own (tests; anybody who knows the seed can guess keys).
    #[must_use]
    pub fn with_seed(local: SocketAddr, seed: u64) -> Self {
        let endpoint = Config { checksum: &HardwareChecksum, ..Config::sockets(seed) };
        Self {
            local: vec![local],
            limits: Limits::HOST,
            endpoint,
            burst_packets: None,
            sockets: SocketOptions::default(),
            faults: Faults::NONE,
        }
    }
}

/// How sockets are set up. Whatever the system lacks is left out; [`Driver::capabilities`](crate::Driver::capabilities)
/// tells what it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[expect(clippy::struct_excessive_bools, reason = "independent choices, not a state")]
pub struct SocketOptions {
    /// Receive buffer of each plane, bytes; default 32 MiB. Forced if the process may do so, else as much as the system
    /// grants. It should hold the windows of all senders.
    pub receive_buffer_bytes: usize,
    /// Send buffer of each socket, bytes; default 4 MiB.
    pub send_buffer_bytes: usize,
    /// Path sockets kept open, 1 to 65,536; default 512. The one unused for the longest time makes room.
    pub path_sockets_max: usize,
    /// Let other sockets of this user have the same receive address; the system spreads senders over them. Default
    /// `false`. Unix only.
    pub reuse_port: bool,
    /// Use segmentation offload on sending where it works; default `true`.
    pub gso: bool,
    /// Use coalescing on receiving where it works; default `true`.
    pub gro: bool,
    /// Packets in one segmented send, 1 to 64; default 16. More are lost together where one buffer overflows.
    pub gso_segments_max: u8,
    /// Use only what every system has: one datagram a call, copied, no ECN; default `false`. This is what runs outside
    /// Linux; here it serves tests and comparisons.
    pub portable: bool,
}

impl Default for SocketOptions {
    fn default() -> Self {
        Self {
            receive_buffer_bytes: 32 << 20,
            send_buffer_bytes: 4 << 20,
            path_sockets_max: 512,
            reuse_port: false,
            gso: true,
            gro: true,
            gso_segments_max: 16,
            portable: false,
        }
    }
}
