//! The poll-driven driver: one endpoint, its sockets and its memory, in the event loop of the caller.

mod verbs;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Instant as SystemInstant;

use metaroce_core::HeapStorage;
use metaroce_core::config::ConfigError;
use metaroce_core::event::Event;
use metaroce_core::time::Instant;
use metaroce_core::{Endpoint, Progress};
use mio::{Interest, Registry, Token, event};

use crate::clock::Clock;
use crate::config::DriverConfig;
use crate::faults::Faults;
use crate::receive::Receiver;
use crate::regions::RegionTable;
use crate::send::{Flow, Outlet, Sender, burst_packets};
use crate::socket::{Capabilities, Sockets};
use crate::stats::DriverStats;
use crate::tap::Tap;

/// An endpoint on UDP sockets, driven by the caller's event loop.
///
/// It is a [`mio::event::Source`]: register it under a token with `Interest::READABLE` (writability is handled inside).
/// Then, whenever the token is reported, [`deadline`](Self::deadline) has come or work was posted, call
/// [`turn`](Self::turn) until it says that no more is to be done, and take the events.
///
/// `Send`, not `Sync`: one driver belongs to one thread at a time. Nothing here allocates or opens sockets per packet.
pub struct Driver {
    endpoint: Endpoint<HeapStorage>,
    regions: RegionTable,
    sockets: Sockets,
    receiver: Receiver,
    sender: Sender,
    clock: Clock,
    stats: DriverStats,
    local: Vec<SocketAddr>,
}

impl Driver {
    /// Opens the receive sockets, probes what the system can do, and makes the endpoint.
    ///
    /// # Errors
    /// [`BuildError::Io`] if a socket cannot be opened or bound, [`BuildError::Config`] if the endpoint refuses its
    /// configuration.
    #[expect(clippy::needless_pass_by_value, reason = "a configuration is used once")]
    pub fn new(config: DriverConfig) -> Result<Self, BuildError> {
        let sockets = Sockets::bind(&config.local, config.sockets)?;
        let capabilities = sockets.capabilities();
        let mut endpoint_config = config.endpoint;
        endpoint_config.burst_packets = config.burst_packets.unwrap_or_else(|| {
            burst_packets(capabilities, config.sockets.gso_segments_max, endpoint_config.mtu_bytes)
        });
        let (burst, checksum) = (endpoint_config.burst_packets, endpoint_config.checksum);
        let mtu_bytes = usize::from(endpoint_config.mtu_bytes);
        let endpoint =
            Endpoint::new(endpoint_config, HeapStorage::new(&config.limits)).map_err(BuildError::Config)?;
        let local = sockets.local_addresses().collect();
        Ok(Self {
            endpoint,
            regions: RegionTable::new(),
            receiver: Receiver::new(capabilities, mtu_bytes),
            sender: Sender::new(
                capabilities,
                config.sockets.gso_segments_max,
                burst,
                checksum,
                config.faults,
            ),
            sockets,
            clock: Clock::new(),
            stats: DriverStats::default(),
            local,
        })
    }

    /// One budgeted run of the loop: receives, lets timers run, sends. Never blocks.
    ///
    /// Bounded by a number of datagrams in each direction, so that a busy driver leaves its thread to others: while
    /// [`Turn::more`] is set, call it again before you sleep.
    ///
    /// # Errors
    /// Only what makes the driver useless, such as a receive socket that is not there any more. Errors of single sends
    /// are losses to the protocol, and counted in [`stats`](Self::stats).
    pub fn turn(&mut self) -> io::Result<Turn> {
        self.stats.turns += 1;
        let mut turn = Turn::default();
        for _ in 0..ROUNDS_MAX {
            let now = self.clock.now();
            let received = self.receiver.receive(
                now,
                &mut self.sockets,
                &mut self.endpoint,
                &mut self.regions,
                &mut self.stats,
            )?;
            let timers_left = self.run_timers(now);
            let outlet =
                Outlet { now, sockets: &mut self.sockets, regions: &self.regions, stats: &mut self.stats };
            let sent = self.sender.send(&mut self.endpoint, outlet);
            turn.received += received.datagrams;
            turn.sent += sent.datagrams;
            turn.more = !received.drained || timers_left || sent.flow == Flow::More;
            if !turn.more || received.datagrams + sent.datagrams == 0 {
                break;
            }
        }
        Ok(turn)
    }

