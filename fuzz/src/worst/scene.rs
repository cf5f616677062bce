//! A hostile peer and its victim, with connections, and packets of either made by hand.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;

use metaroce_conformance::{Faults, Network};
use metaroce_core::ids::{Csn, Psn, WireConnectionId};
use metaroce_core::wire::{AckBody, Base, Control, DataHeader, Frame, Opcode, PacketType, Vector256};
use metaroce_core::{
    Checksum as _, Config, ConnectOptions, ConnectionHandle, Datagram, Disposition, Ecn, Event, HeapStorage,
    Instant, Limits, Operation, PathId, PostError, Progress, ProtectionDomain, RegisteredRegion,
    RemoteAddress, Segment, StreamId, TableChecksum, Transmit, WorkRequest, crc,
};

use crate::probe;

pub const PEER: usize = 0;
pub const VICTIM: usize = 1;
pub const MS: u64 = 1_000_000;
/// Bytes of the region of each.
pub const REGION: u32 = 4 << 20;

/// A packet of a host, as far as it is written by the core: header, and inline payload.
#[derive(Clone, Debug)]
pub struct Sent {
    pub from: usize,
    pub base: Base,
    pub data: Option<DataHeader>,
    /// Of a CONNECT, the id that its sender chose.
    pub connect: Option<WireConnectionId>,
    pub is_close: bool,
    pub header: Vec<u8>,
}

impl Sent {
    fn of(from: usize, transmit: &Transmit) -> Self {
        let header = transmit.header().to_vec();
        // As long as the packet: what it carries does not matter.
        let mut bytes = header.clone();
        bytes.resize(transmit.datagram_length(), 0);
        let (base, body) = Base::parse(&bytes).unwrap();
        let data = (base.kind == PacketType::Data).then(|| DataHeader::parse(body).unwrap().0);
        let control = (base.kind == PacketType::Control).then(|| Control::parse(body).unwrap().0);
        let connect = match control {
            Some(Control::Connect(connect)) => Some(connect.connection),
            _ => None,
        };
        let is_close = matches!(control, Some(Control::Close(_)));
        Self { from, base, data, connect, is_close, header }
    }
}

/// What becomes of the packets of a host.
pub type Loses = fn(&Sent) -> bool;

pub struct Scene {
    pub net: Network<HeapStorage>,
    /// The victim's handles, and the peer's.
    pub connections: Vec<[ConnectionHandle; 2]>,
    /// The ids that the victim chose, as the peer says them.
    pub ids: Vec<WireConnectionId>,
    pub regions: [RegisteredRegion; 2],
    /// Packets since the last [`Scene::watch`].
    pub sent: Rc<RefCell<Vec<Sent>>>,
    loses: Rc<Cell<Loses>>,
    posted: u64,
}

/// Windows, rates and timers that keep nothing from being in flight at once.
fn config(seed: u64) -> Config {
    Config {
        window_bytes_max: u32::MAX,
        window_bytes_start: u32::MAX,
        inbound_rate_kbps: u32::MAX,
        rtt_ns_initial: 10 * MS,
        pto_ns_min: 300 * MS,
        rto_ns_min: 1_000 * MS,
        message_window: 65_536,
        initial_credits: 1_024,
        reads_granted: u16::MAX,
        half_open_per_address: u16::MAX,
        mtu_bytes: 9_000,
        ..Config::hardware(seed)
    }
}

impl Scene {
    /// With so many connections, from the victim, whose paths know their MTU.
    pub fn new(limits: &Limits, connections: u32) -> Self {
        Self::new_with(limits, connections, None)
    }

    /// The same; the victim's SENDs fail after so many refusals.
    pub fn new_with(limits: &Limits, connections: u32, rnr_retries: Option<u32>) -> Self {
        let peer = Limits {
            connections,
            requests: 16_384,
            receives: 16_384,
            packets: 65_536,
            csn_window: limits.csn_window,
            paths_per_connection: limits.paths_per_connection,
            ..Limits::HOST
        };
        let hosts = [
            (config(1), HeapStorage::new(&peer)),
            (Config { rnr_retries, ..config(2) }, HeapStorage::new(limits)),
        ];
        let mut net = Network::new(1, Faults { byte_ps: 1, ..Faults::NONE }, hosts);
        let regions = [PEER, VICTIM].map(|host| net.hosts[host].register(vec![0; REGION as usize]));
        let (sent, loses) = (Rc::new(RefCell::new(Vec::new())), Rc::new(Cell::new((|_| false) as Loses)));
        let (log, lost) = (Rc::clone(&sent), Rc::clone(&loses));
        net.filter = Some(Box::new(move |from, transmit| {
            let packet = Sent::of(from, transmit);
            let lost = lost.get()(&packet);
            log.borrow_mut().push(packet);
            lost
        }));
        let mut scene =
            Self { net, connections: Vec::new(), ids: Vec::new(), regions, sent, loses, posted: 0 };
        for _ in 0..connections {
            scene.connect();
        }
        scene.net.run_for(100 * MS);
        scene.clear();
        scene
    }

