//! The set of paths: opening, choosing, moving, and the search for the path MTU.

use crate::config::{Config, PLANES_MAX};
use crate::congestion::{PathWindow, WindowBounds};
use crate::connection::handshake::high;
use crate::connection::{Connection, parking};
use crate::delivery::{Cause, Packet, Place};
use crate::ids::{PathId, Psn};
use crate::path::{MTU_BYTES_START, Path, Probing, Received, Rtt, Tolerance};
use crate::rng::Secrets;
use crate::share::time_for;
use crate::stats::PathState;
use crate::table::Idx;
use crate::time::Instant;
use crate::view::View;
use crate::wire::DATA_HEADER_BYTES_MAX;

/// Links of a route, each of which sends a packet whole.
const HOPS: u64 = 4;
/// Losses of one packet after which its path is taken to lose it for a reason.
const LOSSES_AT_HOME: u8 = 4;
/// A window is at least this fraction of a packet.
const WINDOW_FRACTION: u64 = 256;
/// Padded probes of one size before the next smaller size is tried.
const MTU_TRIES: u8 = 5;
/// Time after which a search that ended below the wanted size starts again, ns.
const MTU_AGAIN_NS: u64 = 10_000_000_000;
/// Padded PROBEs that start at once take at most one part in so many of a line.
const SEARCH_SPREAD: u64 = 4;
/// UDP payloads worth trying: what common Ethernet and tunnel MTUs leave.
const MTU_LADDER: [u16; 6] = [8_952, 8_252, 4_176, 2_128, 1_452, 1_392];
/// Losses in a row of packets larger than every route carries, while others were delivered, after which the path's
/// MTU is searched for again.
const LARGE_LOSSES: u8 = 8;

/// What the congestion control may do with a path of this connection.
pub(crate) fn bounds(now: Instant, connection: &Connection, config: &Config, plane: u8) -> WindowBounds {
    let packet_bytes = u64::from(connection.paths.payload_bytes) + DATA_HEADER_BYTES_MAX as u64;
    let share = connection.outflows.fresh_kbps(now, plane);
    let share = share.and_then(|kbps| u32::try_from(kbps).ok()).unwrap_or(u32::MAX);
    let rate_kbps = u64::from(config.inbound_rate_kbps);
    WindowBounds {
        packet_bytes,
        rate_kbps: config.inbound_rate_kbps.min(share),
        window_bytes_start: parking::start_window_bytes(connection, config).max(1),
        window_bytes_min: (packet_bytes / WINDOW_FRACTION).max(1),
        window_bytes_max: u64::from(config.window_bytes_max),
        // The base RTT is that of short packets, which switches store and forward faster than full ones.
        delay_target_ns: config.delay_target_ns.saturating_add(HOPS * time_for(packet_bytes, rate_kbps)),
    }
}

/// Opens all paths of a connection whose terms are known.
pub(crate) fn open(view: &mut View<'_>, now: Instant, connection: Idx<Connection>) {
    let owner = view.connections.at_mut(connection);
    owner.paths.count = owner.planes.paths();
    owner.paths.first = Idx::new(connection.raw().saturating_mul(u32::from(view.paths_per_connection)));
    owner.paths.payload_bytes = MTU_BYTES_START.saturating_sub(HEADER);
    let bounds = bounds(now, owner, view.config, 0);
    let first_port = u32::from(view.config.source_ports.first);
    let ports = u32::from(view.config.source_ports.last).saturating_sub(first_port) + 1;
    //= MR-PATH-2
    // Neighbouring ports from a random start: no two paths of a connection share one, as far as the range allows.
    let start = view.rng.below(ports);
    let ids = owner.ids;
    let planes = owner.planes;
    for (number, at) in (0u8..).zip(owner.path_indices()) {
        let port = first_port + (start + u32::from(number)) % ports.max(1);
        //= MR-HS-7
        let psn = psn_first(ids.local_nonce, number);
        let path = view.paths.at_mut(at);
        let plane = planes.plane_of(PathId(number));
        *path = Path {
            id: PathId(number),
            plane,
            source_port: u16::try_from(port).unwrap_or(u16::MAX),
            ..Path::EMPTY
        };
        path.received = Received::starting_at(psn_first(ids.remote_nonce, number));
        path.sending.psn_first = psn;
        path.sending.psn_next = psn;
        path.sending.tolerance = Tolerance::new(u32::from(view.config.reorder_tolerance));
        view.config.congestion.on_start(&mut path.window, &bounds);
        if planes.is_verified(plane) {
            begin_mtu_search(path, view.secrets, view.connections.at(connection).terms.mtu_bytes);
        } else {
            path.state = PathState::Unverified;
        }
    }
    for plane in 0..planes.count() {
        parking::start(view, now, connection, plane);
    }
    spread_searches(view, now, connection);
    view.mark_ready(connection);
}

