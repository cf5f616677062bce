//! Queues of receives: shared by streams, or taking datagrams.

use crate::connection::Connection;
use crate::event::{DatagramReceived, Event, Status};
use crate::ids::{QueueId, ReceiveIndex, Serial};
use crate::list::{Links, List};
use crate::memory::Memory;
use crate::region::{self, Access};
use crate::request::{PostError, QueueOptions, Segment};
use crate::stream::receive::{Posted, check_segments, scatter};
use crate::stream::{Receive, Stream};
use crate::table::Idx;
use crate::view::{Kind, View, key};
use crate::wire::{DataHeader, NackReason};

/// One queue.
#[derive(Debug)]
pub struct Queue {
    generation: u32,
    options: QueueOptions,
    pub(crate) receives: List<Receive, Posted>,
    /// Streams that draw on it.
    users: u32,
}

impl Queue {
    /// A slot of a pool, not in use.
    pub const EMPTY: Self = Self {
        generation: 0,
        options: QueueOptions { domain: crate::ids::ProtectionDomain(0), datagrams: None },
        receives: List::EMPTY,
        users: 0,
    };
}

/// Makes a queue.
pub(crate) fn create(view: &mut View<'_>, options: QueueOptions) -> Result<QueueId, PostError> {
    let number = options.datagrams.map(|address| key(Kind::Queue, 0, address.number));
    if number.is_some_and(|number| view.index.find(number).is_some()) {
        return Err(PostError::NoQueue);
    }
    let generation = *view.next_generation;
    *view.next_generation = generation.wrapping_add(1);
    let slot = view.queues.allocate(Queue { generation, options, ..Queue::EMPTY }).ok_or(PostError::Full)?;
    if let Some(number) = number {
        // The index has an entry for every queue.
        let _entered = view.index.insert(number, slot.raw());
    }
    Ok(QueueId { slot: slot.raw(), generation })
}

/// The queue that an id names.
pub(crate) fn find(view: &View<'_>, id: QueueId) -> Option<Idx<Queue>> {
    let slot = Idx::new(id.slot);
    view.queues.get(slot).filter(|queue| queue.generation == id.generation).map(|_| slot)
}

/// Ends a queue that no stream uses: its receives complete as flushed. O(receives of the queue).
pub(crate) fn destroy(view: &mut View<'_>, id: QueueId) -> Result<(), PostError> {
    let slot = find(view, id).ok_or(PostError::NoQueue)?;
    if view.queues.at(slot).users > 0 {
        return Err(PostError::NoQueue);
    }
    while let Some(receive) = view.queues.at_mut(slot).receives.pop_front(&mut view.receives) {
        let flushed = DatagramReceived {
            queue: id,
            id: view.receives.at(receive).id,
            status: Status::Flushed,
            connection: None,
            source_queue: 0,
            bytes: 0,
            immediate: None,
        };
        finish(view, receive, flushed);
    }
    if let Some(address) = view.queues.at(slot).options.datagrams {
        view.index.remove(key(Kind::Queue, 0, address.number));
    }
    view.queues.free(slot);
    Ok(())
}

/// Posts a receive to a queue.
pub(crate) fn post(
    view: &mut View<'_>,
    id: QueueId,
    work_id: u64,
    segments: &[Segment],
) -> Result<(), PostError> {
    let slot = find(view, id).ok_or(PostError::NoQueue)?;
    let domain = view.queues.at(slot).options.domain;
    let (copy, segment_count, capacity) = check_segments(view, domain, segments, Access::LOCAL_WRITE)?;
    if !view.has_completion_room() {
        return Err(PostError::Full);
    }
    let receive = Receive {
        id: work_id,
        segments: copy,
        segment_count,
        capacity,
        in_stream: Links::UNLINKED,
        ..Receive::EMPTY
    };
    let receive = view.receives.allocate(receive).ok_or(PostError::Full)?;
    view.queues.at_mut(slot).receives.push_back(&mut view.receives, receive);
    *view.reserved = view.reserved.saturating_add(1);
    region::count_references(&mut view.regions, segments, true);
    Ok(())
}

