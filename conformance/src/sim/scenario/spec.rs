//! What a scenario can say.

use serde::Deserialize;

use super::Target;

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
    /// The curve over time by which this case is shown to people: `throughput`, `windows`, `rates` or `fairness`.
    pub main_plot: Option<String>,
    /// Part of the short run that continuous integration makes.
    #[serde(default)]
    pub ci: bool,
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

/// Kinds of fabric.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum FabricKind {
    /// Two tiers, every leaf joined to every spine.
    #[default]
    LeafSpine,
    /// Three tiers of switches with `arity` ports.
    FatTree,
}

/// A fabric.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FabricSpec {
    /// Which.
    #[serde(default)]
    pub kind: FabricKind,
    /// Planes: so many fabrics side by side, and each host has a line and an address in each.
    #[serde(default = "once")]
    pub planes: u32,
    /// Leaf switches (leaf-spine).
    #[serde(default)]
    pub leaves: u32,
    /// Hosts of each leaf; of each edge switch of a fat tree, there `arity`/2 if absent.
    #[serde(default)]
    pub hosts_per_leaf: u32,
    /// Spine switches, each joined to every leaf: the number of routes between two leaves.
    #[serde(default)]
    pub spines: u32,
    /// Ports of a switch (fat tree), even.
    #[serde(default)]
    pub arity: u32,
    /// Rate of each of the hosts' links, Gb/s.
    pub gbps: f64,
    /// Rate of the links between switches, Gb/s; that of the hosts if absent.
    pub trunk_gbps: Option<f64>,
    /// Rates of the links of each spine, in turn, Gb/s; all as `trunk_gbps` if empty.
    #[serde(default)]
    pub spine_gbps: Vec<f64>,
    /// Round-trip times over each spine, in turn, µs; all `rtt_us` if empty.
    #[serde(default)]
    pub spine_rtt_us: Vec<f64>,
    /// Round-trip time over the longest way, propagation only, µs.
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
    /// A model of a transport that sprays packets of one number space, and takes distance in it for loss.
    Spray,
}

/// Congestion controls of the core.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum CongestionKind {
    /// AIMD on congestion marks: the default of the core.
    #[default]
    Ecn,
    /// Windows that hold the queueing delay at a target.
    Delay,
}

/// A transport.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TransportSpec {
    /// Which.
    pub kind: TransportKind,
    /// Congestion control of `metaroce`.
    pub congestion: CongestionKind,
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
    /// Distance in its one number space that `spray` takes for loss, packets.
    pub duplicate_threshold: u64,
    /// Real checksums.
    pub checksums: bool,
    /// Largest error of the rate of a host's clock, parts in a million, either way.
    pub clock_ppm: f64,
    /// Largest difference of the start of the hosts' clocks, ms.
    pub clock_offset_ms: f64,
}

impl Default for TransportSpec {
    fn default() -> Self {
        Self {
            kind: TransportKind::Metaroce,
            congestion: CongestionKind::Ecn,
            paths: 8,
            mtu_bytes: 4_176,
            burst_packets: 1,
            window_bdp: 0.0,
            delay_target_us: None,
            rto_us: 100.0,
            duplicate_threshold: 64,
            checksums: false,
            clock_ppm: 0.0,
            clock_offset_ms: 0.0,
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
    /// Half of the hosts send to the last; the first of them also to each of the rest, who hear from nobody else.
    OutcastIncast,
    /// Everybody sends to everybody.
    AllToAll,
    /// Ring all-reduce; `mib` are held by each host, messages are the slices.
    RingAllReduce,
    /// Ring all-gather; every host ends with `mib`.
    AllGather,
    /// All-reduce by recursive halving and doubling, among a power of two of hosts.
    HalvingDoubling,
    /// READs of `message_kib`: the first quarter of the hosts are servers, each of the others reads `mib`.
    KeyValueReads,
    /// Messages as in `list`.
    List,
    /// As `stream`, with the latency of each message kept.
    Signals,
}

/// A workload.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadSpec {
    /// Which.
    pub kind: WorkloadKind,
    /// Bytes of each flow (all-to-all and collectives: of each host), MiB.
    #[serde(default)]
    pub mib: f64,
    /// Connections of each flow (stream and signals), each with `mib`.
    #[serde(default = "once")]
    pub connections: u32,
    /// Lines of `at_us,from,to,bytes`, for `list`.
    #[serde(default)]
    pub list: String,
    /// The same in a file, beside the scenario's.
    pub list_file: Option<String>,
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
    /// Links from nodes of this name: `host3`, `leaf0`, `spine*`, `*`, `plane1/leaf*`.
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
    /// It carries packets of up to `mtu_bytes` on the wire.
    Mtu,
}

/// Something that happens to links.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventSpec {
    /// When, µs after the start of the workload.
    pub at_us: f64,
    /// Links from nodes of this name.
    #[serde(default = "all_nodes")]
    pub from: String,
    /// To nodes of this name.
    #[serde(default = "all_nodes")]
    pub to: String,
    /// Instead of both: all links from and to nodes of this name.
    pub node: Option<String>,
    /// What.
    pub action: EventKind,
    /// The rate, for `rate`.
    pub gbps: Option<f64>,
    /// The size, for `mtu`.
    pub mtu_bytes: Option<u64>,
    /// How often again, µs apart; for flapping give it to both the cut and the restoring.
    pub every_us: Option<f64>,
    /// How often in all.
    #[serde(default = "once")]
    pub times: u32,
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
fn all_nodes() -> String {
    "*".to_owned()
}
