//! CRC32C (Castagnoli), the checksum of every datagram.

/// The running state before the first byte.
pub const SEED: u32 = !0;

/// The CRC of what was fed so far, from the running state.
#[must_use]
pub const fn finish(state: u32) -> u32 {
    !state
}

/// A way to compute CRC32C. [`TableChecksum`] is the portable one; a backend supplies its hardware's.
pub trait Checksum: Sync {
    /// The running state after `bytes`, from the running state before them (first: [`SEED`], last: [`finish`]).
    fn update(&self, state: u32, bytes: &[u8]) -> u32;
}

/// CRC32C by tables, eight bytes a step; safe, portable, a byte or two per nanosecond.
#[derive(Clone, Copy, Debug, Default)]
pub struct TableChecksum;

impl Checksum for TableChecksum {
    fn update(&self, state: u32, bytes: &[u8]) -> u32 {
        let [t0, t1, t2, t3, t4, t5, t6, t7] = &TABLES;
        let (blocks, rest) = bytes.as_chunks::<8>();
        let mut state = state;
        for block in blocks {
            let word = u64::from_le_bytes(*block) ^ u64::from(state);
            let [b0, b1, b2, b3, b4, b5, b6, b7] = word.to_le_bytes();
            state = entry(t7, b0) ^ entry(t6, b1) ^ entry(t5, b2) ^ entry(t4, b3);
            state ^= entry(t3, b4) ^ entry(t2, b5) ^ entry(t1, b6) ^ entry(t0, b7);
        }
        for byte in rest {
            let [low, ..] = state.to_le_bytes();
            state = entry(t0, low ^ byte) ^ (state >> 8);
        }
        state
    }
}

/// The polynomial 0x1EDC6F41, its bits reflected.
//= MR-WIRE-8
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// `TABLES[k][b]`: the state after byte `b` and `k` zero bytes, from state 0.
static TABLES: [[u32; 256]; 8] = tables();

/// The entry of a byte; the length of the table spares the check.
fn entry(table: &[u32; 256], byte: u8) -> u32 {
    table.get(usize::from(byte)).copied().unwrap_or(0)
}

#[expect(clippy::indexing_slicing, reason = "runs only in the compiler, which reports a bad index")]
#[expect(clippy::cast_possible_truncation, reason = "byte stays below 256; `try_from` is not const")]
const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut state = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            state = if state & 1 == 1 { (state >> 1) ^ POLYNOMIAL } else { state >> 1 };
            bit += 1;
        }
        tables[0][byte] = state;
        byte += 1;
    }
    let mut zeros = 1;
    while zeros < 8 {
        let mut byte = 0;
        while byte < 256 {
            let state = tables[zeros - 1][byte];
            tables[zeros][byte] = tables[0][(state & 0xff) as usize] ^ (state >> 8);
            byte += 1;
        }
        zeros += 1;
    }
    tables
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::{Checksum, SEED, TableChecksum, finish};

    fn crc(bytes: &[u8]) -> u32 {
        finish(TableChecksum.update(SEED, bytes))
    }

    #[test]
    //= MR-WIRE-8 test
    fn golden_values_of_rfc_3720_hold() {
        assert_eq!(crc(b"123456789"), 0xe306_9283);
        assert_eq!(crc(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc(b""), 0);
    }

    #[test]
    fn pieces_give_the_same_as_the_whole() {
        #[expect(clippy::needless_pass_by_value, reason = "quickcheck passes its arguments by value")]
        fn property(pieces: Vec<Vec<u8>>) -> bool {
            let state = pieces.iter().fold(SEED, |state, piece| TableChecksum.update(state, piece));
            finish(state) == crc(&pieces.concat())
        }
        quickcheck::quickcheck(property as fn(Vec<Vec<u8>>) -> bool);
    }

    #[test]
    fn eight_bytes_a_step_equal_one_bit_a_step() {
        #[expect(clippy::needless_pass_by_value, reason = "quickcheck passes its arguments by value")]
        fn property(bytes: Vec<u8>) -> bool {
            let slow = bytes.iter().fold(SEED, |state, byte| {
                (0..8).fold(state ^ u32::from(*byte), |s, _| (s >> 1) ^ (super::POLYNOMIAL * (s & 1)))
            });
            finish(slow) == crc(&bytes)
        }
        quickcheck::quickcheck(property as fn(Vec<u8>) -> bool);
    }
}
