//! What a run is measured by.

use super::timeline::Flight;
use super::transport::{FlowStats, PathSample};
use super::units::{US, ratio, to_f64};

/// Everything that one run brought.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Seed of the run.
    pub seed: u64,
    /// Whether everything was done before the limit.
    pub done: bool,
    /// Why the data are not right, or why the run could not be; empty if they are.
    pub faults: Vec<String>,
    /// From the start of the workload to its end, ps.
    pub time_ps: u64,
    /// The shortest time possible, ps.
    pub ideal_ps: u64,
    /// Payload bytes delivered.
    pub payload_bytes: u64,
    /// Payload bytes of the whole workload.
    pub full_bytes: u64,
    /// Payload rate ÷ the payload rate of a full line (of all lines that a workload keeps busy).
    pub goodput: f64,
    /// The goodput that messages outstanding a few at a time allow at most; 1 where that is no limit.
    pub closed_loop: f64,
    /// Flows.
    pub flows: Vec<FlowOutcome>,
    /// Sum of the flows' counters.
    pub sum: FlowStats,
    /// Longest queue of any switch port, bytes.
    pub queue_peak_bytes: u64,
    /// Packets dropped since a queue was full.
    pub overflowed: u64,
    /// Packets lost on links.
    pub lost: u64,
    /// Packets marked.
    pub marked: u64,
    /// Packets sent by all hosts.
    pub packets: u64,
    /// Packets that crossed a link.
    pub hops: u64,
    /// Events of the simulator.
    pub events: u64,
    /// Hash over everything that arrived anywhere: equal runs have equal hashes.
    pub hash: u64,
    /// Times from posting to completion, ps, sorted; empty if not kept.
    pub latencies_ps: Vec<u64>,
    /// Curves.
    pub samples: Vec<Sample>,
    /// See [`Self::settled_rtts`], ps.
    pub settled_ps: Option<u64>,
    /// When the workload began, ps of the simulator's clock.
    pub start_ps: u64,
    /// Packets of the first flow, if they were noted.
    pub flights: Vec<Flight>,
    /// Base RTT of the fabric, ps.
    pub rtt_ps: u64,
    /// Time that the run took on this machine, s. Not the same every time.
    pub wall_s: f64,
    /// Time that it had a core for, s; `wall_s` where the system does not tell. Not the same every time either.
    pub cpu_s: f64,
}

/// One flow of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct FlowOutcome {
    /// Sender.
    pub from: u32,
    /// Receiver.
    pub to: u32,
    /// Payload bytes.
    pub bytes: u64,
    /// From the start of the workload to the end of the flow, ps.
    pub time_ps: u64,
    /// Counters since the start of the workload.
    pub stats: FlowStats,
}

/// A look at the run at one time.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// Since the start of the workload, ps.
    pub at_ps: u64,
    /// Payload bytes placed at all hosts since then.
    pub placed_bytes: u64,
    /// Rate that each of the first flows may send at, bit/s.
    pub allowed_bps: Vec<u64>,
    /// Largest distance of any flow's allowed rate from its fair part, as a fraction of that.
    pub unfairness: f64,
    /// Jain's index over allowed rates.
    pub jain: f64,
    /// Paths of the first flow.
    pub paths: Vec<PathSample>,
}

impl Outcome {
    /// Time ÷ ideal time.
    #[must_use]
    pub fn slowdown(&self) -> f64 {
        ratio(self.time_ps, self.ideal_ps)
    }

