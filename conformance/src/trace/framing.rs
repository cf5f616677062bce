//! IP and UDP headers around a datagram, as link type `LINKTYPE_RAW` wants them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use metaroce_core::Ecn;

/// The most bytes of UDP payload that fit into one packet of either IP version.
pub const DATAGRAM_BYTES_MAX: usize = 65_535 - IPV4_BYTES - UDP_BYTES;

const IPV4_BYTES: usize = 20;
const UDP_BYTES: usize = 8;
const UDP_PROTOCOL: u8 = 17;
const HOPS: u8 = 64;
/// Don't fragment, offset 0.
const IPV4_FRAGMENT: u16 = 0x4000;

/// Puts an IP packet with a UDP datagram in it into `out`, in the place of what was there: IPv4 (RFC 791) if both
/// addresses are IPv4, else IPv6 (RFC 8200), with an IPv4 address mapped. Lengths, ECN bits and all checksums are right.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] if `bytes` are more than [`DATAGRAM_BYTES_MAX`].
pub fn frame_datagram(
    out: &mut Vec<u8>,
    source: SocketAddr,
    destination: SocketAddr,
    ecn: Ecn,
    bytes: &[u8],
) -> io::Result<()> {
    if bytes.len() > DATAGRAM_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "datagram too long for one UDP packet"));
    }
    let udp_length = u16::try_from(UDP_BYTES + bytes.len()).unwrap_or(u16::MAX);
    out.clear();
    let mut sum = Sum::default();
    match (source.ip(), destination.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            out.extend_from_slice(&ipv4_header(from, to, ecn, udp_length));
            sum.add(&from.octets());
            sum.add(&to.octets());
        }
        (from, to) => {
            let (from, to) = (to_ipv6(from), to_ipv6(to));
            out.extend_from_slice(&ipv6_header(from, to, ecn, udp_length));
            sum.add(&from.octets());
            sum.add(&to.octets());
        }
    }
    sum.add(&[0, UDP_PROTOCOL]);
    sum.add(&udp_length.to_be_bytes());
    let ports = [source.port().to_be_bytes(), destination.port().to_be_bytes()];
    for field in ports.iter().chain([&udp_length.to_be_bytes()]) {
        sum.add(field);
        out.extend_from_slice(field);
    }
    sum.add(bytes);
    // A sum of 0 is sent as all ones: 0 stands for *none*, which IPv6 forbids (RFC 768, RFC 8200).
    let checksum = if sum.finish() == 0 { u16::MAX } else { sum.finish() };
    out.extend_from_slice(&checksum.to_be_bytes());
    out.extend_from_slice(bytes);
    Ok(())
}

fn ipv4_header(from: Ipv4Addr, to: Ipv4Addr, ecn: Ecn, udp_length: u16) -> [u8; IPV4_BYTES] {
    // `DATAGRAM_BYTES_MAX` keeps the sum below 65,536.
    let [l0, l1] = udp_length.saturating_add(20).to_be_bytes();
    let [f0, f1] = IPV4_FRAGMENT.to_be_bytes();
    let ([s0, s1, s2, s3], [d0, d1, d2, d3]) = (from.octets(), to.octets());
    let header = |c0: u8, c1: u8| {
        [0x45, ecn.bits(), l0, l1, 0, 0, f0, f1, HOPS, UDP_PROTOCOL, c0, c1, s0, s1, s2, s3, d0, d1, d2, d3]
    };
    let mut sum = Sum::default();
    sum.add(&header(0, 0));
    let [c0, c1] = sum.finish().to_be_bytes();
    header(c0, c1)
}

fn ipv6_header(from: Ipv6Addr, to: Ipv6Addr, ecn: Ecn, udp_length: u16) -> [u8; 40] {
    let mut header = [0; 40];
    let [l0, l1] = udp_length.to_be_bytes();
    let fixed = [0x60, ecn.bits() << 4, 0, 0, l0, l1, UDP_PROTOCOL, HOPS];
    let fields = fixed.into_iter().chain(from.octets()).chain(to.octets());
    for (byte, field) in header.iter_mut().zip(fields) {
        *byte = field;
    }
    header
}

fn to_ipv6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

