//! The Ethernet, IP and UDP headers of the XDP backend.
//!
//! The first byte says what to do. Parsing any frame never panics, and what it finds lies in the frame; headers that a
//! template emits parse back to what was asked for, at any cut.

use std::net::SocketAddr;

use arbitrary::{Arbitrary, Unstructured};
use metaroce_core::Ecn;
use metaroce_xdp::headers::checksum::InternetSum;
use metaroce_xdp::headers::{FrameError, Mac, Packet, Template, parse};

#[derive(Clone, Debug, Arbitrary)]
struct Wanted {
    v6: bool,
    macs: [[u8; 6]; 2],
    addresses: [[u8; 16]; 2],
    ports: [u16; 2],
    ecn: u8,
    payload: Vec<u8>,
    /// Bytes of Ethernet padding.
    trailer: u8,
    /// Where a byte is changed, and to what.
    flip: Option<(u8, u8)>,
    cut: u16,
}

/// Parses the bytes, or builds a frame from them and parses that.
pub fn run(bytes: &[u8]) {
    match bytes.split_first() {
        None => {}
        Some((kind, frame)) if kind % 2 == 0 => {
            // The first buffer of a frame may hold less than the frame.
            let more = usize::from(kind / 2) * 64;
            parse_any(frame, frame.len() + more);
        }
        Some((_, rest)) => {
            if let Ok(wanted) = Wanted::arbitrary(&mut Unstructured::new(rest)) {
                build(&wanted);
            }
        }
    }
}

fn parse_any(head: &[u8], frame_bytes: usize) {
    if let Ok(found) = parse(head, frame_bytes) {
        assert!(found.payload.start <= found.payload.end, "{found:?}");
        assert!(found.payload.end <= frame_bytes, "{found:?} in a frame of {frame_bytes} bytes");
        assert!(found.payload.start >= 42, "{found:?}");
        assert_eq!(found.source.is_ipv4(), found.destination.is_ipv4());
    }
}

fn address(bytes: [u8; 16], port: u16, v6: bool) -> SocketAddr {
    let [a, b, c, d, ..] = bytes;
    if v6 { SocketAddr::from((bytes, port)) } else { SocketAddr::from(([a, b, c, d], port)) }
}

fn build(wanted: &Wanted) {
    let [from, to] = [0, 1].map(|side| address(wanted.addresses[side], wanted.ports[side], wanted.v6));
    let [source_mac, next_hop] = wanted.macs.map(Mac);
    let template = Template::new(source_mac, next_hop, from.ip(), to).expect("both of one family");
    let payload = &wanted.payload[..wanted.payload.len().min(2_000)];
    let ecn = Ecn::from_bits(wanted.ecn);
    let packet = Packet { source_port: from.port(), ecn, payload_bytes: payload.len() };
    let length = template.length();
    let mut frame = vec![0; length + payload.len() + usize::from(wanted.trailer)];
    let short = template.emit(&mut vec![0; length - 1], packet);
    assert_eq!(short, None, "headers into one byte too few");
    assert_eq!(template.emit(&mut frame, packet), Some(length));
    frame[length..length + payload.len()].copy_from_slice(payload);
    template.seal_v6(&mut frame, InternetSum::default().with(payload));
    let found = parse(&frame, frame.len()).expect("what was emitted parses");
    assert_eq!((found.source, found.destination, found.ecn), (from, to, ecn));
    assert_eq!(&frame[found.payload], payload);
    let cut = usize::from(wanted.cut) % frame.len();
    let whole = parse(&frame[..cut], cut);
    let needed = length + payload.len();
    assert_eq!(whole.is_ok(), cut >= needed, "{cut} of {needed} bytes: {whole:?}");
    if let Some((at, byte)) = wanted.flip {
        let at = usize::from(at) % frame.len();
        let changed = frame[at] != byte;
        frame[at] = byte;
        parse_any(&frame, frame.len());
        // One changed byte of the IPv4 header never passes.
        if changed && !wanted.v6 && (14..34).contains(&at) {
            let error = parse(&frame, frame.len()).expect_err("the sum is wrong");
            assert!(matches!(error, FrameError::Malformed | FrameError::Unsupported), "{error:?}");
        }
    }
}
