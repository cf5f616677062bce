//! Planes that fail: in both directions, in one, again and again, for ever.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "in tests a failure is a panic"
)]

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::common::pair::{Pair, data_of, kind_of};
use crate::common::planes::{good, pair, paths, wait_up};
use crate::common::{MS, SECOND, all_good};
use metaroce_core::ids::Serial;
use metaroce_core::wire::{Base, PacketType};
use metaroce_core::{CloseReason, Event, PlaneState, PlaneStats};

const US: u64 = 1_000;
/// Bytes of a work request of the load.
const PIECE: usize = 64 << 10;

/// Which packets are lost: a mask of planes for each sender.
#[derive(Clone, Default)]
struct Broken(Rc<Cell<[u8; 2]>>);

impl Broken {
    fn install(pair: &mut Pair) -> Self {
        let broken = Self::default();
        let seen = broken.clone();
        pair.net.filter =
            Some(Box::new(move |from, transmit| seen.0.get()[from] & (1 << transmit.plane) != 0));
        broken
    }

    fn set(&self, from_0: u8, from_1: u8) {
        self.0.set([from_0, from_1]);
    }
}

/// Keeps host 0 writing to host 1, and counts.
struct Load {
    posted: u64,
    completed: u64,
}

impl Load {
    fn start(pair: &mut Pair) -> Self {
        let mut load = Self { posted: 0, completed: 0 };
        for _ in 0..32 {
            load.post(pair);
        }
        load
    }

    fn post(&mut self, pair: &mut Pair) {
        let at = usize::try_from(self.posted % 64).unwrap() * PIECE;
        pair.write(0, (self.posted % 8) as u16, self.posted, at..at + PIECE, at, None);
        self.posted += 1;
    }

    /// Runs for a while under load; returns how many bytes arrived.
    fn run(&mut self, pair: &mut Pair, span_ns: u64) -> u64 {
        let before = placed(pair);
        let end = pair.net.now().after(span_ns);
        while pair.net.now() < end {
            pair.net.run_for(20 * US);
            for completion in pair.completions(0) {
                assert_eq!(completion.status, metaroce_core::Status::Success, "{completion:?}");
                self.completed += 1;
                self.post(pair);
            }
        }
        placed(pair) - before
    }

    /// Lets everything that was posted end, and compares both ends' bytes.
    fn finish(self, pair: &mut Pair) {
        let left = usize::try_from(self.posted - self.completed).unwrap();
        let rest = pair.wait(0, left);
        all_good(&rest);
        assert_eq!(rest.len(), left, "each completes once");
        pair.net.run_for(MS);
        assert!(pair.completions(0).is_empty());
        assert!(pair.bytes(1, 0..64 * PIECE) == pair.bytes(0, 0..64 * PIECE), "the bytes differ");
        // Placed once each: a copy is never placed again.
        assert_eq!(placed(pair), self.posted * PIECE as u64);
    }
}

fn placed(pair: &mut Pair) -> u64 {
    pair.net.hosts[1].endpoint.connection_stats(pair.connection[1]).unwrap().bytes_placed
}

fn plane(pair: &mut Pair, host: usize, plane: u8) -> PlaneStats {
    pair.net.hosts[host].endpoint.plane_stats(pair.connection[host], plane).unwrap()
}

#[test]
fn new_packets_take_the_planes_in_turn() {
    //= MR-PATH-39 test
    for planes in [2u8, 3, 8] {
        let mut pair = pair(21, planes, 4, |_, config| config.window_bytes_start = 1 << 20);
        wait_up(&mut pair);
        pair.net.run_for(5 * MS);
        let order = Rc::new(RefCell::new(Vec::new()));
        let seen = order.clone();
        pair.net.filter = Some(Box::new(move |from, transmit| {
            if from == 0 && kind_of(transmit) == PacketType::Data {
                seen.borrow_mut().push(transmit.plane);
            }
            false
        }));
        pair.write(0, 0, 1, 0..60_000, 0, None);
        all_good(&pair.wait(0, 1));
        let order = order.borrow();
        assert!(order.len() >= 14);
        for turn in order.windows(2) {
            assert_eq!(turn[1], (turn[0] + 1) % planes, "{order:?}");
        }
    }
}

