//! Results for programs.

use metaroce_conformance::sim::Outcome;
use metaroce_conformance::sim::metrics::FlowOutcome;
use serde_json::{Value, json};

use super::suite::Suite;

/// Flows that a run lists.
const FLOWS: usize = 256;

/// Everything about one scenario. Times in ps, rates in bit/s.
pub fn document(suite: &Suite) -> Value {
    let cases = suite.scenario.cases.iter().zip(&suite.results).map(|(case, result)| {
        json!({
            "case": case.name,
            "x": case.spec.x,
            "targets": result.verdicts,
            "runs": result.outcomes.iter().map(run).collect::<Vec<Value>>(),
        })
    });
    json!({
        "scenario": suite.scenario.name,
        "about": suite.scenario.about,
        "reached": suite.reached(),
        "cases": cases.collect::<Vec<Value>>(),
    })
}

fn run(outcome: &Outcome) -> Value {
    json!({
        "seed": outcome.seed,
        "hash": format!("{:016x}", outcome.hash),
        "done": outcome.done,
        "faults": outcome.faults,
        "time_ps": outcome.time_ps,
        "ideal_ps": outcome.ideal_ps,
        "rtt_ps": outcome.rtt_ps,
        "payload_bytes": outcome.payload_bytes,
        "goodput": outcome.goodput,
        "slowdown": outcome.slowdown(),
        "jain": outcome.jain(),
        "settled_rtts": outcome.settled_rtts(),
        "packets": outcome.packets,
        "hops": outcome.hops,
        "lost": outcome.lost,
        "overflowed": outcome.overflowed,
        "marked": outcome.marked,
        "queue_peak_bytes": outcome.queue_peak_bytes,
        "retransmitted": outcome.sum.retransmitted,
        "retransmitted_by_timeout": outcome.sum.retransmitted_by_timeout,
        "spurious": outcome.sum.spurious,
        "latency_us": [outcome.latency_us(50), outcome.latency_us(99), outcome.latency_us(100)],
        "wall_s": outcome.wall_s,
        "cpu_s": outcome.cpu_s,
        "flows": outcome.flows.iter().take(FLOWS).map(flow).collect::<Vec<Value>>(),
        "samples": outcome.samples.iter().map(|sample| json!({
            "at_ps": sample.at_ps,
            "placed_bytes": sample.placed_bytes,
            "allowed_bps": sample.allowed_bps,
            "unfairness": sample.unfairness,
            "jain": sample.jain,
            "windows": sample.paths.iter().map(|path| path.window_bytes).collect::<Vec<u64>>(),
            "inflight": sample.paths.iter().map(|path| path.inflight_bytes).collect::<Vec<u64>>(),
        })).collect::<Vec<Value>>(),
    })
}

fn flow(flow: &FlowOutcome) -> Value {
    json!({
        "from": flow.from,
        "to": flow.to,
        "bytes": flow.bytes,
        "time_ps": flow.time_ps,
        "packets": flow.stats.packets_sent,
        "retransmitted": flow.stats.retransmitted,
        "retransmitted_by_timeout": flow.stats.retransmitted_by_timeout,
        "spurious": flow.stats.spurious,
        "window_bytes": flow.stats.window_bytes,
    })
}
