//! ACK and its frames.

use super::field::Fields;
use super::layout::{ACK, Ack, Base, frame, vector};
use super::{File, Vector, Verdict};

pub(super) fn file() -> File {
    let mut vectors = blocks();
    vectors.extend(frames());
    vectors.extend(malformed_frames());
    File { name: "ack.json", version: 0, about: "ACK and frames: sections 3.3 and 3.4.", vectors }
}

/// An ACK packet.
fn packet(ack: &Ack, frames: Vec<Fields>) -> Fields {
    Base::of(ACK).packet(Fields::default().part("ack", ack.fields()).parts("frames", frames))
}

fn blocks() -> Vec<Vector> {
    let block = &["MR-WIRE-23"];
    let full = Ack::full(5);
    let mut short = full.fields().into_bytes();
    short.pop();
    vec![
        Vector::valid(
            "ack/block",
            "Bit i of the vector is bit 7 - i % 8 of byte i / 8.",
            block,
            packet(&full, vec![]),
        ),
        Vector::valid(
            "ack/all-accepted",
            "All 256 bits, and a saturated hold.",
            block,
            packet(&Ack { accepted: (0..=255).collect(), hold: u32::MAX, ..full.clone() }, vec![]),
        ),
        Vector::valid(
            "ack/none-accepted",
            "The vector is empty, though something arrived: it was refused.",
            block,
            packet(
                &Ack { accepted: vec![], ..full.clone() },
                vec![frame(1, "REFUSED", vector("refused", &[0]))],
            ),
        ),
        Vector::valid(
            "ack/empty",
            "Nothing was received on the path.",
            &["MR-ACK-9"],
            packet(&Ack::empty(5), vec![]),
        ),
        Vector::odd(
            "ack/reserved-flags",
            "Flags 2 to 128 are reserved, and ignored.",
            &["MR-WIRE-5"],
            packet(&Ack { flags: 0xff, ..Ack::empty(5) }, vec![]),
        ),
        Vector::odd(
            "ack/reserved-byte",
            "The fourth byte is reserved, and ignored.",
            &["MR-WIRE-5"],
            packet(&Ack { reserved: 0xff, ..full.clone() }, vec![]),
        ),
        Vector::odd(
            "ack/psn-ignored",
            "An ACK takes no PSN; what stands in the field is ignored.",
            &["MR-WIRE-6"],
            Base { psn: 99, ..Base::of(ACK) }
                .packet(Fields::default().part("ack", full.fields()).parts("frames", vec![])),
        ),
        Vector::dropped(
            "ack/path-64",
            "Path ids are 0 to 63, in the block too.",
            &["MR-WIRE-4"],
            Verdict::Malformed,
            &packet(&Ack { path: 64, ..full }, vec![]).into_bytes(),
        ),
        Vector::dropped(
            "ack/cut-short",
            "63 bytes of a block.",
            &["MR-WIRE-4"],
            Verdict::Malformed,
            &Base::of(ACK).junk(&short),
        ),
    ]
}

fn nack(reason: u8) -> Fields {
    let body =
        Fields::default().u16("stream", 0x0102).u8("reason", reason).silent(&[0]).u32("delay_us", 10_000);
    frame(2, "NACK", body)
}

fn credit(flags: u8) -> Fields {
    let none_needed = super::Value::Flag(flags & 1 != 0);
    let body = Fields::default().u16("stream", 0x0102).told("none_needed", none_needed).silent(&[flags, 0]);
    frame(3, "CREDIT", body.u32("posted", 0x1112_1314))
}

fn frames() -> Vec<Vector> {
    let layout = &["MR-WIRE-25"];
    let refused = || frame(1, "REFUSED", vector("refused", &[7, 128, 129]));
    let plane = frame(4, "PLANE", Fields::default().u32("silent", 5).u32("unreachable", 0x8000_0000));
    let start = || frame(5, "START", Fields::default().u32("allowance_kib", 64));
    let other = || frame(6, "ACK", Fields::default().part("ack", Ack::full(63).fields()));
    let unknown = Fields::default().silent(&[99, 3, 1, 2, 3]);
    let unknown_empty = Fields::default().silent(&[0, 0]);
    let full = Ack::full(5);
    let one = |name: &str, about: &str, frame: Fields| {
        Vector::valid(&format!("frame/{name}"), about, layout, packet(&full, vec![frame]))
    };
    let mut vectors = vec![
        one("refused", "Aligned as the vector of the block before it.", refused()),
        one("credit", "Receives posted so far.", credit(0)),
        one("credit-none-needed", "Bit 0 of its flags.", credit(1)),
        one("plane", "Bit i (1 << i) is plane i.", plane.clone()),
        one("start", "In KiB.", start()),
        one("ack", "The acknowledgement of another path.", other()),
        Vector::valid(
            "frame/all",
            "All frames in one ACK: each block with its REFUSED.",
            &["MR-WIRE-25", "MR-WIRE-26"],
            packet(&full, vec![refused(), other(), refused(), nack(1), credit(0), plane, start()]),
        ),
        Vector::odd(
            "frame/unknown-passed-over",
            "Frames of types 99 and 0, between two that are known.",
            &["MR-WIRE-24"],
            Base::of(ACK).packet(
                Fields::default()
                    .part("ack", full.fields())
                    .silent(&unknown.into_bytes())
                    .silent(&unknown_empty.into_bytes())
                    .parts("frames", vec![start()]),
            ),
        ),
    ];
    for reason in 1..=6 {
        vectors.push(one(&format!("nack-{reason}"), "A reason that is defined.", nack(reason)));
    }
    vectors
}

fn malformed_frames() -> Vec<Vector> {
    // Each behind a block that says nothing, so that nothing but the frame can be wrong.
    let dropped = |name: &str, about: &str, frames: &[u8]| {
        let body = Fields::default().part("ack", Ack::empty(5).fields()).silent(frames);
        let bytes = Base::of(ACK).packet(body).into_bytes();
        Vector::dropped(&format!("frame/{name}"), about, &["MR-WIRE-25"], Verdict::Malformed, &bytes)
    };
    let start = [5, 4, 0, 0, 0, 64];
    let mut vectors = vec![
        dropped("type-alone", "A frame's type, and no length.", &[5]),
        dropped("cut-short", "The body ends one byte too early.", start.get(..5).unwrap_or_default()),
        dropped("unknown-cut-short", "A frame of unknown type may not be cut short either.", &[99, 3, 1, 2]),
        dropped(
            "second-cut-short",
            "The first frame is right, the second is not.",
            &[5, 4, 0, 0, 0, 64, 5, 4, 0],
        ),
        dropped("ack-path-64", "Path ids are 0 to 63, in a frame too.", &{
            frame(6, "ACK", Ack::full(64).fields()).into_bytes()
        }),
    ];
    for reason in [0, 7, 255] {
        let bytes = nack(reason).into_bytes();
        vectors.push(dropped(&format!("nack-{reason}"), "A reason that is not defined.", &bytes));
    }
    for (kind, right) in [(1, 32), (2, 8), (3, 8), (4, 8), (5, 4), (6, 64)] {
        for length in [right - 1, right + 1, 0] {
            let mut bytes = vec![kind, length];
            bytes.resize(2 + usize::from(length), u8::from(kind == 2));
            let about = "The length is not that of the type, though the frame is there as a whole.";
            vectors.push(dropped(&format!("type-{kind}-length-{length}"), about, &bytes));
        }
    }
    vectors
}
