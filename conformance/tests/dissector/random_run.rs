//! A random program over a faulty network, captured by its observer.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;
use std::rc::Rc;

use metaroce_conformance::trace::{Observer, PcapWriter, Record};
use metaroce_conformance::{Faults, Network, Random, model};
use metaroce_core::ids::Serial;
use metaroce_core::wire::{Base, DataHeader, Opcode, PacketType, Probe, ProbeReply};
use metaroce_core::{
    AtomicOperation, CloseMode, Config, ConnectOptions, ConnectionHandle, DatagramRequest, Event,
    HeapStorage, Limits, Operation, ProtectionDomain, RegionKey, RemoteAddress, Segment, StreamId, TagEntry,
    WorkRequest,
};

use super::expected::FIELDS;
use super::tshark::{file, is_missing};
use super::{assert_same, dissect_all};

const SECOND: u64 = 1_000_000_000;
const REGION: u32 = 1 << 16;
const STREAM: StreamId = StreamId(0);

/// A capture, and a copy of what went into it.
struct Tee {
    capture: PcapWriter<BufWriter<File>>,
    packets: Vec<(Vec<u8>, bool)>,
    time_ns: u64,
}

impl Observer for Tee {
    fn on_datagram(&mut self, record: &Record<'_>) {
        assert!(record.time_ns >= self.time_ns, "in the order of time");
        self.time_ns = record.time_ns;
        self.packets.push((record.bytes.to_vec(), record.lost));
        self.capture.on_datagram(record);
    }
}

fn connect(net: &mut Network<HeapStorage>) -> [ConnectionHandle; 2] {
    let now = net.now();
    let remote = net.hosts[1].address;
    let ours = net.hosts[0].endpoint.connect(now, ConnectOptions::to(remote)).unwrap();
    let (mut theirs, mut open) = (None, 0);
    let done = net.run_until(30 * SECOND, |net| {
        let now = net.now();
        for number in 0..2 {
            for event in net.hosts[number].take_events() {
                match event {
                    Event::Incoming { connection, .. } => {
                        let endpoint = &mut net.hosts[1].endpoint;
                        endpoint.accept(now, connection, ProtectionDomain(0), b"hello").unwrap();
                        theirs = Some(connection);
                    }
                    Event::Connected { .. } => open += 1,
                    other => panic!("unexpected {other:?}"),
                }
            }
        }
        net.settle();
        open == 2
    });
    assert!(done, "the connection opens");
    [ours, theirs.unwrap()]
}

/// One operation of any kind, and whether it needs a receive at the peer.
fn operation(random: &mut Random, id: u64, key: RegionKey) -> (Operation, bool) {
    let remote = RemoteAddress { key, address: random.below(1 << 12) * 8 };
    let immediate = (random.below(2) == 0).then_some(id as u32);
    let operand = random.next_u64();
    match random.below(6) {
        0 => (Operation::Send { immediate }, true),
        1 => (Operation::SendTagged { bits: id, immediate }, true),
        2 => (Operation::Write { remote, immediate }, immediate.is_some()),
        3 => (Operation::WriteSignal { remote, signal: remote, addend: operand }, false),
        4 => (Operation::Read { remote }, false),
        _ => (Operation::Atomic { remote, operation: AtomicOperation::FetchAdd(operand) }, false),
    }
}

/// Posts `count` operations and a datagram from each side; returns the number of completions to wait for.
fn post(
    net: &mut Network<HeapStorage>,
    connections: [ConnectionHandle; 2],
    random: &mut Random,
    count: u64,
) -> usize {
    let now = net.now();
    let regions = [0, 1].map(|number| net.hosts[number].register(vec![number as u8; REGION as usize]));
    let mut completions = 0;
    for (side, peer) in [(0, 1), (1, 0)] {
        for id in 0..count {
            let (operation, receives) = operation(random, id, regions[peer].key);
            let length = match operation {
                Operation::Atomic { .. } => 8,
                _ => random.below(u64::from(REGION) / 2) as u32,
            };
            let room = [Segment { region: regions[peer].id, offset: 0, length: REGION }];
            let endpoint = &mut net.hosts[peer].endpoint;
            if let Operation::SendTagged { bits, .. } = operation {
                let entry = TagEntry { bits, mask: u64::MAX };
                endpoint.post_tagged_recv(connections[peer], STREAM, id, entry, &room).unwrap();
            } else if receives {
                endpoint.post_recv(connections[peer], STREAM, id, &room).unwrap();
            }
            let segments = [Segment { region: regions[side].id, offset: 0, length }];
            let request = WorkRequest::new(id, operation, &segments);
            net.hosts[side].endpoint.post(now, connections[side], STREAM, request).unwrap();
            completions += 1 + usize::from(receives);
        }
        let segments = [Segment { region: regions[side].id, offset: 0, length: 100 }];
        let request = DatagramRequest {
            id: count,
            source_queue: 1,
            destination_queue: 2,
            key: 3,
            immediate: Some(4),
            segments: &segments,
        };
        net.hosts[side].endpoint.post_datagram(connections[side], request).unwrap();
    }
    completions
}

