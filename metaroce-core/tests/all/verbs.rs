//! Tagged matching, signals, invalidation, inline data, queues, datagrams, ordered tails, and opening without a
//! connection manager.

use crate::common::*;
use metaroce_conformance::{Faults, Network};
use metaroce_core::{
    Access, Completion, CompletionKind, ConnectOptions, ConnectionHandle, DatagramAddress, DatagramRequest,
    Event, HeapStorage, Operation, ProtectionDomain, QueueOptions, RegionOptions, RegisteredRegion,
    RemoteAddress, Segment, Status, StreamOptions, TagEntry, WorkRequest,
};

type Net = Network<HeapStorage>;

fn post(net: &mut Net, connection: ConnectionHandle, request: WorkRequest<'_>) {
    let now = net.now();
    net.hosts[0].endpoint.post(now, connection, S0, request).unwrap();
}

fn segment(region: RegisteredRegion, offset: u64, length: u32) -> Segment {
    Segment { region: region.id, offset, length }
}

fn send(id: u64) -> WorkRequest<'static> {
    WorkRequest::new(id, Operation::Send { immediate: None }, &[])
}

#[test]
fn inline_data_needs_no_region_and_arrives() {
    let mut net = network(1, Faults::NONE);
    let [connection, peer] = connect(&mut net);
    let to = net.hosts[1].register(vec![0; 64]);
    net.hosts[1].endpoint.post_recv(peer, S0, 5, &[segment(to, 0, 64)]).unwrap();
    post(&mut net, connection, WorkRequest { inline: b"no region at all", ..send(1) });
    let done = wait(&mut net, 1, 1);
    assert_eq!((done[0].id, done[0].bytes), (5, 16));
    assert_eq!(&net.hosts[1].memory.bytes(to.id)[..16], b"no region at all");
    let too_long = [0; 65];
    let now = net.now();
    let request = WorkRequest { inline: &too_long, ..send(2) };
    assert!(net.hosts[0].endpoint.post(now, connection, S0, request).is_err());
}

/// Loses the first copy of the packet with this MSN.
fn lose_first_of(net: &mut Net, msn: u32) {
    let mut lost = false;
    net.filter = Some(Box::new(move |from, transmit| {
        let data = transmit.header().first() == Some(&1);
        let hit = from == 0 && data && transmit.header()[28..32] == msn.to_be_bytes() && !lost;
        lost |= hit;
        hit
    }));
}

#[test]
//= MR-OP-22 test
fn a_signal_waits_for_the_lost_data_before_it_and_needs_no_round_trip() {
    let mut net = network(2, Faults::NONE);
    let [connection, _] = connect(&mut net);
    let from = net.hosts[0].register(pattern(10_000, 1));
    let to = net.hosts[1].register(vec![0; 10_000]);
    let word = net.hosts[1].register(vec![0; 8]);
    lose_first_of(&mut net, 0);
    let remote = RemoteAddress { key: to.key, address: 0 };
    let segments = [segment(from, 0, 9_000)];
    post(&mut net, connection, WorkRequest::new(1, Operation::Write { remote, immediate: None }, &segments));
    let tail = RemoteAddress { key: to.key, address: 9_000 };
    let signal = RemoteAddress { key: word.key, address: 0 };
    let segments = [segment(from, 9_000, 1_000)];
    post(
        &mut net,
        connection,
        WorkRequest::new(2, Operation::WriteSignal { remote: tail, signal, addend: 7 }, &segments),
    );
    let data = pattern(10_000, 1);
    let mut early = 0;
    let done = net.run_until(SECOND, |net| {
        let value = u64::from_ne_bytes(net.hosts[1].memory.bytes(word.id).try_into().unwrap());
        let whole = net.hosts[1].memory.bytes(to.id) == data;
        let tail_is_there = net.hosts[1].memory.bytes(to.id)[9_000..] == data[9_000..];
        early += u32::from(tail_is_there && value == 0);
        assert!(value == 0 || whole, "the signal overtook the data");
        value == 7
    });
    assert!(done);
    assert!(
        early > 0,
        "the data of the second message landed before the lost packet of the first came again"
    );
    all_good(&wait(&mut net, 0, 2));
}

