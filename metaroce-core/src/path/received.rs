//! The receiving half of a path: the vector of PSNs, the counters, and when an acknowledgement is due.

use crate::ids::{Psn, Serial};
use crate::time::Instant;
use crate::transmit::Ecn;
use crate::wire::{ACK_FLAG_EMPTY, AckBody, Vector256};

/// The largest PSN moves by at most this much between two acknowledgements (the vector has 256 bits).
const LARGEST_STEP_MAX: u32 = 192;
/// Transmissions in a row of which none arrives: so many at least are believed, and twice the CSN window if that is more.
const PSN_STEP_MIN: u32 = 1 << 15;

/// What one path has received.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    /// The PSN with which the peer starts.
    first: Psn,
    /// The largest PSN, its transmit timestamp and when it came; `None` before the first packet.
    newest: Option<Newest>,
    accepted: Vector256,
    refused: Vector256,
    packets: u32,
    marked: u32,
    /// Epoch of the newest packet.
    epoch: u8,
    /// Packets since the last acknowledgement was built.
    unacknowledged: u32,
    /// Largest PSN in the last acknowledgement.
    told: Option<Psn>,
    /// The lowest PSN in the vector that no acknowledgement told of.
    oldest_untold: Option<Psn>,
    /// Whether the last acknowledgement told of a mark that was new.
    told_marked: u32,
}

#[derive(Clone, Copy, Debug)]
struct Newest {
    psn: Psn,
    timestamp: u32,
    at: Instant,
    /// It came with a CSN of the window, which nobody guesses easily.
    proven: bool,
}

impl Newest {
    /// Whether it may be forged, and keeps `psn` out of the vector.
    fn hides(&self, psn: Psn) -> bool {
        !self.proven && self.psn.raw().wrapping_sub(psn.raw()) >= Vector256::BITS
    }
}

/// The delivery's judgement of a packet, as the path enters it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Its bytes are in place, or its effect is reserved.
    Accepted,
    /// Nothing was placed, and never will be.
    Refused,
}

/// How soon a path's acknowledgement is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// With the next `poll_transmit`.
    Now,
    /// At the latest after the acknowledgement delay.
    Later,
}

impl Received {
    pub(crate) const NEW: Self = Self {
        first: Psn::new(0),
        newest: None,
        accepted: Vector256::EMPTY,
        refused: Vector256::EMPTY,
        packets: 0,
        marked: 0,
        epoch: 0,
        unacknowledged: 0,
        told: None,
        oldest_untold: None,
        told_marked: 0,
    };

    /// Nothing yet; the peer starts with `first`.
    pub(crate) const fn starting_at(first: Psn) -> Self {
        Self { first, ..Self::NEW }
    }

    /// Whether the peer can have come to `psn`: what only carries a PSN, and no CSN that is checked, must not move the
    /// vector to where no packet of the peer's is ever entered again.
    pub(crate) fn is_plausible(&self, psn: Psn, csn_window: u32) -> bool {
        let largest = self.newest.map_or(self.first, |newest| newest.psn);
        largest.distance(psn).unsigned_abs() <= csn_window.saturating_mul(2).max(PSN_STEP_MIN)
    }

    /// Whether `psn` was entered before, as far as the vector tells.
    pub(crate) fn has(&self, psn: Psn) -> bool {
        let Some(newest) = self.newest else { return false };
        u32::try_from(psn.distance(newest.psn))
            .is_ok_and(|back| self.accepted.contains(back) || self.refused.contains(back))
    }

    /// Whether an acknowledgement must be written down before `psn` is entered, or else the vector would lose
    /// packets that no acknowledgement told of.
    pub(crate) fn must_snapshot(&self, psn: Psn) -> bool {
        let (Some(newest), Some(told)) = (self.newest, self.told) else { return false };
        let step = psn.raw().wrapping_sub(told.raw());
        let moves = newest.psn != told && step > LARGEST_STEP_MAX;
        // One that came late lies further back than the step alone tells.
        let leaves =
            self.oldest_untold.is_some_and(|oldest| psn.raw().wrapping_sub(oldest.raw()) >= Vector256::BITS);
        self.unacknowledged > 0 && newest.psn.before(psn) && (moves || leaves)
    }

