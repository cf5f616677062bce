//! What a run is measured by.

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
    /// Payload rate ÷ the payload rate of a full line (of all lines that a workload keeps busy).
    pub goodput: f64,
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
    /// Base RTT of the fabric, ps.
    pub rtt_ps: u64,
    /// Time that the run took on this machine, s. The only figure that is not the same every time.
    pub wall_s: f64,
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

    /// Time after which every flow's allowed rate stays within `margin` of its fair part, until four fifths of the run,
    /// in base RTTs since the first packets arrived; infinite if never.
    #[must_use]
    pub fn settled_rtts(&self, margin: f64) -> f64 {
        let end_ps = self.time_ps / 5 * 4;
        let mut settled = None;
        for sample in self.samples.iter().take_while(|sample| sample.at_ps <= end_ps) {
            if sample.unfairness > margin {
                settled = None;
            } else if settled.is_none() {
                settled = Some(sample.at_ps);
            }
        }
        settled
            .map_or(f64::INFINITY, |at_ps| ratio(at_ps.saturating_sub(self.rtt_ps / 2), self.rtt_ps.max(1)))
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
