//! What a link does to packets beyond delaying them: loss, duplication, reordering, corruption.

use super::units::Probability;
use crate::Random;

/// A loss process of one link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Loss {
    /// Nothing is lost.
    #[default]
    None,
    /// Each packet by itself.
    Random(Probability),
    /// Gilbert and Elliott's two states; every packet that meets the bad one is lost.
    Bursts {
        /// Good to bad, per packet.
        enter: Probability,
        /// Bad to good, per packet.
        leave: Probability,
    },
}

impl Loss {
    /// Independent losses of that mean.
    #[must_use]
    pub fn random(mean: f64) -> Self {
        if mean > 0.0 { Self::Random(Probability::new(mean)) } else { Self::None }
    }

    /// Bursts of `burst_packets` packets on average (at least 1), that in the long run lose `mean` of all packets.
    #[must_use]
    pub fn bursts(mean: f64, burst_packets: f64) -> Self {
        let mean = mean.clamp(0.0, 0.99);
        let leave = 1.0 / burst_packets.max(1.0);
        Self::Bursts { enter: Probability::new(leave * mean / (1.0 - mean)), leave: Probability::new(leave) }
    }
}

/// The faults of one link, one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct LinkFaults {
    /// Losses.
    pub loss: Loss,
    /// Packets that arrive twice.
    pub duplication: Probability,
    /// Packets that are held back.
    pub reordering: Probability,
    /// How long at most, ps.
    pub reorder_ps: u64,
    /// Only packets meet these faults whose source port, divided by the first number, leaves the second.
    pub only: Option<(u16, u16)>,
    /// Packets with one byte changed. Only with checksums does it make sense.
    pub corruption: Probability,
}

impl LinkFaults {
    /// Whether packets of this source port meet the faults.
    #[must_use]
    pub const fn meet(&self, source_port: u16) -> bool {
        match self.only {
            Some((divisor, remainder)) if divisor > 0 => source_port % divisor == remainder,
            _ => true,
        }
    }
}

/// The memory of a loss process.
#[derive(Clone, Copy, Debug, Default)]
pub struct LossState {
    bad: bool,
}

impl LossState {
    /// Whether the next packet is lost.
    pub fn next(&mut self, loss: &Loss, random: &mut Random) -> bool {
        match *loss {
            Loss::None => false,
            Loss::Random(probability) => probability.draw(random),
            Loss::Bursts { enter, leave } => {
                self.bad = if self.bad { !leave.draw(random) } else { enter.draw(random) };
                self.bad
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(loss: Loss, packets: u32) -> (f64, f64) {
        let mut state = LossState::default();
        let mut random = Random::new(11);
        let (mut lost, mut bursts, mut before) = (0u32, 0u32, false);
        for _ in 0..packets {
            let now = state.next(&loss, &mut random);
            lost += u32::from(now);
            bursts += u32::from(now && !before);
            before = now;
        }
        (f64::from(lost) / f64::from(packets), f64::from(lost) / f64::from(bursts.max(1)))
    }

    #[test]
    fn random_loss_has_its_mean_and_hardly_any_bursts() {
        let (mean, burst) = run(Loss::random(0.05), 400_000);
        assert!((mean - 0.05).abs() < 0.002, "{mean}");
        assert!((burst - 1.0 / 0.95).abs() < 0.02, "{burst}");
    }

    #[test]
    fn bursts_have_their_mean_and_their_length() {
        for (wanted, length) in [(0.01, 8.0), (0.1, 20.0)] {
            let (mean, burst) = run(Loss::bursts(wanted, length), 4_000_000);
            assert!((mean - wanted).abs() < wanted * 0.1, "{wanted}: {mean}");
            assert!((burst - length).abs() < length * 0.1, "{length}: {burst}");
        }
    }
}
