//! Broken links and hosts: paths that die and come back, peers that pause, vanish, restart or fall silent.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::common::pair::*;
use crate::common::*;
use metaroce_conformance::Faults;
use metaroce_core::wire::{Base, PacketType};
use metaroce_core::{
    CloseReason, Endpoint, Event, HeapStorage, Limits, PathId, PathState, PathStats, SourcePort, Status,
};

fn path(pair: &mut Pair, host: usize, number: u8) -> PathStats {
    pair.net.hosts[host].endpoint.path_stats(pair.connection[host], PathId(number)).unwrap()
}

fn paths(pair: &mut Pair, host: usize) -> Vec<PathStats> {
    (0..8).map(|number| path(pair, host, number)).collect()
}

#[test]
//= MR-PATH-26 test
fn peer_that_vanishes_fails_everything_once_after_the_configured_time() {
    for seed in 0..5 {
        let mut pair = Pair::configured(seed, Faults::NONE, |config| config.fail_after_ns = SECOND);
        for id in 0..10 {
            pair.write(0, id as u16 % 3, id, 0..500_000, 0, None);
            pair.read(0, id as u16 % 3, 100 + id, 0..10_000, 0);
            pair.receive(0, 1, 200 + id, 0..10);
        }
        pair.net.run_for(100_000 * seed);
        pair.net.filter = Some(Box::new(|_, _| true));
        let start = pair.net.now();
        let (events, reason) = pair.wait_closed(0, 60 * SECOND);
        assert_eq!(reason, CloseReason::TimedOut);
        let spent = pair.net.now().since(start);
        assert!((SECOND - MS..2 * SECOND).contains(&spent), "seed {seed}: {spent}");
        let mut done = ids(&completions(&events));
        done.sort_unstable();
        assert_eq!(done, (0..10).chain(100..110).chain(200..210).collect::<Vec<_>>());
        assert!(matches!(events.last(), Some(Event::Closed { .. })), "closed is the last event");
    }
}

#[test]
fn restarted_peer_answers_with_reset_and_the_connection_ends_at_once() {
    for idle in [false, true] {
        let mut pair = Pair::new(1, Faults::NONE);
        if !idle {
            pair.write(0, 0, 1, 0..1_000_000, 0, None);
            pair.net.run_for(20_000);
        }
        pair.net.hosts[1].endpoint = Endpoint::new(config(77), HeapStorage::new(&Limits::HOST)).unwrap();
        let start = pair.net.now();
        let (events, reason) = pair.wait_closed(0, 60 * SECOND);
        assert_eq!(reason, CloseReason::Reset);
        let spent = pair.net.now().since(start);
        assert!(spent < if idle { 8 * SECOND } else { 10 * MS }, "{spent}");
        assert_eq!(completions(&events).len(), usize::from(!idle));
        // A new connection to it works.
        pair.connection = connect(&mut pair.net);
    }
}

#[test]
fn idle_connection_is_kept_alive_and_ends_when_the_peer_stays_silent() {
    let mut pair = Pair::configured(2, Faults::NONE, |config| {
        config.keepalive_ns = 100 * MS;
        config.fail_after_ns = SECOND;
    });
    pair.net.run_for(10 * SECOND);
    for host in 0..2 {
        assert_eq!(pair.net.hosts[host].take_events(), []);
    }
    pair.net.filter = Some(Box::new(|_, _| true));
    for host in 0..2 {
        assert_eq!(pair.wait_closed(host, 5 * SECOND).1, CloseReason::TimedOut);
    }
}

#[test]
fn peer_paused_for_50_ms_kills_no_path() {
    for seed in 0..10 {
        let mut pair = Pair::new(seed, Faults::NONE);
        pair.write(0, 0, 1, 0..REGION, 0, None);
        pair.net.run_for(500_000);
        let paused = Rc::new(Cell::new(true));
        let flag = Rc::clone(&paused);
        pair.net.filter = Some(Box::new(move |from, _| from == 1 && flag.get()));
        pair.net.run_for(50 * MS);
        paused.set(false);
        for stats in paths(&mut pair, 0) {
            assert_eq!((stats.state, stats.repaths), (PathState::Good, 0), "seed {seed}: {stats:?}");
        }
        all_good(&pair.wait(0, 1));
        assert!(paths(&mut pair, 0).iter().all(|stats| stats.state != PathState::Dead), "seed {seed}");
    }
}

