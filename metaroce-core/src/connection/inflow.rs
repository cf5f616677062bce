//! What the peer sends us: its part in the division of our planes' inbound rate, and what it may start with.

use crate::config::{Config, PLANES_MAX};
use core::ops::Range;

use crate::connection::Connection;
use crate::share::{Claim, Division, FRAMING_BYTES, Inflow, Terms, bytes_in};
use crate::table::Idx;
use crate::time::Instant;
use crate::view::View;
use crate::wire::Frame;

/// Connections that are told of a change of the start allowance for each one that opens or ends: so many that all have
/// been told before their number has grown by half.
const TOLD_PER_CHANGE: u32 = 4;
/// ACKs that carry a START after a change: there is no answer to one, and any may be lost.
const REPEATS: u8 = 3;

/// All planes of a connection.
const PLANES: Range<u8> = 0..8;
const _: () = assert!(PLANES.end as usize == PLANES_MAX);

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inflows {
    planes: [Inflow; PLANES_MAX],
    /// The start allowance that the peer was told, KiB.
    told_kib: u32,
    /// ACKs that are still to carry it.
    repeats: u8,
}

impl Inflows {
    pub(crate) const NEW: Self = Self { planes: [Inflow::NEW; PLANES_MAX], told_kib: 0, repeats: 0 };
}

fn terms(config: &Config) -> Terms {
    Terms {
        rate_kbps: u64::from(config.inbound_rate_kbps),
        fabric_rtt_ns: config.rtt_ns_initial,
        packet_bytes: u64::from(config.mtu_bytes) + FRAMING_BYTES,
    }
}

/// The peer's flow on a plane, and the division of the plane of this endpoint on which it runs.
fn parts<'a>(
    view: &'a mut View<'_>,
    slot: Idx<Connection>,
    plane: u8,
) -> Option<(&'a mut Inflow, &'a mut Division)> {
    let owner = view.connections.at_mut(slot);
    let local = owner.planes.local(plane);
    Some((owner.inflows.planes.get_mut(usize::from(plane))?, view.divisions.get_mut(usize::from(local))?))
}

/// The least base RTT of the peer's paths, ns: without the queues, since those of a crowd that fell silent must not keep
/// its part for it. O(paths).
fn base_rtt_ns(view: &View<'_>, slot: Idx<Connection>) -> u64 {
    let base_ns = |at| view.paths.at(at).rtt.base_or(view.config.rtt_ns_initial);
    view.connections.at(slot).path_indices().map(base_ns).min().unwrap_or(0)
}

/// A DATA packet or PROBE arrived on a plane.
pub(crate) fn on_packet(view: &mut View<'_>, now: Instant, slot: Idx<Connection>, plane: u8, claim: Claim) {
    let terms = terms(view.config);
    let Some((flow, division)) = parts(view, slot, plane) else { return };
    let was_absent = flow.leaves_at(&terms, 0).is_none();
    flow.on_packet(division, &terms, now, claim);
    if was_absent {
        let rtt_ns = base_rtt_ns(view, slot);
        let leaves_at = parts(view, slot, plane).and_then(|(flow, _)| flow.leaves_at(&terms, rtt_ns));
        view.arm(slot, leaves_at.unwrap_or(Instant::FAR_FUTURE));
    }
}

/// The share of the peer on a plane, kbit/s of wire bytes.
pub(crate) fn share_kbps(view: &mut View<'_>, slot: Idx<Connection>, plane: u8) -> u32 {
    let terms = terms(view.config);
    let whole = view.config.inbound_rate_kbps;
    parts(view, slot, plane).map_or(whole, |(flow, division)| flow.share_kbps(division, &terms))
}

/// Has the peer leave the division of every plane on which it is silent. Returns when to look again. O(planes).
pub(crate) fn expire(view: &mut View<'_>, now: Instant, slot: Idx<Connection>) -> Instant {
    let terms = terms(view.config);
    let rtt_ns = base_rtt_ns(view, slot);
    let mut next = Instant::FAR_FUTURE;
    for plane in PLANES {
        let Some((flow, division)) = parts(view, slot, plane) else { continue };
        match flow.leaves_at(&terms, rtt_ns) {
            Some(at) if at <= now => flow.leave(division),
            Some(at) => next = next.min(at),
            None => {}
        }
    }
    next
}

/// The connection has ended: it takes part in no division any more.
pub(crate) fn leave(view: &mut View<'_>, slot: Idx<Connection>) {
    for plane in PLANES {
        if let Some((flow, division)) = parts(view, slot, plane) {
            flow.leave(division);
        }
    }
}

/// What each connection may start with, KiB: the product of rate and RTT of a plane, divided evenly.
fn allowance_kib(view: &View<'_>) -> u32 {
    //= MR-CC-15
    let open = view.connections.capacity().saturating_sub(view.connections.available()).max(1);
    let product = bytes_in(u64::from(view.config.inbound_rate_kbps), view.config.rtt_ns_initial);
    u32::try_from((product / u64::from(open)) >> 10).unwrap_or(u32::MAX)
}

/// The start allowance for a CONNECT or ACCEPT: the peer is told now.
pub(crate) fn tell_allowance(view: &mut View<'_>, slot: Idx<Connection>) -> u32 {
    let allowance = allowance_kib(view);
    view.connections.at_mut(slot).inflows.told_kib = allowance;
    allowance
}

/// A connection opened or ended: a few others, in turn, are told what that means for them. O(1).
pub(crate) fn on_count_changed(view: &mut View<'_>) {
    let allowance = allowance_kib(view);
    let extent = view.connections.extent();
    for _ in 0..TOLD_PER_CHANGE.min(extent) {
        let at = if *view.start_cursor >= extent { 0 } else { *view.start_cursor };
        *view.start_cursor = at + 1;
        let slot = Idx::new(at);
        let Some(owner) = view.connections.get_mut(slot).filter(|owner| owner.takes_packets()) else {
            continue;
        };
        let told = owner.inflows.told_kib;
        if allowance <= told / 2 || allowance / 2 > told {
            owner.inflows.told_kib = allowance;
            owner.inflows.repeats = REPEATS;
            super::acknowledge_now(view, slot);
        }
    }
}

/// The START frame that the next ACK carries, if there is one.
pub(crate) fn start_frame(view: &mut View<'_>, slot: Idx<Connection>) -> Option<Frame> {
    let flows = &mut view.connections.at_mut(slot).inflows;
    flows.repeats = flows.repeats.checked_sub(1)?;
    Some(Frame::Start { allowance_kib: flows.told_kib })
}

#[cfg(test)]
#[cfg(feature = "alloc")]
mod tests;
