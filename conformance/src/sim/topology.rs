//! Fabrics: who is joined to whom, and over which links a packet may go on.

use super::link::{Link, LinkConfig};
use super::units::Rate;

/// An end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Node {
    /// A host, by number.
    Host(u32),
    /// A switch, by number: leaves first, then spines.
    Switch(u32),
}

/// The measures of a fabric of two tiers. Every leaf is joined to every spine.
///
/// Point to point with *n* parallel routes is two hosts on two leaves with *n* spines.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LeafSpine {
    /// Leaf switches, at least 1.
    pub leaves: u32,
    /// Hosts of each leaf, at least 1.
    pub hosts_per_leaf: u32,
    /// Spine switches, at least 1.
    pub spines: u32,
    /// From a host to its leaf: no marking, and a buffer that the host never fills, as it sends only when the line is
    /// free.
    pub host_up: LinkConfig,
    /// From a leaf to a host.
    pub host_down: LinkConfig,
    /// Between leaves and spines.
    pub trunk: LinkConfig,
}

/// A fabric: links and routes.
#[derive(Debug)]
pub struct Topology {
    /// All links, both directions apart.
    pub links: Vec<Link>,
    /// Hosts.
    pub hosts: u32,
    shape: LeafSpine,
    /// For each host, the link out of it.
    up: Vec<u32>,
    /// For each host, the link into it.
    down: Vec<u32>,
    /// For each leaf, the first of its links to the spines, which follow one another.
    leaf_up: Vec<u32>,
    /// For each spine, the first of its links to the leaves, which follow one another.
    spine_down: Vec<u32>,
}

impl Topology {
    /// Builds the fabric; all randomness of its links follows from `seed`.
    #[must_use]
    pub fn leaf_spine(shape: &LeafSpine, seed: u64) -> Self {
        let hosts = shape.leaves * shape.hosts_per_leaf;
        let mut topology = Self {
            links: Vec::new(),
            hosts,
            shape: *shape,
            up: Vec::new(),
            down: Vec::new(),
            leaf_up: Vec::new(),
            spine_down: Vec::new(),
        };
        for host in 0..hosts {
            let leaf = Node::Switch(host / shape.hosts_per_leaf);
            let up = topology.join(Node::Host(host), leaf, shape.host_up, seed);
            let down = topology.join(leaf, Node::Host(host), shape.host_down, seed);
            topology.up.push(up);
            topology.down.push(down);
        }
        for leaf in 0..shape.leaves {
            topology.leaf_up.push(topology.next());
            for spine in 0..shape.spines {
                let spine = Node::Switch(shape.leaves + spine);
                topology.join(Node::Switch(leaf), spine, shape.trunk, seed);
            }
        }
        for spine in 0..shape.spines {
            topology.spine_down.push(topology.next());
            for leaf in 0..shape.leaves {
                let from = Node::Switch(shape.leaves + spine);
                topology.join(from, Node::Switch(leaf), shape.trunk, seed);
            }
        }
        topology
    }

    fn next(&self) -> u32 {
        u32::try_from(self.links.len()).unwrap_or(u32::MAX)
    }

    fn join(&mut self, from: Node, to: Node, config: LinkConfig, seed: u64) -> u32 {
        let number = self.next();
        let seed = seed ^ u64::from(number).wrapping_mul(0xd134_2543_de82_ef95);
        self.links.push(Link::new(from, to, config, seed));
        number
    }

    /// The link out of a host.
    #[must_use]
    pub fn nic(&self, host: u32) -> Option<u32> {
        self.up.get(host as usize).copied()
    }

    /// The link into a host.
    #[must_use]
    pub fn last_hop(&self, host: u32) -> Option<u32> {
        self.down.get(host as usize).copied()
    }

    /// The rate of the hosts' links.
    #[must_use]
    pub const fn host_rate(&self) -> Rate {
        self.shape.host_up.rate
    }

    /// Over which links a packet for `host` may leave `switch`: the first, and how many follow it.
    #[must_use]
    pub fn routes(&self, switch: u32, host: u32) -> (u32, u32) {
        let leaf = host / self.shape.hosts_per_leaf;
        if switch >= self.shape.leaves {
            let first = self.spine_down.get((switch - self.shape.leaves) as usize).copied().unwrap_or(0);
            return (first + leaf, 1);
        }
        if switch == leaf {
            return (self.last_hop(host).unwrap_or(0), 1);
        }
        (self.leaf_up.get(switch as usize).copied().unwrap_or(0), self.shape.spines)
    }

