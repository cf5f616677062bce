//! Everything that two hosts said, from the first CONNECT on.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use metaroce_conformance::trace::{Observer, Record};
use metaroce_conformance::{Faults, Network};
use metaroce_core::ids::Serial;
use metaroce_core::wire::{
    AckBody, Base, Connect, Control, DataHeader, Frame, FrameIter, PacketType, Probe, ProbeReply,
};
use metaroce_core::{Config, Ecn, HeapStorage, Limits};

use crate::common::pair::{Pair, REGION};
use crate::common::{config, connect, pattern};

/// One datagram.
#[derive(Clone, Debug)]
pub struct Sent {
    pub time_ns: u64,
    pub from: usize,
    pub source: SocketAddr,
    pub destination: SocketAddr,
    pub ecn: Ecn,
    pub bytes: Vec<u8>,
    pub lost: bool,
}

impl Sent {
    pub fn base(&self) -> Base {
        Base::parse(&self.bytes).unwrap().0
    }

    pub fn kind(&self) -> PacketType {
        self.base().kind
    }

    fn body(&self, kind: PacketType) -> Option<&[u8]> {
        let (base, body) = Base::parse(&self.bytes).unwrap();
        (base.kind == kind).then_some(body)
    }

    pub fn data(&self) -> Option<DataHeader> {
        self.body(PacketType::Data).map(|body| DataHeader::parse(body).unwrap().0)
    }

    pub fn payload(&self) -> &[u8] {
        self.body(PacketType::Data).map_or(&[], |body| DataHeader::parse(body).unwrap().1)
    }

    pub fn probe(&self) -> Option<Probe> {
        self.body(PacketType::Probe).map(|body| Probe::parse(body).unwrap().0)
    }

    pub fn control(&self) -> Option<Control<'_>> {
        self.body(PacketType::Control).map(|body| Control::parse(body).unwrap().0)
    }

    /// The body of a CONNECT or ACCEPT.
    pub fn hello(&self) -> Option<Connect<'_>> {
        match self.control()? {
            Control::Connect(hello) | Control::Accept(hello) => Some(hello),
            _ => None,
        }
    }

    pub fn reply(&self) -> Option<ProbeReply> {
        self.body(PacketType::ProbeReply).map(|body| ProbeReply::parse(body).unwrap().0)
    }

    /// First block and frames of an ACK or `PROBE_REPLY`.
    pub fn ack(&self) -> Option<(AckBody, Vec<Frame>)> {
        let (ack, frames) = match self.kind() {
            PacketType::Ack => AckBody::parse(self.body(PacketType::Ack)?).unwrap(),
            PacketType::ProbeReply => {
                let (reply, frames) = ProbeReply::parse(self.body(PacketType::ProbeReply)?).unwrap();
                (reply.ack, frames)
            }
            _ => return None,
        };
        Some((ack, FrameIter::new(frames).map(Result::unwrap).collect()))
    }

    /// All blocks of an ACK or `PROBE_REPLY`.
    pub fn blocks(&self) -> Vec<AckBody> {
        let Some((first, frames)) = self.ack() else { return Vec::new() };
        let others = frames.iter().filter_map(|frame| match frame {
            Frame::Ack(block) => Some(*block),
            _ => None,
        });
        std::iter::once(first).chain(others).collect()
    }

    pub fn frames(&self) -> Vec<Frame> {
        self.ack().map_or_else(Vec::new, |(_, frames)| frames)
    }
}

#[derive(Default)]
pub struct Tape(pub Vec<Sent>);

impl Observer for Tape {
    fn on_datagram(&mut self, record: &Record<'_>) {
        self.0.push(Sent {
            time_ns: record.time_ns,
            from: record.from,
            source: record.source,
            destination: record.destination,
            ecn: record.ecn,
            bytes: record.bytes.to_vec(),
            lost: record.lost,
        });
    }
}

pub type Shared = Rc<RefCell<Tape>>;

/// A network of two hosts that are not connected yet.
pub fn network(
    seed: u64,
    faults: Faults,
    change: impl Fn(usize, &mut Config, &mut Limits),
) -> (Network<HeapStorage>, Shared) {
    let hosts = (0..2).map(|number| {
        let (mut config, mut limits) = (config(seed * 2 + number as u64), Limits::HOST);
        change(number, &mut config, &mut limits);
        (config, HeapStorage::new(&limits))
    });
    let mut net = Network::new(seed, faults, hosts);
    let tape = Rc::new(RefCell::new(Tape::default()));
    net.observer = Some(Box::new(Rc::clone(&tape)));
    (net, tape)
}

/// A connected pair, and what was said.
pub fn taped(seed: u64, faults: Faults, change: impl Fn(usize, &mut Config, &mut Limits)) -> (Pair, Shared) {
    let (mut net, tape) = network(seed, faults, change);
    let connection = connect(&mut net);
    let region = [0, 1].map(|number| net.hosts[number].register(pattern(REGION, number as u64 + 1)));
    (Pair { net, connection, region }, tape)
}

/// DATA of one host, oldest first.
pub fn data_of(tape: &Shared, from: usize) -> Vec<(Base, DataHeader)> {
    let tape = tape.borrow();
    let of_host = tape.0.iter().filter(|sent| sent.from == from);
    of_host.filter_map(|sent| sent.data().map(|header| (sent.base(), header))).collect()
}

/// How far `csn` lies behind the first one of its sender.
pub fn csn_number(tape: &Shared, from: usize, csn: metaroce_core::ids::Csn) -> u32 {
    csn.raw().wrapping_sub(nonce(tape, from) as u32)
}

/// The nonce of a host's CONNECT or ACCEPT.
pub fn nonce(tape: &Shared, from: usize) -> u64 {
    let tape = tape.borrow();
    tape.0
        .iter()
        .filter(|sent| sent.from == from)
        .find_map(|sent| sent.hello().map(|hello| hello.nonce))
        .unwrap()
}

/// The id by which packets to a host name its connection.
pub fn id(tape: &Shared, host: usize) -> u32 {
    let tape = tape.borrow();
    let mut of_host = tape.0.iter().filter(|sent| sent.from == host);
    of_host.find_map(|sent| sent.hello().map(|hello| hello.connection.0)).unwrap()
}
