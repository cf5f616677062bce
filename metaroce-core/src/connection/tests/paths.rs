//! Which path a packet takes, and what a path carries.

use super::*;
use crate::connection::paths::{
    ask_for_life, begin_mtu_search, best_other, change_port, choose, move_again, on_packet_lost,
    on_probe_answered, on_probe_missed, queue_again, send_again, set_payload,
};
use crate::delivery::{Cause, Packet, Place};

/// A pair on whose paths nothing is in flight, with windows of 100,000 bytes, and no pace but the windows'.
fn quiet(planes: u8, paths: u8) -> Pair {
    let mut pair = Pair::quiet(planes, paths, |_| {});
    let (mut view, slot) = pair.view(0);
    for at in view.connections.at(slot).path_indices() {
        view.paths.at_mut(at).sending.limited_at = None;
    }
    pair
}

fn set_inflight(view: &mut View<'_>, slot: Idx<Connection>, bytes: &[u64]) {
    for (at, bytes) in view.connections.at(slot).path_indices().zip(bytes) {
        view.paths.at_mut(at).sending.inflight_bytes = *bytes;
    }
}

/// The path that the next packet takes; looked at as often as there are paths to begin with.
fn chosen(view: &mut View<'_>, now: Instant, slot: Idx<Connection>, bytes: u64) -> Vec<Option<u8>> {
    let mut all: Vec<Option<u8>> =
        (0..32).map(|_| choose(view, now, slot, bytes).map(|at| view.paths.at(at).id.0)).collect();
    all.sort_unstable();
    all.dedup();
    all
}

#[test]
fn the_least_loaded_path_is_taken_whatever_comes_first() {
    //= MR-PATH-9 test
    let mut pair = quiet(1, 4);
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    set_inflight(&mut view, slot, &[9_000, 8_000, 7_999, 50_000]);
    assert_eq!(chosen(&mut view, now, slot, 4_000), [Some(2)]);
    // In parts of the window: 9,000 and 4,000 of 200,000 are less than 11,999 of 100,000.
    let first = path(&view, slot, 0);
    view.paths.at_mut(first).window.window_bytes = 200_000;
    assert_eq!(chosen(&mut view, now, slot, 4_000), [Some(0)]);
    // A path half of whose packets are marked weighs twice as much.
    view.paths.at_mut(first).recent.marked = 1 << 15;
    assert_eq!(chosen(&mut view, now, slot, 4_000), [Some(2)]);
    set_inflight(&mut view, slot, &[50_000, 8_000, 8_000, 50_000]);
    assert_eq!(chosen(&mut view, now, slot, 4_000), [Some(1), Some(2)], "ties go by chance");
}

#[test]
fn a_packet_goes_only_where_it_fits_window_and_route() {
    //= MR-PATH-36 test
    //= MR-CC-11 test
    let mut pair = quiet(1, 2);
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    let (first, second) = (path(&view, slot, 0), path(&view, slot, 1));
    set_inflight(&mut view, slot, &[96_000, 90_000]);
    assert_eq!(chosen(&mut view, now, slot, 4_000), [Some(1)]);
    view.paths.at_mut(second).probing.mtu_bytes = 3_999;
    assert_eq!(chosen(&mut view, now, slot, 4_000), [Some(0)]);
    assert_eq!(view.paths.at(first).sending.limited_at, None);
    assert_eq!(chosen(&mut view, now, slot, 4_001), [None]);
    assert_eq!(view.paths.at(first).sending.limited_at, Some(now), "it would have been used");
    set_states(&mut view, slot, &[0], PathState::Suspect);
    assert_eq!(chosen(&mut view, now, slot, 4_000), [None]);
    assert_eq!(chosen(&mut view, now, slot, 3_999), [Some(1)]);
}

