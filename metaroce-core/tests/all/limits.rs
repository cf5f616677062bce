//! Tables that are full: nothing is lost, and work goes on when there is room.

use crate::common::pair::*;
use crate::common::*;
use metaroce_conformance::{Faults, Network};
use metaroce_core::{
    ConnectOptions, ConnectionHandle, Event, HeapStorage, Limits, Operation, PostError, ProtectionDomain,
    RemoteAddress, Segment, StreamId, WorkRequest,
};

const FEW: Limits = Limits {
    connections: 4,
    paths_per_connection: 4,
    streams: 16,
    requests: 24,
    receives: 12,
    messages: 4,
    packets: 16,
    regions: 4,
    queues: 1,
    csn_window: 64,
};

#[test]
fn full_table_of_requests_is_an_error_and_takes_more_after_completions() {
    let mut pair = Pair::with(1, Faults::all(20_000), &FEW, |_, _| {});
    let segments = [pair.segment(0, 0..10_000)];
    let remote = pair.remote(0, 0);
    let mut done = 0;
    for id in 0..200 {
        let request = WorkRequest::new(id, Operation::Write { remote, immediate: None }, &segments);
        while pair.try_post(0, (id % 3) as u16, request) == Err(PostError::Full) {
            let some = pair.wait(0, 1);
            all_good(&some);
            done += some.len();
        }
    }
    while done < 200 {
        done += pair.wait(0, 1).len();
    }
    assert_eq!(done, 200);
}

#[test]
fn full_table_of_receives_is_an_error_and_takes_more_after_completions() {
    let mut pair = Pair::with(2, Faults::all(20_000), &FEW, |_, _| {});
    let connection = pair.connection[1];
    let mut posted = 0;
    let segments = [pair.segment(1, 0..100)];
    let mut sent = 0;
    let mut received = Vec::new();
    while received.len() < 100 {
        while pair.net.hosts[1].endpoint.post_recv(connection, S0, posted, &segments).is_ok() {
            posted += 1;
        }
        let from = [pair.segment(0, 0..100)];
        while sent < 100
            && pair.try_post(0, 0, WorkRequest::new(sent, Operation::Send { immediate: None }, &from)).is_ok()
        {
            sent += 1;
        }
        pair.net.run_for(MS);
        received.extend(pair.completions(1));
        pair.completions(0);
        assert!(pair.net.now().as_nanos() < 10 * SECOND, "{} received", received.len());
    }
    assert_eq!(ids(&received)[..100], (0..100).collect::<Vec<_>>());
}

#[test]
fn few_messages_packets_and_transmissions_slow_down_and_lose_nothing() {
    for seed in 0..10 {
        let mut pair = Pair::with(seed, Faults::all(30_000), &FEW, |_, _| {});
        for id in 0..16 {
            let at = id as usize * 40_000;
            match id % 3 {
                0 => pair.write(0, id as u16 % 8, id, at..at + 40_000, at, None),
                1 => pair.read(0, id as u16 % 8, id, at..at + 40_000, at),
                _ => {
                    pair.receive(1, id as u16 % 8, id, at..at + 40_000);
                    pair.send(0, id as u16 % 8, id, at..at + 40_000);
                }
            }
        }
        let done = pair.wait(0, 16);
        all_good(&done);
        assert!(pair.bytes(1, 0..640_000) == pair.bytes(0, 0..640_000), "seed {seed}");
    }
}

#[test]
fn reads_both_ways_with_few_requests_do_not_lock_up() {
    for seed in 0..10 {
        let mut pair = Pair::with(seed, Faults::all(20_000), &FEW, |_, _| {});
        let mut left = [60_u64; 2];
        let mut done = [0; 2];
        while done != [60, 60] {
            for (host, left) in left.iter_mut().enumerate() {
                let segments = [pair.segment(host, 0..3_000)];
                let remote = pair.remote(host, 100_000);
                let request = WorkRequest::new(*left, Operation::Read { remote }, &segments);
                while *left > 0 && pair.try_post(host, (*left % 4) as u16, request).is_ok() {
                    *left -= 1;
                }
            }
            pair.net.run_for(MS);
            for (host, done) in done.iter_mut().enumerate() {
                let some = pair.completions(host);
                all_good(&some);
                *done += some.len();
            }
            assert!(pair.net.now().as_nanos() < 30 * SECOND, "seed {seed}: {done:?}");
        }
    }
}

/// Host 0 with connections to three peers, all of one endpoint's tables.
#[test]
fn connection_that_found_no_packet_free_goes_on_when_another_gives_some_back() {
    for seed in 0..5 {
        let limits = Limits { packets: 32, csn_window: 64, ..FEW };
        let hosts = (0..4).map(|number| (config(seed * 4 + number), HeapStorage::new(&limits)));
        let mut net = Network::new(seed, Faults::NONE, hosts);
        let from = net.hosts[0].register(pattern(2_000_000, 9));
        let keys: Vec<_> = (1..4).map(|host| net.hosts[host].register(vec![0; 2_000_000])).collect();
        let connections: Vec<ConnectionHandle> = (1..4)
            .map(|host| {
                let now = net.now();
                let remote = net.hosts[host].address;
                net.hosts[0].endpoint.connect(now, ConnectOptions::to(remote)).unwrap()
            })
            .collect();
        let now = net.now();
        for (connection, key) in connections.iter().zip(&keys) {
            let segments = [Segment { region: from.id, offset: 0, length: 2_000_000 }];
            let remote = RemoteAddress { key: key.key, address: 0 };
            let request = WorkRequest::new(1, Operation::Write { remote, immediate: None }, &segments);
            net.hosts[0].endpoint.post(now, *connection, StreamId(0), request).unwrap();
        }
        let mut done = Vec::new();
        let finished = net.run_until(2 * SECOND, |net| {
            for host in 1..4 {
                for event in net.hosts[host].take_events() {
                    if let Event::Incoming { connection, .. } = event {
                        let now = net.now();
                        net.hosts[host].endpoint.accept(now, connection, ProtectionDomain(0), b"").unwrap();
                    }
                }
            }
            net.settle();
            done.extend(completions(&net.hosts[0].take_events()));
            done.len() == 3
        });
        assert!(finished, "seed {seed}: {done:?}");
        all_good(&done);
    }
}

#[test]
//= MR-STR-28 test
fn events_that_nobody_takes_stop_posting_and_nothing_is_lost() {
    let mut pair = Pair::with(3, Faults::NONE, &FEW, |_, _| {});
    let segments = [pair.segment(0, 0..100)];
    let remote = pair.remote(0, 0);
    // Straight at the endpoint: nobody polls its events.
    let mut posted = 0;
    for id in 0..1_000 {
        let request = WorkRequest::new(id, Operation::Write { remote, immediate: None }, &segments);
        if pair.try_post(0, 0, request).is_ok() {
            posted += 1;
        }
    }
    assert!((1..1_000).contains(&posted));
    all_good(&pair.wait(0, posted));
}