/// Has a stream draw on a queue.
pub(crate) fn attach(view: &mut View<'_>, stream: Idx<Stream>, id: QueueId) -> Result<(), PostError> {
    let slot = find(view, id).ok_or(PostError::NoQueue)?;
    let entry = view.streams.at_mut(stream);
    let domain = view.connections.at(entry.connection).domain;
    if view.queues.at(slot).options.domain != domain || entry.responder.posted != ReceiveIndex::new(0) {
        return Err(PostError::NoQueue);
    }
    if entry.responder.queue.is_none() {
        entry.responder.queue = slot;
        let users = &mut view.queues.at_mut(slot).users;
        *users = users.saturating_add(1);
    }
    Ok(())
}

/// The stream draws on its queue no more.
pub(crate) fn detach(view: &mut View<'_>, stream: Idx<Stream>) {
    if let Some(slot) = view.streams.at(stream).responder.queue.get() {
        let users = &mut view.queues.at_mut(slot).users;
        *users = users.saturating_sub(1);
    }
}

/// Takes receives for all indices of the stream up to `index` that have none; all of them or none.
pub(crate) fn take(view: &mut View<'_>, stream: Idx<Stream>, index: ReceiveIndex) -> Result<(), NackReason> {
    let responder = &view.streams.at(stream).responder;
    let slot = responder.queue.get().ok_or(NackReason::NoReceive)?;
    let ahead = u32::try_from(responder.posted.distance(index)).map_err(|_| NackReason::Ended)?;
    let queue = view.queues.at(slot);
    //= MR-STR-31
    if ahead >= view.config.message_window || ahead >= queue.receives.len() {
        return Err(NackReason::NoReceive);
    }
    for _ in 0..=ahead {
        let Some(receive) = view.queues.at_mut(slot).receives.pop_front(&mut view.receives) else { break };
        let responder = &mut view.streams.at_mut(stream).responder;
        let next = responder.posted;
        view.receives.at_mut(receive).index = next;
        let entered = view.index.insert(key(Kind::Receive, stream.raw(), next.raw()), receive.raw());
        debug_assert!(entered, "the index has an entry for every receive");
        responder.receives.push_back(&mut view.receives, receive);
        responder.posted = next.plus(1);
    }
    Ok(())
}

/// Gives a receive of which nothing was used back to the head of the stream's queue.
pub(crate) fn give_back(view: &mut View<'_>, slot: Idx<Queue>, receive: Idx<Receive>) {
    view.receives.at_mut(receive).claimed = None;
    let queue = &mut view.queues.at_mut(slot).receives;
    match queue.front() {
        Some(front) => queue.insert_before(&mut view.receives, front, receive),
        None => queue.push_back(&mut view.receives, receive),
    }
}

/// A datagram arrived. Without its queue, key, a receive, or room, it is dropped. Returns whether it was taken.
pub(crate) fn on_datagram(
    view: &mut View<'_>,
    connection: Idx<Connection>,
    header: &DataHeader,
    payload: &[u8],
    memory: &mut dyn Memory,
) -> bool {
    let number = header.offset;
    let Some(slot) = view.index.find(key(Kind::Queue, 0, number)).map(Idx::new) else { return false };
    let owner = view.connections.at(connection);
    let queue = view.queues.at_mut(slot);
    //= MR-OP-27
    let right = queue.options.datagrams.is_some_and(|address| address.key == header.receive_index.raw());
    let Some(receive) = queue.receives.front().filter(|_| right && queue.options.domain == owner.domain)
    else {
        return false;
    };
    let entry = *view.receives.at(receive);
    let fits = entry.capacity as usize >= payload.len();
    if !fits || scatter(memory, entry.segments(), 0, payload).is_err() {
        return false;
    }
    queue.receives.remove(&mut view.receives, receive);
    let received = DatagramReceived {
        queue: QueueId { slot: slot.raw(), generation: queue.generation },
        id: entry.id,
        status: Status::Success,
        connection: Some(owner.handle(connection)),
        source_queue: header.msn.raw(),
        bytes: header.length,
        immediate: header.immediate,
    };
    finish(view, receive, received);
    true
}

/// Frees a receive of a queue, and reports it.
fn finish(view: &mut View<'_>, receive: Idx<Receive>, received: DatagramReceived) {
    let entry = *view.receives.at(receive);
    region::count_references(&mut view.regions, entry.segments(), false);
    view.receives.free(receive);
    *view.reserved = view.reserved.saturating_sub(1);
    view.push_event(Event::DatagramReceived(received));
}
