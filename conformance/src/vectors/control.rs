//! CONTROL: opening and closing.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use super::field::Fields;
use super::layout::{Base, CONTROL, Connect, close, control, reset_quote, sealed};
use super::{File, Vector, Verdict};

const NONCE: u64 = 0x7172_7374_7576_7778;
const XOR: u64 = 0x3132_3334_3536_3738;
const LAYOUT: &[&str] = &["MR-WIRE-28"];
const QUOTE: [u8; Base::BYTES] =
    [1, 0, 5, 7, 0x11, 0x22, 0x33, 0x44, 0xaa, 0xbb, 0xcc, 0xdd, 1, 2, 3, 4, 0xde, 0xad, 0xbe, 0xef];

pub(super) fn file() -> File {
    let mut vectors = openings();
    vectors.extend(malformed_openings());
    vectors.extend(others());
    vectors.extend(cut_short());
    File { name: "control.json", version: 0, about: "CONTROL: section 3.6.", vectors }
}

/// A CONNECT to a peer of which nothing is known, padded to 640 bytes.
fn connect(body: Fields) -> Fields {
    let padding = vec![0; 640_usize.saturating_sub(Base::BYTES + body.length())];
    Base { connection: 0, ..Base::of(CONTROL) }.packet(body.silent(&padding))
}

fn packet(body: Fields) -> Fields {
    Base::of(CONTROL).packet(body)
}

fn planes(count: u8) -> Vec<SocketAddr> {
    let v6 = SocketAddr::from((Ipv6Addr::new(0x2001, 0xdb8, 1, 2, 3, 4, 5, 6), 65_535));
    let v4 = |number| SocketAddr::from((Ipv4Addr::new(192, 0, 2, number), 4_795));
    (0..count).map(|number| if number == 1 { v6 } else { v4(number) }).collect()
}

fn openings() -> Vec<Vector> {
    let first = Connect::of(1);
    let accept = Connect::of(2);
    vec![
        Vector::valid(
            "control/connect",
            "The first CONNECT, 640 bytes.",
            &["MR-WIRE-28", "MR-HS-1"],
            connect(first.fields()),
        ),
        Vector::valid(
            "control/connect-longest",
            "8 plane addresses, 256 bytes of private data, a cookie, implicit, 64 paths.",
            LAYOUT,
            connect(
                Connect {
                    flags: Connect::IMPLICIT,
                    paths: 64,
                    cookie: *b"abcdefghijklmnop",
                    planes: planes(8),
                    private_data: (0..=255).collect(),
                    ..first.clone()
                }
                .fields(),
            ),
        ),
        Vector::valid(
            "control/connect-unknown-features",
            "Feature bits that the receiver does not know are ignored.",
            &["MR-HS-24"],
            connect(Connect { features: u64::MAX, ..first.clone() }.fields()),
        ),
        Vector::odd(
            "control/connect-reserved-flags",
            "Flags 4 to 128 are reserved, and ignored.",
            &["MR-WIRE-5"],
            connect(Connect { flags: 0xfd, ..first.clone() }.fields()),
        ),
        Vector::odd(
            "control/connect-padding-not-zero",
            "Padding is ignored, whatever it holds.",
            LAYOUT,
            connect(first.fields().silent(&[0xff; 100])),
        ),
        Vector::valid("control/accept", "It needs no padding.", LAYOUT, packet(accept.fields())),
        Vector::valid(
            "control/accept-planes",
            "One plane of each family, no private data.",
            LAYOUT,
            packet(Connect { planes: planes(2), private_data: vec![], flags: 0, ..accept }.fields()),
        ),
    ]
}

fn malformed_openings() -> Vec<Vector> {
    let first = Connect::of(1);
    let with_planes = Connect { planes: planes(1), ..first.clone() };
    let dropped = |name: &str, about: &str, requirement: &'static str, bytes: &[u8]| {
        Vector::dropped(&format!("control/{name}"), about, &[requirement], Verdict::Malformed, bytes)
    };
    let fields = "MR-WIRE-29";
    let patched = |body: &Connect, at: usize, bytes: &[u8]| {
        sealed(connect(body.fields()).patched(Base::BYTES + at, bytes).into_bytes())
    };
    let short = {
        let body = first.fields();
        let padding = vec![0; 639 - Base::BYTES - body.length()];
        Base { connection: 0, ..Base::of(CONTROL) }.packet(body.silent(&padding)).into_bytes()
    };
    let accept_short = Connect { private_data: vec![1; 5], ..Connect::of(2) }.fields().into_bytes();
    vec![
        dropped("connect-short", "639 bytes: one less than the padding asks for.", "MR-HS-1", &short),
        dropped(
            "connect-paths-0",
            "Paths are 1 to 64.",
            fields,
            &connect(Connect { paths: 0, ..first.clone() }.fields()).into_bytes(),
        ),
        dropped(
            "connect-paths-65",
            "Paths are 1 to 64.",
            fields,
            &connect(Connect { paths: 65, ..first.clone() }.fields()).into_bytes(),
        ),
        dropped(
            "connect-planes-9",
            "At most 8 plane addresses.",
            fields,
            &patched(&first, Connect::PLANES_AT, &[9]),
        ),
        dropped(
            "connect-family-5",
            "An address family that is not defined.",
            fields,
            &patched(&with_planes, Connect::ADDRESSES_AT, &[5]),
        ),
        dropped("connect-private-data-257", "At most 256 bytes.", fields, &patched(&first, 2, &[1, 1])),
        dropped(
            "accept-paths-0",
            "As for CONNECT.",
            fields,
            &packet(Connect { paths: 0, ..Connect::of(2) }.fields()).into_bytes(),
        ),
        dropped(
            "accept-private-data-cut-short",
            "The datagram ends one byte before the end of the private data.",
            "MR-WIRE-4",
            &Base::of(CONTROL).junk(accept_short.get(..accept_short.len() - 1).unwrap_or_default()),
        ),
    ]
}

