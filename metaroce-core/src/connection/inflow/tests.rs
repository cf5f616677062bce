//! What senders are told: their shares, and what they may start with.

extern crate std;
use std::vec;
use std::vec::Vec;

use super::*;
use crate::connection::tests::{MS, Pair, US, path, take_due};

/// 8 Gbit/s and 100 µs: 100,000 bytes, 97 KiB.
fn pair() -> Pair {
    let mut pair = Pair::new(1, 1, |config| {
        config.inbound_rate_kbps = 8_000_000;
        config.rtt_ns_initial = 100 * US;
    });
    pair.run(10 * MS);
    pair.exchange();
    let (mut view, slot) = pair.view(1);
    while start_frame(&mut view, slot).is_some() {}
    take_due(&mut view, slot);
    pair
}

fn claim(now: Instant, demand_kib: u32) -> Claim {
    Claim { timestamp: now.wire_timestamp(), bytes: 4_242, demand_kib }
}

/// Has so many slots of the table be in use, of connections that do not take part in anything.
fn fill(view: &mut View<'_>, used: u32) {
    while view.connections.capacity() - view.connections.available() < used {
        view.connections.allocate(Connection::EMPTY).unwrap();
    }
}

#[test]
fn the_start_allowance_is_an_even_part_of_rate_and_rtt() {
    //= MR-CC-15 test
    let mut pair = pair();
    let (mut view, slot) = pair.view(1);
    for (used, kib) in [(1, 97), (2, 48), (3, 32), (4, 24)] {
        fill(&mut view, used);
        assert_eq!(tell_allowance(&mut view, slot), kib, "{used} connections");
    }
}

#[test]
fn a_new_allowance_is_told_when_it_is_half_or_more_than_twice_of_what_was_told() {
    // Told, what it is now, and whether that is said.
    for (told, used, said) in [
        (97, 1, false),
        (97, 2, true),  // 48 of 97
        (96, 2, true),  // 48 of 96
        (95, 2, false), // 48 of 95
        (48, 1, false), // 97 / 2 = 48
        (47, 1, true),
        (0, 1, true),
    ] {
        let mut pair = pair();
        let (mut view, slot) = pair.view(1);
        fill(&mut view, used);
        view.connections.at_mut(slot).inflows.told_kib = told;
        on_count_changed(&mut view);
        assert_eq!(take_due(&mut view, slot), said, "{told} KiB told, {used} connections");
        let frames: Vec<_> = (0..5).map_while(|_| start_frame(&mut view, slot)).collect();
        let allowance_kib = [97, 48][used as usize - 1];
        assert_eq!(frames, vec![Frame::Start { allowance_kib }; if said { 3 } else { 0 }], "any may be lost");
        on_count_changed(&mut view);
        assert!(!take_due(&mut view, slot), "it is told now");
    }
}

#[test]
fn four_connections_in_turn_are_told_for_each_one_that_opens_or_ends() {
    let mut pair = pair();
    let connections: Vec<_> = (0..3)
        .map(|_| {
            let now = pair.now;
            let ours = pair.ends[0].connect(now, crate::ConnectOptions::to(pair_address())).unwrap();
            pair.exchange();
            while let Some(event) = pair.ends[1].poll_event() {
                if let crate::Event::Incoming { connection, .. } = event {
                    pair.ends[1].accept(now, connection, crate::ProtectionDomain(0), b"").unwrap();
                }
            }
            pair.exchange();
            ours
        })
        .collect();
    assert_eq!(connections.len(), 3);
    let (mut view, _) = pair.view(1);
    // Of four, all are told each time, wherever the turn begins.
    for round in 0..5 {
        for slot in 0..4 {
            let owner = view.connections.at_mut(Idx::new(slot));
            (owner.inflows.told_kib, owner.inflows.repeats, owner.paths.due) = (999, 0, 0);
        }
        *view.start_cursor = round;
        on_count_changed(&mut view);
        for slot in 0..4 {
            let owner = view.connections.at(Idx::new(slot));
            assert_eq!((owner.inflows.told_kib, owner.inflows.repeats, owner.paths.due), (24, 3, 1));
        }
    }
}

fn pair_address() -> core::net::SocketAddr {
    crate::connection::tests::address(1, 0, crate::connection::tests::PORT)
}

#[test]
fn a_share_is_that_of_the_plane_and_whoever_falls_silent_leaves_it_to_the_others() {
    //= MR-CC-21 test
    //= MR-CC-24 test
    let mut pair = pair();
    let now = pair.now;
    let (mut view, slot) = pair.view(1);
    assert_eq!(share_kbps(&mut view, slot, 0), 7_840_000);
    // Another one that asks for much.
    let other = Connection { planes: view.connections.at(slot).planes, ..Connection::EMPTY };
    let other = view.connections.allocate(other).unwrap();
    let much = |view: &mut View<'_>, slot| on_packet(view, now, slot, 0, claim(now, 1 << 20));
    much(&mut view, slot);
    much(&mut view, other);
    assert_eq!(share_kbps(&mut view, slot, 0), 3_920_000);
    // Two RTTs are 200 µs; eight packets at this share take 8 x 8,657 ns.
    let leaves = now.after(200 * US);
    assert_eq!(view.connections.at(slot).clock.armed, leaves, "it looks by itself");
    assert_eq!(expire(&mut view, Instant::from_nanos(leaves.as_nanos() - 1), slot), leaves);
    assert_eq!(share_kbps(&mut view, other, 0), 3_920_000);
    assert_eq!(expire(&mut view, leaves, slot), Instant::FAR_FUTURE);
    assert_eq!(share_kbps(&mut view, other, 0), 7_840_000);
    assert_eq!(expire(&mut view, leaves, slot), Instant::FAR_FUTURE, "it has left");
    much(&mut view, slot);
    leave(&mut view, slot);
    assert_eq!(share_kbps(&mut view, other, 0), 7_840_000, "whoever has ended asks for nothing");
}

#[test]
fn silence_is_two_base_rtts_of_the_nearest_path_or_of_the_fabric_before_the_first_sample() {
    for (rtt_us, silent_us) in [(None, 200), (Some(50), 100), (Some(300), 600)] {
        let mut pair = pair();
        let now = pair.now;
        let (mut view, slot) = pair.view(1);
        if let Some(us) = rtt_us {
            let at = path(&view, slot, 0);
            view.paths.at_mut(at).rtt.on_sample(now, us * US);
        }
        on_packet(&mut view, now, slot, 0, claim(now, 1 << 20));
        assert_eq!(expire(&mut view, now, slot), now.after(silent_us * US), "{rtt_us:?}");
    }
}
