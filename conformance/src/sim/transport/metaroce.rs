//! The real core on a simulated host.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;

use metaroce_core::wire::PlaneAddresses;
use metaroce_core::{
    Access, Completion, CompletionKind, Config, ConfigError, ConnectOptions, ConnectionHandle, Datagram,
    Disposition, DropReason, Endpoint, Event, HeapStorage, Instant, Limits, Operation, PathId, PathState,
    PathStats, Progress, ProtectionDomain, RegionKey, RegionOptions, RegisteredRegion, RemoteAddress,
    Segment, SourcePort, Status, StreamId, TableChecksum, Transmit, WorkRequest,
};

use super::super::clock::{Clock, Clocks};
use super::super::memory::{FLOW_BYTES, Peer, REGION_BYTES, TAG_BYTES, VirtualMemory, cover, place, tag};
use super::super::packet::{Arena, Packet, PacketId};
use super::super::units::FRAMING_BYTES;
use super::{FlowStats, Message, Notice, PathSample, Transport};

/// How the endpoints are set up.
#[derive(Clone, Copy)]
pub struct MetaRoceOptions {
    /// Behaviour. The seed is replaced by one of the host's own.
    pub config: Config,
    /// Tables.
    pub limits: Limits,
    /// Receives kept posted for each connection, for messages of which the receiver is told.
    pub receives: u64,
    /// How far clocks are apart.
    pub clock: Clocks,
    /// Planes, at least 1.
    pub planes: u8,
}

/// One host with the real core.
pub struct MetaRoce {
    host: u32,
    endpoint: Endpoint<HeapStorage>,
    memory: VirtualMemory,
    region: RegisteredRegion,
    keys: Rc<[RegionKey]>,
    clock: Clock,
    peers: BTreeMap<Peer, Entry>,
    names: BTreeMap<ConnectionHandle, Peer>,
    /// Peers whose connection is not open yet.
    opening: usize,
    notices: VecDeque<Notice>,
    batch: Vec<Transmit>,
    scratch: Vec<u8>,
    receives: u64,
}

#[derive(Debug)]
struct Entry {
    /// `None` until its CONNECT is here.
    connection: Option<ConnectionHandle>,
    connected: bool,
    /// Where the next message lies in the flow's memory.
    next_at: u64,
}

impl MetaRoce {
    /// The endpoint of `host`.
    ///
    /// # Errors
    /// [`ConfigError`] if the options are out of their ranges.
    pub fn new(host: u32, options: &MetaRoceOptions, seed: u64) -> Result<Self, ConfigError> {
        let further: Vec<SocketAddr> = (1..options.planes).map(|plane| plane_address(host, plane)).collect();
        let planes = PlaneAddresses::from_slice(&further).ok_or(ConfigError::Config("planes"))?;
        let config = Config { seed, planes, ..options.config };
        let mut endpoint = Endpoint::new(config, HeapStorage::new(&options.limits))?;
        let region = RegionOptions {
            length: REGION_BYTES,
            base_address: 0,
            access: Access::ALL,
            domain: ProtectionDomain(0),
        };
        let region = endpoint.register_region(region).map_err(|_| ConfigError::Limits("regions"))?;
        Ok(Self {
            host,
            endpoint,
            memory: VirtualMemory::new(host),
            region,
            keys: Rc::new([]),
            clock: options.clock.of_host(host, seed),
            peers: BTreeMap::new(),
            opening: 0,
            names: BTreeMap::new(),
            notices: VecDeque::new(),
            batch: vec![Transmit::EMPTY; BATCH],
            scratch: vec![0; SCRATCH_BYTES],
            receives: options.receives,
        })
    }

    /// The key of this host's region, for all others.
    #[must_use]
    pub const fn key(&self) -> RegionKey {
        self.region.key
    }

    /// Tells the keys of all hosts.
    pub fn set_keys(&mut self, keys: Rc<[RegionKey]>) {
        self.keys = keys;
    }

    fn entry(&mut self, peer: Peer) -> &mut Entry {
        let opening = &mut self.opening;
        self.peers.entry(peer).or_insert_with(|| {
            *opening += 1;
            Entry { connection: None, connected: false, next_at: 0 }
        })
    }

    fn instant(&self, now_ps: u64) -> Instant {
        Instant::from_nanos(self.clock.local_ns(now_ps))
    }

