//! What one acknowledgement changes, in exact numbers: one path, whose RTT is 10 µs before the first sample.

extern crate std;
use std::vec;
use std::vec::Vec;

use super::*;
use crate::connection::tests::{Pair, US, path, take_asking};
use crate::ids::{PathId, Psn, Serial};
use crate::path::Rtt;
use crate::stats::PathState;

/// A pair of one path, on which nothing is in flight and no RTT is known.
fn quiet() -> Pair {
    let mut pair = Pair::new(1, 1, |config| config.reorder_tolerance = 3);
    pair.run(50 * US);
    pair.exchange();
    pair.run(50 * US);
    let (mut view, slot) = pair.view(0);
    let at = path(&view, slot, 0);
    view.paths.at_mut(at).rtt = Rtt::NEW;
    pair
}

/// Has path 0 have PROBEs in flight, one sent now and each further one so many ns later. Returns the first PSN.
fn transmit(view: &mut View<'_>, now: Instant, slot: Idx<Connection>, later: &[u64]) -> Psn {
    let at = path(view, slot, 0);
    let first = view.paths.at(at).sending.psn_next;
    for ns in later {
        let psn = view.paths.at(at).sending.psn_next;
        let sent_at = now.after(*ns);
        let transmission = Transmission { psn, sent_at, bytes: 64, ..Transmission::EMPTY };
        crate::connection::output::record(view, sent_at, slot, at, transmission);
    }
    first
}

/// An acknowledgement of some of the PSNs back from `largest`, whose counters are never news.
fn block(view: &View<'_>, slot: Idx<Connection>, largest: Psn, accepted: &[u32]) -> AckBody {
    let at = path(view, slot, 0);
    let mut vector = Vector256::EMPTY;
    for back in accepted {
        vector.insert(*back);
    }
    let sending = &view.paths.at(at).sending;
    AckBody {
        path: PathId(0),
        epoch: 0,
        flags: 0,
        largest,
        accepted: vector,
        echoed_timestamp: 0,
        hold: 0,
        packets: sending.peer_packets,
        marked: sending.peer_marked,
        cumulative: crate::ids::Csn::new(0),
        share_kbps: u32::MAX,
    }
}

fn handle(view: &mut View<'_>, now: Instant, slot: Idx<Connection>, ack: AckBody) -> Disposition {
    on_ack(view, now, slot, ack, &[])
}

#[test]
fn the_newest_packet_of_a_block_samples_the_rtt_less_what_the_peer_held_it() {
    //= MR-LOSS-18 test
    let age = 32 * US;
    let hold = |ns: u64| u32::try_from(ns / 16).unwrap();
    for (hold, later, echo, back, sample) in [
        (0, age, 0, 0, Some(age)),
        (hold(8 * US), age, 0, 0, Some(24 * US)),
        (hold(age) - 1, age, 0, 0, Some(16)),
        (hold(age), age, 0, 0, None),
        (hold(age) + 1, age, 0, 0, None),
        (u32::MAX, age, 0, 0, None),
        // The echo of another transmission of the path.
        (0, age, 1, 0, None),
        // Not the newest one itself.
        (0, age, 0, 1, None),
        (0, 30_000_000 * US - 1, 0, 0, Some(30_000_000 * US - 1)),
        (0, 30_000_000 * US, 0, 0, None),
    ] {
        let mut pair = quiet();
        let now = pair.now;
        let (mut view, slot) = pair.view(0);
        let first = transmit(&mut view, now, slot, &[0, 0]);
        let ack = AckBody {
            hold,
            echoed_timestamp: now.wire_timestamp() + echo,
            ..block(&view, slot, first.plus(1), &[back])
        };
        assert_eq!(handle(&mut view, now.after(later), slot, ack), Disposition::Consumed);
        let rtt = view.paths.at(path(&view, slot, 0)).rtt;
        assert_eq!(rtt.latest_ns(), sample.unwrap_or(0), "held {hold}, {later} ns later, {echo}, {back}");
    }
}

#[test]
fn only_more_packets_than_before_are_news_to_the_window() {
    //= MR-ACK-30 test
    for (packets, marked, news) in
        [(0, 0, false), (1, 0, true), (u32::MAX >> 1, 0, true), (1 << 31, 0, false), (u32::MAX, 9, false)]
    {
        let mut pair = quiet();
        let now = pair.now;
        let (mut view, slot) = pair.view(0);
        let first = transmit(&mut view, now, slot, &[0]);
        let at = path(&view, slot, 0);
        let before = (view.paths.at(at).sending.peer_packets, view.paths.at(at).sending.peer_marked);
        let ack = block(&view, slot, first, &[]);
        let ack = AckBody {
            packets: ack.packets.wrapping_add(packets),
            marked: ack.marked.wrapping_add(marked),
            ..ack
        };
        let _ = handle(&mut view, now, slot, ack);
        let sending = &view.paths.at(at).sending;
        let after = (sending.peer_packets, sending.peer_marked);
        assert_eq!(after, if news { (ack.packets, ack.marked) } else { before }, "{packets}");
    }
}

