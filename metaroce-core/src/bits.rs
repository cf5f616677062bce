//! A sliding window of bits over serial numbers.

use crate::ids::{Csn, Serial};
use crate::index::power_of_two_at_most;

/// Where a window stands.
#[derive(Clone, Copy, Debug, Default)]
pub struct WindowHead {
    start: Csn,
}

impl WindowHead {
    /// A window that begins at `start`; its words must be 0.
    #[must_use]
    pub const fn new(start: Csn) -> Self {
        Self { start }
    }
}

/// One bit for each number of `[start, start + capacity)`; numbers outside count as absent.
///
/// The bit of a number lies at the number modulo the capacity (a power of two), so that a slide moves nothing: it
/// only clears the bits of the numbers that enter.
pub(crate) struct BitWindow<'a> {
    words: &'a mut [u64],
    head: &'a mut WindowHead,
}

impl<'a> BitWindow<'a> {
    /// The window over the longest prefix of `words` whose length is a power of two (at most 2^25 words).
    pub(crate) fn new(words: &'a mut [u64], head: &'a mut WindowHead) -> Self {
        let count = power_of_two_at_most(words.len(), MAX_WORDS);
        Self { words: words.get_mut(..count).unwrap_or_default(), head }
    }

    /// The lowest number of the window.
    #[cfg(any(test, feature = "models"))]
    pub(crate) fn start(&self) -> Csn {
        self.head.start
    }

    /// How many numbers the window spans: 64 a word.
    pub(crate) fn capacity(&self) -> u32 {
        u32::try_from(self.words.len()).unwrap_or(0).wrapping_mul(64)
    }

    /// Whether the number lies in the window.
    pub(crate) fn covers(&self, csn: Csn) -> bool {
        self.offset(csn) < self.capacity()
    }

    /// Whether the bit of the number is set; false outside of the window.
    pub(crate) fn contains(&self, csn: Csn) -> bool {
        self.covers(csn) && self.word(csn.raw()) >> (csn.raw() & 63) & 1 == 1
    }

    /// Sets the bit of the number; false, and nothing happens, outside of the window.
    pub(crate) fn insert(&mut self, csn: Csn) -> bool {
        if !self.covers(csn) {
            return false;
        }
        match self.word_mut(csn.raw()) {
            Some(word) => {
                *word |= 1 << (csn.raw() & 63);
                true
            }
            None => false,
        }
    }

    /// Slides the window forward to begin at `start`; a `start` behind the present one changes nothing.
    ///
    /// O(distance / 64), at most O(words).
    pub(crate) fn advance_to(&mut self, start: Csn) {
        if !start.after(self.head.start) {
            return;
        }
        let distance = self.offset(start);
        if distance >= self.capacity() {
            return self.reset(start);
        }
        let (mut position, mut left) = (self.head.start.raw(), distance);
        self.head.start = start;
        while left > 0 {
            let bit = position & 63;
            let count = left.min(64 - bit);
            let ones = u64::MAX >> (64 - count);
            if let Some(word) = self.word_mut(position) {
                *word &= !(ones << bit);
            }
            position = position.wrapping_add(count);
            left -= count;
        }
    }

    /// Makes it a window from `start` without a bit set, wherever it was; O(words).
    pub(crate) fn reset(&mut self, start: Csn) {
        self.words.fill(0);
        self.head.start = start;
    }

    /// The lowest number from `csn` on whose bit is 0, at most `limit` (`csn` when `limit` does not lie ahead).
    ///
    /// O(numbers passed / 64).
    pub(crate) fn first_zero_from(&self, csn: Csn, limit: Csn) -> Csn {
        if !limit.after(csn) || !self.covers(csn) {
            return csn;
        }
        let span = limit.raw().wrapping_sub(csn.raw()).min(self.capacity() - self.offset(csn));
        let mut passed = 0;
        while passed < span {
            let position = csn.raw().wrapping_add(passed);
            let bit = position & 63;
            let zeros = !self.word(position) >> bit;
            if zeros != 0 {
                passed += zeros.trailing_zeros();
                break;
            }
            passed += 64 - bit;
        }
        csn.plus(passed.min(span))
    }

    /// How far the number lies behind the start, modulo 2^32.
    fn offset(&self, csn: Csn) -> u32 {
        csn.raw().wrapping_sub(self.head.start.raw())
    }

    fn word(&self, position: u32) -> u64 {
        self.words.get(self.word_of(position)).copied().unwrap_or(0)
    }

    fn word_mut(&mut self, position: u32) -> Option<&mut u64> {
        let at = self.word_of(position);
        self.words.get_mut(at)
    }

    fn word_of(&self, position: u32) -> usize {
        ((position & self.capacity().wrapping_sub(1)) >> 6) as usize
    }

    /// Panics unless the capacity divides 2^32.
    #[cfg(any(test, feature = "models"))]
    pub(crate) fn invariants(&self) {
        assert!(self.words.is_empty() || self.capacity().is_power_of_two());
    }
}

/// So many that a window spans at most 2^31 numbers, half of all.
const MAX_WORDS: usize = 1 << 25;

#[cfg(any(test, feature = "models"))]
pub(crate) mod model;
#[cfg(test)]
mod tests;
