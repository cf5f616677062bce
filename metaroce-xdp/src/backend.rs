//! The backend: planes on `AF_XDP` sockets, and UDP sockets beside them for what those can't carry.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::time::{Duration, Instant as SystemInstant};

use metaroce_core::crc::Checksum;
use metaroce_core::time::Instant;
use metaroce_core::transmit::{SourcePort, Transmit};
use metaroce_mio::backend::{
    Backend, DATAGRAMS_PER_ROUND, OpenBackend, Outcome, Packet, ReceiveRound, spin_time,
};
use metaroce_mio::sys::{ReceiveBatch, SendFault};
use metaroce_mio::{BuildError, Capabilities, DriverConfig, DriverStats, Host, HostDriver, Polled, Waker};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

use crate::assemble::{Whole, assemble};
use crate::attach::Attachment;
use crate::error::OpenError;
use crate::filter::{Filter, Scope};
use crate::options::XdpOptions;
use crate::port::{Port, Sent};
use crate::stats::PortStats;
use crate::steer::{Inlet, MEMBERS_MAX, Steering, SteeringStats};
use crate::sys::poll::wait_readable;

/// `AF_XDP` sockets: the backend of [`Driver`](crate::Driver).
pub struct Xdp {
    ports: Vec<Port>,
    /// UDP sockets at the same addresses. They keep the ports, take what the filters pass on (fragments, other queues,
    /// packets from this machine), and send what has no way through the interface or none yet.
    kernel: Polled,
    kernel_batch: ReceiveBatch,
    /// The other endpoints at the same address, if there are any.
    steering: Option<Steering>,
    checksum: &'static dyn Checksum,
    datagram_bytes_max: u16,
    /// The plane that is served first next time.
    first: usize,
    /// Rounds of receiving until the UDP sockets are looked at without word of them.
    until_kernel: u32,
    /// What that starts from: the longer, the longer nothing came.
    kernel_pause: u32,
    /// When the ports' tables are looked at without word of a change.
    refresh_at: Instant,
    /// When to have the kernel send again.
    retry_at: Option<Instant>,
    /// How long that was put off: the longer, the longer nothing goes.
    retry_ns: u64,
    scratch: Vec<u8>,
    poll: Poll,
    events: Events,
    waker: Arc<mio::Waker>,
}

/// The options of each plane, in the order of [`DriverConfig::local`].
pub type Planes = Vec<XdpOptions>;

impl OpenBackend for Xdp {
    type Options = Planes;

    fn open(config: &DriverConfig, planes: Planes) -> Result<Self, BuildError> {
        if planes.len() != config.local.len() {
            let text = "give the options of one interface for each local address";
            return Err(BuildError::Unsupported(text.to_owned()));
        }
        let kernel = open_kernel(config, false)?;
        let local = kernel.local_addresses();
        let mut ports = Vec::with_capacity(planes.len());
        for (options, local) in planes.iter().zip(local) {
            let attachment = attach(options, local, config.endpoint.mtu_bytes)?;
            ports.push(Port::open(options, attachment, local)?);
        }
        Self::new(config, kernel, ports)
    }
}

impl Xdp {
    fn new(config: &DriverConfig, mut kernel: Polled, ports: Vec<Port>) -> Result<Self, BuildError> {
        let (poll, waker) = make_poll(&mut kernel, &ports)?;
        let datagram_bytes_max = ports.iter().map(Port::datagram_bytes_max).min().unwrap_or(usize::MAX);
        Ok(Self {
            ports,
            kernel,
            kernel_batch: ReceiveBatch::new(KERNEL_SLOTS, usize::from(config.endpoint.mtu_bytes) + 1),
            steering: None,
            checksum: config.endpoint.checksum,
            datagram_bytes_max: u16::try_from(datagram_bytes_max).unwrap_or(u16::MAX),
            first: 0,
            until_kernel: 0,
            kernel_pause: 0,
            refresh_at: Instant::ZERO,
            retry_at: None,
            retry_ns: 0,
            scratch: Vec::new(),
            poll,
            events: Events::with_capacity(EVENTS),
            waker: Arc::new(waker),
        })
    }

    /// How each plane is used, and what happened on it.
    pub fn planes(&self) -> impl Iterator<Item = PortStats> {
        self.ports.iter().map(Port::stats)
    }

    /// What arrived on the queues of other endpoints at the same address; `None` if there are none.
    #[must_use]
    pub fn steering(&self) -> Option<SteeringStats> {
        self.steering.as_ref().map(Steering::stats)
    }

