//! Seeded randomness of tests and simulations: `SplitMix64`, small, and the same everywhere.

/// A seeded generator, which may be led by a tape.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
    /// What the next draws take, last byte first.
    tape: Vec<u8>,
}

impl Random {
    /// From a seed; every seed is good.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed, tape: Vec::new() }
    }

    /// Draws from the bytes of `tape` as long as they last, as few as a draw needs: so a fuzzer that changes a byte
    /// changes one choice. What follows is the sequence of seed 0.
    #[must_use]
    pub fn from_tape(tape: &[u8]) -> Self {
        Self { state: 0, tape: tape.iter().rev().copied().collect() }
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        if !self.tape.is_empty() {
            return self.take(8);
        }
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; 0 if `bound` is 0. Bias below 2^-32 for bounds below 2^32, unless a tape leads.
    pub fn below(&mut self, bound: u64) -> u64 {
        if self.tape.is_empty() {
            return high_half(self.next_u64(), bound);
        }
        if bound < 2 {
            return 0;
        }
        let bits = u64::BITS - (bound - 1).leading_zeros();
        let bytes = bits.div_ceil(8);
        high_half(self.take(bytes) << (u64::BITS - 8 * bytes), bound)
    }

    /// True `per_million` times in a million.
    pub fn chance(&mut self, per_million: u32) -> bool {
        self.below(1_000_000) < u64::from(per_million)
    }

    /// The next so many bytes of the tape, 1 to 8, as a number; past its end they are 0.
    fn take(&mut self, bytes: u32) -> u64 {
        (0..bytes).fold(0, |number, _| number << 8 | u64::from(self.tape.pop().unwrap_or(0)))
    }
}

/// `bound` times the fraction `bits` / 2^64.
const fn high_half(bits: u64, bound: u64) -> u64 {
    ((bits as u128 * bound as u128) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tape_leads_and_then_seed_0_goes_on() {
        let mut random = Random::from_tape(&[0x80, 0xff, 0xff, 1, 2, 3, 4, 5, 6, 7, 8, 0x40]);
        assert_eq!(random.below(1), 0, "nothing to choose takes nothing");
        assert_eq!(random.below(10), 5);
        assert_eq!(random.below(1 << 16), 0xffff);
        assert_eq!(random.next_u64(), 0x0102_0304_0506_0708);
        assert_eq!(random.below(1_000), 250, "one byte is left, and then zeros");
        let mut seeded = Random::new(0);
        assert_eq!([random.next_u64(), random.below(9)], [seeded.next_u64(), seeded.below(9)]);
    }
}
