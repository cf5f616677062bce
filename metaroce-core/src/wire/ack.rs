//! The acknowledgement of one path, the body of an ACK.
//!
//! | bytes  | field                                                                          |
//! |--------|--------------------------------------------------------------------------------|
//! | 0      | path id, 0 to 63                                                               |
//! | 1      | path epoch                                                                     |
//! | 2      | flags: bit 0 *nothing received on this path yet*; the others reserved          |
//! | 3      | reserved                                                                       |
//! | 4..8   | largest PSN received                                                           |
//! | 8..40  | vector: bit *i* (bit 7 − *i* % 8 of byte *i* / 8) is set if largest − *i* was accepted |
//! | 40..44 | echoed transmit timestamp of the newest packet                                 |
//! | 44..48 | how long the receiver held that packet, units of 16 ns, saturating             |
//! | 48..52 | packets received on this path, cumulative, wrapping                            |
//! | 52..56 | packets of them marked CE, cumulative, wrapping                                |
//! | 56..60 | cumulative CSN: the lowest not seen                                            |
//! | 60..64 | rate share for the plane of the path, kbit/s of wire bytes                     |

use super::base::read_path;
use super::cursor::{Reader, Writer};
use super::vector::Vector256;
use super::{BufferTooSmall, WireError};
use crate::ids::{Csn, PathId, Psn, Serial};

/// Bytes of an acknowledgement.
pub const ACK_BODY_BYTES: usize = 64;

/// Flag of [`AckBody::flags`]: nothing was received on this path yet, so that largest PSN, vector and echo say
/// nothing.
pub const ACK_FLAG_EMPTY: u8 = 1;

/// The acknowledgement of one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckBody {
    /// The path acknowledged.
    pub path: PathId,
    /// The epoch of the newest packet received on it.
    pub epoch: u8,
    /// [`ACK_FLAG_EMPTY`]; other bits are reserved: 0 when sent, ignored when received.
    pub flags: u8,
    /// The largest PSN received.
    pub largest: Psn,
    /// Which of the last 256 PSNs were accepted.
    pub accepted: Vector256,
    /// Transmit timestamp of the newest packet.
    pub echoed_timestamp: u32,
    /// How long the newest packet was held, in units of 16 ns, saturating.
    pub hold: u32,
    /// Packets received on this path, cumulative, wrapping.
    pub packets: u32,
    /// Packets received on this path that were marked CE, cumulative, wrapping.
    pub marked: u32,
    /// The lowest CSN not seen by the receiver.
    pub cumulative: Csn,
    /// Share of the inbound rate of the path's plane, in kbit/s of wire bytes, saturating.
    pub share_kbps: u32,
}

impl AckBody {
    /// Reads the acknowledgement; what follows it are frames.
    ///
    /// # Errors
    /// [`WireError::Truncated`] under [`ACK_BODY_BYTES`], [`WireError::Field`] for a path id above 63.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), WireError> {
        let (fixed, rest) = bytes.split_first_chunk::<ACK_BODY_BYTES>().ok_or(WireError::Truncated)?;
        let mut reader = Reader::new(fixed);
        let path = read_path(&mut reader)?;
        let epoch = reader.u8()?;
        let flags = reader.u8()?;
        reader.skip::<1>()?;
        let ack = Self {
            path,
            epoch,
            flags,
            largest: Psn::new(reader.u32()?),
            accepted: Vector256::read(&mut reader)?,
            echoed_timestamp: reader.u32()?,
            hold: reader.u32()?,
            packets: reader.u32()?,
            marked: reader.u32()?,
            cumulative: Csn::new(reader.u32()?),
            share_kbps: reader.u32()?,
        };
        Ok((ack, rest))
    }

    /// Writes the acknowledgement and returns [`ACK_BODY_BYTES`].
    ///
    /// # Errors
    /// [`BufferTooSmall`]; `out` may then hold a part of it.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, BufferTooSmall> {
        let fixed = out.first_chunk_mut::<ACK_BODY_BYTES>().ok_or(BufferTooSmall)?;
        let mut writer = Writer::new(fixed);
        writer.u8(self.path.0)?;
        writer.u8(self.epoch)?;
        writer.u8(self.flags)?;
        writer.reserved::<1>()?;
        writer.u32(self.largest.raw())?;
        self.accepted.write(&mut writer)?;
        writer.u32(self.echoed_timestamp)?;
        writer.u32(self.hold)?;
        writer.u32(self.packets)?;
        writer.u32(self.marked)?;
        writer.u32(self.cumulative.raw())?;
        writer.u32(self.share_kbps)?;
        Ok(writer.written())
    }
}
