//! Pitfalls of PITFALLS.md that lie in paths: numbers, routes, clocks, marks, probes.

use std::cell::RefCell;
use std::collections::HashSet;
use std::rc::Rc;

use crate::common::pair::*;
use crate::common::*;
use metaroce_conformance::{Clock, Faults, Network};
use metaroce_core::ids::Serial;
use metaroce_core::wire::{Base, PacketType};
use metaroce_core::{
    ConnectionStats, HeapStorage, Limits, PathId, PathState, PathStats, SourcePort, Transmit,
};

fn path(pair: &mut Pair, host: usize, number: u8) -> PathStats {
    pair.net.hosts[host].endpoint.path_stats(pair.connection[host], PathId(number)).unwrap()
}

fn stats(pair: &mut Pair, host: usize) -> ConnectionStats {
    pair.net.hosts[host].endpoint.connection_stats(pair.connection[host]).unwrap()
}

fn base_of(transmit: &Transmit) -> Base {
    Base::parse(transmit.header()).unwrap().0
}

/// Writes megabytes from host 0 to host 1, and compares.
fn transfer(pair: &mut Pair, id: u64, bytes: usize) {
    pair.write(0, 0, id, 0..bytes, 0, None);
    all_good(&pair.wait(0, 1));
    assert!(pair.bytes(1, 0..bytes) == pair.bytes(0, 0..bytes));
}

/// Pitfall 2.
#[test]
//= MR-LOSS-10, MR-WIRE-6 test
fn no_psn_is_on_the_wire_twice() {
    let mut pair = Pair::new(2, Faults::all(30_000));
    let mut seen = HashSet::new();
    pair.net.filter = Some(Box::new(move |from, transmit| {
        let base = base_of(transmit);
        if base.kind.takes_psn() {
            assert!(seen.insert((from, base.path, base.psn.raw())), "{base:?}");
        } else {
            assert_eq!(base.psn.raw(), 0);
        }
        false
    }));
    for id in 0..5 {
        transfer(&mut pair, id, 1_000_000);
    }
}

/// Pitfall 3.
#[test]
//= MR-LOSS-12, MR-LOSS-13 test
fn lost_retransmission_and_lost_probe_are_found_without_a_retransmission_timeout() {
    for (data, probes) in [(2, 0), (3, 0), (1, 1), (2, 2)] {
        let mut pair = Pair::configured(3, Faults::NONE, |config| config.rto_ns_min = 100 * MS);
        transfer(&mut pair, 0, 1_000_000);
        pair.net.run_for(100 * MS);
        let mut left = [data, probes];
        pair.net.filter = Some(Box::new(move |from, transmit| {
            let kind = usize::from(kind_of(transmit) == PacketType::Probe);
            let counts = from == 0 && (kind == 1 || data_of(transmit).is_some()) && left[kind] > 0;
            left[kind] -= i32::from(counts);
            counts
        }));
        let start = pair.net.now();
        transfer(&mut pair, 1, 100);
        let took = pair.net.now().since(start);
        assert!(took < 20 * MS, "{data} copies and {probes} probes lost: {took} ns");
    }
}

