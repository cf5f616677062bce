//! Junk: whatever bytes come in, parsing ends without panic, and what it takes it gives back but for reserved bits.

use std::vec;
use std::vec::Vec;

use super::arbitrary::DataPacket;
use super::{holds, std};
use crate::wire::{
    ACK_BODY_BYTES, AckBody, BASE_BYTES, Base, Control, DataHeader, Frame, FrameIter, Probe, ProbeReply,
};

/// Shows that `back`, emitted from what `bytes` were parsed to, differs from them in no bit outside `reserved`, and
/// in those is zero. `reserved` lists bytes and the bits reserved in them.
fn assert_same_but_reserved(bytes: &[u8], back: &[u8], reserved: &[(usize, u8)]) {
    let mut expected = bytes.to_vec();
    for (index, bits) in reserved {
        expected[*index] &= !bits;
    }
    assert_eq!(back, expected);
}

/// The bytes of `bytes` before `rest`.
fn consumed<'a>(bytes: &'a [u8], rest: &[u8]) -> &'a [u8] {
    &bytes[..bytes.len() - rest.len()]
}

fn whole(from: usize, to: usize) -> Vec<(usize, u8)> {
    (from..to).map(|index| (index, 0xff)).collect()
}

fn reserved_of_control(bytes: &[u8]) -> Vec<(usize, u8)> {
    match bytes[0] {
        1 | 2 => {
            let mut reserved = vec![(1, 0xfc)];
            for plane in 0..usize::from(bytes[43]) {
                let start = 88 + 20 * plane;
                reserved.push((start + 1, 0xff));
                if bytes[start] == 4 {
                    reserved.extend(whole(start + 8, start + 20));
                }
            }
            reserved
        }
        3 | 5 => whole(1, 4),
        4 => vec![(1, 0xff), (14, 0xff), (15, 0xff)],
        6 | 7 => vec![(1, 0xfe), (3, 0xff)],
        _ => vec![(1, 0xfe), (2, 0xff), (3, 0xff)],
    }
}

fn reserved_of_frame(bytes: &[u8]) -> Vec<(usize, u8)> {
    match bytes[0] {
        3 => vec![(4, 0xfe), (5, 0xff)],
        2 | 6 => vec![(2 + 3, 0xff)],
        _ => Vec::new(),
    }
}

/// Parses `bytes` as each header there is.
fn parse_as_everything(bytes: &[u8]) {
    let mut out = [0; 640];
    if let Ok((base, rest)) = Base::parse(bytes) {
        let length = base.emit(&mut out).unwrap();
        assert_same_but_reserved(consumed(bytes, rest), &out[..length], &[]);
    }
    if let Ok((data, rest)) = DataHeader::parse(bytes) {
        assert!(data.is_consistent());
        assert_eq!(data.check(rest.len()), Ok(()));
        let length = data.emit(&mut out).unwrap();
        assert_same_but_reserved(consumed(bytes, rest), &out[..length], &[(1, 0x80)]);
    }
    if let Ok((ack, rest)) = AckBody::parse(bytes) {
        let length = ack.emit(&mut out).unwrap();
        assert_same_but_reserved(consumed(bytes, rest), &out[..length], &[(3, 0xff)]);
    }
    if let Ok((frame, rest)) = Frame::parse(bytes) {
        let taken = consumed(bytes, rest);
        assert!(taken.len() >= 2, "no progress");
        if let Some(frame) = frame {
            let length = frame.emit(&mut out).unwrap();
            assert_same_but_reserved(taken, &out[..length], &reserved_of_frame(taken));
        }
    }
    if let Ok((probe, rest)) = Probe::parse(bytes) {
        let length = probe.emit(&mut out).unwrap();
        assert_same_but_reserved(consumed(bytes, rest), &out[..length], &whole(2, 4));
    }
    if let Ok((reply, rest)) = ProbeReply::parse(bytes) {
        let length = reply.emit(&mut out).unwrap();
        assert_same_but_reserved(consumed(bytes, rest), &out[..length], &[(8 + 3, 0xff)]);
    }
    if let Ok((control, rest)) = Control::parse(bytes) {
        let taken = consumed(bytes, rest);
        let length = control.emit(&mut out).unwrap();
        assert_same_but_reserved(taken, &out[..length], &reserved_of_control(taken));
    }
    assert!(FrameIter::new(bytes).count() <= bytes.len() / 2 + 1);
}

