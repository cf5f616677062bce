//! The compliance suite against the core in process, and against itself: every case passes, every id exists, and a run is
//! repeated byte for byte.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeSet;

use metaroce_conformance::spec::{self, Status};
use metaroce_conformance::suite::{self, ALWAYS, Case, InProcess, Report, Stop, Verdict};

fn run_all(seed: u64) -> Vec<Report> {
    let mut port = InProcess::new(seed).unwrap();
    suite::all_cases().into_iter().map(|case| suite::run(&mut port, case, seed)).collect()
}

fn blame(report: &Report) -> Option<String> {
    match &report.verdict {
        Verdict::Passed | Verdict::NotApplicable(_) => None,
        other => Some(format!("{}: {other:?}", report.case.name)),
    }
}

#[test]
fn the_core_passes_every_case() {
    for seed in [1, 2, 3] {
        let blamed: Vec<String> = run_all(seed).iter().filter_map(blame).collect();
        assert!(blamed.is_empty(), "seed {seed}: {blamed:#?}");
    }
}

#[test]
fn a_case_that_breaks_off_has_failed_and_keeps_its_packets_and_the_next_one_runs() {
    static BREAKS: Case =
        Case::new("test/breaks", "opens a connection, then finds the device gone", &[], |s| {
            s.connect()?;
            Err(Stop::Broken("gone".to_owned()))
        });
    let mut port = InProcess::new(1).unwrap();
    let report = suite::run(&mut port, &BREAKS, 1);
    assert_eq!(report.verdict, Verdict::Broken("gone".to_owned()));
    assert!(report.verdict.is_failure() && report.verdict.name() == "failed");
    assert!(report.record.iter().any(|entry| !entry.ours), "{:?}", report.record);
    let next = suite::run(&mut port, suite::all_cases()[0], 1);
    assert_eq!(next.verdict, Verdict::Passed, "{}", next.case.name);
}

#[test]
//= MR-SEC-8 test
fn a_run_is_repeated_byte_for_byte() {
    for (one, two) in run_all(7).iter().zip(&run_all(7)) {
        assert_eq!(one.record.len(), two.record.len(), "{}", one.case.name);
        let same =
            one.record.iter().zip(&two.record).all(|(a, b)| (a.at_ns, &a.bytes) == (b.at_ns, &b.bytes));
        assert!(same, "{}", one.case.name);
    }
}

#[test]
fn every_requirement_of_a_case_is_in_force() {
    let (requirements, _) = spec::parse("SPEC.md", include_str!("../SPEC.md"));
    let cases = suite::all_cases();
    let named = cases.iter().flat_map(|case| case.requirements).chain(&ALWAYS);
    for id in named {
        let found = requirements.iter().find(|requirement| requirement.id.to_string() == *id);
        let found = found.unwrap_or_else(|| panic!("{id} is not in SPEC.md"));
        assert!(found.status != Status::Planned, "{id} is planned");
    }
    let names: BTreeSet<&str> = cases.iter().map(|case| case.name).collect();
    assert_eq!(names.len(), cases.len(), "two cases have one name");
}

#[test]
fn every_seeded_fault_is_caught_by_the_requirement_that_it_breaks() {
    let faults = suite::faults::all();
    assert!(faults.len() >= 60, "{} faults", faults.len());
    let missed: Vec<String> = faults
        .iter()
        .filter_map(|fault| {
            let hunt = suite::faults::hunt(fault, 1).unwrap();
            let missed = hunt.caught_by.is_none();
            missed.then(|| format!("{} ({}): blamed were {:?}", fault.name, fault.breaks, hunt.others))
        })
        .collect();
    assert!(missed.is_empty(), "{missed:#?}");
    let names: BTreeSet<&str> = faults.iter().map(|fault| fault.name).collect();
    assert_eq!(names.len(), faults.len(), "two faults have one name");
}
