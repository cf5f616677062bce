//! The pool against a map and a stack of free indices.
#![allow(
    clippy::missing_panics_doc,
    clippy::indexing_slicing,
    reason = "a model panics where the container differs from it"
)]

extern crate std;
use std::collections::BTreeMap;
use std::vec;
use std::vec::Vec;

use super::{Idx, Pool, PoolHead, Slot};

/// A pool of so many slots (modulo 20) does what a map with a stack of free indices does.
pub fn pool_does_what_a_map_with_a_stack_does(capacity: u8, operations: &[(u8, u32)]) {
    let capacity = u32::from(capacity % 20);
    let mut slots = vec![Slot::new(0); capacity as usize + 1];
    let mut head = PoolHead::new();
    let mut model: BTreeMap<u32, u32> = BTreeMap::new();
    let mut free: Vec<u32> = (0..capacity).rev().collect();
    for (operation, value) in operations.iter().copied() {
        let pool = Pool::new(&mut slots, &mut head);
        assert!(pool.is_some(), "there is a spill");
        let Some(mut pool) = pool else { return };
        let chosen = model.keys().nth(value as usize % model.len().max(1)).copied();
        match (operation % 5, chosen) {
            (0..=2, _) => {
                let expected = free.pop();
                assert_eq!(pool.allocate(value).map(Idx::raw), expected);
                model.extend(expected.map(|raw| (raw, value)));
            }
            (3, Some(raw)) => {
                pool.free(Idx::new(raw));
                model.remove(&raw);
                free.push(raw);
            }
            (_, Some(raw)) => {
                *pool.at_mut(Idx::new(raw)) = value;
                model.insert(raw, value);
            }
            (_, None) => {}
        }
        pool.invariants();
        assert_eq!((pool.used() as usize, pool.available() as usize), (model.len(), free.len()));
        assert_eq!(pool.capacity(), capacity);
        for raw in 0..capacity + 2 {
            assert_eq!(pool.get(Idx::new(raw)), model.get(&raw));
            assert_eq!(pool.get_mut(Idx::new(raw)).copied(), model.get(&raw).copied());
        }
    }
}
