//! A connected pair with one region each, and short names for all verbs.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::ops::Range;

use metaroce_conformance::{Faults, Network};
use metaroce_core::wire::{Base, DataHeader, Opcode, PacketType};
use metaroce_core::{
    AtomicOperation, CloseMode, CloseReason, Completion, Config, ConnectionHandle, Event, HeapStorage,
    Limits, Operation, PostError, RegisteredRegion, RemoteAddress, Segment, Status, StreamId, Transmit,
    WorkRequest,
};

use super::{SECOND, config, connect, pattern};

/// Bytes of each host's region.
pub const REGION: usize = 8 << 20;

pub struct Pair {
    pub net: Network<HeapStorage>,
    pub connection: [ConnectionHandle; 2],
    pub region: [RegisteredRegion; 2],
}

impl Pair {
    pub fn new(seed: u64, faults: Faults) -> Self {
        Self::with(seed, faults, &Limits::HOST, |_, _| {})
    }

    pub fn configured(seed: u64, faults: Faults, change: impl Fn(&mut Config)) -> Self {
        Self::with(seed, faults, &Limits::HOST, |_, config| change(config))
    }

    /// Hosts of `limits`; `change` sees the host's number and its configuration.
    pub fn with(seed: u64, faults: Faults, limits: &Limits, change: impl Fn(u64, &mut Config)) -> Self {
        let hosts = (0..2).map(|number| {
            let mut config = config(seed * 2 + number);
            change(number, &mut config);
            (config, HeapStorage::new(limits))
        });
        let mut net = Network::new(seed, faults, hosts);
        let connection = connect(&mut net);
        let region = [0, 1].map(|number| net.hosts[number].register(pattern(REGION, number as u64 + 1)));
        Self { net, connection, region }
    }

    pub fn segment(&self, host: usize, range: Range<usize>) -> Segment {
        Segment {
            region: self.region[host].id,
            offset: range.start as u64,
            length: u32::try_from(range.len()).unwrap(),
        }
    }

    /// An address in the region of the other host.
    pub fn remote(&self, host: usize, address: usize) -> RemoteAddress {
        RemoteAddress { key: self.region[1 - host].key, address: address as u64 }
    }

    pub fn try_post(&mut self, host: usize, stream: u16, request: WorkRequest<'_>) -> Result<(), PostError> {
        let now = self.net.now_at(host);
        self.net.hosts[host].endpoint.post(now, self.connection[host], StreamId(stream), request)
    }

    pub fn post(&mut self, host: usize, stream: u16, request: WorkRequest<'_>) {
        self.try_post(host, stream, request).unwrap();
    }

    pub fn send(&mut self, host: usize, stream: u16, id: u64, from: Range<usize>) {
        self.send_immediate(host, stream, id, from, None);
    }

    pub fn send_immediate(
        &mut self,
        host: usize,
        stream: u16,
        id: u64,
        from: Range<usize>,
        immediate: Option<u32>,
    ) {
        let segments = [self.segment(host, from)];
        self.post(host, stream, WorkRequest::new(id, Operation::Send { immediate }, &segments));
    }

    pub fn write(
        &mut self,
        host: usize,
        stream: u16,
        id: u64,
        from: Range<usize>,
        to: usize,
        immediate: Option<u32>,
    ) {
        let segments = [self.segment(host, from)];
        let remote = self.remote(host, to);
        self.post(host, stream, WorkRequest::new(id, Operation::Write { remote, immediate }, &segments));
    }

    pub fn read(&mut self, host: usize, stream: u16, id: u64, to: Range<usize>, from: usize) {
        let segments = [self.segment(host, to)];
        let remote = self.remote(host, from);
        self.post(host, stream, WorkRequest::new(id, Operation::Read { remote }, &segments));
    }

    pub fn atomic(
        &mut self,
        host: usize,
        stream: u16,
        id: u64,
        result_to: usize,
        word: usize,
        operation: AtomicOperation,
    ) {
        let segments = [self.segment(host, result_to..result_to + 8)];
        let remote = self.remote(host, word);
        self.post(host, stream, WorkRequest::new(id, Operation::Atomic { remote, operation }, &segments));
    }

    pub fn receive(&mut self, host: usize, stream: u16, id: u64, to: Range<usize>) {
        let segments = [self.segment(host, to)];
        let connection = self.connection[host];
        self.net.hosts[host].endpoint.post_recv(connection, StreamId(stream), id, &segments).unwrap();
    }

