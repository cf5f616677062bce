//! Which opcodes, flags, offsets, lengths and payloads go together.

use quickcheck::Gen;

use super::arbitrary::data_packet;
use super::std::{self, vec};
use crate::wire::{
    BASE_BYTES, DATA_HEADER_BYTES_MAX, DataHeader, OpFlags, Opcode, Remote, Signal, WireError,
};

const LAST: u8 = OpFlags::LAST.bits();
const IMMEDIATE: u8 = OpFlags::IMMEDIATE.bits();
const INVALIDATE: u8 = OpFlags::INVALIDATE.bits();
const TAGGED: u8 = OpFlags::TAGGED.bits();
const SIGNAL: u8 = OpFlags::SIGNAL.bits();
const SOLICITED: u8 = OpFlags::SOLICITED.bits();

/// The rules once more, flag by flag instead of opcode by opcode.
fn is_legal(opcode: Opcode, flags: u8) -> bool {
    use Opcode::{AtomicResponse, Datagram, ReadRequest, Result, Send, StreamReset, Void, Write};
    let has = |flag: u8| flags & flag != 0;
    let immediate = match opcode {
        Result | StreamReset => has(IMMEDIATE),
        Send | Datagram => true,
        Write => !has(IMMEDIATE) || has(LAST),
        _ => !has(IMMEDIATE),
    };
    let single_packet = matches!(opcode, ReadRequest | AtomicResponse | Datagram) || opcode.is_atomic();
    immediate
        && (!has(INVALIDATE) || (opcode == Send && !has(IMMEDIATE)))
        && (!has(TAGGED) || opcode == Send)
        && (!has(SIGNAL) || (opcode == Write && has(LAST) && !has(IMMEDIATE)))
        && (!has(SOLICITED) || opcode != Void)
        && (has(LAST) || !single_packet)
}

#[test]
//= MR-WIRE-17 test
fn opcodes_permit_just_the_flags_of_the_table() {
    let legal_per_opcode: [(Opcode, usize); 17] = [
        (Opcode::Send, 48),
        (Opcode::Write, 16),
        (Opcode::ReadRequest, 4),
        (Opcode::ReadResponse, 8),
        (Opcode::AtomicResponse, 4),
        (Opcode::Result, 8),
        (Opcode::Void, 4),
        (Opcode::StreamReset, 8),
        (Opcode::Datagram, 8),
        (Opcode::FetchAdd, 4),
        (Opcode::CompareSwap, 4),
        (Opcode::Swap, 4),
        (Opcode::Min, 4),
        (Opcode::Max, 4),
        (Opcode::And, 4),
        (Opcode::Or, 4),
        (Opcode::Xor, 4),
    ];
    for (opcode, expected) in legal_per_opcode {
        let permitted = (0..128).filter(|bits| opcode.permits(OpFlags::from_bits(*bits))).count();
        assert_eq!(permitted, expected, "{opcode:?}");
        for bits in 0..128 {
            assert_eq!(
                opcode.permits(OpFlags::from_bits(bits)),
                is_legal(opcode, bits),
                "{opcode:?} with {bits:#04x}"
            );
        }
    }
}

#[test]
fn parse_takes_legal_flags_and_no_others() {
    let mut g = Gen::new(20);
    for opcode in Opcode::ALL {
        for bits in 0..128 {
            let flags = OpFlags::from_bits(bits);
            if is_legal(opcode, bits) {
                let packet = data_packet(&mut g, opcode, flags);
                let mut bytes = vec![0; packet.header.encoded_length()];
                packet.header.emit(&mut bytes).unwrap();
                bytes.extend_from_slice(&packet.payload);
                assert_eq!(DataHeader::parse(&bytes), Ok((packet.header, &packet.payload[..])));
            } else {
                let mut bytes = [0; 120];
                bytes[..2].copy_from_slice(&[opcode.code(), bits]);
                assert_eq!(DataHeader::parse(&bytes), Err(WireError::Field), "{opcode:?} {bits:#04x}");
            }
        }
    }
}

#[test]
//= MR-WIRE-14 test
fn no_legal_header_exceeds_eighty_bytes() {
    let longest = Opcode::ALL
        .into_iter()
        .flat_map(|opcode| (0..128).map(move |bits| (opcode, OpFlags::from_bits(bits))))
        .filter(|(opcode, flags)| opcode.permits(*flags))
        .map(|(opcode, flags)| BASE_BYTES + DataHeader::encoded_length_of(opcode, flags))
        .max();
    assert_eq!(longest, Some(DATA_HEADER_BYTES_MAX));
}

#[test]
fn opcodes_are_those_codes_and_no_others() {
    for code in 0..=u8::MAX {
        let known = (0x01..=0x09).contains(&code) || (0x10..=0x17).contains(&code);
        match Opcode::from_code(code) {
            Ok(opcode) => assert!(known && opcode.code() == code),
            Err(error) => assert!(!known && error == WireError::Kind),
        }
        let mut bytes = [0; 28];
        bytes[0] = code;
        assert_eq!(DataHeader::parse(&bytes) == Err(WireError::Kind), !known);
    }
    assert!(Opcode::ALL.iter().all(|opcode| Opcode::from_code(opcode.code()) == Ok(*opcode)));
}

