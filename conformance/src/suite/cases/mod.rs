//! The cases, by area.

mod acknowledgements;
mod handshake;
mod memory;
mod operations;
mod packets;
mod requests;

use super::case::Case;

/// All cases, in the order in which they run.
#[must_use]
pub fn all() -> Vec<&'static Case> {
    [handshake::CASES, packets::CASES, acknowledgements::CASES, operations::CASES, memory::CASES]
        .into_iter()
        .flatten()
        .collect()
}