    pub fn close(&mut self, host: usize, mode: CloseMode) {
        let now = self.net.now_at(host);
        self.net.hosts[host].endpoint.close(now, self.connection[host], mode).unwrap();
    }

    pub fn reset_stream(&mut self, host: usize, stream: u16) {
        let now = self.net.now_at(host);
        self.net.hosts[host].endpoint.reset_stream(now, self.connection[host], StreamId(stream)).unwrap();
    }

    pub fn bytes(&self, host: usize, range: Range<usize>) -> &[u8] {
        &self.net.hosts[host].memory.bytes(self.region[host].id)[range]
    }

    pub fn bytes_mut(&mut self, host: usize, range: Range<usize>) -> &mut [u8] {
        &mut self.net.hosts[host].memory.bytes_mut(self.region[host].id)[range]
    }

    pub fn word(&self, host: usize, at: usize) -> u64 {
        u64::from_ne_bytes(self.bytes(host, at..at + 8).try_into().unwrap())
    }

    pub fn set_word(&mut self, host: usize, at: usize, value: u64) {
        self.bytes_mut(host, at..at + 8).copy_from_slice(&value.to_ne_bytes());
    }

    /// Runs until the host has `count` completions, and returns all of them.
    pub fn wait(&mut self, host: usize, count: usize) -> Vec<Completion> {
        super::wait(&mut self.net, host, count)
    }

    /// Completions that are there already.
    pub fn completions(&mut self, host: usize) -> Vec<Completion> {
        super::completions(&self.net.hosts[host].take_events())
    }

    /// Runs until the connection is over at `host`, and returns all its events until then.
    pub fn wait_closed(&mut self, host: usize, limit_ns: u64) -> (Vec<Event>, CloseReason) {
        let mut seen = Vec::new();
        let mut reason = None;
        let done = self.net.run_until(limit_ns, |net| {
            for event in net.hosts[host].take_events() {
                if let Event::Closed { reason: why, .. } = event {
                    reason = Some(why);
                }
                seen.push(event);
            }
            reason.is_some()
        });
        assert!(done, "host {host} is not closed; it saw {seen:?}");
        (seen, reason.unwrap())
    }

    /// Runs until both ends are closed; returns events and reasons.
    pub fn wait_both_closed(&mut self) -> [(Vec<Event>, CloseReason); 2] {
        let first = self.wait_closed(0, 60 * SECOND);
        let second = self.wait_closed(1, 60 * SECOND);
        [first, second]
    }
}

/// The DATA header of a transmit, if it is DATA.
pub fn data_of(transmit: &Transmit) -> Option<DataHeader> {
    let mut bytes = transmit.header().to_vec();
    bytes.resize(transmit.datagram_length(), 0);
    let (base, body) = Base::parse(&bytes).ok()?;
    if base.kind != PacketType::Data {
        return None;
    }
    DataHeader::parse(body).ok().map(|(header, _)| header)
}

/// The packet type of a transmit.
pub fn kind_of(transmit: &Transmit) -> PacketType {
    Base::parse(transmit.header()).unwrap().0.kind
}

/// The kind byte of a control packet; 0 for others.
pub fn control_of(transmit: &Transmit) -> u8 {
    if kind_of(transmit) == PacketType::Control { transmit.header()[20] } else { 0 }
}

pub const CONNECT: u8 = 1;
pub const ACCEPT: u8 = 2;
pub const CONFIRM: u8 = 3;
pub const REJECT: u8 = 4;
pub const RETRY: u8 = 5;
pub const CLOSE: u8 = 6;
pub const CLOSE_ACK: u8 = 7;
pub const RESET: u8 = 8;

/// Ids and statuses, in the order of completion.
pub fn outcome(completions: &[Completion]) -> Vec<(u64, Status)> {
    completions.iter().map(|completion| (completion.id, completion.status)).collect()
}

pub fn ids(completions: &[Completion]) -> Vec<u64> {
    completions.iter().map(|completion| completion.id).collect()
}

/// Whether it is the first packet of this opcode and message.
pub fn is(transmit: &Transmit, opcode: Opcode, msn: u32) -> bool {
    use metaroce_core::ids::Serial;
    data_of(transmit).is_some_and(|header| header.opcode == opcode && header.msn.raw() == msn)
}
