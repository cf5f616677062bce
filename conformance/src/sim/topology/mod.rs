//! Fabrics: who is joined to whom, and over which links a packet may go on.

mod builder;
mod shapes;

pub use builder::Builder;
pub use shapes::{FatTree, LeafSpine, Lines};

use super::link::Link;
use super::units::Rate;

/// An end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Node {
    /// A host, by number.
    Host(u32),
    /// A switch, by number, over all planes.
    Switch(u32),
}

/// A fabric: one or several planes that have nothing in common but the hosts, each with links, switches and routes.
///
/// Every host has one line to each plane. Routes are all the shortest ones.
#[derive(Debug)]
pub struct Topology {
    /// All links, both directions apart.
    pub links: Vec<Link>,
    /// Hosts.
    pub hosts: u32,
    /// Planes, at least 1.
    pub planes: u32,
    rate: Rate,
    /// For each host and plane, the link out of the host.
    up: Vec<u32>,
    /// For each host and plane, the link into the host.
    down: Vec<u32>,
    /// For each host and plane, the switch that it is joined to.
    home: Vec<u32>,
    switches: Vec<Switch>,
    /// For each switch and each switch that hosts are joined to: a run of `choices`.
    routes: Vec<(u32, u32)>,
    choices: Vec<u32>,
}

#[derive(Debug)]
struct Switch {
    /// `leaf0`, `spine2`, `core5`, within its plane.
    name: String,
    plane: u32,
    /// Its number among those that hosts are joined to.
    leaf: Option<u32>,
}

impl Topology {
    fn line(&self, host: u32, plane: u32) -> usize {
        (host * self.planes + plane.min(self.planes.saturating_sub(1))) as usize
    }

    /// The link out of a host into a plane.
    #[must_use]
    pub fn nic(&self, host: u32, plane: u32) -> Option<u32> {
        self.up.get(self.line(host, plane)).copied()
    }

    /// The link into a host from a plane.
    #[must_use]
    pub fn last_hop(&self, host: u32, plane: u32) -> Option<u32> {
        self.down.get(self.line(host, plane)).copied()
    }

    /// The rate of one link of a host.
    #[must_use]
    pub const fn line_rate(&self) -> Rate {
        self.rate
    }

    /// The rate of all links of a host together.
    #[must_use]
    pub fn host_rate(&self) -> Rate {
        self.rate.times(self.planes)
    }

    /// Over which links a packet for `host` may leave `switch`; none if the host can't be reached.
    #[must_use]
    pub fn routes(&self, switch: u32, host: u32) -> &[u32] {
        let Some(here) = self.switches.get(switch as usize) else { return &[] };
        let line = self.line(host, here.plane);
        let Some(&home) = self.home.get(line) else { return &[] };
        if home == switch {
            return self.down.get(line..=line).unwrap_or(&[]);
        }
        let Some(leaf) = self.switches.get(home as usize).and_then(|home| home.leaf) else { return &[] };
        let (first, count) = self.run(switch, leaf);
        self.choices.get(first..first + count).unwrap_or(&[])
    }

    fn run(&self, switch: u32, leaf: u32) -> (usize, usize) {
        let leaves = self.routes.len() / self.switches.len().max(1);
        let (first, count) =
            self.routes.get(switch as usize * leaves + leaf as usize).copied().unwrap_or_default();
        (first as usize, count as usize)
    }

    /// Round-trip time between the first and the last host over the fastest route, ps: propagation, and the storing of
    /// one packet of `wire_bytes` there and one of `answer_bytes` back at every hop.
    #[must_use]
    pub fn base_rtt_ps(&self, wire_bytes: u64, answer_bytes: u64) -> u64 {
        let last = self.hosts.saturating_sub(1);
        let ways = (0..self.planes).filter_map(|plane| self.nic(0, plane));
        ways.map(|link| self.fastest_ps(link, last, wire_bytes, answer_bytes)).min().unwrap_or(0)
    }

    /// Time there and back from the start of `link` to `host`.
    fn fastest_ps(&self, link: u32, host: u32, wire_bytes: u64, answer_bytes: u64) -> u64 {
        let Some(link) = self.links.get(link as usize) else { return u64::MAX };
        let config = &link.config;
        let hop_ps =
            2 * config.delay_ps + config.rate.time_ps(wire_bytes) + config.rate.time_ps(answer_bytes);
        let Node::Switch(switch) = link.to else { return hop_ps };
        let rest = self.routes(switch, host).iter();
        let rest_ps = rest.map(|&next| self.fastest_ps(next, host, wire_bytes, answer_bytes)).min();
        hop_ps.saturating_add(rest_ps.unwrap_or(u64::MAX))
    }

    /// The name of a node: `host3`, `leaf0`, `spine2`.
    #[must_use]
    pub fn name(&self, node: Node) -> String {
        match node {
            Node::Host(host) => format!("host{host}"),
            Node::Switch(switch) => {
                self.switches.get(switch as usize).map_or_else(String::new, |switch| switch.name.clone())
            }
        }
    }

    /// The plane of a link.
    #[must_use]
    pub fn plane_of(&self, link: u32) -> u32 {
        let Some(link) = self.links.get(link as usize) else { return 0 };
        let of = |node| match node {
            Node::Switch(switch) => self.switches.get(switch as usize).map(|switch| switch.plane),
            Node::Host(_) => None,
        };
        of(link.from).or_else(|| of(link.to)).unwrap_or(0)
    }

    /// The links from nodes that match `from` to nodes that match `to`. A pattern is a name, or the start of one and a
    /// star: `leaf0`, `spine*`, `*`. With `plane2/` before it, only links of that plane match; else those of all.
    #[must_use]
    pub fn select(&self, from: &str, to: &str) -> Vec<u32> {
        let matching = |pattern: &str, plane: u32, node: Node| {
            let (wanted, pattern) = split_plane(pattern);
            wanted.is_none_or(|wanted| wanted == plane) && matches(pattern, &self.name(node))
        };
        let chosen = |number: u32, link: &Link| {
            let plane = self.plane_of(number);
            matching(from, plane, link.from) && matching(to, plane, link.to)
        };
        (0u32..)
            .zip(&self.links)
            .filter(|(number, link)| chosen(*number, link))
            .map(|(number, _)| number)
            .collect()
    }
}

/// `plane3/leaf0` is plane 3 and `leaf0`.
fn split_plane(pattern: &str) -> (Option<u32>, &str) {
    pattern
        .strip_prefix("plane")
        .and_then(|rest| rest.split_once('/'))
        .and_then(|(plane, rest)| Some((Some(plane.parse().ok()?), rest)))
        .unwrap_or((None, pattern))
}

fn matches(pattern: &str, name: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == name, |start| name.starts_with(start))
}

/// The hash by which a switch chooses among equal routes: of the five-tuple and the switch's own seed.
#[must_use]
pub const fn ecmp(seed: u64, from: u32, to: u32, source_port: u16) -> u64 {
    // Destination port and protocol are the same in all packets.
    let tuple = ((from as u64) << 40) ^ ((to as u64) << 16) ^ source_port as u64;
    let mut hash = (tuple ^ seed).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^= hash >> 32;
    hash = hash.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 29)
}

#[cfg(test)]
mod tests;
