//! What whole messages do, in the order of their stream.

use crate::connection::Connection;
use crate::event::{CompletionKind, Status};
use crate::ids::{RegionKey, Serial};
use crate::memory::{AtomicOperation, Memory};
use crate::region::{self, Access};
use crate::stream::message::{Effect, TAIL_BYTES, Tail};
use crate::stream::receive::{self, ReceiveEnd};
use crate::stream::responder::{drop_response, fail, send_response};
use crate::stream::{Message, Receive, Stream, WorkKind};
use crate::table::Idx;
use crate::time::Instant;
use crate::view::{Kind, View, key};
use crate::wire::{DataHeader, Opcode};

/// Lets take effect, in order, every message that is whole. At most one step per message.
pub(crate) fn advance(view: &mut View<'_>, now: Instant, stream: Idx<Stream>, memory: &mut dyn Memory) {
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
        //= MR-STR-3
        if !view.messages.at(slot).whole {
            break;
        }
        let message = *view.messages.at(slot);
        drop_message(view, stream, slot);
        let responder = &mut view.streams.at_mut(stream).responder;
        responder.expected = expected.plus(1);
        responder.received += 1;
        take_effect(view, now, stream, &message, memory);
    }
}

/// Takes a message out of its stream.
pub(crate) fn drop_message(view: &mut View<'_>, stream: Idx<Stream>, slot: Idx<Message>) {
    let msn = view.messages.at(slot).msn;
    let owner = view.streams.at_mut(stream);
    owner.responder.messages.remove(&mut view.messages, slot);
    let open = &mut view.connections.at_mut(owner.connection).streams.messages;
    *open = open.saturating_sub(1);
    view.index.remove(key(Kind::Message, stream.raw(), msn.raw()));
    view.messages.free(slot);
}

