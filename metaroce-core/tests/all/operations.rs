//! WRITE, READ and atomics: bytes, order and number, zero length and many at once.

use std::cell::Cell;
use std::rc::Rc;

use crate::common::pair::*;
use crate::common::*;
use metaroce_conformance::Faults;
use metaroce_core::wire::Opcode;
use metaroce_core::{AtomicOperation, CompletionKind, Operation, Status, WorkRequest};

#[test]
//= MR-OP-2, MR-OP-7 test
fn write_with_immediate_consumes_a_receive_after_all_its_bytes_are_placed() {
    for seed in 0..10 {
        let mut pair = Pair::new(seed, Faults::all(30_000));
        for id in 0..20 {
            pair.receive(1, 0, id, 0..0);
            let start = id as usize * 30_000;
            pair.write(0, 0, id, start..start + 30_000, start, Some(id as u32 + 7));
        }
        let mut seen = 0;
        while seen < 20 {
            for done in pair.wait(1, 1) {
                assert_eq!((done.id, done.kind, done.bytes), (seen, CompletionKind::ReceiveWrite, 30_000));
                assert_eq!(done.immediate, Some(seen as u32 + 7));
                let start = seen as usize * 30_000;
                let want = pair.bytes(0, start..start + 30_000).to_vec();
                assert!(pair.bytes(1, start..start + 30_000) == want, "seed {seed}");
                seen += 1;
            }
        }
        assert_eq!(ids(&pair.wait(0, 20)), (0..20).collect::<Vec<_>>());
    }
}

#[test]
//= MR-OP-16 test
fn zero_length_write_read_and_write_with_immediate_complete_in_order() {
    let mut pair = Pair::new(1, Faults::all(20_000));
    pair.receive(1, 0, 50, 0..0);
    pair.write(0, 0, 1, 0..0, 0, None);
    pair.read(0, 0, 2, 0..0, 0);
    pair.write(0, 0, 3, 0..0, 0, Some(9));
    pair.read(0, 0, 4, 0..0, REGION);
    pair.write(0, 0, 5, 0..0, REGION, None);
    let done = pair.wait(0, 5);
    assert_eq!(ids(&done), [1, 2, 3, 4, 5]);
    all_good(&done);
    let received = pair.wait(1, 1);
    assert_eq!((received[0].id, received[0].bytes, received[0].immediate), (50, 0, Some(9)));
    assert_eq!(pair.bytes(0, 0..1_000), pattern(1_000, 1));
    assert_eq!(pair.bytes(1, 0..1_000), pattern(1_000, 2));
}

#[test]
//= MR-OP-17 test
fn zero_length_read_and_write_do_not_look_at_the_key() {
    let mut pair = Pair::new(2, Faults::NONE);
    let remote = metaroce_core::RemoteAddress { key: metaroce_core::RegionKey(0xdead_beef), address: 5 };
    pair.post(0, 0, WorkRequest::new(1, Operation::Write { remote, immediate: None }, &[]));
    pair.post(0, 0, WorkRequest::new(2, Operation::Read { remote }, &[]));
    let done = pair.wait(0, 2);
    assert_eq!(outcome(&done), [(1, Status::Success), (2, Status::Success)]);
}

#[test]
fn read_brings_megabytes_intact_under_all_faults() {
    for seed in 0..3 {
        let mut pair = Pair::new(seed, Faults::all(20_000));
        pair.read(0, 0, 1, 0..(3 << 20), 1 << 20);
        let done = pair.wait(0, 1);
        assert_eq!(
            (done[0].kind, done[0].status, done[0].bytes),
            (CompletionKind::Read, Status::Success, 3 << 20)
        );
        assert!(pair.bytes(0, 0..3 << 20) == pair.bytes(1, 1 << 20..4 << 20), "seed {seed}");
    }
}

#[test]
fn reads_of_both_hosts_larger_than_the_window_run_at_the_same_time() {
    let mut pair = Pair::configured(4, Faults::NONE, |config| config.window_bytes_max = 64 << 10);
    for id in 0..8 {
        let start = id as usize * 100_000;
        pair.read(0, 0, id, start..start + 100_000, 4 << 20);
        pair.read(1, 1, id, start..start + 100_000, 4 << 20);
    }
    assert_eq!(ids(&pair.wait(0, 8)), (0..8).collect::<Vec<_>>());
    assert_eq!(ids(&pair.wait(1, 8)), (0..8).collect::<Vec<_>>());
    for host in 0..2 {
        let want = pair.bytes(1 - host, 4 << 20..(4 << 20) + 100_000).to_vec();
        for id in 0..8 {
            assert!(pair.bytes(host, id * 100_000..(id + 1) * 100_000) == want);
        }
    }
}

