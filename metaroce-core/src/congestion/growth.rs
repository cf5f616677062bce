//! What algorithms have in common: how windows grow, what a timeout leaves, and when loss tells of congestion.

use super::{Feedback, PathWindow, WindowBounds};

/// A connection grows by this part of the product of rate and base RTT in each RTT.
const GROWTH_DIVISOR: u64 = 16;
/// Packets of the window after a retransmission timeout.
const TIMEOUT_PACKETS: u64 = 2;
/// Packets over which loss is looked at, at most and at least.
const RECENT_PACKETS: u64 = 256;
const RECENT_PACKETS_MIN: u64 = 64;

/// Lets a window grow that limits its sender: by what was delivered until it has `settled`, additively from then on.
pub(super) fn grow(window: &mut PathWindow, settled: bool, feedback: &Feedback, bounds: &WindowBounds) {
    //= MR-CC-5
    let step =
        if settled { additive(window.window_bytes, feedback, bounds) } else { feedback.delivered_bytes };
    window.window_bytes = window.window_bytes.saturating_add(step).min(bounds.window_bytes_max);
}

/// What a retransmission timeout leaves of a window.
pub(super) fn cut_for_timeout(window: &mut PathWindow, bounds: &WindowBounds) {
    //= MR-CC-10
    window.window_bytes = window.window_bytes.min(TIMEOUT_PACKETS.saturating_mul(bounds.packet_bytes));
}

/// Bytes by which a window grows for what was delivered: for all paths of the connection together one packet per RTT,
/// or 1/16 of the product of rate and base RTT if that is more. Alone, each path would take a share of its own.
fn additive(window_bytes: u64, feedback: &Feedback, bounds: &WindowBounds) -> u64 {
    //= MR-CC-6
    // kbit/s × ns ÷ 8 × 10^6 is bytes.
    let product = u64::from(bounds.rate_kbps).saturating_mul(feedback.rtt_ns_base) / 8_000_000;
    let growth = (product / GROWTH_DIVISOR).max(bounds.packet_bytes);
    let whole = feedback.connection_window_bytes.max(window_bytes).max(1);
    (growth.saturating_mul(feedback.delivered_bytes) / whole).min(feedback.delivered_bytes / 4)
}

/// Packets judged lately, the lost ones included, and those: both halve at 256.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RecentLoss {
    pub packets: u64,
    pub lost: u64,
}

impl RecentLoss {
    pub fn count(&mut self, feedback: &Feedback) {
        let lost = u64::from(feedback.lost);
        self.packets = self.packets.saturating_add(u64::from(feedback.packets)).saturating_add(lost);
        self.lost = self.lost.saturating_add(lost);
        while self.packets > RECENT_PACKETS {
            self.packets /= 2;
            self.lost /= 2;
        }
    }

    /// Whether so much was lost that it counts as congestion; less does where packets are late as well.
    pub const fn is_heavy(self, delayed: bool) -> bool {
        //= MR-CC-8
        //= MR-CC-9
        self.packets >= RECENT_PACKETS_MIN
            && (self.lost * 4 > self.packets || (delayed && self.lost * 16 > self.packets))
    }
}
