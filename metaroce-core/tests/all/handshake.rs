//! Opening a connection: refused, repeated, reordered, lost, forged, and never more bytes out than came in.

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;

use crate::common::pair::*;
use crate::common::*;
use metaroce_conformance::{Faults, Network};
use metaroce_core::time::Instant;
use metaroce_core::wire::{Base, Control, PacketType, RejectReason};
use metaroce_core::{
    CloseReason, Config, ConnectOptions, ConnectionHandle, Endpoint, Event, HeapStorage, IdPrefix, Limits,
    Progress, ProtectionDomain, Transmit,
};

fn start(net: &mut Network<HeapStorage>, private_data: &[u8]) -> ConnectionHandle {
    let options = ConnectOptions { private_data, service: 42, ..ConnectOptions::to(net.hosts[1].address) };
    let now = net.now();
    net.hosts[0].endpoint.connect(now, options).unwrap()
}

fn incoming(net: &mut Network<HeapStorage>) -> ConnectionHandle {
    let mut found = None;
    let done = net.run_until(10 * SECOND, |net| {
        for event in net.hosts[1].take_events() {
            if let Event::Incoming { connection, service, .. } = event {
                assert_eq!(service, 42);
                assert_eq!(found.replace(connection), None, "one connection is one event");
            }
        }
        found.is_some()
    });
    assert!(done);
    found.unwrap()
}

fn closed(net: &mut Network<HeapStorage>, host: usize) -> CloseReason {
    let mut why = None;
    let done = net.run_until(60 * SECOND, |net| {
        for event in net.hosts[host].take_events() {
            if let Event::Closed { reason, .. } = event {
                assert_eq!(why.replace(reason), None);
            }
        }
        why.is_some()
    });
    assert!(done);
    why.unwrap()
}

#[test]
//= MR-HS-13 test
fn reject_carries_reason_and_private_data_also_when_it_is_lost_at_first() {
    for lost in 0..4 {
        let mut net = network(1, Faults::NONE);
        let mut left = lost;
        net.filter = Some(Box::new(move |_, transmit| {
            let hit = control_of(transmit) == REJECT && left > 0;
            left -= i32::from(hit);
            hit
        }));
        let data: Vec<u8> = (0..=255).collect();
        let ours = start(&mut net, &data);
        let theirs = incoming(&mut net);
        assert_eq!(net.hosts[1].endpoint.private_data(theirs).unwrap(), data);
        let now = net.now();
        net.hosts[1].endpoint.reject(now, theirs, RejectReason::Application(0x123), b"not today").unwrap();
        assert_eq!(
            closed(&mut net, 0),
            CloseReason::Rejected(RejectReason::Application(0x123)),
            "{lost} lost"
        );
        assert_eq!(net.hosts[0].endpoint.private_data(ours).unwrap(), b"not today");
    }
}

#[test]
fn connection_opens_once_under_every_fault() {
    for seed in 0..200 {
        let mut net = network(seed, Faults::all(200_000));
        connect(&mut net);
        net.run_for(300 * MS);
        for host in 0..2 {
            assert_eq!(net.hosts[host].take_events(), [], "seed {seed}: nothing opens twice");
        }
    }
}

#[test]
//= MR-HS-10 test
fn each_handshake_message_may_be_lost_a_few_times() {
    for lost in [CONNECT, ACCEPT, CONFIRM] {
        for times in 1..5 {
            let mut net = network(2, Faults::NONE);
            let mut left = times;
            net.filter = Some(Box::new(move |_, transmit| {
                let hit = control_of(transmit) == lost && left > 0;
                left -= i32::from(hit);
                hit
            }));
            connect(&mut net);
        }
    }
}

#[test]
//= MR-HS-14 test
fn acceptor_learns_that_it_is_open_when_all_confirms_are_lost() {
    let mut net = network(3, Faults::NONE);
    net.filter = Some(Box::new(|_, transmit| control_of(transmit) == CONFIRM));
    connect(&mut net);
}

#[test]
//= MR-HS-23 test
fn silent_host_times_out() {
    let mut net = network_with(4, Faults::NONE, |config| config.fail_after_ns = SECOND);
    let nobody = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 99)), 4795);
    let now = net.now();
    net.hosts[0].endpoint.connect(now, ConnectOptions::to(nobody)).unwrap();
    assert_eq!(closed(&mut net, 0), CloseReason::TimedOut);
    assert!(net.now().as_nanos() < 2 * SECOND);
}

