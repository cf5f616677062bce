//! The failure of planes: which are dead, on which of them the peer falls silent, and whose turn it is.
//!
//! What this end sends and what it receives fail apart from each other: *dead* and *unreachable* are said of our own
//! paths, *silent* of what comes in. The peer is told both in PLANE frames, so that a failure in one direction stays one.

use crate::config::PLANES_MAX;
use crate::connection::planes::PlaneSet;
use crate::connection::{Connection, acknowledge_now};
use crate::event::LastProgress;
use crate::ids::PathId;
use crate::path::Path;
use crate::stats::PathState;
use crate::table::Idx;
use crate::time::Instant;
use crate::view::View;
use crate::wire::Frame;

/// Packets heard on the other planes, for each plane, before one on which nothing came is silent: in rotation each
/// would have had its turn more than once.
const PACKETS_PER_PLANE: u32 = 4;
/// PLANE frames that tell that all is well again; any may be lost.
const REPEATS: u8 = 8;
/// What the peer said of planes holds for so many RTOs: it repeats what still is so.
const SAID_RTOS: u64 = 8;

/// What a connection knows of the failure of its planes. Planes are bits of a byte.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlaneHealth {
    /// Three quarters of their paths are dead.
    dead: u8,
    /// The dead ones, as long as there is another that carries data.
    avoided: u8,
    /// No path of theirs carries data.
    unreachable: u8,
    heard: [Heard; PLANES_MAX],
    /// Packets heard on all planes, modulo 2^32.
    packets: u32,
    told: Told,
    said: Said,
    /// The plane whose turn it is to carry data.
    spray_turn: u8,
    acks: AckTurns,
    /// An RTO of the connection as a whole, ns, of the last time that its timers fired.
    rto_ns: u64,
    /// What last progressed.
    progressed: Option<LastProgress>,
}

/// When something last came on a plane, and how many packets had come on all by then.
#[derive(Clone, Copy, Debug)]
struct Heard {
    at: Option<Instant>,
    packets: u32,
}

/// What the peer was last told.
#[derive(Clone, Copy, Debug)]
struct Told {
    silent: u8,
    unreachable: u8,
    repeats: u8,
    at: Instant,
    /// Packets that had been heard when silence was last looked for.
    packets: u32,
}

/// What the peer last said, and how long that holds.
#[derive(Clone, Copy, Debug)]
struct Said {
    silent: u8,
    unreachable: u8,
    until: Instant,
}

/// On which plane, and on which path of each, the next acknowledgement goes.
#[derive(Clone, Copy, Debug)]
struct AckTurns {
    plane: u8,
    paths: [u8; PLANES_MAX],
    /// The next goes on two planes.
    twice: bool,
}

impl PlaneHealth {
    pub(crate) const NEW: Self = Self {
        dead: 0,
        avoided: 0,
        unreachable: 0,
        heard: [Heard { at: None, packets: 0 }; PLANES_MAX],
        packets: 0,
        told: Told { silent: 0, unreachable: 0, repeats: 0, at: Instant::ZERO, packets: 0 },
        said: Said { silent: 0, unreachable: 0, until: Instant::ZERO },
        spray_turn: 0,
        acks: AckTurns { plane: 0, paths: [0; PLANES_MAX], twice: false },
        rto_ns: 0,
        progressed: None,
    };

    /// Something came in on a plane.
    pub(crate) fn on_heard(&mut self, now: Instant, plane: u8) {
        self.packets = self.packets.wrapping_add(1);
        if let Some(heard) = self.heard.get_mut(usize::from(plane)) {
            *heard = Heard { at: Some(now), packets: self.packets };
        }
    }

    /// How soon it is a plane's turn to carry data, 0 for now; `None` if it is dead and another is not.
    pub(crate) fn turn(&self, plane: u8) -> Option<u8> {
        //= MR-PATH-32
        if self.avoided & bit(plane) != 0 {
            return None;
        }
        Some(plane.wrapping_sub(self.spray_turn) & PLANE_MASK)
    }

    /// A plane had its turn.
    pub(crate) fn served(&mut self, plane: u8) {
        self.spray_turn = plane.wrapping_add(1) & PLANE_MASK;
    }

