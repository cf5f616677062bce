//! One direction of one cable, with the queue in front of it.
//!
//! A queue is kept as the time at which the last byte in it will have left: with one rate and first-in first-out order
//! that says everything, exactly, and costs one event per packet and hop.

use std::collections::VecDeque;

use super::loss::{LinkFaults, LossState};
use super::packet::Traveller;
use super::topology::Node;
use super::units::{Probability, Rate, ratio};
use crate::Random;

/// When a queue marks ECN-capable packets with congestion experienced, by its length as a packet arrives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Marking {
    /// Never.
    Off,
    /// Every packet that finds at least so many bytes.
    Step(u64),
    /// None below `from`, all from `to` on, in between ever more, up to `most` (as RED does).
    Ramp {
        /// Bytes from which packets may be marked.
        from: u64,
        /// Bytes from which all are marked.
        to: u64,
        /// Probability just below `to`.
        most: f64,
    },
}

/// What a link is like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkConfig {
    /// Line rate.
    pub rate: Rate,
    /// Propagation, ps.
    pub delay_ps: u64,
    /// Extra delay of up to this, ps, that keeps the order.
    pub jitter_ps: u64,
    /// Bytes that the queue holds; a packet that does not fit is dropped.
    pub buffer_bytes: u64,
    /// Marking.
    pub marking: Marking,
    /// Largest wire size carried, framing included, bytes.
    pub mtu_bytes: u64,
}

/// What a link carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Packets that went out.
    pub packets: u64,
    /// Wire bytes that went out.
    pub bytes: u64,
    /// Packets that found the queue full.
    pub overflowed: u64,
    /// Packets lost on the way: by chance, by a cut, by a black hole.
    pub lost: u64,
    /// Packets larger than the link carries.
    pub too_large: u64,
    /// Packets marked.
    pub marked: u64,
    /// Longest queue that a packet has met, itself included, bytes.
    pub queue_peak_bytes: u64,
}

/// What became of a packet that was offered to a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is gone.
    Gone,
    /// It arrives.
    Carried {
        /// When, ps.
        at_ps: u64,
        /// With a congestion mark.
        marked: bool,
        /// Out of order.
        held: bool,
        /// Twice.
        twice: bool,
        /// With one byte changed.
        corrupt: bool,
    },
}

/// One direction of one cable.
#[derive(Debug)]
pub struct Link {
    /// Where it comes from.
    pub from: Node,
    /// Where it leads to.
    pub to: Node,
    /// What it is like.
    pub config: LinkConfig,
    /// What it does wrong.
    pub faults: LinkFaults,
    /// Whether it is connected: switches do not choose it otherwise.
    pub up: bool,
    /// Everything that enters is lost, and nobody knows.
    pub blackhole: bool,
    /// When it was last cut: what was in it then is lost.
    pub cut_ps: u64,
    /// What it carried.
    pub counters: LinkCounters,
    /// Packets on their way, in the order of their arrival.
    pub(super) lane: VecDeque<(u64, Traveller)>,
    free_ps: u64,
    arrival_ps: u64,
    state: LossState,
    random: Random,
}

impl Link {
    /// A link with no fault.
    #[must_use]
    pub fn new(from: Node, to: Node, config: LinkConfig, seed: u64) -> Self {
        Self {
            from,
            to,
            config,
            faults: LinkFaults::default(),
            up: true,
            blackhole: false,
            cut_ps: 0,
            counters: LinkCounters::default(),
            lane: VecDeque::new(),
            free_ps: 0,
            arrival_ps: 0,
            state: LossState::default(),
            random: Random::new(seed),
        }
    }

    /// When everything now in the queue will have left, ps.
    #[must_use]
    pub const fn free_ps(&self) -> u64 {
        self.free_ps
    }

    /// Bytes that have not left yet.
    #[must_use]
    pub const fn backlog_bytes(&self, now_ps: u64) -> u64 {
        self.config.rate.bytes_in(self.free_ps.saturating_sub(now_ps))
    }

    /// Takes a packet of `wire_bytes`, or drops it.
    pub fn offer(&mut self, now_ps: u64, wire_bytes: u64, ecn_capable: bool, source_port: u16) -> Fate {
        if wire_bytes > self.config.mtu_bytes {
            self.counters.too_large += 1;
            return Fate::Gone;
        }
        let backlog = self.backlog_bytes(now_ps);
        let queued = backlog.saturating_add(wire_bytes);
        if queued > self.config.buffer_bytes {
            self.counters.overflowed += 1;
            return Fate::Gone;
        }
        self.counters.queue_peak_bytes = self.counters.queue_peak_bytes.max(queued);
        let marked = ecn_capable && self.marks(backlog);
        self.counters.marked += u64::from(marked);
        self.free_ps = self.free_ps.max(now_ps) + self.config.rate.time_ps(wire_bytes);
        self.counters.packets += 1;
        self.counters.bytes += wire_bytes;
        let faulty = self.faults.meet(source_port);
        let lost = faulty && self.state.next(&self.faults.loss, &mut self.random);
        if lost || self.blackhole || !self.up {
            self.counters.lost += 1;
            return Fate::Gone;
        }
        let jitter_ps = if self.config.jitter_ps == 0 { 0 } else { self.random.below(self.config.jitter_ps) };
        let due_ps = self.free_ps + self.config.delay_ps + jitter_ps;
        let held = faulty && self.faults.reordering.draw(&mut self.random);
        let twice = faulty && self.faults.duplication.draw(&mut self.random);
        let corrupt = faulty && self.faults.corruption.draw(&mut self.random);
        let at_ps = if held {
            due_ps + self.random.below(self.faults.reorder_ps.max(1))
        } else {
            self.arrival_ps = self.arrival_ps.max(due_ps);
            self.arrival_ps
        };
        Fate::Carried { at_ps, marked, held, twice, corrupt }
    }

