//! The header of DATA.
//!
//! After the base header:
//!
//! | bytes  | field                                                                |
//! |--------|----------------------------------------------------------------------|
//! | 0      | opcode                                                               |
//! | 1      | op flags; bit 128 reserved                                           |
//! | 2..4   | stream                                                               |
//! | 4..8   | CSN                                                                  |
//! | 8..12  | MSN                                                                  |
//! | 12..16 | offset of this packet in the message                                 |
//! | 16..20 | message length                                                       |
//! | 20..24 | receive index                                                        |
//! | 24..28 | demand, KiB                                                          |
//!
//! Then, each only if present, in this order:
//!
//! | bytes | present                   | field                                                          |
//! |-------|---------------------------|----------------------------------------------------------------|
//! | 12    | WRITE, READ request, atomics | region key (4), remote address of this packet's first byte (8) |
//! | 16    | atomics                   | two operands (8 each)                                          |
//! | 8     | TAGGED                    | match bits                                                     |
//! | 4     | IMMEDIATE or INVALIDATE   | immediate, status, reason, or key to invalidate                |
//! | 20    | SIGNAL                    | region key (4), address (8), addend (8) of the signal word     |
//!
//! All that is left of the datagram is payload:
//!
//! | opcode                     | payload, offset and length                                                   |
//! |----------------------------|------------------------------------------------------------------------------|
//! | SEND, WRITE, READ response | offset + payload ≤ length, LAST exactly if equal; empty only if length is 0  |
//! | READ request               | no payload, offset 0, length is the bytes wanted                             |
//! | atomics                    | no payload, offset 0, length 8                                               |
//! | ATOMIC response            | 8 bytes, offset 0, length 8                                                  |
//! | DATAGRAM                   | payload = length; offset is the destination queue, MSN the source queue      |
//! | RESULT, VOID, STREAM RESET | no payload, offset and length free                                           |

use super::base::BASE_BYTES;
use super::cursor::{Reader, Writer};
use super::opcode::{OpFlags, Opcode};
use super::{BufferTooSmall, WireError};
use crate::ids::{Csn, Msn, ReceiveIndex, RegionKey, Serial, StreamId};

/// Bytes that DATA adds to the base header, without what only some opcodes and flags carry.
pub const DATA_FIXED_BYTES: usize = 28;

/// The most bytes that base header and DATA header take together.
pub const DATA_HEADER_BYTES_MAX: usize = 80;

const REMOTE_BYTES: usize = 12;
const OPERAND_BYTES: usize = 16;
const MATCH_BYTES: usize = 8;
const IMMEDIATE_BYTES: usize = 4;
const SIGNAL_BYTES: usize = 20;

// The longest: a WRITE with signal.
//= MR-WIRE-14
const _: () = assert!(BASE_BYTES + DATA_FIXED_BYTES + REMOTE_BYTES + SIGNAL_BYTES == DATA_HEADER_BYTES_MAX);

/// Remote memory: the region and the address of the packet's first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Remote {
    /// The key of the region.
    pub key: RegionKey,
    /// The address of this packet's first byte.
    pub address: u64,
}

/// A word to add to once everything earlier in the stream is placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Signal {
    /// The key of the word's region.
    pub key: RegionKey,
    /// The address of the word.
    pub address: u64,
    /// What to add to it.
    pub addend: u64,
}

/// The header of DATA, base header excluded.
///
/// Which of the optional fields are present follows from opcode and flags: the header is *consistent* if just
/// those are `Some`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataHeader {
    /// What the packet asks for or answers.
    pub opcode: Opcode,
    /// Its flags.
    pub flags: OpFlags,
    /// The stream.
    pub stream: StreamId,
    /// The packet; 0 on a DATAGRAM.
    pub csn: Csn,
    /// The message, on a response that of its request, on a STREAM RESET the next one.
    pub msn: Msn,
    /// Where in the message the payload starts, in bytes.
    pub offset: u32,
    /// Bytes of the whole message.
    pub length: u32,
    /// The receive that the message consumes.
    pub receive_index: ReceiveIndex,
    /// What the sender could send now on this plane, in KiB.
    pub demand_kib: u32,
    /// Remote memory, if [`Opcode::has_remote`].
    pub remote: Option<Remote>,
    /// Operands, if [`Opcode::is_atomic`].
    pub operands: Option<[u64; 2]>,
    /// Match bits, if [`OpFlags::TAGGED`].
    pub match_bits: Option<u64>,
    /// Immediate, status of a RESULT, reason of a STREAM RESET, or key to invalidate, if
    /// [`OpFlags::IMMEDIATE`] or [`OpFlags::INVALIDATE`].
    pub immediate: Option<u32>,
    /// The signal, if [`OpFlags::SIGNAL`].
    pub signal: Option<Signal>,
}