/// Overwrites bytes of `bytes` as `edits` say, then cuts or extends it.
fn damaged(mut bytes: Vec<u8>, edits: &[(u8, u8)], length: u8) -> Vec<u8> {
    let count = bytes.len();
    for (index, value) in edits {
        if let Some(byte) = bytes.get_mut(usize::from(*index) % count) {
            *byte = *value;
        }
    }
    if !length.is_multiple_of(3) {
        bytes.resize(usize::from(length), 0xff);
    }
    bytes
}

#[test]
fn random_bytes_never_panic_and_come_back_but_for_reserved_bits() {
    fn property(mut bytes: Vec<u8>, head: u8, more: Vec<u8>) -> bool {
        bytes.extend_from_slice(&more);
        parse_as_everything(&bytes);
        // Most codes are small: give each of them its turn at the front.
        bytes.insert(0, head % 0x18);
        bytes.resize(bytes.len() + 90, head);
        parse_as_everything(&bytes);
        true
    }
    holds(property as fn(Vec<u8>, u8, Vec<u8>) -> bool);
}

#[test]
fn damaged_headers_never_panic_and_come_back_but_for_reserved_bits() {
    fn control(control: Control<'static>, edits: Vec<(u8, u8)>, length: u8) -> bool {
        let mut bytes = vec![0; control.encoded_length()];
        control.emit(&mut bytes).unwrap();
        parse_as_everything(&damaged(bytes, &edits, length));
        true
    }
    fn data(packet: DataPacket, edits: Vec<(u8, u8)>, length: u8) -> bool {
        let mut bytes = vec![0; packet.header.encoded_length()];
        packet.header.emit(&mut bytes).unwrap();
        bytes.extend_from_slice(&packet.payload);
        parse_as_everything(&damaged(bytes, &edits, length));
        true
    }
    fn frames(frames: Vec<Frame>, edits: Vec<(u8, u8)>, length: u8) -> bool {
        let mut bytes = Vec::from([0, 0]);
        for frame in frames {
            let mut out = [0; Frame::BYTES_MAX];
            let count = frame.emit(&mut out).unwrap();
            bytes.extend_from_slice(&out[..count]);
        }
        let bytes = damaged(bytes, &edits, length);
        let mut rest = &bytes[..];
        while let Ok((_, next)) = Frame::parse(rest) {
            parse_as_everything(rest);
            rest = next;
        }
        true
    }
    fn base_and_ack(base: Base, ack: AckBody, edits: Vec<(u8, u8)>, length: u8) -> bool {
        let mut bytes = vec![0; BASE_BYTES];
        base.emit(&mut bytes).unwrap();
        parse_as_everything(&damaged(bytes, &edits, length));
        let mut bytes = vec![0; ACK_BODY_BYTES];
        ack.emit(&mut bytes).unwrap();
        parse_as_everything(&damaged(bytes, &edits, length));
        true
    }
    holds(control as fn(Control<'static>, Vec<(u8, u8)>, u8) -> bool);
    holds(data as fn(DataPacket, Vec<(u8, u8)>, u8) -> bool);
    holds(frames as fn(Vec<Frame>, Vec<(u8, u8)>, u8) -> bool);
    holds(base_and_ack as fn(Base, AckBody, Vec<(u8, u8)>, u8) -> bool);
}

#[test]
//= MR-WIRE-5 test
fn reserved_bits_are_ignored() {
    fn property(control: Control<'static>, frame: Frame, ack: AckBody, probe: Probe) -> bool {
        let mut bytes = vec![0; control.encoded_length()];
        control.emit(&mut bytes).unwrap();
        for (index, bits) in reserved_of_control(&bytes) {
            bytes[index] |= bits;
        }
        assert_eq!(Control::parse(&bytes), Ok((control, &[][..])));

        let mut bytes = vec![0; frame.encoded_length()];
        frame.emit(&mut bytes).unwrap();
        for (index, bits) in reserved_of_frame(&bytes) {
            bytes[index] |= bits;
        }
        assert_eq!(Frame::parse(&bytes), Ok((Some(frame), &[][..])));

        let mut bytes = [0; ACK_BODY_BYTES];
        ack.emit(&mut bytes).unwrap();
        bytes[3] = 0xff;
        assert_eq!(AckBody::parse(&bytes), Ok((ack, &[][..])));

        let mut bytes = [0xff; 20];
        probe.emit(&mut bytes).unwrap();
        bytes[2..4].fill(0xff);
        Probe::parse(&bytes) == Ok((probe, &[0xff; 4][..]))
    }
    holds(property as fn(Control<'static>, Frame, AckBody, Probe) -> bool);
}