/// Where others are open, the searches of a new connection begin at some time within that in which all could have sent
/// their padded PROBEs several times: thousands that open at once would fill the line, and take each other for dead.
fn spread_searches(view: &mut View<'_>, now: Instant, connection: Idx<Connection>) {
    let others = view.connections.capacity().saturating_sub(view.connections.available()).saturating_sub(1);
    let owner = view.connections.at(connection);
    let probe_ns = time_for(u64::from(owner.terms.mtu_bytes), u64::from(view.config.inbound_rate_kbps));
    let span_ns = probe_ns.saturating_mul(u64::from(others)).saturating_mul(SEARCH_SPREAD);
    //= MR-PATH-42
    let delay_ns = view.rng.below(u32::try_from(span_ns).unwrap_or(u32::MAX));
    if delay_ns == 0 {
        return;
    }
    let begin = now.after(u64::from(delay_ns));
    for at in view.connections.at(connection).path_indices() {
        let probing = &mut view.paths.at_mut(at).probing;
        if probing.owed {
            (probing.owed, probing.deadline) = (false, begin);
        }
    }
    view.arm(connection, begin);
}

/// The first PSN of a path: spread over the number space by path, from a number that only the two ends know, so that
/// the receiver can tell a PSN that its peer cannot have reached.
fn psn_first(nonce: u64, path: u8) -> Psn {
    Psn::new(high(nonce).wrapping_add(u32::from(path).wrapping_mul(0x9e37_79b9)))
}

/// Has one good path ask whether the peer is still there, in turn: a route that fails in one direction must not decide
/// it for all.
pub(crate) fn ask_for_life(view: &mut View<'_>, connection: Idx<Connection>) {
    //= MR-PATH-28
    let owner = view.connections.at(connection);
    let good = || owner.path_indices().filter(|&at| view.paths.at(at).takes_data());
    let count = u32::try_from(good().count()).unwrap_or(0);
    let turn = view.rng.below(count);
    let asked = good().nth(turn as usize).unwrap_or(owner.paths.first);
    view.paths.at_mut(asked).timeouts.probe_owed = true;
    view.mark_ready(connection);
}

/// Bytes of header in every full packet.
const HEADER: u16 = 80;
const _: () = assert!(HEADER as usize == DATA_HEADER_BYTES_MAX);

/// Starts the search for the largest packet that the path's route carries.
pub(crate) fn begin_mtu_search(path: &mut Path, secrets: &mut Secrets, mtu_bytes: u16) {
    path.probing = Probing {
        mtu_bytes: MTU_BYTES_START,
        candidate_bytes: if mtu_bytes > MTU_BYTES_START { mtu_bytes } else { 0 },
        token: secrets.next_u64(),
        tries: 0,
        deadline: Instant::FAR_FUTURE,
        owed: mtu_bytes > MTU_BYTES_START,
        large_lost: 0,
    };
}

