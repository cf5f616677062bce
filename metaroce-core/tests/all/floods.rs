//! Floods: senders off the path that know everything but the secrets, and peers that open everything and send nothing.
//!
//! An honest connection is measured twice in one run of virtual time, without and with the flood: one forged packet for
//! each packet that the honest sender sends. The figures are exact and the same on every machine.

mod readers;

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;

use crate::common::*;
use metaroce_conformance::{Faults, Network, Random};
use metaroce_core::ids::{Csn, Msn, Psn, ReceiveIndex, WireConnectionId};
use metaroce_core::wire::{
    AckBody, Base, Confirm, Connect, Control, DataHeader, Frame, NackReason, OpFlags, Opcode, PacketType,
    PlaneAddresses, Probe, ProbeReply, Reject, RejectReason, Remote, Reset, ResetProof, Retry, Vector256,
};
use metaroce_core::{
    Checksum as _, Config, ConnectOptions, ConnectionHandle, Event, HeapStorage, Limits, Operation, PathId,
    ProtectionDomain, RegionKey, RegisteredRegion, RemoteAddress, Segment, Status, StreamId, TableChecksum,
    WorkRequest, crc,
};

const HOSTILE: usize = 0;
const VICTIM: usize = 1;
const HONEST: usize = 2;
/// Bytes of an honest WRITE, and how many are outstanding.
const MESSAGE: u32 = 65_536;
const OUTSTANDING: u64 = 16;
/// How long goodput is measured.
const SPAN: u64 = 20 * MS;

/// Three hosts; the last has a connection to the victim.
struct Scene {
    net: Network<HeapStorage>,
    connection: [ConnectionHandle; 2],
    source: RegisteredRegion,
    target: RegisteredRegion,
    posted: u64,
}

impl Scene {
    fn new(seed: u64, victim: &Limits) -> Self {
        Self::new_with(seed, victim, |_| {})
    }

    fn new_with(seed: u64, victim: &Limits, change: impl Fn(&mut Config)) -> Self {
        let limits = [&Limits::HOST, victim, &Limits::HOST];
        let hosts = (0..3).zip(limits).map(|(number, limits)| {
            let mut config = Config { half_open_per_address: 65_535, ..config(seed * 3 + number) };
            change(&mut config);
            (config, HeapStorage::new(limits))
        });
        let mut net = Network::new(seed, Faults::NONE, hosts);
        let connection = open(&mut net, HONEST).unwrap();
        let source = net.hosts[HONEST].register(pattern(MESSAGE as usize, seed));
        let target = net.hosts[VICTIM].register(vec![0; MESSAGE as usize]);
        let mut scene = Self { net, connection, source, target, posted: 0 };
        scene.goodput(|_, _| {});
        scene
    }

    fn post(&mut self) {
        let segments = [Segment { region: self.source.id, offset: 0, length: MESSAGE }];
        let remote = RemoteAddress { key: self.target.key, address: 0 };
        let request = WorkRequest::new(self.posted, Operation::Write { remote, immediate: None }, &segments);
        let now = self.net.now();
        self.net.hosts[HONEST].endpoint.post(now, self.connection[0], S0, request).unwrap();
        self.posted += 1;
    }

