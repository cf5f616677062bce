//! The layouts of section 3 of `SPEC.md`, diagram by diagram.

use std::net::SocketAddr;

use crc_fast::{CrcAlgorithm, checksum};

use super::field::{Fields, Value};

pub(super) const DATA: u8 = 1;
pub(super) const ACK: u8 = 2;
pub(super) const CONTROL: u8 = 3;
pub(super) const PROBE: u8 = 4;
pub(super) const PROBE_REPLY: u8 = 5;

/// Section 3.1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Base {
    pub(super) version: u8,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) path: u8,
    pub(super) epoch: u8,
    pub(super) connection: u32,
    pub(super) psn: u32,
    pub(super) timestamp: u32,
}

impl Base {
    pub(super) const BYTES: usize = 20;
    const CHECKSUM_AT: usize = 16;

    /// A packet of path 5, epoch 7; DATA and PROBE take a PSN, CONTROL neither path nor epoch.
    pub(super) const fn of(kind: u8) -> Self {
        let base = Self {
            version: 0,
            kind,
            flags: 0,
            path: 5,
            epoch: 7,
            connection: 0x1122_3344,
            psn: 0,
            timestamp: 0x0102_0304,
        };
        match kind {
            DATA | PROBE => Self { psn: 0xaabb_ccdd, ..base },
            CONTROL => Self { path: 0, epoch: 0, ..base },
            _ => base,
        }
    }

    /// The whole UDP payload, with the right checksum.
    #[expect(clippy::needless_pass_by_value, reason = "the bodies are made where they are passed")]
    pub(super) fn packet(self, body: Fields) -> Fields {
        self.packet_with_checksum(&body, |right| right)
    }

    /// The whole UDP payload, with a checksum made from the right one.
    pub(super) fn packet_with_checksum(self, body: &Fields, change: impl Fn(u32) -> u32) -> Fields {
        let with = |checksum| self.header(checksum).then(body.clone());
        with(change(crc32c(&with(0).into_bytes())))
    }

    /// Bytes that are no packet, behind a base header, with the right checksum.
    pub(super) fn junk(self, body: &[u8]) -> Vec<u8> {
        self.packet(Fields::default().silent(body)).into_bytes()
    }

    fn header(self, checksum: u32) -> Fields {
        let kind = match self.kind {
            DATA => "DATA",
            ACK => "ACK",
            CONTROL => "CONTROL",
            PROBE => "PROBE",
            PROBE_REPLY => "PROBE_REPLY",
            _ => "undefined",
        };
        Fields::default()
            .told("type", Value::Text(kind))
            .silent(&[self.version << 4 | self.kind])
            .u8("flags", self.flags)
            .u8("path", self.path)
            .u8("epoch", self.epoch)
            .u32("connection", self.connection)
            .u32("psn", self.psn)
            .u32("timestamp", self.timestamp)
            .u32("checksum", checksum)
    }
}

/// The checksum of a UDP payload whose checksum field is zero (MR-WIRE-8), by a crate that the core does not use.
pub(super) fn crc32c(bytes: &[u8]) -> u32 {
    u32::try_from(checksum(CrcAlgorithm::Crc32Iscsi, bytes)).unwrap_or_default()
}

/// A datagram whose bytes were changed gets the right checksum again.
pub(super) fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let field = |bytes: &mut Vec<u8>, value: u32| {
        for (to, from) in bytes.iter_mut().skip(Base::CHECKSUM_AT).zip(value.to_be_bytes()) {
            *to = from;
        }
    };
    field(&mut bytes, 0);
    let right = crc32c(&bytes);
    field(&mut bytes, right);
    bytes
}

pub(super) const LAST: u8 = 1;
pub(super) const IMMEDIATE: u8 = 2;
pub(super) const INVALIDATE: u8 = 4;
pub(super) const TAGGED: u8 = 8;
pub(super) const SIGNAL: u8 = 16;
pub(super) const SOLICITED: u8 = 32;
pub(super) const ACK_NOW: u8 = 64;

/// Opcodes, by code and name.
pub(super) const OPCODES: [(u8, &str); 17] = [
    (0x01, "SEND"),
    (0x02, "WRITE"),
    (0x03, "READ_REQUEST"),
    (0x04, "READ_RESPONSE"),
    (0x05, "ATOMIC_RESPONSE"),
    (0x06, "RESULT"),
    (0x07, "VOID"),
    (0x08, "STREAM_RESET"),
    (0x09, "DATAGRAM"),
    (0x10, "FETCH_ADD"),
    (0x11, "COMPARE_SWAP"),
    (0x12, "SWAP"),
    (0x13, "MIN"),
    (0x14, "MAX"),
    (0x15, "AND"),
    (0x16, "OR"),
    (0x17, "XOR"),
];

