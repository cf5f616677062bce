//! The bodies of CONTROL: opening and closing.
//!
//! | kind | message     | body after the kind byte                                                               |
//! |------|-------------|----------------------------------------------------------------------------------------|
//! | 1    | CONNECT     | see [`Connect`]                                                                        |
//! | 2    | ACCEPT      | see [`Connect`]                                                                        |
//! | 3    | CONFIRM     | reserved (3), nonce of the ACCEPT (8)                                                  |
//! | 4    | REJECT      | reserved (1), reason (2), nonce of the CONNECT (8), bytes of private data (2), reserved (2), private data |
//! | 5    | RETRY       | reserved (3), nonce of the CONNECT (8), cookie (16)                                    |
//! | 6    | CLOSE       | flags (1; bit 0 *with quote*), reason (1), reserved (1), next CSN (4), the sender's connection id (4), xor of both nonces (8), quote (20, if flagged) |
//! | 7    | `CLOSE_ACK` | as CLOSE                                                                               |
//! | 8    | RESET       | flags (1; bit 0 *with ids*), reserved (2), then a quote (20), or with ids: the receiver's connection id (4), the sender's (4), xor of both nonces (8) |
//!
//! What follows is padding, and ignored. A quote is a copy of the first 20 bytes of a packet received.

use super::base::BASE_BYTES;
use super::connect::{
    CONNECT_FIXED_BYTES, COOKIE_BYTES, Connect, PLANE_ADDRESS_BYTES, PLANE_ADDRESSES_MAX,
    PRIVATE_DATA_BYTES_MAX, private_length, read_private_data,
};
use super::cursor::{Reader, Writer};
use super::{BufferTooSmall, WireError};
use crate::ids::{Csn, Serial, WireConnectionId};

/// Bytes of a received packet that RESET and CLOSE ACK copy as proof: its base header.
pub const QUOTE_BYTES: usize = BASE_BYTES;

/// The most bytes that base header and CONTROL body take together, padding excluded.
pub const CONTROL_BYTES_MAX: usize =
    BASE_BYTES + CONNECT_FIXED_BYTES + PLANE_ADDRESSES_MAX * PLANE_ADDRESS_BYTES + PRIVATE_DATA_BYTES_MAX;

// What one `Transmit` holds.
const _: () = assert!(CONTROL_BYTES_MAX <= 640);

const CONFIRM_BYTES: usize = 12;
const REJECT_FIXED_BYTES: usize = 16;
const RETRY_BYTES: usize = 12 + COOKIE_BYTES;
const CLOSE_FIXED_BYTES: usize = 20;
const RESET_FIXED_BYTES: usize = 4;
const RESET_IDS_BYTES: usize = 16;

const CLOSE_WITH_QUOTE: u8 = 1;
const RESET_WITH_IDS: u8 = 1;

