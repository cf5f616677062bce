//! Endpoints joined by faulty links in virtual time: the pair tests, the model test and the fuzz targets run on it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use metaroce_core::{
    Access, Checksum, Config, Datagram, Disposition, Ecn, Endpoint, Event, Instant, Progress,
    ProtectionDomain, RegionOptions, RegisteredRegion, SourcePort, Storage, TableChecksum, Transmit,
    wire::PlaneAddresses,
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
    /// Where it receives on plane 0.
    pub address: SocketAddr,
    /// Where it receives on each plane, plane 0 first.
    pub planes: Vec<SocketAddr>,
    /// Events that have not been taken by [`Host::take_events`].
    pub events: Vec<Event>,
    /// How its clock runs.
    pub clock: Clock,
    /// When its link to each plane has sent what it was given.
    link_free_ps: Vec<u64>,
}

/// Where host `host` receives on a plane: 10.*plane*.0.(*host* + 1), port 4795.
#[must_use]
pub fn plane_address(host: u8, plane: u8) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, plane, 0, host.saturating_add(1))), 4795)
}

/// The addresses of host `host` on its planes 1 to `planes` − 1, for its configuration.
#[must_use]
pub fn further_planes(host: u8, planes: u8) -> PlaneAddresses {
    let listed: Vec<_> = (1..planes).map(|plane| plane_address(host, plane)).collect();
    PlaneAddresses::from_slice(&listed).unwrap_or_default()
}

/// The clock of a host against that of the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// What it shows when the network's shows 0, ns.
    pub offset_ns: u64,
    /// How much faster it runs, in millionths; slower if negative, more than −1,000,000.
    pub rate_ppm: i64,
}

impl Clock {
    const MILLION: u128 = 1_000_000;

    fn rate(self) -> u128 {
        u128::try_from(1_000_000 + self.rate_ppm).unwrap_or(0).max(1)
    }

    /// What it shows at `now` of the network.
    #[must_use]
    pub fn at(self, now: Instant) -> Instant {
        let ns = u128::from(now.as_nanos()) * self.rate() / Self::MILLION + u128::from(self.offset_ns);
        Instant::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }

    /// When, by the network, it shows `local` or more.
    fn when(self, local: Instant) -> Instant {
        let ns = u128::from(local.as_nanos().saturating_sub(self.offset_ns)) * Self::MILLION;
        Instant::from_nanos(u64::try_from(ns.div_ceil(self.rate())).unwrap_or(u64::MAX))
    }
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
    plane: u8,
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

/// Extra delay of one datagram, ns: sender, packet.
pub type Delayer = Box<dyn FnMut(usize, &Transmit) -> u64>;

/// A decision of the test about one datagram: what `true` means says the field.
pub type Filter = Box<dyn FnMut(usize, &Transmit) -> bool>;

/// Hosts, links and a clock.
pub struct Network<S: Storage> {
    /// The hosts; host *i* receives at 10.0.0.(*i* + 1), port 4795, and at the further planes of its configuration.
    /// Planes are apart: what leaves on one arrives on the same, or nowhere.
    pub hosts: Vec<Host<S>>,
    /// Faults of every link from now on.
    pub faults: Faults,
    /// What was carried so far.
    pub traffic: Traffic,
    /// A loss of the test's own, applied before the faults: sender, packet.
    pub filter: Option<Filter>,
    /// Sees every datagram sent.
    pub observer: Option<Box<dyn Observer>>,
    /// Congestion marks of the test's own, next to those of the faults: `true` marks the packet.
    pub marker: Option<Filter>,
    /// Delays of the test's own, added to those of the link.
    pub delayer: Option<Delayer>,
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
        let hosts = (0..u8::MAX)
            .zip(hosts)
            .map(|(number, (config, storage))| {
                let address = plane_address(number, 0);
                let planes: Vec<_> =
                    std::iter::once(address).chain(config.planes.as_slice().iter().copied()).collect();
                Host {
                    endpoint: Endpoint::new(config, storage).expect("the configuration is valid"),
                    memory: HostMemory::default(),
                    address,
                    link_free_ps: vec![0; planes.len()],
                    planes,
                    events: Vec::new(),
                    clock: Clock::default(),
                }
            })
            .collect();
        Self {
            hosts,
            faults,
            traffic: Traffic::default(),
            filter: None,
            observer: None,
            marker: None,
            delayer: None,
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

    /// The time that a host's clock shows.
    #[must_use]
    pub fn now_at(&self, host: usize) -> Instant {
        self.hosts.get(host).map_or(self.now, |host| host.clock.at(self.now))
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
        let deadline = |host: &mut Host<S>| Some(host.clock.when(host.endpoint.next_deadline()?));
        let deadline = self.hosts.iter_mut().filter_map(deadline).min();
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
            plane: packet.plane,
            ecn: Ecn::from_bits(packet.ecn_bits),
            bytes: &packet.bytes,
        };
        let _: Disposition =
            host.endpoint.handle_datagram(host.clock.at(self.now), datagram, &mut host.memory);
        self.traffic.delivered += 1;
    }

