//! Counters, and why packets were dropped.

use core::net::SocketAddr;

use crate::ids::PathId;

macro_rules! drop_reasons {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Why a datagram was dropped, without any change of state.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum DropReason {
            $($(#[$doc])* $name,)*
        }

        impl DropReason {
            /// All reasons, in the order of their counters.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The name of the reason, as in this enum.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }
        }
    };
}

drop_reasons! {
    /// Not a well-formed packet.
    Malformed,
    /// A version that this endpoint does not speak.
    Version,
    /// The checksum does not match.
    Checksum,
    /// No connection has this id.
    UnknownConnection,
    /// The connection's state does not expect such a packet.
    UnexpectedState,
    /// The path id is not in use.
    UnknownPath,
    /// The CSN lies outside the window.
    CsnOutsideWindow,
    /// An acknowledgement of something that was never sent.
    AckOfUnsent,
    /// A handshake packet whose nonce, cookie or proof does not match.
    BadProof,
    /// A datagram without its queue, key or posted receive.
    Datagram,
    /// A table is full.
    NoRoom,
}

/// A limit that something can be refused for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// `Limits::connections`: a CONNECT was rejected.
    Connections,
    /// `Config::half_open_per_address`: a CONNECT was dropped.
    HalfOpenPerAddress,
    /// `Limits::streams`: a packet was refused.
    Streams,
    /// `Limits::requests`: a READ or atomic of the peer was refused.
    Requests,
    /// `Limits::messages`, or a connection's three quarters of it: a packet was refused.
    Messages,
    /// `Limits::packets`: sending waits.
    Packets,
}

impl Limit {
    /// All limits, in the order of their counters.
    pub const ALL: &'static [Self] = &[
        Self::Connections,
        Self::HalfOpenPerAddress,
        Self::Streams,
        Self::Requests,
        Self::Messages,
        Self::Packets,
    ];
}

/// Counters of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct StreamStats {
    /// Whether it ended, and runs out.
    pub ending: bool,
    /// Requests completed, with any status.
    pub requests_completed: u64,
    /// Requests posted and not completed.
    pub requests_outstanding: u32,
    /// Inbound messages that took effect.
    pub messages_received: u64,
    /// Receives posted and not consumed.
    pub receives_posted: u32,
    /// Packets of ours that the peer refused.
    pub refused: u64,
    /// Rounds in which the peer had no receive posted.
    pub rnr_rounds: u64,
}

/// Counters of an endpoint, since it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct EndpointStats {
    /// Datagrams taken in, duplicates included.
    pub datagrams_received: u64,
    /// Datagrams sent.
    pub datagrams_sent: u64,
    /// Data packets that had been judged before.
    pub duplicates: u64,
    /// Data packets refused.
    pub refused: u64,
    /// Packets whose key, bounds or rights did not allow what they wanted.
    pub access_faults: u64,
    /// How often each limit was hit, in the order of [`Limit::ALL`].
    pub limits_hit: [u64; Limit::ALL.len()],
    /// Dropped datagrams by reason, in the order of [`DropReason::ALL`].
    pub dropped: [u64; DropReason::ALL.len()],
}

/// Where a connection is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ConnectionState {
    /// CONNECT is on its way.
    #[default]
    Connecting,
    /// A CONNECT came; the application has to accept or reject.
    Incoming,
    /// ACCEPT is on its way.
    Accepting,
    /// Work flows.
    Open,
    /// Closed from this side; what was posted runs out.
    Draining,
    /// CLOSE is on its way.
    Closing,
    /// Closed by the peer; what was posted here runs out.
    PeerClosing,
    /// What is left ends.
    Ending,
    /// Over; the id rests.
    Resting,
}

