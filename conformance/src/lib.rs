//! Tools that prove an implementation of MetaRoCE: an in-memory network with seeded faults, and what is built on it.
//!
//! [`Network`] joins endpoints of the real core by links that lose, duplicate, reorder, corrupt, truncate and mark,
//! in virtual time; everything follows from one seed. [`trace`] shows what it carries, and writes captures.

mod memory;
pub mod model;
mod network;
mod random;
pub mod sim;
pub mod spec;
#[cfg(feature = "suite")]
pub mod suite;
pub mod trace;
#[cfg(feature = "cli")]
pub mod vectors;

pub use memory::HostMemory;
pub use network::{Clock, Delayer, Faults, Host, Network, Traffic, further_planes, plane_address};
pub use random::Random;

/// Compiles the examples of README.md.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
