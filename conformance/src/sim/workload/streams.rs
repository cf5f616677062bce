//! Independent flows of Writes: point to point, permutation, incast, all-to-all, small messages.

use std::collections::BTreeMap;

use super::{Bound, Busy, Pair, Posting, Workload};
use crate::Random;
use crate::sim::fabric::HostNotice;
use crate::sim::memory::Peer;
use crate::sim::transport::{Message, Notice};
use crate::sim::units::ratio;

/// One flow: messages from one host to another, a few at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Sender, receiver, and which of the connections between them.
    pub pair: Pair,
    /// Messages.
    pub messages: u32,
    /// Bytes of each.
    pub message_bytes: u32,
    /// Messages outstanding at a time.
    pub outstanding: u32,
}

/// Flows that know nothing of each other.
#[derive(Debug)]
pub struct Streams {
    flows: Vec<Flow>,
    states: Vec<FlowState>,
    by_pair: BTreeMap<(u32, Peer), usize>,
    done: usize,
    latencies_ps: Vec<u64>,
    keep_latencies: bool,
}

#[derive(Clone, Debug, Default)]
struct FlowState {
    posted: u32,
    completed: u32,
    done_ps: u64,
    posted_ps: BTreeMap<u32, u64>,
}

impl Streams {
    /// These flows, at most one for each connection and direction.
    #[must_use]
    pub fn new(flows: Vec<Flow>, keep_latencies: bool) -> Self {
        let by_pair =
            flows.iter().enumerate().map(|(at, flow)| ((flow.pair.from, flow.pair.receiver()), at)).collect();
        let states = vec![FlowState::default(); flows.len()];
        Self { flows, states, by_pair, done: 0, latencies_ps: Vec::new(), keep_latencies }
    }

    /// So many connections from the first host to the last.
    #[must_use]
    pub fn parallel(hosts: u32, connections: u32, like: Flow, keep_latencies: bool) -> Self {
        let flow = |number| Flow { pair: Pair { from: 0, to: hosts.saturating_sub(1), number }, ..like };
        Self::new((0..connections).map(flow).collect(), keep_latencies)
    }

    /// All of `hosts` but the last send to the last.
    #[must_use]
    pub fn incast(hosts: u32, like: Flow) -> Self {
        let to = hosts.saturating_sub(1);
        Self::new((0..to).map(|from| like.between(from, to)).collect(), false)
    }

    /// The first half of the hosts send to the last; the first of them sends to each of the others too, which hear
    /// from nobody else.
    #[must_use]
    pub fn outcast_incast(hosts: u32, like: Flow) -> Self {
        let (half, last) = (hosts / 2, hosts.saturating_sub(1));
        let incast = (0..half).map(|from| like.between(from, last));
        let outcast = (half..last).map(|to| like.between(0, to));
        Self::new(incast.chain(outcast).collect(), false)
    }

    /// Every host sends to one other, and hears from one other, by chance.
    #[must_use]
    pub fn permutation(hosts: u32, seed: u64, like: Flow) -> Self {
        let mut order: Vec<u32> = (0..hosts).collect();
        shuffle(&mut order, seed);
        let next = order.iter().cycle().skip(1);
        Self::new(order.iter().zip(next).map(|(&from, &to)| like.between(from, to)).collect(), false)
    }

    /// Every host sends to every other; each begins with its neighbour.
    #[must_use]
    pub fn all_to_all(hosts: u32, like: Flow) -> Self {
        let flows = (1..hosts)
            .flat_map(|step| (0..hosts).map(move |from| like.between(from, (from + step) % hosts.max(1))));
        Self::new(flows.collect(), false)
    }

    fn post(&mut self, now_ps: u64, at: usize, out: &mut Vec<Posting>) {
        let (Some(flow), Some(state)) = (self.flows.get(at), self.states.get_mut(at)) else { return };
        while state.posted < flow.messages && state.posted - state.completed < flow.outstanding.max(1) {
            let message = Message { id: state.posted, bytes: flow.message_bytes, notify: false, read: false };
            if self.keep_latencies {
                state.posted_ps.insert(message.id, now_ps);
            }
            out.push(Posting { pair: flow.pair, message });
            state.posted += 1;
        }
    }
}

impl Flow {
    /// The same between two other hosts.
    #[must_use]
    pub const fn between(self, from: u32, to: u32) -> Self {
        Self { pair: Pair::new(from, to), ..self }
    }
}

