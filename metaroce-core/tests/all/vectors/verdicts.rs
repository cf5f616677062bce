//! Every vector as a datagram: an endpoint gives it the verdict that the file names, and a dropped one changes nothing.

use metaroce_conformance::{Faults, HostMemory};
use metaroce_core::wire::{BASE_BYTES, Base};
use metaroce_core::{
    Checksum, Config, Datagram, Disposition, DropReason, Ecn, Endpoint, HeapStorage, Instant, Limits, PathId,
    TableChecksum, Transmit, crc,
};

use super::{Answer, Vector, vectors};
use crate::common::pair::Pair;

/// The name of a verdict in the files.
fn name(disposition: Disposition) -> &'static str {
    match disposition {
        Disposition::Dropped(DropReason::Malformed) => "malformed",
        Disposition::Dropped(DropReason::Version) => "version",
        Disposition::Dropped(DropReason::Checksum) => "checksum",
        Disposition::Dropped(DropReason::UnknownConnection) => "unknown-connection",
        _ => "valid",
    }
}

/// Whether a packet names a connection: all but those that end too early, and CONTROL.
fn is_of_connection(vector: &Vector) -> bool {
    vector.bytes.len() >= BASE_BYTES && vector.bytes[0] & 0x0f != 3
}

/// The vector for connection `id`: a checksum that was right is right again, and a wrong one as wrong as before.
fn addressed(vector: &Vector, id: u32) -> Vec<u8> {
    let sum = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        Base::write_checksum(&mut bytes, 0);
        crc::finish(TableChecksum.update(crc::SEED, &bytes))
    };
    let mut bytes = vector.bytes.clone();
    let written = u32::from_be_bytes(bytes[Base::CHECKSUM_FIELD].try_into().unwrap());
    let error = sum(&bytes) ^ written;
    bytes[4..8].copy_from_slice(&id.to_be_bytes());
    let right = sum(&bytes);
    Base::write_checksum(&mut bytes, right ^ error);
    bytes
}

/// The id by which packets to a host name its connection: learned from what the other sends.
fn id_at(pair: &mut Pair) -> u32 {
    pair.write(0, 0, 1, 0..64, 0, None);
    let now = pair.net.now_at(0);
    let mut out = [Transmit::EMPTY];
    assert_eq!(pair.net.hosts[0].endpoint.poll_transmit(now, &mut out), 1);
    Base::parse(out[0].header()).unwrap().0.connection.0
}

/// A host with an open connection, and the id by which packets name it.
struct Judge {
    pair: Pair,
    id: u32,
}

impl Judge {
    fn new(wants_checksum: bool) -> Self {
        let mut pair = Pair::configured(1, Faults::NONE, |config| config.checksum_wanted = wants_checksum);
        let id = id_at(&mut pair);
        Self { pair, id }
    }

    fn verdict(&mut self, vector: &Vector) -> &'static str {
        let control = !is_of_connection(vector);
        let bytes = if control { vector.bytes.clone() } else { addressed(vector, self.id) };
        let (now, source) = (self.pair.net.now_at(1), self.pair.net.hosts[0].address);
        let host = &mut self.pair.net.hosts[1];
        let datagram = Datagram { source, plane: 0, ecn: Ecn::Ect0, bytes: &bytes };
        match name(host.endpoint.handle_datagram(now, datagram, &mut host.memory)) {
            // A well-formed CONTROL packet of some other connection.
            "unknown-connection" if control => "valid",
            name => name,
        }
    }

    /// What a datagram could have changed.
    fn state(&mut self) -> impl PartialEq + core::fmt::Debug + use<> {
        let (now, connection) = (self.pair.net.now_at(1), self.pair.connection[1]);
        let endpoint = &mut self.pair.net.hosts[1].endpoint;
        let paths: Vec<_> = (0..8).map(|path| endpoint.path_stats(connection, PathId(path))).collect();
        let sent = endpoint.poll_transmit(now, &mut [Transmit::EMPTY]);
        (endpoint.connection_stats(connection), paths, endpoint.next_deadline(), endpoint.poll_event(), sent)
    }

    fn dropped(&self) -> u64 {
        self.pair.net.hosts[1].endpoint.stats().dropped.iter().sum()
    }
}

fn judged_with(wants_checksum: bool, expected: impl Fn(&Vector) -> &str) {
    let mut judge = Judge::new(wants_checksum);
    for vector in vectors().iter().filter(|vector| vector.answer.is_none()) {
        let (before, counted) = (judge.state(), judge.dropped());
        let verdict = judge.verdict(vector);
        assert_eq!(verdict, expected(vector), "{}", vector.name);
        if verdict == "valid" {
            judge = Judge::new(wants_checksum);
        } else {
            assert_eq!(judge.state(), before, "{} changed the connection or was answered", vector.name);
            assert_eq!(judge.dropped(), counted + 1, "{} is counted under one name", vector.name);
        }
    }
}

#[test]
//= MR-WIRE-2 test
//= MR-WIRE-3 test
//= MR-WIRE-4 test
//= MR-WIRE-9 test
//= MR-WIRE-11 test
//= MR-WIRE-15 test
//= MR-WIRE-16 test
//= MR-WIRE-17 test
//= MR-WIRE-25 test
//= MR-WIRE-29 test
//= MR-WIRE-32 test
//= MR-SEC-2 test
fn vectors_get_their_verdict_from_an_endpoint_that_wants_checksums() {
    judged_with(true, |vector| &vector.verdict);
}

#[test]
//= MR-WIRE-11 test
fn vectors_get_their_verdict_from_an_endpoint_that_wants_none() {
    judged_with(false, |vector| &vector.verdict_without_checksum);
}

#[test]
//= MR-CLS-12 test
//= MR-CLS-13 test
//= MR-CLS-17 test
fn packets_of_an_unknown_connection_draw_the_answer_of_their_vector() {
    let mut answers = 0;
    for vector in vectors() {
        let Some(expected) = &vector.answer else { continue };
        let mut endpoint = Endpoint::new(Config::sockets(1), HeapStorage::new(&Limits::HOST)).unwrap();
        let (now, mut memory) = (Instant::from_nanos(1_000_000), HostMemory::default());
        let source = "192.0.2.1:50000".parse().unwrap();
        let datagram = Datagram { source, plane: 0, ecn: Ecn::Ect0, bytes: &vector.bytes };
        assert_eq!(
            name(endpoint.handle_datagram(now, datagram, &mut memory)),
            vector.verdict,
            "{}",
            vector.name
        );
        let mut out = [Transmit::EMPTY, Transmit::EMPTY];
        let sent = endpoint.poll_transmit(now, &mut out);
        let Answer::Body(body) = expected else {
            assert_eq!(sent, 0, "{} was answered", vector.name);
            continue;
        };
        assert_eq!(sent, 1, "{}", vector.name);
        assert_eq!(&out[0].header()[BASE_BYTES..], body, "{}", vector.name);
        assert!(out[0].datagram_length() <= vector.bytes.len(), "{}", vector.name);
        assert_eq!(out[0].destination, "192.0.2.1:4795".parse().unwrap(), "the port of peers");
        answers += 1;
    }
    assert_eq!(answers, 3, "vectors that draw an answer");
}
