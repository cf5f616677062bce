//! What a path has in flight, and the rules by which an acknowledgement judges it (`SPEC.md` MR-LOSS).

use crate::delivery::Packet;
use crate::ids::{Csn, Psn, Serial};
use crate::list::{Linked, Links};
use crate::pool::Pool;
use crate::table::Idx;
use crate::time::Instant;
use crate::wire::{AckBody, Vector256};

use super::{Path, Sending, Verdict};

/// One transmission: a PSN that was sent and not yet judged.
#[derive(Clone, Copy, Debug)]
pub struct Transmission {
    /// The packet that it carried; [`Idx::NONE`] for a PROBE or a DATAGRAM.
    pub(crate) packet: Idx<Packet>,
    /// The packet's CSN: the slot may have been used again since.
    pub(crate) csn: Csn,
    pub(crate) psn: Psn,
    pub(crate) sent_at: Instant,
    /// UDP payload bytes.
    pub(crate) bytes: u16,
    pub(crate) epoch: u8,
    /// It asked for an acknowledgement at once.
    pub(crate) asks: bool,
    /// A timeout sent the packet again elsewhere; it no longer counts as in flight, but may still be delivered.
    pub(crate) rescued: bool,
    pub(crate) links: Links<Self>,
}

impl Transmission {
    /// A slot of a pool, not in use.
    pub const EMPTY: Self = Self {
        packet: Idx::NONE,
        csn: Csn::new(0),
        psn: Psn::new(0),
        sent_at: Instant::ZERO,
        bytes: 0,
        epoch: 0,
        asks: false,
        rescued: false,
        links: Links::UNLINKED,
    };
}

/// The list of a path's transmissions in flight.
#[derive(Debug)]
pub struct InFlight;

impl Linked<InFlight> for Transmission {
    fn links(&self) -> &Links<Self> {
        &self.links
    }
    fn links_mut(&mut self) -> &mut Links<Self> {
        &mut self.links
    }
}

/// The newest transmission that the peer told delivered.
#[derive(Clone, Copy, Debug)]
pub struct Delivered {
    pub(crate) psn: Psn,
    pub(crate) epoch: u8,
    pub(crate) sent_at: Instant,
}

/// Walks one acknowledgement over one path: first what it tells delivered, then what that makes lost.
pub(crate) struct Judge {
    ack: AckBody,
    refused: Vector256,
    /// The path's present route.
    epoch: u8,
    cursor: Option<Idx<Transmission>>,
}

impl Judge {
    pub(crate) fn new(path: &Path, ack: AckBody, refused: Vector256) -> Self {
        Self { ack, refused, epoch: path.epoch, cursor: path.sending.in_flight.front() }
    }

    /// Takes the next delivered transmission off the path. At most one step per transmission up to the largest PSN.
    pub(crate) fn next_delivered(
        &mut self,
        sending: &mut Sending,
        pool: &mut Pool<'_, Transmission>,
    ) -> Option<(Transmission, Verdict)> {
        while let Some(at) = self.cursor {
            let transmission = *pool.at(at);
            let back = transmission.psn.distance(self.ack.largest);
            let Ok(back) = u32::try_from(back) else { break };
            self.cursor = sending.in_flight.next(pool, at);
            let verdict = if self.ack.accepted.contains(back) {
                Verdict::Accepted
            //= MR-LOSS-5, MR-STR-18
            } else if self.refused.contains(back) {
                Verdict::Refused
            } else {
                continue;
            };
            //= MR-ACK-29
            remove(sending, pool, at);
            return Some((transmission, verdict));
        }
        None
    }

    /// Moves the newest delivered transmission forward, if `transmission` is newer.
    pub(crate) fn on_delivered(sending: &mut Sending, transmission: &Transmission) {
        let step = match sending.newest_delivered {
            Some(newest) if !newest.psn.before(transmission.psn) => return,
            Some(newest) => transmission.psn.raw().wrapping_sub(newest.psn.raw()),
            None => 0,
        };
        sending.declared_lost = sending.declared_lost.shift(step);
        sending.newest_delivered = Some(Delivered {
            psn: transmission.psn,
            epoch: transmission.epoch,
            sent_at: transmission.sent_at,
        });
    }

    /// PSNs that were declared lost and that this acknowledgement tells delivered after all.
    pub(crate) fn spurious(&self, sending: &mut Sending) -> u32 {
        let Some(newest) = sending.newest_delivered else { return 0 };
        if newest.psn != self.ack.largest {
            return 0;
        }
        let late = sending.declared_lost.intersection(self.ack.accepted.union(self.refused));
        sending.declared_lost = sending.declared_lost.and_not(late);
        late.count()
    }

    /// Starts the second walk.
    pub(crate) fn rewind(&mut self, sending: &Sending) {
        self.cursor = sending.in_flight.front();
    }

    /// Takes the next lost transmission off the path: by the gap rule, or sent `time_rule_ns` before the newest
    /// delivered one.
    pub(crate) fn next_lost(
        &mut self,
        sending: &mut Sending,
        pool: &mut Pool<'_, Transmission>,
        time_rule_ns: u64,
    ) -> Option<Transmission> {
        let newest = sending.newest_delivered?;
        while let Some(at) = self.cursor {
            let transmission = *pool.at(at);
            let Ok(back) = u32::try_from(transmission.psn.distance(newest.psn)) else { break };
            self.cursor = sending.in_flight.next(pool, at);
            let covered = u32::try_from(transmission.psn.distance(self.ack.largest))
                .is_ok_and(|back| back < Vector256::BITS);
            //= MR-LOSS-1, MR-LOSS-4
            let gap = covered && transmission.epoch == newest.epoch && back > sending.tolerance.packets();
            //= MR-LOSS-3
            let is_earlier = transmission.epoch != self.epoch && sending.earlier_rule_ns > 0;
            let time_rule_ns = if is_earlier { sending.earlier_rule_ns } else { time_rule_ns };
            //= MR-LOSS-2
            let late = newest.sent_at.since(transmission.sent_at) > time_rule_ns;
            if !gap && !late {
                continue;
            }
            remove(sending, pool, at);
            if back < Vector256::BITS && !transmission.rescued {
                sending.declared_lost.insert(back);
            }
            return Some(transmission);
        }
        None
    }
}

/// Takes a transmission off the path and frees it.
pub(crate) fn remove(sending: &mut Sending, pool: &mut Pool<'_, Transmission>, at: Idx<Transmission>) {
    let transmission = pool.at(at);
    if !transmission.rescued {
        sending.inflight_bytes = sending.inflight_bytes.saturating_sub(u64::from(transmission.bytes));
    }
    sending.in_flight.remove(pool, at);
    pool.free(at);
}

#[cfg(test)]
mod tests;
