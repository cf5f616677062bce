//! The bodies of PROBE and `PROBE_REPLY`.
//!
//! PROBE, then padding to the size under test, which is ignored:
//!
//! | bytes | field                            |
//! |-------|----------------------------------|
//! | 0..2  | stream asked about, 0xffff: none |
//! | 2..4  | reserved                         |
//! | 4..8  | demand, KiB                      |
//! | 8..16 | token                            |
//!
//! `PROBE_REPLY`, then frames:
//!
//! | bytes | field                            |
//! |-------|----------------------------------|
//! | 0..8  | token of the PROBE               |
//! | 8..72 | acknowledgement of its path      |

use super::ack::{ACK_BODY_BYTES, AckBody};
use super::cursor::{Reader, Writer};
use super::{BufferTooSmall, WireError};
use crate::ids::StreamId;

/// Bytes of the body of a PROBE, without padding.
pub const PROBE_BYTES: usize = 16;

/// Bytes of the body of a PROBE REPLY, without frames.
pub const PROBE_REPLY_BYTES: usize = 8 + ACK_BODY_BYTES;

/// The body of a PROBE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The stream whose credit is asked for, or [`StreamId::NONE`].
    pub stream: StreamId,
    /// What the sender could send now on this plane, in KiB.
    pub demand_kib: u32,
    /// A random number that the answer carries back.
    pub token: u64,
}

impl Probe {
    /// Reads the body; what follows it is padding.
    ///
    /// # Errors
    /// [`WireError::Truncated`] under [`PROBE_BYTES`].
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), WireError> {
        let mut reader = Reader::new(bytes);
        //= MR-WIRE-27
        let stream = StreamId(reader.u16()?);
        reader.skip::<2>()?;
        let probe = Self { stream, demand_kib: reader.u32()?, token: reader.u64()? };
        Ok((probe, reader.rest()))
    }

    /// Writes the body and returns [`PROBE_BYTES`].
    ///
    /// # Errors
    /// [`BufferTooSmall`]; `out` may then hold a part of it.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, BufferTooSmall> {
        let mut writer = Writer::new(out);
        writer.u16(self.stream.0)?;
        writer.reserved::<2>()?;
        writer.u32(self.demand_kib)?;
        writer.u64(self.token)?;
        Ok(writer.written())
    }
}

/// The body of a PROBE REPLY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeReply {
    /// The token of the PROBE.
    pub token: u64,
    /// The acknowledgement of the path that the PROBE came on.
    pub ack: AckBody,
}

impl ProbeReply {
    /// Reads the body; what follows it are frames.
    ///
    /// # Errors
    /// [`WireError::Truncated`] under [`PROBE_REPLY_BYTES`], [`WireError::Field`] as [`AckBody::parse`] says.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), WireError> {
        let mut reader = Reader::new(bytes);
        let token = reader.u64()?;
        let (ack, rest) = AckBody::parse(reader.rest())?;
        Ok((Self { token, ack }, rest))
    }

    /// Writes the body and returns [`PROBE_REPLY_BYTES`].
    ///
    /// # Errors
    /// [`BufferTooSmall`]; `out` may then hold a part of it.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, BufferTooSmall> {
        let (token, rest) = out.split_first_chunk_mut::<8>().ok_or(BufferTooSmall)?;
        *token = self.token.to_be_bytes();
        Ok(self.ack.emit(rest)?.saturating_add(8))
    }
}
