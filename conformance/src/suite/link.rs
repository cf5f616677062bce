//! One connection as the suite plays it: numbers of what it sends, and what it received.

use std::collections::{BTreeMap, BTreeSet};

use super::packet::{Packet, Terms};
use super::port::{SOURCES, Source};
use super::wire::{AckFields, ConnectFields, DataFields, flag, op, set_bit};

/// The multiplier of MR-HS-7.
pub const PSN_STEP: u32 = 0x9e37_79b9;

/// The suite's end of a connection.
#[derive(Clone, Debug)]
pub struct Link {
    /// The name that the device's control channel gives it.
    pub number: u32,
    /// What the suite told in CONNECT or ACCEPT.
    pub asked: ConnectFields,
    /// What the device told.
    pub terms: Terms,
    /// The next new CSN.
    pub next_csn: u32,
    /// The epoch of each path that was repathed.
    pub epochs: BTreeMap<u8, u8>,
    /// The lowest CSN of the device that was not seen.
    pub cumulative: u32,
    /// Verdicts on the device's CSNs: accepted or not.
    pub verdicts: BTreeMap<u32, bool>,
    /// The share that acknowledgements tell, kbit/s.
    pub share_kbps: u32,
    next_psn: BTreeMap<u8, u32>,
    received: BTreeMap<u8, PathReceived>,
}

/// What arrived on a path of the device.
#[derive(Clone, Debug, Default)]
pub struct PathReceived {
    largest: u32,
    timestamp: u32,
    epoch: u8,
    arrival_ns: u64,
    packets: u32,
    /// Packets that the suite counts as marked.
    pub marked: u32,
    accepted: BTreeSet<u32>,
    refused: BTreeSet<u32>,
}

impl Link {
    /// After the handshake.
    #[must_use]
    pub fn new(number: u32, asked: ConnectFields, terms: Terms) -> Self {
        Self {
            number,
            next_csn: low(asked.nonce),
            cumulative: low(terms.nonce),
            asked,
            terms,
            epochs: BTreeMap::new(),
            verdicts: BTreeMap::new(),
            share_kbps: SHARE_KBPS,
            next_psn: BTreeMap::new(),
            received: BTreeMap::new(),
        }
    }

    /// The id that the device puts into packets to the suite.
    #[must_use]
    pub const fn mine(&self) -> u32 {
        self.asked.id
    }

    /// The id that the suite puts into packets to the device.
    #[must_use]
    pub const fn theirs(&self) -> u32 {
        self.terms.id
    }

    /// The xor of both nonces.
    #[must_use]
    pub const fn nonce_xor(&self) -> u64 {
        self.asked.nonce ^ self.terms.nonce
    }

    /// The first CSN of the suite.
    #[must_use]
    pub const fn first_csn(&self) -> u32 {
        low(self.asked.nonce)
    }

    /// Paths of the connection.
    #[must_use]
    pub fn paths(&self) -> u8 {
        self.paths_each().saturating_mul(self.planes())
    }

    /// Paths of each plane.
    #[must_use]
    pub fn paths_each(&self) -> u8 {
        self.asked.paths.min(self.terms.paths).max(1)
    }

    /// Planes of the connection.
    #[must_use]
    pub fn planes(&self) -> u8 {
        let further = self.asked.planes.len().min(self.terms.planes.len());
        u8::try_from(further).unwrap_or(u8::MAX).saturating_add(1)
    }

    /// The plane of a path.
    #[must_use]
    pub fn plane_of(&self, path: u8) -> u8 {
        path / self.paths_each()
    }

    /// Where the suite sends from on a path.
    #[must_use]
    pub fn source_of(&self, path: u8) -> Source {
        match self.plane_of(path) {
            0 => Source::Other(1 + path % SOURCES),
            plane => Source::Plane(plane),
        }
    }

    /// Takes the next PSN of a path.
    pub fn take_psn(&mut self, path: u8) -> u32 {
        let next = self.next_psn.entry(path).or_insert_with(|| first_psn(self.asked.nonce, path));
        let psn = *next;
        *next = psn.wrapping_add(1);
        psn
    }

    /// Leaves out so many PSNs of a path, as if they had been lost.
    pub fn skip_psns(&mut self, path: u8, count: u32) {
        let next = self.next_psn.entry(path).or_insert_with(|| first_psn(self.asked.nonce, path));
        *next = next.wrapping_add(count);
    }

    /// Takes the next CSN.
    pub fn take_csn(&mut self) -> u32 {
        let csn = self.next_csn;
        self.next_csn = csn.wrapping_add(1);
        csn
    }

    /// Enters a DATA or PROBE of the device, to be told by [`acknowledgement`](Self::acknowledgement). A CSN keeps its
    /// first verdict. Returns whether it was new.
    pub fn enter(&mut self, packet: &Packet, accept: bool) -> bool {
        let (mut accept, mut new) = (accept, true);
        if let Some((data, _)) = packet.data()
            && data.opcode.code() != op::DATAGRAM
        {
            let csn = metaroce_core::ids::Serial::raw(data.csn);
            if let Some(verdict) = self.verdicts.get(&csn) {
                (accept, new) = (*verdict, false);
            } else {
                accept &= data.opcode.code() != op::VOID;
                self.verdicts.insert(csn, accept);
            }
            while self.verdicts.contains_key(&self.cumulative) {
                self.cumulative = self.cumulative.wrapping_add(1);
            }
        }
        let psn = packet.psn();
        let path = self.received.entry(packet.base.path.0).or_default();
        if path.packets == 0 || psn.wrapping_sub(path.largest).cast_signed() > 0 {
            path.largest = psn;
            path.timestamp = packet.base.timestamp;
            path.epoch = packet.base.epoch;
            path.arrival_ns = packet.at_ns;
        }
        path.packets += 1;
        path.marked += u32::from(packet.ecn == metaroce_core::Ecn::Ce);
        if accept {
            path.accepted.insert(psn)
        } else {
            path.refused.insert(psn)
        };
        new
    }

