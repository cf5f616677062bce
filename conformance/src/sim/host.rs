//! A host: a transport, and lines that ask it for packets whenever they are free.

use super::transport::Transport;

/// One host of a fabric.
pub struct Host {
    /// What it runs.
    pub transport: Box<dyn Transport>,
    /// The links out of it, one for each plane.
    pub(super) nics: Vec<u32>,
    /// A pull is planned.
    pub(super) pulling: bool,
    /// The earliest timer event that is planned, ps.
    pub(super) timer_ps: u64,
}

impl Host {
    /// A host that sends over `nics`, one for each plane.
    #[must_use]
    pub fn new(transport: Box<dyn Transport>, nics: Vec<u32>) -> Self {
        Self { transport, nics, pulling: false, timer_ps: u64::MAX }
    }
}
