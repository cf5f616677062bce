extern crate std;
use std::vec::Vec;

use quickcheck::{Gen, QuickCheck};

use super::model;

#[test]
fn ring_does_what_a_bounded_queue_does() {
    #[expect(clippy::needless_pass_by_value, reason = "quickcheck passes its arguments by value")]
    fn property(capacity: u8, operations: Vec<(bool, u32)>) -> bool {
        model::ring_does_what_a_bounded_queue_does(capacity, &operations);
        true
    }
    QuickCheck::new().rng(Gen::new(500)).quickcheck(property as fn(u8, Vec<(bool, u32)>) -> bool);
}
