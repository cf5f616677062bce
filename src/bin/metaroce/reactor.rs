//! A driver in an event loop of our own, which other threads can wake and Ctrl-C ends.

use std::time::Duration;

use anyhow::Context as _;
use metaroce::Event;
use metaroce_mio::{BuildError, DriverConfig, Waker};

use crate::backend::{self, Driver};
use crate::{capture, trace};

/// The loop: [`turn`](Self::turn), take the events, do one's own work, [`sleep`](Self::sleep) if there was none.
#[derive(Debug)]
pub(crate) struct Reactor {
    pub(crate) driver: Box<Driver>,
    waker: Waker,
    more: bool,
}

impl Reactor {
    /// Opens the sockets, with the backend that the command line names.
    ///
    /// # Errors
    /// When an address is taken or not ours, or the system gives no sockets.
    pub(crate) fn new(config: DriverConfig) -> anyhow::Result<Self> {
        let local = config.local.first().map_or_else(String::new, ToString::to_string);
        let mut driver = backend::open(config).map_err(|error| match error {
            BuildError::Io(_) => anyhow::Error::new(error).context(format!("cannot listen on {local}")),
            other => other.into(),
        })?;
        capture::attach(&mut driver);
        let waker = driver.waker().context("cannot make a waker")?;
        Ok(Self { driver, waker, more: false })
    }

    /// What wakes this loop from another thread.
    pub(crate) fn waker(&self) -> Waker {
        self.waker.clone()
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
        self.driver.wait(Some(limit)).context("cannot wait for events")
    }
}

/// How long a loop sleeps at most before it looks for Ctrl-C.
pub(crate) const IDLE_MAX: Duration = Duration::from_millis(100);
