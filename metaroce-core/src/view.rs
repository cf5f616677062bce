//! The endpoint's tables, borrowed for one call: what all protocol steps work on.
//!
//! Steps that cross sub-states are functions of a [`View`]; everything that concerns one sub-state alone is a method
//! of that sub-state and takes what it needs.

use crate::config::{Config, PLANES_MAX};
use crate::connection::{AckSnapshot, Connection, Owing, Ready, Replies};
use crate::delivery::{Packet, inbound_words};
use crate::event::Event;
use crate::index::{Index, IndexHead, Key};
use crate::line::Lines;
use crate::list::{Linked, List};
use crate::path::{Path, Transmission};
use crate::pool::{Pool, PoolHead};
use crate::region::Region;
use crate::ring::{Ring, RingHead};
use crate::rng::{Keyed, Rng, Secrets};
use crate::share::Division;
use crate::stats::{EndpointStats, Limit};
use crate::storage::RawTables;
use crate::stream::{Message, Queue, Receive, Stream, Work};
use crate::table::{Idx, Table};
use crate::time::Instant;
use crate::wheel::{Wheel, WheelHead};

/// Heads of all tables, and what belongs to the endpoint as a whole.
pub(crate) struct State {
    pub(crate) config: Config,
    pub(crate) rng: Rng,
    /// Secret for cookies.
    pub(crate) secret: Keyed,
    pub(crate) secrets: Secrets,
    pub(crate) incarnation: u64,
    pub(crate) stats: EndpointStats,
    pub(crate) ready: List<Connection, Ready>,
    pub(crate) owing: List<Connection, Owing>,
    pub(crate) lines: Lines,
    /// When the lines let data out that waits for them, if some does.
    pub(crate) line_opens_at: Option<Instant>,
    /// Posted requests and receives whose completion has not been pushed yet.
    pub(crate) reserved: u32,
    /// Connections that have not been heard of since their CONNECT.
    pub(crate) half_open: u32,
    /// Limits of which a report has not been taken, a bit each.
    pub(crate) limits_told: u8,
    pub(crate) next_generation: u32,
    /// The nonce of the next connection, if a test set it.
    pub(crate) next_nonce: Option<u64>,
    pub(crate) replies: Replies,
    /// How the inbound rate of each plane is divided.
    pub(crate) divisions: [Division; PLANES_MAX],
    /// The connection that is told next what it may start with.
    pub(crate) start_cursor: u32,
    pub(crate) csn_window: u32,
    pub(crate) paths_per_connection: u8,
    pub(crate) events: RingHead,
    pub(crate) snapshots: RingHead,
    pub(crate) connections: PoolHead,
    pub(crate) streams: PoolHead,
    pub(crate) works: PoolHead,
    pub(crate) receives: PoolHead,
    pub(crate) messages: PoolHead,
    pub(crate) packets: PoolHead,
    pub(crate) transmissions: PoolHead,
    pub(crate) queues: PoolHead,
    pub(crate) regions: PoolHead,
    pub(crate) index: IndexHead,
    pub(crate) wheel: WheelHead,
}

/// See the module.
pub(crate) struct View<'a> {
    pub(crate) config: &'a Config,
    pub(crate) rng: &'a mut Rng,
    pub(crate) secret: &'a Keyed,
    pub(crate) secrets: &'a mut Secrets,
    pub(crate) incarnation: u64,
    pub(crate) stats: &'a mut EndpointStats,
    pub(crate) ready: &'a mut List<Connection, Ready>,
    pub(crate) owing: &'a mut List<Connection, Owing>,
    pub(crate) lines: &'a mut Lines,
    pub(crate) line_opens_at: &'a mut Option<Instant>,
    pub(crate) reserved: &'a mut u32,
    pub(crate) half_open: &'a mut u32,
    pub(crate) limits_told: &'a mut u8,
    pub(crate) next_generation: &'a mut u32,
    pub(crate) next_nonce: &'a mut Option<u64>,
    pub(crate) replies: &'a mut Replies,
    pub(crate) divisions: &'a mut [Division; PLANES_MAX],
    pub(crate) start_cursor: &'a mut u32,
    pub(crate) csn_window: u32,
    pub(crate) paths_per_connection: u8,
    pub(crate) events: Ring<'a, Event>,
    pub(crate) snapshots: Ring<'a, AckSnapshot>,
    pub(crate) connections: Pool<'a, Connection>,
    pub(crate) paths: Table<'a, Path>,
    pub(crate) streams: Pool<'a, Stream>,
    pub(crate) works: Pool<'a, Work>,
    pub(crate) receives: Pool<'a, Receive>,
    pub(crate) messages: Pool<'a, Message>,
    pub(crate) packets: Pool<'a, Packet>,
    pub(crate) transmissions: Pool<'a, Transmission>,
    pub(crate) queues: Pool<'a, Queue>,
    pub(crate) regions: Pool<'a, Region>,
    pub(crate) index: Index<'a>,
    pub(crate) wheel: Wheel<'a>,
    words: &'a mut [u64],
}