fn run(seed: u64, capture: PcapWriter<BufWriter<File>>) -> Tee {
    let hosts = [0, 1].map(|number| {
        let config =
            Config { rto_ns_min: 200_000, pto_ns_min: 100_000, ..Config::sockets(seed * 2 + number) };
        (config, HeapStorage::new(&Limits::HOST))
    });
    let mut net = Network::new(seed, Faults::all(20_000), hosts);
    let tee = Rc::new(RefCell::new(Tee { capture, packets: Vec::new(), time_ns: 0 }));
    net.observer = Some(Box::new(Rc::clone(&tee)));
    let connections = connect(&mut net);
    let wanted = post(&mut net, connections, &mut Random::new(seed), 24);
    let mut seen = 0;
    let done = net.run_until(60 * SECOND, |net| {
        for host in &mut net.hosts {
            seen += host.take_events().iter().filter(|event| matches!(event, Event::Completion(_))).count();
        }
        seen >= wanted
    });
    assert!(done, "{seen} of {wanted} completions");
    let now = net.now();
    net.hosts[0].endpoint.close(now, connections[0], CloseMode::Drain).unwrap();
    net.run_for(SECOND);
    drop(net);
    Rc::into_inner(tee).unwrap().into_inner()
}

/// What the dissector should know about earlier packets: the number of the first with this CSN.
#[derive(Default)]
struct Earlier(BTreeMap<(u32, u32), (usize, Opcode)>);

impl Earlier {
    fn retransmission_of(&mut self, bytes: &[u8], number: usize) -> Option<usize> {
        let (base, body) = Base::parse(bytes).unwrap();
        if base.kind != PacketType::Data {
            return None;
        }
        let (header, _) = DataHeader::parse(body).unwrap();
        if header.opcode == Opcode::Datagram {
            return None;
        }
        let key = (base.connection.0, header.csn.raw());
        let (first, opcode) = *self.0.entry(key).or_insert((number, header.opcode));
        let voids = header.opcode == Opcode::Void && opcode != Opcode::Void;
        (first != number && !voids).then_some(first)
    }
}

/// What a response answers: stream and message of a request, or the token of a PROBE.
fn request_of(bytes: &[u8]) -> Option<(u64, u64)> {
    let (base, body) = Base::parse(bytes).unwrap();
    match base.kind {
        PacketType::Data => {
            let (header, _) = DataHeader::parse(body).unwrap();
            header.opcode.is_response().then_some((u64::from(header.stream.0), u64::from(header.msn.raw())))
        }
        PacketType::ProbeReply => Some((u64::MAX, ProbeReply::parse(body).unwrap().0.token)),
        _ => None,
    }
}

/// The same of a request.
fn what_is_asked(bytes: &[u8]) -> Option<(u64, u64)> {
    let (base, body) = Base::parse(bytes).unwrap();
    match base.kind {
        PacketType::Data => {
            let (header, _) = DataHeader::parse(body).unwrap();
            // A SEND or WRITE is answered when it fails.
            let asks = matches!(header.opcode, Opcode::ReadRequest | Opcode::Send | Opcode::Write)
                || header.opcode.is_atomic();
            asks.then_some((u64::from(header.stream.0), u64::from(header.msn.raw())))
        }
        PacketType::Probe => Some((u64::MAX, Probe::parse(body).unwrap().0.token)),
        _ => None,
    }
}

#[test]
fn random_run_is_decoded_with_no_malformed_packet() {
    if is_missing() {
        return;
    }
    for seed in 0..4 {
        let path = file(&format!("run-{seed}.pcapng"));
        let output = BufWriter::new(File::create(&path).unwrap());
        let tee = run(seed, PcapWriter::new(output).unwrap());
        let [lost, again] = check(&path, tee);
        assert!(lost > 0 && again > 0, "seed {seed}");
    }
}

#[test]
fn programs_of_the_model_are_decoded_with_no_malformed_packet() {
    if is_missing() {
        return;
    }
    let mut again = 0;
    for seed in 0..6 {
        let path = file(&format!("model-{seed}.pcapng"));
        let output = BufWriter::new(File::create(&path).unwrap());
        let capture = PcapWriter::new(output).unwrap();
        let tee = Rc::new(RefCell::new(Tee { capture, packets: Vec::new(), time_ns: 0 }));
        let observer = Rc::clone(&tee);
        model::run_on(seed, |net| net.observer = Some(Box::new(observer))).unwrap();
        again += check(&path, Rc::into_inner(tee).unwrap().into_inner())[1];
    }
    assert!(again > 0);
}

/// Compares what tshark says of a capture with what went into it: returns how many packets were lost and sent again.
fn check(path: &PathBuf, tee: Tee) -> [usize; 2] {
    tee.capture.finish().unwrap();
    let extra =
        ["frame.comment", "metaroce.checksum.status", "metaroce.retransmission_of", "metaroce.request_in"];
    let rows = dissect_all(path, &extra);
    assert_eq!(rows.len(), tee.packets.len());
    let (mut earlier, mut lost_count, mut again) = (Earlier::default(), 0, 0);
    for (index, ((bytes, lost), row)) in tee.packets.iter().zip(&rows).enumerate() {
        let number = index + 1;
        assert_same(bytes, row, number);
        assert!(!row.has_error, "packet {number}: {row:?}");
        let comment = if *lost { "lost" } else { "" };
        let first = earlier.retransmission_of(bytes, number).map(|n| n.to_string()).unwrap_or_default();
        let extra = &row.fields[FIELDS.len()..];
        assert_eq!(extra[..3], [comment, "1", first.as_str()], "packet {number}");
        if let Some(answered) = request_of(bytes) {
            let request: usize = extra[3].parse().unwrap();
            assert_eq!(request_of(&tee.packets[request - 1].0), None, "packet {number}");
            assert_eq!(what_is_asked(&tee.packets[request - 1].0), Some(answered), "packet {number}");
        }
        lost_count += usize::from(*lost);
        again += usize::from(!first.is_empty());
    }
    eprintln!("{} packets, {lost_count} lost, {again} retransmissions", rows.len());
    [lost_count, again]
}
