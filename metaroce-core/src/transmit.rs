//! What the core wants sent: header bytes by value, payload by reference.

use core::net::SocketAddr;
use core::ops::Range;

use crate::crc::Checksum;
use crate::ids::RegionId;

/// Bytes of header that one [`Transmit`] can hold.
pub const HEADER_BYTES_MAX: usize = 640;

/// Parts of payload that one packet can gather: as many as a work request has segments.
pub const PAYLOAD_PARTS_MAX: usize = 4;

/// The ECN field of an IP header (RFC 3168).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Ecn {
    /// Not ECN-capable, or not known.
    #[default]
    NotEct,
    /// ECN-capable, codepoint 1.
    Ect1,
    /// ECN-capable, codepoint 0: what this transport sends.
    Ect0,
    /// Congestion experienced.
    Ce,
}

impl Ecn {
    /// From the two low bits of the TOS or traffic-class byte; other bits are ignored.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            1 => Self::Ect1,
            2 => Self::Ect0,
            3 => Self::Ce,
            _ => Self::NotEct,
        }
    }

    /// The two low bits of the TOS or traffic-class byte.
    #[must_use]
    pub const fn bits(self) -> u8 {
        match self {
            Self::NotEct => 0,
            Self::Ect1 => 1,
            Self::Ect0 => 2,
            Self::Ce => 3,
        }
    }
}

/// Where a datagram leaves from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SourcePort {
    /// The port on which this endpoint receives (handshake packets, so that the peer can answer them).
    Receive,
    /// A path's source port: its ECMP entropy. A backend opens a socket for it when it first sees it; where it can't
    /// bind that very number it takes any other, and keeps to it.
    Path(u16),
}

/// A stretch of a registered region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PayloadPart {
    /// The region.
    pub region: RegionId,
    /// First byte, counted from the start of the region.
    pub offset: u64,
    /// Bytes, never 0.
    pub length: u32,
}

/// One datagram to send.
///
/// The datagram is [`header`](Self::header), then the bytes that [`payload`](Self::payload) refers to, then
/// [`padding`](Self::padding) zero bytes. Before sending, a backend calls [`seal`](Self::seal) (or computes the
/// checksum in the pass in which it copies, and calls [`write_checksum`](Self::write_checksum)).
#[derive(Clone, Debug)]
pub struct Transmit {
    /// Address and port to send to.
    pub destination: SocketAddr,
    /// Plane, an index into the endpoint's local addresses.
    pub plane: u8,
    /// Source port.
    pub source: SourcePort,
    /// ECN codepoint to set.
    pub ecn: Ecn,
    pub(crate) header_length: u16,
    pub(crate) padding: u16,
    pub(crate) part_count: u8,
    pub(crate) checksummed: bool,
    pub(crate) parts: [PayloadPart; PAYLOAD_PARTS_MAX],
    pub(crate) header: [u8; HEADER_BYTES_MAX],
}

impl Transmit {
    /// An empty descriptor, to be filled by `Endpoint::poll_transmit`.
    pub const EMPTY: Self = Self {
        destination: SocketAddr::new(core::net::IpAddr::V4(core::net::Ipv4Addr::UNSPECIFIED), 0),
        plane: 0,
        source: SourcePort::Receive,
        ecn: Ecn::NotEct,
        header_length: 0,
        padding: 0,
        part_count: 0,
        checksummed: false,
        parts: [PayloadPart { region: RegionId { slot: 0, generation: 0 }, offset: 0, length: 0 };
            PAYLOAD_PARTS_MAX],
        header: [0; HEADER_BYTES_MAX],
    };

    /// The header bytes, at most [`HEADER_BYTES_MAX`].
    #[must_use]
    pub fn header(&self) -> &[u8] {
        self.header.get(..usize::from(self.header_length)).unwrap_or(&[])
    }

