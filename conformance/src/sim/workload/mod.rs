//! What hosts have to say to each other.

mod ring;
mod streams;

pub use ring::RingAllReduce;
pub use streams::{Flow, Streams};

use super::fabric::HostNotice;
use super::transport::Message;
use super::units::Rate;

/// A message that a workload wants sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Posting {
    /// Sender.
    pub from: u32,
    /// Receiver.
    pub to: u32,
    /// The message.
    pub message: Message,
}

/// What a fabric can do at best, by which the ideal time is computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    /// Rate of the hosts' links.
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
    /// Which hosts talk, sender first. Each pair once.
    fn pairs(&self) -> Vec<(u32, u32)>;

    /// Posts what can go at once.
    fn start(&mut self, now_ps: u64, out: &mut Vec<Posting>);

    /// A host was told something; posts what can go now.
    fn on_notice(&mut self, now_ps: u64, notice: &HostNotice, out: &mut Vec<Posting>);

    /// Whether everything is done.
    fn is_done(&self) -> bool;

    /// Payload bytes of everything together.
    fn payload_bytes(&self) -> u64;

    /// The shortest possible time: payload of the busiest line over its rate, and one base RTT; for collectives the
    /// filling of the pipeline too.
    fn ideal_ps(&self, bound: &Bound) -> u64;

    /// When each flow, in the order of [`pairs`](Self::pairs), was done, ps; and its bytes.
    fn flows(&self) -> Vec<(u64, u64)>;

    /// Times from posting to completion of all messages, ps, in no order; empty if not kept.
    fn latencies_ps(&self) -> &[u64] {
        &[]
    }
}
