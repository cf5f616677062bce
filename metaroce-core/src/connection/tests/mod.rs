//! What the steps of a connection do, in exact numbers: two endpoints meet in memory, and a test then sets of one of
//! them what it needs.

extern crate std;

mod counters;
mod health;
mod incoming;
mod outflow;
mod parking;
mod paths;
mod plane_health;
mod planes;
mod sending;
mod timers;

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::vec;
use std::vec::Vec;

use crate::config::{Config, ConnectOptions, Limits};
use crate::connection::Connection;
use crate::crc::{self, Checksum, TableChecksum};
use crate::endpoint::{Endpoint, Progress};
use crate::event::Event;
use crate::ids::{ConnectionHandle, PathId, ProtectionDomain, RegionId};
use crate::memory::{AtomicOperation, Memory, MemoryError};
use crate::path::Path;
use crate::stats::PathState;
use crate::storage::HeapStorage;
use crate::table::Idx;
use crate::time::Instant;
use crate::transmit::{Datagram, Disposition, SourcePort, Transmit};
use crate::view::View;
use crate::wire::{Base, PlaneAddresses};

pub(crate) const US: u64 = 1_000;
pub(crate) const MS: u64 = 1_000_000;
/// The port on which both ends receive.
pub(crate) const PORT: u16 = 4_795;

/// Two endpoints with one connection, over which no time passes unless a test lets it: there are no RTT samples.
pub(crate) struct Pair {
    pub(crate) ends: [Endpoint<HeapStorage>; 2],
    pub(crate) now: Instant,
    pub(crate) connections: [ConnectionHandle; 2],
}

impl Pair {
    /// With the default configuration of hardware, as `change` has it; `planes` planes of `paths` paths each.
    pub(crate) fn new(planes: u8, paths: u8, change: impl Fn(&mut Config)) -> Self {
        let mut ends = [0, 1].map(|end| {
            let further: Vec<_> = (1..planes).map(|plane| address(end, plane, PORT)).collect();
            let mut config = Config {
                planes: PlaneAddresses::from_slice(&further).unwrap(),
                paths_per_plane: paths,
                ..Config::hardware(u64::from(end) + 1)
            };
            change(&mut config);
            let limits =
                Limits { connections: 4, paths_per_connection: planes * paths, packets: 512, ..Limits::HOST };
            Endpoint::new(config, HeapStorage::new(&limits)).unwrap()
        });
        let now = Instant::from_nanos(1_000 * MS);
        let ours = ends[0].connect(now, ConnectOptions::to(address(1, 0, PORT))).unwrap();
        let mut pair = Self { ends, now, connections: [ours; 2] };
        pair.exchange();
        let Some(Event::Incoming { connection: theirs, .. }) = pair.ends[1].poll_event() else {
            panic!("no connection comes in");
        };
        pair.connections[1] = theirs;
        pair.ends[1].accept(now, theirs, ProtectionDomain(0), b"").unwrap();
        pair.exchange();
        for end in &mut pair.ends {
            assert!(matches!(end.poll_event(), Some(Event::Connected { .. })));
        }
        pair
    }

    /// A pair on whose paths nothing is in flight, whose windows are 100,000 bytes at end 0.
    pub(crate) fn quiet(planes: u8, paths: u8, change: impl Fn(&mut Config)) -> Self {
        let mut pair = Self::new(planes, paths, change);
        pair.run(MS);
        pair.exchange();
        pair.run(MS);
        let (mut view, slot) = pair.view(0);
        take_asking(&mut view, slot);
        for at in view.connections.at(slot).path_indices() {
            view.paths.at_mut(at).window.window_bytes = 100_000;
        }
        pair
    }

    /// What an end has to say now.
    pub(crate) fn take(&mut self, end: usize) -> Vec<Transmit> {
        while self.ends[end].handle_timeout(self.now) == Progress::More {}
        let mut all = Vec::new();
        let mut out = vec![Transmit::EMPTY; 64];
        loop {
            let count = self.ends[end].poll_transmit(self.now, &mut out);
            all.extend_from_slice(&out[..count]);
            if count < out.len() {
                return all;
            }
        }
    }

    /// Hands a datagram of `from` to the other end. Payload is zeros.
    pub(crate) fn deliver(&mut self, from: u8, transmit: &Transmit) -> Disposition {
        let mut bytes = transmit.header().to_vec();
        bytes.resize(transmit.datagram_length(), 0);
        let sum = crc::finish(TableChecksum.update(crc::SEED, &bytes));
        Base::write_checksum(&mut bytes, sum);
        let port = match transmit.source {
            SourcePort::Receive => PORT,
            SourcePort::Path(port) => port,
        };
        let source = address(from, transmit.plane, port);
        let datagram = Datagram { source, plane: transmit.plane, ecn: transmit.ecn, bytes: &bytes };
        self.ends[usize::from(1 - from)].handle_datagram(self.now, datagram, &mut Anywhere)
    }

    /// Lets both talk until they have nothing more to say at this time.
    pub(crate) fn exchange(&mut self) {
        loop {
            let mut quiet = true;
            for from in 0..2 {
                for transmit in self.take(usize::from(from)) {
                    quiet = false;
                    let _ = self.deliver(from, &transmit);
                }
            }
            if quiet {
                return;
            }
        }
    }

    pub(crate) fn run(&mut self, ns: u64) {
        self.now = self.now.after(ns);
    }

    /// An end's tables, and its connection in them.
    pub(crate) fn view(&mut self, end: usize) -> (View<'_>, Idx<Connection>) {
        let slot = Idx::new(self.connections[end].slot);
        (self.ends[end].view().unwrap(), slot)
    }
}

/// Where an end is, or one of its paths.
pub(crate) fn address(end: u8, plane: u8, port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, plane, end + 1)), port)
}

/// Memory in which every access succeeds.
pub(crate) struct Anywhere;

impl Memory for Anywhere {
    fn write(&mut self, _: RegionId, _: u64, _: &[u8]) -> Result<(), MemoryError> {
        Ok(())
    }

    fn atomic(&mut self, _: RegionId, _: u64, _: AtomicOperation) -> Result<u64, MemoryError> {
        Ok(0)
    }
}

pub(crate) fn path(view: &View<'_>, slot: Idx<Connection>, number: u8) -> Idx<Path> {
    view.connections.at(slot).path(PathId(number)).unwrap()
}

/// Puts paths into a state, whatever theirs was.
pub(crate) fn set_states(view: &mut View<'_>, slot: Idx<Connection>, numbers: &[u8], state: PathState) {
    for number in numbers {
        let at = path(view, slot, *number);
        view.paths.at_mut(at).state = state;
    }
}

/// Whether the connection owes an acknowledgement at once; it is forgotten.
pub(crate) fn take_due(view: &mut View<'_>, slot: Idx<Connection>) -> bool {
    core::mem::take(&mut view.connections.at_mut(slot).paths.due) != 0
}

/// Numbers of the paths that owe a PROBE, which is forgotten.
pub(crate) fn take_asking(view: &mut View<'_>, slot: Idx<Connection>) -> Vec<u8> {
    let mut asking = Vec::new();
    for at in view.connections.at(slot).path_indices() {
        let path = view.paths.at_mut(at);
        if core::mem::take(&mut path.timeouts.probe_owed) {
            asking.push(path.id.0);
        }
    }
    asking
}
