//! Golden bytes of every header, written by hand from the layout tables in `metaroce_core::wire`.

use core::fmt::Debug;

use metaroce_core::ids::{Csn, Msn, PathId, Psn, ReceiveIndex, RegionKey, StreamId, WireConnectionId};
use metaroce_core::wire::{
    ACK_BODY_BYTES, ACK_FLAG_EMPTY, AckBody, BASE_BYTES, Base, BufferTooSmall, CONNECT_FIXED_BYTES,
    CONTROL_BYTES_MAX, Close, Confirm, Connect, Control, DATA_FIXED_BYTES, DATA_HEADER_BYTES_MAX, DataHeader,
    Frame, FrameIter, NackReason, OpFlags, Opcode, PROBE_BYTES, PROBE_REPLY_BYTES, PacketType,
    PlaneAddresses, Probe, ProbeReply, QUOTE_BYTES, Reject, RejectReason, Remote, Reset, ResetProof, Retry,
    Signal, UDP_PORT, VERSION, Vector256, WireError,
};

/// Bytes from hexadecimal digits; white space is passed over.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> =
        text.chars().filter(|c| !c.is_whitespace()).map(|c| c.to_digit(16).expect("hex digit")).collect();
    assert!(digits.len().is_multiple_of(2), "odd number of digits");
    digits.chunks(2).map(|pair| u8::try_from(pair[0] << 4 | pair[1]).unwrap()).collect()
}

/// Shows that `header` is emitted as `golden`, and that `golden`, followed by `rest`, parses to `header`.
fn check<T: PartialEq + Debug>(
    golden: &str,
    rest: &[u8],
    header: &T,
    emit: impl Fn(&mut [u8]) -> Result<usize, BufferTooSmall>,
    parse: impl Fn(&[u8]) -> Result<(T, &[u8]), WireError>,
) {
    let golden = hex(golden);
    let mut out = vec![0xff; golden.len()];
    assert_eq!(emit(&mut out), Ok(golden.len()), "{header:?}");
    assert_eq!(out, golden, "emit {header:?}");
    let whole = [&golden[..], rest].concat();
    let (parsed, left) = parse(&whole).expect("golden bytes are valid");
    assert_eq!(&parsed, header);
    assert_eq!(left, rest);
}

fn check_data(golden: &str, payload: &[u8], header: DataHeader) {
    assert_eq!(header.encoded_length(), hex(golden).len());
    check(golden, payload, &header, |out| header.emit(out), DataHeader::parse);
}

fn check_frame(golden: &str, frame: Frame) {
    assert_eq!(frame.encoded_length(), hex(golden).len());
    check(golden, &[0xab], &Some(frame), |out| frame.emit(out), Frame::parse);
    assert!(FrameIter::new(&hex(golden)).eq([Ok(frame)]));
}

fn check_control(golden: &str, control: &Control<'_>) {
    let golden = hex(golden);
    assert_eq!(control.encoded_length(), golden.len());
    let mut out = vec![0xff; golden.len()];
    assert_eq!(control.emit(&mut out), Ok(golden.len()));
    assert_eq!(out, golden, "emit {control:?}");
    let padded = [&golden[..], &[0, 0, 0]].concat();
    let (parsed, padding) = Control::parse(&padded).expect("golden bytes are valid");
    assert_eq!(&parsed, control);
    assert_eq!(padding, [0, 0, 0]);
}

/// A DATA header with no optional field.
fn data(opcode: Opcode, flags: OpFlags, offset: u32, length: u32) -> DataHeader {
    DataHeader {
        opcode,
        flags,
        stream: StreamId(0x0102),
        csn: Csn::new(0x1122_3344),
        msn: Msn::new(0x5566_7788),
        offset,
        length,
        receive_index: ReceiveIndex::new(0x99aa_bbcc),
        demand_kib: 0x0000_0400,
        remote: None,
        operands: None,
        match_bits: None,
        immediate: None,
        signal: None,
    }
}

const REMOTE: Remote = Remote { key: RegionKey(0xcafe_f00d), address: 0x0001_0203_0405_0607 };

