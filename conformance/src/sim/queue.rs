//! The events to come, in order of time; those of one time in the order in which they were planned.
//!
//! A heap. Packets in a link keep their order, so each link has a lane of its own and only the first packet of a lane is
//! in the heap: it stays as small as the fabric, however many packets are under way.

use std::cmp::{Ordering, Reverse};

use dary_heap::QuaternaryHeap;

use super::packet::PacketId;

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// An event to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Planned {
    at_ps: u64,
    /// How many were planned before it.
    number: u64,
    happening: Happening,
}

impl Planned {
    const fn key(&self) -> u128 {
        (self.at_ps as u128) << 64 | self.number as u128
    }
}

impl Ord for Planned {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for Planned {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The events to come.
#[derive(Debug, Default)]
pub struct EventQueue {
    heap: QuaternaryHeap<Reverse<Planned>>,
    /// The first event has been taken out, and the next one planned takes its place: most events bring about another.
    first_is_taken: bool,
    planned: u64,
}

impl EventQueue {
    /// Plans an event.
    pub fn push(&mut self, at_ps: u64, happening: Happening) {
        self.planned += 1;
        let planned = Reverse(Planned { at_ps, number: self.planned, happening });
        if std::mem::take(&mut self.first_is_taken)
            && let Some(mut first) = self.heap.peek_mut()
        {
            *first = planned;
            return;
        }
        self.heap.push(planned);
    }

    /// Takes the next event that is not later than `limit_ps`.
    pub fn pop(&mut self, limit_ps: u64) -> Option<(u64, Happening)> {
        if std::mem::take(&mut self.first_is_taken) {
            self.heap.pop();
        }
        let Reverse(first) = self.heap.peek()?;
        if first.at_ps > limit_ps {
            return None;
        }
        self.first_is_taken = true;
        Some((first.at_ps, first.happening))
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
        queue.push(5, Happening::Lane(7));
        queue.push(9, Happening::Lane(8));
        queue.push(7, Happening::Lane(9));
        assert_eq!(queue.pop(10), Some((5, Happening::Pull(0))));
        assert_eq!(queue.pop(10), Some((5, Happening::Lane(7))));
        assert_eq!(queue.pop(10), Some((7, Happening::Lane(9))));
        queue.push(8, Happening::Lane(7));
        assert_eq!(queue.pop(10), Some((8, Happening::Lane(7))));
        assert_eq!(queue.pop(10), Some((9, Happening::Lane(8))));
        assert_eq!(queue.pop(10), None);
    }
}
