//! What a caller sets: [`Limits`] size the tables, [`Config`] sets the behaviour.

use core::net::SocketAddr;
use core::ops::RangeInclusive;

use crate::congestion::{CongestionControl, EcnAimd};
use crate::crc::{Checksum, TableChecksum};
use crate::wire::PlaneAddresses;

/// Planes that one endpoint can have: independent fabrics, each with an address of its own.
pub const PLANES_MAX: usize = 8;

/// Paths that one connection can have.
pub const PATHS_MAX: usize = 64;

/// How many of everything an endpoint can hold. All tables are sized once; nothing grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections, half-open and resting ones included. 1 to 2^20.
    pub connections: u32,
    /// Paths of one connection over all planes, parked ones included. 1 to 64; default 8. With several planes it is
    /// divided among them; a plane for which none is left is not used.
    pub paths_per_connection: u8,
    /// Streams of all connections together. 1 to 2^24.
    pub streams: u32,
    /// Work requests of all connections together, and responses owed to peers. 1 to 2^24.
    pub requests: u32,
    /// Posted receives of all connections together. 1 to 2^24.
    pub receives: u32,
    /// Incomplete inbound messages of all connections together. 1 to 2^24.
    pub messages: u32,
    /// Packets in flight of all connections together: sent, not yet judged by the peer. 16 to 2^24.
    pub packets: u32,
    /// Queues of receives: shared ones, and those that take datagrams. 1 to 2^16.
    pub queues: u32,
    /// Registered regions. 1 to 2^20.
    pub regions: u32,
    /// CSN window *W* of one connection and direction, in packets: a power of two, 64 to 2^21; default 8192.
    pub csn_window: u32,
}

impl Limits {
    /// Sized for a host: 64 connections of 8 paths, 32,768 packets in flight.
    pub const HOST: Self = Self {
        connections: 64,
        paths_per_connection: 8,
        streams: 1024,
        requests: 4096,
        receives: 4096,
        messages: 8192,
        packets: 32_768,
        queues: 64,
        regions: 1024,
        csn_window: 8192,
    };

    /// Sized for firmware: 2 connections of 4 paths, 128 packets in flight.
    pub const SMALL: Self = Self {
        connections: 2,
        paths_per_connection: 4,
        streams: 8,
        requests: 32,
        receives: 32,
        messages: 64,
        packets: 128,
        queues: 2,
        regions: 8,
        csn_window: 128,
    };
}

impl Default for Limits {
    fn default() -> Self {
        Self::HOST
    }
}

