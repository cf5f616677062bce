//! Whole datagrams into two live endpoints that are connected and have work: altered, invented, repeated or lost.
//!
//! Nothing may panic or loop, and memory may change only inside the registered region.
#![no_main]

use std::collections::VecDeque;
use std::net::SocketAddr;

use libfuzzer_sys::fuzz_target;
use metaroce_core::wire::{BASE_BYTES, Base};
use metaroce_core::{
    Access, AtomicOperation, Checksum as _, CloseMode, Config, ConnectOptions, ConnectionHandle, Datagram,
    Ecn, Endpoint, Event, HeapStorage, Instant, Limits, Memory, MemoryError, Operation, Progress,
    ProtectionDomain, RegionId, RegionOptions, RegisteredRegion, RemoteAddress, Segment, StreamId,
    TableChecksum, Transmit, WorkRequest, crc,
};

const REGION_BYTES: u32 = 20_000;
const STEPS_MAX: usize = 200;
const ROUNDS_MAX: usize = 1000;

fuzz_target!(|input: &[u8]| {
    let mut input = Input(input);
    let mut pair = Pair::connected();
    for _ in 0..STEPS_MAX {
        let Some(step) = input.byte() else { break };
        let side = usize::from(step >> 7);
        match step % 8 {
            0 | 1 => pair.carry(side, |_| true),
            2 => {
                let pattern = input.byte().unwrap_or(0);
                pair.carry(side, |number| pattern >> (number % 8) & 1 == 0);
            }
            3 => pair.alter(side, &mut input),
            4 => pair.invent(side, &mut input),
            5 => pair.wait(&mut input),
            6 => pair.post(side, &mut input),
            _ => pair.repeat(side, &mut input),
        }
    }
});

struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    fn short(&mut self) -> usize {
        usize::from(self.byte().unwrap_or(0)) << 8 | usize::from(self.byte().unwrap_or(0))
    }

    fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }
}

/// One region; what is written outside of it is a fault of the core.
struct Region;

impl Region {
    fn check(offset: u64, length: usize) {
        assert!(offset.checked_add(length as u64).is_some_and(|end| end <= u64::from(REGION_BYTES)));
    }
}

impl Memory for Region {
    fn write(&mut self, _: RegionId, offset: u64, bytes: &[u8]) -> Result<(), MemoryError> {
        Self::check(offset, bytes.len());
        Ok(())
    }

    fn atomic(&mut self, _: RegionId, offset: u64, _: AtomicOperation) -> Result<u64, MemoryError> {
        Self::check(offset, 8);
        Ok(0)
    }
}

struct Host {
    endpoint: Endpoint<HeapStorage>,
    region: RegisteredRegion,
    connection: Option<ConnectionHandle>,
    address: SocketAddr,
    /// The newest datagrams that were for it.
    seen: VecDeque<Vec<u8>>,
}

impl Host {
    fn new(seed: u64, address: &str) -> Self {
        let limits = Limits::SMALL;
        let mut endpoint =
            Endpoint::new(Config::hardware(seed), HeapStorage::new(&limits)).expect("valid configuration");
        let region = endpoint
            .register_region(RegionOptions {
                length: u64::from(REGION_BYTES),
                base_address: 0,
                access: Access::ALL,
                domain: ProtectionDomain(0),
            })
            .expect("room for a region");
        Self {
            endpoint,
            region,
            connection: None,
            address: address.parse().expect("address"),
            seen: VecDeque::new(),
        }
    }
}

struct Pair {
    now: Instant,
    hosts: [Host; 2],
}

impl Pair {
    fn connected() -> Self {
        let hosts = [Host::new(1, "10.0.0.1:4795"), Host::new(2, "10.0.0.2:4795")];
        let mut pair = Self { now: Instant::from_nanos(1 << 30), hosts };
        let remote = pair.hosts[1].address;
        let opened = pair.hosts[0].endpoint.connect(pair.now, ConnectOptions::to(remote));
        pair.hosts[0].connection = opened.ok();
        for _ in 0..20 {
            pair.carry(0, |_| true);
            pair.carry(1, |_| true);
            pair.pass(5_000);
        }
        assert!(pair.hosts[1].connection.is_some(), "they are connected");
        pair
    }

    /// What host `from` wants sent reaches the other, if `passes`.
    fn carry(&mut self, from: usize, passes: impl Fn(usize) -> bool) {
        let mut batch = vec![Transmit::EMPTY; 16];
        let mut number = 0;
        for round in 0.. {
            assert!(round < ROUNDS_MAX, "an endpoint sends without end");
            let count = self.hosts[from].endpoint.poll_transmit(self.now, &mut batch);
            for packet in &mut batch[..count] {
                let payload = vec![0x5a; packet.payload_length()];
                packet.seal(&TableChecksum, [&payload[..]]);
                let bytes = [packet.header(), &payload, &vec![0; packet.padding()]].concat();
                number += 1;
                if passes(number) {
                    self.deliver(1 - from, &bytes);
                }
                let seen = &mut self.hosts[1 - from].seen;
                seen.push_back(bytes);
                if seen.len() > 16 {
                    seen.pop_front();
                }
            }
            if count == 0 {
                break;
            }
        }
    }

