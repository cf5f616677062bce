//! Registered regions: access rights, keys, and the check of every access.

use crate::ids::{ProtectionDomain, RegionId, RegionKey};
use crate::pool::Pool;
use crate::request::Segment;
use crate::rng::Secrets;
use crate::table::Idx;

/// What may be done with a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Access(u8);

impl Access {
    /// Only local reads (gathering).
    pub const LOCAL_READ: Self = Self(0);
    /// Local writes: receives, READ and atomic results.
    pub const LOCAL_WRITE: Self = Self(1);
    /// Remote WRITEs.
    pub const REMOTE_WRITE: Self = Self(2);
    /// Remote READs.
    pub const REMOTE_READ: Self = Self(4);
    /// Remote atomics and signals.
    pub const REMOTE_ATOMIC: Self = Self(8);
    /// Everything above.
    pub const ALL: Self = Self(15);
    /// No right, but a promise: the last cache line of each remote WRITE, and a WRITE of at most 64 bytes whole, lands
    /// after the rest of it and after every earlier message of its stream. For programs that poll memory.
    pub const ORDERED_TAILS: Self = Self(16);

    /// Both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` is allowed.
    #[must_use]
    pub const fn allows(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// A registered region, as given out by [`Endpoint::register_region`](crate::Endpoint::register_region).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisteredRegion {
    /// Its local name.
    pub id: RegionId,
    /// The key by which a peer names it.
    pub key: RegionKey,
}

/// What to register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionOptions {
    /// Bytes.
    pub length: u64,
    /// Address of the first byte in the peer's terms; 0 makes addresses offsets.
    pub base_address: u64,
    /// What may be done with it.
    pub access: Access,
    /// The protection domain.
    pub domain: ProtectionDomain,
}

/// Why a region operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RegionError {
    /// The table is full: deregister one, or raise `Limits::regions`.
    Full,
    /// No such region.
    NoRegion,
    /// Work requests or packets in flight still refer to it: wait for their completions.
    InUse,
    /// `base_address` + `length` passes 2^64.
    Range,
}

impl core::fmt::Display for RegionError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Full => "table of regions is full: deregister one, or raise the limit",
            Self::NoRegion => "no such region",
            Self::InUse => "region is in use: wait for the completions of its work requests",
            Self::Range => "base address plus length passes the end of the address space",
        })
    }
}

impl core::error::Error for RegionError {}

/// A slot of the region table.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    generation: u32,
    options: RegionOptions,
    /// `None` once it was invalidated.
    key: Option<RegionKey>,
    /// Work requests, receives and responses that refer to it.
    references: u32,
}

impl Region {
    /// A slot of a pool, not in use.
    pub const EMPTY: Self = Self {
        generation: 0,
        options: RegionOptions { length: 0, base_address: 0, access: Access(0), domain: ProtectionDomain(0) },
        key: None,
        references: 0,
    };
}

/// The region table, borrowed.
pub(crate) type Regions<'a> = Pool<'a, Region>;

/// Enters a region. The key has as many random bits as the size of the table leaves.
///
/// # Errors
/// [`RegionError::Full`], [`RegionError::Range`].
pub(crate) fn register(
    regions: &mut Regions<'_>,
    secrets: &mut Secrets,
    generation: u32,
    options: RegionOptions,
) -> Result<RegisteredRegion, RegionError> {
    if options.base_address.checked_add(options.length).is_none() {
        return Err(RegionError::Range);
    }
    let slot = regions
        .allocate(Region { generation, options, key: None, references: 0 })
        .ok_or(RegionError::Full)?;
    let key = fresh_key(regions, secrets, slot);
    Ok(RegisteredRegion { id: RegionId { slot: slot.raw(), generation }, key })
}

/// Gives a region a key that it did not have before: as many random bits as the size of the table leaves.
fn fresh_key(regions: &mut Regions<'_>, secrets: &mut Secrets, slot: Idx<Region>) -> RegionKey {
    //= MR-MEM-6
    let mask = slot_mask(regions.capacity());
    let key = RegionKey((secrets.next_u32() & !mask) | slot.raw());
    regions.at_mut(slot).key = Some(key);
    key
}

/// Replaces the key of a region: the old one is dead at once.
///
/// # Errors
/// [`RegionError::NoRegion`].
pub(crate) fn rekey(
    regions: &mut Regions<'_>,
    secrets: &mut Secrets,
    id: RegionId,
) -> Result<RegionKey, RegionError> {
    find(regions, id).ok_or(RegionError::NoRegion)?;
    Ok(fresh_key(regions, secrets, Idx::new(id.slot)))
}

/// Takes the key of a region away. Returns whether the key was alive in that protection domain.
pub(crate) fn invalidate(regions: &mut Regions<'_>, domain: ProtectionDomain, key: RegionKey) -> bool {
    let slot = Idx::new(key.0 & slot_mask(regions.capacity()));
    match regions.get_mut(slot) {
        Some(region) if region.key == Some(key) && region.options.domain == domain => {
            //= MR-MEM-12
            region.key = None;
            true
        }
        _ => false,
    }
}

/// Removes a region that nothing refers to.
///
/// # Errors
/// [`RegionError::NoRegion`], [`RegionError::InUse`].
pub(crate) fn deregister(regions: &mut Regions<'_>, id: RegionId) -> Result<(), RegionError> {
    let slot = Idx::new(id.slot);
    match regions.get(slot).filter(|region| region.generation == id.generation) {
        None => Err(RegionError::NoRegion),
        //= MR-MEM-7
        Some(region) if region.references > 0 => Err(RegionError::InUse),
        Some(_) => {
            //= MR-MEM-8
            regions.free(slot);
            Ok(())
        }
    }
}

