//! Ctrl-C, as a flag that the loops look at.

use std::sync::atomic::{AtomicU8, Ordering};

use anyhow::Context as _;

static INTERRUPTS: AtomicU8 = AtomicU8::new(0);

/// From now on Ctrl-C (and SIGTERM) sets the flag; the third one ends the process at once.
///
/// # Errors
/// When the system does not let us.
pub(crate) fn install() -> anyhow::Result<()> {
    ctrlc::set_handler(|| {
        if INTERRUPTS.fetch_add(1, Ordering::Relaxed) >= 2 {
            std::process::exit(EXIT_STATUS);
        }
    })
    .context("cannot listen for Ctrl-C")
}

/// Whether the user asked to stop.
pub(crate) fn requested() -> bool {
    INTERRUPTS.load(Ordering::Relaxed) > 0
}

/// Exit status of an interrupted command, as shells have it for SIGINT.
pub(crate) const EXIT_STATUS: i32 = 130;

/// The user asked to stop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Interrupted;

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}
