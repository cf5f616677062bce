//! Pitfalls of PITFALLS.md that lie in identity: stale and forged packets, guessed numbers, exhausted tables.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::rc::Rc;

use crate::common::pair::*;
use crate::common::{packets, *};
use metaroce_conformance::trace::{Observer, Record};
use metaroce_conformance::{Faults, Network};
use metaroce_core::ids::{Csn, Msn, Psn, Serial};
use metaroce_core::wire::Vector256;
use metaroce_core::wire::{AckBody, Base, DataHeader, Frame, NackReason, OpFlags, Opcode, PacketType, Probe};
use metaroce_core::{
    CloseMode, ConnectOptions, Disposition, DropReason, Endpoint, Event, HeapStorage, Limits, PathId,
    ProtectionDomain, Status, StreamId,
};

/// Everything that was sent: from whom, where from, and the bytes.
#[derive(Default)]
struct Recorded(Vec<(usize, std::net::SocketAddr, Vec<u8>)>);

impl Observer for Recorded {
    fn on_datagram(&mut self, record: &Record<'_>) {
        self.0.push((record.from, record.source, record.bytes.to_vec()));
    }
}

fn record(pair: &mut Pair) -> Rc<RefCell<Recorded>> {
    let recorded = Rc::new(RefCell::new(Recorded::default()));
    pair.net.observer = Some(Box::new(Rc::clone(&recorded)));
    recorded
}

/// Traffic of each kind in both directions.
fn exercise(pair: &mut Pair) {
    pair.receive(1, 0, 9, 3_000_000..3_020_000);
    pair.send(0, 0, 1, 0..20_000);
    pair.write(0, 0, 2, 0..200_000, 2_000_000, None);
    pair.read(0, 0, 3, 4_000_000..4_050_000, 0);
    pair.write(1, 2, 4, 0..200_000, 2_000_000, None);
    all_good(&pair.wait(0, 3));
    all_good(&pair.wait(1, 2));
}

/// Replays all that was recorded to its receiver, and shows that the connection and the memory stay as they are.
fn replay(pair: &mut Pair, recorded: &[(usize, std::net::SocketAddr, Vec<u8>)]) {
    pair.net.run_for(10 * MS);
    let fill = [pair.bytes(0, 0..REGION).to_vec(), pair.bytes(1, 0..REGION).to_vec()];
    let accepted = |pair: &mut Pair| {
        [0, 1].map(|host| {
            let connection = pair.connection[host];
            pair.net.hosts[host].endpoint.connection_stats(connection).unwrap().packets_accepted
        })
    };
    let before = accepted(pair);
    for (from, source, bytes) in recorded {
        let _ = pair.net.inject(1 - from, *source, bytes).unwrap();
    }
    pair.net.run_for(100 * MS);
    assert_eq!(accepted(pair), before);
    for (host, fill) in fill.iter().enumerate() {
        let events = pair.net.hosts[host].take_events();
        assert!(
            events.iter().all(|event| matches!(event, Event::Incoming { .. })),
            "at most a CONNECT is taken for a new one: {events:?}"
        );
        assert!(pair.bytes(host, 0..REGION) == fill);
    }
    exercise(pair);
}

/// Pitfalls 7 and 8.
#[test]
//= MR-HS-5, MR-CLS-9 test
fn packets_of_an_earlier_connection_mean_nothing_to_a_later_one() {
    let mut pair = Pair::new(7, Faults::NONE);
    let recorded = record(&mut pair);
    exercise(&mut pair);
    pair.close(0, CloseMode::Drain);
    pair.wait_both_closed();
    pair.net.run_for(SECOND);
    let old = std::mem::take(&mut recorded.borrow_mut().0);
    pair.connection = connect(&mut pair.net);
    exercise(&mut pair);
    replay(&mut pair, &old);
}

/// Pitfall 38.
#[test]
//= MR-HS-3, MR-CLS-12, MR-CLS-14 test
fn packets_from_before_a_restart_mean_nothing_after_it() {
    let mut pair = Pair::new(38, Faults::NONE);
    let recorded = record(&mut pair);
    exercise(&mut pair);
    pair.net.hosts[1].endpoint = Endpoint::new(config(1_038), HeapStorage::new(&Limits::HOST)).unwrap();
    pair.write(0, 0, 9, 0..100, 0, None);
    let (_, reason) = pair.wait_closed(0, SECOND);
    assert_eq!(reason, metaroce_core::CloseReason::Reset);
    pair.net.run_for(SECOND);
    let old = std::mem::take(&mut recorded.borrow_mut().0);
    pair.net.hosts[1].memory = metaroce_conformance::HostMemory::default();
    pair.region[1] = pair.net.hosts[1].register(pattern(REGION, 2));
    pair.connection = connect(&mut pair.net);
    exercise(&mut pair);
    replay(&mut pair, &old);
}

