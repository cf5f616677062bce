//! The results as one HTML file that needs nothing else.

use std::fmt::Write as _;

use metaroce_conformance::suite::{Report, Verdict};

use super::{Results, escape};

/// The whole page.
pub(super) fn document(results: &Results) -> String {
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\"><title>MetaRoCE compliance: {0}</title>\n\
         <style>{STYLE}</style></head>\n<body><h1>MetaRoCE compliance</h1>\n<p>Device: <b>{0}</b></p>\n<p class=\"summary\">",
        escape(&results.device)
    );
    for name in ["passed", "failed", "skipped", "not applicable"] {
        // Writing into a string never fails.
        let _ = write!(out, "<span class=\"{}\">{} {name}</span> ", class(name), results.count(name));
    }
    out.push_str("</p>\n<table><colgroup><col><col><col><col></colgroup>\n<tr><th>case</th><th>result</th><th>requirements</th><th>seconds</th></tr>\n");
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
        .map(|id| format!("<abbr title=\"{}\">{id}</abbr>", escape(&results.sentence(id))))
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
            let rule = format!("<b>{requirement}</b> {}", results.sentence_html(requirement));
            failure(out, results, report, &rule, text);
        }
        Verdict::Broken(reason) => failure(out, results, report, "The case could not go on.", reason),
        Verdict::Skipped(reason) | Verdict::NotApplicable(reason) => {
            let _ = writeln!(out, "<tr><td colspan=\"4\" class=\"reason\">{}</td></tr>", escape(reason));
        }
        Verdict::Passed => {}
    }
}

fn failure(out: &mut String, results: &Results, report: &Report, rule: &str, found: &str) {
    let capture = results.captures.get(report.case.name).map_or(String::new(), |path| {
        format!("<p>Capture: <code>{}</code></p>", escape(&path.to_string_lossy()))
    });
    let _ = writeln!(
        out,
        "<tr><td colspan=\"4\"><p>{rule}</p><p>Found: {}</p>{capture}<details open><summary>Packets (-&gt; from the suite, \
         &lt;- from the device)</summary><pre>{}</pre></details></td></tr>",
        escape(found),
        escape(&Results::packets(report, 400).join("\n"))
    );
}

fn class(name: &str) -> &str {
    name.split(' ').next().unwrap_or(name)
}

const STYLE: &str = ":root{color-scheme:light dark;--line:#ddd;--soft:#f6f6f6;--faint:#666;--pass:#d9f2dc;--fail:#f8d2d0;--skip:#fbeec4;--not:#e8e8e8}\
@media(prefers-color-scheme:dark){:root{--line:#3a3a3a;--soft:#222;--faint:#aaa;--pass:#1f4d27;--fail:#6b2421;--skip:#574812;--not:#3a3a3a}}\
body{font:15px/1.4 system-ui,sans-serif;margin:2em auto;max-width:72em;padding:0 1em}\
table{border-collapse:collapse;table-layout:fixed;width:100%}td,th{border-top:1px solid var(--line);padding:.4em .6em;text-align:left;vertical-align:top;overflow-wrap:break-word}th{overflow-wrap:normal}\
col{width:46%}col+col{width:12%}col+col+col{width:33%}col+col+col+col{width:9%}\
pre{background:var(--soft);padding:.6em;overflow:auto;font-size:12px}code{overflow-wrap:anywhere}.summary span{display:inline-block;padding:.2em .6em;border-radius:.3em;margin:0 .4em .4em 0}\
.passed{background:var(--pass)}.failed{background:var(--fail)}.skipped{background:var(--skip)}.not{background:var(--not)}.reason{color:var(--faint)}\
abbr{white-space:nowrap;text-decoration:none;border-bottom:1px dotted var(--faint)}\
@media(max-width:40em){body{margin:1em auto}td,th{padding:.4em .3em}col{width:46%}col+col{width:20%}col+col+col{width:34%}\
col+col+col+col,tr>:nth-child(4){width:0;display:none}}";
