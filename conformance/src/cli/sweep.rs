//! `sweep`: how far figures move when one thing is varied at a time.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use metaroce_conformance::sim::scenario::{Metric, Spec};
use metaroce_conformance::sim::{Case, Scenario};
use serde_json::json;

use super::suite::Suite;
use super::{find, plot, tables};

#[derive(Debug, Args)]
pub struct Arguments {
    /// Names of scenarios, or paths of TOML files; the first case that is not a baseline is varied.
    #[arg(default_values_t = [String::from("p2p-loss"), String::from("incast-15"), String::from("ring-16")])]
    scenarios: Vec<String>,
    /// The case of that name instead.
    #[arg(long)]
    case: Option<String>,
    /// Runs at a time; as many as there are cores if absent.
    #[arg(long)]
    jobs: Option<usize>,
    /// Only the longest and the shortest of each range.
    #[arg(long)]
    short: bool,
    /// Print JSON instead of tables.
    #[arg(long)]
    json: bool,
    /// Write a plot for each thing that is varied into this directory.
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
}

/// What is varied.
struct Knob {
    name: &'static str,
    values: &'static [f64],
    set: fn(&mut Spec, f64),
}

/// A transfer keeps its number of bandwidth-delay products, so that start and end weigh the same everywhere; within
/// what one run may cost.
fn keep_length(spec: &mut Spec, before: f64) {
    let after = spec.fabric.gbps * spec.fabric.rtt_us;
    spec.workload.mib = (spec.workload.mib * after / before).clamp(1.0, 4_096.0);
    spec.workload.message_kib = (spec.workload.message_kib * after / before).clamp(16.0, 65_536.0);
    spec.limit_ms =
        spec.limit_ms.max(spec.fabric.rtt_us * 2.0) + 8.0 * spec.workload.mib * 8.4 / spec.fabric.gbps * 16.0;
}

const KNOBS: &[Knob] = &[
    Knob {
        name: "rate, Gb/s",
        values: &[10.0, 40.0, 100.0, 200.0, 400.0, 800.0, 1_600.0],
        set: |spec, value| {
            let before = spec.fabric.gbps * spec.fabric.rtt_us;
            spec.fabric.gbps = value;
            keep_length(spec, before);
        },
    },
    Knob {
        name: "RTT, µs",
        values: &[2.0, 5.0, 10.0, 50.0, 200.0, 1_000.0, 10_000.0, 50_000.0],
        set: |spec, value| {
            let before = spec.fabric.gbps * spec.fabric.rtt_us;
            // Long RTTs at a lower rate: the product is what costs.
            spec.fabric.gbps = spec.fabric.gbps.min(80_000.0 / value).max(2.0);
            spec.fabric.rtt_us = value;
            keep_length(spec, before);
        },
    },
    Knob {
        name: "MTU, bytes",
        values: &[1_232.0, 1_452.0, 4_176.0, 8_952.0],
        set: |spec, value| spec.transport.mtu_bytes = to_u16(value),
    },
    Knob {
        name: "paths",
        values: &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0],
        set: |spec, value| spec.transport.paths = u8::try_from(to_u16(value)).unwrap_or(u8::MAX),
    },
];

fn to_u16(value: f64) -> u16 {
    u16::try_from(metaroce_conformance::sim::units::from_f64(value)).unwrap_or(u16::MAX)
}

/// Seeds that stand for the variation by chance.
const SEEDS: [u64; 5] = [1, 2, 3, 4, 5];

/// Returns whether all runs were right; there are no targets.
pub fn run(arguments: &Arguments) -> anyhow::Result<bool> {
    let mut documents = Vec::new();
    let mut right = true;
    for name in &arguments.scenarios {
        let scenario = find(name)?.into_iter().next().context("no such scenario")?;
        let wanted = |case: &&Case| arguments.case.as_ref().is_none_or(|name| case.name == *name);
        let case = scenario.cases.iter().find(wanted).cloned().context("no such case")?;
        let mut varied = Vec::new();
        for knob in KNOBS {
            let suite = Suite::run(vary(&scenario, &case, knob, arguments.short), &[1], arguments.jobs)?;
            if let Some(directory) = &arguments.svg {
                plot::write_sweep(&suite, knob.name, directory)?;
            }
            varied.push((knob.name, suite));
        }
        let mut alone = scenario.clone();
        alone.cases = vec![case];
        for spec in alone.cases.iter_mut().map(|case| &mut case.spec) {
            spec.targets.clear();
        }
        varied.push(("seed", Suite::run(alone, &SEEDS, arguments.jobs)?));
        right &= varied.iter().all(|(_, suite)| suite.reached());
        if arguments.json {
            documents.push(json!({
                "scenario": scenario.name,
                "moves": varied.iter().map(|(name, suite)| json!({ "varied": name, "points": points(suite) })).collect::<Vec<_>>(),
            }));
        } else {
            say!("{}: {}", scenario.name, scenario.about);
            tables::print_sweep(
                &varied.iter().map(|(name, suite)| (*name, points(suite))).collect::<Vec<_>>(),
            );
        }
    }
    if arguments.json {
        say!("{}", serde_json::to_string_pretty(&documents)?);
    }
    Ok(right)
}

fn vary(scenario: &Scenario, case: &Case, knob: &Knob, short: bool) -> Scenario {
    let ends = [knob.values.first(), knob.values.last()].into_iter().flatten().copied().collect::<Vec<f64>>();
    let values = if short { ends } else { knob.values.to_vec() };
    let cases = values.into_iter().map(|value| {
        let mut spec = case.spec.clone();
        (knob.set)(&mut spec, value);
        spec.x = Some(value);
        spec.targets.clear();
        Case { name: format!("{value}"), spec }
    });
    Scenario { cases: cases.collect(), ..scenario.clone() }
}

/// One point: what was varied, and the figures.
#[derive(Debug, serde::Serialize)]
pub struct Point {
    /// Its value; the seed where that is varied.
    pub value: f64,
    /// Goodput.
    pub goodput: f64,
    /// Time ÷ ideal time.
    pub slowdown: f64,
    /// Longest queue, KiB.
    pub queue_kib: f64,
    /// Packets declared lost that had arrived.
    pub spurious: f64,
    /// What was not right.
    pub wrong: Vec<String>,
}

fn points(suite: &Suite) -> Vec<Point> {
    let cases = suite.scenario.cases.iter().zip(&suite.results);
    cases
        .flat_map(|(case, result)| result.outcomes.iter().map(move |outcome| (case.spec.x, outcome)))
        .map(|(x, outcome)| Point {
            value: if suite.scenario.cases.len() > 1 {
                x.unwrap_or(0.0)
            } else {
                metaroce_conformance::sim::units::to_f64(outcome.seed)
            },
            goodput: Metric::Goodput.of(outcome),
            slowdown: Metric::Slowdown.of(outcome),
            queue_kib: Metric::QueuePeakKib.of(outcome),
            spurious: Metric::Spurious.of(outcome),
            wrong: outcome.faults.clone(),
        })
        .collect()
}
