//! Windows that hold the queueing delay at a target, as Swift does (Kumar et al., SIGCOMM 2020): for fabrics that mark
//! nothing, or whose marks don't arrive.

use super::growth::{RecentLoss, cut_for_timeout, grow};
use super::{CongestionControl, Feedback, PathWindow, WindowBounds};
use crate::time::Instant;

/// AIMD on queueing delay per path; marks count for nothing.
///
/// The target is `delay_target_ns` and, for windows under 100 packets, up to as much again: by `1/√window`, so that many
/// small windows, whose packets meet by chance, are not cut for it, and unequal ones draw together. A sample at or under
/// the target lets the window grow, by what was delivered until the first cut and additively after it; one above cuts it
/// by `0.8 × (RTT − base − target)/RTT`, at most by half, once per RTT. Loss cuts by half where it is heavy (as for
/// [`EcnAimd`](super::EcnAimd)), and not otherwise.
#[derive(Clone, Copy, Debug, Default)]
pub struct DelayTarget;

/// The cut is this many tenths of the part of the RTT that lies above the target.
const CUT_TENTHS: u64 = 8;
/// Units of `1/√packets`, in which the target is scaled.
const ROOT: u64 = 1_000;
/// `1/√packets` of the windows from which on the target is the smallest (100 packets) and the largest (1/10 packet).
const ROOT_MIN: u64 = 100;
const ROOT_MAX: u64 = 3_162;

/// [`PathWindow::scratch`] under names.
struct Memo {
    last_cut: u64,
    recent: RecentLoss,
    /// 0 while growing by what is delivered, 1 after the first cut.
    settled: u64,
}

impl Memo {
    fn load(window: &PathWindow) -> Self {
        let [last_cut, packets, lost, settled, ..] = window.scratch;
        Self { last_cut, recent: RecentLoss { packets, lost }, settled }
    }

    fn store(self, window: &mut PathWindow) {
        window.scratch = [self.last_cut, self.recent.packets, self.recent.lost, self.settled, 0, 0, 0, 0];
    }
}

impl CongestionControl for DelayTarget {
    fn on_start(&self, window: &mut PathWindow, bounds: &WindowBounds) {
        *window = PathWindow { window_bytes: bounds.window_bytes_start, scratch: [0; 8] };
    }

    fn on_feedback(&self, window: &mut PathWindow, feedback: &Feedback, bounds: &WindowBounds) {
        let mut memo = Memo::load(window);
        memo.recent.count(feedback);
        let rtt_ns = feedback.rtt_ns_latest;
        let target_ns = feedback.rtt_ns_base.saturating_add(scaled_target_ns(window.window_bytes, bounds));
        let late_ns = rtt_ns.saturating_sub(target_ns);
        let part = if memo.recent.is_heavy(late_ns > 0) {
            window.window_bytes / 2
        } else {
            let late = u128::from(late_ns) * u128::from(CUT_TENTHS) * u128::from(window.window_bytes);
            let part = late / (u128::from(rtt_ns.max(1)) * 10);
            u64::try_from(part).unwrap_or(u64::MAX).min(window.window_bytes / 2)
        };
        if part > 0 {
            let age = feedback.now.since(Instant::from_nanos(memo.last_cut));
            if age >= feedback.rtt_ns_smoothed {
                window.window_bytes -= part;
                memo.last_cut = feedback.now.as_nanos();
                memo.settled = 1;
            }
        } else if feedback.window_limited {
            grow(window, memo.settled != 0, feedback, bounds);
        }
        memo.store(window);
    }

    fn on_repath(&self, window: &mut PathWindow, _bounds: &WindowBounds) {
        let Memo { last_cut, settled, .. } = Memo::load(window);
        Memo { last_cut, recent: RecentLoss::default(), settled }.store(window);
    }

    fn on_timeout(&self, window: &mut PathWindow, bounds: &WindowBounds) {
        cut_for_timeout(window, bounds);
        Memo { settled: 0, ..Memo::load(window) }.store(window);
    }
}