    /// Receives from the UDP sockets; returns whether they are empty.
    fn receive_from_kernel(
        &mut self,
        now: Instant,
        datagrams: &mut usize,
        host: &mut Host,
    ) -> io::Result<bool> {
        let mut drained = true;
        for plane in 0..self.ports.len() {
            let Some(socket) = self.kernel.sockets().receiving(plane) else { continue };
            host.stats.receive_calls += 1;
            host.stats.system_calls += 1;
            match self.kernel_batch.receive(socket, false) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) if is_passing(&error) => {
                    host.stats.receive_errors += 1;
                    drained = false;
                    continue;
                }
                Err(error) => return Err(error),
            }
            let mut inlet = Inlet { now, plane, host, steering: self.steering.as_mut() };
            for (message, bytes) in self.kernel_batch.messages() {
                *datagrams += inlet.hand_in(message, bytes);
            }
            drained &= self.kernel_batch.drained();
        }
        Ok(drained)
    }

    /// Sends a datagram of the core through the UDP sockets.
    fn send_through_kernel(&mut self, now: Instant, transmit: &Transmit, host: &mut Host) -> Outcome {
        self.scratch.resize(transmit.datagram_length(), 0);
        let mut whole = Whole::new(&mut self.scratch);
        if assemble(transmit, &host.regions, self.checksum, &mut whole).is_err() {
            host.stats.stale_payloads += 1;
            return Outcome::Gone;
        }
        let packet = Packet {
            destination: transmit.destination,
            plane: transmit.plane,
            // No socket for each path, not even here.
            source: SourcePort::Receive,
            ecn: transmit.ecn,
            bytes: &self.scratch,
        };
        self.kernel.send_packet(now, &packet, host)
    }

    /// Looks for `spin` whether something arrives, without a system call; says whether it did.
    fn spin(&mut self, spin: Duration) -> bool {
        let start = SystemInstant::now();
        loop {
            for port in &mut self.ports {
                port.poll_device();
            }
            if self.has_input() {
                return true;
            }
            if start.elapsed() >= spin {
                return false;
            }
            for _ in 0..SPINS_PER_CLOCK {
                std::hint::spin_loop();
            }
        }
    }

    fn refresh(&mut self, now: Instant) {
        self.refresh_at = now.after(REFRESH_NS);
        for port in &mut self.ports {
            port.refresh();
        }
    }
}

