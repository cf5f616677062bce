//! Arbitrary headers, all of them valid.

use core::net::{IpAddr, SocketAddr};
use std::boxed::Box;
use std::vec::Vec;

use quickcheck::{Arbitrary, Gen};

use super::std;
use crate::ids::{Csn, Msn, PathId, Psn, ReceiveIndex, RegionKey, StreamId, WireConnectionId};
use crate::wire::{
    AckBody, Base, Close, Confirm, Connect, Control, DataHeader, Frame, NackReason, OpFlags, Opcode,
    PacketType, PlaneAddresses, Probe, ProbeReply, Reject, RejectReason, Remote, Reset, ResetProof, Retry,
    Signal, Vector256,
};

/// A DATA header with a payload that suits it.
#[derive(Clone, Debug)]
pub(super) struct DataPacket {
    pub(super) header: DataHeader,
    pub(super) payload: Vec<u8>,
}

/// Bytes that private data is cut from.
static PRIVATE: [u8; 256] = [0xc3; 256];

fn any<T: Arbitrary>(g: &mut Gen) -> T {
    T::arbitrary(g)
}

fn bytes<const N: usize>(g: &mut Gen) -> [u8; N] {
    core::array::from_fn(|_| any(g))
}

fn path(g: &mut Gen) -> PathId {
    PathId(any::<u8>(g) % 64)
}

fn private_data(g: &mut Gen) -> &'static [u8] {
    PRIVATE.get(..any::<usize>(g) % 257).unwrap()
}

/// Flags that `opcode` permits, and a payload and a place in the message that suit them.
pub(super) fn data_packet(g: &mut Gen, opcode: Opcode, flags: OpFlags) -> DataPacket {
    let payload: Vec<u8> = any(g);
    let size = u32::try_from(payload.len()).unwrap();
    let offset = any::<u32>(g) % (u32::MAX - 2 * size);
    let last = flags.contains(OpFlags::LAST);
    let (offset, length, payload) = if opcode.is_segmented() {
        match (last, size) {
            (true, 0) => (0, 0, payload),
            (true, _) => (offset, offset + size, payload),
            (false, 0) => (offset, offset + 2, Vec::from([7])),
            (false, _) => (offset, offset + size + 1 + any::<u32>(g) % size, payload),
        }
    } else if opcode == Opcode::Datagram {
        (offset, size, payload)
    } else if opcode == Opcode::AtomicResponse {
        (0, 8, bytes::<8>(g).to_vec())
    } else if opcode.is_atomic() {
        (0, 8, Vec::new())
    } else if opcode == Opcode::ReadRequest {
        (0, any(g), Vec::new())
    } else {
        (any(g), any(g), Vec::new())
    };
    let immediate = flags.intersects(OpFlags::IMMEDIATE.with(OpFlags::INVALIDATE));
    let remote = Remote { key: RegionKey(any(g)), address: any(g) };
    let signal = Signal { key: RegionKey(any(g)), address: any(g), addend: any(g) };
    let header = DataHeader {
        opcode,
        flags,
        stream: StreamId(any(g)),
        csn: Csn::new(any(g)),
        msn: Msn::new(any(g)),
        offset,
        length,
        receive_index: ReceiveIndex::new(any(g)),
        demand_kib: any(g),
        remote: opcode.has_remote().then_some(remote),
        operands: opcode.is_atomic().then(|| [any(g), any(g)]),
        match_bits: flags.contains(OpFlags::TAGGED).then(|| any(g)),
        immediate: immediate.then(|| any(g)),
        signal: flags.contains(OpFlags::SIGNAL).then_some(signal),
    };
    DataPacket { header, payload }
}

impl Arbitrary for DataPacket {
    fn arbitrary(g: &mut Gen) -> Self {
        let opcode = *g.choose(&Opcode::ALL).unwrap();
        let legal: Vec<OpFlags> =
            (0..128).map(OpFlags::from_bits).filter(|flags| opcode.permits(*flags)).collect();
        let flags = *g.choose(&legal).unwrap();
        data_packet(g, opcode, flags)
    }
}

impl Arbitrary for Base {
    fn arbitrary(g: &mut Gen) -> Self {
        use PacketType::{Ack, Control, Data, Probe, ProbeReply};
        Self {
            kind: *g.choose(&[Data, Ack, Control, Probe, ProbeReply]).unwrap(),
            flags: any(g),
            path: path(g),
            epoch: any(g),
            connection: WireConnectionId(any(g)),
            psn: Psn::new(any(g)),
            timestamp: any(g),
            checksum: any(g),
        }
    }
}

