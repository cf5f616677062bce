//! The memory of all hosts, as it must become.

use metaroce_core::{
    Access, AtomicOperation, ProtectionDomain, RegionOptions, RegisteredRegion, RemoteAddress, Segment,
    Storage,
};

use crate::{Network, Random};

/// Bytes of the region that a host sends from and that peers read; it never changes.
const SOURCE_BYTES: u32 = 256 << 10;
/// Bytes kept free after each destination, to see what spills over.
pub(super) const GAP: usize = 3;
/// Words for atomics of a host: one for each connection, side and stream, and a last one that all use. As many for
/// signals follow.
pub(super) const WORDS: usize = 64;

/// Where a host sends from and peers read.
pub(super) const SOURCE: usize = 0;
/// Destinations.
pub(super) const TARGET: usize = 1;
/// Words of atomics and signals.
pub(super) const WORD: usize = 2;
/// Destinations, with ordered tails.
pub(super) const TAIL: usize = 3;

/// A stretch of a host's region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    pub(super) host: usize,
    pub(super) region: usize,
    pub(super) offset: usize,
    pub(super) length: usize,
}

struct Region {
    registered: RegisteredRegion,
    bytes: Vec<u8>,
    used: usize,
}

/// The regions of all hosts.
pub(super) struct MemoryModel {
    hosts: Vec<Vec<Region>>,
    random: Random,
}

impl MemoryModel {
    /// Registers the regions that every host has, with `room` for destinations.
    pub(super) fn new<S: Storage>(net: &mut Network<S>, seed: u64, room: usize) -> Self {
        let mut model =
            Self { hosts: net.hosts.iter().map(|_| Vec::new()).collect(), random: Random::new(!seed) };
        for host in 0..net.hosts.len() {
            let random = &mut model.random;
            let source = (0..SOURCE_BYTES / 8).flat_map(|_| random.next_u64().to_le_bytes()).collect();
            model.register(net, host, source, Access::ALL);
            model.register(net, host, vec![0; room], Access::ALL);
            model.register(net, host, vec![0; 2 * WORDS * 8], Access::ALL);
            model.register(net, host, vec![0; room], Access::ALL.and(Access::ORDERED_TAILS));
        }
        model
    }

    /// Registers one more region: returns its number.
    #[expect(clippy::expect_used, reason = "the limits of a program have room")]
    pub(super) fn register<S: Storage>(
        &mut self,
        net: &mut Network<S>,
        host: usize,
        bytes: Vec<u8>,
        access: Access,
    ) -> usize {
        let (Some(real), Some(regions)) = (net.hosts.get_mut(host), self.hosts.get_mut(host)) else {
            return 0;
        };
        let domain = ProtectionDomain(0);
        let options = RegionOptions { length: bytes.len() as u64, base_address: 0, access, domain };
        let registered = real.endpoint.register_region(options).expect("the table of regions has room");
        real.memory.attach(registered.id, bytes.clone());
        regions.push(Region { registered, bytes, used: 0 });
        regions.len() - 1
    }

    fn region(&self, host: usize, region: usize) -> Option<&Region> {
        self.hosts.get(host)?.get(region)
    }

    /// Its handle and first key.
    pub(super) fn registered(&self, host: usize, region: usize) -> Option<RegisteredRegion> {
        self.region(host, region).map(|region| region.registered)
    }

    /// Takes `length` bytes of a host's region that nothing else uses, if it has them.
    pub(super) fn allocate(&mut self, host: usize, region: usize, length: u32) -> Option<Spot> {
        let entry = self.hosts.get_mut(host)?.get_mut(region)?;
        let offset = entry.used.next_multiple_of(8);
        let length = length as usize;
        if offset + length + GAP > entry.bytes.len() {
            return None;
        }
        entry.used = offset + length + GAP;
        Some(Spot { host, region, offset, length })
    }

    /// The same of the region of destinations, which has room for all of a program.
    #[expect(clippy::expect_used, reason = "made as large as the program needs")]
    pub(super) fn target(&mut self, host: usize, length: u32) -> Spot {
        self.allocate(host, TARGET, length).expect("room for all destinations")
    }

    /// How the peer names a spot, by its region's first key.
    pub(super) fn remote(&self, spot: Spot) -> RemoteAddress {
        let key = self.registered(spot.host, spot.region).map(|region| region.key).unwrap_or_default();
        RemoteAddress { key, address: spot.offset as u64 }
    }

    /// How the host itself names a spot.
    pub(super) fn segment(&self, spot: Spot) -> Segment {
        let region = self.registered(spot.host, spot.region).map(|region| region.id).unwrap_or_default();
        Segment { region, offset: spot.offset as u64, length: u32::try_from(spot.length).unwrap_or(0) }
    }

    /// Random bytes of a host's source.
    pub(super) fn source(&mut self, host: usize, length: u32) -> Spot {
        let room = u64::from(SOURCE_BYTES - length.min(SOURCE_BYTES));
        let offset = usize::try_from(self.random.below(room + 1)).unwrap_or(0);
        Spot { host, region: SOURCE, offset, length: length as usize }
    }