/// Pitfall 8.
#[test]
//= MR-HS-31 test
fn late_implicit_connect_does_not_end_a_later_connection() {
    let mut net = network(8, Faults::NONE);
    let recorded = Rc::new(RefCell::new(Recorded::default()));
    net.observer = Some(Box::new(Rc::clone(&recorded)));
    let remote = net.hosts[1].address;
    let open = |net: &mut Network<HeapStorage>| {
        let now = net.now();
        let options = ConnectOptions { implicit: true, ..ConnectOptions::to(remote) };
        let ours = net.hosts[0].endpoint.connect(now, options).unwrap();
        let done = net.run_until(SECOND, |net| {
            for event in net.hosts[1].take_events() {
                if let Event::Incoming { connection, .. } = event {
                    let now = net.now();
                    net.hosts[1].endpoint.accept(now, connection, ProtectionDomain(0), b"").unwrap();
                }
            }
            net.settle();
            net.hosts[0].take_events().iter().any(|event| matches!(event, Event::Connected { .. }))
        });
        assert!(done);
        net.run_for(MS);
        ours
    };
    let first = open(&mut net);
    let old = recorded.borrow().0.clone();
    let now = net.now();
    net.hosts[0].endpoint.close(now, first, CloseMode::Drain).unwrap();
    net.run_for(SECOND);
    open(&mut net);
    for host in 0..2 {
        net.hosts[host].take_events();
    }
    for (from, source, bytes) in &old {
        let _ = net.inject(1 - from, *source, bytes).unwrap();
    }
    net.run_for(30 * SECOND);
    for host in 0..2 {
        let events = net.hosts[host].take_events();
        assert!(events.is_empty(), "host {host}: {events:?}");
    }
}

/// Pitfall 32.
#[test]
//= MR-HS-3, MR-HS-4, MR-MEM-6 test
fn keys_and_ids_of_one_slot_do_not_repeat_and_use_all_their_bits() {
    let mut pair = Pair::new(32, Faults::NONE);
    let (mut keys, mut ones, mut zeros) = (HashSet::new(), 0u32, 0u32);
    let region = pair.region[1].id;
    for _ in 0..1_000 {
        let key = pair.net.hosts[1].endpoint.rekey_region(region).unwrap();
        assert!(keys.insert(key.0));
        ones |= key.0;
        zeros |= !key.0;
    }
    let slots = Limits::HOST.regions.next_power_of_two().trailing_zeros() + 1;
    assert!((ones & zeros).leading_ones() >= 32 - slots, "{:x}", ones & zeros);
}

/// Pitfall 32.
#[test]
//= MR-MEM-5 test
fn guessed_keys_are_counted() {
    let mut pair = Pair::new(33, Faults::NONE);
    for stream in 0..10 {
        pair.region[1].key.0 ^= 1 << 31;
        pair.write(0, stream, u64::from(stream), 0..100, 0, None);
        pair.region[1].key.0 ^= 1 << 31;
    }
    let done = pair.wait(0, 10);
    assert!(done.iter().all(|completion| completion.status == Status::RemoteAccess));
    assert_eq!(pair.net.hosts[1].endpoint.stats().access_faults, 10);
}

/// What a blind attacker who knows the connection id of host 1 can write.
struct Forger {
    pair: Pair,
    /// Id of host 1, and the newest PSN and CSN that host 0 used.
    id: u32,
    newest: Rc<Cell<(u32, u32)>>,
}

impl Forger {
    fn new(seed: u64) -> Self {
        let mut pair = Pair::new(seed, Faults::NONE);
        let id = Rc::new(Cell::new(0));
        let newest = Rc::new(Cell::new((0, 0)));
        let (seen, last) = (Rc::clone(&id), Rc::clone(&newest));
        pair.net.filter = Some(Box::new(move |from, transmit| {
            let base = Base::parse(transmit.header()).unwrap().0;
            if let (0, Some(header)) = (from, data_of(transmit))
                && base.path == PathId(0)
            {
                seen.set(base.connection.0);
                last.set((base.psn.raw(), header.csn.raw()));
            }
            false
        }));
        exercise(&mut pair);
        pair.net.run_for(10 * MS);
        let id = id.get();
        Self { pair, id, newest }
    }

