extern crate std;
use std::collections::VecDeque;
use std::vec;
use std::vec::Vec;

use quickcheck::{Gen, QuickCheck};

use super::{Ring, RingHead};

#[test]
fn ring_does_what_a_bounded_queue_does() {
    fn property(capacity: u8, operations: Vec<(bool, u32)>) -> bool {
        let capacity = usize::from(capacity % 9);
        let mut slots = vec![0; capacity];
        let mut head = RingHead::new();
        let mut ring = Ring::new(&mut slots, &mut head);
        let mut model = VecDeque::new();
        for (push, value) in operations {
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
        true
    }
    QuickCheck::new().rng(Gen::new(500)).quickcheck(property as fn(u8, Vec<(bool, u32)>) -> bool);
}