    /// Messages that the honest connection completes in a span of time; `attack` is called once for each packet that it
    /// sends.
    fn goodput(&mut self, mut attack: impl FnMut(&mut Network<HeapStorage>, u64)) -> u64 {
        let mut outstanding = 0;
        let mut done = 0;
        let sent = |scene: &mut Self| {
            // It lives all the time.
            let connection = scene.connection[0];
            scene.net.hosts[HONEST].endpoint.connection_stats(connection).unwrap().packets_sent
        };
        let mut attacked = sent(self);
        let end = self.net.now().after(SPAN);
        while self.net.now() < end {
            while outstanding < OUTSTANDING {
                self.post();
                outstanding += 1;
            }
            let before = outstanding;
            self.net.run_until(10_000, |net| {
                for event in net.hosts[HONEST].take_events() {
                    match event {
                        Event::Completion(completion) => {
                            assert_eq!(completion.status, Status::Success);
                            outstanding -= 1;
                            done += 1;
                        }
                        other => panic!("unexpected {other:?}"),
                    }
                }
                outstanding < before
            });
            let now_sent = sent(self);
            for number in attacked..now_sent {
                attack(&mut self.net, number);
                self.net.settle();
            }
            attacked = now_sent;
            self.net.hosts[VICTIM].events.clear();
        }
        // What is left completes outside of the measurement.
        assert!(self.net.run_until(SECOND, |net| {
            outstanding -= completions(&net.hosts[HONEST].take_events()).len() as u64;
            outstanding == 0
        }));
        done
    }
}

/// Connects a host to the victim, which accepts everybody; `None` if it is refused.
fn open(net: &mut Network<HeapStorage>, from: usize) -> Option<[ConnectionHandle; 2]> {
    let options = ConnectOptions::to(net.hosts[VICTIM].address);
    let now = net.now();
    let ours = net.hosts[from].endpoint.connect(now, options).ok()?;
    let mut theirs = None;
    let (mut open, mut over) = ([false; 2], false);
    net.run_until(5 * SECOND, |net| {
        for event in net.hosts[VICTIM].take_events() {
            match event {
                Event::Incoming { connection, remote, .. } => {
                    let now = net.now();
                    let _ = net.hosts[VICTIM].endpoint.accept(now, connection, ProtectionDomain(0), b"");
                    if remote.ip() == net.hosts[from].address.ip() {
                        theirs = Some(connection);
                    }
                }
                Event::Connected { connection } => open[1] |= theirs == Some(connection),
                _ => {}
            }
        }
        net.settle();
        for event in net.hosts[from].take_events() {
            match event {
                Event::Connected { connection } => open[0] |= connection == ours,
                Event::Closed { connection, .. } => over |= connection == ours,
                _ => {}
            }
        }
        over || open == [true; 2]
    });
    (open == [true; 2]).then(|| [ours, theirs.unwrap()])
}

/// What is no secret about the honest connection.
#[derive(Clone, Copy)]
struct Public {
    honest: SocketAddr,
    /// The ids that the victim and the honest sender chose.
    ids: [u32; 2],
    timestamp: u32,
}

/// Watches until both ids are known.
fn spy(scene: &mut Scene) -> Public {
    let seen = Rc::new(Cell::new([(0, 0); 3]));
    let shared = Rc::clone(&seen);
    scene.net.filter = Some(Box::new(move |from, transmit| {
        let base = Base::parse(transmit.header()).unwrap().0;
        let mut all = shared.get();
        all[from] = (base.connection.0, base.timestamp);
        shared.set(all);
        false
    }));
    scene.goodput(|_, _| {});
    scene.net.filter = None;
    let seen = seen.get();
    Public {
        honest: scene.net.hosts[HONEST].address,
        ids: [seen[HONEST].0, seen[VICTIM].0],
        timestamp: seen[HONEST].1,
    }
}

fn packet(
    random: &mut Random,
    public: &Public,
    kind: PacketType,
    emit: impl FnOnce(&mut [u8]) -> usize,
) -> Vec<u8> {
    let base = Base {
        kind,
        flags: 0,
        path: PathId(random.below(4) as u8),
        epoch: 0,
        connection: WireConnectionId(public.ids[0]),
        psn: Psn::new(if kind.takes_psn() { random.next_u64() as u32 } else { 0 }),
        timestamp: public.timestamp,
        checksum: 0,
    };
    let mut bytes = vec![0; 1_000];
    let mut length = base.emit(&mut bytes).unwrap();
    length += emit(&mut bytes[length..]);
    bytes.truncate(length);
    let sum = crc::finish(TableChecksum.update(crc::SEED, &bytes));
    Base::write_checksum(&mut bytes, sum);
    bytes
}

