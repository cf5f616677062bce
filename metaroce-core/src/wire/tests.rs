//! Round trips, truncation and junk, over arbitrary headers of every kind.
//!
//! A failure prints the shrunken header that shows it, which is all that is needed to replay it.

#![expect(clippy::arithmetic_side_effects, reason = "tests may fail by panicking")]
#![expect(
    clippy::needless_pass_by_value,
    clippy::large_types_passed_by_value,
    reason = "quickcheck hands its arguments over by value"
)]

extern crate std;

mod arbitrary;
mod data;
mod reserved;
mod vector;

use core::fmt::Debug;
use std::vec;
use std::vec::Vec;

use quickcheck::QuickCheck;

use self::arbitrary::DataPacket;
use super::{
    AckBody, Base, BufferTooSmall, Control, DataHeader, Frame, FrameIter, Probe, ProbeReply, RejectReason,
    WireError,
};

/// Emits into a buffer of just `length` bytes, which must be filled, and shows that any shorter one is refused.
fn emitted(length: usize, emit: impl Fn(&mut [u8]) -> Result<usize, BufferTooSmall>) -> Vec<u8> {
    for short in 0..length {
        assert_eq!(emit(&mut vec![0; short]), Err(BufferTooSmall), "{short} bytes for {length}");
    }
    let mut out = vec![0xa5; length + 3];
    assert_eq!(emit(&mut out), Ok(length));
    assert_eq!(out.split_off(length), [0xa5; 3], "written past its end");
    out
}

/// Parses the header of `bytes`, followed by anything, and shows that no proper prefix of it is one.
fn parsed<'a, T: PartialEq + Debug>(
    bytes: &'a [u8],
    parse: impl Fn(&'a [u8]) -> Result<(T, &'a [u8]), WireError>,
) -> T {
    for cut in 0..bytes.len() {
        assert_eq!(parse(bytes.get(..cut).unwrap_or_default()), Err(WireError::Truncated), "cut at {cut}");
    }
    let (header, rest) = parse(bytes).unwrap();
    assert!(rest.is_empty());
    header
}

fn holds<A: quickcheck::Testable>(property: A) {
    QuickCheck::new().tests(2_000).max_tests(2_000).quickcheck(property);
}

#[test]
fn base_round_trips_and_its_prefixes_are_truncated() {
    fn property(base: Base) -> bool {
        let bytes = emitted(super::BASE_BYTES, |out| base.emit(out));
        parsed(&bytes, Base::parse) == base
    }
    holds(property as fn(Base) -> bool);
}

#[test]
fn data_round_trips_and_its_prefixes_are_truncated() {
    fn property(packet: DataPacket) -> bool {
        let header = packet.header;
        let mut bytes = emitted(header.encoded_length(), |out| header.emit(out));
        for cut in 0..bytes.len() {
            assert_eq!(DataHeader::parse(bytes.get(..cut).unwrap()), Err(WireError::Truncated));
        }
        bytes.extend_from_slice(&packet.payload);
        DataHeader::parse(&bytes) == Ok((header, &packet.payload))
    }
    holds(property as fn(DataPacket) -> bool);
}

#[test]
fn ack_round_trips_and_its_prefixes_are_truncated() {
    fn property(ack: AckBody) -> bool {
        let bytes = emitted(super::ACK_BODY_BYTES, |out| ack.emit(out));
        parsed(&bytes, AckBody::parse) == ack
    }
    holds(property as fn(AckBody) -> bool);
}

#[test]
fn frame_round_trips_and_its_prefixes_are_truncated() {
    fn property(frame: Frame) -> bool {
        let bytes = emitted(frame.encoded_length(), |out| frame.emit(out));
        assert!(bytes.len() <= Frame::BYTES_MAX);
        parsed(&bytes, Frame::parse) == Some(frame)
    }
    holds(property as fn(Frame) -> bool);
}

#[test]
fn probe_round_trips_and_its_prefixes_are_truncated() {
    fn property(probe: Probe, reply: ProbeReply) -> bool {
        let probe_bytes = emitted(super::PROBE_BYTES, |out| probe.emit(out));
        let reply_bytes = emitted(super::PROBE_REPLY_BYTES, |out| reply.emit(out));
        parsed(&probe_bytes, Probe::parse) == probe && parsed(&reply_bytes, ProbeReply::parse) == reply
    }
    holds(property as fn(Probe, ProbeReply) -> bool);
}

