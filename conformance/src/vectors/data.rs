//! DATA: each opcode with what it may carry, and what it must not.

use super::layout::{
    ACK_NOW, Base, DATA, Data, IMMEDIATE, INVALIDATE, LAST, OPCODES, SIGNAL, SOLICITED, TAGGED,
};
use super::{File, Vector, Verdict};

const REMOTE: (u32, u64) = (0xcafe_f00d, 0x6162_6364_6566_6768);
const OPERANDS: [u64; 2] = [0x7172_7374_7576_7778, 0x8182_8384_8586_8788];
const MATCH_BITS: u64 = 0x9192_9394_9596_9798;
const WORD: u32 = 0xa1a2_a3a4;
const SIGNAL_WORD: (u32, u64, u64) = (0x0bad_cafe, 0xb1b2_b3b4_b5b6_b7b8, 0xc1c2_c3c4_c5c6_c7c8);

pub(super) fn file() -> File {
    let mut vectors = requests();
    vectors.extend(answers());
    vectors.extend(segmented_contradictions());
    vectors.extend(contradictions());
    vectors.extend(atomic_contradictions());
    vectors.extend(flags());
    vectors.extend(cut_short());
    File { name: "data.json", version: 0, about: "DATA: section 3.2.", vectors }
}

fn valid(name: &str, about: &str, data: &Data) -> Vector {
    let name = format!("data/{name}");
    Vector::valid(&name, about, &["MR-WIRE-14", "MR-WIRE-15"], Base::of(DATA).packet(data.fields()))
}

fn malformed(name: &str, about: &str, requirement: &'static str, data: &Data) -> Vector {
    let bytes = Base::of(DATA).packet(data.fields()).into_bytes();
    Vector::dropped(&format!("data/{name}"), about, &[requirement], Verdict::Malformed, &bytes)
}

fn send(flags: u8, offset: u32, length: u32, payload: &[u8]) -> Data {
    Data { opcode: 1, flags, offset, length, payload: payload.to_vec(), ..Data::default() }
}

fn write(flags: u8, offset: u32, length: u32, payload: &[u8]) -> Data {
    Data { opcode: 2, remote: Some(REMOTE), ..send(flags, offset, length, payload) }
}

fn read() -> Data {
    Data { opcode: 3, flags: LAST, length: u32::MAX, remote: Some(REMOTE), ..Data::default() }
}

fn atomic(opcode: u8) -> Data {
    Data { opcode, flags: LAST, length: 8, remote: Some(REMOTE), operands: Some(OPERANDS), ..Data::default() }
}

fn requests() -> Vec<Vector> {
    let mut vectors = vec![
        valid("send-empty", "A SEND of no bytes is one packet, and its last.", &send(LAST, 0, 0, b"")),
        valid("send-first-of-two", "The first packet of a SEND.", &send(0, 0, 8, b"abcd")),
        valid("send-last-of-two", "Its last packet.", &send(LAST | ACK_NOW, 4, 8, b"efgh")),
        valid(
            "send-largest",
            "The last byte of a SEND of 4 GiB - 1 bytes.",
            &send(LAST, u32::MAX - 1, u32::MAX, b"z"),
        ),
        valid(
            "send-immediate",
            "With immediate and SOLICITED.",
            &Data { immediate: Some(WORD), ..send(LAST | IMMEDIATE | SOLICITED, 0, 4, b"abcd") },
        ),
        valid(
            "send-invalidate",
            "INVALIDATE puts the key into the place of the immediate.",
            &Data { immediate: Some(WORD), ..send(LAST | INVALIDATE, 0, 4, b"abcd") },
        ),
        valid(
            "send-tagged",
            "With match bits.",
            &Data { match_bits: Some(MATCH_BITS), ..send(TAGGED, 0, 8, b"abcd") },
        ),
        valid(
            "send-tagged-immediate",
            "Match bits come before the immediate.",
            &Data {
                match_bits: Some(MATCH_BITS),
                immediate: Some(WORD),
                ..send(LAST | TAGGED | IMMEDIATE, 0, 4, b"abcd")
            },
        ),
        valid("write-empty", "A WRITE of no bytes.", &write(LAST, 0, 0, b"")),
        valid(
            "write-first-of-two",
            "The address is that of this packet's first byte.",
            &write(0, 0, 8, b"abcd"),
        ),
        valid(
            "write-immediate",
            "The last packet of a WRITE with immediate.",
            &Data { immediate: Some(WORD), ..write(LAST | IMMEDIATE, 4, 8, b"abcd") },
        ),
        valid(
            "write-signal",
            "The longest header: 80 bytes before the payload.",
            &Data { signal: Some(SIGNAL_WORD), ..write(LAST | SIGNAL, 0, 4, b"abcd") },
        ),
        valid("read-request", "Asks for 4 GiB - 1 bytes.", &read()),
        valid("read-request-empty", "Asks for no bytes.", &Data { length: 0, ..read() }),
    ];
    for (opcode, name) in OPCODES.iter().filter(|(code, _)| *code >= 0x10) {
        let name = name.to_lowercase().replace('_', "-");
        vectors.push(valid(&name, "Region, address, both operands.", &atomic(*opcode)));
    }
    vectors
}

