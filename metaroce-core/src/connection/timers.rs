//! The timers of a connection: exact deadlines lie in the sub-states, the wheel holds the earliest.

use crate::connection::{
    Attempt, Connection, PrivateData, State, close, handshake, health, inflow, paths, plane_health, planes,
};
use crate::event::CloseReason;
use crate::path::Path;
use crate::stream;
use crate::table::Idx;
use crate::time::Instant;
use crate::view::View;
use crate::wire::RejectReason;

/// A PROBE follows the last packet of a path that loses packets after this part of an RTT.
const TAIL_DIVISOR: u64 = 4;
/// The RTO is at most this many times its floor.
const RTO_CEILING: u64 = 100;

/// The wheel says that something of the connection is due.
pub(crate) fn on_timer(view: &mut View<'_>, now: Instant, slot: Idx<Connection>) {
    view.connections.at_mut(slot).clock.armed = Instant::FAR_FUTURE;
    match view.connections.at(slot).state {
        State::Connecting { attempt, cookie } => {
            repeat(view, now, slot, attempt, |attempt| State::Connecting { attempt, cookie });
        }
        State::Accepting { attempt } => {
            repeat(view, now, slot, attempt, |attempt| State::Accepting { attempt });
            on_paths(view, now, slot);
        }
        State::Incoming => {
            //= MR-HS-22
            // The application did not answer in time.
            handshake::refuse(view, slot, RejectReason::Busy, &PrivateData::EMPTY);
            close::finish(view, now, slot, CloseReason::TimedOut);
        }
        State::Open | State::Draining | State::PeerClosing => on_paths(view, now, slot),
        State::Closing { attempt } => {
            on_paths(view, now, slot);
            if !matches!(view.connections.at(slot).state, State::Closing { .. }) {
                // It failed in the meantime.
            } else if attempt.count >= close::CLOSES_MAX {
                close::finish(view, now, slot, CloseReason::TimedOut);
            } else {
                repeat(view, now, slot, attempt, |attempt| State::Closing { attempt });
            }
        }
        State::Ending { reason } => {
            if !close::step_ending(view, now, slot, reason) {
                view.arm(slot, now);
            }
        }
        State::Resting { until } => {
            if until <= now {
                close::release(view, slot);
            } else {
                view.arm(slot, until);
            }
        }
    }
}

/// Sends what repeats until it is answered, and arms its next time: the RTO, doubled each time.
fn repeat(
    view: &mut View<'_>,
    now: Instant,
    slot: Idx<Connection>,
    attempt: Attempt,
    state: impl FnOnce(Attempt) -> State,
) {
    if !matches!(view.connections.at(slot).state, State::Closing { .. })
        //= MR-HS-23
        && now.since(view.connections.at(slot).clock.last_heard) >= view.config.fail_after_ns
    {
        close::finish(view, now, slot, CloseReason::TimedOut);
        return;
    }
    if now < attempt.next {
        view.arm(slot, attempt.next);
        return;
    }
    let floor = view.config.rto_ns_min.max(view.config.rtt_ns_initial.saturating_mul(4));
    //= MR-HS-10, MR-CLS-6
    let delay = floor.saturating_mul(1 << attempt.count.min(6));
    let next = now.after(view.rng.jitter(delay, 100));
    let next_state = state(Attempt { next, count: attempt.count.saturating_add(1) });
    let owner = view.connections.at_mut(slot);
    match next_state {
        State::Connecting { .. } => owner.owed.connect = true,
        State::Accepting { .. } => owner.owed.accept = true,
        _ => owner.owed.close = true,
    }
    owner.become_state(next_state);
    view.mark_ready(slot);
    view.arm(slot, next);
}

/// Looks after everything that an open connection waits for, and arms the earliest of it. O(paths + waiting streams).
fn on_paths(view: &mut View<'_>, now: Instant, slot: Idx<Connection>) {
    on_acknowledgements(view, now, slot);
    for at in view.connections.at(slot).path_indices() {
        on_path(view, now, slot, at);
    }
    on_waiting_streams(view, now, slot);
    on_silence(view, now, slot);
    close::advance(view, now, slot);
    let probe_at = planes::on_timer(view, now, slot).min(plane_health::on_timer(view, now, slot));
    let leaves_at = inflow::expire(view, now, slot);
    let owner = view.connections.at(slot);
    let mut next = owner.clock.ack_at.min(owner.clock.pace_at).min(probe_at).min(leaves_at);
    for at in owner.path_indices() {
        next = next.min(deadline(view, owner, at));
    }
    let owner = view.connections.at(slot);
    let mut at = owner.streams.waiting.front();
    while let Some(entry) = at {
        next = next.min(view.streams.at(entry).wake_at);
        at = owner.streams.waiting.next(&view.streams, entry);
    }
    let idle_close = view.config.idle_close_ns.unwrap_or(u64::MAX);
    let silence = view.config.keepalive_ns.min(view.config.fail_after_ns).min(idle_close) / 4;
    view.arm(slot, next.min(now.after(silence.max(1))));
}

