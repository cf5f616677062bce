//! The bodies of CONNECT and ACCEPT.
//!
//! | bytes  | field                                                                                  |
//! |--------|----------------------------------------------------------------------------------------|
//! | 0      | kind (written by [`Control`](super::Control))                                          |
//! | 1      | flags: bit 0 *wants checksum*, bit 1 *implicit*; the others reserved                   |
//! | 2..4   | bytes of private data, at most 256                                                     |
//! | 4..8   | the sender's connection id                                                             |
//! | 8..16  | nonce                                                                                  |
//! | 16..24 | incarnation of the sender's endpoint                                                   |
//! | 24..32 | feature bits                                                                           |
//! | 32..36 | largest UDP payload that the sender receives                                           |
//! | 36..40 | service number                                                                         |
//! | 40..42 | streams granted                                                                        |
//! | 42     | paths of each plane, 1 to 64                                                           |
//! | 43     | further plane addresses, at most 8                                                     |
//! | 44..46 | outstanding READs and atomics granted                                                  |
//! | 46..48 | held operations granted                                                                |
//! | 48..52 | message window                                                                         |
//! | 52..56 | CSN window                                                                             |
//! | 56..60 | initial credits                                                                        |
//! | 60..64 | start allowance, KiB                                                                   |
//! | 64..72 | ACCEPT: nonce of the CONNECT; CONNECT: 0                                               |
//! | 72..88 | cookie of a RETRY; 0 if there was none                                                 |
//! | 88..   | plane addresses, 20 bytes each: family (1: 4 or 6), reserved (1), port (2), address (16; IPv4 in the first 4, the rest reserved) |
//! | ..     | private data                                                                           |
//! | ..     | padding, ignored                                                                       |

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::base::PATHS_MAX;
use super::cursor::{Reader, Writer};
use super::{BufferTooSmall, WireError};
use crate::ids::WireConnectionId;

/// The most bytes of private data in CONNECT, ACCEPT and REJECT.
pub const PRIVATE_DATA_BYTES_MAX: usize = 256;

/// The most further plane addresses in CONNECT and ACCEPT.
pub const PLANE_ADDRESSES_MAX: usize = 8;

/// Bytes of a retry cookie.
pub const COOKIE_BYTES: usize = 16;

/// Bytes of CONNECT and ACCEPT before plane addresses and private data, base header excluded.
pub const CONNECT_FIXED_BYTES: usize = 88;

pub(super) const PLANE_ADDRESS_BYTES: usize = 20;

const WANTS_CHECKSUM: u8 = 1;
const IMPLICIT: u8 = 2;

const FAMILY_V4: u8 = 4;
const FAMILY_V6: u8 = 6;

/// The body of CONNECT and of ACCEPT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connect<'a> {
    /// Whether the sender wishes a checksum on every packet to it.
    pub wants_checksum: bool,
    /// Whether the opening is implicit.
    pub implicit: bool,
    /// The id that the sender wants in every packet to it.
    pub connection: WireConnectionId,
    /// A random number of the sender for this connection.
    pub nonce: u64,
    /// The random number of the sender's endpoint.
    pub incarnation: u64,
    /// Features that the sender speaks, as bits; none is defined in draft 0.
    pub features: u64,
    /// The largest UDP payload that the sender receives.
    pub mtu_bytes: u32,
    /// The service number.
    pub service: u32,
    /// Streams that the sender keeps at most.
    pub streams: u16,
    /// Paths that the sender keeps on each plane at most, 1 to 64.
    pub paths: u8,
    /// Outstanding READs and atomics that the sender grants its peer.
    pub reads: u16,
    /// Held operations that the sender grants its peer.
    pub held: u16,
    /// MSNs of a stream beyond the oldest incomplete one.
    pub message_window: u32,
    /// CSNs beyond the lowest not seen.
    pub csn_window: u32,
    /// Messages that a stream with no CREDIT yet may send.
    pub initial_credits: u32,
    /// What an idle connection may start with, in KiB.
    pub start_allowance_kib: u32,
    /// In ACCEPT the nonce of the CONNECT, in CONNECT 0.
    pub echoed_nonce: u64,
    /// The cookie of a RETRY, zero if there was none.
    pub cookie: [u8; COOKIE_BYTES],
    /// Addresses of the sender on its further planes.
    pub planes: PlaneAddresses,
    /// The application's bytes, at most [`PRIVATE_DATA_BYTES_MAX`].
    pub private_data: &'a [u8],
}

impl<'a> Connect<'a> {
    /// Bytes of CONNECT or ACCEPT, base header and padding excluded.
    #[must_use]
    pub const fn encoded_length(&self) -> usize {
        CONNECT_FIXED_BYTES
            .saturating_add(self.planes.len().saturating_mul(PLANE_ADDRESS_BYTES))
            .saturating_add(self.private_data.len())
    }

    /// Reads what follows the kind.
    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Self, WireError> {
        let flags = reader.u8()?;
        let private_length = reader.u16()?;
        let connection = WireConnectionId(reader.u32()?);
        let nonce = reader.u64()?;
        let incarnation = reader.u64()?;
        //= MR-HS-24
        let features = reader.u64()?;
        let mtu_bytes = reader.u32()?;
        let service = reader.u32()?;
        let streams = reader.u16()?;
        let paths = reader.u8()?;
        let plane_count = reader.u8()?;
        let mut connect = Self {
            wants_checksum: flags & WANTS_CHECKSUM != 0,
            implicit: flags & IMPLICIT != 0,
            connection,
            nonce,
            incarnation,
            features,
            mtu_bytes,
            service,
            streams,
            paths,
            reads: reader.u16()?,
            held: reader.u16()?,
            message_window: reader.u32()?,
            csn_window: reader.u32()?,
            initial_credits: reader.u32()?,
            start_allowance_kib: reader.u32()?,
            echoed_nonce: reader.u64()?,
            cookie: reader.array()?,
            planes: PlaneAddresses::EMPTY,
            private_data: &[],
        };
        //= MR-WIRE-29
        if paths == 0 || paths > PATHS_MAX {
            return Err(WireError::Field);
        }
        connect.planes = PlaneAddresses::read(reader, plane_count)?;
        connect.private_data = read_private_data(reader, private_length)?;
        Ok(connect)
    }

