//! Memory that is not there: regions of any size whose content follows from the place, so that nothing is stored.
//!
//! The source regions of all hosts have the same plan, and so have their target regions: byte *x* of the flow from *a*
//! to *b* lies at `place(b, x)` at *a* and at `place(a, x)` at *b*. A payload begins with a tag that says from where it
//! was taken; when it is placed, the tag must name the place that it came to.
//! That every byte was placed, and none twice, shows a sum: placing [a, b) adds H(b) − H(a), H being a hash; the sum
//! over all writes must be that over all messages.

use std::collections::BTreeMap;

use metaroce_core::{AtomicOperation, Memory, MemoryError, RegionId};

/// Bytes of the tag.
pub const TAG_BYTES: usize = 16;
/// Bytes of one flow's part of a region: a longer flow begins again at its start.
pub const FLOW_BYTES: u64 = 1 << 34;
/// Hosts that memory has places for; and 4,096 connections to each.
pub const HOSTS_MAX: u32 = 1 << 13;
/// Address of the word that signals add to, in the target region, beyond all flows.
pub const SIGNAL_OFFSET: u64 = 1 << 60;
/// Bytes of the target region.
pub const REGION_BYTES: u64 = SIGNAL_OFFSET + 8 * (1 << 20);

/// The other end of a connection: a host, and which of the connections between the two it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Peer {
    /// The host.
    pub host: u32,
    /// Number of the connection, from 0.
    pub number: u32,
}

impl Peer {
    /// The first connection to `host`.
    #[must_use]
    pub const fn of(host: u32) -> Self {
        Self { host, number: 0 }
    }

    const fn index(self) -> u64 {
        self.number as u64 * HOSTS_MAX as u64 + self.host as u64
    }

    fn at(index: u64) -> Self {
        let part = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        Self { host: part(index % u64::from(HOSTS_MAX)), number: part(index / u64::from(HOSTS_MAX)) }
    }
}

/// Where byte `at` of the flow from or to `peer` lies.
#[must_use]
pub const fn place(peer: Peer, at: u64) -> u64 {
    peer.index() * FLOW_BYTES + at
}

/// What the placing of [`from`, `to`) adds to the sum.
#[must_use]
pub const fn cover(from: u64, to: u64) -> u64 {
    hash(to).wrapping_sub(hash(from))
}

const fn hash(offset: u64) -> u64 {
    let mut z = offset.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The tag of a payload that `host` took from `offset`.
#[must_use]
pub fn tag(host: u32, offset: u64) -> [u8; TAG_BYTES] {
    let mut tag = [0; TAG_BYTES];
    for (to, from) in tag.iter_mut().zip(offset.to_be_bytes().into_iter().chain(host.to_be_bytes())) {
        *to = from;
    }
    tag
}

/// The memory of one host.
#[derive(Debug)]
pub struct VirtualMemory {
    host: u32,
    /// Sum over all that was placed.
    pub covered: u64,
    /// Bytes placed.
    pub placed_bytes: u64,
    /// Payloads whose tag named another place.
    pub misplaced: u64,
    words: BTreeMap<u64, u64>,
}

impl VirtualMemory {
    /// The memory of `host`.
    #[must_use]
    pub const fn new(host: u32) -> Self {
        Self { host, covered: 0, placed_bytes: 0, misplaced: 0, words: BTreeMap::new() }
    }

    /// The word that signals of a host add to.
    #[must_use]
    pub fn signal(&self, host: u32) -> u64 {
        self.words.get(&signal_offset(host)).copied().unwrap_or(0)
    }
}

/// Where the word lies that signals of `host` add to.
#[must_use]
pub const fn signal_offset(host: u32) -> u64 {
    SIGNAL_OFFSET + 8 * host as u64
}

impl Memory for VirtualMemory {
    fn write(&mut self, _region: RegionId, offset: u64, bytes: &[u8]) -> Result<(), MemoryError> {
        let length = bytes.len() as u64;
        self.covered = self.covered.wrapping_add(cover(offset, offset + length));
        self.placed_bytes += length;
        if let Some(found) = bytes.first_chunk::<TAG_BYTES>() {
            // Byte x of the flow from a to b: at place(b, x) in a, at place(a, x) in b.
            let from = Peer::at(offset / FLOW_BYTES);
            let here = Peer { host: self.host, number: from.number };
            let wanted = tag(from.host, place(here, offset % FLOW_BYTES));
            self.misplaced += u64::from(*found != wanted);
        }
        Ok(())
    }

    fn atomic(
        &mut self,
        _region: RegionId,
        offset: u64,
        operation: AtomicOperation,
    ) -> Result<u64, MemoryError> {
        let word = self.words.entry(offset).or_default();
        let old = *word;
        *word = operation.apply(old);
        Ok(old)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region() -> RegionId {
        RegionId::default()
    }

    #[test]
    fn the_sum_is_right_only_if_each_byte_was_placed_once() {
        let mut memory = VirtualMemory::new(5);
        for part in [2, 0, 1] {
            let mut bytes = [0; 4_096];
            bytes[..TAG_BYTES].copy_from_slice(&tag(3, place(Peer::of(5), part * 4_096)));
            memory.write(region(), place(Peer::of(3), part * 4_096), &bytes).unwrap();
        }
        assert_eq!(memory.covered, cover(place(Peer::of(3), 0), place(Peer::of(3), 3 * 4_096)));
        assert_eq!(memory.misplaced, 0);
        memory.write(region(), place(Peer::of(3), 0), &[0; 4_096]).unwrap();
        assert_ne!(memory.covered, cover(place(Peer::of(3), 0), place(Peer::of(3), 3 * 4_096)));
        assert_eq!(memory.misplaced, 1, "its tag names another place");
    }
}
