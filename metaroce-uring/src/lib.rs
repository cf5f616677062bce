#![doc = include_str!("../README.md")]
#![cfg(target_os = "linux")]

mod completions;
mod files;
mod options;
mod outgoing;
mod probe;
mod stats;
mod sys;
mod uring;
mod zero_copy;

use metaroce_mio::{BlockingDriver, HostDriver};

pub use options::{UringOptions, ZeroCopy};
pub use probe::check;
pub use stats::UringStats;
pub use uring::Uring;

/// An endpoint over `io_uring`, driven by the caller.
pub type Driver = HostDriver<Uring>;

/// A [`Driver`] and the loop that drives it.
pub type Blocking = BlockingDriver<Uring>;
