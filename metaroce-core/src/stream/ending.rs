//! How a stream ends: a failed message, a reset from either side, or the end of its connection.

use crate::connection::Connection;
use crate::event::{Event, Status};
use crate::ids::{Msn, Serial};
use crate::stream::message::Effect;
use crate::stream::receive::{self, ReceiveEnd};
use crate::stream::{
    Cut, Phase, ResetProgress, Stream, Work, WorkKind, effect, find_or_accept, queue, release, requester,
    responder, status_code,
};
use crate::table::Idx;
use crate::time::Instant;
use crate::view::{Kind, View, key};
use crate::wire::DataHeader;

/// A stream that waits for a gap of its peer looks for it again after this part of the time without progress.
const IDLE_DIVISOR: u64 = 8;

/// The request `msn` fails with `status`, and all later ones of the stream as flushed; earlier ones run on. Each is
/// reported when every CSN that it used has a verdict. O(requests of the stream).
pub(crate) fn fail_from(view: &mut View<'_>, now: Instant, stream: Idx<Stream>, msn: Msn, status: Status) {
    let requester = &mut view.streams.at_mut(stream).requester;
    if requester.end.is_some_and(|(end, _)| !msn.before(end)) {
        return;
    }
    let next = requester.next_msn();
    if !msn.before(next) {
        return;
    }
    //= MR-STR-19
    requester.end = Some((msn, status));
    let mut at = requester.works.back();
    let is_open = view.streams.at(stream).is_open();
    while let Some(slot) = at {
        let work = view.works.at(slot);
        if work.msn.before(msn) {
            break;
        }
        at = view.streams.at(stream).requester.works.prev(&view.works, slot);
        //= MR-STR-20
        let status = if work.msn == msn { status } else { Status::Flushed };
        // What failed by itself is flushed if an earlier request now fails, but keeps its reason if the stream is ended.
        let kept = work.failed.filter(|_| !is_open);
        fail_work(view, slot, kept.unwrap_or(status));
    }
    drop_refused(view, stream, msn);
    // Those whose time has come, in the connection's queue, go with the next `poll_transmit`.
    let connection = view.streams.at(stream).connection;
    view.mark_ready(connection);
    let cursor = view.streams.at(stream).requester.cursor;
    if cursor.get().is_some_and(|cursor| !view.works.at(cursor).msn.before(msn)) {
        view.streams.at_mut(stream).requester.cursor = Idx::NONE;
    }
    requester::refresh(view, now, stream);
    requester::complete_ready(view, now, stream);
    // With nothing left to complete, the stream ends here.
    advance(view, now, stream);
}

/// One request can only fail from now on: nothing more is cut, and what is in flight goes on only to get its verdict.
fn fail_work(view: &mut View<'_>, slot: Idx<Work>, status: Status) {
    let work = view.works.at_mut(slot);
    work.failed = Some(status);
    if let Cut::From(offset) = work.progress {
        let left = work.carried().saturating_sub(offset);
        work.progress = Cut::Done;
        let queued = &mut view.connections.at_mut(work.connection).queued_bytes;
        *queued = queued.saturating_sub(u64::from(left));
    }
}

/// Refused packets of requests from `msn` on have their verdict: they don't go again.
fn drop_refused(view: &mut View<'_>, stream: Idx<Stream>, msn: Msn) {
    let mut at = view.streams.at_mut(stream).requester.refusals.packets_mut().front();
    while let Some(packet) = at {
        let requester = &mut view.streams.at_mut(stream).requester;
        at = requester.refusals.packets_mut().next(&view.packets, packet);
        let work = view.packets.at(packet).work;
        if view.works.at(work).msn.before(msn) {
            continue;
        }
        requester.refusals.packets_mut().remove(&mut view.packets, packet);
        view.packets.free(packet);
        let work = view.works.at_mut(work);
        work.outstanding = work.outstanding.saturating_sub(1);
    }
}