/// Counters and estimates of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ConnectionStats {
    /// Data packets sent, retransmissions included.
    pub packets_sent: u64,
    /// Payload bytes sent, retransmissions included.
    pub bytes_sent: u64,
    /// Data packets received and accepted, without duplicates.
    pub packets_accepted: u64,
    /// Payload bytes placed.
    pub bytes_placed: u64,
    /// Data packets received again after their verdict.
    pub duplicates_received: u64,
    /// Packets declared lost by the gap rule or the time rule.
    pub lost: u64,
    /// Packets sent again by the gap rule or the time rule.
    pub retransmitted: u64,
    /// Packets sent again by a timeout or a rescue.
    pub retransmitted_by_timeout: u64,
    /// Packets declared lost by the gap rule or the time rule that turned out delivered.
    pub spurious: u64,
    /// Packets refused by the peer.
    pub refused: u64,
    /// Payload bytes in flight.
    pub bytes_in_flight: u64,
    /// Where it is in its life.
    pub state: ConnectionState,
    /// Streams open.
    pub streams: u32,
    /// Paths in use.
    pub paths: u8,
}

/// The condition of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum PathState {
    /// In use.
    #[default]
    Good,
    /// In use, though it is marked: it moves to another route if others fare better.
    Congested,
    /// Unanswered timeouts while others progressed: no new data.
    Suspect,
    /// Two timeouts in a row: only probes.
    Dead,
    /// A dead path whose probes are being answered.
    Probing,
    /// The peer's address on the path's plane has not answered yet: nothing goes there but the question.
    Unverified,
    /// The windows feed fewer paths: it waits until they grow, or until another times out.
    Parked,
}

impl PathState {
    /// A word for reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Congested => "congested",
            Self::Suspect => "suspect",
            Self::Dead => "dead",
            Self::Probing => "probing",
            Self::Unverified => "unverified",
            Self::Parked => "parked",
        }
    }
}

/// The condition of a plane, as far as one connection knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlaneState {
    /// In use.
    Up,
    /// The peer's address on it has not answered yet.
    Unverified,
    /// Three quarters of its paths are dead: it carries no data while another can.
    Dead,
}

/// What a connection knows of one of its planes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaneStats {
    /// The plane: an index into the local addresses, but for plane 0, which is that on which the connection was opened.
    pub plane: u8,
    /// Where the peer receives on it.
    pub remote: SocketAddr,
    /// Condition.
    pub state: PlaneState,
    /// Its paths.
    pub paths: u8,
    /// Those of them that carry data, and those that are parked beside them.
    pub paths_good: u8,
    /// Nothing of the peer comes in on it, while the other planes deliver: as the peer was last told.
    pub silent: bool,
    /// The same, of the peer: as it last said.
    pub peer_silent: bool,
    /// The peer has no path left to send on it: as it last said.
    pub peer_unreachable: bool,
}

/// Counters and estimates of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PathStats {
    /// The path.
    pub path: PathId,
    /// Its plane: an index into the local addresses, but for plane 0, which is that on which the connection was opened.
    pub plane: u8,
    /// Number of its route, counted up by each repath, modulo 256.
    pub epoch: u8,
    /// Condition.
    pub state: PathState,
    /// Source port.
    pub source_port: u16,
    /// Smallest RTT of the last 10 s, ns; 0 before the first sample.
    pub rtt_ns_base: u64,
    /// Smoothed RTT, ns.
    pub rtt_ns_smoothed: u64,
    /// Newest RTT sample, ns.
    pub rtt_ns_latest: u64,
    /// Share of its plane's inbound rate that the peer told last, kbit/s of wire bytes, for all paths of the plane
    /// together; 0 if it told none yet.
    pub share_kbps: u32,
    /// Smoothed fraction of packets that arrived marked, and of packets lost, in units of 2^-16.
    pub marked_fraction: u32,
    /// See [`marked_fraction`](Self::marked_fraction).
    pub lost_fraction: u32,
    /// Congestion window, bytes.
    pub window_bytes: u64,
    /// Bytes in flight.
    pub inflight_bytes: u64,
    /// Largest UDP payload that the path has been seen to carry.
    pub mtu_bytes: u16,
    /// Packets sent.
    pub packets_sent: u64,
    /// Packets that the peer marked as received.
    pub packets_delivered: u64,
    /// Packets declared lost.
    pub packets_lost: u64,
    /// Packets that arrived with CE, as the peer counts.
    pub packets_marked: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Changes of route.
    pub repaths: u32,
}
