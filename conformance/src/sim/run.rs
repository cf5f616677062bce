//! One run: build, connect, come to rest, do the work, check every byte, count.

use std::collections::BTreeMap;
use std::time::Instant as WallClock;

use super::fabric::{Fabric, FabricCounters, Pause, Scheduled};
use super::metrics::{FlowOutcome, Outcome, Sample, jain};
use super::topology::{Node, Topology};
use super::transport::{FlowStats, Notice, Transport};
use super::units::{MS, ratio, to_f64};
use super::workload::{Bound, Posting, Workload};

/// A run to be made.
pub struct Plan {
    /// The fabric.
    pub topology: Topology,
    /// What runs on its hosts.
    pub transports: Vec<Box<dyn Transport>>,
    /// What is done, and when, counted from the start of the workload.
    pub schedule: Vec<Scheduled>,
    /// What is sent.
    pub workload: Box<dyn Workload>,
    /// Seed of what is drawn here: hashes of switches.
    pub seed: u64,
    /// Time after which the run counts as stuck, ps.
    pub limit_ps: u64,
    /// The run may end at the limit: then what was placed by then counts.
    pub timed: bool,
    /// Curves are sampled that often; `None` for none.
    pub sample_ps: Option<u64>,
}

/// Flows whose rates are kept in samples.
const SAMPLED_FLOWS: usize = 16;
/// Longest time that the connections may take to open, ps.
const OPENING_PS: u64 = 200 * MS;
/// Rest between opening and work, in base RTTs.
const REST_RTTS: u64 = 20;

impl Plan {
    /// Makes the run. `progress` is told, now and then, how many payload bytes have been placed, of how many.
    #[must_use]
    pub fn run(self, progress: &mut dyn FnMut(u64, u64)) -> Outcome {
        let started = WallClock::now();
        let seed = self.seed;
        let mut runner = Runner::new(self);
        let mut outcome = if runner.open() {
            runner.work(progress)
        } else {
            Outcome { faults: vec!["the connections did not open".to_owned()], ..Outcome::default() }
        };
        outcome.seed = seed;
        outcome.wall_s = started.elapsed().as_secs_f64();
        outcome
    }
}

struct Runner {
    fabric: Fabric,
    workload: Box<dyn Workload>,
    pairs: Vec<(u32, u32)>,
    schedule: Vec<Scheduled>,
    limit_ps: u64,
    timed: bool,
    sample_ps: Option<u64>,
    bound: Bound,
    expected: Vec<u64>,
    before: Vec<FlowStats>,
    placed_before: u64,
    dropped_before: BTreeMap<&'static str, u64>,
    start_ps: u64,
    hosts: u32,
    faults: Vec<String>,
    samples: Vec<Sample>,
}

impl Runner {
    fn new(plan: Plan) -> Self {
        let (payload_bytes, wire_bytes) =
            plan.transports.first().map_or((1, 1), |transport| transport.full_packet());
        let answer_bytes = plan.transports.first().map_or(1, |transport| transport.answer_bytes());
        let bound = Bound {
            line: plan.topology.host_rate(),
            payload_bytes,
            wire_bytes,
            rtt_ps: plan.topology.base_rtt_ps(wire_bytes, answer_bytes),
        };
        let hosts = plan.topology.hosts;
        Self {
            fabric: Fabric::new(plan.topology, plan.transports, plan.seed),
            pairs: plan.workload.pairs(),
            workload: plan.workload,
            schedule: plan.schedule,
            limit_ps: plan.limit_ps,
            timed: plan.timed,
            sample_ps: plan.sample_ps,
            bound,
            expected: vec![0; hosts as usize],
            before: Vec::new(),
            placed_before: 0,
            dropped_before: BTreeMap::new(),
            start_ps: 0,
            hosts,
            faults: Vec::new(),
            samples: Vec::new(),
        }
    }

    /// Opens all connections, and lets the fabric come to rest. Returns whether that worked.
    fn open(&mut self) -> bool {
        let mut pairs = self.pairs.clone();
        // One connection serves both directions.
        for pair in &mut pairs {
            *pair = (pair.0.min(pair.1), pair.0.max(pair.1));
        }
        pairs.sort_unstable();
        pairs.dedup();
        for (from, to) in pairs {
            self.fabric.connect(from, to);
        }
        let limit_ps = self.fabric.now_ps() + OPENING_PS;
        let mut notices = Vec::new();
        while !self.fabric.is_ready() {
            let step_ps = self.fabric.now_ps() + self.bound.rtt_ps;
            self.fabric.run(step_ps, &mut notices);
            if self.fabric.now_ps() >= limit_ps {
                return false;
            }
        }
        let rest_ps = self.fabric.now_ps() + REST_RTTS * self.bound.rtt_ps;
        while self.fabric.run(rest_ps, &mut notices) != Pause::Limit {}
        true
    }

