//! The reaction point of DCQCN (Zhu et al., SIGCOMM 2015), in integers.

use super::super::units::US;

/// The constants of the paper, given there for 40 Gb/s. Rates and bytes are scaled with the line, to the baseline's
/// favour: unscaled, it takes 20 times as long to come back at 800 Gb/s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dcqcn {
    /// Line rate, bit/s.
    pub line_bps: u64,
    /// Additive step, bit/s: 40 Mb/s.
    pub additive_bps: u64,
    /// Step of hyper increase, bit/s: 400 Mb/s.
    pub hyper_bps: u64,
    /// Bytes of one increase: 10 MB.
    pub counter_bytes: u64,
    /// Time of one increase, and of one decay of alpha: 55 µs.
    pub timer_ps: u64,
    /// Rounds of fast recovery: 5.
    pub fast_rounds: u32,
    /// Time between two notifications of one flow: 50 µs.
    pub notify_ps: u64,
    /// Lowest rate, bit/s: 40 Mb/s.
    pub least_bps: u64,
}

impl Dcqcn {
    /// For a line of that rate.
    #[must_use]
    pub const fn for_line(line_bps: u64) -> Self {
        // Thousandths of 40 Gb/s.
        let scale = line_bps / 40_000_000;
        Self {
            line_bps,
            additive_bps: 40_000 * scale,
            hyper_bps: 400_000 * scale,
            counter_bytes: 10_000 * scale,
            timer_ps: 55 * US,
            fast_rounds: 5,
            notify_ps: 50 * US,
            least_bps: 40_000 * scale,
        }
    }
}

/// Alpha is in units of 2^-20.
const ONE: u64 = 1 << 20;
/// g is 1/256.
const GAIN_SHIFT: u32 = 8;

/// The state of one flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reaction {
    /// Rate now, bit/s.
    pub rate_bps: u64,
    target_bps: u64,
    alpha: u64,
    bytes: u64,
    timer_rounds: u32,
    byte_rounds: u32,
    increase_ps: u64,
    decay_ps: u64,
    /// Notified at least once: until then a flow runs at line rate, with no timers.
    limited: bool,
}

impl Reaction {
    /// At line rate.
    #[must_use]
    pub const fn new(constants: &Dcqcn) -> Self {
        Self {
            rate_bps: constants.line_bps,
            target_bps: constants.line_bps,
            alpha: ONE,
            bytes: 0,
            timer_rounds: 0,
            byte_rounds: 0,
            increase_ps: u64::MAX,
            decay_ps: u64::MAX,
            limited: false,
        }
    }

    /// A notification came.
    pub fn on_notification(&mut self, now_ps: u64, constants: &Dcqcn) {
        self.target_bps = self.rate_bps;
        let cut = u128::from(self.rate_bps) * u128::from(self.alpha) / u128::from(2 * ONE);
        self.rate_bps =
            self.rate_bps.saturating_sub(u64::try_from(cut).unwrap_or(0)).max(constants.least_bps);
        self.alpha = self.alpha - (self.alpha >> GAIN_SHIFT) + (ONE >> GAIN_SHIFT);
        (self.bytes, self.timer_rounds, self.byte_rounds) = (0, 0, 0);
        self.increase_ps = now_ps + constants.timer_ps;
        self.decay_ps = now_ps + constants.timer_ps;
        self.limited = true;
    }

    /// Bytes were sent.
    pub fn on_sent(&mut self, bytes: u64, constants: &Dcqcn) {
        if !self.limited {
            return;
        }
        self.bytes += bytes;
        if self.bytes >= constants.counter_bytes {
            self.bytes = 0;
            self.byte_rounds += 1;
            self.increase(constants);
        }
    }

    /// Time went by.
    pub fn on_time(&mut self, now_ps: u64, constants: &Dcqcn) {
        while self.limited && self.decay_ps <= now_ps {
            self.alpha -= self.alpha >> GAIN_SHIFT;
            self.decay_ps += constants.timer_ps;
        }
        while self.limited && self.increase_ps <= now_ps {
            self.increase_ps += constants.timer_ps;
            self.timer_rounds += 1;
            self.increase(constants);
        }
    }

    /// When time next matters, ps.
    #[must_use]
    pub fn deadline_ps(&self) -> Option<u64> {
        self.limited.then_some(self.increase_ps.min(self.decay_ps))
    }

    fn increase(&mut self, constants: &Dcqcn) {
        let (least, most) =
            (self.timer_rounds.min(self.byte_rounds), self.timer_rounds.max(self.byte_rounds));
        if least > constants.fast_rounds {
            self.target_bps += constants.hyper_bps * u64::from(least - constants.fast_rounds);
        } else if most > constants.fast_rounds {
            self.target_bps += constants.additive_bps;
        }
        self.target_bps = self.target_bps.min(constants.line_bps);
        self.rate_bps = u64::midpoint(self.rate_bps, self.target_bps);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_notification_halves_and_five_rounds_bring_nearly_all_back() {
        let constants = Dcqcn::for_line(40_000_000_000);
        let mut flow = Reaction::new(&constants);
        flow.on_notification(0, &constants);
        assert_eq!(flow.rate_bps, 20_000_000_000);
        flow.on_time(5 * constants.timer_ps, &constants);
        assert!(flow.rate_bps > 39_000_000_000, "{}", flow.rate_bps);
        assert!(flow.alpha < ONE);
    }

    #[test]
    fn notifications_without_end_lead_to_the_least_rate() {
        let constants = Dcqcn::for_line(40_000_000_000);
        let mut flow = Reaction::new(&constants);
        for round in 0..200 {
            flow.on_notification(round * constants.notify_ps, &constants);
        }
        assert_eq!(flow.rate_bps, constants.least_bps);
    }
}