/// A packet of `bytes` was lost. If only large ones are, the route may carry less than it did.
pub(crate) fn on_packet_lost(view: &mut View<'_>, connection: Idx<Connection>, at: Idx<Path>, bytes: u16) {
    let path = view.paths.at_mut(at);
    if bytes <= MTU_BYTES_START {
        return;
    }
    path.probing.large_lost = path.probing.large_lost.saturating_add(1);
    if path.probing.large_lost >= LARGE_LOSSES {
        let mtu_bytes = view.connections.at(connection).terms.mtu_bytes;
        begin_mtu_search(path, view.secrets, mtu_bytes);
        set_payload(view, connection);
        move_again(view, connection, at);
        view.mark_ready(connection);
    }
}

/// The padded probe under way was answered.
pub(crate) fn on_probe_answered(
    view: &mut View<'_>,
    now: Instant,
    connection: Idx<Connection>,
    at: Idx<Path>,
    token: u64,
) {
    let path = view.paths.at_mut(at);
    if path.probing.candidate_bytes == 0 || path.probing.token != token {
        return;
    }
    //= MR-PATH-33
    path.probing.mtu_bytes = path.probing.candidate_bytes;
    let below = path.probing.mtu_bytes < view.connections.at(connection).terms.mtu_bytes;
    path.probing.candidate_bytes = 0;
    path.probing.deadline = if below { now.after(MTU_AGAIN_NS) } else { Instant::FAR_FUTURE };
    set_payload(view, connection);
    // What other paths turned out not to carry may find its way now.
    for other in view.connections.at(connection).path_indices() {
        move_again(view, connection, other);
    }
}

/// The padded probe under way was not answered in time: again, or the next smaller size.
pub(crate) fn on_probe_missed(view: &mut View<'_>, now: Instant, connection: Idx<Connection>, at: Idx<Path>) {
    let wanted = view.connections.at(connection).terms.mtu_bytes;
    let path = view.paths.at_mut(at);
    let probing = &mut path.probing;
    if probing.candidate_bytes == 0 {
        // Time to look again: the loss of a few probes, or another route, may have been why.
        probing.candidate_bytes = wanted;
        probing.tries = 0;
    }
    probing.deadline = Instant::FAR_FUTURE;
    probing.token = view.secrets.next_u64();
    //= MR-PATH-34
    if probing.tries >= MTU_TRIES {
        probing.tries = 0;
        probing.candidate_bytes =
            MTU_LADDER.into_iter().find(|&size| size < probing.candidate_bytes).unwrap_or(0);
    }
    probing.owed = probing.candidate_bytes > probing.mtu_bytes;
    if probing.owed {
        view.mark_ready(connection);
    } else {
        probing.candidate_bytes = 0;
        probing.deadline = now.after(MTU_AGAIN_NS);
        view.arm(connection, now.after(MTU_AGAIN_NS));
        move_again(view, connection, at);
    }
}

/// What waits to go again on a path is handed out anew: the path takes no data any more, or turned out not to carry
/// it. O(packets that wait).
pub(crate) fn move_again(view: &mut View<'_>, connection: Idx<Connection>, at: Idx<Path>) {
    for _ in 0..view.paths.at(at).sending.again.len() {
        let Some(packet) = view.paths.at_mut(at).sending.again.pop_front(&mut view.packets) else { break };
        let cause = match view.packets.at(packet).place {
            Place::Again { cause, .. } => cause,
            _ => Cause::Timeout,
        };
        send_again(view, connection, packet, at, cause);
    }
}

/// Sets the payload of a full packet: the smallest that the paths in use carry; a path that carries less than half
/// of the best stays out.
pub(crate) fn set_payload(view: &mut View<'_>, connection: Idx<Connection>) {
    let owner = view.connections.at_mut(connection);
    let sizes = || owner.path_indices().map(|at| view.paths.at(at)).filter(|path| path.takes_data());
    let largest = sizes().map(|path| path.probing.mtu_bytes).max().unwrap_or(MTU_BYTES_START);
    //= MR-PATH-35
    let smallest = sizes()
        .map(|path| path.probing.mtu_bytes)
        .filter(|&bytes| bytes >= largest / 2)
        .min()
        .unwrap_or(MTU_BYTES_START);
    owner.paths.payload_bytes = smallest.saturating_sub(HEADER);
}

