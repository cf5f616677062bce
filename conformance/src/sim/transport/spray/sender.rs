//! The sending side: one window, one number space, many entropy values.

use std::collections::VecDeque;

use super::super::super::memory::Peer;
use super::super::super::topology::ecmp;
use super::super::{BaselineHeader, BaselineKind, FlowStats, Message};
use super::SprayOptions;

#[derive(Debug)]
pub(super) struct Sender {
    /// Where the next message lies in the flow's memory.
    pub(super) next_at: u64,
    /// It is in the list of turns.
    pub(super) has_turn: bool,
    messages: VecDeque<Queued>,
    /// All below is acknowledged.
    lowest: u64,
    /// From `lowest` on, what was sent.
    sent: VecDeque<Sent>,
    end: u64,
    lost: VecDeque<u64>,
    /// Below that number everything that is missing has been looked at.
    judged: u64,
    inflight: u32,
    values: Vec<Value>,
    turn: usize,
    /// Window, in 1/256 packets.
    window: u64,
    /// Fraction of marked packets, in 1/1024.
    alpha: u64,
    round: Round,
    marks: u32,
    rtt_ps: u64,
    progress_ps: u64,
    backoff: u32,
    stats: FlowStats,
}

/// What one RTT brought.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    until_ps: u64,
    acknowledged: u64,
    marked: u64,
}

#[derive(Clone, Copy, Debug)]
struct Value {
    port: u16,
    /// Left out until then, ps.
    out_ps: u64,
}

#[derive(Clone, Copy, Debug)]
struct Queued {
    message: Message,
    first: u64,
    packets: u64,
    offset: u64,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    at_ps: u64,
    state: State,
    again: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Flying,
    Lost,
    Acknowledged,
}

/// A packet to send.
pub(super) struct Next {
    pub(super) port: u16,
    pub(super) payload_bytes: u32,
    pub(super) payload_offset: u64,
    pub(super) header: BaselineHeader,
}

impl Sender {
    pub(super) fn new(options: &SprayOptions, host: u32, peer: Peer) -> Self {
        let seed = options.seed ^ u64::from(peer.number) << 32;
        let value = |number| {
            let hash = ecmp(seed, host, peer.host, number) % 16_384;
            Value { port: 49_152 + u16::try_from(hash).unwrap_or(0), out_ps: 0 }
        };
        Self {
            next_at: 0,
            has_turn: false,
            messages: VecDeque::new(),
            lowest: 0,
            sent: VecDeque::new(),
            end: 0,
            lost: VecDeque::new(),
            judged: 0,
            inflight: 0,
            values: (0..options.values.max(1)).map(value).collect(),
            turn: 0,
            window: u64::from(options.bdp_packets.max(1)) * UNIT,
            alpha: 0,
            round: Round::default(),
            marks: 0,
            rtt_ps: options.rtt_ps,
            progress_ps: 0,
            backoff: 0,
            stats: FlowStats::default(),
        }
    }

    pub(super) fn queue(&mut self, message: Message, offset: u64, payload_bytes: u32) {
        let packets = u64::from(message.bytes).div_ceil(u64::from(payload_bytes)).max(1);
        self.messages.push_back(Queued { message, first: self.end, packets, offset });
        self.end += packets;
    }

    /// Whether it has to be put into the list of turns.
    pub(super) const fn take_turn(&mut self) -> bool {
        !std::mem::replace(&mut self.has_turn, true)
    }

    pub(super) const fn is_idle(&self) -> bool {
        self.lowest == self.end
    }

    /// A message whose packets are all acknowledged, oldest first.
    pub(super) fn completed(&mut self) -> Option<u32> {
        let front = self.messages.front()?;
        if front.first + front.packets > self.lowest {
            return None;
        }
        self.messages.pop_front().map(|queued| queued.message.id)
    }

    fn next_psn(&self) -> u64 {
        self.lowest + self.sent.len() as u64
    }