    /// Round-trip time of two hosts on different leaves (if there are any), ps: propagation, and the storing of one
    /// packet of `wire_bytes` there and one of `answer_bytes` back at every hop.
    #[must_use]
    pub fn base_rtt_ps(&self, wire_bytes: u64, answer_bytes: u64) -> u64 {
        let mut hops = vec![self.shape.host_up, self.shape.host_down];
        if self.shape.leaves > 1 {
            hops.extend([self.shape.trunk; 2]);
        }
        let hop = |link: LinkConfig| {
            2 * link.delay_ps + link.rate.time_ps(wire_bytes) + link.rate.time_ps(answer_bytes)
        };
        hops.into_iter().map(hop).sum()
    }

    /// The name of a node: `host3`, `leaf0`, `spine2`.
    #[must_use]
    pub fn name(&self, node: Node) -> String {
        match node {
            Node::Host(host) => format!("host{host}"),
            Node::Switch(switch) if switch < self.shape.leaves => format!("leaf{switch}"),
            Node::Switch(switch) => format!("spine{}", switch - self.shape.leaves),
        }
    }

    /// The links from nodes that match `from` to nodes that match `to`. A pattern is a name, or the start of one and a
    /// star: `leaf0`, `spine*`, `*`.
    #[must_use]
    pub fn select(&self, from: &str, to: &str) -> Vec<u32> {
        let chosen = |link: &Link| matches(from, &self.name(link.from)) && matches(to, &self.name(link.to));
        (0u32..).zip(&self.links).filter(|(_, link)| chosen(link)).map(|(number, _)| number).collect()
    }
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
mod tests {
    use super::super::link::Marking;
    use super::super::units::US;
    use super::*;

    fn topology() -> Topology {
        let link = LinkConfig {
            rate: Rate::gbps(100.0),
            delay_ps: US,
            jitter_ps: 0,
            buffer_bytes: 1 << 20,
            marking: Marking::Off,
            mtu_bytes: 9_216,
        };
        let shape = LeafSpine {
            leaves: 4,
            hosts_per_leaf: 3,
            spines: 5,
            host_up: link,
            host_down: link,
            trunk: link,
        };
        Topology::leaf_spine(&shape, 1)
    }

    #[test]
    fn every_route_leads_to_its_host_in_at_most_four_hops() {
        let topology = topology();
        for (from, to) in (0..12).flat_map(|from| (0..12).map(move |to| (from, to))) {
            for choice in 0..5 {
                let mut link = topology.nic(from).unwrap();
                let mut hops = 1;
                while let Node::Switch(switch) = topology.links[link as usize].to {
                    let (first, count) = topology.routes(switch, to);
                    link = first + choice % count;
                    assert_eq!(topology.links[link as usize].from, Node::Switch(switch));
                    hops += 1;
                }
                assert_eq!(topology.links[link as usize].to, Node::Host(to));
                assert!(hops <= 4);
            }
        }
    }

    #[test]
    fn patterns_choose_links() {
        let topology = topology();
        assert_eq!(topology.select("leaf*", "spine0").len(), 4);
        assert_eq!(topology.select("spine2", "leaf1").len(), 1);
        assert_eq!(topology.select("*", "*").len(), topology.links.len());
        assert_eq!(topology.select("host1", "leaf1").len(), 0);
    }

    #[test]
    fn ecmp_spreads_ports_evenly_and_differently_on_each_switch() {
        let mut counts = [0u32; 8];
        let mut equal = 0;
        for port in 49_152..=u16::MAX {
            let route = ecmp(1, 3, 9, port) % 8;
            counts[usize::try_from(route).unwrap()] += 1;
            equal += u32::from(route == ecmp(2, 3, 9, port) % 8);
        }
        // Chi-squared with 7 degrees of freedom: above 24.3 once in a thousand.
        let mean = 16_384.0 / 8.0;
        let chi: f64 = counts.iter().map(|&count| (f64::from(count) - mean).powi(2) / mean).sum();
        assert!(chi < 24.3, "{counts:?}");
        assert!((1_850..2_250).contains(&equal), "{equal}");
    }
}
