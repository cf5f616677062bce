//! Path sockets: the source port of a path is its entropy for ECMP, so each port is a socket of its own.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;

use mio::net::UdpSocket;
use mio::{Interest, Registry, Token};
use socket2::SockAddr;

use super::PathCounters;
use crate::config::SocketOptions;
use crate::sys;

/// What names a path socket: all connections share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct PathKey {
    /// Plane.
    pub(super) plane: u8,
    /// The port that the core asked for; the socket may have another one.
    pub(super) port: u16,
}

/// The open path sockets, a bounded number.
#[derive(Debug)]
pub(super) struct PathSockets {
    options: SocketOptions,
    by_key: HashMap<PathKey, usize>,
    open: Vec<PathSocket>,
    /// Counts uses; a socket remembers its last.
    uses: u64,
    awaiting: usize,
    counters: PathCounters,
}

impl PathSockets {
    pub(super) fn new(options: SocketOptions) -> Self {
        let counters = PathCounters::default();
        Self { options, by_key: HashMap::new(), open: Vec::new(), uses: 0, awaiting: 0, counters }
    }

    /// The socket of a key, opened at the IP address of `local` if it is not yet; `None` if that fails. With it its
    /// place, and a number that no other socket in that place has had.
    pub(super) fn socket(
        &mut self,
        key: PathKey,
        local: SocketAddr,
        registry: Option<&Registry>,
    ) -> Option<(usize, u64, &UdpSocket)> {
        self.uses += 1;
        let index = match self.by_key.get(&key) {
            Some(index) => *index,
            None => self.open_new(key, local, registry)?,
        };
        let path = self.open.get_mut(index)?;
        path.last_used = self.uses;
        Some((index, path.serial, &path.socket))
    }

    pub(super) fn is_open(&self, key: PathKey) -> bool {
        self.by_key.contains_key(&key)
    }

    pub(super) fn counters(&self) -> PathCounters {
        self.counters
    }

    pub(super) fn bound_port(&self, key: PathKey) -> Option<u16> {
        let path = self.open.get(*self.by_key.get(&key)?)?;
        path.socket.local_addr().ok().map(|local| local.port())
    }

    /// Registers a socket until it can be written to; `false` if it is not open.
    pub(super) fn await_room(&mut self, key: PathKey, registry: &Registry, token: Token) -> bool {
        let Some(path) = self.by_key.get(&key).and_then(|index| self.open.get_mut(*index)) else {
            return false;
        };
        if !path.awaits_room && registry.register(&mut path.socket, token, Interest::WRITABLE).is_ok() {
            path.awaits_room = true;
            self.awaiting += 1;
        }
        true
    }

    /// Takes all sockets that await room out of the registry.
    pub(super) fn has_room(&mut self, registry: &Registry) {
        if self.awaiting > 0 {
            self.deregister_all(registry);
        }
    }

    pub(super) fn deregister_all(&mut self, registry: &Registry) {
        for path in self.open.iter_mut().filter(|path| path.awaits_room) {
            let _ = registry.deregister(&mut path.socket);
            path.awaits_room = false;
        }
        self.awaiting = 0;
    }

    fn open_new(&mut self, key: PathKey, local: SocketAddr, registry: Option<&Registry>) -> Option<usize> {
        let Ok((socket, conflict)) = self.bind(key.port, local) else {
            self.counters.failures += 1;
            return None;
        };
        self.counters.opened += 1;
        self.counters.conflicts += u64::from(conflict);
        let serial = self.counters.opened;
        let fresh = PathSocket { key, socket, serial, last_used: self.uses, awaits_room: false };
        let index = if self.open.len() < self.options.path_sockets_max.max(1) {
            self.open.push(fresh);
            self.open.len() - 1
        } else {
            self.replace_oldest(fresh, registry)?
        };
        self.by_key.insert(key, index);
        Some(index)
    }

    /// Puts a socket in the place of the one unused for the longest time.
    fn replace_oldest(&mut self, fresh: PathSocket, registry: Option<&Registry>) -> Option<usize> {
        let oldest = self.open.iter().enumerate().min_by_key(|(_, path)| path.last_used);
        let index = oldest.map(|(index, _)| index)?;
        let mut old = std::mem::replace(self.open.get_mut(index)?, fresh);
        self.by_key.remove(&old.key);
        self.counters.evicted += 1;
        if old.awaits_room {
            self.awaiting -= 1;
            if let Some(registry) = registry {
                let _ = registry.deregister(&mut old.socket);
            }
        }
        Some(index)
    }

    /// Binds the port, or any if that is taken; says whether it was.
    fn bind(&self, port: u16, local: SocketAddr) -> io::Result<(UdpSocket, bool)> {
        let socket = super::open(local)?;
        if let SocketAddr::V6(v6) = local {
            let _ = socket.set_only_v6(!v6.ip().is_unspecified());
        }
        sys::configure_send(&socket, local.is_ipv6(), &self.options)?;
        let at = |port| {
            let mut address = local;
            address.set_port(port);
            SockAddr::from(address)
        };
        let conflict = match socket.bind(&at(port)) {
            Ok(()) => false,
            Err(error)
                if matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied) =>
            {
                socket.bind(&at(0))?;
                true
            }
            Err(error) => return Err(error),
        };
        Ok((UdpSocket::from_std(socket.into()), conflict))
    }
}

#[derive(Debug)]
struct PathSocket {
    key: PathKey,
    socket: UdpSocket,
    serial: u64,
    last_used: u64,
    awaits_room: bool,
}