#[test]
//= MR-OP-14, MR-STR-29 test
fn more_reads_than_the_peer_grants_wait_their_turn_on_every_stream() {
    for faults in [Faults::NONE, Faults::all(20_000)] {
        let mut pair = Pair::configured(5, faults, |config| config.reads_granted = 3);
        for stream in 0..6 {
            for id in 0..20 {
                let start = (stream as usize * 20 + id as usize) * 5_000;
                pair.read(0, stream, id, start..start + 5_000, start);
            }
        }
        let done = pair.wait(0, 120);
        all_good(&done);
        for stream in 0..6 {
            let of_stream: Vec<_> = done.iter().filter(|done| done.stream.0 == stream).copied().collect();
            assert_eq!(ids(&of_stream), (0..20).collect::<Vec<_>>());
        }
        assert!(pair.bytes(0, 0..600_000) == pair.bytes(1, 0..600_000));
    }
}

#[test]
//= MR-OP-8 test
fn read_sees_the_writes_before_it_in_its_stream() {
    let mut pair = Pair::new(6, Faults::all(50_000));
    for round in 0..30 {
        pair.write(0, 0, round * 2, round as usize..round as usize + 8_000, 0, None);
        let to = 100_000 + round as usize * 8_000;
        pair.read(0, 0, round * 2 + 1, to..to + 8_000, 0);
        all_good(&pair.wait(0, 2));
        let want = pair.bytes(0, round as usize..round as usize + 8_000).to_vec();
        assert!(pair.bytes(0, to..to + 8_000) == want);
    }
}

#[test]
fn read_waits_at_the_target_for_a_send_that_is_late() {
    let mut pair = Pair::new(7, Faults::NONE);
    pair.receive(1, 0, 1, 0..4_000);
    let held = Rc::new(Cell::new(true));
    let flag = Rc::clone(&held);
    pair.net.filter =
        Some(Box::new(move |from, transmit| from == 0 && flag.get() && is(transmit, Opcode::Send, 0)));
    pair.send(0, 0, 1, 10_000..14_000);
    pair.read(0, 0, 2, 20_000..24_000, 0);
    pair.net.run_for(2 * MS);
    assert!(pair.completions(0).is_empty());
    held.set(false);
    assert_eq!(ids(&pair.wait(0, 2)), [1, 2]);
    assert_eq!(pair.bytes(0, 20_000..24_000), pair.bytes(0, 10_000..14_000).to_vec());
}

fn all_atomics() -> [AtomicOperation; 9] {
    use AtomicOperation::{And, CompareSwap, FetchAdd, Max, Min, Or, Swap, Xor};
    [
        FetchAdd(u64::MAX),
        CompareSwap { compare: 99, swap: 5 },
        CompareSwap { compare: 5, swap: 77 },
        Swap(0xff00_ff00_1234_5678),
        Min(1 << 40),
        Max(3),
        And(0xffff_0f0f),
        Or(0xf0_0000_0000),
        Xor(u64::MAX),
    ]
}

#[test]
//= MR-OP-12 test
fn every_atomic_returns_the_value_before_it_and_runs_once_under_duplication() {
    for seed in 0..20 {
        let faults = Faults {
            duplication: 500_000,
            loss: 50_000,
            reordering: 200_000,
            reorder_ns: 300_000,
            ..Faults::NONE
        };
        let mut pair = Pair::new(seed, faults);
        pair.set_word(1, 64, 100);
        let mut model = 100;
        let mut want = Vec::new();
        for (id, operation) in all_atomics().into_iter().cycle().take(60).enumerate() {
            pair.atomic(0, 0, id as u64, 1_000 + id * 8, 64, operation);
            want.push(model);
            model = operation.apply(model);
        }
        let done = pair.wait(0, 60);
        all_good(&done);
        let got: Vec<u64> = (0..60).map(|id| pair.word(0, 1_000 + id * 8)).collect();
        assert_eq!(got, want, "seed {seed}");
        pair.net.run_for(10 * MS);
        assert_eq!(pair.word(1, 64), model, "seed {seed}");
        assert!(done.iter().all(|done| (done.kind, done.bytes) == (CompletionKind::Atomic, 8)));
    }
}

#[test]
fn fetch_adds_of_many_streams_add_up() {
    let mut pair = Pair::configured(8, Faults::all(50_000), |config| config.reads_granted = 5);
    pair.set_word(1, 0, 0);
    for stream in 0..10 {
        for id in 0..20 {
            pair.atomic(
                0,
                stream,
                id,
                8_000 + (stream as usize * 20 + id as usize) * 8,
                0,
                AtomicOperation::FetchAdd(1),
            );
        }
    }
    all_good(&pair.wait(0, 200));
    assert_eq!(pair.word(1, 0), 200);
    let mut seen: Vec<u64> = (0..200).map(|at| pair.word(0, 8_000 + at * 8)).collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..200).collect::<Vec<_>>(), "each got a value of its own");
}

