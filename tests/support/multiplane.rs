//! Two hosts in network namespaces, joined by several planes: each a link of its own, with addresses of its own.
//!
//! Plane *p* joins 10.80.*p*.1 of A to 10.80.*p*.2 of B. Everything goes when the value is dropped, also on a panic.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::planes::{ip, output, packets_sent, probe, try_output};
use super::program::Place;

/// A live pair of hosts.
pub(crate) struct Multiplane {
    prefix: String,
    count: usize,
}

impl Multiplane {
    /// Builds it; the reason when this machine can't.
    pub(crate) fn build(count: usize) -> Result<Self, String> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        probe()?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let this = Self { prefix: format!("mp{}x{number}", std::process::id()), count };
        for host in ["A", "B"] {
            let name = this.name(host);
            try_output(Command::new("ip").args(["netns", "add", &name]))
                .map_err(|error| format!("namespaces can't be made: {error}"))?;
            ip(&["-n", &name, "link", "set", "dev", "lo", "up"]);
        }
        for plane in 0..count {
            this.join(plane);
        }
        Ok(this)
    }

    pub(crate) fn host(&self, host: &str) -> Place {
        Place::namespace(self.name(host))
    }

    /// The addresses of A (1) or B (2) on all planes.
    pub(crate) fn addresses(&self, host: u8) -> Vec<String> {
        (0..self.count).map(|plane| format!("10.80.{plane}.{host}")).collect()
    }

    /// Packets that A has sent on a plane.
    pub(crate) fn sent(&self, plane: usize) -> u64 {
        let device = format!("p{plane}");
        packets_sent(&self.name("A"), &device)
    }

    /// Each plane carries so much in each direction from now on, with a queue of 500 kB before it.
    pub(crate) fn limit(&self, mbit: u32) {
        let rate = format!("{mbit}mbit");
        let bucket = ["tbf", "rate", &rate, "burst", "32kb", "limit", "500kb"];
        for host in ["A", "B"] {
            for plane in 0..self.count {
                let device = format!("p{plane}");
                let add = ["tc", "qdisc", "add", "dev", &device, "root"];
                output(Command::new("ip").args(["netns", "exec", &self.name(host)]).args(add).args(bucket));
            }
        }
    }

    /// B finds a congestion mark on `percent` of the packets that a plane brings.
    pub(crate) fn mark(&self, plane: usize, percent: u32) {
        let rules = format!(
            "table inet marks {{ chain f {{ type filter hook prerouting priority mangle; policy accept\n\
             iifname \"p{plane}\" ip ecn {{ ect0, ect1 }} numgen random mod 100 < {percent} ip ecn set ce\n}}\n}}"
        );
        output(Command::new("ip").args(["netns", "exec", &self.name("B"), "nft", &rules]));
    }

    /// A plane swallows everything from now on, in both directions; nobody is told.
    pub(crate) fn blackhole(&self, plane: usize) {
        for host in ["A", "B"] {
            let rules = format!(
                "table inet hole{plane} {{ chain f {{ type filter hook prerouting priority -300; policy accept\n\
                 iifname \"p{plane}\" meta l4proto udp drop\n}}\n}}"
            );
            output(Command::new("ip").args(["netns", "exec", &self.name(host), "nft", &rules]));
        }
    }

    /// Ends what [`blackhole`](Self::blackhole) began.
    pub(crate) fn heal(&self, plane: usize) {
        for host in ["A", "B"] {
            let table = format!("hole{plane}");
            let delete = ["nft", "delete", "table", "inet", &table];
            output(Command::new("ip").args(["netns", "exec", &self.name(host)]).args(delete));
        }
    }

    /// The link of a plane goes down: both hosts lose their carrier, and sending there is an error.
    pub(crate) fn kill(&self, plane: usize) {
        ip(&["-n", &self.name("B"), "link", "set", "dev", &format!("p{plane}"), "down"]);
    }

    fn join(&self, plane: usize) {
        let (a, b) = (self.name("A"), self.name("B"));
        let device = format!("p{plane}");
        let ends = ["link", "add", &device, "netns", &a, "mtu", "9000", "type", "veth"];
        let peer = ["peer", "name", &device, "netns", &b, "mtu", "9000"];
        output(Command::new("ip").args(ends).args(peer));
        for (name, host) in [(&a, 1), (&b, 2)] {
            let address = format!("10.80.{plane}.{host}/24");
            ip(&["-n", name, "addr", "add", &address, "dev", &device]);
            ip(&["-n", name, "link", "set", "dev", &device, "up"]);
            // One packet is one loss, not a whole segmented batch, and is counted as one.
            let offload = ["ethtool", "-K", &device, "tx-udp-segmentation", "off"];
            output(Command::new("ip").args(["netns", "exec", name]).args(offload));
        }
    }

    fn name(&self, host: &str) -> String {
        format!("{}-{host}", self.prefix)
    }
}

impl Drop for Multiplane {
    fn drop(&mut self) {
        for host in ["A", "B"] {
            let name = self.name(host);
            let _ = Command::new("ip").args(["netns", "del", &name]).stderr(Stdio::null()).status();
        }
    }
}
