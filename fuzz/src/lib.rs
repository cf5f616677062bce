//! The fuzz targets, each a function of bytes: it returns, or panics where something is wrong.
//!
//! `cargo fuzz` runs them on what it finds (`fuzz_targets/`); `tests/properties.rs` runs the same functions on random
//! bytes and on the seeds; and without `cargo fuzz` the programs of `fuzz_targets/` replay files, on any toolchain.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    reason = "a harness fails by panicking"
)]

pub mod congestion;
pub mod containers;
pub mod control;
pub mod craft;
pub mod datagram;
pub mod frame;
pub mod handshake;
pub mod header;
mod host;
pub mod probe;
pub mod program;
pub mod scenario;
pub mod seeds;
pub mod worst;

#[cfg(fuzzing)]
pub use libfuzzer_sys;

/// Runs one input.
pub type Run = fn(&[u8]);

/// All targets, by name.
pub const TARGETS: &[(&str, Run)] = &[
    ("header", header::run),
    ("datagram", datagram::run),
    ("program", program::run),
    ("containers", containers::run),
    ("handshake", handshake::run),
    ("congestion", congestion::run),
    ("scenario", scenario::run),
    ("frame", frame::run),
    ("control", control::run),
];

/// Makes the program of a target: under `cargo fuzz` libFuzzer's, otherwise one that replays files.
#[macro_export]
macro_rules! target {
    ($name:ident) => {
        #[cfg(fuzzing)]
        $crate::libfuzzer_sys::fuzz_target!(|bytes: &[u8]| $crate::$name::run(bytes));

        #[cfg(not(fuzzing))]
        fn main() -> std::io::Result<()> {
            $crate::replay($crate::$name::run)
        }
    };
}

/// Runs a target once on each file that the command line names.
///
/// # Errors
/// A file can't be read.
pub fn replay(run: Run) -> std::io::Result<()> {
    for file in std::env::args_os().skip(1) {
        run(&std::fs::read(file)?);
    }
    Ok(())
}
