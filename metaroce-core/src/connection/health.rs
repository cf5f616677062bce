//! The health of a path: timeouts, suspicion, death, probing and return.

use crate::connection::paths::{best_other, bounds, move_again, queue_again, repath, set_payload};
use crate::connection::{Connection, parking, plane_health};
use crate::delivery::{Cause, Place};
use crate::path::{Path, Timeouts, Transmission, remove};
use crate::pool::Pool;
use crate::stats::PathState;
use crate::table::Idx;
use crate::time::Instant;
use crate::view::View;

/// A doubled RTO is up to this much longer or shorter, so that the paths of many connections do not time out together.
const RTO_SPREAD_PERCENT: i8 = 10;
/// Longest delay between two probes of a dead path, ns.
const REVIVAL_NS_MAX: u64 = 100_000_000;
/// RTO floors after which a transmission on a dead path is forgotten: the longest RTO.
const FORGET_RTOS: u64 = 100;
/// The same of the path that asks for a whole plane that is dead, ns.
const LEADER_NS_MAX: u64 = 2_000_000;
/// Connections whose leading paths ask that often; of more, each asks less often.
const LEADERS: u32 = 32;
/// Probes of a dead plane that take the same route: it is not the route that is to blame.
const LEADER_PROBES: u32 = 8;

/// A retransmission timeout of a path. What is in flight goes again elsewhere if another path has progressed since,
/// with something sent well after what is unanswered here: the last acknowledgements of a peer that pauses do not come
/// in the order of sending, and tell nothing. If none has, the peer may be paused, or only this path had anything to
/// send: the oldest packet alone goes again, elsewhere, to find out.
pub(crate) fn on_timeout(view: &mut View<'_>, now: Instant, connection: Idx<Connection>, at: Idx<Path>) {
    let owner = view.connections.at(connection);
    let bounds = bounds(now, owner, view.config, view.paths.at(at).plane);
    //= MR-PATH-15
    let others_progress = oldest_unanswered(view, at).is_some_and(|sent_at| {
        let path = view.paths.at(at);
        let margin = path.rtt.smoothed_or(view.config.rtt_ns_initial) + view.config.ack_delay_ns_max;
        owner.clock.progress_sent_at > sent_at.after(margin)
    });
    let deaf = owner.planes.health.peer_is_deaf(now, view.paths.at(at).plane);
    let is_other = |other: Idx<Path>| other != at && view.paths.at(other).takes_data();
    let has_other = owner.path_indices().any(is_other);
    if !has_other {
        parking::wake(view, now, connection, at);
    }
    let spread =
        u8::try_from(view.rng.below(2 * u32::from(RTO_SPREAD_PERCENT.unsigned_abs()) + 1)).unwrap_or(0);
    let path = view.paths.at_mut(at);
    path.counters.timeouts += 1;
    path.timeouts.rto_count = path.timeouts.rto_count.saturating_add(1);
    path.timeouts.spread_percent = RTO_SPREAD_PERCENT.saturating_sub_unsigned(spread);
    path.timeouts.since = now;
    view.connections.at_mut(connection).paths.timed_out |= path.id.bit();
    view.config.congestion.on_timeout(&mut path.window, &bounds);
    //= MR-PATH-12
    if (others_progress || deaf) && has_other {
        suspect(view, now, connection, at);
    } else {
        //= MR-PATH-16
        let rescued = rescue(view, connection, at, 1);
        if rescued == 0 {
            //= MR-PATH-40
            // Only PROBEs are unanswered: do others get through?
            plane_health::ask_others(view, connection, view.paths.at(at).plane);
        }
    }
    // What was given up, be it PROBEs alone, no longer takes up the window.
    view.mark_ready(connection);
}

