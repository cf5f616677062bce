//! Medians and ratios.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::worker::Scenario;

/// What one worker told.
pub(crate) struct Sample {
    pub(crate) values: Value,
    /// System calls of its whole process, by the kernel's tracepoint.
    pub(crate) traced_calls: Option<f64>,
}

/// All runs of one scenario on one backend.
pub(crate) struct Series {
    pub(crate) scenario: Scenario,
    pub(crate) backend: &'static str,
    pub(crate) samples: Vec<Sample>,
    /// Runs in which the kernel counted system calls: one that transferred nothing, and one like the others.
    pub(crate) counts: Option<(Sample, Sample)>,
}

/// A figure of a series: median, least, most.
#[derive(Clone, Copy)]
struct Figure {
    median: f64,
    least: f64,
    most: f64,
}

impl Sample {
    pub(crate) fn number(&self, name: &str) -> f64 {
        self.values.get(name).and_then(Value::as_f64).unwrap_or(f64::NAN)
    }

    /// What the counts are divided by: MiB, messages or round trips.
    fn units(&self, scenario: Scenario) -> f64 {
        match scenario {
            Scenario::Bulk { .. } => self.number("bytes") / f64::from(1 << 20),
            Scenario::Small | Scenario::Latency => self.number("amount"),
        }
    }
}

impl Series {
    fn figure(&self, of: impl Fn(&Sample) -> f64) -> Figure {
        let mut values: Vec<f64> = self.samples.iter().map(of).collect();
        values.sort_unstable_by(f64::total_cmp);
        let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
        Figure { median: at(values.len() / 2), least: at(0), most: at(values.len().saturating_sub(1)) }
    }

    /// Gbit/s, messages per second, or microseconds of a round trip.
    fn speed(&self) -> Figure {
        match self.scenario {
            Scenario::Bulk { .. } => {
                self.figure(|sample| sample.number("bytes") * 8e-9 / sample.number("seconds"))
            }
            Scenario::Small => self.figure(|sample| sample.number("amount") / sample.number("seconds")),
            Scenario::Latency => self.figure(|sample| sample.number("p50_us")),
        }
    }

    /// Microseconds of processor time per unit.
    fn cpu(&self) -> Figure {
        self.figure(|sample| sample.number("cpu_seconds") * 1e6 / sample.units(self.scenario))
    }

    /// System calls per unit, as the drivers count.
    fn calls(&self) -> Figure {
        self.figure(|sample| sample.number("system_calls") / sample.units(self.scenario))
    }

    /// System calls per unit, as the kernel counts.
    fn traced(&self) -> f64 {
        let calls = self.counts.as_ref().and_then(|(setup, whole)| {
            Some((whole.traced_calls? - setup.traced_calls?) / whole.units(self.scenario))
        });
        calls.unwrap_or(f64::NAN)
    }

    fn datagrams_per_call(&self) -> Figure {
        self.figure(|sample| sample.number("datagrams") / sample.number("system_calls"))
    }
}

/// A line for each series, with the ratio to mio where there is one.
pub(crate) fn table(series: &[Series]) -> String {
    let mut text = String::from(
        "| what | backend | speed: median [least..most] | CPU us per unit | system calls per unit | by tracepoint | datagrams per call |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for pair in series.chunks(2) {
        for one in pair {
            let unit = match one.scenario {
                Scenario::Bulk { .. } => "Gbit/s, unit MiB",
                Scenario::Small => "messages/s, unit message",
                Scenario::Latency => "us p50, unit round trip",
            };
            let (speed, calls) = (one.speed(), one.calls());
            let _ = writeln!(
                text,
                "| {}, {unit} | {} | {} [{}..{}] | {} | {} | {} | {} |",
                one.scenario.name(),
                one.backend,
                short(speed.median),
                short(speed.least),
                short(speed.most),
                short(one.cpu().median),
                short(calls.median),
                short(one.traced()),
                short(one.datagrams_per_call().median),
            );
        }
        if let [mio, uring] = pair {
            let ratio = |of: fn(&Series) -> f64| short(of(uring) / of(mio));
            let _ = writeln!(
                text,
                "| {} | uring / mio | {} | {} | {} | {} | |",
                mio.scenario.name(),
                ratio(|series| series.speed().median),
                ratio(|series| series.cpu().median),
                ratio(|series| series.calls().median),
                ratio(Series::traced),
            );
        }
    }
    text
}

/// All of it.
pub(crate) fn json(series: &[Series]) -> Value {
    let figure =
        |figure: Figure| json!({ "median": figure.median, "least": figure.least, "most": figure.most });
    let one = |series: &Series| {
        json!({
            "scenario": series.scenario.name(),
            "backend": series.backend,
            "runs": series.samples.len(),
            "speed": figure(series.speed()),
            "cpu_us_per_unit": figure(series.cpu()),
            "system_calls_per_unit": figure(series.calls()),
            "system_calls_per_unit_by_tracepoint": series.traced(),
            "datagrams_per_call": figure(series.datagrams_per_call()),
            "samples": series.samples.iter().map(|sample| &sample.values).collect::<Vec<_>>(),
        })
    };
    Value::Array(series.iter().map(one).collect())
}

/// Three significant digits.
fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}
