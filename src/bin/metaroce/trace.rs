//! Lines on standard error: events as `-v` asks.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Instant;

use metaroce::wire::RejectReason;
use metaroce::{CloseReason, Event, Status};

static LEVEL: AtomicU8 = AtomicU8::new(0);

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// 0 shows nothing, 1 what happens to connections and streams, 2 also completions.
pub(crate) fn set_level(level: u8) {
    LEVEL.store(level, Ordering::Relaxed);
    LazyLock::force(&START);
}

/// Shows an event.
pub(crate) fn event(event: &Event) {
    let wanted = if matches!(event, Event::Completion(_)) { 2 } else { 1 };
    if LEVEL.load(Ordering::Relaxed) >= wanted {
        print(&describe(event));
    }
}

/// Shows a line at level 1.
pub(crate) fn line(text: impl FnOnce() -> String) {
    if LEVEL.load(Ordering::Relaxed) >= 1 {
        print(&text());
    }
}

/// Why a connection ended, in a sentence without its end.
pub(crate) fn close_reason(reason: CloseReason) -> String {
    match reason {
        CloseReason::Local => "closed from this side".to_owned(),
        CloseReason::Peer => "closed by the peer".to_owned(),
        CloseReason::Rejected(reason) => format!("refused: {}", reject_reason(reason)),
        CloseReason::Reset => "the peer does not know this connection any more".to_owned(),
        CloseReason::TimedOut => "no answer from the peer".to_owned(),
        other => format!("{other:?}"),
    }
}

/// Why a work request failed.
pub(crate) fn status(status: Status) -> String {
    match status {
        Status::RemoteAccess => "the peer refused access to its memory".to_owned(),
        Status::RetryExceeded => "nothing got through to the peer for too long".to_owned(),
        Status::PeerClosed => "the peer closed the connection".to_owned(),
        other => format!("{other:?}"),
    }
}

fn reject_reason(reason: RejectReason) -> String {
    match reason {
        RejectReason::NoListener => "nobody listens for this service there".to_owned(),
        RejectReason::Version => "the protocol versions do not meet".to_owned(),
        RejectReason::Busy => "the peer is busy".to_owned(),
        RejectReason::Limits => "the limits of both sides do not meet".to_owned(),
        RejectReason::Closed => "the peer is closing".to_owned(),
        RejectReason::Application(code) => format!("the application's reason {code}"),
    }
}

fn print(line: &str) {
    eprintln!("{:>9.3} ms  {line}", START.elapsed().as_secs_f64() * 1e3);
}

fn describe(event: &Event) -> String {
    match event {
        Event::Incoming { connection, remote, service, .. } => {
            format!("connection {}: incoming from {remote}, service {service:#x}", connection.slot())
        }
        Event::Connected { connection } => format!("connection {}: open", connection.slot()),
        Event::Closed { connection, reason, .. } => {
            format!("connection {}: over, {}", connection.slot(), close_reason(*reason))
        }
        Event::StreamOpened { connection, stream } => {
            format!("connection {}: the peer opened stream {}", connection.slot(), stream.0)
        }
        Event::StreamEnded { connection, stream, status } => {
            format!("connection {}: stream {} ended: {status:?}", connection.slot(), stream.0)
        }
        Event::Completion(done) => format!(
            "connection {}: stream {}: {:?} {} of {} bytes: {:?}",
            done.connection.slot(),
            done.stream.0,
            done.kind,
            done.id,
            done.bytes,
            done.status
        ),
        other => format!("{other:?}"),
    }
}
