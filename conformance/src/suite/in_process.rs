//! The port to an endpoint of the core in this process, in virtual time; and where faults are seeded.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use metaroce_core::wire::PlaneAddresses;
use metaroce_core::{
    Access, AtomicOperation, Config, Datagram, Disposition, Ecn, Endpoint, Event, HeapStorage, Instant,
    Limits, Memory, MemoryError, Progress, ProtectionDomain, RegionId, RegionOptions, RegisteredRegion,
    SourcePort, TableChecksum, Transmit,
};

use super::control::{Answer, Backend, Command, Interpreter, Settings};
use super::port::{Arrival, PLANES, Port, PortError, SOURCES, Source};
use crate::HostMemory;

/// One-way delay of the link, ns.
pub const DELAY_NS: u64 = 20_000;

/// A datagram on its way to the device.
#[derive(Clone, Debug)]
pub struct Inbound {
    /// Where from.
    pub source: SocketAddr,
    /// The plane of the device that it reaches.
    pub plane: u8,
    /// ECN codepoint.
    pub ecn: Ecn,
    /// The UDP payload.
    pub bytes: Vec<u8>,
}

/// A datagram that leaves the device.
#[derive(Clone, Debug)]
pub struct Outbound {
    /// Where from.
    pub source_port: u16,
    /// The plane that it leaves from.
    pub plane: u8,
    /// Where to.
    pub destination: SocketAddr,
    /// ECN codepoint.
    pub ecn: Ecn,
    /// The UDP payload.
    pub bytes: Vec<u8>,
    /// How long it is held before it leaves, ns.
    pub held_ns: u64,
}

/// What stands between the device and its surroundings, and may break a rule there. Every default changes nothing.
pub trait Shim {
    /// Changes the configuration.
    fn configure(&mut self, config: &mut Config, limits: &mut Limits) {
        let _ = (config, limits);
    }
    /// Changes a command before it is carried out; `Some` answers in the place of the device.
    fn command(&mut self, command: &mut Command) -> Option<Answer> {
        let _ = command;
        None
    }
    /// Changes an answer.
    fn answer(&mut self, command: &Command, answer: &mut Answer) {
        let _ = (command, answer);
    }
    /// Changes what comes in.
    fn input(&mut self, now_ns: u64, datagram: Inbound) -> Vec<Inbound> {
        let _ = now_ns;
        vec![datagram]
    }
    /// Sees what became of a datagram, and may meddle with memory.
    fn judged(&mut self, datagram: &Inbound, disposition: Disposition, memory: &mut ShimMemory) {
        let _ = (datagram, disposition, memory);
    }
    /// Changes what goes out.
    fn output(&mut self, now_ns: u64, datagram: Outbound) -> Vec<Outbound> {
        let _ = now_ns;
        vec![datagram]
    }
    /// Sends what the device would not.
    fn volunteer(&mut self, now_ns: u64) -> Vec<Outbound> {
        let _ = now_ns;
        Vec::new()
    }
    /// Changes what is written into memory; `false` drops it.
    fn write(&mut self, region: RegionId, offset: u64, bytes: &mut Vec<u8>) -> bool {
        let _ = (region, offset, bytes);
        true
    }
    /// Changes an atomic; `None` does nothing and answers 0.
    fn atomic(&mut self, operation: AtomicOperation) -> Option<AtomicOperation> {
        Some(operation)
    }
}

/// Changes nothing.
#[derive(Debug, Default)]
pub struct Honest;

impl Shim for Honest {}

/// The memory of the device, and the keys of its regions.
#[derive(Debug, Default)]
pub struct ShimMemory {
    host: HostMemory,
    /// Registered regions by key: key, base address, region.
    pub regions: Vec<(u32, u64, RegionId)>,
}

impl ShimMemory {
    /// Writes to a place that a peer named, whatever the rules say.
    pub fn poke(&mut self, key: u32, address: u64, bytes: &[u8]) {
        for (of, base, region) in &self.regions {
            if *of == key {
                // A place outside of it is no place.
                let _ = self.host.write(*region, address.wrapping_sub(*base), bytes);
            }
        }
    }

    /// Writes into a region.
    pub fn place(&mut self, region: RegionId, offset: u64, bytes: &[u8]) {
        // What passes its end is no place.
        let _ = self.host.write(region, offset, bytes);
    }

