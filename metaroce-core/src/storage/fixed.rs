//! Tables in arrays, const-constructible: for a `static`, with no heap.

use super::{NO_EVENT, RawTables, SNAPSHOTS, Storage};
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

/// Storage in arrays. Name one with [`fixed_storage!`](crate::fixed_storage), which computes the sizes from
/// [`Limits`].
pub struct FixedStorage<
    const CONNECTIONS: usize,
    const PATHS: usize,
    const STREAMS: usize,
    const WORKS: usize,
    const RECEIVES: usize,
    const MESSAGES: usize,
    const PACKETS: usize,
    const TRANSMISSIONS: usize,
    const QUEUES: usize,
    const REGIONS: usize,
    const INDEX: usize,
    const EVENTS: usize,
    const WORDS: usize,
> {
    limits: Limits,
    connections: [Slot<Connection>; CONNECTIONS],
    paths: [Path; PATHS],
    streams: [Slot<Stream>; STREAMS],
    works: [Slot<Work>; WORKS],
    receives: [Slot<Receive>; RECEIVES],
    messages: [Slot<Message>; MESSAGES],
    packets: [Slot<Packet>; PACKETS],
    transmissions: [Slot<Transmission>; TRANSMISSIONS],
    queues: [Slot<Queue>; QUEUES],
    regions: [Slot<Region>; REGIONS],
    timers: [TimerNode; CONNECTIONS],
    index: [IndexEntry; INDEX],
    events: [Event; EVENTS],
    snapshots: [AckSnapshot; SNAPSHOTS],
    words: [u64; WORDS],
}

impl<
    const CONNECTIONS: usize,
    const PATHS: usize,
    const STREAMS: usize,
    const WORKS: usize,
    const RECEIVES: usize,
    const MESSAGES: usize,
    const PACKETS: usize,
    const TRANSMISSIONS: usize,
    const QUEUES: usize,
    const REGIONS: usize,
    const INDEX: usize,
    const EVENTS: usize,
    const WORDS: usize,
>
    FixedStorage<
        CONNECTIONS,
        PATHS,
        STREAMS,
        WORKS,
        RECEIVES,
        MESSAGES,
        PACKETS,
        TRANSMISSIONS,
        QUEUES,
        REGIONS,
        INDEX,
        EVENTS,
        WORDS,
    >
{
    /// Empty tables. The sizes must be those of [`Sizes::of`](super::Sizes::of) the limits: use
    /// [`fixed_storage!`](crate::fixed_storage); `Endpoint::new` checks them.
    #[must_use]
    pub const fn new(limits: Limits) -> Self {
        Self {
            limits,
            connections: [const { Slot::new(Connection::EMPTY) }; CONNECTIONS],
            paths: [const { Path::EMPTY }; PATHS],
            streams: [const { Slot::new(Stream::EMPTY) }; STREAMS],
            works: [const { Slot::new(Work::EMPTY) }; WORKS],
            receives: [const { Slot::new(Receive::EMPTY) }; RECEIVES],
            messages: [const { Slot::new(Message::EMPTY) }; MESSAGES],
            packets: [const { Slot::new(Packet::EMPTY) }; PACKETS],
            transmissions: [const { Slot::new(Transmission::EMPTY) }; TRANSMISSIONS],
            queues: [const { Slot::new(Queue::EMPTY) }; QUEUES],
            regions: [const { Slot::new(Region::EMPTY) }; REGIONS],
            timers: [const { TimerNode::new() }; CONNECTIONS],
            index: [IndexEntry::EMPTY; INDEX],
            events: [NO_EVENT; EVENTS],
            snapshots: [AckSnapshot::EMPTY; SNAPSHOTS],
            words: [0; WORDS],
        }
    }
}

impl<
    const CONNECTIONS: usize,
    const PATHS: usize,
    const STREAMS: usize,
    const WORKS: usize,
    const RECEIVES: usize,
    const MESSAGES: usize,
    const PACKETS: usize,
    const TRANSMISSIONS: usize,
    const QUEUES: usize,
    const REGIONS: usize,
    const INDEX: usize,
    const EVENTS: usize,
    const WORDS: usize,
> Storage
    for FixedStorage<
        CONNECTIONS,
        PATHS,
        STREAMS,
        WORKS,
        RECEIVES,
        MESSAGES,
        PACKETS,
        TRANSMISSIONS,
        QUEUES,
        REGIONS,
        INDEX,
        EVENTS,
        WORDS,
    >
{
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

/// The type of a [`FixedStorage`](crate::FixedStorage) for a constant [`Limits`](crate::Limits).
///
/// ```
/// use metaroce_core::{Limits, fixed_storage};
///
/// type Small = fixed_storage!(Limits::SMALL);
/// // In firmware this would be a `static`, reached through a cell of the user's choice.
/// static mut STORAGE: Small = Small::new(Limits::SMALL);
/// ```
#[macro_export]
macro_rules! fixed_storage {
    ($limits:expr) => {
        $crate::FixedStorage<
            { $crate::Sizes::of(&$limits).connections },
            { $crate::Sizes::of(&$limits).paths },
            { $crate::Sizes::of(&$limits).streams },
            { $crate::Sizes::of(&$limits).works },
            { $crate::Sizes::of(&$limits).receives },
            { $crate::Sizes::of(&$limits).messages },
            { $crate::Sizes::of(&$limits).packets },
            { $crate::Sizes::of(&$limits).transmissions },
            { $crate::Sizes::of(&$limits).queues },
            { $crate::Sizes::of(&$limits).regions },
            { $crate::Sizes::of(&$limits).index },
            { $crate::Sizes::of(&$limits).events },
            { $crate::Sizes::of(&$limits).words },
        >
    };
}
