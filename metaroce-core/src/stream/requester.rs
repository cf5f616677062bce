//! The requester half of a stream: posted requests, what may be sent of them, and their completion in order.

use crate::connection::Connection;
use crate::delivery::{Packet, Place};
use crate::event::{Completion, Event, Status};
use crate::ids::{Msn, ReceiveIndex, Serial};
use crate::list::List;
use crate::memory::Memory;
use crate::path::Verdict;
use crate::pool::Pool;
use crate::region;
use crate::stream::credit::Credits;
use crate::stream::receive::scatter;
use crate::stream::refusal::{self, Refusals};
use crate::stream::{
    Cut, InStream, Phase, ResetProgress, Stream, Work, WorkKind, ending, find, responder, status_of,
    wait_until,
};
use crate::table::Idx;
use crate::time::Instant;
use crate::view::{Kind, View, key};
use crate::wire::{DataHeader, Opcode};

/// What a stream has to send.
#[derive(Debug)]
pub struct Requester {
    /// All requests without completion, in MSN order.
    pub(crate) works: List<Work, InStream>,
    /// The first that has not been cut whole.
    pub(crate) cursor: Idx<Work>,
    next_msn: Msn,
    /// Receives used so far.
    next_receive: ReceiveIndex,
    /// Tagged messages so far.
    next_tagged: ReceiveIndex,
    pub(crate) credits: Credits,
    pub(crate) refusals: Refusals,
    /// Requests completed.
    pub(crate) completed: u64,
    /// READs and atomics without response.
    responses_due: u32,
    /// From this MSN on everything fails, for this reason.
    pub(crate) end: Option<(Msn, Status)>,
}

impl Requester {
    pub(crate) const NEW: Self = Self {
        works: List::EMPTY,
        cursor: Idx::NONE,
        //= MR-HS-6
        next_msn: Msn::new(0),
        next_receive: ReceiveIndex::new(0),
        next_tagged: ReceiveIndex::new(0),
        credits: Credits::NEW,
        refusals: Refusals::NEW,
        completed: 0,
        responses_due: 0,
        end: None,
    };

    /// Queues a request that has the next MSN.
    pub(crate) fn push(&mut self, works: &mut Pool<'_, Work>, slot: Idx<Work>) {
        self.next_msn = self.next_msn.plus(1);
        self.works.push_back(works, slot);
        if self.cursor.is_none() {
            self.cursor = slot;
        }
    }

    /// Goes on as after so many messages and receives (for tests).
    pub(crate) fn start_at(&mut self, msn: Msn, receive: ReceiveIndex, credits: u32) {
        self.next_msn = msn;
        self.next_receive = receive;
        self.credits.start_at(receive, credits);
    }

    /// MSN that the next request gets.
    pub(crate) const fn next_msn(&self) -> Msn {
        self.next_msn
    }
}

/// What stands between a stream and its next packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    Open,
    Idle,
    /// Waits for an event that refreshes the stream: a completion, a response, a retry.
    Waiting,
    NoCredit,
    /// Waits for one READ or atomic less, of any stream.
    ReadsFull,
}

fn gate(view: &View<'_>, stream: Idx<Stream>) -> Gate {
    let entry = view.streams.at(stream);
    let requester = &entry.requester;
    let connection = view.connections.at(entry.connection);
    let Some(cursor) = requester.cursor.get() else { return Gate::Idle };
    //= MR-DLV-12
    if !requester.refusals.is_empty() || !connection.may_send_requests() {
        return Gate::Waiting;
    }
    let work = view.works.at(cursor);
    if work.progress != Cut::From(0) {
        return Gate::Open;
    }
    let oldest = requester.works.front().map_or(work.msn, |front| view.works.at(front).msn);
    let window_full = work.msn.raw().wrapping_sub(oldest.raw()) >= connection.terms.message_window;
    //= MR-OP-15
    let fenced = work.options.fence && requester.responses_due > 0;
    //= MR-OP-14
    let reads_full =
        work.wants_response() && connection.streams.responses_due >= u32::from(connection.terms.reads);
    if window_full || fenced {
        Gate::Waiting
    } else if reads_full {
        Gate::ReadsFull
    } else if work.needs_credit()
        && !requester.credits.allow(requester.next_receive)
        && !connection.peer_closes()
    {
        Gate::NoCredit
    } else {
        Gate::Open
    }
}

