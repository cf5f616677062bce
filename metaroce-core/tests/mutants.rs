//! All integration tests of this crate in one binary, for `cargo mutants`: one link instead of two dozen.
//!
//! `cargo test` runs them one by one and leaves this file alone (`test = false` in `Cargo.toml`).

#![allow(
    clippy::all,
    clippy::pedantic,
    unfulfilled_lint_expectations,
    reason = "each file is checked as a test of its own"
)]

#[path = "closing.rs"]
mod closing;
#[path = "congestion.rs"]
mod congestion;
#[path = "determinism.rs"]
mod determinism;
#[path = "errors.rs"]
mod errors;
#[path = "failure.rs"]
mod failure;
#[path = "handshake.rs"]
mod handshake;
#[path = "limits.rs"]
mod limits;
#[path = "matching.rs"]
mod matching;
#[path = "model.rs"]
mod model;
#[path = "operations.rs"]
mod operations;
#[path = "pair.rs"]
mod pair;
#[path = "pitfalls_delivery.rs"]
mod pitfalls_delivery;
#[path = "pitfalls_paths.rs"]
mod pitfalls_paths;
#[path = "pitfalls_security.rs"]
mod pitfalls_security;
#[path = "queues.rs"]
mod queues;
#[path = "regressions.rs"]
mod regressions;
#[path = "rules/main.rs"]
mod rules;
#[path = "state_table.rs"]
mod state_table;
#[path = "stream_table.rs"]
mod stream_table;
#[path = "streams.rs"]
mod streams;
#[path = "vectors/main.rs"]
mod vectors;
#[path = "verbs.rs"]
mod verbs;
#[path = "wire_golden.rs"]
mod wire_golden;
#[path = "wrap.rs"]
mod wrap;