    fn inject(&mut self, kind: PacketType, psn: u32, emit: impl FnOnce(&mut [u8]) -> usize) -> Disposition {
        let bytes = packets::sealed(self.id, kind, Psn::new(psn), emit, 0);
        let source = self.pair.net.hosts[0].address;
        self.pair.net.inject(1, source, &bytes).unwrap()
    }

    fn ack(&mut self, largest: u32, frame: Option<Frame>) -> Disposition {
        let mut accepted = Vector256::EMPTY;
        (0..256).for_each(|bit| accepted.insert(bit));
        let body = AckBody {
            path: PathId(0),
            epoch: 0,
            flags: 0,
            largest: Psn::new(largest),
            accepted,
            echoed_timestamp: 0,
            hold: 0,
            packets: 1_000,
            marked: 1_000,
            cumulative: Csn::new(0),
            share_kbps: 0,
        };
        self.inject(PacketType::Ack, 0, |out| {
            let length = body.emit(out).unwrap();
            length + frame.map_or(0, |frame| frame.emit(&mut out[length..]).unwrap())
        })
    }

    fn data(&mut self, opcode: Opcode, psn: u32, csn: u32) -> Disposition {
        let flags = OpFlags::LAST;
        let header = packets::header(opcode, flags, StreamId(0), Csn::new(csn), Msn::new(1_000));
        self.inject(PacketType::Data, psn, |out| header.emit(out).unwrap())
    }
}

/// Pitfalls 34 and 35.
#[test]
//= MR-ACK-28, MR-SEC-2 test
fn acknowledgement_of_what_was_never_sent_has_no_effect_nor_have_its_frames() {
    let mut forger = Forger::new(34);
    forger.pair.send(1, 4, 50, 0..100);
    forger.pair.net.run_for(MS);
    let connection = forger.pair.connection[1];
    let before = forger.pair.net.hosts[1].endpoint.path_stats(connection, PathId(0)).unwrap();
    let nack = Frame::Nack { stream: StreamId(4), reason: NackReason::Closed, delay_us: 0 };
    for guess in 0..1_000u32 {
        let largest = guess.wrapping_mul(0x9e37_79b9).wrapping_add(12_345);
        assert_eq!(forger.ack(largest, Some(nack)), Disposition::Dropped(DropReason::AckOfUnsent));
    }
    let after = forger.pair.net.hosts[1].endpoint.path_stats(connection, PathId(0)).unwrap();
    assert_eq!((after.window_bytes, after.packets_marked), (before.window_bytes, before.packets_marked));
    assert_eq!(after.packets_delivered, before.packets_delivered);
    forger.pair.receive(0, 4, 51, 0..100);
    assert_eq!(outcome(&forger.pair.wait(1, 1)), [(50, Status::Success)], "the NACK was not believed");
}

/// Pitfall 34.
#[test]
//= MR-DLV-2, MR-DLV-14 test
fn blind_void_outside_of_the_csn_window_closes_nothing() {
    let mut forger = Forger::new(35);
    let (psn, csn) = forger.newest.get();
    for guess in 1..1_000u32 {
        let away = csn.wrapping_add(1 << 20).wrapping_add(guess << 20);
        if away.wrapping_sub(csn.wrapping_sub(1 << 20)) < 1 << 21 {
            continue;
        }
        let result = forger.data(Opcode::Void, psn.wrapping_add(1), away);
        assert_eq!(result, Disposition::Dropped(DropReason::CsnOutsideWindow));
    }
    exercise(&mut forger.pair);
}

/// Pitfall 34.
#[test]
//= MR-SEC-7 test
fn probe_or_datagram_with_a_psn_far_ahead_does_not_poison_its_path() {
    let mut forger = Forger::new(36);
    let (psn, _) = forger.newest.get();
    for ahead in [1 << 21, 1 << 24, 1 << 30, u32::MAX - (1 << 22)] {
        let far = psn.wrapping_add(ahead);
        let probe = Probe { stream: StreamId::NONE, demand_kib: 0, token: 1 };
        let result = forger.inject(PacketType::Probe, far, |out| {
            probe.emit(out).unwrap();
            64
        });
        assert_eq!(result, Disposition::Dropped(DropReason::BadProof));
        let result = forger.data(Opcode::Datagram, far, 0);
        assert_eq!(result, Disposition::Dropped(DropReason::BadProof));
    }
    let connection = forger.pair.connection[0];
    for _ in 0..5 {
        exercise(&mut forger.pair);
    }
    let path = forger.pair.net.hosts[0].endpoint.path_stats(connection, PathId(0)).unwrap();
    assert_eq!((path.packets_lost, path.timeouts, path.repaths), (0, 0, 0), "{path:?}");
}

