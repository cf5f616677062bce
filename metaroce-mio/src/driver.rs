//! The driver: one endpoint, its memory and a backend, in the loop of the caller.

mod verbs;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant as SystemInstant};

use metaroce_core::HeapStorage;
use metaroce_core::config::ConfigError;
use metaroce_core::event::Event;
use metaroce_core::time::Instant;
use metaroce_core::wire::PlaneAddresses;
use metaroce_core::{Endpoint, Progress};

use crate::backend::{Backend, OpenBackend, Waker};
use crate::clock::Clock;
use crate::config::DriverConfig;
use crate::faults::Faults;
use crate::host::Host;
use crate::outbound::{Flow, Sender, burst_packets};
use crate::polled::Polled;
use crate::socket::Capabilities;
use crate::stats::DriverStats;
use crate::tap::Tap;

/// An endpoint on UDP sockets by mio, driven by the caller's event loop.
///
/// It is a [`mio::event::Source`]: register it under a token with `Interest::READABLE` (writability is handled inside).
/// Then, whenever the token is reported, [`deadline`](HostDriver::deadline) has come or work was posted, call
/// [`turn`](HostDriver::turn) until it says that no more is to be done, and take the events. Whoever has no loop of his
/// own calls [`wait`](HostDriver::wait) instead, and does not register it.
pub type Driver = HostDriver<Polled>;

/// An endpoint and the backend that moves its datagrams, driven by the caller.
///
/// `HostDriver<dyn Backend>` is any of them, chosen at run time: a `Box<HostDriver<B>>` becomes one by itself.
///
/// `Send`, not `Sync`: one driver belongs to one thread at a time. Nothing here allocates or opens sockets per packet.
pub struct HostDriver<B: Backend + ?Sized> {
    host: Host,
    sender: Sender,
    clock: Clock,
    spin: Duration,
    backend: B,
}

impl<B: OpenBackend> HostDriver<B> {
    /// Opens the backend, which probes what the system can do, and makes the endpoint.
    ///
    /// # Errors
    /// [`BuildError`].
    pub fn new(config: DriverConfig) -> Result<Self, BuildError> {
        Self::with_options(config, B::Options::default())
    }

    /// The same, with options of the backend.
    ///
    /// # Errors
    /// [`BuildError`].
    pub fn with_options(config: DriverConfig, options: B::Options) -> Result<Self, BuildError> {
        let backend = B::open(&config, options)?;
        Self::with_backend(config, backend)
    }
}

impl<B: Backend> HostDriver<B> {
    /// Makes the endpoint over a backend that is open.
    ///
    /// # Errors
    /// [`BuildError::Config`] if the endpoint refuses its configuration.
    #[expect(clippy::needless_pass_by_value, reason = "a configuration is used once")]
    pub fn with_backend(config: DriverConfig, backend: B) -> Result<Self, BuildError> {
        let mut endpoint_config = config.endpoint;
        endpoint_config.mtu_bytes = endpoint_config.mtu_bytes.min(backend.datagram_bytes_max());
        let local = backend.local_addresses();
        endpoint_config.planes =
            PlaneAddresses::from_slice(local.get(1..).unwrap_or_default()).unwrap_or_default();
        endpoint_config.burst_packets = config.burst_packets.unwrap_or_else(|| {
            let segments_max = config.sockets.gso_segments_max;
            burst_packets(backend.capabilities(), segments_max, endpoint_config.mtu_bytes)
        });
        let (burst, checksum) = (endpoint_config.burst_packets, endpoint_config.checksum);
        let endpoint =
            Endpoint::new(endpoint_config, HeapStorage::new(&config.limits)).map_err(BuildError::Config)?;
        Ok(Self {
            host: Host::new(endpoint, local),
            sender: Sender::new(burst, checksum, config.faults),
            clock: Clock::new(),
            spin: SPIN_DEFAULT,
            backend,
        })
    }
}

impl<B: Backend + ?Sized> HostDriver<B> {
    /// One budgeted run of the loop: receives, lets timers run, sends. Never blocks.
    ///
    /// Bounded by a number of datagrams in each direction, so that a busy driver leaves its thread to others: while
    /// [`Turn::more`] is set, call it again before you sleep.
    ///
    /// # Errors
    /// Only what makes the driver useless, such as a receive socket that is not there any more. Errors of single sends
    /// are losses to the protocol, and counted in [`stats`](Self::stats).
    pub fn turn(&mut self) -> io::Result<Turn> {
        self.host.stats.turns += 1;
        let mut turn = Turn::default();
        for _ in 0..ROUNDS_MAX {
            let now = self.clock.now();
            let received = self.backend.receive(now, &mut self.host)?;
            let timers_left = self.run_timers(now);
            let sent = self.sender.send(now, &mut self.host, &mut self.backend);
            self.backend.flush(now, &mut self.host)?;
            turn.received += received.datagrams;
            turn.sent += sent.datagrams;
            turn.more =
                !received.drained || timers_left || sent.flow == Flow::More || self.backend.has_input();
            if !turn.more || received.datagrams + sent.datagrams == 0 {
                break;
            }
        }
        Ok(turn)
    }