    /// Counts everything that arrives on a path from now on as marked, or nothing more.
    pub fn mark(&mut self, path: u8, count: u32) {
        self.received.entry(path).or_default().marked += count;
    }

    /// The acknowledgement of a path.
    #[must_use]
    pub fn acknowledgement(&self, path: u8, now_ns: u64) -> AckFields {
        let Some(received) = self.received.get(&path).filter(|received| received.packets > 0) else {
            let (cumulative, share_kbps) = (self.cumulative, self.share_kbps);
            return AckFields { path, flags: 1, cumulative, share_kbps, ..AckFields::default() };
        };
        let mut ack = AckFields {
            path,
            epoch: received.epoch,
            largest: received.largest,
            echo: received.timestamp,
            hold: u32::try_from(now_ns.saturating_sub(received.arrival_ns) / 16).unwrap_or(u32::MAX),
            packets: received.packets,
            marked: received.marked,
            cumulative: self.cumulative,
            share_kbps: self.share_kbps,
            ..AckFields::default()
        };
        for bit in 0..256 {
            let psn = received.largest.wrapping_sub(bit);
            if received.accepted.contains(&psn) {
                set_bit(&mut ack.vector, bit);
            }
            if received.refused.contains(&psn) {
                set_bit(&mut ack.refused, bit);
            }
        }
        ack
    }
}

/// The first PSN of a path, after MR-HS-7.
#[must_use]
pub const fn first_psn(nonce: u64, path: u8) -> u32 {
    high(nonce).wrapping_add((path as u32).wrapping_mul(PSN_STEP))
}

/// The low 32 bits.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "the low half is asked for")]
pub const fn low(value: u64) -> u32 {
    value as u32
}

/// The high 32 bits.
#[must_use]
pub const fn high(value: u64) -> u32 {
    low(value >> 32)
}

/// A region of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Its name at the control channel.
    pub number: u32,
    /// Its key.
    pub key: u32,
    /// Its base address.
    pub base: u64,
    /// Its bytes.
    pub length: u32,
}

/// A WRITE of `payload`, whole.
#[must_use]
pub fn write(region: &Region, offset: u32, payload: &[u8]) -> DataFields {
    DataFields {
        opcode: op::WRITE,
        key: region.key,
        address: region.base.wrapping_add(u64::from(offset)),
        ..whole(payload)
    }
}

/// A SEND of `payload`, whole.
#[must_use]
pub fn send(payload: &[u8]) -> DataFields {
    DataFields { opcode: op::SEND, ..whole(payload) }
}

/// A READ of `length` bytes.
#[must_use]
pub fn read(region: &Region, offset: u32, length: u32) -> DataFields {
    DataFields {
        opcode: op::READ_REQUEST,
        flags: flag::LAST,
        length,
        key: region.key,
        address: region.base.wrapping_add(u64::from(offset)),
        ..DataFields::default()
    }
}

/// An atomic.
#[must_use]
pub fn atomic(opcode: u8, region: &Region, offset: u32, operands: [u64; 2]) -> DataFields {
    DataFields {
        opcode,
        flags: flag::LAST,
        length: 8,
        key: region.key,
        address: region.base.wrapping_add(u64::from(offset)),
        operands,
        ..DataFields::default()
    }
}

fn whole(payload: &[u8]) -> DataFields {
    DataFields {
        flags: flag::LAST,
        length: u32::try_from(payload.len()).unwrap_or(u32::MAX),
        payload: payload.to_vec(),
        ..DataFields::default()
    }
}

impl DataFields {
    /// On this stream, as this message.
    #[must_use]
    pub fn on(self, stream: u16, msn: u32) -> Self {
        Self { stream, msn, ..self }
    }

    /// With these flags too.
    #[must_use]
    pub fn with(self, flags: u8) -> Self {
        Self { flags: self.flags | flags, ..self }
    }

    /// Filling this receive.
    #[must_use]
    pub fn receive(self, receive_index: u32) -> Self {
        Self { receive_index, ..self }
    }

    /// With an immediate.
    #[must_use]
    pub fn immediate(self, immediate: u32) -> Self {
        Self { immediate, ..self.with(flag::IMMEDIATE) }
    }

    /// Only bytes `from..to` of its payload, as one packet of the message. Address and LAST follow.
    #[must_use]
    pub fn part(mut self, from: usize, to: usize) -> Self {
        let last = to == self.payload.len();
        self.payload = self.payload.get(from..to).unwrap_or_default().to_vec();
        self.offset = u32::try_from(from).unwrap_or(u32::MAX);
        self.address = self.address.wrapping_add(from as u64);
        if !last {
            self.flags &= !(flag::LAST | flag::IMMEDIATE | flag::SIGNAL);
        }
        self
    }
}

/// The share that the suite tells: 100 Gb/s, so that it limits nobody.
const SHARE_KBPS: u32 = 100_000_000;
