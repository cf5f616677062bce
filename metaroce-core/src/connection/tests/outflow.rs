//! Shares, starts and windows in exact numbers. The line's rate is 8 Gbit/s, so that a byte takes a nanosecond; its RTT
//! is 100 µs, and what fits into it 100,000 bytes.

use super::*;
use crate::connection::outflow::{demand_kib, limit_windows, on_share, start, start_bytes};
use crate::connection::{parking, paths};

/// A pair of the line above. The windows are those of the start, before any packet was sent.
fn pair(planes: u8, paths: u8) -> Pair {
    let mut pair = Pair::new(planes, paths, |config| {
        config.inbound_rate_kbps = 8_000_000;
        config.rtt_ns_initial = 100 * US;
        config.window_bytes_start = 1 << 20;
    });
    // The shares that were told with the first acknowledgements are stale by then.
    pair.run(10 * MS);
    pair
}

/// Bytes of a full packet, framing included.
const PACKET: u64 = 4_096 + 66;

fn windows(view: &View<'_>, slot: Idx<Connection>) -> Vec<u64> {
    view.connections.at(slot).path_indices().map(|at| view.paths.at(at).window.window_bytes).collect()
}

fn set_windows(view: &mut View<'_>, slot: Idx<Connection>, bytes: &[u64]) {
    for (at, bytes) in view.connections.at(slot).path_indices().zip(bytes) {
        view.paths.at_mut(at).window.window_bytes = *bytes;
    }
}

#[test]
fn windows_of_a_plane_add_up_to_twice_what_fits_into_rate_and_rtt() {
    //= MR-CC-7 test
    let mut pair = pair(2, 2);
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    for (before, after) in [
        ([100_000, 100_000, 1, 1], [100_000, 100_000, 1, 1]),
        ([150_000, 50_001, 1, 1], [149_999, 50_000, 1, 1]),
        ([300_000, 100_000, 90_000, 90_000], [150_000, 50_000, 90_000, 90_000]),
        // None goes below a packet, and what is below stays.
        ([1_000_000, 5_000, 1, 1], [199_004, 4_162, 1, 1]),
        ([1_000_000, 4_162, 1, 1], [199_171, 4_162, 1, 1]),
        ([1_000_000, 4_161, 1, 1], [199_171, 4_161, 1, 1]),
    ] {
        set_windows(&mut view, slot, &before);
        limit_windows(&mut view, now, slot, 0);
        assert_eq!(windows(&view, slot), after, "{before:?}");
    }
    // Of the largest base RTT of those in use.
    let second = path(&view, slot, 1);
    view.paths.at_mut(second).rtt.on_sample(now, 200 * US);
    set_windows(&mut view, slot, &[250_000, 150_000, 1, 1]);
    limit_windows(&mut view, now, slot, 0);
    assert_eq!(windows(&view, slot), [250_000, 150_000, 1, 1]);
    set_states(&mut view, slot, &[1], PathState::Suspect);
    limit_windows(&mut view, now, slot, 0);
    assert_eq!(windows(&view, slot), [200_000, 150_000, 1, 1], "one that carries nothing counts for nothing");
}

#[test]
fn a_fresh_share_limits_the_windows_and_no_share_raises_them() {
    let mut pair = pair(1, 2);
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    let at = path(&view, slot, 0);
    let limited = |view: &mut View<'_>, now| {
        set_windows(view, slot, &[150_000, 150_000]);
        limit_windows(view, now, slot, 0);
        windows(view, slot)
    };
    on_share(&mut view, now, slot, at, 4_000_000);
    assert_eq!(limited(&mut view, now), [50_000, 50_000]);
    on_share(&mut view, now, slot, at, 80_000_000);
    assert_eq!(limited(&mut view, now), [100_000, 100_000]);
    on_share(&mut view, now, slot, at, 4_000_000);
    let stale = now.after(800 * US);
    assert_eq!(limited(&mut view, stale), [100_000, 100_000], "the share is stale after eight RTTs");
}

#[test]
fn the_start_is_the_least_of_rate_and_rtt_of_the_own_setting_and_of_the_allowance() {
    //= MR-CC-13 test
    for (planes, setting, allowance_kib, bytes) in [
        (1, 1 << 20, 1_000, 100_000),
        (1, 90_000, 1_000, 90_000),
        (2, 90_000, 1_000, 45_000),
        (3, 90_000, 1_000, 30_000),
        (1, 90_000, 10, 10_240),
        (1, 90_000, 0, 0),
    ] {
        let mut pair = Pair::new(planes, 2, |config| {
            config.inbound_rate_kbps = 8_000_000;
            config.rtt_ns_initial = 100 * US;
            config.window_bytes_start = setting;
        });
        let (mut view, slot) = pair.view(0);
        view.connections.at_mut(slot).outflows.allow(allowance_kib);
        assert_eq!(start_bytes(view.connections.at(slot), view.config), bytes, "{planes} planes");
    }
}