    /// Enters a packet and its verdict, and tells how soon the acknowledgement is due. PROBEs are accepted.
    pub(crate) fn on_packet(
        &mut self,
        now: Instant,
        arrival: Arrival,
        verdict: Verdict,
        ack_packets: u32,
    ) -> Due {
        let Arrival { psn, timestamp, epoch, ecn, proven, .. } = arrival;
        let mut gap = false;
        let position = match self.newest {
            None => {
                self.newest = Some(Newest { psn, timestamp, at: now, proven });
                self.told = Some(psn.minus(1));
                self.epoch = epoch;
                Some(0)
            }
            //= MR-ACK-8
            Some(newest) if newest.psn.before(psn) => {
                let step = psn.raw().wrapping_sub(newest.psn.raw());
                gap = step > 1;
                self.accepted = self.accepted.shift(step);
                self.refused = self.refused.shift(step);
                self.newest = Some(Newest { psn, timestamp, at: now, proven });
                self.epoch = epoch;
                Some(0)
            }
            //= MR-SEC-11
            Some(newest) if proven && newest.hides(psn) => {
                (self.accepted, self.refused) = (Vector256::EMPTY, Vector256::EMPTY);
                self.oldest_untold = None;
                self.newest = Some(Newest { psn, timestamp, at: now, proven });
                self.told = Some(psn.minus(1));
                self.epoch = epoch;
                gap = true;
                Some(0)
            }
            Some(newest) => {
                Some(newest.psn.raw().wrapping_sub(psn.raw())).filter(|&back| back < Vector256::BITS)
            }
        };
        if let Some(bit) = position {
            if self.oldest_untold.is_none_or(|oldest| psn.before(oldest)) {
                self.oldest_untold = Some(psn);
            }
            match verdict {
                //= MR-ACK-1
                Verdict::Accepted => self.accepted.insert(bit),
                Verdict::Refused => self.refused.insert(bit),
            }
        }
        //= MR-ACK-5
        self.packets = self.packets.wrapping_add(1);
        self.unacknowledged = self.unacknowledged.saturating_add(1);
        let first_mark = ecn == Ecn::Ce && self.marked == self.told_marked;
        if ecn == Ecn::Ce {
            self.marked = self.marked.wrapping_add(1);
        }
        //= MR-ACK-10
        if gap || first_mark || verdict == Verdict::Refused || self.unacknowledged >= ack_packets {
            Due::Now
        } else {
            Due::Later
        }
    }

    /// The acknowledgement of what there is; `body` carries the fields that the path doesn't own. Marks everything
    /// as told.
    pub(crate) fn acknowledge(&mut self, now: Instant, body: AckBody) -> (AckBody, Vector256) {
        self.unacknowledged = 0;
        self.oldest_untold = None;
        self.told_marked = self.marked;
        let Some(newest) = self.newest else {
            //= MR-ACK-9
            return (AckBody { flags: body.flags | ACK_FLAG_EMPTY, ..body }, Vector256::EMPTY);
        };
        //= MR-ACK-31
        self.told = Some(newest.psn);
        //= MR-ACK-6
        let hold = u32::try_from(now.since(newest.at) >> 4).unwrap_or(u32::MAX);
        let body = AckBody {
            epoch: self.epoch,
            largest: newest.psn,
            accepted: self.accepted,
            echoed_timestamp: newest.timestamp,
            hold,
            packets: self.packets,
            marked: self.marked,
            ..body
        };
        (body, self.refused)
    }
}

/// What the path sees of a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) psn: Psn,
    pub(crate) timestamp: u32,
    pub(crate) epoch: u8,
    pub(crate) ecn: Ecn,
    /// It carries a CSN, which was checked: all but PROBE and DATAGRAM.
    pub(crate) proven: bool,
    /// On the wire, framing included.
    pub(crate) bytes: u64,
}

#[cfg(test)]
mod tests;
