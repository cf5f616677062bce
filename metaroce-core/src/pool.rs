//! A pool of equal slots over borrowed memory.

use crate::table::{Idx, Table};

/// One slot of a pool: a value, and whether it is in use.
#[derive(Clone, Copy, Debug)]
pub struct Slot<T> {
    value: T,
    /// [`USED`], or the next free slot.
    link: u32,
}

impl<T> Slot<T> {
    /// A free slot; `value` is a placeholder until its first use.
    pub const fn new(value: T) -> Self {
        Self { value, link: END }
    }

    /// What the slot holds, free or not.
    pub(crate) const fn value(&self) -> &T {
        &self.value
    }
}

/// What a pool knows besides its slots.
#[derive(Clone, Debug)]
pub struct PoolHead {
    /// The slot freed last; each free slot names the next.
    free: u32,
    used: u32,
    /// The lowest index that was never in use: what lies above needs no initialisation.
    fresh: u32,
}

impl PoolHead {
    /// The head of a pool with no slot in use.
    #[must_use]
    pub const fn new() -> Self {
        Self { free: END, used: 0, fresh: 0 }
    }
}

impl Default for PoolHead {
    fn default() -> Self {
        Self::new()
    }
}

/// Slots that are taken and given back in O(1), the one freed last first.
pub(crate) struct Pool<'a, T> {
    table: Table<'a, Slot<T>>,
    head: &'a mut PoolHead,
}

impl<'a, T> Pool<'a, T> {
    /// The pool of all `slots` but the last, which is the spill (see [`Table`]); `None` when there is none at all.
    pub(crate) fn new(slots: &'a mut [Slot<T>], head: &'a mut PoolHead) -> Option<Self> {
        Some(Self { table: Table::new(slots)?, head })
    }

    /// Takes a slot and puts `value` into it; `None` when all are in use.
    pub(crate) fn allocate(&mut self, value: T) -> Option<Idx<T>> {
        let raw = if self.head.free == END {
            if self.head.fresh >= self.capacity() {
                return None;
            }
            let raw = self.head.fresh;
            self.head.fresh = raw.wrapping_add(1);
            raw
        } else {
            let raw = self.head.free;
            self.head.free = self.table.at(Idx::new(raw)).link;
            raw
        };
        *self.table.at_mut(Idx::new(raw)) = Slot { value, link: USED };
        self.head.used = self.head.used.wrapping_add(1);
        Some(Idx::new(raw))
    }

    /// Gives a slot back; its value stays until the slot is taken again. To free a free slot is a bug: a release
    /// build does nothing.
    pub(crate) fn free(&mut self, idx: Idx<T>) {
        if !self.is_used(idx) {
            debug_assert!(false, "{idx:?} was freed while free");
            return;
        }
        self.table.at_mut(slot_of(idx)).link = self.head.free;
        self.head.free = idx.raw();
        self.head.used = self.head.used.wrapping_sub(1);
    }

    /// The value of a slot in use; the spill's when `idx` is out of range (a bug).
    pub(crate) fn at(&self, idx: Idx<T>) -> &T {
        debug_assert!(self.is_used(idx), "{idx:?} is free");
        &self.table.at(slot_of(idx)).value
    }

    /// The value of a slot in use, to change; the spill's when `idx` is out of range (a bug).
    pub(crate) fn at_mut(&mut self, idx: Idx<T>) -> &mut T {
        debug_assert!(self.is_used(idx), "{idx:?} is free");
        &mut self.table.at_mut(slot_of(idx)).value
    }

    /// The value of a slot, if it is in use.
    pub(crate) fn get(&self, idx: Idx<T>) -> Option<&T> {
        if idx.raw() >= self.head.fresh {
            return None;
        }
        self.table.get(slot_of(idx)).filter(|slot| slot.link == USED).map(|slot| &slot.value)
    }

    /// The value of a slot, to change, if it is in use.
    pub(crate) fn get_mut(&mut self, idx: Idx<T>) -> Option<&mut T> {
        if idx.raw() >= self.head.fresh {
            return None;
        }
        self.table.get_mut(slot_of(idx)).filter(|slot| slot.link == USED).map(|slot| &mut slot.value)
    }

    /// Whether the slot is in use.
    pub(crate) fn is_used(&self, idx: Idx<T>) -> bool {
        self.get(idx).is_some()
    }

    /// How many slots are in use.
    #[cfg(any(test, feature = "models"))]
    pub(crate) fn used(&self) -> u32 {
        self.head.used
    }

    /// How many slots are free.
    pub(crate) fn available(&self) -> u32 {
        self.capacity().saturating_sub(self.head.used)
    }

    /// No slot from here on was ever in use.
    pub(crate) fn extent(&self) -> u32 {
        self.head.fresh
    }

    /// How many slots there are, the spill not among them.
    pub(crate) fn capacity(&self) -> u32 {
        self.table.len().min(USED)
    }

    /// Panics unless each slot below the fresh ones is either used or on the free list; O(slots).
    #[cfg(any(test, feature = "models"))]
    pub(crate) fn invariants(&self) {
        let used = (0..self.capacity()).filter(|raw| self.is_used(Idx::new(*raw))).count();
        assert_eq!(used, self.head.used as usize);
        let mut free = 0;
        let mut raw = self.head.free;
        while raw != END {
            assert!(raw < self.head.fresh && !self.is_used(Idx::new(raw)));
            free += 1;
            assert!(free + self.head.used <= self.head.fresh, "the free list has a cycle");
            raw = self.table.at(Idx::new(raw)).link;
        }
        assert_eq!(free + self.head.used, self.head.fresh);
        assert!(self.head.fresh <= self.capacity());
    }
}

/// The slot of a value's index.
const fn slot_of<T>(idx: Idx<T>) -> Idx<Slot<T>> {
    Idx::new(idx.raw())
}

/// The link of the last free slot.
const END: u32 = u32::MAX;
/// The link of a slot in use.
const USED: u32 = u32::MAX - 1;

#[cfg(any(test, feature = "models"))]
pub(crate) mod model;
#[cfg(test)]
mod tests;
