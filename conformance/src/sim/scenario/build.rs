//! From what a scenario says to a plan.

use std::rc::Rc;

use metaroce_core::congestion::{DelayTarget, EcnAimd};
use metaroce_core::{Config, RegionKey};

use super::limits::limits;
use super::{
    CongestionKind, EventKind, EventSpec, FabricKind, FabricSpec, FaultSpec, ScenarioError, Spec,
    TransportKind, TransportSpec, WorkloadKind, WorkloadSpec,
};
use crate::sim::clock::Clocks;
use crate::sim::fabric::{Action, Scheduled};
use crate::sim::link::{LinkConfig, Marking};
use crate::sim::loss::{LinkFaults, Loss};
use crate::sim::run::Plan;
use crate::sim::topology::{FatTree, LeafSpine, Lines, Topology};
use crate::sim::transport::{
    Dcqcn, MetaRoce, MetaRoceOptions, RoceOptions, RoceV2, Spray, SprayOptions, Transport,
};
use crate::sim::units::{MS, NS, Probability, Rate, US, from_f64, to_f64};
use crate::sim::workload::{
    Collective, Flow, HalvingDoubling, KeyValue, Listed, Pair, Ring, Streams, Workload,
};

/// Builds everything that a run needs.
pub(super) fn plan(spec: &Spec, seed: u64) -> Result<Plan, ScenarioError> {
    check(spec)?;
    let topology = topology(&spec.fabric, seed);
    let workload = workload(&spec.workload, topology.hosts, seed)?;
    let transports = transports(spec, topology.hosts, &workload.pairs(), seed)?;
    let schedule = schedule(spec, &topology)?;
    let sample_ps = scaled(spec.sample_us, US);
    Ok(Plan {
        topology,
        transports,
        schedule,
        workload,
        seed,
        limit_ps: scaled(spec.limit_ms, MS),
        timed: spec.timed,
        sample_ps: (sample_ps > 0).then_some(sample_ps),
        record: None,
    })
}

/// Builds everything but the hosts, which cost much memory, to see whether the scenario makes sense.
#[cfg(test)]
pub(super) fn try_out(spec: &Spec) -> Result<(), ScenarioError> {
    check(spec)?;
    let topology = topology(&spec.fabric, 1);
    let pairs = workload(&spec.workload, topology.hosts, 1)?.pairs();
    limits(spec, topology.hosts, &pairs);
    schedule(spec, &topology).map(drop)
}

fn check(spec: &Spec) -> Result<(), ScenarioError> {
    let FabricSpec { kind, planes, leaves, hosts_per_leaf, spines, arity, gbps, rtt_us, .. } = spec.fabric;
    let corrupts = spec.faults.iter().chain(&spec.fault).any(|fault| fault.corruption > 0.0);
    let shaped = match kind {
        FabricKind::LeafSpine => leaves >= 1 && hosts_per_leaf >= 1 && spines >= 1,
        FabricKind::FatTree => arity >= 2 && arity.is_multiple_of(2) && arity <= 64,
    };
    let enough = kind == FabricKind::FatTree || leaves.saturating_mul(hosts_per_leaf) >= 2;
    let reads = spec.workload.kind == WorkloadKind::KeyValueReads;
    let rules = [
        (shaped, "fabric wants leaves, hosts_per_leaf and spines, or an even arity up to 64"),
        (enough, "fabric wants at least two hosts"),
        ((1..=8).contains(&planes), "fabric.planes must lie between 1 and 8"),
        (gbps > 0.0 && gbps <= 4_000.0, "fabric.gbps must lie between 0 and 4,000"),
        (rtt_us > 0.0, "fabric.rtt_us must be above 0"),
        (spec.workload.message_kib * 1024.0 >= 1.0, "workload.message_kib must be at least one byte"),
        ((1..=4_096).contains(&spec.workload.connections), "workload.connections must be at most 4,096"),
        (!corrupts || spec.transport.checksums, "corruption wants transport.checksums = true"),
        (!reads || spec.transport.kind == TransportKind::Metaroce, "the baselines have no reads"),
    ];
    match rules.iter().find(|(holds, _)| !holds) {
        Some((_, rule)) => Err(ScenarioError((*rule).to_owned())),
        None => Ok(()),
    }
}

/// `value` units of `unit`, as an integer.
pub(super) fn scaled(value: f64, unit: u64) -> u64 {
    from_f64(value * to_f64(unit))
}

