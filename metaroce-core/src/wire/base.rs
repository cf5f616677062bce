//! The base header, on every packet.
//!
//! | bytes  | field                                                                        |
//! |--------|------------------------------------------------------------------------------|
//! | 0      | version (high 4 bits, 0), packet type (low 4 bits)                           |
//! | 1      | flags, all reserved                                                          |
//! | 2      | path id, 0 to 63                                                             |
//! | 3      | path epoch                                                                   |
//! | 4..8   | destination connection id                                                    |
//! | 8..12  | PSN (DATA and PROBE; 0 on other types)                                       |
//! | 12..16 | transmit timestamp, units of 16 ns, wrapping                                 |
//! | 16..20 | CRC32C over the whole datagram with this field as zero; 0 if there is none   |

use core::ops::Range;

use super::cursor::{Reader, Writer};
use super::{BufferTooSmall, WireError};
use crate::ids::{PathId, Psn, Serial, WireConnectionId};

/// Bytes of the base header.
pub const BASE_BYTES: usize = 20;

/// The version nibble of this draft.
pub const VERSION: u8 = 0;

/// Path ids are below this.
pub const PATHS_MAX: u8 = 64;

/// What a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PacketType {
    /// One packet of a message, response or datagram.
    Data = 1,
    /// What arrived on a path.
    Ack = 2,
    /// Opening and closing.
    Control = 3,
    /// Asks for a [`PacketType::ProbeReply`].
    Probe = 4,
    /// Answers a [`PacketType::Probe`].
    ProbeReply = 5,
}

impl PacketType {
    const fn from_nibble(nibble: u8) -> Option<Self> {
        match nibble {
            1 => Some(Self::Data),
            2 => Some(Self::Ack),
            3 => Some(Self::Control),
            4 => Some(Self::Probe),
            5 => Some(Self::ProbeReply),
            _ => None,
        }
    }

    /// Whether packets of this type take a PSN of their path.
    #[must_use]
    pub const fn takes_psn(self) -> bool {
        //= MR-WIRE-6
        matches!(self, Self::Data | Self::Probe)
    }
}

/// The base header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Base {
    /// What the packet is.
    pub kind: PacketType,
    /// Reserved: 0 when sent, ignored when received.
    pub flags: u8,
    /// The path that it was sent on.
    pub path: PathId,
    /// The number of the path's route.
    pub epoch: u8,
    /// The connection id that the receiver chose.
    pub connection: WireConnectionId,
    /// The transmission; 0 on types that take none.
    pub psn: Psn,
    /// When it was sent, in units of 16 ns, wrapping.
    pub timestamp: u32,
    /// CRC32C of the datagram, or 0.
    pub checksum: u32,
}

impl Base {
    /// Where the checksum stands in a datagram.
    pub const CHECKSUM_FIELD: Range<usize> = 16..20;

    /// Reads the header; what follows it is the body of the packet type.
    ///
    /// # Errors
    /// [`WireError::Truncated`] under [`BASE_BYTES`], [`WireError::Version`] for another version,
    /// [`WireError::Kind`] for an unknown packet type, [`WireError::Field`] for a path id above 63.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), WireError> {
        //= MR-WIRE-1
        let (fixed, rest) = bytes.split_first_chunk::<BASE_BYTES>().ok_or(WireError::Truncated)?;
        let mut reader = Reader::new(fixed);
        let first = reader.u8()?;
        if first >> 4 != VERSION {
            return Err(WireError::Version);
        }
        let base = Self {
            kind: PacketType::from_nibble(first & 0x0f).ok_or(WireError::Kind)?,
            flags: reader.u8()?,
            path: read_path(&mut reader)?,
            epoch: reader.u8()?,
            connection: WireConnectionId(reader.u32()?),
            psn: Psn::new(reader.u32()?),
            timestamp: reader.u32()?,
            checksum: reader.u32()?,
        };
        Ok((base, rest))
    }

    /// Writes the header and returns [`BASE_BYTES`].
    ///
    /// # Errors
    /// [`BufferTooSmall`]; `out` may then hold a part of the header.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, BufferTooSmall> {
        let fixed = out.first_chunk_mut::<BASE_BYTES>().ok_or(BufferTooSmall)?;
        let mut writer = Writer::new(fixed);
        writer.u8((VERSION << 4) | self.kind as u8)?;
        writer.u8(self.flags)?;
        writer.u8(self.path.0)?;
        writer.u8(self.epoch)?;
        writer.u32(self.connection.0)?;
        writer.u32(self.psn.raw())?;
        writer.u32(self.timestamp)?;
        writer.u32(self.checksum)?;
        Ok(writer.written())
    }

    /// Writes `crc` into the checksum field of a datagram, or does nothing if `out` is shorter than that.
    #[inline]
    pub fn write_checksum(out: &mut [u8], crc: u32) {
        if let Some(field) = out.get_mut(Self::CHECKSUM_FIELD).and_then(|field| field.first_chunk_mut::<4>())
        {
            *field = crc.to_be_bytes();
        }
    }
}

/// Reads a path id.
#[inline]
pub(super) fn read_path(reader: &mut Reader<'_>) -> Result<PathId, WireError> {
    let path = reader.u8()?;
    if path < PATHS_MAX { Ok(PathId(path)) } else { Err(WireError::Field) }
}
