//! Congestion control on arbitrary feedback, called as the core calls it.
//!
//! The window stays within its bounds whatever is fed, and once the feedback is clean it grows again: no stall lasts.

use arbitrary::{Arbitrary, Unstructured};
use metaroce_core::Instant;
use metaroce_core::congestion::{
    CongestionControl, DelayTarget, EcnAimd, Feedback, PathWindow, WindowBounds,
};

const STEPS_MAX: usize = 300;
/// Round trips of clean feedback after which a window must have room for a few packets again.
const RECOVERY_ROUNDS: usize = 10_000;

/// All algorithms that come with the core.
const ALGORITHMS: [&dyn CongestionControl; 2] = [&EcnAimd, &DelayTarget];

#[derive(Clone, Copy, Debug, Arbitrary)]
struct Setting {
    algorithm: u8,
    packet_bytes: u16,
    rate_kbps: u32,
    start_packets: u8,
    max_packets: u16,
    delay_target_ns: u32,
    rtt_ns_base: u32,
}

#[derive(Clone, Copy, Debug, Arbitrary)]
enum Step {
    Feedback(Told),
    /// The same, so many times.
    Again(Told, u8),
    Timeout,
    Start,
    Repath,
}

#[derive(Clone, Copy, Debug, Arbitrary)]
struct Told {
    after_ns: u32,
    delivered: u16,
    packets: u32,
    marked: u32,
    lost: u32,
    queueing_ns: u64,
    no_sample: bool,
    smoothed_ns: u32,
    others_bytes: u32,
    inflight_bytes: u32,
    window_limited: bool,
}

/// Plays the steps that the bytes stand for.
pub fn run(bytes: &[u8]) {
    let mut input = Unstructured::new(bytes);
    let Ok(setting) = Setting::arbitrary(&mut input) else { return };
    let mut path = Path::new(setting);
    for _ in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        let Ok(step) = Step::arbitrary(&mut input) else { break };
        match step {
            Step::Feedback(told) => path.tell(&told),
            Step::Again(told, times) => (0..times).for_each(|_| path.tell(&told)),
            Step::Timeout => path.algorithm.on_timeout(&mut path.window, &path.bounds),
            Step::Start => path.algorithm.on_start(&mut path.window, &path.bounds),
            Step::Repath => path.algorithm.on_repath(&mut path.window, &path.bounds),
        }
        path.clamp();
    }
    path.recover();
}

struct Path {
    algorithm: &'static dyn CongestionControl,
    bounds: WindowBounds,
    window: PathWindow,
    now: Instant,
    rtt_ns_base: u64,
}

impl Path {
    fn new(setting: Setting) -> Self {
        let packet_bytes = u64::from(setting.packet_bytes.clamp(1_232, 9_000));
        // `Config::window_bytes_max` is at least 9,000, for all paths together.
        let window_bytes_max = (packet_bytes * u64::from(setting.max_packets)).max(9_000);
        let bounds = WindowBounds {
            packet_bytes,
            rate_kbps: setting.rate_kbps,
            window_bytes_start: (packet_bytes * u64::from(setting.start_packets).max(1))
                .min(window_bytes_max),
            window_bytes_min: packet_bytes / 256,
            window_bytes_max,
            delay_target_ns: u64::from(setting.delay_target_ns).max(1),
        };
        let algorithm = ALGORITHMS[usize::from(setting.algorithm) % ALGORITHMS.len()];
        let mut path = Self {
            algorithm,
            bounds,
            window: PathWindow::default(),
            now: Instant::from_nanos(1 << 30),
            rtt_ns_base: u64::from(setting.rtt_ns_base).max(1),
        };
        algorithm.on_start(&mut path.window, &path.bounds);
        path.clamp();
        path
    }

    /// What the core does after each call. Far outside of the bounds an algorithm has no business.
    fn clamp(&mut self) {
        let WindowBounds { window_bytes_min, window_bytes_max, .. } = self.bounds;
        let window = &mut self.window.window_bytes;
        assert!(*window <= window_bytes_max, "{window} above {window_bytes_max}");
        *window = (*window).max(window_bytes_min);
    }

    fn tell(&mut self, told: &Told) {
        self.now = self.now.after(u64::from(told.after_ns));
        // The core hands on no stale counts, and no more marks than packets; an RTT sample is at most 30 s.
        let packets = told.packets.clamp(1, u32::MAX >> 1);
        let queueing_ns = told.queueing_ns % 30_000_000_000;
        let feedback = Feedback {
            now: self.now,
            delivered_bytes: u64::from(told.delivered % 257) * self.bounds.packet_bytes,
            packets,
            marked: told.marked.min(packets),
            lost: told.lost,
            rtt_ns_latest: if told.no_sample { 0 } else { self.rtt_ns_base + queueing_ns },
            rtt_ns_smoothed: u64::from(told.smoothed_ns).max(1),
            rtt_ns_base: self.rtt_ns_base,
            connection_window_bytes: self.window.window_bytes + u64::from(told.others_bytes),
            inflight_bytes: u64::from(told.inflight_bytes),
            window_limited: told.window_limited,
        };
        self.algorithm.on_feedback(&mut self.window, &feedback, &self.bounds);
        self.clamp();
    }

    /// A round trip: the window, or one packet when it is smaller, is delivered and unmarked.
    fn clean_round(&mut self) {
        let packet = self.bounds.packet_bytes;
        let packets = (self.window.window_bytes / packet).max(1);
        let rounds_per_packet = (packet / self.window.window_bytes.max(1)).max(1);
        self.now = self.now.after(self.rtt_ns_base * rounds_per_packet);
        let feedback = Feedback {
            now: self.now,
            delivered_bytes: packets * packet,
            packets: u32::try_from(packets).unwrap_or(u32::MAX >> 1),
            marked: 0,
            lost: 0,
            rtt_ns_latest: self.rtt_ns_base,
            rtt_ns_smoothed: self.rtt_ns_base,
            rtt_ns_base: self.rtt_ns_base,
            connection_window_bytes: self.window.window_bytes,
            inflight_bytes: 0,
            window_limited: true,
        };
        self.algorithm.on_feedback(&mut self.window, &feedback, &self.bounds);
        self.clamp();
    }

    fn recover(&mut self) {
        let wanted = (4 * self.bounds.packet_bytes).min(self.bounds.window_bytes_max);
        for _ in 0..RECOVERY_ROUNDS {
            if self.window.window_bytes >= wanted {
                return;
            }
            self.clean_round();
        }
        panic!("{} of {wanted} bytes after {RECOVERY_ROUNDS} clean rounds", self.window.window_bytes);
    }
}