impl Backend for Xdp {
    fn name(&self) -> &'static str {
        "xdp"
    }

    fn local_addresses(&self) -> Vec<SocketAddr> {
        self.ports.iter().map(Port::local).collect()
    }

    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::default();
        (capabilities.ecn, capabilities.overflow_counter) = (true, true);
        capabilities
    }

    fn datagram_bytes_max(&self) -> u16 {
        self.datagram_bytes_max
    }

    fn seals(&self) -> bool {
        true
    }

    fn add_stats(&self, stats: &mut DriverStats) {
        self.kernel.add_stats(stats);
        for port in self.planes() {
            stats.receive_overflows += port.dropped;
        }
    }

    fn source_address(&self, plane: u8, source: SourcePort) -> Option<SocketAddr> {
        let mut address = self.kernel.source_address(plane, SourcePort::Receive)?;
        if let SourcePort::Path(port) = source {
            address.set_port(port);
        }
        Some(address)
    }

    fn receive(&mut self, now: Instant, host: &mut Host) -> io::Result<ReceiveRound> {
        let mut round = ReceiveRound { datagrams: 0, drained: true };
        if now >= self.refresh_at {
            self.refresh(now);
        }
        // First, since what comes this way has taken longer.
        if self.until_kernel == 0 {
            let drained = self.receive_from_kernel(now, &mut round.datagrams, host)?;
            round.drained &= drained;
            let busy = round.datagrams > 0 || !drained;
            self.kernel_pause = if busy { 0 } else { (2 * self.kernel_pause + 1).min(ROUNDS_PER_KERNEL) };
            self.until_kernel = self.kernel_pause;
        } else {
            self.until_kernel -= 1;
        }
        let ports = self.ports.len();
        for offset in 0..ports {
            let plane = (self.first + offset) % ports;
            if let Some(port) = self.ports.get_mut(plane) {
                let mut inlet = Inlet { now, plane, host, steering: self.steering.as_mut() };
                round.drained &= port.receive(&mut round.datagrams, &mut inlet);
            }
        }
        self.first = (self.first + 1) % ports.max(1);
        if let Some(steering) = &mut self.steering {
            steering.wake_others();
            round.datagrams += steering.take_over(now, DATAGRAMS_PER_ROUND, host);
            round.drained &= !steering.has_input();
        }
        Ok(round)
    }

    fn segments_max(&self) -> usize {
        1
    }

    fn send_run(&mut self, now: Instant, run: &[Transmit], host: &mut Host) -> Outcome {
        let Some(transmit) = run.first() else { return Outcome::Gone };
        let Some(port) = self.ports.get_mut(usize::from(transmit.plane)) else {
            host.stats.send_errors.unroutable += 1;
            return Outcome::Gone;
        };
        match port.send(now, transmit, self.checksum, &host.regions, &mut host.stats) {
            Sent::Gone => Outcome::Gone,
            Sent::Later => Outcome::Later,
            Sent::ThroughKernel => self.send_through_kernel(now, transmit, host),
        }
    }

    fn send_packet(&mut self, now: Instant, packet: &Packet<'_>, host: &mut Host) -> Outcome {
        let Some(port) = self.ports.get_mut(usize::from(packet.plane)) else {
            host.stats.send_errors.unroutable += 1;
            return Outcome::Gone;
        };
        match port.send_bytes(now, packet, &mut host.stats) {
            Sent::Gone => Outcome::Gone,
            Sent::Later => Outcome::Later,
            Sent::ThroughKernel => {
                self.kernel.send_packet(now, &Packet { source: SourcePort::Receive, ..*packet }, host)
            }
        }
    }

    fn flush(&mut self, now: Instant, host: &mut Host) -> io::Result<()> {
        let mut blocked = false;
        for port in &mut self.ports {
            blocked |= !port.flush(&mut host.stats);
        }
        self.retry_ns = if blocked { (2 * self.retry_ns).clamp(RETRY_NS_MIN, RETRY_NS_MAX) } else { 0 };
        self.retry_at = blocked.then(|| now.after(self.retry_ns));
        self.kernel.flush(now, host)
    }

    fn on_unblocked(&mut self) {
        self.kernel.on_unblocked();
    }

    fn has_input(&mut self) -> bool {
        self.ports.iter().any(|port| !port.is_idle())
            || self.steering.as_ref().is_some_and(Steering::has_input)
    }

    fn deadline(&self) -> Option<Instant> {
        self.retry_at
    }

    fn wait(&mut self, timeout: Option<Duration>, spin: Duration, host: &mut Host) -> io::Result<()> {
        let spin = spin_time(timeout, spin);
        if self.spin(spin) || timeout.is_some_and(|timeout| timeout <= spin) {
            return Ok(());
        }
        let timeout = timeout.map(|timeout| timeout.saturating_sub(spin));
        // What is rarely heard of shares one descriptor, the first.
        let sockets = self.ports.iter().map(|port| port.descriptors().0);
        let ready = wait_readable([self.poll.as_raw_fd()].into_iter().chain(sockets), timeout)?;
        host.stats.system_calls += 1;
        if ready & 1 == 0 {
            return Ok(());
        }
        host.stats.system_calls += 1;
        match self.poll.poll(&mut self.events, Some(Duration::ZERO)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        for event in &self.events {
            match event.token() {
                KERNEL => self.until_kernel = 0,
                TABLES => self.refresh_at = Instant::ZERO,
                _ => {}
            }
        }
        Ok(())
    }

    fn waker(&mut self) -> io::Result<Waker> {
        let waker = Arc::clone(&self.waker);
        Ok(Waker::new(move || waker.wake()))
    }
}

impl fmt::Debug for Xdp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Xdp")
            .field("ports", &self.ports)
            .field("kernel", &self.kernel)
            .finish_non_exhaustive()
    }
}