/// Pitfall 4.
#[test]
//= MR-ACK-29, MR-ACK-30 test
fn acknowledgements_replayed_backwards_change_nothing() {
    let mut pair = Pair::new(4, Faults { marking: 100_000, ..Faults::NONE });
    let kept = Rc::new(RefCell::new(Vec::new()));
    let shared = Rc::clone(&kept);
    pair.net.observer = Some(Box::new(Keep(shared)));
    pair.write(0, 0, 0, 0..REGION, 0, None);
    let mut marked = 0;
    for _ in 0..20 {
        pair.net.run_for(200_000);
        let before = (stats(&mut pair, 0), [0, 3, 7].map(|number| path(&mut pair, 0, number)));
        let source = pair.net.hosts[1].address;
        for bytes in kept.borrow().iter().rev() {
            let _ = pair.net.inject(0, source, bytes).unwrap();
        }
        kept.borrow_mut().clear();
        let after = (stats(&mut pair, 0), [0, 3, 7].map(|number| path(&mut pair, 0, number)));
        marked = before.1[0].packets_marked;
        // What was on its way is told early; nothing is taken back, counted twice or sent again.
        assert!(after.0.bytes_in_flight <= before.0.bytes_in_flight);
        assert_eq!((after.0.lost, after.0.spurious), (before.0.lost, before.0.spurious));
    }
    assert!(marked > 0);
    all_good(&pair.wait(0, 1));
    assert_eq!(stats(&mut pair, 0).retransmitted, 0);
    let (told, carried) = (0..8).fold((0, 0), |(told, carried), number| {
        let path = path(&mut pair, 0, number);
        (told + path.packets_marked, carried + path.packets_sent)
    });
    assert!(told * 5 < carried, "a tenth was marked, each once: {told} of {carried}");
}

/// Keeps the ACKs of host 1 that it has seen.
struct Keep(Rc<RefCell<Vec<Vec<u8>>>>);

impl metaroce_conformance::trace::Observer for Keep {
    fn on_datagram(&mut self, record: &metaroce_conformance::trace::Record<'_>) {
        if record.from == 1 && record.bytes[0] & 15 == 2 {
            self.0.borrow_mut().push(record.bytes.to_vec());
        }
    }
}

/// Pitfall 5.
#[test]
//= MR-LOSS-2, MR-ACK-31 test
fn packet_later_than_the_vector_reaches_is_judged_by_time_and_placed_once() {
    let mut pair = Pair::configured(5, Faults::NONE, |config| config.paths_per_plane = 1);
    transfer(&mut pair, 0, REGION);
    let mut count = 0;
    pair.net.delayer = Some(Box::new(move |from, transmit| {
        count += i32::from(from == 0 && data_of(transmit).is_some());
        if from == 0 && data_of(transmit).is_some() && count == 500 { 3 * MS } else { 0 }
    }));
    let before = stats(&mut pair, 0);
    transfer(&mut pair, 1, REGION);
    pair.net.run_for(10 * MS);
    let after = stats(&mut pair, 0);
    assert_eq!(after.retransmitted - before.retransmitted, 1, "only that packet goes again");
    assert_eq!(stats(&mut pair, 1).duplicates_received, 1);
    assert_eq!(path(&mut pair, 0, 0).timeouts, 0);
}

/// Pitfall 6.
#[test]
//= MR-LOSS-4, MR-ACK-8, MR-PATH-4 test
fn packets_of_a_slower_old_route_are_no_gap_after_a_repath() {
    for (extra_ns, tolerance) in [(10_000, 0), (MS / 2, 3)] {
        let mut pair = Pair::configured(6, Faults::NONE, |config| {
            config.reorder_tolerance = tolerance;
            config.pto_ns_min = 10 * MS;
            config.rto_ns_min = 50 * MS;
        });
        transfer(&mut pair, 0, 1_000_000);
        let old = path(&mut pair, 0, 2).source_port;
        pair.net.delayer =
            Some(Box::new(
                move |_, transmit| {
                    if transmit.source == SourcePort::Path(old) { extra_ns } else { 0 }
                },
            ));
        transfer(&mut pair, 1, 1_000_000);
        let before = stats(&mut pair, 0);
        pair.write(0, 0, 2, 0..REGION, 0, None);
        pair.net.run_for(500_000);
        pair.net.hosts[0].endpoint.repath(pair.connection[0], PathId(2)).unwrap();
        all_good(&pair.wait(0, 1));
        pair.net.run_for(20 * MS);
        assert!(pair.bytes(1, 0..REGION) == pair.bytes(0, 0..REGION));
        let moved = path(&mut pair, 0, 2);
        assert_eq!((moved.epoch, moved.state, moved.repaths), (1, PathState::Good, 1));
        let lost = stats(&mut pair, 0).lost - before.lost;
        if extra_ns < 20_000 {
            assert_eq!(lost, 0, "a little slower: neither rule takes it for loss");
        } else {
            assert!(lost < 200, "much slower: what was under way may go again, once: {lost}");
        }
    }
}