/// A CONTROL body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control<'a> {
    /// Asks for a connection.
    Connect(Connect<'a>),
    /// Grants one.
    Accept(Connect<'a>),
    /// Tells that the ACCEPT arrived.
    Confirm(Confirm),
    /// Refuses a connection.
    Reject(Reject<'a>),
    /// Asks to connect again with a cookie.
    Retry(Retry),
    /// Ends a connection.
    Close(Close),
    /// Answers a CLOSE.
    CloseAck(Close),
    /// Tells that a connection is not known, or is given up.
    Reset(Reset),
}

impl<'a> Control<'a> {
    /// Reads the body; what follows it is padding.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if the body does not fit, [`WireError::Kind`] for an unknown kind,
    /// [`WireError::Field`] for paths outside 1 to 64, too many plane addresses, an unknown address family, too
    /// much private data, or an unknown REJECT reason.
    pub fn parse(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), WireError> {
        let mut reader = Reader::new(bytes);
        //= MR-WIRE-28
        let control = match reader.u8()? {
            1 => Self::Connect(Connect::read(&mut reader)?),
            2 => Self::Accept(Connect::read(&mut reader)?),
            3 => Self::Confirm(Confirm::read(&mut reader)?),
            4 => Self::Reject(Reject::read(&mut reader)?),
            5 => Self::Retry(Retry::read(&mut reader)?),
            6 => Self::Close(Close::read(&mut reader)?),
            7 => Self::CloseAck(Close::read(&mut reader)?),
            8 => Self::Reset(Reset::read(&mut reader)?),
            _ => return Err(WireError::Kind),
        };
        Ok((control, reader.rest()))
    }

    /// Writes the body and returns its bytes, [`encoded_length`](Self::encoded_length).
    ///
    /// # Errors
    /// [`BufferTooSmall`], also if private data is longer than [`PRIVATE_DATA_BYTES_MAX`]; `out` may then hold a
    /// part of the body.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, BufferTooSmall> {
        let mut writer = Writer::new(out);
        writer.u8(self.kind())?;
        match self {
            Self::Connect(connect) | Self::Accept(connect) => connect.write(&mut writer)?,
            Self::Confirm(confirm) => confirm.write(&mut writer)?,
            Self::Reject(reject) => reject.write(&mut writer)?,
            Self::Retry(retry) => retry.write(&mut writer)?,
            Self::Close(close) | Self::CloseAck(close) => close.write(&mut writer)?,
            Self::Reset(reset) => reset.write(&mut writer)?,
        }
        Ok(writer.written())
    }

    /// Bytes of the body, base header and padding excluded.
    #[must_use]
    pub const fn encoded_length(&self) -> usize {
        match self {
            Self::Connect(connect) | Self::Accept(connect) => connect.encoded_length(),
            Self::Confirm(_) => CONFIRM_BYTES,
            Self::Reject(reject) => REJECT_FIXED_BYTES.saturating_add(reject.private_data.len()),
            Self::Retry(_) => RETRY_BYTES,
            Self::Close(close) | Self::CloseAck(close) => {
                CLOSE_FIXED_BYTES.saturating_add(if close.quote.is_some() { QUOTE_BYTES } else { 0 })
            }
            Self::Reset(reset) => RESET_FIXED_BYTES.saturating_add(match reset.proof {
                ResetProof::Quote(_) => QUOTE_BYTES,
                ResetProof::Ids { .. } => RESET_IDS_BYTES,
            }),
        }
    }

    const fn kind(&self) -> u8 {
        match self {
            Self::Connect(_) => 1,
            Self::Accept(_) => 2,
            Self::Confirm(_) => 3,
            Self::Reject(_) => 4,
            Self::Retry(_) => 5,
            Self::Close(_) => 6,
            Self::CloseAck(_) => 7,
            Self::Reset(_) => 8,
        }
    }
}

/// The body of CONFIRM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confirm {
    /// The nonce of the ACCEPT.
    pub echoed_nonce: u64,
}

impl Confirm {
    fn read(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        reader.skip::<3>()?;
        Ok(Self { echoed_nonce: reader.u64()? })
    }

    fn write(self, writer: &mut Writer<'_>) -> Result<(), BufferTooSmall> {
        writer.reserved::<3>()?;
        writer.u64(self.echoed_nonce)
    }
}

/// Why a connection was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RejectReason {
    /// Nobody listens on that service.
    NoListener,
    /// The limits asked for and granted do not meet.
    Limits,
    /// Version or features do not meet.
    Version,
    /// Too many connections, or not ready.
    Busy,
    /// The endpoint is closing.
    Closed,
    /// The application's own reason, 0x100 or above.
    Application(u16),
}

impl RejectReason {
    /// The least code that is the application's own.
    pub const APPLICATION_CODE_MIN: u16 = 0x100;

    /// From the code on the wire.
    ///
    /// # Errors
    /// [`WireError::Field`] for a code below 0x100 that is not defined.
    pub const fn from_code(code: u16) -> Result<Self, WireError> {
        Ok(match code {
            1 => Self::NoListener,
            2 => Self::Limits,
            3 => Self::Version,
            4 => Self::Busy,
            5 => Self::Closed,
            Self::APPLICATION_CODE_MIN.. => Self::Application(code),
            _ => return Err(WireError::Field),
        })
    }

    /// The code on the wire; an application's code below 0x100 becomes 0x100, so that it never passes for another
    /// reason.
    #[must_use]
    pub const fn code(self) -> u16 {
        match self {
            Self::NoListener => 1,
            Self::Limits => 2,
            Self::Version => 3,
            Self::Busy => 4,
            Self::Closed => 5,
            Self::Application(code) if code < Self::APPLICATION_CODE_MIN => Self::APPLICATION_CODE_MIN,
            Self::Application(code) => code,
        }
    }
}

/// The body of REJECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reject<'a> {
    /// Why.
    pub reason: RejectReason,
    /// The nonce of the CONNECT.
    pub echoed_nonce: u64,
    /// The application's bytes, at most [`PRIVATE_DATA_BYTES_MAX`].
    pub private_data: &'a [u8],
}

