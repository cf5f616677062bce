//! The containers of the core against plain models of them.

use arbitrary::{Arbitrary, Unstructured};
use metaroce_core::models;

/// A container, its size and seed, and what is done to it.
#[derive(Debug, Arbitrary)]
enum Case {
    Table { entries: u8, operations: Vec<(u8, u32)> },
    Pool { capacity: u8, operations: Vec<(u8, u32)> },
    List { operations: Vec<(u8, u32, bool)> },
    Index { seed: u64, slots: u8, operations: Vec<(u8, u8, u32)> },
    Ring { capacity: u8, operations: Vec<(bool, u32)> },
    Bits { words: u8, origin: u32, near_wrap: bool, operations: Vec<(u8, u16, u16)> },
    Wheel { start: u64, bits: u8, operations: Vec<(u8, u8, u64)> },
}

/// Plays one case.
pub fn run(bytes: &[u8]) {
    let Ok(case) = Case::arbitrary_take_rest(Unstructured::new(bytes)) else { return };
    match case {
        Case::Table { entries, operations } => models::table_does_what_a_map_does(entries, &operations),
        Case::Pool { capacity, operations } => {
            models::pool_does_what_a_map_with_a_stack_does(capacity, &operations);
        }
        Case::List { operations } => models::lists_of_two_tags_do_what_queues_do(&operations),
        Case::Index { seed, slots, operations } => {
            models::index_does_what_a_map_does(seed, slots, &operations);
        }
        Case::Ring { capacity, operations } => {
            models::ring_does_what_a_bounded_queue_does(capacity, &operations);
        }
        Case::Bits { words, origin, near_wrap, operations } => {
            models::window_does_what_a_set_does(words, origin, near_wrap, &operations);
        }
        Case::Wheel { start, bits, operations } => {
            models::wheel_does_what_a_map_of_deadlines_does(start, bits, &operations);
        }
    }
}