/// Queueing delay that a window of this size is held at, ns: one to two times the configured target.
fn scaled_target_ns(window_bytes: u64, bounds: &WindowBounds) -> u64 {
    // In 1/256 packet, whose root is 16 times that of packets.
    let packets = (window_bytes.saturating_mul(256) / bounds.packet_bytes.max(1)).max(1);
    let root = (ROOT * 16 / packets.isqrt()).clamp(ROOT_MIN, ROOT_MAX);
    let extra =
        u128::from(bounds.delay_target_ns) * u128::from(root - ROOT_MIN) / u128::from(ROOT_MAX - ROOT_MIN);
    bounds.delay_target_ns.saturating_add(u64::try_from(extra).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: u64 = 4_096;
    const BOUNDS: WindowBounds = WindowBounds {
        packet_bytes: PACKET,
        rate_kbps: 1_000,
        window_bytes_start: 16 * PACKET,
        window_bytes_min: 16,
        window_bytes_max: 1 << 20,
        delay_target_ns: 50_000,
    };

    fn feedback(now_us: u64, rtt_us: u64) -> Feedback {
        Feedback {
            now: Instant::from_nanos(now_us * 1_000),
            delivered_bytes: 16 * PACKET,
            packets: 16,
            marked: 0,
            lost: 0,
            rtt_ns_latest: rtt_us * 1_000,
            rtt_ns_smoothed: 100_000,
            rtt_ns_base: 100_000,
            connection_window_bytes: 0,
            inflight_bytes: 0,
            window_limited: true,
        }
    }

    fn after(steps: &[Feedback]) -> u64 {
        let mut window = PathWindow::default();
        DelayTarget.on_start(&mut window, &BOUNDS);
        for step in steps {
            DelayTarget.on_feedback(&mut window, step, &BOUNDS);
        }
        window.window_bytes
    }

    #[test]
    fn short_queues_let_it_double_and_one_long_queue_makes_growth_additive() {
        assert_eq!(after(&[feedback(200, 120)]), 32 * PACKET);
        let cut = after(&[feedback(200, 300)]);
        assert!(cut < 16 * PACKET);
        let round = Feedback { delivered_bytes: cut, ..feedback(400, 120) };
        assert_eq!(after(&[feedback(200, 300), round]) - cut, PACKET);
    }

    #[test]
    fn cut_is_in_proportion_to_the_delay_once_per_round_trip_and_at_most_half() {
        // 200 µs less base and target (52.4 µs at 16 packets) are 47.6 µs too much: 19 % of the window.
        let light = 16 * PACKET - after(&[feedback(200, 200)]);
        assert_eq!(light * 1_000 / (16 * PACKET), 190);
        assert_eq!(after(&[feedback(200, 200), feedback(250, 200)]), 16 * PACKET - light);
        assert_eq!(after(&[feedback(200, 100_000)]), 8 * PACKET);
    }

    #[test]
    fn small_windows_are_held_at_longer_queues() {
        let of = |window| scaled_target_ns(window, &BOUNDS);
        assert_eq!(of(100 * PACKET), 50_000);
        assert_eq!(of(1 << 40), 50_000);
        assert!((64_000..66_000).contains(&of(PACKET)), "{}", of(PACKET));
        assert_eq!(of(PACKET / 10), 100_000);
        assert_eq!(of(0), 100_000);
    }

    #[test]
    fn marks_count_for_nothing_light_loss_neither_and_heavy_loss_halves() {
        let marked = Feedback { marked: 16, ..feedback(200, 120) };
        assert_eq!(after(&[marked]), 32 * PACKET);
        let light = Feedback { packets: 90, lost: 10, ..feedback(200, 120) };
        assert_eq!(after(&[light]), 32 * PACKET);
        let heavy = Feedback { packets: 60, lost: 40, ..feedback(200, 120) };
        assert_eq!(after(&[heavy]), 8 * PACKET);
    }

    #[test]
    fn a_timeout_leaves_two_packets_and_a_quick_start() {
        let mut window = PathWindow::default();
        DelayTarget.on_start(&mut window, &BOUNDS);
        DelayTarget.on_feedback(&mut window, &feedback(200, 300), &BOUNDS);
        DelayTarget.on_timeout(&mut window, &BOUNDS);
        assert_eq!(window.window_bytes, 2 * PACKET);
        let delivered = Feedback { delivered_bytes: 2 * PACKET, ..feedback(400, 120) };
        DelayTarget.on_feedback(&mut window, &delivered, &BOUNDS);
        assert_eq!(window.window_bytes, 4 * PACKET);
    }
}
