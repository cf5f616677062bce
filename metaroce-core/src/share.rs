//! The receiver's shares: how the inbound rate of a plane is divided among those who send to it.
//!
//! The division is max-min: whoever asks for less than an equal part gets what it asks for, the others divide the rest
//! evenly. Each packet updates its own sender alone, in O(1): the others' part follows as their packets come.

use crate::time::Instant;

/// Bytes of Ethernet, IP and UDP framing of a packet, preamble and gap included: what a rate counts beside the payload
/// of UDP.
pub(crate) const FRAMING_BYTES: u64 = 66;
/// Percent of the inbound rate that is given out; the rest drains queues.
const GIVEN_PERCENT: u64 = 98;
/// Fabric RTTs of one measurement of a sender's rate.
const MEASURE_RTTS: u64 = 2;
/// Packet intervals that a sender may be silent, and that a measurement lasts, at least.
const INTERVALS: u64 = 8;
/// RTTs that a sender may be silent, at least.
const SILENT_RTTS: u64 = 2;
/// Measurements in a row in which a sender used less than it was given, after which its demand is doubted.
const DOUBT: u8 = 2;

/// Silence after which the order of timestamps, which wrap, is forgotten, ns.
const FORGET_NS: u64 = 1_000_000_000;

/// Kilobits per second that move `bytes` in `ns`.
pub(crate) const fn rate_kbps(bytes: u64, ns: u64) -> u64 {
    let ns = if ns == 0 { 1 } else { ns };
    bytes.saturating_mul(8_000_000) / ns
}

/// Bytes that `kbps` moves in `ns`.
pub(crate) const fn bytes_in(kbps: u64, ns: u64) -> u64 {
    kbps.saturating_mul(ns) / 8_000_000
}

/// Time that `bytes` take at `kbps`, ns; 0 at no rate.
pub(crate) const fn time_for(bytes: u64, kbps: u64) -> u64 {
    match bytes.saturating_mul(8_000_000).checked_div(kbps) {
        Some(ns) => ns,
        None => 0,
    }
}

/// One plane's division, the sums that it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Division {
    /// Senders that have something to send.
    active: u32,
    /// Those of them that ask for more than their share.
    hungry: u32,
    /// What the others ask for, kbit/s.
    satisfied_kbps: u64,
}

/// How a sender stands in the division.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
enum Standing {
    /// Not in it.
    #[default]
    Absent,
    /// It asks for this much, kbit/s, and gets it.
    Satisfied(u64),
    /// It asks for more than its share.
    Hungry,
}

/// One sender on one plane, as its receiver sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Inflow {
    standing: Standing,
    /// When its last packet came.
    last_at: Instant,
    /// Transmit timestamp of the newest packet whose demand was taken in.
    newest: Option<u32>,
    /// The share that it was told last, kbit/s.
    told_kbps: u64,
    measure: Measure,
}

/// The measurement of a sender's rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Measure {
    since: Instant,
    bytes: u64,
    /// Rate of the last complete measurement, kbit/s.
    last_kbps: u64,
    /// Complete measurements in a row below what it was told.
    below: u8,
}

/// What a packet says for its sender.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    /// Transmit timestamp.
    pub(crate) timestamp: u32,
    /// Bytes on the wire, framing included.
    pub(crate) bytes: u64,
    /// Demand, KiB.
    pub(crate) demand_kib: u32,
}

/// What does not depend on the sender.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// Inbound rate of the plane, kbit/s.
    pub(crate) rate_kbps: u64,
    /// The time that demands are divided by to give a rate, ns.
    pub(crate) fabric_rtt_ns: u64,
    /// Bytes of a full packet, framing included.
    pub(crate) packet_bytes: u64,
}

impl Terms {
    const fn given_kbps(&self) -> u64 {
        self.rate_kbps.saturating_mul(GIVEN_PERCENT) / 100
    }
}

impl Division {
    pub(crate) const NEW: Self = Self { active: 0, hungry: 0, satisfied_kbps: 0 };

    fn leave(&mut self, standing: Standing) {
        match standing {
            Standing::Absent => return,
            Standing::Satisfied(kbps) => self.satisfied_kbps = self.satisfied_kbps.saturating_sub(kbps),
            Standing::Hungry => self.hungry = self.hungry.saturating_sub(1),
        }
        self.active = self.active.saturating_sub(1);
    }

    fn enter(&mut self, standing: Standing) {
        match standing {
            Standing::Absent => return,
            Standing::Satisfied(kbps) => self.satisfied_kbps = self.satisfied_kbps.saturating_add(kbps),
            Standing::Hungry => self.hungry = self.hungry.saturating_add(1),
        }
        self.active = self.active.saturating_add(1);
    }

