//! One run: build, connect, come to rest, do the work, check every byte, count.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant as WallClock;

use super::fabric::{Fabric, FabricCounters, HostNotice, Pause, Scheduled};
use super::memory::Peer;
use super::metrics::{FlowOutcome, Outcome, Sample, jain};
use super::settling::Settling;
use super::timeline::Recorder;
use super::topology::{Node, Topology};
use super::transport::{FlowStats, Notice, Transport};
use super::units::{MS, ratio, to_f64};
use super::workload::{Bound, Pair, Posting, Workload};

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
    /// What becomes of the packets of the first flow is noted: from when, ps after the start, and at most how many.
    pub record: Option<(u64, usize)>,
}

/// A rate is near its fair part within this fraction of it.
const SETTLED: f64 = 0.1;
/// Flows whose rates are kept in samples.
const SAMPLED_FLOWS: usize = 16;
/// Longest time that the connections may take to open, ps, and in base RTTs: the longer of the two.
const OPENING_PS: u64 = 200 * MS;
const OPENING_RTTS: u64 = 100;
/// Longest time that they may then take to settle, in base RTTs: a path that is parked stays as it is.
const SETTLING_RTTS: u64 = 40;
/// Rest between opening and work, in base RTTs.
const REST_RTTS: u64 = 20;

impl Plan {
    /// Makes the run. `progress` is told, now and then, how many payload bytes have been placed, of how many.
    #[must_use]
    pub fn run(self, progress: &mut dyn FnMut(u64, u64)) -> Outcome {
        let (started, cpu_ns) = (WallClock::now(), thread_cpu_ns());
        let seed = self.seed;
        let mut runner = Runner::new(self);
        let mut outcome = if runner.open() {
            runner.work(progress)
        } else {
            Outcome { faults: vec!["the connections did not open".to_owned()], ..Outcome::default() }
        };
        outcome.seed = seed;
        outcome.wall_s = started.elapsed().as_secs_f64();
        outcome.cpu_s = match (cpu_ns, thread_cpu_ns()) {
            (Some(before), Some(after)) => to_f64(after.saturating_sub(before)) / 1e9,
            _ => outcome.wall_s,
        };
        outcome
    }
}

/// Time that this thread has had a core for, ns, where the system tells (Linux).
fn thread_cpu_ns() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

