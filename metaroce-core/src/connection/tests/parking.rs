//! Which paths are parked, which join, and what that does to the windows: one plane of four paths, packets of 4,176
//! bytes.

use super::*;
use crate::connection::parking::{adjust, start, wake};

const PACKET: u64 = 4_176;

fn state_and_windows(view: &View<'_>, slot: Idx<Connection>) -> Vec<(bool, u64)> {
    let paths = view.connections.at(slot).path_indices().map(|at| view.paths.at(at));
    paths.map(|path| (path.takes_data(), path.window.window_bytes)).collect()
}

/// Sets which paths are in use, with which windows.
fn set(view: &mut View<'_>, slot: Idx<Connection>, paths: &[(bool, u64)]) {
    for (at, (used, bytes)) in view.connections.at(slot).path_indices().zip(paths) {
        let path = view.paths.at_mut(at);
        path.state = if *used { PathState::Good } else { PathState::Parked };
        path.window.window_bytes = *bytes;
    }
}

#[test]
fn a_path_joins_for_each_packet_of_window_and_the_sum_stays() {
    //= MR-PATH-6 test
    //= MR-PATH-8 test
    let mut pair = Pair::new(1, 4, |_| {});
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    for (before, after) in [
        // Not enough for two.
        (
            [(true, 2 * PACKET - 1), (false, 7), (false, 7), (false, 7)],
            [(true, 2 * PACKET - 1), (false, 7), (false, 7), (false, 7)],
        ),
        (
            [(true, 2 * PACKET), (false, 7), (false, 7), (false, 7)],
            [(true, PACKET), (true, PACKET), (false, 7), (false, 7)],
        ),
        // Several at once, each with an even part of what there was.
        (
            [(true, 3 * PACKET), (false, 7), (false, 7), (false, 7)],
            [(true, PACKET), (true, PACKET), (true, PACKET), (false, 7)],
        ),
        (
            [(true, 80_000), (true, 20_000), (false, 7), (false, 7)],
            [(true, 39_999), (true, 9_999), (true, 24_999), (true, 25_000)],
        ),
        (
            [(true, 99_999), (true, 1), (true, 1), (true, 1)],
            [(true, 99_999), (true, 1), (true, 1), (true, 1)],
        ),
    ] {
        set(&mut view, slot, &before);
        adjust(&mut view, now, slot, 0);
        assert_eq!(state_and_windows(&view, slot), after, "{before:?}");
    }
}

#[test]
fn one_idle_path_is_parked_when_half_of_what_brings_it_back_is_left() {
    //= MR-PATH-6 test
    //= MR-PATH-7 test
    let mut pair = Pair::new(1, 4, |_| {});
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    let half = PACKET / 2;
    for (before, after) in [
        // Three packets of window for four paths would be: 2 x (3/2 of a packet) feed three.
        ([half, half, half, half], [(true, half), (true, half), (true, half), (true, half)]),
        (
            [half, half, half, half - 1],
            [(true, half * 4 / 3), (true, half * 4 / 3), (true, half * 4 / 3), (false, half - 1)],
        ),
        ([9, 9, 9, 9], [(true, 12), (true, 12), (true, 12), (false, 9)]),
    ] {
        set(&mut view, slot, &before.map(|bytes| (true, bytes)));
        adjust(&mut view, now, slot, 0);
        assert_eq!(state_and_windows(&view, slot), after, "{before:?}");
    }
    // The last one that is idle: with nothing in flight, nothing that goes again, and no timeout.
    set(&mut view, slot, &[(true, 9); 4]);
    let (third, last) = (path(&view, slot, 2), path(&view, slot, 3));
    view.paths.at_mut(last).timeouts.rto_count = 1;
    let transmission = view.transmissions.allocate(crate::path::Transmission::EMPTY).unwrap();
    view.paths.at_mut(third).sending.in_flight.push_back(&mut view.transmissions, transmission);
    adjust(&mut view, now, slot, 0);
    let used: Vec<bool> = state_and_windows(&view, slot).into_iter().map(|(used, _)| used).collect();
    assert_eq!(used, [true, false, true, true]);
    // Of the only path in use nothing is taken, nor of none.
    set(&mut view, slot, &[(true, 1), (false, 1), (false, 1), (false, 1)]);
    adjust(&mut view, now, slot, 0);
    assert_eq!(state_and_windows(&view, slot), [(true, 1), (false, 1), (false, 1), (false, 1)]);
    set_states(&mut view, slot, &[0], PathState::Dead);
    view.paths.at_mut(last).window.window_bytes = 99_999;
    adjust(&mut view, now, slot, 0);
    assert!(state_and_windows(&view, slot).iter().all(|(used, _)| !used));
}

