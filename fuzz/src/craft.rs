//! Packets as a fuzzer describes them: near to what a live connection sends, so that they pass the first checks.

use arbitrary::{Arbitrary, Unstructured};
use metaroce_core::ids::{Csn, Msn, Psn, ReceiveIndex, Serial, WireConnectionId};
use metaroce_core::wire::{
    ACK_FLAG_EMPTY, AckBody, Base, Close, Confirm, Connect, Control, DataHeader, Frame, NackReason, OpFlags,
    Opcode, PacketType, PlaneAddresses, Probe, ProbeReply, Reject, RejectReason, Remote, Reset, ResetProof,
    Retry, Signal, Vector256,
};
use metaroce_core::{Checksum as _, PathId, RegionKey, StreamId, TableChecksum, crc};

/// Paths and streams whose numbers are followed.
const FOLLOWED: usize = 4;

/// What was seen of the packets in one direction.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// The id that the receiver chose.
    pub connection: u32,
    /// The newest PSN of each path.
    pub psn: [u32; FOLLOWED],
    /// The newest transmit timestamp.
    pub timestamp: u32,
    /// The newest CSN.
    pub csn: u32,
    /// The newest MSN of each stream.
    pub msn: [u32; FOLLOWED],
    /// The nonce of the sender, from its CONNECT or ACCEPT.
    pub nonce: u64,
    /// The id that the sender chose.
    pub sender: u32,
}

/// What a forger has to go by.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// The direction that it forges.
    pub forward: Seen,
    /// The other one: what acknowledgements speak of.
    pub backward: Seen,
    /// Keys of the receiver's regions: open to the peer, not open, and deregistered.
    pub keys: [RegionKey; 3],
}

impl Seen {
    /// Notes the numbers of a packet.
    pub fn observe(&mut self, bytes: &[u8]) {
        let Ok((base, body)) = Base::parse(bytes) else { return };
        match base.kind {
            PacketType::Control => match Control::parse(body) {
                Ok((Control::Connect(connect) | Control::Accept(connect), _)) => {
                    (self.nonce, self.sender) = (connect.nonce, connect.connection.0);
                }
                _ => return,
            },
            PacketType::Data => {
                if let Ok((header, _)) = DataHeader::parse(body)
                    && header.opcode != Opcode::Datagram
                {
                    self.csn = header.csn.raw();
                    self.msn[usize::from(header.stream.0) % FOLLOWED] = header.msn.raw();
                }
            }
            _ => {}
        }
        if base.connection.0 != 0 {
            self.connection = base.connection.0;
        }
        self.timestamp = base.timestamp;
        if base.kind.takes_psn() {
            self.psn[usize::from(base.path.0) % FOLLOWED] = base.psn.raw();
        }
    }
}

/// A number near another, or, rarely, anywhere.
#[derive(Clone, Copy, Debug)]
pub struct Near(u32);

impl Near {
    const fn to(self, number: u32) -> u32 {
        number.wrapping_add(self.0)
    }
}

impl<'a> Arbitrary<'a> for Near {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        let byte = i8::arbitrary(u)?;
        Ok(Self(if byte == i8::MIN { u.arbitrary()? } else { i32::from(byte).cast_unsigned() }))
    }
}

/// What is wrong with a packet beyond its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Nothing.
    None,
    /// The checksum.
    Checksum,
    /// It is cut off.
    Cut(u8),
    /// The connection id.
    Connection(u32),
    /// Version and packet type.
    Kind(u8),
}

impl<'a> Arbitrary<'a> for Flaw {
    /// Nine in ten have none.
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        Ok(match u8::arbitrary(u)? {
            230..236 => Self::Checksum,
            236..242 => Self::Cut(u.arbitrary()?),
            242..250 => Self::Connection(u.arbitrary()?),
            250.. => Self::Kind(u.arbitrary()?),
            _ => Self::None,
        })
    }
}

/// A packet.
#[derive(Clone, Debug, Arbitrary)]
pub struct Packet {
    path: u8,
    epoch: u8,
    psn: Near,
    /// What is wrong with it.
    pub flaw: Flaw,
    body: Body,
}

#[derive(Clone, Debug, Arbitrary)]
enum Body {
    Data(Data),
    Ack(Ack, Vec<FrameLike>),
    Probe { stream: u8, demand_kib: u32, token: u64, padding: u16 },
    ProbeReply(Ack, u64),
    Connect(ConnectLike),
    Accept(ConnectLike),
    Confirm { proven: bool },
    Reject { proven: bool, code: u16 },
    Retry { proven: bool, cookie: [u8; 16] },
    Close { reason: u8, next_csn: Near, proven: bool, quote: bool },
    CloseAck { reason: u8, next_csn: Near, proven: bool },
    Reset { quote: bool, proven: bool },
    Raw { kind: u8, bytes: Vec<u8> },
}

