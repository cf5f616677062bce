//! Closing a connection: from either side or both, drained or flushed, with every message of it lost.

use std::cell::Cell;
use std::rc::Rc;

use crate::common::pair::*;
use crate::common::*;
use metaroce_conformance::Faults;
use metaroce_core::{CloseMode, CloseReason, Event, PostError, Status};

#[test]
//= MR-CLS-1, MR-CLS-2 test
fn drain_delivers_what_was_posted_and_flush_gives_it_up() {
    for seed in 0..20 {
        for by in 0..2 {
            for mode in [CloseMode::Drain, CloseMode::Flush] {
                let mut pair = Pair::new(seed, Faults::all(50_000));
                pair.receive(1 - by, 0, 50, 0..0);
                pair.write(by, 0, 1, 0..200_000, 0, None);
                pair.read(by, 2, 2, 200_000..300_000, 400_000);
                pair.write(by, 0, 3, 0..100, 0, Some(7));
                pair.close(by, mode);
                let both = pair.wait_both_closed();
                let ours = completions(&both[by].0);
                let theirs = completions(&both[1 - by].0);
                let context = format!("seed {seed} by {by} {mode:?}: {ours:?} {theirs:?}");
                assert_eq!((ours.len(), theirs.len()), (3, 1), "{context}");
                assert_eq!(
                    (both[by].1, both[1 - by].1),
                    (CloseReason::Local, CloseReason::Peer),
                    "{context}"
                );
                if mode == CloseMode::Drain {
                    all_good(&ours);
                    all_good(&theirs);
                    assert!(pair.bytes(1 - by, 100..200_000) == pair.bytes(by, 100..200_000));
                }
                for (events, _) in &both {
                    let closed = events.iter().filter(|event| matches!(event, Event::Closed { .. })).count();
                    assert_eq!(closed, 1);
                }
            }
        }
    }
}

#[test]
//= MR-CLS-4 test
fn peer_drains_its_own_side_before_the_close_is_answered() {
    for seed in 0..10 {
        let mut pair = Pair::new(seed, Faults::all(30_000));
        pair.write(1, 0, 1, 0..3_000_000, 0, None);
        pair.read(1, 2, 2, 4_000_000..6_000_000, 0);
        pair.net.run_for(100_000);
        pair.close(0, CloseMode::Drain);
        let both = pair.wait_both_closed();
        let theirs = completions(&both[1].0);
        assert_eq!(theirs.len(), 2);
        all_good(&theirs);
        assert_eq!((both[0].1, both[1].1), (CloseReason::Local, CloseReason::Peer), "seed {seed}");
        assert!(pair.bytes(0, 0..3_000_000) == pair.bytes(1, 0..3_000_000));
    }
}

#[test]
//= MR-CLS-7 test
fn closing_outlasts_a_peer_that_drains_for_longer_than_eight_timeouts() {
    let faults = Faults { byte_ps: 80_000, ..Faults::NONE };
    let mut pair = Pair::new(1, faults);
    pair.write(1, 0, 1, 0..REGION, 0, None);
    pair.net.run_for(MS);
    pair.close(0, CloseMode::Drain);
    let both = pair.wait_both_closed();
    all_good(&completions(&both[1].0));
    assert_eq!((both[0].1, both[1].1), (CloseReason::Local, CloseReason::Peer));
}

#[test]
//= MR-CLS-5 test
fn both_sides_closing_at_once_drain_both() {
    for seed in 0..20 {
        let mut pair = Pair::new(seed, Faults::all(50_000));
        for host in 0..2 {
            pair.write(host, 0, 1, 0..100_000, 200_000, None);
            pair.read(host, 2, 2, 400_000..500_000, 600_000);
        }
        pair.close(0, CloseMode::Drain);
        pair.close(1, CloseMode::Drain);
        let both = pair.wait_both_closed();
        for (events, reason) in &both {
            let done = completions(events);
            assert_eq!(done.len(), 2);
            all_good(&done);
            assert!(matches!(reason, CloseReason::Local | CloseReason::Peer), "seed {seed}: {reason:?}");
        }
    }
}

#[test]
//= MR-CLS-6 test
fn close_survives_the_loss_of_its_first_messages() {
    for lost in [CLOSE, CLOSE_ACK] {
        for times in 1..6 {
            let mut pair = Pair::new(2, Faults::NONE);
            let mut left = times;
            pair.net.filter = Some(Box::new(move |_, transmit| {
                let hit = control_of(transmit) == lost && left > 0;
                left -= i32::from(hit);
                hit
            }));
            pair.write(0, 0, 1, 0..1_000, 0, None);
            pair.close(0, CloseMode::Drain);
            let both = pair.wait_both_closed();
            assert_eq!((both[0].1, both[1].1), (CloseReason::Local, CloseReason::Peer), "{lost} {times}");
        }
    }
}

#[test]
fn responses_lost_while_closing_go_again_within_a_few_timeouts() {
    for only_probes_lost in [false, true] {
        let mut pair = Pair::configured(9, Faults::NONE, |config| config.paths_per_plane = 1);
        pair.write(0, 2, 1, 0..500_000, 0, None);
        pair.wait(0, 1);
        let healed = pair.net.now().after(3 * MS);
        let now = Rc::new(Cell::new(pair.net.now()));
        let clock = Rc::clone(&now);
        pair.net.filter = Some(Box::new(move |from, transmit| {
            let lost = from == 0 && control_of(transmit) == 0 && clock.get() < healed;
            let probe = from == 0 && kind_of(transmit) == metaroce_core::wire::PacketType::Probe;
            lost || (only_probes_lost && probe)
        }));
        pair.read(1, 0, 1, 0..60_000, 0);
        pair.close(0, CloseMode::Drain);
        for _ in 0..100 {
            pair.net.run_for(MS / 10);
            now.set(pair.net.now());
        }
        let (events, reason) = pair.wait_closed(1, 100 * MS);
        all_good(&completions(&events));
        assert_eq!((completions(&events).len(), reason), (1, CloseReason::Peer));
    }
}

