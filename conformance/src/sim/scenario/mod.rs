//! Scenarios: a fabric, a transport, a workload, faults, and what must be reached, in TOML.
//!
//! A scenario has a base and any number of cases; a case is a table that is laid over the base. Unknown keys are errors.

mod build;
mod target;

pub use target::{Metric, Target, Verdict};

use serde::Deserialize;
use toml::{Table, Value};

use super::metrics::Outcome;

/// A file: a name, what it is about, and its cases.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Name, that of the file.
    pub name: String,
    /// One line for people.
    pub about: String,
    /// Cases, in the order of the file; at least one.
    pub cases: Vec<Case>,
}

/// One case of a scenario.
#[derive(Clone, Debug)]
pub struct Case {
    /// Name.
    pub name: String,
    /// What to build and do.
    pub spec: Spec,
}

/// What to build and do.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// The fabric.
    pub fabric: FabricSpec,
    /// What runs on the hosts.
    #[serde(default)]
    pub transport: TransportSpec,
    /// What they say.
    pub workload: WorkloadSpec,
    /// Faults from the start of the workload on.
    #[serde(default)]
    pub faults: Vec<FaultSpec>,
    /// One more, for cases to change.
    pub fault: Option<FaultSpec>,
    /// Failures, by time.
    #[serde(default)]
    pub events: Vec<EventSpec>,
    /// What must be reached.
    #[serde(default)]
    pub targets: Vec<Target>,
    /// Where this case stands on the horizontal axis of plots.
    pub x: Option<f64>,
    /// Virtual time after which the run counts as stuck, ms.
    #[serde(default = "limit_ms")]
    pub limit_ms: f64,
    /// The run may end there: then what was placed by then counts, and not all is checked.
    #[serde(default)]
    pub timed: bool,
    /// Curves are sampled that often, µs; 0 for never.
    #[serde(default)]
    pub sample_us: f64,
}

/// A fabric of leaves and spines.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FabricSpec {
    /// Leaf switches.
    pub leaves: u32,
    /// Hosts of each.
    pub hosts_per_leaf: u32,
    /// Spine switches, each joined to every leaf: the number of routes between two leaves.
    pub spines: u32,
    /// Rate of the hosts' links, Gb/s.
    pub gbps: f64,
    /// Rate of the links between switches, Gb/s; that of the hosts if absent.
    pub trunk_gbps: Option<f64>,
    /// Round-trip time over a spine, propagation only, µs.
    pub rtt_us: f64,
    /// Buffer of each port, in bandwidth-delay products of the host link.
    #[serde(default = "buffer_bdp")]
    pub buffer_bdp: f64,
    /// Queue from which packets are marked, in the same.
    #[serde(default = "mark_bdp")]
    pub mark_bdp: f64,
    /// Queue from which all packets are marked, in the same: a ramp then; a step if absent.
    pub mark_all_bdp: Option<f64>,
    /// Probability of a mark at the top of the ramp.
    #[serde(default = "one")]
    pub mark_most: f64,
    /// Extra delay of each hop, at most, ns, keeping the order.
    #[serde(default)]
    pub jitter_ns: f64,
    /// Largest packet on the wire, bytes.
    #[serde(default = "wire_mtu")]
    pub mtu_bytes: u64,
}

/// Kinds of transport.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum TransportKind {
    /// The core of this project.
    #[default]
    Metaroce,
    /// A model of `RoCEv2`: go-back-N, DCQCN, one path.
    Rocev2,
}

/// A transport.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TransportSpec {
    /// Which.
    pub kind: TransportKind,
    /// Paths of a connection.
    pub paths: u8,
    /// Largest UDP payload, bytes.
    pub mtu_bytes: u16,
    /// Packets in a row on one path.
    pub burst_packets: u8,
    /// Largest window of a connection, in bandwidth-delay products; 0 for the default of the core.
    pub window_bdp: f64,
    /// Queueing delay that counts as a mark, µs; the RTT if absent.
    pub delay_target_us: Option<f64>,
    /// Floor of timeouts, µs.
    pub rto_us: f64,
    /// Real checksums.
    pub checksums: bool,
}

