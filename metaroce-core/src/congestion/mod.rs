//! Congestion control: a trait of events and decisions, the default algorithm, and one on delay alone.
//!
//! An algorithm has no state of its own: what it remembers of a path lies in a [`PathWindow`], owned by the path.
//! So one algorithm object serves every connection, and a `static` will do.

mod delay;
mod ecn;
mod growth;

pub use delay::DelayTarget;
pub use ecn::EcnAimd;

use crate::time::Instant;

/// What an algorithm remembers of one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PathWindow {
    /// The congestion window, bytes. The sender keeps at most this many bytes in flight on the path; of a window
    /// below one packet it sends one packet for every so many RTTs.
    pub window_bytes: u64,
    /// Whatever else the algorithm needs; 0 at the start.
    pub scratch: [u64; 8],
}

/// What the sender knows when feedback arrives for a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feedback {
    /// Now.
    pub now: Instant,
    /// Bytes newly told delivered.
    pub delivered_bytes: u64,
    /// Packets newly counted by the receiver.
    pub packets: u32,
    /// Those of them that carried a congestion mark.
    pub marked: u32,
    /// Packets newly declared lost.
    pub lost: u32,
    /// Newest RTT sample, ns; 0 if this feedback brought none.
    pub rtt_ns_latest: u64,
    /// Smoothed RTT, ns.
    pub rtt_ns_smoothed: u64,
    /// Smallest RTT of the last 10 s, ns.
    pub rtt_ns_base: u64,
    /// Windows of all paths of the connection together, bytes: growth is shared among them.
    pub connection_window_bytes: u64,
    /// Bytes still in flight on the path.
    pub inflight_bytes: u64,
    /// Whether the window, and not the application, limited the sender.
    pub window_limited: bool,
}

/// The bounds within which an algorithm decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowBounds {
    /// Bytes of one full packet on the wire, never 0.
    pub packet_bytes: u64,
    /// Rate of the plane, kbit/s of wire bytes.
    pub rate_kbps: u32,
    /// Window with which the path starts, bytes: its part of what a connection may send unasked.
    pub window_bytes_start: u64,
    /// Smallest window of the path, bytes: below one packet the path is paced.
    pub window_bytes_min: u64,
    /// Largest window of the path, bytes.
    pub window_bytes_max: u64,
    /// Queueing delay that counts as a mark, ns.
    pub delay_target_ns: u64,
}

/// An algorithm: told what happened on a path, it sets the path's window.
///
/// The core clamps the window to `window_bytes_min` … `window_bytes_max` after every call.
pub trait CongestionControl: Sync {
    /// The path starts, or starts again after it was dead.
    fn on_start(&self, window: &mut PathWindow, bounds: &WindowBounds);
    /// The path moved to another route while it was in use: what is known of the old one no longer holds. The window
    /// may stay; the default forgets the rest.
    fn on_repath(&self, window: &mut PathWindow, _bounds: &WindowBounds) {
        window.scratch = [0; 8];
    }
    /// Feedback arrived.
    fn on_feedback(&self, window: &mut PathWindow, feedback: &Feedback, bounds: &WindowBounds);
    /// A retransmission timeout fired.
    fn on_timeout(&self, window: &mut PathWindow, bounds: &WindowBounds);
}