#[test]
fn write_and_signal_take_one_round_trip_in_all() {
    let mut net = network(3, Faults { byte_ps: 0, ..Faults::NONE });
    let [connection, _] = connect(&mut net);
    net.run_for(50 * MS);
    let from = net.hosts[0].register(pattern(4_000, 1));
    let to = net.hosts[1].register(vec![0; 4_008]);
    let start = net.now();
    let remote = RemoteAddress { key: to.key, address: 8 };
    let signal = RemoteAddress { key: to.key, address: 0 };
    for id in 0..10 {
        let segments = [segment(from, 0, 4_000)];
        post(
            &mut net,
            connection,
            WorkRequest::new(id, Operation::WriteSignal { remote, signal, addend: 1 }, &segments),
        );
    }
    all_good(&wait(&mut net, 0, 10));
    let took_ns = net.now().since(start);
    assert!(took_ns < 20_200, "ten writes with signals took {took_ns} ns, a round trip 20,000");
    assert_eq!(net.hosts[1].memory.bytes(to.id)[..8], 10u64.to_ne_bytes());
}

#[test]
//= MR-OP-21, MR-MEM-12 test
fn send_with_invalidate_kills_the_key_when_the_receive_completes() {
    let mut net = network(4, Faults::NONE);
    let [connection, peer] = connect(&mut net);
    let to = net.hosts[1].register(vec![0; 64]);
    let inbox = net.hosts[1].register(vec![0; 8]);
    net.hosts[1].endpoint.post_recv(peer, S0, 1, &[segment(inbox, 0, 8)]).unwrap();
    let write = |key| Operation::Write { remote: RemoteAddress { key, address: 0 }, immediate: None };
    post(&mut net, connection, WorkRequest { inline: b"before", ..WorkRequest::new(1, write(to.key), &[]) });
    post(&mut net, connection, WorkRequest::new(2, Operation::SendInvalidate { key: to.key }, &[]));
    let done = wait(&mut net, 1, 1);
    assert_eq!(done[0].invalidated, Some(to.key));
    assert_eq!(&net.hosts[1].memory.bytes(to.id)[..6], b"before");
    all_good(&wait(&mut net, 0, 2));
    let fresh = net.hosts[1].endpoint.rekey_region(to.id).unwrap();
    post(&mut net, connection, WorkRequest { inline: b"again", ..WorkRequest::new(3, write(fresh), &[]) });
    post(&mut net, connection, WorkRequest { inline: b"dead", ..WorkRequest::new(4, write(to.key), &[]) });
    let done = wait(&mut net, 0, 2);
    assert_eq!((done[0].status, done[1].status), (Status::Success, Status::RemoteAccess));
}

fn tagged(net: &mut Net, connection: ConnectionHandle, id: u64, bits: u64) {
    let request = WorkRequest::new(id, Operation::SendTagged { bits, immediate: None }, &[]);
    post(net, connection, WorkRequest { inline: &id.to_le_bytes(), ..request });
}

fn tagged_receive(
    net: &mut Net,
    peer: ConnectionHandle,
    id: u64,
    bits: u64,
    mask: u64,
    inbox: RegisteredRegion,
) {
    let entry = TagEntry { bits, mask };
    net.hosts[1].endpoint.post_tagged_recv(peer, S0, id, entry, &[segment(inbox, id * 8, 8)]).unwrap();
}

#[test]
//= MR-OP-23 test
fn tagged_sends_match_by_bits_and_mask_first_posted_first() {
    let mut net = network(5, Faults::NONE);
    let [connection, peer] = connect(&mut net);
    let inbox = net.hosts[1].register(vec![0; 80]);
    tagged_receive(&mut net, peer, 0, 0x10, u64::MAX, inbox);
    tagged_receive(&mut net, peer, 1, 0x20, 0xf0, inbox);
    tagged_receive(&mut net, peer, 2, 0x20, 0xf0, inbox);
    tagged(&mut net, connection, 100, 0x21);
    tagged(&mut net, connection, 101, 0x2f);
    tagged(&mut net, connection, 102, 0x10);
    let done = wait(&mut net, 1, 3);
    let seen: Vec<_> = done.iter().map(|end| (end.id, end.tag.unwrap())).collect();
    assert_eq!(seen, [(1, 0x21), (2, 0x2f), (0, 0x10)]);
    assert_eq!(net.hosts[1].memory.bytes(inbox.id)[..8], 102u64.to_le_bytes());
    all_good(&wait(&mut net, 0, 3));
}