impl Default for TransportSpec {
    fn default() -> Self {
        Self {
            kind: TransportKind::Metaroce,
            paths: 8,
            mtu_bytes: 4_176,
            burst_packets: 1,
            window_bdp: 0.0,
            delay_target_us: None,
            rto_us: 100.0,
            checksums: false,
        }
    }
}

/// Kinds of workload.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum WorkloadKind {
    /// From the first host to the last.
    Stream,
    /// Everybody sends to one other.
    Permutation,
    /// All others send to the last host.
    Incast,
    /// Everybody sends to everybody.
    AllToAll,
    /// Ring all-reduce; `mib` are held by each host, messages are the slices.
    RingAllReduce,
    /// As `stream`, with the latency of each message kept.
    Signals,
}

/// A workload.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadSpec {
    /// Which.
    pub kind: WorkloadKind,
    /// Bytes of each flow (all-to-all and all-reduce: of each host), MiB.
    pub mib: f64,
    /// Bytes of each message, KiB.
    #[serde(default = "message_kib")]
    pub message_kib: f64,
    /// Messages of a flow that are outstanding at a time.
    #[serde(default = "outstanding")]
    pub outstanding: u32,
}

/// Faults of links.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultSpec {
    /// Links from nodes of this name: `host3`, `leaf0`, `spine*`, `*`.
    pub from: String,
    /// To nodes of this name.
    pub to: String,
    /// Mean loss.
    #[serde(default)]
    pub loss: f64,
    /// Mean length of bursts of losses, packets; 0 for independent losses.
    #[serde(default)]
    pub burst_packets: f64,
    /// Packets that arrive twice.
    #[serde(default)]
    pub duplication: f64,
    /// Packets held back.
    #[serde(default)]
    pub reordering: f64,
    /// How long at most, µs.
    #[serde(default)]
    pub reorder_us: f64,
    /// With `path_of`: only packets whose source port leaves this remainder. Neighbouring paths have neighbouring
    /// ports, so of `path_of` paths that is one.
    #[serde(default)]
    pub path: u16,
    /// Paths of which `path` is one; 0 for faults that meet all packets.
    #[serde(default)]
    pub path_of: u16,
    /// Packets with a byte changed; wants `transport.checksums`.
    #[serde(default)]
    pub corruption: f64,
}

/// Kinds of events.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum EventKind {
    /// The link is cut.
    Cut,
    /// It is connected again.
    Restore,
    /// It swallows everything.
    Blackhole,
    /// No longer.
    Unblackhole,
    /// It goes on at `gbps`.
    Rate,
}

/// Something that happens to links.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventSpec {
    /// When, µs after the start of the workload.
    pub at_us: f64,
    /// Links from nodes of this name.
    pub from: String,
    /// To nodes of this name.
    pub to: String,
    /// What.
    pub action: EventKind,
    /// The rate, for `rate`.
    pub gbps: Option<f64>,
    /// How often again, µs apart; for flapping give it to both the cut and the restoring.
    pub every_us: Option<f64>,
    /// How often in all.
    #[serde(default = "once")]
    pub times: u32,
}

/// What is wrong with a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioError(pub String);

impl std::fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ScenarioError {}

impl Scenario {
    /// Reads a scenario.
    ///
    /// # Errors
    /// [`ScenarioError`] says what is wrong, and in which case.
    pub fn parse(name: &str, text: &str) -> Result<Self, ScenarioError> {
        let error = |case: &str, what: String| ScenarioError(format!("scenario {name}{case}: {what}"));
        let mut base: Table = text.parse().map_err(|what| error("", format!("{what}")))?;
        let about = match base.remove("about") {
            Some(Value::String(about)) => about,
            _ => String::new(),
        };
        let cases = match base.remove("case") {
            Some(Value::Array(cases)) => cases,
            None => vec![Value::Table(Table::new())],
            Some(_) => return Err(error("", "`case` must be an array of tables: [[case]]".to_owned())),
        };
        let mut read = Vec::new();
        for case in cases {
            let Value::Table(mut case) = case else {
                return Err(error("", "a case must be a table".to_owned()));
            };
            let case_name = match case.remove("name") {
                Some(Value::String(case_name)) => case_name,
                _ => format!("{}", read.len() + 1),
            };
            let mut table = base.clone();
            overlay(&mut table, case);
            let spec = Spec::deserialize(Value::Table(table))
                .map_err(|what| error(&format!(", case {case_name}"), format!("{what}")))?;
            read.push(Case { name: case_name, spec });
        }
        Ok(Self { name: name.to_owned(), about, cases: read })
    }