    /// Runs an atomic at a place that a peer named, whatever the rules say.
    pub fn poke_atomic(&mut self, key: u32, address: u64, operation: AtomicOperation) {
        for (of, base, region) in &self.regions {
            if *of == key {
                // A place outside of it is no place.
                let _ = self.host.atomic(*region, address.wrapping_sub(*base), operation);
            }
        }
    }
}

/// The core as a device under test.
pub struct Core {
    endpoint: Endpoint<HeapStorage>,
    memory: ShimMemory,
    shim: Box<dyn Shim>,
    seed: u64,
    now: Instant,
}

/// What a device of ours holds, where the suite does not ask for something else.
pub const DEVICE_LIMITS: Limits = Limits {
    connections: 16,
    streams: 256,
    requests: 1024,
    receives: 1024,
    messages: 1024,
    packets: 8192,
    queues: 16,
    regions: 128,
    csn_window: 4096,
    ..Limits::HOST
};

impl Core {
    fn make(seed: u64, settings: &Settings, shim: &mut dyn Shim) -> Result<Endpoint<HeapStorage>, String> {
        let mut config = Config::sockets(seed);
        let mut limits = DEVICE_LIMITS;
        settings.apply(&mut config, &mut limits);
        let planes: Vec<SocketAddr> = (1..settings.planes.unwrap_or(1)).map(device_on).collect();
        config.planes = PlaneAddresses::from_slice(&planes).ok_or("so many planes are not possible")?;
        shim.configure(&mut config, &mut limits);
        Endpoint::new(config, HeapStorage::new(&limits)).map_err(|error| error.to_string())
    }
}

impl Backend for Core {
    fn name(&self) -> String {
        concat!("metaroce-core ", env!("CARGO_PKG_VERSION"), " in process").to_owned()
    }

    fn address(&self) -> SocketAddr {
        DEVICE
    }

    fn restart(&mut self, settings: &Settings) -> Result<(), String> {
        self.seed = self.seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        self.endpoint = Self::make(self.seed, settings, &mut *self.shim)?;
        self.memory = ShimMemory::default();
        Ok(())
    }

    fn endpoint(&mut self) -> Result<&mut Endpoint<HeapStorage>, String> {
        Ok(&mut self.endpoint)
    }

    fn now(&self) -> Instant {
        self.now
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.endpoint.poll_event()
    }

    fn register(
        &mut self,
        length: u32,
        base: u64,
        access: Access,
        domain: ProtectionDomain,
    ) -> Result<RegisteredRegion, String> {
        let options = RegionOptions { length: u64::from(length), base_address: base, access, domain };
        let region = self.endpoint.register_region(options).map_err(|error| error.to_string())?;
        self.memory.host.attach(region.id, vec![0; length as usize]);
        self.memory.regions.push((region.key.0, base, region.id));
        Ok(region)
    }

    fn deregister(&mut self, region: RegionId) -> Result<(), String> {
        self.endpoint.deregister_region(region).map_err(|error| error.to_string())
    }

    fn read(&self, region: RegionId, offset: u64, length: usize) -> Result<Vec<u8>, String> {
        let start = usize::try_from(offset).map_err(|error| error.to_string())?;
        let bytes = self.memory.host.bytes(region).get(start..).and_then(|rest| rest.get(..length));
        bytes.map(<[u8]>::to_vec).ok_or_else(|| "past the end of the region".to_owned())
    }

    fn write(&mut self, region: RegionId, offset: u64, bytes: &[u8]) -> Result<(), String> {
        self.memory.host.write(region, offset, bytes).map_err(|_| "past the end of the region".to_owned())
    }
}

/// The link to a [`Core`].
pub struct InProcess {
    core: Core,
    interpreter: Interpreter,
    now_ns: u64,
    to_device: VecDeque<(u64, Inbound)>,
    to_suite: VecDeque<Arrival>,
    batch: Vec<Transmit>,
}

impl InProcess {
    /// An honest device.
    ///
    /// # Errors
    /// If the endpoint refuses its configuration.
    pub fn new(seed: u64) -> Result<Self, String> {
        Self::with_shim(seed, Box::new(Honest))
    }

