//! From what a scenario says to a plan.

use std::rc::Rc;

use metaroce_core::{Config, Limits, RegionKey};

use super::{
    EventKind, FabricSpec, FaultSpec, ScenarioError, Spec, TransportKind, TransportSpec, WorkloadKind,
    WorkloadSpec,
};
use crate::sim::fabric::{Action, Scheduled};
use crate::sim::link::{LinkConfig, Marking};
use crate::sim::loss::{LinkFaults, Loss};
use crate::sim::run::Plan;
use crate::sim::topology::{LeafSpine, Topology};
use crate::sim::transport::{Dcqcn, MetaRoce, MetaRoceOptions, RoceOptions, RoceV2, Transport};
use crate::sim::units::{MS, NS, Probability, Rate, US, from_f64, to_f64};
use crate::sim::workload::{Flow, RingAllReduce, Streams, Workload};

/// Builds everything that a run needs.
pub(super) fn plan(spec: &Spec, seed: u64) -> Result<Plan, ScenarioError> {
    check(spec)?;
    let topology = topology(&spec.fabric, seed);
    let transports = transports(spec, topology.hosts, seed)?;
    let schedule = schedule(spec, &topology)?;
    let workload = workload(&spec.workload, topology.hosts, seed);
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
    })
}

fn check(spec: &Spec) -> Result<(), ScenarioError> {
    let FabricSpec { leaves, hosts_per_leaf, spines, gbps, rtt_us, .. } = spec.fabric;
    let corrupts = spec.faults.iter().chain(&spec.fault).any(|fault| fault.corruption > 0.0);
    let rules = [
        (leaves >= 1 && hosts_per_leaf >= 1 && spines >= 1, "fabric wants at least one of everything"),
        (leaves.saturating_mul(hosts_per_leaf) >= 2, "fabric wants at least two hosts"),
        (gbps > 0.0 && gbps <= 4_000.0, "fabric.gbps must lie between 0 and 4,000"),
        (rtt_us > 0.0, "fabric.rtt_us must be above 0"),
        (spec.workload.message_kib * 1024.0 >= 1.0, "workload.message_kib must be at least one byte"),
        (!corrupts || spec.transport.checksums, "corruption wants transport.checksums = true"),
    ];
    match rules.iter().find(|(holds, _)| !holds) {
        Some((_, rule)) => Err(ScenarioError((*rule).to_owned())),
        None => Ok(()),
    }
}

/// `value` units of `unit`, as an integer.
fn scaled(value: f64, unit: u64) -> u64 {
    from_f64(value * to_f64(unit))
}

/// Bytes that the hosts' lines carry in one RTT.
fn bdp_bytes(fabric: &FabricSpec) -> f64 {
    fabric.gbps * fabric.rtt_us * 1e3 / 8.0
}

fn topology(fabric: &FabricSpec, seed: u64) -> Topology {
    let bdp = bdp_bytes(fabric);
    let hops = if fabric.leaves > 1 { 4.0 } else { 2.0 };
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
    let shape = LeafSpine {
        leaves: fabric.leaves,
        hosts_per_leaf: fabric.hosts_per_leaf,
        spines: fabric.spines,
        host_up: LinkConfig { buffer_bytes: u64::MAX, marking: Marking::Off, ..host_down },
        host_down,
        trunk: LinkConfig { rate: Rate::gbps(fabric.trunk_gbps.unwrap_or(fabric.gbps)), ..host_down },
    };
    Topology::leaf_spine(&shape, seed)
}

/// What one host of the workload has to hold: peers, receives for each of them.
fn demands(spec: &Spec, hosts: u32) -> (u32, u64) {
    match spec.workload.kind {
        WorkloadKind::Stream | WorkloadKind::Signals => (1, 0),
        WorkloadKind::Permutation => (2, 0),
        WorkloadKind::Incast | WorkloadKind::AllToAll => (hosts, 0),
        WorkloadKind::RingAllReduce => (2, 256),
    }
}

fn transports(spec: &Spec, hosts: u32, seed: u64) -> Result<Vec<Box<dyn Transport>>, ScenarioError> {
    match spec.transport.kind {
        TransportKind::Metaroce => metaroce(spec, hosts, seed),
        TransportKind::Rocev2 => Ok(rocev2(spec, hosts, seed)),
    }
}

