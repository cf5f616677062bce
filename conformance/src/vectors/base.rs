//! The base header: types, versions, checksums.

use super::field::Fields;
use super::layout::{Base, CONTROL, DATA, Data, LAST, PROBE, probe};
use super::{File, Vector, Verdict};

pub(super) fn file() -> File {
    let mut vectors = checksums();
    vectors.extend(headers());
    File { name: "base.json", version: 0, about: "Base header and checksum: section 3.1.", vectors }
}

fn message() -> Fields {
    Data { opcode: 1, flags: LAST, length: 4, payload: b"abcd".to_vec(), ..Data::default() }.fields()
}

fn confirm() -> Fields {
    super::layout::control(3, "CONFIRM").silent(&[0; 3]).u64("echoed_nonce", 0x7172_7374_7576_7778)
}

fn checksums() -> Vec<Vector> {
    let wrong = Base::of(DATA).packet_with_checksum(&message(), |right| right ^ 1).into_bytes();
    let zero = Base::of(DATA).packet_with_checksum(&message(), |_| 0).into_bytes();
    let control =
        Base::of(CONTROL).packet_with_checksum(&confirm(), |right| right ^ 0x8000_0000).into_bytes();
    let padding =
        Base::of(PROBE).packet(probe(0xffff, [0; 2]).silent(&[0; 28])).patched(60, &[1]).into_bytes();
    vec![
        Vector {
            verdict_without_checksum: Some(Verdict::Valid),
            ..Vector::dropped(
                "checksum/data-one-bit-wrong",
                "The checksum of a DATA packet has its lowest bit flipped.",
                &["MR-WIRE-8", "MR-WIRE-11"],
                Verdict::Checksum,
                &wrong,
            )
        },
        Vector {
            verdict_without_checksum: Some(Verdict::Valid),
            ..Vector::dropped(
                "checksum/data-none",
                "The field holds 0, as to a peer that does not want a checksum.",
                &["MR-WIRE-10", "MR-WIRE-11"],
                Verdict::Checksum,
                &zero,
            )
        },
        Vector::dropped(
            "checksum/control-one-bit-wrong",
            "A CONFIRM whose checksum has its highest bit flipped: CONTROL is checked by everybody.",
            &["MR-WIRE-9"],
            Verdict::Checksum,
            &control,
        ),
        Vector {
            verdict_without_checksum: Some(Verdict::Valid),
            ..Vector::dropped(
                "checksum/padding-counts",
                "A byte of a PROBE's padding was changed: padding is covered by the checksum.",
                &["MR-WIRE-8", "MR-WIRE-11"],
                Verdict::Checksum,
                &padding,
            )
        },
    ]
}

fn headers() -> Vec<Vector> {
    let valid = Base::of(DATA).packet(message()).into_bytes();
    let malformed = |name: &str, about: &str, bytes: &[u8]| {
        Vector::dropped(name, about, &["MR-WIRE-4"], Verdict::Malformed, bytes)
    };
    let mut vectors = vec![
        malformed("base/empty", "No byte at all.", &[]),
        malformed(
            "base/cut-short",
            "19 bytes: one less than a base header.",
            valid.get(..Base::BYTES - 1).unwrap_or_default(),
        ),
        malformed(
            "base/path-64",
            "Path ids are 0 to 63.",
            &Base { path: 64, ..Base::of(DATA) }.packet(message()).into_bytes(),
        ),
        Vector::valid(
            "base/path-63-extreme-values",
            "The largest path id, and all ones in every other field.",
            &["MR-WIRE-1"],
            Base {
                path: 63,
                epoch: u8::MAX,
                connection: u32::MAX,
                psn: u32::MAX,
                timestamp: u32::MAX,
                ..Base::of(DATA)
            }
            .packet(message()),
        ),
        Vector::odd(
            "base/reserved-flags",
            "All flags are reserved, and ignored.",
            &["MR-WIRE-5"],
            Base { flags: 0xff, ..Base::of(DATA) }.packet(message()),
        ),
    ];
    for kind in [0, 6, 15] {
        vectors.push(malformed(
            &format!("base/type-{kind}"),
            "A packet type that is not defined.",
            &Base { kind, ..Base::of(DATA) }.packet(message()).into_bytes(),
        ));
    }
    for version in [1, 15] {
        vectors.push(Vector::dropped(
            &format!("base/version-{version}"),
            "Another version, whatever follows it.",
            &["MR-WIRE-2", "MR-WIRE-3"],
            Verdict::Version,
            &Base { version, ..Base::of(DATA) }.packet(message()).into_bytes(),
        ));
    }
    vectors
}
