//! Two endpoints over a faulty link: what was posted arrives, byte for byte, once, and completes in order.

use crate::common::*;
use metaroce_conformance::{Faults, Network};
use metaroce_core::{CompletionKind, Operation, RemoteAddress, Segment, Storage, WorkRequest};

fn write_and_check<S: Storage>(net: &mut Network<S>, length: usize) {
    let [connection, peer] = connect(net);
    let data = pattern(length, 7);
    let from = net.hosts[0].register(data.clone());
    let to = net.hosts[1].register(vec![0; length]);
    let now = net.now();
    let segments = [Segment { region: from.id, offset: 0, length: length as u32 }];
    let remote = RemoteAddress { key: to.key, address: 0 };
    let request = WorkRequest::new(1, Operation::Write { remote, immediate: None }, &segments);
    net.hosts[0].endpoint.post(now, connection, S0, request).unwrap();
    all_good(&wait(net, 0, 1));
    assert!(net.hosts[1].memory.bytes(to.id) == data, "the bytes are intact");
    let stats = net.hosts[0].endpoint.connection_stats(connection).unwrap();
    eprintln!("{stats:?}\n{:?}", net.traffic);
    let _ = peer;
}

#[test]
fn write_crosses_a_perfect_link_with_no_retransmission() {
    let mut net = network(1, Faults::NONE);
    let [connection, _] = connect(&mut net);
    let data = pattern(1 << 20, 3);
    let from = net.hosts[0].register(data.clone());
    let to = net.hosts[1].register(vec![0; 1 << 20]);
    let now = net.now();
    let segments = [Segment { region: from.id, offset: 0, length: 1 << 20 }];
    let remote = RemoteAddress { key: to.key, address: 0 };
    let request = WorkRequest::new(9, Operation::Write { remote, immediate: None }, &segments);
    net.hosts[0].endpoint.post(now, connection, S0, request).unwrap();
    let done = wait(&mut net, 0, 1);
    all_good(&done);
    assert_eq!((done[0].id, done[0].kind, done[0].bytes), (9, CompletionKind::Write, 1 << 20));
    assert_eq!(net.hosts[1].memory.bytes(to.id), data);
    let stats = net.hosts[0].endpoint.connection_stats(connection).unwrap();
    assert_eq!(
        stats.retransmitted + stats.retransmitted_by_timeout + stats.spurious + stats.lost,
        0,
        "{stats:?}"
    );
}

#[test]
fn write_survives_one_percent_and_ten_percent_loss() {
    for loss in [10_000, 100_000] {
        let mut net = network(2, Faults { loss, ..Faults::NONE });
        write_and_check(&mut net, 4 << 20);
    }
}

#[test]
fn write_survives_everything_at_once() {
    for seed in 0..20 {
        eprintln!("seed {seed}");
        let mut net = network(seed, Faults::all(20_000));
        write_and_check(&mut net, 300_000);
    }
}
