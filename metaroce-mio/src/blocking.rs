//! A driver with a loop inside, for programs that do one thing after another.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use metaroce_core::config::ConnectOptions;
use metaroce_core::event::{CloseReason, Completion, Event, Status};
use metaroce_core::ids::{ConnectionHandle, ProtectionDomain, StreamId};
use metaroce_core::request::{Operation, PostError, RemoteAddress, Segment, WorkRequest};
use metaroce_core::{CloseMode, ConnectError};

use crate::backend::{Backend, OpenBackend};
use crate::config::DriverConfig;
use crate::driver::{BuildError, HostDriver};
use crate::polled::Polled;

/// A [`Driver`](crate::Driver), UDP sockets by mio, and the loop that drives it.
pub type Blocking = BlockingDriver<Polled>;

/// A [`HostDriver`] and the loop that drives it: each call works until what it waits for has happened or its time is up.
///
/// The protocol only runs inside these calls: whoever has nothing to wait for but wants acknowledgements and timers to
/// go on calls [`wait_event`](Self::wait_event), or uses a [`HostDriver`].
#[derive(Debug)]
pub struct BlockingDriver<B: Backend> {
    driver: HostDriver<B>,
    queue: VecDeque<Event>,
    next_id: u64,
}

impl<B: OpenBackend> BlockingDriver<B> {
    /// Receives at `local` with the defaults of [`DriverConfig::new`].
    ///
    /// # Errors
    /// As for [`HostDriver::new`].
    pub fn bind(local: SocketAddr) -> Result<Self, BuildError> {
        Self::with_config(DriverConfig::new(local)?)
    }

    /// With a configuration of one's own.
    ///
    /// # Errors
    /// As for [`HostDriver::new`].
    pub fn with_config(config: DriverConfig) -> Result<Self, BuildError> {
        Ok(Self::from(HostDriver::new(config)?))
    }

    /// With a configuration and options of the backend.
    ///
    /// # Errors
    /// As for [`HostDriver::with_options`].
    pub fn with_options(config: DriverConfig, options: B::Options) -> Result<Self, BuildError> {
        Ok(Self::from(HostDriver::with_options(config, options)?))
    }
}

impl<B: Backend> From<HostDriver<B>> for BlockingDriver<B> {
    fn from(driver: HostDriver<B>) -> Self {
        Self { driver, queue: VecDeque::new(), next_id: ID_FIRST }
    }
}

impl<B: Backend> BlockingDriver<B> {
    /// How long to look for datagrams without sleeping before the thread goes to sleep; default 20 µs. Waking up costs
    /// some 50 µs on a virtual machine, spinning costs a processor.
    pub fn set_spin(&mut self, spin: Duration) {
        self.driver.set_spin(spin);
    }

    /// The driver inside, for regions, statistics and posting.
    #[must_use]
    pub fn driver(&self) -> &HostDriver<B> {
        &self.driver
    }

    /// The driver inside, for regions, statistics and posting. Events taken from it directly are not seen by the calls
    /// here.
    pub fn driver_mut(&mut self) -> &mut HostDriver<B> {
        &mut self.driver
    }

    /// Connects to the endpoint that receives at `remote`: service 0, protection domain 0.
    ///
    /// # Errors
    /// [`BlockingError`]: refused, timed out, or no room.
    pub fn connect(
        &mut self,
        remote: SocketAddr,
        timeout: Duration,
    ) -> Result<ConnectionHandle, BlockingError> {
        self.connect_with(ConnectOptions::to(remote), timeout)
    }

    /// Connects.
    ///
    /// # Errors
    /// [`BlockingError`]: refused, timed out, or no room. After a time-out the attempt is given up.
    pub fn connect_with(
        &mut self,
        options: ConnectOptions<'_>,
        timeout: Duration,
    ) -> Result<ConnectionHandle, BlockingError> {
        let connection = self.driver.connect(options)?;
        let wanted = |event: &Event| match *event {
            Event::Connected { connection: c } | Event::Closed { connection: c, .. } => c == connection,
            _ => false,
        };
        match self.wait_for(timeout, wanted) {
            Ok(Event::Closed { reason, .. }) => Err(BlockingError::Closed(reason)),
            Ok(_) => Ok(connection),
            Err(error) => {
                let _ = self.driver.close(connection, CloseMode::Flush);
                Err(error)
            }
        }
    }

