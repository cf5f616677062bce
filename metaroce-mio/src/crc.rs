//! CRC32C by the processor's own instructions.
//!
//! `crc-fast` was chosen over `crc32c` by measurement (Zen 4, one core, 4 KiB warm): 52 GB/s against 17 GB/s, since it
//! folds with (V)PCLMULQDQ where `crc32c` interleaves the CRC32 instruction. Both pick the instructions at run time
//! and fall back to tables; `crc-fast` is the one with recent releases for new instruction sets.

use crc_fast::{CrcAlgorithm, Digest};
use metaroce_core::crc::Checksum;

/// CRC32C with the fastest instructions that the processor has, by tables where it has none.
#[derive(Clone, Copy, Debug, Default)]
pub struct HardwareChecksum;

impl Checksum for HardwareChecksum {
    #[expect(clippy::cast_possible_truncation, reason = "a 32-bit CRC keeps its state in the low half")]
    fn update(&self, state: u32, bytes: &[u8]) -> u32 {
        let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(state));
        digest.update(bytes);
        digest.get_state() as u32
    }
}

#[cfg(test)]
mod tests {
    use metaroce_core::crc::{SEED, TableChecksum, finish};

    use super::*;

    #[test]
    fn the_check_value_of_crc32c_comes_out() {
        assert_eq!(finish(HardwareChecksum.update(SEED, b"123456789")), 0xe306_9283);
    }

    #[test]
    fn it_equals_the_table_version_for_every_length_and_split() {
        let bytes: Vec<u8> = (0..5000u32).map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect();
        for length in (0..600).chain([1023, 1024, 1025, 4095, 4096, 4097, 4999]) {
            let whole = bytes.get(..length).unwrap_or(&[]);
            let table = TableChecksum.update(SEED, whole);
            assert_eq!(HardwareChecksum.update(SEED, whole), table, "{length} bytes");
            let (head, tail) = whole.split_at(length / 3);
            let split = HardwareChecksum.update(HardwareChecksum.update(SEED, head), tail);
            assert_eq!(split, table, "{length} bytes, split");
        }
    }

    #[test]
    fn an_empty_slice_leaves_any_state_as_it_is() {
        for state in [0, 1, SEED, 0x1234_5678] {
            assert_eq!(HardwareChecksum.update(state, &[]), state);
        }
    }
}