    fn connect(&mut self) {
        let now = self.net.now();
        let remote = self.net.hosts[PEER].address;
        let ours = self.net.hosts[VICTIM].endpoint.connect(now, ConnectOptions::to(remote)).unwrap();
        let mut theirs = None;
        let done = self.net.run_until(10_000 * MS, |net| {
            for event in net.hosts[PEER].take_events() {
                if let Event::Incoming { connection, .. } = event {
                    let now = net.now();
                    net.hosts[PEER].endpoint.accept(now, connection, ProtectionDomain(0), b"").unwrap();
                    theirs = Some(connection);
                }
            }
            net.settle();
            let events = net.hosts[VICTIM].take_events();
            events.iter().any(|event| matches!(event, Event::Connected { connection } if *connection == ours))
        });
        assert!(done, "connected");
        self.connections.push([ours, theirs.unwrap()]);
        let sent = self.sent.borrow();
        let id = sent.iter().rev().find_map(|packet| packet.connect).unwrap();
        self.ids.push(id);
    }

    /// Forgets packets and events.
    pub fn clear(&mut self) {
        self.sent.borrow_mut().clear();
        for host in &mut self.net.hosts {
            host.take_events();
        }
    }

    /// From now on these packets are lost.
    pub fn lose(&mut self, loses: Loses) {
        self.loses.set(loses);
    }

    /// Posts a request of one side; `Err` when its tables are full, for one.
    pub fn post(
        &mut self,
        by: usize,
        connection: usize,
        stream: u16,
        request: WorkRequest<'_>,
    ) -> Result<(), PostError> {
        let handle = self.connections[connection][1 - by];
        let now = self.net.now();
        let request = WorkRequest { id: self.posted, ..request };
        self.posted += 1;
        self.net.hosts[by].endpoint.post(now, handle, StreamId(stream), request)
    }

    /// Posts WRITEs of so many bytes, to one stream, until there are `most` of them or the tables are full. Returns how many.
    pub fn post_writes(
        &mut self,
        by: usize,
        connection: usize,
        stream: u16,
        length: u32,
        most: usize,
    ) -> usize {
        let segments = [Segment { region: self.regions[by].id, offset: 0, length }];
        let operation = Operation::Write { remote: self.remote(by), immediate: None };
        (0..most)
            .take_while(|_| {
                self.post(by, connection, stream, WorkRequest::new(0, operation, &segments)).is_ok()
            })
            .count()
    }

    /// The region of the other side.
    pub fn remote(&self, by: usize) -> RemoteAddress {
        RemoteAddress { key: self.regions[1 - by].key, address: 0 }
    }

    /// PSNs of the victim's DATA that were seen of each path, oldest first, with their timestamps.
    pub fn psns(&self) -> Vec<Vec<(Psn, u32)>> {
        let mut paths = vec![Vec::new(); 64];
        for packet in self.sent.borrow().iter().filter(|packet| packet.from == VICTIM) {
            if packet.base.kind.takes_psn() {
                paths[usize::from(packet.base.path.0)].push((packet.base.psn, packet.base.timestamp));
            }
        }
        paths
    }

    /// Path, PSN and timestamp of the victim's newest packet.
    pub fn last_sent(&self) -> (usize, Psn, u32) {
        let sent = self.sent.borrow();
        let base = sent.iter().rev().find(|packet| packet.from == VICTIM).unwrap().base;
        (usize::from(base.path.0), base.psn, base.timestamp)
    }

    /// A packet of the peer's.
    pub fn packet(
        &self,
        connection: usize,
        kind: PacketType,
        emit: impl FnOnce(&mut [u8]) -> usize,
    ) -> Vec<u8> {
        let base = Base {
            kind,
            flags: 0,
            path: PathId(0),
            epoch: 0,
            connection: self.ids[connection],
            psn: Psn::new(0),
            timestamp: self.net.now().wire_timestamp(),
            checksum: 0,
        };
        let mut bytes = vec![0; 10_000];
        let mut length = base.emit(&mut bytes).unwrap();
        length += emit(&mut bytes[length..]);
        bytes.truncate(length);
        seal(&mut bytes);
        bytes
    }