    /// Writes what follows the kind.
    pub(super) fn write(&self, writer: &mut Writer<'_>) -> Result<(), BufferTooSmall> {
        let wants_checksum = if self.wants_checksum { WANTS_CHECKSUM } else { 0 };
        let implicit = if self.implicit { IMPLICIT } else { 0 };
        writer.u8(wants_checksum | implicit)?;
        writer.u16(private_length(self.private_data)?)?;
        writer.u32(self.connection.0)?;
        writer.u64(self.nonce)?;
        writer.u64(self.incarnation)?;
        writer.u64(self.features)?;
        writer.u32(self.mtu_bytes)?;
        writer.u32(self.service)?;
        writer.u16(self.streams)?;
        writer.u8(self.paths)?;
        writer.u8(self.planes.count)?;
        writer.u16(self.reads)?;
        writer.u16(self.held)?;
        writer.u32(self.message_window)?;
        writer.u32(self.csn_window)?;
        writer.u32(self.initial_credits)?;
        writer.u32(self.start_allowance_kib)?;
        writer.u64(self.echoed_nonce)?;
        writer.array(self.cookie)?;
        self.planes.write(writer)?;
        writer.bytes(self.private_data)
    }
}

/// Up to [`PLANE_ADDRESSES_MAX`] addresses; flow label and scope of an IPv6 address do not go on the wire.
#[derive(Clone, Copy)]
pub struct PlaneAddresses {
    count: u8,
    addresses: [SocketAddr; PLANE_ADDRESSES_MAX],
}

impl PlaneAddresses {
    /// No address.
    pub const EMPTY: Self = Self {
        count: 0,
        addresses: [SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0); PLANE_ADDRESSES_MAX],
    };

    /// The addresses of a slice; `None` if there are more than [`PLANE_ADDRESSES_MAX`].
    #[must_use]
    pub fn from_slice(addresses: &[SocketAddr]) -> Option<Self> {
        let mut planes = Self::EMPTY;
        addresses.iter().all(|address| planes.push(*address)).then_some(planes)
    }

    /// Adds an address; false if there is no room.
    pub fn push(&mut self, address: SocketAddr) -> bool {
        let Some(slot) = self.addresses.get_mut(usize::from(self.count)) else { return false };
        *slot = address;
        self.count = self.count.saturating_add(1);
        true
    }

    /// The addresses, in order.
    #[must_use]
    pub fn as_slice(&self) -> &[SocketAddr] {
        self.addresses.get(..usize::from(self.count)).unwrap_or(&[])
    }

    /// How many addresses there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn read(reader: &mut Reader<'_>, count: u8) -> Result<Self, WireError> {
        if usize::from(count) > PLANE_ADDRESSES_MAX {
            return Err(WireError::Field);
        }
        let mut planes = Self::EMPTY;
        for _ in 0..count {
            planes.push(read_address(reader)?);
        }
        Ok(planes)
    }

    fn write(&self, writer: &mut Writer<'_>) -> Result<(), BufferTooSmall> {
        for address in self.as_slice() {
            write_address(writer, *address)?;
        }
        Ok(())
    }
}

impl Default for PlaneAddresses {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl PartialEq for PlaneAddresses {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for PlaneAddresses {}

impl fmt::Debug for PlaneAddresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}

/// The length field of private data that is to be written.
pub(super) fn private_length(private_data: &[u8]) -> Result<u16, BufferTooSmall> {
    if private_data.len() > PRIVATE_DATA_BYTES_MAX {
        return Err(BufferTooSmall);
    }
    u16::try_from(private_data.len()).map_err(|_| BufferTooSmall)
}

/// Reads private data of the length that the header names.
pub(super) fn read_private_data<'a>(reader: &mut Reader<'a>, length: u16) -> Result<&'a [u8], WireError> {
    let length = usize::from(length);
    if length > PRIVATE_DATA_BYTES_MAX {
        return Err(WireError::Field);
    }
    reader.bytes(length)
}

fn read_address(reader: &mut Reader<'_>) -> Result<SocketAddr, WireError> {
    let family = reader.u8()?;
    reader.skip::<1>()?;
    let port = reader.u16()?;
    let address: [u8; 16] = reader.array()?;
    let address = match family {
        FAMILY_V4 => {
            let [a, b, c, d, ..] = address;
            IpAddr::V4(Ipv4Addr::new(a, b, c, d))
        }
        FAMILY_V6 => IpAddr::V6(Ipv6Addr::from(address)),
        _ => return Err(WireError::Field),
    };
    Ok(SocketAddr::new(address, port))
}

fn write_address(writer: &mut Writer<'_>, address: SocketAddr) -> Result<(), BufferTooSmall> {
    let family = if address.is_ipv4() { FAMILY_V4 } else { FAMILY_V6 };
    writer.u8(family)?;
    writer.reserved::<1>()?;
    writer.u16(address.port())?;
    match address.ip() {
        IpAddr::V4(address) => {
            writer.array(address.octets())?;
            writer.reserved::<12>()
        }
        IpAddr::V6(address) => writer.array(address.octets()),
    }
}
