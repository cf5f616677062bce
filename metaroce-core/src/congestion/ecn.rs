//! The default: AIMD on the fraction of marked packets (DCTCP, RFC 8257), with delay as a mark where there is no ECN.

use super::growth::{RecentLoss, cut_for_timeout, grow};
use super::{CongestionControl, Feedback, PathWindow, WindowBounds};
use crate::time::Instant;

/// ECN-driven AIMD per path.
///
/// Once per period (the longer of one RTT and four packets) `alpha ← alpha + (F − alpha)/16`, `F` being the marked
/// fraction; a marked window shrinks by `alpha/2`, an unmarked one grows by one packet per RTT, or, from the start
/// until the first mark, by what was delivered. Loss alone does not shrink the window, unless more than 1/4 of the
/// last 256 packets (at least 64) were lost, or more than 1/16 while the queueing delay is above the target.
#[derive(Clone, Copy, Debug, Default)]
pub struct EcnAimd;

/// Alpha and fractions are in units of 2^-16.
const ONE: u64 = 1 << 16;
/// Packets that a period has at least.
const PERIOD_PACKETS: u64 = 4;

/// [`PathWindow::scratch`] under names.
struct Memo {
    /// Smoothed marked fraction, 2^-16.
    alpha: u64,
    /// Start of the period, ns.
    period_start: u64,
    packets: u64,
    marked: u64,
    recent: RecentLoss,
    /// 0 while growing by what is delivered, 1 after the first mark.
    settled: u64,
}

impl Memo {
    fn load(window: &PathWindow) -> Self {
        let [alpha, period_start, packets, marked, recent, lost, settled, _] = window.scratch;
        let recent = RecentLoss { packets: recent, lost };
        Self { alpha, period_start, packets, marked, recent, settled }
    }

    fn store(self, window: &mut PathWindow) {
        window.scratch = [
            self.alpha,
            self.period_start,
            self.packets,
            self.marked,
            self.recent.packets,
            self.recent.lost,
            self.settled,
            0,
        ];
    }
}

impl CongestionControl for EcnAimd {
    fn on_start(&self, window: &mut PathWindow, bounds: &WindowBounds) {
        *window = PathWindow { window_bytes: bounds.window_bytes_start, scratch: [0; 8] };
    }

    fn on_feedback(&self, window: &mut PathWindow, feedback: &Feedback, bounds: &WindowBounds) {
        let mut memo = Memo::load(window);
        //= MR-CC-4, MR-CC-27
        let delayed = feedback.rtt_ns_latest.saturating_sub(feedback.rtt_ns_base) > bounds.delay_target_ns;
        let packets = u64::from(feedback.packets);
        memo.packets += packets;
        memo.marked += if delayed { packets } else { u64::from(feedback.marked) };
        memo.recent.count(feedback);
        if memo.marked == 0 && feedback.window_limited {
            grow(window, memo.settled != 0, feedback, bounds);
        }
        let age = feedback.now.since(Instant::from_nanos(memo.period_start));
        if memo.packets >= PERIOD_PACKETS && age >= feedback.rtt_ns_smoothed {
            end_period(&mut memo, window, delayed);
            memo.period_start = feedback.now.as_nanos();
        }
        memo.store(window);
    }

    fn on_repath(&self, window: &mut PathWindow, _bounds: &WindowBounds) {
        // It goes on as before, in small steps: its siblings know the fabric.
        let Memo { period_start, settled, .. } = Memo::load(window);
        let recent = RecentLoss::default();
        Memo { alpha: 0, period_start, packets: 0, marked: 0, recent, settled }.store(window);
    }

    fn on_timeout(&self, window: &mut PathWindow, bounds: &WindowBounds) {
        cut_for_timeout(window, bounds);
        // It starts again: from so little, one packet per RTT would take for ever.
        let memo = Memo { settled: 0, ..Memo::load(window) };
        memo.store(window);
    }
}

