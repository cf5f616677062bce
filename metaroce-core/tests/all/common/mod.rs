//! Two connected hosts, for every pair test.
#![allow(dead_code, reason = "each test file uses its own part")]

pub mod pair;

pub mod packets;

pub mod planes;

use metaroce_conformance::{Faults, Network};
use metaroce_core::{
    Completion, Config, ConnectOptions, ConnectionHandle, Event, HeapStorage, Limits, Operation,
    ProtectionDomain, RemoteAddress, Segment, Status, Storage, StreamId, WorkRequest,
};

pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1_000 * MS;

pub fn config(seed: u64) -> Config {
    Config { rto_ns_min: 200_000, pto_ns_min: 100_000, rtt_ns_initial: 50_000, ..Config::sockets(seed) }
}

pub fn network(seed: u64, faults: Faults) -> Network<HeapStorage> {
    network_with(seed, faults, |_| {})
}

pub fn network_with(seed: u64, faults: Faults, change: impl Fn(&mut Config)) -> Network<HeapStorage> {
    let mut hosts = Vec::new();
    for number in 0..2 {
        let mut config = config(seed * 2 + number);
        change(&mut config);
        hosts.push((config, HeapStorage::new(&Limits::HOST)));
    }
    Network::new(seed, faults, hosts)
}

/// Connects host 0 to host 1.
pub fn connect<S: Storage>(net: &mut Network<S>) -> [ConnectionHandle; 2] {
    let remote = net.hosts[1].address;
    let now = net.now_at(0);
    let ours = net.hosts[0].endpoint.connect(now, ConnectOptions::to(remote)).unwrap();
    let mut theirs = None;
    let mut open = [false; 2];
    let done = net.run_until(30 * SECOND, |net| {
        for (number, open) in open.iter_mut().enumerate() {
            for event in net.hosts[number].take_events() {
                match event {
                    Event::Incoming { connection, .. } => {
                        let now = net.now_at(1);
                        net.hosts[1].endpoint.accept(now, connection, ProtectionDomain(0), b"hello").unwrap();
                        theirs = Some(connection);
                    }
                    Event::Connected { .. } => *open = true,
                    other => panic!("unexpected {other:?}"),
                }
            }
        }
        if theirs.is_some() {
            net.settle();
        }
        open == [true; 2]
    });
    assert!(done, "the connection opens");
    [ours, theirs.unwrap()]
}

pub fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut random = metaroce_conformance::Random::new(seed);
    let mut bytes = vec![0; length];
    for chunk in bytes.chunks_mut(8) {
        let word = random.next_u64().to_le_bytes();
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
    bytes
}

pub fn completions(events: &[Event]) -> Vec<Completion> {
    events
        .iter()
        .filter_map(|event| match event {
            Event::Completion(completion) => Some(*completion),
            _ => None,
        })
        .collect()
}

/// Runs until host `number` has `count` completions, and returns them.
pub fn wait<S: Storage>(net: &mut Network<S>, number: usize, count: usize) -> Vec<Completion> {
    let mut seen = Vec::new();
    let done = net.run_until(60 * SECOND, |net| {
        let events = std::mem::take(&mut net.hosts[number].events);
        seen.extend(completions(&events));
        seen.len() >= count
    });
    assert!(done, "host {number} has {} of {count} completions", seen.len());
    seen
}

pub fn all_good(completions: &[Completion]) {
    for completion in completions {
        assert_eq!(completion.status, Status::Success, "{completion:?}");
    }
}

/// Has host 0 post a WRITE of `length` bytes, from memory and to memory of its own.
pub fn write(net: &mut Network<HeapStorage>, connection: ConnectionHandle, id: u64, length: u32) {
    let from = net.hosts[0].register(vec![1; length as usize]);
    let to = net.hosts[1].register(vec![0; length as usize]);
    let now = net.now();
    let remote = RemoteAddress { key: to.key, address: 0 };
    let segments = [Segment { region: from.id, offset: 0, length }];
    let request = WorkRequest::new(id, Operation::Write { remote, immediate: None }, &segments);
    net.hosts[0].endpoint.post(now, connection, S0, request).unwrap();
}

pub const S0: StreamId = StreamId(0);
