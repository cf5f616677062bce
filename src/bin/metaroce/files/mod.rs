//! `serve`, `put` and `get`: files over one connection, through a bounded window, verified end to end.

mod channel;
mod client;
mod disk;
mod failure;
mod inflow;
mod message;
mod outflow;
mod ring;
mod serve;
mod store;
mod transfer;

pub(crate) use client::{get, put};
pub(crate) use failure::TransferError;
pub(crate) use serve::serve;

/// A hash as people write it.
fn hex(hash: &message::Hash) -> String {
    blake3::Hash::from_bytes(*hash).to_hex().to_string()
}