/// Pitfall 9.
#[test]
//= MR-ACK-17 test
fn dead_reverse_path_costs_few_duplicates_and_no_forward_path() {
    let mut pair = Pair::new(9, Faults::NONE);
    transfer(&mut pair, 0, 1_000_000);
    let port = path(&mut pair, 1, 2).source_port;
    pair.net.filter =
        Some(Box::new(move |from, transmit| from == 1 && transmit.source == SourcePort::Path(port)));
    for id in 1..20 {
        transfer(&mut pair, id, 1_000_000);
        pair.net.run_for(id * 50_000);
    }
    for number in 0..8 {
        let path = path(&mut pair, 0, number);
        assert_eq!((path.state, path.repaths), (PathState::Good, 0), "{path:?}");
    }
    let duplicates = stats(&mut pair, 1).duplicates_received;
    let sent = stats(&mut pair, 0).packets_sent;
    assert!(duplicates * 100 < sent, "{duplicates} of {sent}");
}

/// The compliance suite found that each turn with nothing to say moved the rotation on: of an even number of paths,
/// acknowledgements took every other one.
#[test]
//= MR-ACK-17 test
fn single_acknowledgements_travel_over_every_path_in_turn() {
    let mut pair = Pair::new(10, Faults::NONE);
    transfer(&mut pair, 0, 1_000);
    pair.net.run_for(10 * MS);
    let ports = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&ports);
    pair.net.filter = Some(Box::new(move |from, transmit| {
        let (base, _) = Base::parse(transmit.header()).unwrap();
        if from == 1 && base.kind == PacketType::Ack {
            seen.borrow_mut().push(base.path.0);
        }
        false
    }));
    for id in 1..17 {
        transfer(&mut pair, id, 64);
        pair.net.run_for(MS);
    }
    let seen = ports.borrow();
    assert!(seen.windows(2).all(|two| two[0] != two[1]), "{seen:?}");
    assert!((0..8).all(|path| seen.contains(&path)), "{seen:?}");
}

/// Pitfall 23.
#[test]
//= MR-ACK-5 test
fn each_arrival_with_ce_counts_once_also_if_the_network_duplicates() {
    let mut pair = Pair::new(23, Faults { duplication: 1_000_000, ..Faults::NONE });
    let marked = Rc::new(RefCell::new(0u64));
    let shared = Rc::clone(&marked);
    let mut count = 0u64;
    pair.net.marker = Some(Box::new(move |from, transmit| {
        count += u64::from(from == 0 && data_of(transmit).is_some());
        let marks = from == 0 && data_of(transmit).is_some() && count.is_multiple_of(10);
        *shared.borrow_mut() += u64::from(marks);
        marks
    }));
    for id in 0..5 {
        transfer(&mut pair, id, 1_000_000);
    }
    pair.net.run_for(10 * MS);
    let told: u64 = (0..8).map(|number| path(&mut pair, 0, number).packets_marked).sum();
    let arrived = 2 * *marked.borrow();
    assert!(arrived > 200 && told <= arrived, "{told} of {arrived}");
    assert!(told + 16 >= arrived, "all but those of the last acknowledgement: {told} of {arrived}");
}

