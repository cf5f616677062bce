use super::*;

const MAC_A: Mac = Mac([2, 0, 0, 0, 0, 0xa]);
const MAC_B: Mac = Mac([2, 0, 0, 0, 0, 0xb]);

fn template(source: &str, destination: &str) -> Template {
    Template::new(MAC_A, MAC_B, source.parse().unwrap(), destination.parse().unwrap()).unwrap()
}

/// A whole frame.
fn frame(template: &Template, source_port: u16, ecn: Ecn, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0xee; V6_BYTES];
    let packet = Packet { source_port, ecn, payload_bytes: payload.len() };
    let length = template.emit(&mut frame, packet).unwrap();
    frame.truncate(length);
    frame.extend_from_slice(payload);
    template.seal_v6(&mut frame, InternetSum::default().with(payload));
    frame
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<char> = text.chars().filter(|c| !c.is_whitespace()).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap()).collect()
}

#[test]
fn an_ipv4_frame_has_its_golden_bytes() {
    let frame = frame(&template("10.0.9.1", "10.0.9.2:4795"), 0xc001, Ecn::Ect0, b"abc");
    let golden = "02000000000b 02000000000a 0800
        45 02 001f 0000 4000 40 11 14ca 0a000901 0a000902
        c001 12bb 000b 0000 616263";
    assert_eq!(frame, hex(golden));
}

#[test]
fn an_ipv6_frame_has_its_golden_bytes() {
    let frame = frame(&template("fd00::1", "[fd00::2]:4795"), 0xc001, Ecn::Ce, b"abc");
    let label = format!("{:05x}", flow_label(0xc001));
    // The checksum by hand: pseudo header, UDP header, payload.
    let sum: u32 = (0xfd00 + 1 + 0xfd00 + 2 + 0x11 + 0xb) + (0xc001 + 0x12bb + 0xb) + (0x6162 + 0x6300);
    let checksum = !((sum & 0xffff) + (sum >> 16)) & 0xffff;
    let golden = format!(
        "02000000000b 02000000000a 86dd
        6 03 {label} 000b 11 40 fd00000000000000 0000000000000001 fd00000000000000 0000000000000002
        c001 12bb 000b {checksum:04x} 616263"
    );
    assert_eq!(frame, hex(&golden));
}

#[test]
fn what_is_built_is_read_back() {
    let routes = [("10.0.9.1", "10.0.9.2:4795"), ("fd00::1", "[fd00::2]:4795")];
    for (source, destination) in routes {
        let template = template(source, destination);
        for (port, ecn, length) in
            [(1, Ecn::NotEct, 0), (49152, Ecn::Ect0, 1), (65535, Ecn::Ce, 1472), (5000, Ecn::Ect1, 8972)]
        {
            let payload = vec![7; length];
            let frame = frame(&template, port, ecn, &payload);
            let parsed = parse(&frame, frame.len()).unwrap();
            assert_eq!(parsed.source, SocketAddr::new(source.parse().unwrap(), port));
            assert_eq!(parsed.destination, destination.parse().unwrap());
            assert_eq!(parsed.ecn, ecn);
            assert_eq!(frame[parsed.payload], payload);
        }
    }
}

#[test]
fn the_udp_checksum_of_ipv6_is_right_for_every_parity_and_never_zero() {
    let template = template("fd00::1", "[fd00::2]:4795");
    for length in [0, 1, 2, 3, 1001] {
        for seed in 0..3000u32 {
            let payload: Vec<u8> =
                (0..length).map(|i| (seed + i).wrapping_mul(97).to_le_bytes()[0]).collect();
            let port = 1 + u16::try_from(seed).unwrap();
            let frame = frame(&template, port, Ecn::Ect0, &payload);
            let udp = &frame[54..];
            assert_ne!(udp[6..8], [0, 0]);
            let pseudo = InternetSum::default().with(&frame[22..54]).with_word(17).with(&frame[18..20]);
            assert!(pseudo.with(udp).is_right(), "{length} bytes, port {port}");
        }
    }
}

#[test]
fn families_do_not_mix() {
    let v6: SocketAddr = "[fd00::2]:1".parse().unwrap();
    assert_eq!(Template::new(MAC_A, MAC_B, Ipv4Addr::LOCALHOST.into(), v6), None);
}

#[test]
fn a_buffer_too_short_or_a_payload_too_long_is_refused() {
    let template = template("10.0.9.1", "10.0.9.2:4795");
    let packet = Packet { source_port: 1, ecn: Ecn::Ect0, payload_bytes: 65_507 };
    assert_eq!(template.emit(&mut [0; V4_BYTES], packet), Some(V4_BYTES));
    assert_eq!(template.emit(&mut [0; V4_BYTES - 1], packet), None);
    assert_eq!(template.emit(&mut [0; V4_BYTES], Packet { payload_bytes: 65_508, ..packet }), None);
    assert_eq!(template.emit(&mut [0; V4_BYTES], Packet { payload_bytes: usize::MAX, ..packet }), None);
}

#[test]
fn every_truncation_is_refused() {
    for (source, destination) in [("10.0.9.1", "10.0.9.2:4795"), ("fd00::1", "[fd00::2]:4795")] {
        let frame = frame(&template(source, destination), 50_000, Ecn::Ect0, b"payload");
        for length in 0..frame.len() {
            assert_eq!(parse(&frame[..length], length), Err(FrameError::Truncated), "{length}");
        }
    }
}