const OP_FLAGS: [(u8, &str); 7] = [
    (LAST, "LAST"),
    (IMMEDIATE, "IMMEDIATE"),
    (INVALIDATE, "INVALIDATE"),
    (TAGGED, "TAGGED"),
    (SIGNAL, "SIGNAL"),
    (SOLICITED, "SOLICITED"),
    (ACK_NOW, "ACK_NOW"),
];

/// Section 3.2. Optional fields are written if they are there, whatever opcode and flags say.
#[derive(Clone, Debug, Default)]
pub(super) struct Data {
    pub(super) opcode: u8,
    pub(super) flags: u8,
    pub(super) offset: u32,
    pub(super) length: u32,
    pub(super) remote: Option<(u32, u64)>,
    pub(super) operands: Option<[u64; 2]>,
    pub(super) match_bits: Option<u64>,
    pub(super) immediate: Option<u32>,
    pub(super) signal: Option<(u32, u64, u64)>,
    pub(super) payload: Vec<u8>,
}

impl Data {
    const DATAGRAM: u8 = 9;

    pub(super) fn fields(&self) -> Fields {
        let opcode =
            OPCODES.iter().find(|(code, _)| *code == self.opcode).map_or("undefined", |(_, name)| *name);
        let flags = OP_FLAGS.iter().filter(|(bit, _)| self.flags & bit != 0);
        let (stream, csn) = if self.opcode == Self::DATAGRAM { (0xffff, 0) } else { (0x0102, 0x2122_2324) };
        let mut fields = Fields::default()
            .told("opcode", Value::Text(opcode))
            .told("op_flags", Value::List(flags.map(|(_, name)| Value::Text(name)).collect()))
            .silent(&[self.opcode, self.flags])
            .u16("stream", stream)
            .u32("csn", csn)
            .u32("msn", 0x3132_3334)
            .u32("offset", self.offset)
            .u32("length", self.length)
            .u32("receive_index", 0x4142_4344)
            .u32("demand_kib", 0x5152_5354);
        if let Some((key, address)) = self.remote {
            fields = fields.part("remote", Fields::default().u32("key", key).u64("address", address));
        }
        if let Some([first, second]) = self.operands {
            fields = fields.u64("operand_0", first).u64("operand_1", second);
        }
        if let Some(bits) = self.match_bits {
            fields = fields.u64("match_bits", bits);
        }
        if let Some(immediate) = self.immediate {
            fields = fields.u32("immediate", immediate);
        }
        if let Some((key, address, addend)) = self.signal {
            let signal = Fields::default().u32("key", key).u64("address", address).u64("addend", addend);
            fields = fields.part("signal", signal);
        }
        fields.octets("payload", &self.payload)
    }
}

/// Section 3.3.
#[derive(Clone, Debug)]
pub(super) struct Ack {
    pub(super) path: u8,
    pub(super) flags: u8,
    pub(super) reserved: u8,
    pub(super) largest: u32,
    pub(super) accepted: Vec<u8>,
    pub(super) hold: u32,
    pub(super) packets: u32,
}

impl Ack {
    pub(super) const EMPTY: u8 = 1;

    pub(super) fn full(path: u8) -> Self {
        Self {
            path,
            flags: 0,
            reserved: 0,
            largest: 0x0102_0304,
            accepted: vec![0, 1, 7, 8, 9, 63, 64, 127, 128, 254, 255],
            hold: 0x2122_2324,
            packets: 0x3132_3334,
        }
    }

    /// The acknowledgement of a path on which nothing arrived.
    pub(super) fn empty(path: u8) -> Self {
        Self { flags: Self::EMPTY, largest: 0, accepted: Vec::new(), hold: 0, packets: 0, ..Self::full(path) }
    }

    pub(super) fn fields(&self) -> Fields {
        let nothing = self.packets == 0;
        Fields::default()
            .u8("path", self.path)
            .u8("epoch", if nothing { 0 } else { 7 })
            .u8("flags", self.flags)
            .silent(&[self.reserved])
            .u32("largest", self.largest)
            .then(vector("accepted", &self.accepted))
            .u32("echoed_timestamp", if nothing { 0 } else { 0x1112_1314 })
            .u32("hold", self.hold)
            .u32("packets", self.packets)
            .u32("marked", if nothing { 0 } else { 0x0042_4344 })
            .u32("cumulative_csn", 0x5152_5354)
            .u32("share_kbps", 100_000_000)
    }
}

/// A vector of 256 bits, told as the list of the bits that are set.
pub(super) fn vector(name: &'static str, bits: &[u8]) -> Fields {
    let mut bytes = [0; 32];
    for bit in bits {
        if let Some(byte) = bytes.get_mut(usize::from(bit / 8)) {
            *byte |= 1 << (7 - bit % 8);
        }
    }
    let told = bits.iter().map(|bit| Value::Number(u32::from(*bit))).collect();
    Fields::default().silent(&bytes).told(name, Value::List(told))
}