struct Runner {
    fabric: Fabric,
    workload: Box<dyn Workload>,
    pairs: Vec<Pair>,
    order: Order,
    schedule: Vec<Scheduled>,
    limit_ps: u64,
    timed: bool,
    sample_ps: Option<u64>,
    record: Option<(u64, usize)>,
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
            order: Order::default(),
            workload: plan.workload,
            schedule: plan.schedule,
            limit_ps: plan.limit_ps,
            timed: plan.timed,
            sample_ps: plan.sample_ps,
            record: plan.record,
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
            (pair.from, pair.to) = (pair.from.min(pair.to), pair.from.max(pair.to));
        }
        pairs.sort_unstable();
        pairs.dedup();
        for pair in pairs {
            self.fabric.connect(pair);
        }
        let rtt_ps = self.bound.rtt_ps;
        let limit_ps = self.fabric.now_ps() + OPENING_PS.max(OPENING_RTTS * rtt_ps);
        let mut notices = Vec::new();
        while !self.fabric.all(|host| host.is_ready()) {
            let step_ps = self.fabric.now_ps() + rtt_ps;
            while self.fabric.run(step_ps, &mut notices) != Pause::Limit {}
            if self.fabric.now_ps() >= limit_ps {
                return false;
            }
        }
        let limit_ps = self.fabric.now_ps() + SETTLING_RTTS * rtt_ps;
        while self.fabric.now_ps() < limit_ps && !self.fabric.all(|host| host.is_settled()) {
            let step_ps = self.fabric.now_ps() + rtt_ps;
            while self.fabric.run(step_ps, &mut notices) != Pause::Limit {}
        }
        let rest_ps = self.fabric.now_ps() + REST_RTTS * rtt_ps;
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
            self.fabric.settling = Some(Settling::new(&self.pairs));
        }
        if let (Some((from_ps, most)), Some(pair)) = (self.record, self.pairs.first()) {
            self.fabric.recorder = Some(Recorder::new((pair.from, pair.to), self.start_ps + from_ps, most));
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
            let wanted_ps = self.workload.next_ps().filter(|&at_ps| at_ps < limit_ps);
            match self.fabric.run(wanted_ps.unwrap_or(limit_ps), &mut notices) {
                Pause::Limit if wanted_ps.is_none() => break,
                Pause::Limit => self.workload.on_time(self.fabric.now_ps(), &mut postings),
                Pause::Sample => self.sample(),
                Pause::Notices => {}
            }
            for notice in notices.drain(..) {
                self.faults.extend(self.order.check(&notice));
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
            let Posting { pair, message } = posting;
            let Some(expected) = self.fabric.post(pair, message) else {
                self.faults.push(format!("host {} has no room for a message", pair.from));
                continue;
            };
            self.order.note(pair, message.id, message.notify);
            let placed_at = if message.read { pair.from } else { pair.to };
            if let Some(sum) = self.expected.get_mut(placed_at as usize) {
                *sum = sum.wrapping_add(expected);
            }
        }
    }

    fn stats(&mut self) -> Vec<FlowStats> {
        let pairs = self.pairs.clone();
        let stats = |pair: Pair| {
            self.fabric.transport(pair.from).map(|transport| transport.flow_stats(pair.receiver()))
        };
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
        let now_ps = self.fabric.now_ps();
        if let Some(settling) = &mut self.fabric.settling {
            settling.on_sample(now_ps, allowed.iter().map(|rate| far(rate) <= SETTLED));
        }
        let first = self.pairs.first().copied().unwrap_or_default();
        let sender = self.fabric.transport(first.from);
        let paths = sender.map(|transport| transport.path_samples(first.receiver()));
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
        for pair in &self.pairs {
            if let Some(count) = counts.get_mut(pair.to as usize) {
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
            .map(|((&pair, (done_ps, bytes)), (after, before))| FlowOutcome {
                from: pair.from,
                to: pair.to,
                bytes,
                time_ps: done_ps.saturating_sub(self.start_ps),
                stats: since(after, before),
            })
            .collect();
        let ideal_ps = self.workload.ideal_ps(&self.bound);
        let settling = self.fabric.settling.take().unwrap_or_default();
        let mut outcome = Outcome {
            done,
            faults: std::mem::take(&mut self.faults),
            time_ps,
            ideal_ps,
            payload_bytes: self.placed_bytes() - self.placed_before,
            closed_loop: self.workload.closed_loop(&self.bound),
            full_bytes: self.workload.payload_bytes(),
            goodput: ratio(ideal_ps.saturating_sub(self.bound.rtt_ps), time_ps),
            sum: flows.iter().fold(FlowStats::default(), |sum, flow| add(&sum, &flow.stats)),
            flows,
            packets: self.fabric.counters.packets,
            hops: self.fabric.counters.hops,
            hash: self.fabric.counters.hash,
            latencies_ps: self.workload.latencies_ps().to_vec(),
            samples: std::mem::take(&mut self.samples),
            // The last fifth does not count: flows end.
            settled_ps: settling.slowest_ps(self.start_ps + time_ps / 5 * 4),
            rtt_ps: self.bound.rtt_ps,
            ..Outcome::default()
        };
        outcome.latencies_ps.sort_unstable();
        outcome.start_ps = self.start_ps;
        outcome.flights = self.fabric.recorder.take().map(Recorder::into_flights).unwrap_or_default();
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

/// Whether completions come in the order of posting, each once.
#[derive(Debug, Default)]
struct Order {
    /// By who posted, and the peer.
    sent: BTreeMap<(u32, Peer), VecDeque<u32>>,
    /// By who is told, and the peer.
    delivered: BTreeMap<(u32, Peer), VecDeque<u32>>,
}

impl Order {
    fn note(&mut self, pair: Pair, id: u32, notify: bool) {
        self.sent.entry((pair.from, pair.receiver())).or_default().push_back(id);
        if notify {
            self.delivered.entry((pair.to, pair.sender())).or_default().push_back(id);
        }
    }

    /// What is wrong with a notice.
    fn check(&mut self, notice: &HostNotice) -> Option<String> {
        let host = notice.host;
        let (what, list, peer, id) = match notice.notice {
            Notice::Sent { peer, id } => ("completion", &mut self.sent, peer, id),
            Notice::Delivered { peer, id } => ("delivery", &mut self.delivered, peer, id),
            Notice::Failed { peer } => {
                return Some(format!("the connection of host {host} to host {} failed", peer.host));
            }
        };
        let wanted = list.get_mut(&(host, peer)).and_then(VecDeque::pop_front);
        (wanted != Some(id)).then(|| {
            format!("host {host}, peer {}: {what} of message {id} where {wanted:?} was due", peer.host)
        })
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