#[test]
fn after_an_outage_all_goes_on_as_soon_as_one_path_gets_through() {
    let mut longest = 0;
    for seed in 0..20 {
        let mut pair = Pair::new(seed, Faults::NONE);
        pair.write(0, 0, 1, 0..200_000, 0, None);
        pair.net.run_for(20_000);
        let lost = Rc::new(Cell::new(true));
        let flag = Rc::clone(&lost);
        pair.net.filter = Some(Box::new(move |_, _| flag.get()));
        pair.net.run_for(200 * MS);
        lost.set(false);
        let told = |pair: &mut Pair| paths(pair, 0).iter().map(|path| path.packets_delivered).sum::<u64>();
        let before = told(&mut pair);
        while told(&mut pair) == before {
            pair.net.run_for(1_000);
        }
        let first = pair.net.now();
        all_good(&pair.wait(0, 1));
        longest = longest.max(pair.net.now().since(first));
    }
    // Timeouts have grown to 10 ms by then, and no path knows when another will get through.
    assert!(longest < MS, "{longest}");
}

/// Loses what leaves host 0 from any of the given source ports.
fn blackhole(pair: &mut Pair, ports: Vec<u16>) -> Rc<RefCell<Vec<u16>>> {
    let ports = Rc::new(RefCell::new(ports));
    let shared = Rc::clone(&ports);
    pair.net.filter = Some(Box::new(move |from, transmit| {
        let SourcePort::Path(port) = transmit.source else { return false };
        from == 0 && shared.borrow().contains(&port)
    }));
    ports
}

#[test]
fn blackholed_path_dies_is_replaced_and_returns_while_traffic_goes_on() {
    for seed in 0..10 {
        let mut pair = Pair::new(seed, Faults::NONE);
        pair.write(0, 0, 0, 0..1_000_000, 0, None);
        all_good(&pair.wait(0, 1));
        let broken = path(&mut pair, 0, 3);
        blackhole(&mut pair, vec![broken.source_port]);
        let mut states = Vec::new();
        for id in 1..20 {
            pair.write(0, 0, id, 0..1_000_000, 0, None);
            let start = pair.net.now();
            all_good(&pair.wait(0, 1));
            let spent = pair.net.now().since(start);
            assert!(spent < 15 * MS, "seed {seed}: write {id} took {spent} ns");
            states.push(path(&mut pair, 0, 3).state);
        }
        pair.net.run_for(20 * MS);
        for id in 20..40 {
            pair.write(0, 0, id, 0..1_000_000, 0, None);
            all_good(&pair.wait(0, 1));
        }
        let now = path(&mut pair, 0, 3);
        assert!(states.iter().any(|state| *state != PathState::Good), "seed {seed}: {states:?}");
        assert_eq!(now.state, PathState::Good, "seed {seed}: {states:?}");
        assert!(now.repaths > 0 && now.source_port != broken.source_port);
        assert!(now.packets_delivered > broken.packets_delivered + 50, "it carries data again: {now:?}");
        for other in paths(&mut pair, 0).iter().filter(|other| other.path != now.path) {
            assert_eq!((other.state, other.repaths), (PathState::Good, 0), "seed {seed}: {other:?}");
        }
    }
}

#[test]
fn all_paths_but_one_blackholed_leaves_the_connection_alive() {
    let mut pair = Pair::new(3, Faults::NONE);
    pair.write(0, 0, 0, 0..1_000_000, 0, None);
    all_good(&pair.wait(0, 1));
    let good = path(&mut pair, 0, 5).source_port;
    let epoch = Rc::new(Cell::new(true));
    let flag = Rc::clone(&epoch);
    pair.net.filter = Some(Box::new(move |from, transmit| {
        let SourcePort::Path(port) = transmit.source else { return false };
        from == 0 && flag.get() && port != good
    }));
    for id in 1..10 {
        pair.write(0, 0, id, 0..500_000, 0, None);
        all_good(&pair.wait(0, 1));
    }
    assert_eq!(path(&mut pair, 0, 5).state, PathState::Good);
    epoch.set(false);
    pair.net.run_for(2 * SECOND);
    for stats in paths(&mut pair, 0) {
        assert_eq!(stats.state, PathState::Good, "all return: {stats:?}");
    }
}

