//! When the timers of a path and of a connection fire: RTO and probe timeout, floors, backoff, and what a late timer
//! means. The configuration's RTO floor is 100 µs, its PTO floor 20 µs, its RTT 10 µs, its ACK delay 8 µs.

use super::*;
use crate::connection::timers::on_timer;
use crate::connection::{Attempt, State, health, timers};
use crate::event::CloseReason;
use crate::ids::StreamId;
use crate::path::Transmission;
use crate::stats::ConnectionState;
use crate::wire::Control;

/// A pair of one path, on which nothing is under way.
fn quiet(change: impl Fn(&mut Config)) -> Pair {
    let mut pair = Pair::new(1, 1, change);
    pair.run(50 * US);
    pair.exchange();
    pair
}

/// Has path 0 have a PROBE in flight, sent now.
fn transmit(pair: &mut Pair) {
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    let at = path(&view, slot, 0);
    let psn = view.paths.at(at).sending.psn_next;
    let transmission = Transmission { psn, sent_at: now, bytes: 64, ..Transmission::EMPTY };
    crate::connection::output::record(&mut view, now, slot, at, transmission);
}

/// What the connection's timer does at a time: timeouts so far, probe timeouts in a row, and whether a PROBE is owed.
fn fire(pair: &mut Pair, ns: u64) -> (u64, u32, bool) {
    let now = pair.now.after(ns);
    let (mut view, slot) = pair.view(0);
    let at = path(&view, slot, 0);
    view.paths.at_mut(at).timeouts.probe_owed = false;
    on_timer(&mut view, now, slot);
    let path = view.paths.at(at);
    (path.counters.timeouts, path.timeouts.pto_count, path.timeouts.probe_owed)
}

/// When the timer is armed, in ns from now.
fn armed(pair: &mut Pair) -> u64 {
    let now = pair.now;
    let (view, slot) = pair.view(0);
    view.connections.at(slot).clock.armed.since(now)
}

#[test]
fn the_probe_timeout_is_two_rtts_and_the_ack_delay_doubled_each_time_and_then_comes_the_rto() {
    //= MR-LOSS-12 test
    //= MR-LOSS-13 test
    //= MR-LOSS-14 test
    let mut pair = quiet(|_| {});
    transmit(&mut pair);
    assert_eq!(armed(&mut pair), 28 * US);
    assert_eq!(fire(&mut pair, 28 * US - 1), (0, 0, false));
    assert_eq!(armed(&mut pair), 28 * US);
    assert_eq!(fire(&mut pair, 28 * US), (0, 1, true));
    assert_eq!(armed(&mut pair), 100 * US, "while a PROBE is owed, only the RTO counts");
    assert_eq!(fire(&mut pair, 56 * US - 1), (0, 1, false));
    assert_eq!(armed(&mut pair), 56 * US, "twice as long after the last packet");
    assert_eq!(fire(&mut pair, 56 * US), (0, 2, true));
    assert_eq!(fire(&mut pair, 100 * US - 1), (0, 2, false));
    assert_eq!(fire(&mut pair, 100 * US), (1, 2, false));
}

#[test]
fn an_rto_is_never_before_one_and_a_half_probe_timeouts() {
    for (pto_us, rto_us) in [(20, 100), (80, 120), (200, 300)] {
        let mut pair = quiet(|config| config.pto_ns_min = pto_us * US);
        transmit(&mut pair);
        assert_eq!(fire(&mut pair, rto_us * US - 1).0, 0, "{pto_us}");
        assert_eq!(fire(&mut pair, rto_us * US).0, 1, "{pto_us}");
    }
}

