//! Ethernet, IPv4, IPv6 and UDP headers: built from a template, parsed from untrusted bytes. Pure: no system call, no
//! allocation, no panic for any input. [`parse`] is the entry for a fuzzer.
//!
//! Our own instead of `etherparse`: the fast path writes 42 or 62 bytes of which six fields change from packet to packet,
//! and reads five fields; a general parser would build a tree of header structures for that.

pub mod checksum;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;

use metaroce_core::transmit::Ecn;

use checksum::InternetSum;

/// Bytes of an Ethernet header without tags.
pub const ETHERNET_BYTES: usize = 14;

/// Bytes of an IPv4 header without options.
pub const IPV4_BYTES: usize = 20;

/// Bytes of an IPv6 header without extension headers.
pub const IPV6_BYTES: usize = 40;

/// Bytes of a UDP header.
pub const UDP_BYTES: usize = 8;

/// Bytes in front of the UDP payload of an IPv4 frame.
pub const V4_BYTES: usize = ETHERNET_BYTES + IPV4_BYTES + UDP_BYTES;

/// Bytes in front of the UDP payload of an IPv6 frame: the longest that [`Template::emit`] writes.
pub const V6_BYTES: usize = ETHERNET_BYTES + IPV6_BYTES + UDP_BYTES;

/// An Ethernet address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Mac(pub [u8; 6]);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            let separator = if at == 0 { "" } else { ":" };
            write!(f, "{separator}{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The headers of all packets from one address to one address and port, ready but for what changes from packet to packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Template {
    /// The frame's headers; length, ECN, source port and checksum are zero.
    bytes: [u8; V6_BYTES],
    /// Over the IPv4 header, or over the IPv6 pseudo header, as far as they do not change.
    sum: InternetSum,
    v6: bool,
}

/// What changes from packet to packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// UDP source port: a path's entropy.
    pub source_port: u16,
    /// ECN codepoint.
    pub ecn: Ecn,
    /// Bytes of UDP payload, at most 65,507 (IPv4) or 65,527 (IPv6).
    pub payload_bytes: usize,
}

impl Template {
    /// Headers from `source` to `destination`, the next hop being at `next_hop`; `None` if one is IPv4 and the other
    /// IPv6. IPv4 goes unfragmentable and with no UDP checksum (RFC 768 allows that; the transport has its own).
    #[must_use]
    pub fn new(source_mac: Mac, next_hop: Mac, source: IpAddr, destination: SocketAddr) -> Option<Self> {
        let mut template = Self { bytes: [0; V6_BYTES], sum: InternetSum::default(), v6: source.is_ipv6() };
        template.put(0, next_hop.0);
        template.put(6, source_mac.0);
        match (source, destination.ip()) {
            (IpAddr::V4(source), IpAddr::V4(to)) => template.start_v4(source, to),
            (IpAddr::V6(source), IpAddr::V6(to)) => template.start_v6(source, to),
            _ => return None,
        }
        template.put(template.length() - UDP_BYTES + 2, destination.port().to_be_bytes());
        Some(template)
    }

    /// Bytes of the headers: [`V4_BYTES`] or [`V6_BYTES`].
    #[must_use]
    pub fn length(&self) -> usize {
        if self.v6 { V6_BYTES } else { V4_BYTES }
    }

    /// Whether the UDP payload must be summed up: see [`seal_v6`](Self::seal_v6).
    #[must_use]
    pub fn is_v6(&self) -> bool {
        self.v6
    }

    /// Writes the headers of a packet to the start of `out`, and returns their length; `None` if `out` is too short or
    /// the payload too long. The UDP checksum is left 0.
    pub fn emit(&self, out: &mut [u8], packet: Packet) -> Option<usize> {
        let udp_bytes = u16::try_from(packet.payload_bytes.checked_add(UDP_BYTES)?).ok()?;
        let port = packet.source_port.to_be_bytes();
        if self.v6 {
            let headers = out.first_chunk_mut::<V6_BYTES>()?;
            *headers = self.bytes;
            // Flows that differ in the port differ in the label too, for switches that look no further (RFC 6438).
            let label = flow_label(packet.source_port);
            let class = u32::from(packet.ecn.bits()) << 20;
            put(headers, 14, (0x6000_0000 | class | label).to_be_bytes());
            put(headers, 18, udp_bytes.to_be_bytes());
            put(headers, 54, port);
            put(headers, 58, udp_bytes.to_be_bytes());
            return Some(V6_BYTES);
        }
        let total = udp_bytes.checked_add(20)?;
        let headers = out.first_chunk_mut::<V4_BYTES>()?;
        *headers = *self.bytes.first_chunk()?;
        let class = packet.ecn.bits();
        let checksum = self.sum.with_word(u16::from(class)).with_word(total).checksum();
        put(headers, 15, [class]);
        put(headers, 16, total.to_be_bytes());
        put(headers, 24, checksum.to_be_bytes());
        put(headers, 34, port);
        put(headers, 38, udp_bytes.to_be_bytes());
        Some(V4_BYTES)
    }