    /// Waits for a peer to connect, accepts it with access to the regions of `domain`, and waits until it is open.
    ///
    /// # Errors
    /// [`BlockingError`].
    pub fn accept(
        &mut self,
        domain: ProtectionDomain,
        timeout: Duration,
    ) -> Result<ConnectionHandle, BlockingError> {
        let until = Instant::now().checked_add(timeout);
        let incoming = self.wait_for(timeout, |event| matches!(event, Event::Incoming { .. }))?;
        let Event::Incoming { connection, .. } = incoming else { return Err(BlockingError::TimedOut) };
        self.driver.accept(connection, domain, &[])?;
        let wanted = |event: &Event| match *event {
            Event::Connected { connection: c } | Event::Closed { connection: c, .. } => c == connection,
            _ => false,
        };
        match self.wait_for(remaining(until), wanted)? {
            Event::Closed { reason, .. } => Err(BlockingError::Closed(reason)),
            _ => Ok(connection),
        }
    }

    /// Closes a connection and waits until it is over.
    ///
    /// # Errors
    /// [`BlockingError`]; [`BlockingError::TimedOut`] leaves it closing.
    pub fn close(
        &mut self,
        connection: ConnectionHandle,
        mode: CloseMode,
        timeout: Duration,
    ) -> Result<CloseReason, BlockingError> {
        self.driver.close(connection, mode)?;
        let wanted = |event: &Event| matches!(*event, Event::Closed { connection: c, .. } if c == connection);
        match self.wait_for(timeout, wanted)? {
            Event::Closed { reason, .. } => Ok(reason),
            _ => Ok(CloseReason::Local),
        }
    }

