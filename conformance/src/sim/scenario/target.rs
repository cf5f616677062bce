//! Figures, and what they must reach.

use serde::{Deserialize, Serialize};

use crate::sim::metrics::{Outcome, median};
use crate::sim::units::{MS, US, from_f64, ratio, to_f64};

/// A figure of a run.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Payload rate ÷ payload rate of a full line.
    Goodput,
    /// Time ÷ ideal time.
    Slowdown,
    /// Jain's index over the goodputs of flows.
    Jain,
    /// Median of Jain's index over allowed rates, from 3 RTTs on.
    JainAllowed,
    /// RTTs until every allowed rate stays within 10 % of its fair part.
    SettledRtts,
    /// Packets declared lost by the gap or time rule that had arrived.
    Spurious,
    /// Packets sent again by a timeout.
    ByTimeout,
    /// Packets dropped by full queues.
    Overflowed,
    /// Longest queue, KiB.
    QueuePeakKib,
    /// Median latency of a message, µs.
    P50Us,
    /// 99th percentile of the latency of messages, µs.
    P99Us,
    /// The least rate of a bin between two samples, as `goodput`; within `from_us` and `to_us` of the target.
    LeastBin,
    /// From `from_us` to the end of the first bin of at least `level`, ms; infinite if there is none.
    RegainedMs,
    /// Goodput ÷ what messages that are outstanding one after the other allow at most.
    GoodputClosed,
    /// Longest time of a flow whose receiver hears from nobody else ÷ the least that it could be.
    InnocentSlowdown,
}

/// The part of a run that a figure is about, ps after the start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// Its start.
    pub from_ps: u64,
    /// Its end.
    pub to_ps: u64,
    /// A level, for figures that want one.
    pub level: f64,
}

impl Span {
    /// All of it.
    pub const ALL: Self = Self { from_ps: 0, to_ps: u64::MAX, level: 0.0 };
}

impl Metric {
    /// The figure of one run.
    #[must_use]
    pub fn of(self, outcome: &Outcome) -> f64 {
        self.of_span(outcome, &Span::ALL)
    }

    /// The figure of a part of a run, if it is of a kind that looks at samples; else of all.
    #[must_use]
    pub fn of_span(self, outcome: &Outcome, span: &Span) -> f64 {
        match self {
            Self::Goodput if *span != Span::ALL => outcome.goodput_between(span.from_ps, span.to_ps),
            Self::GoodputClosed => Self::Goodput.of_span(outcome, span) / outcome.closed_loop.max(1e-9),
            Self::LeastBin => outcome.least_bin(span.from_ps, span.to_ps),
            Self::RegainedMs => {
                outcome.regained_ps(span.from_ps, span.level).map_or(f64::INFINITY, |at_ps| ratio(at_ps, MS))
            }
            Self::InnocentSlowdown => outcome.innocent_slowdown(),
            Self::Goodput => outcome.goodput,
            Self::Slowdown => outcome.slowdown(),
            Self::Jain => outcome.jain(),
            Self::JainAllowed => outcome.jain_allowed(3),
            Self::SettledRtts => outcome.settled_rtts(),
            Self::Spurious => to_f64(outcome.sum.spurious),
            Self::ByTimeout => to_f64(outcome.sum.retransmitted_by_timeout),
            Self::Overflowed => to_f64(outcome.overflowed),
            Self::QueuePeakKib => to_f64(outcome.queue_peak_bytes) / 1024.0,
            Self::P50Us => outcome.latency_us(50),
            Self::P99Us => outcome.latency_us(99),
        }
    }

    /// Its name, as scenarios write it.
    #[must_use]
    pub fn name(self) -> String {
        serde_json::to_value(self).ok().and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
    }

    /// The median over runs.
    #[must_use]
    pub fn median(self, outcomes: &[Outcome]) -> f64 {
        median(outcomes.iter().map(|outcome| self.of(outcome)).collect())
    }
}

/// What a figure must reach.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// The figure.
    pub metric: Metric,
    /// At least this.
    pub at_least: Option<f64>,
    /// At most this.
    pub at_most: Option<f64>,
    /// The figure is divided by that of this case of the same scenario.
    pub relative_to: Option<String>,
    /// It is about the part of the run from then on, µs.
    pub from_us: Option<f64>,
    /// Until then, µs.
    pub to_us: Option<f64>,
    /// The level of `regained_ms`.
    #[serde(default)]
    pub level: f64,
    /// Why it can't be reached as it is, for reports.
    pub bound: Option<String>,
}

/// A target, and what came of it.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// The target in words.
    pub target: String,
    /// The figure: the median over seeds.
    pub figure: f64,
    /// Reached.
    pub pass: bool,
}

impl Target {
    /// Judges the runs of a case; `others` gives the runs of a case by name.
    pub fn judge<'a>(&self, outcomes: &[Outcome], others: impl Fn(&str) -> Option<&'a [Outcome]>) -> Verdict {
        let median = |outcomes: &[Outcome]| {
            let span = self.span();
            median(outcomes.iter().map(|outcome| self.metric.of_span(outcome, &span)).collect())
        };
        let mut figure = median(outcomes);
        let mut known = true;
        if let Some(name) = &self.relative_to {
            let base = others(name).map(median);
            known = base.is_some_and(|base| base != 0.0);
            figure /= base.unwrap_or(f64::NAN);
        }
        let right = outcomes.iter().all(|outcome| outcome.faults.is_empty());
        let reached = self.at_least.is_none_or(|least| figure >= least)
            && self.at_most.is_none_or(|most| figure <= most);
        Verdict { target: self.words(), figure, pass: known && right && reached }
    }

    fn span(&self) -> Span {
        let at = |us: Option<f64>, absent: u64| us.map_or(absent, |us| from_f64(us * to_f64(US)));
        Span { from_ps: at(self.from_us, 0), to_ps: at(self.to_us, u64::MAX), level: self.level }
    }

    fn words(&self) -> String {
        let mut words = self.metric.name();
        let parts = [
            (self.level > 0.0).then(|| format!(" of {}", self.level)),
            self.from_us.map(|us| format!(" from {us} µs")),
            self.to_us.map(|us| format!(" to {us} µs")),
            self.relative_to.as_ref().map(|name| format!(" / that of {name}")),
            self.at_least.map(|least| format!(" ≥ {least}")),
            self.at_most.map(|most| format!(" ≤ {most}")),
        ];
        words.extend(parts.into_iter().flatten());
        words
    }
}
