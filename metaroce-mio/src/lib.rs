//! The `MetaRoCE` backend on UDP sockets, driven by [mio](https://docs.rs/mio): runs wherever mio runs.
//!
//! * [`Driver`] belongs in an event loop of your own: register it in your [`mio::Poll`], call [`Driver::turn`] when its
//!   token is reported or its [`Driver::deadline`] has come, and take [`Driver::poll_event`] until it is empty.
//! * [`Blocking`] is a driver with a loop inside, for programs that do one thing after another.
//! * [`Backend`] is what other backends implement: [`HostDriver`] and [`BlockingDriver`] run over any of them.
//!
//! Each plane (local address) has one socket that receives. Each path sends from a socket of its own, whose source port
//! is the path's entropy for ECMP. On Linux the sockets use segmentation offload (GSO, GRO), ECN by control message and
//! gather lists straight from the registered memory, each as far as the kernel has it; elsewhere one copied datagram a
//! call. [`DriverStats`] counts what happened.
//!
//! # The loop
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::{Duration, Instant};
//!
//! use metaroce_mio::{Driver, DriverConfig, wait};
//! use mio::{Events, Interest, Poll, Token};
//!
//! let mut driver = Driver::new(DriverConfig::new("[::1]:4795".parse()?)?)?;
//! let mut poll = Poll::new()?;
//! poll.registry().register(&mut driver, Token(0), Interest::READABLE)?;
//! let mut events = Events::with_capacity(16);
//! loop {
//!     let turn = driver.turn()?;
//!     while let Some(event) = driver.poll_event() {
//!         println!("{event:?}");
//!     }
//!     if !turn.more {
//!         let timeout = driver.deadline().map(|at| at.saturating_duration_since(Instant::now()));
//!         wait(&mut poll, &mut events, timeout, Duration::from_micros(20))?;
//!     }
//! }
//! # }
//! ```

pub mod backend;
mod blocking;
mod clock;
mod config;
pub mod crc;
mod driver;
mod faults;
mod host;
pub mod memory;
mod outbound;
mod polled;
pub mod regions;
pub mod socket;
mod stats;
pub mod sys;
mod tap;
mod wait;

pub use backend::{Backend, OpenBackend, Waker};
pub use blocking::{Blocking, BlockingDriver, BlockingError};
pub use config::{DriverConfig, SocketOptions};
pub use crc::HardwareChecksum;
pub use driver::{BuildError, Driver, HostDriver, Turn};
pub use faults::Faults;
pub use host::Host;
pub use memory::{RegionMemory, allocate_file};
pub use polled::Polled;
pub use regions::{Region, RegionTable, RegisterError};
pub use socket::Capabilities;
pub use stats::{DriverStats, InjectedFaults, SendErrors};
pub use tap::{Tap, Tapped};
pub use wait::wait;
