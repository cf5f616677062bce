//! What the tests of the program share: running it, and network namespaces.
#![allow(dead_code, reason = "each test file uses a part")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "in tests a failure is a panic"
)]

pub(crate) mod multiplane;
pub(crate) mod planes;
pub(crate) mod program;
pub(crate) mod suite;

use std::io::Write as _;

/// Says on the real standard error, past the test harness's capture, that a check did not run. `.ci/run` counts these
/// lines.
pub(crate) fn skip(test: &str, reason: &str) {
    let _ = writeln!(std::io::stderr(), "\nskipped: {test}: {reason}");
}

/// Deterministic bytes that no compression or repetition hides errors in.
pub(crate) fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    bytes
}
