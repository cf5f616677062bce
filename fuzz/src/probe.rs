//! Single calls into the core, each behind a function of its own: callgrind counts the instructions in it
//! (`tests/work.rs`), and [`slowest`] times them.

use std::cell::RefCell;
use std::time::{Duration, Instant as Clock};

use metaroce_core::{Datagram, Disposition, Endpoint, HeapStorage, Instant, Memory, Progress, Transmit};

/// Hands in a datagram.
pub fn handle_datagram(
    endpoint: &mut Endpoint<HeapStorage>,
    now: Instant,
    datagram: Datagram<'_>,
    memory: &mut dyn Memory,
) -> Disposition {
    timed(|| measured_datagram(endpoint, now, datagram, memory))
}

/// Lets timers fire.
pub fn handle_timeout(endpoint: &mut Endpoint<HeapStorage>, now: Instant) -> Progress {
    timed(|| measured_timeout(endpoint, now))
}

/// Fills descriptors.
pub fn poll_transmit(endpoint: &mut Endpoint<HeapStorage>, now: Instant, out: &mut [Transmit]) -> usize {
    timed(|| measured_transmit(endpoint, now, out))
}

#[inline(never)]
fn measured_datagram(
    endpoint: &mut Endpoint<HeapStorage>,
    now: Instant,
    datagram: Datagram<'_>,
    memory: &mut dyn Memory,
) -> Disposition {
    endpoint.handle_datagram(now, datagram, memory)
}

#[inline(never)]
fn measured_timeout(endpoint: &mut Endpoint<HeapStorage>, now: Instant) -> Progress {
    endpoint.handle_timeout(now)
}

#[inline(never)]
fn measured_transmit(endpoint: &mut Endpoint<HeapStorage>, now: Instant, out: &mut [Transmit]) -> usize {
    endpoint.poll_transmit(now, out)
}

thread_local! {
    /// How long each call took, while they are timed.
    static TIMES: RefCell<Option<Vec<Duration>>> = const { RefCell::new(None) };
}

fn timed<R>(call: impl FnOnce() -> R) -> R {
    if TIMES.with_borrow(Option::is_none) {
        return call();
    }
    let start = Clock::now();
    let result = call();
    let span = start.elapsed();
    TIMES.with_borrow_mut(|times| times.as_mut().unwrap().push(span));
    result
}

/// Runs an input several times; how long its slowest call took at least.
#[must_use]
pub fn slowest(run: impl Fn()) -> Duration {
    let mut least: Vec<Duration> = Vec::new();
    for _ in 0..5 {
        TIMES.set(Some(Vec::new()));
        run();
        let times = TIMES.take().unwrap_or_default();
        if least.is_empty() {
            least.clone_from(&times);
        }
        for (least, time) in least.iter_mut().zip(times) {
            *least = time.min(*least);
        }
    }
    least.into_iter().max().unwrap_or_default()
}