#[derive(Clone, Debug, Arbitrary)]
struct Data {
    opcode: u8,
    flags: u8,
    stream: u8,
    csn: Near,
    msn: Near,
    offset: u16,
    length: u16,
    sound: bool,
    receive_index: Near,
    demand_kib: u32,
    key: u8,
    address: u32,
    far: bool,
    operand: u64,
    immediate: u32,
}

#[derive(Clone, Debug, Arbitrary)]
struct Ack {
    path: u8,
    epoch: u8,
    empty: u8,
    largest: Near,
    accepted: Bits,
    echoed: Near,
    hold: u32,
    packets: u32,
    marked: u32,
    cumulative: Near,
    share_kbps: u32,
}

#[derive(Clone, Copy, Debug, Arbitrary)]
enum Bits {
    All,
    None,
    Newest(u8),
    Words([u64; 4]),
}

#[derive(Clone, Debug, Arbitrary)]
enum FrameLike {
    Refused(Bits),
    Nack { stream: u8, reason: u8, delay_us: u32 },
    Credit { stream: u8, none_needed: bool, posted: Near },
    Plane { silent: u32, unreachable: u32 },
    Start { allowance_kib: u32 },
    Ack(Ack),
}

#[derive(Clone, Debug, Arbitrary)]
#[expect(clippy::struct_excessive_bools, reason = "fields and choices of a packet")]
struct ConnectLike {
    again: bool,
    proven: bool,
    implicit: bool,
    wants_checksum: bool,
    connection: u32,
    nonce: u64,
    mtu_bytes: u32,
    streams: u16,
    paths: u8,
    reads: u16,
    message_window: u32,
    csn_window: u32,
    initial_credits: u32,
    service: u8,
    cookie: [u8; 16],
    padded: bool,
}

impl Packet {
    /// Its bytes, with a right checksum unless its flaw says otherwise.
    #[must_use]
    pub fn bytes(&self, known: &Known) -> Vec<u8> {
        let forward = &known.forward;
        let path = self.path % 8;
        let kind = self.body.kind();
        let newest = forward.psn[usize::from(path) % FOLLOWED];
        let base = Base {
            kind,
            flags: 0,
            path: PathId(path),
            epoch: self.epoch % 4,
            connection: WireConnectionId(forward.connection),
            psn: Psn::new(if kind.takes_psn() { self.psn.to(newest.wrapping_add(1)) } else { 0 }),
            timestamp: forward.timestamp.wrapping_add(100),
            checksum: 0,
        };
        let mut out = [0; 2_048];
        let mut length = base.emit(&mut out).expect("room for a base header");
        length += self.body.emit(&mut out[length..], known);
        let mut bytes = out[..length].to_vec();
        match self.flaw {
            Flaw::Cut(at) => bytes.truncate(bytes.len() * usize::from(at) / 255),
            Flaw::Connection(id) => bytes[4..8].copy_from_slice(&id.to_be_bytes()),
            Flaw::Kind(first) => bytes[0] = first,
            Flaw::None | Flaw::Checksum => {}
        }
        seal(&mut bytes);
        if self.flaw == Flaw::Checksum {
            bytes[16] ^= 1;
        }
        bytes
    }
}

impl Body {
    fn kind(&self) -> PacketType {
        match self {
            Self::Data(_) => PacketType::Data,
            Self::Ack(..) => PacketType::Ack,
            Self::Probe { .. } => PacketType::Probe,
            Self::ProbeReply(..) => PacketType::ProbeReply,
            Self::Raw { kind, .. } => match kind % 5 {
                0 => PacketType::Data,
                1 => PacketType::Ack,
                2 => PacketType::Control,
                3 => PacketType::Probe,
                _ => PacketType::ProbeReply,
            },
            _ => PacketType::Control,
        }
    }

    /// Writes the body; returns its bytes.
    fn emit(&self, out: &mut [u8], known: &Known) -> usize {
        match self {
            Self::Data(data) => data.emit(out, known),
            Self::Ack(ack, frames) => {
                let mut length = ack.body(known).emit(out).expect("room");
                for frame in frames.iter().take(8) {
                    length += frame.frame(known).emit(&mut out[length..]).expect("room for eight frames");
                }
                length
            }
            Self::Probe { stream, demand_kib, token, padding } => {
                let stream = if *stream == 0 { StreamId::NONE } else { StreamId(u16::from(stream % 4)) };
                let probe = Probe { stream, demand_kib: *demand_kib, token: *token };
                probe.emit(out).expect("room") + usize::from(padding % 1_400)
            }
            Self::ProbeReply(ack, token) => {
                ProbeReply { token: *token, ack: ack.body(known) }.emit(out).expect("room")
            }
            Self::Raw { bytes, .. } => {
                let length = bytes.len().min(1_400);
                out[..length].copy_from_slice(&bytes[..length]);
                length
            }
            _ => self.emit_control(out, known),
        }
    }