impl Arbitrary for Vector256 {
    fn arbitrary(g: &mut Gen) -> Self {
        Self::from_words(core::array::from_fn(|_| any(g)))
    }

    fn shrink(&self) -> Box<dyn Iterator<Item = Self>> {
        let whole = *self;
        Box::new(whole.iter().map(move |bit| {
            let mut less = whole;
            less.remove(bit);
            less
        }))
    }
}

impl Arbitrary for AckBody {
    fn arbitrary(g: &mut Gen) -> Self {
        Self {
            path: path(g),
            epoch: any(g),
            flags: any(g),
            largest: Psn::new(any(g)),
            accepted: any(g),
            echoed_timestamp: any(g),
            hold: any(g),
            packets: any(g),
            marked: any(g),
            cumulative: Csn::new(any(g)),
            share_kbps: any(g),
        }
    }
}

impl Arbitrary for Frame {
    fn arbitrary(g: &mut Gen) -> Self {
        match any::<u8>(g) % 6 {
            0 => Self::Refused(any(g)),
            1 => {
                let reason = NackReason::from_code(1 + any::<u8>(g) % 6).unwrap();
                Self::Nack { stream: StreamId(any(g)), reason, delay_us: any(g) }
            }
            2 => {
                let posted = ReceiveIndex::new(any(g));
                Self::Credit { stream: StreamId(any(g)), none_needed: any(g), posted }
            }
            3 => Self::Plane { silent: any(g), unreachable: any(g) },
            4 => Self::Start { allowance_kib: any(g) },
            _ => Self::Ack(any(g)),
        }
    }
}

impl Arbitrary for Probe {
    fn arbitrary(g: &mut Gen) -> Self {
        Self { stream: StreamId(any(g)), demand_kib: any(g), token: any(g) }
    }
}

impl Arbitrary for ProbeReply {
    fn arbitrary(g: &mut Gen) -> Self {
        Self { token: any(g), ack: any(g) }
    }
}

fn planes(g: &mut Gen) -> PlaneAddresses {
    let mut planes = PlaneAddresses::EMPTY;
    for _ in 0..any::<u8>(g) % 9 {
        let address = if any(g) { IpAddr::from(bytes::<4>(g)) } else { IpAddr::from(bytes::<16>(g)) };
        assert!(planes.push(SocketAddr::new(address, any(g))));
    }
    planes
}

fn connect(g: &mut Gen) -> Connect<'static> {
    Connect {
        wants_checksum: any(g),
        implicit: any(g),
        connection: WireConnectionId(any(g)),
        nonce: any(g),
        incarnation: any(g),
        features: any(g),
        mtu_bytes: any(g),
        service: any(g),
        streams: any(g),
        paths: 1 + any::<u8>(g) % 64,
        reads: any(g),
        held: any(g),
        message_window: any(g),
        csn_window: any(g),
        initial_credits: any(g),
        start_allowance_kib: any(g),
        echoed_nonce: any(g),
        cookie: bytes(g),
        planes: planes(g),
        private_data: private_data(g),
    }
}

fn reject(g: &mut Gen) -> Reject<'static> {
    use RejectReason::{Application, Busy, Closed, Limits, NoListener, Version};
    let application = Application(any::<u16>(g).max(0x100));
    let reason = *g.choose(&[NoListener, Limits, Version, Busy, Closed, application]).unwrap();
    Reject { reason, echoed_nonce: any(g), private_data: private_data(g) }
}

fn close(g: &mut Gen) -> Close {
    Close {
        reason: any(g),
        next_csn: Csn::new(any(g)),
        sender: WireConnectionId(any(g)),
        nonce_xor: any(g),
        quote: any::<bool>(g).then(|| bytes(g)),
    }
}

fn reset(g: &mut Gen) -> Reset {
    let proof = if any(g) {
        ResetProof::Quote(bytes(g))
    } else {
        let (yours, mine) = (WireConnectionId(any(g)), WireConnectionId(any(g)));
        ResetProof::Ids { yours, mine, nonce_xor: any(g) }
    };
    Reset { proof }
}

impl Arbitrary for Control<'static> {
    fn arbitrary(g: &mut Gen) -> Self {
        match any::<u8>(g) % 8 {
            0 => Self::Connect(connect(g)),
            1 => Self::Accept(connect(g)),
            2 => Self::Confirm(Confirm { echoed_nonce: any(g) }),
            3 => Self::Reject(reject(g)),
            4 => Self::Retry(Retry { echoed_nonce: any(g), cookie: bytes(g) }),
            5 => Self::Close(close(g)),
            6 => Self::CloseAck(close(g)),
            _ => Self::Reset(reset(g)),
        }
    }
}