fn metaroce(spec: &Spec, hosts: u32, seed: u64) -> Result<Vec<Box<dyn Transport>>, ScenarioError> {
    let (fabric, wanted) = (&spec.fabric, &spec.transport);
    let (peers, receives) = demands(spec, hosts);
    let options =
        MetaRoceOptions { config: config(fabric, wanted), limits: limits(spec, peers, receives), receives };
    let failed = |what| ScenarioError(format!("the endpoints can't be made: {what}"));
    let endpoints: Result<Vec<MetaRoce>, _> =
        (0..hosts).map(|host| MetaRoce::new(host, &options, mix(seed, u64::from(host)))).collect();
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
    };
    (0..hosts).map(|host| Box::new(RoceV2::new(host, options)) as Box<dyn Transport>).collect()
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
        checksum_wanted: wanted.checksums,
        mtu_bytes: wanted.mtu_bytes,
        paths_per_plane: wanted.paths,
        burst_packets: wanted.burst_packets,
        pto_ns_min: scaled(wanted.rto_us, NS),
        rto_ns_min: scaled(wanted.rto_us, NS),
        rtt_ns_initial: scaled(fabric.rtt_us, NS),
        delay_target_ns: scaled(wanted.delay_target_us.unwrap_or(fabric.rtt_us), NS),
        window_bytes_max,
        inbound_rate_kbps: narrow(fabric.gbps * 1e6),
        ..base
    }
}

fn limits(spec: &Spec, peers: u32, receives: u64) -> Limits {
    let bdp_packets = from_f64(bdp_bytes(&spec.fabric) / 4_096.0);
    let bdp_packets = u32::try_from(bdp_packets).unwrap_or(u32::MAX >> 8).clamp(64, 1 << 20);
    let receives = u32::try_from(receives).unwrap_or(0) * (peers + 2);
    Limits {
        connections: peers + 8,
        paths_per_connection: spec.transport.paths,
        streams: 2 * peers + 16,
        requests: (peers * spec.workload.outstanding.min(1 << 10) + 1_024).max(8_192),
        receives: receives.max(64),
        messages: (peers * 64).max(4_096),
        packets: (bdp_packets * 16).max(8_192),
        queues: 1,
        regions: 8,
        csn_window: (bdp_packets * 16).next_power_of_two().clamp(4_096, 1 << 21),
    }
}

fn workload(wanted: &WorkloadSpec, hosts: u32, seed: u64) -> Box<dyn Workload> {
    let narrow = |value: f64| u32::try_from(from_f64(value)).unwrap_or(u32::MAX);
    let bytes = scaled(wanted.mib, 1 << 20);
    let message_bytes = narrow(wanted.message_kib * 1024.0).max(1);
    let flow = |bytes: u64| {
        let message_bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(message_bytes).max(1);
        let messages = u32::try_from(bytes / u64::from(message_bytes)).unwrap_or(u32::MAX).max(1);
        Flow { from: 0, to: hosts - 1, messages, message_bytes, outstanding: wanted.outstanding }
    };
    match wanted.kind {
        WorkloadKind::Stream => Box::new(Streams::new(vec![flow(bytes)], false)),
        WorkloadKind::Signals => Box::new(Streams::new(vec![flow(bytes)], true)),
        WorkloadKind::Permutation => Box::new(Streams::permutation(hosts, mix(seed, 1 << 32), flow(bytes))),
        WorkloadKind::Incast => Box::new(Streams::incast(hosts, flow(bytes))),
        WorkloadKind::AllToAll => Box::new(Streams::all_to_all(hosts, flow(bytes / u64::from(hosts)))),
        WorkloadKind::RingAllReduce => {
            Box::new(RingAllReduce::new(hosts, bytes, message_bytes, mix(seed, 1 << 33)))
        }
    }
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
        let links = select(&event.from, &event.to)?;
        let action = match event.action {
            EventKind::Cut => Action::Cut,
            EventKind::Restore => Action::Restore,
            EventKind::Blackhole => Action::Blackhole,
            EventKind::Unblackhole => Action::Unblackhole,
            EventKind::Rate => Action::Rate(Rate::gbps(event.gbps.unwrap_or(spec.fabric.gbps))),
        };
        for round in 0..event.times {
            let at_us = event.at_us + f64::from(round) * event.every_us.unwrap_or(0.0);
            all.push(Scheduled { at_ps: scaled(at_us, US), links: links.clone(), action });
        }
    }
    Ok(all)
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
const fn mix(seed: u64, what: u64) -> u64 {
    crate::Random::new(seed ^ what.wrapping_mul(0xa076_1d64_78bd_642f)).next_u64()
}