/// Bytes that one line of a host carries in one RTT.
pub(super) fn bdp_bytes(fabric: &FabricSpec) -> f64 {
    fabric.gbps * fabric.rtt_us * 1e3 / 8.0
}

pub(super) fn topology(fabric: &FabricSpec, seed: u64) -> Topology {
    let bdp = bdp_bytes(fabric);
    let hops = match fabric.kind {
        FabricKind::FatTree => 6.0,
        FabricKind::LeafSpine if fabric.leaves > 1 => 4.0,
        FabricKind::LeafSpine => 2.0,
    };
    let mark = from_f64(fabric.mark_bdp * bdp);
    let marking = match fabric.mark_all_bdp {
        _ if fabric.mark_bdp <= 0.0 => Marking::Off,
        Some(all) => Marking::Ramp { from: mark, to: from_f64(all * bdp), most: fabric.mark_most },
        None => Marking::Step(mark),
    };
    let host_down = LinkConfig {
        rate: Rate::gbps(fabric.gbps),
        delay_ps: scaled(fabric.rtt_us / 2.0 / hops, US),
        jitter_ps: scaled(fabric.jitter_ns, NS),
        buffer_bytes: from_f64(fabric.buffer_bdp * bdp),
        marking,
        mtu_bytes: fabric.mtu_bytes,
    };
    let trunk = LinkConfig { rate: Rate::gbps(fabric.trunk_gbps.unwrap_or(fabric.gbps)), ..host_down };
    let host_up = LinkConfig { buffer_bytes: u64::MAX, marking: Marking::Off, ..host_down };
    let lines = Lines { host_up, host_down, trunk };
    if fabric.kind == FabricKind::FatTree {
        let hosts_per_edge =
            if fabric.hosts_per_leaf == 0 { fabric.arity / 2 } else { fabric.hosts_per_leaf };
        return FatTree { planes: fabric.planes, arity: fabric.arity, hosts_per_edge, lines }.build(seed);
    }
    let shape = LeafSpine {
        planes: fabric.planes,
        leaves: fabric.leaves,
        hosts_per_leaf: fabric.hosts_per_leaf,
        spines: fabric.spines,
        lines,
        spine_lines: spine_lines(fabric, &trunk, host_down.delay_ps),
    };
    shape.build(seed)
}

/// The lines of spines that differ.
fn spine_lines(fabric: &FabricSpec, trunk: &LinkConfig, host_delay_ps: u64) -> Vec<LinkConfig> {
    let count =
        if fabric.spine_gbps.is_empty() && fabric.spine_rtt_us.is_empty() { 0 } else { fabric.spines };
    let in_turn = |list: &[f64], at: u32| {
        let at = at as usize % list.len().max(1);
        list.get(at).copied()
    };
    let line = |spine: u32| {
        let rate = in_turn(&fabric.spine_gbps, spine).map_or(trunk.rate, Rate::gbps);
        let delay_ps = in_turn(&fabric.spine_rtt_us, spine).map_or(trunk.delay_ps, |rtt_us| {
            (scaled(rtt_us / 2.0, US).saturating_sub(2 * host_delay_ps) / 2).max(1)
        });
        LinkConfig { rate, delay_ps, ..*trunk }
    };
    (0..count).map(line).collect()
}

fn transports(
    spec: &Spec,
    hosts: u32,
    pairs: &[Pair],
    seed: u64,
) -> Result<Vec<Box<dyn Transport>>, ScenarioError> {
    match spec.transport.kind {
        TransportKind::Metaroce => metaroce(spec, hosts, pairs, seed),
        TransportKind::Rocev2 => Ok(rocev2(spec, hosts, seed)),
        TransportKind::Spray => Ok(spray(spec, hosts, seed)),
    }
}

