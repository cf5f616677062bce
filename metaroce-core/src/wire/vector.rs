//! The 256-bit vector of an acknowledgement.

use super::cursor::{Reader, Writer};
use super::{BufferTooSmall, WireError};

/// 256 bits; bit `i` speaks of the PSN *largest − i*.
///
/// On the wire bit `i` is bit `7 − i % 8` of byte `i / 8` (network bit order): bit 0 is the most significant bit
/// of the first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
pub struct Vector256([u64; 4]);

impl Vector256 {
    /// Bits of a vector.
    pub const BITS: u32 = 256;
    /// Bytes of a vector on the wire.
    pub const BYTES: usize = 32;
    /// No bit set.
    pub const EMPTY: Self = Self([0; 4]);

    /// From words; bit `i` is bit `i % 64` (counted from the least significant) of word `i / 64`.
    #[must_use]
    pub const fn from_words(words: [u64; 4]) -> Self {
        Self(words)
    }

    /// The words; bit `i` is bit `i % 64` (counted from the least significant) of word `i / 64`.
    #[must_use]
    pub const fn words(self) -> [u64; 4] {
        self.0
    }

    /// Whether bit `i` is set; false from 256 on.
    #[must_use]
    #[inline]
    pub fn contains(&self, i: u32) -> bool {
        self.0.get(word_index(i)).is_some_and(|word| word & bit_mask(i) != 0)
    }

    /// Sets bit `i`; does nothing from 256 on.
    #[inline]
    pub fn insert(&mut self, i: u32) {
        if let Some(word) = self.0.get_mut(word_index(i)) {
            *word |= bit_mask(i);
        }
    }

    /// Clears bit `i`; does nothing from 256 on.
    #[inline]
    pub fn remove(&mut self, i: u32) {
        if let Some(word) = self.0.get_mut(word_index(i)) {
            *word &= !bit_mask(i);
        }
    }

    /// The vector as it stands when *largest* has advanced by `by`: bit `i` becomes bit `i + by`, and what
    /// reaches 256 is dropped.
    #[must_use]
    #[inline]
    pub const fn shift(self, by: u32) -> Self {
        let [low, high] = self.halves();
        // An unbounded shift by 128 or more gives 0, so that each term vanishes where it does not apply.
        if by < 128 {
            let carried = low.unbounded_shr(128_u32.saturating_sub(by));
            Self::from_halves([low.unbounded_shl(by), high.unbounded_shl(by) | carried])
        } else {
            Self::from_halves([0, low.unbounded_shl(by.saturating_sub(128))])
        }
    }

    /// Whether no bit is set.
    #[must_use]
    #[inline]
    pub const fn is_empty(&self) -> bool {
        let [low, high] = self.halves();
        low | high == 0
    }

    /// How many bits are set.
    #[must_use]
    #[inline]
    pub const fn count(&self) -> u32 {
        let [low, high] = self.halves();
        low.count_ones().saturating_add(high.count_ones())
    }

    /// The bits of `self` that `other` lacks.
    #[must_use]
    #[inline]
    pub const fn and_not(self, other: Self) -> Self {
        let ([a, b], [c, d]) = (self.halves(), other.halves());
        Self::from_halves([a & !c, b & !d])
    }

    /// The bits of either.
    #[must_use]
    #[inline]
    pub const fn union(self, other: Self) -> Self {
        let ([a, b], [c, d]) = (self.halves(), other.halves());
        Self::from_halves([a | c, b | d])
    }

    /// The bits of both.
    #[must_use]
    #[inline]
    pub const fn intersection(self, other: Self) -> Self {
        let ([a, b], [c, d]) = (self.halves(), other.halves());
        Self::from_halves([a & c, b & d])
    }

    /// The lowest bit set: the newest PSN marked.
    #[must_use]
    #[inline]
    pub const fn lowest(&self) -> Option<u32> {
        let [low, high] = self.halves();
        if low != 0 {
            Some(low.trailing_zeros())
        } else if high != 0 {
            Some(high.trailing_zeros().saturating_add(128))
        } else {
            None
        }
    }

    /// The bits set, lowest first. Costs O(bits set).
    #[must_use]
    #[inline]
    pub const fn iter(&self) -> VectorBits {
        VectorBits { left: *self }
    }

    #[inline]
    const fn halves(self) -> [u128; 2] {
        let [a, b, c, d] = self.0;
        [join(a, b), join(c, d)]
    }

    #[inline]
    const fn from_halves([low, high]: [u128; 2]) -> Self {
        let ([a, b], [c, d]) = (split(low), split(high));
        Self([a, b, c, d])
    }

    #[inline]
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let words = [reader.u64()?, reader.u64()?, reader.u64()?, reader.u64()?];
        //= MR-WIRE-23
        Ok(Self(words.map(u64::reverse_bits)))
    }

    #[inline]
    pub(super) fn write(self, writer: &mut Writer<'_>) -> Result<(), BufferTooSmall> {
        let [a, b, c, d] = self.0.map(u64::reverse_bits);
        writer.u64(a)?;
        writer.u64(b)?;
        writer.u64(c)?;
        writer.u64(d)
    }
}

impl IntoIterator for Vector256 {
    type Item = u32;
    type IntoIter = VectorBits;

    fn into_iter(self) -> VectorBits {
        self.iter()
    }
}

impl IntoIterator for &Vector256 {
    type Item = u32;
    type IntoIter = VectorBits;

    fn into_iter(self) -> VectorBits {
        self.iter()
    }
}

/// The set bits of a [`Vector256`], lowest first.
#[derive(Clone, Debug)]
pub struct VectorBits {
    left: Vector256,
}

impl Iterator for VectorBits {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        let bit = self.left.lowest()?;
        self.left.remove(bit);
        Some(bit)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let count = self.left.count() as usize;
        (count, Some(count))
    }
}

const fn word_index(i: u32) -> usize {
    (i >> 6) as usize
}

const fn bit_mask(i: u32) -> u64 {
    1_u64.unbounded_shl(i & 63)
}

const fn join(low: u64, high: u64) -> u128 {
    (low as u128) | ((high as u128) << 64)
}

#[expect(clippy::cast_possible_truncation, reason = "the two halves of the number")]
const fn split(value: u128) -> [u64; 2] {
    [value as u64, (value >> 64) as u64]
}