    /// The payload, in order, at most [`PAYLOAD_PARTS_MAX`] parts.
    #[must_use]
    pub fn payload(&self) -> &[PayloadPart] {
        self.parts.get(..usize::from(self.part_count)).unwrap_or(&[])
    }

    /// Payload bytes, the sum over [`payload`](Self::payload).
    #[must_use]
    pub fn payload_length(&self) -> usize {
        self.payload().iter().map(|part| part.length as usize).sum()
    }

    /// Zero bytes after header and payload (path MTU probes, CONNECT).
    #[must_use]
    pub fn padding(&self) -> usize {
        usize::from(self.padding)
    }

    /// Bytes of the whole datagram: the UDP payload.
    #[must_use]
    pub fn datagram_length(&self) -> usize {
        usize::from(self.header_length) + self.payload_length() + usize::from(self.padding)
    }

    /// Whether the datagram carries a checksum; without, its field stays 0 and sealing is not needed.
    #[must_use]
    pub fn wants_checksum(&self) -> bool {
        self.checksummed
    }

    /// Writes the checksum of a datagram whose payload is `payload`, in order (`SPEC.md` MR-WIRE, section 3).
    /// Does nothing if the packet carries none.
    pub fn seal<'a>(&mut self, checksum: &dyn Checksum, payload: impl IntoIterator<Item = &'a [u8]>) {
        if !self.checksummed {
            return;
        }
        //= MR-WIRE-8, MR-WIRE-12
        let mut state = checksum.update(crate::crc::SEED, self.header());
        for part in payload {
            state = checksum.update(state, part);
        }
        let state = self.checksum_padding(checksum, state);
        self.write_checksum(crate::crc::finish(state));
    }

    /// Continues a running checksum over the padding.
    #[must_use]
    pub fn checksum_padding(&self, checksum: &dyn Checksum, state: u32) -> u32 {
        const ZEROS: [u8; 256] = [0; 256];
        let mut state = state;
        let mut left = self.padding();
        while left > 0 {
            let step = left.min(ZEROS.len());
            state = checksum.update(state, ZEROS.get(..step).unwrap_or(&ZEROS));
            left -= step;
        }
        state
    }

    /// Writes a finished CRC32C into the header.
    pub fn write_checksum(&mut self, crc: u32) {
        crate::wire::Base::write_checksum(&mut self.header, crc);
    }
}

/// A received datagram, borrowed from the backend.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// Address and port that it came from.
    pub source: SocketAddr,
    /// Plane on which it arrived, an index into the endpoint's local addresses.
    pub plane: u8,
    /// ECN field of its IP header; [`Ecn::NotEct`] if unknown.
    pub ecn: Ecn,
    /// The UDP payload.
    pub bytes: &'a [u8],
}

/// What became of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Disposition {
    /// It was taken in.
    Consumed,
    /// Its packet had been judged before; nothing was placed.
    Duplicate,
    /// It was dropped, and counted under this reason.
    Dropped(crate::stats::DropReason),
}

/// The longest prefix of `transmits` that is legal for one segmented send (GSO): same destination, plane, source
/// port and ECN, equal length but for the last, which may be shorter; at most `segments_max` packets and
/// `bytes_max` bytes in sum. Empty only if `transmits` is.
///
/// A backend walks a batch by calling this on what is left. O(length of the run).
#[must_use]
pub fn segmented_run(transmits: &[Transmit], segments_max: usize, bytes_max: usize) -> Range<usize> {
    let Some(first) = transmits.first() else { return 0..0 };
    let segment = first.datagram_length();
    let mut bytes = segment;
    let mut end = 1;
    for next in transmits.iter().skip(1) {
        let length = next.datagram_length();
        let same = next.destination == first.destination
            && next.plane == first.plane
            && next.source == first.source
            && next.ecn == first.ecn;
        if !same || length > segment || end >= segments_max || bytes + length > bytes_max {
            break;
        }
        bytes += length;
        end += 1;
        if length < segment {
            break;
        }
    }
    0..end
}
