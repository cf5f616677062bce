use std::time::Instant;

use socket2::{Domain, Protocol, SockAddr, Type};

use super::*;

const LOOPBACKS: [&str; 2] = ["127.0.0.1:0", "[::1]:0"];

/// A receive socket, and a sending one, at a loopback address.
struct Pair {
    receiver: UdpSocket,
    sender: UdpSocket,
    features: ReceiveFeatures,
    target: Target,
}

impl Pair {
    fn new(address: &str, options: SocketOptions) -> Self {
        let address: SocketAddr = address.parse().expect("an address");
        let open =
            || Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP)).expect("a socket");
        let receiver = open();
        let features = configure_receive(&receiver, address.is_ipv6(), &options).expect("options");
        receiver.bind(&SockAddr::from(address)).expect("bound");
        let sender = open();
        configure_send(&sender, address.is_ipv6(), &options).expect("options");
        sender.bind(&SockAddr::from(address)).expect("bound");
        let receiver = UdpSocket::from_std(receiver.into());
        let target = Target {
            to: receiver.local_addr().expect("bound"),
            socket_v6: address.is_ipv6(),
            ecn: Ecn::NotEct,
            segment_bytes: None,
            portable: options.portable,
        };
        Self { receiver, sender: UdpSocket::from_std(sender.into()), features, target }
    }

    fn send(&self, target: &Target, pieces: &[&[u8]]) -> io::Result<usize> {
        let mut gather = Gather::new();
        for piece in pieces {
            assert!(gather.push(RawPart::of(piece)), "room for the piece");
        }
        send(&self.sender, target, &gather, &mut Vec::new())
    }

    /// Receives `count` datagrams, cut as the system says; at most for a second.
    fn receive(&self, count: usize) -> Vec<(Received, Vec<u8>)> {
        let mut batch = ReceiveBatch::new(8, 65_536);
        let mut datagrams = Vec::new();
        let start = Instant::now();
        while datagrams.len() < count && start.elapsed() < Duration::from_secs(1) {
            if batch.receive(&self.receiver, self.target.portable).is_err() {
                std::thread::sleep(Duration::from_micros(100));
                continue;
            }
            for (message, bytes) in batch.messages() {
                let segments = bytes.chunks(message.segment_bytes.max(1));
                datagrams.extend(segments.map(|segment| (*message, segment.to_vec())));
            }
        }
        datagrams
    }

    fn has_segmentation(&self) -> bool {
        let probe = Socket::new(Domain::for_address(self.target.to), Type::DGRAM, None).expect("a socket");
        has_segmentation(&probe)
    }
}

fn pattern(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|i| i.to_le_bytes()[0].wrapping_mul(31).wrapping_add(seed)).collect()
}

#[test]
fn pieces_arrive_as_one_datagram_in_their_order() {
    for portable in [false, true] {
        for address in LOOPBACKS {
            let pair = Pair::new(address, SocketOptions { portable, ..SocketOptions::default() });
            let payload = pattern(4000, 3);
            let sent =
                pair.send(&pair.target, &[b"header", &payload[..1000], &payload[1000..], b"", b"\0\0"]);
            assert_eq!(sent.expect("sent"), 4008);
            let received = pair.receive(1);
            assert_eq!(
                received[0].1,
                [b"header".as_slice(), &payload, b"\0\0"].concat(),
                "{address} {portable}"
            );
            assert_eq!(received[0].0.source, pair.sender.local_addr().expect("bound"));
            assert!(!received[0].0.truncated);
        }
    }
}

#[test]
fn every_ecn_codepoint_arrives() {
    for address in LOOPBACKS {
        let pair = Pair::new(address, SocketOptions::default());
        if !pair.features.ecn {
            println!("skipped: no ECN by control message on this system");
            return;
        }
        for ecn in [Ecn::NotEct, Ecn::Ect1, Ecn::Ect0, Ecn::Ce] {
            pair.send(&Target { ecn, ..pair.target }, &[b"x"]).expect("sent");
            assert_eq!(pair.receive(1)[0].0.ecn, ecn, "{address}");
        }
    }
}

