//! A model of `RoCEv2` on a lossy fabric: one path per connection, go-back-N, DCQCN.
//!
//! What is modelled: one source port per connection; a receiver that takes packets in order only, answers the first gap
//! with one NAK and drops until the missing packet comes; a sender that goes back to what a NAK names, or to the oldest
//! unanswered packet after a timeout; acknowledgements for every 16th and the last packet of a message; DCQCN's
//! notification point (one CNP per flow in 50 µs) and reaction point. There is no pause (PFC), as everywhere here.
//! To its favour: line-rate start with no window, constants scaled with the line, a timeout as short as that of
//! MetaRoCE (hardware has some 0.5 to 67 ms), no back-off, no retry limit, 16 bytes of header on average.

use std::collections::{BTreeMap, VecDeque};

use metaroce_core::Ecn;

use super::super::memory::{FLOW_BYTES, Peer, cover, place};
use super::super::packet::{Arena, Packet, PacketId};
use super::super::topology::ecmp;
use super::super::units::FRAMING_BYTES;
use super::dcqcn::{Dcqcn, Reaction};
use super::deadlines::Deadlines;
use super::{BaselineHeader, BaselineKind, FlowStats, Message, Notice, PathSample, Transport};

/// How the model is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoceOptions {
    /// Payload of a packet, bytes.
    pub payload_bytes: u32,
    /// Time without progress after which a sender goes back, ps.
    pub timeout_ps: u64,
    /// Constants of the congestion control.
    pub dcqcn: Dcqcn,
    /// Seed of source ports.
    pub seed: u64,
    /// Planes; each connection has one of them.
    pub planes: u32,
}

/// One host.
#[derive(Debug)]
pub struct RoceV2 {
    host: u32,
    options: RoceOptions,
    senders: BTreeMap<Peer, Sender>,
    receivers: BTreeMap<Peer, Receiver>,
    /// Senders that have something to send, in the order of their turns.
    turns: VecDeque<Peer>,
    /// Timeouts and the timers of congestion control.
    timers: Deadlines,
    /// When paced senders may send.
    paces: Deadlines,
    /// Answers to send, before data: to whom, what.
    answers: VecDeque<(Peer, BaselineHeader)>,
    notices: VecDeque<Notice>,
    covered: u64,
    placed_bytes: u64,
    /// When it was last asked for packets.
    now_ps: u64,
}

#[derive(Debug)]
struct Sender {
    path: (u16, u8),
    messages: VecDeque<Queued>,
    /// Numbers: the oldest unanswered, the next to send, one past the highest sent, one past the last queued.
    oldest: u64,
    next: u64,
    highest: u64,
    end: u64,
    next_at: u64,
    reaction: Reaction,
    /// The pace allows the next packet from then on, ps.
    pace_ps: u64,
    progress_ps: u64,
    has_turn: bool,
    stats: FlowStats,
}

impl Sender {
    fn take_turn(&mut self, own: Peer, turns: &mut VecDeque<Peer>) {
        if !self.has_turn {
            self.has_turn = true;
            turns.push_back(own);
        }
    }

    /// When time next matters, ps: never, with nothing unanswered or to send.
    fn timer_ps(&self, timeout_ps: u64) -> Option<u64> {
        let timeout = (self.oldest < self.next).then_some(self.progress_ps + timeout_ps);
        let is_busy = self.oldest < self.end;
        timeout.into_iter().chain(self.reaction.deadline_ps()).min().filter(|_| is_busy)
    }
}

#[derive(Clone, Copy, Debug)]
struct Queued {
    message: Message,
    first: u64,
    packets: u64,
    offset: u64,
}

#[derive(Debug, Default)]
struct Receiver {
    expected: u64,
    told_gap: bool,
    since_ack: u32,
    notified_ps: Option<u64>,
}

impl RoceV2 {
    /// The model on `host`.
    #[must_use]
    pub fn new(host: u32, options: RoceOptions) -> Self {
        Self {
            host,
            options,
            senders: BTreeMap::new(),
            receivers: BTreeMap::new(),
            turns: VecDeque::new(),
            timers: Deadlines::default(),
            paces: Deadlines::default(),
            answers: VecDeque::new(),
            notices: VecDeque::new(),
            covered: 0,
            placed_bytes: 0,
            now_ps: 0,
        }
    }

    /// Source port and plane of the one path to `peer`.
    fn path(&self, peer: Peer) -> (u16, u8) {
        let hash = ecmp(self.options.seed ^ u64::from(peer.number) << 32, self.host, peer.host, 0);
        let part = |number: u64| u16::try_from(number).unwrap_or(0);
        let plane = part((hash >> 32) % u64::from(self.options.planes.max(1)));
        (49_152 + part(hash % 16_384), u8::try_from(plane).unwrap_or(0))
    }

    /// The sender to `peer` has changed.
    fn plan(&mut self, peer: Peer) {
        let Some(sender) = self.senders.get(&peer) else { return };
        self.timers.set(peer, sender.timer_ps(self.options.timeout_ps));
        self.paces.set(peer, (sender.next < sender.end).then_some(sender.pace_ps));
    }

