//! The compliance suite: a scripted, adversarial peer that judges the wire behaviour of a device under test.
//!
//! The suite writes its packets itself ([`wire`]) and has no endpoint of the core inside. It speaks through a [`Port`]:
//! [`InProcess`] joins it to the core in virtual time, [`Udp`] to any device that receives UDP datagrams and serves the
//! control channel of `CONTROL.md`. A [`Case`] is a function of a [`Script`]; it ends with the requirement that was
//! broken, or with nothing to blame. [`faults`] holds devices with one rule broken each, which prove that it can fail.

mod case;
pub mod cases;
pub mod control;
pub mod faults;
mod in_process;
mod link;
mod monitor;
mod packet;
mod port;
mod script;
mod stop;
mod udp;
pub mod wire;

pub use case::{Case, Profile, Report, Verdict, run};
pub use cases::all as all_cases;
pub use in_process::{Core, DEVICE_LIMITS, Honest, InProcess, Inbound, Outbound, Shim, ShimMemory};
pub use link::{Link, Region};
pub use monitor::ALWAYS;
pub use packet::{Block, Packet, Terms, describe};
pub use port::{Arrival, PLANES, Port, PortError, SOURCES, Source};
pub use script::{Entry, Fired, Script, Shot, Treat};
pub use stop::{Outcome, Stop};
pub use udp::Udp;