    fn emit_control(&self, out: &mut [u8], known: &Known) -> usize {
        let nonces = known.forward.nonce ^ known.backward.nonce;
        let proof = |proven: bool| if proven { known.backward.nonce } else { 7 };
        let quote: [u8; 20] = quote(known);
        let close = |reason: u8, next_csn: Near, proven: bool, quoted: bool| Close {
            reason,
            next_csn: Csn::new(next_csn.to(known.forward.csn.wrapping_add(1))),
            sender: WireConnectionId(known.forward.sender),
            nonce_xor: if proven { nonces } else { !nonces },
            quote: quoted.then_some(quote),
        };
        let mut least = 0;
        let control = match *self {
            Self::Connect(ref connect) => {
                least = if connect.padded { 620 } else { 0 };
                Control::Connect(connect.connect(known))
            }
            Self::Accept(ref connect) => Control::Accept(connect.connect(known)),
            Self::Confirm { proven } => Control::Confirm(Confirm { echoed_nonce: proof(proven) }),
            Self::Reject { proven, code } => Control::Reject(Reject {
                reason: RejectReason::from_code(code).unwrap_or(RejectReason::Busy),
                echoed_nonce: proof(proven),
                private_data: &[],
            }),
            Self::Retry { proven, cookie } => Control::Retry(Retry { echoed_nonce: proof(proven), cookie }),
            Self::Close { reason, next_csn, proven, quote } => {
                Control::Close(close(reason, next_csn, proven, quote))
            }
            Self::CloseAck { reason, next_csn, proven } => {
                Control::CloseAck(close(reason, next_csn, proven, false))
            }
            Self::Reset { quote: true, .. } => Control::Reset(Reset { proof: ResetProof::Quote(quote) }),
            Self::Reset { proven, .. } => {
                let yours = WireConnectionId(known.forward.connection);
                let mine = WireConnectionId(known.forward.sender);
                let nonce_xor = if proven { nonces } else { !nonces };
                Control::Reset(Reset { proof: ResetProof::Ids { yours, mine, nonce_xor } })
            }
            _ => return 0,
        };
        control.emit(out).expect("room for a control packet").max(least)
    }
}

/// The base header of the receiver's newest packet on path 0.
fn quote(known: &Known) -> [u8; 20] {
    let base = Base {
        kind: PacketType::Data,
        flags: 0,
        path: PathId(0),
        epoch: 0,
        connection: WireConnectionId(known.backward.connection),
        psn: Psn::new(known.backward.psn[0]),
        timestamp: known.backward.timestamp,
        checksum: 0,
    };
    let mut quote = [0; 20];
    base.emit(&mut quote).expect("room for a base header");
    quote
}

impl Data {
    fn emit(&self, out: &mut [u8], known: &Known) -> usize {
        let opcode = Opcode::ALL[usize::from(self.opcode) % Opcode::ALL.len()];
        let legal: Vec<_> = (0..128).map(OpFlags::from_bits).filter(|flags| opcode.permits(*flags)).collect();
        let flags = legal[usize::from(self.flags) % legal.len()];
        let payload = u32::from(self.length % 1_400);
        let (offset, length, payload) = self.place(opcode, flags, payload);
        let stream =
            if opcode == Opcode::Datagram { StreamId::NONE } else { StreamId(u16::from(self.stream % 8)) };
        let address = if self.far { u64::from(self.address) << 32 } else { u64::from(self.address) };
        let remote = Remote { key: known.keys[usize::from(self.key) % 3], address };
        let immediate = flags.intersects(OpFlags::IMMEDIATE.with(OpFlags::INVALIDATE));
        let invalidates = flags.contains(OpFlags::INVALIDATE);
        let header = DataHeader {
            opcode,
            flags,
            stream,
            csn: Csn::new(self.csn.to(known.forward.csn.wrapping_add(1))),
            msn: Msn::new(
                self.msn.to(known.forward.msn[usize::from(self.stream) % FOLLOWED].wrapping_add(1)),
            ),
            offset,
            length,
            receive_index: ReceiveIndex::new(self.receive_index.to(0)),
            demand_kib: self.demand_kib,
            remote: opcode.has_remote().then_some(remote),
            operands: opcode.is_atomic().then_some([self.operand, !self.operand]),
            match_bits: flags.contains(OpFlags::TAGGED).then_some(self.operand),
            immediate: immediate.then_some(if invalidates { remote.key.0 } else { self.immediate }),
            signal: flags.contains(OpFlags::SIGNAL).then_some(Signal {
                key: remote.key,
                address: address & !7,
                addend: self.operand,
            }),
        };
        header.emit(out).expect("room for a header") + payload as usize
    }