#[test]
fn close_that_is_never_answered_ends_as_failed() {
    let mut pair = Pair::new(3, Faults::NONE);
    pair.net.filter = Some(Box::new(|from, _| from == 1));
    pair.close(0, CloseMode::Drain);
    let (_, reason) = pair.wait_closed(0, 60 * SECOND);
    assert_eq!(reason, CloseReason::TimedOut);
}

#[test]
//= MR-CLS-8 test
fn send_that_waits_for_a_receive_at_a_closing_peer_is_flushed() {
    for credits in [16, 1] {
        let mut pair = Pair::configured(4, Faults::NONE, |config| config.initial_credits = credits);
        for id in 0..3 {
            pair.send(1, 0, id, 0..5_000);
        }
        pair.net.run_for(2 * MS);
        pair.close(0, CloseMode::Drain);
        let both = pair.wait_both_closed();
        let theirs = completions(&both[1].0);
        assert_eq!(theirs.len(), 3);
        assert!(
            theirs.iter().all(|done| matches!(done.status, Status::PeerClosed | Status::Flushed)),
            "{theirs:?}"
        );
        assert_eq!((both[0].1, both[1].1), (CloseReason::Local, CloseReason::Peer), "{credits} credits");
    }
}

#[test]
fn receives_posted_before_the_close_still_take_what_the_peer_sends() {
    let mut pair = Pair::new(5, Faults::NONE);
    for id in 0..3 {
        pair.receive(0, 0, id, id as usize * 100_000..(id as usize + 1) * 100_000);
    }
    for id in 0..5 {
        pair.send(1, 0, 10 + id, 0..90_000);
    }
    pair.net.run_for(20_000);
    pair.close(0, CloseMode::Drain);
    let both = pair.wait_both_closed();
    let (ours, theirs) = (completions(&both[0].0), completions(&both[1].0));
    let good = |done: &[metaroce_core::Completion]| {
        done.iter().filter(|done| done.status == Status::Success).count()
    };
    assert_eq!((ours.len(), theirs.len(), good(&ours), good(&theirs)), (3, 5, 3, 3), "{ours:?} {theirs:?}");
}

#[test]
//= MR-STR-27 test
fn closed_connection_takes_no_work() {
    let mut pair = Pair::new(6, Faults::NONE);
    pair.close(0, CloseMode::Drain);
    let segments = [pair.segment(0, 0..8)];
    let operation = metaroce_core::Operation::Send { immediate: None };
    let request = metaroce_core::WorkRequest::new(5, operation, &segments);
    assert_eq!(pair.try_post(0, 0, request), Err(PostError::NoConnection));
    pair.wait_both_closed();
    for host in 0..2 {
        assert_eq!(pair.try_post(host, 0, request), Err(PostError::NoConnection));
    }
}

#[test]
//= MR-CLS-18 test
fn vanished_peer_ends_a_close_of_either_kind_and_everything_completes_once() {
    for mode in [CloseMode::Drain, CloseMode::Flush] {
        let mut pair = Pair::new(7, Faults::NONE);
        for id in 0..20 {
            pair.write(0, id as u16 % 4, id, 0..100_000, 0, None);
            pair.receive(0, id as u16 % 4, 100 + id, 0..10);
        }
        pair.net.run_for(30_000);
        pair.net.filter = Some(Box::new(|_, _| true));
        pair.close(0, mode);
        let (events, reason) = pair.wait_closed(0, 60 * SECOND);
        assert_eq!(reason, CloseReason::TimedOut, "{mode:?}");
        let mut done = ids(&completions(&events));
        done.sort_unstable();
        assert_eq!(done, (0..20).chain(100..120).collect::<Vec<_>>());
    }
}

#[test]
fn slots_and_ids_are_free_again_after_many_connections() {
    let limits = metaroce_core::Limits { connections: 3, ..metaroce_core::Limits::HOST };
    let mut pair = Pair::with(8, Faults::all(20_000), &limits, |_, _| {});
    for round in 0..20 {
        pair.write(0, 0, round, 0..10_000, 0, None);
        pair.receive(1, 2, round, 0..10);
        pair.close((round % 2) as usize, CloseMode::Flush);
        pair.wait_both_closed();
        pair.net.run_for(SECOND);
        pair.connection = connect(&mut pair.net);
    }
    pair.write(0, 0, 1, 0..10_000, 0, None);
    all_good(&pair.wait(0, 1));
}

#[test]
//= MR-HS-12 test
fn late_duplicate_of_the_handshake_does_not_open_a_connection_after_close() {
    let seen = Rc::new(Cell::new(0));
    for seed in 0..10 {
        let faults =
            Faults { duplication: 1_000_000, reordering: 500_000, reorder_ns: 20 * MS, ..Faults::NONE };
        let mut pair = Pair::new(seed, faults);
        pair.close(0, CloseMode::Drain);
        pair.wait_both_closed();
        pair.net.run_for(35 * MS);
        for host in 0..2 {
            let incoming = pair.net.hosts[host].take_events();
            seen.set(seen.get() + incoming.len());
            assert!(incoming.is_empty(), "{incoming:?}");
        }
    }
}