    fn deliver(&mut self, to: usize, bytes: &[u8]) {
        let source = self.hosts[1 - to].address;
        let datagram = Datagram { source, plane: 0, ecn: Ecn::Ect0, bytes };
        let host = &mut self.hosts[to];
        let _ = host.endpoint.handle_datagram(self.now, datagram, &mut Region);
        while let Some(event) = host.endpoint.poll_event() {
            match event {
                Event::Incoming { connection, .. } => {
                    if host.endpoint.accept(self.now, connection, ProtectionDomain(0), &[]).is_ok() {
                        host.connection = Some(connection);
                    }
                }
                Event::Closed { connection, .. } if host.connection == Some(connection) => {
                    host.connection = None
                }
                _ => {}
            }
        }
    }

    /// Delivers a datagram that was seen, with some bytes changed, mostly under a valid checksum.
    fn alter(&mut self, to: usize, input: &mut Input<'_>) {
        let Some(mut bytes) = self.pick(to, input) else { return };
        let flags = input.byte().unwrap_or(0);
        let at = input.short() % bytes.len().max(1);
        for (place, new) in bytes.iter_mut().skip(at).zip(input.bytes(usize::from(flags & 15))) {
            *place = *new;
        }
        if flags & 16 != 0 {
            bytes.truncate(at);
        }
        if flags & 32 == 0 {
            seal(&mut bytes);
        }
        self.deliver(to, &bytes);
    }

    /// Delivers a datagram with the base header of one that was seen, of any type and with any body.
    fn invent(&mut self, to: usize, input: &mut Input<'_>) {
        let Some(seen) = self.pick(to, input) else { return };
        let mut bytes = seen.get(..BASE_BYTES).unwrap_or(&seen).to_vec();
        let kind = input.byte().unwrap_or(0);
        if let Some(first) = bytes.first_mut() {
            *first = *first & 0xf0 | kind & 7;
        }
        let length = usize::from(input.byte().unwrap_or(0));
        bytes.extend_from_slice(input.bytes(length));
        seal(&mut bytes);
        self.deliver(to, &bytes);
    }

    fn repeat(&mut self, to: usize, input: &mut Input<'_>) {
        if let Some(bytes) = self.pick(to, input) {
            self.deliver(to, &bytes);
        }
    }

    fn wait(&mut self, input: &mut Input<'_>) {
        let amount = u64::from(input.byte().unwrap_or(0)) + 1;
        self.pass(amount << (input.byte().unwrap_or(0) % 32));
    }

    fn pass(&mut self, nanos: u64) {
        self.now = self.now.after(nanos);
        for host in &mut self.hosts {
            let mut calls = 0;
            while host.endpoint.handle_timeout(self.now) == Progress::More {
                calls += 1;
                assert!(calls < ROUNDS_MAX, "timers without end");
            }
            let _ = host.endpoint.next_deadline();
        }
    }

    fn post(&mut self, side: usize, input: &mut Input<'_>) {
        let key = self.hosts[1 - side].region.key;
        let host = &mut self.hosts[side];
        let Some(connection) = host.connection else { return };
        let kind = input.byte().unwrap_or(0);
        let stream = StreamId(u16::from(kind >> 5));
        let length = u32::try_from(input.short()).unwrap_or(0) % (REGION_BYTES + 1);
        let segment = [Segment { region: host.region.id, offset: 0, length }];
        let remote = RemoteAddress { key, address: 0 };
        let operation = match kind % 8 {
            0 | 1 => Operation::Write { remote, immediate: None },
            2 => Operation::Write { remote, immediate: Some(7) },
            3 => Operation::Read { remote },
            4 => Operation::Send { immediate: None },
            5 | 6 => {
                let _ = host.endpoint.post_recv(connection, stream, 1, &segment);
                return;
            }
            _ if kind == 255 => {
                let _ = host.endpoint.close(self.now, connection, CloseMode::Drain);
                return;
            }
            _ => {
                let _ = host.endpoint.reset_stream(self.now, connection, stream);
                return;
            }
        };
        let _ = host.endpoint.post(self.now, connection, stream, WorkRequest::new(2, operation, &segment));
    }

    fn pick(&self, to: usize, input: &mut Input<'_>) -> Option<Vec<u8>> {
        let seen = &self.hosts[to].seen;
        let index = usize::from(input.byte()?) % seen.len().max(1);
        seen.get(index).cloned()
    }
}

fn seal(bytes: &mut [u8]) {
    Base::write_checksum(bytes, 0);
    let crc = crc::finish(TableChecksum.update(crc::SEED, bytes));
    Base::write_checksum(bytes, crc);
}
