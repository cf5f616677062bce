//! The sending half: packets that have no verdict yet, in CSN order.

use crate::connection::Connection;
use crate::ids::{Csn, Psn, Serial};
use crate::list::{Linked, Links, List};
use crate::path::Path;
use crate::pool::Pool;
use crate::stream::Work;
use crate::table::Idx;
use crate::wire::DATA_HEADER_BYTES_MAX;

/// One packet: a stretch of a message under one CSN, from its first transmission to its verdict.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    pub(crate) connection: Idx<Connection>,
    pub(crate) work: Idx<Work>,
    pub(crate) csn: Csn,
    /// First byte in the message, and bytes.
    pub(crate) offset: u32,
    pub(crate) length: u16,
    /// Bytes of them that go under this CSN: fewer than all where the paths carry less than when it was cut. The rest
    /// follows, under another CSN, when these are accepted.
    pub(crate) sent: u16,
    /// Goes (again) without payload, only to close its CSN.
    pub(crate) void: bool,
    /// It goes as VOID because no path carries it; what that finds unplaced goes again in smaller packets.
    pub(crate) too_large: bool,
    /// How often it was lost under this CSN, up to 255.
    pub(crate) losses: u8,
    pub(crate) place: Place,
    pub(crate) by_csn: Links<Self>,
    pub(crate) queued: Links<Self>,
}

/// Where a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Its latest transmission.
    InFlight { path: Idx<Path>, psn: Psn },
    /// In a path's queue of packets that go again.
    Again { path: Idx<Path>, cause: Cause },
    /// Refused, in its stream's queue, to go again under a new CSN.
    Refused,
}

/// Why a packet goes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The gap rule or the time rule.
    Lost,
    /// A timeout, or the rescue from a path that no longer progresses.
    Timeout,
}

/// The list of a connection's packets without verdict.
#[derive(Debug)]
pub struct ByCsn;
/// A path's queue of packets to go again, or a stream's of refused ones.
#[derive(Debug)]
pub struct Queued;

impl Linked<ByCsn> for Packet {
    fn links(&self) -> &Links<Self> {
        &self.by_csn
    }
    fn links_mut(&mut self) -> &mut Links<Self> {
        &mut self.by_csn
    }
}

impl Linked<Queued> for Packet {
    fn links(&self) -> &Links<Self> {
        &self.queued
    }
    fn links_mut(&mut self) -> &mut Links<Self> {
        &mut self.queued
    }
}

impl Packet {
    /// A slot of a pool, not in use.
    pub const EMPTY: Self = Self {
        connection: Idx::NONE,
        work: Idx::NONE,
        csn: Csn::new(0),
        offset: 0,
        length: 0,
        sent: 0,
        void: false,
        too_large: false,
        losses: 0,
        place: Place::Refused,
        by_csn: Links::UNLINKED,
        queued: Links::UNLINKED,
    };
}

impl Packet {
    /// UDP payload that it takes at most. A VOID has no payload, and goes on any path.
    pub(crate) fn bytes_max(&self) -> u64 {
        let payload = if self.void { 0 } else { self.sent };
        u64::from(payload) + DATA_HEADER_BYTES_MAX as u64
    }
}

/// Packets of one connection without verdict, and the next CSN.
#[derive(Debug)]
pub struct Outbound {
    pub(crate) next_csn: Csn,
    /// Packets beyond the oldest without verdict that the receiver takes.
    pub(crate) window: u32,
    pub(crate) packets: List<Packet, ByCsn>,
}

impl Outbound {
    pub(crate) const NEW: Self = Self { next_csn: Csn::new(0), window: 0, packets: List::EMPTY };

    /// Whether the window lets a new CSN out.
    pub(crate) fn has_room(&self, pool: &Pool<'_, Packet>) -> bool {
        //= MR-DLV-8
        let Some(oldest) = self.packets.front() else { return self.window > 0 };
        self.next_csn.raw().wrapping_sub(pool.at(oldest).csn.raw()) < self.window
    }

    /// Gives `packet` the next CSN.
    pub(crate) fn enter(&mut self, pool: &mut Pool<'_, Packet>, packet: Idx<Packet>) {
        //= MR-DLV-9
        pool.at_mut(packet).csn = self.next_csn;
        self.next_csn = self.next_csn.plus(1);
        self.packets.push_back(pool, packet);
    }
}