/// Pitfall 24.
#[test]
//= MR-ACK-6, MR-ACK-10, MR-LOSS-18 test
fn late_acknowledgement_does_not_spoil_the_rtt_and_a_first_mark_does_not_wait() {
    let slow = |config: &mut metaroce_core::Config| {
        config.ack_packets = 64;
        config.ack_delay_ns_max = 3 * MS;
        config.pto_ns_min = 10 * MS;
        config.rto_ns_min = 50 * MS;
    };
    let mut pair = Pair::configured(24, Faults::NONE, slow);
    let told = Rc::new(RefCell::new(Vec::new()));
    let acks = Rc::clone(&told);
    // ACK_NOW and LAST would hurry the acknowledgement: they are hidden.
    transfer(&mut pair, 0, 1_000_000);
    let mut marks = false;
    pair.net.marker = Some(Box::new(move |from, transmit| {
        let first = from == 0 && data_of(transmit).is_some() && !marks;
        marks |= first;
        first
    }));
    let start = pair.net.now();
    pair.net.filter = Some(Box::new(move |from, transmit| {
        if from == 1 && kind_of(transmit) == PacketType::Ack {
            acks.borrow_mut().push(());
        }
        false
    }));
    pair.write(0, 0, 1, 0..2_000_000, 0, None);
    let done = pair.net.run_until(MS, |_| !told.borrow().is_empty());
    assert!(done && pair.net.now().since(start) < 50_000, "the mark is told at once");
    all_good(&pair.wait(0, 1));
    for number in 0..8 {
        let path = path(&mut pair, 0, number);
        assert!(path.rtt_ns_base >= 20_000 && path.rtt_ns_base < 100_000, "{path:?}");
        assert!(path.rtt_ns_smoothed < 2 * MS, "the hold is taken off: {path:?}");
    }
}

/// Pitfall 25.
#[test]
//= MR-CC-8, MR-CC-9 test
fn long_random_loss_on_a_small_window_does_not_shrink_it() {
    let mut pair = Pair::configured(25, Faults { loss: 50_000, ..Faults::NONE }, |config| {
        config.window_bytes_max = 64 << 10;
        config.paths_per_plane = 2;
        config.pto_ns_min = MS / 2;
        config.rto_ns_min = 50 * MS;
    });
    for id in 0..20 {
        transfer(&mut pair, id, 1_000_000);
        for number in 0..2 {
            let path = path(&mut pair, 0, number);
            assert_eq!(path.timeouts, 0, "{path:?}");
            assert!(path.window_bytes >= 30_000, "{path:?}");
        }
    }
    // More than a quarter lost is another matter: the route is overloaded whatever it says.
    pair.net.faults.loss = 450_000;
    let shrank = (20..25).any(|id| {
        transfer(&mut pair, id, 1_000_000);
        (0..2).any(|number| path(&mut pair, 0, number).window_bytes < 30_000)
    });
    assert!(shrank, "{:?}", [0, 1].map(|number| path(&mut pair, 0, number)));
}

/// Pitfall 29.
#[test]
//= MR-PATH-19 test
fn probes_of_dead_paths_thin_out_and_do_not_keep_step() {
    let mut pair = Pair::new(29, Faults::NONE);
    transfer(&mut pair, 0, 1_000_000);
    let good = path(&mut pair, 0, 5).source_port;
    let probes = Rc::new(RefCell::new(vec![Vec::new(); 8]));
    let shared = Rc::clone(&probes);
    pair.net.filter = Some(Box::new(move |from, transmit| {
        let SourcePort::Path(port) = transmit.source else { return false };
        if from == 0 && kind_of(transmit) == PacketType::Probe {
            let base = base_of(transmit);
            shared.borrow_mut()[usize::from(base.path.0)].push(base.timestamp);
        }
        from == 0 && port != good
    }));
    for id in 1..5 {
        transfer(&mut pair, id, 1_000_000);
    }
    pair.net.run_for(3 * SECOND);
    probes.borrow_mut().iter_mut().for_each(Vec::clear);
    pair.net.run_for(10 * SECOND);
    let dead: Vec<u8> =
        (0..8).filter(|&number| path(&mut pair, 0, number).state == PathState::Dead).collect();
    assert!(dead.len() > 3, "{dead:?}");
    let mut instants = HashSet::new();
    for number in dead {
        let times = probes.borrow()[usize::from(number)].clone();
        assert!((80..130).contains(&times.len()), "path {number}: {} probes in 10 s", times.len());
        instants.extend(times.iter().map(|time| time >> 6));
    }
    assert!(instants.len() > 300, "spread by jitter: {}", instants.len());
}

