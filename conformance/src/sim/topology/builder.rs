//! Puts a fabric together, link by link, and finds its routes.

use std::collections::VecDeque;

use super::super::link::{Link, LinkConfig};
use super::super::units::Rate;
use super::{Node, Switch, Topology};

/// A fabric in the making.
#[derive(Debug)]
pub struct Builder {
    topology: Topology,
    seed: u64,
}

impl Builder {
    /// Nothing yet but hosts with one line of `rate` to each of `planes` planes; all randomness of links follows from
    /// `seed`.
    #[must_use]
    pub fn new(hosts: u32, planes: u32, rate: Rate, seed: u64) -> Self {
        let planes = planes.max(1);
        let lines = (hosts * planes) as usize;
        let topology = Topology {
            links: Vec::new(),
            hosts,
            planes,
            rate,
            up: vec![u32::MAX; lines],
            down: vec![u32::MAX; lines],
            home: vec![u32::MAX; lines],
            switches: Vec::new(),
            routes: Vec::new(),
            choices: Vec::new(),
        };
        Self { topology, seed }
    }

    /// A new switch of a plane.
    pub fn switch(&mut self, plane: u32, name: String) -> u32 {
        self.topology.switches.push(Switch { name, plane, leaf: None });
        u32::try_from(self.topology.switches.len() - 1).unwrap_or(u32::MAX)
    }

    /// Joins a host to a switch of a plane.
    pub fn attach(&mut self, host: u32, switch: u32, up: LinkConfig, down: LinkConfig) {
        let plane = self.topology.switches.get(switch as usize).map_or(0, |switch| switch.plane);
        let (out, back) = (
            self.join(Node::Host(host), Node::Switch(switch), up),
            self.join(Node::Switch(switch), Node::Host(host), down),
        );
        let line = self.topology.line(host, plane);
        for (list, value) in
            [(&mut self.topology.up, out), (&mut self.topology.down, back), (&mut self.topology.home, switch)]
        {
            if let Some(entry) = list.get_mut(line) {
                *entry = value;
            }
        }
    }

    /// One direction of a cable between switches.
    pub fn trunk(&mut self, from: u32, to: u32, config: LinkConfig) {
        self.join(Node::Switch(from), Node::Switch(to), config);
    }

    fn join(&mut self, from: Node, to: Node, config: LinkConfig) -> u32 {
        let number = u32::try_from(self.topology.links.len()).unwrap_or(u32::MAX);
        let seed = self.seed ^ u64::from(number).wrapping_mul(0xd134_2543_de82_ef95);
        self.topology.links.push(Link::new(from, to, config, seed));
        number
    }

    /// The fabric, with the shortest routes from every switch to every switch that hosts are joined to.
    #[must_use]
    pub fn finish(mut self) -> Topology {
        let topology = &mut self.topology;
        let mut leaves = Vec::new();
        for &home in &topology.home {
            if let Some(switch) = topology.switches.get_mut(home as usize)
                && switch.leaf.is_none()
            {
                switch.leaf = u32::try_from(leaves.len()).ok();
                leaves.push(home);
            }
        }
        let count = topology.switches.len();
        // For each switch the links out of it, and into it, that join switches.
        let (mut out, mut into) = (vec![Vec::new(); count], vec![Vec::new(); count]);
        for (number, link) in (0u32..).zip(&topology.links) {
            let (Node::Switch(from), Node::Switch(to)) = (link.from, link.to) else { continue };
            if let (Some(out), Some(into)) = (out.get_mut(from as usize), into.get_mut(to as usize)) {
                out.push((number, to));
                into.push(from);
            }
        }
        topology.routes = vec![(0, 0); count * leaves.len()];
        for (leaf, &goal) in leaves.iter().enumerate() {
            let distances = distances(goal, &into);
            let far = |switch: u32| distances.get(switch as usize).copied().unwrap_or(u32::MAX);
            for (switch, links) in (0u32..).zip(&out) {
                let first = topology.choices.len();
                let nearer = links.iter().filter(|(_, to)| far(*to) < far(switch)).map(|(link, _)| *link);
                topology.choices.extend(nearer);
                let run = (u32::try_from(first), u32::try_from(topology.choices.len() - first));
                if let ((Ok(first), Ok(length)), Some(entry)) =
                    (run, topology.routes.get_mut(switch as usize * leaves.len() + leaf))
                {
                    *entry = (first, length);
                }
            }
        }
        self.topology
    }
}

/// Hops from every switch to `goal`; `u32::MAX` if there is no way.
fn distances(goal: u32, into: &[Vec<u32>]) -> Vec<u32> {
    let mut distances = vec![u32::MAX; into.len()];
    let mut queue = VecDeque::from([(goal, 0)]);
    while let Some((switch, distance)) = queue.pop_front() {
        let Some(known) = distances.get_mut(switch as usize) else { continue };
        if *known != u32::MAX {
            continue;
        }
        *known = distance;
        let before = into.get(switch as usize).into_iter().flatten();
        queue.extend(before.map(|&from| (from, distance + 1)));
    }
    distances
}
