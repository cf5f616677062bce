//! What hosts have to say to each other.

mod collective;
mod listed;
mod reads;
mod streams;

pub use collective::{Collective, HalvingDoubling, Pattern, Ring};
pub use listed::{Entry, Listed};
pub use reads::KeyValue;
pub use streams::{Flow, Streams};

use std::collections::BTreeMap;

use super::fabric::HostNotice;
use super::memory::Peer;
use super::transport::Message;
use super::units::Rate;

/// Two hosts that talk, and which of the connections between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pair {
    /// Sender.
    pub from: u32,
    /// Receiver.
    pub to: u32,
    /// Number of the connection, from 0.
    pub number: u32,
}

impl Pair {
    /// Over the first connection between two hosts.
    #[must_use]
    pub const fn new(from: u32, to: u32) -> Self {
        Self { from, to, number: 0 }
    }

    /// The receiver, as the sender knows it.
    #[must_use]
    pub const fn receiver(&self) -> Peer {
        Peer { host: self.to, number: self.number }
    }

    /// The sender, as the receiver knows it.
    #[must_use]
    pub const fn sender(&self) -> Peer {
        Peer { host: self.from, number: self.number }
    }
}

/// A message that a workload wants sent, or read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Posting {
    /// Who posts it, and to whom.
    pub pair: Pair,
    /// The message.
    pub message: Message,
}

/// Bytes over the line of each host, both directions apart.
#[derive(Debug, Default)]
struct Busy {
    outbound: BTreeMap<u32, u64>,
    inbound: BTreeMap<u32, u64>,
}

impl Busy {
    fn add(&mut self, from: u32, to: u32, bytes: u64) {
        *self.outbound.entry(from).or_default() += bytes;
        *self.inbound.entry(to).or_default() += bytes;
    }

    /// Those of the busiest line.
    fn most(&self) -> u64 {
        self.outbound.values().chain(self.inbound.values()).copied().max().unwrap_or(0)
    }
}

/// What a fabric can do at best, by which the ideal time is computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    /// Rate of a host's links, over all planes.
    pub line: Rate,
    /// Payload of a full packet, bytes.
    pub payload_bytes: u64,
    /// The same packet on the wire, bytes.
    pub wire_bytes: u64,
    /// Base RTT, ps.
    pub rtt_ps: u64,
}

impl Bound {
    /// Time in which a line carries `payload` bytes in full packets, ps.
    #[must_use]
    pub fn line_ps(&self, payload: u64) -> u64 {
        let wire = u128::from(payload) * u128::from(self.wire_bytes) / u128::from(self.payload_bytes.max(1));
        self.line.time_ps(u64::try_from(wire).unwrap_or(u64::MAX))
    }
}

/// A workload: posts messages, hears of them, knows when it is done.
pub trait Workload {
    /// Which hosts talk. Each connection and direction once.
    fn pairs(&self) -> Vec<Pair>;

    /// Posts what can go at once.
    fn start(&mut self, now_ps: u64, out: &mut Vec<Posting>);

    /// A host was told something; posts what can go now.
    fn on_notice(&mut self, now_ps: u64, notice: &HostNotice, out: &mut Vec<Posting>);

    /// When it wants to post something of itself, ps; `None` for not any more.
    fn next_ps(&self) -> Option<u64> {
        None
    }

    /// That time has come.
    fn on_time(&mut self, _now_ps: u64, _out: &mut Vec<Posting>) {}

    /// Whether everything is done.
    fn is_done(&self) -> bool;

    /// Payload bytes of everything together.
    fn payload_bytes(&self) -> u64;

    /// The shortest possible time: payload of the busiest line over its rate, and one base RTT; for collectives the
    /// filling of the pipeline too.
    fn ideal_ps(&self, bound: &Bound) -> u64;

    /// The goodput at most, as a fraction of full lines, when each message waits for an earlier one to complete.
    fn closed_loop(&self, _bound: &Bound) -> f64 {
        1.0
    }

    /// When each flow, in the order of [`pairs`](Self::pairs), was done, ps; and its bytes.
    fn flows(&self) -> Vec<(u64, u64)>;

    /// Times from posting to completion of all messages, ps, in no order; empty if not kept.
    fn latencies_ps(&self) -> &[u64] {
        &[]
    }
}
