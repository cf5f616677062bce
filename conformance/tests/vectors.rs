//! The golden vectors in `vectors/` are what the generator makes: nothing is edited by hand, nothing is stale.

#![cfg(feature = "cli")]

use std::collections::BTreeSet;
use std::path::Path;

use metaroce_conformance::vectors::{files, render};

#[test]
fn stored_vectors_are_those_of_the_generator() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors");
    let mut expected = BTreeSet::from(["README.md".to_owned()]);
    for file in files() {
        let stored = std::fs::read_to_string(directory.join(file.name)).unwrap();
        assert!(
            stored == render(&file).unwrap(),
            "{} is stale: cargo run -p metaroce-conformance -- vectors conformance/vectors",
            file.name
        );
        expected.insert(file.name.to_owned());
    }
    let found: BTreeSet<_> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(found, expected, "every file is made by the generator");
}