    fn take_events(&mut self, now: Instant) {
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                Event::Incoming { connection, remote, service, .. } => {
                    let Some(host) = host_of(remote.ip()) else { continue };
                    let peer = Peer { host, number: service };
                    if self.endpoint.accept(now, connection, ProtectionDomain(0), &[]).is_ok() {
                        self.entry(peer).connection = Some(connection);
                        self.names.insert(connection, peer);
                    }
                }
                Event::Connected { connection } => {
                    let Some(&peer) = self.names.get(&connection) else { continue };
                    let entry = self.entry(peer);
                    if !entry.connected {
                        entry.connected = true;
                        self.opening = self.opening.saturating_sub(1);
                    }
                    for _ in 0..self.receives {
                        self.post_receive(connection);
                    }
                }
                Event::Closed { connection, .. } => {
                    if let Some(peer) = self.names.remove(&connection) {
                        self.notices.push_back(Notice::Failed { peer });
                    }
                }
                Event::Completion(completion) => self.on_completion(&completion),
                _ => {}
            }
        }
    }

    fn post_receive(&mut self, connection: ConnectionHandle) {
        // A full table is a limit that the scenario set; the flow then waits for credit.
        let _full = self.endpoint.post_recv(connection, STREAM, 0, &[]);
    }

    fn on_completion(&mut self, completion: &Completion) {
        let Some(&peer) = self.names.get(&completion.connection) else { return };
        if completion.status != Status::Success {
            self.notices.push_back(Notice::Failed { peer });
            return;
        }
        if completion.kind == CompletionKind::ReceiveWrite {
            self.post_receive(completion.connection);
            let id = completion.immediate.unwrap_or(0);
            self.notices.push_back(Notice::Delivered { peer, id });
        } else {
            let id = u32::try_from(completion.id).unwrap_or(u32::MAX);
            self.notices.push_back(Notice::Sent { peer, id });
        }
    }

    fn paths(&mut self, peer: Peer) -> Vec<PathStats> {
        let Some(connection) = self.peers.get(&peer).and_then(|entry| entry.connection) else {
            return Vec::new();
        };
        (0..=u8::MAX).map_while(|id| self.endpoint.path_stats(connection, PathId(id))).collect()
    }

    /// Writes a descriptor into the arena, as a packet.
    fn pack(&mut self, at: usize, arena: &mut Arena) -> Option<PacketId> {
        let transmit = self.batch.get_mut(at)?;
        let part = transmit.payload().first().copied();
        let payload_length = transmit.payload_length();
        let payload_offset = part.map_or(0, |part| part.offset);
        if transmit.wants_checksum() {
            let tag = tag(self.host, payload_offset);
            let tagged = if payload_length < TAG_BYTES { 0 } else { TAG_BYTES };
            let parts = [tag.get(..tagged)?, ZEROS.get(..payload_length - tagged)?];
            transmit.seal(&TableChecksum, parts);
        }
        let to = host_of(transmit.destination.ip())?;
        let (id, packet) = arena.allocate();
        packet.from = self.host;
        packet.to = to;
        packet.plane = transmit.plane;
        packet.source_port = match transmit.source {
            SourcePort::Receive => PORT,
            SourcePort::Path(port) => port,
        };
        packet.ecn = transmit.ecn;
        packet.header.extend_from_slice(transmit.header());
        packet.payload_bytes = u32::try_from(payload_length).ok()?;
        packet.payload_offset = payload_offset;
        packet.padding_bytes = u32::try_from(transmit.padding()).ok()?;
        Some(id)
    }

    /// Writes the bytes of a packet as they arrive: header, tag, and what was there before, or zeros where somebody
    /// may look. Returns how many.
    fn unpack(&mut self, packet: &Packet) -> usize {
        let length = usize::try_from(packet.datagram_bytes()).unwrap_or(0).min(SCRATCH_BYTES);
        let Some(bytes) = self.scratch.get_mut(..length) else { return 0 };
        let Some((header, rest)) = bytes.split_at_mut_checked(packet.header.len()) else { return 0 };
        header.copy_from_slice(&packet.header);
        if self.endpoint.config().checksum_wanted || packet.payload_bytes == 0 {
            rest.fill(0);
        }
        if packet.payload_bytes as usize >= TAG_BYTES
            && let Some(start) = rest.first_chunk_mut::<TAG_BYTES>()
        {
            *start = tag(packet.from, packet.payload_offset);
        }
        if let Some((at, flip)) = packet.corrupt
            && let Some(byte) = bytes.get_mut(at as usize)
        {
            *byte ^= flip;
        }
        length
    }
}

