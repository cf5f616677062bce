//! Collectives, cut into slices and pipelined as collective libraries do: a slice goes on as soon as it has come.

use std::fmt::Debug;

use super::streams::shuffle;
use super::{Bound, Pair, Posting, Workload};
use crate::sim::fabric::HostNotice;
use crate::sim::transport::{Message, Notice};

/// What one rank sends: to which rank, and the number of the message, that no other message of this pair of ranks has.
pub type Send = (u32, u32);

/// The rules of a collective among ranks.
pub trait Pattern: Debug {
    /// Ranks.
    fn ranks(&self) -> u32;

    /// To which ranks `rank` sends, each once.
    fn targets(&self, rank: u32) -> Vec<u32>;

    /// What `rank` sends at once.
    fn begin(&self, rank: u32, out: &mut Vec<Send>);

    /// What `rank` sends when message `id` has come.
    fn follow(&self, rank: u32, id: u32, out: &mut Vec<Send>);

    /// Messages that each rank sends, and receives.
    fn messages(&self) -> u32;

    /// Steps one after the other, and messages of the shortest of them.
    fn steps(&self) -> (u32, u32);
}

/// A collective among all hosts, whose ranks are dealt out by chance.
#[derive(Debug)]
pub struct Collective<P> {
    pattern: P,
    /// The host of each rank.
    order: Vec<u32>,
    /// The rank of each host.
    ranks: Vec<u32>,
    slice_bytes: u32,
    received: Vec<u32>,
    sent: Vec<u32>,
    done_ps: Vec<u64>,
    done: usize,
    sends: Vec<Send>,
}

impl<P: Pattern> Collective<P> {
    /// With messages of `slice_bytes`, ranks drawn from `seed`.
    #[must_use]
    pub fn new(pattern: P, slice_bytes: u32, seed: u64) -> Self {
        let mut order: Vec<u32> = (0..pattern.ranks()).collect();
        shuffle(&mut order, seed);
        let count = order.len();
        let mut ranks = vec![0; count];
        for (rank, &host) in (0u32..).zip(&order) {
            if let Some(entry) = ranks.get_mut(host as usize) {
                *entry = rank;
            }
        }
        Self {
            pattern,
            order,
            ranks,
            slice_bytes,
            received: vec![0; count],
            sent: vec![0; count],
            done_ps: vec![0; count],
            done: 0,
            sends: Vec::new(),
        }
    }

    fn host(&self, rank: u32) -> u32 {
        self.order.get(rank as usize).copied().unwrap_or(0)
    }

    fn post(&mut self, rank: u32, out: &mut Vec<Posting>) {
        let sends = std::mem::take(&mut self.sends);
        let from = self.host(rank);
        out.extend(sends.iter().map(|&(to, id)| Posting {
            pair: Pair::new(from, self.host(to)),
            message: Message { id, bytes: self.slice_bytes, notify: true, read: false },
        }));
        self.sends = sends;
        self.sends.clear();
    }

    fn note_progress(&mut self, now_ps: u64, rank: u32) {
        let (at, all) = (rank as usize, self.pattern.messages());
        let count = |list: &[u32]| list.get(at).copied().unwrap_or(0);
        if count(&self.received) == all
            && count(&self.sent) == all
            && let Some(done_ps) = self.done_ps.get_mut(at)
        {
            *done_ps = now_ps;
            self.done += 1;
        }
    }
}

impl<P: Pattern> Workload for Collective<P> {
    fn pairs(&self) -> Vec<Pair> {
        let of = |rank| {
            let targets = self.pattern.targets(rank).into_iter();
            targets.map(move |to| Pair::new(self.host(rank), self.host(to)))
        };
        (0..self.pattern.ranks()).flat_map(of).collect()
    }

    fn start(&mut self, _now_ps: u64, out: &mut Vec<Posting>) {
        for rank in 0..self.pattern.ranks() {
            self.pattern.begin(rank, &mut self.sends);
            self.post(rank, out);
        }
    }

    fn on_notice(&mut self, now_ps: u64, notice: &HostNotice, out: &mut Vec<Posting>) {
        let Some(&rank) = self.ranks.get(notice.host as usize) else { return };
        let list = match notice.notice {
            Notice::Sent { .. } => &mut self.sent,
            Notice::Delivered { id, .. } => {
                self.pattern.follow(rank, id, &mut self.sends);
                &mut self.received
            }
            Notice::Failed { .. } => return,
        };
        if let Some(count) = list.get_mut(rank as usize) {
            *count += 1;
        }
        self.post(rank, out);
        self.note_progress(now_ps, rank);
    }