#[test]
fn rtos_double_up_to_a_hundred_times_their_floor() {
    //= MR-LOSS-15 test
    for (count, rto_us) in [(0, 100), (1, 200), (3, 800), (6, 6_400), (7, 10_000), (60, 10_000)] {
        let mut pair = quiet(|_| {});
        transmit(&mut pair);
        let (mut view, slot) = pair.view(0);
        let at = path(&view, slot, 0);
        // Probe timeouts out of the way.
        view.paths.at_mut(at).timeouts.pto_count = 16;
        view.paths.at_mut(at).timeouts.rto_count = count;
        assert_eq!(fire(&mut pair, rto_us * US - 1).0, 0, "{count}");
        assert_eq!(fire(&mut pair, rto_us * US).0, 1, "{count}");
    }
    // Nor is the ceiling below the RTO itself.
    let mut pair = quiet(|_| {});
    transmit(&mut pair);
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    let at = path(&view, slot, 0);
    view.paths.at_mut(at).rtt.on_sample(now, 2 * MS);
    view.paths.at_mut(at).timeouts.rto_count = 2;
    // 4 x 2 ms and 4 x 1 ms of variance.
    assert_eq!(fire(&mut pair, 12 * MS - 1).0, 0);
    assert_eq!(fire(&mut pair, 12 * MS).0, 1);
}

#[test]
fn a_timer_that_fires_more_than_a_quarter_late_tells_of_a_pause_here() {
    let mut pair = quiet(|_| {});
    transmit(&mut pair);
    assert_eq!(fire(&mut pair, 125 * US).0, 1, "25 µs late are none");
    let mut pair = quiet(|_| {});
    transmit(&mut pair);
    assert_eq!(fire(&mut pair, 125 * US + 1).0, 0);
    // It counts from then on: as late as it was, and a quarter of an RTO for what waits to be read.
    assert_eq!(fire(&mut pair, 150 * US).0, 0);
    assert_eq!(fire(&mut pair, 150 * US + 1).0, 1);
}

#[test]
fn nothing_in_flight_times_nothing_out() {
    let mut pair = quiet(|_| {});
    assert_eq!(fire(&mut pair, 200 * US), (0, 0, false));
    assert_eq!(
        armed(&mut pair),
        200 * US + 1_250 * MS,
        "a quarter of the time after which life is asked for"
    );
}

#[test]
fn what_is_dead_waits_for_its_revival_alone() {
    let mut pair = quiet(|_| {});
    transmit(&mut pair);
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    let at = path(&view, slot, 0);
    set_states(&mut view, slot, &[0], PathState::Dead);
    view.paths.at_mut(at).timeouts.revival = now.after(3 * MS);
    assert_eq!(fire(&mut pair, 2 * MS), (0, 0, false));
    assert_eq!(armed(&mut pair), 3 * MS);
    assert_eq!(fire(&mut pair, 3 * MS - 1), (0, 0, false));
    assert_eq!(fire(&mut pair, 3 * MS), (0, 0, true));
}

#[test]
fn acknowledgements_and_paced_packets_go_when_their_time_has_come() {
    //= MR-ACK-11 test
    let mut pair = quiet(|_| {});
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    {
        let owner = view.connections.at_mut(slot);
        (owner.clock.ack_at, owner.clock.pace_at) = (now.after(8 * US), now.after(9 * US));
        owner.paths.pending = 1;
    }
    for (at, due, next) in [(7_999, 0, 8_000), (8_000, 1, 9_000), (9_000, 1, 1_250 * MS + 9_000)] {
        on_timer(&mut view, now.after(at), slot);
        let owner = view.connections.at(slot);
        assert_eq!((owner.paths.due, owner.paths.pending), (due, 1 - due), "{at}");
        assert_eq!(owner.clock.armed, now.after(next));
    }
}

/// Whether an end of a pair, all of whose packets are lost, is closed after so long, and why.
fn closed(pair: &mut Pair, ns: u64) -> Option<CloseReason> {
    let now = pair.now.after(ns);
    let (mut view, slot) = pair.view(0);
    on_timer(&mut view, now, slot);
    match view.connections.at(slot).state {
        State::Ending { reason } => Some(reason),
        _ => None,
    }
}

