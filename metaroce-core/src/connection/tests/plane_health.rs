//! Which planes are dead, unreachable or silent, and when the peer is told: two planes of four paths, unless a test
//! says otherwise. RTO and RTT are those of the configuration: 100 and 10 µs.

use super::*;
use crate::connection::plane_health::{
    self, frame, leads, next_ack_path, next_of_others, on_frame, on_timer, refresh, several_live, wake,
};
use crate::wire::Frame;

const RTO: u64 = 100 * US;

fn health<'a>(view: &'a mut View<'_>, slot: Idx<Connection>) -> &'a mut plane_health::PlaneHealth {
    &mut view.connections.at_mut(slot).planes.health
}

/// Lets the peer say that all is well until it has nothing left to say, so that a test hears only what is new.
fn calm(pair: &mut Pair) {
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    while frame(&mut view, now, slot).is_some() {}
    take_due(&mut view, slot);
    take_asking(&mut view, slot);
}

const fn said(silent: u32, unreachable: u32) -> Frame {
    Frame::Plane { silent, unreachable }
}

#[test]
fn a_plane_is_dead_from_three_quarters_of_its_paths_in_use_on() {
    //= MR-PATH-32 test
    let mut pair = Pair::new(2, 4, |_| {});
    let (mut view, slot) = pair.view(0);
    for (down, parked, dead) in [
        (&[4u8, 5][..], &[][..], false),
        (&[4, 5, 6], &[], true),
        (&[4], &[5, 6], false),
        (&[4, 5], &[6, 7], true),
        (&[], &[4, 5, 6, 7], false),
    ] {
        set_states(&mut view, slot, &[4, 5, 6, 7], PathState::Good);
        set_states(&mut view, slot, down, PathState::Dead);
        set_states(&mut view, slot, parked, PathState::Parked);
        if let [_, second, ..] = down {
            set_states(&mut view, slot, &[*second], PathState::Probing);
        }
        refresh(&mut view, slot);
        let health = health(&mut view, slot);
        assert_eq!(health.is_dead(1), dead, "{down:?} are down, {parked:?} parked");
        assert!(!health.is_dead(0));
        assert_eq!(health.turn(1).is_none(), dead, "no data goes where most is dead");
    }
    // A suspect is not dead yet, though it carries nothing.
    set_states(&mut view, slot, &[4, 5, 6, 7], PathState::Suspect);
    refresh(&mut view, slot);
    assert!(!health(&mut view, slot).is_dead(1));
}

#[test]
fn dead_planes_are_avoided_only_while_another_carries_data() {
    let mut pair = Pair::new(2, 4, |_| {});
    let (mut view, slot) = pair.view(0);
    set_states(&mut view, slot, &[0, 1, 2, 4, 5, 6], PathState::Dead);
    refresh(&mut view, slot);
    let both = health(&mut view, slot);
    assert!(both.is_dead(0) && both.is_dead(1) && both.turn(0).is_some() && both.turn(1).is_some());
    set_states(&mut view, slot, &[0], PathState::Good);
    refresh(&mut view, slot);
    assert!(health(&mut view, slot).turn(0).is_some() && health(&mut view, slot).turn(1).is_none());
    // The other one is not dead, but carries nothing: it is none to go to.
    set_states(&mut view, slot, &[0, 1, 2, 3], PathState::Suspect);
    refresh(&mut view, slot);
    assert!(health(&mut view, slot).turn(1).is_some());
}

#[test]
fn the_peer_is_told_at_once_that_a_plane_has_become_unreachable_and_once_that_it_is_not() {
    let mut pair = Pair::new(2, 4, |_| {});
    calm(&mut pair);
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    refresh(&mut view, slot);
    assert!(!take_due(&mut view, slot), "nothing is new");
    set_states(&mut view, slot, &[4, 5, 6], PathState::Suspect);
    refresh(&mut view, slot);
    assert!(!take_due(&mut view, slot), "one path is left");
    set_states(&mut view, slot, &[7], PathState::Suspect);
    refresh(&mut view, slot);
    assert!(take_due(&mut view, slot));
    assert_eq!(frame(&mut view, now, slot), Some(said(0, 2)));
    refresh(&mut view, slot);
    assert!(!take_due(&mut view, slot), "it was told");
    set_states(&mut view, slot, &[7], PathState::Good);
    refresh(&mut view, slot);
    assert!(take_due(&mut view, slot));
    // Any may be lost: so often that all is well again, and then no more.
    for number in 0..8 {
        assert_eq!(frame(&mut view, now, slot), Some(said(0, 0)), "{number}");
    }
    assert_eq!(frame(&mut view, now, slot), None);
}