fn metaroce(
    spec: &Spec,
    hosts: u32,
    pairs: &[Pair],
    seed: u64,
) -> Result<Vec<Box<dyn Transport>>, ScenarioError> {
    let config = config(&spec.fabric, &spec.transport);
    let clock = Clocks {
        drift_ppb: u32::try_from(from_f64(spec.transport.clock_ppm * 1e3)).unwrap_or(u32::MAX),
        offset_ns: scaled(spec.transport.clock_offset_ms, MS / NS),
    };
    let planes = u8::try_from(spec.fabric.planes).unwrap_or(u8::MAX);
    let failed = |what| ScenarioError(format!("the endpoints can't be made: {what}"));
    let limits = limits(spec, hosts, pairs);
    let endpoint = |(host, (limits, receives))| {
        let options = MetaRoceOptions { config, limits, receives, clock, planes };
        MetaRoce::new(host, &options, mix(seed, u64::from(host)))
    };
    let endpoints: Result<Vec<MetaRoce>, _> = (0..hosts).zip(limits).map(endpoint).collect();
    let mut endpoints = endpoints.map_err(failed)?;
    let keys: Rc<[RegionKey]> = endpoints.iter().map(MetaRoce::key).collect();
    for endpoint in &mut endpoints {
        endpoint.set_keys(Rc::clone(&keys));
    }
    Ok(endpoints.into_iter().map(|endpoint| Box::new(endpoint) as Box<dyn Transport>).collect())
}

fn rocev2(spec: &Spec, hosts: u32, seed: u64) -> Vec<Box<dyn Transport>> {
    let options = RoceOptions {
        payload_bytes: u32::from(spec.transport.mtu_bytes.saturating_sub(80).max(256)),
        timeout_ps: scaled(spec.transport.rto_us.max(4.0 * spec.fabric.rtt_us), US),
        dcqcn: Dcqcn::for_line(from_f64(spec.fabric.gbps * 1e9)),
        seed,
        planes: spec.fabric.planes,
    };
    (0..hosts).map(|host| Box::new(RoceV2::new(host, options)) as Box<dyn Transport>).collect()
}

fn spray(spec: &Spec, hosts: u32, seed: u64) -> Vec<Box<dyn Transport>> {
    let payload_bytes = u32::from(spec.transport.mtu_bytes.saturating_sub(80).max(256));
    let bdp = f64::from(spec.fabric.planes) * bdp_bytes(&spec.fabric) / f64::from(payload_bytes);
    let options = SprayOptions {
        payload_bytes,
        timeout_ps: scaled(spec.transport.rto_us, US),
        threshold: spec.transport.duplicate_threshold,
        values: u16::from(spec.transport.paths) * u16::try_from(spec.fabric.planes).unwrap_or(1),
        planes: u8::try_from(spec.fabric.planes).unwrap_or(1),
        bdp_packets: u32::try_from(from_f64(bdp)).unwrap_or(u32::MAX).max(1),
        rtt_ps: scaled(spec.fabric.rtt_us, US),
        seed,
    };
    (0..hosts).map(|host| Box::new(Spray::new(host, options)) as Box<dyn Transport>).collect()
}

fn config(fabric: &FabricSpec, wanted: &TransportSpec) -> Config {
    let base = Config::hardware(0);
    let narrow = |value: f64| u32::try_from(from_f64(value)).unwrap_or(u32::MAX);
    let window_bytes_max = if wanted.window_bdp > 0.0 {
        narrow(wanted.window_bdp * bdp_bytes(fabric)).max(9_000)
    } else {
        base.window_bytes_max
    };
    Config {
        congestion: match wanted.congestion {
            CongestionKind::Ecn => &EcnAimd,
            CongestionKind::Delay => &DelayTarget,
        },
        checksum_wanted: wanted.checksums,
        mtu_bytes: wanted.mtu_bytes,
        paths_per_plane: wanted.paths,
        burst_packets: wanted.burst_packets,
        rto_ns_min: scaled(wanted.rto_us, NS),
        rtt_ns_initial: scaled(fabric.rtt_us, NS),
        delay_target_ns: scaled(wanted.delay_target_us.unwrap_or(fabric.rtt_us), NS),
        window_bytes_max,
        inbound_rate_kbps: narrow(fabric.gbps * 1e6),
        half_open_per_address: u16::MAX,
        ..base
    }
}

