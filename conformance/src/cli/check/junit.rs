//! The results as `JUnit` XML, which continuous integration reads.

use std::fmt::Write as _;

use metaroce_conformance::suite::{Report, Verdict};

use super::{Results, escape};

/// One test suite; a case that is not applicable counts as skipped, one that could not go on as an error.
pub(super) fn document(results: &Results) -> String {
    let skipped = results.count("skipped") + results.count("not applicable");
    let errors = results.reports.iter().filter(|report| matches!(report.verdict, Verdict::Broken(_))).count();
    let seconds: f64 = results.reports.iter().map(|report| report.duration.as_secs_f64()).sum();
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    // Writing into a string never fails.
    let _ = writeln!(
        out,
        "<testsuite name=\"metaroce-conformance\" hostname=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{errors}\" skipped=\"{skipped}\" time=\"{seconds:.3}\">",
        escape(&results.device),
        results.reports.len(),
        results.count("failed") - errors,
    );
    for report in &results.reports {
        let (area, name) = report.case.name.split_once('/').unwrap_or(("", report.case.name));
        let _ = write!(
            out,
            "<testcase classname=\"{}\" name=\"{}\" time=\"{:.3}\"",
            escape(area),
            escape(name),
            report.duration.as_secs_f64()
        );
        let _ = match &report.verdict {
            Verdict::Passed => writeln!(out, "/>"),
            Verdict::Skipped(reason) | Verdict::NotApplicable(reason) => {
                writeln!(out, "><skipped message=\"{}\"/></testcase>", escape(reason))
            }
            Verdict::Failed { requirement, text } => writeln!(
                out,
                "><failure type=\"{requirement}\" message=\"{}\">{}\n{}</failure></testcase>",
                escape(&format!("{requirement}: {text}")),
                escape(&results.sentence(requirement)),
                evidence(results, report)
            ),
            Verdict::Broken(reason) => writeln!(
                out,
                "><error type=\"broken\" message=\"{}\">{}</error></testcase>",
                escape(reason),
                evidence(results, report)
            ),
        };
    }
    out.push_str("</testsuite>\n</testsuites>\n");
    out
}

/// Where the capture is, and the last packets.
fn evidence(results: &Results, report: &Report) -> String {
    let capture = results.captures.get(report.case.name);
    let capture = capture.map_or(String::new(), |path| format!("capture: {}\n", path.display()));
    escape(&format!("{capture}{}\n", Results::packets(report, 60).join("\n")))
}
