//! The responder half of a stream: packets of requests are placed as they come, and take effect in order.

use crate::connection::{Connection, finish_datagram};
use crate::event::Status;
use crate::ids::{Msn, ReceiveIndex, RegionKey, Serial};
use crate::list::{Links, List};
use crate::memory::{AtomicOperation, Memory};
use crate::region::{self, Access, Reached};
use crate::request::{SEGMENTS_MAX, Segment};
use crate::stats::Limit;
use crate::stream::message::{Effect, InResponder};
use crate::stream::receive::{self, Posted, scatter};
use crate::stream::{
    Cut, Message, Phase, Queue, Receive, Stream, Work, WorkKind, effect, ending, find_or_accept, make_urgent,
    queue, status_code, tags,
};
use crate::table::Idx;
use crate::time::Instant;
use crate::view::{Kind, View, key};
use crate::wire::{DataHeader, NackReason, OpFlags, Opcode, Remote};

/// What a stream has received.
#[derive(Debug)]
pub struct Responder {
    /// The oldest message that has not taken effect.
    pub(crate) expected: Msn,
    pub(crate) messages: List<Message, InResponder>,
    /// Posted receives, those that a tagged message has matched included.
    pub(crate) receives: List<Receive, Posted>,
    /// Tagged receives that nothing has matched.
    pub(crate) tagged: List<Receive, Posted>,
    /// Posted receives that no message has claimed.
    pub(crate) unclaimed: u32,
    /// Count of the next tagged message that has not come.
    pub(crate) next_tagged: ReceiveIndex,
    pub(crate) unordered_match: bool,
    /// The queue that receives are drawn from.
    pub(crate) queue: Idx<Queue>,
    /// Receives posted so far: the index of the next one.
    pub(crate) posted: ReceiveIndex,
    /// What the peer was last told of that.
    pub(crate) told: ReceiveIndex,
    /// The receive that a packet was last refused for want of.
    pub(crate) wanted: ReceiveIndex,
    /// Reason of the newest refusal, until an acknowledgement tells it.
    pub(crate) nack: Option<NackReason>,
    /// Messages that took effect.
    pub(crate) received: u64,
    /// From this MSN on everything is refused: it failed here.
    pub(crate) end: Option<Msn>,
}

/// What became of a packet of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judged {
    /// In place, or reserved.
    Accepted,
    /// Not, and why.
    Refused(NackReason),
}

impl Responder {
    pub(crate) const NEW: Self = Self {
        expected: Msn::new(0),
        messages: List::EMPTY,
        receives: List::EMPTY,
        tagged: List::EMPTY,
        unclaimed: 0,
        next_tagged: ReceiveIndex::new(0),
        unordered_match: false,
        queue: Idx::NONE,
        posted: ReceiveIndex::new(0),
        told: ReceiveIndex::new(0),
        wanted: ReceiveIndex::new(u32::MAX),
        nack: None,
        received: 0,
        end: None,
    };

    /// Goes on as after so many messages and receives (for tests).
    pub(crate) const fn start_at(&mut self, msn: Msn, receive: ReceiveIndex) {
        self.expected = msn;
        self.posted = receive;
        self.told = receive;
    }

    /// Whether the peer wants to know of the receives: some were posted, or asked for.
    pub(crate) fn speaks_credit(&self) -> bool {
        self.queue.is_some()
            || self.posted != ReceiveIndex::new(0)
            || self.wanted != ReceiveIndex::new(u32::MAX)
    }
}

