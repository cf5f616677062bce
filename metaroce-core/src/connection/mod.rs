//! A connection: its life, its terms, and the sub-states that it owns.

mod ack;
mod close;
mod control;
mod copies;
mod datagram;
mod feedback;
mod handshake;
mod health;
mod implicit;
mod incoming;
mod inflow;
mod outflow;
mod output;
mod parking;
mod paths;
mod plane_health;
mod planes;
mod probes;
mod quota;
mod reply;
mod steering;
mod timers;
mod turns;

#[cfg(test)]
#[cfg(feature = "alloc")]
pub(crate) mod tests;

pub use ack::AckSnapshot;
pub(crate) use ack::acknowledge_now;
pub(crate) use close::begin_close;
pub(crate) use datagram::finish as finish_datagram;
pub(crate) use handshake::{OpenError, accept, connect, on_control, reject};
pub(crate) use incoming::on_packet;
pub(crate) use output::Sink;
pub(crate) use paths::repath;
pub(crate) use planes::stats as plane_stats;
pub(crate) use reply::Replies;
pub use steering::Recent;
pub(crate) use timers::on_timer;
pub(crate) use turns::{fill_snapshots, fill_turns, fill_urgent};

use core::net::SocketAddr;

use crate::config::Config;
use crate::connection::inflow::Inflows;
use crate::connection::outflow::Outflows;
use crate::connection::planes::PlaneSet;
use crate::delivery::{Inbound, Outbound, Packet, Queued};
use crate::event::CloseReason;
use crate::ids::{ConnectionHandle, PathId, ProtectionDomain, StreamId, WireConnectionId};
use crate::lifecycle;
use crate::list::{Linked, Links, List};
use crate::path::Path;
use crate::pool::Pool;
use crate::stats::{ConnectionState, ConnectionStats};
use crate::stream::{Blocked, OfConnection, Responding, Scheduled, Stream, Urgent, Waiting, Work};
use crate::table::{Idx, Table};
use crate::time::Instant;
use crate::wire::{COOKIE_BYTES, NackReason, PRIVATE_DATA_BYTES_MAX, QUOTE_BYTES, RejectReason};

/// One connection.
#[derive(Debug)]
pub struct Connection {
    pub(crate) generation: u32,
    pub(crate) ids: Ids,
    pub(crate) state: State,
    pub(crate) role: Role,
    /// The one connection of its peer and service that needs no connection manager.
    pub(crate) implicit: bool,
    /// Where the peer receives, on plane 0.
    pub(crate) remote: SocketAddr,
    pub(crate) planes: PlaneSet,
    pub(crate) service: u32,
    pub(crate) domain: ProtectionDomain,
    /// The peer's private data; while connecting, and once accepted, what is to be sent to the peer.
    pub(crate) private: PrivateData,
    pub(crate) terms: Terms,
    pub(crate) outbound: Outbound,
    /// Refused packets whose time has come: they go under new CSNs.
    pub(crate) renewed: List<Packet, Queued>,
    pub(crate) inbound: Inbound,
    pub(crate) paths: PathSet,
    pub(crate) inflows: Inflows,
    pub(crate) outflows: Outflows,
    pub(crate) streams: StreamSet,
    pub(crate) clock: Clock,
    pub(crate) owed: Owed,
    /// Bytes that may still go to the peer's address, as long as it is not known that the peer is there; at most what
    /// came from it.
    pub(crate) unverified: Option<u32>,
    /// Why the peer's CONNECT was refused: told again when it is repeated.
    pub(crate) rejected: Option<RejectReason>,
    /// Payload bytes posted and not cut.
    pub(crate) queued_bytes: u64,
    pub(crate) stats: ConnectionStats,
    pub(crate) ready: Links<Self>,
    pub(crate) owing: Links<Self>,
}

/// Who the two ends are.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ids {
    pub(crate) local: WireConnectionId,
    pub(crate) remote: WireConnectionId,
    pub(crate) local_nonce: u64,
    pub(crate) remote_nonce: u64,
    pub(crate) remote_incarnation: u64,
}

/// The life of a connection; its table is [`lifecycle::CONNECTION`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// CONNECT goes out until it is answered.
    Connecting { attempt: Attempt, cookie: [u8; COOKIE_BYTES] },
    /// A CONNECT came; the application has to decide.
    Incoming,
    /// ACCEPT goes out until the peer is heard of.
    Accepting { attempt: Attempt },
    /// Work flows.
    Open,
    /// The application closed; what was posted runs out.
    Draining,
    /// CLOSE goes out until it is answered.
    Closing { attempt: Attempt },
    /// The peer's CLOSE came; what was posted here runs out.
    PeerClosing,
    /// Everything that is left ends, piece by piece.
    Ending { reason: CloseReason },
    /// The id rests, so that late packets meet an answer and no new connection.
    Resting { until: Instant },
}

