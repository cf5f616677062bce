//! The usual fabrics.

use super::super::link::LinkConfig;
use super::{Builder, Topology};

/// The three kinds of lines of a fabric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lines {
    /// From a host to its first switch: no marking, and a buffer that the host never fills, as it sends only when the
    /// line is free.
    pub host_up: LinkConfig,
    /// To a host.
    pub host_down: LinkConfig,
    /// Between switches.
    pub trunk: LinkConfig,
}

/// The measures of a fabric of two tiers. Every leaf is joined to every spine.
///
/// Point to point with *n* parallel routes is two hosts on two leaves with *n* spines.
#[derive(Clone, Debug, PartialEq)]
pub struct LeafSpine {
    /// Planes, each a fabric like this, at least 1.
    pub planes: u32,
    /// Leaf switches, at least 1.
    pub leaves: u32,
    /// Hosts of each leaf, at least 1.
    pub hosts_per_leaf: u32,
    /// Spine switches, at least 1.
    pub spines: u32,
    /// The lines.
    pub lines: Lines,
    /// Lines to and from each spine, in turn, where spines differ; empty if they are as `lines.trunk`.
    pub spine_lines: Vec<LinkConfig>,
}

impl LeafSpine {
    /// Builds it.
    #[must_use]
    pub fn build(&self, seed: u64) -> Topology {
        let hosts = self.leaves * self.hosts_per_leaf;
        let mut builder = Builder::new(hosts, self.planes, self.lines.host_up.rate, seed);
        let trunk = |spine: usize| {
            let at = spine % self.spine_lines.len().max(1);
            self.spine_lines.get(at).copied().unwrap_or(self.lines.trunk)
        };
        for plane in 0..self.planes {
            let leaves: Vec<u32> =
                (0..self.leaves).map(|number| builder.switch(plane, format!("leaf{number}"))).collect();
            let spines: Vec<u32> =
                (0..self.spines).map(|number| builder.switch(plane, format!("spine{number}"))).collect();
            for (host, &leaf) in (0..hosts).zip(repeated(&leaves, self.hosts_per_leaf)) {
                builder.attach(host, leaf, self.lines.host_up, self.lines.host_down);
            }
            for &leaf in &leaves {
                for (number, &spine) in spines.iter().enumerate() {
                    builder.trunk(leaf, spine, trunk(number));
                }
            }
            for (number, &spine) in spines.iter().enumerate() {
                for &leaf in &leaves {
                    builder.trunk(spine, leaf, trunk(number));
                }
            }
        }
        builder.finish()
    }
}

/// The measures of a fabric of three tiers of equal switches (Al-Fares et al., SIGCOMM 2008): `arity` pods of
/// `arity`/2 edge and as many aggregation switches, and (`arity`/2)² core switches.
#[derive(Clone, Debug, PartialEq)]
pub struct FatTree {
    /// Planes, each a fabric like this, at least 1.
    pub planes: u32,
    /// Ports of a switch, even, at least 2.
    pub arity: u32,
    /// Hosts of each edge switch, at least 1; `arity`/2 for a fabric without oversubscription.
    pub hosts_per_edge: u32,
    /// The lines.
    pub lines: Lines,
}

impl FatTree {
    /// Builds it.
    #[must_use]
    pub fn build(&self, seed: u64) -> Topology {
        let half = (self.arity / 2).max(1);
        let edges = self.arity * half;
        let hosts = edges * self.hosts_per_edge;
        let mut builder = Builder::new(hosts, self.planes, self.lines.host_up.rate, seed);
        for plane in 0..self.planes {
            let mut tier = |name: &str, count: u32| -> Vec<u32> {
                (0..count).map(|number| builder.switch(plane, format!("{name}{number}"))).collect()
            };
            let (edge, aggregation, core) =
                (tier("edge", edges), tier("agg", edges), tier("core", half * half));
            for (host, &switch) in (0..hosts).zip(repeated(&edge, self.hosts_per_edge)) {
                builder.attach(host, switch, self.lines.host_up, self.lines.host_down);
            }
            let mut cable = |one: u32, other: u32| {
                builder.trunk(one, other, self.lines.trunk);
                builder.trunk(other, one, self.lines.trunk);
            };
            for (below, above) in edge.chunks(half as usize).zip(aggregation.chunks(half as usize)) {
                for (&low, &high) in below.iter().flat_map(|low| above.iter().map(move |high| (low, high))) {
                    cable(low, high);
                }
                // The n-th of each pod is joined to the n-th group of cores.
                for (&low, group) in above.iter().zip(core.chunks(half as usize)) {
                    for &high in group {
                        cable(low, high);
                    }
                }
            }
        }
        builder.finish()
    }
}

/// Each of the list so many times in a row.
fn repeated(list: &[u32], times: u32) -> impl Iterator<Item = &u32> {
    list.iter().flat_map(move |one| std::iter::repeat_n(one, times as usize))
}
