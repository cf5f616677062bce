//! The events to come, in order of time; those of one time in the order in which they were planned.
//!
//! A binary heap. Packets in a link keep their order, so each link has a lane of its own and only the first packet of a
//! lane is in the heap: it stays as small as the fabric, however many packets are under way.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::packet::PacketId;

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Happening {
    /// The first packet in the lane of this link arrives.
    Lane(u32),
    /// A packet that does not keep the order arrives from this link.
    Loose(u32, PacketId),
    /// The line of this host is free.
    Pull(u32),
    /// A timer of this host is due.
    Timer(u32),
    /// An entry of the schedule is due.
    Scheduled(u32),
    /// Time to look at windows and rates.
    Sample,
}

/// The events to come.
#[derive(Debug, Default)]
pub struct EventQueue {
    heap: BinaryHeap<Reverse<(u64, u64, Happening)>>,
    planned: u64,
}

impl EventQueue {
    /// Plans an event.
    pub fn push(&mut self, at_ps: u64, happening: Happening) {
        self.planned += 1;
        self.heap.push(Reverse((at_ps, self.planned, happening)));
    }

    /// Takes the next event that is not later than `limit_ps`.
    pub fn pop(&mut self, limit_ps: u64) -> Option<(u64, Happening)> {
        let Reverse((at_ps, ..)) = self.heap.peek()?;
        if *at_ps > limit_ps {
            return None;
        }
        self.heap.pop().map(|Reverse((at_ps, _, happening))| (at_ps, happening))
    }

    /// Events planned so far.
    #[must_use]
    pub const fn planned(&self) -> u64 {
        self.planned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_by_the_order_of_planning() {
        let mut queue = EventQueue::default();
        queue.push(5, Happening::Pull(1));
        queue.push(3, Happening::Timer(2));
        queue.push(5, Happening::Pull(0));
        assert_eq!(queue.pop(10), Some((3, Happening::Timer(2))));
        assert_eq!(queue.pop(4), None);
        assert_eq!(queue.pop(10), Some((5, Happening::Pull(1))));
        assert_eq!(queue.pop(10), Some((5, Happening::Pull(0))));
        assert_eq!(queue.pop(10), None);
    }
}
