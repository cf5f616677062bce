//! Endpoints joined by faulty links in virtual time: the pair tests, the model test and the fuzz targets run on it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use metaroce_core::wire::Base;
use metaroce_core::{
    Access, Checksum, Config, Datagram, Disposition, Ecn, Endpoint, Event, Instant, Progress,
    ProtectionDomain, RegionOptions, RegisteredRegion, SourcePort, Storage, TableChecksum, Transmit,
};

use crate::trace::{Observer, Record};
use crate::{HostMemory, Random};

/// Calls of `handle_timeout` and `poll_transmit` for one instant before the endpoint counts as stuck.
const ROUNDS_MAX: usize = 100_000;

/// How often a link does harm, in millionths of the packets, and how slow it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults {
    /// Packets lost.
    pub loss: u32,
    /// Packets delivered twice.
    pub duplication: u32,
    /// Packets held back by up to `reorder_ns`.
    pub reordering: u32,
    /// Longest hold, ns.
    pub reorder_ns: u64,
    /// Packets with one byte changed.
    pub corruption: u32,
    /// Packets cut short.
    pub truncation: u32,
    /// Packets marked with congestion experienced.
    pub marking: u32,
    /// One-way delay, ns.
    pub delay_ns: u64,
    /// Serialisation of one byte, picoseconds: 800 is 10 Gb/s.
    pub byte_ps: u64,
}

impl Faults {
    /// A perfect link of 10 Gb/s, 10 µs long.
    pub const NONE: Self = Self {
        loss: 0,
        duplication: 0,
        reordering: 0,
        reorder_ns: 0,
        corruption: 0,
        truncation: 0,
        marking: 0,
        delay_ns: 10_000,
        byte_ps: 800,
    };

    /// A link that does everything that links do, at `per_million` each.
    #[must_use]
    pub const fn all(per_million: u32) -> Self {
        Self {
            loss: per_million,
            duplication: per_million,
            reordering: per_million,
            reorder_ns: 200_000,
            corruption: per_million,
            truncation: per_million,
            marking: per_million,
            ..Self::NONE
        }
    }
}

/// One endpoint with its memory and address.
pub struct Host<S: Storage> {
    /// The state machine.
    pub endpoint: Endpoint<S>,
    /// The bytes of its regions.
    pub memory: HostMemory,
    /// Where it receives.
    pub address: SocketAddr,
    /// Events that have not been taken by [`Host::take_events`].
    pub events: Vec<Event>,
    link_free_ps: u64,
}

impl<S: Storage> Host<S> {
    /// Registers `bytes` with all rights in protection domain 0, addressed from 0.
    ///
    /// # Panics
    /// If the table of regions is full.
    #[expect(clippy::expect_used, reason = "a test that can't register has no business going on")]
    pub fn register(&mut self, bytes: Vec<u8>) -> RegisteredRegion {
        let options = RegionOptions {
            length: bytes.len() as u64,
            base_address: 0,
            access: Access::ALL,
            domain: ProtectionDomain(0),
        };
        let region = self.endpoint.register_region(options).expect("the table of regions has room");
        self.memory.attach(region.id, bytes);
        region
    }

    /// The events since the last call.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }
}

/// A datagram on its way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct InTransit {
    at_ns: u64,
    /// Ties go by the order of sending.
    number: u64,
    to: usize,
    source: SocketAddr,
    ecn_bits: u8,
    bytes: Vec<u8>,
}

/// What the network carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Datagrams sent.
    pub sent: u64,
    /// Datagrams lost by the link.
    pub lost: u64,
    /// Datagrams handed to an endpoint.
    pub delivered: u64,
    /// A running hash over everything sent: two equal runs have equal hashes.
    pub hash: u64,
}

/// A host whose packets are lost for a while: all of them, or those of some of its paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// The host.
    pub host: usize,
    /// A bit for each path id; control packets have id 0.
    pub paths: u64,
    /// Virtual time at which it begins, ns.
    pub start_ns: u64,
    /// How long, ns.
    pub span_ns: u64,
}

impl Outage {
    fn hits(&self, now: Instant, from: usize, transmit: &Transmit) -> bool {
        let path = Base::parse(transmit.header()).map_or(0, |(base, _)| base.path.0);
        let end_ns = self.start_ns.saturating_add(self.span_ns);
        from == self.host
            && self.paths.checked_shr(u32::from(path)).unwrap_or(0) & 1 == 1
            && (self.start_ns..end_ns).contains(&now.as_nanos())
    }
}