    /// Sets another rate from `now_ps` on; what is in the queue leaves at the new one.
    pub fn set_rate(&mut self, now_ps: u64, rate: Rate) {
        let backlog = self.backlog_bytes(now_ps);
        self.config.rate = rate;
        if backlog > 0 {
            self.free_ps = now_ps + rate.time_ps(backlog);
        }
    }

    /// Cuts the link: it is down, and what is in it is lost.
    pub const fn cut(&mut self, now_ps: u64) {
        self.up = false;
        self.cut_ps = now_ps;
        self.free_ps = now_ps;
    }

    /// Connects it again.
    pub const fn restore(&mut self) {
        self.up = true;
    }

    fn marks(&mut self, backlog: u64) -> bool {
        match self.config.marking {
            Marking::Off => false,
            Marking::Step(from) => backlog >= from,
            Marking::Ramp { from, to, most } => {
                backlog >= to
                    || (backlog >= from
                        && Probability::new(most * ratio(backlog - from, to.saturating_sub(from).max(1)))
                            .draw(&mut self.random))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::units::US;
    use super::*;

    fn link(marking: Marking) -> Link {
        let config = LinkConfig {
            rate: Rate::gbps(8.0),
            delay_ps: US,
            jitter_ps: 0,
            buffer_bytes: 10_000,
            marking,
            mtu_bytes: 1_600,
        };
        Link::new(Node::Host(0), Node::Host(1), config, 1)
    }

    fn arrival(fate: Fate) -> u64 {
        match fate {
            Fate::Carried { at_ps, .. } => at_ps,
            Fate::Gone => 0,
        }
    }

    #[test]
    fn packets_leave_one_after_the_other() {
        let mut link = link(Marking::Off);
        // 8 Gb/s: one byte takes 1 ns.
        assert_eq!(arrival(link.offer(0, 1_000, true, 1)), 2 * US);
        assert_eq!(arrival(link.offer(0, 1_000, true, 1)), 3 * US);
        assert_eq!(link.backlog_bytes(US / 2), 1_500);
        assert_eq!(arrival(link.offer(10 * US, 500, true, 1)), 11 * US + US / 2);
    }

    #[test]
    fn a_full_queue_drops_the_newest_packet_only() {
        let mut link = link(Marking::Off);
        for _ in 0..10 {
            assert_ne!(link.offer(0, 1_000, true, 1), Fate::Gone);
        }
        assert_eq!(link.offer(0, 1_000, true, 1), Fate::Gone);
        assert_ne!(link.offer(US, 1_000, true, 1), Fate::Gone, "one has left by now");
        assert_eq!(link.counters.overflowed, 1);
        assert_eq!(link.counters.queue_peak_bytes, 10_000);
    }

    #[test]
    fn what_is_larger_than_the_link_carries_is_dropped() {
        let mut link = link(Marking::Off);
        assert_eq!(link.offer(0, 1_601, true, 1), Fate::Gone);
        assert_eq!(link.counters.too_large, 1);
    }

    #[test]
    fn a_step_marks_all_that_find_so_much_and_only_capable_ones() {
        let mut link = link(Marking::Step(2_000));
        let marked: Vec<bool> = [true, true, true, false, true]
            .into_iter()
            .map(|capable| matches!(link.offer(0, 1_000, capable, 1), Fate::Carried { marked: true, .. }))
            .collect();
        assert_eq!(marked, [false, false, true, false, true]);
    }

    #[test]
    fn a_ramp_marks_in_proportion() {
        let mut link = link(Marking::Ramp { from: 2_000, to: 6_000, most: 1.0 });
        let mut marked = 0;
        for round in 0..4_000 {
            let now_ps = round * 100 * US;
            for _ in 0..4 {
                link.offer(now_ps, 1_000, false, 1);
            }
            marked +=
                u32::from(matches!(link.offer(now_ps, 1_000, true, 1), Fate::Carried { marked: true, .. }));
        }
        assert!((1_850..2_150).contains(&marked), "4,000 bytes are half way up: {marked}");
    }

    #[test]
    fn jitter_keeps_the_order_and_reordering_does_not() {
        let mut link = link(Marking::Off);
        link.config.jitter_ps = 50 * US;
        let times: Vec<u64> = (0..50).map(|n| arrival(link.offer(n * 2 * US, 1_000, true, 1))).collect();
        assert!(times.is_sorted());
        link.faults.reordering = Probability::new(0.5);
        link.faults.reorder_ps = 50 * US;
        let times: Vec<u64> = (50..100).map(|n| arrival(link.offer(n * 2 * US, 1_000, true, 1))).collect();
        assert!(!times.is_sorted());
    }

    #[test]
    fn a_slower_rate_applies_to_what_waits() {
        let mut link = link(Marking::Off);
        link.offer(0, 1_000, true, 1);
        link.set_rate(0, Rate::gbps(4.0));
        assert_eq!(link.free_ps(), 2 * US);
    }
}
