//! The compliance suite against a device under test.

use metaroce_conformance::suite::{self, Udp, Verdict};

/// Runs every case; gives those that failed. What the suite can't look at here is printed.
pub(crate) fn failures(port: &mut Udp) -> Vec<String> {
    let mut failures = Vec::new();
    for case in suite::all_cases() {
        // A machine that stops for a while can make a device look late: only what fails three times fails.
        let mut last = None;
        for seed in 1..=3 {
            match suite::run(port, case, seed).verdict {
                Verdict::Failed { requirement, text } => {
                    last = Some(format!("{}: {requirement}: {text}", case.name));
                }
                Verdict::Broken(reason) => last = Some(format!("{}: broken off: {reason}", case.name)),
                verdict => {
                    if let Verdict::Skipped(reason) = verdict {
                        println!("{}: not looked at: {reason}", case.name);
                    }
                    last = None;
                    break;
                }
            }
        }
        failures.extend(last);
    }
    failures
}
