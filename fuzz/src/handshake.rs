//! Handshakes under flood: one server, one honest client, and senders with any address that know everything but the
//! secrets.
//!
//! Nobody whose address is unproven gets more bytes than came from it, and when the flood is over the honest client
//! gets in.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use arbitrary::{Arbitrary, Unstructured};
use metaroce_conformance::Random;
use metaroce_core::ids::WireConnectionId;
use metaroce_core::wire::{
    BASE_BYTES, Base, Confirm, Connect, Control, PacketType, PlaneAddresses, RejectReason,
};
use metaroce_core::{
    AtomicOperation, CloseMode, Config, ConnectOptions, ConnectionHandle, Datagram, Ecn, Endpoint, Event,
    HeapStorage, Instant, Limits, Memory, MemoryError, PathId, Progress, ProtectionDomain, RegionId,
    Transmit,
};

use crate::craft::{Known, Packet, Seen, seal};

const STEPS_MAX: usize = 100;
const ROUNDS_MAX: usize = 1_000;
/// Time after which everything that strangers began is forgotten, ns.
const CALM_NS: u64 = 60_000_000_000;
/// Time within which the honest client then gets in, ns.
const OPENING_NS: u64 = 10_000_000_000;

#[derive(Clone, Debug, Arbitrary)]
enum Step {
    /// A forged packet.
    Forge { from: Stranger, packet: Packet },
    /// CONNECTs, all different, from as many addresses.
    Flood { first: u8, count: u8, seed: u32, implicit: bool, short: bool },
    /// A stranger that can be reached answers what it got: from then on its address is proven.
    Answer { which: u8 },
    /// The application takes or refuses what waits.
    Application { accept: bool },
    /// The client calls.
    Call { implicit: bool },
    /// The client hangs up.
    Leave { flush: bool },
    /// What client and server want sent arrives, but for the packets whose bits are set.
    Carry { lost: u8 },
    /// Time.
    Wait { amount: u8, shift: u8 },
}

/// Who a stranger claims to be.
#[derive(Clone, Copy, Debug, Arbitrary)]
enum Stranger {
    Itself(u8),
    TheClient,
}

/// Plays the steps that the bytes stand for.
pub fn run(bytes: &[u8]) {
    let mut input = Unstructured::new(bytes);
    let mut scene = Scene::new(u8::arbitrary(&mut input).unwrap_or(0));
    for _ in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        let Ok(step) = Step::arbitrary(&mut input) else { break };
        scene.play(step);
    }
    scene.end();
}

/// Nothing is written in a handshake.
struct NoMemory;

impl Memory for NoMemory {
    fn write(&mut self, _: RegionId, _: u64, _: &[u8]) -> Result<(), MemoryError> {
        panic!("a handshake writes nothing")
    }

    fn atomic(&mut self, _: RegionId, _: u64, _: AtomicOperation) -> Result<u64, MemoryError> {
        panic!("a handshake writes nothing")
    }
}

struct Scene {
    now: Instant,
    server: Endpoint<HeapStorage>,
    client: Endpoint<HeapStorage>,
    /// What waits for the server's application.
    incoming: Vec<ConnectionHandle>,
    called: Option<ConnectionHandle>,
    /// Whether both ends have reported the newest call open.
    open: [bool; 2],
    seen: Seen,
    answered: Seen,
    /// Bytes from and to each address of strangers, less those to proven ones.
    balance: BTreeMap<IpAddr, i64>,
    proven: BTreeSet<IpAddr>,
    /// Newest control packets to strangers.
    letters: Vec<(SocketAddr, Vec<u8>)>,
}

const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 4795);
const CLIENT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), 4795);

impl Scene {
    fn new(settings: u8) -> Self {
        let connections = if settings & 1 == 0 { 4 } else { 16 };
        let limits = Limits { connections, ..Limits::SMALL };
        let base = Config::hardware(3);
        let half_open_per_address = if settings & 2 == 0 { 2 } else { base.half_open_per_address };
        let server = Config { half_open_per_address, ..base };
        let client = Config { seed: 4, ..base };
        Self {
            now: Instant::from_nanos(1 << 30),
            server: Endpoint::new(server, HeapStorage::new(&limits)).expect("valid configuration"),
            client: Endpoint::new(client, HeapStorage::new(&limits)).expect("valid configuration"),
            incoming: Vec::new(),
            called: None,
            open: [false; 2],
            seen: Seen::default(),
            answered: Seen::default(),
            balance: BTreeMap::new(),
            proven: BTreeSet::new(),
            letters: Vec::new(),
        }
    }

