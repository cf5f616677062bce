//! The responder half of a stream: packets of requests are placed as they come, and take effect in order.

use crate::connection::Connection;
use crate::event::{CompletionKind, Status};
use crate::ids::{Msn, ReceiveIndex, Serial};
use crate::list::{Links, List};
use crate::memory::{AtomicOperation, Memory};
use crate::region::{self, Access};
use crate::request::{SEGMENTS_MAX, Segment};
use crate::stream::message::{Effect, InResponder};
use crate::stream::receive::{self, Posted, ReceiveEnd, scatter};
use crate::stream::{
    Cut, Message, Phase, Receive, Stream, Work, WorkKind, ending, find_or_accept, make_urgent, status_code,
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
    pub(crate) receives: List<Receive, Posted>,
    /// Receives posted so far: the index of the next one.
    pub(crate) posted: ReceiveIndex,
    /// What the peer was last told of that.
    pub(crate) told: ReceiveIndex,
    /// The receive that a packet was last refused for want of.
    pub(crate) wanted: ReceiveIndex,
    /// Reason of the newest refusal, until an acknowledgement tells it.
    pub(crate) nack: Option<NackReason>,
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
        posted: ReceiveIndex::new(0),
        told: ReceiveIndex::new(0),
        wanted: ReceiveIndex::new(u32::MAX),
        nack: None,
        end: None,
    };

    /// Whether the peer wants to know of the receives: some were posted, or asked for.
    pub(crate) fn speaks_credit(&self) -> bool {
        self.posted != ReceiveIndex::new(0) || self.wanted != ReceiveIndex::new(u32::MAX)
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
        Err(reason) => return Judged::Refused(reason),
    };
    match admit(view, now, stream, header, payload, memory) {
        Ok(()) => {
            advance(view, now, stream, memory);
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
        return Err(NackReason::Ended);
    }
    let ahead = entry.responder.expected.distance(header.msn);
    let ahead = u32::try_from(ahead).map_err(|_| NackReason::Ended)?;
    if ahead >= view.config.message_window {
        return Err(NackReason::NoSlot);
    }
    let slot = match view.index.find(key(Kind::Message, stream.raw(), header.msn.raw())) {
        Some(slot) => {
            let slot = Idx::new(slot);
            let message = view.messages.at(slot);
            if message.opcode != header.opcode || message.length != header.length || message.whole {
                return Err(fail(view, now, stream, header.msn, Status::RemoteInvalid));
            }
            slot
        }
        None => open_message(view, now, stream, header)?,
    };
    place(view, now, stream, slot, header, payload, memory)?;
    let message = view.messages.at_mut(slot);
    message.placed = message.placed.saturating_add(u32::try_from(payload.len()).unwrap_or(u32::MAX));
    if header.flags.contains(OpFlags::LAST) {
        message.immediate = header.immediate;
        message.solicited = header.flags.contains(OpFlags::SOLICITED);
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
    if !has_slot(view, stream, header) {
        return Err(NackReason::NoSlot);
    }
    let effect = match header.opcode {
        Opcode::Send => Effect::Receive(claim(view, now, stream, header, header.length)?),
        Opcode::Write => Effect::None,
        Opcode::ReadRequest => {
            // A READ of no bytes touches no memory, and its key is not looked at, as with WRITE.
            let source = if header.length == 0 {
                None
            } else {
                let length = u64::from(header.length);
                let segment = check(view, now, stream, header, length, Access::REMOTE_READ)?;
                Some(Segment { length: header.length, ..segment })
            };
            Effect::Read(reserve_response(view, stream, header, WorkKind::ReadResponse, source)?)
        }
        _ => {
            let Some(remote) = header.remote else { return Err(NackReason::Ended) };
            let segment = check(view, now, stream, header, 8, Access::REMOTE_ATOMIC)?;
            let operation = atomic_of(header).filter(|_| segment.offset.is_multiple_of(8));
            let Some(operation) = operation else {
                return Err(fail(view, now, stream, header.msn, Status::RemoteInvalid));
            };
            let response =
                reserve_response(view, stream, header, WorkKind::AtomicResponse { value: 0 }, None)?;
            Effect::Atomic { response, key: remote.key, address: remote.address, operation }
        }
    };
    let message =
        Message { msn: header.msn, opcode: header.opcode, length: header.length, effect, ..Message::EMPTY };
    let Some(slot) = view.messages.allocate(message) else { return Err(NackReason::NoSlot) };
    if !view.index.insert(key(Kind::Message, stream.raw(), header.msn.raw()), slot.raw()) {
        debug_assert!(false, "the index holds an entry for every message");
        view.messages.free(slot);
        return Err(NackReason::NoSlot);
    }
    view.streams.at_mut(stream).responder.messages.push_back(&mut view.messages, slot);
    Ok(slot)
}

/// Whether there is room for a message, and for its response if it has one. What must wait for predecessors leaves some
/// of it to messages that need not, or else it could wait for ever for those.
fn has_slot(view: &View<'_>, stream: Idx<Stream>, header: &DataHeader) -> bool {
    let next = view.streams.at(stream).responder.expected == header.msn;
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
    let Some(slot) = receive::find(view, stream, header.receive_index) else {
        // Once this side closes, none will be posted any more.
        let owner = view.connections.at(view.streams.at(stream).connection);
        return Err(if owner.takes_new_work() { NackReason::NoReceive } else { NackReason::Closed });
    };
    let receive = view.receives.at_mut(slot);
    let own = receive.claimed.is_none_or(|msn| msn == header.msn);
    if own && receive.capacity >= needed {
        receive.claimed = Some(header.msn);
        return Ok(slot);
    }
    // It is reported when the receives before it are, with the end of the stream.
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
) -> Result<Segment, NackReason> {
    let domain = view.connections.at(view.streams.at(stream).connection).domain;
    let found = header.remote.and_then(|Remote { key, address }| {
        region::check_remote(&view.regions, domain, key, address, length, access)
    });
    if let Some((region, offset)) = found {
        return Ok(Segment { region, offset, length: 0 });
    }
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
    let placed = match (header.opcode, view.messages.at(slot).effect) {
        (Opcode::Send, Effect::Receive(receive)) => {
            let receive = *view.receives.at(receive);
            scatter(memory, receive.segments(), header.offset, payload)
        }
        (Opcode::Write, _) => {
            if header.immediate.is_some() {
                let receive = claim(view, now, stream, header, 0)?;
                view.messages.at_mut(slot).effect = Effect::Receive(receive);
            }
            // A WRITE of no bytes touches no memory, and its key is not looked at (as InfiniBand has it).
            if payload.is_empty() {
                Ok(())
            } else {
                let at = check(view, now, stream, header, payload.len() as u64, Access::REMOTE_WRITE)?;
                memory.write(at.region, at.offset, payload)
            }
        }
        _ => Ok(()),
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
    let owner = view.connections.at_mut(connection);
    if owner.streams.responses_owed >= u32::from(view.config.reads_granted) {
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
        stream_id: header.stream,
        kind,
        msn: header.msn,
        length: header.length,
        segments,
        segment_count,
        ..Work::EMPTY
    };
    let slot = view.works.allocate(work).ok_or(NackReason::NoSlot)?;
    owner.streams.responses_owed += 1;
    region::count_references(&mut view.regions, view.works.at(slot).segments(), true);
    Ok(slot)
}

/// Lets take effect, in order, every message that is whole. At most one step per message.
fn advance(view: &mut View<'_>, now: Instant, stream: Idx<Stream>, memory: &mut dyn Memory) {
    loop {
        let entry = view.streams.at(stream);
        let expected = entry.responder.expected;
        if entry.responder.end.is_some_and(|end| !expected.before(end)) {
            break;
        }
        let Some(slot) = view.index.find(key(Kind::Message, stream.raw(), expected.raw())).map(Idx::new)
        else {
            break;
        };
        if !view.messages.at(slot).whole {
            break;
        }
        let message = *view.messages.at(slot);
        drop_message(view, stream, slot);
        view.streams.at_mut(stream).responder.expected = expected.plus(1);
        take_effect(view, now, stream, &message, memory);
    }
}

/// Takes a message out of its stream.
pub(crate) fn drop_message(view: &mut View<'_>, stream: Idx<Stream>, slot: Idx<Message>) {
    let msn = view.messages.at(slot).msn;
    view.streams.at_mut(stream).responder.messages.remove(&mut view.messages, slot);
    view.index.remove(key(Kind::Message, stream.raw(), msn.raw()));
    view.messages.free(slot);
}

fn take_effect(
    view: &mut View<'_>,
    now: Instant,
    stream: Idx<Stream>,
    message: &Message,
    memory: &mut dyn Memory,
) {
    let connection = view.streams.at(stream).connection;
    match message.effect {
        Effect::None => {}
        Effect::Receive(slot) => {
            let kind = if message.opcode == Opcode::Send {
                CompletionKind::Receive
            } else {
                CompletionKind::ReceiveWrite
            };
            let end = ReceiveEnd {
                kind,
                status: Status::Success,
                bytes: message.length,
                immediate: message.immediate,
                solicited: message.solicited,
            };
            receive::complete(view, stream, slot, &end);
        }
        Effect::Read(response) => send_response(view, connection, response),
        Effect::Atomic { response, key, address, operation } => {
            let domain = view.connections.at(connection).domain;
            let value = region::check_remote(&view.regions, domain, key, address, 8, Access::REMOTE_ATOMIC)
                .ok_or(Status::RemoteAccess)
                .and_then(|(region, offset)| {
                    memory.atomic(region, offset, operation).map_err(|_| Status::RemoteOperation)
                });
            match value {
                Ok(value) => {
                    view.works.at_mut(response).kind = WorkKind::AtomicResponse { value };
                    send_response(view, connection, response);
                }
                Err(status) => {
                    drop_response(view, connection, response);
                    fail(view, now, stream, message.msn, status);
                }
            }
        }
    }
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
    region::count_references(&mut view.regions, work.segments(), false);
    view.works.free(slot);
    let owed = &mut view.connections.at_mut(connection).streams.responses_owed;
    *owed = owed.saturating_sub(1);
}

/// The message `msn` fails here, and with it all later ones: refused from now on, and the peer is told by RESULT.
/// Messages before it run to their end.
fn fail(view: &mut View<'_>, now: Instant, stream: Idx<Stream>, msn: Msn, status: Status) -> NackReason {
    let entry = view.streams.at_mut(stream);
    let lower = entry.responder.end.is_none_or(|end| msn.before(end));
    if lower {
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