/// What a dead path's probes met says nothing of the route that it will take.
#[test]
//= MR-CC-26 test
fn marks_on_the_probes_of_a_dead_path_do_not_count() {
    let mut pair = Pair::new(30, Faults::NONE);
    transfer(&mut pair, 0, 1_000_000);
    let dead = Rc::new(RefCell::new(true));
    let shared = Rc::clone(&dead);
    pair.net.filter = Some(Box::new(move |from, transmit| {
        let base = base_of(transmit);
        from == 0 && base.kind.takes_psn() && base.path == PathId(1) && *shared.borrow()
    }));
    for id in 1..5 {
        transfer(&mut pair, id, 1_000_000);
    }
    assert_ne!(path(&mut pair, 0, 1).state, PathState::Good);
    pair.net.marker = Some(Box::new(move |from, transmit| from == 0 && base_of(transmit).path == PathId(1)));
    *dead.borrow_mut() = false;
    let back = pair.net.run_until(SECOND, |net| {
        let stats = net.hosts[0].endpoint.path_stats(pair.connection[0], PathId(1)).unwrap();
        stats.state == PathState::Good
    });
    assert!(back);
    assert_eq!(path(&mut pair, 0, 1).packets_marked, 0);
}

/// Pitfall 40.
#[test]
//= MR-SEC-9 test
fn hosts_whose_clocks_differ_in_epoch_and_rate_work_alike() {
    for (offset_ns, rate_ppm) in [(1 << 50, 0), (0, 200), (7_777_777_777, -200), (1 << 40, 100_000)] {
        let hosts = (0..2).map(|number| (config(80 + number), HeapStorage::new(&Limits::HOST)));
        let mut net = Network::new(1, Faults { loss: 10_000, ..Faults::NONE }, hosts);
        net.hosts[1].clock = Clock { offset_ns, rate_ppm };
        let connection = connect(&mut net);
        let region = [0, 1].map(|number| net.hosts[number].register(pattern(REGION, number as u64)));
        let mut pair = Pair { net, connection, region };
        for id in 0..10 {
            transfer(&mut pair, id, 1_000_000);
            pair.read(1, 1, id, 0..500_000, 0);
            all_good(&pair.wait(1, 1));
        }
        for host in 0..2 {
            for number in 0..8 {
                let path = path(&mut pair, host, number);
                assert_eq!(path.state, PathState::Good);
                let busy = path.packets_delivered > 20;
                assert!(path.rtt_ns_base >= 15_000, "clock {rate_ppm} ppm: {path:?}");
                assert!(!busy || path.rtt_ns_base < 40_000, "clock {rate_ppm} ppm: {path:?}");
            }
        }
        assert_eq!(stats(&mut pair, 0).spurious, 0);
    }
}

/// Pitfall 41.
#[test]
//= MR-LOSS-20, MR-PATH-38 test
fn paths_of_unequal_length_keep_a_base_of_their_own() {
    let mut pair = Pair::new(41, Faults::NONE);
    transfer(&mut pair, 0, 1_000_000);
    pair.net.delayer =
        Some(Box::new(
            |from, transmit| {
                if from == 0 { u64::from(base_of(transmit).path.0) * 50_000 } else { 0 }
            },
        ));
    for id in 1..30 {
        transfer(&mut pair, id, 500_000);
        pair.net.run_for(SECOND);
    }
    for number in 0..8u8 {
        let path = path(&mut pair, 0, number);
        let length = 20_000 + u64::from(number) * 50_000;
        assert!((length..length + 25_000).contains(&path.rtt_ns_base), "{path:?}");
    }
    assert_eq!(stats(&mut pair, 0).lost, 0, "the longer path is no loss");
}