    /// When [`turn`](Self::turn) must be called at the latest, if nothing else happens; `None` for never.
    #[must_use]
    pub fn deadline(&mut self) -> Option<SystemInstant> {
        let own = [self.sender.deadline(), self.backend.deadline()];
        let earliest = own.into_iter().chain([self.host.endpoint.next_deadline()]).flatten().min()?;
        self.clock.system(earliest)
    }

    /// Sleeps until there may be something for [`turn`](Self::turn) to do, a [`waker`](Self::waker) ends it, or `limit`
    /// has passed (`None`: no limit). Looks without sleeping for the time of [`set_spin`](Self::set_spin) first.
    ///
    /// # Errors
    /// What the system says; for [`Driver`], if it is registered in a `mio::Poll` of the caller, who must wait there.
    pub fn wait(&mut self, limit: Option<Duration>) -> io::Result<()> {
        let due = self.deadline().map(|at| at.saturating_duration_since(SystemInstant::now()));
        let timeout = match (due, limit) {
            (Some(due), Some(limit)) => Some(due.min(limit)),
            (due, limit) => due.or(limit),
        };
        self.backend.wait(timeout, self.spin, &mut self.host)
    }

    /// What ends a [`wait`](Self::wait) from another thread.
    ///
    /// # Errors
    /// What the system says; as for [`wait`](Self::wait).
    pub fn waker(&mut self) -> io::Result<Waker> {
        self.backend.waker()
    }

    /// How long [`wait`](Self::wait) looks for datagrams without sleeping before the thread goes to sleep; default
    /// 20 µs. Waking up costs some 50 µs on a virtual machine, spinning costs a processor.
    pub fn set_spin(&mut self, spin: Duration) {
        self.spin = spin;
    }

    /// The next event: a completion, or a change of a connection or stream.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.host.endpoint.poll_event()
    }

    /// The current time in the core's terms, which many calls of the endpoint take.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// The protocol behind it.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint<HeapStorage> {
        &self.host.endpoint
    }

    /// The protocol behind it, to post work and to manage connections. Register regions through the driver, which must
    /// know their memory, and call [`turn`](Self::turn) afterwards, which sends.
    pub fn endpoint_mut(&mut self) -> &mut Endpoint<HeapStorage> {
        &mut self.host.endpoint
    }

    /// The backend.
    #[must_use]
    pub fn backend(&self) -> &B {
        &self.backend
    }

    /// The backend, for what is particular to it.
    pub fn backend_mut(&mut self) -> &mut B {
        &mut self.backend
    }

    /// The addresses on which it receives, one for each plane, with the ports that they really got.
    #[must_use]
    pub fn local_addresses(&self) -> &[SocketAddr] {
        &self.host.local
    }

    /// The address of the first plane.
    #[must_use]
    pub fn local_address(&self) -> SocketAddr {
        self.host.local.first().copied().unwrap_or(UNSPECIFIED)
    }

    /// What the system was found to support.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        self.backend.capabilities()
    }

    /// What it has done so far.
    #[must_use]
    pub fn stats(&self) -> DriverStats {
        let mut stats = self.host.stats;
        self.backend.add_stats(&mut stats);
        stats
    }

    /// Has `tap` see every datagram from now on, or none.
    pub fn set_tap(&mut self, tap: Option<Tap>) {
        self.host.tap.0 = tap;
    }

    /// Sets other artificial faults from now on.
    pub fn set_faults(&mut self, faults: Faults) {
        self.sender.set_faults(faults);
    }

    /// Lets due timers run, a bounded number of times; says whether more are due.
    fn run_timers(&mut self, now: Instant) -> bool {
        for _ in 0..TIMER_CALLS_MAX {
            if self.host.endpoint.handle_timeout(now) == Progress::Done {
                return false;
            }
        }
        true
    }
}

impl<B: Backend + ?Sized> Drop for HostDriver<B> {
    /// The system may still work on the memory of regions, which goes next.
    fn drop(&mut self) {
        self.backend.shut_down();
    }
}

impl<B: Backend + ?Sized> fmt::Debug for HostDriver<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostDriver")
            .field("backend", &self.backend.name())
            .field("host", &self.host)
            .finish_non_exhaustive()
    }
}

/// What one call of [`HostDriver::turn`] did.
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
    /// The system lacks what the backend needs; the text says what, and what to do.
    Unsupported(String),
    /// The endpoint refuses its configuration.
    Config(ConfigError),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "cannot open the sockets: {error}"),
            Self::Unsupported(text) => f.write_str(text),
            Self::Config(error) => write!(f, "configuration is refused: {error}"),
        }
    }
}

impl std::error::Error for BuildError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            Self::Unsupported(_) => None,
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

/// Default of [`HostDriver::set_spin`].
const SPIN_DEFAULT: Duration = Duration::from_micros(20);

const UNSPECIFIED: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);