    fn play(&mut self, step: Step) {
        match step {
            Step::Forge { from, packet } => {
                let source = match from {
                    Stranger::Itself(last) => stranger(last),
                    Stranger::TheClient => CLIENT,
                };
                let bytes = packet.bytes(&self.known());
                self.reach_server(source, &bytes);
            }
            Step::Flood { first, count, seed, implicit, short } => {
                let mut random = Random::new(u64::from(seed));
                for number in 0..count % 24 {
                    let nonce = random.next_u64();
                    let bytes = connect(nonce, implicit, [0; 16], if short { 200 } else { 640 });
                    self.reach_server(stranger(first.wrapping_add(number)), &bytes);
                }
            }
            Step::Answer { which } => self.answer(which),
            Step::Application { accept } => self.decide(accept),
            Step::Call { implicit } => self.call(implicit),
            Step::Leave { flush } => self.leave(if flush { CloseMode::Flush } else { CloseMode::Drain }),
            Step::Carry { lost } => self.carry(lost),
            Step::Wait { amount, shift } => self.pass((u64::from(amount) + 1) << (shift % 28)),
        }
        self.check();
    }

    /// Ids are no secret; nonces, and where the numbers of the packets are, are.
    fn known(&self) -> Known {
        let public =
            |seen: &Seen| Seen { connection: seen.connection, sender: seen.sender, ..Seen::default() };
        let keys = [metaroce_core::RegionKey(0); 3];
        Known { forward: public(&self.seen), backward: public(&self.answered), keys }
    }

    fn reach_server(&mut self, source: SocketAddr, bytes: &[u8]) {
        if source != CLIENT {
            let length = i64::try_from(bytes.len()).unwrap();
            *self.balance.entry(source.ip()).or_default() += length;
        }
        let datagram = Datagram { source, plane: 0, ecn: Ecn::NotEct, bytes };
        let _ = self.server.handle_datagram(self.now, datagram, &mut NoMemory);
        self.take_events();
    }

    /// A stranger returns the cookie of a RETRY, or confirms an ACCEPT.
    fn answer(&mut self, which: u8) {
        let index = usize::from(which) % self.letters.len().max(1);
        let Some((stranger, letter)) = self.letters.get(index).cloned() else { return };
        let Ok((base, body)) = Base::parse(&letter) else { return };
        self.proven.insert(stranger.ip());
        let bytes = match Control::parse(body) {
            Ok((Control::Retry(retry), _)) => connect(retry.echoed_nonce, false, retry.cookie, 640),
            Ok((Control::Accept(accept), _)) => {
                let confirm = Control::Confirm(Confirm { echoed_nonce: accept.nonce });
                control(WireConnectionId(accept.connection.0), &confirm, 0)
            }
            _ => control(base.connection, &Control::Confirm(Confirm { echoed_nonce: 1 }), 0),
        };
        self.reach_server(stranger, &bytes);
    }

    fn decide(&mut self, accept: bool) {
        for connection in std::mem::take(&mut self.incoming) {
            let _ = if accept {
                self.server.accept(self.now, connection, ProtectionDomain(0), &[1; 256])
            } else {
                self.server.reject(self.now, connection, RejectReason::Application(0x100), &[2; 256])
            };
        }
    }

    fn call(&mut self, implicit: bool) {
        self.leave(CloseMode::Flush);
        let options = ConnectOptions { implicit, ..ConnectOptions::to(SERVER) };
        self.called = self.client.connect(self.now, options).ok();
        self.open = [false; 2];
    }

    fn leave(&mut self, mode: CloseMode) {
        if let Some(called) = self.called.take() {
            let _ = self.client.close(self.now, called, mode);
        }
    }

    fn take_events(&mut self) {
        while let Some(event) = self.server.poll_event() {
            match event {
                Event::Incoming { connection, .. } => self.incoming.push(connection),
                Event::Connected { .. } => self.open[1] = true,
                Event::Closed { connection, .. } => self.incoming.retain(|waiting| *waiting != connection),
                _ => {}
            }
        }
        while let Some(event) = self.client.poll_event() {
            match event {
                Event::Connected { connection } if Some(connection) == self.called => self.open[0] = true,
                Event::Closed { connection, .. } if Some(connection) == self.called => self.called = None,
                _ => {}
            }
        }
    }

