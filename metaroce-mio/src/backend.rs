//! What a backend is: it moves datagrams, and sleeps until there is something to move.
//!
//! Everything else is shared: [`HostDriver`](crate::HostDriver) runs the loop, the timers, the artificial faults, the
//! regions and the verbs over any [`Backend`]; [`BlockingDriver`](crate::BlockingDriver) is the loop for programs that
//! do one thing after another. Public for the backends of this workspace, and for those of others.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use metaroce_core::ids::RegionId;
use metaroce_core::time::Instant;
use metaroce_core::transmit::{Ecn, SourcePort, Transmit};

use crate::config::DriverConfig;
use crate::driver::BuildError;
use crate::host::Host;
use crate::memory::RegionMemory;
use crate::socket::Capabilities;
use crate::stats::DriverStats;
pub use crate::wait::spin_time;

/// Moves datagrams between an endpoint and the network.
///
/// The driver calls, in each round of its loop, [`receive`](Self::receive), then [`send_run`](Self::send_run) for as
/// long as the core has something, then [`flush`](Self::flush). `now` is the driver's time.
///
/// A backend whose system works on memory after a call has returned (completion-driven I/O) keeps that memory alive
/// itself: it copies headers, takes note of the regions that payloads refer to, and lets go of them in
/// [`release_region`](Self::release_region) and [`shut_down`](Self::shut_down).
pub trait Backend: fmt::Debug + Send {
    /// Its name, as users choose it: `mio`.
    fn name(&self) -> &'static str;

    /// The address of each plane, with the port that it really got.
    fn local_addresses(&self) -> Vec<SocketAddr>;

    /// What it was found to support.
    fn capabilities(&self) -> Capabilities;

    /// The largest datagram that it carries well; the endpoint's `mtu_bytes` is lowered to it.
    fn datagram_bytes_max(&self) -> u16 {
        u16::MAX
    }

    /// Whether it computes checksums itself, in the pass in which it copies a payload. What
    /// [`send_run`](Self::send_run) is given then is not sealed, unless somebody taps it; its regions may be gone.
    fn seals(&self) -> bool {
        false
    }

    /// Adds what it counts itself.
    fn add_stats(&self, stats: &mut DriverStats) {
        let _ = stats;
    }

    /// The address that datagrams from `source` bear, as far as this side knows it; for captures.
    fn source_address(&self, plane: u8, source: SourcePort) -> Option<SocketAddr>;

    /// Hands what has arrived to [`Host::hand_in`], some [`DATAGRAMS_PER_ROUND`] datagrams at most, so that
    /// acknowledgements go out in time. Never blocks.
    ///
    /// # Errors
    /// Only what makes the backend useless.
    fn receive(&mut self, now: Instant, host: &mut Host) -> io::Result<ReceiveRound>;

    /// Datagrams that one call of [`send_run`](Self::send_run) takes; 1 without segmentation.
    fn segments_max(&self) -> usize;

    /// Sends a run of sealed datagrams, which are legal for one segmented send
    /// ([`segmented_run`](metaroce_core::transmit::segmented_run)), or makes ready to. Never blocks. What becomes of
    /// them is counted in [`Host::stats`].
    fn send_run(&mut self, now: Instant, run: &[Transmit], host: &mut Host) -> Outcome;

    /// Sends one whole datagram, or makes ready to. Artificial faults need this; it need not be fast.
    fn send_packet(&mut self, now: Instant, packet: &Packet<'_>, host: &mut Host) -> Outcome;

    /// The end of a round: gives the system what `send_run` has made ready.
    ///
    /// # Errors
    /// Only what makes the backend useless.
    fn flush(&mut self, now: Instant, host: &mut Host) -> io::Result<()> {
        let _ = (now, host);
        Ok(())
    }

    /// Everything that was put off with [`Outcome::Later`] has gone.
    fn on_unblocked(&mut self) {}

    /// Whether it is known, without a system call, that `receive` has something to do.
    fn has_input(&mut self) -> bool {
        false
    }

    /// When the loop must run at the latest for the backend's own sake.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// Sleeps until there is something to receive, a [`Waker`] wakes it, or `timeout` has passed (`None`: for ever).
    /// Looks without sleeping for `spin` first. May end early.
    ///
    /// # Errors
    /// What the system says.
    fn wait(&mut self, timeout: Option<Duration>, spin: Duration, host: &mut Host) -> io::Result<()>;

    /// What ends a [`wait`](Self::wait) from another thread.
    ///
    /// # Errors
    /// What the system says.
    fn waker(&mut self) -> io::Result<Waker>;

    /// A region was registered; its memory stays where it is until [`release_region`](Self::release_region).
    fn on_region(&mut self, region: RegionId, memory: &RegionMemory) {
        let _ = (region, memory);
    }

    /// Lets go of the memory of a region, which the caller gets back next: returns when the system has no reference
    /// to it any more.
    ///
    /// # Errors
    /// If that can't be brought about; the memory then stays with the driver.
    fn release_region(&mut self, region: RegionId, host: &mut Host) -> io::Result<()> {
        let _ = (region, host);
        Ok(())
    }

    /// The driver is being dropped: lets go of the memory of all regions. May be called twice.
    fn shut_down(&mut self) {}
}

/// A backend that a driver can open by itself.
pub trait OpenBackend: Backend + Sized {
    /// What is particular to it.
    type Options: Default;

    /// Opens what it needs and finds out what the system can do.
    ///
    /// # Errors
    /// [`BuildError`], with a text that says what is missing and what to do.
    fn open(config: &DriverConfig, options: Self::Options) -> Result<Self, BuildError>;
}

/// What became of datagrams that were to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// They are on their way, or lost for good: the protocol deals with that.
    Gone,
    /// They must be sent one by one.
    Singly,
    /// They must be sent later, since there is no room.
    Later,
}

/// What one call of [`Backend::receive`] brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiveRound {
    /// Datagrams.
    pub datagrams: usize,
    /// Whether everything that was there was taken.
    pub drained: bool,
}

/// A whole datagram, as sealed bytes.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Address and port to send to.
    pub destination: SocketAddr,
    /// Plane.
    pub plane: u8,
    /// Source port.
    pub source: SourcePort,
    /// ECN codepoint to set.
    pub ecn: Ecn,
    /// The UDP payload.
    pub bytes: &'a [u8],
}

/// Ends a driver's wait from another thread. Cheap to clone.
#[derive(Clone)]
pub struct Waker(Arc<dyn Fn() -> io::Result<()> + Send + Sync>);

impl Waker {
    /// From what does the waking.
    pub fn new(wake: impl Fn() -> io::Result<()> + Send + Sync + 'static) -> Self {
        Self(Arc::new(wake))
    }

    /// Ends the wait that is under way, or else the next one.
    ///
    /// # Errors
    /// What the system says: the driver is gone.
    pub fn wake(&self) -> io::Result<()> {
        (self.0)()
    }
}

impl fmt::Debug for Waker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Waker")
    }
}

/// Datagrams handed in before the core is asked for acknowledgements; a batch may pass it by its own size. The core's
/// vector of received packets spans 256 on each path.
pub const DATAGRAMS_PER_ROUND: usize = 128;
