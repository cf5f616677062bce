//! The sockets of an endpoint: one that receives on each plane, and one that sends for each path's source port.
//!
//! Public for other backends of this workspace; programs do not need it.

mod paths;

use std::io;
use std::net::SocketAddr;

use metaroce_core::config::PLANES_MAX;
use metaroce_core::transmit::SourcePort;
use mio::net::UdpSocket;
use mio::{Interest, Registry, Token};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::config::SocketOptions;
use crate::sys;
use crate::tap::concrete;
use paths::{PathKey, PathSockets};

/// What the sockets of a driver were found to support.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about the system, not a state")]
pub struct Capabilities {
    /// ECN is set on sending and read on receiving.
    pub ecn: bool,
    /// Segmented sends.
    pub gso: bool,
    /// Coalesced receives.
    pub gro: bool,
    /// Drops by a full receive buffer are counted.
    pub overflow_counter: bool,
    /// One datagram a call, copied: the portable implementation.
    pub portable: bool,
}

/// Counters of the path sockets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathCounters {
    /// Opened.
    pub opened: u64,
    /// Closed to make room.
    pub evicted: u64,
    /// Bound to another port than asked for.
    pub conflicts: u64,
    /// Could not be opened.
    pub failures: u64,
}

/// A socket to send from.
#[derive(Clone, Copy, Debug)]
pub struct Outlet<'a> {
    /// The socket.
    pub socket: &'a UdpSocket,
    /// Whether it is an IPv6 one.
    pub v6: bool,
    /// Its place among all sockets: the plane for a receive socket, [`PLANES_MAX`] and up for path sockets, of which
    /// there are at most [`SocketOptions::path_sockets_max`].
    pub slot: usize,
    /// Tells apart the sockets that have had this place one after another.
    pub serial: u64,
}

/// Receive sockets and path sockets of one endpoint.
#[derive(Debug)]
pub struct Sockets {
    planes: Vec<Plane>,
    paths: PathSockets,
    capabilities: Capabilities,
    registration: Option<(Registry, Token)>,
}

