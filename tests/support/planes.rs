//! Two hosts in network namespaces, joined by equal-cost planes.
//!
//! ```text
//!          ┌─ S0 ─┐
//! A ── LA ─┼─ S1 ─┼─ LB ── B          A 10.77.0.2, B 10.77.9.2
//!          └─ …  ─┘
//! ```
//!
//! The leaves LA and LB spread flows over the spines by source and destination address and port, with a fixed hash
//! seed. Everything lives in namespaces of a unique prefix and goes when the value is dropped, also on a panic.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::program::Place;

pub(crate) const ADDRESS_A: &str = "10.77.0.2";
pub(crate) const ADDRESS_B: &str = "10.77.9.2";

/// A live topology.
pub(crate) struct Planes {
    prefix: String,
    count: usize,
}

impl Planes {
    /// Builds it; the reason when this machine can't.
    pub(crate) fn build(count: usize) -> Result<Self, String> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        probe()?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let planes = Self { prefix: format!("mr{}x{number}", std::process::id()), count };
        planes.hosts().map_err(|error| format!("namespaces can't be made: {error}"))?;
        planes.spines();
        Ok(planes)
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn a(&self) -> Place {
        Place::namespace(self.name("A"))
    }

    pub(crate) fn b(&self) -> Place {
        Place::namespace(self.name("B"))
    }

    /// Drops `per_10_000` of the UDP packets that cross each spine, at random and in both directions.
    pub(crate) fn lose(&self, per_10_000: u32) {
        for spine in 0..self.count {
            self.nft(
                spine,
                &format!(
                    "table inet loss {{ chain f {{ type filter hook forward priority 0; policy accept\n\
                     meta l4proto udp numgen random mod 10000 < {per_10_000} counter drop\n}}\n}}"
                ),
            );
        }
    }

    /// How many packets `lose` has dropped in a spine.
    pub(crate) fn lost(&self, spine: usize) -> u64 {
        let listing = self.output(&format!("S{spine}"), "nft", &["-j", "list", "table", "inet", "loss"]);
        let listing: serde_json::Value = serde_json::from_str(&listing).unwrap();
        let rules = listing["nftables"].as_array().unwrap();
        let expressions = rules.iter().filter_map(|entry| entry["rule"]["expr"].as_array()).flatten();
        expressions.filter_map(|part| part["counter"]["packets"].as_u64()).sum()
    }

    /// Has each spine note the source ports that A's packets to B carry.
    pub(crate) fn watch_ports(&self) {
        for spine in 0..self.count {
            self.nft(
                spine,
                &format!(
                    "table inet watch {{ set ports {{ type inet_service; size 65535; flags dynamic; counter; }}\n\
                     chain f {{ type filter hook forward priority -10; policy accept\n\
                     ip daddr {ADDRESS_B} meta l4proto udp update @ports {{ udp sport }}\n}}\n}}"
                ),
            );
        }
    }

    /// The source ports seen in each spine and their packets.
    pub(crate) fn ports(&self, spine: usize) -> BTreeMap<u16, u64> {
        let listing =
            self.output(&format!("S{spine}"), "nft", &["-j", "list", "set", "inet", "watch", "ports"]);
        let listing: serde_json::Value = serde_json::from_str(&listing).unwrap();
        let sets = listing["nftables"].as_array().unwrap().iter();
        let elements = sets.filter_map(|entry| entry["set"]["elem"].as_array()).flatten();
        elements
            .filter_map(|element| {
                let element = &element["elem"];
                let port = u16::try_from(element["val"].as_u64()?).ok()?;
                Some((port, element["counter"]["packets"].as_u64()?))
            })
            .collect()
    }

    /// Packets that LA has sent into a spine.
    pub(crate) fn sent_into(&self, spine: usize) -> u64 {
        let device = format!("a{spine}");
        packets_sent(&self.name("LA"), &device)
    }

    /// A spine swallows everything from now on; nobody is told.
    pub(crate) fn blackhole(&self, spine: usize) {
        self.nft(
            spine,
            "table inet hole { chain f { type filter hook forward priority -20; policy drop\n}\n}",
        );
    }

    /// The link between a spine and B's leaf goes down: the spine has no way to B any more, and A's leaf isn't told.
    pub(crate) fn cut(&self, spine: usize) {
        ip(&["-n", &self.name(&format!("S{spine}")), "link", "set", "dev", "r", "down"]);
    }

    /// Makes the hosts send single packets, so that each is lost alone.
    pub(crate) fn no_segmentation_offload(&self) {
        for host in ["A", "B"] {
            self.output(host, "ethtool", &["-K", "eth0", "tx-udp-segmentation", "off"]);
        }
    }

    /// What a program prints on B.
    pub(crate) fn run_on_b(&self, program: &str, arguments: &[&str]) -> String {
        self.output("B", program, arguments)
    }

    fn name(&self, node: &str) -> String {
        format!("{}-{node}", self.prefix)
    }

    fn nodes(&self) -> Vec<String> {
        let spines = (0..self.count).map(|spine| format!("S{spine}"));
        ["A", "B", "LA", "LB"].map(str::to_owned).into_iter().chain(spines).collect()
    }

