//! Packets as the suite writes them: its own reading of SPEC.md, section 3, so that an error of the core's codec cannot
//! hide behind itself.

use std::net::{IpAddr, SocketAddr};

/// CRC32C, bit by bit.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 0 { crc >> 1 } else { (crc >> 1) ^ 0x82f6_3b78 };
        }
    }
    !crc
}

/// The checksum of a datagram, its own field taken as zero; 0 if it is too short to have one.
#[must_use]
pub fn checksum_of(datagram: &[u8]) -> u32 {
    let mut copy = datagram.to_vec();
    match copy.get_mut(16..20) {
        Some(field) => field.fill(0),
        None => return 0,
    }
    crc32c(&copy)
}

/// Writes the right checksum into a datagram.
pub fn seal(datagram: &mut [u8]) {
    let crc = checksum_of(datagram);
    if let Some(field) = datagram.get_mut(16..20) {
        field.copy_from_slice(&crc.to_be_bytes());
    }
}

/// Packet types.
#[expect(missing_docs, reason = "the names of SPEC.md, section 3.1")]
pub mod kind {
    pub const DATA: u8 = 1;
    pub const ACK: u8 = 2;
    pub const CONTROL: u8 = 3;
    pub const PROBE: u8 = 4;
    pub const PROBE_REPLY: u8 = 5;
}

/// Opcodes.
#[expect(missing_docs, reason = "the names of SPEC.md, section 3.2")]
pub mod op {
    pub const SEND: u8 = 0x01;
    pub const WRITE: u8 = 0x02;
    pub const READ_REQUEST: u8 = 0x03;
    pub const READ_RESPONSE: u8 = 0x04;
    pub const ATOMIC_RESPONSE: u8 = 0x05;
    pub const RESULT: u8 = 0x06;
    pub const VOID: u8 = 0x07;
    pub const STREAM_RESET: u8 = 0x08;
    pub const DATAGRAM: u8 = 0x09;
    pub const FETCH_ADD: u8 = 0x10;
    pub const COMPARE_SWAP: u8 = 0x11;
    pub const SWAP: u8 = 0x12;
}

/// Op flags.
#[expect(missing_docs, reason = "the names of SPEC.md, section 3.2")]
pub mod flag {
    pub const LAST: u8 = 1;
    pub const IMMEDIATE: u8 = 2;
    pub const INVALIDATE: u8 = 4;
    pub const TAGGED: u8 = 8;
    pub const SIGNAL: u8 = 16;
    pub const SOLICITED: u8 = 32;
    pub const ACK_NOW: u8 = 64;
}

/// Kinds of CONTROL.
#[expect(missing_docs, reason = "the names of SPEC.md, section 3.6")]
pub mod control {
    pub const CONNECT: u8 = 1;
    pub const ACCEPT: u8 = 2;
    pub const CONFIRM: u8 = 3;
    pub const REJECT: u8 = 4;
    pub const RETRY: u8 = 5;
    pub const CLOSE: u8 = 6;
    pub const CLOSE_ACK: u8 = 7;
    pub const RESET: u8 = 8;
}

/// The base header, as fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields of SPEC.md, section 3.1")]
pub struct BaseFields {
    pub kind: u8,
    pub flags: u8,
    pub path: u8,
    pub epoch: u8,
    pub connection: u32,
    pub psn: u32,
    pub timestamp: u32,
}

impl BaseFields {
    /// A datagram of this header and `body`, with its checksum.
    #[must_use]
    pub fn datagram(&self, body: &[u8]) -> Vec<u8> {
        let mut out = self.unsealed(body);
        seal(&mut out);
        out
    }

    /// A datagram of this header and `body`, with 0 for a checksum.
    #[must_use]
    pub fn unsealed(&self, body: &[u8]) -> Vec<u8> {
        let mut out = vec![self.kind & 15, self.flags, self.path, self.epoch];
        for field in [self.connection, self.psn, self.timestamp, 0] {
            out.extend(field.to_be_bytes());
        }
        out.extend_from_slice(body);
        out
    }
}

