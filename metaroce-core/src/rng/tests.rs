extern crate std;
use std::hash::Hasher;
use std::vec::Vec;

use super::{Keyed, Rng};

const REFERENCE_KEY: [u64; 2] = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];

/// The hash of a message of whole words, as bytes.
fn hash_bytes(message: &[u8]) -> u64 {
    let (words, []) = message.as_chunks::<8>() else { unreachable!("not a multiple of eight") };
    let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
    Keyed::new(REFERENCE_KEY).hash(&words)
}

#[test]
fn keyed_hash_agrees_with_the_reference_vectors() {
    let message: Vec<u8> = (0..=15).collect();
    assert_eq!(hash_bytes(&[]), 0x726f_db47_dd0e_0e31);
    assert_eq!(hash_bytes(&message[..8]), 0x93f5_f579_9a93_2462);
    assert_eq!(hash_bytes(&message), 0x3f2a_cc7f_57c2_9bdb);
}

#[test]
#[expect(deprecated, reason = "the one public SipHash-2-4 of the standard library")]
fn keyed_hash_agrees_with_the_standard_library() {
    #[expect(clippy::needless_pass_by_value, reason = "quickcheck passes its arguments by value")]
    fn property(key: (u64, u64), words: Vec<u64>) -> bool {
        let mut model = std::hash::SipHasher::new_with_keys(key.0, key.1);
        for word in &words {
            model.write(&word.to_le_bytes());
        }
        Keyed::new([key.0, key.1]).hash(&words) == model.finish()
    }
    quickcheck::quickcheck(property as fn((u64, u64), Vec<u64>) -> bool);
}

#[test]
fn generator_agrees_with_the_reference() {
    // SplitMix64 of seed 0 begins e220a8397b1dcdaf, 6e789e6aa1b965f4, 06c45d188009454f, f88bb8a8724c81ec.
    let mut rng = Rng::new(0);
    assert_eq!(
        rng.state,
        [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f, 0xf88b_b8a8_724c_81ec]
    );
    // The first outputs of the reference xoshiro256++ from the state 1, 2, 3, 4.
    rng.state = [1, 2, 3, 4];
    assert_eq!(
        [rng.next_u64(), rng.next_u64(), rng.next_u64()],
        [41_943_041, 58_720_359, 3_588_806_011_781_223]
    );
}

#[test]
fn equal_seeds_give_equal_sequences() {
    fn property(seed: u64) -> bool {
        let (mut a, mut b) = (Rng::new(seed), Rng::new(seed));
        (0..20).all(|_| a.next_u64() == b.next_u64())
    }
    quickcheck::quickcheck(property as fn(u64) -> bool);
}

#[test]
fn numbers_below_a_bound_are_below_and_all_of_them_come() {
    let mut rng = Rng::new(7);
    assert_eq!(rng.below(0), 0);
    assert_eq!(rng.below(1), 0);
    let mut seen = [0u32; 10];
    for _ in 0..10_000 {
        seen[rng.below(10) as usize] += 1;
    }
    assert!(seen.iter().all(|count| (800..1200).contains(count)), "{seen:?}");
}

#[test]
fn jitter_stays_within_its_span() {
    fn property(seed: u64, value: u64, per_mille: u32) -> bool {
        let mut rng = Rng::new(seed);
        let per_mille = per_mille % 1200;
        let span = u128::from(value) * u128::from(per_mille.min(1000)) / 1000;
        (0..20).all(|_| u128::from(rng.jitter(value, per_mille)).abs_diff(u128::from(value)) <= span)
    }
    quickcheck::quickcheck(property as fn(u64, u64, u32) -> bool);
    let mut rng = Rng::new(1);
    assert_eq!(rng.jitter(500, 0), 500);
    let drawn: Vec<u64> = (0..2000).map(|_| rng.jitter(1000, 100)).collect();
    assert_eq!((drawn.iter().min(), drawn.iter().max()), (Some(&900), Some(&1100)));
}