type Forge = fn(&mut Random, &Public) -> Vec<u8>;

fn connect_packet(random: &mut Random, public: &Public) -> Vec<u8> {
    let connect = Connect {
        wants_checksum: true,
        implicit: random.chance(500_000),
        connection: WireConnectionId(random.next_u64() as u32),
        nonce: random.next_u64(),
        incarnation: 1,
        features: 0,
        mtu_bytes: 9_000,
        service: 0,
        streams: u16::MAX,
        paths: 64,
        reads: u16::MAX,
        held: u16::MAX,
        message_window: u32::MAX,
        csn_window: 1 << 21,
        initial_credits: 1_000,
        start_allowance_kib: u32::MAX,
        echoed_nonce: 0,
        cookie: random.next_u64().to_be_bytes().repeat(2).try_into().unwrap(),
        planes: PlaneAddresses::EMPTY,
        private_data: &[9; 256],
    };
    let public = Public { ids: [0; 2], ..*public };
    packet(random, &public, PacketType::Control, |out| {
        Control::Connect(connect).emit(out).unwrap();
        620
    })
}

fn ack_body(random: &mut Random) -> AckBody {
    AckBody {
        path: PathId(random.below(4) as u8),
        epoch: 0,
        flags: 0,
        largest: Psn::new(random.next_u64() as u32),
        accepted: Vector256::from_words([u64::MAX; 4]),
        echoed_timestamp: random.next_u64() as u32,
        hold: 0,
        packets: u32::MAX,
        marked: u32::MAX,
        cumulative: Csn::new(random.next_u64() as u32),
        share_kbps: 0,
    }
}

fn ack_packet(random: &mut Random, public: &Public) -> Vec<u8> {
    let body = ack_body(random);
    let nack = Frame::Nack { stream: S0, reason: NackReason::Closed, delay_us: u32::MAX };
    packet(random, public, PacketType::Ack, |out| {
        let length = body.emit(out).unwrap();
        length + nack.emit(&mut out[length..]).unwrap()
    })
}

fn reset_packet(random: &mut Random, public: &Public) -> Vec<u8> {
    let proof = if random.chance(500_000) {
        let mut quote = [0; 20];
        let victims = Public { ids: [public.ids[1], 0], ..*public };
        quote.copy_from_slice(&packet(random, &victims, PacketType::Data, |_| 0)[..20]);
        ResetProof::Quote(quote)
    } else {
        let [yours, mine] = public.ids.map(WireConnectionId);
        ResetProof::Ids { yours, mine, nonce_xor: random.next_u64() }
    };
    packet(random, public, PacketType::Control, |out| Control::Reset(Reset { proof }).emit(out).unwrap())
}

fn control_packet(random: &mut Random, public: &Public) -> Vec<u8> {
    let echoed_nonce = random.next_u64();
    let control = match random.below(3) {
        0 => Control::Confirm(Confirm { echoed_nonce }),
        1 => Control::Reject(Reject { reason: RejectReason::Closed, echoed_nonce, private_data: &[] }),
        _ => Control::Retry(Retry { echoed_nonce, cookie: [1; 16] }),
    };
    packet(random, public, PacketType::Control, |out| control.emit(out).unwrap())
}

fn probe_packet(random: &mut Random, public: &Public) -> Vec<u8> {
    let token = random.next_u64();
    if random.chance(500_000) {
        let probe = Probe { stream: StreamId::NONE, demand_kib: u32::MAX, token };
        return packet(random, public, PacketType::Probe, |out| probe.emit(out).unwrap() + 40);
    }
    let reply = ProbeReply { token, ack: ack_body(random) };
    packet(random, public, PacketType::ProbeReply, |out| reply.emit(out).unwrap())
}

