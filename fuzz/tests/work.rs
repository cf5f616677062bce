//! No call does more than a bounded amount of work: instructions of single calls into the core, counted by callgrind, in the
//! states of `metaroce_fuzz::worst`.
//!
//! The counts are of release builds on x86-64, and the same whatever else the machine does.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;
use std::sync::Mutex;
use std::thread;

use metaroce_fuzz::probe::COUNTED;
use metaroce_fuzz::worst::{CASES, Case, LIMITS};

/// Parts of its bound below which a call no longer does what its case is there for.
const IDLE: u64 = 5;

#[test]
fn the_worst_calls_stay_within_the_bounds_that_the_docs_state() {
    let test = "the_worst_calls_stay_within_the_bounds_that_the_docs_state";
    if cfg!(debug_assertions) || !cfg!(target_arch = "x86_64") {
        println!("skipped: {test}: the counts are those of a release build on x86-64");
        return;
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("skipped: {test}: the program valgrind is not installed");
        return;
    }
    let named = |case: &'static Case| {
        LIMITS.iter().zip(case.most).map(|((end, _), most)| (format!("{}-{end}", case.name), most))
    };
    let left = Mutex::new(CASES.iter().flat_map(named).collect::<Vec<_>>());
    let wrong = Mutex::new(Vec::new());
    let take = || left.lock().unwrap().pop();
    let work = || {
        while let Some((name, most)) = take() {
            let count = count(&name);
            println!("{name}: {count} instructions of at most {most}");
            if count > most {
                wrong.lock().unwrap().push(format!("{name} takes {count} instructions, more than {most}"));
            } else if count < most / IDLE {
                let why = "it, or its bound, is out of date";
                wrong
                    .lock()
                    .unwrap()
                    .push(format!("{name} takes {count} instructions of {most} only: {why}"));
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The instructions of the one call: callgrind collects in that function, and what it calls, only.
fn count(name: &str) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--quiet"]).arg(format!("--callgrind-out-file={}", out.display()));
    valgrind.arg(format!("--toggle-collect=*{COUNTED}*")).arg(env!("CARGO_BIN_EXE_counted")).arg(name);
    let run = valgrind.output().unwrap();
    assert!(run.status.success(), "{name}: {}", String::from_utf8_lossy(&run.stderr));
    let text = std::fs::read_to_string(&out).unwrap();
    text.lines().find_map(|line| line.strip_prefix("totals: ")).unwrap().trim().parse().unwrap()
}
