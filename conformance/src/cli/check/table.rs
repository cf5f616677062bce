//! The results for people at a terminal.

use std::collections::BTreeMap;

use comfy_table::{LineStyle, Table, presets};
use metaroce_conformance::suite::{self, ALWAYS, Report, Verdict};

use super::Results;

/// The cases, a line each; then what failed, in full; then the counts.
pub(super) fn print(results: &Results) {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING.header_separator(LineStyle::none().fill('─').junction('─')))
        .set_header(["case", "profile", "result", "datagrams", "s"]);
    for report in &results.reports {
        let result = match &report.verdict {
            Verdict::Passed => "passed".to_owned(),
            Verdict::Failed { requirement, .. } => format!("FAILED {requirement}"),
            Verdict::Broken(_) => "FAILED, broken off".to_owned(),
            Verdict::Skipped(reason) => format!("skipped: {reason}"),
            Verdict::NotApplicable(reason) => format!("not applicable: {reason}"),
        };
        table.add_row([
            report.case.name.to_owned(),
            report.case.profile.name().to_owned(),
            result,
            report.record.len().to_string(),
            format!("{:.2}", report.duration.as_secs_f64()),
        ]);
    }
    say!("{table}");
    for report in &results.reports {
        print_failure(results, report);
    }
    say!("{}", results.device);
    let (judged, failed) = requirements(results);
    say!(
        "{} passed, {} failed, {} skipped, {} not applicable; {judged} requirements judged, {failed} broken",
        results.count("passed"),
        results.count("failed"),
        results.count("skipped"),
        results.count("not applicable")
    );
}

fn print_failure(results: &Results, report: &Report) {
    let (rule, found) = match &report.verdict {
        Verdict::Failed { requirement, text } => {
            (format!("{requirement}: {}", results.sentence(requirement)), text)
        }
        Verdict::Broken(reason) => ("the case could not go on".to_owned(), reason),
        Verdict::Passed | Verdict::Skipped(_) | Verdict::NotApplicable(_) => return,
    };
    say!("\n{}: {}", report.case.name, report.case.about);
    say!("  {rule}");
    say!("  found: {found}");
    if let Some(path) = results.captures.get(report.case.name) {
        say!("  capture: {}", path.display());
    }
    say!("  the last packets, -> from the suite, <- from the device, with the source port:");
    for line in Results::packets(report, 24) {
        say!("  {line}");
    }
    say!();
}

/// How many requirements were judged by a case that ran, and how many were broken.
fn requirements(results: &Results) -> (usize, usize) {
    let mut judged: BTreeMap<&str, bool> = BTreeMap::new();
    for report in &results.reports {
        match &report.verdict {
            Verdict::Passed => {
                for id in report.case.requirements.iter().chain(&ALWAYS) {
                    judged.entry(id).or_insert(false);
                }
            }
            Verdict::Failed { requirement, .. } => {
                judged.insert(requirement, true);
            }
            _ => {}
        }
    }
    (judged.len(), judged.values().filter(|broken| **broken).count())
}

/// What there is to run.
pub(super) fn print_list() {
    for case in suite::all_cases() {
        say!("{} ({}): {}", case.name, case.profile.name(), case.about);
        say!("    {}", case.requirements.join(" "));
    }
    say!("every case: {}", ALWAYS.join(" "));
    say!("\nseeded faults, and what they break:");
    for fault in suite::faults::all() {
        say!("{} ({}): {}", fault.name, fault.breaks, fault.about);
    }
}

/// Hunts each seeded fault. Returns whether all were caught.
///
/// # Errors
/// If an endpoint refuses its configuration.
pub(super) fn print_faults(seed: u64) -> anyhow::Result<bool> {
    let faults = suite::faults::all();
    let mut caught = 0;
    for fault in &faults {
        let hunt = suite::faults::hunt(fault, seed).map_err(anyhow::Error::msg)?;
        if let Some(case) = hunt.caught_by {
            caught += 1;
            say!("{} ({}): caught by {case}", fault.name, fault.breaks);
        } else {
            say!("{} ({}): NOT CAUGHT; blamed were {:?}", fault.name, fault.breaks, hunt.others);
        }
    }
    say!("{caught} of {} seeded faults were caught by the requirement that they break", faults.len());
    Ok(caught == faults.len())
}
