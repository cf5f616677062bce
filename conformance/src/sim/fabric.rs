//! The fabric in motion: the loop over events, switches, hosts, and the schedule of failures.

use std::collections::BTreeMap;

use metaroce_core::Ecn;

use super::host::Host;
use super::link::{Fate, Link};
use super::loss::LinkFaults;
use super::packet::{Arena, PacketId, Traveller};
use super::queue::{EventQueue, Happening};
use super::settling::Settling;
use super::timeline::Recorder;
use super::topology::{Node, Topology, ecmp};
use super::transport::{Message, Notice, Transport};
use super::units::{NS, Rate};
use super::workload::Pair;
use crate::Random;

/// Something done to links at a given time.
#[derive(Clone, Debug, PartialEq)]
pub struct Scheduled {
    /// When, ps after the start of the workload.
    pub at_ps: u64,
    /// To which links, by number.
    pub links: Vec<u32>,
    /// What.
    pub action: Action,
}

/// What is done to a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    /// It is cut: what is in it is lost, and the switch before it no longer chooses it.
    Cut,
    /// It is connected again.
    Restore,
    /// It loses everything from now on, unnoticed.
    Blackhole,
    /// No longer.
    Unblackhole,
    /// It goes on at another rate.
    Rate(Rate),
    /// Other faults.
    Faults(LinkFaults),
    /// It carries packets up to another size on the wire, bytes.
    Mtu(u64),
}

/// What the fabric did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FabricCounters {
    /// Packets sent by hosts.
    pub packets: u64,
    /// Packets handed to hosts.
    pub delivered: u64,
    /// Packets that crossed a link.
    pub hops: u64,
    /// A running hash over everything that arrived anywhere: equal runs have equal hashes.
    pub hash: u64,
}

/// A notice, and the host that it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostNotice {
    /// The host.
    pub host: u32,
    /// What it is told.
    pub notice: Notice,
}

/// Hosts, switches, links, and a clock.
pub struct Fabric {
    /// Links and routes.
    pub topology: Topology,
    /// What it did.
    pub counters: FabricCounters,
    /// Notes what becomes of packets, if it is there.
    pub recorder: Option<Recorder>,
    /// Notes who was heard of first when, if it is there.
    pub settling: Option<Settling>,
    hosts: Vec<Host>,
    now_ps: u64,
    queue: EventQueue,
    arena: Arena,
    /// Packets under way that do not keep their order.
    held: BTreeMap<PacketId, Traveller>,
    schedule: Vec<Scheduled>,
    out: Vec<PacketId>,
    notices: Vec<HostNotice>,
    sample_ps: Option<u64>,
    seed: u64,
    random: Random,
}

impl Fabric {
    /// A fabric whose hosts run `transports`, one each.
    #[must_use]
    pub fn new(topology: Topology, transports: Vec<Box<dyn Transport>>, seed: u64) -> Self {
        let hosts = (0u32..)
            .zip(transports)
            .map(|(host, transport)| {
                let nics = (0..topology.planes).filter_map(|plane| topology.nic(host, plane)).collect();
                Host::new(transport, nics)
            })
            .collect();
        Self {
            topology,
            counters: FabricCounters::default(),
            recorder: None,
            settling: None,
            hosts,
            now_ps: START_PS,
            queue: EventQueue::default(),
            arena: Arena::default(),
            held: BTreeMap::new(),
            schedule: Vec::new(),
            out: Vec::new(),
            notices: Vec::new(),
            sample_ps: None,
            seed,
            random: Random::new(!seed),
        }
    }

    /// The time, ps.
    #[must_use]
    pub const fn now_ps(&self) -> u64 {
        self.now_ps
    }

    /// The transport of a host.
    pub fn transport(&mut self, host: u32) -> Option<&mut (dyn Transport + 'static)> {
        self.hosts.get_mut(host as usize).map(|host| host.transport.as_mut())
    }

    /// Events so far.
    #[must_use]
    pub const fn events(&self) -> u64 {
        self.queue.planned()
    }