    /// Rates of the bins between samples, as fractions of the rate at which the ideal time is kept: start and end of
    /// each, ps, and the fraction.
    pub fn bins(&self) -> impl Iterator<Item = (u64, u64, f64)> + '_ {
        let start = Sample::default();
        let full = ratio(self.full_bytes, self.ideal_ps.saturating_sub(self.rtt_ps));
        let mut before = (start.at_ps, start.placed_bytes);
        self.samples.iter().map(move |sample| {
            let (from_ps, placed) = std::mem::replace(&mut before, (sample.at_ps, sample.placed_bytes));
            let rate = ratio(sample.placed_bytes - placed, sample.at_ps - from_ps);
            (from_ps, sample.at_ps, rate / full)
        })
    }

    /// Goodput of the bins that lie between two times, ps.
    #[must_use]
    pub fn goodput_between(&self, from_ps: u64, to_ps: u64) -> f64 {
        let inside = self.bins().filter(|(start_ps, end_ps, _)| *start_ps >= from_ps && *end_ps <= to_ps);
        let (mut span, mut sum) = (0.0, 0.0);
        for (start_ps, end_ps, rate) in inside {
            let length = to_f64(end_ps - start_ps);
            span += length;
            sum += rate * length;
        }
        if span > 0.0 { sum / span } else { 0.0 }
    }

    /// The least rate of a bin between two times, ps; 0 if there is none.
    #[must_use]
    pub fn least_bin(&self, from_ps: u64, to_ps: u64) -> f64 {
        let inside = self.bins().filter(|(start_ps, end_ps, _)| *start_ps >= from_ps && *end_ps <= to_ps);
        let least = inside.map(|(.., rate)| rate).fold(f64::INFINITY, f64::min);
        if least.is_finite() { least } else { 0.0 }
    }

    /// From a time to the end of the first bin after it of at least that rate, ps.
    #[must_use]
    pub fn regained_ps(&self, from_ps: u64, level: f64) -> Option<u64> {
        let mut after = self.bins().filter(|(start_ps, ..)| *start_ps >= from_ps);
        after.find(|(.., rate)| *rate >= level).map(|(_, end_ps, _)| end_ps - from_ps)
    }

    /// The longest time of a flow whose receiver hears from nobody else ÷ the time that all such flows of its sender
    /// need at least; 0 if there is none.
    #[must_use]
    pub fn innocent_slowdown(&self) -> f64 {
        let heard = |to: u32| self.flows.iter().filter(|flow| flow.to == to).count();
        let innocent: Vec<&FlowOutcome> = self.flows.iter().filter(|flow| heard(flow.to) == 1).collect();
        let longest_ps = innocent.iter().map(|flow| flow.time_ps).max().unwrap_or(0);
        let of = |from: u32| innocent.iter().filter(|flow| flow.from == from).map(|flow| flow.bytes).sum();
        let most: u64 = innocent.iter().map(|flow| of(flow.from)).max().unwrap_or(0);
        // The ideal time is that of the busiest line.
        let inbound = |to: u32| self.flows.iter().filter(|flow| flow.to == to).map(|flow| flow.bytes).sum();
        let busiest: u64 = self.flows.iter().map(|flow| inbound(flow.to)).max().unwrap_or(1);
        let line_ps = to_f64(self.ideal_ps.saturating_sub(self.rtt_ps)) * ratio(most, busiest);
        if line_ps > 0.0 { to_f64(longest_ps) / (line_ps + to_f64(self.rtt_ps)) } else { 0.0 }
    }

    /// Jain's index over the flows' goodputs.
    #[must_use]
    pub fn jain(&self) -> f64 {
        jain(self.flows.iter().map(|flow| ratio(flow.bytes, flow.time_ps)))
    }

    /// A percentile of the latencies, µs.
    #[must_use]
    pub fn latency_us(&self, percent: usize) -> f64 {
        let at = self.latencies_ps.len().saturating_sub(1) * percent / 100;
        self.latencies_ps.get(at).map_or(0.0, |&latency| ratio(latency, US))
    }

    /// What the slowest flow took from the arrival of its first packet until its allowed rate stayed within a tenth of
    /// its fair part, up to four fifths of the run, in base RTTs; infinite if one never did, or if nothing was sampled.
    #[must_use]
    pub fn settled_rtts(&self) -> f64 {
        self.settled_ps.map_or(f64::INFINITY, |settled_ps| ratio(settled_ps, self.rtt_ps.max(1)))
    }

    /// Median of Jain's index over allowed rates from `from_rtts` base RTTs on until four fifths of the run.
    #[must_use]
    pub fn jain_allowed(&self, from_rtts: u64) -> f64 {
        let (from_ps, end_ps) = (from_rtts * self.rtt_ps, self.time_ps / 5 * 4);
        let within = self.samples.iter().filter(|sample| (from_ps..=end_ps).contains(&sample.at_ps));
        median(within.map(|sample| sample.jain).collect())
    }
}

/// (Σx)² ÷ (n Σx²): 1 if all are equal, 1/n if one has all.
pub fn jain(values: impl Iterator<Item = f64>) -> f64 {
    let (mut count, mut sum, mut squares) = (0u64, 0.0, 0.0);
    for value in values {
        count += 1;
        sum += value;
        squares += value * value;
    }
    if squares == 0.0 { 1.0 } else { sum * sum / (to_f64(count) * squares) }
}

/// The middle one; of an even number the lower of the two. 0 if there is none.
#[must_use]
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jain_is_one_for_equals_and_a_half_for_one_of_two() {
        assert!((jain([3.0, 3.0, 3.0].into_iter()) - 1.0).abs() < 1e-12);
        assert!((jain([1.0, 0.0].into_iter()) - 0.5).abs() < 1e-12);
    }

    #[test]
    fn the_median_is_the_middle() {
        assert!((median(vec![9.0, 1.0, 5.0]) - 5.0).abs() < 1e-12);
        assert!((median(vec![]) - 0.0).abs() < 1e-12);
    }
}