/// The least loaded good path that has room for a packet of `bytes`; ties go by a random start. O(paths).
pub(crate) fn choose(
    view: &mut View<'_>,
    now: Instant,
    connection: Idx<Connection>,
    bytes: u64,
) -> Option<Idx<Path>> {
    let owner = view.connections.at(connection);
    let count = u32::from(owner.paths.count);
    let start = view.rng.below(count);
    let mut best: Option<(u8, u64, Idx<Path>)> = None;
    let (mut inflight, mut windows) = (0u64, 0u64);
    let mut blocked = false;
    let mut paced = Instant::FAR_FUTURE;
    let mut open = [Instant::ZERO; PLANES_MAX];
    for (plane, opens_at) in (0..).zip(&mut open) {
        let line_opens_at = view.lines.opens_at(now, owner.planes.local(plane));
        *opens_at = owner.outflows.opens_at(now, plane).max(line_opens_at);
    }
    for step in 0..count {
        let id = if start + step >= count { start + step - count } else { start + step };
        let at = Idx::new(owner.paths.first.raw().wrapping_add(id));
        let path = view.paths.at(at);
        if path.takes_data() {
            inflight += path.sending.inflight_bytes;
            windows = windows.saturating_add(path.window.window_bytes);
        }
        //= MR-PATH-36
        if !path.takes(bytes) {
            continue;
        }
        let Some(turn) = owner.planes.health.turn(path.plane) else { continue };
        //= MR-CC-22
        let opens_at = open.get(usize::from(path.plane)).copied().unwrap_or(Instant::ZERO);
        if opens_at > now {
            paced = paced.min(opens_at);
            continue;
        }
        if !path.has_room(now, bytes) {
            // A window that is full opens by an acknowledgement, not by the clock.
            let until = path.sending.pace_until;
            paced = if until > now { paced.min(until) } else { paced };
            blocked = true;
            continue;
        }
        //= MR-PATH-9
        let load = ((path.sending.inflight_bytes + bytes) << 16) / path.window.window_bytes.max(1);
        let load = path.recent.weigh(load);
        //= MR-PATH-39
        if best.is_none_or(|(soonest, least, _)| (turn, load) < (soonest, least)) {
            best = Some((turn, load, at));
        }
    }
    //= MR-CC-11
    // One packet fits on every path, but not on all of them at once. PROBEs keep none from going.
    let is_full =
        inflight >= bytes && inflight + bytes > windows.min(u64::from(view.config.window_bytes_max));
    if blocked || is_full {
        for at in view.connections.at(connection).path_indices() {
            let path = view.paths.at_mut(at);
            if is_full || !path.has_room(now, bytes) {
                path.sending.limited_at = Some(now);
            }
        }
    }
    if is_full {
        return None;
    }
    if best.is_none() {
        wait_for_pace(view, connection, paced);
    }
    let (_, _, at) = best?;
    let plane = view.paths.at(at).plane;
    view.connections.at_mut(connection).planes.health.served(plane);
    Some(at)
}

/// Has the connection look again when a paced path may send.
pub(crate) fn wait_for_pace(view: &mut View<'_>, connection: Idx<Connection>, at: Instant) {
    if at != Instant::FAR_FUTURE {
        let clock = &mut view.connections.at_mut(connection).clock;
        clock.pace_at = clock.pace_at.min(at);
        view.arm(connection, at);
    }
}

/// The connection starts to send, first or after a pause: windows that are larger than a start are forgotten. O(paths).
pub(crate) fn restart(view: &mut View<'_>, now: Instant, connection: Idx<Connection>, first: bool) {
    for plane in 0..view.connections.at(connection).planes.count() {
        parking::start(view, now, connection, plane);
    }
    for at in view.connections.at(connection).path_indices() {
        let bounds = bounds(now, view.connections.at(connection), view.config, view.paths.at(at).plane);
        let path = view.paths.at_mut(at);
        let mut fresh = PathWindow::default();
        view.config.congestion.on_start(&mut fresh, &bounds);
        if fresh.window_bytes < path.window.window_bytes || first {
            path.window = fresh;
        }
    }
}