/// The effect of a whole message in its turn. Its held tail lands first, its signal last.
fn take_effect(
    view: &mut View<'_>,
    now: Instant,
    stream: Idx<Stream>,
    message: &Message,
    memory: &mut dyn Memory,
) {
    let connection = view.streams.at(stream).connection;
    //= MR-OP-25
    if let Err(status) = land_tail(view, connection, &message.tail, memory) {
        fail(view, now, stream, message.msn, status);
        return;
    }
    match message.effect {
        Effect::None | Effect::Unmatched(_) => {}
        //= MR-OP-5, MR-OP-7
        Effect::Receive(slot) => complete_receive(view, stream, message, slot),
        //= MR-OP-8
        Effect::Read(response) => send_response(view, connection, response),
        Effect::Atomic { response, key, address, operation } => {
            //= MR-OP-12
            match operate(view, connection, key, address, operation, memory) {
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
    //= MR-OP-22
    if let Some(signal) = message.signal {
        let add = AtomicOperation::FetchAdd(signal.addend);
        if let Err(status) = operate(view, connection, signal.key, signal.address, add, memory) {
            fail(view, now, stream, message.msn, status);
        }
    }
}

/// Carries out a 64-bit operation, if its region is still there for it.
fn operate(
    view: &View<'_>,
    connection: Idx<Connection>,
    key: RegionKey,
    address: u64,
    operation: AtomicOperation,
    memory: &mut dyn Memory,
) -> Result<u64, Status> {
    let domain = view.connections.at(connection).domain;
    //= MR-MEM-9
    let reached = region::check_remote(&view.regions, domain, key, address, 8, Access::REMOTE_ATOMIC)
        .ok_or(Status::RemoteAccess)?;
    memory.atomic(reached.region, reached.offset, operation).map_err(|_| Status::RemoteOperation)
}

fn complete_receive(view: &mut View<'_>, stream: Idx<Stream>, message: &Message, slot: Idx<Receive>) {
    let connection = view.streams.at(stream).connection;
    let domain = view.connections.at(connection).domain;
    //= MR-OP-21
    let invalidated = message.invalidate.filter(|key| region::invalidate(&mut view.regions, domain, *key));
    let end = ReceiveEnd {
        kind: if message.opcode == Opcode::Send {
            CompletionKind::Receive
        } else {
            CompletionKind::ReceiveWrite
        },
        status: Status::Success,
        bytes: message.length,
        //= MR-OP-19
        immediate: message.immediate,
        //= MR-OP-20
        solicited: message.solicited,
        invalidated,
        tag: message.tag,
    };
    receive::complete(view, stream, slot, &end);
}

/// Keeps back what of a WRITE's packet belongs to the last cache line of the message (all of a message of at most one
/// line), and returns the rest.
pub(crate) fn hold_tail<'a>(tail: &mut Tail, header: &DataHeader, payload: &'a [u8]) -> &'a [u8] {
    let Some(remote) = header.remote else { return payload };
    let start = remote.address.wrapping_sub(u64::from(header.offset));
    let line = TAIL_BYTES as u64;
    let last = start.wrapping_add(u64::from(header.length)).wrapping_sub(1);
    let line_start = last - last % line;
    let tail_offset = if u64::from(header.length) <= line { 0 } else { line_start.wrapping_sub(start) };
    let in_packet =
        usize::try_from(tail_offset.saturating_sub(u64::from(header.offset))).unwrap_or(usize::MAX);
    let Some((head, held)) = payload.split_at_checked(in_packet) else { return payload };
    if held.is_empty() {
        return payload;
    }
    tail.key = remote.key;
    tail.address = start.wrapping_add(tail_offset);
    tail.length = u8::try_from(u64::from(header.length).saturating_sub(tail_offset)).unwrap_or(0);
    let skip = usize::try_from(u64::from(header.offset).saturating_sub(tail_offset)).unwrap_or(usize::MAX);
    for (to, from) in tail.bytes.iter_mut().skip(skip).zip(held) {
        *to = *from;
    }
    head
}

/// Writes a held tail.
fn land_tail(
    view: &View<'_>,
    connection: Idx<Connection>,
    tail: &Tail,
    memory: &mut dyn Memory,
) -> Result<(), Status> {
    let bytes = tail.bytes.get(..usize::from(tail.length)).unwrap_or_default();
    if bytes.is_empty() {
        return Ok(());
    }
    let domain = view.connections.at(connection).domain;
    let length = bytes.len() as u64;
    let reached =
        region::check_remote(&view.regions, domain, tail.key, tail.address, length, Access::REMOTE_WRITE)
            .ok_or(Status::RemoteAccess)?;
    memory.write(reached.region, reached.offset, bytes).map_err(|_| Status::RemoteOperation)
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;
    use crate::ids::{Csn, Msn, ReceiveIndex, StreamId};
    use crate::wire::{OpFlags, Remote};

    fn header(address: u64, offset: u32, length: u32) -> DataHeader {
        DataHeader {
            opcode: Opcode::Write,
            flags: OpFlags::NONE,
            stream: StreamId(0),
            csn: Csn::new(0),
            msn: Msn::new(0),
            offset,
            length,
            receive_index: ReceiveIndex::new(0),
            demand_kib: 0,
            remote: Some(Remote { key: RegionKey(1), address: address + u64::from(offset) }),
            operands: None,
            match_bits: None,
            immediate: None,
            signal: None,
        }
    }

    #[test]
    fn the_last_line_is_held_also_when_two_packets_share_it() {
        let bytes: Vec<u8> = (0..200).collect();
        for start in [0u8, 1, 63, 64, 100] {
            for cut in [1u8, 10, 127, 150, 190, 199] {
                let (at, start) = (usize::from(cut), u64::from(start));
                let mut tail = Tail::NONE;
                let first = hold_tail(&mut tail, &header(start, 0, 200), &bytes[..at]);
                let second = hold_tail(&mut tail, &header(start, u32::from(cut), 200), &bytes[at..]);
                let line = (start + 199) / 64 * 64;
                let held = usize::try_from(start + 200 - line).unwrap();
                assert_eq!((tail.address, usize::from(tail.length)), (line, held));
                assert_eq!(tail.bytes[..held], bytes[200 - held..], "start {start} cut {cut}");
                assert_eq!(first.len() + second.len(), 200 - held);
            }
        }
    }

    #[test]
    fn a_write_of_at_most_a_line_is_held_whole() {
        let mut tail = Tail::NONE;
        assert!(hold_tail(&mut tail, &header(40, 0, 64), &[7; 64]).is_empty());
        assert_eq!((tail.address, tail.length, tail.bytes), (40, 64, [7; 64]));
    }
}