#[test]
fn a_dual_stack_socket_exchanges_ecn_with_ipv4_and_sees_ipv4_addresses() {
    let options = SocketOptions::default();
    let four = Pair::new("127.0.0.1:0", options);
    let six = Socket::new(Domain::IPV6, Type::DGRAM, Some(Protocol::UDP)).expect("a socket");
    six.set_only_v6(false).expect("dual stack");
    let features = configure_receive(&six, true, &options).expect("options");
    six.bind(&SockAddr::from(SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, 0)))).expect("bound");
    if !features.ecn {
        println!("skipped: no ECN by control message on this system");
        return;
    }
    let both = Pair { receiver: UdpSocket::from_std(six.into()), ..Pair::new("127.0.0.1:0", options) };
    let port = both.receiver.local_addr().expect("bound").port();

    let to = SocketAddr::from(([127, 0, 0, 1], port));
    four.send(&Target { to, ecn: Ecn::Ce, ..four.target }, &[b"to six"]).expect("sent");
    let (message, bytes) = &both.receive(1)[0];
    assert_eq!((message.ecn, bytes.as_slice()), (Ecn::Ce, b"to six".as_slice()));
    assert_eq!(message.source, four.sender.local_addr().expect("bound"), "an IPv4 address");

    let mut gather = Gather::new();
    assert!(gather.push(RawPart::of(b"to four")));
    let target = Target { socket_v6: true, ecn: Ecn::Ect0, ..four.target };
    send(&both.receiver, &target, &gather, &mut Vec::new()).expect("sent");
    let (message, bytes) = &four.receive(1)[0];
    assert_eq!((message.ecn, bytes.as_slice()), (Ecn::Ect0, b"to four".as_slice()));
    assert_eq!(message.source.port(), port);
}

#[test]
fn a_segmented_send_arrives_as_its_datagrams_coalesced_or_not() {
    for address in LOOPBACKS {
        for gro in [true, false] {
            let pair = Pair::new(address, SocketOptions { gro, ..SocketOptions::default() });
            if !pair.has_segmentation() {
                println!("skipped: no segmentation offload on this system");
                return;
            }
            let payload = pattern(10_000, 7);
            let headers: Vec<Vec<u8>> = (0..10).map(|i| pattern(40, i)).collect();
            let mut pieces: Vec<&[u8]> = Vec::new();
            let mut expected = Vec::new();
            for (header, body) in headers.iter().zip(payload.chunks(1024)) {
                pieces.extend([header.as_slice(), body]);
                expected.push([header.as_slice(), body].concat());
            }
            let target = Target { segment_bytes: Some(1064), ecn: Ecn::Ect0, ..pair.target };
            pair.send(&target, &pieces).expect("sent");
            let received = pair.receive(10);
            assert_eq!(received.iter().map(|(_, bytes)| bytes.clone()).collect::<Vec<_>>(), expected);
            assert!(received.iter().all(|(message, _)| message.ecn == Ecn::Ect0));
            let coalesced = received[0].0.length > 1064;
            assert_eq!(coalesced, gro && pair.features.gro, "{address} {gro}");
        }
    }
}

#[test]
fn sixty_four_segments_of_full_gather_lists_are_taken() {
    let pair = Pair::new("127.0.0.1:0", SocketOptions::default());
    if !pair.has_segmentation() {
        println!("skipped: no segmentation offload on this system");
        return;
    }
    let pieces: Vec<Vec<u8>> = (0..GATHER_MAX).map(|i| pattern(100, i.to_le_bytes()[0])).collect();
    let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
    let target = Target { segment_bytes: Some(600), ..pair.target };
    pair.send(&target, &pieces).expect("sent");
    let received = pair.receive(SEGMENTS_MAX);
    assert_eq!(received.len(), SEGMENTS_MAX);
    assert_eq!(received.concat_bytes(), pieces.concat());
}

trait ConcatBytes {
    fn concat_bytes(&self) -> Vec<u8>;
}

impl ConcatBytes for Vec<(Received, Vec<u8>)> {
    fn concat_bytes(&self) -> Vec<u8> {
        self.iter().flat_map(|(_, bytes)| bytes.iter().copied()).collect()
    }
}

