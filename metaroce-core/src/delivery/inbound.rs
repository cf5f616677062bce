//! The receiving half: the verdict of every CSN in the window, so that a copy never acts twice.

use crate::bits::{BitWindow, WindowHead};
use crate::ids::{Csn, Serial};
use crate::path::Verdict;

/// Verdicts of [r − W, r + W), *r* being the lowest CSN without verdict.
#[derive(Debug)]
pub struct Inbound {
    accepted: WindowHead,
    refused: WindowHead,
    lowest_unseen: Csn,
    /// *W*: a power of two.
    window: u32,
}

/// What the window knows of a CSN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// Not seen before.
    New,
    /// Judged before.
    Judged(Verdict),
    /// Outside of the window.
    Outside,
}

/// Words of bitmap that a connection with window `window` needs.
pub(crate) const fn inbound_words(window: u32) -> usize {
    // Two bitmaps of 2 W bits.
    (window / 16) as usize
}

impl Inbound {
    pub(crate) const NEW: Self = Self {
        accepted: WindowHead::new(Csn::new(0)),
        refused: WindowHead::new(Csn::new(0)),
        lowest_unseen: Csn::new(0),
        window: 0,
    };

    /// Starts at `first`, with an empty window of `window` CSNs. O(window / 64).
    pub(crate) fn start(&mut self, words: &mut [u64], first: Csn, window: u32) {
        self.window = window;
        self.lowest_unseen = first;
        if let Some((mut accepted, mut refused)) = self.windows(words) {
            //= MR-DLV-1
            accepted.reset(first.minus(window));
            refused.reset(first.minus(window));
        }
    }

    /// The lowest CSN without verdict.
    pub(crate) const fn lowest_unseen(&self) -> Csn {
        self.lowest_unseen
    }

    /// What is known of `csn`.
    pub(crate) fn seen(&mut self, words: &mut [u64], csn: Csn) -> Seen {
        let lowest = self.lowest_unseen;
        let window = self.window;
        let Some((accepted, refused)) = self.windows(words) else { return Seen::Outside };
        //= MR-DLV-2
        if lowest.distance(csn) >= window.cast_signed() || !accepted.covers(csn) {
            Seen::Outside
        } else if accepted.contains(csn) {
            Seen::Judged(Verdict::Accepted)
        } else if refused.contains(csn) {
            Seen::Judged(Verdict::Refused)
        } else if csn.before(lowest) {
            // Below the first CSN ever.
            Seen::Outside
        } else {
            Seen::New
        }
    }

    /// Writes the verdict of a CSN that was [`Seen::New`]. O(1 + how far the window moves / 64 + refused in it).
    pub(crate) fn judge(&mut self, words: &mut [u64], csn: Csn, verdict: Verdict) {
        let window = self.window;
        let lowest = self.lowest_unseen;
        let Some((mut accepted, mut refused)) = self.windows(words) else { return };
        match verdict {
            Verdict::Accepted => accepted.insert(csn),
            Verdict::Refused => refused.insert(csn),
        };
        if csn != lowest {
            return;
        }
        let limit = lowest.plus(window);
        let mut next = lowest;
        // Each round passes at least one refused CSN.
        for _ in 0..window {
            next = accepted.first_zero_from(next, limit);
            if next == limit || !refused.contains(next) {
                break;
            }
            next = next.plus(1);
        }
        accepted.advance_to(next.minus(window));
        refused.advance_to(next.minus(window));
        self.lowest_unseen = next;
    }

    fn windows<'a>(&'a mut self, words: &'a mut [u64]) -> Option<(BitWindow<'a>, BitWindow<'a>)> {
        let half = inbound_words(self.window) / 2;
        let (first, second) = words.split_at_mut_checked(half)?;
        let second = second.get_mut(..half)?;
        Some((BitWindow::new(first, &mut self.accepted), BitWindow::new(second, &mut self.refused)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::vec;
    use std::vec::Vec;

    use quickcheck::quickcheck;

    use super::*;

    quickcheck! {
        /// Against a map that never forgets: same verdict inside the window, for ever.
        //= MR-DLV-1, MR-DLV-3 test
        fn every_csn_gets_one_verdict(first: u32, steps: Vec<(u8, bool)>) -> bool {
            const W: u32 = 64;
            let mut words = vec![0; inbound_words(W)];
            let mut inbound = Inbound::NEW;
            let first = Csn::new(first);
            inbound.start(&mut words, first, W);
            let mut model = HashMap::new();
            for (ahead, accept) in steps {
                // 0..127 around r: half behind, half ahead, some outside.
                let csn = inbound.lowest_unseen().minus(70).plus(u32::from(ahead) % 140);
                let verdict = if accept { Verdict::Accepted } else { Verdict::Refused };
                let ahead = inbound.lowest_unseen().distance(csn);
                match inbound.seen(&mut words, csn) {
                    Seen::New => {
                        if (0..64).contains(&ahead) && !model.contains_key(&csn.raw()) {
                            inbound.judge(&mut words, csn, verdict);
                            model.insert(csn.raw(), verdict);
                        } else {
                            return false;
                        }
                    }
                    Seen::Judged(said) => {
                        let before_start = first.distance(csn) < 0;
                        if !before_start && model.get(&csn.raw()) != Some(&said) {
                            return false;
                        }
                    }
                    Seen::Outside => {
                        if (0..64).contains(&ahead) || (ahead >= -64 && first.distance(csn) >= 0 && ahead < 0) {
                            return false;
                        }
                    }
                }
                if model.contains_key(&inbound.lowest_unseen().raw()) {
                    return false;
                }
            }
            true
        }
    }
}