    /// What one more sender would get, however much it asks for, kbit/s.
    fn level(&self, terms: &Terms) -> u64 {
        //= MR-CC-19
        let given = terms.given_kbps();
        let rest = given.saturating_sub(self.satisfied_kbps) / (u64::from(self.hungry) + 1);
        // What others asked for may be out of date, and then add up to too much.
        rest.max(given / (u64::from(self.active) + 1))
    }
}

impl Inflow {
    pub(crate) const NEW: Self = Self {
        standing: Standing::Absent,
        last_at: Instant::ZERO,
        newest: None,
        told_kbps: 0,
        measure: Measure { since: Instant::ZERO, bytes: 0, last_kbps: 0, below: 0 },
    };

    /// A packet arrived.
    pub(crate) fn on_packet(&mut self, division: &mut Division, terms: &Terms, now: Instant, claim: Claim) {
        let Claim { timestamp, bytes, demand_kib } = claim;
        if now.since(self.last_at) > FORGET_NS {
            self.newest = None;
        }
        self.last_at = now;
        self.measure(terms, now, bytes);
        // Paths overtake one another: what an older packet asks for is out of date.
        if self.newest.is_some_and(|newest| timestamp.wrapping_sub(newest) > u32::MAX >> 1) {
            return;
        }
        self.newest = Some(timestamp);
        division.leave(self.standing);
        self.standing = if demand_kib == 0 {
            //= MR-CC-21
            Standing::Absent
        } else {
            let asked = rate_kbps(u64::from(demand_kib) << 10, terms.fabric_rtt_ns);
            //= MR-CC-20
            let kbps = if self.measure.below >= DOUBT {
                let floor = rate_kbps(terms.packet_bytes, self.measure_ns(terms));
                asked.min(2 * self.measure.last_kbps.max(floor))
            } else {
                asked
            };
            if kbps > division.level(terms) { Standing::Hungry } else { Standing::Satisfied(kbps) }
        };
        division.enter(self.standing);
    }

    /// The sender's share, kbit/s: what it is told.
    pub(crate) fn share_kbps(&mut self, division: &mut Division, terms: &Terms) -> u32 {
        let standing = self.standing;
        //= MR-CC-25
        division.leave(standing);
        let level = division.level(terms);
        let equal = terms.given_kbps() / (u64::from(division.active) + 1);
        division.enter(standing);
        self.told_kbps = match standing {
            Standing::Hungry => level,
            // What is left over would be promised to each of them at once: enough to double what it asks for.
            Standing::Satisfied(kbps) => level.min(equal.max(kbps.saturating_mul(2))),
            Standing::Absent => level.min(equal),
        };
        u32::try_from(self.told_kbps).unwrap_or(u32::MAX).max(1)
    }

    /// When the sender, if it stays silent, leaves the division; `rtt_ns` is the RTT to it.
    pub(crate) fn leaves_at(&self, terms: &Terms, rtt_ns: u64) -> Option<Instant> {
        if self.standing == Standing::Absent {
            return None;
        }
        let interval = time_for(terms.packet_bytes, self.told_kbps);
        let silence = rtt_ns.saturating_mul(SILENT_RTTS).max(interval.saturating_mul(INTERVALS));
        Some(self.last_at.after(silence))
    }

    /// The sender is silent, or gone.
    pub(crate) fn leave(&mut self, division: &mut Division) {
        division.leave(self.standing);
        self.standing = Standing::Absent;
        self.measure.below = 0;
    }

    fn measure_ns(&self, terms: &Terms) -> u64 {
        let interval = time_for(terms.packet_bytes, self.told_kbps);
        terms.fabric_rtt_ns.saturating_mul(MEASURE_RTTS).max(interval.saturating_mul(INTERVALS))
    }

    fn measure(&mut self, terms: &Terms, now: Instant, bytes: u64) {
        let age = now.since(self.measure.since);
        let span = self.measure_ns(terms);
        let measure = &mut self.measure;
        if age >= span.saturating_mul(2) {
            // It was silent meanwhile.
            *measure = Measure { since: now, bytes, ..*measure };
            measure.below = 0;
        } else if age >= span {
            measure.last_kbps = rate_kbps(measure.bytes, age);
            let below = measure.last_kbps < self.told_kbps - self.told_kbps / 8;
            measure.below = if below { measure.below.saturating_add(1) } else { 0 };
            (measure.since, measure.bytes) = (now, bytes);
        } else {
            measure.bytes = measure.bytes.saturating_add(bytes);
        }
    }
}

#[cfg(test)]
mod tests;