/// Ends a stream from this side: everything is flushed, and the peer is told when the requests have run out.
pub(crate) fn end_stream(view: &mut View<'_>, now: Instant, stream: Idx<Stream>, status: Status) {
    let entry = view.streams.at_mut(stream);
    if !entry.is_open() {
        return;
    }
    entry.phase.become_state(Phase::Ending { ours: ResetProgress::Unsent, theirs: None });
    let (connection, id) = (entry.connection, entry.id);
    let oldest = entry.requester.works.front();
    //= MR-STR-23
    flush_messages(view, stream);
    flush_receives(view, stream);
    if view.has_event_room() {
        let handle = view.connections.at(connection).handle(connection);
        view.push_event(Event::StreamEnded { connection: handle, stream: id, status });
    }
    if let Some(oldest) = oldest {
        let msn = view.works.at(oldest).msn;
        fail_from(
            view,
            now,
            stream,
            msn,
            if status == Status::PeerClosed { status } else { Status::Flushed },
        );
    }
    advance(view, now, stream);
}

/// The peer's STREAM_RESET arrived under `csn`.
pub(crate) fn on_stream_reset(
    view: &mut View<'_>,
    now: Instant,
    connection: Idx<Connection>,
    header: &DataHeader,
) -> bool {
    let Ok(stream) = find_or_accept(view, connection, header.stream) else { return false };
    let told = super::status_of(header.immediate.unwrap_or_default());
    let status = view.streams.at(stream).requester.end.map_or(told, |(_, status)| status);
    end_stream(view, now, stream, status);
    if let Phase::Ending { theirs, .. } = &mut view.streams.at_mut(stream).phase {
        *theirs = Some(header.csn);
    }
    advance(view, now, stream);
    true
}

/// Takes a stream that ends as far as it can go: sends our STREAM_RESET when the requests have run out, and frees the
/// stream when both sides' have their verdicts.
pub(crate) fn advance(view: &mut View<'_>, now: Instant, stream: Idx<Stream>) {
    let entry = view.streams.at(stream);
    let connection = entry.connection;
    if !entry.requester.works.is_empty() {
        return;
    }
    if entry.is_open() {
        // A request failed at the peer, and all others have run out: the stream is over, in both directions.
        if let Some((_, status)) = entry.requester.end {
            //= MR-STR-36
            end_stream(view, now, stream, status);
        }
        return;
    }
    let Phase::Ending { ours, theirs } = entry.phase else { return };
    match (ours, theirs) {
        (ResetProgress::Unsent, _) => {
            let msn = entry.requester.next_msn();
            //= MR-STR-24
            let status = entry.requester.end.map_or(Status::Flushed, |(_, status)| status);
            send_reset(view, now, stream, msn, status);
        }
        (ResetProgress::Judged, Some(csn)) => {
            let lowest = view.connections.at(connection).inbound.lowest_unseen();
            //= MR-STR-25
            if csn.before(lowest) {
                release(view, stream);
            } else {
                //= MR-STR-26
                // A late packet of the old use must not open the stream anew.
                look_again(view, now, stream);
            }
        }
        _ => {}
    }
}

/// Looks at an ending stream again after a while, that grows with the time since the connection got anything through:
/// the peer may leave a gap for ever.
fn look_again(view: &mut View<'_>, now: Instant, stream: Idx<Stream>) {
    let owner = view.connections.at(view.streams.at(stream).connection);
    let idle_ns = now.since(owner.clock.last_progress);
    let wait_ns = view.config.rto_ns_min.max(idle_ns / IDLE_DIVISOR);
    super::wait_until(view, stream, now.after(wait_ns));
}

/// Sends our STREAM_RESET. It tells the peer why, but not that it has closed itself.
fn send_reset(view: &mut View<'_>, now: Instant, stream: Idx<Stream>, msn: Msn, status: Status) {
    let status = if status == Status::PeerClosed { Status::Flushed } else { status };
    let entry = view.streams.at(stream);
    let (connection, id) = (entry.connection, entry.id);
    let work = Work {
        connection,
        stream_id: id,
        kind: WorkKind::StreamReset { code: status_code(status) },
        msn,
        ..Work::EMPTY
    };
    let Some(slot) = view.works.allocate(work) else {
        // Try again when a work request has been freed.
        look_again(view, now, stream);
        return;
    };
    let phase = &mut view.streams.at_mut(stream).phase;
    if let Phase::Ending { theirs, .. } = *phase {
        phase.become_state(Phase::Ending { ours: ResetProgress::Sent, theirs });
    }
    view.connections.at_mut(connection).streams.responses_owed += 1;
    responder::send_response(view, connection, slot);
}

