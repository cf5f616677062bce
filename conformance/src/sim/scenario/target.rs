//! Figures, and what they must reach.

use serde::{Deserialize, Serialize};

use crate::sim::metrics::{Outcome, median};
use crate::sim::units::to_f64;

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
}

impl Metric {
    /// The figure of one run.
    #[must_use]
    pub fn of(self, outcome: &Outcome) -> f64 {
        match self {
            Self::Goodput => outcome.goodput,
            Self::Slowdown => outcome.slowdown(),
            Self::Jain => outcome.jain(),
            Self::JainAllowed => outcome.jain_allowed(3),
            Self::SettledRtts => outcome.settled_rtts(0.1),
            Self::Spurious => to_f64(outcome.sum.spurious),
            Self::ByTimeout => to_f64(outcome.sum.retransmitted_by_timeout),
            Self::Overflowed => to_f64(outcome.overflowed),
            Self::QueuePeakKib => to_f64(outcome.queue_peak_bytes) / 1024.0,
            Self::P50Us => outcome.latency_us(50),
            Self::P99Us => outcome.latency_us(99),
        }
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
        let mut figure = self.metric.median(outcomes);
        let mut known = true;
        if let Some(name) = &self.relative_to {
            let base = others(name).map(|outcomes| self.metric.median(outcomes));
            known = base.is_some_and(|base| base != 0.0);
            figure /= base.unwrap_or(f64::NAN);
        }
        let right = outcomes.iter().all(|outcome| outcome.faults.is_empty());
        let reached = self.at_least.is_none_or(|least| figure >= least)
            && self.at_most.is_none_or(|most| figure <= most);
        Verdict { target: self.words(), figure, pass: known && right && reached }
    }

    fn words(&self) -> String {
        let mut words = format!("{:?}", self.metric).to_lowercase();
        let parts = [
            self.relative_to.as_ref().map(|name| format!(" / that of {name}")),
            self.at_least.map(|least| format!(" ≥ {least}")),
            self.at_most.map(|most| format!(" ≤ {most}")),
        ];
        words.extend(parts.into_iter().flatten());
        words
    }
}