    fn carry(&mut self, lost: u8) {
        let mut batch = [Transmit::EMPTY; 16];
        let mut number = 0;
        for from_server in [true, false] {
            for round in 0.. {
                assert!(round < ROUNDS_MAX, "an endpoint sends without end");
                let endpoint = if from_server { &mut self.server } else { &mut self.client };
                let count = endpoint.poll_transmit(self.now, &mut batch);
                for packet in &mut batch[..count] {
                    let mut bytes = packet.header().to_vec();
                    bytes.resize(packet.datagram_length(), 0);
                    seal(&mut bytes);
                    number += 1;
                    let arrives = lost >> (number % 8) & 1 == 0;
                    match (from_server, packet.destination) {
                        (false, _) => {
                            self.seen.observe(&bytes);
                            if arrives {
                                self.reach_server(CLIENT, &bytes);
                            }
                        }
                        (true, to) if to.ip() == CLIENT.ip() => {
                            self.answered.observe(&bytes);
                            if arrives {
                                let ecn = Ecn::NotEct;
                                let datagram = Datagram { source: SERVER, plane: 0, ecn, bytes: &bytes };
                                let _ = self.client.handle_datagram(self.now, datagram, &mut NoMemory);
                                self.take_events();
                            }
                        }
                        (true, to) => self.reach_stranger(to, bytes),
                    }
                }
                if count == 0 {
                    break;
                }
            }
        }
    }

    fn reach_stranger(&mut self, to: SocketAddr, bytes: Vec<u8>) {
        if !self.proven.contains(&to.ip()) {
            *self.balance.entry(to.ip()).or_default() -= i64::try_from(bytes.len()).unwrap();
        }
        if bytes.len() > BASE_BYTES
            && Base::parse(&bytes).is_ok_and(|(base, _)| base.kind == PacketType::Control)
        {
            self.letters.push((to, bytes));
            if self.letters.len() > 16 {
                self.letters.remove(0);
            }
        }
    }

    fn check(&self) {
        for (address, balance) in &self.balance {
            let proven = self.proven.contains(address);
            assert!(proven || *balance >= 0, "{address} got {} bytes more than came from it", -balance);
        }
    }

    fn pass(&mut self, nanos: u64) {
        self.now = self.now.after(nanos);
        for endpoint in [&mut self.server, &mut self.client] {
            let mut calls = 0;
            while endpoint.handle_timeout(self.now) == Progress::More {
                calls += 1;
                assert!(calls < ROUNDS_MAX, "timers without end");
            }
        }
        self.take_events();
    }

    /// Goes on to the next deadline, at most by `most` ns.
    fn wake(&mut self, most: u64) {
        let deadlines = [self.server.next_deadline(), self.client.next_deadline()];
        let span = deadlines.into_iter().flatten().min().map_or(most, |deadline| deadline.since(self.now));
        self.pass(span.min(most));
    }

    /// The flood is over.
    fn end(&mut self) {
        self.leave(CloseMode::Flush);
        let calm = self.now.after(CALM_NS);
        while self.now < calm {
            self.carry(0);
            self.check();
            self.wake(10_000_000_000);
        }
        self.incoming.clear();
        self.call(false);
        assert!(self.called.is_some(), "the client has room");
        let limit = self.now.after(OPENING_NS);
        while self.open != [true; 2] {
            assert!(
                self.now < limit && self.called.is_some(),
                "the honest client does not get in: {:?}",
                self.open
            );
            self.carry(0);
            self.decide(true);
            self.carry(0);
            if self.open != [true; 2] {
                self.wake(1_000_000_000);
            }
        }
    }
}

fn stranger(last: u8) -> SocketAddr {
    SocketAddr::from(([10, 2, 0, last], 4795))
}

/// A CONNECT of `length` bytes, or as long as it must be.
fn connect(nonce: u64, implicit: bool, cookie: [u8; 16], length: usize) -> Vec<u8> {
    let connect = Connect {
        wants_checksum: true,
        implicit,
        connection: WireConnectionId(5),
        nonce,
        incarnation: 1,
        features: 0,
        mtu_bytes: 4_176,
        service: 0,
        streams: 8,
        paths: 4,
        reads: 4,
        held: 0,
        message_window: 16,
        csn_window: 128,
        initial_credits: 4,
        start_allowance_kib: 0,
        echoed_nonce: 0,
        cookie,
        planes: PlaneAddresses::EMPTY,
        private_data: &[],
    };
    control(WireConnectionId(0), &Control::Connect(connect), length)
}

fn control(connection: WireConnectionId, control: &Control<'_>, length: usize) -> Vec<u8> {
    let base = Base {
        kind: PacketType::Control,
        flags: 0,
        path: PathId(0),
        epoch: 0,
        connection,
        psn: metaroce_core::ids::Psn::new(0),
        timestamp: 0,
        checksum: 0,
    };
    let mut bytes = vec![0; 1_000];
    let mut end = base.emit(&mut bytes).expect("room");
    end += control.emit(&mut bytes[end..]).expect("room");
    bytes.truncate(end.max(length));
    seal(&mut bytes);
    bytes
}
