//! Timeouts, death and return of paths. The RTO's floor is 100 µs, the RTT 10 µs, the ACK delay 8 µs.

use super::*;
use crate::connection::health::{on_answer, on_revival, on_timeout};
use crate::connection::plane_health;
use crate::delivery::{Cause, Packet, Place};
use crate::path::Transmission;

/// Has a path have packets in flight, sent so many ns after now. Returns them.
fn transmit(
    view: &mut View<'_>,
    now: Instant,
    slot: Idx<Connection>,
    at: Idx<Path>,
    later: &[u64],
) -> Vec<Idx<Packet>> {
    let mut packets = Vec::new();
    for ns in later {
        let packet = Packet { connection: slot, sent: 1_000, length: 1_000, ..Packet::EMPTY };
        let packet = view.packets.allocate(packet).unwrap();
        view.connections.at_mut(slot).outbound.enter(&mut view.packets, packet);
        let psn = view.paths.at(at).sending.psn_next;
        view.packets.at_mut(packet).place = Place::InFlight { path: at, psn };
        let csn = view.packets.at(packet).csn;
        let sent_at = now.after(*ns);
        let transmission = Transmission { packet, csn, psn, sent_at, bytes: 1_080, ..Transmission::EMPTY };
        crate::connection::output::record(view, sent_at, slot, at, transmission);
        packets.push(packet);
    }
    packets
}

/// A pair on whose paths nothing is in flight.
fn quiet(planes: u8, paths: u8) -> Pair {
    let mut pair = Pair::new(planes, paths, |_| {});
    pair.run(50 * US);
    pair.exchange();
    let (mut view, slot) = pair.view(0);
    take_asking(&mut view, slot);
    pair
}

fn places(view: &View<'_>, packets: &[Idx<Packet>]) -> Vec<Option<u8>> {
    let place = |packet: &Idx<Packet>| match view.packets.at(*packet).place {
        Place::Again { path, cause: Cause::Timeout } => Some(view.paths.at(path).id.0),
        _ => None,
    };
    packets.iter().map(place).collect()
}

#[test]
fn a_path_is_suspect_if_others_progressed_with_what_was_sent_well_after() {
    //= MR-PATH-12 test
    //= MR-PATH-14 test
    //= MR-PATH-15 test
    // 18 µs are an RTT and the ACK delay.
    for (progress, state) in [(18 * US, PathState::Good), (18 * US + 1, PathState::Suspect)] {
        let mut pair = quiet(1, 2);
        let now = pair.now;
        let (mut view, slot) = pair.view(0);
        let at = path(&view, slot, 0);
        let packets = transmit(&mut view, now, slot, at, &[0, 1, 2]);
        view.connections.at_mut(slot).clock.progress_sent_at = now.after(progress);
        let later = now.after(100 * US);
        on_timeout(&mut view, later, slot, at);
        let timed_out = view.paths.at(at);
        assert_eq!(timed_out.state, state);
        assert_eq!((timed_out.timeouts.rto_count, timed_out.timeouts.since), (1, later));
        if state == PathState::Suspect {
            assert_eq!(places(&view, &packets), [Some(1); 3], "all go again, elsewhere");
            assert_eq!(timed_out.sending.inflight_bytes, 0);
            assert_eq!(
                (timed_out.timeouts.probe_owed, timed_out.timeouts.revival),
                (true, later.after(100 * US))
            );
        } else {
            assert_eq!(places(&view, &packets), [Some(1), None, None], "the oldest finds out");
            assert_eq!(timed_out.sending.inflight_bytes, 2 * 1_080);
            assert!(view.paths.at(path(&view, slot, 1)).timeouts.rescue, "even if the window is full");
        }
    }
}

#[test]
fn what_was_given_up_is_not_what_a_path_waits_for() {
    let mut pair = quiet(1, 2);
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    let at = path(&view, slot, 0);
    transmit(&mut view, now, slot, at, &[0, 10 * US]);
    on_timeout(&mut view, now.after(100 * US), slot, at);
    // The first one was rescued: progress must be later than the second one.
    view.connections.at_mut(slot).clock.progress_sent_at = now.after(28 * US);
    on_timeout(&mut view, now.after(300 * US), slot, at);
    assert_eq!(view.paths.at(at).state, PathState::Good);
    view.connections.at_mut(slot).clock.progress_sent_at = now.after(90 * US);
    transmit(&mut view, now, slot, at, &[50 * US]);
    on_timeout(&mut view, now.after(700 * US), slot, at);
    assert_eq!(view.paths.at(at).state, PathState::Suspect);
}

#[test]
fn where_the_peer_says_that_it_hears_nothing_a_timeout_is_enough() {
    let mut pair = quiet(2, 1);
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    plane_health::on_frame(&mut view, now, slot, 2, 0);
    for (number, state) in [(0, PathState::Good), (1, PathState::Suspect)] {
        let at = path(&view, slot, number);
        transmit(&mut view, now, slot, at, &[0]);
        on_timeout(&mut view, now.after(100 * US), slot, at);
        assert_eq!(view.paths.at(at).state, state, "{number}");
    }
}

