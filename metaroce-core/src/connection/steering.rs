//! Away from hot and lossy routes: what a path met lately weighs in the choice of the next one, and moves it to another
//! route if its siblings fare better.

use crate::connection::{Connection, paths};
use crate::path::Path;
use crate::stats::PathState;
use crate::table::Idx;
use crate::time::Instant;
use crate::view::View;

/// Fractions are in units of 2^-16.
const ONE: u32 = 1 << 16;
/// Marked fraction from which a path is congested, and below which it is clear.
const HOT: u32 = ONE / 4;
const CLEAR: u32 = ONE / 16;
/// Lost fraction below which no path is called lossy.
const LOSSY: u32 = ONE / 32;
/// Lost fraction from which a path is known to lose packets: one, a few hundred packets ago.
const LOSES: u32 = ONE / 1024;
/// A path is lossy at so many times the loss of its siblings.
const LOSSIER: u32 = 4;
/// Packets over which the marked fraction is smoothed: a fabric at its limit has to be balanced within a few RTTs.
const MARKED_PACKETS: u32 = 16;
/// Packets over which the lost fraction is smoothed. Of fewer, chance alone makes some path the lossiest by far, and
/// paths that moved for that would never balance.
const LOST_PACKETS: u32 = 512;
/// Packets of a route that are judged before it is called lossy.
const JUDGED_PACKETS: u32 = 64;
/// RTTs for which a path is congested before it moves, and at least between two moves.
const CONGESTED_RTTS: u64 = 16;
const SETTLE_RTTS: u64 = 32;
/// At most this part of the paths moves in one RTT.
const MOVES_DIVISOR: u64 = 8;

/// What a path met lately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recent {
    /// Marked and lost fractions, smoothed, 2^-16.
    pub(crate) marked: u32,
    pub(crate) lost: u32,
    /// Packets judged on this route, as far as they matter.
    judged: u32,
    /// Since when it is congested.
    hot_since: Instant,
    /// When it last moved to another route of our own accord.
    moved_at: Instant,
}

impl Recent {
    pub(crate) const NEW: Self =
        Self { marked: 0, lost: 0, judged: 0, hot_since: Instant::ZERO, moved_at: Instant::ZERO };

    /// The route is another: nothing is known of it.
    pub(crate) fn forget(&mut self) {
        *self = Self { moved_at: self.moved_at, ..Self::NEW };
    }

    fn on_packets(&mut self, delivered: u32, marked: u32, lost: u32) {
        let packets = delivered.saturating_add(lost);
        self.judged = self.judged.saturating_add(packets).min(2 * JUDGED_PACKETS);
        self.marked = smooth(self.marked, marked, delivered, MARKED_PACKETS);
        self.lost = smooth(self.lost, lost, packets, LOST_PACKETS);
    }

    /// Whether packets were lost lately.
    pub(crate) const fn loses(&self) -> bool {
        self.lost >= LOSES
    }

    const fn is_clear(&self) -> bool {
        self.marked < CLEAR
    }

    /// The load of the path, weighted by its marks.
    pub(crate) fn weigh(&self, load: u64) -> u64 {
        //= MR-PATH-11
        load.saturating_add(load.saturating_mul(u64::from(self.marked)) / u64::from(ONE / 2))
    }
}

/// `fraction`, moved towards `part` of `whole` by as much as `whole` packets count among `span`.
fn smooth(fraction: u32, part: u32, whole: u32, span: u32) -> u32 {
    if whole == 0 {
        return fraction;
    }
    let newest = u64::from(part.min(whole)) * u64::from(ONE) / u64::from(whole);
    let weight = u64::from(whole.min(span));
    let kept = u64::from(fraction) * u64::from(span).saturating_sub(weight);
    u32::try_from((kept + newest * weight) / u64::from(span.max(1))).unwrap_or(ONE)
}

/// Packets of a good path were judged. O(paths) if it fared badly.
pub(crate) fn on_feedback(
    view: &mut View<'_>,
    now: Instant,
    connection: Idx<Connection>,
    at: Idx<Path>,
    (delivered, marked, lost): (u32, u32, u32),
) {
    let path = view.paths.at_mut(at);
    path.recent.on_packets(delivered, marked, lost);
    match path.state {
        PathState::Good if path.recent.marked >= HOT => {
            path.become_state(PathState::Congested);
            path.recent.hot_since = now;
        }
        PathState::Congested if path.recent.is_clear() => path.become_state(PathState::Good),
        _ => {}
    }
    if may_move(view, now, connection, at) && has_better_siblings(view, connection, at) {
        let path = view.paths.at_mut(at);
        path.recent.moved_at = now;
        let rtt_ns = path.rtt.smoothed_or(view.config.rtt_ns_initial);
        let owner = view.connections.at_mut(connection);
        let moves = u64::from(owner.paths.count).div_ceil(MOVES_DIVISOR).max(1);
        owner.paths.next_move = now.after(rtt_ns / moves);
        move_away(view, now, connection, at);
    }
}

