//! Several planes: which are used, where their paths send, and what an address gets that has not answered.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "in tests a failure is a panic"
)]

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use crate::common::packets::sealed;
use crate::common::pair::Pair;
use crate::common::planes::{LIMITS, good, pair, paths, wait_up};
use crate::common::{MS, SECOND, all_good, config, connect};
use metaroce_conformance::trace::{Observer, Record};
use metaroce_conformance::{Faults, Network, further_planes, plane_address};
use metaroce_core::ids::{Csn, Psn};
use metaroce_core::wire::{ACK_FLAG_EMPTY, AckBody, Base, PacketType, PlaneAddresses, ProbeReply, Vector256};
use metaroce_core::{
    Config, ConfigError, ConnectOptions, Disposition, DropReason, Endpoint, Event, HeapStorage, Limits,
    PathId, PathState, PlaneState, ProtectionDomain,
};

#[test]
fn both_ends_use_the_planes_and_paths_that_both_have() {
    //= MR-PATH-1 test
    //= MR-HS-16 test
    // Planes and paths of each: ours, theirs; then what both use.
    for (ours, theirs, used) in [
        ((1, 8), (1, 8), (1u8, 8u8)),
        ((4, 8), (1, 8), (1, 8)),
        ((1, 4), (8, 8), (1, 4)),
        ((4, 8), (2, 3), (2, 3)),
        ((8, 8), (8, 8), (8, 8)),
        // 64 paths are the limit of a connection: as many on each of eight planes as it leaves.
        ((8, 64), (8, 64), (8, 8)),
        ((4, 64), (8, 64), (4, 8)),
    ] {
        let mut pair = Pair::with(7, Faults::NONE, &LIMITS, |number, config| {
            let (planes, paths) = if number == 0 { ours } else { theirs };
            config.planes = further_planes(u8::try_from(number).unwrap(), planes);
            config.paths_per_plane = paths;
        });
        wait_up(&mut pair);
        for host in 0..2 {
            let all = paths(&mut pair, host);
            assert_eq!(all.len(), usize::from(used.0 * used.1), "{ours:?} {theirs:?}");
            for path in all {
                //= MR-PATH-3 test
                assert_eq!(path.plane, path.path.0 / used.1, "{path:?}");
                assert!(matches!(path.state, PathState::Good | PathState::Parked), "{path:?}");
            }
        }
    }
}

#[test]
fn a_limit_of_paths_is_divided_among_the_planes_and_may_leave_some_out() {
    for (limit, planes, used) in [(8, 4, (4, 2)), (8, 3, (3, 2)), (2, 8, (2, 1)), (1, 8, (1, 1))] {
        let limits = Limits { paths_per_connection: limit, ..Limits::HOST };
        let mut pair = Pair::with(8, Faults::NONE, &limits, |number, config| {
            config.planes = further_planes(u8::try_from(number).unwrap(), planes);
        });
        wait_up(&mut pair);
        let all = paths(&mut pair, 0);
        assert_eq!(all.len(), used.0 * used.1, "limit {limit}, {planes} planes");
        assert_eq!(usize::from(all.last().unwrap().plane), used.0 - 1);
    }
}

#[test]
fn plane_addresses_that_nobody_could_send_to_are_no_configuration() {
    let build = |planes: &[&str]| {
        let planes: Vec<_> = planes.iter().map(|text| text.parse().unwrap()).collect();
        let planes = PlaneAddresses::from_slice(&planes).unwrap();
        let config = Config { planes, ..Config::sockets(1) };
        Endpoint::new(config, HeapStorage::new(&Limits::SMALL)).err()
    };
    assert_eq!(build(&["10.1.0.1:4795", "[fd00::1]:4795"]), None);
    let refused = Some(ConfigError::Config("planes"));
    assert_eq!(build(&["0.0.0.0:4795"]), refused);
    assert_eq!(build(&["10.1.0.1:0"]), refused);
    assert_eq!(build(&["10.1.0.1:4795"; 8]), refused);
}