/// Opens a driver for each of several queues of an interface, all behind one filter, one address and one port, each to be
/// driven by a thread of its own. A connection belongs to the driver on whose queue its first packet arrived, or that
/// opened it; packets that arrive on another's queue are handed over.
///
/// Give `config` one local address and a seed; each endpoint gets a seed of its own made of that.
///
/// # Errors
/// [`BuildError`], as for one driver; `Unsupported` for no queue, or more than 64.
pub fn open_queues(
    config: &DriverConfig,
    options: &XdpOptions,
    queues: &[u32],
) -> Result<Vec<HostDriver<Xdp>>, BuildError> {
    let [_] = config.local.as_slice() else {
        return Err(BuildError::Unsupported("give one local address for all queues".to_owned()));
    };
    if queues.is_empty() || queues.len() > MEMBERS_MAX {
        return Err(BuildError::Unsupported("give 1 to 64 queues".to_owned()));
    }
    let mut config = config.clone();
    let mut attached: Option<(Arc<Attachment>, SocketAddr)> = None;
    let mut backends = Vec::with_capacity(queues.len());
    for queue in queues {
        let kernel = open_kernel(&config, true)?;
        let (attachment, local) = if let Some((attachment, local)) = &attached {
            (Arc::clone(attachment), *local)
        } else {
            let local = kernel.local_addresses().first().copied();
            let local = local.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
            let attachment = attach(options, local, config.endpoint.mtu_bytes)?;
            // The others share the port that the first one got.
            config.local = vec![local];
            attached = Some((Arc::clone(&attachment), local));
            (attachment, local)
        };
        let options = XdpOptions { queue: *queue, ..options.clone() };
        let port = Port::open(&options, attachment, local)?;
        backends.push(Xdp::new(&config, kernel, vec![port])?);
    }
    let wakers: Vec<_> = backends.iter().map(|backend| Arc::clone(&backend.waker)).collect();
    let mut drivers = Vec::with_capacity(queues.len());
    for ((index, mut backend), steering) in (0u64..).zip(backends).zip(Steering::join(&wakers)) {
        let mut config = config.clone();
        config.endpoint.connection_prefix = steering.prefix();
        config.endpoint.seed = config.endpoint.seed.wrapping_add(index.wrapping_mul(SEED_STEP));
        backend.steering = Some(steering);
        drivers.push(HostDriver::with_backend(config, backend)?);
    }
    Ok(drivers)
}

/// UDP sockets at the addresses; `shared` if others have the same.
fn open_kernel(config: &DriverConfig, shared: bool) -> Result<Polled, BuildError> {
    let mut config = config.clone();
    // Coalescing in the kernel would keep packets from the filter.
    (config.sockets.gro, config.sockets.gso) = (false, false);
    config.sockets.reuse_port = shared;
    Polled::open(&config, ())
}

fn attach(options: &XdpOptions, local: SocketAddr, mtu_bytes: u16) -> Result<Arc<Attachment>, OpenError> {
    options.check()?;
    let scope = match local.ip() {
        IpAddr::V6(ip) if ip.is_unspecified() => Scope::Any,
        IpAddr::V4(ip) if ip.is_unspecified() => Scope::AnyV4,
        ip => Scope::Address(ip),
    };
    let filter = Filter { port: local.port(), scope, payload_bytes_max: mtu_bytes };
    Ok(Arc::new(Attachment::new(options, filter)?))
}

/// Whether an error on receiving says nothing about the socket: an ICMP message about an earlier send, or a signal.
fn is_passing(error: &io::Error) -> bool {
    !matches!(SendFault::of(error), SendFault::Unsupported | SendFault::Other)
}

/// Registers what ends a wait beside the ports' sockets.
fn make_poll(kernel: &mut Polled, ports: &[Port]) -> io::Result<(Poll, mio::Waker)> {
    let poll = Poll::new()?;
    let registry = poll.registry();
    kernel.sockets_mut().register(registry, KERNEL)?;
    for port in ports {
        let (_, tables) = port.descriptors();
        registry.register(&mut SourceFd(&tables), TABLES, Interest::READABLE)?;
    }
    let waker = mio::Waker::new(registry, WAKER)?;
    Ok((poll, waker))
}

impl From<OpenError> for BuildError {
    fn from(error: OpenError) -> Self {
        Self::Unsupported(error.to_string())
    }
}

const KERNEL: Token = Token(0);
const TABLES: Token = Token(1);
const WAKER: Token = Token(2);

/// Events taken at once.
const EVENTS: usize = 16;

/// Rounds of receiving after which the UDP sockets are looked at even if nobody waited for them.
const ROUNDS_PER_KERNEL: u32 = 64;

/// The kernel's tables are looked at after this time even if nobody waited for word of them.
const REFRESH_NS: u64 = 100_000_000;

/// When to have the kernel send again what it did not take, ns: at first, and after a long time in vain (an interface
/// that is down).
const RETRY_NS_MIN: u64 = 50_000;
const RETRY_NS_MAX: u64 = 10_000_000;

/// Messages taken from a UDP socket at once.
const KERNEL_SLOTS: usize = 64;

/// Between the seeds of two endpoints (the golden ratio, as `SplitMix64` has it).
const SEED_STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Pauses between two looks at the clock.
const SPINS_PER_CLOCK: u32 = 16;
