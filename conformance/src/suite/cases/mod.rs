//! The cases, by area.

mod acknowledgements;
mod closing;
mod delivery;
mod handshake;
mod loss;
mod memory;
mod operations;
mod packets;
mod paths;
mod planes;
mod requests;
mod shares;
mod streams;

use super::case::Case;

/// All cases, in the order in which they run.
#[must_use]
pub fn all() -> Vec<&'static Case> {
    [
        handshake::CASES,
        packets::CASES,
        acknowledgements::CASES,
        delivery::CASES,
        loss::CASES,
        paths::CASES,
        planes::CASES,
        shares::CASES,
        streams::CASES,
        operations::CASES,
        memory::CASES,
        closing::CASES,
    ]
    .into_iter()
    .flatten()
    .collect()
}
