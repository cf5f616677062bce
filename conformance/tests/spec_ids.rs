//! `SPEC.md`, the sources and the pitfalls agree on the ids of requirements.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::path::{Path, PathBuf};

use metaroce_conformance::spec::{self, Baseline, Coverage, Problem, Requirement};

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn read(file: &str) -> String {
    std::fs::read_to_string(workspace().join(file)).unwrap()
}

fn requirements() -> (Vec<Requirement>, Vec<Problem>) {
    spec::parse("conformance/SPEC.md", &read("conformance/SPEC.md"))
}

fn coverage(requirements: &[Requirement]) -> Coverage {
    let sources = spec::sources(&workspace()).unwrap();
    assert!(sources.len() > 50, "the sources were found");
    let citations: Vec<_> = sources.iter().flat_map(|(file, text)| spec::citations(file, text)).collect();
    Coverage::new(requirements, &citations)
}

fn assert_none(problems: &[Problem]) {
    let lines: Vec<_> = problems.iter().map(ToString::to_string).collect();
    assert!(problems.is_empty(), "\n{}", lines.join("\n"));
}

#[test]
fn every_requirement_is_well_formed_and_has_an_id_of_its_own() {
    let (requirements, problems) = requirements();
    assert_none(&problems);
    assert!(requirements.len() > 200);
}

#[test]
fn every_citation_names_a_requirement_and_no_debt_is_new() {
    let (requirements, _) = requirements();
    let coverage = coverage(&requirements);
    println!("{}", spec::summary(&requirements, &coverage));
    assert_none(&coverage.problems);
    let baseline = Baseline::parse(&read("conformance/spec-baseline.txt"));
    if std::env::var_os("METAROCE_SPEC_BASELINE").is_some_and(|value| value == "shrink") {
        let file = workspace().join("conformance/spec-baseline.txt");
        std::fs::write(file, baseline.shrunk(&coverage)).unwrap();
    } else {
        assert_none(&baseline.problems(&coverage));
    }
}

#[test]
fn state_machines_are_those_of_the_code() {
    let text = read("conformance/SPEC.md");
    let drawn = spec::with_diagrams(&text).unwrap();
    if std::env::var_os("METAROCE_SPEC_DIAGRAMS").is_some_and(|value| value == "write") {
        std::fs::write(workspace().join("conformance/SPEC.md"), drawn).unwrap();
    } else {
        assert!(text == drawn, "section 16 is stale: see its first line");
    }
}

#[test]
fn pitfalls_name_requirements_and_files_that_exist() {
    let (requirements, _) = requirements();
    let text = read("conformance/PITFALLS.md");
    let mut problems = Vec::new();
    for (id, line) in spec::references(&text) {
        if !requirements.iter().any(|requirement| requirement.id == id) {
            let place = format!("conformance/PITFALLS.md:{line}");
            problems.push(Problem { place, what: format!("{id} is not in SPEC.md") });
        }
    }
    for (line, content) in (1..).zip(text.lines()) {
        for name in content.split('`').skip(1).step_by(2).filter(|name| name.contains(".rs")) {
            let file = name.split("::").next().unwrap_or(name);
            let wanted = name.split("::").nth(1);
            let source = std::fs::read_to_string(workspace().join(file));
            let there =
                source.is_ok_and(|source| wanted.is_none_or(|name| source.contains(&format!("fn {name}"))));
            if !there {
                let place = format!("conformance/PITFALLS.md:{line}");
                problems.push(Problem { place, what: format!("{name} does not exist") });
            }
        }
    }
    assert_none(&problems);
    for row in 1..=42 {
        assert!(text.contains(&format!("\n| {row} |")), "pitfall {row} has a row");
    }
}