#[test]
//= MR-OP-24 test
fn a_later_tagged_send_may_not_take_what_an_earlier_one_waits_for() {
    for seed in 0..30 {
        let mut net =
            network(seed, Faults { reordering: 300_000, reorder_ns: 100_000, ..Faults::all(20_000) });
        let [connection, peer] = connect(&mut net);
        let inbox = net.hosts[1].register(vec![0; 80]);
        tagged(&mut net, connection, 100, 7);
        tagged(&mut net, connection, 101, 7);
        tagged(&mut net, connection, 102, 8);
        net.run_for(5 * MS);
        tagged_receive(&mut net, peer, 0, 8, u64::MAX, inbox);
        tagged_receive(&mut net, peer, 1, 7, u64::MAX, inbox);
        tagged_receive(&mut net, peer, 2, 7, u64::MAX, inbox);
        wait(&mut net, 1, 3);
        let inbox = net.hosts[1].memory.bytes(inbox.id);
        let ids: Vec<u64> =
            inbox.chunks(8).take(3).map(|c| u64::from_le_bytes(c.try_into().unwrap())).collect();
        assert_eq!(ids, [102, 100, 101], "seed {seed}");
    }
}

#[test]
//= MR-STR-33 test
fn streams_share_a_queue_and_what_they_did_not_use_returns_to_it() {
    let mut net = network(6, Faults::all(30_000));
    let [connection, peer] = connect(&mut net);
    let inbox = net.hosts[1].register(vec![0; 1 << 16]);
    let queue = net.hosts[1].endpoint.create_queue(QueueOptions::default()).unwrap();
    let streams: Vec<_> = (0..4).map(|_| net.hosts[0].endpoint.open_stream(connection).unwrap()).collect();
    for stream in &streams {
        let options = StreamOptions { shared_queue: Some(queue), ..StreamOptions::default() };
        net.hosts[1].endpoint.configure_stream(peer, *stream, options).unwrap();
    }
    for id in 0..64 {
        net.hosts[1].endpoint.post_queue_recv(queue, id, &[segment(inbox, id * 8, 8)]).unwrap();
    }
    let now = net.now();
    for id in 0..60u64 {
        let stream = streams[(id % 4) as usize];
        let request = WorkRequest { inline: &id.to_le_bytes(), ..send(id) };
        net.hosts[0].endpoint.post(now, connection, stream, request).unwrap();
    }
    let done = wait(&mut net, 1, 60);
    for stream in &streams {
        let order: Vec<u64> = done
            .iter()
            .filter(|end| end.stream == *stream)
            .map(|end| {
                let at = end.id as usize * 8;
                u64::from_le_bytes(net.hosts[1].memory.bytes(inbox.id)[at..at + 8].try_into().unwrap())
            })
            .collect();
        assert_eq!(order.len(), 15);
        assert!(order.is_sorted(), "{order:?}");
    }
    all_good(&wait(&mut net, 0, 60));
    let now = net.now();
    for stream in &streams {
        net.hosts[1].endpoint.reset_stream(now, peer, *stream).unwrap();
    }
    net.run_for(100 * MS);
    net.hosts[1].endpoint.destroy_queue(queue).unwrap();
    let flushed = net.hosts[1]
        .take_events()
        .iter()
        .filter(|event| matches!(event, Event::DatagramReceived(end) if end.status == Status::Flushed))
        .count();
    net.settle();
    let later = net.hosts[1]
        .take_events()
        .iter()
        .filter(|event| matches!(event, Event::DatagramReceived(end) if end.status == Status::Flushed))
        .count();
    assert_eq!(flushed + later, 4, "the four that no message used");
}