    /// Offset, length and payload: such as the opcode wants them, if sound.
    fn place(&self, opcode: Opcode, flags: OpFlags, payload: u32) -> (u32, u32, u32) {
        let offset = u32::from(self.offset);
        if !self.sound {
            return (offset, self.immediate, payload);
        }
        match opcode {
            _ if opcode.is_segmented() => match (flags.contains(OpFlags::LAST), payload) {
                (true, 0) => (0, 0, 0),
                (true, _) => (offset, offset + payload, payload),
                (false, _) => (offset, offset + payload.max(1) + 1 + self.immediate % 3_000, payload.max(1)),
            },
            Opcode::Datagram => (9, payload, payload),
            Opcode::AtomicResponse => (0, 8, 8),
            _ if opcode.is_atomic() => (0, 8, 0),
            Opcode::ReadRequest => (0, self.immediate % 30_000, 0),
            _ => (offset, payload, 0),
        }
    }
}

impl Ack {
    fn body(&self, known: &Known) -> AckBody {
        let path = self.path % 4;
        let newest = known.backward.psn[usize::from(path) % FOLLOWED];
        AckBody {
            path: PathId(path),
            epoch: self.epoch % 4,
            flags: if self.empty > 250 { ACK_FLAG_EMPTY } else { 0 },
            // What was never sent is refused at once: most speak of what was.
            largest: Psn::new(newest.wrapping_sub(self.largest.0)),
            accepted: self.accepted.vector(),
            echoed_timestamp: self.echoed.to(known.backward.timestamp),
            hold: self.hold,
            packets: self.packets,
            marked: self.marked,
            cumulative: Csn::new(self.cumulative.to(known.backward.csn)),
            share_kbps: self.share_kbps,
        }
    }
}

impl Bits {
    fn vector(self) -> Vector256 {
        match self {
            Self::All => Vector256::from_words([u64::MAX; 4]),
            Self::None => Vector256::EMPTY,
            Self::Newest(count) => {
                let mut vector = Vector256::EMPTY;
                (0..u32::from(count)).for_each(|bit| vector.insert(bit));
                vector
            }
            Self::Words(words) => Vector256::from_words(words),
        }
    }
}

impl FrameLike {
    fn frame(&self, known: &Known) -> Frame {
        let stream = |stream: u8| StreamId(u16::from(stream % 8));
        match *self {
            Self::Refused(bits) => Frame::Refused(bits.vector()),
            Self::Nack { stream: id, reason, delay_us } => {
                let reason = NackReason::from_code(1 + reason % 6).expect("codes 1 to 6");
                Frame::Nack { stream: stream(id), reason, delay_us }
            }
            Self::Credit { stream: id, none_needed, posted } => {
                Frame::Credit { stream: stream(id), none_needed, posted: ReceiveIndex::new(posted.to(0)) }
            }
            Self::Plane { silent, unreachable } => Frame::Plane { silent, unreachable },
            Self::Start { allowance_kib } => Frame::Start { allowance_kib },
            Self::Ack(ref ack) => Frame::Ack(ack.body(known)),
        }
    }
}

impl ConnectLike {
    fn connect(&self, known: &Known) -> Connect<'static> {
        let forward = &known.forward;
        Connect {
            wants_checksum: self.wants_checksum,
            implicit: self.implicit,
            connection: WireConnectionId(if self.again { forward.sender } else { self.connection }),
            nonce: if self.again { forward.nonce } else { self.nonce },
            incarnation: 1,
            features: 0,
            mtu_bytes: self.mtu_bytes,
            service: u32::from(self.service % 2),
            streams: self.streams,
            paths: 1 + self.paths % 64,
            reads: self.reads,
            held: 0,
            message_window: self.message_window,
            csn_window: self.csn_window,
            initial_credits: self.initial_credits,
            start_allowance_kib: 0,
            echoed_nonce: if self.proven { known.backward.nonce } else { 0 },
            cookie: self.cookie,
            planes: PlaneAddresses::EMPTY,
            private_data: &[],
        }
    }
}

/// Writes the right checksum into a datagram.
pub fn seal(bytes: &mut [u8]) {
    Base::write_checksum(bytes, 0);
    let crc = crc::finish(TableChecksum.update(crc::SEED, bytes));
    Base::write_checksum(bytes, crc);
}