    /// The next acknowledgement answers a question: it goes on two planes.
    pub(crate) fn answer_twice(&mut self) {
        self.acks.twice = true;
    }

    /// Whether the acknowledgements that go now are to go on two planes.
    pub(crate) fn take_twice(&mut self) -> bool {
        core::mem::take(&mut self.acks.twice)
    }

    /// A path progressed.
    pub(crate) fn on_progress(&mut self, plane: u8, path: PathId, at: Instant) {
        self.progressed = Some(LastProgress { plane, path, at });
    }

    /// What last progressed.
    pub(crate) const fn last_progress(&self) -> Option<LastProgress> {
        self.progressed
    }

    pub(crate) const fn is_dead(&self, plane: u8) -> bool {
        self.dead & bit(plane) != 0
    }

    /// Whether the peer says that nothing reaches it on a plane.
    pub(crate) fn peer_is_deaf(&self, now: Instant, plane: u8) -> bool {
        self.said.until > now && self.said.silent & bit(plane) != 0
    }

    /// Whether nothing came in on a plane when the peer was last told.
    pub(crate) const fn told_silent(&self, plane: u8) -> bool {
        self.told.silent & bit(plane) != 0
    }

    /// What the peer last said of a plane: that nothing reaches it there, and that it can send nothing.
    pub(crate) const fn said(&self, plane: u8) -> (bool, bool) {
        (self.said.silent & bit(plane) != 0, self.said.unreachable & bit(plane) != 0)
    }

    /// Whether nothing came on a plane for `span_ns`, while others delivered what would have been several turns of it.
    fn is_silent(&self, now: Instant, plane: u8, count: u8, span_ns: u64) -> bool {
        let Some(Heard { at: Some(at), packets }) = self.heard.get(usize::from(plane)).copied() else {
            return false;
        };
        let since = self.packets.wrapping_sub(packets);
        now.since(at) > span_ns && since >= PACKETS_PER_PLANE.saturating_mul(u32::from(count))
    }
}

const PLANE_MASK: u8 = 7;
const _: () = assert!(PLANES_MAX == PLANE_MASK as usize + 1);

const fn bit(plane: u8) -> u8 {
    if plane <= PLANE_MASK { 1 << plane } else { 0 }
}

/// A path has changed its state: so may have its plane. O(paths).
pub(crate) fn refresh(view: &mut View<'_>, slot: Idx<Connection>) {
    let owner = view.connections.at(slot);
    let planes = &owner.planes;
    if planes.count() <= 1 {
        return;
    }
    let (mut dead, mut unreachable) = (0, 0);
    for plane in (0..planes.count()).filter(|&plane| planes.is_verified(plane)) {
        let (mut all, mut down, mut good) = (0u32, 0u32, 0u32);
        for at in owner.plane_paths(plane) {
            let path = view.paths.at(at);
            all += u32::from(path.state != PathState::Parked);
            down += u32::from(matches!(path.state, PathState::Dead | PathState::Probing));
            good += u32::from(path.takes_data());
        }
        //= MR-PATH-32
        if all > 0 && down * 4 >= all * 3 {
            dead |= bit(plane);
        }
        if good == 0 {
            unreachable |= bit(plane);
        }
    }
    let left =
        (0..planes.count()).any(|plane| planes.is_verified(plane) && (dead | unreachable) & bit(plane) == 0);
    let health = &mut view.connections.at_mut(slot).planes.health;
    health.dead = dead;
    health.unreachable = unreachable;
    health.avoided = if left { dead } else { 0 };
    if unreachable != health.told.unreachable {
        acknowledge_now(view, slot);
    }
}

/// Planes on which nothing comes in, while others deliver. O(planes).
fn silent(view: &View<'_>, now: Instant, slot: Idx<Connection>) -> u8 {
    let planes = &view.connections.at(slot).planes;
    let span_ns = 2 * planes.health.rto_ns.max(view.config.rto_ns_min);
    let is_silent = |&plane: &u8| planes.health.is_silent(now, plane, planes.count(), span_ns);
    (0..planes.count()).filter(is_silent).fold(0, |silent, plane| silent | bit(plane))
}