#[test]
//= MR-OP-27 test
fn datagrams_reach_their_queue_with_the_right_key_only() {
    let mut net = network(7, Faults::NONE);
    let [connection, peer] = connect(&mut net);
    let from = net.hosts[0].register(pattern(1_000, 9));
    let inbox = net.hosts[1].register(vec![0; 2_000]);
    let datagrams = Some(DatagramAddress { number: 77, key: 0x1234 });
    let queue =
        net.hosts[1].endpoint.create_queue(QueueOptions { datagrams, ..QueueOptions::default() }).unwrap();
    net.hosts[1].endpoint.post_queue_recv(queue, 1, &[segment(inbox, 0, 1_000)]).unwrap();
    let request = DatagramRequest {
        id: 5,
        source_queue: 3,
        destination_queue: 77,
        key: 0x9999,
        immediate: Some(4),
        segments: &[segment(from, 0, 1_000)],
    };
    net.hosts[0].endpoint.post_datagram(connection, request).unwrap();
    net.hosts[0].endpoint.post_datagram(connection, DatagramRequest { key: 0x1234, ..request }).unwrap();
    net.hosts[0].endpoint.post_datagram(connection, DatagramRequest { key: 0x1234, ..request }).unwrap();
    net.run_for(10 * MS);
    let received: Vec<_> = net.hosts[1]
        .take_events()
        .into_iter()
        .filter_map(|event| match event {
            Event::DatagramReceived(end) => {
                Some((end.id, end.source_queue, end.bytes, end.immediate, end.connection))
            }
            _ => None,
        })
        .collect();
    assert_eq!(received, [(1, 3, 1_000, Some(4), Some(peer))]);
    assert_eq!(net.hosts[1].memory.bytes(inbox.id)[..1_000], pattern(1_000, 9));
    let sent = net.hosts[0].take_events().iter().filter(|e| matches!(e, Event::DatagramSent { .. })).count();
    assert_eq!(sent, 3, "a datagram completes whether or not it is taken");
    let stats = net.hosts[0].endpoint.connection_stats(connection).unwrap();
    assert_eq!((stats.lost, stats.retransmitted + stats.retransmitted_by_timeout), (0, 0));
}

#[test]
//= MR-OP-25 test
fn ordered_tails_land_last_in_their_stream() {
    for seed in 0..20 {
        let mut net =
            network(seed, Faults { reordering: 500_000, reorder_ns: 300_000, ..Faults::all(20_000) });
        let [connection, _] = connect(&mut net);
        let options = RegionOptions {
            length: 50_000,
            base_address: 0,
            access: Access::ALL.and(Access::ORDERED_TAILS),
            domain: ProtectionDomain(0),
        };
        let to = net.hosts[1].endpoint.register_region(options).unwrap();
        net.hosts[1].memory.attach(to.id, vec![0; 50_000]);
        let data = vec![0xaa; 50_000];
        let from = net.hosts[0].register(data.clone());
        for (number, (start, length)) in [(0, 20_001), (20_001, 17), (20_018, 29_982)].into_iter().enumerate()
        {
            let remote = RemoteAddress { key: to.key, address: start };
            let segments = [segment(from, start, length)];
            let request =
                WorkRequest::new(number as u64, Operation::Write { remote, immediate: None }, &segments);
            post(&mut net, connection, request);
        }
        let done = net.run_until(10 * SECOND, |net| {
            let bytes = net.hosts[1].memory.bytes(to.id);
            for (last, start) in [(20_000, 0), (20_017, 0), (49_999, 0)] {
                assert!(
                    bytes[last] == 0 || bytes[start..=last].iter().all(|b| *b == 0xaa),
                    "seed {seed}: {last}"
                );
            }
            bytes[49_999] != 0
        });
        assert!(done, "seed {seed}");
        all_good(&wait(&mut net, 0, 3));
    }
}

/// Runs until both hosts have said `Connected`; host 1 accepts what comes.
fn until_connected(net: &mut Net) -> [Vec<ConnectionHandle>; 2] {
    let mut open = [Vec::new(), Vec::new()];
    let done = net.run_until(30 * SECOND, |net| {
        let now = net.now();
        for (number, open) in open.iter_mut().enumerate() {
            for event in net.hosts[number].take_events() {
                match event {
                    Event::Incoming { connection, .. } => {
                        // Fails where opening it has accepted it.
                        let _ = net.hosts[number].endpoint.accept(now, connection, ProtectionDomain(0), b"");
                    }
                    Event::Connected { connection } => open.push(connection),
                    Event::Completion(Completion { status, .. }) => assert_eq!(status, Status::Success),
                    _ => {}
                }
            }
        }
        net.settle();
        open.iter().all(|open| !open.is_empty())
    });
    assert!(done);
    net.run_for(100 * MS);
    open
}

