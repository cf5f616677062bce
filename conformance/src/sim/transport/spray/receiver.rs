//! The receiving side: places in any order, remembers what came, answers every second packet.

use std::collections::VecDeque;

use super::super::{BaselineHeader, BaselineKind};
use super::ANSWER_BYTES;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Slot {
    #[default]
    Missing,
    Came,
    /// It is the last packet of a message that is reported.
    Told(u32),
}

#[derive(Debug, Default)]
pub(super) struct Receiver {
    /// All below has come.
    lowest: u64,
    /// From `lowest` on.
    came: VecDeque<Slot>,
    marks: u32,
    unanswered: u32,
    /// Messages that are complete, with all before them.
    delivered: VecDeque<u32>,
}

impl Receiver {
    /// Takes a packet in. Returns whether it came for the first time.
    pub(super) fn take(&mut self, header: &BaselineHeader, marked: bool) -> bool {
        self.marks += u32::from(marked);
        let Some(at) = header.psn.checked_sub(self.lowest).and_then(|at| usize::try_from(at).ok()) else {
            return false;
        };
        if at >= self.came.len() {
            self.came.resize(at + 1, Slot::Missing);
        }
        let Some(slot) = self.came.get_mut(at).filter(|slot| **slot == Slot::Missing) else { return false };
        *slot = if header.last && header.notify {
            Slot::Told(u32::try_from(header.message).unwrap_or(u32::MAX))
        } else {
            Slot::Came
        };
        while let Some(slot) = self.came.pop_front_if(|slot| *slot != Slot::Missing) {
            self.lowest += 1;
            if let Slot::Told(message) = slot {
                self.delivered.push_back(message);
            }
        }
        true
    }

    pub(super) fn delivered(&mut self) -> impl Iterator<Item = u32> {
        self.delivered.drain(..)
    }

    /// The acknowledgement that is due now, if one is.
    pub(super) fn answer(&mut self, header: &BaselineHeader, port: u16) -> Option<BaselineHeader> {
        self.unanswered += 1;
        if self.unanswered < ACK_PACKETS && !header.last {
            return None;
        }
        self.unanswered = 0;
        Some(BaselineHeader {
            kind: BaselineKind::Ack,
            bytes: ANSWER_BYTES,
            psn: self.lowest,
            newest: header.psn,
            bits: (0..64).filter(|&back| self.has(header.psn, back)).fold(0, |bits, back| bits | 1 << back),
            marks: self.marks,
            echo: port,
            ..BaselineHeader::NONE
        })
    }

    fn has(&self, newest: u64, back: u64) -> bool {
        let Some(psn) = newest.checked_sub(back) else { return false };
        let Some(at) = psn.checked_sub(self.lowest) else { return true };
        usize::try_from(at).ok().and_then(|at| self.came.get(at)).is_some_and(|slot| *slot != Slot::Missing)
    }
}

/// Packets for one acknowledgement.
const ACK_PACKETS: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn data(psn: u64) -> BaselineHeader {
        BaselineHeader { kind: BaselineKind::Data, psn, ..BaselineHeader::NONE }
    }

    #[test]
    fn the_answer_tells_exactly_what_came() {
        let mut receiver = Receiver::default();
        let fresh: Vec<bool> = [0, 1, 4, 3, 4].map(|psn| receiver.take(&data(psn), false)).to_vec();
        assert_eq!(fresh, [true, true, true, true, false]);
        receiver.unanswered = ACK_PACKETS;
        let answer = receiver.answer(&data(4), 7).unwrap();
        assert_eq!((answer.psn, answer.newest, answer.bits, answer.echo), (2, 4, 0b11011, 7));
    }
}