fn answers() -> Vec<Vector> {
    vec![
        valid(
            "read-response",
            "Stream and MSN are those of the request.",
            &Data { opcode: 4, ..send(LAST, 4, 8, b"efgh") },
        ),
        valid(
            "read-response-empty",
            "Answers a READ of no bytes.",
            &Data { opcode: 4, ..send(LAST, 0, 0, b"") },
        ),
        valid(
            "atomic-response",
            "The value before the operation, big-endian.",
            &Data { opcode: 5, ..send(LAST, 0, 8, &[1, 2, 3, 4, 5, 6, 7, 8]) },
        ),
        valid(
            "result",
            "Remote access (1) in the immediate field.",
            &Data { opcode: 6, flags: LAST | IMMEDIATE, immediate: Some(1), ..Data::default() },
        ),
        valid(
            "result-without-last",
            "LAST is allowed on a RESULT, and not required.",
            &Data { opcode: 6, flags: IMMEDIATE, immediate: Some(6), ..Data::default() },
        ),
        valid(
            "void",
            "Stream, MSN, offset and length of the packet whose CSN it closes.",
            &Data { opcode: 7, offset: 4_096, length: 8_192, ..Data::default() },
        ),
        valid(
            "stream-reset",
            "The reason (0) in the immediate field.",
            &Data { opcode: 8, flags: IMMEDIATE, immediate: Some(0), ..Data::default() },
        ),
        valid(
            "datagram",
            "Offset, MSN and receive index are destination queue, source queue and key; stream 0xffff, CSN 0.",
            &Data { opcode: 9, ..send(LAST, 0x77, 4, b"abcd") },
        ),
        valid(
            "datagram-immediate",
            "With immediate.",
            &Data { opcode: 9, immediate: Some(WORD), ..send(LAST | IMMEDIATE, 0x77, 4, b"abcd") },
        ),
        Vector::odd(
            "data/reserved-op-flag",
            "Bit 128 is reserved, and ignored.",
            &["MR-WIRE-5"],
            Base::of(DATA).packet(send(LAST | 128, 0, 4, b"abcd").fields()),
        ),
    ]
}

/// Offset, length and payload of SEND, WRITE and READ responses that do not fit.
fn segmented_contradictions() -> Vec<Vector> {
    let table = "MR-WIRE-15";
    let last = "MR-WIRE-16";
    vec![
        malformed(
            "last-missing",
            "The payload ends the SEND, but LAST is not set.",
            last,
            &send(0, 0, 4, b"abcd"),
        ),
        malformed("last-too-early", "LAST, but four bytes are missing.", last, &send(LAST, 0, 8, b"abcd")),
        malformed(
            "payload-beyond-length",
            "Offset and payload pass the length.",
            table,
            &send(LAST, 2, 4, b"abcd"),
        ),
        malformed(
            "offset-overflows",
            "Offset + payload is 2^32.",
            table,
            &send(LAST, u32::MAX - 3, u32::MAX, b"abcd"),
        ),
        malformed("empty-payload", "No payload, but the message has bytes.", table, &send(0, 0, 4, b"")),
        malformed("empty-last-payload", "The same at the end of the message.", table, &send(LAST, 4, 4, b"")),
        malformed("write-last-missing", "As for SEND.", last, &write(0, 0, 4, b"abcd")),
        malformed(
            "read-response-last-missing",
            "As for SEND.",
            last,
            &Data { opcode: 4, ..send(0, 0, 4, b"abcd") },
        ),
    ]
}