    fn hosts(&self) -> Result<(), String> {
        for node in self.nodes() {
            let name = self.name(&node);
            try_output(Command::new("ip").args(["netns", "add", &name]))?;
            try_output(Command::new("ip").args(["-n", &name, "link", "set", "dev", "lo", "up"]))?;
        }
        self.link(("A", "eth0", "10.77.0.2/24"), ("LA", "h0", "10.77.0.1/24"))?;
        self.link(("B", "eth0", "10.77.9.2/24"), ("LB", "h0", "10.77.9.1/24"))
    }

    fn spines(&self) {
        let mut there = Vec::new();
        let mut back = Vec::new();
        for spine in 0..self.count {
            let node = format!("S{spine}");
            let (a, b) = (format!("a{spine}"), format!("b{spine}"));
            let left = [1, 2].map(|host| format!("10.78.{spine}.{host}"));
            let right = [1, 2].map(|host| format!("10.79.{spine}.{host}"));
            self.link(("LA", &a, &format!("{}/30", left[0])), (&node, "l", &format!("{}/30", left[1])))
                .unwrap();
            self.link(("LB", &b, &format!("{}/30", right[0])), (&node, "r", &format!("{}/30", right[1])))
                .unwrap();
            self.output(&node, "sysctl", &["-qw", "net.ipv4.ip_forward=1"]);
            ip(&["-n", &self.name(&node), "route", "add", "10.77.9.0/24", "via", &right[0]]);
            ip(&["-n", &self.name(&node), "route", "add", "10.77.0.0/24", "via", &left[0]]);
            there.extend(["nexthop".to_owned(), "via".to_owned(), left[1].clone(), "dev".to_owned(), a]);
            back.extend(["nexthop".to_owned(), "via".to_owned(), right[1].clone(), "dev".to_owned(), b]);
        }
        for (leaf, destination, hops) in [("LA", "10.77.9.0/24", there), ("LB", "10.77.0.0/24", back)] {
            let hash = ["net.ipv4.fib_multipath_hash_policy=1", "net.ipv4.fib_multipath_hash_seed=12345"];
            self.output(leaf, "sysctl", &["-qw", "net.ipv4.ip_forward=1", hash[0], hash[1]]);
            let name = self.name(leaf);
            let mut route = vec!["-n", &name, "route", "add", destination];
            route.extend(hops.iter().map(String::as_str));
            ip(&route);
        }
        ip(&["-n", &self.name("A"), "route", "add", "default", "via", "10.77.0.1"]);
        ip(&["-n", &self.name("B"), "route", "add", "default", "via", "10.77.9.1"]);
    }

    fn link(&self, left: (&str, &str, &str), right: (&str, &str, &str)) -> Result<(), String> {
        let (near, far) = (self.name(left.0), self.name(right.0));
        let ends = ["link", "add", left.1, "netns", &near, "mtu", "9000", "type", "veth"];
        let peer = ["peer", "name", right.1, "netns", &far, "mtu", "9000"];
        try_output(Command::new("ip").args(ends).args(peer))?;
        for (namespace, (_, device, address)) in [(near, left), (far, right)] {
            try_output(Command::new("ip").args(["-n", &namespace, "addr", "add", address, "dev", device]))?;
            try_output(Command::new("ip").args(["-n", &namespace, "link", "set", "dev", device, "up"]))?;
        }
        Ok(())
    }

    fn nft(&self, spine: usize, rules: &str) {
        self.output(&format!("S{spine}"), "nft", &[rules]);
    }

    fn output(&self, node: &str, program: &str, arguments: &[&str]) -> String {
        output(Command::new("ip").args(["netns", "exec", &self.name(node), program]).args(arguments))
    }
}

impl Drop for Planes {
    fn drop(&mut self) {
        for node in self.nodes() {
            let _ =
                Command::new("ip").args(["netns", "del", &self.name(&node)]).stderr(Stdio::null()).status();
        }
    }
}

/// Whether the tools are there and allowed.
pub(crate) fn probe() -> Result<(), String> {
    for (tool, version) in
        [("ip", "-V"), ("nft", "--version"), ("ethtool", "--version"), ("sysctl", "--version")]
    {
        let found = Command::new(tool).arg(version).stdout(Stdio::null()).stderr(Stdio::null()).status();
        if found.is_err() {
            return Err(format!("the program {tool} is not installed"));
        }
    }
    Ok(())
}

pub(crate) fn ip(arguments: &[&str]) {
    output(Command::new("ip").args(arguments));
}

/// Packets that a namespace has sent over a device.
pub(crate) fn packets_sent(namespace: &str, device: &str) -> u64 {
    let listing =
        output(Command::new("ip").args(["-n", namespace, "-j", "-s", "link", "show", "dev", device]));
    let listing: serde_json::Value = serde_json::from_str(&listing).unwrap();
    listing[0]["stats64"]["tx"]["packets"].as_u64().unwrap()
}

#[track_caller]
pub(crate) fn output(command: &mut Command) -> String {
    try_output(command).unwrap()
}

pub(crate) fn try_output(command: &mut Command) -> Result<String, String> {
    let result = command.stdin(Stdio::null()).output().map_err(|error| format!("{command:?}: {error}"))?;
    if result.status.success() {
        Ok(String::from_utf8_lossy(&result.stdout).into_owned())
    } else {
        Err(format!("{command:?}: {}", String::from_utf8_lossy(&result.stderr).trim()))
    }
}
