//! The Wireshark dissector agrees with the core: on every packet type, on a random run, and on what is malformed.
//!
//! Needs tshark (`apt-get install tshark`); prints `skipped: …` without it.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a test fails by panicking"
)]

mod expected;
mod packets;
mod random_run;
mod tshark;

use metaroce_conformance::Random;

use self::expected::{FIELDS, expected};
use self::packets::{Builder, seal};
use self::tshark::{Row, dissect, is_missing, write};

const V4: [&str; 2] = ["10.0.0.1:49152", "10.0.0.2:4795"];
const V6: [&str; 2] = ["[2001:db8::1]:4795", "[2001:db8::2]:50000"];

/// All fields that are compared, by their names in Wireshark.
fn names() -> Vec<String> {
    FIELDS.iter().map(|field| format!("metaroce.{field}")).collect()
}

fn dissect_all(capture: &std::path::PathBuf, extra: &[&str]) -> Vec<Row> {
    let names = names();
    let fields: Vec<&str> = names.iter().map(String::as_str).chain(extra.iter().copied()).collect();
    dissect(capture, &fields, &[])
}

/// Compares what tshark says of a packet with what the core says of it.
fn assert_same(bytes: &[u8], row: &Row, number: usize) {
    assert!(row.is_metaroce, "packet {number}: {bytes:02x?}");
    let values = expected(bytes).unwrap();
    for (field, actual) in FIELDS.iter().zip(&row.fields) {
        let wanted = values.0.get(field).map(|values| values.join(";")).unwrap_or_default();
        let actual = actual.replace("True", "1").replace("False", "0");
        assert_eq!(actual, wanted, "{field} of packet {number}: {bytes:02x?}");
    }
}

fn every_packet(seed: u64) -> Vec<Vec<u8>> {
    Builder(Random::new(seed)).every_packet()
}

#[test]
fn every_packet_type_is_decoded_as_the_core_does() {
    if is_missing() {
        return;
    }
    for (seed, [source, destination]) in [(1, V4), (2, V6)] {
        let packets = every_packet(seed);
        let capture = write(&format!("every-{seed}.pcapng"), source, destination, &packets);
        let extra =
            ["metaroce.checksum.status", "ip.checksum.status", "udp.checksum.status", "frame.time_epoch"];
        let rows = dissect_all(&capture, &extra);
        assert_eq!(rows.len(), packets.len());
        for (number, (bytes, row)) in packets.iter().zip(&rows).enumerate() {
            assert_same(bytes, row, number + 1);
            assert!(!row.has_error, "packet {} of seed {seed}: {row:?}", number + 1);
            let status = if bytes[16..20] == [0; 4] { "3" } else { "1" };
            let ip_status = if seed == 1 { "1" } else { "" };
            let time = format!("1800000000.{number:06}000");
            assert_eq!(row.fields[FIELDS.len()..], [status, ip_status, "1", &time], "packet {}", number + 1);
        }
    }
}

#[test]
fn bad_checksum_is_flagged() {
    if is_missing() {
        return;
    }
    let mut packets = every_packet(3);
    packets.retain(|bytes| bytes[16..20] != [0; 4]);
    for (number, bytes) in packets.iter_mut().enumerate() {
        // The checksum itself, or the last byte: payload, token, share, padding.
        let at = if number % 2 == 0 { 19 } else { bytes.len() - 1 };
        bytes[at] ^= 0x10;
    }
    let capture = write("checksum.pcapng", V4[0], V4[1], &packets);
    let rows = dissect(&capture, &["metaroce.checksum.status", "metaroce.expert.checksum"], &[]);
    assert_eq!(rows.len(), packets.len());
    for row in rows {
        assert!(row.has_error && row.fields[0] == "0" && !row.fields[1].is_empty(), "{row:?}");
    }
    let unverified = dissect(&capture, &["metaroce.checksum.status"], &["-o", "metaroce.verify:FALSE"]);
    assert!(unverified.iter().all(|row| row.fields[0] == "2"));
}

#[test]
fn what_the_core_drops_as_malformed_is_flagged_and_nothing_else() {
    if is_missing() {
        return;
    }
    let mut builder = Builder(Random::new(4));
    let packets = builder.every_packet();
    let mutants: Vec<_> = (0..6).flat_map(|_| packets.iter()).map(|packet| builder.mutant(packet)).collect();
    let capture = write("mutants.pcapng", V4[0], V4[1], &mutants);
    let rows = dissect_all(&capture, &["metaroce.expert.malformed"]);
    assert_eq!(rows.len(), mutants.len());
    let mut malformed = 0;
    for (number, (bytes, row)) in mutants.iter().zip(&rows).enumerate() {
        let flagged = !row.fields[FIELDS.len()].is_empty();
        let parsed = expected(bytes);
        let error = parsed.as_ref().err();
        assert_eq!(flagged, error.is_some(), "packet {}: {error:?}: {bytes:02x?}", number + 1);
        malformed += usize::from(flagged);
    }
    assert!(malformed > 500 && mutants.len() - malformed > 500, "{malformed} of {}", mutants.len());
}

#[test]
fn other_ports_are_found_by_checksum_or_by_preference() {
    if is_missing() {
        return;
    }
    let mut packets = every_packet(5);
    for bytes in &mut packets {
        seal(bytes);
    }
    // The first datagram is nothing of ours; the last has no checksum but follows others.
    let mut random = Random::new(6);
    packets.insert(0, (0..100).flat_map(|_| random.next_u64().to_be_bytes()).collect());
    packets.push(packets[1].clone());
    packets.last_mut().unwrap()[16..20].fill(0);
    let capture = write("ports.pcapng", "10.0.0.1:49152", "10.0.0.2:6000", &packets);
    for (options, first) in [(&[][..], false), (&["-o", "metaroce.ports:6000-6001"], true)] {
        let rows = dissect(&capture, &[], options);
        assert_eq!(rows.len(), packets.len());
        assert_eq!(rows[0].is_metaroce, first);
        assert!(rows[1..].iter().all(|row| row.is_metaroce && !row.has_error));
    }
}
