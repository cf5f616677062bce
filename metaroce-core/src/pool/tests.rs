extern crate std;
use std::vec::Vec;

use quickcheck::{Gen, QuickCheck};

use super::{Idx, Pool, PoolHead, Slot, model};

#[test]
fn pool_does_what_a_map_with_a_stack_of_free_indices_does() {
    #[expect(clippy::needless_pass_by_value, reason = "quickcheck passes its arguments by value")]
    fn property(capacity: u8, operations: Vec<(u8, u32)>) -> bool {
        model::pool_does_what_a_map_with_a_stack_does(capacity, &operations);
        true
    }
    QuickCheck::new().rng(Gen::new(300)).quickcheck(property as fn(u8, Vec<(u8, u32)>) -> bool);
}

#[test]
fn pool_over_stale_slots_starts_empty() {
    let mut slots = [Slot { value: 1, link: super::USED }; 3];
    let mut head = PoolHead::new();
    let Some(mut pool) = Pool::new(&mut slots, &mut head) else { unreachable!() };
    assert_eq!(pool.get(Idx::new(0)), None);
    assert_eq!(pool.allocate(5).map(Idx::raw), Some(0));
    assert_eq!((pool.get(Idx::new(0)), pool.get(Idx::new(1))), (Some(&5), None));
    pool.invariants();
}

#[test]
#[cfg_attr(debug_assertions, should_panic(expected = "was freed while free"))]
fn freeing_twice_is_reported_in_debug_and_ignored_in_release() {
    let mut slots = [Slot::new(0); 3];
    let mut head = PoolHead::new();
    let Some(mut pool) = Pool::new(&mut slots, &mut head) else { unreachable!() };
    let Some(idx) = pool.allocate(1) else { unreachable!() };
    pool.free(idx);
    pool.free(idx);
    pool.invariants();
    assert_eq!((pool.used(), pool.available()), (0, 2));
}

#[test]
fn pool_without_even_a_spill_does_not_exist() {
    let mut head = PoolHead::default();
    assert!(Pool::<u8>::new(&mut [], &mut head).is_none());
}
