//! Runs that chance made up: fabric, transport, workload, faults and failures all follow from one seed.
//!
//! All faults end at a time, and from then on everything must be done within a bound. A run is right if every byte was
//! placed once and at its place, every completion came once and in order, and no flow was left behind at the bound.

use super::{
    EventKind, EventSpec, FabricKind, FabricSpec, FaultSpec, ScenarioError, Spec, TransportSpec,
    WorkloadKind, WorkloadSpec, build,
};
use crate::Random;
use crate::sim::fabric::{Action, Scheduled};
use crate::sim::loss::LinkFaults;
use crate::sim::metrics::Outcome;
use crate::sim::units::{MS, US};

/// When all faults end, µs.
pub const FAULTS_END_US: f64 = 3_000.0;
/// Longest time that everything may take afterwards, ms: a hundred of the longest timeouts of 10 ms, within which every
/// path that was given up has been probed several times, and what is left of the slowest workload drawn here.
pub const BOUND_MS: f64 = 1_000.0;

/// The run of a seed.
#[must_use]
pub fn spec(seed: u64) -> Spec {
    let mut random = Random::new(seed);
    let draw = &mut random;
    let fabric = fabric(draw);
    let workload = workload(draw);
    let mut transport = TransportSpec {
        paths: pick(draw, &[1, 2, 4, 8]),
        mtu_bytes: pick(draw, &[1_232, 4_176, 8_952]),
        burst_packets: pick(draw, &[1, 1, 4]),
        ..TransportSpec::default()
    };
    if draw.chance(500_000) {
        (transport.clock_ppm, transport.clock_offset_ms) = (200.0, 500.0);
    }
    let nodes = nodes(&fabric);
    let faults: Vec<FaultSpec> = (0..draw.below(4)).map(|_| fault(draw, &nodes)).collect();
    transport.checksums = faults.iter().any(|fault| fault.corruption > 0.0);
    let events = (0..draw.below(4)).flat_map(|_| event(draw, &nodes, &fabric)).collect();
    Spec {
        fabric,
        transport,
        workload,
        faults,
        fault: None,
        events,
        targets: Vec::new(),
        x: None,
        main_plot: None,
        ci: false,
        limit_ms: FAULTS_END_US / 1e3 + BOUND_MS,
        timed: false,
        sample_us: 0.0,
    }
}

/// Makes the run of a seed. Its faults say what was not right.
///
/// # Errors
/// [`ScenarioError`] if it can't be built, which is a fault of this module.
pub fn run(seed: u64) -> Result<Outcome, ScenarioError> {
    let mut plan = build::plan(&spec(seed), seed)?;
    // Nothing is wrong with any link after that.
    let links: Vec<u32> = (0u32..).take(plan.topology.links.len()).collect();
    let end_ps = build::scaled(FAULTS_END_US, US);
    let rates: Vec<_> = plan.topology.links.iter().map(|link| link.config.rate).collect();
    let heal = [Action::Restore, Action::Unblackhole, Action::Faults(LinkFaults::default())];
    plan.schedule.extend(heal.map(|action| Scheduled { at_ps: end_ps, links: links.clone(), action }));
    plan.schedule.extend(links.iter().zip(rates).map(|(&link, rate)| Scheduled {
        at_ps: end_ps,
        links: vec![link],
        action: Action::Rate(rate),
    }));
    debug_assert!(plan.limit_ps > end_ps + MS);
    Ok(plan.run(&mut |_, _| {}))
}

fn pick<T: Copy + Default>(draw: &mut Random, list: &[T]) -> T {
    let at = usize::try_from(draw.below(list.len() as u64)).unwrap_or(0);
    list.get(at).copied().unwrap_or_default()
}

fn fabric(draw: &mut Random) -> FabricSpec {
    let tree = draw.chance(200_000);
    let planes = pick(draw, &[1, 1, 2, 4]);
    let buffer_bdp = pick(draw, &[0.5, 2.0, 8.0]);
    FabricSpec {
        kind: if tree { FabricKind::FatTree } else { FabricKind::LeafSpine },
        planes,
        leaves: pick(draw, &[2, 3, 4]),
        hosts_per_leaf: pick(draw, &[1, 2, 3]),
        spines: pick(draw, &[1, 2, 4]),
        arity: 4,
        gbps: pick(draw, &[10.0, 40.0, 100.0]),
        trunk_gbps: draw.chance(200_000).then_some(10.0),
        spine_gbps: Vec::new(),
        spine_rtt_us: if draw.chance(300_000) { vec![20.0, 35.0, 90.0] } else { Vec::new() },
        rtt_us: pick(draw, &[5.0, 20.0, 60.0]),
        buffer_bdp,
        mark_bdp: pick(draw, &[0.0, 0.2, 0.4]),
        mark_all_bdp: draw.chance(300_000).then_some(buffer_bdp),
        mark_most: 0.5,
        jitter_ns: pick(draw, &[0.0, 0.0, 500.0]),
        mtu_bytes: pick(draw, &[9_216, 9_216, 4_300, 1_600]),
    }
}

