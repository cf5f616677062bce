//! Packets that a test makes by hand, as a peer would.

use metaroce_core::ids::{Csn, Msn, Psn, ReceiveIndex, WireConnectionId};
use metaroce_core::wire::{Base, DataHeader, OpFlags, Opcode, PacketType};
use metaroce_core::{Checksum, PathId, StreamId, TableChecksum, crc};

/// A packet on path 0 with a right checksum, at least `pad` bytes long.
pub fn sealed(
    connection: u32,
    kind: PacketType,
    psn: Psn,
    emit: impl FnOnce(&mut [u8]) -> usize,
    pad: usize,
) -> Vec<u8> {
    let base = Base {
        kind,
        flags: 0,
        path: PathId(0),
        epoch: 0,
        connection: WireConnectionId(connection),
        psn,
        timestamp: 5,
        checksum: 0,
    };
    let mut bytes = vec![0; 700];
    let mut length = base.emit(&mut bytes).unwrap();
    length += emit(&mut bytes[length..]);
    bytes.truncate(length.max(pad));
    let sum = crc::finish(TableChecksum.update(crc::SEED, &bytes));
    Base::write_checksum(&mut bytes, sum);
    bytes
}

/// The header of a packet without payload.
pub fn header(opcode: Opcode, flags: OpFlags, stream: StreamId, csn: Csn, msn: Msn) -> DataHeader {
    DataHeader {
        opcode,
        flags,
        stream,
        csn,
        msn,
        offset: 0,
        length: 0,
        receive_index: ReceiveIndex::new(0),
        demand_kib: 0,
        remote: None,
        operands: None,
        match_bits: None,
        immediate: flags.contains(OpFlags::IMMEDIATE).then_some(0),
        signal: None,
    }
}
