//! Pitfalls of PITFALLS.md that lie in delivery and streams: VOID, invalidate, refusals, full tables.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use crate::common::pair::*;
use crate::common::*;
use metaroce_conformance::{Faults, Network};
use metaroce_core::ids::Serial;
use metaroce_core::wire::Opcode;
use metaroce_core::{
    HeapStorage, Limits, Operation, PathId, RemoteAddress, Segment, Status, StreamId, TagEntry, WorkRequest,
};

/// Pitfall 10. A WRITE's packets are late or lost, its stream is reset, and VOIDs go under their CSNs.
#[test]
//= MR-DLV-13, MR-DLV-14, MR-DLV-15, MR-WIRE-22 test
fn void_lost_doubled_or_racing_with_its_packet_gives_one_verdict() {
    for seed in 0..12 {
        let duplication = if seed % 2 == 0 { 1_000_000 } else { 0 };
        let mut pair = Pair::new(seed, Faults { duplication, ..Faults::NONE });
        pair.write(0, 0, 1, 0..100_000, 0, None);
        all_good(&pair.wait(0, 1));
        let voids = Rc::new(RefCell::new(HashMap::<u32, u32>::new()));
        let shared = Rc::clone(&voids);
        let mut random = metaroce_conformance::Random::new(seed);
        let lost_at_first = (seed % 3) as u32;
        pair.net.filter = Some(Box::new(move |from, transmit| {
            let Some(header) = data_of(transmit).filter(|_| from == 0) else { return false };
            if header.opcode != Opcode::Void {
                return header.opcode == Opcode::Write && random.chance(100_000);
            }
            let mut voids = shared.borrow_mut();
            let copies = voids.entry(header.csn.raw()).or_default();
            *copies += 1;
            *copies <= lost_at_first
        }));
        let mut random = metaroce_conformance::Random::new(seed + 100);
        pair.net.delayer = Some(Box::new(move |from, transmit| {
            let late = from == 0 && is(transmit, Opcode::Write, 1) && random.chance(300_000);
            if late { random.below(2 * MS) } else { 0 }
        }));
        pair.write(0, 0, 2, 0..2_000_000, 4_000_000, None);
        pair.net.run_for(150_000);
        pair.reset_stream(0, 0);
        assert_eq!(outcome(&pair.wait(0, 1)), [(2, Status::Flushed)]);
        assert!(!voids.borrow().is_empty(), "seed {seed}: VOIDs went");
        // From here on every CSN has its verdict: nothing that is still on its way touches the memory.
        let kept = pair.bytes(1, 4_000_000..6_000_000).to_vec();
        pair.net.run_for(20 * MS);
        assert!(pair.bytes(1, 4_000_000..6_000_000) == kept, "seed {seed}: late packets do nothing");
        pair.net.filter = None;
        pair.write(0, 0, 3, 0..1_000, 0, None);
        assert_eq!(outcome(&pair.wait(0, 1)), [(3, Status::Success)], "the stream is used again");
    }
}

/// Pitfall 14.
#[test]
//= MR-OP-21 test
fn send_with_invalidate_waits_for_the_lost_write_that_uses_the_key() {
    for lost in 1..4 {
        let mut pair = Pair::new(14, Faults::NONE);
        let victim = pair.net.hosts[1].register(vec![0; 64]);
        pair.receive(1, 0, 9, 0..8);
        let mut left = lost;
        pair.net.filter = Some(Box::new(move |from, transmit| {
            let hit = from == 0 && is(transmit, Opcode::Write, 0) && left > 0;
            left -= i32::from(hit);
            hit
        }));
        let remote = RemoteAddress { key: victim.key, address: 0 };
        let write = Operation::Write { remote, immediate: None };
        pair.post(0, 0, WorkRequest { inline: b"before", ..WorkRequest::new(1, write, &[]) });
        pair.post(0, 0, WorkRequest::new(2, Operation::SendInvalidate { key: victim.key }, &[]));
        pair.post(0, 0, WorkRequest { inline: b"behind", ..WorkRequest::new(3, write, &[]) });
        let done = pair.wait(0, 3);
        assert_eq!(
            outcome(&done)[..2],
            [(1, Status::Success), (2, Status::Success)],
            "the key lives until its turn"
        );
        assert!(matches!(done[2].status, Status::Success | Status::RemoteAccess), "{done:?}");
        assert_eq!(pair.wait(1, 1)[0].invalidated, Some(victim.key));
        let there = &pair.net.hosts[1].memory.bytes(victim.id)[..6];
        assert!(there == b"before" || there == b"behind");
    }
}

