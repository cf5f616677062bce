//! Round-trip time of one path (RFC 6298, with the minimum of the last 10 s as base).

use crate::time::Instant;

/// Span over which the base RTT is the minimum, ns.
const BASE_SPAN_NS: u64 = 10_000_000_000;

/// Estimates of one path; all 0 before the first sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Rtt {
    latest_ns: u64,
    smoothed_ns: u64,
    variance_ns: u64,
    /// Minima of the present and the previous half span.
    minima_ns: [u64; 2],
    half_start: Instant,
}

impl Rtt {
    pub(crate) const NEW: Self = Self {
        latest_ns: 0,
        smoothed_ns: 0,
        variance_ns: 0,
        minima_ns: [u64::MAX; 2],
        half_start: Instant::ZERO,
    };

    /// Takes a sample in; a sample of 0 counts as 1 ns.
    pub(crate) fn on_sample(&mut self, now: Instant, sample_ns: u64) {
        let sample_ns = sample_ns.max(1);
        self.latest_ns = sample_ns;
        if self.smoothed_ns == 0 {
            self.smoothed_ns = sample_ns;
            self.variance_ns = sample_ns / 2;
        } else {
            let error = self.smoothed_ns.abs_diff(sample_ns);
            //= MR-LOSS-19
            self.variance_ns = self.variance_ns - self.variance_ns / 4 + error / 4;
            self.smoothed_ns = self.smoothed_ns - self.smoothed_ns / 8 + sample_ns / 8;
        }
        //= MR-LOSS-20
        let [present, previous] = self.minima_ns;
        if now.since(self.half_start) >= BASE_SPAN_NS / 2 {
            self.half_start = now;
            self.minima_ns = [sample_ns, present];
        } else {
            self.minima_ns = [present.min(sample_ns), previous];
        }
    }

    /// Newest sample, ns.
    pub(crate) const fn latest_ns(&self) -> u64 {
        self.latest_ns
    }

    /// Smoothed RTT, ns; `initial_ns` before the first sample.
    pub(crate) const fn smoothed_or(&self, initial_ns: u64) -> u64 {
        if self.smoothed_ns == 0 { initial_ns } else { self.smoothed_ns }
    }

    /// Smallest sample of the last 10 s (at least the last 5 s), ns; 0 before the first.
    pub(crate) fn base_ns(&self) -> u64 {
        let [present, previous] = self.minima_ns;
        let base = present.min(previous);
        if base == u64::MAX { 0 } else { base }
    }

    /// [`Self::base_ns`]; `initial_ns` before the first sample.
    pub(crate) fn base_or(&self, initial_ns: u64) -> u64 {
        if self.smoothed_ns == 0 { initial_ns } else { self.base_ns() }
    }

    /// 4 × smoothed + 4 × variance, ns, at least `floor_ns`.
    pub(crate) fn rto_ns(&self, initial_ns: u64, floor_ns: u64) -> u64 {
        (4 * self.smoothed_or(initial_ns) + 4 * self.variance_ns).max(floor_ns)
    }

    /// 2 × smoothed + the acknowledgement delay, ns, at least `floor_ns`.
    pub(crate) fn pto_ns(&self, initial_ns: u64, ack_delay_ns: u64, floor_ns: u64) -> u64 {
        //= MR-LOSS-12
        (2 * self.smoothed_or(initial_ns) + ack_delay_ns).max(floor_ns)
    }

    /// Age beyond which a transmission older than the newest delivered one is lost: 9/8 of the larger of the
    /// smoothed and the newest RTT, ns.
    pub(crate) fn time_rule_ns(&self, initial_ns: u64) -> u64 {
        let rtt = self.smoothed_or(initial_ns).max(self.latest_ns);
        rtt + rtt / 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    //= MR-LOSS-20 test
    fn base_forgets_a_minimum_after_ten_seconds() {
        let mut rtt = Rtt::NEW;
        rtt.on_sample(Instant::from_nanos(0), 10_000);
        for second in 1..=11 {
            rtt.on_sample(Instant::from_nanos(second * 1_000_000_000), 50_000);
            if second < 5 {
                assert_eq!(rtt.base_ns(), 10_000);
            }
        }
        assert_eq!(rtt.base_ns(), 50_000);
    }

    #[test]
    //= MR-LOSS-19 test
    fn smoothing_takes_an_eighth_and_the_variance_a_quarter() {
        let mut rtt = Rtt::NEW;
        rtt.on_sample(Instant::ZERO, 800);
        rtt.on_sample(Instant::ZERO, 1_600);
        // 7/8 × 800 + 1/8 × 1,600, and 3/4 × 400 + 1/4 × 800.
        assert_eq!((rtt.smoothed_or(1), rtt.rto_ns(1, 0)), (900, 4 * 900 + 4 * 500));
    }

    #[test]
    //= MR-LOSS-12 test
    fn timeouts_keep_their_floor_and_grow_with_variance() {
        let mut rtt = Rtt::NEW;
        assert_eq!(rtt.rto_ns(1_000, 10_000_000), 10_000_000);
        rtt.on_sample(Instant::ZERO, 8_000_000);
        assert_eq!(rtt.rto_ns(1_000, 10_000_000), 32_000_000 + 16_000_000);
        assert_eq!(rtt.pto_ns(1_000, 50_000, 10_000_000), 16_050_000);
        assert_eq!(rtt.time_rule_ns(1_000), 9_000_000);
    }
}
