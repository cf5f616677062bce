use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use metaroce_core::transmit::Ecn;
use mio::{Events, Poll};

use super::*;
use crate::memory::RawPart;
use crate::sys::{Gather, ReceiveBatch, Target};

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

fn sockets(local: &[&str], options: SocketOptions) -> Sockets {
    let local: Vec<_> = local.iter().map(|text| address(text)).collect();
    Sockets::bind(&local, options).expect("bound")
}

fn local(socket: &UdpSocket) -> SocketAddr {
    socket.local_addr().expect("bound")
}

#[test]
fn a_path_sends_from_its_own_port_and_handshakes_from_the_receive_port() {
    for any in ["127.0.0.1:0", "[::1]:0"] {
        let mut sockets = sockets(&[any], SocketOptions::default());
        let receive = sockets.local_addresses().next().expect("a plane");
        let port = free_port(any);
        let (socket, v6) = sockets.sending(0, SourcePort::Path(port)).expect("a socket");
        assert_eq!((local(socket).port(), v6), (port, receive.is_ipv6()));
        assert_eq!(local(socket).ip(), receive.ip());
        let (socket, _) = sockets.sending(0, SourcePort::Receive).expect("a socket");
        assert_eq!(local(socket), receive);
        assert_eq!(sockets.path_counters(), PathCounters { opened: 1, ..PathCounters::default() });
    }
}

#[test]
fn a_taken_port_is_replaced_by_another_and_kept() {
    let other = std::net::UdpSocket::bind("127.0.0.1:0").expect("bound");
    let taken = other.local_addr().expect("bound").port();
    let mut sockets = sockets(&["127.0.0.1:0"], SocketOptions::default());
    let path = SourcePort::Path(taken);
    let first = local(sockets.sending(0, path).expect("a socket").0);
    let second = local(sockets.sending(0, path).expect("a socket").0);
    assert_ne!(first.port(), taken);
    assert_eq!(first, second);
    assert_eq!(sockets.path_port(0, taken), Some(first.port()));
    assert_eq!(sockets.path_counters(), PathCounters { opened: 1, conflicts: 1, ..PathCounters::default() });
}

#[test]
fn the_path_socket_unused_for_the_longest_time_makes_room() {
    let options = SocketOptions { path_sockets_max: 2, ..SocketOptions::default() };
    let mut sockets = sockets(&["127.0.0.1:0"], options);
    let ports = [free_port("127.0.0.1:0"), free_port("127.0.0.1:0"), free_port("127.0.0.1:0")];
    for index in [0, 1, 0, 2] {
        sockets.sending(0, SourcePort::Path(ports[index])).expect("a socket");
    }
    let open = ports.map(|port| sockets.path_port(0, port).is_some());
    assert_eq!(open, [true, false, true]);
    assert_eq!(sockets.path_counters().evicted, 1);
}

#[test]
fn planes_have_sockets_of_their_own_and_a_missing_plane_has_none() {
    let mut sockets = sockets(&["127.0.0.1:0", "[::1]:0"], SocketOptions::default());
    assert_eq!(sockets.planes(), 2);
    let four = local(sockets.sending(0, SourcePort::Receive).expect("a socket").0);
    let six = local(sockets.sending(1, SourcePort::Receive).expect("a socket").0);
    assert!(four.is_ipv4() && six.is_ipv6());
    assert!(sockets.sending(2, SourcePort::Receive).is_none());
    assert!(Sockets::bind(&[], SocketOptions::default()).is_err());
    assert!(Sockets::bind(&[four; 9], SocketOptions::default()).is_err());
}

#[test]
fn the_portable_mode_claims_nothing() {
    let options = SocketOptions { portable: true, ..SocketOptions::default() };
    let capabilities = sockets(&["127.0.0.1:0"], options).capabilities();
    assert_eq!(capabilities, Capabilities { portable: true, ..Capabilities::default() });
}

#[test]
fn offloads_that_are_switched_off_are_not_claimed() {
    let options = SocketOptions { gso: false, gro: false, ..SocketOptions::default() };
    let capabilities = sockets(&["127.0.0.1:0"], options).capabilities();
    assert!(!capabilities.gso && !capabilities.gro);
}

#[test]
fn the_poll_reports_what_arrives_and_room_in_a_send_buffer() {
    let mut sockets = sockets(&["127.0.0.1:0"], SocketOptions::default());
    let receive = sockets.local_addresses().next().expect("a plane");
    let mut poll = Poll::new().expect("a poll");
    let mut events = Events::with_capacity(4);
    sockets.register(poll.registry(), Token(3)).expect("registered");
    let path = SourcePort::Path(free_port("127.0.0.1:0"));
    send(&mut sockets, path, receive);
    poll.poll(&mut events, Some(Duration::from_secs(1))).expect("polled");
    assert!(events.iter().any(|event| event.token() == Token(3) && event.is_readable()));

    let mut batch = ReceiveBatch::new(4, 2000);
    let portable = sockets.capabilities().portable;
    assert_eq!(batch.receive(sockets.receiving(0).expect("a plane"), portable).expect("received"), 1);
    for source in [path, SourcePort::Receive] {
        sockets.await_room(0, source);
        poll.poll(&mut events, Some(Duration::from_secs(1))).expect("polled");
        assert!(events.iter().any(|event| event.token() == Token(3) && event.is_writable()), "{source:?}");
        sockets.has_room();
    }

    send(&mut sockets, path, receive);
    poll.poll(&mut events, Some(Duration::from_secs(1))).expect("polled");
    assert!(events.iter().all(|event| !event.is_writable()), "only readable again");
    sockets.deregister(poll.registry()).expect("deregistered");
    send(&mut sockets, path, receive);
    poll.poll(&mut events, Some(Duration::from_millis(20))).expect("polled");
    assert!(events.is_empty());
}

fn send(sockets: &mut Sockets, source: SourcePort, to: SocketAddr) {
    let portable = sockets.capabilities().portable;
    let (socket, socket_v6) = sockets.sending(0, source).expect("a socket");
    let mut gather = Gather::new();
    assert!(gather.push(RawPart::of(b"hello")));
    let target = Target { to, socket_v6, ecn: Ecn::Ect0, segment_bytes: None, portable };
    assert_eq!(crate::sys::send(socket, &target, &gather, &mut Vec::new()).expect("sent"), 5);
}

/// A port that nobody has, below those that the system gives out, so that no other test gets it meanwhile.
fn free_port(any: &str) -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = 20_000 + u16::try_from(std::process::id() % 100).expect("small") * 100;
    let mut local = address(any);
    loop {
        local.set_port(start + NEXT.fetch_add(1, Ordering::Relaxed) % 100);
        if std::net::UdpSocket::bind(local).is_ok() {
            return local.port();
        }
    }
}