/// Pitfall 19.
#[test]
//= MR-STR-15, MR-STR-18, MR-STR-17 test
fn refusals_are_no_loss_shrink_nothing_and_thin_out() {
    let mut pair = Pair::configured(19, Faults::NONE, |config| config.initial_credits = 1);
    pair.write(0, 1, 0, 0..1_000_000, 0, None);
    all_good(&pair.wait(0, 1));
    let windows = |pair: &mut Pair| {
        let connection = pair.connection[0];
        let endpoint = &mut pair.net.hosts[0].endpoint;
        (0..8)
            .map(|n| endpoint.path_stats(connection, PathId(n)).unwrap())
            .map(|p| p.window_bytes)
            .sum::<u64>()
    };
    let before = windows(&mut pair);
    pair.send(0, 0, 1, 0..3_000);
    pair.net.run_for(SECOND);
    let endpoint = &mut pair.net.hosts[0].endpoint;
    let stream = endpoint.stream_stats(pair.connection[0], StreamId(0)).unwrap();
    assert!((90..150).contains(&stream.refused), "every 10 ms: {stream:?}");
    let stats = endpoint.connection_stats(pair.connection[0]).unwrap();
    assert_eq!((stats.lost, stats.retransmitted, stats.retransmitted_by_timeout), (0, 0, 0));
    assert!(windows(&mut pair) >= before);
}

/// Pitfall 19: *no slot* goes again after a round trip, and the table serves everybody.
#[test]
//= MR-STR-6, MR-STR-8 test
fn refusals_for_want_of_a_slot_are_at_most_one_round_a_round_trip() {
    let hosts =
        vec![(config(1), HeapStorage::new(&Limits::HOST)), (config(2), HeapStorage::new(&Limits::SMALL))];
    let mut net = Network::new(1, Faults::NONE, hosts);
    let connection = connect(&mut net);
    let region = [0, 1].map(|number| net.hosts[number].register(pattern(REGION, number as u64)));
    let mut pair = Pair { net, connection, region };
    pair.net.run_for(MS);
    pair.net.filter = Some(Box::new(|from, transmit| from == 0 && is(transmit, Opcode::Write, 0)));
    for id in 0..200 {
        pair.write(0, 0, id, 0..8, 0, None);
    }
    pair.net.run_for(20 * MS);
    let endpoint = &mut pair.net.hosts[0].endpoint;
    let refused = endpoint.stream_stats(pair.connection[0], StreamId(0)).unwrap().refused;
    let rounds = 20 * MS / 20_000;
    assert!(refused < rounds * 200, "{refused} packets in {rounds} round trips");
    pair.net.filter = None;
    all_good(&pair.wait(0, 200));
}

/// A tagged message whose turn has come and whose receive is posted finds a slot, whatever its successors hold.
#[test]
//= MR-STR-7 test
fn tagged_message_whose_successors_fill_the_table_gets_in() {
    let hosts =
        vec![(config(1), HeapStorage::new(&Limits::HOST)), (config(2), HeapStorage::new(&Limits::SMALL))];
    let mut net = Network::new(1, Faults::NONE, hosts);
    let connection = connect(&mut net);
    let region = [0, 1].map(|number| net.hosts[number].register(pattern(REGION, number as u64)));
    let mut pair = Pair { net, connection, region };
    let peer = pair.connection[1];
    for stream in 0..4u16 {
        let inbox = Segment { region: region[1].id, offset: u64::from(stream) * 8, length: 8 };
        let entry = TagEntry { bits: 5, mask: u64::MAX };
        let endpoint = &mut pair.net.hosts[1].endpoint;
        endpoint.post_tagged_recv(peer, StreamId(stream), u64::from(stream), entry, &[inbox]).unwrap();
    }
    pair.net.run_for(MS);
    let lossy = Rc::new(RefCell::new(true));
    let shared = Rc::clone(&lossy);
    pair.net.filter =
        Some(Box::new(move |from, transmit| from == 0 && *shared.borrow() && is(transmit, Opcode::Send, 0)));
    let tagged = Operation::SendTagged { bits: 5, immediate: None };
    for stream in 0..4 {
        pair.post(0, stream, WorkRequest { inline: b"tagged", ..WorkRequest::new(0, tagged, &[]) });
        for id in 1..50 {
            pair.write(0, stream, id, 0..8, 0, None);
        }
    }
    pair.net.run_for(5 * MS);
    *lossy.borrow_mut() = false;
    all_good(&pair.wait(0, 200));
    let mut received = ids(&pair.wait(1, 4));
    received.sort_unstable();
    assert_eq!(received, [0, 1, 2, 3]);
}

/// Pitfall 19.
#[test]
//= MR-STR-11 test
fn receive_posted_to_a_starved_sender_is_told_within_a_round_trip() {
    let mut pair = Pair::configured(20, Faults::NONE, |config| {
        config.initial_credits = 1;
        config.pto_ns_min = 100 * MS;
        config.rto_ns_min = 200 * MS;
    });
    pair.receive(1, 0, 0, 0..100);
    pair.send(0, 0, 0, 0..100);
    all_good(&pair.wait(0, 1));
    pair.send(0, 0, 1, 0..100);
    pair.net.run_for(50 * MS);
    let start = pair.net.now();
    pair.receive(1, 0, 1, 0..100);
    pair.wait(1, 2);
    let took = pair.net.now().since(start);
    assert!(took < 50_000, "{took} ns");
}
