extern crate std;
use std::format;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::vec::Vec;

use quickcheck::quickcheck;

use super::{Idx, Table, model};

quickcheck! {
    fn table_does_what_a_map_does(entries: u8, operations: Vec<(u8, u32)>) -> bool {
        model::table_does_what_a_map_does(entries, &operations);
        true
    }
}

#[test]
fn none_is_the_default_and_names_no_entry() {
    let none = Idx::<u8>::default();
    assert!(none.is_none() && !none.is_some() && none == Idx::NONE);
    assert_eq!(none.get(), None);
    assert_eq!(Idx::<u8>::new(3).get().map(Idx::raw), Some(3));
    assert_eq!(format!("{:?} {:?}", none, Idx::<u8>::new(3)), "none #3");
}

#[test]
fn table_of_nothing_does_not_exist() {
    assert!(Table::<u8>::new(&mut []).is_none());
}

#[test]
fn last_slot_is_the_spill_and_no_entry() {
    let mut slots = [10, 11, 12];
    let Some(mut table) = Table::new(&mut slots) else { unreachable!() };
    assert_eq!(table.len(), 2);
    *table.at_mut(Idx::new(1)) = 7;
    assert_eq!((*table.at(Idx::new(0)), *table.at(Idx::new(1))), (10, 7));
    assert_eq!(
        (table.get(Idx::new(1)), table.get(Idx::new(2)), table.get(Idx::NONE)),
        (Some(&7), None, None)
    );
    assert_eq!(table.get_mut(Idx::new(2)), None);
    assert_eq!(slots, [10, 7, 12]);
}

#[test]
fn index_out_of_range_panics_in_debug_and_reaches_the_spill_in_release() {
    let mut slots = [10, 11, 12];
    let Some(mut table) = Table::new(&mut slots) else { unreachable!() };
    for raw in [2, 100, u32::MAX] {
        let read = catch_unwind(AssertUnwindSafe(|| *table.at(Idx::new(raw)))).ok();
        let written = catch_unwind(AssertUnwindSafe(|| *table.at_mut(Idx::new(raw)))).ok();
        let expected = if cfg!(debug_assertions) { None } else { Some(12) };
        assert_eq!((read, written), (expected, expected));
    }
}
