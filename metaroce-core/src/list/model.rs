//! The lists against queues.
#![allow(
    clippy::missing_panics_doc,
    clippy::indexing_slicing,
    reason = "a model panics where the container differs from it"
)]

extern crate std;
use std::array;
use std::collections::VecDeque;
use std::vec::Vec;

use super::{Idx, Linked, Links, List, Table};

/// A tag.
pub(super) struct Odd;
/// Another.
pub(super) struct Even;

/// May be in a list of each tag.
#[derive(Clone, Copy, Default)]
pub(super) struct Entry {
    pub(super) odd: Links<Entry>,
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

/// Two lists of each of two tags over the same entries do what queues do.
pub fn lists_of_two_tags_do_what_queues_do(operations: &[(u8, u32, bool)]) {
    let mut slots = [Entry::default(); ENTRIES as usize + 1];
    let table = Table::new(&mut slots);
    assert!(table.is_some(), "there is a spill");
    let Some(mut table) = table else { return };
    let (mut odd, mut even) = (Pair::<Odd>::new(), Pair::<Even>::new());
    for (operation, number, tag) in operations.iter().copied() {
        if tag {
            odd.step(&mut table, operation, number);
        } else {
            even.step(&mut table, operation, number);
        }
        odd.check(&table);
        even.check(&table);
    }
}