#[test]
fn demand_is_what_waits_for_each_plane_in_whole_kibibytes_and_one_at_least() {
    //= MR-CC-17 test
    //= MR-CC-18 test
    for (planes, queued, kib) in
        [(1, 0, 1), (1, 1, 1), (1, 1_024, 1), (1, 1_025, 2), (2, 2_048, 1), (2, 2_049, 2), (3, 9_216, 3)]
    {
        let mut pair = Pair::new(planes, 1, |_| {});
        let (mut view, slot) = pair.view(0);
        assert_eq!(demand_kib(view.connections.at(slot)), 0, "nothing to send");
        view.connections.at_mut(slot).paths.again = 1;
        view.connections.at_mut(slot).queued_bytes = queued;
        assert_eq!(demand_kib(view.connections.at(slot)), kib, "{queued} bytes on {planes} planes");
        view.connections.at_mut(slot).queued_bytes = u64::MAX;
        assert_eq!(demand_kib(view.connections.at(slot)), u32::MAX);
    }
}

/// When the share lets the next packet out, from now, ns; 0 for now.
fn opens(view: &View<'_>, now: Instant, slot: Idx<Connection>) -> u64 {
    view.connections.at(slot).outflows.opens_at(now, 0).since(now)
}

#[test]
fn the_first_turn_comes_two_thirds_to_five_thirds_of_an_interval_after_the_first_share() {
    //= MR-CC-29 test
    // A full packet takes 83,240 ns at 400 Mbit/s.
    let interval = PACKET * 20;
    let mut turns = Vec::new();
    for seed in 1..40 {
        let mut pair = Pair::new(1, 2, |config| {
            config.seed += 10 * seed;
            config.inbound_rate_kbps = 8_000_000;
            config.rtt_ns_initial = 100 * US;
        });
        let now = pair.now.after(10 * MS);
        let (mut view, slot) = pair.view(0);
        let at = path(&view, slot, 0);
        on_share(&mut view, now, slot, at, 400_000);
        let turn = opens(&view, now, slot);
        assert!(turn >= interval * 2 / 3 && turn <= interval * 5 / 3, "{turn}");
        turns.push(turn);
        // What it told last stays the turn, as long as the share does not grow.
        on_share(&mut view, now, slot, at, 300_000);
        assert_eq!(opens(&view, now, slot), turn);
        on_share(&mut view, now, slot, at, 600_000);
        assert_eq!(opens(&view, now, slot), turn / 2, "twice the share, half the wait");
    }
    turns.sort_unstable();
    let (first, last) = (turns[0], turns[turns.len() - 1]);
    assert!(last - first > interval / 2, "spread over an interval: {first} to {last}");
}

#[test]
fn a_share_lasts_for_eight_rtts_or_packet_intervals_whichever_is_longer() {
    //= MR-CC-22 test
    for (kbps, ns) in [(8_000_000, 800 * US), (400_000, 800 * US), (80_000, 8 * PACKET * 100)] {
        let mut pair = pair(1, 1);
        let now = pair.now;
        let (mut view, slot) = pair.view(0);
        let at = path(&view, slot, 0);
        on_share(&mut view, now, slot, at, kbps);
        let fresh = |at| view.connections.at(slot).outflows.fresh_kbps(now.after(at), 0);
        assert_eq!((fresh(ns - 1), fresh(ns)), (Some(u64::from(kbps)), None), "{kbps}");
    }
}

#[test]
fn a_first_share_of_less_than_eight_packets_an_rtt_is_asked_for_once_more() {
    // 2.6632 Gbit/s are 4,162 bytes in 12.5 µs.
    for (kbps, sends, asks) in
        [(2_663_680, true, false), (2_663_000, true, true), (1_000, true, true), (1_000, false, false)]
    {
        let mut pair = pair(1, 1);
        let now = pair.now;
        let (mut view, slot) = pair.view(0);
        take_asking(&mut view, slot);
        // Something waits to go again.
        view.connections.at_mut(slot).paths.again = u64::from(sends);
        let at = path(&view, slot, 0);
        on_share(&mut view, now, slot, at, kbps);
        assert_eq!(!take_asking(&mut view, slot).is_empty(), asks, "{kbps} kbit/s, sends: {sends}");
        on_share(&mut view, now, slot, at, kbps);
        assert!(take_asking(&mut view, slot).is_empty(), "once");
    }
}