/// The DATA header and payload, as fields. Optional fields are written as `opcode` and `flags` ask.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields of SPEC.md, section 3.2")]
pub struct DataFields {
    pub opcode: u8,
    pub flags: u8,
    pub stream: u16,
    pub csn: u32,
    pub msn: u32,
    pub offset: u32,
    pub length: u32,
    pub receive_index: u32,
    pub demand_kib: u32,
    pub key: u32,
    pub address: u64,
    pub operands: [u64; 2],
    pub match_bits: u64,
    pub immediate: u32,
    pub signal: (u32, u64, u64),
    pub payload: Vec<u8>,
}

impl DataFields {
    /// The body.
    #[must_use]
    pub fn body(&self) -> Vec<u8> {
        let mut out = vec![self.opcode, self.flags];
        out.extend(self.stream.to_be_bytes());
        for field in [self.csn, self.msn, self.offset, self.length, self.receive_index, self.demand_kib] {
            out.extend(field.to_be_bytes());
        }
        let atomic = (0x10..=0x17).contains(&self.opcode);
        if atomic || matches!(self.opcode, op::WRITE | op::READ_REQUEST) {
            out.extend(self.key.to_be_bytes());
            out.extend(self.address.to_be_bytes());
        }
        if atomic {
            self.operands.iter().for_each(|operand| out.extend(operand.to_be_bytes()));
        }
        if self.flags & flag::TAGGED != 0 {
            out.extend(self.match_bits.to_be_bytes());
        }
        if self.flags & (flag::IMMEDIATE | flag::INVALIDATE) != 0 {
            out.extend(self.immediate.to_be_bytes());
        }
        if self.flags & flag::SIGNAL != 0 {
            out.extend(self.signal.0.to_be_bytes());
            out.extend(self.signal.1.to_be_bytes());
            out.extend(self.signal.2.to_be_bytes());
        }
        out.extend_from_slice(&self.payload);
        out
    }
}

/// The acknowledgement of one path, as fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields of SPEC.md, section 3.3")]
pub struct AckFields {
    pub path: u8,
    pub epoch: u8,
    pub flags: u8,
    pub largest: u32,
    /// Bytes of the vector, as on the wire.
    pub vector: [u8; 32],
    /// Bytes of a REFUSED frame that follows, if not all zero.
    pub refused: [u8; 32],
    pub echo: u32,
    pub hold: u32,
    pub packets: u32,
    pub marked: u32,
    pub cumulative: u32,
    pub share_kbps: u32,
}

impl AckFields {
    /// The 64 bytes of the block, and its REFUSED frame if it has one.
    #[must_use]
    pub fn block(&self) -> (Vec<u8>, Vec<u8>) {
        let mut out = vec![self.path, self.epoch, self.flags, 0];
        out.extend(self.largest.to_be_bytes());
        out.extend(self.vector);
        for field in [self.echo, self.hold, self.packets, self.marked, self.cumulative, self.share_kbps] {
            out.extend(field.to_be_bytes());
        }
        let refused = if self.refused == [0; 32] { Vec::new() } else { frame(1, &self.refused) };
        (out, refused)
    }

    /// The body of an ACK that tells these blocks, then these frames.
    #[must_use]
    pub fn body(blocks: &[Self], frames: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        for (number, block) in blocks.iter().enumerate() {
            let (block, refused) = block.block();
            if number == 0 {
                out.extend(block);
            } else {
                out.extend(frame(6, &block));
            }
            out.extend(refused);
        }
        out.extend_from_slice(frames);
        out
    }
}

/// Sets bit `i` of a vector on the wire.
pub fn set_bit(vector: &mut [u8; 32], i: u32) {
    if let Some(byte) = vector.get_mut((i / 8) as usize) {
        *byte |= 0x80 >> (i % 8);
    }
}

/// One frame.
#[must_use]
pub fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut out = vec![kind, u8::try_from(body.len()).unwrap_or(u8::MAX)];
    out.extend_from_slice(body);
    out
}

/// A CREDIT frame.
#[must_use]
pub fn credit(stream: u16, posted: u32) -> Vec<u8> {
    let mut body = stream.to_be_bytes().to_vec();
    body.extend([0, 0]);
    body.extend(posted.to_be_bytes());
    frame(3, &body)
}

