//! A peer played by the test: host 1 is under test, host 0 opened the connection and then fell silent.

use std::net::SocketAddr;

use metaroce_conformance::Faults;
use metaroce_core::ids::{Csn, Msn, Psn, Serial, WireConnectionId};
use metaroce_core::wire::{
    AckBody, Base, DataHeader, Frame, OpFlags, Opcode, PacketType, Probe, Remote, Vector256,
};
use metaroce_core::{Checksum, Config, Disposition, Limits, PathId, StreamId, TableChecksum, crc};

use super::tape::{Sent, Shared, id, nonce, taped};
use crate::common::pair::Pair;
use crate::common::{MS, packets};

pub struct Script {
    pub pair: Pair,
    pub tape: Shared,
    /// The id of host 1's connection.
    pub id: u32,
    /// The next CSN of the peer.
    pub csn: Csn,
    /// The next PSN of each of the peer's paths.
    pub psn: [Psn; 8],
    read: usize,
}

impl Script {
    pub fn new(seed: u64) -> Self {
        Self::with(seed, |_, _, _| {})
    }

    pub fn with(seed: u64, change: impl Fn(usize, &mut Config, &mut Limits)) -> Self {
        let (mut pair, tape) = taped(seed, Faults::NONE, change);
        pair.net.run_for(20 * MS);
        pair.net.filter = Some(Box::new(|_, _| true));
        let mut psn = [0; 8].map(Psn::new);
        for sent in tape.borrow().0.iter().filter(|sent| sent.from == 0) {
            let base = sent.base();
            if base.kind.takes_psn() {
                psn[usize::from(base.path.0)] = base.psn.plus(1);
            }
        }
        let (id, csn) = (id(&tape, 1), Csn::new(nonce(&tape, 0) as u32));
        let read = tape.borrow().0.len();
        Self { pair, tape, id, csn, psn, read }
    }

    pub fn address(&self) -> SocketAddr {
        self.pair.net.hosts[0].address
    }

    /// What host 1 sent since the last call, after everything that is due was sent.
    pub fn sent(&mut self) -> Vec<Sent> {
        self.pair.net.settle();
        let tape = self.tape.borrow();
        let fresh = tape.0[self.read..].iter().filter(|sent| sent.from == 1).cloned().collect();
        self.read = tape.0.len();
        fresh
    }

    /// The one ACK that host 1 sent since the last call.
    pub fn one_ack(&mut self) -> (AckBody, Vec<Frame>) {
        let sent = self.sent();
        let acks: Vec<_> = sent.iter().filter(|sent| sent.kind() == PacketType::Ack).collect();
        assert_eq!(acks.len(), 1, "one ACK: {sent:?}");
        acks[0].ack().unwrap()
    }

    /// A packet from the peer, sealed.
    pub fn inject_from(
        &mut self,
        source: SocketAddr,
        base: Base,
        emit: impl FnOnce(&mut [u8]) -> usize,
    ) -> Disposition {
        let mut bytes = vec![0; 2_000];
        let mut length = base.emit(&mut bytes).unwrap();
        length += emit(&mut bytes[length..]);
        bytes.truncate(length);
        let sum = crc::finish(TableChecksum.update(crc::SEED, &bytes));
        Base::write_checksum(&mut bytes, sum);
        self.pair.net.inject(1, source, &bytes).unwrap()
    }

    pub fn base(&self, kind: PacketType, path: u8, psn: Psn) -> Base {
        Base {
            kind,
            flags: 0,
            path: PathId(path),
            epoch: 0,
            connection: WireConnectionId(self.id),
            psn,
            timestamp: 77,
            checksum: 0,
        }
    }

    /// DATA under a PSN of the test's choice.
    pub fn data_at(&mut self, path: u8, psn: Psn, header: DataHeader, payload: &[u8]) -> Disposition {
        let base = self.base(PacketType::Data, path, psn);
        self.inject_from(self.address(), base, |out| {
            let length = header.emit(out).unwrap();
            out[length..length + payload.len()].copy_from_slice(payload);
            length + payload.len()
        })
    }

    /// DATA under the next PSN of the path.
    pub fn data(&mut self, path: u8, header: DataHeader, payload: &[u8]) -> Disposition {
        let psn = self.next_psn(path);
        self.data_at(path, psn, header, payload)
    }

    pub fn next_psn(&mut self, path: u8) -> Psn {
        let next = &mut self.psn[usize::from(path)];
        let psn = *next;
        *next = psn.plus(1);
        psn
    }

    pub fn next_csn(&mut self) -> Csn {
        let csn = self.csn;
        self.csn = csn.plus(1);
        csn
    }

    /// The header of a whole SEND under the next CSN; its receive has the number of the message.
    pub fn send(&mut self, stream: u16, msn: u32, length: u32) -> DataHeader {
        let csn = self.next_csn();
        DataHeader {
            length,
            receive_index: metaroce_core::ids::ReceiveIndex::new(msn),
            ..packets::header(Opcode::Send, OpFlags::LAST, StreamId(stream), csn, Msn::new(msn))
        }
    }

    /// The header of a whole WRITE to `address` of host 1's region under the next CSN.
    pub fn write(&mut self, stream: u16, msn: u32, length: u32, address: u64) -> DataHeader {
        let csn = self.next_csn();
        let remote = Some(Remote { key: self.pair.region[1].key, address });
        let header = packets::header(Opcode::Write, OpFlags::LAST, StreamId(stream), csn, Msn::new(msn));
        DataHeader { length, remote, ..header }
    }

    pub fn probe(&mut self, path: u8, stream: StreamId, token: u64) -> Disposition {
        let psn = self.next_psn(path);
        let base = self.base(PacketType::Probe, path, psn);
        let probe = Probe { stream, demand_kib: 0, token };
        self.inject_from(self.address(), base, |out| probe.emit(out).unwrap().max(44))
    }

    /// An acknowledgement of host 1's path: what of the PSNs back from `largest` was accepted, then frames.
    pub fn ack(&mut self, path: u8, largest: Psn, accepted: &[u32], frames: &[Frame]) -> Disposition {
        let body = AckBody { path: PathId(path), largest, accepted: vector(accepted), ..EMPTY };
        self.ack_body(body, frames)
    }

    pub fn ack_body(&mut self, body: AckBody, frames: &[Frame]) -> Disposition {
        let base = self.base(PacketType::Ack, 0, Psn::new(0));
        self.inject_from(self.address(), base, |out| {
            let mut length = body.emit(out).unwrap();
            for frame in frames {
                length += frame.emit(&mut out[length..]).unwrap();
            }
            length
        })
    }

    pub fn run(&mut self, span_ns: u64) {
        self.pair.net.run_for(span_ns);
    }
}

/// A block of a path on which something was received; counters that are never news.
pub const EMPTY: AckBody = AckBody {
    path: PathId(0),
    epoch: 0,
    flags: 0,
    largest: Psn::new(0),
    accepted: Vector256::EMPTY,
    echoed_timestamp: 0,
    hold: u32::MAX,
    packets: 0,
    marked: 0,
    cumulative: Csn::new(0),
    share_kbps: 0,
};

pub fn vector(bits: &[u32]) -> Vector256 {
    let mut vector = Vector256::EMPTY;
    for bit in bits {
        vector.insert(*bit);
    }
    vector
}

/// The REFUSED frame behind the first block of an ACK.
pub fn refused(frames: &[Frame]) -> Vector256 {
    match frames.first() {
        Some(Frame::Refused(vector)) => *vector,
        _ => Vector256::EMPTY,
    }
}