/// The same of other opcodes.
fn contradictions() -> Vec<Vector> {
    let table = "MR-WIRE-15";
    vec![
        malformed(
            "read-request-offset",
            "The offset of a READ request is 0.",
            table,
            &Data { offset: 1, ..read() },
        ),
        malformed(
            "read-request-payload",
            "A READ request has no payload.",
            table,
            &Data { payload: vec![0], ..read() },
        ),
        malformed(
            "atomic-response-short",
            "7 bytes.",
            table,
            &Data { opcode: 5, ..send(LAST, 0, 8, &[0; 7]) },
        ),
        malformed(
            "atomic-response-length",
            "The length is 8.",
            table,
            &Data { opcode: 5, ..send(LAST, 0, 9, &[0; 8]) },
        ),
        malformed(
            "atomic-response-offset",
            "The offset is 0.",
            table,
            &Data { opcode: 5, ..send(LAST, 1, 8, &[0; 8]) },
        ),
        malformed(
            "result-payload",
            "A RESULT has no payload.",
            table,
            &Data {
                opcode: 6,
                flags: LAST | IMMEDIATE,
                immediate: Some(1),
                payload: vec![0],
                length: 1,
                ..Data::default()
            },
        ),
        malformed(
            "void-payload",
            "A VOID has no payload.",
            table,
            &Data { opcode: 7, payload: vec![0], length: 1, ..Data::default() },
        ),
        malformed(
            "stream-reset-payload",
            "A STREAM_RESET has no payload.",
            table,
            &Data { opcode: 8, flags: IMMEDIATE, immediate: Some(0), payload: vec![0], ..Data::default() },
        ),
        malformed(
            "datagram-length",
            "The payload of a DATAGRAM is its length.",
            table,
            &Data { opcode: 9, ..send(LAST, 0, 5, b"abcd") },
        ),
    ]
}

/// The same of atomics, and opcodes that are not defined.
fn atomic_contradictions() -> Vec<Vector> {
    let table = "MR-WIRE-15";
    let mut vectors = Vec::new();
    for (code, name) in [(0x10, "fetch-add"), (0x17, "xor")] {
        for (what, data) in [
            ("length", Data { length: 4, ..atomic(code) }),
            ("offset", Data { offset: 8, ..atomic(code) }),
            ("payload", Data { payload: vec![0; 8], ..atomic(code) }),
        ] {
            let about = "An atomic has offset 0, length 8 and no payload.";
            vectors.push(malformed(&format!("{name}-{what}"), about, table, &data));
        }
    }
    for opcode in [0x00, 0x0a, 0x0f, 0x18, 0xff] {
        let data = Data { opcode, ..send(LAST, 0, 0, b"") };
        let name = format!("opcode-{opcode:02x}");
        vectors.push(malformed(&name, "An opcode that is not defined.", "MR-WIRE-4", &data));
    }
    vectors
}