/// Judges a packet of a request whose CSN is new: checks it, places its payload, and lets take effect what is next.
pub(crate) fn on_request(
    view: &mut View<'_>,
    now: Instant,
    connection: Idx<Connection>,
    header: &DataHeader,
    payload: &[u8],
    memory: &mut dyn Memory,
) -> Judged {
    let stream = match find_or_accept(view, connection, header.stream) {
        Ok(stream) => stream,
        Err(reason) => {
            //= MR-STR-30
            view.connections.at_mut(connection).streams.unopened = Some((header.stream, reason));
            return Judged::Refused(reason);
        }
    };
    match admit(view, now, stream, header, payload, memory) {
        Ok(()) => {
            effect::advance(view, now, stream, memory);
            Judged::Accepted
        }
        Err(reason) => {
            let responder = &mut view.streams.at_mut(stream).responder;
            responder.nack = Some(reason);
            if reason == NackReason::NoReceive {
                responder.wanted = header.receive_index;
            }
            make_urgent(view, stream);
            Judged::Refused(reason)
        }
    }
}

/// Checks the packet and places its payload.
fn admit(
    view: &mut View<'_>,
    now: Instant,
    stream: Idx<Stream>,
    header: &DataHeader,
    payload: &[u8],
    memory: &mut dyn Memory,
) -> Result<(), NackReason> {
    let entry = view.streams.at(stream);
    let ended = entry.responder.end.is_some_and(|end| !header.msn.before(end));
    if entry.phase != Phase::Open || ended {
        //= MR-DLV-16
        return Err(NackReason::Ended);
    }
    let ahead = entry.responder.expected.distance(header.msn);
    let ahead = u32::try_from(ahead).map_err(|_| NackReason::Ended)?;
    //= MR-STR-6
    if ahead >= view.config.message_window {
        return Err(NackReason::NoSlot);
    }
    let slot = match view.index.find(key(Kind::Message, stream.raw(), header.msn.raw())) {
        Some(slot) => {
            let slot = Idx::new(slot);
            let message = view.messages.at(slot);
            //= MR-DLV-17
            if message.opcode != header.opcode || message.length != header.length || message.whole {
                return Err(fail(view, now, stream, header.msn, Status::RemoteInvalid));
            }
            slot
        }
        None => open_message(view, now, stream, header)?,
    };
    //= MR-DLV-7, MR-OP-31
    place(view, now, stream, slot, header, payload, memory)?;
    let message = view.messages.at_mut(slot);
    message.placed = message.placed.saturating_add(u32::try_from(payload.len()).unwrap_or(u32::MAX));
    if header.flags.contains(OpFlags::LAST) {
        message.immediate = header.immediate;
        message.solicited = header.flags.contains(OpFlags::SOLICITED);
        message.signal = header.signal;
        if header.flags.contains(OpFlags::INVALIDATE) {
            message.invalidate = header.immediate.map(RegionKey);
            message.immediate = None;
        }
    }
    message.whole = match header.opcode {
        Opcode::Send | Opcode::Write => message.placed >= message.length,
        _ => true,
    };
    Ok(())
}

/// Enters the first packet of a message: checks what the whole message needs.
fn open_message(
    view: &mut View<'_>,
    now: Instant,
    stream: Idx<Stream>,
    header: &DataHeader,
) -> Result<Idx<Message>, NackReason> {
    let connection = view.streams.at(stream).connection;
    //= MR-STR-8
    if !has_slot(view, stream, header) {
        view.hit(Limit::Messages);
        return Err(NackReason::NoSlot);
    }
    let effect = match header.opcode {
        Opcode::Send if header.match_bits.is_some() => Effect::Unmatched(header.receive_index),
        //= MR-OP-1, MR-OP-2
        Opcode::Send => Effect::Receive(claim(view, now, stream, header, header.length)?),
        Opcode::Write => Effect::None,
        Opcode::ReadRequest => {
            // A READ of no bytes touches no memory, and its key is not looked at, as with WRITE.
            let source = if header.length == 0 {
                None
            } else {
                let length = u64::from(header.length);
                let reached = check(view, now, stream, header, length, Access::REMOTE_READ)?;
                Some(Segment { region: reached.region, offset: reached.offset, length: header.length })
            };
            Effect::Read(reserve_response(view, stream, header, WorkKind::ReadResponse, source)?)
        }
        _ => {
            let Some(remote) = header.remote else { return Err(NackReason::Ended) };
            let reached = check(view, now, stream, header, 8, Access::REMOTE_ATOMIC)?;
            //= MR-OP-13
            let operation = atomic_of(header).filter(|_| reached.offset.is_multiple_of(8));
            let Some(operation) = operation else {
                return Err(fail(view, now, stream, header.msn, Status::RemoteInvalid));
            };
            let response =
                reserve_response(view, stream, header, WorkKind::AtomicResponse { value: 0 }, None)?;
            Effect::Atomic { response, key: remote.key, address: remote.address, operation }
        }
    };
    let message = Message {
        msn: header.msn,
        opcode: header.opcode,
        length: header.length,
        effect,
        tag: header.match_bits,
        ..Message::EMPTY
    };
    let Some(slot) = view.messages.allocate(message) else { return Err(NackReason::NoSlot) };
    if !view.index.insert(key(Kind::Message, stream.raw(), header.msn.raw()), slot.raw()) {
        debug_assert!(false, "the index holds an entry for every message");
        view.messages.free(slot);
        return Err(NackReason::NoSlot);
    }
    view.streams.at_mut(stream).responder.messages.push_back(&mut view.messages, slot);
    view.connections.at_mut(connection).streams.messages += 1;
    Ok(slot)
}