/// Which end this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It sent CONNECT; opens even stream ids.
    Connector,
    /// It was sent CONNECT; opens odd stream ids.
    Acceptor,
}

/// Something that repeats until it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attempt {
    pub(crate) next: Instant,
    pub(crate) count: u32,
}

impl Attempt {
    pub(crate) const fn at(now: Instant) -> Self {
        Self { next: now, count: 0 }
    }
}

impl State {
    /// The state as the application sees it.
    pub(crate) const fn name(&self) -> ConnectionState {
        match self {
            Self::Connecting { .. } => ConnectionState::Connecting,
            Self::Incoming => ConnectionState::Incoming,
            Self::Accepting { .. } => ConnectionState::Accepting,
            Self::Open => ConnectionState::Open,
            Self::Draining => ConnectionState::Draining,
            Self::Closing { .. } => ConnectionState::Closing,
            Self::PeerClosing => ConnectionState::PeerClosing,
            Self::Ending { .. } => ConnectionState::Ending,
            Self::Resting { .. } => ConnectionState::Resting,
        }
    }

    /// Whether the table of transitions, [`lifecycle::CONNECTION`], has this step.
    fn may_become(&self, next: &Self) -> bool {
        lifecycle::allows(lifecycle::CONNECTION, self.name(), next.name())
    }
}

/// What both sides agreed on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// Largest UDP payload.
    pub(crate) mtu_bytes: u16,
    /// Paths of each plane and direction.
    pub(crate) paths_each: u8,
    pub(crate) streams: u32,
    /// The peer's message window and outstanding READs and atomics.
    pub(crate) message_window: u32,
    pub(crate) reads: u16,
    pub(crate) initial_credits: u32,
    /// The peer wants a checksum on every packet.
    pub(crate) checksum_out: bool,
}

/// The paths of a connection: a stretch of the endpoint's table.
#[derive(Debug)]
pub(crate) struct PathSet {
    pub(crate) first: Idx<Path>,
    pub(crate) count: u8,
    /// Paths whose acknowledgement goes with the next `poll_transmit`, a bit each.
    pub(crate) due: u64,
    /// Paths with packets to acknowledge before the delay is over.
    pub(crate) pending: u64,
    /// Paths with packets to send again.
    pub(crate) again: u64,
    /// The path of the burst under way, and packets left of it.
    pub(crate) burst: Option<(Idx<Path>, u8)>,
    /// Paths with a PROBE that has not been answered.
    pub(crate) replies: u64,
    /// Paths that timed out, and perhaps had an answer since.
    pub(crate) timed_out: u64,
    /// Stream that the next PROBE asks about.
    pub(crate) ask: Option<StreamId>,
    /// When the next path may move to another route because it fares worse than others.
    pub(crate) next_move: Instant,
    /// Payload bytes of a full packet: what every path in use carries.
    pub(crate) payload_bytes: u16,
}

/// The streams of a connection.
#[derive(Debug)]
pub(crate) struct StreamSet {
    pub(crate) all: List<Stream, OfConnection>,
    pub(crate) count: u32,
    pub(crate) scheduled: List<Stream, Scheduled>,
    pub(crate) urgent: List<Stream, Urgent>,
    pub(crate) waiting: List<Stream, Waiting>,
    pub(crate) blocked: List<Stream, Blocked>,
    /// Responses to send, oldest first.
    pub(crate) responses: List<Work, Responding>,
    /// Responses that we owe or have under way.
    pub(crate) responses_owed: u32,
    /// Inbound messages that have not taken effect.
    pub(crate) messages: u32,
    /// READs and atomics of ours without response.
    pub(crate) responses_due: u32,
    /// Id of the next stream opened here, without the lowest bit.
    pub(crate) next_id: u16,
    /// Responses had the last turn.
    pub(crate) responses_served: bool,
    /// The stream whose CREDIT is repeated next.
    pub(crate) credit_cursor: Idx<Stream>,
    /// A stream of the peer's that could not be opened, and why: for the next acknowledgement.
    pub(crate) unopened: Option<(StreamId, NackReason)>,
}