#[test]
fn the_whole_connection_keeps_within_all_windows_and_within_its_setting() {
    //= MR-CC-11 test
    // One packet always fits on an empty path, whatever its window; not on all of them at once.
    for (windows, inflight, bytes, goes) in [
        ([1_000, 1_000], [0, 0], 4_000, true),
        ([1_000, 1_000], [4_000, 0], 4_000, false),
        // What is in flight is less than the packet: PROBEs keep none from going.
        ([1_000, 1_000], [3_999, 0], 4_000, true),
        ([10_000, 1_000], [4_000, 0], 4_000, true),
        ([6_999, 1_000], [4_000, 0], 4_000, false),
        ([7_000, 1_000], [4_000, 0], 4_000, true),
        // 64 MiB is the most of a connection.
        ([1 << 40, 1 << 40], [(64 << 20) - 4_000, 0], 4_000, true),
        ([1 << 40, 1 << 40], [(64 << 20) - 3_999, 0], 4_000, false),
    ] {
        let mut pair = quiet(1, 2);
        let now = pair.now;
        let (mut view, slot) = pair.view(0);
        set_inflight(&mut view, slot, &inflight);
        for (at, bytes) in view.connections.at(slot).path_indices().zip(windows) {
            view.paths.at_mut(at).window.window_bytes = bytes;
        }
        assert_eq!(choose(&mut view, now, slot, bytes).is_some(), goes, "{windows:?} {inflight:?}");
        let limited = |number| view.paths.at(path(&view, slot, number)).sending.limited_at.is_some();
        if !goes {
            assert!(limited(0) && limited(1), "all are limited");
        }
    }
}

#[test]
fn a_window_below_a_packet_sets_a_pace_and_the_connection_looks_again_then() {
    let mut pair = quiet(1, 2);
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    let (first, second) = (path(&view, slot, 0), path(&view, slot, 1));
    view.paths.at_mut(first).sending.pace_until = now.after(7 * US);
    view.paths.at_mut(second).sending.pace_until = now.after(5 * US);
    assert_eq!(choose(&mut view, now, slot, 4_000), None);
    assert_eq!(view.connections.at(slot).clock.pace_at, now.after(5 * US), "the earliest of them");
    assert_eq!(
        view.connections.at(slot).clock.armed.min(now.after(5 * US)),
        view.connections.at(slot).clock.armed
    );
    assert_eq!(chosen(&mut view, now.after(5 * US), slot, 4_000), [Some(1)]);
}

#[test]
fn a_packet_for_which_no_path_has_room_waits_for_no_time() {
    let mut pair = quiet(1, 2);
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    set_inflight(&mut view, slot, &[99_000, 99_000]);
    assert_eq!(choose(&mut view, now, slot, 4_000), None);
    assert_eq!(view.connections.at(slot).clock.pace_at, Instant::FAR_FUTURE);
    // Nor where the one with room does not carry it, though not all windows are full.
    set_inflight(&mut view, slot, &[99_000, 0]);
    let second = path(&view, slot, 1);
    view.paths.at_mut(second).probing.mtu_bytes = 3_999;
    assert_eq!(choose(&mut view, now, slot, 4_000), None);
    assert_eq!(view.connections.at(slot).clock.pace_at, Instant::FAR_FUTURE);
}

#[test]
fn new_data_takes_the_planes_in_turn_except_where_a_share_or_the_line_keeps_it_back() {
    //= MR-PATH-39 test
    //= MR-CC-22 test
    let mut pair = quiet(3, 1);
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    let next = |view: &mut View<'_>| choose(view, now, slot, 4_000).map(|at| view.paths.at(at).id.0);
    while next(&mut view) != Some(2) {}
    let turns: Vec<_> = (0..6).map(|_| next(&mut view)).collect();
    assert_eq!(turns, [Some(0), Some(1), Some(2), Some(0), Some(1), Some(2)]);
    // A share on plane 1 has just been used up.
    let at = path(&view, slot, 1);
    crate::connection::outflow::on_share(&mut view, now, slot, at, 1_000_000);
    let turns: Vec<_> = (0..4).map(|_| next(&mut view)).collect();
    assert_eq!(turns, [Some(0), Some(2), Some(0), Some(2)]);
    let opens_at = view.connections.at(slot).outflows.opens_at(now, 1);
    set_states(&mut view, slot, &[0, 2], PathState::Suspect);
    assert_eq!(next(&mut view), None);
    assert_eq!(view.connections.at(slot).clock.pace_at, opens_at);
    assert_eq!(choose(&mut view, opens_at, slot, 4_000), Some(at));
    // And the line of plane 0, of which the endpoint has handed out more than its slack.
    set_states(&mut view, slot, &[0, 2], PathState::Good);
    for _ in 0..1_000 {
        view.lines.on_sent(now, 0, 4_000);
    }
    while next(&mut view) != Some(2) {}
    assert_eq!(next(&mut view), Some(2), "neither 0 nor 1");
}