/// Whether there is room for a message, and for its response if it has one. What must wait for predecessors leaves some
/// of it to messages that need not, or else it could wait for ever for those.
fn has_slot(view: &View<'_>, stream: Idx<Stream>, header: &DataHeader) -> bool {
    let owner = view.streams.at(stream);
    // A tagged message for which no receive is posted waits, whatever comes before it.
    let waits = header.match_bits.is_some_and(|bits| tags::first_match(view, stream, bits).is_none());
    let next = owner.responder.expected == header.msn && !waits;
    // One connection leaves a quarter of the table to the others.
    let quota = view.messages.capacity() - view.messages.capacity() / 4;
    if !next && view.connections.at(owner.connection).streams.messages >= quota {
        return false;
    }
    //= MR-STR-7
    let kept = if next { 0 } else { view.streams.capacity().min(view.messages.capacity() / 2) };
    let responds = !matches!(header.opcode, Opcode::Send | Opcode::Write);
    // Requests leave a quarter of the works to responses.
    let kept_works = if next { 0 } else { view.works.capacity() / 8 };
    view.messages.available() > kept && (!responds || view.works.available() > kept_works)
}

/// The receive that a message consumes, if it is posted, large enough, and no other message's.
fn claim(
    view: &mut View<'_>,
    now: Instant,
    stream: Idx<Stream>,
    header: &DataHeader,
    needed: u32,
) -> Result<Idx<Receive>, NackReason> {
    let mut found = receive::find(view, stream, header.receive_index);
    if found.is_none() && view.streams.at(stream).responder.queue.is_some() {
        queue::take(view, stream, header.receive_index)?;
        found = receive::find(view, stream, header.receive_index);
    }
    //= MR-DLV-6, MR-STR-13
    let Some(slot) = found else {
        // Once this side closes, none will be posted any more.
        let owner = view.connections.at(view.streams.at(stream).connection);
        //= MR-CLS-8
        return Err(if owner.takes_new_work() { NackReason::NoReceive } else { NackReason::Closed });
    };
    let receive = view.receives.at_mut(slot);
    //= MR-OP-3
    let own = receive.claimed.is_none_or(|msn| msn == header.msn);
    if own && receive.capacity >= needed {
        let fresh = receive.claimed.replace(header.msn).is_none();
        let unclaimed = &mut view.streams.at_mut(stream).responder.unclaimed;
        *unclaimed = unclaimed.saturating_sub(u32::from(fresh));
        return Ok(slot);
    }
    // It is reported when the receives before it are, with the end of the stream.
    //= MR-OP-4
    receive.too_short |= own;
    Err(fail(view, now, stream, header.msn, Status::RemoteInvalid))
}