#[test]
fn every_path_sends_to_the_address_of_its_plane_and_all_carry_data() {
    //= MR-PATH-3 test
    for planes in [2, 4, 8] {
        let mut pair = pair(11, planes, 4, |_, config| config.window_bytes_start = 1 << 20);
        wait_up(&mut pair);
        let log = watch(&mut pair.net);
        for id in 0..16u64 {
            let at = usize::try_from(id).unwrap() << 18;
            pair.write(0, 0, id, at..at + (1 << 18), at, None);
        }
        all_good(&pair.wait(0, 16));
        assert_eq!(pair.bytes(1, 0..1 << 22), pair.bytes(0, 0..1 << 22));
        assert!(log.borrow().0.len() > 1000);
        for seen in &log.borrow().0 {
            let to = plane_address(u8::try_from(1 - seen.from).unwrap(), seen.plane);
            assert_eq!(seen.destination, to, "{seen:?}");
            assert_eq!(seen.base.path.0 / 4, seen.plane, "{seen:?}");
        }
        for path in paths(&mut pair, 0) {
            assert!(path.packets_sent > 10, "{path:?}");
            assert_eq!(path.mtu_bytes, 4176, "{path:?}");
        }
        assert_eq!(pair.net.hosts[1].endpoint.connection_stats(pair.connection[1]).unwrap().lost, 0);
    }
}

#[test]
fn an_address_that_does_not_answer_gets_three_probes_and_then_one_a_second() {
    //= MR-HS-25 test
    //= MR-HS-3 test
    let mut net = planes_network(12, 4, |_, _| {});
    let log = watch(&mut net);
    // Nobody is there.
    cut(&mut net, 2);
    let connection = connect(&mut net);
    net.run_for(SECOND / 2);
    let first = sent(&log, 0, Some(2));
    assert_eq!(first.len(), 3, "{first:?}");
    net.run_for(10 * SECOND);
    let all = sent(&log, 0, Some(2));
    assert!((3 + 8..=3 + 12).contains(&all.len()), "{} in ten seconds", all.len());
    for probe in &all {
        assert_eq!((probe.base.kind, probe.bytes), (PacketType::Probe, 64), "{probe:?}");
    }
    for pair in all[2..].windows(2) {
        assert!(pair[1].at_ns - pair[0].at_ns >= 890 * MS, "{pair:?}");
    }
    // The other planes are in use all the same.
    let states: Vec<_> =
        (0..4).map(|plane| net.hosts[0].endpoint.plane_stats(connection[0], plane).unwrap().state).collect();
    assert_eq!(states, [PlaneState::Up, PlaneState::Up, PlaneState::Unverified, PlaneState::Up]);

    // Somebody comes, and the plane opens.
    net.filter = None;
    let endpoint_up = |net: &mut Network<HeapStorage>| {
        let stats = net.hosts[0].endpoint.plane_stats(connection[0], 2).unwrap();
        stats.state == PlaneState::Up && stats.paths_good == stats.paths
    };
    assert!(net.run_until(2 * SECOND, endpoint_up));
}

#[test]
fn an_acknowledgement_without_the_token_verifies_nothing() {
    //= MR-HS-25 test
    let mut net = planes_network(13, 2, |_, _| {});
    let log = watch(&mut net);
    // The peer listed the address of somebody else, whose probes it never sees.
    cut(&mut net, 1);
    let connection = connect(&mut net);
    net.run_for(100 * MS);
    let probe = sent(&log, 0, Some(1)).pop().unwrap();
    // It knows everything of the PROBE, which its peer's nonce gives away, but the token.
    let ack = AckBody {
        path: probe.base.path,
        flags: 0,
        largest: probe.base.psn,
        accepted: Vector256::from_words([u64::MAX; 4]),
        echoed_timestamp: probe.base.timestamp,
        packets: 1,
        ..NOTHING
    };
    let id = id_of_host_0(&log);
    for token in [0, 1, u64::MAX] {
        let reply = {
            let reply = ProbeReply { token, ack };
            sealed(id, PacketType::ProbeReply, Psn::new(0), |out| reply.emit(out).unwrap(), 0)
        };
        assert_eq!(net.inject(0, plane_address(1, 0), &reply), Some(Disposition::Consumed));
    }
    net.run_for(100 * MS);
    let stats = net.hosts[0].endpoint.plane_stats(connection[0], 1).unwrap();
    assert_eq!((stats.state, stats.paths_good), (PlaneState::Unverified, 0));
}