#[test]
fn a_silent_peer_is_asked_for_life_and_given_up_at_exact_times() {
    //= MR-PATH-26 test
    //= MR-PATH-28 test
    let asks = |pair: &mut Pair, ns: u64| fire(pair, ns).2;
    let mut pair = quiet(|config| (config.keepalive_ns, config.fail_after_ns) = (20 * MS, 40 * MS));
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    let clock = &mut view.connections.at_mut(slot).clock;
    (clock.last_heard, clock.last_keepalive, clock.last_used) = (now, now, now);
    assert!(!asks(&mut pair, 20 * MS - 1));
    assert!(asks(&mut pair, 20 * MS));
    assert!(!asks(&mut pair, 30 * MS - 1), "again after a quarter of the time after which it fails");
    assert!(asks(&mut pair, 30 * MS));
    assert_eq!(closed(&mut pair, 60 * MS - 1), None);
    assert_eq!(closed(&mut pair, 60 * MS), Some(CloseReason::TimedOut));
}

#[test]
fn work_without_progress_fails_in_time_whatever_else_comes() {
    //= MR-PATH-26 test
    for (progress, busy) in [(0, 5), (5, 0)] {
        let mut pair = quiet(|config| config.fail_after_ns = 40 * MS);
        let now = pair.now;
        let (mut view, slot) = pair.view(0);
        let packet = view.packets.allocate(crate::delivery::Packet::EMPTY).unwrap();
        let owner = view.connections.at_mut(slot);
        owner.outbound.enter(&mut view.packets, packet);
        owner.clock.last_heard = now.after(45 * MS);
        owner.clock.last_progress = now.after(progress * MS);
        owner.clock.busy_since = now.after(busy * MS);
        assert_eq!(closed(&mut pair, 45 * MS - 1), None, "the later of both counts");
        assert_eq!(closed(&mut pair, 45 * MS), Some(CloseReason::TimedOut));
    }
    // Without work nothing needs to progress.
    let mut pair = quiet(|config| config.fail_after_ns = 40 * MS);
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    view.connections.at_mut(slot).clock.last_heard = now.after(45 * MS);
    assert_eq!(closed(&mut pair, 45 * MS), None);
}

#[test]
fn an_idle_connection_closes_on_the_nanosecond_and_only_if_it_is_told_to() {
    let state = |pair: &mut Pair, ns| {
        closed(pair, ns);
        let (view, slot) = pair.view(0);
        view.connections.at(slot).state.name()
    };
    let mut pair = quiet(|config| config.idle_close_ns = Some(10 * MS));
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    view.connections.at_mut(slot).clock.last_used = now;
    assert_eq!(state(&mut pair, 10 * MS - 1), ConnectionState::Open);
    assert_eq!(armed(&mut pair), 12_500 * US - 1, "it looks every quarter of that");
    assert_eq!(state(&mut pair, 10 * MS), ConnectionState::Closing);
    let mut pair = quiet(|_| {});
    assert_eq!(state(&mut pair, 4_000 * MS), ConnectionState::Open);
}

/// Times after the first at which a handshake packet goes, and delays between them.
#[test]
fn what_is_not_answered_repeats_after_the_rto_doubled_each_time_up_to_64_fold() {
    //= MR-HS-10 test
    //= MR-CLS-6 test
    for (rtt_us, floor_us) in [(10, 100), (50, 200)] {
        let mut pair = quiet(|config| config.rtt_ns_initial = rtt_us * US);
        for count in 0..9 {
            let now = pair.now;
            let (mut view, slot) = pair.view(0);
            view.connections.at_mut(slot).clock.last_heard = now;
            view.connections.at_mut(slot).state =
                State::Connecting { attempt: Attempt { next: now, count }, cookie: [0; 16] };
            on_timer(&mut view, now, slot);
            let owner = view.connections.at_mut(slot);
            assert!(core::mem::take(&mut owner.owed.connect));
            let State::Connecting { attempt, .. } = owner.state else { panic!("{:?}", owner.state) };
            assert_eq!(attempt.count, count + 1);
            let delay = floor_us * US * (1 << count.min(6));
            let jittered = attempt.next.since(now);
            assert!(
                jittered >= delay - delay / 10 && jittered <= delay + delay / 10,
                "{jittered} of {delay}"
            );
            assert_eq!(owner.clock.armed, attempt.next);
            // Too early it is only armed again.
            on_timer(&mut view, Instant::from_nanos(attempt.next.as_nanos() - 1), slot);
            let owner = view.connections.at_mut(slot);
            assert!(!owner.owed.connect && owner.clock.armed == attempt.next);
        }
    }
}

