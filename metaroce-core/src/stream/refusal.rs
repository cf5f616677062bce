//! Refused packets: kept in order, they go again under new CSNs after the peer's delay.

use crate::connection::Connection;
use crate::delivery::{Packet, Place, Queued};
use crate::event::Status;
use crate::ids::{Msn, Serial, StreamId};
use crate::list::List;
use crate::pool::Pool;
use crate::stream::{Stream, Work, ending, find, refresh, wait_until};
use crate::table::Idx;
use crate::time::Instant;
use crate::view::View;
use crate::wire::NackReason;

/// Longest delay of a refused packet's next try, ns; ten RTTs if they are longer.
pub(crate) const RETRY_NS_MAX: u64 = 10_000_000;

/// The refused packets of a stream.
#[derive(Debug)]
pub struct Refusals {
    /// To go again at `retry_at`, in MSN and offset order; until then in the order in which they were refused.
    packets: List<Packet, Queued>,
    /// Whether that is the same.
    in_order: bool,
    /// The request of the first of them.
    oldest: Msn,
    /// A request that was found to wait for a verdict, the last time that one was looked for.
    unjudged: Idx<Work>,
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
        in_order: true,
        oldest: Msn::new(0),
        unjudged: Idx::NONE,
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

    /// Puts a packet of the request `msn` behind the others.
    fn push(&mut self, packets: &mut Pool<'_, Packet>, works: &Pool<'_, Work>, packet: Idx<Packet>) {
        let msn = works.at(packets.at(packet).work).msn;
        match self.packets.back() {
            None => (self.in_order, self.oldest) = (true, msn),
            Some(last) => {
                self.in_order &= comes_before(works, packets.at(last), packets.at(packet));
                if msn.before(self.oldest) {
                    self.oldest = msn;
                }
            }
        }
        self.packets.push_back(packets, packet);
        self.counters.packets += 1;
    }

    /// Takes all packets out, in their order. O(packets), or, if they were not refused in it, O(packets × log packets).
    pub(crate) fn take(
        &mut self,
        packets: &mut Pool<'_, Packet>,
        works: &Pool<'_, Work>,
    ) -> List<Packet, Queued> {
        let mut taken = core::mem::take(&mut self.packets);
        if !self.in_order {
            //= MR-DLV-10
            taken.sort(packets, |one, other| comes_before(works, one, other));
        }
        taken
    }

    /// The list itself, for taking single packets out.
    pub(crate) const fn packets_mut(&mut self) -> &mut List<Packet, Queued> {
        &mut self.packets
    }
}

/// Whether a packet goes before another of its stream.
fn comes_before(works: &Pool<'_, Work>, one: &Packet, other: &Packet) -> bool {
    let (msn, other_msn) = (works.at(one.work).msn, works.at(other.work).msn);
    msn.before(other_msn) || (msn == other_msn && one.offset < other.offset)
}

/// Keeps a refused packet for another try under a new CSN. O(1), in whatever order the peer refuses.
pub(crate) fn enqueue(view: &mut View<'_>, now: Instant, stream: Idx<Stream>, packet: Idx<Packet>) {
    view.packets.at_mut(packet).place = Place::Refused;
    let owner = view.streams.at_mut(stream);
    owner.requester.refusals.push(&mut view.packets, &view.works, packet);
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
/// refused as well, and is then the request that fails; or accepted, and then the rounds begin anew. O(requests before it),
/// but O(1) as long as the request that was found last still waits.
fn is_oldest_judged(view: &mut View<'_>, stream: Idx<Stream>) -> bool {
    let requester = &mut view.streams.at_mut(stream).requester;
    let oldest = requester.refusals.oldest;
    let known = view.works.get(requester.refusals.unjudged);
    if known.is_some_and(|work| work.stream == stream && work.outstanding > 0 && work.msn.before(oldest)) {
        return false;
    }
    let mut at = requester.works.front();
    while let Some(work) = at.filter(|work| view.works.at(*work).msn.before(oldest)) {
        if view.works.at(work).outstanding > 0 {
            requester.refusals.unjudged = work;
            return false;
        }
        at = requester.works.next(&view.works, work);
    }
    true
}

/// The first request with a refused packet fails, and with it all later ones of the stream.
fn fail(view: &mut View<'_>, now: Instant, stream: Idx<Stream>, status: Status) {
    let refusals = &view.streams.at(stream).requester.refusals;
    if !refusals.is_empty() {
        let oldest = refusals.oldest;
        ending::fail_from(view, now, stream, oldest, status);
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
        let mut refused = requester.refusals.take(&mut view.packets, &view.works);
        let connection = view.streams.at(stream).connection;
        view.connections.at_mut(connection).renewed.append(&mut view.packets, &mut refused);
        view.mark_ready(connection);
        refresh(view, now, stream);
    }
    let requester = &view.streams.at(stream).requester;
    Wake { ask, next: requester.credits.ask_at().min(requester.refusals.retry_at) }
}