/// How an endpoint behaves. Start from [`Config::sockets`] or [`Config::hardware`].
#[derive(Clone, Copy)]
pub struct Config {
    /// Seed of all randomness: connection ids, keys, nonces, jitter, ties. Take it from the system's entropy in
    /// production, and from the test in a test. No default.
    pub seed: u64,
    /// What every connection id of this endpoint begins with; default nothing. Endpoints that share an address and port,
    /// one for each queue of an interface, are told apart by it.
    pub connection_prefix: IdPrefix,
    /// CRC32C implementation; default [`TableChecksum`].
    pub checksum: &'static dyn Checksum,
    /// Congestion control; default [`EcnAimd`].
    pub congestion: &'static dyn CongestionControl,
    /// Whether this endpoint wishes a checksum on every packet that it receives; default `true`. Handshake packets
    /// carry one in any case.
    pub checksum_wanted: bool,
    /// Largest UDP payload sent or received, bytes, 1,232 to 9,000; default 4,176 (4 KiB of payload and a header).
    /// A path uses it only after a probe of that size was answered.
    pub mtu_bytes: u16,
    /// Source ports from which paths take theirs; default 49,152 to 65,535.
    pub source_ports: RangeInclusivePorts,
    /// UDP port on which peers receive, where nothing better is known: a RESET for a connection that this endpoint does
    /// not know goes there. Default 4,795.
    pub peer_port: u16,
    /// Addresses and ports on which this endpoint receives on its further planes, in the order of the planes, at most 7;
    /// default none. Peers are told of them. Plane 0 is not in the list: its address is the one that peers see.
    pub planes: PlaneAddresses,
    /// Paths that a connection opens on each plane, 1 to 64; default 8.
    pub paths_per_plane: u8,
    /// Packets sent in a row on one path before the next is chosen, 1 to 64; default 1. A backend with segmentation
    /// offload sets its batch.
    pub burst_packets: u8,
    /// Reordering on one path, in packets, that is no evidence of loss at first, 0 to 32; default 3 for sockets.
    pub reorder_tolerance: u8,
    /// Packets of one path received before an acknowledgement is due, 1 to 64; default 8.
    pub ack_packets: u8,
    /// Longest time that an acknowledgement waits, ns; default 50 µs for sockets.
    pub ack_delay_ns_max: u64,
    /// Floor of the probe timeout, ns; default 10 ms for sockets.
    pub pto_ns_min: u64,
    /// Floor of the retransmission timeout, ns; default 10 ms for sockets. The ceiling is 100 times that.
    pub rto_ns_min: u64,
    /// RTT of the fabric when it is not loaded, ns; default 1 ms for sockets. It stands for a path's RTT before the first
    /// sample, turns a demand into a rate, and, with the rate, says how much a peer may start with.
    pub rtt_ns_initial: u64,
    /// Queueing delay above the base RTT that counts as a congestion mark, ns; default 20 ms for sockets, whose RTT tells
    /// of the host's scheduling more than of the fabric's queues.
    pub delay_target_ns: u64,
    /// Most bytes of one connection in flight; default 4 MiB. Bounds what can pile up in the peer's socket buffer.
    pub window_bytes_max: u32,
    /// Most bytes that a connection sends before the first feedback, also after a pause, 1 or more; default 64 KiB for
    /// sockets. What the peer allows may be less.
    pub window_bytes_start: u32,
    /// Rate of one plane, either way, kbit/s of wire bytes; default 100 Gb/s. It is shared out among senders (MR-CC-19), and data
    /// leaves no faster (MR-SEC-13). Where it is above the true rate, acknowledgements wait in queues below the endpoint.
    pub inbound_rate_kbps: u32,
    /// Messages beyond the oldest incomplete one that a stream may have under way, 1 to 65,536; default 1024.
    pub message_window: u32,
    /// Messages that a stream may send before it was told of posted receives, 1 to 1024; default 16.
    pub initial_credits: u32,
    /// READs and atomics that a peer may have outstanding on one connection, 1 to 65,535; default 64.
    pub reads_granted: u16,
    /// Receiver-not-ready rounds before a SEND fails; `None` retries for ever, which is the default.
    pub rnr_retries: Option<u32>,
    /// Time without any progress after which a connection with work fails, ns; default 10 s.
    pub fail_after_ns: u64,
    /// Time without any work after which a connection is closed; `None` for never, which is the default.
    pub idle_close_ns: Option<u64>,
    /// Connections that one IP address may have half open, 1 to 65,535; default 64.
    pub half_open_per_address: u16,
    /// Time without a packet from the peer after which an idle connection is probed, ns; default 5 s.
    pub keepalive_ns: u64,
}

/// The highest bits of all connection ids of an endpoint: which of several endpoints behind one address a packet is for.
///
/// Every bit is one less for a stranger to guess (`SPEC.md` MR-HS-4), so there are few.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdPrefix {
    /// Bits, 0 to 6.
    pub bits: u8,
    /// Their value, below 2^`bits`.
    pub value: u8,
}

impl IdPrefix {
    /// No prefix.
    pub const NONE: Self = Self { bits: 0, value: 0 };

    /// The id with these highest bits in place of its own. Without bits it stays as it is.
    #[must_use]
    pub const fn put_into(self, id: u32) -> u32 {
        let Some(shift) = 32u32.checked_sub(self.bits as u32) else { return id };
        match (self.value as u32).checked_shl(shift) {
            Some(value) => (id & (u32::MAX >> self.bits)) | value,
            None => id,
        }
    }

    /// The value that the highest `bits` bits of an id have; 0 without bits.
    #[must_use]
    pub const fn value_in(self, id: u32) -> u32 {
        match 32u32.checked_sub(self.bits as u32) {
            Some(shift) => match id.checked_shr(shift) {
                Some(value) => value,
                None => 0,
            },
            None => 0,
        }
    }

    const fn is_valid(self) -> bool {
        self.bits <= 6 && (self.value as u32) < (1 << self.bits)
    }
}

