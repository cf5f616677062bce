//! The planes of a connection: where the peer receives on each, and whether it is known to be there.
//!
//! Plane 0 is the pair of addresses between which the connection was opened. The further ones were listed in CONNECT
//! and ACCEPT, and anyone can list anything: until an address has returned a random token, nothing goes there but a few
//! PROBEs.

use core::net::{IpAddr, SocketAddr};

use crate::config::{Config, PLANES_MAX};
use crate::connection::handshake::peer_key;
use crate::connection::output::Sink;
use crate::connection::plane_health::{self, PlaneHealth};
use crate::connection::probes::send_probe;
use crate::connection::{Connection, parking, paths};
use crate::ids::PathId;
use crate::path::{Path, remove};
use crate::rng::Secrets;
use crate::stats::{PathState, PlaneState, PlaneStats};
use crate::table::Idx;
use crate::time::Instant;
use crate::view::View;
use crate::wire::PlaneAddresses;

/// PROBEs to an address that has not answered, before they become few.
const PROBES_AT_FIRST: u8 = 3;
/// Time between two PROBEs afterwards, ns.
const PROBE_NS_LATER: u64 = 1_000_000_000;

/// The planes of one connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlaneSet {
    /// Planes that both ends have, 1 to 8.
    count: u8,
    /// Paths of each.
    paths_each: u8,
    /// The plane of this endpoint on which plane 0 of the connection runs.
    home: u8,
    each: [Plane; PLANES_MAX],
    pub(crate) health: PlaneHealth,
}

/// One plane.
#[derive(Clone, Copy, Debug)]
struct Plane {
    /// Where the peer receives.
    remote: SocketAddr,
    reach: Reach,
}

/// What is known of the peer's address on a plane.
#[derive(Clone, Copy, Debug)]
enum Reach {
    /// The peer receives there.
    Verified,
    /// It listed the address; a PROBE with `token` asks.
    Listed { token: u64, probes: u8, next: Instant, owed: bool },
    /// It listed what is no address to send to.
    Unusable,
}

impl PlaneSet {
    pub(crate) const EMPTY: Self = Self {
        count: 1,
        paths_each: 0,
        home: 0,
        each: [Plane { remote: UNSPECIFIED, reach: Reach::Unusable }; PLANES_MAX],
        health: PlaneHealth::NEW,
    };

    /// Plane 0 alone, between this endpoint's plane `home` and `remote`.
    pub(crate) fn new(home: u8, remote: SocketAddr) -> Self {
        let mut planes = Self { home, ..Self::EMPTY };
        if let Some(first) = planes.each.first_mut() {
            *first = Plane { remote, reach: Reach::Verified };
        }
        planes
    }

    /// Takes in what the peer listed: planes and paths of each are the smaller of both sides'.
    pub(crate) fn agree(
        &mut self,
        own: &PlaneAddresses,
        peer: &PlaneAddresses,
        paths_each: u8,
        secrets: &mut Secrets,
    ) {
        self.paths_each = paths_each;
        self.count = 1;
        let remote = self.remote(0);
        let both = own.as_slice().iter().zip(peer.as_slice());
        for (plane, (_, &listed)) in self.each.iter_mut().skip(1).zip(both) {
            let reach = if may_be_probed(remote.ip(), listed) {
                //= MR-HS-3
                Reach::Listed { token: secrets.next_u64(), probes: 0, next: Instant::ZERO, owed: false }
            } else {
                Reach::Unusable
            };
            *plane = Plane { remote: listed, reach };
            self.count = self.count.saturating_add(1);
        }
    }

    /// How many planes.
    pub(crate) const fn count(&self) -> u8 {
        self.count
    }

    /// Paths of all planes.
    pub(crate) const fn paths(&self) -> u8 {
        self.count.saturating_mul(self.paths_each)
    }

    /// Paths of one plane, at least 1.
    pub(crate) fn paths_each(&self) -> u8 {
        self.paths_each.max(1)
    }

    /// Planes on which the peer is known to receive, at least 1.
    pub(crate) fn verified(&self) -> u8 {
        let used = self.each.get(..usize::from(self.count)).unwrap_or_default();
        let count = used.iter().filter(|plane| matches!(plane.reach, Reach::Verified)).count();
        u8::try_from(count).unwrap_or(u8::MAX).max(1)
    }

    /// The plane of a path.
    pub(crate) const fn plane_of(&self, path: PathId) -> u8 {
        //= MR-PATH-3
        match path.0.checked_div(self.paths_each) {
            Some(plane) => plane,
            None => 0,
        }
    }