    /// Writes the UDP checksum, which IPv6 requires, into headers that [`emit`](Self::emit) wrote to the start of
    /// `headers`; `payload` is the sum over the UDP payload. Does nothing for IPv4.
    pub fn seal_v6(&self, headers: &mut [u8], payload: InternetSum) {
        if !self.v6 {
            return;
        }
        let Some(headers) = headers.first_chunk_mut::<V6_BYTES>() else { return };
        let Some(udp) = headers.get(V6_BYTES - UDP_BYTES..V6_BYTES) else { return };
        let length = udp.get(4..6).unwrap_or(&[]);
        // The field is 0; the length counts in the UDP header and in the pseudo header.
        let checksum = match self.sum.plus(payload).with(udp).with(length).checksum() {
            // 0 would say that there is none.
            0 => u16::MAX,
            checksum => checksum,
        };
        put(headers, 60, checksum.to_be_bytes());
    }

    fn start_v4(&mut self, source: Ipv4Addr, to: Ipv4Addr) {
        self.put(12, ETHERTYPE_IPV4);
        // Version and length, class, total length; identification; don't fragment; hop limit, protocol.
        self.put(14, [0x45, 0, 0, 0, 0, 0, 0x40, 0, HOP_LIMIT, PROTOCOL_UDP]);
        self.put(26, source.octets());
        self.put(30, to.octets());
        self.sum = InternetSum::default().with(self.bytes.get(14..34).unwrap_or(&[]));
    }

    fn start_v6(&mut self, source: Ipv6Addr, to: Ipv6Addr) {
        self.put(12, ETHERTYPE_IPV6);
        self.put(20, [PROTOCOL_UDP, HOP_LIMIT]);
        self.put(22, source.octets());
        self.put(38, to.octets());
        self.sum = InternetSum::default()
            .with(&source.octets())
            .with(&to.octets())
            .with_word(u16::from(PROTOCOL_UDP));
    }

    fn put<const N: usize>(&mut self, at: usize, bytes: [u8; N]) {
        put(&mut self.bytes, at, bytes);
    }
}

/// What [`parse`] found in a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsed {
    /// Address and port that it came from.
    pub source: SocketAddr,
    /// Address and port that it went to.
    pub destination: SocketAddr,
    /// ECN field.
    pub ecn: Ecn,
    /// Where the UDP payload lies in the frame; never beyond the frame's end.
    pub payload: Range<usize>,
}

/// Why a frame is not for us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// The frame ends within its headers, or before the length that they give.
    Truncated,
    /// Neither IPv4 nor IPv6, or tagged.
    NotIp,
    /// A length field, or the checksum of the IPv4 header, is wrong.
    Malformed,
    /// IPv4 options, IPv6 extension headers, or a fragment: nothing that a transport without fragments sends.
    Unsupported,
    /// IP, but not UDP.
    NotUdp,
}

/// Reads the headers of a frame of `frame_bytes` bytes, of which `head` holds the first (all of them, or those in the
/// first of several buffers; 62 are enough).
///
/// The UDP checksum is not looked at: a kernel that leaves it to the device hands the receiver a partial one when both are
/// on the same machine. The transport's own CRC covers the payload, and the IPv4 checksum the addresses.
///
/// # Errors
/// [`FrameError`]; never panics, whatever the bytes.
pub fn parse(head: &[u8], frame_bytes: usize) -> Result<Parsed, FrameError> {
    let frame_bytes = frame_bytes.max(head.len());
    let (ethernet, packet) = head.split_first_chunk::<ETHERNET_BYTES>().ok_or(FrameError::Truncated)?;
    let [.., type_high, type_low] = *ethernet;
    let bytes = frame_bytes - ETHERNET_BYTES;
    match [type_high, type_low] {
        ETHERTYPE_IPV4 => parse_v4(packet, bytes),
        ETHERTYPE_IPV6 => parse_v6(packet, bytes),
        _ => Err(FrameError::NotIp),
    }
}