fn vector(bits: &[u32]) -> Vector256 {
    let mut vector = Vector256::EMPTY;
    for bit in bits {
        vector.insert(*bit);
    }
    vector
}

fn ack() -> AckBody {
    AckBody {
        path: PathId(5),
        epoch: 7,
        flags: 0,
        largest: Psn::new(0x0102_0304),
        accepted: vector(&[0, 9, 63, 64, 255]),
        echoed_timestamp: 0x1112_1314,
        hold: 0x2122_2324,
        packets: 0x3132_3334,
        marked: 0x4142_4344,
        cumulative: Csn::new(0x5152_5354),
        share_kbps: 0x6162_6364,
    }
}

/// [`ack`] as bytes.
const ACK: &str = "05 07 00 00  01020304
    80 40 00 00 00 00 00 01  80 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 01
    11121314 21222324 31323334 41424344 51525354 61626364";

#[test]
//= MR-WIRE-7 test
fn constants_are_those_of_draft_0() {
    assert_eq!((VERSION, UDP_PORT, BASE_BYTES, QUOTE_BYTES), (0, 4795, 20, 20));
    assert_eq!((DATA_FIXED_BYTES, DATA_HEADER_BYTES_MAX, ACK_BODY_BYTES), (28, 80, 64));
    assert_eq!((PROBE_BYTES, PROBE_REPLY_BYTES, CONNECT_FIXED_BYTES, CONTROL_BYTES_MAX), (16, 72, 88, 524));
}

#[test]
//= MR-WIRE-1 test
fn base_header_of_each_packet_type() {
    for (golden, kind) in [
        ("01 00 05 07 11223344 aabbccdd 01020304 deadbeef", PacketType::Data),
        ("02 00 05 07 11223344 aabbccdd 01020304 deadbeef", PacketType::Ack),
        ("03 00 05 07 11223344 aabbccdd 01020304 deadbeef", PacketType::Control),
        ("04 00 05 07 11223344 aabbccdd 01020304 deadbeef", PacketType::Probe),
        ("05 00 05 07 11223344 aabbccdd 01020304 deadbeef", PacketType::ProbeReply),
    ] {
        let base = Base {
            kind,
            flags: 0,
            path: PathId(5),
            epoch: 7,
            connection: WireConnectionId(0x1122_3344),
            psn: Psn::new(0xaabb_ccdd),
            timestamp: 0x0102_0304,
            checksum: 0xdead_beef,
        };
        check(golden, &[1, 2, 3], &base, |out| base.emit(out), Base::parse);
        assert_eq!(kind.takes_psn(), matches!(kind, PacketType::Data | PacketType::Probe));
    }
}

#[test]
fn send() {
    check_data(
        "01 01 0102 11223344 55667788 00000000 00000000 99aabbcc 00000400",
        b"",
        data(Opcode::Send, OpFlags::LAST, 0, 0),
    );
    check_data(
        "01 00 0102 11223344 55667788 00001000 00002000 99aabbcc 00000400",
        b"abcd",
        data(Opcode::Send, OpFlags::NONE, 0x1000, 0x2000),
    );
    let flags = OpFlags::LAST.with(OpFlags::TAGGED).with(OpFlags::IMMEDIATE);
    check_data(
        "01 0b 0102 11223344 55667788 00001000 00001004 99aabbcc 00000400  0102030405060708 f1f2f3f4",
        b"abcd",
        DataHeader {
            match_bits: Some(0x0102_0304_0506_0708),
            immediate: Some(0xf1f2_f3f4),
            ..data(Opcode::Send, flags, 0x1000, 0x1004)
        },
    );
    let flags = OpFlags::INVALIDATE.with(OpFlags::SOLICITED).with(OpFlags::ACK_NOW);
    check_data(
        "01 64 0102 11223344 55667788 00000000 00000008 99aabbcc 00000400  f1f2f3f4",
        b"abcd",
        DataHeader { immediate: Some(0xf1f2_f3f4), ..data(Opcode::Send, flags, 0, 8) },
    );
}

