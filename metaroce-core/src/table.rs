//! Typed indices, and tables that are read by index without a panic.

use core::fmt;
use core::marker::PhantomData;

/// The index of a `T` in its table or pool, or [`Idx::NONE`].
pub struct Idx<T> {
    raw: u32,
    of: PhantomData<fn() -> T>,
}

impl<T> Idx<T> {
    /// Names no entry.
    pub(crate) const NONE: Self = Self::new(u32::MAX);

    /// The index `raw`.
    pub(crate) const fn new(raw: u32) -> Self {
        Self { raw, of: PhantomData }
    }

    /// The index as a number.
    pub(crate) const fn raw(self) -> u32 {
        self.raw
    }

    /// Whether it names no entry.
    pub(crate) const fn is_none(self) -> bool {
        self.raw == u32::MAX
    }

    /// Whether it names an entry.
    pub(crate) const fn is_some(self) -> bool {
        !self.is_none()
    }

    /// The index, or `None` for [`Idx::NONE`].
    pub(crate) const fn get(self) -> Option<Self> {
        if self.is_none() { None } else { Some(self) }
    }

    /// The index into a slice.
    const fn at(self) -> usize {
        self.raw as usize
    }
}

impl<T> Clone for Idx<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Idx<T> {}

impl<T> PartialEq for Idx<T> {
    fn eq(&self, other: &Self) -> bool {
        self.raw == other.raw
    }
}

impl<T> Eq for Idx<T> {}

impl<T> Default for Idx<T> {
    /// [`Idx::NONE`].
    fn default() -> Self {
        Self::NONE
    }
}

impl<T> fmt::Debug for Idx<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_none() { f.write_str("none") } else { write!(f, "#{}", self.raw) }
    }
}

/// A slice read by typed index.
///
/// [`Table::at`] and [`Table::at_mut`] always answer: an index outside of the table is a bug of this crate, which a
/// debug build reports and a release build answers with a spare slot (the *spill*). So the data path holds no panic,
/// a bug harms at most what the spill stands for, and no other connection's entry is ever reached by it.
pub struct Table<'a, T> {
    slots: &'a mut [T],
    spill: &'a mut T,
}

impl<'a, T> Table<'a, T> {
    /// The table of all `slots` but the last, which becomes the spill; `None` when there is none at all.
    pub(crate) fn new(slots: &'a mut [T]) -> Option<Self> {
        let (spill, slots) = slots.split_last_mut()?;
        Some(Self { slots, spill })
    }

    /// The entry of `idx`; the spill when there is none.
    pub(crate) fn at(&self, idx: Idx<T>) -> &T {
        debug_assert!(idx.at() < self.slots.len(), "{idx:?} is outside of a table of {}", self.slots.len());
        //= MR-SEC-1
        self.slots.get(idx.at()).unwrap_or(self.spill)
    }

    /// The entry of `idx`, to change; the spill when there is none.
    pub(crate) fn at_mut(&mut self, idx: Idx<T>) -> &mut T {
        debug_assert!(idx.at() < self.slots.len(), "{idx:?} is outside of a table of {}", self.slots.len());
        match self.slots.get_mut(idx.at()) {
            Some(entry) => entry,
            None => self.spill,
        }
    }

    /// The entry of `idx`, if there is one.
    pub(crate) fn get(&self, idx: Idx<T>) -> Option<&T> {
        self.slots.get(idx.at())
    }

    /// The entry of `idx`, to change, if there is one.
    pub(crate) fn get_mut(&mut self, idx: Idx<T>) -> Option<&mut T> {
        self.slots.get_mut(idx.at())
    }

    /// How many entries it has, the spill not among them.
    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.slots.len()).unwrap_or(u32::MAX)
    }
}

#[cfg(any(test, feature = "models"))]
pub(crate) mod model;
#[cfg(test)]
mod tests;