/// Flags that an opcode must not carry, or lacks.
fn flags() -> Vec<Vector> {
    let table = "MR-WIRE-15";
    let exclusive = "MR-WIRE-17";
    let result = Data { opcode: 6, flags: LAST | IMMEDIATE, immediate: Some(1), ..Data::default() };
    let void = Data { opcode: 7, ..Data::default() };
    let reset = Data { opcode: 8, flags: IMMEDIATE, immediate: Some(0), ..Data::default() };
    let tagged = |data: Data| Data { flags: data.flags | TAGGED, match_bits: Some(MATCH_BITS), ..data };
    let immediate = |data: Data| Data { flags: data.flags | IMMEDIATE, immediate: Some(WORD), ..data };
    let invalidate = |data: Data| Data { flags: data.flags | INVALIDATE, immediate: Some(WORD), ..data };
    let signal = |data: Data| Data { flags: data.flags | SIGNAL, signal: Some(SIGNAL_WORD), ..data };
    let response = Data { opcode: 4, ..send(LAST, 0, 4, b"abcd") };
    vec![
        malformed(
            "send-immediate-and-invalidate",
            "They exclude each other.",
            exclusive,
            &immediate(invalidate(send(LAST, 0, 4, b"abcd"))),
        ),
        malformed(
            "write-signal-and-immediate",
            "They exclude each other.",
            exclusive,
            &signal(immediate(write(LAST, 0, 4, b"abcd"))),
        ),
        malformed("send-signal", "A SEND has no signal.", table, &signal(send(LAST, 0, 4, b"abcd"))),
        malformed("write-tagged", "A WRITE has no match bits.", table, &tagged(write(LAST, 0, 4, b"abcd"))),
        malformed(
            "write-invalidate",
            "A WRITE invalidates no key.",
            table,
            &invalidate(write(LAST, 0, 4, b"abcd")),
        ),
        malformed(
            "write-immediate-without-last",
            "The immediate of a WRITE is on its last packet.",
            table,
            &immediate(write(0, 0, 8, b"abcd")),
        ),
        malformed(
            "write-signal-without-last",
            "The signal of a WRITE is on its last packet.",
            table,
            &signal(write(0, 0, 8, b"abcd")),
        ),
        malformed("read-request-without-last", "LAST is required.", table, &Data { flags: 0, ..read() }),
        malformed("read-request-immediate", "None is allowed.", table, &immediate(read())),
        malformed("read-response-immediate", "None is allowed.", table, &immediate(response.clone())),
        malformed("read-response-tagged", "None is allowed.", table, &tagged(response)),
        malformed(
            "atomic-response-without-last",
            "LAST is required.",
            table,
            &Data { opcode: 5, ..send(0, 0, 8, &[0; 8]) },
        ),
        malformed("atomic-without-last", "LAST is required.", table, &Data { flags: 0, ..atomic(0x10) }),
        malformed("atomic-immediate", "None is allowed.", table, &immediate(atomic(0x11))),
        malformed("atomic-signal", "None is allowed.", table, &signal(atomic(0x12))),
        malformed(
            "result-without-immediate",
            "IMMEDIATE is required.",
            table,
            &Data { flags: LAST, immediate: None, ..result.clone() },
        ),
        malformed("result-tagged", "None is allowed.", table, &tagged(result)),
        malformed(
            "void-solicited",
            "SOLICITED is not allowed.",
            table,
            &Data { flags: SOLICITED, ..void.clone() },
        ),
        malformed("void-immediate", "None is allowed.", table, &immediate(void)),
        malformed(
            "stream-reset-without-immediate",
            "IMMEDIATE is required.",
            table,
            &Data { flags: 0, immediate: None, ..reset.clone() },
        ),
        malformed("stream-reset-invalidate", "None is allowed.", table, &invalidate(reset)),
        malformed(
            "datagram-without-last",
            "LAST is required.",
            table,
            &Data { opcode: 9, ..send(0, 0, 4, b"abcd") },
        ),
        malformed(
            "datagram-tagged",
            "None is allowed.",
            table,
            &tagged(Data { opcode: 9, ..send(LAST, 0, 4, b"abcd") }),
        ),
    ]
}

/// Headers that end too early, each by one byte.
fn cut_short() -> Vec<Vector> {
    let tagged = Data { match_bits: Some(MATCH_BITS), ..send(LAST | TAGGED, 0, 0, b"") };
    let immediate = Data { immediate: Some(WORD), ..send(LAST | IMMEDIATE, 0, 0, b"") };
    let signal = Data { signal: Some(SIGNAL_WORD), ..write(LAST | SIGNAL, 0, 0, b"") };
    [
        ("fixed", send(LAST, 0, 0, b"")),
        ("remote", write(LAST, 0, 0, b"")),
        ("operands", atomic(0x10)),
        ("match-bits", tagged),
        ("immediate", immediate),
        ("signal", signal),
    ]
    .map(|(name, data)| {
        let mut bytes = data.fields().into_bytes();
        bytes.pop();
        let name = format!("data/cut-short-{name}");
        let about = "The datagram ends one byte before the end of the header.";
        Vector::dropped(&name, about, &["MR-WIRE-4"], Verdict::Malformed, &Base::of(DATA).junk(&bytes))
    })
    .into()
}
