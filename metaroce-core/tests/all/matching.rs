//! SENDs meet posted receives: in place before their predecessors, completed in order, by index.

use std::cell::Cell;
use std::rc::Rc;

use crate::common::pair::*;
use crate::common::*;
use metaroce_conformance::Faults;
use metaroce_core::wire::Opcode;
use metaroce_core::{CompletionKind, Operation, Status, WorkRequest};

/// Loses all packets of message `msn` with `opcode` from host 0 until the cell says otherwise.
fn hold(pair: &mut Pair, opcode: Opcode, msn: u32) -> Rc<Cell<bool>> {
    let held = Rc::new(Cell::new(true));
    let flag = Rc::clone(&held);
    pair.net.filter =
        Some(Box::new(move |from, transmit| from == 0 && flag.get() && is(transmit, opcode, msn)));
    held
}

#[test]
//= MR-OP-1, MR-OP-5, MR-DLV-7, MR-STR-3 test
fn send_lands_before_its_predecessors_and_completes_after_them() {
    let mut pair = Pair::new(1, Faults::NONE);
    for id in 0..3 {
        pair.receive(1, 0, 100 + id, id as usize * 10_000..id as usize * 10_000 + 10_000);
    }
    let held = hold(&mut pair, Opcode::Send, 0);
    for id in 0..3 {
        pair.send(0, 0, id, 100_000 + id as usize * 10_000..100_000 + id as usize * 10_000 + 9_000);
    }
    pair.net.run_for(2 * MS);
    for id in 1..3 {
        let want = pair.bytes(0, 100_000 + id * 10_000..100_000 + id * 10_000 + 9_000).to_vec();
        assert_eq!(pair.bytes(1, id * 10_000..id * 10_000 + 9_000), want, "message {id} is in place");
    }
    assert_eq!((pair.completions(0).len(), pair.completions(1).len()), (0, 0), "but none is complete");
    held.set(false);
    let (sent, received) = (pair.wait(0, 3), pair.wait(1, 3));
    assert_eq!((ids(&sent), ids(&received)), (vec![0, 1, 2], vec![100, 101, 102]));
    all_good(&sent);
    all_good(&received);
    assert!(received.iter().all(|done| (done.kind, done.bytes) == (CompletionKind::Receive, 9_000)));
    assert_eq!(pair.bytes(1, 0..9_000), pair.bytes(0, 100_000..109_000).to_vec());
}

#[test]
//= MR-STR-5 test
fn completions_come_in_order_at_both_sides_under_all_faults() {
    for seed in 0..10 {
        let mut pair = Pair::new(seed, Faults::all(30_000));
        for id in 0..64 {
            pair.receive(1, 0, id, id as usize * 20_000..(id as usize + 1) * 20_000);
        }
        for id in 0..64 {
            let length = (id as usize * 311) % 20_000;
            pair.send_immediate(0, 0, id, 0..length, (id % 2 == 0).then_some(id as u32));
        }
        let (sent, received) = (pair.wait(0, 64), pair.wait(1, 64));
        let order: Vec<u64> = (0..64).collect();
        assert_eq!((ids(&sent), ids(&received)), (order.clone(), order), "seed {seed}");
        for done in &received {
            assert_eq!(done.bytes as usize, (done.id as usize * 311) % 20_000);
            assert_eq!(done.immediate, (done.id % 2 == 0).then_some(done.id as u32));
            let start = done.id as usize * 20_000;
            let want = pair.bytes(0, 0..done.bytes as usize).to_vec();
            assert_eq!(pair.bytes(1, start..start + done.bytes as usize), want);
        }
    }
}

#[test]
fn zero_length_sends_consume_receives_in_order() {
    let mut pair = Pair::new(3, Faults::all(20_000));
    for id in 0..4 {
        pair.receive(1, 0, id, 0..if id % 2 == 0 { 0 } else { 64 });
    }
    for id in 0..4 {
        pair.send(0, 0, id, 0..0);
    }
    let (sent, received) = (pair.wait(0, 4), pair.wait(1, 4));
    assert_eq!((ids(&sent), ids(&received)), (vec![0, 1, 2, 3], vec![0, 1, 2, 3]));
    assert!(received.iter().all(|done| done.bytes == 0 && done.status == Status::Success));
}

#[test]
//= MR-OP-4 test
fn message_longer_than_its_receive_fails_both_sides_and_leaves_other_streams() {
    let mut pair = Pair::new(4, Faults::NONE);
    pair.receive(1, 0, 10, 0..1_000);
    pair.receive(1, 0, 11, 1_000..2_000);
    pair.receive(1, 2, 20, 2_000..3_000);
    pair.send(0, 0, 1, 0..1_001);
    pair.send(0, 0, 2, 0..10);
    pair.send(0, 2, 3, 0..1_000);
    let mut sent = pair.wait(0, 3);
    let mut received = pair.wait(1, 3);
    sent.sort_by_key(|done| done.id);
    received.sort_by_key(|done| done.id);
    assert_eq!(outcome(&sent), [(1, Status::RemoteInvalid), (2, Status::Flushed), (3, Status::Success)]);
    assert_eq!(outcome(&received), [(10, Status::LocalLength), (11, Status::Flushed), (20, Status::Success)]);
}

