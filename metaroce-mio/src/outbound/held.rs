//! Copies of datagrams that an artificial fault delays, doubles or damages.

use std::net::SocketAddr;

use metaroce_core::time::Instant;
use metaroce_core::transmit::{Ecn, SourcePort, Transmit};

use crate::backend::Packet;
use crate::faults::Fate;
use crate::stats::InjectedFaults;

/// A sealed datagram with its bytes.
#[derive(Debug)]
pub(super) struct HeldDatagram {
    destination: SocketAddr,
    plane: u8,
    source: SourcePort,
    ecn: Ecn,
    bytes: Vec<u8>,
    /// Datagrams that are to leave before it.
    after: usize,
    /// When it leaves at the latest.
    release_at: Instant,
}

impl HeldDatagram {
    pub(super) fn packet(&self) -> Packet<'_> {
        let &Self { destination, plane, source, ecn, ref bytes, .. } = self;
        Packet { destination, plane, source, ecn, bytes }
    }
}

/// The datagrams that are held back, at most [`HELD_MAX`].
#[derive(Debug, Default)]
pub(super) struct Held {
    datagrams: Vec<HeldDatagram>,
}

impl Held {
    pub(super) fn is_full(&self) -> bool {
        self.datagrams.len() >= HELD_MAX
    }

    /// When the next one leaves at the latest.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.datagrams.iter().map(|held| if held.after == 0 { Instant::ZERO } else { held.release_at }).min()
    }

    /// Keeps the copy that `fate` asks for; says whether the original is to be sent too.
    pub(super) fn hold(
        &mut self,
        fate: Fate,
        transmit: &Transmit,
        mut bytes: Vec<u8>,
        now: Instant,
        counters: &mut InjectedFaults,
    ) -> bool {
        let after = match fate {
            Fate::Hold(after) => {
                counters.reordered += 1;
                after as usize
            }
            Fate::Duplicate => {
                counters.duplicated += 1;
                1
            }
            Fate::Corrupt(draw) => {
                counters.corrupted += 1;
                flip_bit(&mut bytes, draw);
                0
            }
            Fate::Pass | Fate::Lose => return fate == Fate::Pass,
        };
        self.datagrams.push(HeldDatagram {
            destination: transmit.destination,
            plane: transmit.plane,
            source: transmit.source,
            ecn: transmit.ecn,
            bytes,
            after,
            release_at: now.after(HOLD_NS_MAX),
        });
        matches!(fate, Fate::Duplicate)
    }

    /// Takes note that `count` datagrams have left.
    pub(super) fn on_sent(&mut self, count: usize) {
        for held in &mut self.datagrams {
            held.after = held.after.saturating_sub(count);
        }
    }

    /// Takes out the first one whose time has come.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<HeldDatagram> {
        let due = self.datagrams.iter().position(|held| held.after == 0 || held.release_at <= now)?;
        Some(self.datagrams.remove(due))
    }

    /// Puts one back that could not be sent.
    pub(super) fn put_back(&mut self, held: HeldDatagram) {
        self.datagrams.insert(0, HeldDatagram { after: 0, ..held });
    }
}

fn flip_bit(bytes: &mut [u8], draw: u64) {
    let bits = bytes.len() as u64 * 8;
    if bits == 0 {
        return;
    }
    let bit = draw % bits;
    let index = usize::try_from(bit / 8).unwrap_or(0);
    if let Some(byte) = bytes.get_mut(index) {
        *byte ^= 1 << (bit % 8);
    }
}

/// Datagrams held back at most; then faults that need a copy are left out.
const HELD_MAX: usize = 4096;

/// Longest time that a datagram is held back, ns.
const HOLD_NS_MAX: u64 = 2_000_000;