#[test]
fn goodput_grows_with_the_planes() {
    let mut rates = BTreeMap::new();
    for planes in [1u8, 2, 4, 8] {
        let mut pair = pair(22, planes, 4, |_, config| {
            config.window_bytes_max = 64 << 20;
            config.delay_target_ns = 200 * US;
        });
        wait_up(&mut pair);
        let mut load = Load::start(&mut pair);
        load.run(&mut pair, 20 * MS);
        rates.insert(planes, load.run(&mut pair, 10 * MS));
        load.finish(&mut pair);
    }
    let one = rates[&1];
    for (planes, rate) in &rates {
        assert!(rate * 100 >= one * u64::from(*planes) * 90, "{rates:?}");
    }
}

#[test]
fn a_plane_that_dies_is_left_at_once_and_used_again_when_it_returns() {
    //= MR-PATH-14 test
    //= MR-PATH-20 test
    //= MR-PATH-32 test
    for (planes, victim) in [(2u8, 1u8), (4, 2), (8, 0)] {
        let mut pair = pair(23, planes, 8, |_, config| config.delay_target_ns = 200 * US);
        wait_up(&mut pair);
        let broken = Broken::install(&mut pair);
        let mut load = Load::start(&mut pair);
        load.run(&mut pair, 10 * MS);
        let whole = load.run(&mut pair, 2 * MS);

        broken.set(1 << victim, 1 << victim);
        load.run(&mut pair, 2 * MS);
        let left = load.run(&mut pair, 2 * MS);
        let ideal = whole * u64::from(planes - 1) / u64::from(planes);
        assert!(left * 100 >= ideal * 90, "{planes} planes: {left} of {ideal} without the dead one");
        for host in 0..2 {
            pair.net.run_for(10 * MS);
            load.run(&mut pair, MS);
            let stats = plane(&mut pair, host, victim);
            assert_eq!(stats.paths_good, 0, "host {host}: {stats:?}");
            assert_eq!(stats.state, PlaneState::Dead, "host {host}: {stats:?}");
            assert!(stats.silent && stats.peer_silent && stats.peer_unreachable, "host {host}: {stats:?}");
            for other in (0..planes).filter(|&other| other != victim) {
                let stats = plane(&mut pair, host, other);
                assert_eq!((stats.state, stats.paths_good), (PlaneState::Up, 8), "host {host}: {stats:?}");
                assert!(!stats.silent && !stats.peer_silent && !stats.peer_unreachable, "{stats:?}");
            }
        }
        let before: u64 = of_plane(&mut pair, victim);
        broken.set(0, 0);
        load.run(&mut pair, 10 * MS);
        for host in 0..2 {
            let stats = plane(&mut pair, host, victim);
            assert_eq!((stats.state, stats.paths_good), (PlaneState::Up, 8), "host {host}: {stats:?}");
            assert!(!stats.silent && !stats.peer_silent && !stats.peer_unreachable, "host {host}: {stats:?}");
        }
        assert!(of_plane(&mut pair, victim) > before + 500, "the plane carries data again");
        load.finish(&mut pair);
    }
}

fn of_plane(pair: &mut Pair, plane: u8) -> u64 {
    let of_plane = |path: &metaroce_core::PathStats| path.plane == plane;
    paths(pair, 0).into_iter().filter(of_plane).map(|path| path.packets_delivered).sum()
}

#[test]
fn a_failure_towards_the_receiver_leaves_the_way_back_in_use() {
    //= MR-ACK-27 test
    let mut pair = pair(24, 4, 4, |_, _| {});
    wait_up(&mut pair);
    let broken = Broken::install(&mut pair);
    let mut load = Load::start(&mut pair);
    load.run(&mut pair, 5 * MS);
    broken.set(1 << 1, 0);
    load.run(&mut pair, 10 * MS);
    let (ours, theirs) = (plane(&mut pair, 0, 1), plane(&mut pair, 1, 1));
    assert_eq!((ours.state, ours.silent, ours.peer_silent), (PlaneState::Dead, false, true), "{ours:?}");
    assert_eq!((theirs.state, theirs.paths_good), (PlaneState::Up, 4), "{theirs:?}");
    assert_eq!((theirs.silent, theirs.peer_unreachable), (true, true), "{theirs:?}");
    let acks = count_acks(&mut pair, &broken);
    load.run(&mut pair, 2 * MS);
    let acks = acks.borrow();
    assert!(acks[1] > 10 && acks[1] * 2 > acks[0], "acknowledgements still take all planes: {acks:?}");
    drop(acks);
    pair.net.filter = None;
    load.finish(&mut pair);
}