#[test]
//= MR-OP-15 test
fn fence_starts_a_send_only_after_the_reads_before_it() {
    let mut pair = Pair::new(9, Faults::NONE);
    pair.receive(1, 0, 0, 0..4_000);
    // The response is lost for a while: the SEND must not go.
    let held = Rc::new(Cell::new(true));
    let flag = Rc::clone(&held);
    let sent = Rc::new(Cell::new(0));
    let count = Rc::clone(&sent);
    pair.net.filter = Some(Box::new(move |from, transmit| {
        if from == 0 && data_of(transmit).is_some_and(|header| header.opcode == Opcode::Send) {
            count.set(count.get() + 1);
        }
        from == 1
            && flag.get()
            && data_of(transmit).is_some_and(|header| header.opcode == Opcode::ReadResponse)
    }));
    pair.read(0, 0, 1, 100_000..104_000, 200_000);
    let segments = [pair.segment(0, 100_000..104_000)];
    let fenced =
        WorkRequest { fence: true, ..WorkRequest::new(2, Operation::Send { immediate: None }, &segments) };
    pair.post(0, 0, fenced);
    pair.net.run_for(5 * MS);
    assert_eq!(sent.get(), 0);
    held.set(false);
    assert_eq!(ids(&pair.wait(0, 2)), [1, 2]);
    all_good(&pair.wait(1, 1));
    assert_eq!(
        pair.bytes(1, 0..4_000),
        pair.bytes(1, 200_000..204_000).to_vec(),
        "the SEND carries what was read"
    );
}

#[test]
//= MR-OP-18 test
fn gather_and_scatter_over_four_segments_keep_the_bytes_in_order() {
    for seed in 0..5 {
        let mut pair = Pair::new(seed, Faults::all(20_000));
        let gathered = [3..1_003, 5_000..5_001, 9_000..9_000, 20_000..50_000];
        let scattered = [600_000..600_007, 610_000..625_000, 630_000..630_000, 640_000..660_000];
        let from = gathered.clone().map(|range| pair.segment(0, range));
        let to = scattered.clone().map(|range| pair.segment(1, range));
        let connection = pair.connection[1];
        pair.net.hosts[1].endpoint.post_recv(connection, S0, 1, &to).unwrap();
        pair.post(0, 0, WorkRequest::new(1, Operation::Send { immediate: None }, &from));
        let received = pair.wait(1, 1);
        assert_eq!(received[0].bytes, 31_001);
        let sent: Vec<u8> = gathered.iter().flat_map(|range| pair.bytes(0, range.clone()).to_vec()).collect();
        let mut landed: Vec<u8> =
            scattered.iter().flat_map(|range| pair.bytes(1, range.clone()).to_vec()).collect();
        landed.truncate(31_001);
        assert!(sent == landed, "SEND, seed {seed}");
        // And a READ that scatters.
        let to = scattered.clone().map(|range| pair.segment(0, range));
        let remote = pair.remote(0, 1 << 20);
        pair.post(0, 0, WorkRequest::new(2, Operation::Read { remote }, &to));
        all_good(&pair.wait(0, 2));
        let landed: Vec<u8> =
            scattered.iter().flat_map(|range| pair.bytes(0, range.clone()).to_vec()).collect();
        assert!(landed == pair.bytes(1, 1 << 20..(1 << 20) + 35_007), "READ, seed {seed}");
    }
}

#[test]
//= MR-DLV-3, MR-DLV-4 test
fn late_duplicates_never_touch_memory_after_completion() {
    for seed in 0..10 {
        let faults = Faults {
            duplication: 1_000_000,
            reordering: 300_000,
            reorder_ns: 40 * MS,
            loss: 20_000,
            ..Faults::NONE
        };
        let mut pair = Pair::new(seed, faults);
        pair.receive(1, 0, 1, 0..50_000);
        pair.send(0, 0, 1, 0..50_000);
        pair.write(0, 2, 2, 0..50_000, 100_000, None);
        pair.read(0, 4, 3, 200_000..250_000, 300_000);
        all_good(&pair.wait(0, 3));
        all_good(&pair.wait(1, 1));
        pair.bytes_mut(1, 0..150_000).fill(0x5a);
        pair.bytes_mut(0, 200_000..250_000).fill(0x5b);
        pair.net.run_for(200 * MS);
        assert!(pair.bytes(1, 0..150_000).iter().all(|&byte| byte == 0x5a), "seed {seed}");
        assert!(pair.bytes(0, 200_000..250_000).iter().all(|&byte| byte == 0x5b), "seed {seed}");
    }
}

#[test]
//= MR-OP-9 test
fn responses_that_find_no_window_go_later() {
    for seed in 0..5 {
        let mut pair = Pair::configured(seed, Faults::NONE, |config| config.window_bytes_max = 9_000);
        for id in 0..60 {
            pair.read(0, 0, id, id as usize * 1_000..(id as usize + 1) * 1_000, 0);
            pair.read(1, 1, id, id as usize * 1_000..(id as usize + 1) * 1_000, 500_000);
        }
        all_good(&pair.wait(0, 60));
        all_good(&pair.wait(1, 60));
    }
}
