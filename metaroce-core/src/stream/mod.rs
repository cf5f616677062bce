//! Streams: ordered messages. The requester half sends them, the responder half lets them take effect in order.

mod credit;
mod effect;
mod ending;
mod message;
mod posting;
mod queue;
mod receive;
mod refusal;
mod requester;
mod responder;
mod tags;
mod work;

pub(crate) use credit::on_credit;
pub(crate) use ending::{
    advance, end_stream, flush_messages, flush_receives, on_stream_reset, step_teardown,
};
pub use message::Message;
pub(crate) use posting::{post, post_datagram};
pub use queue::Queue;
pub(crate) use queue::{
    attach, create as create_queue, destroy as destroy_queue, on_datagram, post as post_queue,
};
pub(crate) use receive::post_recv;
pub use receive::{Receive, TagEntry};
pub(crate) use refusal::{on_nack, resume};
pub use requester::Requester;
pub(crate) use requester::{NextCut, may_cut, next_cut, on_response, on_result, on_verdict, refresh};
pub use responder::Responder;
pub(crate) use responder::{Judged, on_request};
pub(crate) use work::{Cut, Options, gather};
pub use work::{InStream, Responding, Work, WorkKind};

use crate::connection::Connection;
use crate::event::{Event, Status};
use crate::ids::{Csn, StreamId};
use crate::lifecycle::{self, StreamState};
use crate::list::{Linked, Links};
use crate::stats::{Limit, StreamStats};
use crate::table::Idx;
use crate::time::Instant;
use crate::view::{Kind, View, key};
use crate::wire::NackReason;

/// One stream of one connection, both directions.
#[derive(Debug)]
pub struct Stream {
    pub(crate) connection: Idx<Connection>,
    pub(crate) id: StreamId,
    pub(crate) phase: Phase,
    pub(crate) requester: Requester,
    pub(crate) responder: Responder,
    /// When the stream wants to be looked at again (refused packets, blocked credit).
    pub(crate) wake_at: Instant,
    of_connection: Links<Self>,
    scheduled: Links<Self>,
    urgent: Links<Self>,
    waiting: Links<Self>,
    blocked: Links<Self>,
}

/// The life of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Work flows.
    Open,
    /// It ended; what is under way runs out, and both sides tell each other by STREAM_RESET.
    Ending {
        /// Our STREAM_RESET.
        ours: ResetProgress,
        /// CSN of the peer's STREAM_RESET.
        theirs: Option<Csn>,
    },
}

impl Phase {
    /// Its name in the table of transitions.
    const fn name(self) -> StreamState {
        match self {
            Self::Open => StreamState::Open,
            Self::Ending { ours: ResetProgress::Unsent, .. } => StreamState::EndingUnsent,
            Self::Ending { ours: ResetProgress::Sent, .. } => StreamState::EndingSent,
            Self::Ending { ours: ResetProgress::Judged, .. } => StreamState::EndingJudged,
        }
    }

    /// Goes on in its life, as [`lifecycle::STREAM`] allows.
    pub(crate) fn become_state(&mut self, next: Self) {
        debug_assert!(
            lifecycle::allows(lifecycle::STREAM, self.name(), next.name()),
            "a stream that is {self:?} must not become {next:?}"
        );
        *self = next;
    }
}

/// How far our STREAM_RESET is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResetProgress {
    /// Waits for the requests to run out.
    Unsent,
    /// On its way.
    Sent,
    /// Has its verdict.
    Judged,
}

/// The list of all streams of a connection.
#[derive(Debug)]
pub struct OfConnection;
/// The list of streams with something to send.
#[derive(Debug)]
pub struct Scheduled;
/// The list of streams that have a frame for the next acknowledgement.
#[derive(Debug)]
pub struct Urgent;
/// The list of streams that wait for a time.
#[derive(Debug)]
pub struct Waiting;
/// The list of streams whose READ or atomic waits until the peer's limit allows one more.
#[derive(Debug)]
pub struct Blocked;

macro_rules! linked {
    ($($tag:ty => $field:ident),*) => {$(
        impl Linked<$tag> for Stream {
            fn links(&self) -> &Links<Self> {
                &self.$field
            }
            fn links_mut(&mut self) -> &mut Links<Self> {
                &mut self.$field
            }
        }
    )*};
}

linked!(
    OfConnection => of_connection,
    Scheduled => scheduled,
    Urgent => urgent,
    Waiting => waiting,
    Blocked => blocked
);

impl Stream {
    /// A slot of a pool, not in use.
    pub const EMPTY: Self = Self {
        connection: Idx::NONE,
        id: StreamId::NONE,
        phase: Phase::Open,
        requester: Requester::NEW,
        responder: Responder::NEW,
        wake_at: Instant::FAR_FUTURE,
        of_connection: Links::UNLINKED,
        scheduled: Links::UNLINKED,
        urgent: Links::UNLINKED,
        waiting: Links::UNLINKED,
        blocked: Links::UNLINKED,
    };

    /// Whether it is in the list of streams with something to send.
    pub(crate) const fn is_scheduled(&self) -> bool {
        self.scheduled.is_linked()
    }

    /// Counters.
    pub(crate) fn stats(&self) -> StreamStats {
        StreamStats {
            ending: !self.is_open(),
            requests_completed: self.requester.completed,
            requests_outstanding: self.requester.works.len(),
            messages_received: self.responder.received,
            receives_posted: self.responder.receives.len().saturating_add(self.responder.tagged.len()),
            refused: self.requester.refusals.counters().packets,
            rnr_rounds: self.requester.refusals.counters().rnr_rounds,
        }
    }

