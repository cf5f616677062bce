//! The requester half of a stream: posted requests, what may be sent of them, and their completion in order.

use crate::connection::Connection;
use crate::delivery::{Packet, Place, Queued};
use crate::event::{Completion, Event, Status};
use crate::ids::{Msn, ReceiveIndex, Serial, StreamId};
use crate::list::List;
use crate::memory::Memory;
use crate::path::Verdict;
use crate::pool::Pool;
use crate::region;
use crate::stream::receive::scatter;
use crate::stream::{
    Cut, InStream, Phase, ResetProgress, Stream, Work, WorkKind, ending, find, responder, status_of,
    wait_until,
};
use crate::table::Idx;
use crate::time::Instant;
use crate::view::{Kind, View, key};
use crate::wire::{DataHeader, NackReason, Opcode};

/// Longest delay of a refused packet's next try, ns.
const RETRY_NS_MAX: u64 = 10_000_000;

/// What a stream has to send.
#[derive(Debug)]
pub struct Requester {
    /// All requests without completion, in MSN order.
    pub(crate) works: List<Work, InStream>,
    /// The first that has not been cut whole.
    pub(crate) cursor: Idx<Work>,
    next_msn: Msn,
    /// Receives used so far, and how many the peer has told of.
    next_receive: ReceiveIndex,
    /// Tagged messages so far.
    next_tagged: ReceiveIndex,
    credit: Credit,
    /// Refused packets in MSN and offset order, to go again at `retry_at`.
    pub(crate) refused: List<Packet, Queued>,
    retry_at: Instant,
    retry_delay_ns: u64,
    /// Rounds refused for want of a receive since the last acceptance, and whether the present one is counted.
    rnr_rounds: u32,
    /// Counters: requests completed, packets refused, rounds without a receive.
    pub(crate) completed: u64,
    pub(crate) refusals: u64,
    pub(crate) rnr_rounds_ever: u64,
    rnr_counted: bool,
    /// Receives that the peer has told of.
    posted: ReceiveIndex,
    /// READs and atomics without response.
    responses_due: u32,
    /// When a stream blocked by credit asks again, and the delay after that.
    ask_at: Instant,
    ask_delay_ns: u64,
    /// From this MSN on everything fails.
    pub(crate) end: Option<Msn>,
}

/// Which receives of the peer may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Credit {
    /// Those below this index.
    Until(ReceiveIndex),
    /// Any: the peer's stream draws on a shared queue.
    NoneNeeded,
}

impl Requester {
    pub(crate) const NEW: Self = Self {
        works: List::EMPTY,
        cursor: Idx::NONE,
        //= MR-HS-6
        next_msn: Msn::new(0),
        next_receive: ReceiveIndex::new(0),
        next_tagged: ReceiveIndex::new(0),
        credit: Credit::Until(ReceiveIndex::new(0)),
        refused: List::EMPTY,
        retry_at: Instant::FAR_FUTURE,
        retry_delay_ns: 0,
        rnr_rounds: 0,
        completed: 0,
        refusals: 0,
        rnr_rounds_ever: 0,
        rnr_counted: false,
        posted: ReceiveIndex::new(0),
        responses_due: 0,
        ask_at: Instant::FAR_FUTURE,
        ask_delay_ns: 0,
        end: None,
    };

    /// The peer lets a stream of which it told nothing yet use this many receives.
    pub(crate) fn grant(&mut self, initial_credits: u32) {
        self.credit = Credit::Until(ReceiveIndex::new(initial_credits));
    }

    fn has_credit(&self) -> bool {
        match self.credit {
            //= MR-STR-9
            Credit::Until(limit) => self.next_receive.before(limit),
            Credit::NoneNeeded => true,
        }
    }