#[test]
fn a_connect_is_given_up_when_nothing_was_heard_for_as_long_as_that_takes() {
    //= MR-HS-23 test
    let mut pair = quiet(|config| config.fail_after_ns = 40 * MS);
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    view.connections.at_mut(slot).clock.last_heard = now;
    let attempt = Attempt { next: now.after(99 * MS), count: 3 };
    view.connections.at_mut(slot).state = State::Connecting { attempt, cookie: [0; 16] };
    assert_eq!(closed(&mut pair, 40 * MS - 1), None);
    assert_eq!(closed(&mut pair, 40 * MS), Some(CloseReason::TimedOut));
}

#[test]
fn eight_closes_in_a_row_are_enough() {
    let mut pair = quiet(|_| {});
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    view.connections.at_mut(slot).state = State::Closing { attempt: Attempt { next: now, count: 7 } };
    on_timer(&mut view, now, slot);
    let owner = view.connections.at_mut(slot);
    assert!(core::mem::take(&mut owner.owed.close));
    assert!(matches!(owner.state, State::Closing { attempt: Attempt { count: 8, .. } }));
    on_timer(&mut view, now, slot);
    assert!(matches!(view.connections.at(slot).state, State::Ending { reason: CloseReason::TimedOut }));
}

#[test]
fn an_incoming_connection_that_nobody_answers_is_refused_as_busy() {
    //= MR-HS-22 test
    let mut pair = quiet(|_| {});
    let now = pair.now;
    let again = pair.ends[0].connect(now, ConnectOptions::to(address(1, 0, PORT))).unwrap();
    pair.exchange();
    assert!(matches!(pair.ends[1].poll_event(), Some(Event::Incoming { .. })));
    let state = |pair: &mut Pair| pair.ends[0].connection_stats(again).unwrap().state;
    let said = |pair: &mut Pair| {
        let all = pair.take(1);
        let rejects = |transmit: &&Transmit| {
            let (_, body) = Base::parse(transmit.header()).unwrap();
            matches!(Control::parse(body), Ok((Control::Reject(_), _)))
        };
        let rejects: Vec<_> = all.iter().filter(rejects).cloned().collect();
        for reject in &rejects {
            let _ = pair.deliver(1, reject);
        }
        rejects.len()
    };
    pair.run(10_000 * MS - 1);
    assert_eq!((said(&mut pair), state(&mut pair)), (0, ConnectionState::Connecting));
    pair.run(1);
    assert_eq!(said(&mut pair), 1);
    assert_eq!(state(&mut pair), ConnectionState::Ending);
}

#[test]
fn a_rest_ends_on_the_nanosecond() {
    //= MR-CLS-9 test
    let mut pair = quiet(|_| {});
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    crate::connection::close::finish(&mut view, now, slot, CloseReason::Local);
    while !matches!(view.connections.at(slot).state, State::Resting { .. }) {
        on_timer(&mut view, now, slot);
    }
    let used = |view: &View<'_>| view.connections.capacity() - view.connections.available();
    for (ns, left) in [(20 * MS - 1, 1), (20 * MS, 0)] {
        on_timer(&mut view, now.after(ns), slot);
        assert_eq!(used(&view), left, "200 times the floor of the RTO");
    }
}

