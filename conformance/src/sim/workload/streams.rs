//! Independent flows of Writes: point to point, permutation, incast, all-to-all, small messages.

use std::collections::BTreeMap;

use super::{Bound, Posting, Workload};
use crate::Random;
use crate::sim::fabric::HostNotice;
use crate::sim::transport::{Message, Notice};

/// One flow: messages from one host to another, a few at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Sender.
    pub from: u32,
    /// Receiver.
    pub to: u32,
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
    by_pair: BTreeMap<(u32, u32), usize>,
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
    /// These flows, at most one for each pair of hosts.
    #[must_use]
    pub fn new(flows: Vec<Flow>, keep_latencies: bool) -> Self {
        let by_pair = flows.iter().enumerate().map(|(at, flow)| ((flow.from, flow.to), at)).collect();
        let states = vec![FlowState::default(); flows.len()];
        Self { flows, states, by_pair, done: 0, latencies_ps: Vec::new(), keep_latencies }
    }

    /// All of `hosts` but the last send to the last: `bytes` each.
    #[must_use]
    pub fn incast(hosts: u32, like: Flow) -> Self {
        let to = hosts.saturating_sub(1);
        Self::new((0..to).map(|from| Flow { from, to, ..like }).collect(), false)
    }

    /// Every host sends to one other, and hears from one other, by chance.
    #[must_use]
    pub fn permutation(hosts: u32, seed: u64, like: Flow) -> Self {
        let mut order: Vec<u32> = (0..hosts).collect();
        shuffle(&mut order, seed);
        let next = order.iter().cycle().skip(1);
        Self::new(order.iter().zip(next).map(|(&from, &to)| Flow { from, to, ..like }).collect(), false)
    }

    /// Every host sends to every other; each begins with its neighbour.
    #[must_use]
    pub fn all_to_all(hosts: u32, like: Flow) -> Self {
        let flows = (1..hosts).flat_map(|step| {
            (0..hosts).map(move |from| Flow { from, to: (from + step) % hosts.max(1), ..like })
        });
        Self::new(flows.collect(), false)
    }

    fn post(&mut self, now_ps: u64, at: usize, out: &mut Vec<Posting>) {
        let (Some(flow), Some(state)) = (self.flows.get(at), self.states.get_mut(at)) else { return };
        while state.posted < flow.messages && state.posted - state.completed < flow.outstanding.max(1) {
            let message = Message { id: state.posted, bytes: flow.message_bytes, notify: false };
            if self.keep_latencies {
                state.posted_ps.insert(message.id, now_ps);
            }
            out.push(Posting { from: flow.from, to: flow.to, message });
            state.posted += 1;
        }
    }
}

impl Workload for Streams {
    fn pairs(&self) -> Vec<(u32, u32)> {
        self.flows.iter().map(|flow| (flow.from, flow.to)).collect()
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
        let (mut outbound, mut inbound) = (BTreeMap::<u32, u64>::new(), BTreeMap::<u32, u64>::new());
        for flow in &self.flows {
            *outbound.entry(flow.from).or_default() += bytes(flow);
            *inbound.entry(flow.to).or_default() += bytes(flow);
        }
        let busiest = outbound.into_values().chain(inbound.into_values()).max().unwrap_or(0);
        bound.line_ps(busiest) + bound.rtt_ps
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

    const LIKE: Flow = Flow { from: 0, to: 0, messages: 2, message_bytes: 10, outstanding: 1 };

    #[test]
    fn a_permutation_gives_everybody_one_sender_and_one_receiver_that_is_not_itself() {
        let pairs = Streams::permutation(16, 3, LIKE).pairs();
        assert!(pairs.iter().all(|(from, to)| from != to));
        let mut to: Vec<u32> = pairs.iter().map(|pair| pair.1).collect();
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
}