    /// When [`turn`](Self::turn) must be called at the latest, if nothing else happens; `None` for never.
    #[must_use]
    pub fn deadline(&mut self) -> Option<SystemInstant> {
        let own = self.sender.deadline();
        let earliest = match (self.endpoint.next_deadline(), own) {
            (Some(core), Some(own)) => core.min(own),
            (core, own) => core.or(own)?,
        };
        self.clock.system(earliest)
    }

    /// The next event: a completion, or a change of a connection or stream.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.endpoint.poll_event()
    }

    /// The current time in the core's terms, which many calls of the endpoint take.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// The protocol behind it.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint<HeapStorage> {
        &self.endpoint
    }

    /// The protocol behind it, to post work and to manage connections. Register regions through the driver, which must
    /// know their memory, and call [`turn`](Self::turn) afterwards, which sends.
    pub fn endpoint_mut(&mut self) -> &mut Endpoint<HeapStorage> {
        &mut self.endpoint
    }

    /// The addresses on which it receives, one for each plane, with the ports that they really got.
    #[must_use]
    pub fn local_addresses(&self) -> &[SocketAddr] {
        &self.local
    }

    /// The address of the first plane.
    #[must_use]
    pub fn local_address(&self) -> SocketAddr {
        self.local.first().copied().unwrap_or(UNSPECIFIED)
    }

    /// What the system was found to support.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        self.sender.capabilities()
    }

    /// What it has done so far.
    #[must_use]
    pub fn stats(&self) -> DriverStats {
        let paths = self.sockets.path_counters();
        DriverStats {
            path_sockets_opened: paths.opened,
            path_sockets_evicted: paths.evicted,
            path_port_conflicts: paths.conflicts,
            path_socket_failures: paths.failures,
            ..self.stats
        }
    }

    /// Has `tap` see every datagram from now on, or none.
    pub fn set_tap(&mut self, tap: Option<Tap>) {
        self.sockets.tap.0 = tap;
    }

    /// Sets other artificial faults from now on.
    pub fn set_faults(&mut self, faults: Faults) {
        self.sender.set_faults(faults);
    }

    /// Lets due timers run, a bounded number of times; says whether more are due.
    fn run_timers(&mut self, now: Instant) -> bool {
        for _ in 0..TIMER_CALLS_MAX {
            if self.endpoint.handle_timeout(now) == Progress::Done {
                return false;
            }
        }
        true
    }
}

impl event::Source for Driver {
    fn register(&mut self, registry: &Registry, token: Token, _interests: Interest) -> io::Result<()> {
        self.sockets.register(registry, token)
    }

    fn reregister(&mut self, registry: &Registry, token: Token, _interests: Interest) -> io::Result<()> {
        self.sockets.deregister(registry)?;
        self.sockets.register(registry, token)
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        self.sockets.deregister(registry)
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver")
            .field("local", &self.local)
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

/// What one call of [`Driver::turn`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Turn {
    /// Datagrams received.
    pub received: usize,
    /// Datagrams sent, or lost by an artificial fault.
    pub sent: usize,
    /// Whether there is more to do right now.
    pub more: bool,
}

/// Why a driver could not be made.
#[derive(Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// A socket could not be opened or bound.
    Io(io::Error),
    /// The endpoint refuses its configuration.
    Config(ConfigError),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "cannot open the sockets: {error}"),
            Self::Config(error) => write!(f, "configuration is refused: {error}"),
        }
    }
}

impl std::error::Error for BuildError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            Self::Config(error) => Some(error),
        }
    }
}

impl From<io::Error> for BuildError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Rounds of receiving and sending in one turn.
const ROUNDS_MAX: usize = 8;

/// Calls of `handle_timeout` in one round, each bounded itself.
const TIMER_CALLS_MAX: usize = 64;

const UNSPECIFIED: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);

#[cfg(test)]
mod tests;