impl DataHeader {
    /// Reads the header from what follows the base header; what follows it is the payload.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if the header does not fit, [`WireError::Kind`] for an unknown opcode,
    /// [`WireError::Field`] if flags, offset, length and payload contradict each other or the opcode.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), WireError> {
        let (fixed, rest) = bytes.split_first_chunk::<DATA_FIXED_BYTES>().ok_or(WireError::Truncated)?;
        let mut reader = Reader::new(fixed);
        let mut header = Self {
            opcode: Opcode::from_code(reader.u8()?)?,
            flags: OpFlags::from_bits(reader.u8()?),
            stream: StreamId(reader.u16()?),
            csn: Csn::new(reader.u32()?),
            msn: Msn::new(reader.u32()?),
            offset: reader.u32()?,
            length: reader.u32()?,
            receive_index: ReceiveIndex::new(reader.u32()?),
            demand_kib: reader.u32()?,
            remote: None,
            operands: None,
            match_bits: None,
            immediate: None,
            signal: None,
        };
        if !header.opcode.permits(header.flags) {
            return Err(WireError::Field);
        }
        let payload = header.parse_optional(rest)?;
        header.check(payload.len())?;
        Ok((header, payload))
    }

    /// Writes the header and returns its bytes, [`encoded_length`](Self::encoded_length).
    ///
    /// Opcode and flags alone say which optional fields are written; one that is missing is written as zero.
    ///
    /// # Errors
    /// [`BufferTooSmall`]; `out` may then hold a part of the header.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, BufferTooSmall> {
        debug_assert!(self.is_consistent(), "optional fields must be those of opcode and flags: {self:?}");
        let (fixed, rest) = out.split_first_chunk_mut::<DATA_FIXED_BYTES>().ok_or(BufferTooSmall)?;
        let mut writer = Writer::new(fixed);
        writer.u8(self.opcode.code())?;
        writer.u8(self.flags.bits())?;
        writer.u16(self.stream.0)?;
        writer.u32(self.csn.raw())?;
        writer.u32(self.msn.raw())?;
        writer.u32(self.offset)?;
        writer.u32(self.length)?;
        writer.u32(self.receive_index.raw())?;
        writer.u32(self.demand_kib)?;
        let optional = self.emit_optional(rest)?;
        Ok(writer.written().saturating_add(optional))
    }

    /// Bytes of the header, base header excluded.
    #[must_use]
    #[inline]
    pub const fn encoded_length(&self) -> usize {
        Self::encoded_length_of(self.opcode, self.flags)
    }

    /// Bytes of a header with this opcode and these flags, base header excluded.
    #[must_use]
    #[inline]
    pub const fn encoded_length_of(opcode: Opcode, flags: OpFlags) -> usize {
        let remote = if opcode.has_remote() { REMOTE_BYTES } else { 0 };
        let operands = if opcode.is_atomic() { OPERAND_BYTES } else { 0 };
        let match_bits = if flags.contains(OpFlags::TAGGED) { MATCH_BYTES } else { 0 };
        let immediate = if has_immediate(flags) { IMMEDIATE_BYTES } else { 0 };
        let signal = if flags.contains(OpFlags::SIGNAL) { SIGNAL_BYTES } else { 0 };
        DATA_FIXED_BYTES
            .saturating_add(remote)
            .saturating_add(operands)
            .saturating_add(match_bits)
            .saturating_add(immediate)
            .saturating_add(signal)
    }

    /// Whether just those optional fields are present that opcode and flags call for.
    #[must_use]
    pub const fn is_consistent(&self) -> bool {
        self.remote.is_some() == self.opcode.has_remote()
            && self.operands.is_some() == self.opcode.is_atomic()
            && self.match_bits.is_some() == self.flags.contains(OpFlags::TAGGED)
            && self.immediate.is_some() == has_immediate(self.flags)
            && self.signal.is_some() == self.flags.contains(OpFlags::SIGNAL)
    }

    /// Judges opcode, flags, offset and length with a payload of `payload` bytes, as [`parse`](Self::parse) does.
    ///
    /// # Errors
    /// [`WireError::Field`] if they contradict each other.
    #[inline]
    pub fn check(&self, payload: usize) -> Result<(), WireError> {
        let payload = u32::try_from(payload).map_err(|_| WireError::Field)?;
        let end = self.offset.checked_add(payload);
        let sound = match self.opcode {
            Opcode::Send | Opcode::Write | Opcode::ReadResponse => {
                //= MR-WIRE-16
                let last = self.flags.contains(OpFlags::LAST);
                end.is_some_and(|end| end <= self.length && last == (end == self.length))
                    //= MR-OP-16
                    && (payload == 0) == (self.length == 0)
            }
            Opcode::ReadRequest => payload == 0 && self.offset == 0,
            Opcode::AtomicResponse => payload == 8 && self.offset == 0 && self.length == 8,
            Opcode::Datagram => payload == self.length,
            Opcode::Result | Opcode::Void | Opcode::StreamReset => payload == 0,
            Opcode::FetchAdd
            | Opcode::CompareSwap
            | Opcode::Swap
            | Opcode::Min
            | Opcode::Max
            | Opcode::And
            | Opcode::Or
            | Opcode::Xor => payload == 0 && self.offset == 0 && self.length == 8,
        };
        //= MR-WIRE-15
        if sound && self.opcode.permits(self.flags) { Ok(()) } else { Err(WireError::Field) }
    }

    #[inline]
    fn parse_optional<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], WireError> {
        let mut reader = Reader::new(bytes);
        if self.opcode.has_remote() {
            self.remote = Some(Remote { key: RegionKey(reader.u32()?), address: reader.u64()? });
        }
        if self.opcode.is_atomic() {
            self.operands = Some([reader.u64()?, reader.u64()?]);
        }
        if self.flags.contains(OpFlags::TAGGED) {
            self.match_bits = Some(reader.u64()?);
        }
        if has_immediate(self.flags) {
            self.immediate = Some(reader.u32()?);
        }
        if self.flags.contains(OpFlags::SIGNAL) {
            let key = RegionKey(reader.u32()?);
            self.signal = Some(Signal { key, address: reader.u64()?, addend: reader.u64()? });
        }
        Ok(reader.rest())
    }

    #[inline]
    fn emit_optional(&self, out: &mut [u8]) -> Result<usize, BufferTooSmall> {
        let mut writer = Writer::new(out);
        if self.opcode.has_remote() {
            let remote = self.remote.unwrap_or_default();
            writer.u32(remote.key.0)?;
            writer.u64(remote.address)?;
        }
        if self.opcode.is_atomic() {
            let [first, second] = self.operands.unwrap_or_default();
            writer.u64(first)?;
            writer.u64(second)?;
        }
        if self.flags.contains(OpFlags::TAGGED) {
            writer.u64(self.match_bits.unwrap_or_default())?;
        }
        if has_immediate(self.flags) {
            writer.u32(self.immediate.unwrap_or_default())?;
        }
        if self.flags.contains(OpFlags::SIGNAL) {
            let signal = self.signal.unwrap_or_default();
            writer.u32(signal.key.0)?;
            writer.u64(signal.address)?;
            writer.u64(signal.addend)?;
        }
        Ok(writer.written())
    }
}

const fn has_immediate(flags: OpFlags) -> bool {
    flags.intersects(OpFlags::IMMEDIATE.with(OpFlags::INVALIDATE))
}
