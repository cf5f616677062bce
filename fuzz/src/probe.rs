//! Single calls into the core, each behind a function of its own: callgrind counts the instructions in it
//! (`tests/work.rs`), and [`slowest`] times them.

use std::cell::RefCell;
use std::time::{Duration, Instant as Clock};

use metaroce_core::{
    ConnectionHandle, Datagram, Disposition, Endpoint, HeapStorage, Instant, Memory, PostError, Progress,
    StreamId, Transmit, WorkRequest,
};

/// Hands in a datagram.
pub fn handle_datagram(
    endpoint: &mut Endpoint<HeapStorage>,
    now: Instant,
    datagram: Datagram<'_>,
    memory: &mut dyn Memory,
) -> Disposition {
    timed(Call::Datagram, || measured_datagram(endpoint, now, datagram, memory))
}

/// Lets timers fire.
pub fn handle_timeout(endpoint: &mut Endpoint<HeapStorage>, now: Instant) -> Progress {
    timed(Call::Timeout, || measured_timeout(endpoint, now))
}

/// Fills descriptors.
pub fn poll_transmit(endpoint: &mut Endpoint<HeapStorage>, now: Instant, out: &mut [Transmit]) -> usize {
    timed(Call::Transmit, || measured_transmit(endpoint, now, out))
}

/// Posts a work request.
///
/// # Errors
/// The core's.
pub fn post(
    endpoint: &mut Endpoint<HeapStorage>,
    now: Instant,
    connection: ConnectionHandle,
    stream: StreamId,
    request: WorkRequest<'_>,
) -> Result<(), PostError> {
    timed(Call::Post, || measured_post(endpoint, now, connection, stream, request))
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

#[inline(never)]
fn measured_post(
    endpoint: &mut Endpoint<HeapStorage>,
    now: Instant,
    connection: ConnectionHandle,
    stream: StreamId,
    request: WorkRequest<'_>,
) -> Result<(), PostError> {
    endpoint.post(now, connection, stream, request)
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// `handle_datagram`.
    Datagram,
    /// `handle_timeout`.
    Timeout,
    /// `poll_transmit`.
    Transmit,
    /// `post`.
    Post,
}

impl Call {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Datagram, Self::Timeout, Self::Transmit, Self::Post];
}

thread_local! {
    /// How long each call took, while they are timed.
    static TIMES: RefCell<Option<Vec<(Call, Duration)>>> = const { RefCell::new(None) };
}

fn timed<R>(kind: Call, call: impl FnOnce() -> R) -> R {
    if TIMES.with_borrow(Option::is_none) {
        return call();
    }
    let start = Clock::now();
    let result = call();
    let span = start.elapsed();
    TIMES.with_borrow_mut(|times| times.as_mut().unwrap().push((kind, span)));
    result
}

/// Runs an input several times; how long its slowest call of each kind took at least, in the order of [`Call::ALL`].
#[must_use]
pub fn slowest(run: impl Fn()) -> [Duration; 4] {
    let mut least: Vec<(Call, Duration)> = Vec::new();
    for _ in 0..5 {
        TIMES.set(Some(Vec::new()));
        run();
        let times = TIMES.take().unwrap_or_default();
        if least.is_empty() {
            least.clone_from(&times);
        }
        // The same input makes the same calls.
        for ((_, least), (_, time)) in least.iter_mut().zip(times) {
            *least = time.min(*least);
        }
    }
    Call::ALL.map(|kind| {
        least.iter().filter(|(call, _)| *call == kind).map(|(_, span)| *span).max().unwrap_or_default()
    })
}