    fn entry(&mut self, psn: u64) -> Option<&mut Sent> {
        self.sent.get_mut(usize::try_from(psn.checked_sub(self.lowest)?).ok()?)
    }

    pub(super) fn next_packet(&mut self, now_ps: u64, options: &SprayOptions) -> Option<Next> {
        if u64::from(self.inflight) * UNIT >= self.window.max(UNIT) {
            return None;
        }
        let psn = loop {
            let Some(psn) = self.lost.pop_front() else { break self.next_psn() };
            if self.entry(psn).is_some_and(|entry| entry.state == State::Lost) {
                break psn;
            }
        };
        if psn >= self.end {
            return None;
        }
        if self.inflight == 0 {
            self.progress_ps = now_ps;
        }
        let again = psn < self.next_psn();
        let sent = Sent { at_ps: now_ps, state: State::Flying, again };
        match self.entry(psn) {
            Some(entry) => *entry = sent,
            None => self.sent.push_back(sent),
        }
        self.inflight += 1;
        let after = self.messages.partition_point(|queued| queued.first <= psn);
        let queued = *self.messages.get(after.checked_sub(1)?)?;
        let index = psn - queued.first;
        let at = index * u64::from(options.payload_bytes);
        let left = u64::from(queued.message.bytes).saturating_sub(at);
        let payload_bytes = u32::try_from(left).unwrap_or(u32::MAX).min(options.payload_bytes);
        self.stats.packets_sent += 1;
        self.stats.bytes_sent += u64::from(payload_bytes);
        self.stats.retransmitted += u64::from(again);
        let header = BaselineHeader {
            kind: BaselineKind::Data,
            psn,
            message: u64::from(queued.message.id),
            last: index + 1 == queued.packets,
            notify: queued.message.notify,
            ..BaselineHeader::NONE
        };
        Some(Next { port: self.port(now_ps), payload_bytes, payload_offset: queued.offset + at, header })
    }

    /// The next entropy value that is not left out; the next one if all are.
    fn port(&mut self, now_ps: u64) -> u16 {
        let count = self.values.len();
        let in_turn = (1..=count).map(|step| (self.turn + step) % count.max(1));
        let usable =
            in_turn.clone().find(|&at| self.values.get(at).is_some_and(|value| value.out_ps <= now_ps));
        self.turn = usable.or_else(|| in_turn.clone().next()).unwrap_or(0);
        self.values.get(self.turn).map_or(0, |value| value.port)
    }

    pub(super) fn on_answer(&mut self, now_ps: u64, header: &BaselineHeader, options: &SprayOptions) {
        let marks = header.marks.saturating_sub(self.marks);
        self.marks = self.marks.max(header.marks);
        if let Some(entry) = self.entry(header.newest).filter(|entry| !entry.again).map(|entry| entry.at_ps) {
            let sample = now_ps - entry;
            self.rtt_ps = (7 * self.rtt_ps + sample) / 8;
        }
        if marks > 0
            && let Some(value) = self.values.iter_mut().find(|value| value.port == header.echo)
        {
            value.out_ps = now_ps + self.rtt_ps;
        }
        let mut fresh = 0;
        let told = (0..64u64).filter(|back| header.bits >> back & 1 == 1);
        for psn in told.filter_map(|back| header.newest.checked_sub(back)) {
            fresh += self.acknowledge(psn);
        }
        while self.lowest < header.psn {
            fresh += self.acknowledge(self.lowest);
            self.sent.pop_front();
            self.lowest += 1;
        }
        while self.sent.front().is_some_and(|entry| entry.state == State::Acknowledged) {
            self.sent.pop_front();
            self.lowest += 1;
        }
        if fresh > 0 {
            self.progress_ps = now_ps;
            self.backoff = 0;
        }
        self.stats.marked += u64::from(marks);
        self.judge(header.newest, options.threshold);
        self.follow(now_ps, fresh, u64::from(marks), options);
    }