    /// Queues a request that has the next MSN.
    pub(crate) fn push(&mut self, works: &mut Pool<'_, Work>, slot: Idx<Work>) {
        self.next_msn = self.next_msn.plus(1);
        self.works.push_back(works, slot);
        if self.cursor.is_none() {
            self.cursor = slot;
        }
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
    if !requester.refused.is_empty() || !connection.may_send_requests() {
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
    } else if work.needs_credit() && !requester.has_credit() && !connection.peer_closes() {
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
        if entry.requester.ask_at == Instant::FAR_FUTURE {
            let delay = view.config.pto_ns_min;
            entry.requester.ask_delay_ns = delay;
            entry.requester.ask_at = now.after(delay);
            wait_until(view, stream, now.after(delay));
        }
    } else {
        entry.requester.ask_at = Instant::FAR_FUTURE;
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
    //= MR-DLV-15
    let again = verdict == Verdict::Refused && !entry.void && request && work.failed.is_none();
    if again {
        enqueue_refused(view, now, stream, packet);
        return;
    }
    work.outstanding = work.outstanding.saturating_sub(1);
    view.packets.free(packet);
    if request {
        if verdict == Verdict::Accepted {
            let requester = &mut view.streams.at_mut(stream).requester;
            requester.rnr_rounds = 0;
            requester.retry_delay_ns = 0;
        }
        complete_ready(view, now, stream);
    } else if work.progress == Cut::Done && work.outstanding == 0 {
        finish_response(view, now, connection, entry.work);
    }
}

/// Keeps a refused packet in MSN and offset order, for another try under a new CSN.
fn enqueue_refused(view: &mut View<'_>, now: Instant, stream: Idx<Stream>, packet: Idx<Packet>) {
    let entry = *view.packets.at(packet);
    //= MR-DLV-10
    let place = (view.works.at(entry.work).msn, entry.offset);
    view.packets.at_mut(packet).place = Place::Refused;
    let owner = view.streams.at_mut(stream);
    let requester = &mut owner.requester;
    requester.refusals += 1;
    // Refusals come about in order: the place is near the back.
    let mut after = requester.refused.back();
    let mut before = None;
    while let Some(at) = after {
        let other = view.packets.at(at);
        let msn = view.works.at(other.work).msn;
        let precedes = msn.before(place.0) || (msn == place.0 && other.offset < place.1);
        if precedes {
            break;
        }
        before = Some(at);
        after = requester.refused.prev(&view.packets, at);
    }
    match before {
        Some(at) => requester.refused.insert_before(&mut view.packets, at, packet),
        None => requester.refused.push_back(&mut view.packets, packet),
    }
    let connection = owner.connection;
    view.connections.at_mut(connection).stats.refused += 1;
    if view.streams.at(stream).requester.retry_at == Instant::FAR_FUTURE {
        let rtt = view.connections.at(connection).rtt_ns(&view.paths, view.config);
        let requester = &mut view.streams.at_mut(stream).requester;
        //= MR-STR-15
        let delay = requester.retry_delay_ns.saturating_mul(2).min(RETRY_NS_MAX).max(rtt.saturating_mul(10));
        requester.retry_delay_ns = delay;
        requester.retry_at = now.after(delay);
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
    let requester = &mut view.streams.at_mut(stream).requester;
    if requester.refused.is_empty() {
        return;
    }
    //= MR-STR-17
    // One round a delay, however many packets and acknowledgements tell of it.
    if reason == NackReason::NoReceive && !requester.rnr_counted {
        requester.rnr_counted = true;
        requester.rnr_rounds = requester.rnr_rounds.saturating_add(1);
        requester.rnr_rounds_ever += 1;
        if limit.is_some_and(|limit| requester.rnr_rounds > limit) {
            fail_refused(view, now, stream, Status::RnrExceeded);
            return;
        }
    }
    if reason == NackReason::Closed {
        fail_refused(view, now, stream, Status::PeerClosed);
        return;
    }
    let delay = match (reason, delay_us) {
        (NackReason::NoReceive, 0) => return,
        (NackReason::NoReceive, us) => u64::from(us) * 1_000,
        _ => view.connections.at(connection).rtt_ns(&view.paths, view.config),
    };
    view.streams.at_mut(stream).requester.retry_at = now.after(delay);
    wait_until(view, stream, now.after(delay));
}

/// The first request with a refused packet fails, and with it all later ones of the stream.
fn fail_refused(view: &mut View<'_>, now: Instant, stream: Idx<Stream>, status: Status) {
    let first = view.streams.at(stream).requester.refused.front();
    if let Some(packet) = first {
        let msn = view.works.at(view.packets.at(packet).work).msn;
        ending::fail_from(view, now, stream, msn, status);
    }
}

/// The peer's receives: `posted` so far, or none needed.
pub(crate) fn on_credit(
    view: &mut View<'_>,
    now: Instant,
    connection: Idx<Connection>,
    id: StreamId,
    posted: Option<ReceiveIndex>,
) {
    let Some(stream) = find(view, connection, id) else { return };
    let requester = &mut view.streams.at_mut(stream).requester;
    let news = match posted {
        //= MR-STR-10
        Some(posted) => requester.posted.before(posted),
        None => requester.credit != Credit::NoneNeeded,
    };
    if !news {
        return;
    }
    requester.posted = posted.unwrap_or(requester.posted);
    match (requester.credit, posted) {
        (Credit::Until(_), None) => requester.credit = Credit::NoneNeeded,
        // What was told once stays: the initial credits are a promise to try, not a count of receives.
        (Credit::Until(limit), Some(posted)) if limit.before(posted) => {
            requester.credit = Credit::Until(posted);
        }
        _ => {}
    }
    if !requester.refused.is_empty() && requester.retry_at > now {
        //= MR-STR-16
        // A receive was posted: no need to wait out the delay.
        requester.retry_at = now;
        wait_until(view, stream, now);
    }
    refresh(view, now, stream);
}

/// A time that the stream waited for has come. Returns the packets that go again now, one a call.
pub(crate) fn resume(view: &mut View<'_>, now: Instant, stream: Idx<Stream>) -> Wake {
    let requester = &mut view.streams.at_mut(stream).requester;
    if requester.ask_at <= now {
        //= MR-STR-12
        requester.ask_delay_ns =
            requester.ask_delay_ns.saturating_mul(2).min(RETRY_NS_MAX.max(view.config.pto_ns_min));
        requester.ask_at = now.after(requester.ask_delay_ns);
        return Wake { ask: true, next: requester.ask_at.min(requester.retry_at) };
    }
    if requester.retry_at <= now {
        requester.retry_at = Instant::FAR_FUTURE;
        requester.rnr_counted = false;
        let connection = view.streams.at(stream).connection;
        let mut refused = List::EMPTY;
        core::mem::swap(&mut refused, &mut view.streams.at_mut(stream).requester.refused);
        view.connections.at_mut(connection).renewed.append(&mut view.packets, &mut refused);
        view.mark_ready(connection);
        refresh(view, now, stream);
    }
    let requester = &view.streams.at(stream).requester;
    Wake { ask: false, next: requester.ask_at.min(requester.retry_at) }
}

/// What [`resume`] wants.
pub(crate) struct Wake {
    /// A PROBE that asks for the stream's credit.
    pub(crate) ask: bool,
    /// When to call again.
    pub(crate) next: Instant,
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
fn finish_response(view: &mut View<'_>, now: Instant, connection: Idx<Connection>, slot: Idx<Work>) {
    let work = *view.works.at(slot);
    debug_assert!(!work.responding.is_linked() && !work.in_stream.is_linked());
    responder::drop_response(view, connection, slot);
    if let WorkKind::StreamReset { .. } = work.kind
        && let Some(stream) = find(view, connection, work.stream_id)
        && let Phase::Ending { ours, .. } = &mut view.streams.at_mut(stream).phase
    {
        *ours = ResetProgress::Judged;
        ending::advance(view, now, stream);
    }
}
