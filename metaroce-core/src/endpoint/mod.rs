//! The endpoint: one per thread, owner of everything.

mod api;
mod hooks;
mod io;

use crate::config::{Config, ConfigError, PLANES_MAX};
use crate::connection::Replies;
use crate::index::IndexHead;
use crate::line::Lines;
use crate::list::List;
use crate::pool::PoolHead;
use crate::ring::RingHead;
use crate::rng::{Keyed, Rng, Secrets};
use crate::share::Division;
use crate::stats::EndpointStats;
use crate::storage::{Sizes, Storage, has_sizes};
use crate::view::{State, View};
use crate::wheel::WheelHead;

/// How to close a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseMode {
    /// Everything posted is delivered first.
    Drain,
    /// What is not complete completes as flushed.
    Flush,
}

/// Whether [`Endpoint::handle_timeout`] is done for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Progress {
    /// No timer is due.
    Done,
    /// More timers are due: call again (each call does bounded work).
    More,
}

/// Why a connection could not be opened, accepted, rejected, closed or moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectError {
    /// The table of connections is full, or so many events wait that no more can be promised room.
    Full,
    /// More than 256 bytes of private data.
    PrivateData,
    /// No such connection, or not in a state for this.
    State,
}

impl core::fmt::Display for ConnectError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Full => "table of connections is full: close one, poll events, or raise the limits",
            Self::PrivateData => "private data is longer than 256 bytes",
            Self::State => "no such connection, or its state does not allow this",
        })
    }
}

impl core::error::Error for ConnectError {}

/// The protocol state machine of one endpoint.
///
/// It does no I/O and reads no clock. Hand in datagrams, time and work; take out descriptors of datagrams to send,
/// events, and one deadline. The order of polling is free, with one piece of advice: hand in a whole batch of
/// received datagrams before [`poll_transmit`](Self::poll_transmit), so that one acknowledgement answers it; and call
/// `poll_transmit` after every call that takes `now`.
///
/// No call blocks, allocates or panics. Work per call is bounded, and per packet does not depend on the number of
/// connections.
pub struct Endpoint<S: Storage> {
    state: State,
    storage: S,
}

impl<S: Storage> Endpoint<S> {
    /// An endpoint with no connection.
    ///
    /// # Errors
    /// [`ConfigError`] names the field of `config`, or of the storage's limits, that is out of its range.
    pub fn new(config: Config, mut storage: S) -> Result<Self, ConfigError> {
        config.check()?;
        let limits = storage.limits();
        limits.check()?;
        if !has_sizes(&storage.tables(), &Sizes::of(&limits)) {
            return Err(ConfigError::Storage);
        }
        //= MR-SEC-8
        let mut rng = Rng::new(config.seed);
        let secret = Keyed::new([rng.next_u64(), rng.next_u64()]);
        let mut secrets = Secrets::new(Keyed::new([rng.next_u64(), rng.next_u64()]));
        let incarnation = secrets.next_u64();
        let state = State {
            secret,
            secrets,
            incarnation,
            stats: EndpointStats::default(),
            ready: List::EMPTY,
            owing: List::EMPTY,
            lines: Lines::new(config.inbound_rate_kbps, config.rtt_ns_initial),
            line_opens_at: None,
            reserved: 0,
            half_open: 0,
            limits_told: 0,
            next_generation: 1,
            next_nonce: None,
            replies: Replies::NEW,
            divisions: [Division::NEW; PLANES_MAX],
            start_cursor: 0,
            csn_window: limits.csn_window,
            paths_per_connection: limits.paths_per_connection,
            events: RingHead::new(),
            snapshots: RingHead::new(),
            connections: PoolHead::new(),
            streams: PoolHead::new(),
            works: PoolHead::new(),
            receives: PoolHead::new(),
            messages: PoolHead::new(),
            packets: PoolHead::new(),
            transmissions: PoolHead::new(),
            queues: PoolHead::new(),
            regions: PoolHead::new(),
            index: IndexHead::new(rng.next_u64()),
            wheel: WheelHead::new(),
            rng,
            config,
        };
        Ok(Self { state, storage })
    }

    /// The configuration.
    pub const fn config(&self) -> &Config {
        &self.state.config
    }

    /// Counters.
    pub const fn stats(&self) -> &EndpointStats {
        &self.state.stats
    }

    pub(crate) fn view(&mut self) -> Option<View<'_>> {
        View::new(&mut self.state, self.storage.tables())
    }
}