#[test]
fn path_dead_for_ten_minutes_uses_up_no_table() {
    let limits = Limits { packets: 64, csn_window: 128, paths_per_connection: 4, ..Limits::HOST };
    let mut pair = Pair::with(4, Faults::NONE, &limits, |_, config| config.paths_per_plane = 4);
    pair.write(0, 0, 0, 0..100_000, 0, None);
    all_good(&pair.wait(0, 1));
    pair.net.filter = Some(Box::new(|from, transmit| {
        from == 0 && kind_of(transmit) != PacketType::Ack && transmit.header()[2] == 1
    }));
    for id in 0..10 {
        pair.write(0, 0, id, 0..100_000, 0, None);
        all_good(&pair.wait(0, 1));
        pair.net.run_for(60 * SECOND);
    }
    assert_ne!(path(&mut pair, 0, 1).state, PathState::Good);
}

#[test]
fn lost_acknowledgements_alone_cost_time_and_nothing_else() {
    for seed in 0..10 {
        let mut pair = Pair::new(seed, Faults::NONE);
        let mut random = metaroce_conformance::Random::new(seed);
        pair.net.filter =
            Some(Box::new(move |_, transmit| kind_of(transmit) == PacketType::Ack && random.chance(500_000)));
        for id in 0..20 {
            pair.receive(1, 0, id, 4_000_000..4_100_000);
            pair.send(0, 0, id, 0..100_000);
        }
        all_good(&pair.wait(0, 20));
        assert_eq!(ids(&pair.wait(1, 20)), (0..20).collect::<Vec<_>>());
        let stats = pair.net.hosts[0].endpoint.connection_stats(pair.connection[0]).unwrap();
        assert_eq!(stats.lost, 0, "seed {seed}: nothing was lost, and nothing declared so: {stats:?}");
    }
}

#[test]
fn acknowledgements_of_one_reverse_path_dying_does_not_kill_a_forward_path() {
    let mut pair = Pair::new(5, Faults::NONE);
    pair.write(0, 0, 0, 0..1_000_000, 0, None);
    all_good(&pair.wait(0, 1));
    let port = path(&mut pair, 1, 2).source_port;
    pair.net.filter =
        Some(Box::new(move |from, transmit| from == 1 && transmit.source == SourcePort::Path(port)));
    for id in 1..20 {
        pair.write(0, 0, id, 0..1_000_000, 0, None);
        all_good(&pair.wait(0, 1));
    }
    for stats in paths(&mut pair, 0) {
        assert_eq!(stats.repaths, 0, "{stats:?}");
    }
}

#[test]
fn small_route_mtu_keeps_large_packets_off_the_path() {
    let mut pair = Pair::new(6, Faults::NONE);
    let port = path(&mut pair, 0, 1).source_port;
    let mut pair2 = Pair::new(6, Faults::NONE);
    assert_eq!(path(&mut pair2, 0, 1).source_port, port, "the same seed, the same port");
    pair2.net.filter = Some(Box::new(move |from, transmit| {
        from == 0 && transmit.source == SourcePort::Path(port) && transmit.datagram_length() > 1_300
    }));
    for id in 0..20 {
        pair2.write(0, 0, id, 0..1_000_000, 0, None);
        all_good(&pair2.wait(0, 1));
    }
    pair.net.run_for(MS);
}

//= MR-PATH-37 test
#[test]
fn routes_that_all_shrink_in_mid_transfer_have_what_is_under_way_cut_anew() {
    for seed in 0..10 {
        let mut pair = Pair::new(seed, Faults { loss: 20_000, ..Faults::NONE });
        pair.receive(1, 2, 9, 6_000_000..7_000_000);
        pair.write(0, 0, 1, 0..1_000_000, 0, None);
        pair.send(0, 2, 2, 2_000_000..3_000_000);
        pair.read(1, 4, 3, 4_000_000..5_000_000, 3_000_000);
        pair.net.run_for(300_000);
        pair.net.filter = Some(Box::new(|_, transmit| transmit.datagram_length() > 1_400));
        all_good(&pair.wait(0, 2));
        all_good(&pair.wait(1, 2));
        let source = pair.bytes(0, 0..4_000_000).to_vec();
        assert!(pair.bytes(1, 0..1_000_000) == &source[..1_000_000], "WRITE, seed {seed}");
        assert!(pair.bytes(1, 6_000_000..7_000_000) == &source[2_000_000..3_000_000], "SEND, seed {seed}");
        assert!(pair.bytes(1, 4_000_000..5_000_000) == &source[3_000_000..], "READ, seed {seed}");
    }
}