#[test]
fn a_parked_path_waits_for_nothing_and_joins_as_its_siblings_are() {
    //= MR-PATH-7 test
    //= MR-PATH-8 test
    let mut pair = Pair::new(1, 2, |_| {});
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    let (first, second) = (path(&view, slot, 0), path(&view, slot, 1));
    let parked = view.paths.at_mut(second);
    parked.state = PathState::Congested;
    parked.probing.owed = true;
    parked.probing.candidate_bytes = 4_176;
    parked.probing.deadline = now;
    parked.probing.mtu_bytes = 1_232;
    parked.timeouts.probe_owed = true;
    parked.timeouts.revival = now;
    parked.timeouts.pto_count = 3;
    parked.timeouts.returns.on_return(now);
    parked.window.window_bytes = 9;
    view.paths.at_mut(first).window.window_bytes = 9;
    adjust(&mut view, now, slot, 0);
    let parked = view.paths.at(second);
    assert_eq!(parked.state, PathState::Parked);
    assert_eq!((parked.probing.owed, parked.probing.candidate_bytes), (false, 0));
    assert_eq!(
        (parked.probing.deadline, parked.timeouts.revival),
        (Instant::FAR_FUTURE, Instant::FAR_FUTURE)
    );
    assert_eq!((parked.timeouts.probe_owed, parked.timeouts.pto_count), (false, 0));
    assert_eq!(parked.timeouts.returns.last, Some(now), "it still flaps if it did");

    view.paths.at_mut(first).timeouts.returns.on_return(now.after(5));
    view.paths.at_mut(first).window.window_bytes = 4 * PACKET;
    view.paths.at_mut(first).window.scratch = [5; 8];
    adjust(&mut view, now.after(7), slot, 0);
    let joined = view.paths.at(second);
    assert!(joined.takes_data());
    assert_eq!((joined.window.window_bytes, joined.window.scratch), (2 * PACKET, [5; 8]));
    assert_eq!((joined.timeouts.since, joined.timeouts.returns.last), (now.after(7), Some(now.after(5))));
    assert_eq!(
        (joined.probing.owed, joined.probing.candidate_bytes),
        (true, 4_176),
        "its route is not known"
    );
}

#[test]
fn a_path_that_is_known_to_carry_full_packets_joins_without_a_search() {
    let mut pair = Pair::new(1, 2, |_| {});
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    set_states(&mut view, slot, &[1], PathState::Parked);
    let (first, second) = (path(&view, slot, 0), path(&view, slot, 1));
    assert_eq!(view.paths.at(second).probing.mtu_bytes, 4_176);
    view.paths.at_mut(second).window.window_bytes = 77;
    wake(&mut view, now, slot, first);
    let joined = view.paths.at(second);
    assert!(joined.takes_data() && !joined.probing.owed);
    assert_eq!(joined.window.window_bytes, view.paths.at(first).window.window_bytes, "its sibling's");
    // With none in use it has what it had.
    set_states(&mut view, slot, &[1], PathState::Parked);
    set_states(&mut view, slot, &[0], PathState::Dead);
    view.paths.at_mut(second).window.window_bytes = 77;
    wake(&mut view, now, slot, first);
    assert!(view.paths.at(second).takes_data());
    assert_eq!(view.paths.at(second).window.window_bytes, 77);
}

#[test]
fn a_start_parks_what_is_idle_and_not_fed() {
    let mut pair = Pair::new(1, 4, |_| {});
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    // 8,192 bytes feed one path, 12,288 two.
    view.connections.at_mut(slot).outflows.allow(8);
    set(&mut view, slot, &[(true, 9), (true, 9), (true, 9), (true, 9)]);
    let second = path(&view, slot, 1);
    view.paths.at_mut(second).timeouts.rto_count = 1;
    start(&mut view, now, slot, 0);
    let used = |view: &View<'_>| -> Vec<bool> {
        state_and_windows(view, slot).into_iter().map(|(used, _)| used).collect()
    };
    assert_eq!(used(&view), [true, true, false, false], "one that is not idle stays");
    view.connections.at_mut(slot).outflows.allow(12);
    view.paths.at_mut(second).timeouts.rto_count = 0;
    set(&mut view, slot, &[(false, 9), (true, 9), (false, 9), (false, 9)]);
    start(&mut view, now, slot, 0);
    assert_eq!(used(&view), [true, true, false, false]);
    view.connections.at_mut(slot).outflows.allow(1_000);
    start(&mut view, now, slot, 0);
    assert_eq!(used(&view), [true; 4]);
}
