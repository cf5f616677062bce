//! A host: a transport, and a line that asks it for packets whenever it is free.

use super::transport::Transport;

/// One host of a fabric.
pub struct Host {
    /// What it runs.
    pub transport: Box<dyn Transport>,
    /// The link out of it.
    pub(super) nic: u32,
    /// A pull is planned.
    pub(super) pulling: bool,
    /// The earliest timer event that is planned, ps.
    pub(super) timer_ps: u64,
}

impl Host {
    /// A host that sends over link `nic`.
    #[must_use]
    pub fn new(transport: Box<dyn Transport>, nic: u32) -> Self {
        Self { transport, nic, pulling: false, timer_ps: u64::MAX }
    }
}
