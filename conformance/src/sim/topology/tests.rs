use super::super::link::{LinkConfig, Marking};
use super::super::units::US;
use super::*;

fn lines() -> Lines {
    let link = LinkConfig {
        rate: Rate::gbps(100.0),
        delay_ps: US,
        jitter_ps: 0,
        buffer_bytes: 1 << 20,
        marking: Marking::Off,
        mtu_bytes: 9_216,
    };
    Lines { host_up: link, host_down: link, trunk: link }
}

fn leaf_spine(planes: u32) -> Topology {
    let shape = LeafSpine {
        planes,
        leaves: 4,
        hosts_per_leaf: 3,
        spines: 5,
        lines: lines(),
        spine_lines: Vec::new(),
    };
    shape.build(1)
}

fn fat_tree(planes: u32) -> Topology {
    FatTree { planes, arity: 4, hosts_per_edge: 2, lines: lines() }.build(1)
}

/// Walks from every host to every other over every plane, with every choice, in at most `most` hops.
fn assert_connected(topology: &Topology, most: u32) {
    let all = || 0..topology.hosts;
    for (from, to, plane) in all()
        .flat_map(|from| all().flat_map(move |to| (0..topology.planes).map(move |plane| (from, to, plane))))
    {
        for choice in 0..5 {
            let mut link = topology.nic(from, plane).unwrap();
            let mut hops = 1;
            while let Node::Switch(switch) = topology.links[link as usize].to {
                let routes = topology.routes(switch, to);
                link = routes[choice % routes.len()];
                assert_eq!(topology.links[link as usize].from, Node::Switch(switch));
                assert_eq!(topology.plane_of(link), plane);
                hops += 1;
            }
            assert_eq!(topology.links[link as usize].to, Node::Host(to));
            assert!(hops <= most);
        }
    }
}

#[test]
fn every_route_leads_to_its_host_within_its_plane() {
    assert_connected(&leaf_spine(1), 4);
    assert_connected(&leaf_spine(3), 4);
    assert_connected(&fat_tree(1), 6);
    assert_connected(&fat_tree(2), 6);
}

#[test]
fn a_fat_tree_has_all_its_shortest_routes_and_no_other() {
    let topology = fat_tree(1);
    assert_eq!((topology.hosts, topology.links.len()), (16, 2 * (16 + 16 + 16)));
    let edge = |host| match topology.links[topology.nic(host, 0).unwrap() as usize].to {
        Node::Switch(switch) => switch,
        Node::Host(_) => panic!("a host is joined to a host"),
    };
    assert_eq!(topology.routes(edge(0), 1).len(), 1, "the same edge");
    assert_eq!(topology.routes(edge(0), 2).len(), 2, "the same pod");
    assert_eq!(topology.routes(edge(0), 15).len(), 2, "another pod: either aggregation switch");
}

#[test]
fn the_base_rtt_is_that_of_the_fastest_route() {
    let rtt_ps = leaf_spine(2).base_rtt_ps(0, 0);
    assert_eq!(rtt_ps, 8 * US);
    let slow = LinkConfig { delay_ps: 5 * US, ..lines().trunk };
    let shape = LeafSpine {
        planes: 1,
        leaves: 2,
        hosts_per_leaf: 1,
        spines: 2,
        lines: lines(),
        spine_lines: vec![slow, LinkConfig { delay_ps: 2 * US, ..slow }],
    };
    assert_eq!(shape.build(1).base_rtt_ps(0, 0), 12 * US);
}

#[test]
fn patterns_choose_links() {
    let topology = leaf_spine(1);
    assert_eq!(topology.select("leaf*", "spine0").len(), 4);
    assert_eq!(topology.select("spine2", "leaf1").len(), 1);
    assert_eq!(topology.select("*", "*").len(), topology.links.len());
    assert_eq!(topology.select("host1", "leaf1").len(), 0);
    let planes = leaf_spine(3);
    assert_eq!(planes.select("leaf*", "spine0").len(), 12);
    assert_eq!(planes.select("plane2/leaf*", "spine0").len(), 4);
    assert_eq!(planes.select("plane1/*", "*").len(), planes.links.len() / 3);
    assert_eq!(planes.select("plane3/*", "*").len(), 0);
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
