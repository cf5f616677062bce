//! Whole datagrams into two live endpoints that are connected and have work: forged, altered, repeated or lost.
//!
//! Nothing may panic, loop or answer without end; memory changes only where it may; each request and receive completes
//! once; and when the link heals and both sides close, everything ends within a bound.

use std::fmt::Write as _;

use arbitrary::{Arbitrary, Unstructured};
use metaroce_core::{
    AtomicOperation, CloseMode, Config, ConnectOptions, Datagram, DatagramRequest, Disposition, DropReason,
    Ecn, Instant, Limits, Operation, Progress, RemoteAddress, Segment, StreamId, StreamOptions,
    TableChecksum, TagEntry, Transmit, WorkRequest,
};

use crate::craft::{Known, Packet, Seen, seal};
use crate::host::{Host, SINK_BYTES};
use crate::probe;

const STEPS_MAX: usize = 120;
const ROUNDS_MAX: usize = 1000;
/// Virtual time within which everything is over once both sides close, ns.
const ENDING_NS: u64 = 120_000_000_000;

#[derive(Clone, Debug, Arbitrary)]
enum Step {
    /// What the other sends reaches this side, but for the packets whose bits (modulo 8) are set.
    Carry { to: Side, lost: u8, marked: bool },
    /// A forged packet.
    Craft { to: Side, packet: Packet, from: From },
    /// A packet that was seen, changed.
    Alter { to: Side, which: u8, at: u16, bytes: [u8; 4], count: u8, cut: bool, sealed: bool },
    /// A packet that was seen, again.
    Repeat { to: Side, which: u8 },
    /// Time.
    Wait { amount: u8, shift: u8 },
    /// The next deadline.
    Wake,
    /// Work.
    Post { by: Side, stream: u8, length: u16, work: Work },
    /// Something else that applications do.
    Call { by: Side, stream: u8, call: Call },
}

#[derive(Clone, Copy, Debug, Arbitrary)]
enum Side {
    First,
    Second,
}

#[derive(Clone, Copy, Debug, Arbitrary)]
enum From {
    Peer,
    OtherPort(u8),
    OtherAddress(u8),
}

#[derive(Clone, Copy, Debug, Arbitrary)]
enum Work {
    Send { immediate: bool, inline: bool },
    SendInvalidate,
    SendTagged { bits: u8 },
    Write { immediate: bool, address: u16 },
    WriteSignal { address: u16 },
    Read { address: u16 },
    Atomic { operation: u8, word: u16 },
    Receive,
    ReceiveTagged { bits: u8, mask: u8 },
    ReceiveQueue,
    Datagram { right: bool },
}

#[derive(Clone, Copy, Debug, Arbitrary)]
enum Call {
    Close(bool),
    Connect,
    ResetStream,
    Configure { shared: bool, unordered: bool },
    Rekey,
    Repath(u8),
}

/// Plays the steps that the bytes stand for.
pub fn run(bytes: &[u8]) {
    let _ = play(bytes);
}

/// What became of the forged packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forged {
    /// Taken, and not known before.
    pub consumed: u32,
    /// Judged before.
    pub duplicates: u32,
    /// Dropped at the first looks: not well-formed, checksum, version, unknown connection or path.
    pub dropped_early: u32,
    /// Dropped for their numbers or proofs.
    pub dropped: u32,
}

/// Plays them, and tells what became of the forged packets.
#[must_use]
pub fn play(bytes: &[u8]) -> Forged {
    let mut input = Unstructured::new(bytes);
    let settings = u8::arbitrary(&mut input).unwrap_or(0);
    let mut pair = Pair::connected(settings);
    for _ in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        let Ok(step) = Step::arbitrary(&mut input) else { break };
        pair.play(step);
    }
    pair.end();
    pair.forged
}

struct Pair {
    now: Instant,
    hosts: [Host; 2],
    /// What was seen of the packets to each host.
    seen: [Seen; 2],
    batch: Vec<Transmit>,
    forged: Forged,
}

impl Side {
    const fn index(self) -> usize {
        self as usize
    }
}