#[test]
//= MR-HS-22 test
fn application_that_never_answers_ends_the_attempt_at_both_sides() {
    let mut net = network_with(5, Faults::NONE, |config| config.fail_after_ns = SECOND);
    start(&mut net, b"");
    incoming(&mut net);
    assert_eq!(closed(&mut net, 1), CloseReason::TimedOut);
    assert!(matches!(closed(&mut net, 0), CloseReason::TimedOut | CloseReason::Rejected(_)));
}

#[test]
fn connection_given_up_before_the_answer_is_refused_at_the_acceptor() {
    let mut net = network_with(6, Faults::NONE, |config| config.fail_after_ns = 2 * SECOND);
    let ours = start(&mut net, b"");
    let theirs = incoming(&mut net);
    let now = net.now();
    net.hosts[0].endpoint.close(now, ours, metaroce_core::CloseMode::Flush).unwrap();
    assert_eq!(closed(&mut net, 0), CloseReason::Local);
    let now = net.now();
    net.hosts[1].endpoint.accept(now, theirs, ProtectionDomain(0), b"").unwrap();
    closed(&mut net, 1);
}

#[test]
fn acceptor_that_posts_at_once_sends_when_the_connector_is_heard_of() {
    for seed in 0..20 {
        let mut net = network(seed, Faults::all(50_000));
        start(&mut net, b"");
        let theirs = incoming(&mut net);
        let now = net.now();
        net.hosts[1].endpoint.accept(now, theirs, ProtectionDomain(0), b"").unwrap();
        let region = net.hosts[1].register(vec![7; 100_000]);
        let segments = [metaroce_core::Segment { region: region.id, offset: 0, length: 100_000 }];
        let operation = metaroce_core::Operation::Send { immediate: None };
        let request = metaroce_core::WorkRequest::new(1, operation, &segments);
        net.hosts[1].endpoint.post(now, theirs, S0, request).unwrap();
        let target = net.hosts[0].register(vec![0; 100_000]);
        let mut ours = None;
        net.run_until(SECOND, |net| {
            for event in net.hosts[0].take_events() {
                if let Event::Connected { connection } = event {
                    ours = Some(connection);
                }
            }
            ours.is_some()
        });
        let segments = [metaroce_core::Segment { region: target.id, offset: 0, length: 100_000 }];
        net.hosts[0].endpoint.post_recv(ours.unwrap(), S0, 1, &segments).unwrap();
        all_good(&wait(&mut net, 1, 1));
        assert_eq!(net.hosts[0].memory.bytes(target.id), vec![7; 100_000]);
    }
}

/// Bytes that host 0 sent and that host 1 sent, UDP payload.
fn count_bytes(
    net: &mut Network<HeapStorage>,
    lose: impl Fn(usize, &Transmit) -> bool + 'static,
) -> Rc<[Cell<usize>; 2]> {
    let counts = Rc::new([Cell::new(0), Cell::new(0)]);
    let shared = Rc::clone(&counts);
    net.filter = Some(Box::new(move |from, transmit| {
        shared[from].set(shared[from].get() + transmit.datagram_length());
        lose(from, transmit)
    }));
    counts
}

#[test]
//= MR-HS-21 test
fn unverified_address_never_gets_more_bytes_than_came_from_it() {
    for accepts in [false, true] {
        let mut net = network_with(7, Faults::NONE, |config| config.fail_after_ns = 3 * SECOND);
        // One CONNECT arrives; its sender, a victim, never says anything more.
        let first = Cell::new(true);
        let counts = count_bytes(&mut net, move |from, _| from == 1 || !first.replace(false));
        start(&mut net, b"");
        let theirs = incoming(&mut net);
        let came = 640;
        if accepts {
            let now = net.now();
            net.hosts[1].endpoint.accept(now, theirs, ProtectionDomain(0), &[1; 256]).unwrap();
            let region = net.hosts[1].register(vec![0; 100_000]);
            let segments = [metaroce_core::Segment { region: region.id, offset: 0, length: 100_000 }];
            let operation = metaroce_core::Operation::Send { immediate: None };
            let request = metaroce_core::WorkRequest::new(1, operation, &segments);
            net.hosts[1].endpoint.post(now, theirs, S0, request).unwrap();
        } else {
            let now = net.now();
            net.hosts[1].endpoint.reject(now, theirs, RejectReason::Application(0x123), &[1; 256]).unwrap();
        }
        net.run_for(20 * SECOND);
        assert!(counts[1].get() <= came, "accepts {accepts}: {} bytes out, {came} in", counts[1].get());
    }
}