/// Puts the stream into, or takes it out of, the connection's list of streams with something to send.
pub(crate) fn refresh(view: &mut View<'_>, now: Instant, stream: Idx<Stream>) {
    let gate = gate(view, stream);
    let entry = view.streams.at_mut(stream);
    let connection = entry.connection;
    let (scheduled, blocked) = (entry.is_scheduled(), entry.is_blocked());
    if gate == Gate::NoCredit {
        if let Some(at) = entry.requester.credits.start_asking(now, view.config.pto_ns_min) {
            wait_until(view, stream, at);
        }
    } else {
        entry.requester.credits.stop_asking();
    }
    let streams = &mut view.connections.at_mut(connection).streams;
    if gate == Gate::ReadsFull && !blocked {
        streams.blocked.push_back(&mut view.streams, stream);
    } else if gate != Gate::ReadsFull && blocked {
        streams.blocked.remove(&mut view.streams, stream);
    }
    if gate == Gate::Open {
        if !scheduled {
            streams.scheduled.push_back(&mut view.streams, stream);
        }
        view.mark_ready(connection);
    } else if scheduled {
        streams.scheduled.remove(&mut view.streams, stream);
        // The READ that it was let through for, if any, may be another stream's.
        wake_blocked(view, now, connection);
    }
}

/// Whether the next packet of a scheduled stream may be cut now; takes the stream off the schedule if not. What other
/// streams sent since it was scheduled can have used up the peer's limit of READs.
pub(crate) fn may_cut(view: &mut View<'_>, now: Instant, stream: Idx<Stream>) -> bool {
    let open = gate(view, stream) == Gate::Open;
    if !open {
        refresh(view, now, stream);
    }
    open
}

/// Lets the next stream through that waits for one READ or atomic less. Each waiting stream is looked at once at most.
fn wake_blocked(view: &mut View<'_>, now: Instant, connection: Idx<Connection>) {
    loop {
        let owner = view.connections.at_mut(connection);
        if owner.streams.responses_due >= u32::from(owner.terms.reads) {
            break;
        }
        //= MR-STR-29
        let Some(stream) = owner.streams.blocked.pop_front(&mut view.streams) else { break };
        refresh(view, now, stream);
        if view.streams.at(stream).is_scheduled() {
            break;
        }
    }
}

/// The next packet that a work wants cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NextCut {
    pub(crate) offset: u32,
    pub(crate) length: u16,
}

/// Cuts the next packet of at most `payload_bytes` off a work. For a request, the stream moves on when the work is
/// cut whole.
pub(crate) fn next_cut(view: &mut View<'_>, now: Instant, slot: Idx<Work>, payload_bytes: u16) -> NextCut {
    let work = view.works.at_mut(slot);
    let Cut::From(offset) = work.progress else { return NextCut { offset: work.length, length: 0 } };
    let left = work.carried().saturating_sub(offset);
    let length = u16::try_from(left.min(u32::from(payload_bytes))).unwrap_or(payload_bytes);
    let whole = u32::from(length) == left;
    work.progress = if whole { Cut::Done } else { Cut::From(offset.wrapping_add(u32::from(length))) };
    work.outstanding = work.outstanding.saturating_add(1);
    let (connection, stream) = (work.connection, work.stream);
    let queued = &mut view.connections.at_mut(connection).queued_bytes;
    *queued = queued.saturating_sub(u64::from(length));
    if work.is_request() {
        let requester = &mut view.streams.at_mut(stream).requester;
        if offset == 0 {
            if work.tag().is_some() {
                //= MR-OP-29
                work.receive_index = requester.next_tagged;
                requester.next_tagged = requester.next_tagged.plus(1);
            } else {
                work.receive_index = requester.next_receive;
                if work.consumes_receive() {
                    requester.next_receive = requester.next_receive.plus(1);
                }
            }
            if work.wants_response() {
                work.counted = true;
                requester.responses_due = requester.responses_due.saturating_add(1);
                let streams = &mut view.connections.at_mut(connection).streams;
                streams.responses_due = streams.responses_due.saturating_add(1);
            }
        }
        if whole {
            requester.cursor = requester.works.next(&view.works, slot).unwrap_or(Idx::NONE);
        }
        refresh(view, now, stream);
    } else if whole {
        //= MR-OP-9
        view.connections.at_mut(connection).streams.responses.remove(&mut view.works, slot);
    }
    NextCut { offset, length }
}