impl Forged {
    fn count(&mut self, disposition: Disposition) {
        use DropReason::{Checksum, Malformed, UnknownConnection, UnknownPath, Version};
        *match disposition {
            Disposition::Consumed => &mut self.consumed,
            Disposition::Duplicate => &mut self.duplicates,
            Disposition::Dropped(Checksum | Malformed | UnknownConnection | UnknownPath | Version) => {
                &mut self.dropped_early
            }
            Disposition::Dropped(_) => &mut self.dropped,
        } += 1;
    }
}

fn config(seed: u64, settings: u8) -> Config {
    let base = if settings & 1 == 0 { Config::hardware(seed) } else { Config::sockets(seed) };
    Config {
        rnr_retries: (settings & 2 != 0).then_some(3),
        checksum_wanted: settings & 4 == 0,
        initial_credits: if settings & 8 == 0 { 16 } else { 1 },
        ack_packets: if settings & 16 == 0 { 8 } else { 1 },
        mtu_bytes: if settings & 32 == 0 { 4_176 } else { 1_232 },
        window_bytes_max: if settings & 64 == 0 { base.window_bytes_max } else { 9_000 },
        ..base
    }
}

impl Pair {
    fn connected(settings: u8) -> Self {
        let hosts =
            [1, 2].map(|number| Host::new(&config(u64::from(number), settings), &Limits::SMALL, number));
        let mut pair = Self {
            now: Instant::from_nanos(1 << 30),
            hosts,
            seen: [Seen::default(); 2],
            batch: vec![Transmit::EMPTY; 16],
            forged: Forged::default(),
        };
        pair.connect(0);
        for _ in 0..20 {
            pair.carry(0, 0, false);
            pair.carry(1, 0, false);
            pair.pass(5_000);
        }
        assert!(pair.hosts.iter().all(|host| host.connections.len() == 1), "they are connected");
        pair
    }

    fn connect(&mut self, by: usize) {
        let options = ConnectOptions::to(self.hosts[1 - by].address);
        if let Ok(connection) = self.hosts[by].endpoint.connect(self.now, options) {
            self.hosts[by].connections.push(connection);
        }
    }

    fn play(&mut self, step: Step) {
        match step {
            Step::Carry { to, lost, marked } => self.carry(to.index(), lost, marked),
            Step::Craft { to, packet, from } => {
                let to = to.index();
                let bytes = packet.bytes(&self.known(to));
                let disposition = self.deliver(to, &bytes, from, Ecn::Ect0);
                self.forged.count(disposition);
            }
            Step::Alter { to, which, at, bytes, count, cut, sealed } => {
                let to = to.index();
                let Some(mut datagram) = self.pick(to, which) else { return };
                let at = usize::from(at) % datagram.len().max(1);
                for (place, new) in datagram.iter_mut().skip(at).zip(&bytes[..usize::from(count % 5)]) {
                    *place = *new;
                }
                if cut {
                    datagram.truncate(at);
                }
                if sealed {
                    seal(&mut datagram);
                }
                let _ = self.deliver(to, &datagram, From::Peer, Ecn::Ect0);
            }
            Step::Repeat { to, which } => {
                if let Some(datagram) = self.pick(to.index(), which) {
                    let _ = self.deliver(to.index(), &datagram, From::Peer, Ecn::Ce);
                }
            }
            Step::Wait { amount, shift } => self.pass((u64::from(amount) + 1) << (shift % 28)),
            Step::Wake => self.wake(u64::MAX),
            Step::Post { by, stream, length, work } => self.post(by.index(), stream, length, work),
            Step::Call { by, stream, call } => self.call(by.index(), stream, call),
        }
    }

    fn known(&self, to: usize) -> Known {
        let regions = &self.hosts[to].regions;
        let keys = [regions.open.key, regions.closed.key, regions.gone.key];
        Known { forward: self.seen[to], backward: self.seen[1 - to], keys }
    }

    fn pick(&self, to: usize, which: u8) -> Option<Vec<u8>> {
        let seen = &self.hosts[to].seen;
        seen.get(usize::from(which) % seen.len().max(1)).cloned()
    }