#[test]
//= MR-HS-26, MR-HS-27 test
fn two_implicit_opens_that_cross_give_one_connection() {
    for seed in 0..20 {
        let mut net = network(seed, Faults::all(50_000));
        let now = net.now();
        let [zero, one] = [net.hosts[0].address, net.hosts[1].address];
        let implicit = |remote| ConnectOptions { implicit: true, service: 9, ..ConnectOptions::to(remote) };
        let first = net.hosts[0].endpoint.connect(now, implicit(one)).unwrap();
        if seed % 2 == 0 {
            net.run_for(seed * 3_000);
        }
        let now = net.now();
        let second = net.hosts[1].endpoint.connect(now, implicit(zero)).unwrap();
        let to = net.hosts[1].register(vec![0; 16]);
        let write = Operation::Write { remote: RemoteAddress { key: to.key, address: 0 }, immediate: None };
        let request = WorkRequest { inline: b"posted at once", ..WorkRequest::new(1, write, &[]) };
        net.hosts[0].endpoint.post(now, first, S0, request).unwrap();
        let open = until_connected(&mut net);
        assert_eq!(open[0], [first], "seed {seed}");
        assert_eq!(open[1].len(), 1, "seed {seed}");
        let now = net.now();
        let again = net.hosts[1].endpoint.connect(now, implicit(zero));
        assert_eq!(again.unwrap(), open[1][0], "seed {seed}: the one that is there");
        let done =
            net.run_until(5 * SECOND, |net| net.hosts[1].memory.bytes(to.id)[..14] == *b"posted at once");
        assert!(done, "seed {seed} {second:?}");
    }
}

#[test]
//= MR-HS-28 test
fn an_endpoint_connects_to_itself() {
    let mut net = network(1, Faults::all(20_000));
    let now = net.now();
    let own = net.hosts[0].address;
    for implicit in [false, true] {
        let options = ConnectOptions { implicit, service: 3, ..ConnectOptions::to(own) };
        let connection = net.hosts[0].endpoint.connect(now, options).unwrap();
        let to = net.hosts[0].register(vec![0; 16]);
        let write = Operation::Write { remote: RemoteAddress { key: to.key, address: 0 }, immediate: None };
        let mut both = Vec::new();
        let done = net.run_until(10 * SECOND, |net| {
            let now = net.now();
            for event in net.hosts[0].take_events() {
                match event {
                    Event::Incoming { connection, .. } => {
                        net.hosts[0].endpoint.accept(now, connection, ProtectionDomain(0), b"").unwrap();
                    }
                    Event::Connected { connection } => both.push(connection),
                    _ => {}
                }
            }
            both.len() == 2
        });
        assert!(done && both.contains(&connection));
        let request = WorkRequest { inline: b"self", ..WorkRequest::new(1, write, &[]) };
        post(&mut net, connection, request);
        let done = wait(&mut net, 0, 1);
        assert_eq!((done[0].kind, done[0].status), (CompletionKind::Write, Status::Success));
        assert_eq!(&net.hosts[0].memory.bytes(to.id)[..4], b"self");
    }
}

#[test]
//= MR-HS-30 test
fn a_peer_that_is_not_there_yet_is_retried() {
    let mut net = network(8, Faults::NONE);
    net.filter = Some(Box::new(|from, _| from == 0));
    let now = net.now();
    let remote = net.hosts[1].address;
    let options = ConnectOptions { implicit: true, ..ConnectOptions::to(remote) };
    net.hosts[0].endpoint.connect(now, options).unwrap();
    net.run_for(3 * SECOND);
    net.filter = None;
    let open = until_connected(&mut net);
    assert_eq!((open[0].len(), open[1].len()), (1, 1));
}

#[test]
fn an_idle_connection_closes_when_asked_to() {
    let mut net = network_with(9, Faults::NONE, |config| config.idle_close_ns = Some(50 * MS));
    connect(&mut net);
    net.run_for(SECOND);
    for host in &mut net.hosts {
        assert!(host.take_events().iter().any(|event| matches!(event, Event::Closed { .. })));
    }
}