    fn is_done(&self) -> bool {
        self.done == self.order.len()
    }

    fn payload_bytes(&self) -> u64 {
        u64::from(self.pattern.messages()) * u64::from(self.slice_bytes) * self.order.len() as u64
    }

    fn ideal_ps(&self, bound: &Bound) -> u64 {
        let line_ps = bound.line_ps(u64::from(self.pattern.messages()) * u64::from(self.slice_bytes));
        let slice_ps = bound.line_ps(u64::from(self.slice_bytes));
        let (steps, shortest) = self.pattern.steps();
        // A step can't begin before the first slice of the one before has come: that matters only where steps are
        // shorter. A bound that holds for all steps together is what all but the last take at least.
        let wait_ps = (slice_ps + bound.rtt_ps / 2).saturating_sub(slice_ps * u64::from(shortest));
        let chain_ps = (slice_ps + bound.rtt_ps / 2) * u64::from(steps.saturating_sub(1));
        let fill_ps = if self.pattern.messages() == steps * shortest {
            wait_ps * u64::from(steps.saturating_sub(1))
        } else {
            chain_ps.saturating_sub(line_ps)
        };
        line_ps + bound.rtt_ps + fill_ps
    }

    fn flows(&self) -> Vec<(u64, u64)> {
        // A rank's bytes over all its pairs, in equal parts.
        let of = |rank: u32| {
            let done_ps = self.done_ps.get(rank as usize).copied().unwrap_or(0);
            let count = self.pattern.targets(rank).len();
            let all = u64::from(self.pattern.messages()) * u64::from(self.slice_bytes);
            std::iter::repeat_n((done_ps, all / (count as u64).max(1)), count)
        };
        (0..self.pattern.ranks()).flat_map(of).collect()
    }
}

/// Chunks go round a ring: all-gather in *n* − 1 steps, all-reduce (reduce-scatter, then all-gather) in 2(*n* − 1).
#[derive(Debug)]
pub struct Ring {
    ranks: u32,
    slices: u32,
    steps: u32,
}

impl Ring {
    /// All-reduce: every rank holds `bytes`, cut into one chunk for each rank, rounded up to whole slices.
    #[must_use]
    pub fn all_reduce(ranks: u32, bytes: u64, slice_bytes: u32) -> Self {
        let slices = slices(bytes.div_ceil(u64::from(ranks.max(1))), slice_bytes);
        Self { ranks, slices, steps: 2 * ranks.saturating_sub(1) }
    }

    /// All-gather: every rank ends with `bytes`, of which it held one chunk.
    #[must_use]
    pub fn all_gather(ranks: u32, bytes: u64, slice_bytes: u32) -> Self {
        Self { steps: ranks.saturating_sub(1), ..Self::all_reduce(ranks, bytes, slice_bytes) }
    }

    fn next(&self, rank: u32) -> u32 {
        (rank + 1) % self.ranks.max(1)
    }
}

impl Pattern for Ring {
    fn ranks(&self) -> u32 {
        self.ranks
    }

    fn targets(&self, rank: u32) -> Vec<u32> {
        vec![self.next(rank)]
    }

    fn begin(&self, rank: u32, out: &mut Vec<Send>) {
        out.extend((0..self.slices).map(|slice| (self.next(rank), slice)));
    }

    fn follow(&self, rank: u32, id: u32, out: &mut Vec<Send>) {
        let next = id + self.slices;
        if next < self.messages() {
            out.push((self.next(rank), next));
        }
    }

    fn messages(&self) -> u32 {
        self.slices * self.steps
    }

    fn steps(&self) -> (u32, u32) {
        (self.steps, self.slices)
    }
}

/// All-reduce by recursive halving and doubling (Thakur et al., IJHPCA 2005): in step *s* of log₂ *n* each rank gives
/// half of what it still reduces to a partner, then the same steps backwards spread the results.
#[derive(Debug)]
pub struct HalvingDoubling {
    /// log₂ of the ranks.
    levels: u32,
    /// Slices of one rank's chunk.
    slices: u32,
}

impl HalvingDoubling {
    /// Every rank holds `bytes`. Ranks are a power of two: what is above is left out.
    #[must_use]
    pub fn new(ranks: u32, bytes: u64, slice_bytes: u32) -> Self {
        let levels = ranks.max(2).ilog2();
        Self { levels, slices: slices(bytes >> levels, slice_bytes) }
    }

    const fn all(&self) -> u32 {
        self.slices << self.levels
    }