/// Whether `other` is another path of the same plane, and in use.
fn is_sibling(view: &View<'_>, at: Idx<Path>, other: Idx<Path>) -> bool {
    let path = view.paths.at(other);
    other != at && path.plane == view.paths.at(at).plane && path.takes_data()
}

/// A mark took `bytes` off the window of a path: its clear siblings take over, if they are the most. O(paths).
pub(crate) fn hand_over(view: &mut View<'_>, connection: Idx<Connection>, at: Idx<Path>, bytes: u64) {
    let (mut siblings, mut clear) = (0u64, 0u64);
    for other in view.connections.at(connection).path_indices() {
        if is_sibling(view, at, other) {
            siblings += 1;
            clear += u64::from(view.paths.at(other).recent.is_clear());
        }
    }
    if clear == 0 || clear * 2 < siblings {
        return;
    }
    for other in view.connections.at(connection).path_indices() {
        if is_sibling(view, at, other) && view.paths.at(other).recent.is_clear() {
            let window = &mut view.paths.at_mut(other).window;
            window.window_bytes = window.window_bytes.saturating_add(bytes / clear);
        }
    }
}

fn may_move(view: &View<'_>, now: Instant, connection: Idx<Connection>, at: Idx<Path>) -> bool {
    let path = view.paths.at(at);
    let rtt_ns = path.rtt.smoothed_or(view.config.rtt_ns_initial);
    let congested = path.state == PathState::Congested
        && now.since(path.recent.hot_since) >= rtt_ns.saturating_mul(CONGESTED_RTTS);
    let lossy = path.recent.lost >= LOSSY && path.recent.judged > JUDGED_PACKETS;
    //= MR-PATH-29, MR-PATH-30
    (congested || lossy)
        && now.since(path.recent.moved_at) >= rtt_ns.saturating_mul(SETTLE_RTTS)
        && now >= view.connections.at(connection).paths.next_move
}

/// Whether most other paths of the plane are clear while this one is marked, or lose far less.
fn has_better_siblings(view: &View<'_>, connection: Idx<Connection>, at: Idx<Path>) -> bool {
    let path = view.paths.at(at);
    let (mut siblings, mut clear, mut losing_less) = (0u32, 0u32, 0u32);
    for other in view.connections.at(connection).path_indices() {
        if !is_sibling(view, at, other) {
            continue;
        }
        let sibling = view.paths.at(other);
        siblings += 1;
        clear += u32::from(sibling.recent.is_clear());
        losing_less += u32::from(sibling.recent.lost.saturating_mul(LOSSIER) < path.recent.lost);
    }
    //= MR-PATH-31
    let hot = path.state == PathState::Congested && clear * 2 >= siblings.max(1);
    let lossy = path.recent.lost >= LOSSY && losing_less * 2 > siblings;
    hot || lossy
}

/// Another route. Path MTU and RTT are taken to be the same until packets show otherwise: to search first would keep
/// the path out of use for longer than the move gains.
fn move_away(view: &mut View<'_>, now: Instant, connection: Idx<Connection>, at: Idx<Path>) {
    let bounds = paths::bounds(now, view.connections.at(connection), view.config, view.paths.at(at).plane);
    paths::change_port(view, connection, at);
    let path = view.paths.at_mut(at);
    if path.state == PathState::Congested {
        path.become_state(PathState::Good);
    }
    //= MR-CC-26
    view.config.congestion.on_repath(&mut path.window, &bounds);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    //= MR-PATH-30 test
    #[test]
    fn chance_alone_makes_no_path_lossy() {
        let mut rng = Rng::new(1);
        let mut recent = Recent::NEW;
        let mut most = 0;
        for _ in 0..100_000 {
            let lost = (0..8).map(|_| u32::from(rng.below(100) == 0)).sum();
            recent.on_packets(8 - lost, 0, lost);
            most = most.max(recent.lost);
        }
        assert!((ONE / 64..LOSSY).contains(&most), "{most} of {ONE} where one packet of a hundred is lost");
    }
}