    /// Opens what the ends of `pair` need for messages to each other.
    pub fn connect(&mut self, pair: Pair) {
        let now_ps = self.now_ps;
        for (host, peer) in [(pair.from, pair.receiver()), (pair.to, pair.sender())] {
            if let Some(transport) = self.transport(host) {
                transport.connect(now_ps, peer, host == pair.from);
            }
            self.kick(host);
        }
    }

    /// Whether something is true of the transports of all hosts.
    pub fn all(&mut self, mut is_true: impl FnMut(&mut dyn Transport) -> bool) -> bool {
        self.hosts.iter_mut().all(|host| is_true(host.transport.as_mut()))
    }

    /// Posts a message; the sum to expect of it, or `None` if there was no room.
    pub fn post(&mut self, pair: Pair, message: Message) -> Option<u64> {
        let now_ps = self.now_ps;
        let expected = self.transport(pair.from)?.post(now_ps, pair.receiver(), message);
        self.kick(pair.from);
        expected
    }

    /// Plans actions on links, counted from now.
    pub fn schedule(&mut self, scheduled: impl IntoIterator<Item = Scheduled>) {
        for entry in scheduled {
            let number = u32::try_from(self.schedule.len()).unwrap_or(u32::MAX);
            self.queue.push(self.now_ps + entry.at_ps, Happening::Scheduled(number));
            self.schedule.push(entry);
        }
    }

    /// Has [`run`](Self::run) return every `period_ps`, from now on.
    pub fn sample_every(&mut self, period_ps: u64) {
        self.sample_ps = Some(period_ps.max(1));
        self.queue.push(self.now_ps + period_ps.max(1), Happening::Sample);
    }

    /// Runs until somebody is told something, a sample is due, or `limit_ps` is reached. Returns `false` at the limit,
    /// and when nothing is left to happen.
    pub fn run(&mut self, limit_ps: u64, notices: &mut Vec<HostNotice>) -> Pause {
        loop {
            if !self.notices.is_empty() {
                notices.append(&mut self.notices);
                return Pause::Notices;
            }
            let Some((at_ps, happening)) = self.queue.pop(limit_ps) else {
                self.now_ps = self.now_ps.max(limit_ps);
                return Pause::Limit;
            };
            self.now_ps = at_ps;
            match happening {
                Happening::Lane(link) => self.on_lane(link),
                Happening::Loose(link, packet) => {
                    if let Some(packet) = self.held.remove(&packet) {
                        self.arrive(link, packet);
                    }
                }
                Happening::Pull(host) => {
                    if let Some(host) = self.hosts.get_mut(host as usize) {
                        host.pulling = false;
                    }
                    self.kick(host);
                }
                Happening::Timer(host) => self.on_timer(host),
                Happening::Scheduled(entry) => self.on_schedule(entry),
                Happening::Sample => {
                    if let Some(period_ps) = self.sample_ps {
                        self.queue.push(self.now_ps + period_ps, Happening::Sample);
                    }
                    return Pause::Sample;
                }
            }
        }
    }

    fn link(&mut self, link: u32) -> Option<&mut Link> {
        self.topology.links.get_mut(link as usize)
    }

    /// The first packet of a lane arrives, and the next one takes its place in the heap.
    fn on_lane(&mut self, number: u32) {
        let Some(link) = self.topology.links.get_mut(number as usize) else { return };
        let Some((_, packet)) = link.lane.pop_front() else { return };
        if let Some((at_ps, _)) = link.lane.front() {
            self.queue.push(*at_ps, Happening::Lane(number));
        }
        self.arrive(number, packet);
    }

    fn arrive(&mut self, number: u32, packet: Traveller) {
        let now_ps = self.now_ps;
        let Some(link) = self.topology.links.get_mut(number as usize) else { return };
        if link.cut_ps > packet.entered_ps {
            link.counters.lost += 1;
            self.discard(number, packet.id);
            return;
        }
        self.counters.hops += 1;
        let what = (u64::from(number) << 32)
            ^ u64::from(packet.source_port)
            ^ u64::from(packet.datagram_bytes) << 16;
        self.counters.hash =
            (self.counters.hash.rotate_left(7) ^ now_ps ^ what).wrapping_mul(0x100_0000_01b3);
        match link.to {
            Node::Switch(switch) => match self.choose(switch, &packet) {
                Some(route) => self.forward(route, packet),
                None => self.arena.free(packet.id),
            },
            Node::Host(host) => self.deliver(host, packet),
        }
    }