#[test]
fn write() {
    check_data(
        "02 00 0102 11223344 55667788 00000000 00000008 99aabbcc 00000400  cafef00d 0001020304050607",
        b"abcd",
        DataHeader { remote: Some(REMOTE), ..data(Opcode::Write, OpFlags::NONE, 0, 8) },
    );
    check_data(
        "02 03 0102 11223344 55667788 00000000 00000004 99aabbcc 00000400
         cafef00d 0001020304050607 f1f2f3f4",
        b"abcd",
        DataHeader {
            remote: Some(REMOTE),
            immediate: Some(0xf1f2_f3f4),
            ..data(Opcode::Write, OpFlags::LAST.with(OpFlags::IMMEDIATE), 0, 4)
        },
    );
    check_data(
        "02 11 0102 11223344 55667788 00000000 00000004 99aabbcc 00000400
         cafef00d 0001020304050607  0badcafe 1011121314151617 2021222324252627",
        b"abcd",
        DataHeader {
            remote: Some(REMOTE),
            signal: Some(Signal {
                key: RegionKey(0x0bad_cafe),
                address: 0x1011_1213_1415_1617,
                addend: 0x2021_2223_2425_2627,
            }),
            ..data(Opcode::Write, OpFlags::LAST.with(OpFlags::SIGNAL), 0, 4)
        },
    );
}

#[test]
fn read_request_and_response() {
    check_data(
        "03 01 0102 11223344 55667788 00000000 ffffffff 99aabbcc 00000400  cafef00d 0001020304050607",
        b"",
        DataHeader { remote: Some(REMOTE), ..data(Opcode::ReadRequest, OpFlags::LAST, 0, u32::MAX) },
    );
    check_data(
        "04 41 0102 11223344 55667788 00000004 00000008 99aabbcc 00000400",
        b"abcd",
        data(Opcode::ReadResponse, OpFlags::LAST.with(OpFlags::ACK_NOW), 4, 8),
    );
}

#[test]
fn atomic_requests_and_response() {
    for (code, opcode) in [
        ("10", Opcode::FetchAdd),
        ("11", Opcode::CompareSwap),
        ("12", Opcode::Swap),
        ("13", Opcode::Min),
        ("14", Opcode::Max),
        ("15", Opcode::And),
        ("16", Opcode::Or),
        ("17", Opcode::Xor),
    ] {
        let after_code = "01 0102 11223344 55667788 00000000 00000008 99aabbcc 00000400
            cafef00d 0001020304050607  1011121314151617 2021222324252627";
        check_data(
            &format!("{code} {after_code}"),
            b"",
            DataHeader {
                remote: Some(REMOTE),
                operands: Some([0x1011_1213_1415_1617, 0x2021_2223_2425_2627]),
                ..data(opcode, OpFlags::LAST, 0, 8)
            },
        );
    }
    check_data(
        "05 01 0102 11223344 55667788 00000000 00000008 99aabbcc 00000400",
        b"12345678",
        data(Opcode::AtomicResponse, OpFlags::LAST, 0, 8),
    );
}

#[test]
fn result_void_stream_reset_and_datagram() {
    check_data(
        "06 03 0102 11223344 55667788 00000000 00000000 99aabbcc 00000400  0000000a",
        b"",
        DataHeader {
            immediate: Some(10),
            ..data(Opcode::Result, OpFlags::LAST.with(OpFlags::IMMEDIATE), 0, 0)
        },
    );
    check_data(
        "07 40 0102 11223344 55667788 00001000 00002000 99aabbcc 00000400",
        b"",
        data(Opcode::Void, OpFlags::ACK_NOW, 0x1000, 0x2000),
    );
    check_data(
        "08 02 0102 11223344 55667788 00000000 00000000 99aabbcc 00000400  0000000b",
        b"",
        DataHeader { immediate: Some(11), ..data(Opcode::StreamReset, OpFlags::IMMEDIATE, 0, 0) },
    );
    check_data(
        "09 23 0102 11223344 55667788 00000077 00000004 99aabbcc 00000400  f1f2f3f4",
        b"abcd",
        DataHeader {
            immediate: Some(0xf1f2_f3f4),
            ..data(Opcode::Datagram, OpFlags::from_bits(0x23), 0x77, 4)
        },
    );
}