#[test]
fn nothing_is_asked_on_the_word_of_a_peer_that_has_not_answered() {
    //= MR-HS-35 test
    let mut net = planes_network(14, 8, |_, _| {});
    let log = watch(&mut net);
    // What host 1 sends is lost: as if host 0 had forged the address that its CONNECT came from.
    net.filter = Some(Box::new(|from, _| from == 1));
    let now = net.now_at(0);
    let remote = net.hosts[1].address;
    net.hosts[0].endpoint.connect(now, ConnectOptions::to(remote)).unwrap();
    net.run_until(3 * SECOND, |net| {
        for event in net.hosts[1].take_events() {
            if let Event::Incoming { connection, .. } = event {
                let now = net.now_at(1);
                net.hosts[1].endpoint.accept(now, connection, ProtectionDomain(0), b"").unwrap();
            }
        }
        false
    });
    assert!(!sent(&log, 1, Some(0)).is_empty());
    assert!(sent(&log, 1, None).is_empty(), "{:?}", sent(&log, 1, None));
}

#[test]
fn addresses_that_no_peer_elsewhere_can_have_get_nothing() {
    //= MR-HS-33 test
    let listed = ["127.0.0.1:4795", "224.0.0.1:4795", "255.255.255.255:4795", "[::1]:4795", "[ff02::1]:4795"];
    let listed: Vec<_> = listed.iter().map(|text| text.parse().unwrap()).collect();
    let mut net = planes_network(15, 6, |number, config| {
        if number == 1 {
            config.planes = PlaneAddresses::from_slice(&listed).unwrap();
        }
    });
    let log = watch(&mut net);
    let connection = connect(&mut net);
    net.run_for(5 * SECOND);
    assert!(sent(&log, 0, None).is_empty(), "{:?}", sent(&log, 0, None));
    for plane in 1..6 {
        let stats = net.hosts[0].endpoint.plane_stats(connection[0], plane).unwrap();
        assert_eq!((stats.state, stats.paths_good), (PlaneState::Unverified, 0));
    }
    assert!(net.hosts[0].endpoint.plane_stats(connection[0], 6).is_none());
}

#[test]
fn packets_count_from_the_addresses_that_the_peer_listed_only() {
    //= MR-SEC-6 test
    let mut pair = pair(16, 3, 2, |_, _| {});
    wait_up(&mut pair);
    let log = watch(&mut pair.net);
    pair.write(0, 0, 1, 0..100, 0, None);
    all_good(&pair.wait(0, 1));
    let id = id_of_host_0(&log);
    let ack = sealed(id, PacketType::Ack, Psn::new(0), |out| NOTHING.emit(out).unwrap(), 0);
    for plane in 0..3 {
        // From whatever port, and on whatever plane it comes.
        for on in 0..3 {
            let source = SocketAddr::new(plane_address(1, plane).ip(), 50_000);
            assert_eq!(pair.net.inject_on(0, on, source, &ack), Some(Disposition::Consumed));
        }
    }
    for stranger in [plane_address(1, 3), plane_address(2, 0), plane_address(0, 0)] {
        let dropped = Some(Disposition::Dropped(DropReason::BadProof));
        assert_eq!(pair.net.inject_on(0, 0, stranger, &ack), dropped, "{stranger}");
    }
}

#[test]
fn a_connection_over_another_plane_than_the_acceptors_first_has_that_one_only() {
    //= MR-HS-34 test
    let mut net = planes_network(17, 4, |_, _| {});
    let connect = Rc::new(RefCell::new(Vec::new()));
    let kept = connect.clone();
    net.filter = Some(Box::new(move |from, transmit| {
        if from == 0 {
            let mut bytes = transmit.header().to_vec();
            bytes.resize(transmit.datagram_length(), 0);
            *kept.borrow_mut() = bytes;
        }
        from == 0
    }));
    let now = net.now_at(0);
    let remote = net.hosts[1].address;
    net.hosts[0].endpoint.connect(now, ConnectOptions::to(remote)).unwrap();
    net.settle();
    // The CONNECT arrives on the acceptor's plane 2.
    let log = watch(&mut net);
    let bytes = connect.borrow().clone();
    assert_eq!(net.inject_on(1, 2, plane_address(0, 2), &bytes), Some(Disposition::Consumed));
    net.settle();
    let events = net.hosts[1].take_events();
    let Some(Event::Incoming { connection, .. }) = events.first() else { panic!("{events:?}") };
    let now = net.now_at(1);
    net.hosts[1].endpoint.accept(now, *connection, ProtectionDomain(0), b"").unwrap();
    net.settle();
    let accept = log.borrow().0.first().unwrap().clone();
    assert_eq!((accept.base.kind, accept.plane), (PacketType::Control, 2));
    assert_eq!(accept.destination, plane_address(0, 2));
    assert!(net.hosts[1].endpoint.plane_stats(*connection, 1).is_none());
}