#[test]
fn a_failure_of_the_way_back_costs_the_way_there_nothing() {
    //= MR-ACK-18 test
    //= MR-ACK-27 test
    //= MR-ACK-32 test
    //= MR-PATH-40 test
    //= MR-PATH-41 test
    let mut pair = pair(25, 4, 4, |_, _| {});
    wait_up(&mut pair);
    let broken = Broken::install(&mut pair);
    let mut load = Load::start(&mut pair);
    load.run(&mut pair, 5 * MS);
    let whole = load.run(&mut pair, 2 * MS);
    let before = timeouts(&mut pair);
    broken.set(0, 1 << 1);
    load.run(&mut pair, 10 * MS);
    let (ours, theirs) = (plane(&mut pair, 0, 1), plane(&mut pair, 1, 1));
    assert_eq!((ours.state, ours.paths_good), (PlaneState::Up, 4), "{ours:?}");
    assert_eq!((ours.silent, ours.peer_silent, ours.peer_unreachable), (true, false, true), "{ours:?}");
    assert_eq!(
        (theirs.state, theirs.paths_good, theirs.peer_silent),
        (PlaneState::Dead, 0, true),
        "{theirs:?}"
    );
    let acks = count_acks(&mut pair, &broken);
    let rate = load.run(&mut pair, 2 * MS);
    assert_eq!(acks.borrow()[1], 0, "no acknowledgement goes where none arrives: {:?}", acks.borrow());
    assert!(rate * 100 > whole * 90, "{rate} after, {whole} before");
    assert_eq!(timeouts(&mut pair), before, "no path took the loss of acknowledgements for its own");

    broken.set(0, 0);
    load.run(&mut pair, 10 * MS);
    let (ours, theirs) = (plane(&mut pair, 0, 1), plane(&mut pair, 1, 1));
    assert_eq!((ours.silent, ours.peer_unreachable), (false, false), "{ours:?}");
    assert_eq!(
        (theirs.state, theirs.paths_good, theirs.peer_silent),
        (PlaneState::Up, 4, false),
        "{theirs:?}"
    );
    assert!(acks.borrow()[1] > 0);
    load.finish(&mut pair);
}

fn timeouts(pair: &mut Pair) -> u64 {
    paths(pair, 0).iter().map(|path| path.timeouts).sum()
}

/// Counts the ACKs of host 1 on each plane, and goes on breaking.
fn count_acks(pair: &mut Pair, broken: &Broken) -> Rc<RefCell<[u64; 8]>> {
    let counts = Rc::new(RefCell::new([0; 8]));
    let (noted, broken) = (counts.clone(), broken.clone());
    pair.net.filter = Some(Box::new(move |from, transmit| {
        if from == 1 && kind_of(transmit) == PacketType::Ack {
            noted.borrow_mut()[usize::from(transmit.plane)] += 1;
        }
        broken.0.get()[from] & (1 << transmit.plane) != 0
    }));
    counts
}

#[test]
fn a_plane_that_flaps_loses_nothing_and_has_to_prove_itself_longer() {
    //= MR-PATH-24 test
    let mut pair = pair(26, 4, 1, |_, _| {});
    wait_up(&mut pair);
    let broken = Broken::install(&mut pair);
    let mut load = Load::start(&mut pair);
    load.run(&mut pair, 5 * MS);
    let mut back = Vec::new();
    for _ in 0..6 {
        broken.set(1 << 3, 1 << 3);
        load.run(&mut pair, 5 * MS);
        assert_eq!(plane(&mut pair, 0, 3).paths_good, 0);
        broken.set(0, 0);
        let start = pair.net.now();
        while plane(&mut pair, 0, 3).paths_good == 0 {
            load.run(&mut pair, 20 * US);
            assert!(pair.net.now().since(start) < 50 * MS, "it never returns");
        }
        back.push(pair.net.now().since(start) / US);
    }
    // 3 answers, then 6, 12, 24, 24 and 24: an RTT each. The wait for the first probe is up to 2 ms.
    assert!(back[0] < 10_000, "{back:?}");
    // That of another plane, which has queues: a little more.
    let rtt_us = paths(&mut pair, 0)[0].rtt_ns_base / US;
    assert!(back[4..].iter().all(|&us| us >= 20 * rtt_us), "{back:?}, {rtt_us} µs");
    load.finish(&mut pair);
}