/// Looks for planes that have fallen silent, and has the peer told: who only sends acknowledges nothing, so that what
/// it has to say of planes would find no way. Returns when to look again. O(planes).
pub(crate) fn on_timer(view: &mut View<'_>, now: Instant, slot: Idx<Connection>) -> Instant {
    let owner = view.connections.at(slot);
    if owner.planes.count() <= 1 {
        return Instant::FAR_FUTURE;
    }
    let Told { at, packets, .. } = owner.planes.health.told;
    let heard = owner.planes.health.packets;
    let sends = !owner.outbound.packets.is_empty();
    if heard == packets && !sends {
        return Instant::FAR_FUTURE;
    }
    let rtt_ns = owner.rtt_ns(&view.paths, view.config);
    let rto_ns = view.config.rto_ns_min.max(rtt_ns.saturating_mul(4));
    view.connections.at_mut(slot).planes.health.rto_ns = rto_ns;
    let silent = silent(view, now, slot);
    let health = &mut view.connections.at_mut(slot).planes.health;
    health.told.packets = heard;
    let news = (silent, health.unreachable) != (health.told.silent, health.told.unreachable);
    let lasts = silent | health.unreachable != 0 || health.told.repeats > 0;
    //= MR-ACK-32
    if news || (lasts && sends && now.since(at) > 2 * rto_ns) {
        acknowledge_now(view, slot);
    }
    now.after(2 * rto_ns)
}

/// The PLANE frame that goes with an acknowledgement, if there is something to say. O(planes).
pub(crate) fn frame(view: &mut View<'_>, now: Instant, slot: Idx<Connection>) -> Option<Frame> {
    if view.connections.at(slot).planes.count() <= 1 {
        return None;
    }
    let silent = silent(view, now, slot);
    let health = &mut view.connections.at_mut(slot).planes.health;
    let unreachable = health.unreachable;
    let told = &mut health.told;
    if (told.silent, told.unreachable) != (silent, unreachable) {
        *told = Told { silent, unreachable, repeats: REPEATS, ..*told };
    }
    told.at = now;
    //= MR-ACK-27
    if silent | unreachable == 0 {
        told.repeats = told.repeats.checked_sub(1)?;
    }
    Some(Frame::Plane { silent: u32::from(silent), unreachable: u32::from(unreachable) })
}

/// A PLANE frame came. Where the peer newly says that nothing reaches it, its word is put to the test: every path there
/// that carries data asks. O(paths).
pub(crate) fn on_frame(
    view: &mut View<'_>,
    now: Instant,
    slot: Idx<Connection>,
    silent: u32,
    unreachable: u32,
) {
    let rto_ns = view.connections.at(slot).planes.health.rto_ns.max(view.config.rto_ns_min);
    let until = now.after(rto_ns.saturating_mul(SAID_RTOS));
    let low = |bits: u32| u8::try_from(bits & 0xff).unwrap_or(0);
    let said = Said { silent: low(silent), unreachable: low(unreachable), until };
    let planes = &mut view.connections.at_mut(slot).planes;
    let known = if planes.health.said.until > now { planes.health.said.silent } else { 0 };
    planes.health.said = said;
    for plane in 0..planes.count() {
        if said.silent & !known & bit(plane) == 0 {
            continue;
        }
        for at in view.connections.at(slot).plane_paths(plane) {
            let path = view.paths.at_mut(at);
            if path.takes_data() {
                //= MR-PATH-41
                path.timeouts.probe_owed = true;
                view.mark_ready(slot);
            }
        }
    }
}