    fn work(&mut self, progress: &mut dyn FnMut(u64, u64)) -> Outcome {
        self.fabric.counters = FabricCounters::default();
        self.fabric
            .topology
            .links
            .iter_mut()
            .for_each(|link| link.counters = super::link::LinkCounters::default());
        self.before = self.stats();
        self.placed_before = self.placed_bytes();
        self.dropped_before = self.dropped();
        self.start_ps = self.fabric.now_ps();
        let events = self.fabric.events();
        let schedule = std::mem::take(&mut self.schedule);
        self.fabric.schedule(schedule);
        if let Some(period_ps) = self.sample_ps {
            self.fabric.sample_every(period_ps);
        }
        let limit_ps = self.start_ps + self.limit_ps;
        let mut postings = Vec::new();
        let mut notices = Vec::new();
        // Whatever is due now happens before the first message.
        self.fabric.run(self.start_ps, &mut notices);
        self.workload.start(self.start_ps, &mut postings);
        let mut turns = 0u32;
        loop {
            self.post(&mut postings);
            if self.workload.is_done() || !self.faults.is_empty() {
                break;
            }
            match self.fabric.run(limit_ps, &mut notices) {
                Pause::Limit => break,
                Pause::Sample => self.sample(),
                Pause::Notices => {}
            }
            for notice in notices.drain(..) {
                if let Notice::Failed { peer } = notice.notice {
                    self.faults.push(format!("the connection of host {} to host {peer} failed", notice.host));
                }
                self.workload.on_notice(self.fabric.now_ps(), &notice, &mut postings);
            }
            turns = turns.wrapping_add(1);
            if turns.is_multiple_of(64) {
                progress(self.placed_bytes() - self.placed_before, self.workload.payload_bytes());
            }
        }
        let mut outcome = self.outcome();
        outcome.events = self.fabric.events() - events;
        outcome
    }

    fn post(&mut self, postings: &mut Vec<Posting>) {
        for posting in postings.drain(..) {
            let Some(expected) = self.fabric.post(posting.from, posting.to, posting.message) else {
                self.faults.push(format!("host {} has no room for a message", posting.from));
                continue;
            };
            if let Some(sum) = self.expected.get_mut(posting.to as usize) {
                *sum = sum.wrapping_add(expected);
            }
        }
    }

    fn stats(&mut self) -> Vec<FlowStats> {
        let pairs = self.pairs.clone();
        let stats = |(from, to)| self.fabric.transport(from).map(|transport| transport.flow_stats(to));
        pairs.into_iter().map(stats).map(Option::unwrap_or_default).collect()
    }

    fn placed_bytes(&mut self) -> u64 {
        (0..self.hosts)
            .filter_map(|host| self.fabric.transport(host).map(|transport| transport.placed_bytes()))
            .sum()
    }

    fn sample(&mut self) {
        let line_bps = super::units::from_f64(self.bound.line.as_gbps() * 1e9);
        let stats = self.stats();
        let allowed: Vec<u64> = stats.iter().map(|stats| stats.allowed_bps.min(line_bps)).collect();
        let sharing = to_f64(self.fan_in().max(1));
        let fair = to_f64(line_bps) / sharing;
        let far = |&rate: &u64| (to_f64(rate) / fair - 1.0).abs();
        let first = self.pairs.first().copied().unwrap_or_default();
        let paths = self.fabric.transport(first.0).map(|transport| transport.path_samples(first.1));
        let sample = Sample {
            at_ps: self.fabric.now_ps() - self.start_ps,
            placed_bytes: self.placed_bytes() - self.placed_before,
            unfairness: allowed.iter().map(far).fold(0.0, f64::max),
            jain: jain(allowed.iter().map(|&rate| to_f64(rate))),
            allowed_bps: allowed.into_iter().take(SAMPLED_FLOWS).collect(),
            paths: paths.unwrap_or_default(),
        };
        self.samples.push(sample);
    }

    /// Flows of the host that hears from most.
    fn fan_in(&self) -> u64 {
        let mut counts = vec![0u64; self.hosts as usize];
        for (_, to) in &self.pairs {
            if let Some(count) = counts.get_mut(*to as usize) {
                *count += 1;
            }
        }
        counts.into_iter().max().unwrap_or(0)
    }