/// Packets come on plane 0 only from here on: so many, `ns` later.
fn hear(pair: &mut Pair, packets: u32, ns: u64) {
    pair.run(ns);
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    for _ in 0..packets {
        health(&mut view, slot).on_heard(now, 0);
    }
}

/// Both planes were just heard.
fn heard_both(pair: &mut Pair) {
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    health(&mut view, slot).on_heard(now, 1);
    health(&mut view, slot).on_heard(now, 0);
}

#[test]
fn a_plane_is_silent_after_two_rtos_and_four_packets_for_each_plane() {
    //= MR-ACK-27 test
    // The packet that was heard with the silent plane's last one counts.
    for (packets, ns, silent) in [(7, 2 * RTO + 1, true), (6, 2 * RTO + 1, false), (99, 2 * RTO, false)] {
        let mut pair = Pair::new(2, 4, |_| {});
        calm(&mut pair);
        heard_both(&mut pair);
        hear(&mut pair, packets, ns);
        let now = pair.now;
        let (mut view, slot) = pair.view(0);
        let expected = if silent { Some(said(2, 0)) } else { None };
        assert_eq!(frame(&mut view, now, slot), expected, "{packets} packets in {ns} ns");
        assert_eq!(health(&mut view, slot).told_silent(1), silent);
    }
}

#[test]
fn silence_is_measured_by_the_rto_of_the_last_timer_and_the_timer_looks_every_two() {
    //= MR-ACK-32 test
    let mut pair = Pair::new(2, 4, |_| {});
    calm(&mut pair);
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    on_timer(&mut view, now, slot);
    assert_eq!(on_timer(&mut view, now, slot), Instant::FAR_FUTURE, "nothing came, nothing is sent");
    for at in view.connections.at(slot).path_indices() {
        view.paths.at_mut(at).rtt.on_sample(now, 25 * US);
    }
    health(&mut view, slot).on_heard(now, 0);
    assert_eq!(on_timer(&mut view, now, slot), now.after(2 * RTO), "four RTTs are no more than its floor");
    for at in view.connections.at(slot).path_indices() {
        view.paths.at_mut(at).rtt = crate::path::Rtt::NEW;
        view.paths.at_mut(at).rtt.on_sample(now, 50 * US);
    }
    health(&mut view, slot).on_heard(now, 0);
    assert_eq!(on_timer(&mut view, now, slot), now.after(400 * US));
    heard_both(&mut pair);
    hear(&mut pair, 9, 400 * US);
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    assert_eq!(frame(&mut view, now, slot), None, "not longer than two RTOs");
    assert_eq!(frame(&mut view, now.after(1), slot), Some(said(2, 0)));
    take_due(&mut view, slot);
    on_timer(&mut view, now.after(1), slot);
    assert!(!take_due(&mut view, slot), "the peer knows");
}

#[test]
fn one_plane_has_nothing_to_say() {
    let mut pair = Pair::new(1, 4, |_| {});
    hear(&mut pair, 99, MS);
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    set_states(&mut view, slot, &[0, 1, 2, 3], PathState::Dead);
    refresh(&mut view, slot);
    assert!(!health(&mut view, slot).is_dead(0) && !take_due(&mut view, slot));
    assert_eq!(on_timer(&mut view, now, slot), Instant::FAR_FUTURE);
    assert_eq!(frame(&mut view, now, slot), None);
}

/// Has the connection have something in flight, for ever.
fn send(pair: &mut Pair) {
    let (mut view, slot) = pair.view(0);
    let packet = view.packets.allocate(crate::delivery::Packet::EMPTY).unwrap();
    view.connections.at_mut(slot).outbound.enter(&mut view.packets, packet);
}