impl Transport for MetaRoce {
    fn connect(&mut self, now_ps: u64, peer: Peer, first: bool) {
        let now = self.instant(now_ps);
        let entry = self.entry(peer);
        if first && entry.connection.is_none() {
            let options =
                ConnectOptions { service: peer.number, ..ConnectOptions::to(address_of(peer.host)) };
            if let Ok(connection) = self.endpoint.connect(now, options) {
                self.entry(peer).connection = Some(connection);
                self.names.insert(connection, peer);
            }
        }
    }

    fn is_ready(&mut self) -> bool {
        self.opening == 0
    }

    fn is_settled(&mut self) -> bool {
        let wanted = self.endpoint.config().mtu_bytes;
        let peers: Vec<Peer> = self.peers.keys().copied().collect();
        let is_settled = |path: PathStats| path.mtu_bytes == wanted || path.state == PathState::Parked;
        peers.into_iter().all(|peer| self.paths(peer).into_iter().all(is_settled))
    }

    fn post(&mut self, now_ps: u64, peer: Peer, message: Message) -> Option<u64> {
        let bytes = u64::from(message.bytes);
        let (here, region) = (Peer { host: self.host, ..peer }, self.region.id);
        let now = self.instant(now_ps);
        let key = *self.keys.get(peer.host as usize)?;
        let entry = self.peers.get_mut(&peer)?;
        let connection = entry.connection?;
        let at = if entry.next_at + bytes > FLOW_BYTES { 0 } else { entry.next_at };
        // Written or read, byte x of the flow lies at place(peer, x) here and at place(here, x) there.
        let (local, address) = (place(peer, at), place(here, at));
        let remote = RemoteAddress { key, address };
        let operation = if message.read {
            Operation::Read { remote }
        } else {
            Operation::Write { remote, immediate: message.notify.then_some(message.id) }
        };
        let segments = [Segment { region, offset: local, length: message.bytes }];
        let request = WorkRequest::new(u64::from(message.id), operation, &segments);
        self.endpoint.post(now, connection, STREAM, request).ok()?;
        entry.next_at = at + bytes;
        let placed = if message.read { local } else { address };
        Some(cover(placed, placed + bytes))
    }

    fn handle(&mut self, now_ps: u64, packet: &Packet) {
        let length = self.unpack(packet);
        let Some(bytes) = self.scratch.get(..length) else { return };
        let source = SocketAddr::new(plane_address(packet.from, packet.plane).ip(), packet.source_port);
        let now = self.instant(now_ps);
        let datagram = Datagram { source, plane: packet.plane, ecn: packet.ecn, bytes };
        // What is dropped is counted by the endpoint.
        let _: Disposition = self.endpoint.handle_datagram(now, datagram, &mut self.memory);
        self.take_events(now);
    }

    fn handle_timeout(&mut self, now_ps: u64) {
        let now = self.instant(now_ps);
        while self.endpoint.handle_timeout(now) == Progress::More {}
        self.take_events(now);
    }

    fn poll(&mut self, now_ps: u64, arena: &mut Arena, most: usize, out: &mut Vec<PacketId>) {
        let now = self.instant(now_ps);
        let most = most.min(self.batch.len());
        let Some(batch) = self.batch.get_mut(..most) else { return };
        let sent = self.endpoint.poll_transmit(now, batch);
        for at in 0..sent {
            out.extend(self.pack(at, arena));
        }
    }

    fn next_deadline_ps(&mut self) -> Option<u64> {
        self.endpoint.next_deadline().map(|at| self.clock.global_ps(at.as_nanos()))
    }

    fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    fn flow_stats(&mut self, peer: Peer) -> FlowStats {
        let Some(connection) = self.peers.get(&peer).and_then(|entry| entry.connection) else {
            return FlowStats::default();
        };
        let paths = self.paths(peer);
        let Some(stats) = self.endpoint.connection_stats(connection) else { return FlowStats::default() };
        let window_bytes = paths.iter().map(|path| path.window_bytes).sum::<u64>();
        let base_ns = paths.iter().map(|path| path.rtt_ns_base).filter(|&rtt| rtt > 0).min();
        let base_ns = base_ns.unwrap_or(self.endpoint.config().rtt_ns_initial);
        FlowStats {
            packets_sent: stats.packets_sent,
            bytes_sent: stats.bytes_sent,
            retransmitted: stats.retransmitted,
            retransmitted_by_timeout: stats.retransmitted_by_timeout,
            spurious: stats.spurious,
            timeouts: paths.iter().map(|path| path.timeouts).sum(),
            marked: paths.iter().map(|path| path.packets_marked).sum(),
            window_bytes,
            inflight_bytes: paths.iter().map(|path| path.inflight_bytes).sum(),
            allowed_bps: allowed_bps(&paths, base_ns),
        }
    }