/// A packet that was lost so often, of so many bytes on the wire at most.
fn packet(view: &mut View<'_>, slot: Idx<Connection>, bytes: u16, losses: u8) -> Idx<Packet> {
    let sent = bytes - 80;
    let packet = Packet { connection: slot, sent, length: sent, losses, ..Packet::EMPTY };
    view.packets.allocate(packet).unwrap()
}

fn home_of(view: &View<'_>, packet: Idx<Packet>) -> Option<u8> {
    match view.packets.at(packet).place {
        Place::Again { path, .. } => Some(view.paths.at(path).id.0),
        _ => None,
    }
}

#[test]
fn a_lost_packet_stays_on_its_path_until_it_was_lost_four_times() {
    //= MR-LOSS-21 test
    // Losses, window, MTU, state of its path; where it goes.
    for (losses, window, mtu, state, goes) in [
        (3, 4_000, 4_000, PathState::Good, 0),
        (4, 4_000, 4_000, PathState::Good, 1),
        (0, 3_999, 4_000, PathState::Good, 1),
        (0, 4_000, 3_999, PathState::Good, 1),
        (0, 4_000, 4_000, PathState::Congested, 0),
        (0, 4_000, 4_000, PathState::Suspect, 1),
    ] {
        let mut pair = quiet(1, 2);
        let (mut view, slot) = pair.view(0);
        let home = path(&view, slot, 0);
        view.paths.at_mut(home).window.window_bytes = window;
        view.paths.at_mut(home).probing.mtu_bytes = mtu;
        view.paths.at_mut(home).state = state;
        let packet = packet(&mut view, slot, 4_000, losses);
        send_again(&mut view, slot, packet, home, Cause::Lost);
        assert_eq!(home_of(&view, packet), Some(goes), "{losses} {window} {mtu} {state:?}");
        assert_eq!(view.connections.at(slot).paths.again, 1 << goes);
        assert!(!view.packets.at(packet).void);
    }
}

#[test]
fn the_best_other_path_is_of_another_plane_and_the_least_loaded_there() {
    let mut pair = quiet(2, 3);
    let (mut view, slot) = pair.view(0);
    set_inflight(&mut view, slot, &[0, 0, 0, 9_000, 8_000, 7_000]);
    let best = |view: &View<'_>, home, bytes| {
        view.paths.at(best_other(view, slot, path(view, slot, home), bytes)).id.0
    };
    assert_eq!(best(&view, 0, 4_000), 5);
    assert_eq!(best(&view, 5, 4_000), 0);
    // What waits there counts as a full packet of 4,096 bytes each.
    let last = path(&view, slot, 5);
    let waiting = packet(&mut view, slot, 100, 0);
    view.paths.at_mut(last).sending.again.push_back(&mut view.packets, waiting);
    assert_eq!(best(&view, 0, 4_000), 4);
    set_inflight(&mut view, slot, &[0, 0, 0, 12_000, 11_107, 7_000]);
    assert_eq!(best(&view, 0, 4_000), 5, "7,000 and 4,096 are less");
    // Where none of another plane carries it, a sibling does; and if there is none it stays and waits.
    set_states(&mut view, slot, &[3, 4, 5], PathState::Dead);
    set_inflight(&mut view, slot, &[0, 500, 400, 0, 0, 0]);
    assert_eq!(best(&view, 0, 4_000), 2);
    for number in [1, 2] {
        let at = path(&view, slot, number);
        view.paths.at_mut(at).probing.mtu_bytes = 3_999;
    }
    assert_eq!(best(&view, 0, 4_000), 0);
    // From where nothing can be sent it goes to one that may have it cut up.
    set_states(&mut view, slot, &[0], PathState::Dead);
    assert_eq!(best(&view, 0, 4_000), 2);
    set_states(&mut view, slot, &[1, 2], PathState::Dead);
    assert_eq!(best(&view, 0, 4_000), 0);
}

