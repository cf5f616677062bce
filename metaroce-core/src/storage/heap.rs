//! Tables on the heap, allocated once.

extern crate alloc;

use alloc::boxed::Box;

use super::{NO_EVENT, RawTables, Sizes, Storage};
use crate::config::Limits;
use crate::connection::{AckSnapshot, Connection};
use crate::delivery::Packet;
use crate::event::Event;
use crate::index::IndexEntry;
use crate::path::{Path, Transmission};
use crate::pool::Slot;
use crate::region::Region;
use crate::stream::{Message, Queue, Receive, Stream, Work};
use crate::wheel::TimerNode;

/// Storage on the heap; nothing is allocated after [`HeapStorage::new`].
pub struct HeapStorage {
    limits: Limits,
    connections: Box<[Slot<Connection>]>,
    paths: Box<[Path]>,
    streams: Box<[Slot<Stream>]>,
    works: Box<[Slot<Work>]>,
    receives: Box<[Slot<Receive>]>,
    messages: Box<[Slot<Message>]>,
    packets: Box<[Slot<Packet>]>,
    transmissions: Box<[Slot<Transmission>]>,
    queues: Box<[Slot<Queue>]>,
    regions: Box<[Slot<Region>]>,
    timers: Box<[TimerNode]>,
    index: Box<[IndexEntry]>,
    events: Box<[Event]>,
    snapshots: Box<[AckSnapshot]>,
    words: Box<[u64]>,
}

impl HeapStorage {
    /// Allocates tables for `limits`: [`Limits::bytes`] bytes.
    #[must_use]
    pub fn new(limits: &Limits) -> Self {
        let sizes = Sizes::of(limits);
        Self {
            limits: *limits,
            connections: table(sizes.connections, || Slot::new(Connection::EMPTY)),
            paths: table(sizes.paths, || Path::EMPTY),
            streams: table(sizes.streams, || Slot::new(Stream::EMPTY)),
            works: table(sizes.works, || Slot::new(Work::EMPTY)),
            receives: table(sizes.receives, || Slot::new(Receive::EMPTY)),
            messages: table(sizes.messages, || Slot::new(Message::EMPTY)),
            packets: table(sizes.packets, || Slot::new(Packet::EMPTY)),
            transmissions: table(sizes.transmissions, || Slot::new(Transmission::EMPTY)),
            queues: table(sizes.queues, || Slot::new(Queue::EMPTY)),
            regions: table(sizes.regions, || Slot::new(Region::EMPTY)),
            timers: table(sizes.timers, TimerNode::new),
            index: table(sizes.index, || IndexEntry::EMPTY),
            events: table(sizes.events, || NO_EVENT),
            snapshots: table(sizes.snapshots, || AckSnapshot::EMPTY),
            words: table(sizes.words, || 0),
        }
    }
}

fn table<T>(count: usize, entry: impl Fn() -> T) -> Box<[T]> {
    (0..count).map(|_| entry()).collect()
}

impl Storage for HeapStorage {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn tables(&mut self) -> RawTables<'_> {
        RawTables {
            connections: &mut self.connections,
            paths: &mut self.paths,
            streams: &mut self.streams,
            works: &mut self.works,
            receives: &mut self.receives,
            messages: &mut self.messages,
            packets: &mut self.packets,
            transmissions: &mut self.transmissions,
            queues: &mut self.queues,
            regions: &mut self.regions,
            timers: &mut self.timers,
            index: &mut self.index,
            events: &mut self.events,
            snapshots: &mut self.snapshots,
            words: &mut self.words,
        }
    }
}
