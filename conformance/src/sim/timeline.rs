//! What became of each packet between two hosts, for people to look at.

use std::collections::BTreeSet;

use metaroce_core::Ecn;
use metaroce_core::ids::Serial;
use metaroce_core::wire::{Base, DataHeader, PacketType};

use super::packet::{Packet, PacketId};
use super::transport::BaselineKind;

/// What a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Data, for the first time.
    Data,
    /// Data that was sent before.
    Again,
    /// An acknowledgement.
    Answer,
    /// A probe, or its reply.
    Probe,
    /// Anything else.
    Other,
}

/// How a packet ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It was still under way.
    Open,
    /// It arrived.
    Arrived,
    /// It was lost in this link, or dropped before it.
    Gone(u32),
}

/// One packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flight {
    /// When it was handed to the line, ps.
    pub sent_ps: u64,
    /// When it ended, ps.
    pub end_ps: u64,
    /// How.
    pub end: End,
    /// From the first host to the second.
    pub forward: bool,
    /// What it is.
    pub kind: Kind,
    /// Path.
    pub path: u8,
    /// Plane.
    pub plane: u8,
    /// UDP source port.
    pub source_port: u16,
    /// Packet number of its path.
    pub psn: u32,
    /// Number of the data.
    pub csn: u32,
    /// Bytes of the UDP payload.
    pub bytes: u32,
    /// It met a queue that marked it.
    pub marked: bool,
}

/// Notes flights between two hosts.
#[derive(Debug)]
pub struct Recorder {
    hosts: (u32, u32),
    from_ps: u64,
    most: usize,
    flights: Vec<Flight>,
    /// For each packet in the arena the flight that it is.
    current: Vec<Option<usize>>,
    seen: BTreeSet<(bool, u64)>,
    scratch: Vec<u8>,
}

impl Recorder {
    /// Notes at most `most` packets between two hosts, from `from_ps` on.
    #[must_use]
    pub const fn new(hosts: (u32, u32), from_ps: u64, most: usize) -> Self {
        Self {
            hosts,
            from_ps,
            most,
            flights: Vec::new(),
            current: Vec::new(),
            seen: BTreeSet::new(),
            scratch: Vec::new(),
        }
    }

    /// What was noted.
    #[must_use]
    pub fn into_flights(self) -> Vec<Flight> {
        self.flights
    }

    pub(super) fn sent(&mut self, now_ps: u64, id: PacketId, packet: &Packet) {
        let forward = (packet.from, packet.to) == self.hosts;
        if !forward && (packet.to, packet.from) != self.hosts {
            return;
        }
        let mut flight = Flight {
            sent_ps: now_ps,
            end_ps: now_ps,
            end: End::Open,
            forward,
            kind: Kind::Other,
            path: 0,
            plane: packet.plane,
            source_port: packet.source_port,
            psn: 0,
            csn: 0,
            bytes: u32::try_from(packet.datagram_bytes()).unwrap_or(u32::MAX),
            marked: false,
        };
        describe(packet, &mut self.scratch, &mut flight);
        // Also what is not noted counts as seen.
        if flight.kind == Kind::Data && !self.seen.insert((forward, u64::from(flight.csn))) {
            flight.kind = Kind::Again;
        }
        if now_ps < self.from_ps || self.flights.len() >= self.most {
            return;
        }
        let at = id as usize;
        if at >= self.current.len() {
            self.current.resize(at + 1, None);
        }
        if let Some(entry) = self.current.get_mut(at) {
            *entry = Some(self.flights.len());
        }
        self.flights.push(flight);
    }

    pub(super) fn arrived(&mut self, now_ps: u64, id: PacketId, packet: &Packet) {
        self.end(now_ps, id, End::Arrived, packet.ecn == Ecn::Ce);
    }

    pub(super) fn gone(&mut self, now_ps: u64, id: PacketId, link: u32) {
        self.end(now_ps, id, End::Gone(link), false);
    }

    fn end(&mut self, now_ps: u64, id: PacketId, end: End, marked: bool) {
        let current = self.current.get_mut(id as usize).and_then(Option::take);
        if let Some(flight) = current.and_then(|at| self.flights.get_mut(at)) {
            (flight.end_ps, flight.end, flight.marked) = (now_ps, end, marked);
        }
    }
}

/// Reads what a packet says about itself.
fn describe(packet: &Packet, scratch: &mut Vec<u8>, flight: &mut Flight) {
    if packet.header.is_empty() {
        let header = packet.baseline;
        let number = u32::try_from(header.psn & u64::from(u32::MAX)).unwrap_or(0);
        (flight.psn, flight.csn) = (number, number);
        flight.kind = match header.kind {
            BaselineKind::Data => Kind::Data,
            BaselineKind::Ack | BaselineKind::Nak | BaselineKind::Cnp => Kind::Answer,
            BaselineKind::None => Kind::Other,
        };
        return;
    }
    // A header is judged with the length of its payload.
    scratch.clear();
    scratch.extend_from_slice(&packet.header);
    scratch.resize(packet.header.len() + packet.payload_bytes as usize, 0);
    let Ok((base, body)) = Base::parse(scratch) else { return };
    flight.path = base.path.0;
    flight.psn = base.psn.raw();
    flight.kind = match base.kind {
        PacketType::Data => Kind::Data,
        PacketType::Ack => Kind::Answer,
        PacketType::Probe | PacketType::ProbeReply => Kind::Probe,
        PacketType::Control => Kind::Other,
    };
    if base.kind == PacketType::Data
        && let Ok((data, _)) = DataHeader::parse(body)
    {
        flight.csn = data.csn.raw();
    }
}
