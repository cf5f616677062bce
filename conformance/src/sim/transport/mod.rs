//! What runs on the hosts: the real core, and models of other transports to compare it with.

mod dcqcn;
mod deadlines;
mod metaroce;
mod roce;
mod spray;

pub use dcqcn::{Dcqcn, Reaction};
pub use metaroce::{MetaRoce, MetaRoceOptions};
pub use roce::{RoceOptions, RoceV2};
pub use spray::{Spray, SprayOptions};

use super::memory::Peer;
use super::packet::{Arena, Packet, PacketId};

/// The header of a baseline's packet, as a structure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BaselineHeader {
    /// What it is.
    pub kind: BaselineKind,
    /// Which of the connections between the two hosts.
    pub connection: u32,
    /// Bytes that it takes on the wire, after UDP.
    pub bytes: u16,
    /// Packet number, or the number acknowledged.
    pub psn: u64,
    /// Number of the message.
    pub message: u64,
    /// The last packet of its message.
    pub last: bool,
    /// The message is reported to the receiver's application.
    pub notify: bool,
    /// The packet that is answered.
    pub newest: u64,
    /// Of the 64 packets up to that one, those that were received.
    pub bits: u64,
    /// Packets that came marked, so far.
    pub marks: u32,
    /// Source port of the packet that is answered.
    pub echo: u16,
}

/// Kinds of packets of the baselines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BaselineKind {
    /// None.
    #[default]
    None,
    /// Data.
    Data,
    /// All below `psn` has arrived.
    Ack,
    /// `psn` is missing: go back to it.
    Nak,
    /// A congestion notification.
    Cnp,
}

impl BaselineHeader {
    /// No such header.
    pub const NONE: Self = Self {
        kind: BaselineKind::None,
        connection: 0,
        bytes: 0,
        psn: 0,
        message: 0,
        last: false,
        notify: false,
        newest: 0,
        bits: 0,
        marks: 0,
        echo: 0,
    };
}

/// A message to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Given back when it is complete.
    pub id: u32,
    /// Bytes.
    pub bytes: u32,
    /// Whether the receiver's application is told when it is there.
    pub notify: bool,
    /// The bytes are read from the peer instead of written to it.
    pub read: bool,
}

/// Something that the application is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A message of ours to `peer` is complete.
    Sent {
        /// The receiver.
        peer: Peer,
        /// The message.
        id: u32,
    },
    /// A message from `peer` is there, and so are all earlier ones of its flow.
    Delivered {
        /// The sender.
        peer: Peer,
        /// The message.
        id: u32,
    },
    /// The connection to `peer` ended in error.
    Failed {
        /// The peer.
        peer: Peer,
    },
}

/// Counters and estimates of one flow, at its sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowStats {
    /// Data packets sent, all copies.
    pub packets_sent: u64,
    /// Payload bytes sent, all copies.
    pub bytes_sent: u64,
    /// Packets sent again since they were found missing.
    pub retransmitted: u64,
    /// Packets sent again by a timeout.
    pub retransmitted_by_timeout: u64,
    /// Packets declared lost that had arrived.
    pub spurious: u64,
    /// Timeouts of paths.
    pub timeouts: u64,
    /// Packets that the peer saw marked.
    pub marked: u64,
    /// What the congestion control allows now, bytes in flight.
    pub window_bytes: u64,
    /// Bytes in flight.
    pub inflight_bytes: u64,
    /// Rate that it may send at now, bit/s; from the window and the base RTT where there is no other.
    pub allowed_bps: u64,
}

/// The state of one path, for curves over time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathSample {
    /// Congestion window, bytes.
    pub window_bytes: u64,
    /// In flight, bytes.
    pub inflight_bytes: u64,
    /// Whether the path takes new data.
    pub good: bool,
    /// UDP source port.
    pub source_port: u16,
    /// Plane.
    pub plane: u8,
    /// State, in words.
    pub state: &'static str,
    /// Packets that arrived marked, so far.
    pub marked: u64,
    /// Packets declared lost, so far.
    pub lost: u64,
}

/// A transport on one host. Times in picoseconds.
pub trait Transport {
    /// Opens what is needed to send to and receive from `peer`. Both ends are told; `first` is the one that acts.
    fn connect(&mut self, now_ps: u64, peer: Peer, first: bool);

    /// Whether everything opened so far is ready.
    fn is_ready(&mut self) -> bool;

    /// Whether what goes on after the opening is over too, such as the search for the path MTU.
    fn is_settled(&mut self) -> bool {
        true
    }

    /// Takes a message for `peer`; `None` if there is no room. Returns what its arrival adds to the sum of
    /// [`placed`](Self::placed): at the receiver, or at this host for a read.
    fn post(&mut self, now_ps: u64, peer: Peer, message: Message) -> Option<u64>;

    /// A packet arrived.
    fn handle(&mut self, now_ps: u64, packet: &Packet);

    /// A deadline has come.
    fn handle_timeout(&mut self, now_ps: u64);

    /// Gives the next packets to send, at most `most`, in order.
    fn poll(&mut self, now_ps: u64, arena: &mut Arena, most: usize, out: &mut Vec<PacketId>);

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called.
    fn next_deadline_ps(&mut self) -> Option<u64>;

    /// The next thing that the application is to know.
    fn poll_notice(&mut self) -> Option<Notice>;

    /// Counters of the flow to `peer`.
    fn flow_stats(&mut self, peer: Peer) -> FlowStats;

    /// The paths of the flow to `peer`.
    fn path_samples(&mut self, peer: Peer) -> Vec<PathSample>;

    /// What was placed here: the sum of [`cover`](super::memory::cover) over it, and payloads that came to a wrong place.
    fn placed(&self) -> (u64, u64);

    /// Payload bytes placed so far.
    fn placed_bytes(&self) -> u64;

    /// Payload bytes, and bytes on the wire, of a full packet.
    fn full_packet(&self) -> (u64, u64);

    /// Bytes on the wire of an acknowledgement.
    fn answer_bytes(&self) -> u64;

    /// Packets dropped on arrival, by reason.
    fn dropped(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}