    /// What is expected in a spot.
    pub(super) fn bytes(&self, spot: Spot) -> &[u8] {
        let region = self.region(spot.host, spot.region);
        region.and_then(|region| region.bytes.get(spot.offset..)?.get(..spot.length)).unwrap_or(&[])
    }

    /// Random bytes that lie in no region.
    pub(super) fn inline(&mut self, length: u32) -> Vec<u8> {
        (0..length).map(|_| u8::try_from(self.random.below(256)).unwrap_or(0)).collect()
    }

    /// Segments of a host's source, and the bytes that they hold together.
    pub(super) fn gather(&mut self, host: usize, length: u32, count: u32) -> (Vec<Segment>, Vec<u8>) {
        let mut all = Vec::new();
        let mut segments = Vec::new();
        for length in pieces(&mut self.random, length, count) {
            let spot = self.source(host, length);
            all.extend_from_slice(self.bytes(spot));
            segments.push(self.segment(spot));
        }
        (segments, all)
    }

    /// Destinations that nothing else uses.
    pub(super) fn scatter(&mut self, host: usize, length: u32, count: u32) -> Vec<Spot> {
        let pieces = pieces(&mut self.random, length, count);
        pieces.into_iter().map(|length| self.target(host, length)).collect()
    }

    pub(super) fn segments(&self, spots: &[Spot]) -> Vec<Segment> {
        spots.iter().map(|spot| self.segment(*spot)).collect()
    }

    pub(super) fn expect(&mut self, spots: &[Spot], bytes: &[u8]) {
        let mut rest = bytes;
        for spot in spots {
            let (now, later) = rest.split_at(rest.len().min(spot.length));
            let region = self.hosts.get_mut(spot.host).and_then(|regions| regions.get_mut(spot.region));
            let place = region.and_then(|region| region.bytes.get_mut(spot.offset..)?.get_mut(..now.len()));
            if let Some(place) = place {
                place.copy_from_slice(now);
            }
            rest = later;
        }
    }

    /// Applies an atomic to a word: returns the value before.
    pub(super) fn apply(&mut self, host: usize, word: usize, operation: AtomicOperation) -> u64 {
        let spot = word_spot(host, word);
        let old = self.bytes(spot).try_into().map_or(0, u64::from_ne_bytes);
        self.expect(&[spot], &operation.apply(old).to_ne_bytes());
        old
    }

    /// What is in a spot.
    pub(super) fn real<'a, S: Storage>(&self, net: &'a Network<S>, spot: Spot) -> &'a [u8] {
        let id = self.registered(spot.host, spot.region).map(|region| region.id);
        let bytes = net.hosts.get(spot.host).zip(id).map_or(&[][..], |(host, id)| host.memory.bytes(id));
        bytes.get(spot.offset..).and_then(|rest| rest.get(..spot.length)).unwrap_or(&[])
    }

    /// Whether a spot is as expected.
    pub(super) fn is_placed<S: Storage>(&self, net: &Network<S>, spot: Spot) -> bool {
        self.real(net, spot) == self.bytes(spot)
    }

    /// Whatever is in a spot is right.
    pub(super) fn take_over<S: Storage>(&mut self, net: &Network<S>, spot: Spot) {
        let bytes = self.real(net, spot);
        self.expect(&[spot], bytes);
    }

    /// Compares all memory.
    pub(super) fn check<S: Storage>(&self, net: &Network<S>) -> Result<(), String> {
        for (host, (real, regions)) in net.hosts.iter().zip(&self.hosts).enumerate() {
            for (number, region) in regions.iter().enumerate() {
                let pairs = real.memory.bytes(region.registered.id).iter().zip(&region.bytes);
                if let Some(at) = pairs.clone().position(|(is, want)| is != want) {
                    let until = pairs.clone().rposition(|(is, want)| is != want);
                    return Err(format!("host {host}: region {number} differs from {at} to {until:?}"));
                }
            }
        }
        Ok(())
    }

    /// The applications use the memory for something else: whatever still arrives must leave it alone.
    pub(super) fn scribble<S: Storage>(&mut self, net: &mut Network<S>) {
        for (real, regions) in net.hosts.iter_mut().zip(&mut self.hosts) {
            for region in regions.iter_mut().skip(TARGET) {
                for bytes in [real.memory.bytes_mut(region.registered.id), &mut region.bytes] {
                    for byte in bytes {
                        *byte = !*byte;
                    }
                }
            }
        }
    }
}

/// A word for atomics (below [`WORDS`]) or for signals (above).
pub(super) const fn word_spot(host: usize, word: usize) -> Spot {
    Spot { host, region: WORD, offset: word * 8, length: 8 }
}

/// Cuts `length` into `count` pieces, some of them empty.
fn pieces(random: &mut Random, length: u32, count: u32) -> Vec<u32> {
    let mut left = length;
    let mut pieces = Vec::new();
    for number in 1..=count {
        let part = if number == count {
            left
        } else {
            u32::try_from(random.below(u64::from(left) + 1)).unwrap_or(0)
        };
        pieces.push(part);
        left -= part;
    }
    pieces
}