/// Fuzzing found this: connections that open bring news of the start allowance, and the ACK that carries it went to all.
#[test]
//= MR-HS-21 test
fn news_of_the_start_allowance_does_not_go_to_an_unverified_address() {
    let mut net = network(7, Faults::NONE);
    let victim: Rc<Cell<Option<u32>>> = Rc::default();
    let told = Rc::new(Cell::new(0));
    let (id, count) = (Rc::clone(&victim), Rc::clone(&told));
    net.filter = Some(Box::new(move |from, transmit| {
        let (base, body) = Base::parse(transmit.header()).unwrap();
        if let (0, Ok((Control::Connect(connect), _))) = (from, Control::parse(body)) {
            // The first comes in, and whoever sent it says nothing more.
            let first = id.get().is_none();
            id.set(id.get().or(Some(connect.connection.0)));
            return !first && id.get() == Some(connect.connection.0);
        }
        let to_victim = from == 1 && id.get() == Some(base.connection.0);
        count.set(count.get() + usize::from(to_victim && base.kind != PacketType::Control));
        to_victim
    }));
    start(&mut net, b"");
    let theirs = incoming(&mut net);
    let now = net.now();
    net.hosts[1].endpoint.accept(now, theirs, ProtectionDomain(0), b"").unwrap();
    for _ in 0..6 {
        connect(&mut net);
    }
    net.run_for(SECOND / 2);
    assert_eq!(told.get(), 0, "packets besides CONTROL to an address that is not verified");
}

/// Random and truncated packets, and real ones to unknown ids.
#[test]
//= MR-HS-2, MR-CLS-13 test
fn no_answer_to_a_stranger_is_larger_than_what_it_answers() {
    let mut net = network(8, Faults::NONE);
    connect(&mut net);
    // Everything that is sent is remembered.
    let headers: Rc<RefCell<Vec<Vec<u8>>>> = Rc::default();
    let shared = Rc::clone(&headers);
    net.filter = Some(Box::new(move |_, transmit| {
        let mut bytes = transmit.header().to_vec();
        bytes.resize(transmit.datagram_length(), 0);
        shared.borrow_mut().push(bytes);
        false
    }));
    start(&mut net, b"");
    net.run_for(6 * SECOND);
    let stranger = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 9, 9, 9)), 4795);
    let packets = headers.borrow().clone();
    assert!(packets.iter().any(|bytes| kind_of_bytes(bytes) == PacketType::Probe));
    let mut fresh = network_with(9, Faults::NONE, |config| config.checksum_wanted = false);
    for packet in packets {
        for length in [packet.len(), 48, 44, 36, 20] {
            let bytes = &packet[..length.min(packet.len())];
            let answered = Rc::new(Cell::new(0));
            let count = Rc::clone(&answered);
            fresh.filter = Some(Box::new(move |_, transmit| {
                count.set(count.get() + transmit.datagram_length());
                true
            }));
            let _ = fresh.inject(1, stranger, bytes);
            fresh.settle();
            assert!(answered.get() <= bytes.len(), "{} for {}", answered.get(), bytes.len());
        }
    }
}

fn kind_of_bytes(bytes: &[u8]) -> PacketType {
    metaroce_core::wire::Base::parse(bytes).unwrap().0.kind
}

#[test]
//= MR-HS-18, MR-HS-20 test
fn half_open_load_brings_cookies_and_those_who_return_them_get_in() {
    let limits = Limits { connections: 8, ..Limits::HOST };
    let hosts = (0..2).map(|number| (config(number), HeapStorage::new(&limits)));
    let mut net = Network::new(10, Faults::NONE, hosts);
    let retries = Rc::new(Cell::new(0));
    let count = Rc::clone(&retries);
    net.filter = Some(Box::new(move |_, transmit| {
        count.set(count.get() + u32::from(control_of(transmit) == RETRY));
        false
    }));
    // Nobody answers these for a while.
    for _ in 0..7 {
        start(&mut net, b"");
    }
    net.run_for(50 * MS);
    assert!(retries.get() > 0, "RETRY under load");
    let mut open = 0;
    let done = net.run_until(10 * SECOND, |net| {
        for event in net.hosts[1].take_events() {
            if let Event::Incoming { connection, .. } = event {
                let now = net.now();
                net.hosts[1].endpoint.accept(now, connection, ProtectionDomain(0), b"").unwrap();
            }
        }
        net.settle();
        for event in net.hosts[0].take_events() {
            open += u32::from(matches!(event, Event::Connected { .. }));
        }
        open == 7
    });
    assert!(done, "{open} of 7 are open");
}

