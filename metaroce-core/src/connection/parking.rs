//! Parked paths: a connection uses only as many paths of a plane as its windows there feed. The others wait, without
//! data, timers or probes, for the windows to grow or for a path in use to time out.

use crate::connection::{Connection, outflow, paths};
use crate::path::{Path, Timeouts};
use crate::stats::PathState;
use crate::table::Idx;
use crate::time::Instant;
use crate::view::View;

/// Full packets of window for each path in use.
const FED_PACKETS: u64 = 1;

/// How many paths of a plane a window of `bytes` feeds.
fn fed(owner: &Connection, bytes: u64) -> u64 {
    //= MR-PATH-6
    let packet_bytes = u64::from(owner.terms.mtu_bytes).max(1);
    (bytes / (FED_PACKETS * packet_bytes)).clamp(1, u64::from(owner.planes.paths_each()).max(1))
}

/// Window with which each path of a plane starts, bytes: a part of what the connection may send unasked, and of one
/// packet at least. Whoever is allowed less waits for its share, which sets the pace.
pub(crate) fn start_window_bytes(owner: &Connection, config: &crate::config::Config) -> u64 {
    let packet_bytes = u64::from(owner.terms.mtu_bytes);
    let bytes = outflow::start_bytes(owner, config);
    bytes.max(packet_bytes) / fed(owner, bytes).max(1)
}

/// Leaves as many paths of a plane in use as what the connection may start with feeds. O(paths of the plane).
pub(crate) fn start(view: &mut View<'_>, now: Instant, connection: Idx<Connection>, plane: u8) {
    let owner = view.connections.at(connection);
    let wanted = fed(owner, outflow::start_bytes(owner, view.config));
    let mut used = 0;
    for at in owner.plane_paths(plane) {
        let path = view.paths.at_mut(at);
        if path.takes_data() {
            used += 1;
            if used > wanted && may_park(path) {
                park(path);
            }
        }
    }
    while used < wanted && join(view, now, connection, plane, None) {
        used += 1;
    }
}

/// The windows of a plane's paths have changed: paths that they feed join, one that they no longer feed is parked. The
/// sum of the windows stays. O(paths of the plane).
pub(crate) fn adjust(view: &mut View<'_>, now: Instant, connection: Idx<Connection>, plane: u8) {
    let owner = view.connections.at(connection);
    let (mut used, mut sum) = (0u64, 0u64);
    let mut idle = None;
    for at in owner.plane_paths(plane) {
        let path = view.paths.at(at);
        if path.takes_data() {
            used += 1;
            sum = sum.saturating_add(path.window.window_bytes);
            idle = if may_park(path) { Some(at) } else { idle };
        }
    }
    if used == 0 {
        return;
    }
    let most = fed(owner, sum);
    // Twice as much brings a path back as sends it away.
    let least = fed(owner, sum.saturating_mul(2));
    if used > least
        && let Some(at) = idle
    {
        park(view.paths.at_mut(at));
        scale(view, connection, plane, used, used - 1);
    }
    while used < most && join(view, now, connection, plane, Some(sum / (used + 1).max(1))) {
        used += 1;
    }
}

/// The only path in use timed out: a parked one of its plane tells whether the peer or the route is to blame.
pub(crate) fn wake(view: &mut View<'_>, now: Instant, connection: Idx<Connection>, at: Idx<Path>) {
    //= MR-PATH-43
    join(view, now, connection, view.paths.at(at).plane, None);
}

/// Whether nothing is unjudged on a path, or waits there.
fn may_park(path: &Path) -> bool {
    //= MR-PATH-7
    path.sending.in_flight.is_empty() && path.sending.again.is_empty() && path.timeouts.rto_count == 0
}

fn park(path: &mut Path) {
    if path.state == PathState::Congested {
        path.become_state(PathState::Good);
    }
    path.become_state(PathState::Parked);
    path.timeouts =
        Timeouts { revival: Instant::FAR_FUTURE, returns: path.timeouts.returns, ..Timeouts::default() };
    path.probing.owed = false;
    path.probing.candidate_bytes = 0;
    path.probing.deadline = Instant::FAR_FUTURE;
}

/// Takes a parked path of a plane into use, as its siblings are, whose windows give way if `window_bytes` is what they
/// all should have. Returns whether there was one.
fn join(
    view: &mut View<'_>,
    now: Instant,
    connection: Idx<Connection>,
    plane: u8,
    window_bytes: Option<u64>,
) -> bool {
    let owner = view.connections.at(connection);
    let of = |parked: bool| {
        let mut paths = owner.plane_paths(plane);
        paths.find(|&at| {
            let path = view.paths.at(at);
            if parked { path.state == PathState::Parked } else { path.takes_data() }
        })
    };
    let (Some(at), sibling) = (of(true), of(false)) else { return false };
    let used = owner.plane_paths(plane).filter(|&at| view.paths.at(at).takes_data()).count() as u64;
    let wanted = owner.terms.mtu_bytes;
    if window_bytes.is_some() {
        scale(view, connection, plane, used, used + 1);
    }
    //= MR-PATH-8
    let (mut window, mut returns) = (view.paths.at(at).window, view.paths.at(at).timeouts.returns);
    if let Some(sibling) = sibling {
        (window, returns) = (view.paths.at(sibling).window, view.paths.at(sibling).timeouts.returns);
    }
    window.window_bytes = window_bytes.unwrap_or(window.window_bytes);
    let path = view.paths.at_mut(at);
    path.become_state(PathState::Good);
    path.window = window;
    path.timeouts.since = now;
    path.timeouts.returns = returns;
    if path.probing.mtu_bytes < wanted {
        paths::begin_mtu_search(path, view.secrets, wanted);
    }
    view.mark_ready(connection);
    true
}

/// Scales the windows of a plane's paths in use by `from / to`.
fn scale(view: &mut View<'_>, connection: Idx<Connection>, plane: u8, from: u64, to: u64) {
    for at in view.connections.at(connection).plane_paths(plane) {
        let path = view.paths.at_mut(at);
        if path.takes_data() {
            let scaled = u128::from(path.window.window_bytes) * u128::from(from) / u128::from(to.max(1));
            path.window.window_bytes = u64::try_from(scaled).unwrap_or(u64::MAX).max(1);
        }
    }
}