#[test]
fn streams_wake_when_their_time_has_come_and_not_before() {
    let mut pair = quiet(|_| {});
    let connection = pair.connections[0];
    let id = pair.ends[0].open_stream(connection).unwrap();
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    let stream = crate::stream::find_or_open(&mut view, slot, id).unwrap();
    let asks_at = view.streams.at_mut(stream).requester.credits.start_asking(now, 30 * US).unwrap();
    crate::stream::wait_until(&mut view, stream, asks_at);
    let asked = |view: &mut View<'_>| view.connections.at_mut(slot).paths.ask.take();
    on_timer(&mut view, now.after(30 * US - 1), slot);
    assert_eq!(asked(&mut view), None);
    assert_eq!(view.connections.at(slot).clock.armed, now.after(30 * US));
    on_timer(&mut view, now.after(30 * US), slot);
    assert_eq!(asked(&mut view), Some(id));
    assert_eq!(view.streams.at(stream).wake_at, now.after(90 * US), "twice as long until it asks again");
    assert_eq!(view.connections.at(slot).clock.armed, now.after(90 * US));
    assert_ne!(id, StreamId::NONE);
}

#[test]
fn a_doubled_rto_is_spread_by_a_tenth() {
    //= MR-LOSS-16 test
    for (spread, rto_us) in [(-10, 180), (0, 200), (10, 220)] {
        let mut pair = quiet(|_| {});
        transmit(&mut pair);
        let (mut view, slot) = pair.view(0);
        let at = path(&view, slot, 0);
        let timeouts = &mut view.paths.at_mut(at).timeouts;
        (timeouts.pto_count, timeouts.rto_count, timeouts.spread_percent) = (16, 1, spread);
        assert_eq!(fire(&mut pair, rto_us * US - 1).0, 0, "{spread}");
        assert_eq!(fire(&mut pair, rto_us * US).0, 1, "{spread}");
    }
    // The first one after progress is as long as it is, whatever was drawn for those before.
    for spread in [-10, 10] {
        let mut pair = quiet(|config| config.pto_ns_min = 80_001);
        transmit(&mut pair);
        let (mut view, slot) = pair.view(0);
        let at = path(&view, slot, 0);
        view.paths.at_mut(at).timeouts.spread_percent = spread;
        assert_eq!(fire(&mut pair, 120_000).0, 0, "{spread}");
        assert_eq!(fire(&mut pair, 120_001).0, 1, "{spread}");
    }
    let mut drawn = std::collections::BTreeSet::new();
    let mut pair = quiet(|_| {});
    transmit(&mut pair);
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    let at = path(&view, slot, 0);
    for _ in 0..1_000 {
        health::on_timeout(&mut view, now, slot, at);
        drawn.insert(view.paths.at(at).timeouts.spread_percent);
    }
    assert!(drawn.into_iter().eq(-10..=10), "all of them, and no other");
}

#[test]
fn what_comes_through_after_an_rto_brings_the_next_ones_forward() {
    //= MR-LOSS-17 test
    let mut pair = quiet(|_| {});
    transmit(&mut pair);
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    let at = path(&view, slot, 0);
    let timeouts = &mut view.paths.at_mut(at).timeouts;
    (timeouts.pto_count, timeouts.rto_count) = (16, 5);
    let owner = view.connections.at_mut(slot);
    owner.paths.timed_out = 1;
    // What was sent before the timeout tells nothing.
    owner.clock.progress_sent_at = now;
    timers::hasten(&mut view, now, slot);
    assert_eq!(view.paths.at(at).timeouts.since, now);
    // An RTT and the ACK delay, which are 18 µs, instead of 32 RTOs.
    view.connections.at_mut(slot).clock.progress_sent_at = now.after(1);
    let later = now.after(40 * US);
    timers::hasten(&mut view, later, slot);
    // Further progress does not put it off.
    timers::hasten(&mut view, later.after(10 * US), slot);
    assert_eq!(fire(&mut pair, 58 * US - 1).0, 0);
    assert_eq!(fire(&mut pair, 58 * US).0, 1);
    let (mut view, slot) = pair.view(0);
    assert_eq!(view.connections.at(slot).paths.timed_out, 1, "that was one more");
    // A path that was answered is no longer looked at.
    view.paths.at_mut(at).timeouts.rto_count = 0;
    timers::hasten(&mut view, later, slot);
    assert_eq!(view.connections.at(slot).paths.timed_out, 0);
}