/// An inclusive range of UDP ports (`Copy`, unlike the standard one).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeInclusivePorts {
    /// Lowest port.
    pub first: u16,
    /// Highest port, not below `first`.
    pub last: u16,
}

impl From<RangeInclusive<u16>> for RangeInclusivePorts {
    fn from(range: RangeInclusive<u16>) -> Self {
        Self { first: *range.start(), last: *range.end() }
    }
}

impl Config {
    /// Defaults for UDP sockets of a general-purpose host: millisecond timers, tolerance of small reordering.
    #[must_use]
    pub const fn sockets(seed: u64) -> Self {
        Self {
            seed,
            connection_prefix: IdPrefix::NONE,
            checksum: &TableChecksum,
            congestion: &EcnAimd,
            checksum_wanted: true,
            mtu_bytes: 4176,
            source_ports: RangeInclusivePorts { first: 49_152, last: 65_535 },
            peer_port: 4795,
            planes: PlaneAddresses::EMPTY,
            paths_per_plane: 8,
            burst_packets: 1,
            reorder_tolerance: 3,
            ack_packets: 8,
            ack_delay_ns_max: 50_000,
            pto_ns_min: 10_000_000,
            rto_ns_min: 10_000_000,
            rtt_ns_initial: 1_000_000,
            delay_target_ns: 20_000_000,
            window_bytes_max: 4 << 20,
            window_bytes_start: 64 << 10,
            inbound_rate_kbps: 100_000_000,
            message_window: 1024,
            initial_credits: 16,
            reads_granted: 64,
            rnr_retries: None,
            fail_after_ns: 10_000_000_000,
            idle_close_ns: None,
            half_open_per_address: 64,
            keepalive_ns: 5_000_000_000,
        }
    }

    /// Defaults for hardware and for the simulator: microsecond timers, no reordering on a path.
    #[must_use]
    pub const fn hardware(seed: u64) -> Self {
        Self {
            reorder_tolerance: 0,
            ack_delay_ns_max: 8_000,
            pto_ns_min: 20_000,
            rto_ns_min: 100_000,
            rtt_ns_initial: 10_000,
            delay_target_ns: 10_000,
            window_bytes_max: 64 << 20,
            window_bytes_start: 64 << 20,
            inbound_rate_kbps: 800_000_000,
            ..Self::sockets(seed)
        }
    }
}

/// How to reach a peer.
#[derive(Clone, Copy, Debug)]
pub struct ConnectOptions<'a> {
    /// Address and port on which the peer receives.
    pub remote: SocketAddr,
    /// Service number that the peer's application looks at; default 0.
    pub service: u32,
    /// Opens, or finds, the one connection to this peer and service that needs no connection manager: both ends may
    /// call it at once, nobody has to be ready, and work may be posted at once. Default `false`.
    pub implicit: bool,
    /// Protection domain whose regions the peer may reach.
    pub domain: crate::ids::ProtectionDomain,
    /// Up to 256 bytes for the peer's application.
    pub private_data: &'a [u8],
}

impl ConnectOptions<'_> {
    /// To `remote`, service 0, protection domain 0, no private data.
    #[must_use]
    pub const fn to(remote: SocketAddr) -> Self {
        Self {
            remote,
            service: 0,
            implicit: false,
            domain: crate::ids::ProtectionDomain(0),
            private_data: &[],
        }
    }
}

/// A field that is out of its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// A field of [`Limits`], by name.
    Limits(&'static str),
    /// A field of [`Config`], by name.
    Config(&'static str),
    /// The storage's tables do not have the sizes that its limits ask for.
    Storage,
}

impl core::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Limits(field) => {
                write!(f, "Limits::{field} is out of the range that its documentation gives")
            }
            Self::Config(field) => {
                write!(f, "Config::{field} is out of the range that its documentation gives")
            }
            Self::Storage => {
                f.write_str("the storage's tables do not have the sizes of Sizes::of its limits")
            }
        }
    }
}

impl core::error::Error for ConfigError {}