    /// Packets that transports dropped, by reason.
    fn dropped(&mut self) -> BTreeMap<&'static str, u64> {
        let mut sum = BTreeMap::new();
        for host in 0..self.hosts {
            for (reason, count) in self.fabric.transport(host).map(|one| one.dropped()).unwrap_or_default() {
                *sum.entry(reason).or_default() += count;
            }
        }
        sum
    }

    /// Compares what was placed with what was posted.
    fn check(&mut self) {
        for host in 0..self.hosts {
            let expected = self.expected.get(host as usize).copied().unwrap_or(0);
            let Some(transport) = self.fabric.transport(host) else { continue };
            let (covered, misplaced) = transport.placed();
            if covered != expected {
                self.faults.push(format!("host {host}: not every byte was placed exactly once"));
            }
            if misplaced > 0 {
                self.faults.push(format!("host {host}: {misplaced} payloads came to a wrong place"));
            }
        }
        // Corrupted packets are the only ones that a sound transport drops in a fabric that corrupts.
        let mut dropped = self.dropped();
        dropped.retain(|reason, _| !matches!(*reason, "Checksum" | "Malformed" | "Version"));
        for (reason, count) in dropped {
            let count = count - self.dropped_before.get(reason).copied().unwrap_or(0);
            if count == 0 {
                continue;
            }
            self.faults.push(format!("{count} packets were dropped on arrival: {reason}"));
        }
    }

    fn outcome(&mut self) -> Outcome {
        let done = self.workload.is_done();
        let time_ps = self.fabric.now_ps() - self.start_ps;
        if done {
            self.check();
        } else if self.faults.is_empty() && !self.timed {
            self.faults.push("not done when the time was up".to_owned());
        }
        let after = self.stats();
        let ends = self.workload.flows();
        let flows: Vec<FlowOutcome> = self
            .pairs
            .iter()
            .zip(ends)
            .zip(after.iter().zip(&self.before))
            .map(|((&(from, to), (done_ps, bytes)), (after, before))| FlowOutcome {
                from,
                to,
                bytes,
                time_ps: done_ps.saturating_sub(self.start_ps),
                stats: since(after, before),
            })
            .collect();
        let ideal_ps = self.workload.ideal_ps(&self.bound);
        let mut outcome = Outcome {
            done,
            faults: std::mem::take(&mut self.faults),
            time_ps,
            ideal_ps,
            payload_bytes: self.placed_bytes() - self.placed_before,
            goodput: ratio(ideal_ps.saturating_sub(self.bound.rtt_ps), time_ps),
            sum: flows.iter().fold(FlowStats::default(), |sum, flow| add(&sum, &flow.stats)),
            flows,
            packets: self.fabric.counters.packets,
            hops: self.fabric.counters.hops,
            hash: self.fabric.counters.hash,
            latencies_ps: self.workload.latencies_ps().to_vec(),
            samples: std::mem::take(&mut self.samples),
            rtt_ps: self.bound.rtt_ps,
            ..Outcome::default()
        };
        outcome.latencies_ps.sort_unstable();
        for link in &self.fabric.topology.links {
            if let Node::Switch(_) = link.from {
                outcome.queue_peak_bytes = outcome.queue_peak_bytes.max(link.counters.queue_peak_bytes);
            }
            outcome.overflowed += link.counters.overflowed;
            outcome.lost += link.counters.lost;
            outcome.marked += link.counters.marked;
        }
        if !done {
            let all = self.workload.payload_bytes();
            outcome.goodput *= ratio(outcome.payload_bytes.min(all), all);
        }
        outcome
    }
}

/// Counters of `after` less those of `before`; estimates as they are.
fn since(after: &FlowStats, before: &FlowStats) -> FlowStats {
    FlowStats {
        packets_sent: after.packets_sent - before.packets_sent,
        bytes_sent: after.bytes_sent - before.bytes_sent,
        retransmitted: after.retransmitted - before.retransmitted,
        retransmitted_by_timeout: after.retransmitted_by_timeout - before.retransmitted_by_timeout,
        spurious: after.spurious - before.spurious,
        timeouts: after.timeouts - before.timeouts,
        marked: after.marked - before.marked,
        ..*after
    }
}

fn add(one: &FlowStats, other: &FlowStats) -> FlowStats {
    FlowStats {
        packets_sent: one.packets_sent + other.packets_sent,
        bytes_sent: one.bytes_sent + other.bytes_sent,
        retransmitted: one.retransmitted + other.retransmitted,
        retransmitted_by_timeout: one.retransmitted_by_timeout + other.retransmitted_by_timeout,
        spurious: one.spurious + other.spurious,
        timeouts: one.timeouts + other.timeouts,
        marked: one.marked + other.marked,
        window_bytes: one.window_bytes + other.window_bytes,
        inflight_bytes: one.inflight_bytes + other.inflight_bytes,
        allowed_bps: one.allowed_bps + other.allowed_bps,
    }
}
