//! The line of each plane as the endpoint sees it: what it handed out and what has not left yet, at the plane's rate.
//!
//! Data waits here rather than in a queue below, where the acknowledgements of all connections would wait behind it.

use crate::config::PLANES_MAX;
use crate::share::FRAMING_BYTES;
use crate::time::Instant;

/// Data that is on its way to the line may take up to this part of the fabric's RTT to leave.
const SLACK_DIVISOR: u64 = 8;
/// And always up to the time of so many full packets.
const SLACK_PACKETS: u64 = 4;
/// Bytes of a full packet.
const PACKET_BYTES: u64 = 4_096;
/// Picoseconds in a nanosecond.
const PS: u64 = 1_000;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lines {
    rate_kbps: u64,
    slack_ns: u64,
    planes: [Line; PLANES_MAX],
}

/// The line of one plane.
#[derive(Clone, Copy, Debug)]
struct Line {
    /// When all that was handed out will have left.
    free_at: Instant,
    /// Picoseconds after that.
    free_ps: u64,
    /// Whether data waits: from where the slack is used up until half of it is free again, so that it goes in batches.
    closed: bool,
}

impl Lines {
    /// Lines that carry nothing.
    pub(crate) const fn new(rate_kbps: u32, rtt_ns: u64) -> Self {
        let rate_kbps = rate_kbps as u64;
        let packets_ns = crate::share::time_for(SLACK_PACKETS * PACKET_BYTES, rate_kbps);
        let part_ns = rtt_ns / SLACK_DIVISOR;
        let slack_ns = if part_ns > packets_ns { part_ns } else { packets_ns };
        let line = Line { free_at: Instant::ZERO, free_ps: 0, closed: false };
        Self { rate_kbps, slack_ns, planes: [line; PLANES_MAX] }
    }

    /// A packet of `bytes` was handed out on a plane.
    pub(crate) fn on_sent(&mut self, now: Instant, plane: u8, bytes: u64) {
        self.on_padding(now, plane, bytes.saturating_add(FRAMING_BYTES));
    }

    /// A packet that was handed out on a plane was longer by so many bytes.
    pub(crate) fn on_padding(&mut self, now: Instant, plane: u8, bytes: u64) {
        let bits = bytes.saturating_mul(8);
        let Some(ps) = bits.saturating_mul(1_000_000 * PS).checked_div(self.rate_kbps) else { return };
        let Some(line) = self.planes.get_mut(usize::from(plane)) else { return };
        if line.free_at < now {
            (line.free_at, line.free_ps) = (now, 0);
        }
        let ps = line.free_ps.saturating_add(ps);
        line.free_at = line.free_at.after(ps / PS);
        line.free_ps = ps % PS;
        line.closed |= line.free_at.since(now) > self.slack_ns;
    }

    /// When data may go on a plane; the past for now.
    //= MR-SEC-13
    pub(crate) fn opens_at(&mut self, now: Instant, plane: u8) -> Instant {
        let half = self.slack_ns / 2;
        let Some(line) = self.planes.get_mut(usize::from(plane)) else { return Instant::ZERO };
        line.closed = line.closed && line.free_at.since(now) > half;
        if line.closed {
            Instant::from_nanos(line.free_at.as_nanos().saturating_sub(half))
        } else {
            Instant::ZERO
        }
    }

    /// When the first of so many planes lets data out, if all of them hold it back.
    pub(crate) fn closed_until(&mut self, now: Instant, planes: u8) -> Option<Instant> {
        let first = (0..planes).map(|plane| self.opens_at(now, plane)).min();
        first.filter(|opens_at| *opens_at > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 10 Gb/s; a slack of 25 us.
    const LINES: Lines = Lines::new(10_000_000, 200_000);
    const PACKET: u64 = 1_250 - FRAMING_BYTES;

    #[test]
    //= MR-SEC-13 test
    fn a_line_closes_when_its_slack_is_used_up_and_opens_when_half_of_it_is_free() {
        let (mut lines, now) = (LINES, Instant::from_nanos(1_000_000));
        for packet in 0..=25 {
            assert_eq!(lines.opens_at(now, 0), Instant::ZERO, "{packet} packets of 1 us each");
            lines.on_sent(now, 0, PACKET);
        }
        // 26 us are on their way.
        assert_eq!(lines.opens_at(now, 0), now.after(26_000 - 12_500));
        assert_eq!(lines.closed_until(now, 1), Some(now.after(13_500)));
        assert_eq!(
            lines.closed_until(now.after(13_499), 1),
            Some(now.after(13_500)),
            "one answer all the time"
        );
        assert_eq!(lines.closed_until(now.after(13_500), 1), None);
        lines.on_sent(now.after(13_500), 0, PACKET);
        assert_eq!(
            lines.closed_until(now.after(13_500), 1),
            None,
            "it stays open until the slack is used up"
        );
    }

    #[test]
    fn planes_are_apart_and_what_has_left_counts_no_more() {
        let (mut lines, now) = (LINES, Instant::from_nanos(1_000_000));
        for _ in 0..40 {
            lines.on_sent(now, 1, PACKET);
        }
        assert_eq!(lines.closed_until(now, 2), None, "the first plane is free");
        assert!(lines.opens_at(now, 1) > now);
        assert_eq!(lines.opens_at(now.after(40_000), 1), Instant::ZERO);
        lines.on_sent(now.after(50_000), 1, PACKET);
        assert_eq!(lines.opens_at(now.after(50_000), 1), Instant::ZERO);
    }

    #[test]
    fn parts_of_a_nanosecond_add_up() {
        // 800 Gb/s: 1,000 bits take 1.25 ns.
        let mut lines = Lines::new(800_000_000, 0);
        let now = Instant::from_nanos(5);
        for _ in 0..1_000 {
            lines.on_sent(now, 0, 125 - FRAMING_BYTES);
        }
        assert_eq!(lines.planes[0].free_at, now.after(1_250));
    }

    #[test]
    fn a_slow_line_holds_a_few_packets() {
        let lines = Lines::new(1_000, 1_000_000);
        assert_eq!(lines.slack_ns, 4 * 4_096 * 8_000);
    }
}