#[test]
fn full_table_refuses_with_a_reason() {
    let limits = Limits { connections: 1, ..Limits::HOST };
    let mut hosts = vec![(config(0), HeapStorage::new(&Limits::HOST))];
    hosts.push((config(1), HeapStorage::new(&limits)));
    let mut net = Network::new(11, Faults::NONE, hosts);
    connect(&mut net);
    start(&mut net, b"");
    assert_eq!(closed(&mut net, 0), CloseReason::Rejected(RejectReason::Limits));
}

#[test]
//= MR-HS-29 test
fn two_hosts_that_connect_to_each_other_at_once_get_two_connections() {
    for seed in 0..20 {
        let mut net = network(seed, Faults::all(50_000));
        let now = net.now();
        for host in 0..2 {
            let remote = net.hosts[1 - host].address;
            net.hosts[host].endpoint.connect(now, ConnectOptions::to(remote)).unwrap();
        }
        let mut open = [0; 2];
        let done = net.run_until(10 * SECOND, |net| {
            for (host, open) in open.iter_mut().enumerate() {
                for event in net.hosts[host].take_events() {
                    if let Event::Incoming { connection, .. } = event {
                        let now = net.now();
                        net.hosts[host].endpoint.accept(now, connection, ProtectionDomain(0), b"").unwrap();
                    }
                    *open += u32::from(matches!(event, Event::Connected { .. }));
                }
            }
            net.settle();
            open == [2, 2]
        });
        assert!(done, "seed {seed}: {open:?}");
    }
}

#[test]
fn host_connects_to_itself() {
    let mut net = network(12, Faults::NONE);
    let now = net.now();
    let remote = net.hosts[0].address;
    net.hosts[0].endpoint.connect(now, ConnectOptions::to(remote)).unwrap();
    let mut open = 0;
    let done = net.run_until(10 * SECOND, |net| {
        for event in net.hosts[0].take_events() {
            if let Event::Incoming { connection, .. } = event {
                let now = net.now();
                net.hosts[0].endpoint.accept(now, connection, ProtectionDomain(0), b"").unwrap();
            }
            open += u32::from(matches!(event, Event::Connected { .. }));
        }
        net.settle();
        open == 2
    });
    assert!(done);
}

#[test]
fn acceptor_learns_that_it_is_open_before_anything_that_happens_there() {
    let mut net = network(13, Faults::NONE);
    net.filter = Some(Box::new(|_, transmit| control_of(transmit) == CONFIRM || transmit.padding() > 1_000));
    let ours = start(&mut net, b"");
    let operation = metaroce_core::Operation::Send { immediate: None };
    let now = net.now();
    net.hosts[0].endpoint.post(now, ours, S0, metaroce_core::WorkRequest::new(1, operation, &[])).unwrap();
    let theirs = incoming(&mut net);
    let now = net.now();
    net.hosts[1].endpoint.accept(now, theirs, ProtectionDomain(0), b"").unwrap();
    net.run_for(MS);
    let events = net.hosts[1].take_events();
    assert!(matches!(events[..], [Event::Connected { .. }, Event::StreamOpened { .. }]), "{events:?}");
}

#[test]
//= MR-HS-4 test
fn every_connection_id_begins_with_the_prefix_of_its_endpoint() {
    for value in 0..4 {
        let prefix = IdPrefix { bits: 2, value };
        let config = Config { connection_prefix: prefix, ..Config::sockets(7) };
        let mut endpoint = Endpoint::new(config, HeapStorage::new(&Limits::SMALL)).unwrap();
        let now = Instant::from_nanos(1_000_000_000);
        for port in [1, 2] {
            endpoint.connect(now, ConnectOptions::to(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))).unwrap();
        }
        while endpoint.handle_timeout(now) == Progress::More {}
        let mut batch = vec![Transmit::EMPTY; 4];
        assert_eq!(endpoint.poll_transmit(now, &mut batch), 2);
        for transmit in &batch[..2] {
            let (_, body) = Base::parse(transmit.header()).unwrap();
            let Ok((Control::Connect(connect), _)) = Control::parse(body) else { panic!("no CONNECT") };
            assert_eq!(prefix.value_in(connect.connection.0), u32::from(value));
        }
    }
}