#[test]
fn who_only_receives_tells_of_silence_once_by_itself_and_who_sends_repeats_it_every_two_rtos() {
    //= MR-ACK-32 test
    for sends in [false, true] {
        let mut pair = Pair::new(2, 4, |_| {});
        calm(&mut pair);
        heard_both(&mut pair);
        if sends {
            send(&mut pair);
        }
        hear(&mut pair, 9, 2 * RTO + 1);
        let now = pair.now;
        let (mut view, slot) = pair.view(0);
        assert_eq!(on_timer(&mut view, now, slot), now.after(2 * RTO));
        assert!(take_due(&mut view, slot), "it is news");
        assert_eq!(frame(&mut view, now, slot), Some(said(2, 0)));
        for (later, repeats) in [(2 * RTO, false), (2 * RTO + 1, sends)] {
            let later = now.after(later);
            health(&mut view, slot).on_heard(later, 0);
            on_timer(&mut view, later, slot);
            assert_eq!(take_due(&mut view, slot), repeats, "sends: {sends}");
        }
        // It is told in what goes anyway, as long as it is so.
        assert_eq!(frame(&mut view, now.after(4 * RTO), slot), Some(said(2, 0)));
    }
}

#[test]
fn that_all_is_well_again_is_repeated_while_it_sends() {
    let mut pair = Pair::new(2, 4, |_| {});
    calm(&mut pair);
    send(&mut pair);
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    set_states(&mut view, slot, &[4, 5, 6, 7], PathState::Suspect);
    refresh(&mut view, slot);
    assert_eq!(frame(&mut view, now, slot), Some(said(0, 2)));
    set_states(&mut view, slot, &[4, 5, 6, 7], PathState::Good);
    refresh(&mut view, slot);
    let mut later = now;
    for number in 0..8 {
        assert_eq!(frame(&mut view, later, slot), Some(said(0, 0)));
        take_due(&mut view, slot);
        later = later.after(2 * RTO + 1);
        on_timer(&mut view, later, slot);
        assert_eq!(take_due(&mut view, slot), number < 7, "{number}");
    }
}

#[test]
fn the_word_of_the_peer_holds_for_eight_rtos_and_is_put_to_the_test_once() {
    //= MR-PATH-41 test
    let mut pair = Pair::new(2, 4, |_| {});
    calm(&mut pair);
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    set_states(&mut view, slot, &[6], PathState::Suspect);
    on_frame(&mut view, now, slot, 2, 1);
    assert_eq!(take_asking(&mut view, slot), [4, 5, 7], "those that carry data");
    let deaf = |view: &mut View<'_>, at: u64, plane| health(view, slot).peer_is_deaf(now.after(at), plane);
    assert!(deaf(&mut view, 8 * RTO - 1, 1) && !deaf(&mut view, 8 * RTO, 1) && !deaf(&mut view, 0, 0));
    assert_eq!(health(&mut view, slot).said(0), (false, true));
    assert_eq!(health(&mut view, slot).said(1), (true, false));
    on_frame(&mut view, now.after(8 * RTO - 1), slot, 2, 0);
    assert_eq!(take_asking(&mut view, slot), [0u8; 0], "it is known");
    assert!(deaf(&mut view, 16 * RTO - 2, 1), "said again, it holds again");
    on_frame(&mut view, now.after(16 * RTO), slot, 3, 0);
    assert_eq!(take_asking(&mut view, slot), [0, 1, 2, 3, 4, 5, 7], "what was said had run out");
    on_frame(&mut view, now.after(16 * RTO), slot, 0, 0);
    assert!(!deaf(&mut view, 16 * RTO, 1));
    assert_eq!(health(&mut view, slot).said(0), (false, false));
    // Bits of planes that there cannot be.
    on_frame(&mut view, now.after(16 * RTO), slot, 0xffff_ff00, 0xffff_ff00);
    assert_eq!(health(&mut view, slot).said(0), (false, false));
    assert!(take_asking(&mut view, slot).is_empty());
}