#[test]
fn what_no_route_carries_goes_void_once_the_search_is_over() {
    //= MR-PATH-37 test
    for (mtu, candidate, state, void) in [
        (3_999, 0, PathState::Good, true),
        (4_000, 0, PathState::Good, false),
        (3_999, 4_176, PathState::Good, false),
        (3_999, 0, PathState::Dead, false),
    ] {
        let mut pair = quiet(1, 1);
        let (mut view, slot) = pair.view(0);
        let at = path(&view, slot, 0);
        view.paths.at_mut(at).probing.mtu_bytes = mtu;
        view.paths.at_mut(at).probing.candidate_bytes = candidate;
        view.paths.at_mut(at).state = state;
        let packet = packet(&mut view, slot, 4_000, 0);
        queue_again(&mut view, slot, packet, at, Cause::Lost);
        let entry = view.packets.at(packet);
        assert_eq!((entry.void, entry.too_large), (void, void), "{mtu} {candidate} {state:?}");
    }
}

#[test]
fn what_waits_on_a_path_that_fails_is_handed_out_in_order_with_its_cause() {
    let mut pair = quiet(1, 2);
    let (mut view, slot) = pair.view(0);
    let (first, second) = (path(&view, slot, 0), path(&view, slot, 1));
    let packets: Vec<_> = (0..3).map(|_| packet(&mut view, slot, 4_000, 0)).collect();
    for (packet, cause) in packets.iter().zip([Cause::Lost, Cause::Timeout, Cause::Lost]) {
        queue_again(&mut view, slot, *packet, first, cause);
    }
    set_states(&mut view, slot, &[0], PathState::Suspect);
    move_again(&mut view, slot, first);
    let again = |view: &mut View<'_>, at| {
        let mut order = Vec::new();
        while let Some(packet) = view.paths.at_mut(at).sending.again.pop_front(&mut view.packets) {
            let Place::Again { cause, .. } = view.packets.at(packet).place else { panic!("{packet:?}") };
            order.push((packet, cause));
        }
        order
    };
    assert!(again(&mut view, first).is_empty());
    let expected = [(packets[0], Cause::Lost), (packets[1], Cause::Timeout), (packets[2], Cause::Lost)];
    assert_eq!(again(&mut view, second), expected);
}

#[test]
fn a_full_packet_is_what_the_routes_in_use_carry_except_those_with_less_than_half() {
    //= MR-PATH-35 test
    for (sizes, state, payload) in [
        ([4_176, 4_176, 4_176], PathState::Good, 4_096),
        ([4_176, 2_128, 4_176], PathState::Good, 2_048),
        ([4_176, 2_088, 4_176], PathState::Good, 2_008),
        ([4_176, 2_087, 4_176], PathState::Good, 4_096),
        ([8_952, 4_176, 8_952], PathState::Dead, 8_872),
        ([1_232, 1_232, 1_232], PathState::Good, 1_152),
    ] {
        let mut pair = quiet(1, 3);
        let (mut view, slot) = pair.view(0);
        for (number, bytes) in (0..).zip(sizes) {
            let at = path(&view, slot, number);
            view.paths.at_mut(at).probing.mtu_bytes = bytes;
        }
        set_states(&mut view, slot, &[1], state);
        set_payload(&mut view, slot);
        assert_eq!(view.connections.at(slot).paths.payload_bytes, payload, "{sizes:?}");
    }
    let mut pair = quiet(1, 3);
    let (mut view, slot) = pair.view(0);
    set_states(&mut view, slot, &[0, 1, 2], PathState::Dead);
    set_payload(&mut view, slot);
    assert_eq!(view.connections.at(slot).paths.payload_bytes, 1_152, "what every route carries");
}