#[test]
fn the_only_path_in_use_stays_whatever_progressed_and_has_a_parked_one_join() {
    //= MR-PATH-43 test
    let mut pair = quiet(1, 3);
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    set_states(&mut view, slot, &[1], PathState::Suspect);
    set_states(&mut view, slot, &[2], PathState::Parked);
    let at = path(&view, slot, 0);
    transmit(&mut view, now, slot, at, &[0]);
    view.connections.at_mut(slot).clock.progress_sent_at = now.after(MS);
    on_timeout(&mut view, now.after(100 * US), slot, at);
    assert!(view.paths.at(at).takes_data());
    assert!(view.paths.at(path(&view, slot, 2)).takes_data());
}

#[test]
fn unanswered_probes_alone_have_other_planes_asked() {
    //= MR-PATH-40 test
    let mut pair = quiet(3, 2);
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    let at = path(&view, slot, 2);
    let psn = view.paths.at(at).sending.psn_next;
    let probe = Transmission { psn, sent_at: now, bytes: 64, ..Transmission::EMPTY };
    crate::connection::output::record(&mut view, now, slot, at, probe);
    on_timeout(&mut view, now.after(100 * US), slot, at);
    let asking = take_asking(&mut view, slot);
    assert_eq!(asking.len(), 2, "{asking:?}");
    assert!(asking[0] < 2 && asking[1] >= 4, "one path of each other plane");
    assert_eq!(view.paths.at(at).sending.inflight_bytes, 0);
}

#[test]
fn transmissions_are_forgotten_at_once_only_when_three_quarters_of_the_table_are_used() {
    for (left, kept) in [(1, 1), (0, 0)] {
        let mut pair = quiet(1, 2);
        let now = pair.now;
        let (mut view, slot) = pair.view(0);
        let at = path(&view, slot, 0);
        transmit(&mut view, now, slot, at, &[0]);
        while view.transmissions.available() > view.transmissions.capacity() / 4 + left {
            view.transmissions.allocate(Transmission::EMPTY).unwrap();
        }
        on_timeout(&mut view, now.after(100 * US), slot, at);
        assert_eq!(view.paths.at(at).sending.in_flight.len(), kept, "{left} above a quarter");
        assert_eq!(view.paths.at(at).sending.inflight_bytes, 0);
    }
}

/// When a path is next asked after, in ns, and whether it moved to another route.
fn revive(view: &mut View<'_>, now: Instant, slot: Idx<Connection>, at: Idx<Path>) -> (u64, bool) {
    let epoch = view.paths.at(at).epoch;
    on_revival(view, now, slot, at);
    let path = view.paths.at(at);
    (path.timeouts.revival.since(now), path.epoch != epoch)
}

fn near(jittered: u64, delay: u64) {
    assert!(jittered >= delay - delay / 10 && jittered <= delay + delay / 10, "{jittered} of {delay}");
}

#[test]
fn a_suspect_dies_after_one_more_rto_and_is_asked_ever_more_seldom_by_other_routes() {
    //= MR-PATH-19 test
    //= MR-PATH-21 test
    let mut pair = quiet(2, 4);
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    let at = path(&view, slot, 1);
    set_states(&mut view, slot, &[1], PathState::Suspect);
    view.paths.at_mut(at).timeouts.answers = 2;
    // Three RTTs of 10 µs, doubled with each try up to 100 ms.
    for (count, delay) in [(0, 30), (1, 60), (2, 120), (3, 240), (4, 480), (5, 960)] {
        let (wait, moved) = revive(&mut view, now, slot, at);
        near(wait, delay * US);
        let path = view.paths.at(at);
        assert_eq!((path.state, path.timeouts.rto_count, moved), (PathState::Dead, count, true));
        assert!(path.timeouts.probe_owed && path.timeouts.answers == 0);
    }
    view.paths.at_mut(at).timeouts.rto_count = 11;
    near(revive(&mut view, now, slot, at).0, 100_000 * US);
    set_states(&mut view, slot, &[1], PathState::Probing);
    near(revive(&mut view, now, slot, at).0, 100_000 * US);
    assert_eq!(view.paths.at(at).state, PathState::Dead);
    for state in [PathState::Good, PathState::Congested, PathState::Parked, PathState::Unverified] {
        set_states(&mut view, slot, &[1], state);
        on_revival(&mut view, now, slot, at);
        assert_eq!(view.paths.at(at).state, state);
        assert_eq!(view.paths.at(at).timeouts.revival, Instant::FAR_FUTURE);
    }
}

