#![doc = include_str!("../README.md")]

pub mod headers;

#[cfg(target_os = "linux")]
mod assemble;
#[cfg(target_os = "linux")]
mod attach;
#[cfg(target_os = "linux")]
mod backend;
#[cfg(target_os = "linux")]
mod error;
#[cfg(target_os = "linux")]
mod filter;
#[cfg(target_os = "linux")]
mod memory;
#[cfg(target_os = "linux")]
mod netlink;
#[cfg(target_os = "linux")]
mod options;
#[cfg(target_os = "linux")]
mod port;
#[cfg(target_os = "linux")]
mod ring;
#[cfg(target_os = "linux")]
mod route;
#[cfg(target_os = "linux")]
mod socket;
#[cfg(target_os = "linux")]
mod stats;
#[cfg(target_os = "linux")]
mod steer;
#[cfg(target_os = "linux")]
mod sys;

#[cfg(target_os = "linux")]
pub use linux::*;

#[cfg(target_os = "linux")]
mod linux {
    pub use crate::backend::{Planes, Xdp, open_queues};
    pub use crate::error::OpenError;
    pub use crate::options::{Attach, BusyPoll, CopyMode, XdpOptions};
    pub use crate::socket::QueueCounters;
    pub use crate::stats::PortStats;
    pub use crate::steer::SteeringStats;

    /// An endpoint on `AF_XDP` sockets, driven by the caller.
    pub type Driver = metaroce_mio::HostDriver<Xdp>;

    /// A [`Driver`] and the loop that drives it.
    pub type Blocking = metaroce_mio::BlockingDriver<Xdp>;
}
