//! Section 14: what a datagram costs.

use std::time::{Duration, Instant as Clock};

use metaroce_conformance::{Faults, HostMemory};
use metaroce_core::wire::{Control, PacketType};
use metaroce_core::{
    Checksum, ConnectOptions, Datagram, Disposition, Ecn, Endpoint, HeapStorage, Instant, Limits,
    TableChecksum, crc,
};

use super::tape::network;
use crate::common::config;

/// A CONNECT as a host sends it.
fn connect() -> Vec<u8> {
    let (mut net, tape) = network(1, Faults::NONE, |_, _, _| {});
    let (now, remote) = (net.now(), net.hosts[1].address);
    net.hosts[0].endpoint.connect(now, ConnectOptions::to(remote)).unwrap();
    net.settle();
    let tape = tape.borrow();
    tape.0.iter().find(|sent| matches!(sent.control(), Some(Control::Connect(_)))).unwrap().bytes.clone()
}

/// An endpoint with so many connections, and what it takes at least to look at `rounds` packets of no connection.
fn cost(connections: u16, template: &[u8]) -> Duration {
    let limits = Limits { connections: 16_384, paths_per_connection: 1, ..Limits::HOST };
    let mut config = config(3);
    config.paths_per_plane = 1;
    let mut endpoint = Endpoint::new(config, HeapStorage::new(&limits)).unwrap();
    let mut memory = HostMemory::default();
    let now = Instant::from_nanos(1_000_000);
    for number in 0..connections {
        let mut bytes = template.to_vec();
        bytes[28..30].copy_from_slice(&number.to_be_bytes());
        metaroce_core::wire::Base::write_checksum(&mut bytes, 0);
        let sum = crc::finish(TableChecksum.update(crc::SEED, &bytes));
        metaroce_core::wire::Base::write_checksum(&mut bytes, sum);
        let source = std::net::SocketAddr::from(([10, 1, (number >> 8) as u8, number as u8], 4795));
        let datagram = Datagram { source, plane: 0, ecn: Ecn::Ect0, bytes: &bytes };
        assert_eq!(endpoint.handle_datagram(now, datagram, &mut memory), Disposition::Consumed);
        while endpoint.poll_event().is_some() {}
    }
    let base = metaroce_core::wire::Base::parse(template).unwrap().0;
    let mut bytes = vec![0; 200];
    metaroce_core::wire::Base { kind: PacketType::Ack, ..base }.emit(&mut bytes).unwrap();
    let mut least = Duration::MAX;
    for round in 0..50_u32 {
        let start = Clock::now();
        for step in 0..200_u32 {
            bytes[4..8].copy_from_slice(&(round * 200 + step).to_be_bytes());
            metaroce_core::wire::Base::write_checksum(&mut bytes, 0);
            let sum = crc::finish(TableChecksum.update(crc::SEED, &bytes));
            metaroce_core::wire::Base::write_checksum(&mut bytes, sum);
            let source = std::net::SocketAddr::from(([10, 9, 9, 9], 4795));
            let datagram = Datagram { source, plane: 0, ecn: Ecn::Ect0, bytes: &bytes };
            assert!(matches!(endpoint.handle_datagram(now, datagram, &mut memory), Disposition::Dropped(_)));
        }
        least = least.min(start.elapsed());
    }
    least
}

#[test]
//= MR-SEC-3 test
fn a_datagram_costs_the_same_with_one_connection_and_with_thousands() {
    let template = connect();
    let (few, many) = (cost(1, &template), cost(8_000, &template));
    // A walk over all connections would cost thousands of times as much.
    assert!(many < few * 20, "{few:?} with 1, {many:?} with 8,000");
}
