//! The results as JSON.

use metaroce_conformance::suite::{ALWAYS, Verdict};
use serde_json::{Value, json};

use super::Results;

/// One object: the device, the counts, and each case.
pub(super) fn document(results: &Results) -> Value {
    let cases: Vec<Value> = results.reports.iter().map(|report| case(results, report)).collect();
    json!({
        "device": results.device,
        "summary": {
            "passed": results.count("passed"),
            "failed": results.count("failed"),
            "skipped": results.count("skipped"),
            "not_applicable": results.count("not applicable"),
        },
        "always": ALWAYS,
        "cases": cases,
    })
}

fn case(results: &Results, report: &metaroce_conformance::suite::Report) -> Value {
    let mut value = json!({
        "name": report.case.name,
        "about": report.case.about,
        "profile": report.case.profile.name(),
        "requirements": report.case.requirements,
        "verdict": report.verdict.name(),
        "seconds": report.duration.as_secs_f64(),
        "datagrams": report.record.len(),
    });
    let Some(fields) = value.as_object_mut() else { return value };
    match &report.verdict {
        Verdict::Failed { requirement, text } => {
            fields.insert("requirement".to_owned(), json!(requirement));
            fields.insert("sentence".to_owned(), json!(results.sentence(requirement)));
            fields.insert("found".to_owned(), json!(text));
            fields.insert("packets".to_owned(), json!(Results::packets(report, 200)));
        }
        Verdict::Broken(reason) => {
            fields.insert("broken".to_owned(), json!(reason));
            fields.insert("packets".to_owned(), json!(Results::packets(report, 200)));
        }
        Verdict::Skipped(reason) | Verdict::NotApplicable(reason) => {
            fields.insert("reason".to_owned(), json!(reason));
        }
        Verdict::Passed => {}
    }
    if let Some(path) = results.captures.get(report.case.name) {
        fields.insert("capture".to_owned(), json!(path.to_string_lossy()));
    }
    value
}
