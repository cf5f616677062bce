//! Posting requests: the checks, and the work that comes of them.

use crate::connection::Connection;
use crate::ids::{Serial, StreamId};
use crate::region::{self, Access};
use crate::request::{DatagramRequest, INLINE_BYTES_MAX, Operation, PostError, WorkRequest};
use crate::stream::receive::check_segments;
use crate::stream::work::DatagramHeader;
use crate::stream::{Options, Work, WorkKind, find_or_open, refresh, responder};
use crate::table::Idx;
use crate::time::Instant;
use crate::transmit::HEADER_BYTES_MAX;
use crate::view::{Kind, View, key};
use crate::wire::{DATA_HEADER_BYTES_MAX, Signal};

const _: () = assert!(DATA_HEADER_BYTES_MAX + INLINE_BYTES_MAX <= HEADER_BYTES_MAX);

/// Posts a request. O(segments).
pub(crate) fn post(
    view: &mut View<'_>,
    now: Instant,
    connection: Idx<Connection>,
    id: StreamId,
    request: &WorkRequest<'_>,
) -> Result<(), PostError> {
    if !view.connections.at(connection).takes_new_work() {
        //= MR-STR-27
        return Err(PostError::NoConnection);
    }
    let (kind, access) = kind_of(request.operation);
    let domain = view.connections.at(connection).domain;
    let (segments, segment_count, length) = check_segments(view, domain, request.segments, access)?;
    let mut work = Work {
        connection,
        stream_id: id,
        kind,
        id: request.id,
        length,
        segments,
        segment_count,
        options: Options {
            fence: request.fence,
            solicited: request.solicited,
            unsignalled: request.unsignalled,
        },
        ..Work::EMPTY
    };
    if matches!(kind, WorkKind::Atomic { .. }) && length != 8 {
        return Err(PostError::Length);
    }
    take_inline(&mut work, request.inline)?;
    if !view.has_completion_room() || view.works.available() <= view.works.capacity() / 4 {
        // A quarter of the table is kept for responses owed to peers.
        return Err(PostError::Full);
    }
    let stream = find_or_open(view, connection, id).ok_or(PostError::NoStream)?;
    let owner = view.streams.at(stream);
    if !owner.is_open() || owner.requester.end.is_some() {
        return Err(PostError::NoStream);
    }
    work.stream = stream;
    work.msn = owner.requester.next_msn();
    let Some(slot) = view.works.allocate(work) else { return Err(PostError::Full) };
    if work.wants_response() && !view.index.insert(key(Kind::Work, stream.raw(), work.msn.raw()), slot.raw())
    {
        view.works.free(slot);
        return Err(PostError::Full);
    }
    view.streams.at_mut(stream).requester.push(&mut view.works, slot);
    view.connections.at_mut(connection).queued_bytes += u64::from(work.carried());
    //= MR-STR-28
    *view.reserved = view.reserved.saturating_add(1);
    region::count_references(&mut view.regions, request.segments, true);
    refresh(view, now, stream);
    Ok(())
}

fn kind_of(operation: Operation) -> (WorkKind, Access) {
    let send = |immediate, invalidate, tag| WorkKind::Send { immediate, invalidate, tag };
    match operation {
        Operation::Send { immediate } => (send(immediate, None, None), Access::LOCAL_READ),
        Operation::SendInvalidate { key } => (send(None, Some(key), None), Access::LOCAL_READ),
        Operation::SendTagged { bits, immediate } => (send(immediate, None, Some(bits)), Access::LOCAL_READ),
        Operation::Write { remote, immediate } => {
            (WorkKind::Write { remote, immediate, signal: None }, Access::LOCAL_READ)
        }
        Operation::WriteSignal { remote, signal, addend } => {
            let signal = Some(Signal { key: signal.key, address: signal.address, addend });
            (WorkKind::Write { remote, immediate: None, signal }, Access::LOCAL_READ)
        }
        Operation::Read { remote } => (WorkKind::Read { remote }, Access::LOCAL_WRITE),
        Operation::Atomic { remote, operation } => {
            (WorkKind::Atomic { remote, operation }, Access::LOCAL_WRITE)
        }
    }
}

/// Copies inline data into the work.
fn take_inline(work: &mut Work, inline: &[u8]) -> Result<(), PostError> {
    if inline.is_empty() {
        return Ok(());
    }
    let carries = matches!(work.kind, WorkKind::Send { .. } | WorkKind::Write { .. });
    let room = work.inline.get_mut(..inline.len()).filter(|_| carries && work.segment_count == 0);
    for (to, from) in room.ok_or(PostError::Length)?.iter_mut().zip(inline) {
        *to = *from;
    }
    work.inline_length = u8::try_from(inline.len()).map_err(|_| PostError::Length)?;
    work.length = u32::from(work.inline_length);
    Ok(())
}

/// Posts an unreliable datagram. O(segments).
pub(crate) fn post_datagram(
    view: &mut View<'_>,
    connection: Idx<Connection>,
    request: &DatagramRequest<'_>,
) -> Result<(), PostError> {
    let owner = view.connections.at(connection);
    if !owner.takes_new_work() {
        return Err(PostError::NoConnection);
    }
    let (domain, room) = (owner.domain, u32::from(owner.paths.payload_bytes));
    let (segments, segment_count, length) =
        check_segments(view, domain, request.segments, Access::LOCAL_READ)?;
    if length > room {
        return Err(PostError::Length);
    }
    if !view.has_completion_room() || view.works.available() <= view.works.capacity() / 4 {
        return Err(PostError::Full);
    }
    let address = DatagramHeader {
        source_queue: request.source_queue,
        destination_queue: request.destination_queue,
        key: request.key,
    };
    let work = Work {
        connection,
        kind: WorkKind::Datagram { address, immediate: request.immediate },
        id: request.id,
        length,
        segments,
        segment_count,
        ..Work::EMPTY
    };
    let Some(slot) = view.works.allocate(work) else { return Err(PostError::Full) };
    *view.reserved = view.reserved.saturating_add(1);
    region::count_references(&mut view.regions, request.segments, true);
    responder::send_response(view, connection, slot);
    Ok(())
}
