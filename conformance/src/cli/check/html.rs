//! The results as one HTML file that needs nothing else.

use std::fmt::Write as _;

use metaroce_conformance::suite::{Report, Verdict};

use super::{Results, escape};

/// The whole page.
pub(super) fn document(results: &Results) -> String {
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>MetaRoCE compliance: {0}</title>\n\
         <style>{STYLE}</style></head>\n<body><h1>MetaRoCE compliance</h1>\n<p>Device: <b>{0}</b></p>\n<p class=\"summary\">",
        escape(&results.device)
    );
    for name in ["passed", "failed", "skipped", "not applicable"] {
        // Writing into a string never fails.
        let _ = write!(out, "<span class=\"{}\">{} {name}</span> ", class(name), results.count(name));
    }
    out.push_str("</p>\n<table><colgroup><col style=\"width:46%\"><col style=\"width:12%\"><col style=\"width:33%\"><col style=\"width:9%\"></colgroup>\n<tr><th>case</th><th>result</th><th>requirements</th><th>seconds</th></tr>\n");
    for report in &results.reports {
        row(&mut out, results, report);
    }
    out.push_str("</table></body></html>\n");
    out
}

fn row(out: &mut String, results: &Results, report: &Report) {
    let name = report.verdict.name();
    let ids: Vec<String> = report
        .case
        .requirements
        .iter()
        .map(|id| format!("<abbr title=\"{}\">{id}</abbr>", escape(results.sentence(id))))
        .collect();
    let _ = writeln!(
        out,
        "<tr><td><b>{}</b><br>{}</td><td class=\"{}\">{name}</td><td>{}</td><td>{:.2}</td></tr>",
        escape(report.case.name),
        escape(report.case.about),
        class(name),
        ids.join(" "),
        report.duration.as_secs_f64()
    );
    match &report.verdict {
        Verdict::Failed { requirement, text } => {
            let capture = results.captures.get(report.case.name).map_or(String::new(), |path| {
                format!("<p>Capture: <code>{}</code></p>", escape(&path.to_string_lossy()))
            });
            let _ = writeln!(
                out,
                "<tr><td colspan=\"4\"><p><b>{requirement}</b> {}</p><p>Found: {}</p>{capture}<details open><summary>Packets (-&gt; from the suite, \
                 &lt;- from the device)</summary><pre>{}</pre></details></td></tr>",
                escape(results.sentence(requirement)),
                escape(text),
                escape(&Results::packets(report, 400).join("\n"))
            );
        }
        Verdict::Skipped(reason) | Verdict::NotApplicable(reason) => {
            let _ = writeln!(out, "<tr><td colspan=\"4\" class=\"reason\">{}</td></tr>", escape(reason));
        }
        Verdict::Passed => {}
    }
}

fn class(name: &str) -> &str {
    name.split(' ').next().unwrap_or(name)
}

const STYLE: &str = "body{font:15px/1.4 system-ui,sans-serif;margin:2em auto;max-width:72em;padding:0 1em;color:#222}\
table{border-collapse:collapse;table-layout:fixed;width:100%}td,th{border-top:1px solid #ddd;padding:.4em .6em;text-align:left;vertical-align:top}\
pre{background:#f6f6f6;padding:.6em;overflow:auto;font-size:12px}.summary span{padding:.2em .6em;border-radius:.3em;margin-right:.4em}\
.passed{background:#d9f2dc}.failed{background:#f8d2d0}.skipped{background:#fbeec4}.not{background:#e8e8e8}.reason{color:#666}\
abbr{white-space:nowrap;text-decoration:none;border-bottom:1px dotted #999}";
