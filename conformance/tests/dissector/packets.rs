//! Packets of every type, built by the core's own codec, with random numbers in them.

use std::net::{IpAddr, SocketAddr};

use metaroce_conformance::Random;
use metaroce_core::crc;
use metaroce_core::ids::{Csn, Msn, Psn, ReceiveIndex, RegionKey, WireConnectionId};
use metaroce_core::wire::{
    AckBody, Base, Close, Confirm, Connect, Control, DataHeader, Frame, NackReason, OpFlags, Opcode,
    PacketType, PlaneAddresses, Probe, ProbeReply, Reject, RejectReason, Remote, Reset, ResetProof, Retry,
    Signal, Vector256,
};
use metaroce_core::{Checksum, PathId, StreamId, TableChecksum};

static PRIVATE: [u8; 256] = [0xc3; 256];

pub struct Builder(pub Random);

impl Builder {
    fn u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    fn u32(&mut self) -> u32 {
        (self.u64() >> 32) as u32
    }

    fn u16(&mut self) -> u16 {
        (self.u64() >> 48) as u16
    }

    pub fn u8(&mut self) -> u8 {
        (self.u64() >> 56) as u8
    }

    fn bool(&mut self) -> bool {
        self.0.below(2) == 1
    }

    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.u8())
    }

    fn path(&mut self) -> PathId {
        PathId(self.u8() % 64)
    }

    fn private_data(&mut self) -> &'static [u8] {
        &PRIVATE[..self.0.below(257) as usize]
    }

    /// A whole datagram; every third one that may has no checksum.
    fn packet(&mut self, kind: PacketType, body: &[u8]) -> Vec<u8> {
        let base = Base {
            kind,
            flags: 0,
            path: self.path(),
            epoch: self.u8(),
            connection: WireConnectionId(self.u32()),
            psn: if kind.takes_psn() { Psn::new(self.u32()) } else { Psn::new(0) },
            timestamp: self.u32(),
            checksum: 0,
        };
        let mut bytes = vec![0; 20];
        base.emit(&mut bytes).unwrap();
        bytes.extend_from_slice(body);
        if kind == PacketType::Control || self.0.below(3) > 0 {
            seal(&mut bytes);
        }
        bytes
    }

    fn data(&mut self, opcode: Opcode, flags: OpFlags) -> Vec<u8> {
        let size = if opcode.is_segmented() || opcode == Opcode::Datagram {
            [0, 1, 2, 3, 4, 5, 64, 1399][self.0.below(8) as usize]
        } else if opcode == Opcode::AtomicResponse {
            8
        } else {
            0
        };
        let last = flags.contains(OpFlags::LAST);
        let offset = self.u32() / 2;
        let (size, offset, length) = match opcode {
            _ if opcode.is_segmented() && last && size == 0 => (0, 0, 0),
            _ if opcode.is_segmented() && last => (size, offset, offset + size),
            _ if opcode.is_segmented() => (size.max(1), offset, offset + size.max(1) + 1 + offset / 2),
            Opcode::Datagram => (size, offset, size),
            Opcode::ReadRequest => (0, 0, self.u32()),
            _ if opcode.is_atomic() || opcode == Opcode::AtomicResponse => (size, 0, 8),
            _ => (0, self.u32(), self.u32()),
        };
        let immediate = flags.intersects(OpFlags::IMMEDIATE.with(OpFlags::INVALIDATE));
        let remote = Remote { key: RegionKey(self.u32()), address: self.u64() };
        let signal = Signal { key: RegionKey(self.u32()), address: self.u64(), addend: self.u64() };
        let header = DataHeader {
            opcode,
            flags,
            stream: StreamId(self.u16()),
            csn: Csn::new(self.u32()),
            msn: Msn::new(self.u32()),
            offset,
            length,
            receive_index: ReceiveIndex::new(self.u32()),
            demand_kib: self.u32(),
            remote: opcode.has_remote().then_some(remote),
            operands: opcode.is_atomic().then(|| [self.u64(), self.u64()]),
            match_bits: flags.contains(OpFlags::TAGGED).then(|| self.u64()),
            immediate: immediate.then(|| self.u32()),
            signal: flags.contains(OpFlags::SIGNAL).then_some(signal),
        };
        let mut body = vec![0; header.encoded_length()];
        header.emit(&mut body).unwrap();
        body.extend((0..size).map(|i| i as u8));
        self.packet(PacketType::Data, &body)
    }

    fn vector(&mut self) -> Vector256 {
        let sparse = self.u64() & self.u64() & self.u64() & self.u64();
        Vector256::from_words(match self.0.below(7) {
            0 => [0; 4],
            1 => [!0; 4],
            2 => [1, 0, 0, 0],
            3 => [0, 0, 0, 1 << 63],
            4 => [!sparse, !0, !0, 0xffff],
            5 => [sparse, 0, sparse, 0],
            _ => [self.u64(), self.u64(), self.u64(), self.u64()],
        })
    }

    fn ack_body(&mut self) -> AckBody {
        AckBody {
            path: self.path(),
            epoch: self.u8(),
            flags: u8::from(self.0.below(8) == 0),
            // Every other one wraps inside of the vector.
            largest: Psn::new(if self.bool() { self.u32() } else { self.u32() % 256 }),
            accepted: self.vector(),
            echoed_timestamp: self.u32(),
            hold: self.u32(),
            packets: self.u32(),
            marked: self.u32(),
            cumulative: Csn::new(self.u32()),
            share_kbps: self.u32(),
        }
    }

    fn frame(&mut self, kind: usize) -> Frame {
        match kind {
            0 => Frame::Refused(self.vector()),
            1 => Frame::Nack {
                stream: StreamId(self.u16()),
                reason: NackReason::from_code(1 + self.u8() % 6).unwrap(),
                delay_us: self.u32(),
            },
            2 => Frame::Credit {
                stream: StreamId(self.u16()),
                none_needed: self.bool(),
                posted: ReceiveIndex::new(self.u32()),
            },
            3 => Frame::Plane { silent: self.u32(), unreachable: self.u32() },
            4 => Frame::Start { allowance_kib: self.u32() },
            _ => Frame::Ack(self.ack_body()),
        }
    }

    fn frames(&mut self, body: &mut Vec<u8>, kinds: &[usize]) {
        for kind in kinds {
            let frame = self.frame(*kind);
            let start = body.len();
            body.resize(start + frame.encoded_length(), 0);
            frame.emit(&mut body[start..]).unwrap();
        }
    }

    fn ack(&mut self, kinds: &[usize]) -> Vec<u8> {
        let mut body = vec![0; 64];
        self.ack_body().emit(&mut body).unwrap();
        self.frames(&mut body, kinds);
        if kinds.len() > 8 {
            body.extend_from_slice(&[200, 3, 1, 2, 3, 201, 0]);
        }
        self.packet(PacketType::Ack, &body)
    }

    fn probe(&mut self, padding: usize) -> Vec<u8> {
        let stream = if self.bool() { StreamId::NONE } else { StreamId(self.u16()) };
        let probe = Probe { stream, demand_kib: self.u32(), token: self.u64() };
        let mut body = vec![0; 16 + padding];
        probe.emit(&mut body).unwrap();
        self.packet(PacketType::Probe, &body)
    }

    fn probe_reply(&mut self, kinds: &[usize]) -> Vec<u8> {
        let mut body = vec![0; 72];
        ProbeReply { token: self.u64(), ack: self.ack_body() }.emit(&mut body).unwrap();
        self.frames(&mut body, kinds);
        self.packet(PacketType::ProbeReply, &body)
    }

    fn connect(&mut self, planes: u64) -> Connect<'static> {
        let planes: Vec<SocketAddr> = (0..planes)
            .map(|_| {
                let v4 = self.bool();
                let ip = if v4 { IpAddr::from(self.bytes::<4>()) } else { IpAddr::from(self.bytes::<16>()) };
                SocketAddr::new(ip, self.u16())
            })
            .collect();
        Connect {
            wants_checksum: self.bool(),
            implicit: self.bool(),
            connection: WireConnectionId(self.u32()),
            nonce: self.u64(),
            incarnation: self.u64(),
            features: self.u64(),
            mtu_bytes: self.u32(),
            service: self.u32(),
            streams: self.u16(),
            paths: 1 + self.u8() % 64,
            reads: self.u16(),
            held: self.u16(),
            message_window: self.u32(),
            csn_window: self.u32(),
            initial_credits: self.u32(),
            start_allowance_kib: self.u32(),
            echoed_nonce: self.u64(),
            cookie: self.bytes(),
            planes: PlaneAddresses::from_slice(&planes).unwrap(),
            private_data: self.private_data(),
        }
    }

    fn close(&mut self) -> Close {
        Close {
            reason: self.u8() % 4,
            next_csn: Csn::new(self.u32()),
            sender: WireConnectionId(self.u32()),
            nonce_xor: self.u64(),
            quote: self.bool().then(|| self.bytes()),
        }
    }

    fn control(&mut self, control: &Control<'_>) -> Vec<u8> {
        let padding = [0, 0, 100][self.0.below(3) as usize];
        let mut body = vec![0; control.encoded_length() + padding];
        control.emit(&mut body).unwrap();
        self.packet(PacketType::Control, &body)
    }

    fn controls(&mut self) -> Vec<Vec<u8>> {
        use RejectReason::{Application, Busy, Closed, Limits, NoListener, Version};
        let mut packets = Vec::new();
        for planes in 0..=8 {
            let (connect, accept) = (self.connect(planes), self.connect(8 - planes));
            packets.push(self.control(&Control::Connect(connect)));
            packets.push(self.control(&Control::Accept(accept)));
            let (close, close_ack) = (self.close(), self.close());
            packets.push(self.control(&Control::Close(close)));
            packets.push(self.control(&Control::CloseAck(close_ack)));
        }
        for reason in [NoListener, Limits, Version, Busy, Closed, Application(0x100), Application(0xffff)] {
            let reject = Reject { reason, echoed_nonce: self.u64(), private_data: self.private_data() };
            packets.push(self.control(&Control::Reject(reject)));
        }
        let confirm = Confirm { echoed_nonce: self.u64() };
        packets.push(self.control(&Control::Confirm(confirm)));
        let retry = Retry { echoed_nonce: self.u64(), cookie: self.bytes() };
        packets.push(self.control(&Control::Retry(retry)));
        let ids = [WireConnectionId(self.u32()), WireConnectionId(self.u32())];
        let proof = ResetProof::Ids { yours: ids[0], mine: ids[1], nonce_xor: self.u64() };
        for proof in [proof, ResetProof::Quote(self.bytes())] {
            packets.push(self.control(&Control::Reset(Reset { proof })));
        }
        packets
    }

    /// Every opcode with every legal set of flags, every frame alone and together, every kind of CONTROL.
    pub fn every_packet(&mut self) -> Vec<Vec<u8>> {
        let mut packets = Vec::new();
        for opcode in Opcode::ALL {
            for flags in (0..128).map(OpFlags::from_bits).filter(|flags| opcode.permits(*flags)) {
                packets.push(self.data(opcode, flags));
            }
        }
        let together = [0, 1, 2, 3, 4, 5, 0, 2, 5, 1, 5, 5, 0];
        for kinds in [&[][..], &[0], &[1], &[2], &[3], &[4], &[5], &together] {
            for _ in 0..4 {
                packets.push(self.ack(kinds));
                packets.push(self.probe_reply(kinds));
            }
        }
        packets.extend([0, 0, 1, 1000, 8000].map(|padding| self.probe(padding)));
        packets.extend(self.controls());
        packets
    }

    /// The packet with a few bytes changed or its end cut off, and a right checksum again.
    pub fn mutant(&mut self, packet: &[u8]) -> Vec<u8> {
        let mut bytes = packet.to_vec();
        if self.bool() {
            bytes.truncate(1 + self.0.below(bytes.len() as u64) as usize);
        }
        for _ in 0..self.0.below(3) {
            let reach = if self.bool() { bytes.len().min(60) } else { bytes.len() };
            let at = self.0.below(reach as u64) as usize;
            bytes[at] = if self.bool() { self.u8() } else { bytes[at] ^ (1 << self.0.below(8)) };
        }
        seal(&mut bytes);
        bytes
    }
}

/// Gives a datagram its checksum.
pub fn seal(bytes: &mut [u8]) {
    Base::write_checksum(bytes, 0);
    let sum = crc::finish(TableChecksum.update(crc::SEED, bytes));
    Base::write_checksum(bytes, sum);
}