#[test]
fn the_padding_of_a_short_ethernet_frame_is_no_payload() {
    let mut frame = frame(&template("10.0.9.1", "10.0.9.2:4795"), 50_000, Ecn::Ect0, b"abc");
    frame.resize(60, 0);
    let parsed = parse(&frame, frame.len()).unwrap();
    assert_eq!(&frame[parsed.payload], b"abc");
}

#[test]
fn a_frame_in_several_buffers_is_judged_by_its_whole_length() {
    let frame = frame(&template("10.0.9.1", "10.0.9.2:4795"), 50_000, Ecn::Ect0, &[1; 8000]);
    let parsed = parse(&frame[..100], frame.len()).unwrap();
    assert_eq!(parsed.payload, 42..8042);
    assert_eq!(parse(&frame[..100], frame.len() - 1), Err(FrameError::Truncated));
}

#[test]
fn what_is_not_for_us_is_named() {
    let good = frame(&template("10.0.9.1", "10.0.9.2:4795"), 50_000, Ecn::Ect0, b"abc");
    let changed = |changes: &[(usize, u8)], seal: bool| {
        let mut frame = good.clone();
        for (at, byte) in changes {
            frame[*at] = *byte;
        }
        if seal {
            frame[24..26].fill(0);
            let checksum = InternetSum::default().with(&frame[14..34]).checksum();
            frame[24..26].copy_from_slice(&checksum.to_be_bytes());
        }
        parse(&frame, frame.len())
    };
    assert!(changed(&[], true).is_ok());
    assert_eq!(changed(&[(13, 0x06)], false), Err(FrameError::NotIp));
    assert_eq!(changed(&[(12, 0x81), (13, 0)], false), Err(FrameError::NotIp));
    assert_eq!(changed(&[(14, 0x55)], true), Err(FrameError::Malformed));
    assert_eq!(changed(&[(14, 0x46)], true), Err(FrameError::Unsupported));
    assert_eq!(changed(&[(20, 0x20)], true), Err(FrameError::Unsupported), "first fragment");
    assert_eq!(changed(&[(21, 0x08)], true), Err(FrameError::Unsupported), "later fragment");
    assert_eq!(changed(&[(23, 6)], true), Err(FrameError::NotUdp));
    assert_eq!(changed(&[(29, 9)], false), Err(FrameError::Malformed), "checksum");
    assert_eq!(changed(&[(17, 19)], true), Err(FrameError::Malformed), "shorter than its header");
    assert_eq!(changed(&[(17, 200)], true), Err(FrameError::Truncated));
    assert_eq!(changed(&[(39, 7)], false), Err(FrameError::Malformed), "UDP length below 8");
    assert_eq!(changed(&[(39, 12)], false), Err(FrameError::Malformed), "UDP longer than IP");
    assert!(changed(&[(40, 0xba), (41, 0xad)], false).is_ok(), "a partial UDP checksum does not matter");

    let good = frame(&template("fd00::1", "[fd00::2]:4795"), 50_000, Ecn::Ect0, b"abc");
    let changed = |at: usize, byte: u8| {
        let mut frame = good.clone();
        frame[at] = byte;
        parse(&frame, frame.len())
    };
    assert_eq!(changed(14, 0x45), Err(FrameError::Malformed));
    assert_eq!(changed(20, 44), Err(FrameError::Unsupported));
    assert_eq!(changed(20, 58), Err(FrameError::NotUdp));
    assert_eq!(changed(19, 200), Err(FrameError::Truncated));
}

#[test]
fn no_bytes_make_it_panic_and_a_payload_lies_inside_the_frame() {
    fn property(mut bytes: Vec<u8>, changes: Vec<(u8, u8)>, more: u16, v6: bool) -> bool {
        // Mostly frames that are nearly right: pure noise never gets past the type.
        let (source, destination) =
            if v6 { ("fd00::1", "[fd00::2]:4795") } else { ("10.0.9.1", "10.0.9.2:4795") };
        if !more.is_multiple_of(4) {
            bytes = frame(&template(source, destination), more, Ecn::Ect0, &bytes);
        }
        for (at, byte) in changes {
            let at = usize::from(at) % 80;
            if let Some(place) = bytes.get_mut(at) {
                *place ^= byte;
            }
        }
        let frame_bytes = bytes.len() + usize::from(more % 3);
        parse(&bytes, frame_bytes)
            .is_ok_and(|parsed| parsed.payload.start > parsed.payload.end || parsed.payload.end > frame_bytes)
            .eq(&false)
    }
    quickcheck::QuickCheck::new()
        .tests(5000)
        .quickcheck(property as fn(Vec<u8>, Vec<(u8, u8)>, u16, bool) -> bool);
}

#[test]
fn flow_labels_differ_from_port_to_port() {
    let labels: std::collections::BTreeSet<u32> = (49_152..=65_535).map(flow_label).collect();
    assert!(labels.len() > 8000, "{}", labels.len());
    assert!(labels.iter().all(|label| (1..1 << 20).contains(label)));
}

#[test]
fn a_mac_is_shown_as_usual() {
    assert_eq!(MAC_A.to_string(), "02:00:00:00:00:0a");
}
