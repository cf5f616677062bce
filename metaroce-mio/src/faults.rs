//! Artificial faults between core and socket, for demonstrations and tests.

/// What to do to datagrams that are about to be sent. Each probability is from 0 to 1 and is drawn once per datagram.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Faults {
    /// Probability that a datagram is lost.
    pub loss: f64,
    /// Probability that a datagram is held back until 1 to 16 later ones have left, or 2 ms have passed.
    pub reorder: f64,
    /// Probability that a datagram is sent twice.
    pub duplicate: f64,
    /// Probability that one bit of a datagram is flipped.
    pub corrupt: f64,
    /// Seed of the draws: the same seed and the same sequence of datagrams meet the same faults.
    pub seed: u64,
}

impl Faults {
    /// No faults.
    pub const NONE: Self = Self { loss: 0.0, reorder: 0.0, duplicate: 0.0, corrupt: 0.0, seed: 0 };

    /// Random loss only.
    #[must_use]
    pub const fn loss(probability: f64, seed: u64) -> Self {
        Self { loss: probability, seed, ..Self::NONE }
    }

    /// Whether there is any fault to draw.
    #[must_use]
    pub fn any(&self) -> bool {
        self.loss > 0.0 || self.reorder > 0.0 || self.duplicate > 0.0 || self.corrupt > 0.0
    }
}

impl Default for Faults {
    fn default() -> Self {
        Self::NONE
    }
}

/// What happens to one datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is sent.
    Pass,
    /// It is not sent.
    Lose,
    /// It is sent after that many later ones.
    Hold(u32),
    /// It is sent, and a copy after it.
    Duplicate,
    /// It is sent with one bit flipped; the number picks the bit.
    Corrupt(u64),
}

/// Draws the fates.
#[derive(Clone, Debug)]
pub(crate) struct Injector {
    faults: Faults,
    active: bool,
    state: u64,
}

impl Injector {
    pub(crate) fn new(faults: Faults) -> Self {
        Self { faults, active: faults.any(), state: faults.seed }
    }

    pub(crate) fn is_active(&self) -> bool {
        self.active
    }

    pub(crate) fn draw(&mut self) -> Fate {
        if !self.active {
            return Fate::Pass;
        }
        if self.chance(self.faults.loss) {
            return Fate::Lose;
        }
        if self.chance(self.faults.corrupt) {
            return Fate::Corrupt(self.next());
        }
        if self.chance(self.faults.duplicate) {
            return Fate::Duplicate;
        }
        if self.chance(self.faults.reorder) {
            let [low, ..] = self.next().to_le_bytes();
            return Fate::Hold(u32::from(low % 16) + 1);
        }
        Fate::Pass
    }

    /// One draw, if the probability is not 0.
    fn chance(&mut self, probability: f64) -> bool {
        if probability <= 0.0 {
            return false;
        }
        let unit = self.next() >> 11;
        #[expect(clippy::cast_precision_loss, reason = "53 bits fit a double exactly")]
        let drawn = unit as f64 / (1u64 << 53) as f64;
        drawn < probability
    }

    /// `SplitMix64` (Steele, Lea, Flood 2014).
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fates(faults: Faults, count: usize) -> Vec<Fate> {
        let mut injector = Injector::new(faults);
        std::iter::repeat_with(|| injector.draw()).take(count).collect()
    }

    #[test]
    fn the_same_seed_draws_the_same_fates() {
        let faults = Faults { loss: 0.1, reorder: 0.1, duplicate: 0.1, corrupt: 0.1, seed: 7 };
        assert_eq!(fates(faults, 1000), fates(faults, 1000));
        assert_ne!(fates(faults, 1000), fates(Faults { seed: 8, ..faults }, 1000));
    }

    #[test]
    fn each_fault_comes_about_as_often_as_asked_for() {
        let drawn =
            fates(Faults { loss: 0.01, reorder: 0.02, duplicate: 0.03, corrupt: 0.04, seed: 1 }, 100_000);
        let share = |fault: fn(&Fate) -> bool| drawn.iter().filter(|fate| fault(fate)).count();
        assert!((800..1200).contains(&share(|fate| *fate == Fate::Lose)));
        assert!((1700..2300).contains(&share(|fate| matches!(fate, Fate::Hold(1..=16)))));
        assert!((2600..3400).contains(&share(|fate| *fate == Fate::Duplicate)));
        assert!((3600..4400).contains(&share(|fate| matches!(fate, Fate::Corrupt(_)))));
    }

    #[test]
    fn no_faults_means_that_everything_passes() {
        assert!(!Injector::new(Faults::NONE).is_active());
        assert!(fates(Faults::NONE, 1000).iter().all(|fate| *fate == Fate::Pass));
        assert!(fates(Faults::loss(1.0, 3), 1000).iter().all(|fate| *fate == Fate::Lose));
    }
}