#[test]
fn receive_that_is_too_short_completes_after_the_receives_before_it() {
    let mut pair = Pair::new(5, Faults::NONE);
    pair.receive(1, 0, 10, 0..1_000);
    pair.receive(1, 0, 11, 1_000..1_010);
    let held = hold(&mut pair, Opcode::Send, 0);
    pair.send(0, 0, 1, 0..1_000);
    pair.send(0, 0, 2, 0..1_000);
    pair.net.run_for(2 * MS);
    held.set(false);
    let (sent, received) = (pair.wait(0, 2), pair.wait(1, 2));
    assert_eq!(outcome(&sent), [(1, Status::Success), (2, Status::RemoteInvalid)]);
    assert_eq!(outcome(&received), [(10, Status::Success), (11, Status::LocalLength)]);
}

#[test]
//= MR-STR-13 test
fn send_with_no_receive_is_refused_and_goes_again_once_one_is_posted() {
    let mut pair = Pair::new(6, Faults::NONE);
    pair.send(0, 0, 1, 0..50_000);
    pair.net.run_for(30 * MS);
    assert!(pair.completions(0).is_empty());
    let stats = pair.net.hosts[0].endpoint.connection_stats(pair.connection[0]).unwrap();
    assert!(stats.refused > 0);
    assert_eq!(stats.lost + stats.retransmitted + stats.spurious, 0, "a refusal is no loss");
    let posted = pair.net.now();
    pair.receive(1, 0, 7, 0..50_000);
    all_good(&pair.wait(1, 1));
    let waited = pair.net.now().since(posted);
    assert!(waited < MS, "the receive was told at once: {waited} ns");
    all_good(&pair.wait(0, 1));
    assert_eq!(pair.bytes(1, 0..50_000), pair.bytes(0, 0..50_000).to_vec());
}

#[test]
//= MR-STR-4 test
fn stream_without_receives_does_not_hold_up_another() {
    let mut pair = Pair::new(7, Faults::all(10_000));
    pair.send(0, 0, 1, 0..5_000);
    pair.receive(1, 2, 20, 0..5_000);
    pair.send(0, 2, 2, 0..5_000);
    let done = pair.wait(0, 1);
    assert_eq!(ids(&done), [2]);
    pair.receive(1, 0, 10, 5_000..10_000);
    assert_eq!(ids(&pair.wait(0, 1)), [1]);
}

#[test]
//= MR-STR-17 test
fn receiver_not_ready_limit_counts_rounds_and_not_packets() {
    let mut pair = Pair::configured(8, Faults::NONE, |config| config.rnr_retries = Some(5));
    let start = pair.net.now();
    pair.send(0, 0, 1, 0..60_000);
    pair.send(0, 0, 2, 0..10);
    let done = pair.wait(0, 2);
    assert_eq!(outcome(&done), [(1, Status::RnrExceeded), (2, Status::Flushed)]);
    let spent = pair.net.now().since(start);
    // Delays of 10 RTT, doubling: five of them are more than 31 times the first.
    assert!(spent > 2 * MS, "five delays passed: {spent} ns");
}

#[test]
fn receiver_not_ready_rounds_start_anew_after_an_acceptance() {
    let mut pair = Pair::configured(9, Faults::NONE, |config| config.rnr_retries = Some(8));
    for round in 0..6 {
        pair.send(0, 0, round, 0..3_000);
        pair.net.run_for(20 * MS);
        pair.receive(1, 0, round, 0..3_000);
        let done = pair.wait(0, 1);
        assert_eq!(outcome(&done), [(round, Status::Success)]);
    }
}

#[test]
fn sender_starved_of_credit_goes_on_when_receives_are_posted() {
    let mut pair = Pair::configured(10, Faults::all(20_000), |config| config.initial_credits = 1);
    for id in 0..50 {
        pair.send(0, 0, id, 0..2_000);
    }
    let mut received = Vec::new();
    for id in 0..50 {
        pair.net.run_for(MS / 2);
        pair.receive(1, 0, id, 0..2_000);
        received.extend(pair.completions(1));
    }
    received.extend(pair.wait(1, 50 - received.len()));
    assert_eq!(ids(&received), (0..50).collect::<Vec<_>>());
    all_good(&pair.wait(0, 50));
}

#[test]
fn credit_keeps_a_starved_sender_from_being_refused() {
    let mut pair = Pair::configured(11, Faults::NONE, |config| config.initial_credits = 1);
    pair.receive(1, 0, 0, 0..100);
    pair.net.run_for(MS);
    pair.send(0, 0, 0, 0..100);
    pair.wait(0, 1);
    for id in 1..100 {
        pair.send(0, 0, id, 0..100);
    }
    pair.net.run_for(50 * MS);
    for id in 1..100 {
        pair.receive(1, 0, id, 0..100);
    }
    all_good(&pair.wait(0, 99));
    let stats = pair.net.hosts[0].endpoint.connection_stats(pair.connection[0]).unwrap();
    assert_eq!(stats.refused, 0, "credit is known, so nothing is sent in vain");
}

#[test]
//= MR-OP-20 test
fn solicited_send_says_so_and_unsignalled_send_is_silent() {
    let mut pair = Pair::new(12, Faults::NONE);
    for id in 0..2 {
        pair.receive(1, 0, id, 0..100);
    }
    let segments = [pair.segment(0, 0..100)];
    let send = Operation::Send { immediate: None };
    pair.post(
        0,
        0,
        WorkRequest { solicited: true, unsignalled: true, ..WorkRequest::new(1, send, &segments) },
    );
    pair.post(0, 0, WorkRequest::new(2, send, &segments));
    let received = pair.wait(1, 2);
    assert_eq!(received.iter().map(|done| done.solicited).collect::<Vec<_>>(), [true, false]);
    assert_eq!(ids(&pair.wait(0, 1)), [2]);
    pair.net.run_for(MS);
    assert!(pair.completions(0).is_empty());
}
