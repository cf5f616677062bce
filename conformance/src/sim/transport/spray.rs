//! A model of a transport that sprays: packets of one connection and one number space over many routes.
//!
//! What public texts on MRC and on Ultra Ethernet's reliable unordered delivery have in common is modelled: every packet
//! takes the next of a set of entropy values (source ports), values that came back marked are left out for an RTT;
//! packets are placed in any order; one PSN space for all routes, in which a retransmission keeps its number;
//! acknowledgements carry the lowest missing number, 64 bits of what was received up to the newest packet, a count of
//! marked packets, and the entropy value of the newest; without trimming, a packet is taken for lost when one that is
//! higher by more than a threshold was received, and a lost retransmission only by a timeout. The window is one for the
//! connection, and follows marks (DCTCP's rule).
//!
//! Ours to choose, as no text fixes it: the threshold (64 packets unless the scenario says otherwise), an acknowledgement
//! for every second packet and for the last of a message, growth by 1/64 of the bandwidth-delay product per RTT as in
//! MetaRoCE's, a start at one bandwidth-delay product, 44 bytes of header. Losses found by the threshold do not shrink
//! the window, a timeout halves it. There is no receiver's share, no trimming, and no path is given up; a route that
//! swallows everything costs its part of all packets until it is back.

mod receiver;
mod sender;

use std::collections::{BTreeMap, VecDeque};

use metaroce_core::Ecn;

use super::super::memory::{FLOW_BYTES, Peer, cover, place};
use super::super::packet::{Arena, Packet, PacketId};
use super::super::units::FRAMING_BYTES;
use super::deadlines::Deadlines;
use super::{BaselineHeader, BaselineKind, FlowStats, Message, Notice, PathSample, Transport};
use receiver::Receiver;
use sender::Sender;

/// How the model is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SprayOptions {
    /// Payload of a packet, bytes.
    pub payload_bytes: u32,
    /// Shortest timeout, ps.
    pub timeout_ps: u64,
    /// Distance in the number space that is taken for loss, packets.
    pub threshold: u64,
    /// Entropy values of a connection, at least 1.
    pub values: u16,
    /// Planes; the values are spread over them.
    pub planes: u8,
    /// Bandwidth-delay product of all lines of a host, packets, at least 1.
    pub bdp_packets: u32,
    /// RTT before the first sample, ps.
    pub rtt_ps: u64,
    /// Seed of the entropy values.
    pub seed: u64,
}

/// One host.
#[derive(Debug)]
pub struct Spray {
    host: u32,
    options: SprayOptions,
    senders: BTreeMap<Peer, Sender>,
    receivers: BTreeMap<Peer, Receiver>,
    /// Senders in the order of their turns.
    turns: VecDeque<Peer>,
    /// Timeouts.
    timers: Deadlines,
    answers: VecDeque<(Peer, u16, BaselineHeader)>,
    notices: VecDeque<Notice>,
    covered: u64,
    placed_bytes: u64,
}

impl Spray {
    /// The model on `host`.
    #[must_use]
    pub fn new(host: u32, options: SprayOptions) -> Self {
        Self {
            host,
            options,
            senders: BTreeMap::new(),
            receivers: BTreeMap::new(),
            turns: VecDeque::new(),
            timers: Deadlines::default(),
            answers: VecDeque::new(),
            notices: VecDeque::new(),
            covered: 0,
            placed_bytes: 0,
        }
    }

    fn plane(&self, port: u16) -> u8 {
        u8::try_from(port % u16::from(self.options.planes.max(1))).unwrap_or(0)
    }

    fn on_data(&mut self, packet: &Packet) {
        let header = packet.baseline;
        let peer = Peer { host: packet.from, number: header.connection };
        let receiver = self.receivers.entry(peer).or_default();
        if receiver.take(&header, packet.ecn == Ecn::Ce) {
            let (from, bytes) = (packet.payload_offset, u64::from(packet.payload_bytes));
            self.covered = self.covered.wrapping_add(cover(from, from + bytes));
            self.placed_bytes += bytes;
            let told = receiver.delivered().map(|id| Notice::Delivered { peer, id });
            self.notices.extend(told);
        }
        if let Some(answer) = receiver.answer(&header, packet.source_port) {
            self.answers.push_back((peer, packet.source_port, answer));
        }
    }

    fn on_answer(&mut self, now_ps: u64, from: Peer, header: &BaselineHeader) {
        let Some(sender) = self.senders.get_mut(&from) else { return };
        sender.on_answer(now_ps, header, &self.options);
        while let Some(id) = sender.completed() {
            self.notices.push_back(Notice::Sent { peer: from, id });
        }
        if !sender.is_idle() && sender.take_turn() {
            self.turns.push_back(from);
        }
        self.plan(from);
    }