    /// A device behind a shim.
    ///
    /// # Errors
    /// If the endpoint refuses its configuration.
    pub fn with_shim(seed: u64, mut shim: Box<dyn Shim>) -> Result<Self, String> {
        let endpoint = Core::make(seed, &Settings::default(), &mut *shim)?;
        let now = Instant::from_nanos(START_NS + SKEW_NS);
        Ok(Self {
            core: Core { endpoint, memory: ShimMemory::default(), shim, seed, now },
            interpreter: Interpreter::default(),
            now_ns: START_NS,
            to_device: VecDeque::new(),
            to_suite: VecDeque::new(),
            batch: vec![Transmit::EMPTY; 64],
        })
    }

    /// Lets the device fire its timers and send, until it rests.
    fn settle(&mut self) {
        for _ in 0..ROUNDS_MAX {
            let core = &mut self.core;
            core.now = Instant::from_nanos(self.now_ns + SKEW_NS);
            let progress = core.endpoint.handle_timeout(core.now);
            let mut batch = std::mem::take(&mut self.batch);
            let sent = core.endpoint.poll_transmit(core.now, &mut batch);
            for transmit in batch.iter_mut().take(sent) {
                self.send_out(transmit);
            }
            self.batch = batch;
            for datagram in self.core.shim.volunteer(self.now_ns) {
                self.put_on_link(datagram);
            }
            if sent == 0 && progress == Progress::Done {
                return;
            }
        }
    }

    fn send_out(&mut self, transmit: &mut Transmit) {
        let core = &mut self.core;
        let parts: Vec<&[u8]> = transmit.payload().iter().map(|part| core.memory.host.part(part)).collect();
        let parts: Vec<Vec<u8>> = parts.into_iter().map(<[u8]>::to_vec).collect();
        transmit.seal(&TableChecksum, parts.iter().map(Vec::as_slice));
        let mut bytes = transmit.header().to_vec();
        for part in &parts {
            bytes.extend_from_slice(part);
        }
        bytes.resize(bytes.len() + transmit.padding(), 0);
        let source_port = match transmit.source {
            SourcePort::Receive => DEVICE.port(),
            SourcePort::Path(port) => port,
        };
        let Transmit { destination, plane, ecn, .. } = *transmit;
        let datagram = Outbound { source_port, plane, destination, ecn, bytes, held_ns: 0 };
        for datagram in core.shim.output(self.now_ns, datagram) {
            self.put_on_link(datagram);
        }
    }

    fn put_on_link(&mut self, datagram: Outbound) {
        let Some(to) = index_of(datagram.destination) else { return };
        let arrival = Arrival {
            at_ns: self.now_ns + DELAY_NS + datagram.held_ns,
            from: SocketAddr::new(device_on(datagram.plane).ip(), datagram.source_port),
            to,
            ecn: datagram.ecn,
            bytes: datagram.bytes,
        };
        let place = self.to_suite.partition_point(|other| other.at_ns <= arrival.at_ns);
        self.to_suite.insert(place, arrival);
    }

    /// Hands in everything that has arrived.
    fn deliver(&mut self) {
        while self.to_device.front().is_some_and(|(at_ns, _)| *at_ns <= self.now_ns) {
            let Some((_, datagram)) = self.to_device.pop_front() else { return };
            let core = &mut self.core;
            core.now = Instant::from_nanos(self.now_ns + SKEW_NS);
            for datagram in core.shim.input(self.now_ns, datagram) {
                let Inbound { source, plane, ecn, .. } = datagram;
                let view = Datagram { source, plane, ecn, bytes: &datagram.bytes };
                let mut memory = Shimmed { memory: &mut core.memory, shim: &mut *core.shim };
                let disposition = core.endpoint.handle_datagram(core.now, view, &mut memory);
                core.shim.judged(&datagram, disposition, &mut core.memory);
            }
        }
    }
}

impl Port for InProcess {
    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn is_exact(&self) -> bool {
        true
    }

    fn device(&self) -> SocketAddr {
        DEVICE
    }

    fn local(&self, source: Source) -> Option<SocketAddr> {
        match source {
            Source::Main => Some(SUITE),
            Source::Other(number) if number <= SOURCES => {
                Some(SocketAddr::new(SUITE.ip(), 40_000 + u16::from(number)))
            }
            Source::Plane(plane) if (1..=PLANES).contains(&plane) => Some(suite_on(plane)),
            Source::Other(_) | Source::Plane(_) => None,
            Source::Stranger => Some(STRANGER),
        }
    }