/// Checks a peer's access; a bad one fails the stream from this message on.
fn check(
    view: &mut View<'_>,
    now: Instant,
    stream: Idx<Stream>,
    header: &DataHeader,
    length: u64,
    access: Access,
) -> Result<Reached, NackReason> {
    let domain = view.connections.at(view.streams.at(stream).connection).domain;
    //= MR-MEM-2
    let found = header.remote.and_then(|Remote { key, address }| {
        region::check_remote(&view.regions, domain, key, address, length, access)
    });
    if let Some(reached) = found {
        return Ok(reached);
    }
    //= MR-MEM-4
    //= MR-MEM-5
    view.stats.access_faults += 1;
    fail(view, now, stream, header.msn, Status::RemoteAccess);
    Err(NackReason::Access)
}

/// Places one packet's payload in its final memory.
fn place(
    view: &mut View<'_>,
    now: Instant,
    stream: Idx<Stream>,
    slot: Idx<Message>,
    header: &DataHeader,
    payload: &[u8],
    memory: &mut dyn Memory,
) -> Result<(), NackReason> {
    if let Effect::Unmatched(count) = view.messages.at(slot).effect {
        let receive = tags::claim(view, now, stream, header, count)?;
        view.messages.at_mut(slot).effect = Effect::Receive(receive);
    }
    let placed = match (header.opcode, view.messages.at(slot).effect) {
        (Opcode::Send, Effect::Receive(receive)) => {
            let receive = view.receives.at_mut(receive);
            receive.used |= !payload.is_empty();
            let receive = *receive;
            scatter(memory, receive.segments(), header.offset, payload)
        }
        (Opcode::Write, _) => return place_write(view, now, stream, slot, header, payload, memory),
        _ => Ok(()),
    };
    //= MR-MEM-11
    placed.map_err(|_| fail(view, now, stream, header.msn, Status::RemoteOperation))
}

/// Places one packet of a WRITE. The last cache line waits if the region asks for that.
fn place_write(
    view: &mut View<'_>,
    now: Instant,
    stream: Idx<Stream>,
    slot: Idx<Message>,
    header: &DataHeader,
    payload: &[u8],
    memory: &mut dyn Memory,
) -> Result<(), NackReason> {
    if let Some(signal) = header.signal {
        let remote = Some(Remote { key: signal.key, address: signal.address });
        let reached = check(view, now, stream, &DataHeader { remote, ..*header }, 8, Access::REMOTE_ATOMIC)?;
        if !reached.offset.is_multiple_of(8) {
            return Err(fail(view, now, stream, header.msn, Status::RemoteInvalid));
        }
    }
    //= MR-OP-17
    // A WRITE of no bytes touches no memory, and its key is not looked at (as InfiniBand has it).
    let reached = if payload.is_empty() {
        None
    } else {
        Some(check(view, now, stream, header, payload.len() as u64, Access::REMOTE_WRITE)?)
    };
    if header.immediate.is_some() {
        //= MR-OP-2
        let receive = claim(view, now, stream, header, 0)?;
        view.messages.at_mut(slot).effect = Effect::Receive(receive);
    }
    let Some(reached) = reached else { return Ok(()) };
    let placed = if reached.ordered_tails {
        let message = view.messages.at_mut(slot);
        let head = effect::hold_tail(&mut message.tail, header, payload);
        if head.is_empty() { Ok(()) } else { memory.write(reached.region, reached.offset, head) }
    } else {
        //= MR-OP-6
        memory.write(reached.region, reached.offset, payload)
    };
    placed.map_err(|_| fail(view, now, stream, header.msn, Status::RemoteOperation))
}

