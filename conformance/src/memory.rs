//! The memory of a simulated host: one vector per region.

use metaroce_core::{AtomicOperation, Memory, MemoryError, PayloadPart, RegionId};

/// Regions of a simulated host, by slot.
#[derive(Debug, Default)]
pub struct HostMemory {
    regions: Vec<Vec<u8>>,
}

impl HostMemory {
    /// Gives a region its bytes.
    pub fn attach(&mut self, region: RegionId, bytes: Vec<u8>) {
        let slot = region.slot() as usize;
        if self.regions.len() <= slot {
            self.regions.resize_with(slot + 1, Vec::new);
        }
        if let Some(entry) = self.regions.get_mut(slot) {
            *entry = bytes;
        }
    }

    /// The bytes of a region; none if it was never attached.
    #[must_use]
    pub fn bytes(&self, region: RegionId) -> &[u8] {
        self.regions.get(region.slot() as usize).map_or(&[], Vec::as_slice)
    }

    /// The bytes of a region, to change.
    pub fn bytes_mut(&mut self, region: RegionId) -> &mut [u8] {
        self.regions.get_mut(region.slot() as usize).map_or(&mut [], Vec::as_mut_slice)
    }

    /// The bytes that a payload part refers to; none if it lies outside.
    #[must_use]
    pub fn part(&self, part: &PayloadPart) -> &[u8] {
        let Ok(start) = usize::try_from(part.offset) else { return &[] };
        self.bytes(part.region).get(start..).and_then(|rest| rest.get(..part.length as usize)).unwrap_or(&[])
    }

    fn stretch(&mut self, region: RegionId, offset: u64, length: usize) -> Result<&mut [u8], MemoryError> {
        let start = usize::try_from(offset).map_err(|_| MemoryError)?;
        self.bytes_mut(region).get_mut(start..).and_then(|rest| rest.get_mut(..length)).ok_or(MemoryError)
    }
}

impl Memory for HostMemory {
    fn write(&mut self, region: RegionId, offset: u64, bytes: &[u8]) -> Result<(), MemoryError> {
        self.stretch(region, offset, bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }

    fn atomic(
        &mut self,
        region: RegionId,
        offset: u64,
        operation: AtomicOperation,
    ) -> Result<u64, MemoryError> {
        let word = self.stretch(region, offset, 8)?;
        let old = u64::from_ne_bytes(word.try_into().map_err(|_| MemoryError)?);
        word.copy_from_slice(&operation.apply(old).to_ne_bytes());
        Ok(old)
    }
}