#[test]
fn a_full_gather_list_refuses_more_but_takes_empty_pieces() {
    let mut gather = Gather::new();
    for _ in 0..GATHER_MAX {
        assert!(gather.push(RawPart::of(b"x")));
    }
    assert!(!gather.push(RawPart::of(b"x")));
    assert!(gather.push(RawPart::of(b"")));
    assert_eq!((gather.parts().len(), gather.bytes()), (GATHER_MAX, GATHER_MAX));
}

#[test]
fn drops_by_a_full_receive_buffer_are_counted() {
    let options = SocketOptions { receive_buffer_bytes: 4096, gro: false, ..SocketOptions::default() };
    let pair = Pair::new("127.0.0.1:0", options);
    if !pair.features.overflow {
        println!("skipped: no SO_RXQ_OVFL on this system");
        return;
    }
    for _ in 0..200 {
        pair.send(&pair.target, &[&pattern(1000, 0)]).expect("sent");
    }
    let before = pair.receive(200).len();
    // The count comes with the datagrams that were queued after the drops.
    pair.send(&pair.target, &[b"last"]).expect("sent");
    let last = pair.receive(1);
    assert_eq!(last[0].1, b"last");
    assert_eq!(last[0].0.overflows, Some(200 - u32::try_from(before).expect("few")));
}

#[test]
fn what_does_not_fit_the_slot_is_reported_as_truncated() {
    for portable in [false, true] {
        let pair =
            Pair::new("127.0.0.1:0", SocketOptions { portable, gro: false, ..SocketOptions::default() });
        pair.send(&pair.target, &[&pattern(3000, 1)]).expect("sent");
        let mut batch = ReceiveBatch::new(2, 1000);
        assert_eq!(batch.receive(&pair.receiver, portable).expect("received"), 1);
        let (message, bytes) = batch.messages().next().expect("one message");
        assert!(message.truncated);
        assert_eq!(bytes, pattern(1000, 1));
    }
}

#[test]
fn faults_are_told_apart() {
    let pair = Pair::new("127.0.0.1:0", SocketOptions::default());
    let fault = |result: io::Result<usize>| SendFault::of(&result.expect_err("an error"));
    let large = vec![0; SEND_BYTES_MAX + 1];
    assert_eq!(fault(pair.send(&pair.target, &[&large])), SendFault::TooLarge);
    let six = Target { to: "[::1]:9".parse().expect("an address"), ..pair.target };
    assert_eq!(fault(pair.send(&six, &[b"x"])), SendFault::Unreachable, "of another family");
    let segmented = Target { portable: true, segment_bytes: Some(1), ..pair.target };
    assert_eq!(fault(pair.send(&segmented, &[b"xx"])), SendFault::Unsupported);
    assert_eq!(SendFault::of(&io::ErrorKind::WouldBlock.into()), SendFault::WouldBlock);
    assert_eq!(SendFault::of(&io::ErrorKind::ConnectionRefused.into()), SendFault::Refused);
}

#[test]
fn nothing_arrives_at_a_socket_that_only_sends() {
    let pair = Pair::new("127.0.0.1:0", SocketOptions::default());
    if !cfg!(target_os = "linux") {
        println!("skipped: only Linux filters what arrives at sending sockets");
        return;
    }
    let back = Target { to: pair.sender.local_addr().expect("bound"), ..pair.target };
    let mut gather = Gather::new();
    assert!(gather.push(RawPart::of(b"unwanted")));
    send(&pair.receiver, &back, &gather, &mut Vec::new()).expect("sent");
    let error = pair.sender.recv_from(&mut [0; 100]).expect_err("nothing there");
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
}

#[test]
fn buffers_are_as_large_as_asked_for_or_as_the_system_grants() {
    let pair = Pair::new("127.0.0.1:0", SocketOptions::default());
    let granted = socket2::SockRef::from(&pair.receiver).recv_buffer_size().expect("a size");
    println!("receive buffer: {granted} bytes for {} asked", SocketOptions::default().receive_buffer_bytes);
    assert!(granted >= 65_536);
}
