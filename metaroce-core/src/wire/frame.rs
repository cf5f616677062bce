//! Frames after an acknowledgement.
//!
//! | bytes | field                           |
//! |-------|---------------------------------|
//! | 0     | type                            |
//! | 1     | bytes of the body               |
//! | 2..   | body                            |
//!
//! | type | body bytes | frame   | body                                                                        |
//! |------|------------|---------|-----------------------------------------------------------------------------|
//! | 1    | 32         | REFUSED | vector, aligned like that of the block before it                            |
//! | 2    | 8          | NACK    | stream (2), reason (1), reserved (1), delay in µs (4)                       |
//! | 3    | 8          | CREDIT  | stream (2), flags (1; bit 0 *none needed*), reserved (1), receives posted (4) |
//! | 4    | 8          | PLANE   | planes silent (4), planes unreachable (4), bit *i* (1 << *i*) is plane *i*  |
//! | 5    | 4          | START   | allowance in KiB (4)                                                        |
//! | 6    | 64         | ACK     | acknowledgement of another path                                             |
//!
//! A frame of another type is passed over by its length.

use super::ack::{ACK_BODY_BYTES, AckBody};
use super::cursor::{Reader, Writer};
use super::vector::Vector256;
use super::{BufferTooSmall, WireError};
use crate::ids::{ReceiveIndex, Serial, StreamId};

/// Bytes before the body of a frame.
pub const FRAME_HEADER_BYTES: usize = 2;

const REFUSED: u8 = 1;
const NACK: u8 = 2;
const CREDIT: u8 = 3;
const PLANE: u8 = 4;
const START: u8 = 5;
const ACK: u8 = 6;

const REFUSED_BYTES: u8 = 32;
const NACK_BYTES: u8 = 8;
const CREDIT_BYTES: u8 = 8;
const PLANE_BYTES: u8 = 8;
const START_BYTES: u8 = 4;
const ACK_BYTES: u8 = 64;

const CREDIT_NONE_NEEDED: u8 = 1;

const _: () = assert!(ACK_BYTES as usize == ACK_BODY_BYTES && REFUSED_BYTES as usize == Vector256::BYTES);

/// Why packets of a stream were refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum NackReason {
    /// No receive is posted.
    NoReceive = 1,
    /// No slot is free for an operation that must wait.
    NoSlot = 2,
    /// The message or stream has ended.
    Ended = 3,
    /// A predecessor must come first.
    Order = 4,
    /// Key, bounds or rights do not allow it.
    Access = 5,
    /// The connection is closing.
    Closed = 6,
}

impl NackReason {
    /// From the code on the wire.
    ///
    /// # Errors
    /// [`WireError::Field`] for a code that is not defined.
    pub const fn from_code(code: u8) -> Result<Self, WireError> {
        Ok(match code {
            1 => Self::NoReceive,
            2 => Self::NoSlot,
            3 => Self::Ended,
            4 => Self::Order,
            5 => Self::Access,
            6 => Self::Closed,
            _ => return Err(WireError::Field),
        })
    }

    /// The code on the wire.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }
}

/// One frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// The PSNs that were refused, aligned like the vector of the acknowledgement before it.
    Refused(Vector256),
    /// Why packets of a stream were refused.
    Nack {
        /// The stream.
        stream: StreamId,
        /// Why.
        reason: NackReason,
        /// When to try again, in microseconds.
        delay_us: u32,
    },
    /// How far the sender of a stream may go.
    Credit {
        /// The stream.
        stream: StreamId,
        /// Whether the stream needs no credit; `posted` then says nothing.
        none_needed: bool,
        /// Receives posted so far.
        posted: ReceiveIndex,
    },
    /// Planes out of order, as bitmaps: bit `1 << i` is plane *i*.
    Plane {
        /// Planes on which nothing arrived while others delivered.
        silent: u32,
        /// Planes on which there is no live path to send.
        unreachable: u32,
    },
    /// How much an idle connection may start with.
    Start {
        /// In KiB.
        allowance_kib: u32,
    },
    /// The acknowledgement of another path.
    Ack(AckBody),
}

impl Frame {
    /// Bytes of the longest frame.
    pub const BYTES_MAX: usize = FRAME_HEADER_BYTES + ACK_BODY_BYTES;