/// The Internet checksum (RFC 1071) over pieces; each piece but the last has an even number of bytes.
#[derive(Default)]
struct Sum(u64);

impl Sum {
    fn add(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<2>();
        self.0 += words.iter().map(|word| u64::from(u16::from_be_bytes(*word))).sum::<u64>();
        self.0 += rest.first().map_or(0, |byte| u64::from(*byte) << 8);
    }

    fn finish(&self) -> u16 {
        let mut sum = self.0;
        while sum > u64::from(u16::MAX) {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !u16::try_from(sum).unwrap_or(u16::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(source: &str, destination: &str, ecn: Ecn, bytes: &[u8]) -> Vec<u8> {
        let mut out = vec![0xee; 99];
        frame_datagram(&mut out, source.parse().unwrap(), destination.parse().unwrap(), ecn, bytes).unwrap();
        out
    }

    /// What a receiver computes over a header or datagram with its checksum in place: 0 if it is right.
    fn sum(pieces: &[&[u8]]) -> u16 {
        let mut sum = Sum::default();
        for piece in pieces {
            sum.add(piece);
        }
        sum.finish()
    }

    #[test]
    fn checksum_of_rfc_1071_example_holds() {
        assert_eq!(sum(&[&[0x00, 0x01, 0xf2, 0x03], &[0xf4, 0xf5, 0xf6, 0xf7]]), !0xddf2);
        assert_eq!(sum(&[&[0x00, 0x01, 0xf2]]), !0xf201);
    }

    #[test]
    fn ipv4_has_its_lengths_ecn_and_checksums() {
        let packet = framed("10.0.0.1:49152", "10.0.0.2:4795", Ecn::Ce, b"odd");
        assert_eq!(packet.len(), 31);
        assert_eq!(packet[..4], [0x45, 3, 0, 31]);
        assert_eq!(packet[6..10], [0x40, 0, 64, 17]);
        assert_eq!(packet[12..26], [10, 0, 0, 1, 10, 0, 0, 2, 0xc0, 0, 0x12, 0xbb, 0, 11]);
        assert_eq!(packet[28..], *b"odd");
        assert_eq!(sum(&[&packet[..20]]), 0);
        assert_eq!(sum(&[&packet[12..20], &[0, 17, 0, 11], &packet[20..]]), 0);
    }

    #[test]
    fn ipv6_has_its_lengths_ecn_and_checksum() {
        let packet = framed("[2001:db8::1]:49152", "[2001:db8::2]:4795", Ecn::Ect0, b"datagram");
        assert_eq!(packet.len(), 56);
        assert_eq!(packet[..8], [0x60, 0x20, 0, 0, 0, 16, 17, 64]);
        assert_eq!(sum(&[&packet[8..40], &[0, 17, 0, 16], &packet[40..]]), 0);
    }

    #[test]
    fn mixed_families_are_mapped_into_ipv6() {
        let packet = framed("10.0.0.1:1", "[2001:db8::2]:2", Ecn::NotEct, b"");
        assert_eq!(packet[0], 0x60);
        assert_eq!(packet[18..24], [0xff, 0xff, 10, 0, 0, 1]);
    }

    #[test]
    fn udp_checksum_of_zero_is_sent_as_all_ones() {
        let packet = framed("10.0.0.1:1", "10.0.0.2:2", Ecn::NotEct, &[0, 0]);
        let missing = u16::from_be_bytes([packet[26], packet[27]]);
        let packet = framed("10.0.0.1:1", "10.0.0.2:2", Ecn::NotEct, &missing.to_be_bytes());
        assert_eq!(packet[26..28], [0xff, 0xff]);
    }

    #[test]
    fn datagram_fits_up_to_its_limit() {
        let source = "10.0.0.1:1".parse().unwrap();
        let mut out = Vec::new();
        let frame = |out: &mut Vec<u8>, length| {
            frame_datagram(out, source, source, Ecn::NotEct, &vec![7; length]).map_err(|error| error.kind())
        };
        assert_eq!(frame(&mut out, DATAGRAM_BYTES_MAX), Ok(()));
        assert_eq!(out.len(), 65_535);
        assert_eq!(frame(&mut out, DATAGRAM_BYTES_MAX + 1), Err(io::ErrorKind::InvalidInput));
    }
}