#[test]
fn a_plane_dies_and_returns_a_hundred_times_a_second() {
    let mut pair = pair(27, 4, 4, |_, _| {});
    wait_up(&mut pair);
    let broken = Broken::install(&mut pair);
    let mut load = Load::start(&mut pair);
    for turn in 0..20 {
        let mask = if turn % 2 == 0 { 1 << 2 } else { 0 };
        // Both directions, one, the other.
        broken.set(if turn % 3 == 1 { 0 } else { mask }, if turn % 3 == 2 { 0 } else { mask });
        let rate = load.run(&mut pair, 5 * MS);
        assert!(rate > 0);
    }
    broken.set(0, 0);
    load.run(&mut pair, 20 * MS);
    assert_eq!(good(&paths(&mut pair, 0), 2), 4);
    load.finish(&mut pair);
}

#[test]
fn when_nothing_progresses_the_oldest_packet_is_tried_on_every_plane() {
    //= MR-PATH-17 test
    let mut pair = pair(28, 4, 2, |_, _| {});
    wait_up(&mut pair);
    pair.net.run_for(20 * MS);
    // One plane of four is left, and it is not the one whose turn it is.
    let copies = Rc::new(RefCell::new(BTreeMap::<u32, Vec<u8>>::new()));
    let seen = copies.clone();
    let alive = Rc::new(Cell::new(None));
    pair.net.filter = Some(Box::new(move |from, transmit| {
        if from == 0
            && let Some(header) = data_of(transmit)
        {
            seen.borrow_mut().entry(header.csn.raw()).or_default().push(transmit.plane);
            if alive.get().is_none() {
                alive.set(Some((transmit.plane + 2) % 4));
            }
        }
        alive.get().is_some_and(|alive| transmit.plane != alive)
    }));
    let start = pair.net.now();
    pair.write(0, 0, 1, 0..100, 4096, None);
    all_good(&pair.wait(0, 1));
    assert!(pair.net.now().since(start) < 2 * MS, "one timeout is enough");
    let copies = copies.borrow();
    let mut planes = copies.values().next().unwrap().clone();
    planes.sort_unstable();
    planes.dedup();
    assert_eq!((copies.len(), planes), (1, vec![0, 1, 2, 3]), "{copies:?}");
    drop(copies);
    assert_eq!(pair.bytes(1, 4096..4196), pair.bytes(0, 0..100));
    assert_eq!(placed(&mut pair), 100, "placed once");
}

#[test]
fn what_asks_for_an_acknowledgement_is_answered_on_two_planes() {
    //= MR-ACK-19 test
    let mut pair = pair(29, 3, 2, |_, _| {});
    wait_up(&mut pair);
    pair.net.run_for(20 * MS);
    let answers = Rc::new(RefCell::new(Vec::new()));
    let seen = answers.clone();
    pair.net.filter = Some(Box::new(move |from, transmit| {
        if from == 1 && kind_of(transmit) == PacketType::Ack {
            seen.borrow_mut().push((transmit.plane, Base::parse(transmit.header()).unwrap().0.path));
        }
        false
    }));
    // Alone on its path, it asks.
    pair.write(0, 0, 1, 0..100, 0, None);
    all_good(&pair.wait(0, 1));
    pair.net.run_for(MS);
    let answers = answers.borrow();
    assert_eq!(answers.len(), 2, "{answers:?}");
    assert_ne!(answers[0].0, answers[1].0, "{answers:?}");
}

#[test]
fn a_connection_that_fails_tells_where_and_when_it_was_last_good() {
    //= MR-PATH-27 test
    let mut pair = pair(30, 2, 2, |_, config| config.fail_after_ns = SECOND);
    wait_up(&mut pair);
    let broken = Broken::install(&mut pair);
    // Only plane 1 works for a while, then nothing does.
    broken.set(1, 1);
    let mut load = Load::start(&mut pair);
    load.run(&mut pair, 20 * MS);
    let last = pair.net.now_at(0);
    broken.set(3, 3);
    let (events, reason) = pair.wait_closed(0, 10 * SECOND);
    assert_eq!(reason, CloseReason::TimedOut);
    let told = events.iter().find_map(|event| match event {
        Event::Closed { last_progress, .. } => *last_progress,
        _ => None,
    });
    let told = told.unwrap();
    assert_eq!((told.plane, told.path.0 / 2), (1, 1), "{told:?}");
    assert!(told.at <= last.after(MS) && last.since(told.at) < MS, "{told:?}, {last:?}");
}
