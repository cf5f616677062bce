//! Section 4: opening.

use metaroce_conformance::Faults;
use metaroce_core::ids::Serial;
use metaroce_core::wire::{Base, Connect, Control, Opcode, PacketType};
use metaroce_core::{
    Checksum, ConnectOptions, Disposition, DropReason, Event, Operation, PathId, ProtectionDomain,
    TableChecksum, WorkRequest, crc,
};

use super::tape::{Sent, network, nonce, taped};
use crate::common::{MS, SECOND, connect};

/// The bytes with a change, and the right checksum.
fn changed(bytes: &[u8], change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    change(&mut bytes);
    Base::write_checksum(&mut bytes, 0);
    let sum = crc::finish(TableChecksum.update(crc::SEED, &bytes));
    Base::write_checksum(&mut bytes, sum);
    bytes
}

fn find(tape: &super::tape::Shared, wanted: impl Fn(&Control<'_>) -> bool) -> Sent {
    tape.borrow()
        .0
        .iter()
        .find(|sent| sent.control().is_some_and(|control| wanted(&control)))
        .unwrap()
        .clone()
}

#[test]
//= MR-HS-1 test
//= MR-HS-5 test
//= MR-HS-7 test
//= MR-WIRE-30 test
//= MR-WIRE-31 test
fn opening_is_laid_out_and_numbered_as_the_specification_says() {
    let (mut pair, tape) = taped(1, Faults::NONE, |_, _, _| {});
    pair.write(0, 0, 1, 0..200_000, 0, None);
    pair.write(1, 1, 2, 0..200_000, 0, None);
    pair.wait(0, 1);
    pair.wait(1, 1);
    let connect = find(&tape, |control| matches!(control, Control::Connect(_)));
    assert_eq!(connect.bytes.len(), 640);
    assert_eq!((connect.base().connection.0, connect.source.port()), (0, 4795));
    let accept = find(&tape, |control| matches!(control, Control::Accept(_)));
    assert_eq!(accept.source.port(), 4795);
    let ids = [0, 1].map(|host| super::tape::id(&tape, host));
    for sent in tape.borrow().0.iter().filter(|sent| sent.kind() == PacketType::Control) {
        let base = sent.base();
        assert_eq!((base.path.0, base.epoch, base.psn.raw()), (0, 0, 0), "{sent:?}");
        if !matches!(sent.control(), Some(Control::Connect(_))) {
            assert_eq!(base.connection.0, ids[1 - sent.from]);
        }
    }
    for host in 0..2 {
        let nonce = nonce(&tape, host);
        let first = super::tape::data_of(&tape, host)[0].1.csn.raw();
        assert_eq!(first, nonce as u32, "the first CSN is the low half of the nonce");
        for path in 0..8_u8 {
            let tape = tape.borrow();
            let mut of_path = tape.0.iter().filter(|sent| {
                sent.from == host && sent.base().kind.takes_psn() && sent.base().path == PathId(path)
            });
            let expected = ((nonce >> 32) as u32).wrapping_add(u32::from(path).wrapping_mul(0x9e37_79b9));
            assert_eq!(of_path.next().unwrap().base().psn.raw(), expected, "host {host}, path {path}");
        }
    }
}

#[test]
//= MR-HS-8 test
//= MR-HS-9 test
//= MR-HS-15 test
fn an_accept_counts_with_the_right_nonce_from_the_peers_address_and_once() {
    let (mut net, tape) = network(2, Faults::NONE, |_, _, _| {});
    let remote = net.hosts[1].address;
    let now = net.now();
    net.hosts[0].endpoint.connect(now, ConnectOptions::to(remote)).unwrap();
    net.run_for(MS);
    let incoming = net.hosts[1].take_events().into_iter().find_map(|event| match event {
        Event::Incoming { connection, .. } => Some(connection),
        _ => None,
    });
    let now = net.now();
    net.hosts[1].endpoint.accept(now, incoming.unwrap(), ProtectionDomain(0), b"").unwrap();
    // The ACCEPT itself is lost.
    net.filter = Some(Box::new(|from, _| from == 1));
    net.settle();
    let accept = find(&tape, |control| matches!(control, Control::Accept(_))).bytes;
    let drop = Some(Disposition::Dropped(DropReason::BadProof));
    // The echoed nonce is at 64 of the body.
    let wrong = changed(&accept, |bytes| bytes[20 + 64] ^= 1);
    assert_eq!(net.inject(0, remote, &wrong), drop, "another nonce");
    assert_eq!(net.inject(0, "10.0.0.9:4795".parse().unwrap(), &accept), drop, "another address");
    net.settle();
    let connected = |net: &mut metaroce_conformance::Network<_>| {
        let events: Vec<Event> = net.hosts[0].take_events();
        events.iter().filter(|event| matches!(event, Event::Connected { .. })).count()
    };
    assert_eq!(connected(&mut net), 0);
    assert_eq!(net.inject(0, remote, &accept), Some(Disposition::Consumed));
    net.settle();
    assert_eq!(connected(&mut net), 1);
    // Again: answered by CONFIRM, and nothing else happens.
    let before = tape.borrow().0.len();
    assert!(!matches!(net.inject(0, remote, &accept), Some(Disposition::Dropped(_))));
    net.settle();
    assert_eq!(connected(&mut net), 0);
    let after: Vec<_> = tape.borrow().0[before..].iter().filter(|sent| sent.from == 0).cloned().collect();
    let confirms = |sent: &Sent| matches!(sent.control(), Some(Control::Confirm(_)));
    assert!(after.len() == 1 && after.iter().all(confirms), "{after:?}");
}

#[test]
//= MR-HS-11 test
fn a_connect_of_a_known_nonce_gets_the_same_accept_and_only_where_it_came_from() {
    let (mut pair, tape) = taped(3, Faults::NONE, |_, _, _| {});
    pair.net.run_for(MS);
    let connect = find(&tape, |control| matches!(control, Control::Connect(_)));
    let accept = find(&tape, |control| matches!(control, Control::Accept(_)));
    let connections = |pair: &mut crate::common::pair::Pair| {
        pair.net.hosts[1].take_events().iter().filter(|event| matches!(event, Event::Incoming { .. })).count()
    };
    let before = tape.borrow().0.len();
    let other = "10.0.0.1:999".parse().unwrap();
    assert_eq!(
        pair.net.inject(1, other, &connect.bytes),
        Some(Disposition::Dropped(DropReason::BadProof)),
        "another port"
    );
    pair.net.inject(1, connect.source, &connect.bytes);
    pair.net.settle();
    assert_eq!(connections(&mut pair), 0, "no second connection");
    let tape = tape.borrow();
    let again: Vec<_> = tape.0[before..].iter().filter_map(Sent::hello).collect();
    assert!(again.iter().all(|hello| *hello == accept.hello().unwrap()), "the same ACCEPT: {again:?}");
}

#[test]
//= MR-HS-16 test
//= MR-PATH-1 test
//= MR-PATH-2 test
fn both_ends_use_the_terms_of_the_table() {
    let (mut pair, tape) = taped(4, Faults::NONE, |host, config, limits| {
        if host == 0 {
            config.paths_per_plane = 4;
            config.mtu_bytes = 1_500;
            config.checksum_wanted = false;
            limits.streams = 3;
            config.reads_granted = 2;
        }
    });
    let connection = pair.connection;
    for (host, connection) in connection.into_iter().enumerate() {
        let endpoint = &mut pair.net.hosts[host].endpoint;
        assert_eq!(endpoint.connection_stats(connection).unwrap().paths, 4, "the smaller of both");
        let mut ports = std::collections::BTreeSet::new();
        for path in 0..4 {
            ports.insert(endpoint.path_stats(connection, PathId(path)).unwrap().source_port);
        }
        assert_eq!(ports.len(), 4, "a port for each");
        assert_eq!(endpoint.path_stats(connection, PathId(4)), None);
    }
    pair.write(0, 0, 1, 0..100_000, 0, None);
    pair.write(1, 1, 2, 0..100_000, 0, None);
    for id in 10..20 {
        pair.read(1, 1, id, 500_000..500_010, 0);
    }
    pair.wait(0, 1);
    pair.wait(1, 11);
    let mut outstanding = 0_i32;
    let mut ports = vec![std::collections::BTreeSet::new(); 8];
    for sent in &tape.borrow().0 {
        if sent.kind() == PacketType::Control {
            continue;
        }
        assert!(sent.bytes.len() <= 1_500, "the smaller MTU");
        let zero = sent.base().checksum == 0;
        assert_eq!(zero, sent.from == 1, "host 0 wants no checksum, host 1 does");
        ports[sent.from * 4 + usize::from(sent.base().path.0)].insert(sent.source.port());
        let Some(header) = sent.data() else { continue };
        outstanding += i32::from(sent.from == 1 && header.opcode == Opcode::ReadRequest);
        outstanding -= i32::from(sent.from == 0 && header.opcode == Opcode::ReadResponse);
        assert!(outstanding <= 2, "what host 0 granted");
    }
    assert!(ports.iter().all(|ports| ports.len() == 1), "a path sends from one port: {ports:?}");
    // Three streams in all, though host 1 would keep more.
    let mut opened = 0;
    let from = [pair.segment(1, 0..10)];
    while let Ok(stream) = pair.net.hosts[1].endpoint.open_stream(connection[1]) {
        let send = Operation::Send { immediate: None };
        if pair.try_post(1, stream.0, WorkRequest::new(1, send, &from)).is_err() {
            break;
        }
        opened += 1;
        assert!(opened < 10);
    }
    assert_eq!(opened, 1, "streams 0 and 1 were there");
}

#[test]
//= MR-HS-19 test
fn a_cookie_is_for_one_address_and_nonce_and_for_sixteen_seconds() {
    let (mut net, tape) = network(5, Faults::NONE, |host, _, limits| {
        if host == 1 {
            limits.connections = 4;
        }
    });
    // Three connections wait for the application: more than half.
    let remote = net.hosts[1].address;
    for _ in 0..3 {
        let now = net.now();
        net.hosts[0].endpoint.connect(now, ConnectOptions::to(remote)).unwrap();
        net.run_for(20_000);
    }
    let connect = find(&tape, |control| matches!(control, Control::Connect(_)));
    net.hosts[1].take_events();
    net.filter = Some(Box::new(|_, _| true));
    let stranger = "10.0.0.77:4795".parse().unwrap();
    let hello = |nonce: u8| changed(&connect.bytes, |bytes| bytes[20 + 8..20 + 16].fill(nonce));
    let with_cookie = |nonce: u8, cookie: [u8; 16]| {
        changed(&hello(nonce), |bytes| bytes[20 + 72..20 + 88].copy_from_slice(&cookie))
    };
    let answer = |net: &mut metaroce_conformance::Network<_>, source, bytes: &[u8]| {
        let before = tape.borrow().0.len();
        net.inject(1, source, bytes);
        net.settle();
        let tape = tape.borrow();
        let retry = tape.0[before..]
            .iter()
            .filter(|sent| sent.from == 1 && sent.destination == source)
            .find_map(|sent| match sent.control() {
                Some(Control::Retry(retry)) => Some(retry.cookie),
                _ => None,
            });
        let events: Vec<Event> = net.hosts[1].take_events();
        let incoming = events.iter().any(|event| matches!(event, Event::Incoming { .. }));
        (retry, incoming)
    };
    let (Some(cookie), false) = answer(&mut net, stranger, &hello(9)) else {
        panic!("a RETRY: {:?}", net.hosts[1].endpoint.stats());
    };
    let other_port = "10.0.0.77:4796".parse().unwrap();
    let other_address = "10.0.0.78:4795".parse().unwrap();
    for (source, nonce, what) in
        [(other_port, 9, "port"), (other_address, 9, "address"), (stranger, 8, "nonce")]
    {
        let (retry, incoming) = answer(&mut net, source, &with_cookie(nonce, cookie));
        assert!(retry.is_some() && !incoming, "another {what}");
    }
    // Too old. The three that wait are given up after 10 s: others take their place.
    net.run_for(16 * SECOND);
    net.filter = None;
    for _ in 0..3 {
        let now = net.now();
        net.hosts[0].endpoint.connect(now, ConnectOptions::to(remote)).unwrap();
        net.run_for(20_000);
    }
    net.filter = Some(Box::new(|_, _| true));
    net.hosts[1].take_events();
    let (retry, incoming) = answer(&mut net, stranger, &with_cookie(9, cookie));
    assert!(retry.is_some() && !incoming, "sixteen seconds later");
    let fresh = retry.unwrap();
    assert_eq!(answer(&mut net, stranger, &with_cookie(9, fresh)), (None, true), "and the new one is right");
}

#[test]
//= MR-HS-24 test
fn feature_bits_that_nobody_knows_change_nothing() {
    let (mut net, tape) = network(6, Faults::NONE, |_, _, _| {});
    let remote = net.hosts[1].address;
    let now = net.now();
    net.hosts[0].endpoint.connect(now, ConnectOptions::to(remote)).unwrap();
    net.filter = Some(Box::new(|from, _| from == 0));
    net.settle();
    let sent = find(&tape, |control| matches!(control, Control::Connect(_)));
    assert_eq!(sent.hello().unwrap().features, 0, "draft 0 defines none");
    let bytes = changed(&sent.bytes, |bytes| bytes[20 + 24..20 + 32].fill(0xff));
    assert_eq!(net.inject(1, sent.source, &bytes), Some(Disposition::Consumed));
    net.settle();
    assert!(matches!(net.hosts[1].take_events()[..], [Event::Incoming { .. }]));
}

#[test]
//= MR-HS-32 test
fn an_address_has_only_so_many_connections_half_open() {
    let (mut net, tape) = network(7, Faults::NONE, |_, config, _| config.half_open_per_address = 3);
    let remote = net.hosts[1].address;
    let now = net.now();
    net.hosts[0].endpoint.connect(now, ConnectOptions::to(remote)).unwrap();
    net.run_for(20_000);
    let sent = find(&tape, |control| matches!(control, Control::Connect(_)));
    let another = |number: u8| {
        changed(&sent.bytes, |bytes| {
            bytes[20 + 8] ^= number;
            bytes[20 + 4] ^= number;
        })
    };
    let source = sent.source;
    for number in 1..3 {
        assert_eq!(net.inject(1, source, &another(number)), Some(Disposition::Consumed));
    }
    let dropped = Some(Disposition::Dropped(DropReason::NoRoom));
    assert_eq!(net.inject(1, source, &another(3)), dropped);
    let port = std::net::SocketAddr::new(source.ip(), 9);
    assert_eq!(net.inject(1, port, &another(4)), dropped, "another port is the same address");
    let other = "10.0.0.77:4795".parse().unwrap();
    assert_eq!(net.inject(1, other, &another(5)), Some(Disposition::Consumed), "another address");
    net.settle();
    // One of them opens: there is room for one more.
    let incoming = net.hosts[1].take_events().into_iter().find_map(|event| match event {
        Event::Incoming { connection, .. } => Some(connection),
        _ => None,
    });
    let now = net.now();
    net.hosts[1].endpoint.accept(now, incoming.unwrap(), ProtectionDomain(0), b"").unwrap();
    net.run_for(MS);
    assert_eq!(net.inject(1, source, &another(6)), Some(Disposition::Consumed));
}

#[test]
//= MR-HS-16 test
fn explicit_terms_are_the_smaller_ones_of_both_hellos() {
    let (mut net, tape) = network(8, Faults::NONE, |host, config, _| {
        config.message_window = if host == 0 { 4 } else { 1_024 };
        config.initial_credits = 64;
    });
    let [_, theirs] = connect(&mut net);
    let hellos: Vec<_> = tape
        .borrow()
        .0
        .iter()
        .filter_map(|sent| sent.hello().map(|hello| (sent.from, terms(&hello))))
        .collect();
    assert!(hellos.contains(&(0, (4, 64))) && hellos.contains(&(1, (1_024, 64))), "{hellos:?}");
    // Nothing is acknowledged: four messages go, and no fifth.
    net.filter = Some(Box::new(|from, _| from == 0));
    for id in 0..10 {
        let request =
            metaroce_core::WorkRequest::new(id, metaroce_core::Operation::Send { immediate: None }, &[]);
        let now = net.now();
        net.hosts[1].endpoint.post(now, theirs, metaroce_core::StreamId(0), request).unwrap();
    }
    net.settle();
    let messages: std::collections::BTreeSet<_> =
        super::tape::data_of(&tape, 1).iter().map(|(_, header)| header.msn.raw()).collect();
    assert_eq!(messages, (0..4).collect());
}

fn terms(hello: &Connect<'_>) -> (u32, u32) {
    (hello.message_window, hello.initial_credits)
}