#[test]
fn opcode_classes_are_those_of_the_table() {
    use Opcode::{AtomicResponse, ReadRequest, ReadResponse, Result, Send, Write};
    for opcode in Opcode::ALL {
        assert_eq!(opcode.is_atomic(), opcode.code() >= 0x10);
        assert_eq!(opcode.has_remote(), opcode.is_atomic() || [Write, ReadRequest].contains(&opcode));
        assert_eq!(opcode.takes_msn(), opcode.has_remote() || opcode == Send);
        assert_eq!(opcode.is_segmented(), [Send, Write, ReadResponse].contains(&opcode));
        assert_eq!(opcode.is_response(), [ReadResponse, AtomicResponse, Result].contains(&opcode));
    }
}

#[test]
//= MR-WIRE-15, MR-WIRE-16 test
fn payload_offset_and_length_must_agree() {
    use Opcode::{AtomicResponse, Datagram, FetchAdd, ReadRequest, ReadResponse, Result, Send, Void, Write};
    const MAX: u32 = u32::MAX;
    // Opcode, flags, offset, length, payload bytes, whether that is legal.
    let table = [
        (Send, LAST, 0, 0, 0, true),
        (Send, 0, 0, 0, 0, false),
        (Send, LAST, 0, 4, 0, false),
        (Send, LAST, 4, 4, 0, false),
        (Send, LAST, 1, 0, 0, false),
        (Send, LAST, 0, 0, 1, false),
        (Write, LAST, 0, 4, 4, true),
        (Write, LAST, 1, 5, 4, true),
        (Write, LAST, 0, 5, 4, false),
        (Write, 0, 0, 4, 4, false),
        (Write, 0, 0, 5, 4, true),
        (Write, 0, 0, 5, 0, false),
        (Write, 0, 2, 5, 4, false),
        (Write, LAST, MAX - 1, MAX, 1, true),
        (Write, LAST, MAX, MAX, 1, false),
        (Write, LAST, MAX - 2, MAX, 4, false),
        (ReadResponse, LAST, 8, 16, 8, true),
        (ReadResponse, 0, 8, 16, 8, false),
        (ReadRequest, LAST, 0, MAX, 0, true),
        (ReadRequest, LAST, 1, 8, 0, false),
        (ReadRequest, LAST, 0, 8, 8, false),
        (FetchAdd, LAST, 0, 8, 0, true),
        (FetchAdd, LAST, 0, 4, 0, false),
        (FetchAdd, LAST, 8, 8, 0, false),
        (FetchAdd, LAST, 0, 8, 8, false),
        (AtomicResponse, LAST, 0, 8, 8, true),
        (AtomicResponse, LAST, 0, 8, 7, false),
        (AtomicResponse, LAST, 0, 7, 8, false),
        (AtomicResponse, LAST, 1, 8, 8, false),
        (Datagram, LAST, MAX, 9, 9, true),
        (Datagram, LAST, 0, 9, 8, false),
        (Datagram, LAST, 0, 0, 0, true),
        (Result, IMMEDIATE, 7, 3, 0, true),
        (Result, IMMEDIATE, 7, 3, 1, false),
        (Void, 0, 7, 3, 0, true),
        (Void, 0, 0, 4, 4, false),
    ];
    for (opcode, bits, offset, length, payload, legal) in table {
        let flags = OpFlags::from_bits(bits);
        let mut header = data_packet(&mut Gen::new(4), opcode, flags).header;
        header.offset = offset;
        header.length = length;
        let mut bytes = vec![0; header.encoded_length()];
        header.emit(&mut bytes).unwrap();
        bytes.resize(bytes.len() + payload, 1);
        let parsed = DataHeader::parse(&bytes).map(|(header, _)| header);
        let expected = if legal { Ok(header) } else { Err(WireError::Field) };
        assert_eq!(parsed, expected, "{opcode:?} {bits} {offset} {length} {payload}");
        assert_eq!(header.check(payload).is_ok(), legal);
    }
}

#[test]
fn a_header_with_a_field_too_few_or_too_many_is_not_consistent() {
    let mut g = Gen::new(4);
    for opcode in Opcode::ALL {
        for flags in (0..128).map(OpFlags::from_bits).filter(|flags| opcode.permits(*flags)) {
            let header = data_packet(&mut g, opcode, flags).header;
            assert!(header.is_consistent());
            let remote = header.remote.xor(Some(Remote::default()));
            assert!(!DataHeader { remote, ..header }.is_consistent());
            let operands = header.operands.xor(Some([0; 2]));
            assert!(!DataHeader { operands, ..header }.is_consistent());
            let match_bits = header.match_bits.xor(Some(0));
            assert!(!DataHeader { match_bits, ..header }.is_consistent());
            let immediate = header.immediate.xor(Some(0));
            assert!(!DataHeader { immediate, ..header }.is_consistent());
            let signal = header.signal.xor(Some(Signal::default()));
            assert!(!DataHeader { signal, ..header }.is_consistent());
        }
    }
}

#[test]
fn op_flags_are_sets() {
    let both = OpFlags::LAST.with(OpFlags::TAGGED);
    assert_eq!(both.bits(), 9);
    assert!(both.contains(OpFlags::LAST) && both.contains(both) && both.contains(OpFlags::NONE));
    assert!(!both.contains(OpFlags::LAST.with(OpFlags::SIGNAL)));
    assert!(both.intersects(OpFlags::LAST.with(OpFlags::SIGNAL)) && !both.intersects(OpFlags::NONE));
    assert_eq!(both.with(OpFlags::LAST), both);
    assert_eq!(both.without(OpFlags::LAST), OpFlags::TAGGED);
    assert_eq!(OpFlags::from_bits(0xff), OpFlags::ALL);
    assert_eq!(std::format!("{both:?}"), "{last, tagged}");
}