    /// Reads one frame; `None` in the place of the frame for one of unknown type, passed over.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if frame header or body do not fit, [`WireError::Field`] if the body of a known
    /// type has another length or a value that is forbidden.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Option<Self>, &[u8]), WireError> {
        let mut reader = Reader::new(bytes);
        let kind = reader.u8()?;
        let length = reader.u8()?;
        let body = reader.bytes(usize::from(length))?;
        //= MR-WIRE-25
        if body_bytes(kind).is_some_and(|expected| expected != length) {
            return Err(WireError::Field);
        }
        Ok((Self::parse_body(kind, body)?, reader.rest()))
    }

    /// Writes the frame and returns its bytes, [`encoded_length`](Self::encoded_length).
    ///
    /// # Errors
    /// [`BufferTooSmall`]; `out` may then hold a part of the frame.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, BufferTooSmall> {
        let (kind, length) = self.header();
        let mut writer = Writer::new(out.get_mut(..self.encoded_length()).ok_or(BufferTooSmall)?);
        writer.u8(kind)?;
        writer.u8(length)?;
        match *self {
            Self::Refused(vector) => vector.write(&mut writer)?,
            Self::Nack { stream, reason, delay_us } => {
                writer.u16(stream.0)?;
                writer.u8(reason.code())?;
                writer.reserved::<1>()?;
                writer.u32(delay_us)?;
            }
            Self::Credit { stream, none_needed, posted } => {
                writer.u16(stream.0)?;
                writer.u8(if none_needed { CREDIT_NONE_NEEDED } else { 0 })?;
                writer.reserved::<1>()?;
                writer.u32(posted.raw())?;
            }
            Self::Plane { silent, unreachable } => {
                writer.u32(silent)?;
                writer.u32(unreachable)?;
            }
            Self::Start { allowance_kib } => writer.u32(allowance_kib)?,
            Self::Ack(ack) => {
                let mut body = [0; ACK_BODY_BYTES];
                ack.emit(&mut body)?;
                writer.array(body)?;
            }
        }
        Ok(writer.written())
    }

    /// Bytes of the frame, its header included.
    #[must_use]
    #[inline]
    pub const fn encoded_length(&self) -> usize {
        FRAME_HEADER_BYTES.saturating_add(self.header().1 as usize)
    }

    const fn header(&self) -> (u8, u8) {
        match self {
            Self::Refused(_) => (REFUSED, REFUSED_BYTES),
            Self::Nack { .. } => (NACK, NACK_BYTES),
            Self::Credit { .. } => (CREDIT, CREDIT_BYTES),
            Self::Plane { .. } => (PLANE, PLANE_BYTES),
            Self::Start { .. } => (START, START_BYTES),
            Self::Ack(_) => (ACK, ACK_BYTES),
        }
    }

    fn parse_body(kind: u8, body: &[u8]) -> Result<Option<Self>, WireError> {
        let mut reader = Reader::new(body);
        Ok(Some(match kind {
            REFUSED => Self::Refused(Vector256::read(&mut reader)?),
            NACK => {
                let stream = StreamId(reader.u16()?);
                let reason = NackReason::from_code(reader.u8()?)?;
                reader.skip::<1>()?;
                Self::Nack { stream, reason, delay_us: reader.u32()? }
            }
            CREDIT => {
                let stream = StreamId(reader.u16()?);
                let none_needed = reader.u8()? & CREDIT_NONE_NEEDED != 0;
                reader.skip::<1>()?;
                Self::Credit { stream, none_needed, posted: ReceiveIndex::new(reader.u32()?) }
            }
            PLANE => Self::Plane { silent: reader.u32()?, unreachable: reader.u32()? },
            START => Self::Start { allowance_kib: reader.u32()? },
            ACK => Self::Ack(AckBody::parse(body)?.0),
            //= MR-WIRE-24
            _ => return Ok(None),
        }))
    }
}

/// The frames of a slice, in order; it ends at the end of the slice or after the first error.
///
/// Each step consumes at least two bytes, so that it is bounded by the datagram.
#[derive(Clone, Debug)]
pub struct FrameIter<'a> {
    rest: &'a [u8],
}

impl<'a> FrameIter<'a> {
    /// The frames of `bytes`: what [`AckBody::parse`] or [`ProbeReply::parse`](super::ProbeReply::parse) left.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }
}

impl Iterator for FrameIter<'_> {
    type Item = Result<Frame, WireError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        while !self.rest.is_empty() {
            match Frame::parse(self.rest) {
                Ok((frame, rest)) => {
                    self.rest = rest;
                    if let Some(frame) = frame {
                        return Some(Ok(frame));
                    }
                }
                Err(error) => {
                    self.rest = &[];
                    return Some(Err(error));
                }
            }
        }
        None
    }
}

impl core::iter::FusedIterator for FrameIter<'_> {}

const fn body_bytes(kind: u8) -> Option<u8> {
    match kind {
        REFUSED => Some(REFUSED_BYTES),
        NACK => Some(NACK_BYTES),
        CREDIT => Some(CREDIT_BYTES),
        PLANE => Some(PLANE_BYTES),
        START => Some(START_BYTES),
        ACK => Some(ACK_BYTES),
        _ => None,
    }
}