    /// Hands a packet to its host.
    fn deliver(&mut self, host: u32, Traveller { id, ecn, .. }: Traveller) {
        let now_ps = self.now_ps;
        self.counters.delivered += 1;
        let packet = self.arena.slot(id);
        packet.ecn = ecn;
        if let Some(entry) = self.hosts.get_mut(host as usize) {
            if let Some(recorder) = &mut self.recorder {
                recorder.arrived(now_ps, id, packet);
            }
            if let Some(settling) = &mut self.settling {
                settling.on_arrival(now_ps, packet.from, host);
            }
            entry.transport.handle(now_ps, packet);
        }
        self.arena.free(id);
        self.kick(host);
    }

    /// The link by which a switch sends a packet on: by the hash; another, if that one is down.
    fn choose(&self, switch: u32, packet: &Traveller) -> Option<u32> {
        let routes = self.topology.routes(switch, packet.to);
        if let [only] = routes {
            return Some(*only);
        }
        let seed = self.seed ^ u64::from(switch).wrapping_mul(0x9e6c_63d0_876a_3f35);
        let hash = ecmp(seed, packet.from, packet.to, packet.source_port);
        let is_up = |link: u32| self.topology.links.get(link as usize).is_some_and(|link| link.up);
        let of = |number: u64, count: usize| usize::try_from(number % (count as u64).max(1)).unwrap_or(0);
        let chosen = routes.get(of(hash, routes.len())).copied()?;
        if is_up(chosen) {
            return Some(chosen);
        }
        // Only what went over the link that is down moves.
        let live = || routes.iter().copied().filter(|&link| is_up(link));
        let count = live().count();
        live().nth(of(hash >> 32, count)).or(Some(chosen))
    }

    /// Puts a packet into a link.
    fn forward(&mut self, number: u32, mut packet: Traveller) {
        let now_ps = self.now_ps;
        packet.entered_ps = now_ps;
        let Some(link) = self.topology.links.get_mut(number as usize) else { return };
        let capable = packet.ecn != Ecn::NotEct;
        let Fate::Carried { at_ps, marked, held, twice, corrupt } =
            link.offer(now_ps, packet.wire_bytes(), capable, packet.source_port)
        else {
            self.discard(number, packet.id);
            return;
        };
        if marked {
            packet.ecn = Ecn::Ce;
        }
        if corrupt {
            let at = u32::try_from(self.random.below(u64::from(packet.datagram_bytes))).unwrap_or(0);
            let flip = 1u8 << self.random.below(8);
            self.arena.slot(packet.id).corrupt = Some((at, flip));
        }
        let copy = twice.then(|| Traveller { id: self.arena.copy(packet.id), ..packet });
        for packet in std::iter::once(packet).chain(copy) {
            if held {
                self.held.insert(packet.id, packet);
                self.queue.push(at_ps, Happening::Loose(number, packet.id));
                continue;
            }
            if link.lane.is_empty() {
                self.queue.push(at_ps, Happening::Lane(number));
            }
            link.lane.push_back((at_ps, packet));
        }
    }

    /// A packet is lost in, or before, a link.
    fn discard(&mut self, link: u32, id: PacketId) {
        if let Some(recorder) = &mut self.recorder {
            recorder.gone(self.now_ps, id, link);
        }
        self.arena.free(id);
    }

    fn on_timer(&mut self, number: u32) {
        let now_ps = self.now_ps;
        let Some(host) = self.hosts.get_mut(number as usize) else { return };
        if host.timer_ps != now_ps {
            // An earlier one was planned later, and has been served.
            return;
        }
        host.timer_ps = u64::MAX;
        if host.transport.next_deadline_ps().is_some_and(|at_ps| at_ps <= now_ps) {
            host.transport.handle_timeout(now_ps);
        }
        self.kick(number);
    }