    /// An ACK with so many blocks, and further frames as long as they fit into 9,000 bytes.
    pub fn ack(
        &self,
        connection: usize,
        blocks: &[(AckBody, Vector256)],
        frames: impl IntoIterator<Item = Frame>,
    ) -> Vec<u8> {
        self.packet(connection, PacketType::Ack, |out| {
            let room = 9_000 - metaroce_core::wire::BASE_BYTES;
            let mut at = 0;
            for (number, (body, refused)) in blocks.iter().enumerate() {
                at += if number == 0 {
                    body.emit(&mut out[at..]).unwrap()
                } else {
                    Frame::Ack(*body).emit(&mut out[at..]).unwrap()
                };
                if !refused.is_empty() {
                    at += Frame::Refused(*refused).emit(&mut out[at..]).unwrap();
                }
            }
            for frame in frames {
                if at + frame.encoded_length() > room {
                    break;
                }
                at += frame.emit(&mut out[at..]).unwrap();
            }
            at
        })
    }

    /// Hands the victim a packet of the peer's; it must not be dropped.
    pub fn hand_in(&mut self, bytes: &[u8]) {
        let disposition = self.deliver(bytes);
        assert!(matches!(disposition, Disposition::Consumed), "{disposition:?}");
    }

    fn deliver(&mut self, bytes: &[u8]) -> Disposition {
        let source = self.net.hosts[PEER].address;
        let now = self.net.now();
        let host = &mut self.net.hosts[VICTIM];
        host.endpoint.handle_datagram(now, datagram(source, bytes), &mut host.memory)
    }

    /// The same, counted.
    pub fn hand_in_counted(&mut self, bytes: &[u8]) {
        let disposition = probe::counted(|| self.deliver(bytes));
        assert!(matches!(disposition, Some(Disposition::Consumed)), "{disposition:?}");
    }

    /// What the peer has to send now, whole; the network does not carry it.
    pub fn withheld(&mut self) -> Vec<Vec<u8>> {
        let now = self.net.now();
        let host = &mut self.net.hosts[PEER];
        let mut batch = vec![Transmit::EMPTY; 64];
        let mut packets = Vec::new();
        loop {
            let count = host.endpoint.poll_transmit(now, &mut batch);
            for transmit in &mut batch[..count] {
                let mut bytes = transmit.header().to_vec();
                bytes.resize(transmit.datagram_length(), 0);
                seal(&mut bytes);
                packets.push(bytes);
            }
            if count < batch.len() {
                return packets;
            }
        }
    }

    /// Lets so much time pass of which no endpoint hears, and has the victim's timers fire, counted once. Returns when that
    /// was.
    pub fn fire_counted(&mut self, after_ns: u64) -> Progress {
        let now = self.net.now().after(after_ns);
        let endpoint = &mut self.net.hosts[VICTIM].endpoint;
        probe::counted(|| endpoint.handle_timeout(now)).unwrap()
    }

    /// Has the victim fill so many descriptors at most, counted. Returns how many it did.
    pub fn transmit_counted(&mut self, descriptors: usize) -> usize {
        let mut batch = vec![Transmit::EMPTY; descriptors];
        let now: Instant = self.net.now();
        let endpoint = &mut self.net.hosts[VICTIM].endpoint;
        probe::counted(|| endpoint.poll_transmit(now, &mut batch)).unwrap()
    }

    /// The first packet that was seen of the peer's with this opcode, as far as the core wrote it.
    pub fn first_of(&self, opcode: Opcode) -> Vec<u8> {
        let sent = self.sent.borrow();
        let is_it = |packet: &&Sent| {
            packet.from == PEER && packet.data.as_ref().is_some_and(|data| data.opcode == opcode)
        };
        sent.iter().find(is_it).unwrap().header.clone()
    }
}

fn datagram(source: SocketAddr, bytes: &[u8]) -> Datagram<'_> {
    Datagram { source, plane: 0, ecn: Ecn::Ect0, bytes }
}

/// Writes the checksum.
pub fn seal(bytes: &mut [u8]) {
    Base::write_checksum(bytes, 0);
    let sum = crc::finish(TableChecksum.update(crc::SEED, bytes));
    Base::write_checksum(bytes, sum);
}

/// A block that tells of nothing but the largest PSN of a path.
pub fn block(path: usize, largest: Psn, echoed_timestamp: u32, packets: usize) -> AckBody {
    AckBody {
        path: PathId(u8::try_from(path).unwrap()),
        epoch: 0,
        flags: 0,
        largest,
        accepted: Vector256::EMPTY,
        echoed_timestamp,
        hold: 0,
        packets: u32::try_from(packets).unwrap() + 1_000_000,
        marked: 0,
        cumulative: Csn::new(0),
        share_kbps: u32::MAX,
    }
}
