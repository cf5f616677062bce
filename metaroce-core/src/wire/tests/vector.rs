//! The vector against a model: a set of numbers below 256.

use std::collections::BTreeSet;
use std::vec::Vec;

use super::{holds, std};
use crate::wire::{ACK_BODY_BYTES, AckBody, Frame, Vector256};

type Model = BTreeSet<u32>;

fn model(vector: Vector256) -> Model {
    (0..Vector256::BITS).filter(|i| vector.contains(*i)).collect()
}

#[test]
fn vector_behaves_as_a_set_of_numbers_below_256() {
    fn property(vector: Vector256, steps: Vec<(bool, u16)>) -> bool {
        let mut vector = vector;
        let mut expected = model(vector);
        for (insert, i) in steps {
            let i = u32::from(i) % 300;
            if insert {
                vector.insert(i);
                if i < 256 {
                    expected.insert(i);
                }
            } else {
                vector.remove(i);
                expected.remove(&i);
            }
            assert_eq!(vector.contains(i), expected.contains(&i));
        }
        assert_eq!(vector.lowest(), expected.first().copied());
        assert_eq!(vector.is_empty(), expected.is_empty());
        assert_eq!(vector.count() as usize, expected.len());
        assert_eq!(vector.iter().size_hint(), (expected.len(), Some(expected.len())));
        vector.iter().eq(expected)
    }
    holds(property as fn(Vector256, Vec<(bool, u16)>) -> bool);
}

#[test]
fn shift_moves_every_bit_and_drops_what_reaches_256() {
    fn property(vector: Vector256, by: u32) -> bool {
        for by in (0..260).chain([by, u32::MAX]) {
            let expected: Model =
                model(vector).into_iter().filter_map(|i| i.checked_add(by)).filter(|i| *i < 256).collect();
            assert_eq!(model(vector.shift(by)), expected, "by {by}");
        }
        true
    }
    super::QuickCheck::new().tests(50).quickcheck(property as fn(Vector256, u32) -> bool);
}

#[test]
fn set_operations_are_those_of_sets() {
    fn property(a: Vector256, b: Vector256) -> bool {
        let (left, right) = (model(a), model(b));
        model(a.union(b)) == &left | &right
            && model(a.intersection(b)) == &left & &right
            && model(a.and_not(b)) == &left - &right
    }
    holds(property as fn(Vector256, Vector256) -> bool);
}

#[test]
fn bit_i_is_bit_seven_minus_i_modulo_eight_of_byte_i_over_eight() {
    for i in 0..256 {
        let mut vector = Vector256::EMPTY;
        vector.insert(i);
        let mut expected = [0_u8; 34];
        expected[..2].copy_from_slice(&[1, 32]);
        expected[2 + (i / 8) as usize] = 0x80 >> (i % 8);
        let mut out = [0; 34];
        assert_eq!(Frame::Refused(vector).emit(&mut out), Ok(34));
        assert_eq!(out, expected);

        let mut ack = [0; ACK_BODY_BYTES];
        ack[8..40].copy_from_slice(&expected[2..]);
        assert_eq!(AckBody::parse(&ack).unwrap().0.accepted, vector);
    }
}

#[test]
fn words_count_bits_from_the_least_significant() {
    let vector = Vector256::from_words([1, 2, 0, 1 << 63]);
    assert!(vector.iter().eq([0, 65, 255]));
    assert_eq!(vector.words(), [1, 2, 0, 1 << 63]);
    assert!((&vector).into_iter().eq(vector));
    assert!(!Vector256::from_words([1, 0, 1, 0]).is_empty());
}