    /// The scenarios that come with this crate.
    ///
    /// # Errors
    /// [`ScenarioError`] if one of them is wrong; a test says that none is.
    pub fn catalog() -> Result<Vec<Self>, ScenarioError> {
        CATALOG.iter().map(|(name, text)| Self::parse(name, text)).collect()
    }
}

impl Case {
    /// Makes one run of the case.
    ///
    /// # Errors
    /// [`ScenarioError`] if the case can't be built.
    pub fn run(&self, seed: u64, progress: &mut dyn FnMut(u64, u64)) -> Result<Outcome, ScenarioError> {
        Ok(build::plan(&self.spec, seed)?.run(progress))
    }
}

/// Lays `over` on `base`: tables are merged, everything else is replaced.
fn overlay(base: &mut Table, over: Table) {
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(Value::Table(below)), Value::Table(above)) => overlay(below, above),
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}

const fn limit_ms() -> f64 {
    1_000.0
}
const fn buffer_bdp() -> f64 {
    2.0
}
const fn mark_bdp() -> f64 {
    0.2
}
const fn one() -> f64 {
    1.0
}
const fn wire_mtu() -> u64 {
    9_216
}
const fn message_kib() -> f64 {
    1_024.0
}
const fn outstanding() -> u32 {
    4
}
const fn once() -> u32 {
    1
}

macro_rules! catalog {
    ($($name:literal,)*) => {
        /// Names and texts of the scenarios that come with this crate.
        const CATALOG: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../../scenarios/", $name, ".toml"))),)*];
    };
}

catalog! {
    "p2p-loss",
    "p2p-bursts",
    "startup",
    "incast-15",
    "incast-127",
    "ring-16",
    "all-to-all-16",
    "permutation",
    "failures",
    "signals",
    "faults",
    "ring-64",
    "all-to-all-64",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_of_the_catalog_can_be_read_and_built() {
        for scenario in Scenario::catalog().unwrap() {
            assert!(!scenario.about.is_empty(), "{}", scenario.name);
            for case in &scenario.cases {
                build::plan(&case.spec, 1).unwrap();
            }
        }
    }

    #[test]
    fn the_example_of_the_readme_can_be_read_and_built() {
        let readme = include_str!("../../../README.md");
        let (_, example) = readme.split_once("```toml\n").unwrap();
        let (example, _) = example.split_once("```").unwrap();
        let scenario = Scenario::parse("example", example).unwrap();
        assert_eq!(scenario.cases.len(), 2);
        for case in &scenario.cases {
            build::plan(&case.spec, 1).unwrap();
        }
    }

    #[test]
    fn a_case_changes_only_what_it_names() {
        let text = "[fabric]\nleaves = 2\nhosts_per_leaf = 1\nspines = 1\ngbps = 100.0\nrtt_us = 10.0\n\
                    [workload]\nkind = \"stream\"\nmib = 1.0\n\
                    [[case]]\nname = \"slow\"\nfabric = { gbps = 10.0 }\n[[case]]\n";
        let scenario = Scenario::parse("test", text).unwrap();
        let rates: Vec<f64> = scenario.cases.iter().map(|case| case.spec.fabric.gbps).collect();
        assert_eq!(rates, [10.0, 100.0]);
        assert_eq!(scenario.cases[0].spec.fabric.leaves, 2);
    }

    #[test]
    fn a_key_that_nobody_knows_is_an_error_that_names_it() {
        let error = Scenario::parse("test", "speed = 3\n").unwrap_err();
        assert!(error.to_string().contains("speed"), "{error}");
    }
}
