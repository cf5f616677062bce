//! Waiting for mio with less delay than `Poll::poll` alone.

use std::io;
use std::time::{Duration, Instant};

use mio::{Events, Poll};

use crate::sys;

/// Waits for an event, or until `timeout` has passed (`None`: for ever): `Poll::poll`, but
///
/// * looks for events for `spin` before it sleeps. To be woken up takes some 50 µs on a virtual machine, where a round
///   trip takes 6 µs; spinning keeps a processor busy.
/// * sleeps with the resolution of the system's timers (Linux), where `Poll::poll` rounds up to whole milliseconds.
/// * ends without an event or error when a signal comes in between.
///
/// Returns how many system calls that took.
///
/// # Errors
/// What the system says.
pub fn wait(
    poll: &mut Poll,
    events: &mut Events,
    timeout: Option<Duration>,
    spin: Duration,
) -> io::Result<u64> {
    let spin = spin_time(timeout, spin);
    let start = Instant::now();
    let mut calls = 0;
    loop {
        calls += 1;
        poll_once(poll, events, Some(Duration::ZERO))?;
        let spent = start.elapsed();
        if !events.is_empty() || timeout.is_some_and(|timeout| spent >= timeout) {
            return Ok(calls);
        }
        if spent >= spin {
            break;
        }
        std::hint::spin_loop();
    }
    match timeout.map(|timeout| timeout.saturating_sub(start.elapsed())) {
        Some(left) if left < FINE_BELOW && sys::wait_readable(poll, left)? => {
            poll_once(poll, events, Some(Duration::ZERO))?;
            Ok(calls + 2)
        }
        left => {
            poll_once(poll, events, left)?;
            Ok(calls + 1)
        }
    }
}

/// How long to look without sleeping before a sleep that ends after `timeout`, if `spin` is what the user allows: all of
/// it, if it is too short to sleep.
#[must_use]
pub fn spin_time(timeout: Option<Duration>, spin: Duration) -> Duration {
    match timeout {
        Some(timeout) if timeout < SLEEP_MIN => timeout,
        Some(timeout) => spin.min(timeout),
        None => spin,
    }
}

fn poll_once(poll: &mut Poll, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
    match poll.poll(events, timeout) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
        result => result,
    }
}

/// Waits below this are spun through: the shortest sleep takes longer.
const SLEEP_MIN: Duration = Duration::from_micros(30);

/// Waits below this are worth a call of their own to be exact.
const FINE_BELOW: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use mio::{Token, Waker};

    use super::*;

    fn elapsed(timeout: Duration, spin: Duration, wake: bool) -> (Duration, bool) {
        let mut poll = Poll::new().expect("a poll");
        let mut events = Events::with_capacity(4);
        let waker = Waker::new(poll.registry(), Token(0)).expect("a waker");
        if wake {
            waker.wake().expect("woken");
        }
        let start = Instant::now();
        wait(&mut poll, &mut events, Some(timeout), spin).expect("waited");
        (start.elapsed(), !events.is_empty())
    }

    #[test]
    fn a_wait_without_events_takes_its_time_whether_spun_or_slept() {
        for micros in [0, 10, 200, 1500, 25_000] {
            for spin in [0, 100] {
                let timeout = Duration::from_micros(micros);
                let (elapsed, woken) = elapsed(timeout, Duration::from_micros(spin), false);
                assert!(!woken && elapsed >= timeout, "{timeout:?}: {elapsed:?}");
            }
        }
    }

    #[test]
    fn an_event_ends_the_wait() {
        for spin in [0, 100] {
            let (elapsed, woken) = elapsed(Duration::from_secs(5), Duration::from_micros(spin), true);
            assert!(woken && elapsed < Duration::from_secs(1));
        }
    }
}
