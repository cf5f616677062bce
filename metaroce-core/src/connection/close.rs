//! Closing a connection: CLOSE, CLOSE_ACK, RESET, and what happens when the peer falls silent.

use crate::connection::handshake::{self, find_local, peer_key};
use crate::connection::{
    Attempt, Connection, PrivateData, State, acknowledge_now, implicit, inflow, planes, quota,
};
use crate::event::{CloseReason, Event, Status};
use crate::stats::DropReason;
use crate::stream;
use crate::table::Idx;
use crate::time::Instant;
use crate::transmit::{Datagram, Disposition};
use crate::view::{Kind, View, key};
use crate::wire::{Base, Close, RejectReason, Reset, ResetProof};

/// CLOSEs in a row without any answer before the connection counts as failed.
pub(crate) const CLOSES_MAX: u32 = 8;

/// The application closes: `flush` gives up what is not complete.
pub(crate) fn begin_close(view: &mut View<'_>, now: Instant, slot: Idx<Connection>, flush: bool) {
    match view.connections.at(slot).state {
        State::Incoming => {
            handshake::refuse(view, slot, RejectReason::Closed, &PrivateData::EMPTY);
            finish(view, now, slot, CloseReason::Local);
        }
        State::Connecting { .. } => finish(view, now, slot, CloseReason::Local),
        State::Accepting { .. } | State::Open => {
            if let State::Accepting { .. } = view.connections.at(slot).state {
                quota::leave(view, slot);
            }
            view.connections.at_mut(slot).become_state(State::Draining);
            if flush {
                //= MR-CLS-2
                flush_streams(view, now, slot);
            }
            advance(view, now, slot);
        }
        State::Draining | State::PeerClosing if flush => flush_streams(view, now, slot),
        _ => {}
    }
}

/// Every request that is not complete fails as flushed; what is in flight goes on only for its verdict.
fn flush_streams(view: &mut View<'_>, now: Instant, slot: Idx<Connection>) {
    let mut at = view.connections.at(slot).streams.all.front();
    while let Some(entry) = at {
        at = view.connections.at(slot).streams.all.next(&view.streams, entry);
        stream::end_stream(view, now, entry, Status::Flushed);
    }
}

/// Goes on with a close, if nothing stands in its way any more.
pub(crate) fn advance(view: &mut View<'_>, now: Instant, slot: Idx<Connection>) {
    let owner = view.connections.at(slot);
    match owner.state {
        //= MR-CLS-1
        State::Draining if owner.is_drained(&view.streams) => {
            let owner = view.connections.at_mut(slot);
            owner.become_state(State::Closing { attempt: Attempt::at(now) });
            view.arm(slot, now);
        }
        State::PeerClosing if owner.is_drained(&view.streams) => {
            view.connections.at_mut(slot).owed.close_ack = true;
            finish(view, now, slot, CloseReason::Peer);
        }
        _ => {}
    }
}

/// Whether a CLOSE or CLOSE_ACK comes from the other end of this connection.
fn is_genuine(owner: &Connection, close: &Close) -> bool {
    //= MR-CLS-3
    close.sender == owner.ids.remote && close.nonce_xor == owner.ids.local_nonce ^ owner.ids.remote_nonce
}

pub(crate) fn on_close(
    view: &mut View<'_>,
    now: Instant,
    slot: Idx<Connection>,
    _base: &Base,
    close: &Close,
) -> Disposition {
    let owner = view.connections.at_mut(slot);
    if !is_genuine(owner, close) {
        return Disposition::Dropped(DropReason::BadProof);
    }
    owner.clock.last_heard = now;
    match owner.state {
        State::Accepting { .. } | State::Open | State::Draining => {
            handshake::heard(view, now, slot);
            view.connections.at_mut(slot).become_state(State::PeerClosing);
            //= MR-CLS-4
            flush_inbound(view, now, slot);
            advance(view, now, slot);
        }
        //= MR-CLS-5
        // Both closed at once: each answers, and is done.
        State::Closing { .. } => {
            owner.owed.close_ack = true;
            finish(view, now, slot, CloseReason::Local);
        }
        //= MR-CLS-10
        State::Ending { .. } | State::Resting { .. } => owner.owed.close_ack = true,
        State::PeerClosing => {
            // Still draining: a sign of life keeps the closer from giving up.
            acknowledge_now(view, slot);
            advance(view, now, slot);
        }
        State::Connecting { .. } | State::Incoming => {
            return Disposition::Dropped(DropReason::UnexpectedState);
        }
    }
    view.mark_ready(slot);
    Disposition::Consumed
}

