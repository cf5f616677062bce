//! Results as a page in Markdown: figures, targets, and what others published.

use std::fmt::Write;

use metaroce_conformance::sim::metrics::{Outcome, median};
use metaroce_conformance::sim::scenario::Metric;
use metaroce_conformance::sim::units::{ratio, to_f64};

use super::suite::Suite;

/// The report in the making.
#[derive(Debug, Default)]
pub struct Report {
    sections: String,
    missed: Vec<String>,
    targets: usize,
    runs: usize,
    packets: u64,
    cpu_s: f64,
}

impl Report {
    /// Adds a scenario.
    pub fn add(&mut self, suite: &Suite) {
        // Writing into a string does not fail.
        let _ = self.try_add(suite);
    }

    fn try_add(&mut self, suite: &Suite) -> std::fmt::Result {
        let scenario = &suite.scenario;
        let out = &mut self.sections;
        writeln!(out, "\n## {}\n\n{}.\n", scenario.name, scenario.about)?;
        writeln!(
            out,
            "| case | goodput | min–max | × ideal | sent again | by timeout | spurious | Jain | longest queue | overflow |"
        )?;
        writeln!(out, "|---|---|---|---|---|---|---|---|---|---|")?;
        for (case, result) in scenario.cases.iter().zip(&suite.results) {
            let runs = &result.outcomes;
            let of = |metric: Metric| metric.median(runs);
            let goodputs = || runs.iter().map(|outcome| outcome.goodput);
            let (least, most) = (goodputs().fold(f64::INFINITY, f64::min), goodputs().fold(0.0, f64::max));
            let again = |run: &Outcome| 100.0 * ratio(run.sum.retransmitted, run.sum.packets_sent);
            writeln!(
                out,
                "| {} | {:.4} | {least:.3}–{most:.3} | {:.3} | {:.2} % | {} | {} | {:.4} | {:.0} KiB | {} |",
                case.name,
                of(Metric::Goodput),
                of(Metric::Slowdown),
                median(runs.iter().map(again).collect()),
                of(Metric::ByTimeout),
                of(Metric::Spurious),
                of(Metric::Jain),
                of(Metric::QueuePeakKib),
                of(Metric::Overflowed),
            )?;
            self.runs += runs.len();
            self.packets += runs.iter().map(|run| run.packets).sum::<u64>();
            self.cpu_s += runs.iter().map(|run| run.cpu_s).sum::<f64>();
        }
        let mut rows = String::new();
        for (case, result) in scenario.cases.iter().zip(&suite.results) {
            for (target, verdict) in case.spec.targets.iter().zip(&result.verdicts) {
                self.targets += 1;
                let word = if verdict.pass { "pass" } else { "**FAIL**" };
                let bound = target.bound.as_deref().filter(|_| !verdict.pass).unwrap_or("");
                writeln!(
                    rows,
                    "| {} | {} | {:.4} | {word} | {bound} |",
                    case.name, verdict.target, verdict.figure
                )?;
                if !verdict.pass {
                    let line = format!(
                        "{}, {}: {}, is {:.4}",
                        scenario.name, case.name, verdict.target, verdict.figure
                    );
                    self.missed.push(line);
                }
            }
            for outcome in result.outcomes.iter().filter(|outcome| !outcome.faults.is_empty()) {
                let line = format!(
                    "{}, {}, seed {}: {}",
                    scenario.name,
                    case.name,
                    outcome.seed,
                    outcome.faults.join("; ")
                );
                self.missed.push(line);
            }
        }
        if !rows.is_empty() {
            writeln!(
                out,
                "\n| case | target | figure | result | bound or cause |\n|---|---|---|---|---|\n{}",
                rows.trim_end()
            )?;
        }
        if !scenario.published.is_empty() {
            writeln!(out, "\nPublished by others (their settings differ; none was measured here):\n")?;
            for line in &scenario.published {
                writeln!(out, "* {line}")?;
            }
        }
        writeln!(out, "\n`cargo run --release -p metaroce-conformance -- sim {} --seeds 5`", scenario.name)
    }

    /// The whole page.
    pub fn text(&self, seeds: &[u64]) -> String {
        let mut text = format!(
            "# Results\n\nWritten by `sim all --seeds {} --report FILE`: medians over {} seeds (baselines: one) of a deterministic \
             simulation; nothing here is edited by hand. {} of {} targets are reached. {} runs, {:.1} million packets, \
             {:.0} thousand packets per second of one core.\n",
            seeds.len(),
            seeds.len(),
            self.targets.saturating_sub(self.missed.len()),
            self.targets,
            self.runs,
            to_f64(self.packets) / 1e6,
            to_f64(self.packets) / self.cpu_s.max(1e-9) / 1e3,
        );
        if !self.missed.is_empty() {
            text.push_str("\nNot reached, or not right:\n\n");
            for line in &self.missed {
                let _ = writeln!(text, "* {line}");
            }
        }
        text.push_str(&self.sections);
        text
    }
}