/// All posted receives complete as flushed, or as too short if that is why; those of a shared queue of which nothing was
/// used go back to its head. O(receives of the stream).
pub(crate) fn flush_receives(view: &mut View<'_>, stream: Idx<Stream>) {
    let queue = view.streams.at(stream).responder.queue;
    loop {
        let responder = &mut view.streams.at_mut(stream).responder;
        if let Some(slot) = responder.tagged.pop_front(&mut view.receives) {
            responder.receives.push_back(&mut view.receives, slot);
        }
        // Backwards with a queue, so that what goes back to it keeps its order.
        let next = if queue.is_some() { responder.receives.back() } else { responder.receives.front() };
        let Some(slot) = next else { break };
        let receive = *view.receives.at(slot);
        match queue.get() {
            Some(queue) if !receive.used && !receive.too_short => {
                responder.receives.remove(&mut view.receives, slot);
                view.index.remove(key(Kind::Receive, stream.raw(), receive.index.raw()));
                //= MR-STR-33
                queue::give_back(view, queue, slot);
            }
            _ => {
                let status = if receive.too_short { Status::LocalLength } else { Status::Flushed };
                receive::complete(view, stream, slot, &ReceiveEnd::failed(status));
            }
        }
    }
}

/// All inbound messages that have not taken effect are forgotten. O(messages of the stream).
pub(crate) fn flush_messages(view: &mut View<'_>, stream: Idx<Stream>) {
    let connection = view.streams.at(stream).connection;
    while let Some(slot) = view.streams.at(stream).responder.messages.front() {
        let effect = view.messages.at(slot).effect;
        effect::drop_message(view, stream, slot);
        if let Effect::Read(response) | Effect::Atomic { response, .. } = effect {
            responder::drop_response(view, connection, response);
        }
    }
}

/// Ends everything of a connection that is over, a bounded piece a call. Returns whether nothing is left.
pub(crate) fn step_teardown(view: &mut View<'_>, connection: Idx<Connection>, status: Status) -> bool {
    const STEP: usize = 64;
    for _ in 0..STEP {
        let owner = view.connections.at_mut(connection);
        if let Some(packet) = owner.outbound.packets.pop_front(&mut view.packets) {
            forget_packet(view, packet);
        } else if let Some(packet) = owner.renewed.pop_front(&mut view.packets) {
            forget_packet(view, packet);
        } else if let Some(slot) = owner.streams.responses.pop_front(&mut view.works) {
            responder::drop_response(view, connection, slot);
        } else if let Some(stream) = owner.streams.all.front() {
            teardown_stream(view, stream, status);
        } else {
            return true;
        }
    }
    false
}

/// Frees a packet of a connection that is over, and the response that it belonged to when it was its last.
fn forget_packet(view: &mut View<'_>, packet: Idx<crate::delivery::Packet>) {
    let entry = *view.packets.at(packet);
    if let crate::delivery::Place::Again { path, .. } = entry.place {
        view.paths.at_mut(path).sending.again.remove(&mut view.packets, packet);
    }
    view.packets.free(packet);
    let work = view.works.at_mut(entry.work);
    work.outstanding = work.outstanding.saturating_sub(1);
    let done = !work.is_request() && work.outstanding == 0 && work.progress == Cut::Done;
    if done {
        responder::drop_response(view, entry.connection, entry.work);
    }
}

fn teardown_stream(view: &mut View<'_>, stream: Idx<Stream>, status: Status) {
    let mut refused = view.streams.at_mut(stream).requester.refusals.take(&mut view.packets, &view.works);
    while let Some(packet) = refused.pop_front(&mut view.packets) {
        forget_packet(view, packet);
    }
    flush_messages(view, stream);
    flush_receives(view, stream);
    while let Some(slot) = view.streams.at(stream).requester.works.front() {
        let kept = view.works.at(slot).failed.filter(|_| status == Status::Flushed);
        fail_work(view, slot, kept.unwrap_or(status));
        requester::retire(view, stream, slot);
    }
    release(view, stream);
}
