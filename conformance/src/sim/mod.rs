//! A fabric in virtual time: hosts that run the real core (or a model of another transport), lines, switches, queues
//! with congestion marks, faults, failures on schedule; and workloads, with their ideal times.
//!
//! Everything is integer and follows from one seed: equal runs have equal [hashes](Outcome::hash). A `Scenario` (feature `scenario`) says
//! what to build and do, in TOML; [`Plan`] is the same in code.
//!
//! ## What the model is, and is not
//! * A host's line takes packets from the transport only when it is free, as hardware does: a host has no queue, and
//!   what the transport sends is never older than two packets.
//! * Switches store and forward, with output queues, drop at the tail, and mark when a packet enters.
//! * ECMP hashes addresses and source port with a seed of each switch. A switch knows at once which of its own links
//!   are down, and nothing of others': a spine that lost its link to a leaf swallows packets for it.
//! * Payload is described, not carried: [`memory`] tells how each byte is checked all the same.

pub mod clock;
pub mod fabric;
mod host;
pub mod link;
pub mod loss;
pub mod memory;
pub mod metrics;
pub mod packet;
mod queue;
mod run;
#[cfg(feature = "scenario")]
pub mod scenario;
pub mod settling;
pub mod timeline;
pub mod topology;
pub mod transport;
pub mod units;
pub mod workload;

pub use host::Host;
pub use metrics::Outcome;
pub use queue::{EventQueue, Happening};
pub use run::Plan;
#[cfg(feature = "scenario")]
pub use scenario::{Case, Scenario};
