//! Results for people.

use comfy_table::{CellAlignment, LineStyle, Table, presets};
use metaroce_conformance::sim::Scenario;
use metaroce_conformance::sim::metrics::{Outcome, median};
use metaroce_conformance::sim::scenario::Metric;
use metaroce_conformance::sim::units::{US, ratio, to_f64};

use super::suite::Suite;
use super::sweep::Point;

/// Names, what they are about, cases.
pub fn print_list(scenarios: &[Scenario]) {
    let mut table = table(&["scenario", "about", "cases"]);
    for scenario in scenarios {
        let cases: Vec<&str> = scenario.cases.iter().map(|case| case.name.as_str()).collect();
        table.add_row([scenario.name.as_str(), &scenario.about, &cases.join(", ")]);
    }
    say!("{table}");
}

/// The figures of a scenario, its targets, and what went wrong.
pub fn print_suite(suite: &Suite) {
    say!("{}: {}", suite.scenario.name, suite.scenario.about);
    say!("{}", figures(suite));
    let mut targets = table(&["case", "target", "figure", "result"]);
    for (case, result) in suite.scenario.cases.iter().zip(&suite.results) {
        for verdict in &result.verdicts {
            let word = if verdict.pass { "pass" } else { "FAIL" };
            targets.add_row([case.name.as_str(), &verdict.target, &format!("{:.4}", verdict.figure), word]);
        }
    }
    if targets.row_count() > 0 {
        say!("{targets}");
    }
    for (case, result) in suite.scenario.cases.iter().zip(&suite.results) {
        for outcome in &result.outcomes {
            for fault in outcome.faults.iter().take(5) {
                say!("WRONG, case {}, seed {}: {fault}", case.name, outcome.seed);
            }
        }
    }
    for (case, result) in suite.scenario.cases.iter().zip(&suite.results) {
        if result.outcomes.iter().any(|outcome| !outcome.latencies_ps.is_empty()) {
            let of = |metric: Metric| metric.median(&result.outcomes);
            let (p50_us, p99_us) = (of(Metric::P50Us), of(Metric::P99Us));
            say!("latency, case {}: median {p50_us:.2} µs, 99 % {p99_us:.2} µs", case.name);
        }
    }
    let runs = || suite.results.iter().flat_map(|result| &result.outcomes);
    let cpu_s: f64 = runs().map(|outcome| outcome.cpu_s).sum();
    let packets = runs().map(|outcome| outcome.packets).sum::<u64>();
    let hops = runs().map(|outcome| outcome.hops).sum::<u64>();
    say!(
        "{packets} packets over {hops} links in {cpu_s:.1} s of one core: {:.0} thousand packets per second\n",
        to_f64(packets) / cpu_s.max(1e-9) / 1e3
    );
}

fn figures(suite: &Suite) -> Table {
    let mut table = table(&[
        "case",
        "goodput",
        "min–max",
        "time µs",
        "× ideal",
        "again %",
        "by timeout",
        "spurious",
        "Jain",
        "queue KiB",
        "overflow",
        "marked %",
    ]);
    for (case, result) in suite.scenario.cases.iter().zip(&suite.results) {
        let runs = &result.outcomes;
        let of = |metric: Metric| metric.median(runs);
        let over = |figure: fn(&Outcome) -> f64| median(runs.iter().map(figure).collect());
        let goodputs = || runs.iter().map(|outcome| outcome.goodput);
        let (least, most) = (goodputs().fold(f64::INFINITY, f64::min), goodputs().fold(0.0, f64::max));
        table.add_row([
            case.name.clone(),
            format!("{:.4}", of(Metric::Goodput)),
            format!("{least:.3}–{most:.3}"),
            format!("{:.0}", over(|outcome| ratio(outcome.time_ps, US))),
            format!("{:.3}", of(Metric::Slowdown)),
            format!("{:.2}", over(|run| 100.0 * ratio(run.sum.retransmitted, run.sum.packets_sent))),
            format!("{}", of(Metric::ByTimeout)),
            format!("{}", of(Metric::Spurious)),
            format!("{:.4}", of(Metric::Jain)),
            format!("{:.0}", of(Metric::QueuePeakKib)),
            format!("{}", of(Metric::Overflowed)),
            format!("{:.2}", over(|run| 100.0 * ratio(run.sum.marked, run.sum.packets_sent))),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Each flow of a run.
pub fn print_flows(outcome: &Outcome) {
    let mut table = table(&[
        "from",
        "to",
        "MiB",
        "time µs",
        "Gb/s",
        "packets",
        "again",
        "by timeout",
        "spurious",
        "window KiB",
    ]);
    for flow in outcome.flows.iter().take(64) {
        table.add_row([
            flow.from.to_string(),
            flow.to.to_string(),
            format!("{:.2}", ratio(flow.bytes, 1 << 20)),
            format!("{:.1}", ratio(flow.time_ps, US)),
            format!("{:.1}", 8_000.0 * ratio(flow.bytes, flow.time_ps)),
            flow.stats.packets_sent.to_string(),
            flow.stats.retransmitted.to_string(),
            flow.stats.retransmitted_by_timeout.to_string(),
            flow.stats.spurious.to_string(),
            format!("{:.0}", ratio(flow.stats.window_bytes, 1 << 10)),
        ]);
    }
    say!("{table}");
}

/// How far figures move with each thing that was varied.
pub fn print_sweep(varied: &[(&str, Vec<Point>)]) {
    let mut rows =
        table(&["varied", "goodput", "× ideal", "queue KiB", "spurious", "at each value: goodput"]);
    for (name, points) in varied {
        let span = |figure: fn(&Point) -> f64| {
            let least = points.iter().map(figure).fold(f64::INFINITY, f64::min);
            let most = points.iter().map(figure).fold(0.0, f64::max);
            (least, most)
        };
        let three = |(least, most): (f64, f64)| format!("{least:.3}–{most:.3}");
        let whole = |(least, most): (f64, f64)| format!("{least:.0}–{most:.0}");
        let each: Vec<String> =
            points.iter().map(|point| format!("{}: {:.3}", point.value, point.goodput)).collect();
        rows.add_row([
            (*name).to_owned(),
            three(span(|point| point.goodput)),
            three(span(|point| point.slowdown)),
            whole(span(|point| point.queue_kib)),
            whole(span(|point| point.spurious)),
            each.join(", "),
        ]);
    }
    say!("{rows}");
    for (name, points) in varied {
        for point in points.iter().filter(|point| !point.wrong.is_empty()) {
            say!("WRONG, {name} {}: {}", point.value, point.wrong.join("; "));
        }
    }
    say!();
}

fn table(heads: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING.header_separator(LineStyle::none().fill('─').junction('─')))
        .set_header(heads.iter().copied());
    table
}