    /// Hands one datagram to a host, as if it had come from `source` on plane 0.
    pub fn inject(&mut self, to: usize, source: SocketAddr, bytes: &[u8]) -> Option<Disposition> {
        self.inject_on(to, 0, source, bytes)
    }

    /// Hands one datagram to a host, as if it had come from `source` on `plane`.
    pub fn inject_on(
        &mut self,
        to: usize,
        plane: u8,
        source: SocketAddr,
        bytes: &[u8],
    ) -> Option<Disposition> {
        let host = self.hosts.get_mut(to)?;
        let datagram = Datagram { source, plane, ecn: Ecn::NotEct, bytes };
        Some(host.endpoint.handle_datagram(host.clock.at(self.now), datagram, &mut host.memory))
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
                let now = host.clock.at(self.now);
                let progress = host.endpoint.handle_timeout(now);
                let mut batch = std::mem::take(&mut self.batch);
                let sent = host.endpoint.poll_transmit(now, &mut batch);
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
        let plane = usize::from(transmit.plane);
        assert!(plane < host.planes.len(), "host {from} has no plane {plane}");
        let (Some(&local), Some(link_free_ps)) = (host.planes.get(plane), host.link_free_ps.get_mut(plane))
        else {
            return;
        };
        let port = match transmit.source {
            SourcePort::Receive => local.port(),
            SourcePort::Path(port) => port,
        };
        let source = SocketAddr::new(local.ip(), port);
        let start_ps = (*link_free_ps).max(self.now.as_nanos() * 1_000);
        *link_free_ps = start_ps + bytes.len() as u64 * self.faults.byte_ps;
        let leaves_ns = *link_free_ps / 1_000;
        self.traffic.sent += 1;
        let hash = TableChecksum.update(u32::try_from(self.traffic.hash >> 32).unwrap_or(0), &bytes);
        self.traffic.hash = (self.traffic.hash.rotate_left(7) ^ leaves_ns).wrapping_mul(0x100_0000_01b3)
            ^ (u64::from(hash) << 32);
        let to = self.hosts.iter().position(|host| host.planes.get(plane) == Some(&transmit.destination));
        let filtered = self.filter.as_mut().is_some_and(|filter| filter(from, transmit));
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
        let extra_ns = self.delayer.as_mut().map_or(0, |delayer| delayer(from, transmit));
        let chosen = self.marker.as_mut().is_some_and(|marker| marker(from, transmit));
        let marked = (random.chance(faults.marking) || chosen) && transmit.ecn == Ecn::Ect0;
        let ecn_bits = if marked { Ecn::Ce.bits() } else { transmit.ecn.bits() };
        let copies = 1 + u64::from(random.chance(faults.duplication));
        for copy in 0..copies {
            let held =
                if random.chance(faults.reordering) { random.below(faults.reorder_ns.max(1)) } else { 0 };
            let at_ns = leaves_ns + faults.delay_ns + extra_ns + held + copy * 1_000;
            let number = self.traffic.sent * 2 + copy;
            self.transit.push(Reverse(InTransit {
                at_ns,
                number,
                to,
                plane: transmit.plane,
                source,
                ecn_bits,
                bytes: bytes.clone(),
            }));
        }
    }
}
