//! The two directions of a ring. Indices run freely over 32 bits; each side keeps a copy of the other's and looks at the
//! shared one only when the copy says that there is nothing to do.

use std::sync::atomic::Ordering;

use crate::sys::ring::{Entry, RingMemory};

/// A ring into which this side puts: fill and transmit.
#[derive(Debug)]
pub(crate) struct Producer<T> {
    memory: RingMemory<T>,
    /// Where the next entry goes; not yet seen by the kernel.
    next: u32,
    /// What the kernel had consumed when last looked at.
    consumed: u32,
}

impl<T: Entry> Producer<T> {
    pub(crate) fn new(memory: RingMemory<T>) -> Self {
        let next = memory.producer().load(Ordering::Relaxed);
        let consumed = memory.consumer().load(Ordering::Acquire);
        Self { memory, next, consumed }
    }

    /// Entries for which there is room; looks at the shared index only if there are fewer than `wanted`.
    pub(crate) fn room(&mut self, wanted: u32) -> u32 {
        let room = self.memory.size().saturating_sub(self.next.wrapping_sub(self.consumed));
        if room >= wanted {
            return room;
        }
        self.consumed = self.memory.consumer().load(Ordering::Acquire);
        self.memory.size().saturating_sub(self.next.wrapping_sub(self.consumed))
    }

    /// Puts an entry, which the kernel sees after [`publish`](Self::publish); `false` if the ring is full.
    #[must_use]
    pub(crate) fn push(&mut self, entry: T) -> bool {
        if self.room(1) == 0 {
            return false;
        }
        self.memory.write(self.next, entry);
        self.next = self.next.wrapping_add(1);
        true
    }

    /// Shows the kernel what was put.
    pub(crate) fn publish(&mut self) {
        self.memory.producer().store(self.next, Ordering::Release);
    }

    /// Entries that the kernel has not consumed yet, those put but not published included.
    pub(crate) fn pending(&mut self) -> u32 {
        self.consumed = self.memory.consumer().load(Ordering::Acquire);
        self.next.wrapping_sub(self.consumed)
    }

    /// Whether the kernel waits for a call before it looks at the ring (`XDP_RING_NEED_WAKEUP`).
    pub(crate) fn needs_wakeup(&self) -> bool {
        self.memory.flags().load(Ordering::Acquire) & NEED_WAKEUP != 0
    }
}

/// A ring from which this side takes: receive and completion.
#[derive(Debug)]
pub(crate) struct Consumer<T> {
    memory: RingMemory<T>,
    /// The next entry to take; not yet given back to the kernel.
    next: u32,
    /// What the kernel had produced when last looked at.
    produced: u32,
}

impl<T: Entry> Consumer<T> {
    pub(crate) fn new(memory: RingMemory<T>) -> Self {
        let next = memory.consumer().load(Ordering::Relaxed);
        Self { memory, next, produced: next }
    }

    /// Takes the next entry. Its slot is the kernel's again after [`release`](Self::release).
    pub(crate) fn pop(&mut self) -> Option<T> {
        if self.next == self.produced {
            self.produced = self.memory.producer().load(Ordering::Acquire);
            if self.next == self.produced {
                return None;
            }
        }
        let entry = self.memory.read(self.next);
        self.next = self.next.wrapping_add(1);
        Some(entry)
    }

    /// Gives the slots of all entries taken back to the kernel.
    pub(crate) fn release(&mut self) {
        self.memory.consumer().store(self.next, Ordering::Release);
    }

    /// Whether there is nothing to take.
    pub(crate) fn is_empty(&self) -> bool {
        self.next == self.memory.producer().load(Ordering::Acquire)
    }
}

const NEED_WAKEUP: u32 = 1;

#[cfg(test)]
impl<T: Entry> Producer<T> {
    /// The kernel's part: takes what was published.
    pub(crate) fn consume_as_kernel(&mut self) -> Vec<T> {
        let produced = self.memory.producer().load(Ordering::Acquire);
        let mut at = self.memory.consumer().load(Ordering::Relaxed);
        let mut taken = Vec::new();
        while at != produced {
            taken.push(self.memory.read(at));
            at = at.wrapping_add(1);
        }
        self.memory.consumer().store(at, Ordering::Release);
        taken
    }
}

#[cfg(test)]
impl<T: Entry> Consumer<T> {
    /// The kernel's part: puts entries; `false` where the ring has no room for it.
    pub(crate) fn produce_as_kernel(&mut self, entry: T) -> bool {
        let at = self.memory.producer().load(Ordering::Relaxed);
        if at.wrapping_sub(self.memory.consumer().load(Ordering::Acquire)) == self.memory.size() {
            return false;
        }
        self.memory.write(at, entry);
        self.memory.producer().store(at.wrapping_add(1), Ordering::Release);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// A ring whose indices are about to wrap.
    fn memory(size: u32) -> RingMemory<u64> {
        let memory = RingMemory::detached(size);
        for index in [memory.producer(), memory.consumer()] {
            index.store(u32::MAX - 5, Ordering::Relaxed);
        }
        memory
    }

    #[test]
    fn a_producer_follows_a_queue_of_bounded_length() {
        fn property(steps: Vec<u8>) -> bool {
            let mut ring = Producer::new(memory(8));
            let (mut waiting, mut published) = (VecDeque::new(), 0);
            for (value, step) in (0u64..).zip(steps) {
                match step % 4 {
                    0 | 1 => {
                        let taken = ring.push(value);
                        assert_eq!(taken, waiting.len() < 8);
                        if taken {
                            waiting.push_back(value);
                        }
                    }
                    2 => {
                        ring.publish();
                        published = waiting.len();
                    }
                    _ => {
                        let expected: Vec<u64> = waiting.drain(..published).collect();
                        assert_eq!(ring.consume_as_kernel(), expected);
                        published = 0;
                    }
                }
                assert_eq!(ring.pending() as usize, waiting.len());
                assert_eq!(ring.room(8) as usize, 8 - waiting.len());
            }
            true
        }
        quickcheck::quickcheck(property as fn(Vec<u8>) -> bool);
    }

    #[test]
    fn a_consumer_gets_everything_once_and_in_order() {
        fn property(steps: Vec<u8>) -> bool {
            let mut ring = Consumer::new(memory(8));
            let (mut waiting, mut held) = (VecDeque::new(), 0);
            for (value, step) in (0u64..).zip(steps) {
                match step % 4 {
                    0 | 1 => {
                        let put = ring.produce_as_kernel(value);
                        assert_eq!(put, waiting.len() + held < 8);
                        if put {
                            waiting.push_back(value);
                        }
                    }
                    2 => {
                        let taken = ring.pop();
                        assert_eq!(taken, waiting.pop_front());
                        held += usize::from(taken.is_some());
                    }
                    _ => {
                        ring.release();
                        held = 0;
                    }
                }
                assert_eq!(ring.is_empty(), waiting.is_empty());
            }
            true
        }
        quickcheck::quickcheck(property as fn(Vec<u8>) -> bool);
    }

    #[test]
    fn the_wakeup_flag_is_read() {
        let ring = Producer::new(memory(8));
        assert!(!ring.needs_wakeup());
        ring.memory.flags().store(NEED_WAKEUP, Ordering::Relaxed);
        assert!(ring.needs_wakeup());
    }
}