/// When the oldest transmission was sent that a path waits for. O(rescued transmissions of the path).
fn oldest_unanswered(view: &View<'_>, at: Idx<Path>) -> Option<Instant> {
    let in_flight = &view.paths.at(at).sending.in_flight;
    let mut cursor = in_flight.front();
    while let Some(slot) = cursor {
        let transmission = view.transmissions.at(slot);
        if !transmission.rescued {
            return Some(transmission.sent_at);
        }
        cursor = in_flight.next(&view.transmissions, slot);
    }
    None
}

/// No new data on the path; everything in flight goes again on others; a probe asks after it.
fn suspect(view: &mut View<'_>, now: Instant, connection: Idx<Connection>, at: Idx<Path>) {
    let path = view.paths.at_mut(at);
    //= MR-PATH-14
    path.become_state(PathState::Suspect);
    path.timeouts.probe_owed = true;
    path.timeouts.revival = now.after(path.rtt.rto_ns(view.config.rtt_ns_initial, view.config.rto_ns_min));
    path.timeouts.answers = 0;
    move_again(view, connection, at);
    rescue(view, connection, at, u32::MAX);
    set_payload(view, connection);
    plane_health::refresh(view, connection);
    view.mark_ready(connection);
}

/// Sends up to `count` of the oldest packets in flight on a path again, on others. O(transmissions of the path).
/// Returns how many.
fn rescue(view: &mut View<'_>, connection: Idx<Connection>, at: Idx<Path>, count: u32) -> u32 {
    let mut cursor = view.paths.at(at).sending.in_flight.front();
    let mut rescued = 0;
    while let Some(slot) = cursor {
        if rescued >= count {
            break;
        }
        // What is kept only in case it was delivered after all must not keep from sending what tells so.
        let tight = view.transmissions.available() <= view.transmissions.capacity() / 4;
        let sending = &mut view.paths.at_mut(at).sending;
        cursor = sending.in_flight.next(&view.transmissions, slot);
        let transmission = view.transmissions.at_mut(slot);
        let Transmission { packet, csn, psn, rescued: before, .. } = *transmission;
        if tight {
            remove(sending, &mut view.transmissions, slot);
        } else if !before {
            transmission.rescued = true;
            sending.inflight_bytes = sending.inflight_bytes.saturating_sub(u64::from(transmission.bytes));
        }
        if before {
            continue;
        }
        let current = view.packets.get(packet).is_some_and(|entry| {
            entry.csn == csn
                && entry.connection == connection
                && entry.place == (Place::InFlight { path: at, psn })
        });
        if current {
            let target = best_other(view, connection, at, view.packets.at(packet).bytes_max());
            queue_again(view, connection, packet, target, Cause::Timeout);
            view.paths.at_mut(target).timeouts.rescue |= count == 1;
            rescued += 1;
        }
    }
    rescued
}

/// The revival timer of a suspect, dead or returning path: it dies, or is probed again.
pub(crate) fn on_revival(view: &mut View<'_>, now: Instant, connection: Idx<Connection>, at: Idx<Path>) {
    // A path that was dead for long, or just moved, knows no RTT of its own; its siblings do.
    let siblings = view.connections.at(connection).rtt_ns(&view.paths, view.config);
    let path = view.paths.at_mut(at);
    let base = path.rtt.smoothed_or(siblings).max(siblings).saturating_mul(3);
    match path.state {
        PathState::Good | PathState::Congested | PathState::Unverified | PathState::Parked => {
            path.timeouts.revival = Instant::FAR_FUTURE;
            return;
        }
        PathState::Suspect => {
            path.become_state(PathState::Dead);
            path.timeouts.rto_count = 0;
            plane_health::refresh(view, connection);
        }
        PathState::Dead | PathState::Probing => {
            path.become_state(PathState::Dead);
            path.timeouts.rto_count = path.timeouts.rto_count.saturating_add(1);
        }
    }
    let path = view.paths.at_mut(at);
    path.timeouts.answers = 0;
    path.timeouts.probe_owed = true;
    forget_old(path, &mut view.transmissions, now, view.config.rto_ns_min.saturating_mul(FORGET_RTOS));
    let leads = leads_dead_plane(view, connection, at);
    //= MR-PATH-20
    let longest = if leads { leader_ns(view) } else { REVIVAL_NS_MAX };
    let path = view.paths.at_mut(at);
    //= MR-PATH-19
    let delay = base.saturating_mul(1 << path.timeouts.rto_count.min(16)).min(longest.max(base));
    path.timeouts.revival = now.after(view.rng.jitter(delay, 100));
    if leads && !path.timeouts.rto_count.is_multiple_of(LEADER_PROBES) {
        view.mark_ready(connection);
        return;
    }
    //= MR-PATH-21
    // Each try takes another route: where the fabric has one that works, it is found.
    repath(view, connection, at);
}

