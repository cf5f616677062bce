//! Randomness from a seed: a fast generator for protocol choices and a keyed hash for what a peer must not guess.

/// xoshiro256++ seeded by `SplitMix64` (Blackman and Vigna): fast and deterministic, **not** cryptographic.
///
/// For path choices and jitter only. What a peer must not guess comes from [`Secrets`] and [`Keyed`].
#[derive(Clone, Debug)]
pub(crate) struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// The generator of `seed`; equal seeds give equal sequences, and every seed will do.
    pub(crate) const fn new(seed: u64) -> Self {
        let (a, seed) = split_mix(seed);
        let (b, seed) = split_mix(seed);
        let (c, seed) = split_mix(seed);
        let (d, _) = split_mix(seed);
        Self { state: [a, b, c, d] }
    }

    /// 64 uniform bits.
    pub(crate) const fn next_u64(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (c, d) = (c ^ a, d ^ b);
        self.state = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        result
    }

    /// 32 uniform bits.
    pub(crate) const fn next_u32(&mut self) -> u32 {
        (self.next_u64() >> 32) as u32
    }

    /// A number below `bound`; 0 when `bound` is 0. Some values are likelier than others by at most `bound` / 2^32.
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        ((u64::from(self.next_u32()) * u64::from(bound)) >> 32) as u32
    }

    /// `value` changed by a uniform amount of up to `per_mille` thousandths (at most 1000) up or down.
    pub(crate) fn jitter(&mut self, value: u64, per_mille: u32) -> u64 {
        let per_mille = u64::from(per_mille.min(1000));
        let span = (value / 1000) * per_mille + (value % 1000) * per_mille / 1000;
        let width = span.saturating_mul(2).saturating_add(1);
        let (_, change) = self.next_u64().carrying_mul(width, 0);
        (value - span).saturating_add(change)
    }
}

/// Numbers that nobody can guess who has not the key: a keyed hash of a counter.
///
/// Connection ids, nonces, keys and tokens come from here: what of them is seen on the wire tells nothing of the next.
#[derive(Clone)]
pub(crate) struct Secrets {
    keyed: Keyed,
    count: u64,
}

impl Secrets {
    pub(crate) const fn new(keyed: Keyed) -> Self {
        Self { keyed, count: 0 }
    }

    /// 64 bits.
    pub(crate) fn next_u64(&mut self) -> u64 {
        //= MR-HS-3
        self.count = self.count.wrapping_add(1);
        self.keyed.hash(&[self.count])
    }

    /// 32 bits.
    pub(crate) fn next_u32(&mut self) -> u32 {
        (self.next_u64() >> 32) as u32
    }
}

/// SipHash-2-4 (Aumasson and Bernstein) of 64-bit words: who has not the key cannot guess a hash.
///
/// Makes ids and cookies that a peer cannot predict, and the seed of the index.
#[derive(Clone)]
pub(crate) struct Keyed {
    key: [u64; 2],
}

impl Keyed {
    /// The hash of this secret key.
    pub(crate) const fn new(key: [u64; 2]) -> Self {
        Self { key }
    }

    /// The hash of `words` (each as its eight bytes in little-endian order); O(words).
    pub(crate) fn hash(&self, words: &[u64]) -> u64 {
        let [k0, k1] = self.key;
        let mut sip = Sip([
            k0 ^ 0x736f_6d65_7073_6575,
            k1 ^ 0x646f_7261_6e64_6f6d,
            k0 ^ 0x6c79_6765_6e65_7261,
            k1 ^ TED,
        ]);
        for word in words {
            sip.absorb(*word);
        }
        // The last block: no bytes left over, and the length in bytes modulo 256 on top.
        sip.absorb((words.len() as u64) << 59);
        sip.finish()
    }
}

struct Sip([u64; 4]);

impl Sip {
    fn absorb(&mut self, word: u64) {
        let Self([_, _, _, v3]) = self;
        *v3 ^= word;
        self.round();
        self.round();
        let Self([v0, ..]) = self;
        *v0 ^= word;
    }

    fn finish(mut self) -> u64 {
        let Self([_, _, v2, _]) = &mut self;
        *v2 ^= 0xff;
        for _ in 0..4 {
            self.round();
        }
        let Self([v0, v1, v2, v3]) = self;
        v0 ^ v1 ^ v2 ^ v3
    }

    const fn round(&mut self) {
        let Self([v0, v1, v2, v3]) = *self;
        let v0 = v0.wrapping_add(v1);
        let v1 = v1.rotate_left(13) ^ v0;
        let v0 = v0.rotate_left(32);
        let v2 = v2.wrapping_add(v3);
        let v3 = v3.rotate_left(16) ^ v2;
        let v0 = v0.wrapping_add(v3);
        let v3 = v3.rotate_left(21) ^ v0;
        let v2 = v2.wrapping_add(v1);
        let v1 = v1.rotate_left(17) ^ v2;
        let v2 = v2.rotate_left(32);
        *self = Self([v0, v1, v2, v3]);
    }
}

/// One output of `SplitMix64` and the state after it.
const fn split_mix(state: u64) -> (u64, u64) {
    let state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31), state)
}

/// The word that makes the fourth lane of `SipHash` ("tedbytes").
const TED: u64 = 0x7465_6462_7974_6573;

#[cfg(test)]
mod tests;