#[test]
fn a_search_tries_each_size_of_the_ladder_five_times_and_again_after_ten_seconds() {
    //= MR-PATH-34 test
    let mut pair = Pair::new(1, 1, |config| config.mtu_bytes = 9_000);
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    let at = path(&view, slot, 0);
    begin_mtu_search(view.paths.at_mut(at), view.secrets, 9_000);
    let mut sizes = vec![view.paths.at(at).probing.candidate_bytes];
    loop {
        let path = view.paths.at_mut(at);
        let (before, token) = (path.probing.candidate_bytes, path.probing.token);
        path.probing.tries += 1;
        path.probing.owed = false;
        on_probe_missed(&mut view, now, slot, at);
        let probing = view.paths.at(at).probing;
        assert_ne!(probing.token, token, "an answer to the one before would prove nothing");
        if probing.candidate_bytes == 0 {
            assert!(!probing.owed);
            assert_eq!(probing.deadline, now.after(10_000 * MS));
            break;
        }
        assert!(probing.owed);
        assert_eq!(probing.deadline, Instant::FAR_FUTURE);
        if probing.candidate_bytes == before {
            sizes.push(before);
        } else {
            assert_eq!((probing.tries, sizes.iter().filter(|size| **size == before).count()), (0, 5));
            sizes.push(probing.candidate_bytes);
        }
    }
    sizes.dedup();
    assert_eq!(sizes, [9_000, 8_952, 8_252, 4_176, 2_128, 1_452, 1_392]);
    assert_eq!(view.paths.at(at).probing.mtu_bytes, 1_232);
    on_probe_missed(&mut view, now.after(10_000 * MS), slot, at);
    let probing = view.paths.at(at).probing;
    assert_eq!((probing.candidate_bytes, probing.tries, probing.owed), (9_000, 0, true));
}

#[test]
fn an_answer_ends_the_search_and_one_below_what_is_wanted_has_it_begin_again_later() {
    //= MR-PATH-33 test
    for (candidate, deadline) in [(4_176, Instant::FAR_FUTURE), (2_128, Instant::from_nanos(0))] {
        let mut pair = quiet(1, 2);
        let now = pair.now;
        let (mut view, slot) = pair.view(0);
        for number in 0..2 {
            let at = path(&view, slot, number);
            begin_mtu_search(view.paths.at_mut(at), view.secrets, candidate);
        }
        set_payload(&mut view, slot);
        assert_eq!(view.connections.at(slot).paths.payload_bytes, 1_152);
        let (at, other) = (path(&view, slot, 0), path(&view, slot, 1));
        // What waits where it does not fit goes to the path that turns out to carry it.
        let waits = packet(&mut view, slot, 2_000, 0);
        queue_again(&mut view, slot, waits, other, Cause::Lost);
        let token = view.paths.at(at).probing.token;
        on_probe_answered(&mut view, now, slot, at, token ^ 1);
        assert_eq!(view.paths.at(at).probing.mtu_bytes, 1_232, "the answer to another question");
        on_probe_answered(&mut view, now, slot, at, token);
        let probing = view.paths.at(at).probing;
        assert_eq!((probing.mtu_bytes, probing.candidate_bytes), (candidate, 0));
        let deadline = if deadline == Instant::FAR_FUTURE { deadline } else { now.after(10_000 * MS) };
        assert_eq!(probing.deadline, deadline);
        // The other one counts only if it carries half as much.
        let payload = if candidate == 4_176 { 4_096 } else { 1_152 };
        assert_eq!(view.connections.at(slot).paths.payload_bytes, payload);
        assert_eq!(home_of(&view, waits), Some(0));
        // Twice is once.
        view.paths.at_mut(at).probing.mtu_bytes = 1_500;
        on_probe_answered(&mut view, now, slot, at, token);
        assert_eq!(view.paths.at(at).probing.mtu_bytes, 1_500);
    }
}

#[test]
fn eight_losses_in_a_row_of_large_packets_have_the_route_searched_again() {
    let mut pair = quiet(1, 2);
    let (mut view, slot) = pair.view(0);
    let at = path(&view, slot, 0);
    for _ in 0..20 {
        on_packet_lost(&mut view, slot, at, 1_232);
    }
    for _ in 0..7 {
        on_packet_lost(&mut view, slot, at, 1_233);
    }
    assert_eq!(view.paths.at(at).probing.mtu_bytes, 4_176);
    let waits = packet(&mut view, slot, 4_000, 0);
    queue_again(&mut view, slot, waits, at, Cause::Lost);
    on_packet_lost(&mut view, slot, at, 1_233);
    let probing = view.paths.at(at).probing;
    assert_eq!((probing.mtu_bytes, probing.candidate_bytes, probing.owed), (1_232, 4_176, true));
    assert_eq!(home_of(&view, waits), Some(1));
    assert_eq!(view.connections.at(slot).paths.payload_bytes, 4_096, "the other one still carries it");
}