    fn on_data(&mut self, now_ps: u64, packet: &Packet) {
        let header = packet.baseline;
        let peer = Peer { host: packet.from, number: header.connection };
        let receiver = self.receivers.entry(peer).or_default();
        let due = receiver.notified_ps.is_none_or(|at_ps| now_ps - at_ps >= self.options.dcqcn.notify_ps);
        if packet.ecn == Ecn::Ce && due {
            receiver.notified_ps = Some(now_ps);
            self.answers.push_back((peer, answer(BaselineKind::Cnp, 0)));
        }
        if header.psn > receiver.expected {
            if !receiver.told_gap {
                receiver.told_gap = true;
                self.answers.push_back((peer, answer(BaselineKind::Nak, receiver.expected)));
            }
            return;
        }
        if header.psn == receiver.expected {
            receiver.told_gap = false;
            receiver.expected += 1;
            let bytes = u64::from(packet.payload_bytes);
            self.covered =
                self.covered.wrapping_add(cover(packet.payload_offset, packet.payload_offset + bytes));
            self.placed_bytes += bytes;
            if header.last && header.notify {
                let id = u32::try_from(header.message).unwrap_or(u32::MAX);
                self.notices.push_back(Notice::Delivered { peer, id });
            }
        }
        receiver.since_ack += 1;
        if header.last || receiver.since_ack >= ACK_PACKETS {
            receiver.since_ack = 0;
            self.answers.push_back((peer, answer(BaselineKind::Ack, receiver.expected)));
        }
    }

    fn on_answer(&mut self, now_ps: u64, from: Peer, header: &BaselineHeader) {
        let constants = self.options.dcqcn;
        let Some(sender) = self.senders.get_mut(&from) else { return };
        if header.kind == BaselineKind::Cnp {
            sender.stats.marked += 1;
            sender.reaction.on_notification(now_ps, &constants);
            return;
        }
        if header.psn > sender.oldest {
            sender.oldest = header.psn;
            sender.progress_ps = now_ps;
            sender.next = sender.next.max(sender.oldest);
        }
        if header.kind == BaselineKind::Nak && header.psn >= sender.oldest {
            sender.next = header.psn;
            sender.progress_ps = now_ps;
            sender.take_turn(from, &mut self.turns);
        }
        while let Some(queued) = sender.messages.front() {
            if queued.first + queued.packets > sender.oldest {
                break;
            }
            self.notices.push_back(Notice::Sent { peer: from, id: queued.message.id });
            sender.messages.pop_front();
        }
    }

    /// The next data packet of the sender to `peer`, if it has one and its pace allows it.
    fn next_data(&mut self, now_ps: u64, peer: Peer, arena: &mut Arena) -> Option<PacketId> {
        let payload_bytes = self.options.payload_bytes;
        let constants = self.options.dcqcn;
        let sender = self.senders.get_mut(&peer)?;
        if sender.next >= sender.end || sender.pace_ps > now_ps {
            return None;
        }
        let after = sender.messages.partition_point(|queued| queued.first <= sender.next);
        let queued = *sender.messages.get(after.checked_sub(1)?)?;
        let index = sender.next - queued.first;
        let at = index * u64::from(payload_bytes);
        let left = u64::from(queued.message.bytes).saturating_sub(at);
        if sender.oldest == sender.next {
            sender.progress_ps = now_ps;
        }
        let (id, packet) = arena.allocate();
        packet.from = self.host;
        packet.to = peer.host;
        (packet.source_port, packet.plane) = sender.path;
        packet.ecn = Ecn::Ect0;
        packet.payload_bytes = u32::try_from(left).unwrap_or(u32::MAX).min(payload_bytes);
        packet.payload_offset = queued.offset + at;
        packet.baseline = BaselineHeader {
            kind: BaselineKind::Data,
            connection: peer.number,
            bytes: HEADER_BYTES,
            psn: sender.next,
            message: u64::from(queued.message.id),
            last: index + 1 == queued.packets,
            notify: queued.message.notify,
            ..BaselineHeader::NONE
        };
        sender.stats.retransmitted += u64::from(sender.next < sender.highest);
        sender.stats.packets_sent += 1;
        sender.stats.bytes_sent += u64::from(packet.payload_bytes);
        sender.next += 1;
        sender.highest = sender.highest.max(sender.next);
        let wire_bytes = packet.wire_bytes();
        let gap_ps = u128::from(wire_bytes) * 8_000_000_000_000 / u128::from(sender.reaction.rate_bps.max(1));
        sender.pace_ps = sender.pace_ps.max(now_ps) + u64::try_from(gap_ps).unwrap_or(u64::MAX >> 1);
        sender.reaction.on_sent(wire_bytes, &constants);
        Some(id)
    }
}

