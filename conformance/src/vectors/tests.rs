//! The encoder's own facts: the check value of its checksum, and names that occur once.

use std::collections::BTreeSet;

use super::layout::{Base, crc32c, sealed};
use super::{files, hex};
use crate::spec;

#[test]
fn checksum_has_the_check_values_of_crc32c() {
    assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
}

#[test]
fn sealing_what_is_sealed_changes_nothing() {
    let bytes = Base::of(super::layout::DATA).junk(b"whatever");
    assert_eq!(hex(&sealed(bytes.clone())), hex(&bytes));
}

#[test]
fn every_name_occurs_once_and_every_requirement_is_in_the_specification() {
    let (requirements, _) = spec::parse("SPEC.md", include_str!("../../SPEC.md"));
    let known: BTreeSet<_> = requirements.iter().map(|entry| entry.id.to_string()).collect();
    let mut names = BTreeSet::new();
    for file in files() {
        for vector in file.vectors {
            assert!(names.insert(vector.name.clone()), "{} occurs twice", vector.name);
            for id in &vector.requirements {
                assert!(known.contains(*id), "{}: {id} is not in SPEC.md", vector.name);
            }
        }
    }
    assert!(names.len() > 150, "{} vectors", names.len());
}