#[test]
fn reserved_op_flag_is_ignored() {
    let bytes = hex("01 81 0102 11223344 55667788 00000000 00000000 99aabbcc 00000400");
    assert_eq!(DataHeader::parse(&bytes), Ok((data(Opcode::Send, OpFlags::LAST, 0, 0), &[][..])));
}

#[test]
//= MR-WIRE-23 test
fn acknowledgement() {
    for (golden, ack) in [
        (ACK.to_owned(), ack()),
        (
            format!("3f 00 01 00 {}", "00000000".repeat(15)),
            AckBody {
                path: PathId(63),
                epoch: 0,
                flags: ACK_FLAG_EMPTY,
                largest: Psn::new(0),
                accepted: Vector256::EMPTY,
                echoed_timestamp: 0,
                hold: 0,
                packets: 0,
                marked: 0,
                cumulative: Csn::new(0),
                share_kbps: 0,
            },
        ),
    ] {
        check(&golden, &[5, 4], &ack, |out| ack.emit(out), AckBody::parse);
    }
    let path_64 = hex(&ACK.replacen("05", "40", 1));
    assert_eq!(AckBody::parse(&path_64), Err(WireError::Field));
}

#[test]
fn frames() {
    check_frame(
        "01 20  01 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00  c0 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00",
        Frame::Refused(vector(&[7, 128, 129])),
    );
    for (code, reason) in [
        ("01", NackReason::NoReceive),
        ("02", NackReason::NoSlot),
        ("03", NackReason::Ended),
        ("04", NackReason::Order),
        ("05", NackReason::Access),
        ("06", NackReason::Closed),
    ] {
        check_frame(
            &format!("02 08  0102 {code} 00 00002710"),
            Frame::Nack { stream: StreamId(0x0102), reason, delay_us: 10_000 },
        );
    }
    let (stream, posted) = (StreamId(0x0102), ReceiveIndex::new(0x1112_1314));
    check_frame("03 08  0102 00 00 11121314", Frame::Credit { stream, none_needed: false, posted });
    check_frame("03 08  0102 01 00 11121314", Frame::Credit { stream, none_needed: true, posted });
    check_frame("04 08  00000005 80000000", Frame::Plane { silent: 5, unreachable: 0x8000_0000 });
    check_frame("05 04  00000040", Frame::Start { allowance_kib: 64 });
    check_frame(&format!("06 40 {ACK}"), Frame::Ack(ack()));
}

#[test]
fn frames_of_an_ack_in_a_row() {
    let bytes = hex("05 04 00000040  63 03 010203  00 00  04 08 00000001 00000002");
    let frames: Vec<_> = FrameIter::new(&bytes).collect();
    assert_eq!(
        frames,
        [Ok(Frame::Start { allowance_kib: 64 }), Ok(Frame::Plane { silent: 1, unreachable: 2 })]
    );
}

#[test]
//= MR-WIRE-27 test
fn probe_and_its_reply() {
    let probe = Probe { stream: StreamId::NONE, demand_kib: 0x0102_0304, token: 0x1112_1314_1516_1718 };
    check("ffff 0000 01020304 1112131415161718", &[0; 100], &probe, |out| probe.emit(out), Probe::parse);
    let reply = ProbeReply { token: 0x1112_1314_1516_1718, ack: ack() };
    check(&format!("1112131415161718 {ACK}"), &[5, 4], &reply, |out| reply.emit(out), ProbeReply::parse);
}

fn connect(private_data: &[u8]) -> Connect<'_> {
    Connect {
        wants_checksum: true,
        implicit: false,
        connection: WireConnectionId(0x0102_0304),
        nonce: 0x1112_1314_1516_1718,
        incarnation: 0x2122_2324_2526_2728,
        features: 0x3132_3334_3536_3738,
        mtu_bytes: 9000,
        service: 0x4142_4344,
        streams: 0x0100,
        paths: 64,
        reads: 0x0010,
        held: 0x0020,
        message_window: 1024,
        csn_window: 4096,
        initial_credits: 1,
        start_allowance_kib: 64,
        echoed_nonce: 0,
        cookie: [0; 16],
        planes: PlaneAddresses::EMPTY,
        private_data,
    }
}