    // Planes of the device are where this link has them.
    fn join(&mut self, _: &[SocketAddr]) {}

    fn send(&mut self, from: Source, ecn: Ecn, bytes: &[u8]) -> Result<(), PortError> {
        let source = self.local(from);
        let source = source.ok_or_else(|| PortError::Unsupported("no such source".to_owned()))?;
        let plane = if let Source::Plane(plane) = from { plane } else { 0 };
        let datagram = Inbound { source, plane, ecn, bytes: bytes.to_vec() };
        self.to_device.push_back((self.now_ns + DELAY_NS, datagram));
        Ok(())
    }

    fn receive(&mut self, until_ns: u64) -> Result<Option<Arrival>, PortError> {
        loop {
            self.settle();
            let arrival = self.to_suite.front().map(|arrival| arrival.at_ns);
            if arrival.is_some_and(|at_ns| at_ns <= self.now_ns) {
                return Ok(self.to_suite.pop_front());
            }
            let delivery = self.to_device.front().map(|(at_ns, _)| *at_ns);
            let deadline = self.core.endpoint.next_deadline();
            let deadline = deadline.map(|at| at.as_nanos().saturating_sub(SKEW_NS).max(self.now_ns + 1));
            match arrival.into_iter().chain(delivery).chain(deadline).min() {
                Some(next_ns) if next_ns <= until_ns => self.now_ns = self.now_ns.max(next_ns),
                _ => {
                    self.now_ns = self.now_ns.max(until_ns);
                    return Ok(None);
                }
            }
            self.deliver();
        }
    }

    fn command(&mut self, command: &Command) -> Result<Answer, PortError> {
        self.settle();
        let mut command = command.clone();
        let early = self.core.shim.command(&mut command);
        let mut answer = early.unwrap_or_else(|| self.interpreter.execute(&mut self.core, &command));
        if matches!((&command, &answer), (Command::Restart { .. }, Answer::Done)) {
            self.to_device.clear();
            self.to_suite.clear();
        }
        self.core.shim.answer(&command, &mut answer);
        Ok(answer)
    }
}

/// The memory as the core sees it.
struct Shimmed<'a> {
    memory: &'a mut ShimMemory,
    shim: &'a mut dyn Shim,
}

impl Memory for Shimmed<'_> {
    fn write(&mut self, region: RegionId, offset: u64, bytes: &[u8]) -> Result<(), MemoryError> {
        let mut bytes = bytes.to_vec();
        if self.shim.write(region, offset, &mut bytes) {
            self.memory.host.write(region, offset, &bytes)?;
        }
        Ok(())
    }

    fn atomic(
        &mut self,
        region: RegionId,
        offset: u64,
        operation: AtomicOperation,
    ) -> Result<u64, MemoryError> {
        match self.shim.atomic(operation) {
            Some(operation) => self.memory.host.atomic(region, offset, operation),
            None => Ok(0),
        }
    }
}

fn index_of(address: SocketAddr) -> Option<u8> {
    match address {
        SUITE => Some(Source::Main.number()),
        STRANGER => Some(Source::Stranger.number()),
        _ if address.ip() == SUITE.ip() => {
            let number = address.port().checked_sub(40_000).and_then(|number| u8::try_from(number).ok())?;
            (1..=SOURCES).contains(&number).then_some(number)
        }
        _ => {
            let plane = (1..=PLANES).find(|plane| suite_on(*plane) == address)?;
            Some(Source::Plane(plane).number())
        }
    }
}

/// Where the device receives on a plane.
const fn device_on(plane: u8) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, plane, 2)), 4795)
}

/// Where the suite receives on a plane.
const fn suite_on(plane: u8) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, plane, 1)), 4795)
}

const DEVICE: SocketAddr = device_on(0);
const SUITE: SocketAddr = suite_on(0);
const STRANGER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 3)), 4795);

const START_NS: u64 = 1_000_000_000;

/// How far the device's clock is ahead of the suite's.
//= MR-SEC-9 test
const SKEW_NS: u64 = 123_456_789_012;

const ROUNDS_MAX: usize = 100_000;
