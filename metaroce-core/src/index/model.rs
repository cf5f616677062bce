//! The index against a map.
#![allow(
    clippy::missing_panics_doc,
    clippy::indexing_slicing,
    reason = "a model panics where the container differs from it"
)]

extern crate std;
use std::collections::BTreeMap;
use std::vec;

use super::{Index, IndexEntry, IndexHead, Key};

/// An index of so many slots (modulo 70) does what a map does.
pub fn index_does_what_a_map_does(seed: u64, slots: u8, operations: &[(u8, u8, u32)]) {
    let mut slots = vec![IndexEntry::EMPTY; usize::from(slots % 70)];
    let mut head = IndexHead::new(seed);
    let mut index = Index::new(&mut slots, &mut head);
    let mut model: BTreeMap<Key, u32> = BTreeMap::new();
    for (operation, key, value) in operations.iter().copied() {
        let key = Key { kind: key & 1, owner: u32::from(key >> 1 & 7) << 24, number: u32::from(key >> 4) };
        match operation % 3 {
            0 | 1 => {
                let fits = !model.contains_key(&key) && model.len() < index.capacity() as usize;
                assert_eq!(index.insert(key, value), fits);
                if fits {
                    model.insert(key, value);
                }
            }
            _ => assert_eq!(index.remove(key), model.remove(&key)),
        }
        index.invariants();
        assert_eq!(index.find(key), model.get(&key).copied());
        assert_eq!(index.len() as usize, model.len());
    }
    assert!(model.iter().all(|(key, value)| index.find(*key) == Some(*value)));
}
