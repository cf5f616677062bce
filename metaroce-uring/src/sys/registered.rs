//! Regions registered with the ring as fixed buffers: their pages are pinned once and not for each send.
//!
//! All that such a send gathers must lie in one registered buffer. So what is registered is a region with the apron behind
//! it ([`Mapping`]), where each slot has a place for the headers of its datagrams. A region is registered when the first
//! send that goes out without a copy is of it; regions that are small, lent or files have no apron and stay as they are.

use std::io;

use metaroce_core::ids::RegionId;
use metaroce_mio::memory::{APRON_BYTES, Mapping};
use metaroce_mio::regions::RegionTable;

use super::ring::Ring;
use super::slots::Slot;

/// The table of buffers.
#[derive(Debug)]
pub(crate) struct Registered {
    /// No more is registered beyond so many bytes.
    bytes_max: usize,
    bytes: usize,
    /// Whether the ring has a table; `None` before it was asked for one.
    table: Option<bool>,
    entries: Vec<Entry>,
    pub(crate) refused: u64,
}

/// What became of a region; its place is that in the ring's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    Empty,
    /// Registered.
    Whole {
        region: RegionId,
        bytes: usize,
        pieces: Pieces,
    },
    /// The kernel refused, or there is no room: it is not asked again.
    Refused {
        region: RegionId,
    },
}

/// How large the pieces are in which the kernel keeps a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pieces {
    /// Huge pages, as long as no send is refused for having too many pieces.
    Huge,
    /// Pages.
    Pages,
}

impl Registered {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, bytes: 0, table: None, entries: vec![Entry::Empty; BUFFERS_MAX], refused: 0 }
    }

    /// How many regions are registered.
    pub(crate) fn count(&self) -> usize {
        self.entries.iter().filter(|entry| matches!(entry, Entry::Whole { .. })).count()
    }

    /// Makes a send one from a registered buffer, if it can be: moves its headers to the apron of its region, and returns
    /// the buffer.
    pub(crate) fn adopt(
        &mut self,
        ring: &Ring,
        index: u32,
        slot: &mut Slot,
        regions: &RegionTable,
    ) -> Option<u16> {
        if self.bytes_max == 0 {
            return None;
        }
        let region = slot.only_region()?;
        let mapping = regions.memory(region)?.mapping()?;
        let room = (index as usize).checked_mul(PLACE_BYTES).filter(|start| *start < APRON_BYTES)?;
        let (buffer, pieces) = self.find(ring, region, &mapping)?;
        slot.move_headers(&mapping, room, pieces).then_some(buffer)
    }

    /// The buffer of a region, which is registered if it is not yet.
    fn find(&mut self, ring: &Ring, region: RegionId, mapping: &Mapping) -> Option<(u16, Pieces)> {
        let mut free = None;
        for (entry, place) in self.entries.iter().zip(0u16..) {
            match *entry {
                Entry::Whole { region: known, pieces, .. } if known == region => {
                    return Some((place, pieces));
                }
                Entry::Refused { region: known } if known == region => return None,
                Entry::Empty if free.is_none() => free = Some(place),
                _ => {}
            }
        }
        let place = free?;
        let done = self.register(ring, place, mapping).is_ok();
        let entry = self.entries.get_mut(usize::from(place))?;
        if !done {
            self.refused += 1;
            *entry = Entry::Refused { region };
            return None;
        }
        self.bytes += mapping.bytes();
        *entry = Entry::Whole { region, bytes: mapping.bytes(), pieces: Pieces::Huge };
        Some((place, Pieces::Huge))
    }

    fn register(&mut self, ring: &Ring, place: u16, mapping: &Mapping) -> io::Result<()> {
        let bytes = self.bytes.saturating_add(mapping.bytes());
        if bytes > self.bytes_max || mapping.bytes() > BUFFER_BYTES_MAX {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let table = *self.table.get_or_insert_with(|| {
            ring.submitter().register_buffers_sparse(u32::try_from(BUFFERS_MAX).unwrap_or(0)).is_ok()
        });
        if !table {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let range = libc::iovec { iov_base: mapping.base().cast(), iov_len: mapping.bytes() };
        // SAFETY: the kernel pins the pages, which it keeps for itself however long the mapping lives. It reads from them
        // only for sends, whose slots keep the region alive.
        unsafe { ring.submitter().register_buffers_update(place.into(), &[range], None) }.map(drop)
    }

    /// A region goes; no request is of it any more.
    pub(crate) fn release(&mut self, ring: &Ring, region: RegionId) {
        for (entry, place) in self.entries.iter_mut().zip(0u32..) {
            match *entry {
                Entry::Whole { region: known, bytes, .. } if known == region => {
                    let nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
                    // SAFETY: nothing is registered, and no request names the place.
                    let gone =
                        unsafe { ring.submitter().register_buffers_update(place, &[nothing], None) }.is_ok();
                    // If it is not gone (another thread than the ring's asks), the place is lost and its pages stay
                    // pinned until the ring ends.
                    if gone {
                        *entry = Entry::Empty;
                        self.bytes -= bytes;
                    } else {
                        *entry = Entry::Refused { region };
                    }
                }
                Entry::Refused { region: known } if known == region => *entry = Entry::Empty,
                _ => {}
            }
        }
    }

    /// A send from a buffer was refused for having too many pieces, so it is not kept in huge ones.
    pub(crate) fn in_pages(&mut self, buffer: u16) {
        if let Some(Entry::Whole { pieces, .. }) = self.entries.get_mut(usize::from(buffer)) {
            *pieces = Pieces::Pages;
        }
    }

    /// The kernel can't send from registered buffers: no more.
    pub(crate) fn give_up(&mut self) {
        self.bytes_max = 0;
    }
}

/// Regions that may be registered at once.
const BUFFERS_MAX: usize = 64;

/// The kernel takes no larger ones.
const BUFFER_BYTES_MAX: usize = 1 << 30;

/// What a slot has of an apron.
pub(crate) const PLACE_BYTES: usize = 1024;