#[test]
fn marks_on_one_path_shrink_the_window_of_that_path_alone() {
    let mut pair = Pair::configured(7, Faults::NONE, |config| config.window_bytes_max = 1 << 20);
    pair.write(0, 0, 0, 0..1_000_000, 0, None);
    all_good(&pair.wait(0, 1));
    let port = path(&mut pair, 0, 2).source_port;
    pair.net.marker =
        Some(Box::new(move |from, transmit| from == 0 && transmit.source == SourcePort::Path(port)));
    for id in 1..20 {
        pair.write(0, 0, id, 0..1_000_000, 0, None);
        all_good(&pair.wait(0, 1));
    }
    let stats = paths(&mut pair, 0);
    let marked = stats[2];
    assert!(marked.packets_marked > 20);
    for other in stats.iter().filter(|other| other.path != marked.path) {
        assert_eq!(other.packets_marked, 0);
        assert!(other.window_bytes > 2 * marked.window_bytes, "{other:?} {marked:?}");
    }
}

#[test]
fn forged_reset_of_nothing_in_flight_is_not_believed() {
    let mut pair = Pair::new(8, Faults::NONE);
    pair.write(0, 0, 0, 0..100_000, 0, None);
    all_good(&pair.wait(0, 1));
    // A RESET as a restarted peer would send it, but quoting a packet long acknowledged.
    let quote = Rc::new(RefCell::new(Vec::new()));
    let shared = Rc::clone(&quote);
    pair.net.filter = Some(Box::new(move |from, transmit| {
        if from == 0 && data_of(transmit).is_some() {
            *shared.borrow_mut() = transmit.header()[..20].to_vec();
        }
        false
    }));
    pair.write(0, 0, 1, 0..100, 0, None);
    all_good(&pair.wait(0, 1));
    let mut fresh = crate::common::network(99, Faults::NONE);
    let reset = Rc::new(RefCell::new(Vec::new()));
    let shared = Rc::clone(&reset);
    fresh.filter = Some(Box::new(move |_, transmit| {
        *shared.borrow_mut() = transmit.header().to_vec();
        true
    }));
    let mut packet = quote.borrow().clone();
    packet.resize(64, 0);
    let source = pair.net.hosts[0].address;
    fresh.hosts[1].endpoint = Endpoint::new(
        metaroce_core::Config { checksum_wanted: false, ..config(5) },
        HeapStorage::new(&Limits::HOST),
    )
    .unwrap();
    let _ = fresh.inject(1, source, &packet);
    fresh.settle();
    assert!(!reset.borrow().is_empty(), "a RESET was made");
    let from = pair.net.hosts[1].address;
    let _ = pair.net.inject(0, from, &reset.borrow());
    pair.net.run_for(100 * MS);
    pair.write(0, 0, 2, 0..100, 0, None);
    assert_eq!(outcome(&pair.wait(0, 1)), [(2, Status::Success)]);
}

/// As a segmentation offload does that some receiver can't undo: the path answers, and loses the same packets for ever.
#[test]
//= MR-LOSS-21 test
fn a_packet_that_its_path_loses_time_and_again_takes_another() {
    for seed in 0..10 {
        let mut pair = Pair::new(seed, Faults::NONE);
        pair.write(0, 0, 0, 0..1_000_000, 0, None);
        all_good(&pair.wait(0, 1));
        pair.net.filter = Some(Box::new(|from, transmit| {
            let short = data_of(transmit).is_some() && transmit.payload_length() < 200;
            // Another port does not help.
            from == 0 && short && Base::parse(transmit.header()).unwrap().0.path == PathId(3)
        }));
        for id in 1..40 {
            pair.write(0, 0, id, 0..100, 0, None);
        }
        let start = pair.net.now();
        all_good(&pair.wait(0, 39));
        assert!(pair.net.now().since(start) < 20 * MS, "seed {seed}");
    }
}

/// As a peer does whose packet numbers a forger has moved on: it answers, and takes nothing.
#[test]
//= MR-PATH-26 test
fn a_peer_that_answers_probes_and_takes_no_packet_ends_the_connection() {
    let mut pair = Pair::new(1, Faults::NONE);
    pair.net.filter = Some(Box::new(|from, transmit| from == 0 && data_of(transmit).is_some()));
    pair.write(0, 0, 1, 0..100, 0, None);
    let start = pair.net.now();
    assert_eq!(outcome(&pair.wait(0, 1)), [(1, Status::RetryExceeded)]);
    let took = pair.net.now().since(start);
    assert!((10_000 * MS..12_000 * MS).contains(&took), "{took} ns");
}