fn confirm() -> Fields {
    control(3, "CONFIRM").silent(&[0; 3]).u64("echoed_nonce", NONCE)
}

fn reject(reason: u16, private_data: &[u8]) -> Fields {
    let length = u16::try_from(private_data.len()).unwrap_or(u16::MAX);
    control(4, "REJECT")
        .silent(&[0])
        .u16("reason", reason)
        .u64("echoed_nonce", NONCE)
        .silent(&length.to_be_bytes())
        .silent(&[0; 2])
        .octets("private_data", private_data)
}

fn retry() -> Fields {
    control(5, "RETRY").silent(&[0; 3]).u64("echoed_nonce", NONCE).octets("cookie", b"abcdefghijklmnop")
}

fn reset_ids() -> Fields {
    let ids = control(8, "RESET").silent(&[1, 0, 0]).u32("receiver", 0x1122_3344).u32("sender", 0x0a0b_0c0d);
    ids.u64("nonce_xor", XOR)
}

fn others() -> Vec<Vector> {
    let valid = |name: &str, about: &str, body: Fields| {
        Vector::valid(&format!("control/{name}"), about, LAYOUT, packet(body))
    };
    let malformed = |name: &str, about: &str, bytes: &[u8]| {
        let name = format!("control/{name}");
        Vector::dropped(&name, about, &["MR-WIRE-4"], Verdict::Malformed, &Base::of(CONTROL).junk(bytes))
    };
    let mut vectors = vec![
        valid("confirm", "The nonce of the ACCEPT.", confirm()),
        valid("retry", "Nonce of the CONNECT, cookie.", retry()),
        valid("close", "Drained.", close(6, "CLOSE", 0, None)),
        valid("close-flushed", "Flushed.", close(6, "CLOSE", 1, None)),
        valid("close-ack", "Answers a CLOSE.", close(7, "CLOSE_ACK", 0, None)),
        valid("close-ack-quote", "Answers DATA or a PROBE.", close(7, "CLOSE_ACK", 0, Some(QUOTE))),
        valid("reset-quote", "For an id that is not known.", reset_quote(QUOTE)),
        valid("reset-ids", "For a connection that is given up.", reset_ids()),
        valid(
            "reject-application",
            "A reason of the application, with private data.",
            reject(0x100, b"not today"),
        ),
        valid("reject-application-largest", "The largest reason.", reject(0xffff, b"")),
        Vector::odd(
            "control/confirm-reserved-and-padding",
            "Reserved bytes and what follows the body are ignored.",
            &["MR-WIRE-5", "MR-WIRE-28"],
            packet(control(3, "CONFIRM").silent(&[0xff; 3]).u64("echoed_nonce", NONCE).silent(&[0xff; 40])),
        ),
        malformed("no-kind", "A base header alone.", &[]),
        malformed("reject-private-data-257", "At most 256 bytes.", &reject(1, &[0; 257]).into_bytes()),
    ];
    for reason in 1..=5 {
        vectors.push(valid(&format!("reject-{reason}"), "A reason that is defined.", reject(reason, b"")));
    }
    for reason in [0, 6, 0xff] {
        let bytes = reject(reason, b"").into_bytes();
        vectors.push(malformed(&format!("reject-{reason}"), "A reason that is not defined.", &bytes));
    }
    for kind in [0, 9, 255] {
        let name = format!("kind-{kind}");
        vectors.push(malformed(
            &name,
            "A control kind that is not defined.",
            &[[kind].as_slice(), &[0; 60]].concat(),
        ));
    }
    vectors
}

/// Bodies that end too early, each by one byte.
fn cut_short() -> Vec<Vector> {
    let connect = Connect { private_data: vec![], ..Connect::of(2) };
    [
        ("accept", connect.fields()),
        ("accept-planes", Connect { planes: planes(2), ..connect }.fields()),
        ("confirm", confirm()),
        ("reject", reject(1, b"")),
        ("reject-private-data", reject(1, b"x")),
        ("retry", retry()),
        ("close", close(6, "CLOSE", 0, None)),
        ("close-quote", close(6, "CLOSE", 0, Some(QUOTE))),
        ("close-ack-quote", close(7, "CLOSE_ACK", 0, Some(QUOTE))),
        ("reset-quote", reset_quote(QUOTE)),
        ("reset-ids", reset_ids()),
    ]
    .map(|(name, fields)| {
        let mut bytes = fields.into_bytes();
        bytes.pop();
        let name = format!("control/cut-short-{name}");
        let about = "The datagram ends one byte before the end of the body.";
        Vector::dropped(&name, about, &["MR-WIRE-4"], Verdict::Malformed, &Base::of(CONTROL).junk(&bytes))
    })
    .into()
}
