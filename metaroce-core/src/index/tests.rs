extern crate std;
use std::vec;
use std::vec::Vec;

use quickcheck::{Gen, QuickCheck};

use super::{Index, IndexEntry, IndexHead, Key, index_slots, model, power_of_two_at_most};

#[test]
fn index_does_what_a_map_does() {
    #[expect(clippy::needless_pass_by_value, reason = "quickcheck passes its arguments by value")]
    fn property(seed: u64, slots: u8, operations: Vec<(u8, u8, u32)>) -> bool {
        model::index_does_what_a_map_does(seed, slots, &operations);
        true
    }
    QuickCheck::new().rng(Gen::new(500)).quickcheck(property as fn(u64, u8, Vec<(u8, u8, u32)>) -> bool);
}

#[test]
fn index_takes_as_many_entries_as_its_slots_were_asked_for() {
    for entries in 0..300u32 {
        let count = index_slots(entries as usize);
        assert!(count.is_power_of_two());
        let mut slots = vec![IndexEntry::EMPTY; count];
        let mut head = IndexHead::new(9);
        let mut index = Index::new(&mut slots, &mut head);
        assert!((0..entries).all(|number| index.insert(Key { kind: 0, owner: 0, number }, number)));
        assert!(8 * index.capacity() as usize <= 7 * count || count < 8);
    }
    assert_eq!(index_slots(usize::MAX), usize::MAX);
}

#[test]
fn keys_in_sequence_spread_over_the_slots() {
    let mut slots = vec![IndexEntry::EMPTY; 1 << 12];
    let mut head = IndexHead::new(0);
    let mut index = Index::new(&mut slots, &mut head);
    let mut places = vec![0u32; 64];
    for owner in 0..8 {
        for number in 0..448 {
            let key = Key { kind: 1, owner, number };
            places[index.home(key) as usize >> 6] += 1;
            assert!(index.insert(key, number));
        }
    }
    // 56 a block are expected; five deviations of sqrt(56) are 37.
    assert!(places.iter().all(|count| (19..93).contains(count)), "{places:?}");
    assert!(!index.insert(Key { kind: 2, owner: 0, number: 0 }, 0), "7/8 of the slots are full");
}

#[test]
fn entry_takes_sixteen_bytes() {
    assert_eq!(size_of::<IndexEntry>(), 16);
}

#[test]
fn prefix_is_a_power_of_two_and_as_long_as_it_can_be() {
    let prefixes: Vec<usize> =
        [0, 1, 2, 3, 4, 7, 8, 100].iter().map(|n| power_of_two_at_most(*n, 32)).collect();
    assert_eq!(prefixes, [0, 1, 2, 2, 4, 4, 8, 32]);
}