    /// The partner of step `step`: bits from the top while halving, from the bottom while doubling.
    const fn partner(&self, rank: u32, step: u32) -> u32 {
        let bit = if step < self.levels { self.levels - 1 - step } else { step - self.levels };
        rank ^ (1 << bit)
    }

    const fn id(&self, step: u32, slice: u32) -> u32 {
        step * self.all() + slice
    }

    /// Passes a reduced slice on in all steps of doubling from `step` on.
    fn spread(&self, rank: u32, step: u32, slice: u32, out: &mut Vec<Send>) {
        out.extend((step..2 * self.levels).map(|step| (self.partner(rank, step), self.id(step, slice))));
    }
}

impl Pattern for HalvingDoubling {
    fn ranks(&self) -> u32 {
        1 << self.levels
    }

    fn targets(&self, rank: u32) -> Vec<u32> {
        (0..self.levels).map(|step| self.partner(rank, step)).collect()
    }

    fn begin(&self, rank: u32, out: &mut Vec<Send>) {
        let partner = self.partner(rank, 0);
        let top = self.levels - 1;
        let given = (0..self.all()).filter(|slice| (slice / self.slices) >> top == partner >> top);
        out.extend(given.map(|slice| (partner, slice)));
    }

    fn follow(&self, rank: u32, id: u32, out: &mut Vec<Send>) {
        let (step, slice) = (id / self.all(), id % self.all());
        let chunk = slice / self.slices;
        let next = step + 1;
        if next < self.levels {
            let bit = self.levels - 1 - next;
            if (chunk ^ rank) >> bit & 1 == 1 {
                out.push((self.partner(rank, next), self.id(next, slice)));
            }
        } else {
            self.spread(rank, next, slice, out);
        }
    }

    fn messages(&self) -> u32 {
        2 * (self.all() - self.slices)
    }

    fn steps(&self) -> (u32, u32) {
        (2 * self.levels, self.slices)
    }
}

fn slices(chunk_bytes: u64, slice_bytes: u32) -> u32 {
    u32::try_from(chunk_bytes.div_ceil(u64::from(slice_bytes.max(1)))).unwrap_or(u32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, VecDeque};

    use super::*;

    /// Plays a pattern with no network; returns what each rank received, in order, by message.
    fn play(pattern: &impl Pattern) -> BTreeMap<u32, Vec<u32>> {
        let mut queue = VecDeque::new();
        let mut out = Vec::new();
        let mut received: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        let mut sent = BTreeMap::<(u32, u32), Vec<u32>>::new();
        for rank in 0..pattern.ranks() {
            pattern.begin(rank, &mut out);
            queue.extend(out.drain(..).map(|(to, id)| (rank, to, id)));
        }
        while let Some((from, to, id)) = queue.pop_front() {
            assert!(pattern.targets(from).contains(&to));
            sent.entry((from, to)).or_default().push(id);
            received.entry(to).or_default().push(id);
            pattern.follow(to, id, &mut out);
            queue.extend(out.drain(..).map(|(next, id)| (to, next, id)));
        }
        for list in sent.values_mut() {
            list.sort_unstable();
            let count = list.len();
            list.dedup();
            assert_eq!(list.len(), count, "a pair uses a number twice");
        }
        received
    }

    #[test]
    fn every_rank_of_a_ring_receives_all_steps() {
        for pattern in [Ring::all_reduce(5, 5_000, 300), Ring::all_gather(5, 5_000, 300)] {
            for ids in play(&pattern).into_values() {
                assert_eq!(u32::try_from(ids.len()).unwrap(), pattern.messages());
            }
        }
    }

    #[test]
    fn halving_and_doubling_brings_every_slice_to_every_rank_with_all_contributions() {
        let pattern = HalvingDoubling::new(8, 8 * 300, 100);
        let received = play(&pattern);
        assert_eq!(received.len(), 8);
        for (rank, ids) in received {
            assert_eq!(u32::try_from(ids.len()).unwrap(), pattern.messages());
            // Its own chunk was reduced in every step of halving.
            for step in 0..pattern.levels {
                let own = (0..pattern.slices).map(|slice| pattern.id(step, rank * pattern.slices + slice));
                assert!(own.into_iter().all(|id| ids.contains(&id)));
            }
            // All other chunks came while doubling, each slice once.
            let mut spread: Vec<u32> = ids
                .iter()
                .filter(|&&id| id >= pattern.id(pattern.levels, 0))
                .map(|id| id % pattern.all())
                .collect();
            spread.sort_unstable();
            let others = (0..pattern.all()).filter(|slice| slice / pattern.slices != rank);
            assert!(spread.into_iter().eq(others));
        }
    }
}
