//! Compares this backend with the one on mio, in one run: goodput, messages per second, latency, processor time, system
//! calls. Prints a table, and with `json=true` one JSON object.
//!
//! `cargo run --release -p metaroce-uring --example compare -- [rounds=5] [mib=512] [messages=100000] [pings=2000]
//! [loss=0] [paths=8] [json=false] [only=bulk-1m]`
//!
//! Each measurement is a process of its own: two drivers on two threads over loopback. The backends take turns, so that
//! both meet the same noise. System calls are counted by the drivers; where `perf` may count the kernel's tracepoint
//! `raw_syscalls:sys_enter`, also by that, less those of a run that transfers nothing: in runs of their own, since being
//! counted slows a system call down.
#![cfg(target_os = "linux")]
#![expect(clippy::expect_used, clippy::panic, reason = "an example ends at the first thing that goes wrong")]

mod report;
mod worker;

use std::collections::HashMap;
use std::process::Command;

use serde_json::Value;

use report::{Sample, Series};
use worker::Scenario;

fn main() {
    let options = Options::parse();
    if let Some(backend) = options.given.get("worker") {
        println!("{}", worker::run(backend, &options));
        return;
    }
    if let Err(error) = metaroce_uring::check() {
        println!("skipped: {error}");
        return;
    }
    let traced = perf_counts();
    if !traced {
        eprintln!("perf can't count system calls here (root is needed): only the drivers' own counts");
    }
    let mut series = Vec::new();
    for scenario in Scenario::ALL.into_iter().filter(|scenario| options.wants(*scenario)) {
        let amount = options.amount(scenario);
        let counted = |backend, amount| traced.then(|| measure(&options, scenario, backend, amount, true));
        let counts = BACKENDS.map(|backend| counted(backend, 0).zip(counted(backend, amount)));
        let mut samples = BACKENDS.map(|_| Vec::new());
        for round in 0..options.number("rounds", 5) {
            for (backend, samples) in BACKENDS.iter().zip(&mut samples) {
                let sample = measure(&options, scenario, backend, amount, false);
                eprintln!("{} {backend} {round}: {:.3} s", scenario.name(), sample.number("seconds"));
                samples.push(sample);
            }
        }
        for ((backend, samples), counts) in BACKENDS.into_iter().zip(samples).zip(counts) {
            series.push(Series { scenario, backend, samples, counts });
        }
    }
    if options.given.get("json").is_some_and(|given| given == "true") {
        println!("{}", report::json(&series));
    } else {
        println!("{}", report::table(&series));
    }
}

/// One run in a process of its own.
fn measure(options: &Options, scenario: Scenario, backend: &str, amount: u64, traced: bool) -> Sample {
    let program = std::env::current_exe().expect("the path of this program");
    let counts = std::env::temp_dir().join(format!("metaroce-compare-{}", std::process::id()));
    let mut command = if traced {
        let mut command = Command::new("perf");
        command.args(["stat", "-x", ",", "-e", TRACEPOINT, "-o"]).arg(&counts).arg("--").arg(program);
        command
    } else {
        Command::new(program)
    };
    command.arg(format!("worker={backend}")).arg(format!("scenario={}", scenario.name()));
    command.arg(format!("amount={amount}"));
    for name in ["loss", "paths", "spin", "sqpoll", "buffers", "submit"] {
        command.args(options.given.get(name).map(|value| format!("{name}={value}")));
    }
    let output = command.output().expect("the worker ran");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let values: Value = serde_json::from_slice(&output.stdout).expect("the worker's JSON");
    let traced_calls = traced.then(|| {
        let text = std::fs::read_to_string(&counts).expect("the counts of perf");
        let line = text.lines().find(|line| line.contains(TRACEPOINT)).expect("a line for the tracepoint");
        line.split(',').next().and_then(|number| number.parse().ok()).expect("a number")
    });
    let _ = std::fs::remove_file(&counts);
    Sample { values, traced_calls }
}

fn perf_counts() -> bool {
    let probe = Command::new("perf").args(["stat", "-x", ",", "-e", TRACEPOINT, "--", "true"]).output();
    probe.is_ok_and(|output| {
        output.status.success() && !String::from_utf8_lossy(&output.stderr).contains("not supported")
    })
}

/// `name=value` arguments.
pub(crate) struct Options {
    given: HashMap<String, String>,
}

impl Options {
    fn parse() -> Self {
        let pairs = std::env::args().skip(1).filter_map(|argument| {
            argument.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()))
        });
        Self { given: pairs.collect() }
    }

    pub(crate) fn text(&self, name: &str, default: &str) -> String {
        self.given.get(name).cloned().unwrap_or_else(|| default.to_owned())
    }

    pub(crate) fn number(&self, name: &str, default: u64) -> u64 {
        self.given.get(name).map_or(default, |text| text.parse().expect("a number"))
    }

    fn wants(&self, scenario: Scenario) -> bool {
        self.given.get("only").is_none_or(|only| only.split(',').any(|name| name == scenario.name()))
    }

    fn amount(&self, scenario: Scenario) -> u64 {
        match scenario {
            Scenario::Bulk { .. } => self.number("mib", 512),
            Scenario::Small => self.number("messages", 100_000),
            Scenario::Latency => self.number("pings", 2000),
        }
    }
}

const BACKENDS: [&str; 2] = ["mio", "uring"];
const TRACEPOINT: &str = "raw_syscalls:sys_enter";
