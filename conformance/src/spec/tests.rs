use super::*;

const SPEC: &str = "\
# A title\n\
- **MR-ACK-1** [MUST] One\n  and the rest.\n\
- **MR-ACK-2** [SHOULD] [planned] Two, see MR-ACK-1.\n\
- **MR-DLV-1** [MUST] [defect] Three.\n\
- **MR-DLV-2** [MUST] Four.\n";

fn id(area: &str, number: u32) -> Id {
    Id { area: area.to_owned(), number }
}

#[test]
fn items_are_read_with_level_status_and_continuation() {
    let (requirements, problems) = parse("SPEC.md", SPEC);
    assert_eq!(problems, []);
    let seen: Vec<_> = requirements
        .iter()
        .map(|r| (r.id.to_string(), r.level, r.status, r.line, r.sentence.as_str()))
        .collect();
    assert_eq!(
        seen,
        [
            ("MR-ACK-1".to_owned(), Level::Must, Status::InForce, 2, "One and the rest."),
            ("MR-ACK-2".to_owned(), Level::Should, Status::Planned, 4, "Two, see MR-ACK-1."),
            ("MR-DLV-1".to_owned(), Level::Must, Status::Defect, 5, "Three."),
            ("MR-DLV-2".to_owned(), Level::Must, Status::InForce, 6, "Four."),
        ]
    );
}

#[test]
fn duplicates_dangling_references_and_bad_items_are_problems() {
    for (text, what) in [
        ("- **MR-A-1** [MUST] One.\n- **MR-A-1** [MUST] Two.\n", "twice"),
        ("- **MR-A-1** [MUST] One, as MR-B-7 says.\n", "MR-B-7 is not defined"),
        ("- **MR-A-1** [MIGHT] One.\n", "an item is"),
        ("- **MR-A-1** [MUST] [soon] One.\n", "an item is"),
        ("- **MR-A-1** MUST One.\n", "an item is"),
        ("- **MR-A-1** [MUST] One. Two.\n", "one sentence"),
        ("- **MR-A-1** [MUST] One\n", "one sentence"),
        ("- **MR-A-1** [MUST] One\n\n  not part of it.\n", "one sentence"),
    ] {
        let (_, problems) = parse("SPEC.md", text);
        assert!(problems.iter().any(|problem| problem.what.contains(what)), "{text:?}: {problems:?}");
    }
}

#[test]
fn citations_are_found_in_comments_only_and_told_apart() {
    let text = "let a = 1; // MR-ACK-1, MR-DLV-2: why\nlet b = \"MR-ACK-9\";\n//= MR-ACK-2\n//= MR-DLV-1 test\n// MR-LOSS alone, MR-ACK-0, MR-x-1\n";
    let found: Vec<_> = citations("metaroce-core/src/a.rs", text)
        .into_iter()
        .map(|citation| (citation.id.to_string(), citation.line, citation.test))
        .collect();
    assert_eq!(
        found,
        [
            ("MR-ACK-1".to_owned(), 1, false),
            ("MR-DLV-2".to_owned(), 1, false),
            ("MR-ACK-2".to_owned(), 3, false),
            ("MR-DLV-1".to_owned(), 4, true),
        ]
    );
    for file in [
        "metaroce-core/tests/all/a.rs",
        "metaroce-core/src/wire/tests.rs",
        "conformance/src/a.rs",
        "fuzz/a.rs",
    ] {
        let found = citations(file, text);
        assert!(found.len() == 1 && found.iter().all(|citation| citation.test), "{file}: {found:?}");
    }
}

#[test]
fn coverage_names_the_unknown_the_planned_the_uncited_and_the_untested() {
    let (requirements, _) = parse("SPEC.md", SPEC);
    let found = citations("a/src/a.rs", "// MR-ACK-1\n// MR-ACK-2\n// MR-ACK-7\n//= MR-DLV-2 test\n");
    let coverage = Coverage::new(&requirements, &found);
    assert_eq!(coverage.uncited, [id("DLV", 2)]);
    assert_eq!(coverage.untested, [id("ACK", 1)]);
    let problems: Vec<_> = coverage.problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        problems,
        [
            "a/src/a.rs:2: MR-ACK-2 is tagged [planned] in SPEC.md: remove the tag or the citation",
            "a/src/a.rs:3: MR-ACK-7 is not in SPEC.md",
        ]
    );
    assert!(summary(&requirements, &coverage).starts_with("4 requirements: 3 MUST, 1 SHOULD"));
}

#[test]
fn a_baseline_names_new_and_paid_debts_and_only_shrinks() {
    let (requirements, _) = parse("SPEC.md", SPEC);
    let coverage = Coverage::new(&requirements, &citations("a/src/a.rs", "// MR-ACK-1\n"));
    let baseline = Baseline::parse("# MR-X-1\n[uncited]\nMR-ACK-1 MR-DLV-2\n[untested]\nMR-DLV-2\n");
    assert_eq!(baseline.uncited, [id("ACK", 1), id("DLV", 2)].into());
    let problems: Vec<_> = baseline.problems(&coverage).into_iter().map(|problem| problem.what).collect();
    assert!(problems.len() == 2, "{problems:?}");
    assert!(problems[0].starts_with("MR-ACK-1 is no longer uncited"));
    assert!(problems[1].starts_with("MR-ACK-1 is a MUST in force and untested"));
    let shrunk = Baseline::parse(&baseline.shrunk(&coverage));
    assert_eq!(shrunk, Baseline { uncited: [id("DLV", 2)].into(), untested: [id("DLV", 2)].into() });
}