/// A packet got its verdict. It is out of the connection's list of packets already.
pub(crate) fn on_verdict(view: &mut View<'_>, now: Instant, packet: Idx<Packet>, verdict: Verdict) {
    let entry = *view.packets.at(packet);
    let work = view.works.at_mut(entry.work);
    let (stream, connection, request) = (work.stream, entry.connection, work.is_request());
    // A packet that was too large for the paths: what was accepted of it is done, and the rest goes under another CSN.
    let done = if verdict == Verdict::Accepted { entry.sent } else { 0 };
    let too_large = if verdict == Verdict::Accepted { done < entry.length } else { entry.too_large };
    if too_large && work.failed.is_none() {
        let (offset, length) =
            (entry.offset.saturating_add(u32::from(done)), entry.length.saturating_sub(done));
        *view.packets.at_mut(packet) = Packet {
            offset,
            length,
            void: false,
            too_large: false,
            losses: 0,
            place: Place::Refused,
            ..entry
        };
        view.connections.at_mut(connection).renewed.push_back(&mut view.packets, packet);
        view.mark_ready(connection);
        return;
    }
    //= MR-DLV-15
    let again = verdict == Verdict::Refused && !entry.void && request && work.failed.is_none();
    if again {
        refusal::enqueue(view, now, stream, packet);
        return;
    }
    work.outstanding = work.outstanding.saturating_sub(1);
    view.packets.free(packet);
    if request {
        if verdict == Verdict::Accepted {
            view.streams.at_mut(stream).requester.refusals.on_acceptance();
        }
        complete_ready(view, now, stream);
    } else if work.progress == Cut::Done && work.outstanding == 0 {
        finish_response(view, now, connection, entry.work, verdict);
    }
}

/// A READ_RESPONSE or ATOMIC_RESPONSE arrived. `None`: it belongs to nothing that waits.
pub(crate) fn on_response(
    view: &mut View<'_>,
    now: Instant,
    connection: Idx<Connection>,
    header: &DataHeader,
    payload: &[u8],
    memory: &mut dyn Memory,
) -> Option<()> {
    let stream = find(view, connection, header.stream)?;
    let slot = Idx::new(view.index.find(key(Kind::Work, stream.raw(), header.msn.raw()))?);
    let work = *view.works.get(slot)?;
    //= MR-OP-11
    let fits = header.length == work.length && work.failed.is_none() && work.progress == Cut::Done;
    let right = match header.opcode {
        Opcode::ReadResponse => matches!(work.kind, WorkKind::Read { .. }),
        _ => matches!(work.kind, WorkKind::Atomic { .. }),
    };
    if !fits || !right {
        if work.failed.is_none() {
            //= MR-DLV-18
            ending::end_stream(view, now, stream, Status::RemoteInvalid);
        }
        return None;
    }
    let placed = if header.opcode == Opcode::AtomicResponse {
        let value = u64::from_be_bytes(*payload.first_chunk::<8>()?);
        scatter(memory, work.segments(), 0, &value.to_ne_bytes())
    } else {
        scatter(memory, work.segments(), header.offset, payload)
    };
    if placed.is_err() {
        ending::fail_from(view, now, stream, header.msn, Status::LocalProtection);
        return None;
    }
    let length = u32::try_from(payload.len()).ok()?;
    let work = view.works.at_mut(slot);
    work.responded = work.responded.saturating_add(length).min(work.length);
    if work.responded == work.length {
        work.answered = true;
        complete_ready(view, now, stream);
    }
    Some(())
}