fn data_packet(random: &mut Random, public: &Public) -> Vec<u8> {
    let opcode = Opcode::ALL[random.below(Opcode::ALL.len() as u64) as usize];
    let with_immediate = matches!(opcode, Opcode::Result | Opcode::StreamReset);
    let flags = OpFlags::LAST.with(if with_immediate { OpFlags::IMMEDIATE } else { OpFlags::NONE });
    let eight = opcode.is_atomic() || opcode == Opcode::AtomicResponse;
    let header = DataHeader {
        opcode,
        flags: if opcode.permits(flags) { flags } else { OpFlags::NONE },
        stream: StreamId(random.below(4) as u16),
        csn: Csn::new(random.next_u64() as u32),
        msn: Msn::new(random.next_u64() as u32),
        offset: 0,
        length: if eight { 8 } else { 0 },
        receive_index: ReceiveIndex::new(0),
        demand_kib: u32::MAX,
        remote: opcode.has_remote().then(|| Remote { key: RegionKey(random.next_u64() as u32), address: 0 }),
        operands: opcode.is_atomic().then_some([1, 1]),
        match_bits: None,
        immediate: with_immediate.then_some(1),
        signal: None,
    };
    let payload = if opcode == Opcode::AtomicResponse { 8 } else { 0 };
    packet(random, public, PacketType::Data, |out| header.emit(out).unwrap() + payload)
}

const FORGERIES: [(&str, Forge); 6] = [
    ("CONNECT", connect_packet),
    ("ACK", ack_packet),
    ("RESET", reset_packet),
    ("CONTROL", control_packet),
    ("PROBE", probe_packet),
    ("DATA", data_packet),
];

/// Bytes that hosts 10.7.x.x sent to the victim, and that it sent to them.
fn reflected(net: &mut Network<HeapStorage>) -> Rc<Cell<u64>> {
    let out = Rc::new(Cell::new(0));
    let shared = Rc::clone(&out);
    net.filter = Some(Box::new(move |_, transmit| {
        let foreign = transmit.destination.to_string().starts_with("10.7.");
        if foreign {
            shared.set(shared.get() + transmit.datagram_length() as u64);
        }
        foreign
    }));
    out
}

/// Pitfalls 34, 36, 37.
#[test]
//= MR-HS-2, MR-HS-21, MR-SEC-2, MR-SEC-6 test
fn forged_packets_at_the_rate_of_the_honest_ones_cost_less_than_a_tenth_and_draw_less_than_they_bring() {
    for (name, forge) in FORGERIES {
        // From strangers, and in the name of the honest peer.
        for spoofed in [false, true] {
            let mut scene = Scene::new(34, &Limits::HOST);
            let public = spy(&mut scene);
            let alone = scene.goodput(|_, _| {});
            let out = reflected(&mut scene.net);
            let mut random = Random::new(7);
            let (mut forged, mut bytes_in) = (0u64, 0);
            let under = scene.goodput(|net, _| {
                let bytes = forge(&mut random, &public);
                let stranger =
                    SocketAddr::from(([10, 7, random.below(256) as u8, random.below(256) as u8], 4795));
                let source = if spoofed { public.honest } else { stranger };
                bytes_in += bytes.len() as u64;
                forged += 1;
                let _ = net.inject(VICTIM, source, &bytes).unwrap();
            });
            println!(
                "{name}, spoofed {spoofed}: {alone} alone, {under} with {forged} forged; {bytes_in} bytes drew {}",
                out.get()
            );
            assert!(forged > 1_000, "{name}: {forged}");
            assert!(10 * under >= 9 * alone, "{name}, spoofed {spoofed}: {under} messages of {alone}");
            assert!(out.get() <= bytes_in, "{name}: {} bytes drawn by {bytes_in}", out.get());
            let stats = scene.net.hosts[VICTIM].endpoint.stats();
            assert_eq!(stats.access_faults, 0, "no forged access got that far");
            assert!(scene.net.hosts[VICTIM].memory.bytes(scene.target.id) == pattern(MESSAGE as usize, 34));
        }
    }
}

