//! Scenario files of the simulator: reading, building and a short run return, whatever the text.

use metaroce_conformance::sim::Scenario;
use metaroce_conformance::sim::scenario::Spec;

/// Fabrics up to this size are run, for a moment.
const HOSTS_MAX: u32 = 4;
const RUN_MS: f64 = 0.2;

/// Reads the bytes as a scenario.
pub fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(scenario) = Scenario::parse("fuzzed", text) else { return };
    assert!(!scenario.cases.is_empty(), "a scenario has a case");
    for mut case in scenario.cases.into_iter().take(2) {
        if !is_small(&case.spec) {
            continue;
        }
        case.spec.limit_ms = case.spec.limit_ms.clamp(0.0, RUN_MS);
        case.spec.sample_us = if case.spec.sample_us > 0.0 { case.spec.sample_us.max(10.0) } else { 0.0 };
        let _ = case.run(1, &mut |_, _| {});
    }
}

fn is_small(spec: &Spec) -> bool {
    let fabric = &spec.fabric;
    fabric.leaves.saturating_mul(fabric.hosts_per_leaf) <= HOSTS_MAX
        && fabric.spines <= 4
        && fabric.gbps <= 100.0
        && fabric.rtt_us >= 1.0
        && spec.events.iter().all(|event| event.times < 10)
}
