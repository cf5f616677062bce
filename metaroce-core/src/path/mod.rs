//! A path: one route to the peer, with its own transmission numbers, loss detection, RTT, window and source port.

mod received;
mod rtt;
mod sent;
mod tolerance;

pub use received::Received;
pub(crate) use received::{Arrival, Due, Verdict};
pub use rtt::Rtt;
pub use sent::Transmission;
pub(crate) use sent::{Delivered, InFlight, Judge, remove};
pub(crate) use tolerance::Tolerance;

use crate::congestion::PathWindow;
use crate::connection::Recent;
use crate::delivery::{Packet, Queued};
use crate::ids::{PathId, Psn, Serial, StreamId};
use crate::lifecycle;
use crate::list::List;
use crate::stats::PathState;
use crate::time::Instant;
use crate::wire::Vector256;

/// UDP payload that every path is taken to carry: an IPv6 minimum MTU of 1,280 bytes less its headers.
pub(crate) const MTU_BYTES_START: u16 = 1232;

/// Answers that bring a dead path back.
const ANSWERS: u32 = 3;
/// The most that it takes after many returns.
const ANSWERS_MAX: u32 = 24;
/// A path that returns within this time of its last return flaps, ns.
const FLAP_NS: u64 = 1_000_000_000;

/// One path of one connection, both directions.
#[derive(Debug)]
pub struct Path {
    pub(crate) id: PathId,
    /// The plane that it belongs to.
    pub(crate) plane: u8,
    /// Number of the route; counted up by each repath.
    pub(crate) epoch: u8,
    pub(crate) source_port: u16,
    pub(crate) state: PathState,
    pub(crate) sending: Sending,
    pub(crate) received: Received,
    /// The newest PROBE that has not been answered.
    pub(crate) reply: Option<OwedReply>,
    pub(crate) rtt: Rtt,
    pub(crate) window: PathWindow,
    pub(crate) timeouts: Timeouts,
    pub(crate) probing: Probing,
    pub(crate) recent: Recent,
    pub(crate) counters: Counters,
}

/// The sending half: transmissions in flight and what the peer said of them.
#[derive(Debug)]
pub struct Sending {
    /// First PSN ever, and the next one.
    pub(crate) psn_first: Psn,
    pub(crate) psn_next: Psn,
    /// Not yet judged, in PSN order.
    pub(crate) in_flight: List<Transmission, InFlight>,
    pub(crate) inflight_bytes: u64,
    /// Packets that go again on this path, first in line.
    pub(crate) again: List<Packet, Queued>,
    pub(crate) newest_delivered: Option<Delivered>,
    /// The newest PSN that asked for an acknowledgement at once.
    pub(crate) asked: Option<Psn>,
    /// PSNs declared lost, counted back from the newest delivered one, to learn of those that were not.
    pub(crate) declared_lost: Vector256,
    /// Age at which transmissions of the routes before the present one are late, ns; 0 if that is not known.
    pub(crate) earlier_rule_ns: u64,
    /// Reordering that is no loss.
    pub(crate) tolerance: Tolerance,
    /// Cumulative counters of the newest acknowledgement.
    pub(crate) peer_packets: u32,
    pub(crate) peer_marked: u32,
    pub(crate) last_sent: Instant,
    /// When a path with a window below one packet may send the next.
    pub(crate) pace_until: Instant,
    /// When the window last kept the sender from sending.
    pub(crate) limited_at: Option<Instant>,
}

/// A PROBE that has not been answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwedReply {
    pub(crate) token: u64,
    pub(crate) stream: StreamId,
}

/// Unanswered timeouts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timeouts {
    /// From here the next RTO counts: the last progress, or when the path was last idle.
    pub(crate) since: Instant,
    pub(crate) rto_count: u32,
    /// The doubled RTO is longer by this, per cent; the first one never is.
    pub(crate) spread_percent: i8,
    pub(crate) pto_count: u32,
    /// A probe is owed.
    pub(crate) probe_owed: bool,
    /// One packet may go again beyond the window: what fills it is unanswered, and may all be lost.
    pub(crate) rescue: bool,
    /// When a probe of a dead path is next due.
    pub(crate) revival: Instant,
    /// Answers of a returning path so far.
    pub(crate) answers: u32,
    pub(crate) returns: Returns,
}

/// Returns of a path from the dead.
#[derive(Clone, Copy, Debug)]
pub struct Returns {
    /// The last one.
    pub(crate) last: Option<Instant>,
    /// Answers that the next one takes.
    pub(crate) answers: u32,
}

impl Returns {
    const NONE: Self = Self { last: None, answers: ANSWERS };

    /// The path returns. If it was away for a moment only, it has to prove itself for longer next time.
    pub(crate) fn on_return(&mut self, now: Instant) {
        let again = self.last.is_some_and(|last| now.since(last) < FLAP_NS);
        //= MR-PATH-24
        self.answers = if again { self.answers.saturating_mul(2).min(ANSWERS_MAX) } else { ANSWERS };
        self.last = Some(now);
    }
}

impl Default for Returns {
    fn default() -> Self {
        Self::NONE
    }
}

/// The search for the largest packet that the route carries.
#[derive(Clone, Copy, Debug)]
pub struct Probing {
    /// Largest UDP payload that was answered.
    pub(crate) mtu_bytes: u16,
    /// Size under test, 0 for none.
    pub(crate) candidate_bytes: u16,
    /// Token of the padded probe in flight.
    pub(crate) token: u64,
    pub(crate) tries: u8,
    /// When the padded probe is taken for lost.
    pub(crate) deadline: Instant,
    pub(crate) owed: bool,
    /// Packets larger than [`MTU_BYTES_START`] lost since one was delivered.
    pub(crate) large_lost: u8,
}

