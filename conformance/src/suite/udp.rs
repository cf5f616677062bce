//! The port to a device over real UDP, with its control channel over TCP.

use std::collections::VecDeque;
use std::io::{self, BufRead as _, BufReader, IoSliceMut, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use metaroce_core::Ecn;
use quinn_udp::{EcnCodepoint, RecvMeta, Transmit, UdpSockRef, UdpSocketState};

use super::control::{Answer, Command, LINE_BYTES_MAX, parse_answer, to_line};
use super::port::{Arrival, PLANES, Port, PortError, SOURCES, Source};

/// Sockets of the suite, and the control channel.
pub struct Udp {
    start: Instant,
    device: SocketAddr,
    /// Where the device receives on its further planes, as far as it told.
    planes: Vec<SocketAddr>,
    sockets: Vec<Socket>,
    /// Where the control channel is, and the connection; `None` once it has failed.
    control_address: SocketAddr,
    control: Option<BufReader<TcpStream>>,
    queue: VecDeque<Arrival>,
    name: String,
    profiles: Vec<String>,
}

struct Socket {
    source: Source,
    address: SocketAddr,
    udp: UdpSocket,
    state: UdpSocketState,
}

impl Udp {
    /// Joins the device that receives at `device` and is controlled at `control`.
    ///
    /// # Errors
    /// If a socket can't be opened, nobody answers at the control channel, or it speaks another protocol.
    pub fn new(device: SocketAddr, control: SocketAddr) -> io::Result<Self> {
        let stream = dial(control, PATIENCE)?;
        let local = route(device)?;
        let mut sockets = vec![Socket::bind(Source::Main, SocketAddr::new(local, 0))?];
        for number in 1..=SOURCES {
            sockets.push(Socket::bind(Source::Other(number), SocketAddr::new(local, 0))?);
        }
        if local == IpAddr::V4(Ipv4Addr::LOCALHOST) {
            // On loopback there are other addresses to be had; elsewhere the cases that need one are skipped.
            let stranger = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 77)), 0);
            sockets.extend(Socket::bind(Source::Stranger, stranger));
            for plane in 1..=PLANES {
                let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 1, plane)), 0);
                sockets.extend(Socket::bind(Source::Plane(plane), address));
            }
        }
        let mut port = Self {
            start: Instant::now(),
            device,
            planes: Vec::new(),
            sockets,
            control_address: control,
            control: Some(stream),
            queue: VecDeque::new(),
            name: String::new(),
            profiles: Vec::new(),
        };
        port.greet()?;
        Ok(port)
    }

    /// Says hello, and learns who is there.
    fn greet(&mut self) -> io::Result<()> {
        match self.ask(&Command::Hello {})? {
            Answer::Hello { protocol: super::control::PROTOCOL, name, profiles, .. } => {
                (self.name, self.profiles) = (name, profiles);
                Ok(())
            }
            other => Err(io::Error::other(format!("the control channel answers hello by {other:?}"))),
        }
    }

    /// Name and version that the device gave.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Profiles that the device claims besides *core*.
    #[must_use]
    pub fn profiles(&self) -> &[String] {
        &self.profiles
    }

    /// All addresses of the device.
    fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        std::iter::once(self.device).chain(self.planes.iter().copied())
    }

    /// Joins the control channel anew if it has failed: one case that broke is no reason to give the others up. A device
    /// that is gone is not waited for as long in each of them.
    fn rejoin(&mut self) -> io::Result<()> {
        if self.control.is_none() {
            self.control = Some(dial(self.control_address, PATIENCE_AFTER_FAILURE)?);
            self.greet()?;
            if let Some(control) = &self.control {
                control.get_ref().set_read_timeout(Some(PATIENCE))?;
            }
        }
        Ok(())
    }

    fn ask(&mut self, command: &Command) -> io::Result<Answer> {
        let mut control = self.control.take().ok_or(io::ErrorKind::NotConnected)?;
        let answer = exchange(&mut control, command)?;
        self.control = Some(control);
        Ok(answer)
    }
    /// Takes in what has arrived; returns whether there was anything.
    fn gather(&mut self) -> io::Result<bool> {
        let now_ns = self.now_ns();
        let mut any = false;
        let mut buffer = vec![0; BUFFER_BYTES];
        for socket in &self.sockets {
            while let Some((meta, length)) = socket.receive(&mut buffer)? {
                let stride = meta.stride.max(1);
                for bytes in buffer.get(..length).unwrap_or_default().chunks(stride) {
                    any = true;
                    if self.addresses().all(|address| address.ip() != meta.addr.ip()) {
                        continue; // Somebody else.
                    }
                    let to = socket.source.number();
                    let ecn = Ecn::from_bits(meta.ecn.map_or(0, |ecn| ecn as u8));
                    let bytes = bytes.to_vec();
                    self.queue.push_back(Arrival { at_ns: now_ns, from: meta.addr, to, ecn, bytes });
                }
            }
        }
        Ok(any)
    }
}

impl Socket {
    fn bind(source: Source, address: SocketAddr) -> io::Result<Self> {
        let socket = UdpSocket::bind(address)?;
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        Ok(Self { source, address: socket.local_addr()?, udp: socket, state })
    }

    fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<(RecvMeta, usize)>> {
        let mut meta = [RecvMeta::default()];
        match self.state.recv(UdpSockRef::from(&self.udp), &mut [IoSliceMut::new(buffer)], &mut meta) {
            Ok(1..) => {
                let [meta] = meta;
                Ok(Some((meta, meta.len)))
            }
            Ok(0) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            // The answer to a datagram that found nobody.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Port for Udp {
    fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn is_exact(&self) -> bool {
        false
    }

    fn device(&self) -> SocketAddr {
        self.device
    }

    fn join(&mut self, planes: &[SocketAddr]) {
        self.planes = planes.to_vec();
    }

    fn local(&self, source: Source) -> Option<SocketAddr> {
        self.sockets.iter().find(|socket| socket.source == source).map(|socket| socket.address)
    }

    fn send(&mut self, from: Source, ecn: Ecn, bytes: &[u8]) -> Result<(), PortError> {
        let socket = self.sockets.iter().find(|socket| socket.source == from);
        let socket = socket.ok_or_else(|| PortError::Unsupported(format!("no source {from:?} here")))?;
        let destination = match from {
            Source::Plane(plane) => self.planes.get(usize::from(plane).wrapping_sub(1)).copied(),
            _ => Some(self.device),
        };
        let destination =
            destination.ok_or_else(|| PortError::Unsupported(format!("the device has no {from:?}")))?;
        let transmit = Transmit {
            destination,
            ecn: EcnCodepoint::from_bits(ecn.bits()),
            contents: bytes,
            segment_size: None,
            src_ip: None,
        };
        loop {
            match socket.state.try_send(UdpSockRef::from(&socket.udp), &transmit) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    std::thread::sleep(Duration::from_micros(50));
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) => return Err(PortError::Broken(format!("cannot send: {error}"))),
            }
        }
    }

    fn receive(&mut self, until_ns: u64) -> Result<Option<Arrival>, PortError> {
        loop {
            if let Some(arrival) = self.queue.pop_front() {
                return Ok(Some(arrival));
            }
            if self.gather().map_err(|error| PortError::Broken(format!("cannot receive: {error}")))? {
                continue;
            }
            let now_ns = self.now_ns();
            if now_ns >= until_ns {
                return Ok(None);
            }
            std::thread::sleep(Duration::from_nanos((until_ns - now_ns).min(NAP_NS)));
        }
    }

    fn command(&mut self, command: &Command) -> Result<Answer, PortError> {
        let joined = if matches!(command, Command::Restart { .. }) { self.rejoin() } else { Ok(()) };
        let answer = joined.and_then(|()| self.ask(command));
        let answer = answer.map_err(|error| PortError::Broken(format!("control channel: {error}")))?;
        if matches!((command, &answer), (Command::Restart { .. }, Answer::Done)) {
            // What the device sent before it forgot everything.
            while self.gather().map_err(|error| PortError::Broken(error.to_string()))? {}
            self.queue.clear();
        }
        Ok(answer)
    }
}

/// The local address from which the system reaches `device`.
fn route(device: SocketAddr) -> io::Result<IpAddr> {
    let any: SocketAddr = if device.is_ipv4() {
        (Ipv4Addr::UNSPECIFIED, 0).into()
    } else {
        (std::net::Ipv6Addr::UNSPECIFIED, 0).into()
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(device)?;
    Ok(socket.local_addr()?.ip())
}

/// A connection to a control channel, whose answers are waited for so long.
fn dial(address: SocketAddr, patience: Duration) -> io::Result<BufReader<TcpStream>> {
    let stream = TcpStream::connect_timeout(&address, patience)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(patience))?;
    Ok(BufReader::new(stream))
}

/// Sends a command, and waits for its answer.
fn exchange(control: &mut BufReader<TcpStream>, command: &Command) -> io::Result<Answer> {
    control.get_mut().write_all(to_line(command).as_bytes())?;
    let mut line = Vec::new();
    loop {
        let part = control.fill_buf().map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => io::Error::other("no answer in time"),
            _ => error,
        })?;
        if part.is_empty() {
            return Err(io::Error::other("it was closed without an answer"));
        }
        let end = part.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(part.len(), |end| end + 1);
        line.extend(part.iter().take(taken));
        control.consume(taken);
        if end.is_some() {
            return parse_answer(line.trim_ascii_end()).map_err(|error| {
                let shown = String::from_utf8_lossy(line.get(..60).unwrap_or(&line)).trim_end().to_owned();
                io::Error::other(format!("{shown:?} is no answer of the protocol: {error}"))
            });
        }
        if line.len() > LINE_BYTES_MAX {
            return Err(io::Error::other("the device answers with an endless line"));
        }
    }
}

/// How long a device may take to answer a command, and to be there again after it failed.
const PATIENCE: Duration = Duration::from_secs(20);
const PATIENCE_AFTER_FAILURE: Duration = Duration::from_secs(2);

/// How long the suite sleeps before it looks at its sockets again, ns.
const NAP_NS: u64 = 100_000;

/// Room for a segmented datagram.
const BUFFER_BYTES: usize = 65_536;
