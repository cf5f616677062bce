//! A driver in an event loop of our own, which other threads can wake and Ctrl-C ends.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use metaroce::Event;
use metaroce_mio::{Driver, DriverConfig};
use mio::{Events, Interest, Poll, Token, Waker};

use crate::{capture, trace};

/// The loop: [`turn`](Self::turn), take the events, do one's own work, [`sleep`](Self::sleep) if there was none.
#[derive(Debug)]
pub(crate) struct Reactor {
    pub(crate) driver: Driver,
    poll: Poll,
    ready: Events,
    waker: Arc<Waker>,
    more: bool,
}

impl Reactor {
    /// Opens the sockets.
    ///
    /// # Errors
    /// When an address is taken or not ours, or the system gives no sockets.
    pub(crate) fn new(config: DriverConfig) -> anyhow::Result<Self> {
        let local = config.local.first().map_or_else(String::new, ToString::to_string);
        let mut driver = Driver::new(config).with_context(|| format!("cannot listen on {local}"))?;
        capture::attach(&mut driver);
        let poll = Poll::new().context("cannot make an event queue")?;
        poll.registry()
            .register(&mut driver, DRIVER, Interest::READABLE)
            .context("cannot register the sockets")?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER).context("cannot make a waker")?);
        Ok(Self { driver, poll, ready: Events::with_capacity(16), waker, more: false })
    }

    /// What wakes this loop from another thread.
    pub(crate) fn waker(&self) -> Arc<Waker> {
        Arc::clone(&self.waker)
    }

    /// Receives, lets timers run and sends, all for a bounded time.
    ///
    /// # Errors
    /// When the sockets are unusable.
    pub(crate) fn turn(&mut self) -> anyhow::Result<()> {
        self.more = self.driver.turn().context("the network sockets failed")?.more;
        Ok(())
    }

    /// The next event, shown as `-v` asks.
    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        let event = self.driver.poll_event()?;
        trace::event(&event);
        Some(event)
    }

    /// Waits until there is something to do, at most `limit`; returns at once if the last turn left work.
    ///
    /// # Errors
    /// When waiting fails.
    pub(crate) fn sleep(&mut self, limit: Duration) -> anyhow::Result<()> {
        if self.more {
            return Ok(());
        }
        let due = self.driver.deadline().map(|at| at.saturating_duration_since(Instant::now()));
        let timeout = due.map_or(limit, |due| due.min(limit));
        match self.poll.poll(&mut self.ready, Some(timeout)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                Err(error).context("cannot wait for events")
            }
            _ => Ok(()),
        }
    }
}

/// How long a loop sleeps at most before it looks for Ctrl-C.
pub(crate) const IDLE_MAX: Duration = Duration::from_millis(100);

const DRIVER: Token = Token(0);
const WAKER: Token = Token(1);