/// RESULT: the message failed at the peer, and with it all later ones of the stream.
pub(crate) fn on_result(view: &mut View<'_>, now: Instant, connection: Idx<Connection>, header: &DataHeader) {
    let Some(stream) = find(view, connection, header.stream) else { return };
    let status = status_of(header.immediate.unwrap_or_default());
    //= MR-STR-34
    ending::fail_from(view, now, stream, header.msn, status);
}

/// Completes, in order, every request at the front that is finished. At most one step per completed request.
pub(crate) fn complete_ready(view: &mut View<'_>, now: Instant, stream: Idx<Stream>) {
    let mut completed = false;
    while let Some(slot) = view.streams.at(stream).requester.works.front() {
        //= MR-STR-5
        if !view.works.at(slot).is_finished() {
            break;
        }
        let counted = view.works.at(slot).counted;
        retire(view, stream, slot);
        if counted {
            let connection = view.streams.at(stream).connection;
            wake_blocked(view, now, connection);
        }
        completed = true;
    }
    if completed {
        refresh(view, now, stream);
        ending::advance(view, now, stream);
    }
}

/// Takes a finished request out, and reports it.
pub(crate) fn retire(view: &mut View<'_>, stream: Idx<Stream>, slot: Idx<Work>) {
    let work = *view.works.at(slot);
    let owner = view.streams.at_mut(stream);
    let (connection, id) = (owner.connection, owner.id);
    owner.requester.works.remove(&mut view.works, slot);
    owner.requester.completed += 1;
    if owner.requester.cursor == slot {
        owner.requester.cursor = Idx::NONE;
    }
    if work.wants_response() {
        view.index.remove(key(Kind::Work, stream.raw(), work.msn.raw()));
        if work.counted {
            owner.requester.responses_due = owner.requester.responses_due.saturating_sub(1);
            let streams = &mut view.connections.at_mut(connection).streams;
            streams.responses_due = streams.responses_due.saturating_sub(1);
        }
    }
    view.works.free(slot);
    region::count_references(&mut view.regions, work.segments(), false);
    *view.reserved = view.reserved.saturating_sub(1);
    let status = work.failed.unwrap_or(Status::Success);
    if work.options.unsignalled && status == Status::Success {
        return;
    }
    let handle = view.connections.at(connection).handle(connection);
    view.push_event(Event::Completion(Completion {
        connection: handle,
        stream: id,
        id: work.id,
        kind: work.completion_kind(),
        status,
        bytes: if status == Status::Success { work.length } else { 0 },
        immediate: None,
        solicited: false,
        invalidated: None,
        tag: None,
    }));
}

/// A response, RESULT or STREAM_RESET of ours has all its verdicts.
fn finish_response(
    view: &mut View<'_>,
    now: Instant,
    connection: Idx<Connection>,
    slot: Idx<Work>,
    verdict: Verdict,
) {
    let work = *view.works.at(slot);
    debug_assert!(!work.responding.is_linked() && !work.in_stream.is_linked());
    responder::drop_response(view, connection, slot);
    if let WorkKind::StreamReset { .. } = work.kind
        && let Some(stream) = find(view, connection, work.stream_id)
        && let Phase::Ending { theirs, .. } = view.streams.at(stream).phase
    {
        //= MR-STR-35
        // The peer refuses a STREAM_RESET only if it has no such stream, and no room for one: it will send none.
        let none_to_come = view.connections.at(connection).inbound.lowest_unseen().minus(1);
        let theirs = if verdict == Verdict::Refused { theirs.or(Some(none_to_come)) } else { theirs };
        let judged = Phase::Ending { ours: ResetProgress::Judged, theirs };
        view.streams.at_mut(stream).phase.become_state(judged);
        ending::advance(view, now, stream);
    }
}