/// The peer sends nothing more: receives and incomplete messages end. It grants no credit either, so what waits for some
/// goes.
fn flush_inbound(view: &mut View<'_>, now: Instant, slot: Idx<Connection>) {
    let mut at = view.connections.at(slot).streams.all.front();
    while let Some(entry) = at {
        at = view.connections.at(slot).streams.all.next(&view.streams, entry);
        stream::flush_messages(view, entry);
        stream::flush_receives(view, entry);
        //= MR-CLS-20
        stream::refresh(view, now, entry);
    }
}

pub(crate) fn on_close_ack(
    view: &mut View<'_>,
    now: Instant,
    slot: Idx<Connection>,
    close: &Close,
) -> Disposition {
    let owner = view.connections.at(slot);
    if !is_genuine(owner, close) {
        return Disposition::Dropped(DropReason::BadProof);
    }
    match owner.state {
        State::Closing { .. } => finish(view, now, slot, CloseReason::Local),
        State::Accepting { .. } | State::Open | State::Draining | State::PeerClosing => {
            // The peer's id is at rest: it is believed if it quotes something that is in flight.
            //= MR-CLS-11
            if !close.quote.is_some_and(|quote| quotes_in_flight(view, slot, &quote)) {
                return Disposition::Dropped(DropReason::BadProof);
            }
            finish(view, now, slot, CloseReason::Peer);
        }
        _ => return Disposition::Dropped(DropReason::UnexpectedState),
    }
    Disposition::Consumed
}

pub(crate) fn on_reset(
    view: &mut View<'_>,
    now: Instant,
    datagram: &Datagram<'_>,
    base: &Base,
    reset: &Reset,
) -> Disposition {
    let slot = match reset.proof {
        ResetProof::Quote(quote) => {
            let Ok((quoted, _)) = Base::parse(&quote) else {
                return Disposition::Dropped(DropReason::Malformed);
            };
            let at = peer_key(view, datagram.source, quoted.connection);
            //= MR-CLS-14
            view.index.find(at).map(Idx::new).filter(|&slot| quotes_in_flight(view, slot, &quote))
        }
        //= MR-CLS-15
        ResetProof::Ids { yours, mine, nonce_xor } => find_local(view, base.connection).filter(|&slot| {
            let ids = view.connections.at(slot).ids;
            yours == ids.local && mine == ids.remote && nonce_xor == ids.local_nonce ^ ids.remote_nonce
        }),
    };
    let genuine = |slot: &Idx<Connection>| view.connections.at(*slot).planes.receives_at(datagram.source);
    let Some(slot) = slot.filter(genuine) else {
        return Disposition::Dropped(DropReason::BadProof);
    };
    if !view.connections.at(slot).takes_packets() {
        return Disposition::Dropped(DropReason::UnexpectedState);
    }
    finish(view, now, slot, CloseReason::Reset);
    Disposition::Consumed
}