    /// Whether it is in the list of streams that wait for one READ or atomic less.
    pub(crate) const fn is_blocked(&self) -> bool {
        self.blocked.is_linked()
    }

    /// Whether new work may be posted.
    pub(crate) fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }
}

/// The stream `id` of a connection, if it exists.
pub(crate) fn find(view: &View<'_>, connection: Idx<Connection>, id: StreamId) -> Option<Idx<Stream>> {
    view.index.find(key(Kind::Stream, connection.raw(), u32::from(id.0))).map(Idx::new)
}

/// The stream `id`, made if it doesn't exist. `None` when a limit forbids it.
pub(crate) fn find_or_open(
    view: &mut View<'_>,
    connection: Idx<Connection>,
    id: StreamId,
) -> Option<Idx<Stream>> {
    if let Some(stream) = find(view, connection, id) {
        return Some(stream);
    }
    let owner = view.connections.at(connection);
    //= MR-STR-1
    if id == StreamId::NONE || owner.streams.count >= owner.terms.streams {
        return None;
    }
    let stream = view.streams.allocate(Stream { connection, id, ..Stream::EMPTY })?;
    let owner = view.connections.at_mut(connection);
    let fresh = view.streams.at_mut(stream);
    fresh.requester.credits.grant(owner.terms.initial_credits);
    if !view.index.insert(key(Kind::Stream, connection.raw(), u32::from(id.0)), stream.raw()) {
        view.streams.free(stream);
        return None;
    }
    owner.streams.all.push_back(&mut view.streams, stream);
    owner.streams.count += 1;
    Some(stream)
}

/// As [`find_or_open`], for a packet of the peer: the application is told.
pub(crate) fn find_or_accept(
    view: &mut View<'_>,
    connection: Idx<Connection>,
    id: StreamId,
) -> Result<Idx<Stream>, NackReason> {
    if let Some(stream) = find(view, connection, id) {
        return Ok(stream);
    }
    if !view.has_event_room() {
        return Err(NackReason::NoSlot);
    }
    let Some(stream) = find_or_open(view, connection, id) else {
        view.hit(Limit::Streams);
        return Err(NackReason::NoSlot);
    };
    let handle = view.connections.at(connection).handle(connection);
    view.push_event(Event::StreamOpened { connection: handle, stream: id });
    Ok(stream)
}

/// Has the stream looked at again at `at`, or earlier.
pub(crate) fn wait_until(view: &mut View<'_>, stream: Idx<Stream>, at: Instant) {
    let entry = view.streams.at_mut(stream);
    let connection = entry.connection;
    entry.wake_at = if entry.waiting.is_linked() { entry.wake_at.min(at) } else { at };
    if !entry.waiting.is_linked() {
        view.connections.at_mut(connection).streams.waiting.push_back(&mut view.streams, stream);
    }
    view.arm(connection, at);
}

/// Puts a frame about the stream into the next acknowledgement.
pub(crate) fn make_urgent(view: &mut View<'_>, stream: Idx<Stream>) {
    let entry = view.streams.at(stream);
    let connection = entry.connection;
    if !entry.urgent.is_linked() {
        view.connections.at_mut(connection).streams.urgent.push_back(&mut view.streams, stream);
    }
}

/// Frees a stream of which nothing is left.
pub(crate) fn release(view: &mut View<'_>, stream: Idx<Stream>) {
    let entry = view.streams.at(stream);
    let (connection, id) = (entry.connection, entry.id);
    let (scheduled, urgent, waiting, blocked) =
        (entry.is_scheduled(), entry.urgent.is_linked(), entry.waiting.is_linked(), entry.is_blocked());
    let streams = &mut view.connections.at_mut(connection).streams;
    if scheduled {
        streams.scheduled.remove(&mut view.streams, stream);
    }
    if urgent {
        streams.urgent.remove(&mut view.streams, stream);
    }
    if waiting {
        streams.waiting.remove(&mut view.streams, stream);
    }
    if blocked {
        streams.blocked.remove(&mut view.streams, stream);
    }
    streams.all.remove(&mut view.streams, stream);
    streams.count = streams.count.saturating_sub(1);
    queue::detach(view, stream);
    view.index.remove(key(Kind::Stream, connection.raw(), u32::from(id.0)));
    view.streams.free(stream);
}

/// Status codes of RESULT and STREAM_RESET on the wire.
//= MR-STR-22
pub(crate) const fn status_code(status: Status) -> u32 {
    match status {
        Status::Success => 0,
        Status::RemoteAccess => 1,
        Status::RemoteOperation => 2,
        Status::RemoteInvalid => 3,
        Status::RnrExceeded => 4,
        Status::PeerClosed => 5,
        _ => 6,
    }
}

/// What a status code of the peer means here.
pub(crate) const fn status_of(code: u32) -> Status {
    match code {
        1 => Status::RemoteAccess,
        2 => Status::RemoteOperation,
        3 => Status::RemoteInvalid,
        4 => Status::RnrExceeded,
        5 => Status::PeerClosed,
        _ => Status::Flushed,
    }
}

#[cfg(test)]
#[cfg(feature = "alloc")]
mod tests;