    /// The sender to `peer` has changed.
    fn plan(&mut self, peer: Peer) {
        let Some(sender) = self.senders.get(&peer) else { return };
        self.timers.set(peer, sender.deadline_ps(&self.options));
    }
}

impl Transport for Spray {
    fn connect(&mut self, _now_ps: u64, peer: Peer, _first: bool) {
        let sender = || Sender::new(&self.options, self.host, peer);
        self.senders.entry(peer).or_insert_with(sender);
    }

    fn is_ready(&mut self) -> bool {
        true
    }

    fn post(&mut self, _now_ps: u64, peer: Peer, message: Message) -> Option<u64> {
        if message.read {
            return None;
        }
        let sender = self.senders.get_mut(&peer)?;
        let bytes = u64::from(message.bytes);
        let at = if sender.next_at + bytes > FLOW_BYTES { 0 } else { sender.next_at };
        sender.next_at = at + bytes;
        let offset = place(Peer { host: self.host, ..peer }, at);
        sender.queue(message, offset, self.options.payload_bytes);
        if sender.take_turn() {
            self.turns.push_back(peer);
        }
        Some(cover(offset, offset + bytes))
    }

    fn handle(&mut self, now_ps: u64, packet: &Packet) {
        if packet.corrupt.is_some() {
            return;
        }
        let from = Peer { host: packet.from, number: packet.baseline.connection };
        match packet.baseline.kind {
            BaselineKind::Data => self.on_data(packet),
            BaselineKind::Ack => self.on_answer(now_ps, from, &packet.baseline),
            _ => {}
        }
    }

    fn handle_timeout(&mut self, now_ps: u64) {
        for peer in self.timers.due(now_ps) {
            let Some(sender) = self.senders.get_mut(&peer) else { continue };
            if sender.on_time(now_ps, &self.options) && sender.take_turn() {
                self.turns.push_back(peer);
            }
            self.plan(peer);
        }
    }

    fn poll(&mut self, now_ps: u64, arena: &mut Arena, most: usize, out: &mut Vec<PacketId>) {
        while out.len() < most {
            let Some((peer, port, header)) = self.answers.pop_front() else { break };
            let plane = self.plane(port);
            let (id, packet) = arena.allocate();
            (packet.from, packet.to, packet.source_port, packet.plane) = (self.host, peer.host, port, plane);
            packet.baseline = BaselineHeader { connection: peer.number, ..header };
            out.push(id);
        }
        while out.len() < most {
            let Some(peer) = self.turns.pop_front() else { break };
            let Some(sender) = self.senders.get_mut(&peer) else { continue };
            let Some(next) = sender.next_packet(now_ps, &self.options) else {
                sender.has_turn = false;
                continue;
            };
            self.turns.push_back(peer);
            self.plan(peer);
            let plane = self.plane(next.port);
            let (id, packet) = arena.allocate();
            (packet.from, packet.to, packet.source_port, packet.plane) =
                (self.host, peer.host, next.port, plane);
            packet.ecn = Ecn::Ect0;
            packet.payload_bytes = next.payload_bytes;
            packet.payload_offset = next.payload_offset;
            packet.baseline = BaselineHeader { connection: peer.number, bytes: HEADER_BYTES, ..next.header };
            out.push(id);
        }
    }

    fn next_deadline_ps(&mut self) -> Option<u64> {
        self.timers.first()
    }

    fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    fn flow_stats(&mut self, peer: Peer) -> FlowStats {
        self.senders.get(&peer).map(|sender| sender.stats(&self.options)).unwrap_or_default()
    }

    fn path_samples(&mut self, peer: Peer) -> Vec<PathSample> {
        let stats = self.flow_stats(peer);
        vec![PathSample {
            window_bytes: stats.window_bytes,
            inflight_bytes: stats.inflight_bytes,
            good: true,
            state: "good",
            ..PathSample::default()
        }]
    }

    fn placed(&self) -> (u64, u64) {
        (self.covered, 0)
    }

    fn placed_bytes(&self) -> u64 {
        self.placed_bytes
    }

    fn full_packet(&self) -> (u64, u64) {
        let payload_bytes = u64::from(self.options.payload_bytes);
        (payload_bytes, payload_bytes + u64::from(HEADER_BYTES) + FRAMING_BYTES)
    }

    fn answer_bytes(&self) -> u64 {
        u64::from(ANSWER_BYTES) + FRAMING_BYTES
    }
}

const HEADER_BYTES: u16 = 44;
const ANSWER_BYTES: u16 = 44;
