//! How much reordering a path takes for none: it doubles when packets that were declared lost turn out delivered, and
//! falls back as long as none do.

/// The largest tolerance, packets.
const MOST: u32 = 32;
/// Packets delivered without reordering for which the tolerance falls by one.
const CALM_PACKETS: u32 = 1_024;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tolerance {
    packets: u32,
    /// What is configured: it does not fall below.
    least: u32,
    /// Packets delivered since packets were last reordered, or since it last fell.
    calm: u32,
}

impl Tolerance {
    /// With so many packets to begin with.
    pub(crate) const fn new(least: u32) -> Self {
        Self { packets: least, least, calm: 0 }
    }

    /// Packets by which a transmission may be overtaken.
    pub(crate) const fn packets(&self) -> u32 {
        self.packets
    }

    /// A packet was delivered.
    pub(crate) fn on_delivered(&mut self) {
        self.calm += 1;
        if self.calm >= CALM_PACKETS {
            self.calm = 0;
            //= MR-LOSS-7
            self.packets = self.packets.saturating_sub(1).max(self.least);
        }
    }

    /// Packets that were declared lost had arrived.
    pub(crate) fn on_spurious(&mut self) {
        //= MR-LOSS-6
        self.packets = self.packets.saturating_mul(2).clamp(1, MOST);
        self.calm = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    //= MR-LOSS-6 test
    //= MR-LOSS-7 test
    fn it_doubles_at_once_and_falls_by_one_for_each_1024_calm_packets_down_to_what_is_configured() {
        let mut tolerance = Tolerance::new(3);
        let deliver = |tolerance: &mut Tolerance, count| (0..count).for_each(|_| tolerance.on_delivered());
        tolerance.on_spurious();
        assert_eq!(tolerance.packets(), 6);
        deliver(&mut tolerance, 1_023);
        assert_eq!(tolerance.packets(), 6);
        deliver(&mut tolerance, 1);
        assert_eq!(tolerance.packets(), 5);
        // Reordering begins the count anew.
        deliver(&mut tolerance, 1_000);
        tolerance.on_spurious();
        deliver(&mut tolerance, 1_000);
        assert_eq!(tolerance.packets(), 10);
        deliver(&mut tolerance, 100 * 1_024);
        assert_eq!(tolerance.packets(), 3);
        for _ in 0..6 {
            tolerance.on_spurious();
        }
        assert_eq!(tolerance.packets(), 32);
        let mut none = Tolerance::new(0);
        none.on_spurious();
        assert_eq!(none.packets(), 1);
    }
}