/// A NACK frame.
#[must_use]
pub fn nack(stream: u16, reason: u8, delay_us: u32) -> Vec<u8> {
    let mut body = stream.to_be_bytes().to_vec();
    body.extend([reason, 0]);
    body.extend(delay_us.to_be_bytes());
    frame(2, &body)
}

/// The body of a PROBE that makes a datagram of `datagram_bytes`, at least 64.
#[must_use]
pub fn probe(stream: u16, demand_kib: u32, token: u64, datagram_bytes: usize) -> Vec<u8> {
    let mut body = stream.to_be_bytes().to_vec();
    body.extend([0, 0]);
    body.extend(demand_kib.to_be_bytes());
    body.extend(token.to_be_bytes());
    body.resize(datagram_bytes.saturating_sub(20).max(body.len()), 0);
    body
}

/// CONNECT or ACCEPT, as fields.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields of SPEC.md, section 3.6")]
pub struct ConnectFields {
    pub kind: u8,
    pub flags: u8,
    pub id: u32,
    pub nonce: u64,
    pub incarnation: u64,
    pub features: u64,
    pub mtu: u32,
    pub service: u32,
    pub streams: u16,
    pub paths: u8,
    pub reads: u16,
    pub held: u16,
    pub message_window: u32,
    pub csn_window: u32,
    pub initial_credits: u32,
    pub start_allowance_kib: u32,
    pub echo: u64,
    pub cookie: [u8; 16],
    pub planes: Vec<SocketAddr>,
    pub private: Vec<u8>,
}

impl ConnectFields {
    /// Generous terms of a peer that wants checksums.
    #[must_use]
    pub const fn new(kind: u8, id: u32, nonce: u64) -> Self {
        Self {
            kind,
            flags: 1,
            id,
            nonce,
            incarnation: 0x5afe_c0de_5afe_c0de,
            features: 0,
            mtu: 4176,
            service: 0,
            streams: 64,
            paths: 8,
            reads: 64,
            held: 1024,
            message_window: 1024,
            csn_window: 4096,
            initial_credits: 16,
            start_allowance_kib: 64,
            echo: 0,
            cookie: [0; 16],
            planes: Vec::new(),
            private: Vec::new(),
        }
    }

    /// The body, not padded.
    #[must_use]
    pub fn body(&self) -> Vec<u8> {
        let mut out = vec![self.kind, self.flags];
        out.extend(u16::try_from(self.private.len()).unwrap_or(u16::MAX).to_be_bytes());
        out.extend(self.id.to_be_bytes());
        for field in [self.nonce, self.incarnation, self.features] {
            out.extend(field.to_be_bytes());
        }
        out.extend(self.mtu.to_be_bytes());
        out.extend(self.service.to_be_bytes());
        out.extend(self.streams.to_be_bytes());
        out.extend([self.paths, u8::try_from(self.planes.len()).unwrap_or(u8::MAX)]);
        out.extend(self.reads.to_be_bytes());
        out.extend(self.held.to_be_bytes());
        for field in [self.message_window, self.csn_window, self.initial_credits, self.start_allowance_kib] {
            out.extend(field.to_be_bytes());
        }
        out.extend(self.echo.to_be_bytes());
        out.extend(self.cookie);
        self.planes.iter().for_each(|plane| out.extend(plane_address(*plane)));
        out.extend(&self.private);
        out
    }
}

/// The address of a plane, as CONNECT lists it.
fn plane_address(address: SocketAddr) -> [u8; 20] {
    let mut out = [0; 20];
    let (head, rest) = out.split_at_mut(4);
    let port = address.port().to_be_bytes();
    match address.ip() {
        IpAddr::V4(ip) => {
            head.copy_from_slice(&[4, 0, port[0], port[1]]);
            rest.iter_mut().zip(ip.octets()).for_each(|(to, byte)| *to = byte);
        }
        IpAddr::V6(ip) => {
            head.copy_from_slice(&[6, 0, port[0], port[1]]);
            rest.copy_from_slice(&ip.octets());
        }
    }
    out
}