    /// What the other wants sent reaches host `to`, but for what is lost.
    fn carry(&mut self, to: usize, lost: u8, marked: bool) {
        let mut number = 0;
        for round in 0.. {
            assert!(round < ROUNDS_MAX, "an endpoint sends without end");
            let mut batch = std::mem::take(&mut self.batch);
            let count = probe::poll_transmit(&mut self.hosts[1 - to].endpoint, self.now, &mut batch);
            for packet in &mut batch[..count] {
                let bytes = self.bytes_of(1 - to, packet);
                self.seen[to].observe(&bytes);
                // Others may be spoken to as well, if their addresses were forged.
                let known = packet.destination == self.hosts[to].address;
                if known && lost >> (number % 8) & 1 == 0 {
                    let _ = self.deliver(to, &bytes, From::Peer, if marked { Ecn::Ce } else { packet.ecn });
                }
                self.hosts[to].remember(bytes);
                number += 1;
            }
            self.batch = batch;
            if count == 0 {
                break;
            }
        }
    }

    fn bytes_of(&self, from: usize, packet: &mut Transmit) -> Vec<u8> {
        let regions = &self.hosts[from].regions;
        let payload: Vec<u8> = packet
            .payload()
            .iter()
            .flat_map(|part| regions.part(part.region, part.offset, part.length))
            .copied()
            .collect();
        packet.seal(&TableChecksum, [&payload[..]]);
        let bytes = [packet.header(), &payload, &vec![0; packet.padding()]].concat();
        assert_eq!(bytes.len(), packet.datagram_length());
        bytes
    }

    fn deliver(&mut self, to: usize, bytes: &[u8], from: From, ecn: Ecn) -> Disposition {
        let mut source = self.hosts[1 - to].address;
        match from {
            From::Peer => {}
            From::OtherPort(port) => source.set_port(50_000 + u16::from(port)),
            From::OtherAddress(last) => source.set_ip([10, 1, 0, last].into()),
        }
        let datagram = Datagram { source, plane: 0, ecn, bytes };
        let host = &mut self.hosts[to];
        let disposition = probe::handle_datagram(&mut host.endpoint, self.now, datagram, &mut host.regions);
        host.take_events(self.now);
        disposition
    }

    fn pass(&mut self, nanos: u64) {
        self.now = self.now.after(nanos);
        for host in &mut self.hosts {
            let mut calls = 0;
            while probe::handle_timeout(&mut host.endpoint, self.now) == Progress::More {
                calls += 1;
                assert!(calls < ROUNDS_MAX, "timers without end");
            }
            let deadline = host.endpoint.next_deadline();
            assert!(deadline.is_none_or(|deadline| deadline > self.now), "{deadline:?} at {:?}", self.now);
            host.take_events(self.now);
        }
    }

    /// Goes on to the next deadline, at most by `most` ns.
    fn wake(&mut self, most: u64) {
        let deadlines = self.hosts.iter_mut().filter_map(|host| host.endpoint.next_deadline());
        let span = deadlines.min().map_or(most, |deadline| deadline.since(self.now)).min(most);
        self.pass(span.min(10_000_000_000));
    }