impl Limits {
    /// Bytes of RAM that an endpoint's tables take, exactly.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        crate::storage::Sizes::of(self).bytes()
    }

    /// Checks every field against its range.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let fields = [
            ("connections", (1..=1 << 20).contains(&self.connections)),
            ("paths_per_connection", (1..=64).contains(&self.paths_per_connection)),
            ("streams", (1..=1 << 24).contains(&self.streams)),
            ("requests", (1..=1 << 24).contains(&self.requests)),
            ("receives", (1..=1 << 24).contains(&self.receives)),
            ("messages", (1..=1 << 24).contains(&self.messages)),
            ("packets", (16..=1 << 24).contains(&self.packets)),
            ("queues", (1..=1 << 16).contains(&self.queues)),
            ("regions", (1..=1 << 20).contains(&self.regions)),
            ("csn_window", self.csn_window.is_power_of_two() && (64..=1 << 21).contains(&self.csn_window)),
        ];
        first_bad(&fields).map_or(Ok(()), |field| Err(ConfigError::Limits(field)))
    }
}

impl Config {
    /// Checks every field against its range.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let fields = [
            ("connection_prefix", self.connection_prefix.is_valid()),
            ("mtu_bytes", (1232..=9000).contains(&self.mtu_bytes)),
            (
                "source_ports",
                self.source_ports.first >= 1 && self.source_ports.first <= self.source_ports.last,
            ),
            ("planes", are_plane_addresses(&self.planes)),
            ("paths_per_plane", (1..=64).contains(&self.paths_per_plane)),
            ("burst_packets", (1..=64).contains(&self.burst_packets)),
            ("reorder_tolerance", self.reorder_tolerance <= 32),
            ("ack_packets", (1..=64).contains(&self.ack_packets)),
            ("ack_delay_ns_max", self.ack_delay_ns_max <= 1_000_000_000),
            ("pto_ns_min", (1_000..=60_000_000_000).contains(&self.pto_ns_min)),
            ("rto_ns_min", (1_000..=60_000_000_000).contains(&self.rto_ns_min)),
            ("rtt_ns_initial", (100..=10_000_000_000).contains(&self.rtt_ns_initial)),
            ("delay_target_ns", self.delay_target_ns >= 1),
            ("window_bytes_max", self.window_bytes_max >= 9_000),
            ("window_bytes_start", self.window_bytes_start >= 1),
            ("inbound_rate_kbps", self.inbound_rate_kbps >= 1),
            ("message_window", (1..=65_536).contains(&self.message_window)),
            ("initial_credits", (1..=1024).contains(&self.initial_credits)),
            ("reads_granted", self.reads_granted >= 1),
            ("fail_after_ns", self.fail_after_ns >= self.rto_ns_min),
            ("idle_close_ns", self.idle_close_ns.is_none_or(|span| span >= 1_000)),
            ("half_open_per_address", self.half_open_per_address >= 1),
            ("keepalive_ns", self.keepalive_ns >= 1_000),
        ];
        first_bad(&fields).map_or(Ok(()), |field| Err(ConfigError::Config(field)))
    }
}

/// Whether a peer could send to all of them, and there are not too many.
fn are_plane_addresses(planes: &PlaneAddresses) -> bool {
    let reachable = |address: &SocketAddr| address.port() != 0 && !address.ip().is_unspecified();
    planes.len() < PLANES_MAX && planes.as_slice().iter().all(reachable)
}

fn first_bad(fields: &[(&'static str, bool)]) -> Option<&'static str> {
    fields.iter().find(|(_, good)| !good).map(|(field, _)| *field)
}

#[cfg(test)]
mod tests {
    use super::IdPrefix;

    #[test]
    fn a_prefix_takes_the_place_of_the_highest_bits_and_is_read_back() {
        for bits in 0..=6 {
            for value in 0..1 << bits {
                let prefix = IdPrefix { bits, value };
                assert!(prefix.is_valid());
                for id in [0, 0x0123_4567, u32::MAX] {
                    let marked = prefix.put_into(id);
                    assert_eq!(prefix.value_in(marked), u32::from(value));
                    assert_eq!(marked & (u32::MAX >> bits), id & (u32::MAX >> bits));
                }
            }
        }
        assert_eq!(IdPrefix::NONE.put_into(0xdead_beef), 0xdead_beef);
        assert!(!IdPrefix { bits: 7, value: 0 }.is_valid());
        assert!(!IdPrefix { bits: 2, value: 4 }.is_valid());
    }
}