/// A decision of the test about one datagram: what `true` means says the field.
pub type Filter = Box<dyn FnMut(usize, &Transmit) -> bool>;

/// Hosts, links and a clock.
pub struct Network<S: Storage> {
    /// The hosts; host *i* receives at 10.0.0.(*i* + 1), port 4795.
    pub hosts: Vec<Host<S>>,
    /// Faults of every link from now on.
    pub faults: Faults,
    /// What was carried so far.
    pub traffic: Traffic,
    /// A loss of the test's own, applied before the faults: sender, packet.
    pub filter: Option<Filter>,
    /// Sees every datagram sent.
    pub observer: Option<Box<dyn Observer>>,
    /// What is silent for a while.
    pub outage: Option<Outage>,
    /// Congestion marks of the test's own, next to those of the faults: `true` marks the packet.
    pub marker: Option<Filter>,
    now: Instant,
    random: Random,
    transit: BinaryHeap<Reverse<InTransit>>,
    batch: Vec<Transmit>,
}

impl<S: Storage> Network<S> {
    /// One host for each configuration and storage, with all link faults drawn from `seed`.
    ///
    /// # Panics
    /// If a configuration is invalid.
    #[expect(clippy::expect_used, reason = "a test with an invalid configuration has no business going on")]
    pub fn new(seed: u64, faults: Faults, hosts: impl IntoIterator<Item = (Config, S)>) -> Self {
        let hosts = (1..=u8::MAX)
            .zip(hosts)
            .map(|(number, (config, storage))| Host {
                endpoint: Endpoint::new(config, storage).expect("the configuration is valid"),
                memory: HostMemory::default(),
                address: SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, number)), 4795),
                events: Vec::new(),
                link_free_ps: 0,
            })
            .collect();
        Self {
            hosts,
            faults,
            traffic: Traffic::default(),
            filter: None,
            observer: None,
            marker: None,
            outage: None,
            now: Instant::from_nanos(1_000_000),
            random: Random::new(seed),
            transit: BinaryHeap::new(),
            batch: vec![Transmit::EMPTY; 64],
        }
    }

    /// Starts the clock at `now`, later than it was.
    pub fn start_at(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    /// The virtual time.
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// Runs until `done` says so, or for `limit_ns` of virtual time. Returns whether it was done.
    pub fn run_until(&mut self, limit_ns: u64, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let limit = self.now.after(limit_ns);
        loop {
            self.settle();
            if done(self) {
                return true;
            }
            if !self.step(limit) {
                return false;
            }
        }
    }

    /// Runs for `span_ns` of virtual time.
    pub fn run_for(&mut self, span_ns: u64) {
        self.run_until(span_ns, |_| false);
    }

    /// Goes on to the next thing that happens, at most to `limit`. Returns whether there was one.
    fn step(&mut self, limit: Instant) -> bool {
        let arrival = self.transit.peek().map(|Reverse(packet)| Instant::from_nanos(packet.at_ns));
        let deadline = self.hosts.iter_mut().filter_map(|host| host.endpoint.next_deadline()).min();
        let Some(next) = arrival.into_iter().chain(deadline).min().filter(|next| *next <= limit) else {
            self.now = limit;
            return false;
        };
        self.now = self.now.max(next);
        while let Some(Reverse(packet)) = self.transit.peek() {
            if packet.at_ns > self.now.as_nanos() {
                break;
            }
            let Some(Reverse(packet)) = self.transit.pop() else { break };
            self.deliver(&packet);
        }
        true
    }

    fn deliver(&mut self, packet: &InTransit) {
        let Some(host) = self.hosts.get_mut(packet.to) else { return };
        let datagram = Datagram {
            source: packet.source,
            plane: 0,
            ecn: Ecn::from_bits(packet.ecn_bits),
            bytes: &packet.bytes,
        };
        let _: Disposition = host.endpoint.handle_datagram(self.now, datagram, &mut host.memory);
        self.traffic.delivered += 1;
    }

    /// Hands one datagram to a host, as if it had come from `source`.
    pub fn inject(&mut self, to: usize, source: SocketAddr, bytes: &[u8]) -> Option<Disposition> {
        let host = self.hosts.get_mut(to)?;
        let datagram = Datagram { source, plane: 0, ecn: Ecn::NotEct, bytes };
        Some(host.endpoint.handle_datagram(self.now, datagram, &mut host.memory))
    }

    /// Lets every host fire its timers, send, and report, until nothing is left to do at this instant.
    ///
    /// # Panics
    /// If an endpoint never comes to rest.
    pub fn settle(&mut self) {
        for number in 0..self.hosts.len() {
            let mut rounds = 0;
            loop {
                rounds += 1;
                assert!(rounds < ROUNDS_MAX, "host {number} never comes to rest at {:?}", self.now);
                let Some(host) = self.hosts.get_mut(number) else { break };
                let progress = host.endpoint.handle_timeout(self.now);
                let mut batch = std::mem::take(&mut self.batch);
                let sent = host.endpoint.poll_transmit(self.now, &mut batch);
                while let Some(event) = host.endpoint.poll_event() {
                    host.events.push(event);
                }
                for transmit in batch.iter_mut().take(sent) {
                    self.send(number, transmit);
                }
                self.batch = batch;
                if sent == 0 && progress == Progress::Done {
                    break;
                }
            }
        }
    }

    /// Puts one datagram on the link, with what the link does to it.
    fn send(&mut self, from: usize, transmit: &mut Transmit) {
        let Some(host) = self.hosts.get_mut(from) else { return };
        let parts: Vec<&[u8]> =
            transmit.payload().to_vec().iter().map(|part| host.memory.part(part)).collect();
        transmit.seal(&TableChecksum, parts.iter().copied());
        let mut bytes = transmit.header().to_vec();
        for part in &parts {
            bytes.extend_from_slice(part);
        }
        bytes.resize(bytes.len() + transmit.padding(), 0);
        assert_eq!(bytes.len(), transmit.datagram_length(), "payload lies inside of its region");
        let port = match transmit.source {
            SourcePort::Receive => host.address.port(),
            SourcePort::Path(port) => port,
        };
        let source = SocketAddr::new(host.address.ip(), port);
        let start_ps = host.link_free_ps.max(self.now.as_nanos() * 1_000);
        host.link_free_ps = start_ps + bytes.len() as u64 * self.faults.byte_ps;
        let leaves_ns = host.link_free_ps / 1_000;
        self.traffic.sent += 1;
        let hash = TableChecksum.update(u32::try_from(self.traffic.hash >> 32).unwrap_or(0), &bytes);
        self.traffic.hash = (self.traffic.hash.rotate_left(7) ^ leaves_ns).wrapping_mul(0x100_0000_01b3)
            ^ (u64::from(hash) << 32);
        let to = self.hosts.iter().position(|host| host.address == transmit.destination);
        let silent = self.outage.is_some_and(|outage| outage.hits(self.now, from, transmit));
        let filtered = silent | self.filter.as_mut().is_some_and(|filter| filter(from, transmit));
        let faults = self.faults;
        let random = &mut self.random;
        let lost = to.is_none() | filtered | random.chance(faults.loss);
        if let Some(observer) = &mut self.observer {
            let Transmit { destination, ecn, .. } = *transmit;
            let time_ns = self.now.as_nanos();
            let bytes = &bytes[..];
            observer.on_datagram(&Record { time_ns, from, to, source, destination, ecn, bytes, lost });
        }
        let (Some(to), false) = (to, lost) else {
            self.traffic.lost += 1;
            return;
        };
        if random.chance(faults.corruption) {
            let at = random.below(bytes.len() as u64);
            let flip = 1 << random.below(8);
            if let Some(byte) = usize::try_from(at).ok().and_then(|at| bytes.get_mut(at)) {
                *byte ^= flip;
            }
        }
        if random.chance(faults.truncation) {
            let length = random.below(bytes.len() as u64);
            bytes.truncate(usize::try_from(length).unwrap_or(0));
        }
        let chosen = self.marker.as_mut().is_some_and(|marker| marker(from, transmit));
        let marked = (random.chance(faults.marking) || chosen) && transmit.ecn == Ecn::Ect0;
        let ecn_bits = if marked { Ecn::Ce.bits() } else { transmit.ecn.bits() };
        let copies = 1 + u64::from(random.chance(faults.duplication));
        for copy in 0..copies {
            let held =
                if random.chance(faults.reordering) { random.below(faults.reorder_ns.max(1)) } else { 0 };
            let at_ns = leaves_ns + faults.delay_ns + held + copy * 1_000;
            let number = self.traffic.sent * 2 + copy;
            self.transit.push(Reverse(InTransit {
                at_ns,
                number,
                to,
                source,
                ecn_bits,
                bytes: bytes.clone(),
            }));
        }
    }
}