/// Updates alpha from the period's counts, cuts the window if it was marked, and clears the counts.
fn end_period(memo: &mut Memo, window: &mut PathWindow, delayed: bool) {
    //= MR-CC-2
    let judged = memo.packets.max(1);
    let marked = if memo.recent.is_heavy(delayed) { judged } else { memo.marked };
    let fraction = (marked * ONE / judged).min(ONE);
    memo.alpha = memo.alpha - memo.alpha / 16 + fraction / 16;
    if marked > 0 {
        memo.settled = 1;
        //= MR-CC-3
        let cut = window.window_bytes * memo.alpha / (2 * ONE);
        window.window_bytes = window.window_bytes.saturating_sub(cut);
    }
    memo.packets = 0;
    memo.marked = 0;
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: WindowBounds = WindowBounds {
        packet_bytes: 4_096,
        rate_kbps: 1_000,
        window_bytes_start: 16 * 4_096,
        window_bytes_min: 16,
        window_bytes_max: 1 << 20,
        delay_target_ns: 1_000_000,
    };

    fn feedback(now_us: u64, packets: u32, marked: u32, lost: u32) -> Feedback {
        Feedback {
            now: Instant::from_nanos(now_us * 1_000),
            delivered_bytes: u64::from(packets) * 4_096,
            packets,
            marked,
            lost,
            rtt_ns_latest: 100_000,
            rtt_ns_smoothed: 100_000,
            rtt_ns_base: 100_000,
            connection_window_bytes: 0,
            inflight_bytes: 0,
            window_limited: true,
        }
    }

    fn started() -> PathWindow {
        let mut window = PathWindow::default();
        EcnAimd.on_start(&mut window, &BOUNDS);
        window
    }

    #[test]
    //= MR-CC-5 test
    fn unmarked_start_doubles_and_stops_at_the_bound() {
        let mut window = started();
        EcnAimd.on_feedback(&mut window, &feedback(200, 16, 0, 0), &BOUNDS);
        assert_eq!(window.window_bytes, 32 * 4_096);
        for round in 2..20 {
            EcnAimd.on_feedback(&mut window, &feedback(round * 200, 1_000, 0, 0), &BOUNDS);
        }
        assert_eq!(window.window_bytes, BOUNDS.window_bytes_max);
    }

    #[test]
    //= MR-CC-3 test
    //= MR-CC-2 test
    fn all_marked_halves_in_the_long_run_and_one_mark_ends_the_start() {
        let mut window = started();
        EcnAimd.on_feedback(&mut window, &feedback(200, 16, 16, 0), &BOUNDS);
        let first = window.window_bytes;
        assert!(first < 16 * 4_096 && first > 15 * 4_096, "the first cut is alpha/2 = 1/32: {first}");
        EcnAimd.on_feedback(&mut window, &feedback(400, 16, 0, 0), &BOUNDS);
        assert!(window.window_bytes - first <= 4_300, "additive after the first mark");
    }

    #[test]
    //= MR-CC-8 test
    fn light_loss_does_not_shrink_the_window_and_heavy_loss_does() {
        let mut window = started();
        EcnAimd.on_feedback(&mut window, &feedback(200, 90, 0, 10), &BOUNDS);
        let after_light = window.window_bytes;
        assert!(after_light > 16 * 4_096);
        EcnAimd.on_feedback(
            &mut window,
            &Feedback { delivered_bytes: 0, ..feedback(400, 50, 0, 150) },
            &BOUNDS,
        );
        assert!(window.window_bytes < after_light);
    }

    //= MR-CC-6 test
    #[test]
    fn eight_paths_grow_by_one_packet_per_round_trip_together() {
        let mut windows = [started(); 8];
        for window in &mut windows {
            EcnAimd.on_feedback(window, &feedback(200, 16, 16, 0), &BOUNDS);
        }
        let sum = |windows: &[PathWindow]| windows.iter().map(|window| window.window_bytes).sum::<u64>();
        let before = sum(&windows);
        for window in &mut windows {
            let round = Feedback {
                delivered_bytes: window.window_bytes,
                connection_window_bytes: before,
                ..feedback(250, 16, 0, 0)
            };
            EcnAimd.on_feedback(window, &round, &BOUNDS);
        }
        let grown = sum(&windows) - before;
        assert!((4_000..=4_096).contains(&grown), "{grown} bytes in one RTT");
    }

    #[test]
    //= MR-CC-4 test
    //= MR-CC-27 test
    fn delay_above_the_target_counts_as_a_mark() {
        let mut window = started();
        let late = Feedback { rtt_ns_latest: 2_000_000, ..feedback(2_000, 16, 0, 0) };
        EcnAimd.on_feedback(&mut window, &late, &BOUNDS);
        assert!(window.window_bytes < 16 * 4_096);
    }
}