fn parse_v4(packet: &[u8], bytes: usize) -> Result<Parsed, FrameError> {
    let (header, rest) = packet.split_first_chunk::<IPV4_BYTES>().ok_or(FrameError::Truncated)?;
    let [version, class, l0, l1, _, _, f0, f1, _, protocol, _, _, addresses @ ..] = *header;
    let total = usize::from(u16::from_be_bytes([l0, l1]));
    if version >> 4 != 4 || !InternetSum::default().with(header).is_right() || total < IPV4_BYTES {
        // The sum is over the header without options: with options it is wrong as a rule, so they are told apart first.
        return Err(if version >> 4 == 4 && version & 15 > 5 {
            FrameError::Unsupported
        } else {
            FrameError::Malformed
        });
    }
    let fragment = u16::from_be_bytes([f0, f1]) & 0x3fff != 0;
    if version != 0x45 || fragment {
        return Err(FrameError::Unsupported);
    }
    if protocol != PROTOCOL_UDP {
        return Err(FrameError::NotUdp);
    }
    if total > bytes {
        return Err(FrameError::Truncated);
    }
    let [s0, s1, s2, s3, d0, d1, d2, d3] = addresses;
    let addresses = (Ipv4Addr::new(s0, s1, s2, s3).into(), Ipv4Addr::new(d0, d1, d2, d3).into());
    parse_udp(rest, total - IPV4_BYTES, ETHERNET_BYTES + IPV4_BYTES, addresses, Ecn::from_bits(class))
}

fn parse_v6(packet: &[u8], bytes: usize) -> Result<Parsed, FrameError> {
    let (header, rest) = packet.split_first_chunk::<IPV6_BYTES>().ok_or(FrameError::Truncated)?;
    let [b0, b1, _, _, l0, l1, protocol, _, addresses @ ..] = *header;
    if b0 >> 4 != 6 {
        return Err(FrameError::Malformed);
    }
    match protocol {
        PROTOCOL_UDP => {}
        // Hop-by-hop, routing, fragment, destination options.
        0 | 43 | 44 | 60 => return Err(FrameError::Unsupported),
        _ => return Err(FrameError::NotUdp),
    }
    let length = usize::from(u16::from_be_bytes([l0, l1]));
    if length > bytes - IPV6_BYTES {
        return Err(FrameError::Truncated);
    }
    let (source, to) = addresses.split_first_chunk::<16>().ok_or(FrameError::Truncated)?;
    let to = to.first_chunk::<16>().ok_or(FrameError::Truncated)?;
    let addresses = (Ipv6Addr::from(*source).into(), Ipv6Addr::from(*to).into());
    parse_udp(rest, length, ETHERNET_BYTES + IPV6_BYTES, addresses, Ecn::from_bits(b1 >> 4))
}

/// `segment_bytes` of UDP segment begin `at` bytes into the frame, and `segment` holds the first of them.
fn parse_udp(
    segment: &[u8],
    segment_bytes: usize,
    at: usize,
    (source, destination): (IpAddr, IpAddr),
    ecn: Ecn,
) -> Result<Parsed, FrameError> {
    let header = segment.first_chunk::<UDP_BYTES>().ok_or(FrameError::Truncated)?;
    let [s0, s1, d0, d1, l0, l1, _, _] = *header;
    let length = usize::from(u16::from_be_bytes([l0, l1]));
    if length < UDP_BYTES || length > segment_bytes {
        return Err(FrameError::Malformed);
    }
    Ok(Parsed {
        source: SocketAddr::new(source, u16::from_be_bytes([s0, s1])),
        destination: SocketAddr::new(destination, u16::from_be_bytes([d0, d1])),
        ecn,
        payload: at + UDP_BYTES..at + length,
    })
}

/// 20 bits that differ from port to port, never 0 (which would say that there is no label).
fn flow_label(port: u16) -> u32 {
    u32::from(port).wrapping_mul(0x9e37_79b1) >> 12 | 1
}

/// Writes `bytes` at `at`; what does not fit is left out (it always does: the places are constants).
fn put<const N: usize>(out: &mut [u8], at: usize, bytes: [u8; N]) {
    if let Some(place) = out.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
        *place = bytes;
    }
}

const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];
const PROTOCOL_UDP: u8 = 17;
const HOP_LIMIT: u8 = 64;

#[cfg(test)]
mod tests;