/// The path on which the next acknowledgement goes: in rotation over the planes, and on each over its paths that carry
/// data, so that one dead direction does not silence the others. O(paths).
pub(crate) fn next_ack_path(view: &mut View<'_>, now: Instant, slot: Idx<Connection>) -> Idx<Path> {
    let planes = &view.connections.at(slot).planes;
    let mut second = None;
    let mut turn = planes.health.acks.plane;
    for _ in 0..planes.count() {
        let plane = if turn >= planes.count() { 0 } else { turn };
        turn = plane.saturating_add(1);
        let Some((at, next)) = next_good(view, slot, plane) else { continue };
        //= MR-ACK-17, MR-ACK-18
        let excluded = planes.health.peer_is_deaf(now, plane) || planes.health.avoided & bit(plane) != 0;
        if !excluded {
            return take_turn(view, slot, plane, at, next);
        }
        second = second.or(Some((plane, at, next)));
    }
    match second {
        Some((plane, at, next)) => take_turn(view, slot, plane, at, next),
        None => view.connections.at(slot).paths.first,
    }
}

/// The next path of a plane that carries data, in rotation, and the number of the one after it.
fn next_good(view: &View<'_>, slot: Idx<Connection>, plane: u8) -> Option<(Idx<Path>, u8)> {
    let owner = view.connections.at(slot);
    let turn = owner.planes.health.acks.paths.get(usize::from(plane)).copied().unwrap_or(0);
    let numbered = || (0u8..).zip(owner.plane_paths(plane));
    let mut order = numbered().filter(|(number, _)| *number >= turn).chain(numbered());
    let (number, at) = order.find(|(_, at)| view.paths.at(*at).takes_data())?;
    Some((at, number.saturating_add(1)))
}

fn take_turn(view: &mut View<'_>, slot: Idx<Connection>, plane: u8, at: Idx<Path>, next: u8) -> Idx<Path> {
    view.connections.at_mut(slot).planes.health.acks.plane = plane.saturating_add(1);
    set_turn(view, slot, plane, next);
    at
}

fn set_turn(view: &mut View<'_>, slot: Idx<Connection>, plane: u8, next: u8) {
    let acks = &mut view.connections.at_mut(slot).planes.health.acks;
    if let Some(turn) = acks.paths.get_mut(usize::from(plane)) {
        *turn = next;
    }
}

/// Whether a path asks for all dead paths of its plane: the first of them.
pub(crate) fn leads(view: &View<'_>, slot: Idx<Connection>, at: Idx<Path>) -> bool {
    let owner = view.connections.at(slot);
    let plane = view.paths.at(at).plane;
    let is_down = |at: &Idx<Path>| matches!(view.paths.at(*at).state, PathState::Dead | PathState::Probing);
    owner.plane_paths(plane).find(is_down) == Some(at)
}

/// A dead path of a plane was answered: all others that are dead ask at once. O(paths of the plane).
pub(crate) fn wake(view: &mut View<'_>, slot: Idx<Connection>, plane: u8) {
    //= MR-PATH-20
    for at in view.connections.at(slot).plane_paths(plane) {
        let path = view.paths.at_mut(at);
        path.timeouts.probe_owed |= path.state == PathState::Dead;
    }
    view.mark_ready(slot);
}

/// Whether an acknowledgement can go on two planes. O(planes).
pub(crate) fn several_live(planes: &PlaneSet) -> bool {
    let out = planes.health.unreachable | planes.health.avoided;
    (0..planes.count()).filter(|&plane| planes.is_verified(plane) && out & bit(plane) == 0).count() > 1
}

/// A path that carries data on each plane but `plane`, in rotation. O(paths).
pub(crate) fn next_of_others(
    view: &mut View<'_>,
    slot: Idx<Connection>,
    plane: u8,
) -> [Option<Idx<Path>>; PLANES_MAX] {
    let mut found = [None; PLANES_MAX];
    for (other, entry) in (0..view.connections.at(slot).planes.count()).zip(&mut found) {
        if other != plane
            && let Some((at, next)) = next_good(view, slot, other)
        {
            *entry = Some(at);
            set_turn(view, slot, other, next);
        }
    }
    found
}

/// Has one path that carries data on each plane but `plane` ask whether anything gets through there. O(paths).
pub(crate) fn ask_others(view: &mut View<'_>, slot: Idx<Connection>, plane: u8) {
    for at in next_of_others(view, slot, plane).into_iter().flatten() {
        view.paths.at_mut(at).timeouts.probe_owed = true;
    }
    view.mark_ready(slot);
}