/// Section 3.4: type and length, then the body.
pub(super) fn frame(kind: u8, name: &'static str, body: Fields) -> Fields {
    let length = u8::try_from(body.length()).unwrap_or(u8::MAX);
    Fields::default().told("frame", Value::Text(name)).silent(&[kind, length]).then(body)
}

/// Section 3.5.
pub(super) fn probe(stream: u16, reserved: [u8; 2]) -> Fields {
    let fields = Fields::default().u16("stream", stream).silent(&reserved);
    fields.u32("demand_kib", 0x0102_0304).u64("token", 0x1112_1314_1516_1718)
}

/// Section 3.6: CONNECT and ACCEPT.
#[derive(Clone, Debug)]
pub(super) struct Connect {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) paths: u8,
    pub(super) features: u64,
    pub(super) echoed_nonce: u64,
    pub(super) cookie: [u8; 16],
    pub(super) planes: Vec<SocketAddr>,
    pub(super) private_data: Vec<u8>,
}

impl Connect {
    pub(super) const WANTS_CHECKSUM: u8 = 1;
    pub(super) const IMPLICIT: u8 = 2;
    /// Offset of the number of plane addresses in the body.
    pub(super) const PLANES_AT: usize = 43;
    /// Offset of the first plane address in the body.
    pub(super) const ADDRESSES_AT: usize = 88;

    pub(super) fn of(kind: u8) -> Self {
        Self {
            kind,
            flags: Self::WANTS_CHECKSUM,
            paths: 8,
            features: 0,
            echoed_nonce: if kind == 1 { 0 } else { 0x7172_7374_7576_7778 },
            cookie: [0; 16],
            planes: Vec::new(),
            private_data: b"hello".to_vec(),
        }
    }

    pub(super) fn fields(&self) -> Fields {
        let name = if self.kind == 1 { "CONNECT" } else { "ACCEPT" };
        let private_bytes = u16::try_from(self.private_data.len()).unwrap_or(u16::MAX);
        let planes = u8::try_from(self.planes.len()).unwrap_or(u8::MAX);
        Fields::default()
            .told("kind", Value::Text(name))
            .told("wants_checksum", Value::Flag(self.flags & Self::WANTS_CHECKSUM != 0))
            .told("implicit", Value::Flag(self.flags & Self::IMPLICIT != 0))
            .silent(&[self.kind, self.flags])
            .silent(&private_bytes.to_be_bytes())
            .u32("sender", 0x0a0b_0c0d)
            .u64("nonce", 0x1112_1314_1516_1718)
            .u64("incarnation", 0x2122_2324_2526_2728)
            .u64("features", self.features)
            .u32("mtu_bytes", 4_176)
            .u32("service", 0x4142_4344)
            .u16("streams", 0x0100)
            .u8("paths", self.paths)
            .silent(&[planes])
            .u16("reads", 64)
            .u16("held", 32)
            .u32("message_window", 1_024)
            .u32("csn_window", 8_192)
            .u32("initial_credits", 16)
            .u32("start_allowance_kib", 64)
            .u64("echoed_nonce", self.echoed_nonce)
            .octets("cookie", &self.cookie)
            .parts("planes", self.planes.iter().map(|address| plane(*address)).collect())
            .octets("private_data", &self.private_data)
    }
}

/// A plane address: 20 bytes.
fn plane(address: SocketAddr) -> Fields {
    let (family, octets) = match address {
        SocketAddr::V4(v4) => (4, v4.ip().octets().to_vec()),
        SocketAddr::V6(v6) => (6, v6.ip().octets().to_vec()),
    };
    let rest = vec![0; 16 - octets.len()];
    Fields::default()
        .u8("family", family)
        .silent(&[0])
        .u16("port", address.port())
        .octets("address", &octets)
        .silent(&rest)
}

/// The start of a CONTROL body.
pub(super) fn control(kind: u8, name: &'static str) -> Fields {
    Fields::default().told("kind", Value::Text(name)).silent(&[kind])
}

/// CLOSE and `CLOSE_ACK`.
pub(super) fn close(kind: u8, name: &'static str, reason: u8, quote: Option<[u8; Base::BYTES]>) -> Fields {
    let fields = control(kind, name)
        .silent(&[u8::from(quote.is_some())])
        .u8("reason", reason)
        .silent(&[0])
        .u32("next_csn", 0x2122_2324)
        .u32("sender", 0x0a0b_0c0d)
        .u64("nonce_xor", 0x3132_3334_3536_3738);
    match quote {
        Some(quote) => fields.octets("quote", &quote),
        None => fields,
    }
}

/// RESET with a quote.
pub(super) fn reset_quote(quote: [u8; Base::BYTES]) -> Fields {
    control(8, "RESET").silent(&[0, 0, 0]).octets("quote", &quote)
}