    fn acknowledge(&mut self, psn: u64) -> u64 {
        let Some(entry) = self.entry(psn) else { return 0 };
        let before = std::mem::replace(&mut entry.state, State::Acknowledged);
        match before {
            State::Flying => self.inflight -= 1,
            // Taken for lost, and here all the same.
            State::Lost => self.stats.spurious += 1,
            State::Acknowledged => return 0,
        }
        1
    }

    /// Takes for lost what lies too far below the newest that was received. Each number once: of its second copy this
    /// says nothing.
    fn judge(&mut self, newest: u64, threshold: u64) {
        let end = newest.saturating_sub(threshold);
        let from = self.judged.max(self.lowest);
        for psn in from..end {
            if let Some(entry) = self.entry(psn)
                && entry.state == State::Flying
                && !entry.again
            {
                entry.state = State::Lost;
                self.inflight -= 1;
                self.lost.push_back(psn);
            }
        }
        self.judged = self.judged.max(end);
    }

    /// The window, by marks: DCTCP's rule, once per RTT.
    fn follow(&mut self, now_ps: u64, acknowledged: u64, marked: u64, options: &SprayOptions) {
        self.round.acknowledged += acknowledged;
        self.round.marked += marked;
        if now_ps < self.round.until_ps || self.round.acknowledged == 0 {
            return;
        }
        let fraction = (self.round.marked * 1_024 / self.round.acknowledged).min(1_024);
        self.alpha = (15 * self.alpha + fraction) / 16;
        let bdp = u64::from(options.bdp_packets.max(1));
        if self.round.marked > 0 {
            self.window -= self.window * self.alpha / 2_048;
        } else {
            self.window += (bdp * UNIT / 64).max(UNIT);
        }
        self.window = self.window.clamp(UNIT, bdp * UNIT * 3 / 2 + UNIT);
        self.round = Round { until_ps: now_ps + self.rtt_ps, ..Round::default() };
    }

    fn timeout_ps(&self, options: &SprayOptions) -> u64 {
        options.timeout_ps.max(4 * self.rtt_ps) << self.backoff.min(6)
    }

    /// Time went by: whether something is to be sent again.
    pub(super) fn on_time(&mut self, now_ps: u64, options: &SprayOptions) -> bool {
        if self.deadline_ps(options).is_none_or(|at_ps| at_ps > now_ps) {
            return false;
        }
        let patience_ps = self.timeout_ps(options);
        let lowest = self.lowest;
        for (psn, entry) in (lowest..).zip(&mut self.sent) {
            // What was sent a while ago; the newest may still be on their way.
            if entry.state == State::Flying && entry.at_ps + patience_ps / 2 <= now_ps {
                entry.state = State::Lost;
                self.inflight -= 1;
                self.lost.push_back(psn);
                self.stats.retransmitted_by_timeout += 1;
            }
        }
        self.window = (self.window / 2).max(UNIT);
        self.stats.timeouts += 1;
        self.backoff += 1;
        self.progress_ps = now_ps;
        true
    }

    /// A timeout runs since anything was last acknowledged; and, for the oldest packet, since it was sent.
    pub(super) fn deadline_ps(&self, options: &SprayOptions) -> Option<u64> {
        if self.inflight == 0 {
            return None;
        }
        let oldest = self.sent.front().filter(|entry| entry.state == State::Flying);
        let since_ps = match oldest {
            Some(oldest) if self.backoff > 0 => oldest.at_ps.max(self.progress_ps),
            Some(oldest) => oldest.at_ps,
            None => self.progress_ps,
        };
        Some(since_ps + self.timeout_ps(options))
    }

    pub(super) fn stats(&self, options: &SprayOptions) -> FlowStats {
        let packet_bytes = u64::from(options.payload_bytes);
        let window_bytes = self.window * packet_bytes / UNIT;
        FlowStats {
            window_bytes,
            inflight_bytes: u64::from(self.inflight) * packet_bytes,
            allowed_bps: window_bytes * 8 * 1_000_000 / (options.rtt_ps / 1_000_000).max(1),
            ..self.stats
        }
    }
}

/// Parts of a packet that a window is counted in.
const UNIT: u64 = 256;
