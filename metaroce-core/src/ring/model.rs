//! The ring against a queue.
#![allow(
    clippy::missing_panics_doc,
    clippy::indexing_slicing,
    reason = "a model panics where the container differs from it"
)]

extern crate std;
use std::collections::VecDeque;
use std::vec;

use super::{Ring, RingHead};

/// A ring of so many slots (modulo 9) does what a bounded queue does.
pub fn ring_does_what_a_bounded_queue_does(capacity: u8, operations: &[(bool, u32)]) {
    let capacity = usize::from(capacity % 9);
    let mut slots = vec![0; capacity];
    let mut head = RingHead::new();
    let mut ring = Ring::new(&mut slots, &mut head);
    let mut model = VecDeque::new();
    for (push, value) in operations.iter().copied() {
        if push && model.len() < capacity {
            assert_eq!(ring.push(value), Ok(()));
            model.push_back(value);
        } else if push {
            assert_eq!(ring.push(value), Err(value));
        } else {
            assert_eq!(ring.pop(), model.pop_front());
        }
        ring.invariants();
        assert_eq!((ring.len() as usize, ring.is_empty()), (model.len(), model.is_empty()));
        assert_eq!((ring.front(), ring.capacity() as usize), (model.front(), capacity));
    }
}