impl<'a> Reject<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, WireError> {
        reader.skip::<1>()?;
        let reason = reader.u16()?;
        let echoed_nonce = reader.u64()?;
        let length = reader.u16()?;
        reader.skip::<2>()?;
        let reason = RejectReason::from_code(reason)?;
        Ok(Self { reason, echoed_nonce, private_data: read_private_data(reader, length)? })
    }

    fn write(&self, writer: &mut Writer<'_>) -> Result<(), BufferTooSmall> {
        writer.reserved::<1>()?;
        writer.u16(self.reason.code())?;
        writer.u64(self.echoed_nonce)?;
        writer.u16(private_length(self.private_data)?)?;
        writer.reserved::<2>()?;
        writer.bytes(self.private_data)
    }
}

/// The body of RETRY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// The nonce of the CONNECT.
    pub echoed_nonce: u64,
    /// What the next CONNECT is to carry.
    pub cookie: [u8; COOKIE_BYTES],
}

impl Retry {
    fn read(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        reader.skip::<3>()?;
        Ok(Self { echoed_nonce: reader.u64()?, cookie: reader.array()? })
    }

    fn write(&self, writer: &mut Writer<'_>) -> Result<(), BufferTooSmall> {
        writer.reserved::<3>()?;
        writer.u64(self.echoed_nonce)?;
        writer.array(self.cookie)
    }
}

/// The body of CLOSE and of CLOSE ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Close {
    /// Why: 0 drained, 1 flushed; other numbers are passed on as they are.
    pub reason: u8,
    /// The sender's next CSN: all below have a verdict.
    pub next_csn: Csn,
    /// The sender's own connection id.
    pub sender: WireConnectionId,
    /// The xor of both nonces, which only the two ends know.
    pub nonce_xor: u64,
    /// In a CLOSE ACK that answers no CLOSE: the first bytes of the packet that it answers.
    pub quote: Option<[u8; QUOTE_BYTES]>,
}

impl Close {
    fn read(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let flags = reader.u8()?;
        let reason = reader.u8()?;
        reader.skip::<1>()?;
        let next_csn = Csn::new(reader.u32()?);
        let sender = WireConnectionId(reader.u32()?);
        let nonce_xor = reader.u64()?;
        let quote = if flags & CLOSE_WITH_QUOTE == 0 { None } else { Some(reader.array()?) };
        Ok(Self { reason, next_csn, sender, nonce_xor, quote })
    }

    fn write(&self, writer: &mut Writer<'_>) -> Result<(), BufferTooSmall> {
        writer.u8(if self.quote.is_some() { CLOSE_WITH_QUOTE } else { 0 })?;
        writer.u8(self.reason)?;
        writer.reserved::<1>()?;
        writer.u32(self.next_csn.raw())?;
        writer.u32(self.sender.0)?;
        writer.u64(self.nonce_xor)?;
        match self.quote {
            Some(quote) => writer.array(quote),
            None => Ok(()),
        }
    }
}

/// The body of RESET.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reset {
    /// Why it is to be believed.
    pub proof: ResetProof,
}

/// What makes a RESET credible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetProof {
    /// The first bytes of the packet that it answers; for an id that its sender does not know.
    Quote([u8; QUOTE_BYTES]),
    /// What only the two ends know; for a live connection.
    Ids {
        /// The connection id of the receiver of the RESET.
        yours: WireConnectionId,
        /// The connection id of its sender.
        mine: WireConnectionId,
        /// The xor of both nonces.
        nonce_xor: u64,
    },
}

impl Reset {
    fn read(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let flags = reader.u8()?;
        reader.skip::<2>()?;
        let proof = if flags & RESET_WITH_IDS == 0 {
            ResetProof::Quote(reader.array()?)
        } else {
            ResetProof::Ids {
                yours: WireConnectionId(reader.u32()?),
                mine: WireConnectionId(reader.u32()?),
                nonce_xor: reader.u64()?,
            }
        };
        Ok(Self { proof })
    }

    fn write(&self, writer: &mut Writer<'_>) -> Result<(), BufferTooSmall> {
        let flags = if matches!(self.proof, ResetProof::Ids { .. }) { RESET_WITH_IDS } else { 0 };
        writer.u8(flags)?;
        writer.reserved::<2>()?;
        match self.proof {
            ResetProof::Quote(quote) => writer.array(quote),
            ResetProof::Ids { yours, mine, nonce_xor } => {
                writer.u32(yours.0)?;
                writer.u32(mine.0)?;
                writer.u64(nonce_xor)
            }
        }
    }
}