/// Whether a path asks for all of a plane that is dead.
fn leads_dead_plane(view: &View<'_>, connection: Idx<Connection>, at: Idx<Path>) -> bool {
    let health = &view.connections.at(connection).planes.health;
    health.is_dead(view.paths.at(at).plane) && plane_health::leads(view, connection, at)
}

/// Longest delay between two probes of a dead plane: each connection asks for itself, so many of them less often.
fn leader_ns(view: &View<'_>) -> u64 {
    let open = view.connections.capacity().saturating_sub(view.connections.available());
    LEADER_NS_MAX.saturating_mul(u64::from((open / LEADERS).max(1))).min(REVIVAL_NS_MAX)
}

/// Gives back what a path that is down sent longer than `age_ns` ago, its PROBEs above all: no answer is awaited any
/// more, and an answer that comes after all is one to something sent, but changes nothing.
fn forget_old(path: &mut Path, transmissions: &mut Pool<'_, Transmission>, now: Instant, age_ns: u64) {
    while let Some(oldest) = path.sending.in_flight.front() {
        let transmission = transmissions.at(oldest);
        let current = !transmission.packet.is_none() && !transmission.rescued;
        if current || now.since(transmission.sent_at) < age_ns {
            break;
        }
        remove(&mut path.sending, transmissions, oldest);
    }
}

/// A transmission of the present route was told delivered on a path that was not good.
pub(crate) fn on_answer(view: &mut View<'_>, now: Instant, connection: Idx<Connection>, at: Idx<Path>) {
    let path = view.paths.at_mut(at);
    match path.state {
        PathState::Good | PathState::Congested | PathState::Unverified | PathState::Parked => {}
        //= MR-PATH-18
        PathState::Suspect => revive(view, now, connection, at),
        PathState::Dead | PathState::Probing => {
            let (plane, first) = (path.plane, path.state == PathState::Dead);
            path.become_state(PathState::Probing);
            path.timeouts.answers = path.timeouts.answers.saturating_add(1);
            //= MR-PATH-23
            if path.timeouts.answers >= path.timeouts.returns.answers {
                path.timeouts.returns.on_return(now);
                revive(view, now, connection, at);
            } else {
                path.timeouts.probe_owed = true;
                let rtt = path.rtt.smoothed_or(view.config.rtt_ns_initial);
                path.timeouts.revival = now.after(view.config.rto_ns_min.max(rtt.saturating_mul(4)));
                view.mark_ready(connection);
            }
            if first {
                plane_health::wake(view, connection, plane);
            }
        }
    }
}

/// The path is in use again, with a window of two packets.
fn revive(view: &mut View<'_>, now: Instant, connection: Idx<Connection>, at: Idx<Path>) {
    let bounds = bounds(now, view.connections.at(connection), view.config, view.paths.at(at).plane);
    let path = view.paths.at_mut(at);
    path.become_state(PathState::Good);
    path.timeouts = Timeouts {
        since: path.timeouts.since.max(now),
        revival: Instant::FAR_FUTURE,
        returns: path.timeouts.returns,
        ..Timeouts::default()
    };
    view.config.congestion.on_start(&mut path.window, &bounds);
    view.config.congestion.on_timeout(&mut path.window, &bounds);
    set_payload(view, connection);
    plane_health::refresh(view, connection);
    view.mark_ready(connection);
}
