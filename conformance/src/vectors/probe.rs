//! PROBE and `PROBE_REPLY`.

use super::field::Fields;
use super::layout::{Ack, Base, PROBE, PROBE_REPLY, frame, probe};
use super::{File, Vector, Verdict};

/// Padding of the smallest PROBE: 64 bytes less base header and body.
const PADDING: usize = 28;

pub(super) fn file() -> File {
    let layout = &["MR-WIRE-27"];
    let reply = |ack: &Ack, frames| {
        let token = Fields::default().u64("token", 0x1112_1314_1516_1718);
        token.part("ack", ack.fields()).parts("frames", frames)
    };
    let start = || frame(5, "START", Fields::default().u32("allowance_kib", 64));
    let cut = |fields: Fields, kind: u8| {
        let mut bytes = fields.into_bytes();
        bytes.pop();
        Base::of(kind).junk(&bytes)
    };
    let dropped = |name: &str, about: &str, bytes: &[u8]| {
        Vector::dropped(name, about, &["MR-WIRE-4"], Verdict::Malformed, bytes)
    };
    let vectors = vec![
        Vector::valid(
            "probe/smallest",
            "64 bytes, about no stream.",
            &["MR-WIRE-27", "MR-WIRE-33"],
            Base::of(PROBE).packet(probe(0xffff, [0; 2]).silent(&[0; PADDING])),
        ),
        Vector::valid(
            "probe/stream",
            "Asks for the credit of a stream, padded to 1,232 bytes.",
            layout,
            Base::of(PROBE).packet(probe(0x0102, [0; 2]).silent(&[0; 1_196])),
        ),
        Vector::odd(
            "probe/padding-not-zero",
            "Padding is ignored, whatever it holds.",
            layout,
            Base::of(PROBE).packet(probe(0x0102, [0; 2]).silent(&[0xff; PADDING])),
        ),
        Vector::odd(
            "probe/reserved",
            "Reserved bytes are ignored.",
            &["MR-WIRE-5"],
            Base::of(PROBE).packet(probe(0x0102, [0xff; 2]).silent(&[0; PADDING])),
        ),
        dropped("probe/cut-short", "15 bytes of the body.", &cut(probe(0x0102, [0; 2]), PROBE)),
        Vector::valid(
            "probe-reply/block",
            "Token, then a block.",
            layout,
            Base::of(PROBE_REPLY).packet(reply(&Ack::full(5), vec![])),
        ),
        Vector::valid(
            "probe-reply/frames",
            "Frames follow the block.",
            layout,
            Base::of(PROBE_REPLY).packet(reply(&Ack::full(0), vec![start()])),
        ),
        dropped(
            "probe-reply/cut-short",
            "71 bytes of the body.",
            &cut(reply(&Ack::empty(5), vec![]), PROBE_REPLY),
        ),
        dropped(
            "probe-reply/path-64",
            "Path ids are 0 to 63.",
            &Base::of(PROBE_REPLY).packet(reply(&Ack::full(64), vec![])).into_bytes(),
        ),
        Vector::dropped(
            "probe-reply/frame-cut-short",
            "The frame ends one byte too early.",
            &["MR-WIRE-25"],
            Verdict::Malformed,
            &cut(reply(&Ack::empty(5), vec![start()]), PROBE_REPLY),
        ),
    ];
    File { name: "probe.json", version: 0, about: "PROBE and PROBE_REPLY: section 3.5.", vectors }
}
