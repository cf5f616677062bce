//! The backend: planes on `AF_XDP` sockets, and UDP sockets beside them for what those can't carry.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant as SystemInstant};

use metaroce_core::crc::Checksum;
use metaroce_core::time::Instant;
use metaroce_core::transmit::{SourcePort, Transmit};
use metaroce_mio::backend::{Backend, OpenBackend, Outcome, Packet, ReceiveRound};
use metaroce_mio::{BuildError, Capabilities, DriverConfig, DriverStats, Host, Polled, Waker, wait};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

use crate::assemble::{Whole, assemble};
use crate::attach::Attachment;
use crate::error::OpenError;
use crate::filter::{Filter, Scope};
use crate::options::XdpOptions;
use crate::port::{Port, Sent};
use crate::stats::PortStats;

/// `AF_XDP` sockets: the backend of [`Driver`](crate::Driver).
pub struct Xdp {
    ports: Vec<Port>,
    /// UDP sockets at the same addresses. They keep the ports, take what the filters pass on (fragments, other queues,
    /// packets from this machine), and send what has no way through the interface or none yet.
    kernel: Polled,
    checksum: &'static dyn Checksum,
    datagram_bytes_max: u16,
    /// The plane that is served first next time.
    first: usize,
    /// Rounds of receiving until the UDP sockets are looked at without word of them.
    until_kernel: u32,
    /// When the ports' tables are looked at without word of a change.
    refresh_at: Instant,
    /// When to have the kernel send again.
    retry_at: Option<Instant>,
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
        let mut sockets = config.clone();
        // Coalescing in the kernel would keep packets from the filter.
        (sockets.sockets.gro, sockets.sockets.gso) = (false, false);
        let mut kernel = Polled::open(&sockets, ())?;
        let local = kernel.local_addresses();
        let mut ports = Vec::with_capacity(planes.len());
        for (options, local) in planes.iter().zip(local) {
            ports.push(open_port(options, local, config.endpoint.mtu_bytes)?);
        }
        let (poll, waker) = make_poll(&mut kernel, &ports)?;
        let datagram_bytes_max = ports.iter().map(Port::datagram_bytes_single).min().unwrap_or(usize::MAX);
        Ok(Self {
            ports,
            kernel,
            checksum: config.endpoint.checksum,
            datagram_bytes_max: u16::try_from(datagram_bytes_max).unwrap_or(u16::MAX),
            first: 0,
            until_kernel: 0,
            refresh_at: Instant::ZERO,
            retry_at: None,
            scratch: Vec::new(),
            poll,
            events: Events::with_capacity(EVENTS),
            waker: Arc::new(waker),
        })
    }
}

impl Xdp {
    /// How each plane is used, and what happened on it.
    pub fn planes(&self) -> impl Iterator<Item = PortStats> {
        self.ports.iter().map(Port::stats)
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
        let ports = self.ports.len();
        for offset in 0..ports {
            let plane = (self.first + offset) % ports;
            if let Some(port) = self.ports.get_mut(plane) {
                round.drained &= port.receive(now, plane, &mut round.datagrams, host);
            }
        }
        self.first = (self.first + 1) % ports.max(1);
        if self.until_kernel == 0 {
            let kernel = self.kernel.receive(now, host)?;
            round.datagrams += kernel.datagrams;
            round.drained &= kernel.drained;
            self.until_kernel = if kernel.drained { ROUNDS_PER_KERNEL } else { 0 };
        } else {
            self.until_kernel -= 1;
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
        self.retry_at = blocked.then(|| now.after(RETRY_NS));
        self.kernel.flush(now, host)
    }

    fn on_unblocked(&mut self) {
        self.kernel.on_unblocked();
    }

    fn has_input(&mut self) -> bool {
        self.ports.iter().any(|port| !port.is_idle())
    }

    fn deadline(&self) -> Option<Instant> {
        self.retry_at
    }

    fn wait(&mut self, timeout: Option<Duration>, spin: Duration, host: &mut Host) -> io::Result<()> {
        let spin = timeout.map_or(spin, |timeout| spin.min(timeout));
        if self.spin(spin) {
            return Ok(());
        }
        let timeout = timeout.map(|timeout| timeout.saturating_sub(spin));
        host.stats.system_calls += wait(&mut self.poll, &mut self.events, timeout, Duration::ZERO)?;
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

fn open_port(options: &XdpOptions, local: SocketAddr, mtu_bytes: u16) -> Result<Port, OpenError> {
    options.check()?;
    let scope = match local.ip() {
        IpAddr::V6(ip) if ip.is_unspecified() => Scope::Any,
        IpAddr::V4(ip) if ip.is_unspecified() => Scope::AnyV4,
        ip => Scope::Address(ip),
    };
    let filter = Filter { port: local.port(), scope, payload_bytes_max: mtu_bytes };
    let attachment = Arc::new(Attachment::new(options, filter)?);
    Port::open(options, attachment, local)
}

/// Registers everything that can end a wait.
fn make_poll(kernel: &mut Polled, ports: &[Port]) -> io::Result<(Poll, mio::Waker)> {
    let poll = Poll::new()?;
    let registry = poll.registry();
    kernel.sockets_mut().register(registry, KERNEL)?;
    for port in ports {
        let (socket, tables) = port.descriptors();
        registry.register(&mut SourceFd(&socket), SOCKETS, Interest::READABLE)?;
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

const SOCKETS: Token = Token(0);
const KERNEL: Token = Token(1);
const TABLES: Token = Token(2);
const WAKER: Token = Token(3);

/// Events taken at once.
const EVENTS: usize = 16;

/// Rounds of receiving after which the UDP sockets are looked at even if nobody waited for them.
const ROUNDS_PER_KERNEL: u32 = 64;

/// The kernel's tables are looked at after this time even if nobody waited for word of them.
const REFRESH_NS: u64 = 100_000_000;

/// When to have the kernel send again what it did not take.
const RETRY_NS: u64 = 50_000;

/// Pauses between two looks at the clock.
const SPINS_PER_CLOCK: u32 = 16;
