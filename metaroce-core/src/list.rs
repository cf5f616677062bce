//! Doubly linked lists whose links lie in the entries of a pool or table.

use core::fmt;
use core::marker::PhantomData;

use crate::pool::Pool;
use crate::table::{Idx, Table};

/// Where the entries of a list live.
pub(crate) trait Arena<T> {
    /// The entry of `idx`.
    fn at(&self, idx: Idx<T>) -> &T;
    /// The entry of `idx`, to change.
    fn at_mut(&mut self, idx: Idx<T>) -> &mut T;
}

impl<T> Arena<T> for Table<'_, T> {
    fn at(&self, idx: Idx<T>) -> &T {
        Table::at(self, idx)
    }
    fn at_mut(&mut self, idx: Idx<T>) -> &mut T {
        Table::at_mut(self, idx)
    }
}

impl<T> Arena<T> for Pool<'_, T> {
    fn at(&self, idx: Idx<T>) -> &T {
        Pool::at(self, idx)
    }
    fn at_mut(&mut self, idx: Idx<T>) -> &mut T {
        Pool::at_mut(self, idx)
    }
}

/// An entry's links in the lists of one `Tag`; one tag for each list that it may be in at the same time.
pub(crate) trait Linked<Tag>: Sized {
    /// The links.
    fn links(&self) -> &Links<Self>;
    /// The links, to change.
    fn links_mut(&mut self) -> &mut Links<Self>;
}

/// An entry's place in one list.
pub struct Links<T> {
    prev: Idx<T>,
    next: Idx<T>,
    linked: bool,
}

impl<T> Links<T> {
    /// Of an entry in no list.
    pub(crate) const UNLINKED: Self = Self { prev: Idx::NONE, next: Idx::NONE, linked: false };

    /// Whether the entry is in a list.
    pub(crate) const fn is_linked(&self) -> bool {
        self.linked
    }
}

impl<T> Clone for Links<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Links<T> {}

impl<T> Default for Links<T> {
    fn default() -> Self {
        Self::UNLINKED
    }
}

impl<T> fmt::Debug for Links<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.linked { write!(f, "{:?}..{:?}", self.prev, self.next) } else { f.write_str("unlinked") }
    }
}

/// The ends of a list of entries linked under `Tag`. Every operation but [`sort`](List::sort) is O(1), and all want the
/// arena of the entries.
pub struct List<T, Tag> {
    head: Idx<T>,
    tail: Idx<T>,
    length: u32,
    tag: PhantomData<fn() -> Tag>,
}

impl<T, Tag> List<T, Tag> {
    /// The list without entries.
    pub(crate) const EMPTY: Self = Self { head: Idx::NONE, tail: Idx::NONE, length: 0, tag: PhantomData };

    /// Whether it has no entry.
    pub(crate) const fn is_empty(&self) -> bool {
        self.head.is_none()
    }

    /// How many entries it has.
    pub(crate) const fn len(&self) -> u32 {
        self.length
    }

    /// The first entry.
    pub(crate) const fn front(&self) -> Option<Idx<T>> {
        self.head.get()
    }

    /// The last entry.
    pub(crate) const fn back(&self) -> Option<Idx<T>> {
        self.tail.get()
    }
}

impl<T: Linked<Tag>, Tag> List<T, Tag> {
    /// Puts an entry behind the last one. It must be in no list of this tag (a release build then does nothing).
    pub(crate) fn push_back(&mut self, arena: &mut impl Arena<T>, idx: Idx<T>) {
        self.link(arena, self.tail, idx, Idx::NONE);
    }

    /// Puts an entry before the entry `at` of this list; if `at` is in no list (a bug), behind the last one.
    pub(crate) fn insert_before(&mut self, arena: &mut impl Arena<T>, at: Idx<T>, idx: Idx<T>) {
        let links = *arena.at(at).links();
        debug_assert!(links.linked, "{at:?} is in no list");
        if links.linked { self.link(arena, links.prev, idx, at) } else { self.push_back(arena, idx) }
    }

    /// Takes the first entry out.
    pub(crate) fn pop_front(&mut self, arena: &mut impl Arena<T>) -> Option<Idx<T>> {
        let idx = self.head.get()?;
        self.unlink(arena, idx);
        Some(idx)
    }

    /// Takes an entry of this list out; if it is in no list (a bug) nothing happens.
    pub(crate) fn remove(&mut self, arena: &mut impl Arena<T>, idx: Idx<T>) {
        let linked = arena.at(idx).links().linked;
        debug_assert!(linked, "{idx:?} is in no list");
        if linked {
            self.unlink(arena, idx);
        }
    }

    /// The entry before `idx`.
    pub(crate) fn prev(&self, arena: &impl Arena<T>, idx: Idx<T>) -> Option<Idx<T>> {
        debug_assert!(self.is_linked(arena, idx), "{idx:?} is in no list");
        arena.at(idx).links().prev.get()
    }

