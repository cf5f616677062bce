//! Streams: independent of each other, ended by either side, their ids used again.

use std::cell::Cell;
use std::rc::Rc;

use crate::common::pair::*;
use crate::common::*;
use metaroce_conformance::Faults;
use metaroce_core::wire::Opcode;
use metaroce_core::{Event, PostError, Status, StreamId};

#[test]
fn stream_with_a_lost_packet_does_not_hold_up_others() {
    let mut pair = Pair::new(1, Faults::NONE);
    let held = Rc::new(Cell::new(true));
    let flag = Rc::clone(&held);
    pair.net.filter = Some(Box::new(move |from, transmit| {
        from == 0 && flag.get() && data_of(transmit).is_some_and(|header| header.stream == S0)
    }));
    for stream in 0..20 {
        let at = usize::from(stream) * 10_000;
        pair.write(0, stream, u64::from(stream), at..at + 10_000, at, None);
    }
    let done = pair.wait(0, 19);
    assert!(done.iter().all(|done| done.id != 0 && done.status == Status::Success));
    held.set(false);
    assert_eq!(ids(&pair.wait(0, 1)), [0]);
}

#[test]
//= MR-STR-1 test
fn either_side_opens_streams_and_both_at_once_share_one() {
    for seed in 0..10 {
        let mut pair = Pair::new(seed, Faults::all(30_000));
        for host in 0..2 {
            pair.receive(host, 7, 1, host * 1_000..host * 1_000 + 1_000);
        }
        pair.send(0, 7, 10, 5_000..6_000);
        pair.send(1, 7, 11, 5_000..6_000);
        let (first, second) = (pair.wait(0, 2), pair.wait(1, 2));
        all_good(&first);
        all_good(&second);
        for host in 0..2 {
            let stats = pair.net.hosts[host].endpoint.connection_stats(pair.connection[host]).unwrap();
            assert_eq!(stats.streams, 1);
        }
    }
}

#[test]
//= MR-STR-2 test
fn open_stream_gives_even_ids_to_the_connector_and_odd_ones_to_the_acceptor() {
    let mut pair = Pair::new(2, Faults::NONE);
    for host in 0..2 {
        for number in 0..5 {
            let id = pair.net.hosts[host].endpoint.open_stream(pair.connection[host]).unwrap();
            assert_eq!(id, StreamId(2 * number + host as u16));
        }
    }
}

#[test]
//= MR-STR-23 test
fn reset_flushes_both_sides_and_the_id_can_be_used_again() {
    for seed in 0..20 {
        for by in 0..2 {
            let mut pair = Pair::new(seed, Faults::all(50_000));
            eprintln!("seed {seed} by {by}");
            pair.receive(1, 4, 1, 0..100);
            pair.receive(1, 4, 2, 0..300_000);
            pair.receive(0, 4, 3, 0..100);
            pair.send(0, 4, 10, 0..100);
            assert_eq!(outcome(&pair.wait(1, 1)), [(1, Status::Success)]);
            assert_eq!(outcome(&pair.wait(0, 1)), [(10, Status::Success)]);
            pair.send(0, 4, 11, 0..300_000);
            pair.read(1, 4, 12, 0..300_000, 0);
            pair.net.run_for(50_000);
            pair.reset_stream(by, 4);
            let mut ours = pair.wait(0, 2);
            let mut theirs = pair.wait(1, 2);
            ours.sort_by_key(|done| done.id);
            theirs.sort_by_key(|done| done.id);
            assert_eq!(outcome(&ours), [(3, Status::Flushed), (11, Status::Flushed)], "seed {seed} by {by}");
            // The READ may have been answered before.
            let answered = vec![(2, Status::Flushed), (12, Status::Success)];
            let flushed = vec![(2, Status::Flushed), (12, Status::Flushed)];
            assert!([answered, flushed].contains(&outcome(&theirs)), "seed {seed} by {by}: {theirs:?}");
            // Used again, with its numbers from the start.
            pair.net.run_for(SECOND);
            for host in 0..2 {
                let stats = pair.net.hosts[host].endpoint.connection_stats(pair.connection[host]).unwrap();
                assert_eq!(stats.streams, 0, "seed {seed} by {by} host {host}");
                let events = pair.net.hosts[host].take_events();
                assert!(completions(&events).is_empty(), "{events:?}");
            }
            for host in 0..2 {
                pair.receive(host, 4, 20, 400_000..500_000);
                pair.send(host, 4, 21, 600_000..700_000);
            }
            for host in 0..2 {
                all_good(&pair.wait(host, 2));
                let want = pair.bytes(1 - host, 600_000..700_000).to_vec();
                assert!(pair.bytes(host, 400_000..500_000) == want, "seed {seed} by {by}");
            }
        }
    }
}