/// Pitfall 37.
#[test]
//= MR-HS-18, MR-HS-20 test
fn a_flood_of_connects_does_not_keep_an_honest_one_out() {
    let limits = Limits { connections: 16, ..Limits::HOST };
    let mut scene = Scene::new(37, &limits);
    let public = spy(&mut scene);
    let _out = reflected(&mut scene.net);
    let mut random = Random::new(8);
    let mut flood = |net: &mut Network<HeapStorage>| {
        let bytes = connect_packet(&mut random, &public);
        let stranger = SocketAddr::from(([10, 7, random.below(256) as u8, random.below(256) as u8], 4795));
        let _ = net.inject(VICTIM, stranger, &bytes).unwrap();
        net.settle();
    };
    for _ in 0..1_000 {
        flood(&mut scene.net);
    }
    // It goes on while the honest host tries: a CONNECT for each of its packets, and one each 10 µs besides.
    let options = ConnectOptions::to(scene.net.hosts[VICTIM].address);
    let now = scene.net.now();
    let ours = scene.net.hosts[HONEST].endpoint.connect(now, options).unwrap();
    let mut open = false;
    for _ in 0..50_000 {
        flood(&mut scene.net);
        scene.net.run_for(10_000);
        for event in scene.net.hosts[VICTIM].take_events() {
            if let Event::Incoming { connection, .. } = event {
                let now = scene.net.now();
                let _ = scene.net.hosts[VICTIM].endpoint.accept(now, connection, ProtectionDomain(0), b"");
            }
        }
        for event in scene.net.hosts[HONEST].take_events() {
            assert!(!matches!(event, Event::Closed { .. }), "refused");
            open |= event == Event::Connected { connection: ours };
        }
        if open {
            break;
        }
    }
    assert!(open, "the honest CONNECT is answered within half a second of flood");
}

/// Pitfall 37.
#[test]
//= MR-STR-8, MR-SEC-4, MR-SEC-5 test
fn a_peer_that_opens_everything_and_sends_nothing_more_costs_others_less_than_a_tenth() {
    for connections in [1, 4, 60] {
        let mut scene = Scene::new(38, &Limits::HOST);
        let alone = scene.goodput(|_, _| {});
        let handles: Vec<_> = (0..connections).map_while(|_| open(&mut scene.net, HOSTILE)).collect();
        assert_eq!(handles.len(), connections);
        let source = scene.net.hosts[HOSTILE].register(pattern(MESSAGE as usize, 1));
        // Of every message but the first packet is lost, and so is all that the hostile host would say later.
        let silent = Rc::new(Cell::new(false));
        let mute = Rc::clone(&silent);
        scene.net.filter = Some(Box::new(move |from, transmit| {
            from == HOSTILE
                && (mute.get()
                    || crate::common::pair::data_of(transmit).is_some_and(|header| header.offset != 0))
        }));
        let remote = RemoteAddress { key: scene.target.key, address: 0 };
        let whole = [Segment { region: source.id, offset: 0, length: MESSAGE }];
        // Large answers would only fill the line of the victim.
        let short = [Segment { length: 64, ..whole[0] }];
        let mut posted = 0;
        for id in 0..200 {
            for [ours, _] in &handles {
                let now = scene.net.now();
                let endpoint = &mut scene.net.hosts[HOSTILE].endpoint;
                let stream = StreamId(id % 16);
                let (operation, segments) = match id % 3 {
                    0 => (Operation::Read { remote }, &short),
                    1 => (Operation::Send { immediate: None }, &whole),
                    _ => (Operation::Write { remote, immediate: None }, &whole),
                };
                let request = WorkRequest::new(u64::from(id), operation, segments);
                posted += u64::from(endpoint.post(now, *ours, stream, request).is_ok());
            }
        }
        scene.net.run_for(5 * MS);
        silent.set(true);
        let under = scene.goodput(|_, _| {});
        println!(
            "{connections} hostile connections, {posted} messages begun: {alone} alone, {under} under load"
        );
        assert!(10 * under >= 9 * alone, "{connections} hostile connections: {under} messages of {alone}");
    }
}