    /// The entry behind `idx`.
    pub(crate) fn next(&self, arena: &impl Arena<T>, idx: Idx<T>) -> Option<Idx<T>> {
        debug_assert!(self.is_linked(arena, idx), "{idx:?} is in no list");
        arena.at(idx).links().next.get()
    }

    /// Whether the entry is in this list, given that it can be in no other of this tag.
    pub(crate) fn is_linked(&self, arena: &impl Arena<T>, idx: Idx<T>) -> bool {
        !self.is_empty() && arena.at(idx).links().linked
    }

    /// Moves all entries of `other` behind the last one, in their order.
    pub(crate) fn append(&mut self, arena: &mut impl Arena<T>, other: &mut Self) {
        let Some(first) = other.head.get() else { return };
        match self.tail.get() {
            Some(last) => {
                arena.at_mut(last).links_mut().next = first;
                arena.at_mut(first).links_mut().prev = last;
            }
            None => self.head = first,
        }
        self.tail = other.tail;
        self.length = self.length.wrapping_add(other.length);
        *other = Self::EMPTY;
    }

    /// Puts the entries in the order that `before` tells of two; equal ones keep theirs. O(entries × log entries).
    pub(crate) fn sort(&mut self, arena: &mut impl Arena<T>, before: impl Fn(&T, &T) -> bool) {
        // Each holds as many sorted entries as its place in a binary number says, or none; those of higher places are
        // earlier ones.
        let mut sorted = [const { Self::EMPTY }; u32::BITS as usize];
        while let Some(idx) = self.pop_front(arena) {
            let mut carry = Self::EMPTY;
            carry.push_back(arena, idx);
            for place in &mut sorted {
                if place.is_empty() {
                    *place = carry;
                    break;
                }
                carry = Self::merge(arena, core::mem::take(place), carry, &before);
            }
        }
        for place in sorted {
            *self = Self::merge(arena, place, core::mem::take(self), &before);
        }
    }

    /// One list of two that are sorted; of equal entries those of the first come first.
    fn merge(
        arena: &mut impl Arena<T>,
        mut first: Self,
        mut second: Self,
        before: &impl Fn(&T, &T) -> bool,
    ) -> Self {
        let mut merged = Self::EMPTY;
        while let (Some(one), Some(other)) = (first.front(), second.front()) {
            let from = if before(arena.at(other), arena.at(one)) { &mut second } else { &mut first };
            if let Some(idx) = from.pop_front(arena) {
                merged.push_back(arena, idx);
            }
        }
        merged.append(arena, &mut first);
        merged.append(arena, &mut second);
        merged
    }

    fn link(&mut self, arena: &mut impl Arena<T>, prev: Idx<T>, idx: Idx<T>, next: Idx<T>) {
        let links = arena.at_mut(idx).links_mut();
        debug_assert!(!links.linked, "{idx:?} is in a list already");
        if links.linked {
            return;
        }
        *links = Links { prev, next, linked: true };
        self.join(arena, prev, idx);
        self.join(arena, idx, next);
        self.length = self.length.wrapping_add(1);
    }

    fn unlink(&mut self, arena: &mut impl Arena<T>, idx: Idx<T>) {
        let links = arena.at_mut(idx).links_mut();
        let Links { prev, next, .. } = *links;
        *links = Links::UNLINKED;
        self.join(arena, prev, next);
        self.length = self.length.wrapping_sub(1);
    }

    /// Makes `next` the one behind `prev`; none stands for the list's own ends.
    fn join(&mut self, arena: &mut impl Arena<T>, prev: Idx<T>, next: Idx<T>) {
        match prev.get() {
            Some(prev) => arena.at_mut(prev).links_mut().next = next,
            None => self.head = next,
        }
        match next.get() {
            Some(next) => arena.at_mut(next).links_mut().prev = prev,
            None => self.tail = prev,
        }
    }

    /// Panics unless the links of all entries agree with each other and with the length; O(entries).
    #[cfg(any(test, feature = "models"))]
    pub(crate) fn invariants(&self, arena: &impl Arena<T>) {
        let (mut prev, mut idx, mut length) = (Idx::NONE, self.head, 0);
        while let Some(entry) = idx.get() {
            let links = arena.at(entry).links();
            assert!(links.linked && links.prev == prev);
            (prev, idx, length) = (entry, links.next, length + 1);
            assert!(length <= self.length, "the list is longer than it says");
        }
        assert_eq!((prev, length), (self.tail, self.length));
    }
}

impl<T, Tag> Default for List<T, Tag> {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl<T, Tag> fmt::Debug for List<T, Tag> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}..{:?} ({})", self.head, self.tail, self.length)
    }
}

#[cfg(any(test, feature = "models"))]
pub(crate) mod model;
#[cfg(test)]
mod tests;