#[test]
fn whoever_may_start_with_less_than_a_packet_asks_first_or_sends_a_small_one_alone() {
    //= MR-CC-14 test
    for (allowance_kib, bytes, goes, asks, alone) in [
        (5, 4_096, true, false, false),
        (4, 4_096, true, false, false),
        (3, 4_096, false, true, false),
        (3, 257, false, true, false),
        (3, 256, true, false, true),
        (0, 256, true, false, true),
    ] {
        let mut pair = pair(2, 2);
        let now = pair.now;
        let (mut view, slot) = pair.view(0);
        take_asking(&mut view, slot);
        view.connections.at_mut(slot).outflows.allow(allowance_kib);
        assert_eq!(start(&mut view, now, slot, bytes), goes, "{allowance_kib} KiB, {bytes} bytes");
        let asked = take_asking(&mut view, slot);
        assert_eq!(asked, if asks { vec![0, 2] } else { vec![] }, "one path of every plane");
        assert_eq!(view.connections.at(slot).outflows.waits_for_share(), alone);
        if asks {
            // Until a probe timeout later: two RTTs and the ACK delay.
            let until = now.after(208 * US);
            assert_eq!(view.connections.at(slot).clock.pace_at, until);
            assert!(!start(&mut view, Instant::from_nanos(until.as_nanos() - 1), slot, bytes));
            assert!(start(&mut view, until, slot, bytes), "at the latest then");
            assert!(view.connections.at(slot).outflows.waits_for_share());
            assert!(start(&mut view, until, slot, bytes));
            let at = path(&view, slot, 0);
            on_share(&mut view, until, slot, at, 1_000);
            assert!(!view.connections.at(slot).outflows.waits_for_share());
        }
    }
}

#[test]
fn what_is_small_need_not_wait_for_the_answer() {
    let mut pair = pair(1, 1);
    let now = pair.now.after(10 * MS);
    let (mut view, slot) = pair.view(0);
    view.connections.at_mut(slot).outflows.allow(0);
    assert!(!start(&mut view, now, slot, 257));
    assert!(start(&mut view, now, slot, 256));
    assert!(view.connections.at(slot).outflows.waits_for_share());
}

#[test]
fn windows_start_anew_after_a_pause_of_eight_rtts_or_packet_intervals() {
    //= MR-CC-16 test
    // At a share of 80 Mbit/s 4,096 bytes take 409.6 µs.
    for (share, pause) in [(None, 800 * US), (Some(80_000), 8 * 409_600)] {
        for (late, drained, anew) in [(0, true, false), (1, true, true), (1, false, false)] {
            let mut pair = pair(1, 2);
            let now = pair.now.after(10 * MS);
            let (mut view, slot) = pair.view(0);
            view.connections.at_mut(slot).outflows.allow(10);
            assert!(start(&mut view, now, slot, 4_096));
            if let Some(kbps) = share {
                let at = path(&view, slot, 0);
                on_share(&mut view, now, slot, at, kbps);
            }
            set_windows(&mut view, slot, &[70_000, 3_000]);
            let owner = view.connections.at_mut(slot);
            owner.outflows.on_data(drained);
            owner.outflows.on_sent(now, 0, 4_096, 100 * US, view.rng);
            assert!(start(&mut view, now.after(pause + late), slot, 4_096));
            // 10 KiB for two paths. What is smaller stays.
            let expected = if anew { [5_120, 3_000] } else { [70_000, 3_000] };
            assert_eq!(windows(&view, slot), expected, "{share:?}, {late} ns late, drained: {drained}");
        }
    }
}

#[test]
fn bounds_of_a_path_are_those_of_its_share_its_packet_and_its_line() {
    let mut pair = pair(2, 2);
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    view.connections.at_mut(slot).outflows.allow(40);
    let at = path(&view, slot, 2);
    on_share(&mut view, now, slot, at, 5_000_000);
    let bounds = |now, plane| paths::bounds(now, view.connections.at(slot), view.config, plane);
    let first = bounds(now, 0);
    assert_eq!(first.packet_bytes, 4_176);
    assert_eq!((first.rate_kbps, bounds(now, 1).rate_kbps), (8_000_000, 5_000_000));
    assert_eq!(bounds(now.after(MS), 1).rate_kbps, 8_000_000, "a stale share is none");
    assert_eq!((first.window_bytes_start, first.window_bytes_min), (20_480, 16));
    assert_eq!(first.window_bytes_max, 64 << 20);
    assert_eq!(first.delay_target_ns, 10_000 + 4 * 4_176, "four links that each take a packet whole");
}

#[test]
fn a_start_feeds_as_many_paths_as_it_has_packets() {
    //= MR-PATH-6 test
    for (kib, window, used) in
        [(1_000, 25_000, 4), (17, 4_352, 4), (16, 16_384 / 3, 3), (8, 8_192, 1), (3, 4_176, 1)]
    {
        let mut pair = pair(1, 4);
        let now = pair.now;
        let (mut view, slot) = pair.view(0);
        view.connections.at_mut(slot).outflows.allow(kib);
        parking::start(&mut view, now, slot, 0);
        let start = parking::start_window_bytes(view.connections.at(slot), view.config);
        let in_use = view.connections.at(slot).path_indices().filter(|&at| view.paths.at(at).takes_data());
        assert_eq!((start, in_use.count()), (window, used), "{kib} KiB");
    }
}