/// The times of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// When the timer wheel has it.
    pub(crate) armed: Instant,
    pub(crate) last_heard: Instant,
    /// When something was last told delivered, and on which path.
    pub(crate) last_progress: Instant,
    /// When the newest transmission was sent that was told delivered, of any path.
    pub(crate) progress_sent_at: Instant,
    /// When there was last nothing under way: from here a silent peer counts.
    pub(crate) busy_since: Instant,
    /// When delayed acknowledgements are due.
    pub(crate) ack_at: Instant,
    /// When a path that is paced may send.
    pub(crate) pace_at: Instant,
    pub(crate) last_keepalive: Instant,
    /// When there was last work of either side.
    pub(crate) last_used: Instant,
}

/// Control packets to send.
#[expect(clippy::struct_excessive_bools, reason = "one for each control packet, independent of the others")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owed {
    pub(crate) connect: bool,
    pub(crate) accept: bool,
    pub(crate) confirm: bool,
    pub(crate) reject: Option<RejectReason>,
    pub(crate) close: bool,
    pub(crate) close_ack: bool,
    /// CLOSE_ACK for an id at rest, quoting the packet that it answers.
    pub(crate) close_ack_quote: Option<[u8; QUOTE_BYTES]>,
}

/// Up to 256 bytes of the application.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PrivateData {
    length: u16,
    bytes: [u8; PRIVATE_DATA_BYTES_MAX],
}

impl PrivateData {
    pub(crate) const EMPTY: Self = Self { length: 0, bytes: [0; PRIVATE_DATA_BYTES_MAX] };

    /// `None` if it is too long.
    pub(crate) fn new(data: &[u8]) -> Option<Self> {
        let mut bytes = [0; PRIVATE_DATA_BYTES_MAX];
        for (to, from) in bytes.get_mut(..data.len())?.iter_mut().zip(data) {
            *to = *from;
        }
        Some(Self { length: u16::try_from(data.len()).ok()?, bytes })
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or_default()
    }
}

/// The endpoint's list of connections with something to send.
#[derive(Debug)]
pub struct Ready;

/// The endpoint's list of connections that may owe control packets or acknowledgements.
#[derive(Debug)]
pub struct Owing;

impl Linked<Owing> for Connection {
    fn links(&self) -> &Links<Self> {
        &self.owing
    }
    fn links_mut(&mut self) -> &mut Links<Self> {
        &mut self.owing
    }
}

impl Linked<Ready> for Connection {
    fn links(&self) -> &Links<Self> {
        &self.ready
    }
    fn links_mut(&mut self) -> &mut Links<Self> {
        &mut self.ready
    }
}

impl Connection {
    /// A slot of a pool, not in use.
    pub const EMPTY: Self = Self {
        generation: 0,
        ids: Ids {
            local: WireConnectionId(0),
            remote: WireConnectionId(0),
            local_nonce: 0,
            remote_nonce: 0,
            remote_incarnation: 0,
        },
        state: State::Incoming,
        role: Role::Acceptor,
        implicit: false,
        remote: SocketAddr::new(core::net::IpAddr::V4(core::net::Ipv4Addr::UNSPECIFIED), 0),
        planes: PlaneSet::EMPTY,
        service: 0,
        domain: ProtectionDomain(0),
        private: PrivateData::EMPTY,
        terms: Terms {
            mtu_bytes: 0,
            paths_each: 0,
            streams: 0,
            message_window: 0,
            reads: 0,
            initial_credits: 0,
            checksum_out: true,
        },
        outbound: Outbound::NEW,
        renewed: List::EMPTY,
        inbound: Inbound::NEW,
        paths: PathSet {
            first: Idx::NONE,
            count: 0,
            due: 0,
            pending: 0,
            again: 0,
            burst: None,
            replies: 0,
            timed_out: 0,
            ask: None,
            next_move: Instant::ZERO,
            payload_bytes: 0,
        },
        inflows: Inflows::NEW,
        outflows: Outflows::NEW,
        streams: StreamSet {
            all: List::EMPTY,
            count: 0,
            scheduled: List::EMPTY,
            urgent: List::EMPTY,
            waiting: List::EMPTY,
            blocked: List::EMPTY,
            responses: List::EMPTY,
            responses_owed: 0,
            messages: 0,
            responses_due: 0,
            next_id: 0,
            responses_served: false,
            credit_cursor: Idx::NONE,
            unopened: None,
        },
        clock: Clock {
            armed: Instant::FAR_FUTURE,
            last_heard: Instant::ZERO,
            last_progress: Instant::ZERO,
            progress_sent_at: Instant::ZERO,
            busy_since: Instant::ZERO,
            ack_at: Instant::FAR_FUTURE,
            pace_at: Instant::FAR_FUTURE,
            last_keepalive: Instant::ZERO,
            last_used: Instant::ZERO,
        },
        owed: Owed {
            connect: false,
            accept: false,
            confirm: false,
            reject: None,
            close: false,
            close_ack: false,
            close_ack_quote: None,
        },
        unverified: None,
        rejected: None,
        queued_bytes: 0,
        stats: ConnectionStats {
            packets_sent: 0,
            bytes_sent: 0,
            packets_accepted: 0,
            bytes_placed: 0,
            duplicates_received: 0,
            lost: 0,
            retransmitted: 0,
            retransmitted_by_timeout: 0,
            spurious: 0,
            refused: 0,
            bytes_in_flight: 0,
            state: ConnectionState::Incoming,
            streams: 0,
            paths: 0,
        },
        ready: Links::UNLINKED,
        owing: Links::UNLINKED,
    };