/// Reserves the response of a READ or atomic.
fn reserve_response(
    view: &mut View<'_>,
    stream: Idx<Stream>,
    header: &DataHeader,
    kind: WorkKind,
    source: Option<Segment>,
) -> Result<Idx<Work>, NackReason> {
    let connection = view.streams.at(stream).connection;
    let owner = view.connections.at(connection);
    //= MR-OP-14
    if owner.streams.responses_owed >= u32::from(view.config.reads_granted) || view.works.available() == 0 {
        view.hit(Limit::Requests);
        return Err(NackReason::NoSlot);
    }
    let mut segments = [Segment::default(); SEGMENTS_MAX];
    let mut segment_count = 0;
    if let (Some(first), Some(source)) = (segments.first_mut(), source) {
        *first = source;
        segment_count = 1;
    }
    let work = Work {
        connection,
        stream: Idx::NONE,
        //= MR-WIRE-18
        stream_id: header.stream,
        kind,
        msn: header.msn,
        length: header.length,
        segments,
        segment_count,
        ..Work::EMPTY
    };
    let slot = view.works.allocate(work).ok_or(NackReason::NoSlot)?;
    view.connections.at_mut(connection).streams.responses_owed += 1;
    region::count_references(&mut view.regions, view.works.at(slot).segments(), true);
    Ok(slot)
}

/// Queues a response, RESULT or STREAM_RESET for sending.
pub(crate) fn send_response(view: &mut View<'_>, connection: Idx<Connection>, slot: Idx<Work>) {
    let carried = view.works.at(slot).carried();
    let owner = view.connections.at_mut(connection);
    owner.streams.responses.push_back(&mut view.works, slot);
    owner.queued_bytes += u64::from(carried);
    view.mark_ready(connection);
}

/// Frees a reserved response that will not be sent.
pub(crate) fn drop_response(view: &mut View<'_>, connection: Idx<Connection>, slot: Idx<Work>) {
    let work = *view.works.at(slot);
    if let WorkKind::Datagram { .. } = work.kind {
        finish_datagram(view, connection, slot, Status::Flushed);
        return;
    }
    region::count_references(&mut view.regions, work.segments(), false);
    view.works.free(slot);
    let owed = &mut view.connections.at_mut(connection).streams.responses_owed;
    *owed = owed.saturating_sub(1);
}

/// The message `msn` fails here, and with it all later ones: refused from now on, and the peer is told by RESULT.
/// Messages before it run to their end.
pub(crate) fn fail(
    view: &mut View<'_>,
    now: Instant,
    stream: Idx<Stream>,
    msn: Msn,
    status: Status,
) -> NackReason {
    let entry = view.streams.at_mut(stream);
    let lower = entry.responder.end.is_none_or(|end| msn.before(end));
    if lower {
        //= MR-STR-19
        entry.responder.end = Some(msn);
        let (connection, id) = (entry.connection, entry.id);
        let result = Work {
            connection,
            stream_id: id,
            kind: WorkKind::Result { code: status_code(status) },
            msn,
            progress: Cut::From(0),
            in_stream: Links::UNLINKED,
            ..Work::EMPTY
        };
        // A quarter of the table is kept for responses; without room the stream ends by STREAM_RESET instead.
        match view.works.allocate(result) {
            Some(slot) => {
                view.connections.at_mut(connection).streams.responses_owed += 1;
                send_response(view, connection, slot);
            }
            None => ending::end_stream(view, now, stream, status),
        }
    }
    NackReason::Ended
}

/// The operation that an atomic's header names.
fn atomic_of(header: &DataHeader) -> Option<AtomicOperation> {
    let [first, second] = header.operands?;
    Some(match header.opcode {
        Opcode::FetchAdd => AtomicOperation::FetchAdd(first),
        Opcode::CompareSwap => AtomicOperation::CompareSwap { compare: first, swap: second },
        Opcode::Swap => AtomicOperation::Swap(first),
        Opcode::Min => AtomicOperation::Min(first),
        Opcode::Max => AtomicOperation::Max(first),
        Opcode::And => AtomicOperation::And(first),
        Opcode::Or => AtomicOperation::Or(first),
        Opcode::Xor => AtomicOperation::Xor(first),
        _ => return None,
    })
}