#[test]
fn good_paths_are_counted_by_plane() {
    let mut pair = pair(18, 2, 3, |_, _| {});
    wait_up(&mut pair);
    let all = paths(&mut pair, 0);
    assert_eq!((good(&all, 0), good(&all, 1), good(&all, 2)), (3, 3, 0));
    let stats = pair.net.hosts[0].endpoint.plane_stats(pair.connection[0], 1).unwrap();
    assert_eq!((stats.plane, stats.paths, stats.paths_good), (1, 3, 3));
    assert_eq!((stats.remote, stats.state), (plane_address(1, 1), PlaneState::Up));
}

/// What a test saw of a datagram.
#[derive(Clone, Debug)]
struct Seen {
    at_ns: u64,
    from: usize,
    plane: u8,
    destination: SocketAddr,
    base: Base,
    bytes: usize,
}

#[derive(Default)]
struct Log(Vec<Seen>);

impl Observer for Log {
    fn on_datagram(&mut self, record: &Record<'_>) {
        self.0.push(Seen {
            at_ns: record.time_ns,
            from: record.from,
            plane: match record.source.ip() {
                IpAddr::V4(source) => source.octets()[1],
                IpAddr::V6(_) => u8::MAX,
            },
            destination: record.destination,
            base: Base::parse(record.bytes).unwrap().0,
            bytes: record.bytes.len(),
        });
    }
}

/// Notes every datagram from now on.
fn watch(net: &mut Network<HeapStorage>) -> Rc<RefCell<Log>> {
    let log = Rc::new(RefCell::new(Log::default()));
    net.observer = Some(Box::new(log.clone()));
    log
}

/// The datagrams that a host sent on a plane, or on all but plane 0.
fn sent(log: &Rc<RefCell<Log>>, host: usize, plane: Option<u8>) -> Vec<Seen> {
    let wanted =
        |seen: &&Seen| seen.from == host && plane.map_or(seen.plane != 0, |plane| seen.plane == plane);
    log.borrow().0.iter().filter(wanted).cloned().collect()
}

/// Two hosts of `planes` planes with two paths on each, not connected.
fn planes_network(seed: u64, planes: u8, change: impl Fn(u64, &mut Config)) -> Network<HeapStorage> {
    let hosts = (0..2).map(|number| {
        let mut config = config(seed * 2 + number);
        config.planes = further_planes(u8::try_from(number).unwrap(), planes);
        config.paths_per_plane = 2;
        change(number, &mut config);
        (config, HeapStorage::new(&LIMITS))
    });
    Network::new(seed, Faults::NONE, hosts)
}

/// The id of host 0's connection, as host 1 writes it into its packets.
fn id_of_host_0(log: &Rc<RefCell<Log>>) -> u32 {
    log.borrow().0.iter().rev().find(|seen| seen.from == 1).unwrap().base.connection.0
}

/// Drops what is sent on a plane.
fn cut(net: &mut Network<HeapStorage>, plane: u8) {
    net.filter = Some(Box::new(move |_, transmit| transmit.plane == plane));
}

const NOTHING: AckBody = AckBody {
    path: PathId(0),
    epoch: 0,
    flags: ACK_FLAG_EMPTY,
    largest: Psn::new(0),
    accepted: Vector256::EMPTY,
    echoed_timestamp: 0,
    hold: 0,
    packets: 0,
    marked: 0,
    cumulative: Csn::new(0),
    share_kbps: 0,
};