/// Numbers of the paths that the next acknowledgements take.
fn acks(view: &mut View<'_>, now: Instant, slot: Idx<Connection>, count: usize) -> Vec<u8> {
    (0..count)
        .map(|_| {
            let at = next_ack_path(view, now, slot);
            view.paths.at(at).id.0
        })
        .collect()
}

#[test]
fn acknowledgements_take_planes_in_turn_and_on_each_its_good_paths() {
    //= MR-ACK-17 test
    //= MR-ACK-18 test
    let mut pair = Pair::new(3, 3, |_| {});
    calm(&mut pair);
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    let first = acks(&mut view, now, slot, 1)[0];
    while acks(&mut view, now, slot, 1) != [8] {}
    assert!(first < 9);
    assert_eq!(acks(&mut view, now, slot, 9), [0, 3, 6, 1, 4, 7, 2, 5, 8]);
    set_states(&mut view, slot, &[1, 3], PathState::Suspect);
    assert_eq!(acks(&mut view, now, slot, 9), [0, 4, 6, 2, 5, 7, 0, 4, 8]);
    // Not where the peer hears nothing, as long as there is another plane; nor on a dead one.
    on_frame(&mut view, now, slot, 4, 0);
    assert_eq!(acks(&mut view, now, slot, 4), [2, 5, 0, 4]);
    set_states(&mut view, slot, &[3, 4, 5], PathState::Dead);
    refresh(&mut view, slot);
    assert_eq!(acks(&mut view, now, slot, 2), [2, 0]);
    on_frame(&mut view, now, slot, 5, 0);
    let best_of_bad = acks(&mut view, now, slot, 3);
    assert!(best_of_bad.iter().all(|path| !(3..6).contains(path)), "{best_of_bad:?}");
    set_states(&mut view, slot, &[0, 1, 2, 6, 7, 8], PathState::Dead);
    assert_eq!(acks(&mut view, now, slot, 2), [0, 0], "there is none");
}

#[test]
fn acknowledgements_go_twice_where_two_planes_live() {
    let mut pair = Pair::new(3, 3, |_| {});
    let (mut view, slot) = pair.view(0);
    let several = |view: &View<'_>| several_live(&view.connections.at(slot).planes);
    assert!(several(&view));
    set_states(&mut view, slot, &[0, 1, 2], PathState::Suspect);
    refresh(&mut view, slot);
    assert!(several(&view), "two are left");
    set_states(&mut view, slot, &[3, 4, 5], PathState::Dead);
    refresh(&mut view, slot);
    assert!(!several(&view));
}

#[test]
fn the_first_dead_path_of_a_plane_asks_for_all_and_its_answer_wakes_the_others() {
    //= MR-PATH-20 test
    let mut pair = Pair::new(2, 4, |_| {});
    calm(&mut pair);
    let (mut view, slot) = pair.view(0);
    set_states(&mut view, slot, &[1, 5, 7], PathState::Dead);
    set_states(&mut view, slot, &[6], PathState::Probing);
    let leaders: Vec<u8> = (0..8).filter(|&number| leads(&view, slot, path(&view, slot, number))).collect();
    assert_eq!(leaders, [1, 5]);
    wake(&mut view, slot, 1);
    assert_eq!(take_asking(&mut view, slot), [5, 7], "one that asks already, and other planes, need not");
}

#[test]
fn one_path_of_each_other_plane_in_turn_is_asked() {
    let mut pair = Pair::new(3, 3, |_| {});
    calm(&mut pair);
    let (mut view, slot) = pair.view(0);
    let of = |view: &mut View<'_>, plane| {
        let found = next_of_others(view, slot, plane);
        found.map(|at| at.map(|at| view.paths.at(at).id.0))
    };
    let first = of(&mut view, 1);
    assert_eq!(first[1], None);
    let [Some(zero), Some(two)] = [first[0], first[2]] else { panic!("{first:?}") };
    assert_eq!(of(&mut view, 1)[..3], [Some((zero + 1) % 3), None, Some(6 + (two - 6 + 1) % 3)]);
    plane_health::ask_others(&mut view, slot, 1);
    assert_eq!(take_asking(&mut view, slot), [(zero + 2) % 3, 6 + (two - 6 + 2) % 3]);
}