fn on_acknowledgements(view: &mut View<'_>, now: Instant, slot: Idx<Connection>) {
    let owner = view.connections.at_mut(slot);
    if owner.clock.ack_at <= now {
        owner.clock.ack_at = Instant::FAR_FUTURE;
        owner.paths.due |= owner.paths.pending;
        owner.paths.pending = 0;
        view.mark_ready(slot);
    }
    let clock = &mut view.connections.at_mut(slot).clock;
    if clock.pace_at <= now {
        clock.pace_at = Instant::FAR_FUTURE;
        view.mark_ready(slot);
    }
}

/// When the path's retransmission timeout is due.
fn rto_at(view: &View<'_>, path: &Path) -> Instant {
    path.timeouts.since.after(backed_off_ns(view, path))
}

/// The path's retransmission timeout, its backoff included, ns.
fn backed_off_ns(view: &View<'_>, path: &Path) -> u64 {
    let config = view.config;
    let rto = path.rtt.rto_ns(config.rtt_ns_initial, config.rto_ns_min);
    // The probe timeout goes first: its answer shows what is missing, and makes this one needless.
    let pto = path.rtt.pto_ns(config.rtt_ns_initial, config.ack_delay_ns_max, config.pto_ns_min);
    //= MR-LOSS-15
    let ceiling = config.rto_ns_min.saturating_mul(RTO_CEILING).max(rto);
    //= MR-LOSS-14
    let doubled = rto.max(pto + pto / 2).saturating_mul(1 << path.timeouts.rto_count.min(16)).min(ceiling);
    if path.timeouts.rto_count == 0 {
        return doubled;
    }
    //= MR-LOSS-16
    let spread = 100u64.saturating_add_signed(i64::from(path.timeouts.spread_percent));
    (doubled / 100).saturating_mul(spread)
}

/// Something that was sent after a path timed out has come through elsewhere: the next timeout of that path need not wait
/// for its backoff. A round trip is left for what a peer that was paused has to say of the path itself. O(paths), and
/// nothing at all where no path has timed out.
pub(crate) fn hasten(view: &mut View<'_>, now: Instant, slot: Idx<Connection>) {
    let owner = view.connections.at(slot);
    let progress_sent_at = owner.clock.progress_sent_at;
    let mut timed_out = owner.paths.timed_out;
    while timed_out != 0 {
        let number = timed_out.trailing_zeros();
        timed_out &= timed_out - 1;
        let at = Idx::new(view.connections.at(slot).paths.first.raw().wrapping_add(number));
        let path = view.paths.at(at);
        if path.timeouts.rto_count == 0 || !path.takes_data() {
            view.connections.at_mut(slot).paths.timed_out &= !(1 << number);
            continue;
        }
        let margin_ns = path.rtt.smoothed_or(view.config.rtt_ns_initial) + view.config.ack_delay_ns_max;
        let soon = now.after(margin_ns);
        if progress_sent_at > path.timeouts.since
            && path.sending.inflight_bytes > 0
            && soon < rto_at(view, path)
        {
            //= MR-LOSS-17
            let since = Instant::ZERO.after(soon.since(Instant::ZERO.after(backed_off_ns(view, path))));
            view.paths.at_mut(at).timeouts.since = since;
            view.arm(slot, soon);
        }
    }
}

/// When the probe timeout of a path of `owner` is due.
pub(crate) fn pto_at(view: &View<'_>, owner: &Connection, path: &Path) -> Instant {
    let config = view.config;
    let pto = path.rtt.pto_ns(config.rtt_ns_initial, config.ack_delay_ns_max, config.pto_ns_min);
    let mut wait = pto.saturating_mul(1 << path.timeouts.pto_count.min(16));
    if ends_bare(view, owner, path) {
        wait = wait.min(path.rtt.smoothed_or(config.rtt_ns_initial) / TAIL_DIVISOR);
    }
    path.sending.last_sent.after(wait)
}

/// Whether the last packet of a path that loses packets would not be missed: nothing was sent behind it, nor will be.
fn ends_bare(view: &View<'_>, owner: &Connection, path: &Path) -> bool {
    //= MR-LOSS-22
    let newest = path.sending.in_flight.back().and_then(|at| view.transmissions.get(at));
    path.recent.loses() && !owner.has_data() && newest.is_some_and(|newest| newest.packet.is_some())
}

/// The earliest that the path waits for.
fn deadline(view: &View<'_>, owner: &Connection, at: Idx<Path>) -> Instant {
    let path = view.paths.at(at);
    let mut next = path.probing.deadline;
    if !path.takes_data() {
        return next.min(path.timeouts.revival);
    }
    if path.sending.inflight_bytes > 0 {
        next = next.min(rto_at(view, path));
        if !path.timeouts.probe_owed {
            next = next.min(pto_at(view, owner, path));
        }
    }
    next
}