/// A PLANE frame: bitmaps of silent and of unreachable planes.
#[must_use]
pub fn plane(silent: u32, unreachable: u32) -> Vec<u8> {
    frame(4, &[silent.to_be_bytes(), unreachable.to_be_bytes()].concat())
}

/// The body of a CONFIRM.
#[must_use]
pub fn confirm(nonce: u64) -> Vec<u8> {
    let mut body = vec![control::CONFIRM, 0, 0, 0];
    body.extend(nonce.to_be_bytes());
    body
}

/// The body of a REJECT without private data.
#[must_use]
pub fn reject(reason: u16, nonce: u64) -> Vec<u8> {
    let mut body = vec![control::REJECT, 0];
    body.extend(reason.to_be_bytes());
    body.extend(nonce.to_be_bytes());
    body.extend([0; 4]);
    body
}

/// The body of a RETRY.
#[must_use]
pub fn retry(nonce: u64, cookie: [u8; 16]) -> Vec<u8> {
    let mut body = vec![control::RETRY, 0, 0, 0];
    body.extend(nonce.to_be_bytes());
    body.extend(cookie);
    body
}

/// The body of a CLOSE or CLOSE_ACK.
#[must_use]
pub fn close(kind: u8, next_csn: u32, sender: u32, nonce_xor: u64, quote: Option<&[u8]>) -> Vec<u8> {
    let mut body = vec![kind, u8::from(quote.is_some()), 0, 0];
    body.extend(next_csn.to_be_bytes());
    body.extend(sender.to_be_bytes());
    body.extend(nonce_xor.to_be_bytes());
    body.extend(quote.unwrap_or_default());
    body
}

/// The body of a RESET that quotes the first 20 bytes of a packet.
#[must_use]
pub fn reset_with_quote(packet: &[u8]) -> Vec<u8> {
    let mut body = vec![control::RESET, 0, 0, 0];
    body.extend(packet.iter().take(20));
    body
}

/// The body of a RESET with ids.
#[must_use]
pub fn reset_with_ids(yours: u32, mine: u32, nonce_xor: u64) -> Vec<u8> {
    let mut body = vec![control::RESET, 1, 0, 0];
    body.extend(yours.to_be_bytes());
    body.extend(mine.to_be_bytes());
    body.extend(nonce_xor.to_be_bytes());
    body
}

#[cfg(test)]
mod tests {
    use super::*;
    use metaroce_core::wire::{AckBody, Base, Control, DataHeader};

    #[test]
    fn the_checksum_is_that_of_rfc_3720() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
    }

    #[test]
    fn the_core_reads_what_the_suite_writes() {
        let base = BaseFields { kind: kind::DATA, path: 3, psn: 7, connection: 9, ..BaseFields::default() };
        let data = DataFields {
            opcode: op::WRITE,
            flags: flag::LAST | flag::SIGNAL,
            length: 2,
            key: 5,
            address: 6,
            signal: (1, 8, 3),
            payload: vec![1, 2],
            ..DataFields::default()
        };
        let datagram = base.datagram(&data.body());
        let (parsed, body) = Base::parse(&datagram).unwrap();
        assert_eq!((parsed.path.0, parsed.checksum), (3, checksum_of(&datagram)));
        let (header, payload) = DataHeader::parse(body).unwrap();
        assert_eq!((header.length, payload), (2, &[1, 2][..]));
        assert_eq!(header.signal.unwrap().address, 8);
        let connect = ConnectFields { private: vec![9; 7], ..ConnectFields::new(control::CONNECT, 4, 5) };
        let body = connect.body();
        let (Control::Connect(parsed), []) = Control::parse(&body).unwrap() else { panic!("no CONNECT") };
        assert_eq!((parsed.nonce, parsed.csn_window, parsed.private_data.len()), (5, 4096, 7));
        let mut ack = AckFields { path: 2, largest: 8, cumulative: 3, ..AckFields::default() };
        set_bit(&mut ack.vector, 9);
        let body = AckFields::body(&[ack], &[]);
        let (parsed, []) = AckBody::parse(&body).unwrap() else { panic!("no ACK") };
        assert!(parsed.accepted.contains(9) && parsed.accepted.count() == 1);
    }
}