#[test]
fn a_search_for_no_more_than_every_route_carries_is_none() {
    let mut pair = quiet(1, 1);
    let (mut view, slot) = pair.view(0);
    let at = path(&view, slot, 0);
    for (wanted, candidate) in [(1_233, 1_233), (1_232, 0)] {
        begin_mtu_search(view.paths.at_mut(at), view.secrets, wanted);
        let probing = view.paths.at(at).probing;
        assert_eq!((probing.candidate_bytes, probing.owed), (candidate, candidate > 0));
    }
}

#[test]
fn a_path_in_use_is_asked_for_life_each_as_likely_as_another() {
    //= MR-PATH-28 test
    let mut pair = quiet(1, 4);
    let (mut view, slot) = pair.view(0);
    set_states(&mut view, slot, &[1], PathState::Dead);
    let mut seen = [0; 4];
    for _ in 0..300 {
        ask_for_life(&mut view, slot);
        for number in take_asking(&mut view, slot) {
            seen[usize::from(number)] += 1;
        }
    }
    assert_eq!((seen[1], seen.iter().sum::<i32>()), (0, 300));
    assert!(seen.iter().all(|&count| count == 0 || count > 50), "{seen:?}");
    set_states(&mut view, slot, &[0, 1, 2, 3], PathState::Dead);
    ask_for_life(&mut view, slot);
    assert_eq!(take_asking(&mut view, slot), [0], "the first where none is");
}

#[test]
fn source_ports_are_of_the_range_and_of_one_path_each() {
    //= MR-PATH-2 test
    let ports = |view: &View<'_>, slot: Idx<Connection>| -> Vec<u16> {
        let paths = view.connections.at(slot).path_indices().map(|at| view.paths.at(at).source_port);
        paths.collect()
    };
    for seed in 0..20 {
        let mut pair = Pair::new(1, 4, |config| {
            config.seed += 2 * seed;
            config.source_ports = (60_000..=60_007).into();
        });
        let (mut view, slot) = pair.view(0);
        let first = ports(&view, slot);
        for turn in first.windows(2) {
            let next = if turn[0] == 60_007 { 60_000 } else { turn[0] + 1 };
            assert_eq!(turn[1], next, "{first:?}");
        }
        let at = path(&view, slot, 2);
        let epoch = view.paths.at(at).epoch;
        change_port(&mut view, slot, at);
        let mut second = ports(&view, slot);
        assert_eq!(view.paths.at(at).epoch, epoch + 1);
        assert!(second.iter().all(|port| (60_000..=60_007).contains(port)));
        second.sort_unstable();
        second.dedup();
        assert_eq!(second.len(), 4, "half of them are free, and eight tries find one nearly always");
    }
}

#[test]
fn searches_of_many_connections_that_open_at_once_are_spread() {
    //= MR-PATH-42 test
    let mut pair = Pair::new(1, 2, |config| config.inbound_rate_kbps = 8_000);
    let now = pair.now;
    // 4,176 bytes take 4,176 µs; with 3 others four times as long each.
    let begins = |pair: &mut Pair, others: u32| {
        let (mut view, slot) = pair.view(0);
        while view.connections.capacity() - view.connections.available() < others + 1 {
            view.connections.allocate(Connection::EMPTY).unwrap();
        }
        crate::connection::paths::open(&mut view, now, slot);
        let probing = view.paths.at(path(&view, slot, 0)).probing;
        if probing.owed { None } else { Some(probing.deadline.since(now)) }
    };
    assert_eq!(begins(&mut pair, 0), None, "alone it begins at once");
    for others in [1, 3] {
        let span = 4_176 * US * u64::from(others) * 4;
        let all: Vec<u64> = (0..60).filter_map(|_| begins(&mut pair, others)).collect();
        assert!(all.len() > 55 && all.iter().all(|ns| *ns < span), "{all:?}");
        let (least, most) = (all.iter().min().unwrap(), all.iter().max().unwrap());
        assert!(*least < span / 5 && *most > span * 4 / 5, "{least} to {most} of {span}");
    }
}
