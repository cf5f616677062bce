extern crate std;
use std::collections::VecDeque;
use std::vec::Vec;
use std::{array, format};

use quickcheck::{Gen, QuickCheck};

use super::{Arena, Idx, Linked, Links, List, Table};
use crate::pool::{Pool, PoolHead, Slot};

struct Odd;
struct Even;

#[derive(Clone, Copy, Default)]
struct Entry {
    odd: Links<Entry>,
    even: Links<Entry>,
}

impl Linked<Odd> for Entry {
    fn links(&self) -> &Links<Self> {
        &self.odd
    }
    fn links_mut(&mut self) -> &mut Links<Self> {
        &mut self.odd
    }
}

impl Linked<Even> for Entry {
    fn links(&self) -> &Links<Self> {
        &self.even
    }
    fn links_mut(&mut self) -> &mut Links<Self> {
        &mut self.even
    }
}

const ENTRIES: u32 = 12;

/// Two lists of one tag and their models.
struct Pair<Tag> {
    lists: [List<Entry, Tag>; 2],
    models: [VecDeque<u32>; 2],
}

impl<Tag> Pair<Tag>
where
    Entry: Linked<Tag>,
{
    fn new() -> Self {
        Self { lists: array::from_fn(|_| List::default()), models: array::from_fn(|_| VecDeque::new()) }
    }

    fn step(&mut self, table: &mut Table<'_, Entry>, operation: u8, number: u32) {
        let which = usize::from(operation & 1);
        let [first, second] = &mut self.lists;
        let [model, other_model] = &mut self.models;
        let (list, other) = if which == 0 { (first, second) } else { (second, first) };
        let (model, other_model) = if which == 0 { (model, other_model) } else { (other_model, model) };
        let raw = number % ENTRIES;
        let idx = Idx::new(raw);
        let unlinked = !model.contains(&raw) && !other_model.contains(&raw);
        let place = (number / ENTRIES) as usize % model.len().max(1);
        match operation >> 1 & 7 {
            0 | 1 if unlinked => {
                list.push_back(table, idx);
                model.push_back(raw);
            }
            3 if unlinked && !model.is_empty() => {
                list.insert_before(table, Idx::new(model[place]), idx);
                model.insert(place, raw);
            }
            4 => assert_eq!(list.pop_front(table).map(Idx::raw), model.pop_front()),
            5 if !model.is_empty() => {
                list.remove(table, Idx::new(model[place]));
                model.remove(place);
            }
            6 if number.is_multiple_of(4) => {
                list.append(table, other);
                model.append(other_model);
            }
            _ => assert_eq!(unlinked, !list.is_linked(table, idx) && !other.is_linked(table, idx)),
        }
    }

    fn check(&self, table: &Table<'_, Entry>) {
        for (list, model) in self.lists.iter().zip(&self.models) {
            list.invariants(table);
            let mut found = Vec::new();
            let mut next = list.front();
            while let Some(idx) = next {
                found.push(idx.raw());
                next = list.next(table, idx);
            }
            assert_eq!(found, model.iter().copied().collect::<Vec<u32>>());
            assert_eq!((list.len() as usize, list.is_empty()), (model.len(), model.is_empty()));
            assert_eq!(list.back().map(Idx::raw), model.back().copied());
        }
    }
}

#[test]
fn lists_of_two_tags_do_what_queues_do() {
    fn property(operations: Vec<(u8, u32, bool)>) -> bool {
        let mut slots = [Entry::default(); ENTRIES as usize + 1];
        let Some(mut table) = Table::new(&mut slots) else { return false };
        let (mut odd, mut even) = (Pair::<Odd>::new(), Pair::<Even>::new());
        for (operation, number, tag) in operations {
            if tag {
                odd.step(&mut table, operation, number);
            } else {
                even.step(&mut table, operation, number);
            }
            odd.check(&table);
            even.check(&table);
        }
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
