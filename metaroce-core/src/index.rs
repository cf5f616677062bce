//! A map from protocol keys to indices: open addressing, deterministic, over borrowed memory.

/// What an entry is found by: a number of an owner, in a name space of its own for each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    /// The name space.
    pub(crate) kind: u8,
    /// For instance the slot of a connection; 0 where the number alone names it.
    pub(crate) owner: u32,
    /// The number within kind and owner.
    pub(crate) number: u32,
}

/// One slot of an index, 16 bytes.
#[derive(Clone, Copy, Debug)]
pub struct IndexEntry {
    owner: u32,
    number: u32,
    value: u32,
    kind: u8,
    used: bool,
}

impl IndexEntry {
    /// The slot without an entry.
    pub const EMPTY: Self = Self { owner: 0, number: 0, value: 0, kind: 0, used: false };

    const fn key(&self) -> Key {
        Key { kind: self.kind, owner: self.owner, number: self.number }
    }
}

impl Default for IndexEntry {
    fn default() -> Self {
        Self::EMPTY
    }
}

/// What an index knows besides its slots.
#[derive(Clone, Debug)]
pub struct IndexHead {
    used: u32,
    seed: u64,
}

impl IndexHead {
    /// The head of an empty index. A peer that does not know `seed` cannot choose numbers that collide.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { used: 0, seed }
    }
}

/// How many slots an index needs so that it takes `entries` (a power of two, at most 7/8 full).
#[must_use]
pub const fn index_slots(entries: usize) -> usize {
    let least = entries.saturating_add(entries.div_ceil(7));
    let slots = if least < 2 { 2 } else { least };
    match slots.checked_next_power_of_two() {
        Some(slots) => slots,
        None => usize::MAX,
    }
}

/// The map: linear probing, removal by shifting back (no tombstones), at most 7/8 full.
///
/// Each operation is O(1) expected and never looks at more than all slots.
pub(crate) struct Index<'a> {
    slots: &'a mut [IndexEntry],
    head: &'a mut IndexHead,
}

impl<'a> Index<'a> {
    /// The index over the longest prefix of `slots` whose length is a power of two.
    pub(crate) fn new(slots: &'a mut [IndexEntry], head: &'a mut IndexHead) -> Self {
        let count = power_of_two_at_most(slots.len(), 1 << 31);
        Self { slots: slots.get_mut(..count).unwrap_or_default(), head }
    }

    /// Adds an entry; false when the key is there already or the index is full.
    pub(crate) fn insert(&mut self, key: Key, value: u32) -> bool {
        if self.head.used >= self.capacity() {
            return false;
        }
        let Probe::Free(position) = self.probe(key) else { return false };
        self.put(
            position,
            IndexEntry { owner: key.owner, number: key.number, value, kind: key.kind, used: true },
        );
        self.head.used = self.head.used.wrapping_add(1);
        true
    }

    /// The value of a key.
    pub(crate) fn find(&self, key: Key) -> Option<u32> {
        match self.probe(key) {
            Probe::Found(_, value) => Some(value),
            Probe::Free(_) | Probe::Full => None,
        }
    }

    /// Takes the entry of a key out and gives its value.
    pub(crate) fn remove(&mut self, key: Key) -> Option<u32> {
        let Probe::Found(mut hole, value) = self.probe(key) else { return None };
        let mut position = hole;
        for _ in 0..self.slots.len() {
            position = self.after(position);
            let Some(entry) = self.entry(position).filter(|entry| entry.used) else { break };
            // An entry may go back to the hole unless its own first place lies behind the hole.
            let travelled = position.wrapping_sub(self.home(entry.key())) & self.mask();
            if travelled >= position.wrapping_sub(hole) & self.mask() {
                self.put(hole, entry);
                hole = position;
            }
        }
        self.put(hole, IndexEntry::EMPTY);
        self.head.used = self.head.used.wrapping_sub(1);
        Some(value)
    }

    /// How many entries it has.
    #[cfg(any(test, feature = "models"))]
    pub(crate) fn len(&self) -> u32 {
        self.head.used
    }

    /// How many entries it takes.
    pub(crate) fn capacity(&self) -> u32 {
        let slots = self.slots.len();
        u32::try_from(slots - slots.div_ceil(8)).unwrap_or(u32::MAX)
    }

    fn probe(&self, key: Key) -> Probe {
        let mut position = self.home(key);
        for _ in 0..self.slots.len() {
            match self.entry(position) {
                Some(entry) if !entry.used => return Probe::Free(position),
                Some(entry) if entry.key() == key => return Probe::Found(position, entry.value),
                _ => position = self.after(position),
            }
        }
        Probe::Full
    }

    /// The first place to look for a key.
    fn home(&self, key: Key) -> u32 {
        let number = (u64::from(key.owner) << 32) | u64::from(key.number);
        let kind = u64::from(key.kind).wrapping_mul(MULTIPLIERS.0);
        let mixed = fold(number ^ self.head.seed, kind ^ MULTIPLIERS.1);
        (fold(mixed ^ self.head.seed.rotate_left(32), MULTIPLIERS.2) >> 32) as u32 & self.mask()
    }

    fn after(&self, position: u32) -> u32 {
        position.wrapping_add(1) & self.mask()
    }

    fn mask(&self) -> u32 {
        u32::try_from(self.slots.len()).unwrap_or(0).wrapping_sub(1)
    }

    fn entry(&self, position: u32) -> Option<IndexEntry> {
        self.slots.get(position as usize).copied()
    }

    fn put(&mut self, position: u32, entry: IndexEntry) {
        if let Some(slot) = self.slots.get_mut(position as usize) {
            *slot = entry;
        }
    }

    /// Panics unless each entry is found from its first place and the count is right; O(slots).
    #[cfg(any(test, feature = "models"))]
    pub(crate) fn invariants(&self) {
        let used = self.slots.iter().filter(|entry| entry.used).count();
        assert_eq!(used, self.head.used as usize);
        assert!(self.head.used <= self.capacity());
        for entry in self.slots.iter().filter(|entry| entry.used) {
            assert_eq!(self.find(entry.key()), Some(entry.value));
        }
    }
}

enum Probe {
    Found(u32, u32),
    Free(u32),
    Full,
}

/// The largest power of two that is at most `count` and `max`; 0 for 0.
pub(crate) fn power_of_two_at_most(count: usize, max: usize) -> usize {
    count.min(max).checked_ilog2().map_or(0, |bits| 1 << bits)
}

/// Both halves of the product, mixed.
fn fold(a: u64, b: u64) -> u64 {
    let (low, high) = a.carrying_mul(b, 0);
    low ^ high
}

/// Odd constants with about as many ones as zeros (those of wyhash).
const MULTIPLIERS: (u64, u64, u64) = (0xa076_1d64_78bd_642f, 0xe703_7ed1_a0b4_28db, 0x8ebc_6af0_9c88_c6e3);

#[cfg(any(test, feature = "models"))]
pub(crate) mod model;
#[cfg(test)]
mod tests;
