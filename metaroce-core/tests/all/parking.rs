//! Parked paths: how many a connection uses, and when the others join. And what keeps many that start together apart.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use crate::common::pair::{Pair, kind_of};
use crate::common::*;
use metaroce_conformance::{Faults, Network};
use metaroce_core::wire::{Base, PacketType};
use metaroce_core::{
    Config, ConnectOptions, Event, HeapStorage, Limits, PathId, PathState, PathStats, ProtectionDomain,
    SourcePort, Transmit,
};

/// UDP payload of a full packet.
const PACKET: u32 = 4_176;

/// A pair whose host 0 may start with so many packets on its eight paths.
fn pair(seed: u64, packets: u32) -> Pair {
    let mut pair =
        Pair::configured(seed, Faults::NONE, |config| config.window_bytes_start = packets * PACKET);
    pair.net.run_for(5 * MS);
    pair
}

fn path(pair: &mut Pair, host: usize, number: u8) -> PathStats {
    pair.net.hosts[host].endpoint.path_stats(pair.connection[host], PathId(number)).unwrap()
}

fn transfer(pair: &mut Pair, id: u64, bytes: usize) {
    pair.write(0, 0, id, 0..bytes, 0, None);
    all_good(&pair.wait(0, 1));
}

fn states(pair: &mut Pair) -> Vec<PathState> {
    (0..8).map(|number| path(pair, 0, number).state).collect()
}

fn in_use(pair: &mut Pair) -> usize {
    states(pair).iter().filter(|state| **state == PathState::Good).count()
}

#[test]
fn as_many_paths_are_in_use_as_the_start_window_feeds() {
    //= MR-PATH-6 test
    for (packets, paths) in [(1, 1), (2, 2), (5, 5), (8, 8), (16, 8)] {
        let mut pair = pair(1, packets);
        let parked = states(&mut pair).iter().filter(|state| **state == PathState::Parked).count();
        assert_eq!((in_use(&mut pair), parked), (paths, 8 - paths), "{packets} packets");
    }
}

#[test]
fn a_parked_path_carries_nothing_until_it_joins_and_then_its_part() {
    //= MR-PATH-7 test
    //= MR-PATH-8 test
    let mut pair = pair(2, 1);
    let sent = Rc::new(RefCell::new(BTreeSet::new()));
    let seen = Rc::clone(&sent);
    pair.net.filter = Some(Box::new(move |from, transmit: &Transmit| {
        let kind = kind_of(transmit);
        if from == 0 && (kind == PacketType::Probe || kind == PacketType::Data) {
            let (base, _) = Base::parse(transmit.header()).unwrap();
            seen.borrow_mut().insert((base.path.0, kind == PacketType::Data));
        }
        false
    }));
    // Idle for long, and then one small transfer: one path is enough.
    pair.net.run_for(100 * MS);
    transfer(&mut pair, 1, 1_000);
    let paths: BTreeSet<u8> = sent.borrow().iter().map(|&(path, _)| path).collect();
    assert_eq!(paths.len(), 1, "{:?}", sent.borrow());
    // The window grows, and with it the number of paths.
    transfer(&mut pair, 2, 4 << 20);
    assert_eq!(in_use(&mut pair), 8);
    let carrying = sent.borrow().iter().filter(|(_, data)| *data).count();
    assert_eq!(carrying, 8, "{:?}", sent.borrow());
    let windows: Vec<u64> = (0..8).map(|number| path(&mut pair, 0, number).window_bytes).collect();
    assert!(windows.iter().all(|window| *window >= u64::from(PACKET)), "{windows:?}");
    // After a pause it starts with one packet again.
    pair.net.run_for(100 * MS);
    transfer(&mut pair, 3, 1_000);
    assert_eq!(in_use(&mut pair), 1);
}

#[test]
fn a_parked_path_joins_when_the_only_one_in_use_times_out() {
    //= MR-PATH-43 test
    let mut pair = pair(3, 1);
    let dead = (0..8).find(|&number| path(&mut pair, 0, number).state == PathState::Good).unwrap();
    let port = path(&mut pair, 0, dead).source_port;
    pair.net.filter = Some(Box::new(move |from, transmit: &Transmit| {
        from == 0 && transmit.source == SourcePort::Path(port)
    }));
    transfer(&mut pair, 1, 100_000);
    assert_ne!(path(&mut pair, 0, dead).state, PathState::Parked);
    let carried = |number| number != dead && path(&mut pair, 0, number).packets_delivered > 10;
    assert!((0..8).any(carried), "{:?}", states(&mut pair));
}

#[test]
fn marks_on_probes_alone_change_no_window() {
    //= MR-CC-28 test
    let mut pair = pair(4, 16);
    transfer(&mut pair, 1, 1 << 20);
    let windows =
        |pair: &mut Pair| (0..8).map(|number| path(pair, 0, number).window_bytes).collect::<Vec<_>>();
    let before = windows(&mut pair);
    let probes = Rc::new(RefCell::new(0));
    let count = Rc::clone(&probes);
    pair.net.marker = Some(Box::new(move |from, transmit: &Transmit| {
        let probe = from == 0 && kind_of(transmit) == PacketType::Probe;
        *count.borrow_mut() += u32::from(probe);
        probe
    }));
    for _ in 0..40 {
        for number in 0..8 {
            pair.net.hosts[0].endpoint.repath(pair.connection[0], PathId(number)).unwrap();
        }
        pair.net.run_for(MS);
    }
    assert!(*probes.borrow() >= 320, "{}", probes.borrow());
    assert_eq!(windows(&mut pair), before);
}

#[test]
fn searches_of_many_that_open_at_once_are_spread() {
    //= MR-PATH-42 test
    const CONNECTIONS: u32 = 100;
    // A padded PROBE takes 334 ns at 100 Gb/s: four of each of 99 others take 132 us.
    let limits = Limits { connections: 2 * CONNECTIONS, ..Limits::HOST };
    let hosts = (0..2).map(|number| {
        let config = Config { half_open_per_address: u16::MAX, ..config(90 + number) };
        (config, HeapStorage::new(&limits))
    });
    let mut net = Network::new(5, Faults { delay_ns: 5_000, ..Faults::NONE }, hosts);
    let asked = Rc::new(RefCell::new(Vec::new()));
    let clock = Rc::new(RefCell::new(0u64));
    let (seen, time) = (Rc::clone(&asked), Rc::clone(&clock));
    net.filter = Some(Box::new(move |from, transmit: &Transmit| {
        if from == 0 && kind_of(transmit) == PacketType::Probe && transmit.datagram_length() > 4_000 {
            seen.borrow_mut().push(*time.borrow());
        }
        false
    }));
    for _ in 0..CONNECTIONS {
        let (now, remote) = (net.now_at(0), net.hosts[1].address);
        net.hosts[0].endpoint.connect(now, ConnectOptions::to(remote)).unwrap();
    }
    for _ in 0..1_000 {
        *clock.borrow_mut() = net.now().as_nanos();
        for event in net.hosts[1].take_events() {
            if let Event::Incoming { connection, .. } = event {
                let now = net.now_at(1);
                net.hosts[1].endpoint.accept(now, connection, ProtectionDomain(0), b"").unwrap();
            }
        }
        net.run_for(1_000);
    }
    let asked = asked.borrow();
    assert!(asked.len() >= CONNECTIONS as usize, "{}", asked.len());
    let most = asked.iter().map(|at| asked.iter().filter(|other| at.abs_diff(**other) < 2_000).count()).max();
    assert!(most.unwrap() < asked.len() / 4, "{most:?} of {} within 4 us", asked.len());
}