    pub(crate) fn become_state(&mut self, next: State) {
        debug_assert!(self.state.may_become(&next), "{:?} must not become {next:?}", self.state);
        self.state = next;
    }

    pub(crate) const fn handle(&self, slot: Idx<Self>) -> ConnectionHandle {
        ConnectionHandle { slot: slot.raw(), generation: self.generation }
    }

    /// Whether the application may post, and the peer may open streams.
    pub(crate) const fn takes_new_work(&self) -> bool {
        matches!(self.state, State::Connecting { .. } | State::Accepting { .. } | State::Open)
    }

    /// Whether requests may go out. To an address that has not answered they don't: who forges one must not have us
    /// flood it.
    pub(crate) const fn may_send_requests(&self) -> bool {
        matches!(self.state, State::Accepting { .. } | State::Open | State::Draining | State::PeerClosing)
            //= MR-HS-21
            && self.unverified.is_none()
    }

    /// Whether the peer has closed: it posts no receive and grants no credit any more, so that what needs one can only
    /// be tried.
    pub(crate) const fn peer_closes(&self) -> bool {
        //= MR-CLS-20
        matches!(self.state, State::PeerClosing)
    }

    /// Whether the peer's packets are taken in.
    pub(crate) const fn takes_packets(&self) -> bool {
        matches!(
            self.state,
            State::Accepting { .. }
                | State::Open
                | State::Draining
                | State::Closing { .. }
                | State::PeerClosing
        )
    }

    /// Whether there is a packet that could go, if windows, shares and tables let it.
    pub(crate) const fn has_data(&self) -> bool {
        self.paths.again != 0
            || !self.renewed.is_empty()
            || !self.streams.responses.is_empty()
            || !self.streams.scheduled.is_empty()
    }

    /// The path `id`, if the connection has it.
    pub(crate) fn path(&self, id: PathId) -> Option<Idx<Path>> {
        (id.0 < self.paths.count).then(|| Idx::new(self.paths.first.raw().wrapping_add(u32::from(id.0))))
    }

    /// The paths of a plane.
    pub(crate) fn plane_paths(&self, plane: u8) -> impl Iterator<Item = Idx<Path>> + use<> {
        let (first, count) = (self.paths.first.raw(), self.paths.count);
        let ids = self.planes.paths_of(plane).filter(move |id| id.0 < count);
        ids.map(move |id| Idx::new(first.wrapping_add(u32::from(id.0))))
    }

    /// All paths.
    pub(crate) fn path_indices(&self) -> impl Iterator<Item = Idx<Path>> + use<> {
        let first = self.paths.first.raw();
        (0..u32::from(self.paths.count)).map(move |at| Idx::new(first.wrapping_add(at)))
    }

    /// Smallest smoothed RTT of the good paths, ns. O(paths).
    pub(crate) fn rtt_ns(&self, paths: &Table<'_, Path>, config: &Config) -> u64 {
        self.path_indices()
            .map(|at| paths.at(at))
            .filter(|path| path.takes_data())
            .map(|path| path.rtt.smoothed_or(config.rtt_ns_initial))
            .min()
            .unwrap_or(config.rtt_ns_initial)
    }

    /// Whether anything of ours has no verdict or completion yet. O(streams), on the way to closing only.
    pub(crate) fn is_drained(&self, streams: &Pool<'_, Stream>) -> bool {
        if !self.outbound.packets.is_empty() || !self.streams.responses.is_empty() || !self.renewed.is_empty()
        {
            return false;
        }
        let mut at = self.streams.all.front();
        while let Some(stream) = at {
            if !streams.at(stream).requester.works.is_empty() {
                return false;
            }
            at = self.streams.all.next(streams, stream);
        }
        true
    }
}