    fn post(&mut self, by: usize, stream: u8, length: u16, work: Work) {
        let (now, remote) = (self.now, self.hosts[1 - by].regions.open.key);
        let host = &mut self.hosts[by];
        let Some(&connection) =
            host.connections.get(usize::from(stream >> 4) % host.connections.len().max(1))
        else {
            return;
        };
        let id = host.fresh_id();
        let stream = StreamId(u16::from(stream % 4));
        let length = u32::from(length) % SINK_BYTES;
        let at = |address: u16| RemoteAddress { key: remote, address: u64::from(address) };
        let source = [Segment { region: host.regions.open.id, offset: 0, length }];
        let sink = [Segment { region: host.regions.closed.id, offset: 0, length }];
        let word = [Segment { region: host.regions.closed.id, offset: 0, length: 8 }];
        let endpoint = &mut host.endpoint;
        let mut post = |operation, segments: &[Segment], inline: &[u8]| {
            let request = WorkRequest { inline, ..WorkRequest::new(id, operation, segments) };
            probe::post(endpoint, now, connection, stream, request)
        };
        let posted = match work {
            Work::Send { immediate, inline } => {
                let operation = Operation::Send { immediate: immediate.then_some(5) };
                if inline { post(operation, &[], &[7; 48]) } else { post(operation, &source, &[]) }
            }
            Work::SendInvalidate => post(Operation::SendInvalidate { key: remote }, &source, &[]),
            Work::SendTagged { bits } => {
                post(Operation::SendTagged { bits: u64::from(bits % 4), immediate: None }, &source, &[])
            }
            Work::Write { immediate, address } => {
                let immediate = immediate.then_some(6);
                post(Operation::Write { remote: at(address), immediate }, &source, &[])
            }
            Work::WriteSignal { address } => {
                let (remote, signal) = (at(address), at(address & !7));
                post(Operation::WriteSignal { remote, signal, addend: 1 }, &source, &[])
            }
            Work::Read { address } => post(Operation::Read { remote: at(address) }, &sink, &[]),
            Work::Atomic { operation, word: address } => {
                let operation = match operation % 3 {
                    0 => AtomicOperation::FetchAdd(1),
                    1 => AtomicOperation::Swap(2),
                    _ => AtomicOperation::CompareSwap { compare: 0, swap: 3 },
                };
                post(Operation::Atomic { remote: at(address), operation }, &word, &[])
            }
            Work::Receive => endpoint.post_recv(connection, stream, id, &sink),
            Work::ReceiveTagged { bits, mask } => {
                let entry = TagEntry { bits: u64::from(bits % 4), mask: u64::from(mask) };
                endpoint.post_tagged_recv(connection, stream, id, entry, &sink)
            }
            Work::ReceiveQueue => endpoint.post_queue_recv(host.queue, id, &sink),
            Work::Datagram { right } => {
                let source = [Segment { region: host.regions.open.id, offset: 0, length: length % 1_100 }];
                let request = DatagramRequest {
                    id,
                    source_queue: 1,
                    destination_queue: 9,
                    key: u32::from(!right),
                    immediate: None,
                    segments: &source,
                };
                endpoint.post_datagram(connection, request)
            }
        };
        if posted.is_ok() {
            host.outstanding.insert(id);
        }
        host.take_events(now);
    }

    fn call(&mut self, by: usize, stream: u8, call: Call) {
        let now = self.now;
        if let Call::Connect = call {
            return self.connect(by);
        }
        let host = &mut self.hosts[by];
        let Some(&connection) =
            host.connections.get(usize::from(stream >> 4) % host.connections.len().max(1))
        else {
            return;
        };
        let stream = StreamId(u16::from(stream % 4));
        match call {
            Call::Close(drain) => {
                let mode = if drain { CloseMode::Drain } else { CloseMode::Flush };
                let _ = host.endpoint.close(now, connection, mode);
            }
            Call::ResetStream => {
                let _ = host.endpoint.reset_stream(now, connection, stream);
            }
            Call::Configure { shared, unordered } => {
                let shared_queue = shared.then_some(host.queue);
                let options = StreamOptions { shared_queue, unordered_match: unordered };
                let _ = host.endpoint.configure_stream(connection, stream, options);
            }
            Call::Rekey => {
                if let Ok(key) = host.endpoint.rekey_region(host.regions.open.id) {
                    host.regions.open.key = key;
                }
            }
            Call::Repath(path) => {
                let _ = host.endpoint.repath(connection, metaroce_core::PathId(path % 4));
            }
            Call::Connect => {}
        }
        host.take_events(now);
    }

    /// The link is good again, and both sides close: everything must end.
    fn end(&mut self) {
        let limit = self.now.after(ENDING_NS);
        loop {
            for side in 0..2 {
                self.hosts[side].close_all(self.now);
                self.carry(1 - side, 0, false);
            }
            if self.hosts.iter().all(|host| host.connections.is_empty()) {
                break;
            }
            assert!(self.now < limit, "a connection never ends: {}", self.left());
            self.wake(1_000_000_000);
        }
        for host in &mut self.hosts {
            host.endpoint.destroy_queue(host.queue).expect("no stream uses it any more");
            host.take_events(self.now);
            let outstanding = &host.outstanding;
            assert!(outstanding.is_empty(), "these never completed: {outstanding:?}");
            let room = host.endpoint.deregister_region(host.regions.open.id);
            assert_eq!(room, Ok(()), "nothing refers to a region any more");
        }
    }

    fn left(&mut self) -> String {
        let mut text = String::new();
        for host in &mut self.hosts {
            for connection in host.connections.clone() {
                let _ = write!(text, "{:?}; ", host.endpoint.connection_stats(connection));
            }
        }
        text
    }
}