    fn path_samples(&mut self, peer: Peer) -> Vec<PathSample> {
        let sample = |path: PathStats| PathSample {
            window_bytes: path.window_bytes,
            inflight_bytes: path.inflight_bytes,
            good: matches!(path.state, PathState::Good | PathState::Congested),
            source_port: path.source_port,
            plane: path.plane,
            state: path.state.name(),
            marked: path.packets_marked,
            lost: path.packets_lost,
        };
        self.paths(peer).into_iter().map(sample).collect()
    }

    fn placed(&self) -> (u64, u64) {
        (self.memory.covered, self.memory.misplaced)
    }

    fn placed_bytes(&self) -> u64 {
        self.memory.placed_bytes
    }

    fn full_packet(&self) -> (u64, u64) {
        let payload_bytes = u64::from(self.endpoint.config().mtu_bytes) - HEADER_ROOM;
        (payload_bytes, payload_bytes + HEADER_BYTES + FRAMING_BYTES)
    }

    fn answer_bytes(&self) -> u64 {
        ANSWER_BYTES
    }

    fn dropped(&self) -> Vec<(&'static str, u64)> {
        let counts = self.endpoint.stats().dropped;
        DropReason::ALL
            .iter()
            .map(|reason| reason.name())
            .zip(counts)
            .filter(|(_, count)| *count > 0)
            .collect()
    }
}

/// Where a host receives on its first plane.
fn address_of(host: u32) -> SocketAddr {
    plane_address(host, 0)
}

fn plane_address(host: u32, plane: u8) -> SocketAddr {
    let bits = FIRST_ADDRESS + (u32::from(plane) << PLANE_SHIFT) + host;
    SocketAddr::new(IpAddr::V4(Ipv4Addr::from_bits(bits)), PORT)
}

/// The host that has this address on some plane.
/// What congestion control allows on all planes together: on each the least of what the windows let out in an RTT and
/// of the share that the receiver told.
fn allowed_bps(paths: &[PathStats], base_ns: u64) -> u64 {
    let planes = paths.iter().map(|path| path.plane).max().unwrap_or(0);
    let allowed = (0..=planes).map(|plane| {
        let on_plane = || paths.iter().filter(move |path| path.plane == plane);
        let window_bytes = on_plane().map(|path| path.window_bytes).sum::<u64>();
        let by_window = window_bytes.saturating_mul(8_000_000_000) / base_ns.max(1);
        let told = on_plane().map(|path| u64::from(path.share_kbps) * 1_000).max().unwrap_or(0);
        if told == 0 { by_window } else { by_window.min(told) }
    });
    allowed.sum()
}

fn host_of(address: IpAddr) -> Option<u32> {
    match address {
        IpAddr::V4(address) => {
            address.to_bits().checked_sub(FIRST_ADDRESS).map(|bits| bits & ((1 << PLANE_SHIFT) - 1))
        }
        IpAddr::V6(_) => None,
    }
}

/// 10.0.0.1.
const FIRST_ADDRESS: u32 = 0x0a00_0001;
/// Each plane has a part of the addresses: 10.0.0.1, 10.1.0.1, …
const PLANE_SHIFT: u32 = 16;
/// UDP port on which hosts receive.
const PORT: u16 = 4795;
/// The one stream of each connection, both directions.
const STREAM: StreamId = StreamId(0);
/// Most packets of one poll.
const BATCH: usize = 64;
/// Largest datagram.
const SCRATCH_BYTES: usize = 9_216;
/// Bytes of an acknowledgement of one path, framing included.
const ANSWER_BYTES: u64 = 20 + 64 + FRAMING_BYTES;
/// Header bytes of a Write's data packet.
const HEADER_BYTES: u64 = 20 + 28 + 12;
/// Header room that the core keeps in every packet.
const HEADER_ROOM: u64 = 80;
/// Zeros to compute checksums over.
static ZEROS: [u8; SCRATCH_BYTES] = [0; SCRATCH_BYTES];