/// Checks a peer's access of `length` bytes at `address`, and tells where in the region that is.
pub(crate) fn check_remote(
    regions: &Regions<'_>,
    domain: ProtectionDomain,
    key: RegionKey,
    address: u64,
    length: u64,
    access: Access,
) -> Option<Reached> {
    let slot = Idx::new(key.0 & slot_mask(regions.capacity()));
    let region = regions.get(slot)?;
    let options = &region.options;
    //= MR-MEM-1
    if region.key != Some(key) || options.domain != domain || !options.access.allows(access) {
        return None;
    }
    let offset = address.checked_sub(options.base_address)?;
    //= MR-MEM-3
    let end = offset.checked_add(length)?;
    (end <= options.length).then_some(Reached {
        region: RegionId { slot: slot.raw(), generation: region.generation },
        offset,
        ordered_tails: options.access.allows(Access::ORDERED_TAILS),
    })
}

/// Where a peer's access lands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reached {
    pub(crate) region: RegionId,
    pub(crate) offset: u64,
    pub(crate) ordered_tails: bool,
}

/// Checks a local segment of a work request.
pub(crate) fn check_local(
    regions: &Regions<'_>,
    domain: ProtectionDomain,
    segment: &Segment,
    access: Access,
) -> bool {
    let Some(region) = find(regions, segment.region) else { return false };
    region.options.domain == domain
        && region.options.access.allows(access)
        && segment
            .offset
            .checked_add(u64::from(segment.length))
            .is_some_and(|end| end <= region.options.length)
}

/// Counts a reference to each of `segments`, or gives it back.
pub(crate) fn count_references(regions: &mut Regions<'_>, segments: &[Segment], add: bool) {
    for segment in segments {
        if let Some(region) = regions.get_mut(Idx::new(segment.region.slot)) {
            debug_assert_eq!(region.generation, segment.region.generation);
            region.references =
                if add { region.references.saturating_add(1) } else { region.references.saturating_sub(1) };
        }
    }
}

fn find<'a>(regions: &'a Regions<'_>, id: RegionId) -> Option<&'a Region> {
    regions.get(Idx::new(id.slot)).filter(|region| region.generation == id.generation)
}

/// Low bits that hold a slot of a table of `capacity`.
pub(crate) const fn slot_mask(capacity: u32) -> u32 {
    match capacity.checked_next_power_of_two() {
        Some(power) => power - 1,
        None => u32::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::{PoolHead, Slot};
    use crate::rng::Keyed;

    const OPTIONS: RegionOptions = RegionOptions {
        length: 4096,
        base_address: 0x1000,
        access: Access::REMOTE_WRITE,
        domain: ProtectionDomain(7),
    };

    fn with_table(test: impl FnOnce(&mut Regions<'_>, RegisteredRegion)) {
        let mut slots = [const { Slot::new(Region::EMPTY) }; 4];
        let mut head = PoolHead::new();
        let mut regions = Pool::new(&mut slots, &mut head).unwrap();
        let region = register(&mut regions, &mut Secrets::new(Keyed::new([1, 2])), 9, OPTIONS).unwrap();
        test(&mut regions, region);
    }

    #[test]
    //= MR-MEM-3 test
    fn access_is_checked_for_key_domain_rights_and_bounds() {
        with_table(|regions, region| {
            let check = |domain, key, address, length, access| {
                check_remote(regions, ProtectionDomain(domain), key, address, length, access)
                    .map(|reached| (reached.region, reached.offset))
            };
            let write = Access::REMOTE_WRITE;
            assert_eq!(check(7, region.key, 0x1000, 4096, write), Some((region.id, 0)));
            assert_eq!(check(7, region.key, 0x1fff, 1, write), Some((region.id, 0xfff)));
            assert_eq!(check(7, region.key, 0x1fff, 2, write), None);
            assert_eq!(check(7, region.key, 0xfff, 1, write), None);
            assert_eq!(check(7, region.key, u64::MAX, 2, write), None);
            assert_eq!(check(7, region.key, 0x1000, u64::MAX, write), None);
            assert_eq!(check(8, region.key, 0x1000, 1, write), None);
            assert_eq!(check(7, RegionKey(region.key.0 ^ 0x8000_0000), 0x1000, 1, write), None);
            assert_eq!(check(7, region.key, 0x1000, 1, Access::REMOTE_READ), None);
        });
    }

    #[test]
    //= MR-MEM-7, MR-MEM-8 test
    fn a_region_in_use_stays_and_a_key_dies_with_its_region() {
        with_table(|regions, region| {
            let segment = Segment { region: region.id, offset: 0, length: 1 };
            count_references(regions, &[segment], true);
            assert_eq!(deregister(regions, region.id), Err(RegionError::InUse));
            count_references(regions, &[segment], false);
            assert_eq!(deregister(regions, region.id), Ok(()));
            assert_eq!(deregister(regions, region.id), Err(RegionError::NoRegion));
            let again = register(regions, &mut Secrets::new(Keyed::new([3, 4])), 10, OPTIONS).unwrap();
            assert_eq!(again.id.slot, region.id.slot);
            assert!(
                check_remote(regions, ProtectionDomain(7), region.key, 0x1000, 1, Access::REMOTE_WRITE)
                    .is_none()
            );
        });
    }
}
