//! Refused packets: kept in order, they go again under new CSNs after the peer's delay.

use crate::connection::Connection;
use crate::delivery::{Packet, Place, Queued};
use crate::event::Status;
use crate::ids::{Serial, StreamId};
use crate::list::List;
use crate::stream::{Stream, ending, find, refresh, wait_until};
use crate::table::Idx;
use crate::time::Instant;
use crate::view::View;
use crate::wire::NackReason;

/// Longest delay of a refused packet's next try, ns; ten RTTs if they are longer.
pub(crate) const RETRY_NS_MAX: u64 = 10_000_000;

/// The refused packets of a stream.
#[derive(Debug)]
pub struct Refusals {
    /// In MSN and offset order, to go again at `retry_at`.
    packets: List<Packet, Queued>,
    retry_at: Instant,
    retry_delay_ns: u64,
    /// Rounds without a receive since the last acceptance, and whether the present one is counted.
    rounds: u32,
    round_is_counted: bool,
    counters: Counters,
}

/// Counters since the stream was opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counters {
    pub(crate) packets: u64,
    pub(crate) rnr_rounds: u64,
}

impl Refusals {
    pub(crate) const NEW: Self = Self {
        packets: List::EMPTY,
        retry_at: Instant::FAR_FUTURE,
        retry_delay_ns: 0,
        rounds: 0,
        round_is_counted: false,
        counters: Counters { packets: 0, rnr_rounds: 0 },
    };

    pub(crate) const fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    pub(crate) const fn counters(&self) -> Counters {
        self.counters
    }

    /// A packet of the stream was accepted: the peer is ready.
    pub(crate) const fn on_acceptance(&mut self) {
        self.rounds = 0;
        self.retry_delay_ns = 0;
    }

    /// The peer had no receive: one round a delay, however many packets and acknowledgements tell of it.
    const fn count_round(&mut self) {
        if !self.round_is_counted {
            self.round_is_counted = true;
            self.rounds = self.rounds.saturating_add(1);
            self.counters.rnr_rounds += 1;
        }
    }

    /// Takes all packets out.
    pub(crate) const fn take(&mut self) -> List<Packet, Queued> {
        core::mem::replace(&mut self.packets, List::EMPTY)
    }

    /// The list itself, for taking single packets out.
    pub(crate) const fn packets_mut(&mut self) -> &mut List<Packet, Queued> {
        &mut self.packets
    }
}

/// Keeps a refused packet for another try under a new CSN. O(packets refused after it).
pub(crate) fn enqueue(view: &mut View<'_>, now: Instant, stream: Idx<Stream>, packet: Idx<Packet>) {
    let entry = *view.packets.at(packet);
    //= MR-DLV-10
    let place = (view.works.at(entry.work).msn, entry.offset);
    view.packets.at_mut(packet).place = Place::Refused;
    let owner = view.streams.at_mut(stream);
    let refusals = &mut owner.requester.refusals;
    refusals.counters.packets += 1;
    // Refusals come about in order: the place is near the back.
    let mut after = refusals.packets.back();
    let mut before = None;
    while let Some(at) = after {
        let other = view.packets.at(at);
        let msn = view.works.at(other.work).msn;
        if msn.before(place.0) || (msn == place.0 && other.offset < place.1) {
            break;
        }
        before = Some(at);
        after = refusals.packets.prev(&view.packets, at);
    }
    match before {
        Some(at) => refusals.packets.insert_before(&mut view.packets, at, packet),
        None => refusals.packets.push_back(&mut view.packets, packet),
    }
    let connection = owner.connection;
    view.connections.at_mut(connection).stats.refused += 1;
    let refusals = &mut view.streams.at_mut(stream).requester.refusals;
    if refusals.retry_at == Instant::FAR_FUTURE {
        let rtt = view.connections.at(connection).rtt_ns(&view.paths, view.config);
        //= MR-STR-15
        let delay = refusals.retry_delay_ns.saturating_mul(2).min(RETRY_NS_MAX).max(rtt.saturating_mul(10));
        refusals.retry_delay_ns = delay;
        refusals.retry_at = now.after(delay);
        wait_until(view, stream, now.after(delay));
    }
    refresh(view, now, stream);
}