fn workload(draw: &mut Random) -> WorkloadSpec {
    let kinds = [
        WorkloadKind::Stream,
        WorkloadKind::Permutation,
        WorkloadKind::Incast,
        WorkloadKind::OutcastIncast,
        WorkloadKind::AllToAll,
        WorkloadKind::RingAllReduce,
        WorkloadKind::AllGather,
        WorkloadKind::KeyValueReads,
        WorkloadKind::Signals,
    ];
    let at = usize::try_from(draw.below(kinds.len() as u64)).unwrap_or(0);
    let kind = kinds.get(at).copied().unwrap_or(WorkloadKind::Stream);
    let small = kind == WorkloadKind::Signals;
    WorkloadSpec {
        kind,
        mib: if small { 0.004 } else { pick(draw, &[0.25, 1.0, 2.0]) },
        connections: pick(draw, &[1, 1, 3]),
        list: String::new(),
        list_file: None,
        message_kib: if small { 0.0625 } else { pick(draw, &[4.0, 31.7, 256.0]) },
        outstanding: pick(draw, &[1, 4, 32]),
    }
}

/// Names of switches, and some patterns.
fn nodes(fabric: &FabricSpec) -> Vec<&'static str> {
    let mut nodes = match fabric.kind {
        FabricKind::LeafSpine => vec!["leaf0", "leaf1", "spine0", "spine*", "leaf*", "host0", "host1", "*"],
        FabricKind::FatTree => vec!["edge0", "edge*", "agg1", "agg*", "core0", "core*", "host0", "*"],
    };
    if fabric.planes > 1 {
        nodes.extend(["plane1/*", "plane0/*"]);
    }
    nodes
}

fn fault(draw: &mut Random, nodes: &[&'static str]) -> FaultSpec {
    let mut maybe = |most: u64| {
        if draw.chance(500_000) { 0.0 } else { crate::sim::units::to_f64(draw.below(most)) / 1_000.0 }
    };
    let (loss, duplication, reordering, corruption) = (maybe(200), maybe(50), maybe(100), maybe(20));
    let bursts = draw.chance(300_000);
    let narrow = draw.chance(300_000);
    FaultSpec {
        from: pick(draw, nodes).to_owned(),
        to: "*".to_owned(),
        loss,
        burst_packets: if bursts { 10.0 } else { 0.0 },
        duplication,
        reordering,
        reorder_us: 50.0,
        path: 0,
        path_of: if narrow { 2 } else { 0 },
        corruption,
    }
}

/// Something that breaks, and comes back (all does at the end of the faults).
fn event(draw: &mut Random, nodes: &[&'static str], fabric: &FabricSpec) -> Vec<EventSpec> {
    let (action, back) = match draw.below(3) {
        0 => (EventKind::Cut, EventKind::Restore),
        1 => (EventKind::Blackhole, EventKind::Unblackhole),
        _ => (EventKind::Rate, EventKind::Rate),
    };
    let node = pick(draw, nodes).to_owned();
    let both = draw.chance(500_000);
    let at_us = crate::sim::units::to_f64(draw.below(1_000));
    let length_us = crate::sim::units::to_f64(draw.below(1_500));
    let times = pick(draw, &[1, 1, 8]);
    let every_us = (times > 1).then_some(200.0);
    let of = |action, at_us, gbps| EventSpec {
        at_us,
        from: node.clone(),
        to: "*".to_owned(),
        node: both.then(|| node.clone()),
        action,
        gbps,
        mtu_bytes: None,
        every_us,
        times,
    };
    let length_us = if times > 1 { 100.0 } else { length_us };
    vec![of(action, at_us, Some(fabric.gbps / 8.0)), of(back, at_us + length_us, Some(fabric.gbps))]
}
