//! The table against a map.
#![allow(
    clippy::missing_panics_doc,
    clippy::indexing_slicing,
    reason = "a model panics where the container differs from it"
)]

extern crate std;
use std::collections::BTreeMap;
use std::vec;

use super::{Idx, Table};

/// A table of so many entries (modulo 20) does what a map does, and never shows its spill.
pub fn table_does_what_a_map_does(entries: u8, operations: &[(u8, u32)]) {
    let entries = u32::from(entries % 20);
    let mut slots = vec![0; entries as usize + 1];
    let table = Table::new(&mut slots);
    assert!(table.is_some(), "there is a spill");
    let Some(mut table) = table else { return };
    let mut model: BTreeMap<u32, u32> = (0..entries).map(|raw| (raw, 0)).collect();
    assert_eq!(table.len(), entries);
    for (raw, value) in operations.iter().copied() {
        let raw = if raw == u8::MAX { u32::MAX } else { u32::from(raw % 22) };
        let idx = Idx::new(raw);
        let known = model.get(&raw).copied();
        assert_eq!(table.get(idx).copied(), known);
        assert_eq!(table.get_mut(idx).copied(), known);
        if let Some(old) = known {
            assert_eq!(*table.at(idx), old);
            *table.at_mut(idx) = value;
            model.insert(raw, value);
        }
    }
    for (raw, value) in &model {
        assert_eq!(table.at(Idx::new(*raw)), value);
    }
}