/// Counters since the path was made.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    pub(crate) sent: u64,
    pub(crate) delivered: u64,
    pub(crate) lost: u64,
    pub(crate) marked: u64,
    pub(crate) timeouts: u64,
    pub(crate) repaths: u32,
}

impl Sending {
    /// Whether an acknowledgement was asked for that has not come.
    pub(crate) fn is_asking(&self) -> bool {
        let told = |asked| self.newest_delivered.is_some_and(|newest| !newest.psn.before(asked));
        self.asked.is_some_and(|asked| !told(asked))
    }

    /// The window grew: what waits for the pace of the smaller one need not wait so long.
    pub(crate) fn on_window(&mut self, now: Instant, before: u64, after: u64) {
        let wait = self.pace_until.since(now);
        if wait > 0 && after > before {
            let scaled = u128::from(wait) * u128::from(before) / u128::from(after);
            self.pace_until = now.after(u64::try_from(scaled).unwrap_or(wait));
        }
    }
}

impl Path {
    /// A slot of a table, not in use.
    pub const EMPTY: Self = Self {
        id: PathId(0),
        plane: 0,
        epoch: 0,
        source_port: 0,
        state: PathState::Good,
        sending: Sending {
            psn_first: Psn::new(0),
            psn_next: Psn::new(0),
            in_flight: List::EMPTY,
            inflight_bytes: 0,
            again: List::EMPTY,
            newest_delivered: None,
            asked: None,
            declared_lost: Vector256::EMPTY,
            earlier_rule_ns: 0,
            tolerance: Tolerance::new(0),
            peer_packets: 0,
            peer_marked: 0,
            last_sent: Instant::ZERO,
            pace_until: Instant::ZERO,
            limited_at: None,
        },
        received: Received::NEW,
        reply: None,
        rtt: Rtt::NEW,
        window: PathWindow { window_bytes: 0, scratch: [0; 8] },
        timeouts: Timeouts {
            since: Instant::ZERO,
            rto_count: 0,
            spread_percent: 0,
            pto_count: 0,
            probe_owed: false,
            rescue: false,
            revival: Instant::FAR_FUTURE,
            answers: 0,
            returns: Returns::NONE,
        },
        probing: Probing {
            mtu_bytes: MTU_BYTES_START,
            candidate_bytes: 0,
            token: 0,
            tries: 0,
            deadline: Instant::FAR_FUTURE,
            owed: false,
            large_lost: 0,
        },
        recent: Recent::NEW,
        counters: Counters { sent: 0, delivered: 0, lost: 0, marked: 0, timeouts: 0, repaths: 0 },
    };

    /// Goes on in its life, as [`lifecycle::PATH`] allows.
    pub(crate) fn become_state(&mut self, next: PathState) {
        debug_assert!(
            lifecycle::allows(lifecycle::PATH, self.state, next),
            "a path that is {:?} must not become {next:?}",
            self.state
        );
        self.state = next;
    }

    /// Whether new data may go on the path.
    pub(crate) fn takes_data(&self) -> bool {
        matches!(self.state, PathState::Good | PathState::Congested)
    }

    /// Whether new data of `bytes` may go on the path: its route carries that much.
    pub(crate) fn takes(&self, bytes: u64) -> bool {
        self.takes_data() && bytes <= u64::from(self.probing.mtu_bytes)
    }

    /// Whether the window lets `bytes` more out now. One packet always fits, at the pace of a window that is smaller:
    /// PROBEs in flight keep none from going.
    pub(crate) fn has_room(&self, now: Instant, bytes: u64) -> bool {
        //= MR-PATH-10, MR-CC-1
        if self.sending.inflight_bytes.saturating_mul(2) < bytes {
            return now >= self.sending.pace_until;
        }
        self.sending.inflight_bytes + bytes <= self.window.window_bytes
    }

    /// Whether `psn` was sent on this path.
    pub(crate) fn was_sent(&self, psn: Psn) -> bool {
        let span = self.sending.psn_next.raw().wrapping_sub(self.sending.psn_first.raw());
        let back = self.sending.psn_next.raw().wrapping_sub(psn.raw());
        // After 2^31 transmissions the first PSN is forgotten; half the number space back is "sent" then.
        back >= 1 && (back <= span || self.counters.sent > u64::from(u32::MAX >> 1)) && back <= u32::MAX >> 1
    }

    /// A new route: new source port, next epoch. The PSN space runs on.
    pub(crate) fn move_to(&mut self, source_port: u16) {
        self.source_port = source_port;
        //= MR-LOSS-3
        self.sending.earlier_rule_ns = self.rtt.time_rule_ns(0);
        //= MR-PATH-4
        self.epoch = self.epoch.wrapping_add(1);
        self.counters.repaths += 1;
        self.recent.forget();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    //= MR-PATH-10 test
    //= MR-CC-1 test
    fn a_packet_goes_if_it_fits_the_window_or_if_nothing_is_in_flight() {
        let mut path = Path::EMPTY;
        path.window.window_bytes = 10_000;
        let fits = |path: &Path, bytes| path.has_room(Instant::ZERO, bytes);
        assert!(fits(&path, 50_000), "one packet, whatever the window");
        path.sending.inflight_bytes = 6_000;
        assert!(fits(&path, 4_000) && !fits(&path, 4_001));
        path.window.window_bytes = 1;
        assert!(!fits(&path, 1));
        path.sending.inflight_bytes = 0;
        path.sending.pace_until = Instant::from_nanos(5);
        assert!(!fits(&path, 1), "at the pace of a small window");
        assert!(path.has_room(Instant::from_nanos(5), 1));
    }
}