impl<'a> View<'a> {
    /// `None` only if a table of the storage is empty, which `Endpoint::new` rules out.
    #[expect(clippy::needless_pass_by_value, reason = "the borrowed tables move into the view")]
    pub(crate) fn new(state: &'a mut State, tables: RawTables<'a>) -> Option<Self> {
        Some(Self {
            config: &state.config,
            rng: &mut state.rng,
            secret: &state.secret,
            secrets: &mut state.secrets,
            incarnation: state.incarnation,
            stats: &mut state.stats,
            ready: &mut state.ready,
            owing: &mut state.owing,
            lines: &mut state.lines,
            line_opens_at: &mut state.line_opens_at,
            reserved: &mut state.reserved,
            half_open: &mut state.half_open,
            limits_told: &mut state.limits_told,
            next_generation: &mut state.next_generation,
            next_nonce: &mut state.next_nonce,
            replies: &mut state.replies,
            divisions: &mut state.divisions,
            start_cursor: &mut state.start_cursor,
            csn_window: state.csn_window,
            paths_per_connection: state.paths_per_connection,
            events: Ring::new(tables.events, &mut state.events),
            snapshots: Ring::new(tables.snapshots, &mut state.snapshots),
            connections: Pool::new(tables.connections, &mut state.connections)?,
            paths: Table::new(tables.paths)?,
            streams: Pool::new(tables.streams, &mut state.streams)?,
            works: Pool::new(tables.works, &mut state.works)?,
            receives: Pool::new(tables.receives, &mut state.receives)?,
            messages: Pool::new(tables.messages, &mut state.messages)?,
            packets: Pool::new(tables.packets, &mut state.packets)?,
            transmissions: Pool::new(tables.transmissions, &mut state.transmissions)?,
            queues: Pool::new(tables.queues, &mut state.queues)?,
            regions: Pool::new(tables.regions, &mut state.regions)?,
            index: Index::new(tables.index, &mut state.index),
            wheel: Wheel::new(&mut state.wheel, Table::new(tables.timers)?),
            words: tables.words,
        })
    }

    /// The inbound window of a connection together with its words.
    pub(crate) fn inbound(
        &mut self,
        connection: Idx<Connection>,
    ) -> (&mut crate::delivery::Inbound, &mut [u64]) {
        let words = words_of(self.words, self.csn_window, connection);
        (&mut self.connections.at_mut(connection).inbound, words)
    }

    /// Has `poll_transmit` visit the connection.
    pub(crate) fn mark_ready(&mut self, connection: Idx<Connection>) {
        self.mark_owing(connection);
        self.mark_data(connection);
    }

    /// Has it look for control packets and acknowledgements of the connection.
    pub(crate) fn mark_owing(&mut self, connection: Idx<Connection>) {
        if !Linked::<Owing>::links(self.connections.at(connection)).is_linked() {
            self.owing.push_back(&mut self.connections, connection);
        }
    }

    /// Has it look for data of the connection.
    pub(crate) fn mark_data(&mut self, connection: Idx<Connection>) {
        if !self.connections.at(connection).ready.is_linked() {
            self.ready.push_back(&mut self.connections, connection);
        }
    }

    /// Has `handle_timeout` visit the connection at `at`, or earlier.
    pub(crate) fn arm(&mut self, connection: Idx<Connection>, at: Instant) {
        let clock = &mut self.connections.at_mut(connection).clock;
        if at < clock.armed {
            clock.armed = at;
            self.wheel.schedule(Idx::new(connection.raw()), at);
        }
    }

    /// Counts that a limit was hit, and reports it if the last report has been taken.
    pub(crate) fn hit(&mut self, limit: Limit) {
        if let Some(count) = self.stats.limits_hit.get_mut(limit as usize) {
            *count += 1;
        }
        let bit = 1 << limit as u8;
        if *self.limits_told & bit == 0 && self.has_event_room() {
            *self.limits_told |= bit;
            self.push_event(Event::LimitReached { limit });
        }
    }

    /// Reports something. Room was reserved where the event is made possible.
    pub(crate) fn push_event(&mut self, event: Event) {
        let pushed = self.events.push(event);
        debug_assert!(pushed.is_ok(), "no room for {event:?}");
    }

    /// Whether one more completion can be promised.
    pub(crate) fn has_completion_room(&self) -> bool {
        let promised = self.events.len().saturating_add(*self.reserved);
        promised.saturating_add(self.event_margin()) < self.events.capacity()
    }

    /// Whether an event about a connection or stream can be pushed without breaking a promise.
    pub(crate) fn has_event_room(&self) -> bool {
        let promised = self.events.len().saturating_add(*self.reserved);
        promised.saturating_add(self.event_margin() / 2) < self.events.capacity()
    }

    /// The message window that peers are granted: not more than half of the table could ever hold.
    pub(crate) fn message_window(&self) -> u32 {
        self.config.message_window.min((self.messages.capacity() / 2).max(1))
    }

    /// Events kept free of completions: four for every connection, two for every stream.
    fn event_margin(&self) -> u32 {
        self.connections
            .capacity()
            .saturating_mul(4)
            .saturating_add(self.streams.capacity().saturating_mul(2))
    }
}

fn words_of(words: &mut [u64], csn_window: u32, connection: Idx<Connection>) -> &mut [u64] {
    let span = inbound_words(csn_window);
    let start = (connection.raw() as usize).saturating_mul(span);
    words.get_mut(start..).and_then(|rest| rest.get_mut(..span)).unwrap_or_default()
}

/// What [`Key::kind`] says.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// Stream id of a connection → stream.
    Stream = 1,
    /// MSN of a stream → inbound message.
    Message,
    /// Receive index of a stream → posted receive.
    Receive,
    /// MSN of a stream → work that waits for a response.
    Work,
    /// Nonce of a CONNECT → connection.
    Nonce,
    /// The peer's id of a connection and a hash of its address → connection.
    Peer,
    /// Number of a queue → queue that takes datagrams.
    Queue,
    /// Service number and a hash of the peer's address → implicit connection.
    Implicit,
    /// Hash of an IP address → how many of its connections are half open.
    Address,
}

/// The key of `number` in the space of `owner`.
pub(crate) const fn key(kind: Kind, owner: u32, number: u32) -> Key {
    Key { kind: kind as u8, owner, number }
}
