//! An endpoint with memory that knows what may be written, and a list of what has to complete.

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;

use metaroce_core::{
    Access, AtomicOperation, CloseMode, Config, ConnectionHandle, DatagramAddress, Endpoint, Event,
    HeapStorage, Instant, Limits, Memory, MemoryError, ProtectionDomain, QueueId, QueueOptions, RegionId,
    RegionOptions, RegisteredRegion,
};

use crate::probe;

/// Bytes of each region.
pub const REGION_BYTES: u32 = 20_000;
/// Bytes of the closed region that receives and results may use; nothing may write behind them.
pub const SINK_BYTES: u32 = 16_000;
/// Datagrams that are remembered.
const SEEN: usize = 16;

/// The memory of a host.
pub struct Regions {
    /// Open to peers.
    pub open: RegisteredRegion,
    /// For receives and results only.
    pub closed: RegisteredRegion,
    /// Deregistered.
    pub gone: RegisteredRegion,
    bytes: Vec<u8>,
}

impl Regions {
    /// Bounds are the core's to check: whatever comes here must be right.
    fn check(&self, region: RegionId, offset: u64, length: usize) {
        let room = if region == self.open.id { REGION_BYTES } else { SINK_BYTES };
        assert!(region == self.open.id || region == self.closed.id, "{region:?} is not registered");
        let end = offset.checked_add(length as u64);
        assert!(end.is_some_and(|end| end <= u64::from(room)), "{length} bytes at {offset} of {region:?}");
    }

    fn stretch(&mut self, region: RegionId, offset: u64, length: usize) -> &mut [u8] {
        self.check(region, offset, length);
        let start = usize::try_from(offset).unwrap();
        let base = if region == self.open.id { 0 } else { REGION_BYTES as usize };
        &mut self.bytes[base + start..base + start + length]
    }

    /// The bytes of a part that is to be sent.
    pub fn part(&self, region: RegionId, offset: u64, length: u32) -> &[u8] {
        assert_eq!(region, self.open.id, "only the open region is sent from");
        self.check(region, offset, length as usize);
        let start = usize::try_from(offset).unwrap();
        &self.bytes[start..start + length as usize]
    }
}

impl Memory for Regions {
    fn write(&mut self, region: RegionId, offset: u64, bytes: &[u8]) -> Result<(), MemoryError> {
        self.stretch(region, offset, bytes.len()).copy_from_slice(bytes);
        Ok(())
    }

    fn atomic(
        &mut self,
        region: RegionId,
        offset: u64,
        operation: AtomicOperation,
    ) -> Result<u64, MemoryError> {
        assert!(offset.is_multiple_of(8), "an atomic at {offset}");
        let word = self.stretch(region, offset, 8);
        let old = u64::from_ne_bytes((&*word).try_into().unwrap());
        word.copy_from_slice(&operation.apply(old).to_ne_bytes());
        Ok(old)
    }
}

/// One endpoint.
pub struct Host {
    /// The state machine.
    pub endpoint: Endpoint<HeapStorage>,
    /// Its memory.
    pub regions: Regions,
    /// Connections that are not over.
    pub connections: Vec<ConnectionHandle>,
    /// Where it receives.
    pub address: SocketAddr,
    /// Requests and receives that were taken and have not completed.
    pub outstanding: BTreeSet<u64>,
    /// Takes datagrams; also the shared queue.
    pub queue: QueueId,
    /// The newest datagrams that were for it.
    pub seen: VecDeque<Vec<u8>>,
    next_id: u64,
}

impl Host {
    /// A host; `number` is that of its queue, too.
    pub fn new(config: &Config, limits: &Limits, number: u8) -> Self {
        let mut endpoint = Endpoint::new(*config, HeapStorage::new(limits)).expect("valid configuration");
        let mut register = |access| {
            let length = u64::from(REGION_BYTES);
            let options = RegionOptions { length, base_address: 0, access, domain: ProtectionDomain(0) };
            endpoint.register_region(options).expect("room for a region")
        };
        let open = register(Access::ALL);
        let (closed, gone) = (register(Access::LOCAL_WRITE), register(Access::ALL));
        endpoint.deregister_region(gone.id).expect("nothing uses it");
        let datagrams = Some(DatagramAddress { number: 9, key: 0 });
        let queue = endpoint.create_queue(QueueOptions { datagrams, ..QueueOptions::default() });
        Self {
            endpoint,
            regions: Regions { open, closed, gone, bytes: vec![0; 2 * REGION_BYTES as usize] },
            connections: Vec::new(),
            address: SocketAddr::from(([10, 0, 0, number], 4795)),
            outstanding: BTreeSet::new(),
            queue: queue.expect("room for a queue"),
            seen: VecDeque::new(),
            next_id: 0,
        }
    }

    /// An id that was never used.
    pub fn fresh_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Remembers a datagram.
    pub fn remember(&mut self, bytes: Vec<u8>) {
        self.seen.push_back(bytes);
        if self.seen.len() > SEEN {
            self.seen.pop_front();
        }
    }

    /// Takes all events: accepts who comes, and strikes out what completes.
    pub fn take_events(&mut self, now: Instant) {
        while let Some(event) = probe::poll_event(&mut self.endpoint) {
            match event {
                Event::Incoming { connection, .. } => self.accept(now, connection),
                Event::Closed { connection, .. } => self.connections.retain(|open| *open != connection),
                Event::Completion(done) => self.strike(done.id, &event),
                Event::DatagramSent { id, .. } => self.strike(id, &event),
                Event::DatagramReceived(done) => self.strike(done.id, &event),
                _ => {}
            }
        }
    }

    fn accept(&mut self, now: Instant, connection: ConnectionHandle) {
        let accepted = self.endpoint.accept(now, connection, ProtectionDomain(0), &[]);
        if accepted.is_ok() && !self.connections.contains(&connection) {
            self.connections.push(connection);
        }
    }

    fn strike(&mut self, id: u64, event: &Event) {
        assert!(self.outstanding.remove(&id), "completed twice, or never posted: {event:?}");
    }

    /// Closes every connection, at once.
    pub fn close_all(&mut self, now: Instant) {
        for connection in self.connections.clone() {
            let _ = self.endpoint.close(now, connection, CloseMode::Flush);
        }
    }
}