impl Sockets {
    /// Opens a receive socket at each of `local`, and finds out what the system can do.
    ///
    /// # Errors
    /// What the system says; `InvalidInput` for no address, or more than 8.
    pub fn bind(local: &[SocketAddr], options: SocketOptions) -> io::Result<Self> {
        if local.is_empty() || local.len() > PLANES_MAX {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "give 1 to 8 local addresses, one for each plane",
            ));
        }
        let native = cfg!(target_os = "linux") && !options.portable;
        let mut capabilities = Capabilities {
            ecn: native,
            gso: native && options.gso,
            gro: native,
            overflow_counter: native,
            portable: !native,
        };
        let mut planes = Vec::with_capacity(local.len());
        for address in local {
            let (plane, features) = Plane::bind(*address, &options)?;
            capabilities.ecn &= features.ecn;
            capabilities.gro &= features.gro;
            capabilities.overflow_counter &= features.overflow;
            capabilities.gso &= sys::has_segmentation(&open(*address)?);
            planes.push(plane);
        }
        Ok(Self { planes, paths: PathSockets::new(options), capabilities, registration: None })
    }

    /// What the system can do.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    /// The address of each receive socket.
    pub fn local_addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.planes.iter().map(|plane| plane.local)
    }

    /// Planes.
    #[must_use]
    pub fn planes(&self) -> usize {
        self.planes.len()
    }

    /// The receive socket of a plane.
    #[must_use]
    pub fn receiving(&self, plane: usize) -> Option<&UdpSocket> {
        self.planes.get(plane).map(|plane| &plane.socket)
    }

    /// The socket from which to send, opened if need be; with it, whether it is an IPv6 one. `None` if there is no such
    /// plane. Where a path socket cannot be opened it is the receive socket: without entropy, but it works.
    ///
    /// O(1), but for opening: O(sockets open).
    pub fn sending(&mut self, plane: u8, source: SourcePort) -> Option<(&UdpSocket, bool)> {
        self.outlet(plane, source).map(|outlet| (outlet.socket, outlet.v6))
    }

    /// The same, with what tells sockets apart.
    pub fn outlet(&mut self, plane: u8, source: SourcePort) -> Option<Outlet<'_>> {
        let receiving = self.planes.get(usize::from(plane))?;
        let v6 = receiving.local.is_ipv6();
        if let SourcePort::Path(port) = source {
            let key = PathKey { plane, port };
            let registry = self.registration.as_ref().map(|(registry, _)| registry);
            if let Some((index, serial, socket)) = self.paths.socket(key, receiving.local, registry) {
                return Some(Outlet { socket, v6, slot: PLANES_MAX + index, serial });
            }
        }
        Some(Outlet { socket: &receiving.socket, v6, slot: usize::from(plane), serial: 0 })
    }

    /// Whether [`outlet`](Self::outlet) opens no socket and closes none.
    #[must_use]
    pub fn is_open(&self, plane: u8, source: SourcePort) -> bool {
        match source {
            SourcePort::Receive => true,
            SourcePort::Path(port) => self.paths.is_open(PathKey { plane, port }),
        }
    }

    /// The address that datagrams from `source` bear, as far as this side knows it.
    #[must_use]
    pub fn source_address(&self, plane: u8, source: SourcePort) -> Option<SocketAddr> {
        let local = concrete(self.planes.get(usize::from(plane))?.local);
        let port = match source {
            SourcePort::Receive => local.port(),
            SourcePort::Path(port) => self.path_port(plane, port).unwrap_or(local.port()),
        };
        Some(SocketAddr::new(local.ip(), port))
    }

    /// Counters of the path sockets.
    #[must_use]
    pub fn path_counters(&self) -> PathCounters {
        self.paths.counters()
    }

    /// The port that a path socket really has, if it is open.
    #[must_use]
    pub fn path_port(&self, plane: u8, port: u16) -> Option<u16> {
        self.paths.bound_port(PathKey { plane, port })
    }

    /// Whether the sockets are in a registry.
    #[must_use]
    pub fn is_registered(&self) -> bool {
        self.registration.is_some()
    }

    /// Registers the receive sockets; the token is also reported when a full send buffer has room again.
    ///
    /// # Errors
    /// What mio says.
    pub fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        for plane in &mut self.planes {
            registry.register(&mut plane.socket, token, Interest::READABLE)?;
        }
        self.registration = Some((registry.try_clone()?, token));
        Ok(())
    }

    /// Takes all sockets out of the registry again.
    ///
    /// # Errors
    /// What mio says.
    pub fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        self.registration = None;
        self.paths.deregister_all(registry);
        for plane in &mut self.planes {
            plane.awaits_room = false;
            registry.deregister(&mut plane.socket)?;
        }
        Ok(())
    }

    /// Asks to be woken when a socket whose send buffer was full has room again. Only then is a sending socket
    /// registered: its writability changes with every datagram, and each change would wake the loop.
    pub fn await_room(&mut self, plane: u8, source: SourcePort) {
        let Some((registry, token)) = &self.registration else { return };
        if let SourcePort::Path(port) = source
            && self.paths.await_room(PathKey { plane, port }, registry, *token)
        {
            return;
        }
        let Some(plane) = self.planes.get_mut(usize::from(plane)) else { return };
        if !plane.awaits_room {
            let both = Interest::READABLE | Interest::WRITABLE;
            plane.awaits_room = registry.reregister(&mut plane.socket, *token, both).is_ok();
        }
    }

    /// Ends what [`await_room`](Self::await_room) began, once everything is sent.
    pub fn has_room(&mut self) {
        let Some((registry, token)) = &self.registration else { return };
        self.paths.has_room(registry);
        for plane in &mut self.planes {
            if plane.awaits_room {
                let _ = registry.reregister(&mut plane.socket, *token, Interest::READABLE);
                plane.awaits_room = false;
            }
        }
    }
}

/// The receive socket of a plane.
#[derive(Debug)]
struct Plane {
    socket: UdpSocket,
    local: SocketAddr,
    awaits_room: bool,
}

impl Plane {
    fn bind(address: SocketAddr, options: &SocketOptions) -> io::Result<(Self, sys::ReceiveFeatures)> {
        let socket = open(address)?;
        if let SocketAddr::V6(v6) = address {
            // "Any address" means any IPv4 address too, where the system can do that.
            let _ = socket.set_only_v6(!v6.ip().is_unspecified());
        }
        #[cfg(unix)]
        if options.reuse_port {
            socket.set_reuse_port(true)?;
        }
        let features = sys::configure_receive(&socket, address.is_ipv6(), options)?;
        socket.bind(&SockAddr::from(address))?;
        let socket = UdpSocket::from_std(socket.into());
        let local = socket.local_addr()?;
        Ok((Self { socket, local, awaits_room: false }, features))
    }
}

/// An unbound UDP socket of the family of `address`.
fn open(address: SocketAddr) -> io::Result<Socket> {
    Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))
}

#[cfg(test)]
mod tests;