/// What a mark of `marked` of `packets` does to the window and the counters of a path in this state.
fn mark(state: PathState, packets: u32, marked: u32, delivered: bool, payload: bool) -> (bool, u64) {
    let mut pair = quiet();
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    let first = transmit(&mut view, now, slot, &[0]);
    let at = path(&view, slot, 0);
    if payload {
        let slot = view.paths.at(at).sending.in_flight.front().unwrap();
        view.transmissions.at_mut(slot).packet = Idx::new(0);
    }
    view.paths.at_mut(at).state = state;
    view.paths.at_mut(at).window.window_bytes = 50_000;
    let before = view.paths.at(at).counters.marked;
    let ack = block(&view, slot, first, if delivered { &[0] } else { &[] });
    let ack = AckBody { packets: ack.packets + packets, marked: ack.marked + marked, ..ack };
    let _ = handle(&mut view, now.after(20 * US), slot, ack);
    let path = view.paths.at(at);
    (path.window.window_bytes < 50_000, path.counters.marked - before)
}

#[test]
fn marks_cut_the_window_of_a_path_that_carries_data() {
    //= MR-CC-26 test
    //= MR-CC-28 test
    assert_eq!(mark(PathState::Good, 8, 8, true, true), (true, 8));
    assert_eq!(mark(PathState::Good, 8, 9, true, true), (true, 8), "no more than there were packets");
    assert_eq!(mark(PathState::Good, 8, 0, true, true), (false, 0));
    assert_eq!(mark(PathState::Good, 8, 8, false, false), (true, 8), "of packets told before");
    assert_eq!(mark(PathState::Good, 8, 8, true, false), (false, 8), "PROBEs follow no window");
    assert_eq!(mark(PathState::Dead, 8, 8, true, true), (false, 0), "another route will be taken");
}

#[test]
fn a_window_grows_only_if_it_limited_the_sender_within_two_rtts() {
    // When it last kept something back, ns ago; the window; whether it grows.
    for (limited, window, grows) in [
        (None, 50_000, false),
        (Some(20 * US), 50_000, true),
        (Some(20 * US + 1), 50_000, false),
        (None, 4_176, false),
        (None, 4_175, true),
    ] {
        let mut pair = quiet();
        let now = pair.now;
        let (mut view, slot) = pair.view(0);
        let first = transmit(&mut view, now, slot, &[0]);
        let at = path(&view, slot, 0);
        let transmission = view.paths.at(at).sending.in_flight.front().unwrap();
        view.transmissions.at_mut(transmission).packet = Idx::new(0);
        view.transmissions.at_mut(transmission).bytes = 4_176;
        view.paths.at_mut(at).window.window_bytes = window;
        let then = now.after(100 * US);
        view.paths.at_mut(at).sending.limited_at =
            limited.map(|ns| Instant::from_nanos(then.as_nanos() - ns));
        let ack = block(&view, slot, first, &[0]);
        // Held too long to be a sample, so that the RTT stays.
        let ack = AckBody { packets: ack.packets + 1, hold: u32::MAX, ..ack };
        let _ = handle(&mut view, then, slot, ack);
        assert_eq!(view.paths.at(at).window.window_bytes > window, grows, "{limited:?}, {window}");
    }
}

#[test]
fn losses_are_told_by_the_gap_and_by_the_age_and_spurious_ones_double_the_tolerance() {
    //= MR-LOSS-1 test
    //= MR-LOSS-2 test
    //= MR-LOSS-6 test
    // Of transmissions sent so many ns before the newest, which are lost: by the gap from the fourth on, by 9/8 of an
    // RTT of 10 µs before that.
    let lost = |later: &[u64]| {
        let mut pair = quiet();
        let now = pair.now;
        let (mut view, slot) = pair.view(0);
        let first = transmit(&mut view, now, slot, later);
        let at = path(&view, slot, 0);
        let last = u32::try_from(later.len()).unwrap() - 1;
        let ack = block(&view, slot, first.plus(last), &[0]);
        let ack = AckBody { hold: u32::MAX, ..ack };
        let _ = handle(&mut view, now.after(20 * US), slot, ack);
        let mut left = Vec::new();
        let in_flight = &view.paths.at(at).sending.in_flight;
        let mut cursor = in_flight.front();
        while let Some(slot) = cursor {
            left.push(first.distance(view.transmissions.at(slot).psn));
            cursor = in_flight.next(&view.transmissions, slot);
        }
        left
    };
    assert_eq!(lost(&[0, 0, 0, 0]), [0, 1, 2]);
    assert_eq!(lost(&[0, 0, 0, 0, 0]), [1, 2, 3]);
    assert_eq!(lost(&[0, 0, 1, 11_250]), [0, 1, 2], "9/8 of the RTT is no more than that");
    assert_eq!(lost(&[0, 0, 1, 11_251]), [2]);

    let mut pair = quiet();
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    let at = path(&view, slot, 0);
    for (round, tolerance) in [(0, 6), (1, 12), (2, 24), (3, 32), (4, 32)] {
        let before = view.connections.at(slot).stats.spurious;
        let first = transmit(&mut view, now, slot, &vec![0; 40]);
        let ack = block(&view, slot, first.plus(39), &[0]);
        let _ = handle(&mut view, now, slot, ack);
        let ack = block(&view, slot, first.plus(39), &[0, 39]);
        let _ = handle(&mut view, now, slot, ack);
        assert_eq!(view.paths.at(at).sending.tolerance.packets(), tolerance, "{round}");
        assert_eq!(view.connections.at(slot).stats.spurious, before + 1);
        let _ = handle(&mut view, now, slot, ack);
        assert_eq!(view.connections.at(slot).stats.spurious, before + 1, "once each");
    }
}

