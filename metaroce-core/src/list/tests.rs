extern crate std;
use std::format;
use std::vec::Vec;

use quickcheck::{Gen, QuickCheck};

use super::model::{self, Entry, Odd};
use super::{Arena, Idx, List, Table};
use crate::pool::{Pool, PoolHead, Slot};

#[test]
fn lists_of_two_tags_do_what_queues_do() {
    #[expect(clippy::needless_pass_by_value, reason = "quickcheck passes its arguments by value")]
    fn property(operations: Vec<(u8, u32, bool)>) -> bool {
        model::lists_of_two_tags_do_what_queues_do(&operations);
        true
    }
    QuickCheck::new().rng(Gen::new(500)).quickcheck(property as fn(Vec<(u8, u32, bool)>) -> bool);
}

#[test]
fn entries_of_a_pool_can_be_listed() {
    let mut slots = [Slot::new(Entry::default()); 4];
    let mut head = PoolHead::new();
    let Some(mut pool) = Pool::new(&mut slots, &mut head) else { unreachable!() };
    let mut list = List::<Entry, Odd>::EMPTY;
    while let Some(idx) = pool.allocate(Entry::default()) {
        list.push_back(&mut pool, idx);
    }
    assert_eq!(format!("{list:?}"), "#0..#2 (3)");
    assert!(Arena::at(&pool, Idx::new(1)).odd.is_linked());
    while let Some(idx) = list.pop_front(&mut pool) {
        pool.free(idx);
    }
    assert_eq!((list.len(), pool.used()), (0, 0));
}

#[test]
#[cfg_attr(debug_assertions, should_panic(expected = "is in no list"))]
fn removing_what_is_not_linked_is_reported_in_debug_and_ignored_in_release() {
    let mut slots = [Entry::default(); 3];
    let Some(mut table) = Table::new(&mut slots) else { unreachable!() };
    let mut list = List::<Entry, Odd>::EMPTY;
    list.push_back(&mut table, Idx::new(0));
    list.remove(&mut table, Idx::new(1));
    list.invariants(&table);
    assert_eq!(list.len(), 1);
}

#[test]
#[cfg_attr(debug_assertions, should_panic(expected = "is in a list already"))]
fn linking_twice_is_reported_in_debug_and_ignored_in_release() {
    let mut slots = [Entry::default(); 3];
    let Some(mut table) = Table::new(&mut slots) else { unreachable!() };
    let mut list = List::<Entry, Odd>::EMPTY;
    list.push_back(&mut table, Idx::new(0));
    list.push_back(&mut table, Idx::new(0));
    list.invariants(&table);
    assert_eq!(list.len(), 1);
}

/// An entry with a number to sort by.
#[derive(Clone, Copy, Debug, Default)]
struct Numbered {
    number: u8,
    links: super::Links<Self>,
}

impl super::Linked<Odd> for Numbered {
    fn links(&self) -> &super::Links<Self> {
        &self.links
    }
    fn links_mut(&mut self) -> &mut super::Links<Self> {
        &mut self.links
    }
}

#[test]
fn a_list_is_sorted_as_a_vector_is() {
    fn property(numbers: Vec<u8>) -> bool {
        let mut slots: Vec<_> =
            numbers.iter().map(|&number| Numbered { number, ..Numbered::default() }).collect();
        slots.push(Numbered::default());
        let Some(mut table) = Table::new(&mut slots) else { unreachable!() };
        let mut list = List::<Numbered, Odd>::EMPTY;
        let mut sorted: Vec<_> = (0u32..).zip(numbers).collect();
        for (idx, _) in &sorted {
            list.push_back(&mut table, Idx::new(*idx));
        }
        list.sort(&mut table, |one, other| one.number < other.number);
        list.invariants(&table);
        // Stable.
        sorted.sort_by_key(|(_, number)| *number);
        sorted.into_iter().all(|(idx, _)| list.pop_front(&mut table) == Some(Idx::new(idx)))
            && list.is_empty()
    }
    QuickCheck::new().rng(Gen::new(500)).quickcheck(property as fn(Vec<u8>) -> bool);
}
