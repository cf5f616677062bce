//! Operation programs over a faulty link: see [`metaroce_conformance::model`], whose oracle knows every byte of memory
//! and every completion.
//!
//! The first eight bytes seed what the links do; from the others the program and the settings are drawn.

use metaroce_conformance::{Random, model};

/// Plays a program.
pub fn run(bytes: &[u8]) {
    let (seed, tape) = bytes.split_at(bytes.len().min(8));
    let seed = seed.iter().fold(0, |seed, byte| seed << 8 | u64::from(*byte));
    if let Err(error) = model::run_from(Random::from_tape(tape), seed, |_| {}) {
        panic!("{error}");
    }
}
