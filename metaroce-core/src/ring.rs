//! A first-in first-out queue over borrowed memory.

/// What a ring knows besides its slots.
#[derive(Clone, Debug)]
pub struct RingHead {
    /// The slot of the oldest entry.
    start: u32,
    length: u32,
}

impl RingHead {
    /// The head of an empty ring.
    #[must_use]
    pub const fn new() -> Self {
        Self { start: 0, length: 0 }
    }
}

impl Default for RingHead {
    fn default() -> Self {
        Self::new()
    }
}

/// The queue; it holds as many entries as there are slots, and the number need not be a power of two.
pub(crate) struct Ring<'a, T> {
    slots: &'a mut [T],
    head: &'a mut RingHead,
}

impl<'a, T: Copy> Ring<'a, T> {
    /// The ring over `slots`.
    pub(crate) fn new(slots: &'a mut [T], head: &'a mut RingHead) -> Self {
        Self { slots, head }
    }

    /// Puts an entry behind the last one.
    ///
    /// # Errors
    /// Gives the entry back when the ring is full.
    pub(crate) fn push(&mut self, entry: T) -> Result<(), T> {
        if self.head.length >= self.capacity() {
            return Err(entry);
        }
        let position = self.wrap(u64::from(self.head.start) + u64::from(self.head.length));
        let Some(slot) = self.slots.get_mut(position as usize) else { return Err(entry) };
        *slot = entry;
        self.head.length = self.head.length.wrapping_add(1);
        Ok(())
    }

    /// Takes the oldest entry out.
    pub(crate) fn pop(&mut self) -> Option<T> {
        let entry = *self.front()?;
        self.head.start = self.wrap(u64::from(self.head.start) + 1);
        self.head.length = self.head.length.wrapping_sub(1);
        Some(entry)
    }

    /// The oldest entry.
    pub(crate) fn front(&self) -> Option<&T> {
        if self.is_empty() { None } else { self.slots.get(self.head.start as usize) }
    }

    /// How many entries it has.
    pub(crate) fn len(&self) -> u32 {
        self.head.length
    }

    /// How many entries it can have.
    pub(crate) fn capacity(&self) -> u32 {
        u32::try_from(self.slots.len()).unwrap_or(u32::MAX)
    }

    /// Whether it has no entry.
    pub(crate) fn is_empty(&self) -> bool {
        self.head.length == 0
    }

    /// A position of less than twice the capacity, brought into the slots.
    fn wrap(&self, position: u64) -> u32 {
        let capacity = u64::from(self.capacity());
        let inside = if position >= capacity { position.wrapping_sub(capacity) } else { position };
        u32::try_from(inside).unwrap_or(0)
    }

    /// Panics unless start and length lie in the slots.
    #[cfg(any(test, feature = "models"))]
    pub(crate) fn invariants(&self) {
        assert!(self.head.length <= self.capacity());
        assert!(self.head.start < self.capacity().max(1));
    }
}

#[cfg(any(test, feature = "models"))]
pub(crate) mod model;
#[cfg(test)]
mod tests;