/// Puts a packet into a path's queue of those that go again: on `home` if that is good and carries it, else on the
/// least loaded that does.
pub(crate) fn send_again(
    view: &mut View<'_>,
    connection: Idx<Connection>,
    packet: Idx<Packet>,
    home: Idx<Path>,
    cause: Cause,
) {
    let entry = view.packets.at(packet);
    let bytes = entry.bytes_max();
    let path = view.paths.at(home);
    // A window below a packet would have it wait for several RTTs.
    let sends_soon = path.takes(bytes) && path.window.window_bytes >= bytes;
    //= MR-LOSS-21
    let stays = sends_soon && entry.losses < LOSSES_AT_HOME;
    let target = if stays { home } else { best_other(view, connection, home, bytes) };
    queue_again(view, connection, packet, target, cause);
}

pub(crate) fn queue_again(
    view: &mut View<'_>,
    connection: Idx<Connection>,
    packet: Idx<Packet>,
    target: Idx<Path>,
    cause: Cause,
) {
    let bytes = view.packets.at(packet).bytes_max();
    let path = view.paths.at_mut(target);
    let entry = view.packets.at_mut(packet);
    if path.takes_data() && !path.takes(bytes) && path.probing.candidate_bytes == 0 {
        //= MR-PATH-37
        entry.void = true;
        entry.too_large = true;
    }
    entry.place = Place::Again { path: target, cause };
    path.sending.again.push_back(&mut view.packets, packet);
    view.connections.at_mut(connection).paths.again |= path.id.bit();
    view.mark_ready(connection);
}

/// The good path with the least in flight and waiting that carries `bytes`. If there is none, `home` waits until its
/// search for the path MTU is over, unless it takes no data at all. O(paths).
pub(crate) fn best_other(
    view: &View<'_>,
    connection: Idx<Connection>,
    home: Idx<Path>,
    bytes: u64,
) -> Idx<Path> {
    let plane = view.paths.at(home).plane;
    let least_loaded = |bytes| {
        let paths = view.connections.at(connection).path_indices();
        paths.filter(|&at| at != home && view.paths.at(at).takes(bytes)).min_by_key(|&at| {
            let path = view.paths.at(at);
            let waiting = path.sending.inflight_bytes + (u64::from(path.sending.again.len()) << 12) + bytes;
            // What failed on one path of a plane may soon fail on its siblings.
            (path.plane == plane, (waiting << 16) / path.window.window_bytes.max(1))
        })
    };
    let any = || if view.paths.at(home).takes_data() { None } else { least_loaded(0) };
    least_loaded(bytes).or_else(any).unwrap_or(home)
}

/// Moves a path to another route, of which nothing is known.
pub(crate) fn repath(view: &mut View<'_>, connection: Idx<Connection>, at: Idx<Path>) {
    change_port(view, connection, at);
    let mtu_bytes = view.connections.at(connection).terms.mtu_bytes;
    let path = view.paths.at_mut(at);
    path.rtt = Rtt::NEW;
    begin_mtu_search(path, view.secrets, mtu_bytes);
    set_payload(view, connection);
}

/// Gives a path another source port, which no sibling has if a few tries find one. What is in flight is judged as of
/// the old route.
pub(crate) fn change_port(view: &mut View<'_>, connection: Idx<Connection>, at: Idx<Path>) {
    let first = u32::from(view.config.source_ports.first);
    let span = u32::from(view.config.source_ports.last).saturating_sub(first) + 1;
    let owner = view.connections.at(connection);
    let mut port = 0;
    for _ in 0..8 {
        port = u16::try_from(first + view.rng.below(span)).unwrap_or(u16::MAX);
        if owner.path_indices().all(|other| view.paths.at(other).source_port != port) {
            break;
        }
    }
    view.paths.at_mut(at).move_to(port);
    view.mark_ready(connection);
}