/// The peer explains a refusal: with `reason`, try again after `delay_us` (0: the default).
pub(crate) fn on_nack(
    view: &mut View<'_>,
    now: Instant,
    connection: Idx<Connection>,
    id: StreamId,
    reason: NackReason,
    delay_us: u32,
) {
    let Some(stream) = find(view, connection, id) else { return };
    let limit = view.config.rnr_retries;
    let refusals = &mut view.streams.at_mut(stream).requester.refusals;
    if refusals.packets.is_empty() {
        return;
    }
    //= MR-STR-17
    if reason == NackReason::NoReceive {
        refusals.count_round();
        if limit.is_some_and(|limit| refusals.rounds > limit) && is_oldest_judged(view, stream) {
            fail(view, now, stream, Status::RnrExceeded);
            return;
        }
    }
    let delay = match (reason, delay_us) {
        (NackReason::Closed, _) => return fail(view, now, stream, Status::PeerClosed),
        (NackReason::NoReceive, 0) => return,
        (NackReason::NoReceive, us) => u64::from(us) * 1_000,
        _ => view.connections.at(connection).rtt_ns(&view.paths, view.config),
    };
    view.streams.at_mut(stream).requester.refusals.retry_at = now.after(delay);
    wait_until(view, stream, now.after(delay));
}

/// Whether all packets of the requests before the first refused one have their verdicts. One that is under way may be
/// refused as well, and is then the request that fails; or accepted, and then the rounds begin anew. O(requests before it).
fn is_oldest_judged(view: &View<'_>, stream: Idx<Stream>) -> bool {
    let requester = &view.streams.at(stream).requester;
    let Some(refused) = requester.refusals.packets.front().map(|packet| view.packets.at(packet).work) else {
        return false;
    };
    let mut at = requester.works.front();
    while let Some(work) = at.filter(|work| *work != refused) {
        if view.works.at(work).outstanding > 0 {
            return false;
        }
        at = requester.works.next(&view.works, work);
    }
    true
}

/// The first request with a refused packet fails, and with it all later ones of the stream.
fn fail(view: &mut View<'_>, now: Instant, stream: Idx<Stream>, status: Status) {
    if let Some(packet) = view.streams.at(stream).requester.refusals.packets.front() {
        let msn = view.works.at(view.packets.at(packet).work).msn;
        ending::fail_from(view, now, stream, msn, status);
    }
}

/// What the peer lacked is there: refused packets go again at once.
pub(crate) fn hurry(view: &mut View<'_>, now: Instant, stream: Idx<Stream>) {
    let refusals = &mut view.streams.at_mut(stream).requester.refusals;
    if !refusals.packets.is_empty() && refusals.retry_at > now {
        refusals.retry_at = now;
        wait_until(view, stream, now);
    }
}

/// What a stream wants when a time that it waited for has come.
pub(crate) struct Wake {
    /// A PROBE that asks for the stream's credit.
    pub(crate) ask: bool,
    /// When to look again.
    pub(crate) next: Instant,
}

/// A time that the stream waited for has come: refused packets go again, or a blocked stream asks.
pub(crate) fn resume(view: &mut View<'_>, now: Instant, stream: Idx<Stream>) -> Wake {
    let requester = &mut view.streams.at_mut(stream).requester;
    let ask = requester.credits.take_question(now, view.config.pto_ns_min);
    if !ask && requester.refusals.retry_at <= now {
        requester.refusals.retry_at = Instant::FAR_FUTURE;
        requester.refusals.round_is_counted = false;
        let mut refused = requester.refusals.take();
        let connection = view.streams.at(stream).connection;
        view.connections.at_mut(connection).renewed.append(&mut view.packets, &mut refused);
        view.mark_ready(connection);
        refresh(view, now, stream);
    }
    let requester = &view.streams.at(stream).requester;
    Wake { ask, next: requester.credits.ask_at().min(requester.refusals.retry_at) }
}