impl Transport for RoceV2 {
    fn connect(&mut self, _now_ps: u64, peer: Peer, _first: bool) {
        let path = self.path(peer);
        let reaction = Reaction::new(&self.options.dcqcn);
        self.senders.entry(peer).or_insert_with(|| Sender {
            path,
            messages: VecDeque::new(),
            oldest: 0,
            next: 0,
            highest: 0,
            end: 0,
            next_at: 0,
            reaction,
            pace_ps: 0,
            progress_ps: 0,
            has_turn: false,
            stats: FlowStats::default(),
        });
    }

    fn is_ready(&mut self) -> bool {
        true
    }

    fn post(&mut self, _now_ps: u64, peer: Peer, message: Message) -> Option<u64> {
        if message.read {
            return None;
        }
        let (here, payload_bytes) = (Peer { host: self.host, ..peer }, self.options.payload_bytes);
        let sender = self.senders.get_mut(&peer)?;
        let bytes = u64::from(message.bytes);
        let at = if sender.next_at + bytes > FLOW_BYTES { 0 } else { sender.next_at };
        sender.next_at = at + bytes;
        let packets = bytes.div_ceil(u64::from(payload_bytes)).max(1);
        let offset = place(here, at);
        sender.messages.push_back(Queued { message, first: sender.end, packets, offset });
        sender.end += packets;
        sender.take_turn(peer, &mut self.turns);
        self.plan(peer);
        Some(cover(offset, offset + bytes))
    }

    fn handle(&mut self, now_ps: u64, packet: &Packet) {
        if packet.corrupt.is_some() {
            return;
        }
        match packet.baseline.kind {
            BaselineKind::None => {}
            BaselineKind::Data => self.on_data(now_ps, packet),
            _ => {
                let from = Peer { host: packet.from, number: packet.baseline.connection };
                self.on_answer(now_ps, from, &packet.baseline);
                self.plan(from);
            }
        }
    }

    fn handle_timeout(&mut self, now_ps: u64) {
        let (constants, timeout_ps) = (self.options.dcqcn, self.options.timeout_ps);
        for peer in self.timers.due(now_ps) {
            let Some(sender) = self.senders.get_mut(&peer) else { continue };
            sender.reaction.on_time(now_ps, &constants);
            if sender.oldest < sender.next && sender.progress_ps + timeout_ps <= now_ps {
                sender.stats.timeouts += 1;
                sender.stats.retransmitted_by_timeout += 1;
                sender.next = sender.oldest;
                sender.progress_ps = now_ps;
                sender.take_turn(peer, &mut self.turns);
            }
            self.plan(peer);
        }
    }

    fn poll(&mut self, now_ps: u64, arena: &mut Arena, most: usize, out: &mut Vec<PacketId>) {
        self.now_ps = now_ps;
        while out.len() < most {
            let Some((peer, header)) = self.answers.pop_front() else { break };
            let path = self.path(peer);
            let (id, packet) = arena.allocate();
            packet.from = self.host;
            packet.to = peer.host;
            (packet.source_port, packet.plane) = path;
            packet.baseline = BaselineHeader { connection: peer.number, ..header };
            out.push(id);
        }
        let mut idle = 0;
        while out.len() < most && idle < self.turns.len() {
            let Some(peer) = self.turns.pop_front() else { break };
            let Some(sender) = self.senders.get_mut(&peer) else { continue };
            if sender.next >= sender.end {
                sender.has_turn = false;
                continue;
            }
            self.turns.push_back(peer);
            match self.next_data(now_ps, peer, arena) {
                Some(id) => {
                    out.push(id);
                    self.plan(peer);
                    idle = 0;
                }
                None => idle += 1,
            }
        }
    }

    fn next_deadline_ps(&mut self) -> Option<u64> {
        // What the pace allows by now goes when the line is free: that is no matter of time.
        self.timers.first().into_iter().chain(self.paces.first_after(self.now_ps)).min()
    }

    fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    fn flow_stats(&mut self, peer: Peer) -> FlowStats {
        self.senders.get(&peer).map_or_else(FlowStats::default, |sender| FlowStats {
            inflight_bytes: (sender.next - sender.oldest) * u64::from(self.options.payload_bytes),
            allowed_bps: sender.reaction.rate_bps,
            ..sender.stats
        })
    }

    fn path_samples(&mut self, peer: Peer) -> Vec<PathSample> {
        let inflight_bytes = self.flow_stats(peer).inflight_bytes;
        vec![PathSample { inflight_bytes, good: true, ..PathSample::default() }]
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

const fn answer(kind: BaselineKind, psn: u64) -> BaselineHeader {
    BaselineHeader { kind, bytes: ANSWER_BYTES, psn, ..BaselineHeader::NONE }
}

/// BTH and ICRC; RETH is on the first packet of a message only.
const HEADER_BYTES: u16 = 16;
/// BTH, AETH, ICRC.
const ANSWER_BYTES: u16 = 20;
/// Packets for one acknowledgement.
const ACK_PACKETS: u32 = 16;
