//! How soon flows that start together may send at their fair rate: each counted from when its receiver first heard of it.

use std::collections::BTreeMap;

use super::workload::Pair;

/// See the module. Times are those of the simulator's clock, ps.
#[derive(Debug, Default)]
pub struct Settling {
    flows: Vec<Flow>,
    by_hosts: BTreeMap<(u32, u32), usize>,
}

#[derive(Clone, Debug, Default)]
struct Flow {
    heard_ps: Option<u64>,
    /// When its allowed rate came near its fair part, or left it again, in turn.
    turns_ps: Vec<u64>,
}

impl Flow {
    const fn is_near(&self) -> bool {
        !self.turns_ps.len().is_multiple_of(2)
    }

    /// From the first packet's arrival until the rate stays near what is fair up to `end_ps`.
    fn settled_ps(&self, end_ps: u64) -> Option<u64> {
        let turns = self.turns_ps.partition_point(|&at_ps| at_ps <= end_ps);
        let last_ps = *self.turns_ps.get(turns.checked_sub(1).filter(|last| last.is_multiple_of(2))?)?;
        Some(last_ps.saturating_sub(self.heard_ps?))
    }
}

impl Settling {
    /// Of the flows between these pairs; of several between the same hosts only one is told when it was heard of.
    #[must_use]
    pub fn new(pairs: &[Pair]) -> Self {
        let by_hosts = pairs.iter().enumerate().map(|(at, pair)| ((pair.from, pair.to), at)).collect();
        Self { flows: vec![Flow::default(); pairs.len()], by_hosts }
    }

    /// A packet of host `from` reached host `to`.
    pub fn on_arrival(&mut self, now_ps: u64, from: u32, to: u32) {
        if let Some(flow) = self.by_hosts.get(&(from, to)).and_then(|&at| self.flows.get_mut(at)) {
            flow.heard_ps.get_or_insert(now_ps);
        }
    }

    /// Whether each flow's allowed rate is near its fair part now.
    pub fn on_sample(&mut self, now_ps: u64, near: impl Iterator<Item = bool>) {
        for (flow, near) in self.flows.iter_mut().zip(near) {
            if flow.is_near() != near {
                flow.turns_ps.push(now_ps);
            }
        }
    }

    /// What the slowest flow took from the arrival of its first packet until its rate stayed near its fair part, up to
    /// `end_ps`; `None` if one never did.
    #[must_use]
    pub fn slowest_ps(&self, end_ps: u64) -> Option<u64> {
        self.flows
            .iter()
            .map(|flow| flow.settled_ps(end_ps))
            .try_fold(0, |most, settled| Some(most.max(settled?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_flow_is_counted_from_its_own_first_packet_and_the_slowest_counts() {
        let mut settling = Settling::new(&[Pair::new(0, 2), Pair::new(1, 2)]);
        settling.on_arrival(5, 0, 2);
        settling.on_arrival(9, 1, 2);
        settling.on_arrival(20, 1, 2);
        for (at_ps, near) in
            [(10, [false, false]), (12, [true, false]), (14, [false, true]), (16, [true, true])]
        {
            settling.on_sample(at_ps, near.into_iter());
        }
        assert_eq!(settling.slowest_ps(99), Some(11), "the first left once more: 16 - 5, and 14 - 9");
        assert_eq!(settling.slowest_ps(15), None, "the first is not near at 15");
        assert_eq!(settling.slowest_ps(13), None, "the second has not come yet");
    }

    #[test]
    fn who_was_never_heard_of_never_settles() {
        let mut settling = Settling::new(&[Pair::new(0, 1)]);
        settling.on_sample(3, std::iter::once(true));
        assert_eq!(settling.slowest_ps(9), None);
        settling.on_arrival(4, 0, 1);
        assert_eq!(settling.slowest_ps(9), Some(0), "the rate was right from the start");
    }
}
