//! The table from region to memory, and the handle that an application holds.

use std::fmt;

use metaroce_core::RegionError;
use metaroce_core::ids::{ProtectionDomain, RegionId, RegionKey};
use metaroce_core::memory::{AtomicOperation, Memory, MemoryError};
use metaroce_core::region::Access;
use metaroce_core::request::{RemoteAddress, Segment};
use metaroce_core::transmit::PayloadPart;

use crate::memory::{RawPart, RegionMemory};

/// A registered region: plain data, to be copied about. Its bytes are reached through the driver
/// ([`Driver::copy_in`](crate::Driver::copy_in), [`Driver::copy_out`](crate::Driver::copy_out)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    pub(crate) id: RegionId,
    pub(crate) key: RegionKey,
    pub(crate) length: u64,
    pub(crate) base_address: u64,
    pub(crate) access: Access,
    pub(crate) domain: ProtectionDomain,
}

impl Region {
    /// The local name.
    #[must_use]
    pub const fn id(&self) -> RegionId {
        self.id
    }

    /// The key to give to a peer.
    #[must_use]
    pub const fn key(&self) -> RegionKey {
        self.key
    }

    /// Bytes.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.length
    }

    /// Whether there are no bytes at all.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Address of the first byte in a peer's terms.
    #[must_use]
    pub const fn base_address(&self) -> u64 {
        self.base_address
    }

    /// What may be done with it.
    #[must_use]
    pub const fn access(&self) -> Access {
        self.access
    }

    /// The protection domain.
    #[must_use]
    pub const fn domain(&self) -> ProtectionDomain {
        self.domain
    }

    /// The `length` bytes from `offset` on, as a segment of a work request. The core checks the bounds.
    #[must_use]
    pub const fn segment(&self, offset: u64, length: u32) -> Segment {
        Segment { region: self.id, offset, length }
    }

    /// The place `offset` bytes from the start, as a peer names it in a work request.
    #[must_use]
    pub const fn remote(&self, offset: u64) -> RemoteAddress {
        RemoteAddress { key: self.key, address: self.base_address.wrapping_add(offset) }
    }
}

/// Why a region could not be registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RegisterError {
    /// The endpoint refused.
    Endpoint(RegionError),
    /// The memory is mapped for reading only, and the access asked for would write to it.
    ReadOnly,
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Endpoint(RegionError::Full) => {
                f.write_str("table of regions is full: deregister one, or raise `Limits::regions`")
            }
            Self::Endpoint(RegionError::Range) => {
                f.write_str("base address plus length wraps: choose a lower address")
            }
            Self::Endpoint(error) => write!(f, "region refused by the endpoint: {error:?}"),
            Self::ReadOnly => f.write_str("memory is mapped for reading only: ask for read access only"),
        }
    }
}

impl std::error::Error for RegisterError {}

/// Memory by region, indexed by [`RegionId::slot`]; a stale id finds nothing.
#[derive(Debug, Default)]
pub struct RegionTable {
    slots: Vec<Option<(RegionId, RegionMemory)>>,
}

impl RegionTable {
    /// An empty table.
    #[must_use]
    pub const fn new() -> Self {
        Self { slots: Vec::new() }
    }

    /// Enters the memory of a region. What was in its slot is dropped (the endpoint hands out a slot again only after
    /// deregistering).
    pub fn insert(&mut self, region: RegionId, memory: RegionMemory) {
        let slot = region.slot() as usize;
        if self.slots.len() <= slot {
            self.slots.resize_with(slot + 1, || None);
        }
        if let Some(entry) = self.slots.get_mut(slot) {
            *entry = Some((region, memory));
        }
    }

    /// Takes out the memory of a region.
    pub fn remove(&mut self, region: RegionId) -> Option<RegionMemory> {
        let entry = self.slots.get_mut(region.slot() as usize)?;
        entry.take_if(|(id, _)| *id == region).map(|(_, memory)| memory)
    }

    /// The memory of a region.
    #[must_use]
    pub fn memory(&self, region: RegionId) -> Option<&RegionMemory> {
        match self.slots.get(region.slot() as usize) {
            Some(Some((id, memory))) if *id == region => Some(memory),
            _ => None,
        }
    }

    /// The memory of a region, to write to.
    pub fn memory_mut(&mut self, region: RegionId) -> Option<&mut RegionMemory> {
        match self.slots.get_mut(region.slot() as usize) {
            Some(Some((id, memory))) if *id == region => Some(memory),
            _ => None,
        }
    }

    /// The bytes that a payload part refers to; `None` when the region is gone or too short.
    #[must_use]
    pub fn raw(&self, part: &PayloadPart) -> Option<RawPart<'_>> {
        self.memory(part.region)?.raw(part.offset, part.length as usize)
    }
}

impl Memory for RegionTable {
    fn write(&mut self, region: RegionId, offset: u64, bytes: &[u8]) -> Result<(), MemoryError> {
        self.memory_mut(region).ok_or(MemoryError)?.copy_from(offset, bytes)
    }

    fn atomic(
        &mut self,
        region: RegionId,
        offset: u64,
        operation: AtomicOperation,
    ) -> Result<u64, MemoryError> {
        self.memory_mut(region).ok_or(MemoryError)?.atomic(offset, operation)
    }
}