    /// The ids of a plane's paths.
    pub(crate) fn paths_of(&self, plane: u8) -> impl Iterator<Item = PathId> + use<> {
        let first = plane.saturating_mul(self.paths_each);
        (first..first.saturating_add(self.paths_each)).map(PathId)
    }

    /// Where the peer receives on a plane.
    pub(crate) fn remote(&self, plane: u8) -> SocketAddr {
        self.each.get(usize::from(plane)).map_or(UNSPECIFIED, |plane| plane.remote)
    }

    /// The plane of this endpoint on which a plane of the connection runs.
    pub(crate) const fn local(&self, plane: u8) -> u8 {
        if plane == 0 { self.home } else { plane }
    }

    /// Whether the peer is known to receive on a plane.
    pub(crate) fn is_verified(&self, plane: u8) -> bool {
        self.each.get(usize::from(plane)).is_some_and(|plane| matches!(plane.reach, Reach::Verified))
    }

    /// Whether packets from `ip` may be the peer's: it is one of its addresses, verified or listed. They most likely
    /// come on `plane`.
    pub(crate) fn may_send_from(&self, plane: u8, ip: IpAddr) -> bool {
        //= MR-SEC-6
        let has = |plane: &Plane| plane.remote.ip() == ip;
        let used = self.each.get(..usize::from(self.count)).unwrap_or_default();
        used.get(usize::from(plane)).is_some_and(has) || used.iter().any(has)
    }

    /// Whether the peer is known to receive at `address`.
    pub(crate) fn receives_at(&self, address: SocketAddr) -> bool {
        let used = self.each.get(..usize::from(self.count)).unwrap_or_default();
        used.iter().any(|plane| plane.remote == address && matches!(plane.reach, Reach::Verified))
    }

    fn reach_mut(&mut self, plane: u8) -> Option<&mut Reach> {
        self.each.get_mut(usize::from(plane)).map(|plane| &mut plane.reach)
    }
}

/// The further plane addresses that an endpoint lists: as many as leave each plane a path. None for a connection that
/// was opened over another plane than its first, on which the peer's list would not match.
pub(crate) fn own_addresses(config: &Config, paths_per_connection: u8, home: u8) -> PlaneAddresses {
    //= MR-HS-34
    let planes = if home == 0 { usize::from(paths_per_connection.max(1)) } else { 1 };
    let listed = config.planes.as_slice();
    let room = listed.get(..planes.saturating_sub(1)).unwrap_or(listed);
    PlaneAddresses::from_slice(room).unwrap_or_default()
}

/// Paths that an endpoint keeps on each of its planes at most.
pub(crate) fn own_paths_each(config: &Config, paths_per_connection: u8, listed: &PlaneAddresses) -> u8 {
    let planes = u8::try_from(listed.len()).unwrap_or(u8::MAX).saturating_add(1);
    //= MR-PATH-1
    let each = paths_per_connection.checked_div(planes).unwrap_or(1);
    config.paths_per_plane.min(each).max(1)
}

/// Whether an address that a peer at `peer` listed can be its own: nothing is asked of ports and hosts that it can't
/// have, and of this host's own services only for a peer on this host.
fn may_be_probed(peer: IpAddr, listed: SocketAddr) -> bool {
    //= MR-HS-33
    let ip = listed.ip();
    let broadcast = matches!(ip, IpAddr::V4(v4) if v4.is_broadcast());
    listed.port() != 0
        && !ip.is_unspecified()
        && !ip.is_multicast()
        && !broadcast
        && (!ip.is_loopback() || peer.is_loopback())
}

/// Has the PROBEs sent that are due to addresses that have not answered. Returns when the next is due.
pub(crate) fn on_timer(view: &mut View<'_>, now: Instant, slot: Idx<Connection>) -> Instant {
    let owner = view.connections.at_mut(slot);
    let mut earliest = Instant::FAR_FUTURE;
    let mut owes = false;
    //= MR-HS-35
    // As long as the peer itself has not answered, nothing is asked on its word.
    if owner.unverified.is_some() {
        return earliest;
    }
    for plane in 1..owner.planes.count {
        let Some(Reach::Listed { next, owed, .. }) = owner.planes.reach_mut(plane) else { continue };
        if *next <= now {
            *owed = true;
            owes = true;
        } else {
            earliest = earliest.min(*next);
        }
    }
    if owes {
        view.mark_ready(slot);
    }
    earliest
}