fn on_path(view: &mut View<'_>, now: Instant, slot: Idx<Connection>, at: Idx<Path>) {
    if view.paths.at(at).probing.deadline <= now {
        paths::on_probe_missed(view, now, slot, at);
    }
    let path = view.paths.at(at);
    if !path.takes_data() {
        if path.timeouts.revival <= now {
            health::on_revival(view, now, slot, at);
        }
        return;
    }
    if path.sending.inflight_bytes == 0 {
        return;
    }
    let due = rto_at(view, path);
    let late_ns = now.since(due);
    let grace_ns = due.since(path.timeouts.since) / 4;
    if due <= now && late_ns > grace_ns {
        // A timer that fires this late tells of a pause on this side: answers that came meanwhile wait to be read.
        let path = view.paths.at_mut(at);
        path.timeouts.since = path.timeouts.since.after(late_ns.saturating_add(grace_ns));
    } else if due <= now {
        health::on_timeout(view, now, slot, at);
    } else if pto_at(view, view.connections.at(slot), path) <= now {
        let path = view.paths.at_mut(at);
        path.timeouts.pto_count = path.timeouts.pto_count.saturating_add(1);
        //= MR-LOSS-13
        path.timeouts.probe_owed = true;
        view.mark_ready(slot);
    }
}

/// Streams whose time has come: refused packets go again, blocked ones ask for credit, ended ones go on ending.
fn on_waiting_streams(view: &mut View<'_>, now: Instant, slot: Idx<Connection>) {
    let count = view.connections.at(slot).streams.waiting.len();
    let mut at = view.connections.at(slot).streams.waiting.front();
    for _ in 0..count {
        let Some(entry) = at else { break };
        at = view.connections.at(slot).streams.waiting.next(&view.streams, entry);
        if view.streams.at(entry).wake_at > now {
            continue;
        }
        view.connections.at_mut(slot).streams.waiting.remove(&mut view.streams, entry);
        let wake = stream::resume(view, now, entry);
        if wake.ask {
            let id = view.streams.at(entry).id;
            view.connections.at_mut(slot).paths.ask = Some(id);
            view.mark_ready(slot);
        }
        if wake.next != Instant::FAR_FUTURE {
            stream::wait_until(view, entry, wake.next);
        }
        if !view.streams.at(entry).is_open() {
            stream::advance(view, now, entry);
        }
    }
}

/// A connection with work that makes no progress fails; an idle one is probed, and fails if the peer stays silent.
fn on_silence(view: &mut View<'_>, now: Instant, slot: Idx<Connection>) {
    let owner = view.connections.at(slot);
    let config = view.config;
    let busy = !owner.outbound.packets.is_empty();
    let clock = owner.clock;
    let stuck_since = clock.last_progress.max(clock.busy_since);
    let silent = now.since(clock.last_heard);
    //= MR-PATH-26
    if (busy && now.since(stuck_since) >= config.fail_after_ns)
        || silent >= config.keepalive_ns.saturating_add(config.fail_after_ns)
    {
        close::finish(view, now, slot, CloseReason::TimedOut);
        return;
    }
    let every = config.keepalive_ns.min(config.fail_after_ns / 4).max(1);
    let idle = now.since(clock.last_used);
    if let State::Open = owner.state
        && config.idle_close_ns.is_some_and(|limit| idle >= limit)
        && owner.is_drained(&view.streams)
    {
        close::begin_close(view, now, slot, false);
        return;
    }
    if silent >= config.keepalive_ns && now.since(clock.last_keepalive) >= every {
        view.connections.at_mut(slot).clock.last_keepalive = now;
        paths::ask_for_life(view, slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_forbidden_transition_is_forbidden_and_rest_is_final() {
        let now = Instant::ZERO;
        let attempt = Attempt::at(now);
        let states = [
            State::Connecting { attempt, cookie: [0; 16] },
            State::Incoming,
            State::Accepting { attempt },
            State::Open,
            State::Draining,
            State::Closing { attempt },
            State::PeerClosing,
            State::Ending { reason: CloseReason::Local },
            State::Resting { until: now },
        ];
        // Row: from; column: to; in the order above.
        let table = [
            "x..x...x.",
            "..x....x.",
            "..xxx.xx.",
            "....x.xx.",
            ".....xxx.",
            ".....x.x.",
            ".......x.",
            "........x",
            ".........",
        ];
        for (from, row) in states.iter().zip(table) {
            for (to, allowed) in states.iter().zip(row.chars()) {
                assert_eq!(from.may_become(to), allowed == 'x', "{from:?} -> {to:?}");
            }
        }
    }
}