#[test]
//= MR-WIRE-28 test
fn connect_and_accept() {
    check_control(
        "01 01 0003 01020304 1112131415161718 2122232425262728 3132333435363738
         00002328 41424344 0100 40 00 0010 0020 00000400 00001000 00000001 00000040
         0000000000000000 00000000000000000000000000000000  616263",
        &Control::Connect(connect(b"abc")),
    );
    let planes =
        ["192.0.2.1:4795".parse().unwrap(), "[2001:db8:102:304:506:708:90a:b0c]:65535".parse().unwrap()];
    check_control(
        "02 02 0000 01020304 1112131415161718 2122232425262728 3132333435363738
         00002328 41424344 0100 40 02 0010 0020 00000400 00001000 00000001 00000040
         5152535455565758 6162636465666768696a6b6c6d6e6f70
         04 00 12bb c0000201 000000000000000000000000
         06 00 ffff 20010db80102030405060708090a0b0c",
        &Control::Accept(Connect {
            wants_checksum: false,
            implicit: true,
            echoed_nonce: 0x5152_5354_5556_5758,
            cookie: *b"abcdefghijklmnop",
            planes: PlaneAddresses::from_slice(&planes).unwrap(),
            ..connect(b"")
        }),
    );
}

#[test]
fn longest_connect_is_as_long_as_stated() {
    let planes = PlaneAddresses::from_slice(&["192.0.2.1:1".parse().unwrap(); 8]).unwrap();
    let longest = Control::Connect(Connect { planes, ..connect(&[1; 256]) });
    assert_eq!(BASE_BYTES + longest.encoded_length(), CONTROL_BYTES_MAX);
}

#[test]
fn confirm_reject_and_retry() {
    let nonce = 0x1112_1314_1516_1718;
    check_control("03 000000 1112131415161718", &Control::Confirm(Confirm { echoed_nonce: nonce }));
    for (code, reason) in [
        ("0001", RejectReason::NoListener),
        ("0002", RejectReason::Limits),
        ("0003", RejectReason::Version),
        ("0004", RejectReason::Busy),
        ("0005", RejectReason::Closed),
        ("0100", RejectReason::Application(0x100)),
        ("ffff", RejectReason::Application(0xffff)),
    ] {
        check_control(
            &format!("04 00 {code} 1112131415161718 0002 0000 6162"),
            &Control::Reject(Reject { reason, echoed_nonce: nonce, private_data: b"ab" }),
        );
    }
    check_control(
        "05 000000 1112131415161718 6162636465666768696a6b6c6d6e6f70",
        &Control::Retry(Retry { echoed_nonce: nonce, cookie: *b"abcdefghijklmnop" }),
    );
}

#[test]
fn close_and_close_ack() {
    let close = Close {
        reason: 1,
        next_csn: Csn::new(0x0102_0304),
        sender: WireConnectionId(0x1112_1314),
        nonce_xor: 0x2122_2324_2526_2728,
        quote: None,
    };
    check_control("06 00 01 00 01020304 11121314 2122232425262728", &Control::Close(close));
    check_control("07 00 01 00 01020304 11121314 2122232425262728", &Control::CloseAck(close));
    check_control(
        "07 01 01 00 01020304 11121314 2122232425262728 6162636465666768696a6b6c6d6e6f7071727374",
        &Control::CloseAck(Close { quote: Some(*b"abcdefghijklmnopqrst"), ..close }),
    );
}

#[test]
fn reset() {
    check_control(
        "08 00 0000 6162636465666768696a6b6c6d6e6f7071727374",
        &Control::Reset(Reset { proof: ResetProof::Quote(*b"abcdefghijklmnopqrst") }),
    );
    check_control(
        "08 01 0000 01020304 11121314 2122232425262728",
        &Control::Reset(Reset {
            proof: ResetProof::Ids {
                yours: WireConnectionId(0x0102_0304),
                mine: WireConnectionId(0x1112_1314),
                nonce_xor: 0x2122_2324_2526_2728,
            },
        }),
    );
}

#[test]
fn unknown_control_kinds_are_refused() {
    for kind in [0, 9, 255] {
        assert_eq!(Control::parse(&[kind; 640]), Err(WireError::Kind));
    }
}
