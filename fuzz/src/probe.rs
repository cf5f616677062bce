//! Single calls into the core: each is numbered within its kind, can be timed, and can be the one that callgrind counts the
//! instructions of.

use std::cell::RefCell;
use std::time::{Duration, Instant as Clock};

use metaroce_core::{
    ConnectionHandle, Datagram, Disposition, Endpoint, Event, HeapStorage, Instant, Memory, PostError,
    Progress, StreamId, Transmit, WorkRequest,
};

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
    /// `poll_event`.
    Event,
}

impl Call {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Datagram, Self::Timeout, Self::Transmit, Self::Post, Self::Event];

    /// The one with this name, as [`Debug`](core::fmt::Debug) writes it.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|call| format!("{call:?}") == name)
    }
}

/// Hands in a datagram.
pub fn handle_datagram(
    endpoint: &mut Endpoint<HeapStorage>,
    now: Instant,
    datagram: Datagram<'_>,
    memory: &mut dyn Memory,
) -> Disposition {
    observed(Call::Datagram, || endpoint.handle_datagram(now, datagram, memory))
}

/// Lets timers fire.
pub fn handle_timeout(endpoint: &mut Endpoint<HeapStorage>, now: Instant) -> Progress {
    observed(Call::Timeout, || endpoint.handle_timeout(now))
}

/// Fills descriptors.
pub fn poll_transmit(endpoint: &mut Endpoint<HeapStorage>, now: Instant, out: &mut [Transmit]) -> usize {
    observed(Call::Transmit, || endpoint.poll_transmit(now, out))
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
    observed(Call::Post, || endpoint.post(now, connection, stream, request))
}

/// Takes an event.
pub fn poll_event(endpoint: &mut Endpoint<HeapStorage>) -> Option<Event> {
    observed(Call::Event, || endpoint.poll_event())
}

/// One call: the `number`-th of its kind in a run, from 0, and how long it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timed {
    /// Its kind.
    pub call: Call,
    /// Its number.
    pub number: usize,
    /// Its time.
    pub span: Duration,
}

/// Runs an input several times: the calls that it makes, the slowest first, each with its shortest time.
#[must_use]
pub fn timed(run: impl Fn()) -> Vec<Timed> {
    let mut least: Vec<Timed> = Vec::new();
    for _ in 0..5 {
        WATCH.set(Watch::Time(Vec::new()));
        run();
        let Watch::Time(times) = WATCH.take() else { continue };
        if least.is_empty() {
            least.clone_from(&times);
        }
        // The same input makes the same calls.
        for (least, time) in least.iter_mut().zip(times) {
            least.span = least.span.min(time.span);
        }
    }
    for kind in Call::ALL {
        for (timed, number) in least.iter_mut().filter(|timed| timed.call == kind).zip(0..) {
            timed.number = number;
        }
    }
    least.sort_by_key(|timed| std::cmp::Reverse(timed.span));
    least
}

/// Runs an input, and has one call of it counted. Returns whether it came to that call.
pub fn run_counted(call: Call, number: usize, run: impl Fn()) -> bool {
    WATCH.set(Watch::Count { call, left: number });
    run();
    matches!(WATCH.take(), Watch::Nothing)
}

/// Makes a call that callgrind counts: it is told to collect in this function only. Nothing else marks it, so that the same
/// program runs without valgrind.
pub fn counted<R>(call: impl FnOnce() -> R) -> Option<R> {
    let (mut call, mut result) = (Some(call), None);
    counted_call(&mut || result = call.take().map(|call| call()));
    result
}

/// Name of the function that callgrind is told of.
pub const COUNTED: &str = "counted_call";

#[inline(never)]
fn counted_call(call: &mut dyn FnMut()) {
    call();
    // Or else the call above could be a jump.
    std::hint::black_box(());
}

/// What is done with the calls of this thread.
#[derive(Default)]
enum Watch {
    #[default]
    Nothing,
    Time(Vec<Timed>),
    /// The call of this kind after so many others is counted.
    Count {
        call: Call,
        left: usize,
    },
}

thread_local! {
    static WATCH: RefCell<Watch> = const { RefCell::new(Watch::Nothing) };
}

fn observed<R>(kind: Call, call: impl FnOnce() -> R) -> R {
    enum Task {
        Run,
        Time,
        Count,
    }
    let task = WATCH.with_borrow_mut(|watch| match watch {
        Watch::Time(_) => Task::Time,
        Watch::Count { call, left: 0 } if *call == kind => {
            *watch = Watch::Nothing;
            Task::Count
        }
        Watch::Count { call, left } if *call == kind => {
            *left -= 1;
            Task::Run
        }
        _ => Task::Run,
    });
    match task {
        Task::Run => call(),
        Task::Count => counted(call).unwrap(),
        Task::Time => {
            let start = Clock::now();
            let result = call();
            let span = start.elapsed();
            WATCH.with_borrow_mut(|watch| {
                if let Watch::Time(times) = watch {
                    times.push(Timed { call: kind, number: 0, span });
                }
            });
            result
        }
    }
}