#[test]
fn the_first_path_of_a_dead_plane_asks_every_two_milliseconds_and_moves_every_eighth_time() {
    //= MR-PATH-20 test
    let mut pair = quiet(2, 4);
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    set_states(&mut view, slot, &[4, 5, 6, 7], PathState::Dead);
    plane_health::refresh(&mut view, slot);
    let (leader, other) = (path(&view, slot, 4), path(&view, slot, 5));
    view.paths.at_mut(leader).timeouts.rto_count = 20;
    let moves: Vec<bool> = (21..33)
        .map(|_| {
            let (wait, moved) = revive(&mut view, now, slot, leader);
            near(wait, 2_000 * US);
            moved
        })
        .collect();
    let expected: Vec<bool> = (21..33).map(|count| count % 8 == 0).collect();
    assert_eq!(moves, expected);
    view.paths.at_mut(other).timeouts.rto_count = 20;
    let (wait, moved) = revive(&mut view, now, slot, other);
    near(wait, 100_000 * US);
    assert!(moved);
}

#[test]
fn a_slow_route_is_asked_no_sooner_than_three_round_trips_of_it() {
    let mut pair = quiet(1, 2);
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    let at = path(&view, slot, 0);
    set_states(&mut view, slot, &[0], PathState::Dead);
    view.paths.at_mut(at).rtt.on_sample(now, 50_000 * US);
    near(revive(&mut view, now, slot, at).0, 150_000 * US);
    // It forgot its RTT with its route; its sibling knows one.
    let sibling = path(&view, slot, 1);
    view.paths.at_mut(sibling).rtt.on_sample(now, 60_000 * US);
    near(revive(&mut view, now, slot, at).0, 180_000 * US);
}

#[test]
fn what_a_dead_path_had_in_flight_is_kept_for_a_hundred_rtos() {
    // PROBEs, and what was rescued; not what nobody has sent again.
    for (age, rescued, packet, left) in [
        (10_000 * US - 1, true, false, 1),
        (10_000 * US, true, false, 0),
        (10_000 * US, false, true, 1),
        (10_000 * US, true, true, 0),
        (10_000 * US, false, false, 0),
    ] {
        let mut pair = quiet(1, 2);
        let now = pair.now;
        let (mut view, slot) = pair.view(0);
        let at = path(&view, slot, 0);
        transmit(&mut view, now, slot, at, &[0]);
        let first = view.paths.at(at).sending.in_flight.front().unwrap();
        view.transmissions.at_mut(first).rescued = rescued;
        if !packet {
            view.transmissions.at_mut(first).packet = Idx::NONE;
        }
        set_states(&mut view, slot, &[0], PathState::Dead);
        on_revival(&mut view, now.after(age), slot, at);
        assert_eq!(view.paths.at(at).sending.in_flight.len(), left, "{age} {rescued} {packet}");
    }
}

#[test]
fn three_answers_bring_a_dead_path_back_and_the_first_wakes_its_plane() {
    //= MR-PATH-23 test
    let mut pair = quiet(2, 4);
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    set_states(&mut view, slot, &[4, 5, 6, 7], PathState::Dead);
    plane_health::refresh(&mut view, slot);
    let at = path(&view, slot, 4);
    on_answer(&mut view, now, slot, at);
    assert_eq!(view.paths.at(at).state, PathState::Probing);
    assert_eq!(view.paths.at(at).timeouts.revival, now.after(100 * US), "the RTO, for the next");
    assert_eq!(take_asking(&mut view, slot), [4, 5, 6, 7]);
    view.paths.at_mut(at).rtt.on_sample(now, 50 * US);
    on_answer(&mut view, now, slot, at);
    assert_eq!(view.paths.at(at).timeouts.revival, now.after(200 * US));
    assert_eq!(take_asking(&mut view, slot), [4], "the others are asking");
    view.paths.at_mut(at).timeouts.since = now.after(9);
    on_answer(&mut view, now, slot, at);
    let path = view.paths.at(at);
    assert_eq!((path.state, path.timeouts.revival), (PathState::Good, Instant::FAR_FUTURE));
    assert_eq!((path.timeouts.since, path.timeouts.rto_count), (now.after(9), 0));
    assert_eq!(path.timeouts.returns.last, Some(now));
    assert!(!view.connections.at(slot).planes.health.is_dead(0));
    assert_eq!(path.window.window_bytes, 2 * 4_176, "what a timeout leaves of a start");
}

#[test]
fn one_answer_brings_a_suspect_back() {
    //= MR-PATH-18 test
    let mut pair = quiet(1, 2);
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    let at = path(&view, slot, 1);
    set_states(&mut view, slot, &[1], PathState::Suspect);
    view.paths.at_mut(at).timeouts.rto_count = 3;
    on_answer(&mut view, now, slot, at);
    let back = view.paths.at(at);
    assert_eq!((back.state, back.timeouts.rto_count, back.timeouts.returns.last), (PathState::Good, 0, None));
    for state in [PathState::Good, PathState::Congested, PathState::Unverified, PathState::Parked] {
        set_states(&mut view, slot, &[1], state);
        on_answer(&mut view, now, slot, at);
        assert_eq!(view.paths.at(at).state, state);
    }
}