    /// The next event, or `None` when the time is up. A zero time-out runs the loop once.
    ///
    /// # Errors
    /// [`BlockingError::Io`] if the sockets are unusable.
    pub fn wait_event(&mut self, timeout: Duration) -> Result<Option<Event>, BlockingError> {
        match self.wait_for(timeout, |_| true) {
            Ok(event) => Ok(Some(event)),
            Err(BlockingError::TimedOut) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Waits for the completion of the work request `id` of a stream. Other events stay queued for later calls.
    ///
    /// # Errors
    /// [`BlockingError::Closed`] if the connection ends without it, [`BlockingError::TimedOut`]. A completion that is
    /// no success is no error here.
    pub fn wait_completion(
        &mut self,
        connection: ConnectionHandle,
        stream: StreamId,
        id: u64,
        timeout: Duration,
    ) -> Result<Completion, BlockingError> {
        let completes = move |event: &Event| matches!(*event, Event::Completion(c) if c.connection == connection && c.stream == stream && c.id == id);
        let wanted = move |event: &Event| completes(event) || closes(event, connection);
        match self.wait_for(timeout, wanted)? {
            Event::Completion(completion) => Ok(completion),
            closed => {
                self.queue.push_back(closed);
                let Event::Closed { reason, .. } = closed else { return Err(BlockingError::TimedOut) };
                Err(BlockingError::Closed(reason))
            }
        }
    }

    /// Posts a work request and waits for its end. The id is chosen here, above 2^63.
    ///
    /// # Errors
    /// [`BlockingError::Failed`] if it ends in anything but success, and as for
    /// [`wait_completion`](Self::wait_completion). After a time-out the request is still under way.
    pub fn perform(
        &mut self,
        connection: ConnectionHandle,
        stream: StreamId,
        operation: Operation,
        segments: &[Segment],
        timeout: Duration,
    ) -> Result<Completion, BlockingError> {
        let id = self.fresh_id();
        let until = Instant::now().checked_add(timeout);
        let request = WorkRequest::new(id, operation, segments);
        loop {
            match self.driver.post(connection, stream, request) {
                Ok(()) => break,
                Err(PostError::Full) => self.run_once(until)?,
                Err(error) => return Err(error.into()),
            }
        }
        self.finish(connection, stream, id, until)
    }

    /// Writes `segments` into the peer's memory, and waits until they are placed there.
    ///
    /// # Errors
    /// As for [`perform`](Self::perform).
    pub fn write(
        &mut self,
        connection: ConnectionHandle,
        stream: StreamId,
        segments: &[Segment],
        remote: RemoteAddress,
        timeout: Duration,
    ) -> Result<Completion, BlockingError> {
        self.perform(connection, stream, Operation::Write { remote, immediate: None }, segments, timeout)
    }

    /// Reads from the peer's memory into `segments`, and waits until all is there.
    ///
    /// # Errors
    /// As for [`perform`](Self::perform).
    pub fn read(
        &mut self,
        connection: ConnectionHandle,
        stream: StreamId,
        segments: &[Segment],
        remote: RemoteAddress,
        timeout: Duration,
    ) -> Result<Completion, BlockingError> {
        self.perform(connection, stream, Operation::Read { remote }, segments, timeout)
    }

    /// Sends `segments` into the peer's next posted receive, and waits until they are placed there.
    ///
    /// # Errors
    /// As for [`perform`](Self::perform).
    pub fn send(
        &mut self,
        connection: ConnectionHandle,
        stream: StreamId,
        segments: &[Segment],
        timeout: Duration,
    ) -> Result<Completion, BlockingError> {
        self.perform(connection, stream, Operation::Send { immediate: None }, segments, timeout)
    }

    /// Posts a receive into `segments` and waits for the message that consumes it.
    ///
    /// # Errors
    /// As for [`perform`](Self::perform).
    pub fn receive(
        &mut self,
        connection: ConnectionHandle,
        stream: StreamId,
        segments: &[Segment],
        timeout: Duration,
    ) -> Result<Completion, BlockingError> {
        let id = self.fresh_id();
        let until = Instant::now().checked_add(timeout);
        self.driver.post_recv(connection, stream, id, segments)?;
        self.finish(connection, stream, id, until)
    }
}

impl<B: Backend> BlockingDriver<B> {
    fn fresh_id(&mut self) -> u64 {
        self.next_id = self.next_id.wrapping_add(1) | ID_FIRST;
        self.next_id
    }

    fn finish(
        &mut self,
        connection: ConnectionHandle,
        stream: StreamId,
        id: u64,
        until: Option<Instant>,
    ) -> Result<Completion, BlockingError> {
        let completion = self.wait_completion(connection, stream, id, remaining(until))?;
        if completion.status == Status::Success {
            Ok(completion)
        } else {
            Err(BlockingError::Failed(completion))
        }
    }

    /// Takes the first event that is `wanted`, from the queue or as it comes; the others stay queued in order.
    fn wait_for(
        &mut self,
        timeout: Duration,
        wanted: impl Fn(&Event) -> bool,
    ) -> Result<Event, BlockingError> {
        if let Some(event) = self.queue.iter().position(&wanted).and_then(|at| self.queue.remove(at)) {
            return Ok(event);
        }
        let until = Instant::now().checked_add(timeout);
        loop {
            let turn = self.driver.turn()?;
            while let Some(event) = self.driver.poll_event() {
                if wanted(&event) {
                    return Ok(event);
                }
                self.queue.push_back(event);
            }
            let now = Instant::now();
            if until.is_some_and(|until| now >= until) {
                return Err(BlockingError::TimedOut);
            }
            if !turn.more {
                self.idle(now, until)?;
            }
        }
    }

    /// Nothing to do: waits until a datagram, a deadline or the end of the wait.
    fn idle(&mut self, now: Instant, until: Option<Instant>) -> io::Result<()> {
        self.driver.wait(until.map(|until| until.saturating_duration_since(now)))
    }

    /// One round of the loop while something else is retried; sleeps a little if there was nothing to do.
    fn run_once(&mut self, until: Option<Instant>) -> Result<(), BlockingError> {
        let turn = self.driver.turn()?;
        while let Some(event) = self.driver.poll_event() {
            self.queue.push_back(event);
        }
        let now = Instant::now();
        if until.is_some_and(|until| now >= until) {
            return Err(BlockingError::TimedOut);
        }
        if !turn.more {
            self.idle(now, until)?;
        }
        Ok(())
    }
}

/// Why a blocking call did not get what it waited for.
#[derive(Debug)]
#[non_exhaustive]
pub enum BlockingError {
    /// The sockets are unusable.
    Io(io::Error),
    /// The time is up.
    TimedOut,
    /// The connection ended, or was refused.
    Closed(CloseReason),
    /// The endpoint refused to open, accept or close a connection.
    Connect(ConnectError),
    /// The endpoint refused a work request.
    Post(PostError),
    /// The work request ended in an error.
    Failed(Completion),
}

impl fmt::Display for BlockingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "sockets are unusable: {error}"),
            Self::TimedOut => f.write_str("timed out"),
            Self::Closed(CloseReason::Rejected(reason)) => {
                write!(f, "peer refused the connection: {reason:?}")
            }
            Self::Closed(reason) => write!(f, "connection ended: {reason:?}"),
            Self::Connect(error) => write!(f, "connection refused by the own endpoint: {error:?}"),
            Self::Post(error) => write!(f, "work request refused: {error}"),
            Self::Failed(completion) => write!(f, "work request failed: {:?}", completion.status),
        }
    }
}

impl std::error::Error for BlockingError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            Self::Post(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for BlockingError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<ConnectError> for BlockingError {
    fn from(error: ConnectError) -> Self {
        Self::Connect(error)
    }
}

impl From<PostError> for BlockingError {
    fn from(error: PostError) -> Self {
        Self::Post(error)
    }
}

/// Whether an event ends a connection.
fn closes(event: &Event, connection: ConnectionHandle) -> bool {
    matches!(*event, Event::Closed { connection: closed, .. } if closed == connection)
}

/// Time left until a point that may be never.
fn remaining(until: Option<Instant>) -> Duration {
    until.map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()))
}

/// Ids of work requests that are chosen here have the highest bit set.
const ID_FIRST: u64 = 1 << 63;