impl Workload for Streams {
    fn pairs(&self) -> Vec<Pair> {
        self.flows.iter().map(|flow| flow.pair).collect()
    }

    fn start(&mut self, now_ps: u64, out: &mut Vec<Posting>) {
        for at in 0..self.flows.len() {
            self.post(now_ps, at, out);
        }
    }

    fn on_notice(&mut self, now_ps: u64, notice: &HostNotice, out: &mut Vec<Posting>) {
        let Notice::Sent { peer, id } = notice.notice else { return };
        let Some(&at) = self.by_pair.get(&(notice.host, peer)) else { return };
        let (Some(flow), Some(state)) = (self.flows.get(at), self.states.get_mut(at)) else { return };
        state.completed += 1;
        if let Some(posted_ps) = state.posted_ps.remove(&id) {
            self.latencies_ps.push(now_ps - posted_ps);
        }
        if state.completed == flow.messages {
            state.done_ps = now_ps;
            self.done += 1;
        }
        self.post(now_ps, at, out);
    }

    fn is_done(&self) -> bool {
        self.done == self.flows.len()
    }

    fn payload_bytes(&self) -> u64 {
        self.flows.iter().map(bytes).sum()
    }

    fn ideal_ps(&self, bound: &Bound) -> u64 {
        let mut busy = Busy::default();
        for flow in &self.flows {
            busy.add(flow.pair.from, flow.pair.to, bytes(flow));
        }
        bound.line_ps(busy.most()) + bound.rtt_ps
    }

    fn closed_loop(&self, bound: &Bound) -> f64 {
        // In the time of one message and one RTT every flow completes at most what it has outstanding.
        let round = |flow: &Flow| {
            let message_ps = bound.line_ps(u64::from(flow.message_bytes));
            let outstanding = message_ps * u64::from(flow.outstanding.max(1));
            (flow.pair, ratio(outstanding, message_ps + bound.rtt_ps))
        };
        let mut outbound = BTreeMap::<u32, f64>::new();
        let mut inbound = BTreeMap::<u32, f64>::new();
        for (pair, share) in self.flows.iter().map(round) {
            *outbound.entry(pair.from).or_default() += share;
            *inbound.entry(pair.to).or_default() += share;
        }
        outbound.values().chain(inbound.values()).copied().fold(0.0, f64::max).min(1.0)
    }

    fn flows(&self) -> Vec<(u64, u64)> {
        self.states.iter().zip(&self.flows).map(|(state, flow)| (state.done_ps, bytes(flow))).collect()
    }

    fn latencies_ps(&self) -> &[u64] {
        &self.latencies_ps
    }
}

fn bytes(flow: &Flow) -> u64 {
    u64::from(flow.messages) * u64::from(flow.message_bytes)
}

/// Fisher and Yates.
pub(super) fn shuffle(order: &mut [u32], seed: u64) {
    let mut random = Random::new(seed);
    for last in (1..order.len()).rev() {
        let other = usize::try_from(random.below(last as u64 + 1)).unwrap_or(0);
        order.swap(last, other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIKE: Flow = Flow { pair: Pair::new(0, 0), messages: 2, message_bytes: 10, outstanding: 1 };

    #[test]
    fn a_permutation_gives_everybody_one_sender_and_one_receiver_that_is_not_itself() {
        let pairs = Streams::permutation(16, 3, LIKE).pairs();
        assert!(pairs.iter().all(|pair| pair.from != pair.to));
        let mut to: Vec<u32> = pairs.iter().map(|pair| pair.to).collect();
        to.sort_unstable();
        assert!(to.into_iter().eq(0..16));
    }

    #[test]
    fn all_to_all_has_every_pair_once() {
        let mut pairs = Streams::all_to_all(5, LIKE).pairs();
        pairs.sort_unstable();
        pairs.dedup();
        assert_eq!(pairs.len(), 20);
    }

    #[test]
    fn only_the_last_host_of_outcast_and_incast_hears_from_several() {
        let pairs = Streams::outcast_incast(16, LIKE).pairs();
        assert_eq!(pairs.iter().filter(|pair| pair.to == 15).count(), 8);
        assert_eq!(pairs.iter().filter(|pair| pair.from == 0).count(), 8);
        assert!((8..15).all(|to| pairs.iter().filter(|pair| pair.to == to).count() == 1));
    }
}
