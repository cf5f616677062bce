//! Clocks of hosts: each begins at a time of its own, and runs a little too fast or too slow.

use super::units::NS;
use crate::Random;

/// How far the clocks of hosts are apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clocks {
    /// Largest error of a clock's rate, parts in 10^9, either way.
    pub drift_ppb: u32,
    /// Largest difference of a clock's start, ns.
    pub offset_ns: u64,
}

impl Clocks {
    /// The clock of a host, drawn from `seed`.
    #[must_use]
    pub fn of_host(&self, host: u32, seed: u64) -> Clock {
        let mut random = Random::new(seed ^ u64::from(host).wrapping_mul(0x8cb9_2ba7_2f3d_8dd7));
        let drift = random.below(2 * u64::from(self.drift_ppb) + 1).cast_signed() - i64::from(self.drift_ppb);
        Clock { drift_ppb: drift, offset_ns: random.below(self.offset_ns + 1) }
    }
}

/// One clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    drift_ppb: i64,
    offset_ns: u64,
}

impl Clock {
    /// What it shows at a time of the simulator, ns.
    #[must_use]
    pub const fn local_ns(&self, now_ps: u64) -> u64 {
        self.shown(now_ps / NS)
    }

    /// The first time of the simulator, in whole ns, at which it shows `local_ns` or more, ps.
    #[must_use]
    pub fn global_ps(&self, local_ns: u64) -> u64 {
        let passed = i128::from(local_ns.saturating_sub(self.offset_ns));
        let guess = passed * i128::from(BILLION) / (i128::from(BILLION) + i128::from(self.drift_ppb));
        let mut at = u64::try_from(guess).unwrap_or(u64::MAX).saturating_sub(1);
        while self.shown(at) < local_ns && at < u64::MAX / NS {
            at += 1;
        }
        at.saturating_mul(NS)
    }

    const fn shown(&self, ns: u64) -> u64 {
        if self.drift_ppb == 0 {
            return self.offset_ns.saturating_add(ns);
        }
        // Split, so that it does not overflow: whole seconds, and the rest.
        let (seconds, rest) = ((ns / BILLION as u64).cast_signed(), (ns % BILLION as u64).cast_signed());
        let error = seconds * self.drift_ppb + rest * self.drift_ppb / BILLION;
        self.offset_ns.saturating_add(ns).saturating_add_signed(error)
    }
}

const BILLION: i64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_shows_what_it_must_at_the_time_that_it_gives_back_and_not_before() {
        let clocks = Clocks { drift_ppb: 200_000, offset_ns: 1_000_000_000 };
        for host in 0..64 {
            let clock = clocks.of_host(host, 7);
            for ns in [0, 1, 999, 123_456_789, 3_000_000_007] {
                let local = clock.offset_ns + ns;
                let at = clock.global_ps(local);
                assert!(clock.local_ns(at) >= local);
                assert!(at == 0 || clock.local_ns(at - NS) < local, "host {host}, {ns} ns");
            }
        }
    }

    #[test]
    fn clocks_of_no_error_show_the_time() {
        let clock = Clocks::default().of_host(3, 1);
        assert_eq!((clock.local_ns(5_000), clock.global_ps(5)), (5, 5_000));
    }

    #[test]
    fn a_clock_that_is_100_ppm_fast_gains_100_us_in_a_second() {
        let clock = Clock { drift_ppb: 100_000, offset_ns: 0 };
        assert_eq!(clock.local_ns(1_000_000_000_000), 1_000_100_000);
    }
}
