//! When the senders of a host next have something to do by the clock, in order: a host is asked after each packet, and may
//! have thousands of senders.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::super::memory::Peer;

/// One deadline at most for each sender.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    in_order: BTreeSet<(u64, Peer)>,
    of: BTreeMap<Peer, u64>,
}

impl Deadlines {
    /// The sender to `peer` has this deadline from now on, ps, or none.
    pub(super) fn set(&mut self, peer: Peer, at_ps: Option<u64>) {
        let before = match at_ps {
            Some(at_ps) => self.of.insert(peer, at_ps),
            None => self.of.remove(&peer),
        };
        if before == at_ps {
            return;
        }
        if let Some(before) = before {
            self.in_order.remove(&(before, peer));
        }
        if let Some(at_ps) = at_ps {
            self.in_order.insert((at_ps, peer));
        }
    }

    /// The first one, ps.
    pub(super) fn first(&self) -> Option<u64> {
        self.in_order.first().map(|&(at_ps, _)| at_ps)
    }

    /// The first one later than `now_ps`.
    pub(super) fn first_after(&self, now_ps: u64) -> Option<u64> {
        let later = (Bound::Included((now_ps.saturating_add(1), Peer::default())), Bound::Unbounded);
        self.in_order.range(later).next().map(|&(at_ps, _)| at_ps)
    }

    /// Whose deadline has come, by peer.
    pub(super) fn due(&self, now_ps: u64) -> Vec<Peer> {
        let mut due: Vec<Peer> =
            self.in_order.iter().take_while(|(at_ps, _)| *at_ps <= now_ps).map(|&(_, peer)| peer).collect();
        due.sort_unstable();
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sender_has_its_latest_deadline_only() {
        let (one, two) = (Peer::of(1), Peer::of(2));
        let mut deadlines = Deadlines::default();
        deadlines.set(one, Some(20));
        deadlines.set(two, Some(10));
        assert_eq!((deadlines.first(), deadlines.first_after(10)), (Some(10), Some(20)));
        assert_eq!(deadlines.due(20), [one, two]);
        deadlines.set(two, Some(30));
        assert_eq!((deadlines.first(), deadlines.due(29)), (Some(20), vec![one]));
        deadlines.set(one, None);
        assert_eq!((deadlines.first(), deadlines.first_after(30)), (Some(30), None));
    }
}
