//! Integer time and rates, and the few conversions from and to floating point.

use crate::Random;

/// Picoseconds of one nanosecond.
pub const NS: u64 = 1_000;
/// Picoseconds of one microsecond.
pub const US: u64 = 1_000_000;
/// Picoseconds of one millisecond.
pub const MS: u64 = 1_000_000_000;

/// Bytes that Ethernet, IPv4 and UDP add to a UDP payload on the wire: 14 + 20 + 8 + 4 (FCS) + 20 (preamble and gap).
pub const FRAMING_BYTES: u64 = 66;

/// A line rate, kept as the time that one byte takes, in femtoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    byte_fs: u64,
}

impl Rate {
    /// From Gb/s; at least 1 fs per byte, so at most 8 Pb/s.
    #[must_use]
    pub fn gbps(gbps: f64) -> Self {
        Self { byte_fs: from_f64(8e6 / gbps.max(1e-6)).max(1) }
    }

    /// Time that `bytes` take, ps, rounded up.
    #[must_use]
    pub const fn time_ps(self, bytes: u64) -> u64 {
        bytes.saturating_mul(self.byte_fs).div_ceil(1_000)
    }

    /// Bytes that `span_ps` carries, rounded down.
    #[must_use]
    pub const fn bytes_in(self, span_ps: u64) -> u64 {
        span_ps.saturating_mul(1_000) / self.byte_fs
    }

    /// So many lines of this rate together.
    #[must_use]
    pub fn times(self, lines: u32) -> Self {
        Self { byte_fs: (self.byte_fs / u64::from(lines.max(1))).max(1) }
    }

    /// In Gb/s.
    #[must_use]
    pub fn as_gbps(self) -> f64 {
        8e6 / to_f64(self.byte_fs)
    }
}

/// How likely something is, in units of 2^-64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Probability(u64);

impl Probability {
    /// From 0 to 1; what lies outside is taken for the nearer end.
    #[must_use]
    pub fn new(probability: f64) -> Self {
        Self(from_f64(probability.clamp(0.0, 1.0) * 18_446_744_073_709_551_615.0))
    }

    /// Whether it is 0.
    #[must_use]
    pub const fn is_never(self) -> bool {
        self.0 == 0
    }

    /// Draws once. Draws nothing from `random` if the probability is 0.
    pub fn draw(self, random: &mut Random) -> bool {
        self.0 != 0 && random.next_u64() <= self.0
    }
}

/// The nearest floating-point number.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "figures for people: 53 bits are enough")]
pub const fn to_f64(value: u64) -> f64 {
    value as f64
}

/// The nearest integer; 0 for what is negative or no number.
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates, which is what is wanted"
)]
pub fn from_f64(value: f64) -> u64 {
    value.round() as u64
}

/// `part` ÷ `whole`; 0 if `whole` is 0.
#[must_use]
pub fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { to_f64(part) / to_f64(whole) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_of_800_gbps_takes_10_ps_for_a_byte() {
        let rate = Rate::gbps(800.0);
        assert_eq!(rate.time_ps(4_222), 42_220);
        assert_eq!(rate.bytes_in(42_220), 4_222);
    }

    #[test]
    fn probabilities_are_drawn_as_often_as_they_say() {
        let mut random = Random::new(7);
        for wanted in [0.0, 0.001, 0.1, 0.5, 1.0] {
            let probability = Probability::new(wanted);
            let hits = (0..200_000).filter(|_| probability.draw(&mut random)).count();
            let seen = to_f64(hits as u64) / 200_000.0;
            assert!((seen - wanted).abs() < 0.004, "{wanted}: {seen}");
        }
    }
}
