//! The data path allocates nothing: a counting allocator sees a million packets go by.
//!
//! `tests/no_panic.rs` of the root package proves the same, and that nothing panics, from the symbols of a static library;
//! this one runs, and counts what the host's own storage asks for.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a test fails by panicking"
)]

use std::net::SocketAddr;

use metaroce_core::{
    Access, AtomicOperation, Config, ConnectOptions, ConnectionHandle, Datagram, Endpoint, Event,
    HeapStorage, Instant, Limits, Memory, MemoryError, Operation, Progress, ProtectionDomain, RegionId,
    RegionOptions, RegisteredRegion, RemoteAddress, Segment, Status, StreamId, Transmit, WorkRequest,
};

const PACKETS: u64 = 1_000_000;
const REGION_BYTES: u64 = 1 << 20;
/// One datagram of so many is lost.
const LOST: u64 = 101;

struct NoBytes;

impl Memory for NoBytes {
    fn write(&mut self, _: RegionId, _: u64, _: &[u8]) -> Result<(), MemoryError> {
        Ok(())
    }

    fn atomic(&mut self, _: RegionId, _: u64, _: AtomicOperation) -> Result<u64, MemoryError> {
        Ok(0)
    }
}

struct Host {
    endpoint: Endpoint<HeapStorage>,
    region: RegisteredRegion,
    address: SocketAddr,
    connection: Option<ConnectionHandle>,
    posted: u64,
    completed: u64,
}

impl Host {
    fn new(number: u8) -> Self {
        // Checksums would only make it slow.
        let config = Config { checksum_wanted: false, ..Config::hardware(u64::from(number)) };
        let mut endpoint = Endpoint::new(config, HeapStorage::new(&Limits::HOST)).unwrap();
        let options = RegionOptions {
            length: REGION_BYTES,
            base_address: 0,
            access: Access::ALL,
            domain: ProtectionDomain(0),
        };
        let region = endpoint.register_region(options).unwrap();
        let address = SocketAddr::from(([10, 0, 0, number], 4795));
        Self { endpoint, region, address, connection: None, posted: 0, completed: 0 }
    }

    fn take_events(&mut self, now: Instant) {
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                Event::Incoming { connection, .. } => {
                    self.endpoint.accept(now, connection, ProtectionDomain(0), &[]).unwrap();
                    self.connection = Some(connection);
                }
                Event::Completion(done) => {
                    assert_eq!(done.status, Status::Success, "{done:?}");
                    self.completed += 1;
                }
                Event::Closed { reason, .. } => panic!("closed: {reason:?}"),
                _ => {}
            }
        }
    }
}

struct Pair {
    now: Instant,
    hosts: [Host; 2],
    batch: Vec<Transmit>,
    bytes: Vec<u8>,
    carried: u64,
}

impl Pair {
    /// One turn of both drivers.
    fn turn(&mut self) {
        self.now = self.now.after(2_000);
        for from in 0..2 {
            while self.hosts[from].endpoint.handle_timeout(self.now) == Progress::More {}
            loop {
                let count = self.hosts[from].endpoint.poll_transmit(self.now, &mut self.batch);
                for packet in 0..count {
                    self.carry(from, packet);
                }
                if count < self.batch.len() {
                    break;
                }
            }
            self.hosts[from].take_events(self.now);
            let _ = self.hosts[from].endpoint.next_deadline();
        }
    }

    fn carry(&mut self, from: usize, packet: usize) {
        self.carried += 1;
        let packet = &mut self.batch[packet];
        if packet.wants_checksum() {
            packet.seal(&metaroce_core::TableChecksum, [&[][..]]);
        }
        if self.carried.is_multiple_of(LOST) {
            return;
        }
        let header = packet.header();
        self.bytes[..header.len()].copy_from_slice(header);
        let bytes = &self.bytes[..packet.datagram_length()];
        let source = self.hosts[from].address;
        let datagram = Datagram { source, plane: 0, ecn: packet.ecn, bytes };
        let _ = self.hosts[1 - from].endpoint.handle_datagram(self.now, datagram, &mut NoBytes);
    }

    /// Keeps work of each kind under way, on eight streams of both sides.
    fn post(&mut self) {
        for side in 0..2 {
            let peer = self.hosts[1 - side].region.key;
            let now = self.now;
            let host = &mut self.hosts[side];
            let Some(connection) = host.connection else { return };
            while host.posted < host.completed + 48 {
                let id = host.posted;
                let stream = StreamId((id % 8) as u16);
                let segment = [Segment { region: host.region.id, offset: 0, length: 30_000 }];
                let word = [Segment { region: host.region.id, offset: 0, length: 8 }];
                let remote = RemoteAddress { key: peer, address: 0 };
                let operation = AtomicOperation::FetchAdd(1);
                let posted = match id % 5 {
                    0 => host.endpoint.post_recv(connection, stream, id, &segment),
                    1 => host.endpoint.post(
                        now,
                        connection,
                        stream,
                        WorkRequest::new(id, Operation::Read { remote }, &segment),
                    ),
                    2 => host.endpoint.post(
                        now,
                        connection,
                        stream,
                        WorkRequest::new(id, Operation::Atomic { remote, operation }, &word),
                    ),
                    3 => host.endpoint.post(
                        now,
                        connection,
                        // The streams on which receives are posted, 0, 5, 2, 7, 4, 1, 6, 3, turn as these do.
                        StreamId(((id - 3) % 8) as u16),
                        WorkRequest::new(id, Operation::Send { immediate: Some(1) }, &segment),
                    ),
                    _ => host.endpoint.post(
                        now,
                        connection,
                        stream,
                        WorkRequest::new(id, Operation::Write { remote, immediate: None }, &segment),
                    ),
                };
                posted.unwrap();
                host.posted += 1;
            }
        }
    }

    fn run(&mut self, packets: u64) {
        let end = self.carried + packets;
        while self.carried < end {
            self.post();
            self.turn();
        }
    }
}

#[test]
//= MR-SEC-4 test
fn a_million_packets_of_every_kind_allocate_nothing() {
    let now = Instant::from_nanos(1_000_000);
    let hosts = [1, 2].map(Host::new);
    let batch = vec![Transmit::EMPTY; 64];
    let mut pair = Pair { now, hosts, batch, bytes: vec![0; 9_000], carried: 0 };
    let remote = pair.hosts[1].address;
    pair.hosts[0].connection = pair.hosts[0].endpoint.connect(now, ConnectOptions::to(remote)).ok();
    for _ in 0..1_000 {
        pair.turn();
    }
    let during = allocation_counter::measure(|| pair.run(PACKETS));
    assert_eq!((during.count_total, during.bytes_total), (0, 0), "{during:?}");
    assert!(pair.carried > PACKETS);
    for host in &mut pair.hosts {
        let stats = host.endpoint.connection_stats(host.connection.unwrap()).unwrap();
        assert!(host.completed > 10_000 && stats.lost > 1_000, "{} completed, {stats:?}", host.completed);
    }
    let counted = allocation_counter::measure(|| drop(HeapStorage::new(&Limits::SMALL)));
    assert!(counted.count_total > 0, "the counter counts");
}