/// Sends the PROBEs that are owed to addresses that have not answered. Returns whether some could not go.
pub(crate) fn fill_probes(
    view: &mut View<'_>,
    now: Instant,
    slot: Idx<Connection>,
    sink: &mut Sink<'_>,
) -> bool {
    for plane in 1..view.connections.at(slot).planes.count {
        let owner = view.connections.at_mut(slot);
        let first = owner.planes.paths_of(plane).next().and_then(|id| owner.path(id));
        let (Some(at), Some(Reach::Listed { token, probes, next, owed })) =
            (first, owner.planes.reach_mut(plane))
        else {
            continue;
        };
        if !*owed {
            continue;
        }
        if sink.is_full() || view.transmissions.available() == 0 {
            return true;
        }
        *owed = false;
        *probes = probes.saturating_add(1);
        //= MR-HS-25
        let delay = if *probes < PROBES_AT_FIRST {
            view.config.rto_ns_min.max(view.config.rtt_ns_initial.saturating_mul(4))
        } else {
            PROBE_NS_LATER
        };
        *next = now.after(view.rng.jitter(delay, 100));
        let (token, next) = (*token, *next);
        forget_probes(view, at);
        send_probe(view, now, slot, at, token, 0, sink);
        view.arm(slot, next);
    }
    false
}

/// Of a path that is not open yet only the newest PROBE is kept.
fn forget_probes(view: &mut View<'_>, at: Idx<Path>) {
    let sending = &mut view.paths.at_mut(at).sending;
    while let Some(oldest) = sending.in_flight.front() {
        remove(sending, &mut view.transmissions, oldest);
    }
}

/// A PROBE_REPLY brought `token` back, of a PROBE on path `at`. If that was the question whether the peer is at its
/// address on the plane, it is: the paths of the plane open. O(paths).
pub(crate) fn on_token(view: &mut View<'_>, now: Instant, slot: Idx<Connection>, at: Idx<Path>, token: u64) {
    let plane = view.paths.at(at).plane;
    let planes = &mut view.connections.at_mut(slot).planes;
    let Some(reach) = planes.reach_mut(plane) else { return };
    if !matches!(reach, Reach::Listed { token: asked, .. } if *asked == token) {
        return;
    }
    *reach = Reach::Verified;
    let owner = view.connections.at(slot);
    let key = peer_key(view, owner.planes.remote(plane), owner.ids.remote);
    // A clash only means that a RESET from there will not be believed.
    let _ = view.index.insert(key, slot.raw());
    for at in view.connections.at(slot).plane_paths(plane) {
        let path = view.paths.at_mut(at);
        path.become_state(PathState::Good);
        path.timeouts.since = now;
        paths::begin_mtu_search(path, view.secrets, view.connections.at(slot).terms.mtu_bytes);
    }
    parking::start(view, now, slot, plane);
    paths::set_payload(view, slot);
    plane_health::refresh(view, slot);
    view.mark_ready(slot);
}

/// What is known of a plane; `None` past the last one. O(paths of the plane).
pub(crate) fn stats(view: &View<'_>, slot: Idx<Connection>, plane: u8) -> Option<PlaneStats> {
    let owner = view.connections.at(slot);
    let planes = &owner.planes;
    if plane >= planes.count {
        return None;
    }
    let count = |is: fn(&Path) -> bool| owner.plane_paths(plane).filter(|&at| is(view.paths.at(at))).count();
    let in_use = count(Path::takes_data);
    let parked = count(|path| path.state == PathState::Parked);
    let paths_good = if in_use > 0 { in_use + parked } else { 0 };
    let state = match (planes.is_verified(plane), planes.health.is_dead(plane)) {
        (false, _) => PlaneState::Unverified,
        (true, true) => PlaneState::Dead,
        (true, false) => PlaneState::Up,
    };
    let (peer_silent, peer_unreachable) = planes.health.said(plane);
    Some(PlaneStats {
        plane,
        remote: planes.remote(plane),
        state,
        paths: planes.paths_each,
        paths_good: u8::try_from(paths_good).unwrap_or(u8::MAX),
        silent: planes.health.told_silent(plane),
        peer_silent,
        peer_unreachable,
    })
}

/// Takes the names under which a connection is found by the addresses of its peer out of the index.
pub(crate) fn leave_index(view: &mut View<'_>, slot: Idx<Connection>) {
    let owner = view.connections.at(slot);
    let (planes, id) = (owner.planes, owner.ids.remote);
    for plane in 0..planes.count {
        let key = peer_key(view, planes.remote(plane), id);
        if view.index.find(key) == Some(slot.raw()) {
            view.index.remove(key);
        }
    }
}

const UNSPECIFIED: SocketAddr = SocketAddr::new(IpAddr::V4(core::net::Ipv4Addr::UNSPECIFIED), 0);
