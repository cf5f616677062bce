//! Section 8: the default congestion control, in exact numbers.

use metaroce_core::Instant;
use metaroce_core::congestion::{CongestionControl, EcnAimd, Feedback, PathWindow, WindowBounds};

const BOUNDS: WindowBounds = WindowBounds {
    packet_bytes: 4_096,
    rate_kbps: 1_000,
    window_bytes_start: 1 << 16,
    window_bytes_min: 16,
    window_bytes_max: 1 << 24,
    delay_target_ns: 50_000,
};
const RTT_NS: u64 = 100_000;

/// Round trip number `round`: so many packets, and of them so many marked.
fn feedback(round: u64, packets: u32, marked: u32) -> Feedback {
    Feedback {
        now: Instant::from_nanos(round * RTT_NS),
        delivered_bytes: u64::from(packets) * 4_096,
        packets,
        marked,
        lost: 0,
        rtt_ns_latest: RTT_NS,
        rtt_ns_smoothed: RTT_NS,
        rtt_ns_base: RTT_NS,
        connection_window_bytes: 1 << 16,
        inflight_bytes: 0,
        window_limited: true,
    }
}

/// Windows after each of the feedbacks.
fn windows(feedbacks: &[Feedback]) -> Vec<u64> {
    let mut window = PathWindow::default();
    EcnAimd.on_start(&mut window, &BOUNDS);
    let step = |feedback: &Feedback| {
        EcnAimd.on_feedback(&mut window, feedback, &BOUNDS);
        window.window_bytes
    };
    feedbacks.iter().map(step).collect()
}

#[test]
//= MR-CC-2 test
//= MR-CC-3 test
fn alpha_follows_the_marked_fraction_by_a_sixteenth_and_cuts_by_its_half() {
    // Alpha: 1/16, then 31/256, then what a half adds.
    let rounds = [feedback(2, 16, 16), feedback(4, 16, 16), feedback(6, 16, 8)];
    assert_eq!(windows(&rounds), [63_488, 59_644, 55_327]);
}

#[test]
//= MR-CC-2 test
fn a_period_has_four_packets_and_a_round_trip_at_least() {
    let after = |marked_at: &[Feedback]| windows(marked_at).last().copied() != Some(1 << 16);
    assert!(!after(&[feedback(9, 3, 3)]), "three packets");
    assert!(after(&[feedback(9, 3, 3), feedback(9, 1, 1)]));
    let start = feedback(3, 4, 0);
    let idle = Feedback { window_limited: false, ..start };
    let almost = Feedback { now: Instant::from_nanos(4 * RTT_NS - 1), ..feedback(4, 9, 9) };
    assert!(!after(&[idle, almost]), "a nanosecond less than a round trip");
    assert!(after(&[idle, feedback(4, 9, 9)]));
}

#[test]
//= MR-CC-4 test
fn delay_is_a_mark_only_above_its_target() {
    let late = |ns| Feedback { rtt_ns_latest: RTT_NS + ns, ..feedback(2, 16, 0) };
    assert!(windows(&[late(50_000)])[0] > 1 << 16);
    assert_eq!(windows(&[late(50_001)]), [63_488], "as if all were marked");
}

#[test]
//= MR-CC-5 test
fn the_start_ends_with_a_mark_and_not_with_a_period() {
    let rounds = windows(&[feedback(2, 16, 0), feedback(4, 16, 0), feedback(6, 16, 0)]);
    assert_eq!(rounds, [2 << 16, 3 << 16, 4 << 16], "what was delivered is added each time");
    let idle = |round| Feedback { window_limited: false, ..feedback(round, 16, 0) };
    assert_eq!(windows(&[idle(2), idle(4)]), [1 << 16; 2], "a window that does not limit does not grow");
    // Marked in the same period, though not in the same feedback.
    let marked = windows(&[feedback(0, 2, 1), feedback(0, 2, 0)]);
    assert_eq!(marked, [1 << 16; 2], "no growth in a period with a mark");
}

#[test]
//= MR-CC-26 test
fn another_route_forgets_marks_but_goes_on_in_small_steps() {
    let mut window = PathWindow::default();
    EcnAimd.on_start(&mut window, &BOUNDS);
    for round in [2, 4, 6] {
        EcnAimd.on_feedback(&mut window, &feedback(round, 16, 16), &BOUNDS);
    }
    // Marks of a period that has not ended.
    EcnAimd.on_feedback(&mut window, &feedback(6, 16, 16), &BOUNDS);
    EcnAimd.on_repath(&mut window, &BOUNDS);
    let before = window.window_bytes;
    EcnAimd.on_feedback(&mut window, &feedback(8, 16, 0), &BOUNDS);
    let grown = window.window_bytes - before;
    assert!(grown > 0 && grown <= 4_096, "{grown}: no mark is left, and the start is over");
    let before = window.window_bytes;
    EcnAimd.on_feedback(&mut window, &feedback(10, 16, 16), &BOUNDS);
    assert_eq!(window.window_bytes, before - before / 32, "alpha began at 0");
}