#[test]
fn both_sides_resetting_at_once_is_one_end() {
    for seed in 0..20 {
        let mut pair = Pair::new(seed, Faults::all(50_000));
        pair.write(0, 0, 1, 0..200_000, 0, None);
        pair.write(1, 0, 2, 0..200_000, 0, None);
        pair.net.run_for(100_000);
        for host in 0..2 {
            pair.reset_stream(host, 0);
        }
        pair.net.run_for(SECOND);
        for host in 0..2 {
            let events = pair.net.hosts[host].take_events();
            let ended = events.iter().filter(|event| matches!(event, Event::StreamEnded { .. })).count();
            assert_eq!((ended, completions(&events).len()), (1, 1), "seed {seed}: {events:?}");
            let stats = pair.net.hosts[host].endpoint.connection_stats(pair.connection[host]).unwrap();
            assert_eq!(stats.streams, 0);
        }
    }
}

#[test]
fn stream_that_ends_takes_no_work_until_it_is_gone() {
    let mut pair = Pair::new(3, Faults::NONE);
    pair.write(0, 0, 1, 0..100, 0, None);
    pair.wait(0, 1);
    pair.reset_stream(0, 0);
    let segments = [pair.segment(0, 0..8)];
    let operation = metaroce_core::Operation::Send { immediate: None };
    let request = metaroce_core::WorkRequest::new(5, operation, &segments);
    assert_eq!(pair.try_post(0, 0, request), Err(PostError::NoStream));
    pair.net.run_for(50 * MS);
    assert_eq!(pair.try_post(0, 0, request), Ok(()));
}

#[test]
//= MR-DLV-11 test
fn refused_packets_of_a_stream_that_is_reset_are_not_sent_again() {
    let mut pair = Pair::new(4, Faults::NONE);
    pair.send(0, 0, 1, 0..50_000);
    pair.net.run_for(2 * MS);
    pair.reset_stream(0, 0);
    pair.receive(1, 0, 1, 0..50_000);
    let after = Rc::new(Cell::new(0));
    let count = Rc::clone(&after);
    pair.net.filter = Some(Box::new(move |from, transmit| {
        let send = from == 0 && data_of(transmit).is_some_and(|header| header.opcode == Opcode::Send);
        count.set(count.get() + u32::from(send));
        false
    }));
    pair.net.run_for(SECOND);
    assert_eq!(after.get(), 0);
    assert_eq!(outcome(&pair.completions(0)), [(1, Status::Flushed)]);
    assert_eq!(outcome(&pair.completions(1)), [(1, Status::Flushed)]);
}

#[test]
fn refused_packets_that_wait_for_a_window_die_with_their_stream() {
    let mut pair = Pair::new(6, Faults::NONE);
    pair.send(0, 0, 1, 0..50_000);
    pair.net.run_for(MS);
    let lost = Rc::new(Cell::new(true));
    let after = Rc::new(Cell::new(0));
    let (flag, count) = (Rc::clone(&lost), Rc::clone(&after));
    pair.net.filter = Some(Box::new(move |from, transmit| {
        let send = from == 0 && data_of(transmit).is_some_and(|header| header.opcode == Opcode::Send);
        count.set(count.get() + u32::from(send && !flag.get()));
        from == 0 && flag.get()
    }));
    pair.write(0, 2, 2, 0..8 << 20, 0, None);
    pair.net.run_for(20 * MS);
    pair.reset_stream(0, 0);
    lost.set(false);
    let mut done = pair.wait(0, 2);
    done.sort_by_key(|done| done.id);
    assert_eq!(outcome(&done), [(1, Status::Flushed), (2, Status::Success)]);
    assert_eq!(after.get(), 0);
}

#[test]
fn stream_limit_of_the_peer_refuses_without_blocking_others() {
    let limits = metaroce_core::Limits { streams: 4, ..metaroce_core::Limits::HOST };
    let mut pair = Pair::with(5, Faults::NONE, &limits, |_, _| {});
    for stream in 0..4 {
        pair.write(0, stream, u64::from(stream), 0..10, 0, None);
    }
    all_good(&pair.wait(0, 4));
    let segments = [pair.segment(0, 0..8)];
    let operation = metaroce_core::Operation::Send { immediate: None };
    let request = metaroce_core::WorkRequest::new(5, operation, &segments);
    assert_eq!(pair.try_post(0, 9, request), Err(PostError::NoStream));
    pair.reset_stream(0, 0);
    pair.net.run_for(50 * MS);
    assert_eq!(pair.try_post(0, 9, request), Ok(()));
}
