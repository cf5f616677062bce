//! Caller-owned memory: the tables of an endpoint, sized once.

mod fixed;
#[cfg(feature = "alloc")]
mod heap;

pub use fixed::FixedStorage;
#[cfg(feature = "alloc")]
pub use heap::HeapStorage;

use crate::config::{Limits, PLANES_MAX};
use crate::connection::{AckSnapshot, Connection};
use crate::delivery::{Packet, inbound_words};
use crate::event::Event;
use crate::index::{IndexEntry, index_slots};
use crate::path::{Path, Transmission};
use crate::pool::Slot;
use crate::region::Region;
use crate::stats::Limit;
use crate::stream::{Message, Queue, Receive, Stream, Work};
use crate::wheel::TimerNode;

/// Acknowledgements that can wait, written down, for the next `poll_transmit`.
pub const SNAPSHOTS: usize = 32;

/// The tables of an endpoint, borrowed. The element types are opaque: a storage only makes and keeps them.
#[expect(missing_docs, reason = "each field is the table of its element type, which is documented")]
pub struct RawTables<'a> {
    pub connections: &'a mut [Slot<Connection>],
    pub paths: &'a mut [Path],
    pub streams: &'a mut [Slot<Stream>],
    pub works: &'a mut [Slot<Work>],
    pub receives: &'a mut [Slot<Receive>],
    pub messages: &'a mut [Slot<Message>],
    pub packets: &'a mut [Slot<Packet>],
    pub transmissions: &'a mut [Slot<Transmission>],
    pub queues: &'a mut [Slot<Queue>],
    pub regions: &'a mut [Slot<Region>],
    pub timers: &'a mut [TimerNode],
    pub index: &'a mut [IndexEntry],
    pub events: &'a mut [Event],
    pub snapshots: &'a mut [AckSnapshot],
    pub words: &'a mut [u64],
}

/// Hands out the tables of an endpoint.
///
/// Implemented by [`FixedStorage`] (arrays, for a `static`), by [`HeapStorage`], and by `&mut S` of either. Every
/// call must hand out the same memory; [`Endpoint::new`](crate::Endpoint::new) checks the sizes once.
pub trait Storage {
    /// How many of everything the tables hold.
    fn limits(&self) -> Limits;
    /// The tables, sized as [`Sizes::of`] the limits says.
    fn tables(&mut self) -> RawTables<'_>;
}

impl<S: Storage> Storage for &mut S {
    fn limits(&self) -> Limits {
        (**self).limits()
    }
    fn tables(&mut self) -> RawTables<'_> {
        (**self).tables()
    }
}

/// Entries of every table, for given [`Limits`]. Pools and tables have one entry more than they hold: what a fault of
/// ours would otherwise write out of bounds goes there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each field is the number of entries of the table of that name")]
pub struct Sizes {
    pub connections: usize,
    pub paths: usize,
    pub streams: usize,
    pub works: usize,
    pub receives: usize,
    pub messages: usize,
    pub packets: usize,
    pub transmissions: usize,
    pub queues: usize,
    pub regions: usize,
    pub timers: usize,
    pub index: usize,
    pub events: usize,
    pub snapshots: usize,
    pub words: usize,
}

impl Sizes {
    /// Entries of every table. Saturates for limits out of their ranges.
    #[must_use]
    //= MR-SEC-4
    pub const fn of(limits: &Limits) -> Self {
        let connections = limits.connections as usize;
        let streams = limits.streams as usize;
        let works = limits.requests as usize;
        let receives = limits.receives as usize;
        let messages = limits.messages as usize;
        // Streams, messages, receives, works that wait for a response, queues, and for every connection four names and
        // one for each further address of its peer.
        let named = streams.saturating_add(messages).saturating_add(receives).saturating_add(works);
        let named = named
            .saturating_add(connections.saturating_mul(3 + PLANES_MAX))
            .saturating_add(limits.queues as usize);
        // A completion for every work and receive; four events for every connection, two for every stream, one for
        // every limit.
        let events = works.saturating_add(receives).saturating_add(1 + Limit::ALL.len());
        let events =
            events.saturating_add(connections.saturating_mul(4)).saturating_add(streams.saturating_mul(2));
        let packets = limits.packets as usize;
        Self {
            connections: connections.saturating_add(1),
            paths: connections.saturating_mul(limits.paths_per_connection as usize).saturating_add(1),
            streams: streams.saturating_add(1),
            works: works.saturating_add(1),
            receives: receives.saturating_add(1),
            messages: messages.saturating_add(1),
            packets: packets.saturating_add(1),
            // A packet may be in flight twice: where it is thought lost by a timeout, and again.
            transmissions: packets.saturating_mul(2).saturating_add(1),
            queues: (limits.queues as usize).saturating_add(1),
            regions: (limits.regions as usize).saturating_add(1),
            timers: connections.saturating_add(1),
            index: index_slots(named),
            events,
            snapshots: SNAPSHOTS,
            words: connections.saturating_mul(inbound_words(limits.csn_window)),
        }
    }

    /// Bytes of all tables.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.connections * size_of::<Slot<Connection>>()
            + self.paths * size_of::<Path>()
            + self.streams * size_of::<Slot<Stream>>()
            + self.works * size_of::<Slot<Work>>()
            + self.receives * size_of::<Slot<Receive>>()
            + self.messages * size_of::<Slot<Message>>()
            + self.packets * size_of::<Slot<Packet>>()
            + self.transmissions * size_of::<Slot<Transmission>>()
            + self.queues * size_of::<Slot<Queue>>()
            + self.regions * size_of::<Slot<Region>>()
            + self.timers * size_of::<TimerNode>()
            + self.index * size_of::<IndexEntry>()
            + self.events * size_of::<Event>()
            + self.snapshots * size_of::<AckSnapshot>()
            + self.words * size_of::<u64>()
    }
}

/// Whether the tables have the sizes that the limits ask for.
pub(crate) fn has_sizes(tables: &RawTables<'_>, sizes: &Sizes) -> bool {
    tables.connections.len() == sizes.connections
        && tables.paths.len() == sizes.paths
        && tables.streams.len() == sizes.streams
        && tables.works.len() == sizes.works
        && tables.receives.len() == sizes.receives
        && tables.messages.len() == sizes.messages
        && tables.packets.len() == sizes.packets
        && tables.transmissions.len() == sizes.transmissions
        && tables.queues.len() == sizes.queues
        && tables.regions.len() == sizes.regions
        && tables.timers.len() == sizes.timers
        && tables.index.len() == sizes.index
        && tables.events.len() == sizes.events
        && tables.snapshots.len() == sizes.snapshots
        && tables.words.len() == sizes.words
}

/// An event that fills a slot of a ring that is not in use.
pub(crate) const NO_EVENT: Event =
    Event::Connected { connection: crate::ids::ConnectionHandle { slot: u32::MAX, generation: 0 } };