#[test]
fn control_round_trips_and_its_prefixes_are_truncated() {
    fn property(control: Control<'static>) -> bool {
        let bytes = emitted(control.encoded_length(), |out| control.emit(out));
        assert!(bytes.len() + super::BASE_BYTES <= super::CONTROL_BYTES_MAX);
        parsed(&bytes, Control::parse) == control
    }
    holds(property as fn(Control<'static>) -> bool);
}

#[test]
//= MR-WIRE-24 test
fn frames_come_back_in_order_with_unknown_ones_passed_over() {
    fn property(frames: Vec<Frame>, unknown: Vec<(u8, u8)>) -> bool {
        let mut bytes = Vec::new();
        let mut unknown = unknown.into_iter();
        for frame in &frames {
            if let Some((kind, length)) = unknown.next().filter(|(kind, _)| !(1..=6).contains(kind)) {
                bytes.extend_from_slice(&[kind, length]);
                bytes.resize(bytes.len() + usize::from(length), 0xee);
            }
            bytes.extend(emitted(frame.encoded_length(), |out| frame.emit(out)));
        }
        FrameIter::new(&bytes).eq(frames.into_iter().map(Ok))
    }
    holds(property as fn(Vec<Frame>, Vec<(u8, u8)>) -> bool);
}

#[test]
fn frames_end_after_the_first_error() {
    let start = [5, 4, 0, 0, 0, 9];
    let nack_of_unknown_reason = [2, 8, 0, 1, 7, 0, 0, 0, 0, 0];
    for (broken, error) in [
        (&nack_of_unknown_reason[..], WireError::Field),
        (&[5, 3, 0, 0, 0], WireError::Field),
        (&[5, 5, 0, 0, 0, 0, 0], WireError::Field),
        (&[5, 4, 0, 0, 0], WireError::Truncated),
        (&[5], WireError::Truncated),
        (&[200, 9, 0], WireError::Truncated),
    ] {
        let mut bytes = start.to_vec();
        bytes.extend_from_slice(broken);
        if error == WireError::Field {
            bytes.extend_from_slice(&start);
        }
        let mut frames = FrameIter::new(&bytes);
        assert_eq!(frames.next(), Some(Ok(Frame::Start { allowance_kib: 9 })));
        assert_eq!(frames.next(), Some(Err(error)), "{broken:?}");
        assert_eq!(frames.next(), None);
        assert_eq!(frames.next(), None);
    }
}

#[test]
fn base_names_what_is_wrong() {
    let good = [1_u8, 0, 63, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let with = |index: usize, value: u8| {
        let mut bytes = good;
        bytes[index] = value;
        Base::parse(&bytes).map(|(base, _)| base.path.0)
    };
    assert_eq!(with(1, 0xff), Ok(63), "reserved flags are ignored");
    assert_eq!(with(2, 64), Err(WireError::Field));
    assert_eq!(with(0, 0x11), Err(WireError::Version));
    for kind in [0, 6, 7, 15] {
        assert_eq!(with(0, kind), Err(WireError::Kind));
    }
}

#[test]
fn write_checksum_touches_its_field_only() {
    let mut whole = [0; 24];
    Base::write_checksum(&mut whole, 0x0102_0304);
    assert_eq!(whole[..16], [0; 16]);
    assert_eq!(whole[16..], [1, 2, 3, 4, 0, 0, 0, 0]);
    let mut short = [0; 19];
    Base::write_checksum(&mut short, 0x0102_0304);
    assert_eq!(short, [0; 19]);
}

#[test]
fn reject_reasons_keep_their_codes_apart() {
    for code in 0..=u16::MAX {
        match RejectReason::from_code(code) {
            Ok(reason) => assert_eq!(reason.code(), code),
            Err(error) => assert!(error == WireError::Field && (code == 0 || (6..0x100).contains(&code))),
        }
    }
    assert_eq!(RejectReason::Application(3).code(), 0x100);
}

#[test]
//= MR-WIRE-29 test
fn private_data_and_planes_are_bounded_on_both_sides() {
    let long = [0; 257];
    let reject = super::Reject { reason: RejectReason::Busy, echoed_nonce: 1, private_data: &long };
    assert_eq!(Control::Reject(reject).emit(&mut [0; 640]), Err(BufferTooSmall));

    let mut bytes = vec![0; 640];
    bytes[..4].copy_from_slice(&[4, 0, 0, 4]);
    bytes[12..14].copy_from_slice(&257_u16.to_be_bytes());
    assert_eq!(Control::parse(&bytes), Err(WireError::Field));

    let mut connect = vec![0; 640];
    connect[0] = 1;
    connect[42] = 64;
    assert!(Control::parse(&connect).is_ok());
    for (index, value) in [(42, 0), (42, 65), (43, 9), (43, 1), (2, 2)] {
        let mut bytes = connect.clone();
        bytes[index] = value;
        assert_eq!(Control::parse(&bytes), Err(WireError::Field), "byte {index} = {value}");
    }

    let mut planes = super::PlaneAddresses::EMPTY;
    assert!(planes.is_empty());
    let address = "[2001:db8::1]:4795".parse().unwrap();
    assert!((0..8).all(|_| planes.push(address)));
    assert!(!planes.push(address));
    assert!(planes.len() == 8 && !planes.is_empty());
    assert_eq!(planes.as_slice(), [address; 8]);
    assert_eq!(super::PlaneAddresses::from_slice(&[address; 8]), Some(planes));
    assert_eq!(super::PlaneAddresses::from_slice(&[address; 9]), None);
}
