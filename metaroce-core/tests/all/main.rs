//! The integration tests of the core, in one binary: one link instead of two dozen.
//!
//! `cargo test -p metaroce-core --test all failure::` runs those of one file.

#![allow(
    clippy::cast_possible_truncation,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod common;

mod closing;
mod congestion;
mod determinism;
mod errors;
mod failure;
mod floods;
mod handshake;
mod huge;
mod limits;
mod matching;
mod model;
mod operations;
mod pair;
mod parking;
mod pitfalls_delivery;
mod pitfalls_paths;
mod pitfalls_security;
mod planes;
mod planes_failure;
mod queues;
mod regressions;
mod rules;
mod shares;
mod state_table;
mod stream_table;
mod streams;
mod vectors;
mod verbs;
mod wire_golden;
mod wrap;