#[test]
fn progress_ends_timeouts_in_a_row() {
    let mut pair = quiet();
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    let at = path(&view, slot, 0);
    for (state, rto_count) in [(PathState::Good, 0), (PathState::Dead, 5)] {
        let first = transmit(&mut view, now, slot, &[0]);
        let path = view.paths.at_mut(at);
        path.state = state;
        (path.timeouts.rto_count, path.timeouts.pto_count) = (5, 4);
        path.timeouts.since = Instant::ZERO;
        path.probing.large_lost = 3;
        let delivered = path.counters.delivered;
        let ack = block(&view, slot, first, &[0]);
        let _ = handle(&mut view, now, slot, ack);
        let path = view.paths.at(at);
        // Of a dead path the count goes on: it sets the time of its next PROBE.
        assert_eq!((path.timeouts.rto_count, path.timeouts.pto_count), (rto_count, 0));
        assert_eq!((path.timeouts.since, path.counters.delivered - delivered), (now, 1));
        assert_eq!(path.probing.large_lost, 3, "a small packet tells nothing of large ones");
        take_asking(&mut view, slot);
    }
    let clock = view.connections.at(slot).clock;
    assert!(clock.last_progress < now, "PROBEs let nothing progress");
    assert_eq!(clock.progress_sent_at, now);
    set_large(&mut view, now, slot);
    assert_eq!(view.paths.at(at).probing.large_lost, 0);
    assert_eq!(view.connections.at(slot).clock.last_progress, now);
}

/// A packet of 1,233 bytes is delivered.
fn set_large(view: &mut View<'_>, now: Instant, slot: Idx<Connection>) {
    let first = transmit(view, now, slot, &[0]);
    let at = path(view, slot, 0);
    let transmission = view.paths.at(at).sending.in_flight.front().unwrap();
    view.transmissions.at_mut(transmission).bytes = 1_233;
    view.transmissions.at_mut(transmission).packet = Idx::new(0);
    let ack = block(view, slot, first, &[0]);
    let _ = handle(view, now, slot, ack);
}

#[test]
fn a_block_of_what_was_never_sent_drops_the_whole_packet() {
    //= MR-ACK-28 test
    let mut pair = quiet();
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    let first = transmit(&mut view, now, slot, &[0]);
    let at = path(&view, slot, 0);
    let unsent = block(&view, slot, first.plus(1), &[0, 1]);
    let dropped = Disposition::Dropped(DropReason::AckOfUnsent);
    assert_eq!(handle(&mut view, now, slot, unsent), dropped);
    let other = AckBody { path: PathId(1), ..unsent };
    assert_eq!(handle(&mut view, now, slot, other), dropped, "there is no such path");
    let mut frames = [0; 128];
    let length = Frame::Ack(unsent).emit(&mut frames).unwrap();
    let good = block(&view, slot, first, &[0]);
    assert_eq!(on_ack(&mut view, now, slot, good, &frames[..length]), dropped);
    assert!(!view.paths.at(at).sending.in_flight.is_empty(), "nothing of it counts");
    // One that says that nothing came yet names no PSN.
    let empty = AckBody { flags: ACK_FLAG_EMPTY, ..unsent };
    let length = Frame::Ack(empty).emit(&mut frames).unwrap();
    assert_eq!(on_ack(&mut view, now, slot, good, &frames[..length]), Disposition::Consumed);
    assert!(view.paths.at(at).sending.in_flight.is_empty());
}

#[test]
fn of_two_blocks_of_a_path_the_first_counts() {
    //= MR-ACK-33 test
    let mut pair = quiet();
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    let first = transmit(&mut view, now, slot, &[0, 0]);
    let at = path(&view, slot, 0);
    let mut frames = [0; 128];
    let second = block(&view, slot, first.plus(1), &[0]);
    let length = Frame::Ack(second).emit(&mut frames).unwrap();
    let ack = block(&view, slot, first, &[0]);
    let _ = on_ack(&mut view, now, slot, ack, &frames[..length]);
    let left = view.paths.at(at).sending.in_flight.front().unwrap();
    assert_eq!(view.transmissions.at(left).psn, first.plus(1));
}