/// Pitfall 34.
#[test]
//= MR-SEC-6 test
fn packets_from_another_ip_address_count_for_nothing() {
    let mut forger = Forger::new(37);
    let (psn, csn) = forger.newest.get();
    let header = packets::header(Opcode::Void, OpFlags::LAST, StreamId(0), Csn::new(csn + 1), Msn::new(9));
    let emit = |out: &mut [u8]| DataHeader::emit(&header, out).unwrap();
    let bytes = packets::sealed(forger.id, PacketType::Data, Psn::new(psn.wrapping_add(1)), emit, 0);
    let result = forger.pair.net.inject(1, "10.7.7.7:4795".parse().unwrap(), &bytes).unwrap();
    assert_eq!(result, Disposition::Dropped(DropReason::BadProof));
    exercise(&mut forger.pair);
}

/// Pitfall 37.
#[test]
//= MR-SEC-5, MR-STR-8 test
fn partial_messages_of_one_connection_leave_room_for_another() {
    let hosts =
        vec![(config(1), HeapStorage::new(&Limits::HOST)), (config(2), HeapStorage::new(&Limits::SMALL))];
    let mut net = Network::new(1, Faults::NONE, hosts);
    let hostile = connect(&mut net);
    let honest = connect(&mut net);
    let region = [0, 1].map(|number| net.hosts[number].register(pattern(REGION, number as u64)));
    let mut pair = Pair { net, connection: hostile, region };
    pair.net.filter = Some(Box::new(move |from, transmit| {
        from == 0
            && data_of(transmit).is_some_and(|header| {
                header.opcode == Opcode::Write && header.length == 10_000 && header.offset != 0
            })
    }));
    for id in 0..400 {
        pair.write(0, (id % 4) as u16, id, 0..10_000, 0, None);
    }
    pair.net.run_for(50 * MS);
    pair.connection = honest;
    for id in 1_000..1_050 {
        pair.write(0, 0, id, 0..5_000, 4_000_000, None);
    }
    let done = pair.wait(0, 50);
    all_good(&done);
    assert_eq!(ids(&done), (1_000..1_050).collect::<Vec<_>>());
    assert!(pair.bytes(1, 4_000_000..4_005_000) == pair.bytes(0, 0..5_000));
}

/// Otherwise one datagram of 9,000 bytes could have a path walked over 136 times.
#[test]
//= MR-ACK-33 test
fn a_second_block_for_one_path_in_a_packet_counts_for_nothing() {
    let mut pair = Pair::new(39, Faults::NONE);
    let (id, newest, mute) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
    let (seen, last, muted) = (Rc::clone(&id), Rc::clone(&newest), Rc::clone(&mute));
    pair.net.filter = Some(Box::new(move |from, transmit| {
        let base = Base::parse(transmit.header()).unwrap().0;
        match (from, base.kind) {
            (1, PacketType::Ack) => seen.set(base.connection.0),
            (0, PacketType::Data) if base.path == PathId(0) => last.set(base.psn.raw()),
            _ => {}
        }
        from == 1 && muted.get()
    }));
    exercise(&mut pair);
    mute.set(true);
    pair.write(0, 0, 90, 0..100_000, 0, None);
    pair.net.run_for(90_000);
    let body = |accepted: Vector256| AckBody {
        path: PathId(0),
        epoch: 0,
        flags: 0,
        largest: Psn::new(newest.get()),
        accepted,
        echoed_timestamp: 0,
        hold: u32::MAX,
        packets: 1_000,
        marked: 0,
        cumulative: Csn::new(0),
        share_kbps: 0,
    };
    let all = Vector256::from_words([u64::MAX; 4]);
    let source = pair.net.hosts[1].address;
    let delivered = |pair: &mut Pair, blocks: &[AckBody]| {
        let emit = |out: &mut [u8]| {
            let length = blocks[0].emit(out).unwrap();
            let more = blocks.get(1).map(|block| Frame::Ack(*block).emit(&mut out[length..]).unwrap());
            length + more.unwrap_or(0)
        };
        let bytes = packets::sealed(id.get(), PacketType::Ack, Psn::new(0), emit, 0);
        assert_eq!(pair.net.inject(0, source, &bytes), Some(Disposition::Consumed));
        let connection = pair.connection[0];
        pair.net.hosts[0].endpoint.path_stats(connection, PathId(0)).unwrap().packets_delivered
    };
    let none = delivered(&mut pair, &[body(Vector256::EMPTY)]);
    assert_eq!(delivered(&mut pair, &[body(Vector256::EMPTY), body(all)]), none);
    assert!(delivered(&mut pair, &[body(all)]) > none, "it was in flight");
}