fn workload(wanted: &WorkloadSpec, hosts: u32, seed: u64) -> Result<Box<dyn Workload>, ScenarioError> {
    let narrow = |value: f64| u32::try_from(from_f64(value)).unwrap_or(u32::MAX);
    let bytes = scaled(wanted.mib, 1 << 20);
    let slice_bytes = narrow(wanted.message_kib * 1024.0).max(1);
    let (outstanding, seed) = (wanted.outstanding, mix(seed, 1 << 32));
    let flow = |bytes: u64| {
        let message_bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(slice_bytes).max(1);
        let messages = u32::try_from(bytes / u64::from(message_bytes)).unwrap_or(u32::MAX).max(1);
        Flow { pair: Pair::new(0, 0), messages, message_bytes, outstanding }
    };
    let (all, part, connections) = (flow(bytes), flow(bytes / u64::from(hosts)), wanted.connections);
    let latencies = wanted.kind == WorkloadKind::Signals;
    Ok(match wanted.kind {
        WorkloadKind::Stream | WorkloadKind::Signals => {
            Box::new(Streams::parallel(hosts, connections, all, latencies))
        }
        WorkloadKind::Permutation => Box::new(Streams::permutation(hosts, seed, all)),
        WorkloadKind::Incast => Box::new(Streams::incast(hosts, all)),
        WorkloadKind::OutcastIncast => Box::new(Streams::outcast_incast(hosts, all)),
        WorkloadKind::AllToAll => Box::new(Streams::all_to_all(hosts, part)),
        WorkloadKind::RingAllReduce => {
            Box::new(Collective::new(Ring::all_reduce(hosts, bytes, slice_bytes), slice_bytes, seed))
        }
        WorkloadKind::AllGather => {
            Box::new(Collective::new(Ring::all_gather(hosts, bytes, slice_bytes), slice_bytes, seed))
        }
        WorkloadKind::HalvingDoubling => {
            Box::new(Collective::new(HalvingDoubling::new(hosts, bytes, slice_bytes), slice_bytes, seed))
        }
        WorkloadKind::KeyValueReads => {
            Box::new(KeyValue::new(hosts, all.messages, all.message_bytes, outstanding, seed))
        }
        WorkloadKind::List => {
            let entries = Listed::parse(&wanted.list, hosts).map_err(ScenarioError)?;
            if entries.is_empty() {
                return Err(ScenarioError("workload.list has no line".to_owned()));
            }
            Box::new(Listed::new(entries))
        }
    })
}

fn schedule(spec: &Spec, topology: &Topology) -> Result<Vec<Scheduled>, ScenarioError> {
    let select = |from: &str, to: &str| {
        let links = topology.select(from, to);
        if links.is_empty() {
            Err(ScenarioError(format!("no link leads from {from} to {to}")))
        } else {
            Ok(links)
        }
    };
    let mut all = Vec::new();
    for fault in spec.faults.iter().chain(&spec.fault) {
        let links = select(&fault.from, &fault.to)?;
        all.push(Scheduled { at_ps: 0, links, action: Action::Faults(link_faults(fault)) });
    }
    for event in &spec.events {
        let links = match &event.node {
            Some(node) => {
                [select("*", node), select(node, "*")].into_iter().collect::<Result<Vec<_>, _>>()?.concat()
            }
            None => select(&event.from, &event.to)?,
        };
        let action = action(event, &spec.fabric);
        for round in 0..event.times {
            let at_us = event.at_us + f64::from(round) * event.every_us.unwrap_or(0.0);
            all.push(Scheduled { at_ps: scaled(at_us, US), links: links.clone(), action });
        }
    }
    Ok(all)
}

fn action(event: &EventSpec, fabric: &FabricSpec) -> Action {
    match event.action {
        EventKind::Cut => Action::Cut,
        EventKind::Restore => Action::Restore,
        EventKind::Blackhole => Action::Blackhole,
        EventKind::Unblackhole => Action::Unblackhole,
        EventKind::Rate => Action::Rate(Rate::gbps(event.gbps.unwrap_or(fabric.gbps))),
        EventKind::Mtu => Action::Mtu(event.mtu_bytes.unwrap_or(fabric.mtu_bytes)),
    }
}

fn link_faults(fault: &FaultSpec) -> LinkFaults {
    let loss = if fault.burst_packets > 0.0 && fault.loss > 0.0 {
        Loss::bursts(fault.loss, fault.burst_packets)
    } else {
        Loss::random(fault.loss)
    };
    LinkFaults {
        loss,
        duplication: Probability::new(fault.duplication),
        reordering: Probability::new(fault.reordering),
        reorder_ps: scaled(fault.reorder_us, US),
        only: (fault.path_of > 0).then_some((fault.path_of, fault.path)),
        corruption: Probability::new(fault.corruption),
    }
}

/// A seed of its own for everything that draws.
pub(super) fn mix(seed: u64, what: u64) -> u64 {
    crate::Random::new(seed ^ what.wrapping_mul(0xa076_1d64_78bd_642f)).next_u64()
}