/// Whether the quoted base header is of a transmission of ours that is in flight. O(transmissions of the path).
fn quotes_in_flight(view: &View<'_>, slot: Idx<Connection>, quote: &[u8]) -> bool {
    let Ok((quoted, _)) = Base::parse(quote) else { return false };
    let Some(owner) = view.connections.get(slot) else { return false };
    let Some(path) = owner.path(quoted.path) else { return false };
    let sending = &view.paths.at(path).sending;
    let mut at = sending.in_flight.front();
    while let Some(entry) = at {
        let transmission = view.transmissions.at(entry);
        if transmission.psn == quoted.psn {
            return transmission.sent_at.wire_timestamp() == quoted.timestamp;
        }
        at = sending.in_flight.next(&view.transmissions, entry);
    }
    false
}

/// The connection is over, for `reason`: everything that is left ends, and then the application is told.
pub(crate) fn finish(view: &mut View<'_>, now: Instant, slot: Idx<Connection>, reason: CloseReason) {
    let owner = view.connections.at_mut(slot);
    if matches!(owner.state, State::Ending { .. } | State::Resting { .. }) {
        return;
    }
    if matches!(owner.state, State::Incoming | State::Accepting { .. }) {
        quota::leave(view, slot);
    }
    implicit::leave(view, slot);
    inflow::leave(view, slot);
    view.connections.at_mut(slot).become_state(State::Ending { reason });
    view.mark_ready(slot);
    view.arm(slot, now);
}

/// One bounded piece of ending. Returns whether the connection has come to rest.
pub(crate) fn step_ending(
    view: &mut View<'_>,
    now: Instant,
    slot: Idx<Connection>,
    reason: CloseReason,
) -> bool {
    let status = match reason {
        CloseReason::Peer => Status::PeerClosed,
        CloseReason::TimedOut => Status::RetryExceeded,
        _ => Status::Flushed,
    };
    if !stream::step_teardown(view, slot, status) || !forget_transmissions(view, slot) {
        return false;
    }
    //= MR-CLS-9
    let rest_ns = view.config.rto_ns_min.saturating_mul(200);
    let until = now.after(rest_ns);
    let owner = view.connections.at_mut(slot);
    owner.become_state(State::Resting { until });
    //= MR-CLS-18
    //= MR-PATH-27
    let last_progress = owner.planes.health.last_progress();
    let event = Event::Closed { connection: owner.handle(slot), reason, last_progress };
    view.push_event(event);
    view.arm(slot, until);
    true
}

/// Frees up to 256 transmissions. Returns whether none is left.
fn forget_transmissions(view: &mut View<'_>, slot: Idx<Connection>) -> bool {
    const STEP: usize = 256;
    let mut freed = 0;
    for at in view.connections.at(slot).path_indices() {
        let sending = &mut view.paths.at_mut(at).sending;
        while let Some(entry) = sending.in_flight.pop_front(&mut view.transmissions) {
            view.transmissions.free(entry);
            freed += 1;
            if freed >= STEP {
                return false;
            }
        }
        sending.inflight_bytes = 0;
    }
    true
}

/// Frees a connection that has rested.
pub(crate) fn release(view: &mut View<'_>, slot: Idx<Connection>) {
    let owner = view.connections.at(slot);
    let ids = owner.ids;
    planes::leave_index(view, slot);
    let nonce = key(Kind::Nonce, handshake::high(ids.remote_nonce), handshake::low(ids.remote_nonce));
    if view.index.find(nonce) == Some(slot.raw()) {
        view.index.remove(nonce);
    }
    if view.connections.at(slot).ready.is_linked() {
        view.ready.remove(&mut view.connections, slot);
    }
    if view.connections.at(slot).owing.is_linked() {
        view.owing.remove(&mut view.connections, slot);
    }
    view.wheel.cancel(Idx::new(slot.raw()));
    view.connections.free(slot);
    inflow::on_count_changed(view);
}

/// An id at rest meets a packet: CLOSE_ACK, quoting it.
pub(crate) fn answer_at_rest(view: &mut View<'_>, datagram: &Datagram<'_>, slot: Idx<Connection>) {
    let Some(quote) = datagram.bytes.first_chunk() else { return };
    view.connections.at_mut(slot).owed.close_ack_quote = Some(*quote);
    view.mark_ready(slot);
}