    /// Takes what a host has to say, sends what it has to send while its line is free, and plans its next turn.
    fn kick(&mut self, number: u32) {
        let now_ps = self.now_ps;
        let Some(host) = self.hosts.get_mut(number as usize) else { return };
        while let Some(notice) = host.transport.poll_notice() {
            self.notices.push(HostNotice { host: number, notice });
        }
        if !host.pulling {
            self.pull(number);
        }
        let Some(host) = self.hosts.get_mut(number as usize) else { return };
        if let Some(at_ps) = host.transport.next_deadline_ps() {
            let at_ps = at_ps.max(now_ps + NS);
            if at_ps < host.timer_ps {
                host.timer_ps = at_ps;
                self.queue.push(at_ps, Happening::Timer(number));
            }
        }
    }

    /// Lets the free lines of a host take packets, and plans the next turn.
    fn pull(&mut self, number: u32) {
        let now_ps = self.now_ps;
        let mut out = std::mem::take(&mut self.out);
        while let Some(host) = self.hosts.get_mut(number as usize) {
            let (room, free_ps) = room(&self.topology, host, now_ps);
            if room == 0 {
                host.pulling = true;
                self.queue.push(free_ps, Happening::Pull(number));
                break;
            }
            host.transport.poll(now_ps, &mut self.arena, room, &mut out);
            if out.is_empty() {
                break;
            }
            self.counters.packets += out.len() as u64;
            for id in out.drain(..) {
                let packet = self.arena.slot(id);
                let plane = usize::from(packet.plane);
                if let Some(recorder) = &mut self.recorder {
                    recorder.sent(now_ps, id, packet);
                }
                let nic = self.hosts.get(number as usize).and_then(|host| host.nics.get(plane).copied());
                let packet = Traveller::new(id, packet);
                match nic {
                    Some(nic) => self.forward(nic, packet),
                    None => self.arena.free(id),
                }
            }
        }
        self.out = out;
    }

    fn on_schedule(&mut self, entry: u32) {
        let now_ps = self.now_ps;
        let Some(Scheduled { links, action, .. }) = self.schedule.get(entry as usize).cloned() else {
            return;
        };
        for number in links {
            let Some(link) = self.link(number) else { continue };
            match action {
                Action::Cut => link.cut(now_ps),
                Action::Restore => link.restore(),
                Action::Blackhole => link.blackhole = true,
                Action::Unblackhole => link.blackhole = false,
                Action::Rate(rate) => link.set_rate(now_ps, rate),
                Action::Faults(faults) => link.faults = faults,
                Action::Mtu(bytes) => link.config.mtu_bytes = bytes,
            }
        }
    }
}

/// How many packets the lines of a host take from it now; and, if none, when one of them is free again, ps.
///
/// A transport decides on the plane, so a line can get more than it has room for. What is too much counts against
/// the others, but at most for as much as a line takes: neither does the excess grow, nor does one slow line stop all.
fn room(topology: &Topology, host: &Host, now_ps: u64) -> (usize, u64) {
    let lines = || host.nics.iter().filter_map(|&nic| topology.links.get(nic as usize));
    if let [_] = host.nics.as_slice() {
        let free_ps = lines().map(Link::free_ps).sum();
        return (if free_ps > now_ps { 0 } else { PULL_PACKETS }, free_ps);
    }
    let full_bytes = host.transport.full_packet().1.max(1);
    let mut room = 0isize;
    let mut free_ps = u64::MAX;
    for line in lines() {
        let waiting = line.backlog_bytes(now_ps).div_ceil(full_bytes).min(2 * RING_PACKETS as u64);
        room += RING_PACKETS.cast_signed() - isize::try_from(waiting).unwrap_or(0);
        if line.free_ps() > now_ps {
            free_ps = free_ps.min(line.free_ps());
        }
    }
    (room.max(0).cast_unsigned(), free_ps)
}

/// Why [`Fabric::run`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// Hosts were told something.
    Notices,
    /// A sample is due.
    Sample,
    /// The limit is reached, or nothing is left to happen.
    Limit,
}

/// The clock starts at 1 ms: timers look back.
const START_PS: u64 = 1_000_000_000;
/// Packets that a line takes from its host at a time. Their time stamps are early by up to one packet's time.
const PULL_PACKETS: usize = 2;
/// The same for each line of a host that has several: which one a packet takes is up to the transport, and with shorter
/// rings one line would often run dry while another is full.
const RING_PACKETS: usize = 8;
