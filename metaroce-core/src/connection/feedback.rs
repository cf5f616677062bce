//! What an acknowledgement changes: verdicts, losses, RTT, window, credits.

use crate::congestion::Feedback;
use crate::connection::{Connection, close, health, outflow, parking, paths, plane_health, steering, timers};
use crate::delivery::{Cause, Place};
use crate::path::{Judge, MTU_BYTES_START, Path, Transmission, Verdict};
use crate::stats::DropReason;
use crate::stream;
use crate::table::Idx;
use crate::time::Instant;
use crate::transmit::Disposition;
use crate::view::View;
use crate::wire::{ACK_FLAG_EMPTY, AckBody, Frame, FrameIter, Vector256};

/// Oldest transmission that gives an RTT sample, ns.
const SAMPLE_AGE_NS_MAX: u64 = 30_000_000_000;

/// An ACK packet, or the part of a PROBE_REPLY that is one: the first block, and the frames behind it.
pub(crate) fn on_ack(
    view: &mut View<'_>,
    now: Instant,
    connection: Idx<Connection>,
    first: AckBody,
    frames: &[u8],
) -> Disposition {
    // A packet counts whole or not at all: look before anything changes.
    //= MR-ACK-28, MR-SEC-2
    if !block_is_sane(view, connection, &first) {
        return Disposition::Dropped(DropReason::AckOfUnsent);
    }
    for frame in FrameIter::new(frames) {
        match frame {
            //= MR-WIRE-25
            Err(_) => return Disposition::Dropped(DropReason::Malformed),
            Ok(Frame::Ack(block)) if !block_is_sane(view, connection, &block) => {
                return Disposition::Dropped(DropReason::AckOfUnsent);
            }
            Ok(_) => {}
        }
    }
    let mut frames = FrameIter::new(frames).flatten().peekable();
    let mut block = Some(first);
    let mut told = 0u64;
    loop {
        if let Some(ack) = block.take() {
            let bit = ack.path.bit();
            let refused = match frames.next_if(|frame| matches!(frame, Frame::Refused(_))) {
                Some(Frame::Refused(vector)) => vector,
                _ => Vector256::EMPTY,
            };
            // Each block walks over its path: a packet full of them for one path would be a lot of work.
            //= MR-ACK-33
            if told & bit == 0 {
                on_block(view, now, connection, ack, refused);
            }
            told |= bit;
        }
        match frames.next() {
            None => break,
            Some(Frame::Ack(ack)) => block = Some(ack),
            Some(Frame::Nack { stream, reason, delay_us }) => {
                stream::on_nack(view, now, connection, stream, reason, delay_us);
            }
            Some(Frame::Credit { stream, none_needed, posted }) => {
                stream::on_credit(view, now, connection, stream, (!none_needed).then_some(posted));
            }
            Some(Frame::Plane { silent, unreachable }) => {
                plane_health::on_frame(view, now, connection, silent, unreachable);
            }
            Some(Frame::Start { allowance_kib }) => {
                view.connections.at_mut(connection).outflows.allow(allowance_kib);
            }
            // REFUSED without its block: nothing.
            //= MR-WIRE-26
            Some(_) => {}
        }
    }
    view.mark_ready(connection);
    close::advance(view, now, connection);
    Disposition::Consumed
}

fn block_is_sane(view: &View<'_>, connection: Idx<Connection>, ack: &AckBody) -> bool {
    let Some(at) = view.connections.at(connection).path(ack.path) else { return false };
    ack.flags & ACK_FLAG_EMPTY != 0 || view.paths.at(at).was_sent(ack.largest)
}

/// What one block told of its path.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    delivered_bytes: u64,
    delivered: u64,
    lost: u32,
    answered: bool,
    /// Something but PROBEs was delivered or lost.
    carried: bool,
    rtt_ns: u64,
}

/// One block: the acknowledgement of one path.
fn on_block(
    view: &mut View<'_>,
    now: Instant,
    connection: Idx<Connection>,
    ack: AckBody,
    refused: Vector256,
) {
    let Some(at) = view.connections.at(connection).path(ack.path) else { return };
    if ack.flags & ACK_FLAG_EMPTY != 0 {
        return;
    }
    outflow::on_share(view, now, connection, at, ack.share_kbps);
    let mut judge = Judge::new(view.paths.at(at), ack, refused);
    let mut tally = Tally::default();
    while let Some((transmission, verdict)) =
        judge.next_delivered(&mut view.paths.at_mut(at).sending, &mut view.transmissions)
    {
        on_delivered(view, now, connection, at, &ack, &transmission, verdict, &mut tally);
    }
    let spurious = judge.spurious(&mut view.paths.at_mut(at).sending);
    on_spurious(view, connection, at, spurious);
    judge.rewind(&view.paths.at(at).sending);
    let time_rule_ns = view.paths.at(at).rtt.time_rule_ns(view.config.rtt_ns_initial);
    while let Some(transmission) =
        judge.next_lost(&mut view.paths.at_mut(at).sending, &mut view.transmissions, time_rule_ns)
    {
        on_lost(view, connection, at, &transmission, &mut tally);
    }
    congest(view, now, connection, at, &ack, &tally);
    if tally.delivered > 0 {
        timers::hasten(view, now, connection);
    }
    if tally.answered {
        health::on_answer(view, now, connection, at);
    }
}

#[expect(
    clippy::too_many_arguments,
    reason = "one step of the walk over an acknowledgement, not an interface"
)]
fn on_delivered(
    view: &mut View<'_>,
    now: Instant,
    connection: Idx<Connection>,
    at: Idx<Path>,
    ack: &AckBody,
    transmission: &Transmission,
    verdict: Verdict,
    tally: &mut Tally,
) {
    let path = view.paths.at_mut(at);
    Judge::on_delivered(&mut path.sending, transmission);
    //= MR-PATH-25
    path.counters.delivered += 1;
    path.sending.tolerance.on_delivered();
    if transmission.bytes > MTU_BYTES_START {
        path.probing.large_lost = 0;
    }
    path.timeouts.since = now;
    path.timeouts.pto_count = 0;
    if path.takes_data() {
        path.timeouts.rto_count = 0;
    }
    //= MR-PATH-22
    tally.answered |= transmission.epoch == path.epoch;
    tally.delivered += 1;
    tally.delivered_bytes += u64::from(transmission.bytes);
    let newest = transmission.psn == ack.largest;
    //= MR-LOSS-18
    if newest && transmission.sent_at.wire_timestamp() == ack.echoed_timestamp && ack.hold != u32::MAX {
        let age = now.since(transmission.sent_at);
        let hold = u64::from(ack.hold) << 4;
        if age < SAMPLE_AGE_NS_MAX && hold < age {
            tally.rtt_ns = age - hold;
            path.rtt.on_sample(now, age - hold);
        }
    }
    let (plane, id) = (path.plane, path.id);
    view.connections.at_mut(connection).planes.health.on_progress(plane, id, now);
    let clock = &mut view.connections.at_mut(connection).clock;
    if transmission.packet.is_some() {
        //= MR-PATH-26
        // Whoever answers PROBEs and takes no packet lets nothing progress.
        clock.last_progress = now;
        tally.carried = true;
    }
    clock.progress_sent_at = clock.progress_sent_at.max(transmission.sent_at);
    let (packet, csn) = (transmission.packet, transmission.csn);
    let waits =
        view.packets.get(packet).is_some_and(|entry| entry.csn == csn && entry.connection == connection);
    // A packet that was refused and waits for a new CSN has its verdict already.
    if !waits || view.packets.at(packet).place == Place::Refused {
        return;
    }
    if let Place::Again { path: queue, .. } = view.packets.at(packet).place {
        view.paths.at_mut(queue).sending.again.remove(&mut view.packets, packet);
    }
    view.connections.at_mut(connection).outbound.packets.remove(&mut view.packets, packet);
    stream::on_verdict(view, now, packet, verdict);
}

/// Packets that were declared lost had arrived: tolerate more reordering.
fn on_spurious(view: &mut View<'_>, connection: Idx<Connection>, at: Idx<Path>, count: u32) {
    if count == 0 {
        return;
    }
    view.connections.at_mut(connection).stats.spurious += u64::from(count);
    view.paths.at_mut(at).sending.tolerance.on_spurious();
}

fn on_lost(
    view: &mut View<'_>,
    connection: Idx<Connection>,
    at: Idx<Path>,
    transmission: &Transmission,
    tally: &mut Tally,
) {
    let (packet, csn, psn) = (transmission.packet, transmission.csn, transmission.psn);
    //= MR-LOSS-11
    if packet.is_none() || transmission.rescued {
        return;
    }
    view.paths.at_mut(at).counters.lost += 1;
    //= MR-CC-9
    tally.lost = tally.lost.saturating_add(1);
    tally.carried = true;
    view.connections.at_mut(connection).stats.lost += 1;
    paths::on_packet_lost(view, connection, at, transmission.bytes);
    let current = view.packets.get(packet).is_some_and(|entry| {
        entry.csn == csn
            && entry.connection == connection
            && entry.place == (Place::InFlight { path: at, psn })
    });
    if current {
        let losses = &mut view.packets.at_mut(packet).losses;
        *losses = losses.saturating_add(1);
        //= MR-LOSS-8, MR-LOSS-9
        paths::send_again(view, connection, packet, at, Cause::Lost);
    }
}

/// Tells the congestion control, if the block is news.
fn congest(
    view: &mut View<'_>,
    now: Instant,
    connection: Idx<Connection>,
    at: Idx<Path>,
    ack: &AckBody,
    tally: &Tally,
) {
    let owner = view.connections.at(connection);
    let plane = view.paths.at(at).plane;
    let bounds = paths::bounds(now, owner, view.config, plane);
    let windows = owner.path_indices().map(|at| view.paths.at(at)).filter(|path| path.takes_data());
    let connection_window_bytes = windows.map(|path| path.window.window_bytes).sum();
    let path = view.paths.at_mut(at);
    let packets = ack.packets.wrapping_sub(path.sending.peer_packets);
    let marked = ack.marked.wrapping_sub(path.sending.peer_marked);
    //= MR-ACK-30
    let stale = packets > u32::MAX >> 1 || packets == 0;
    if stale {
        return;
    }
    path.sending.peer_packets = ack.packets;
    path.sending.peer_marked = ack.marked;
    if !path.takes_data() {
        //= MR-CC-26
        // What a dead path's probes met says nothing of the route that it will take.
        return;
    }
    path.counters.marked += u64::from(marked.min(packets));
    //= MR-CC-28
    if tally.delivered > 0 && !tally.carried {
        // PROBEs follow no window: what they met, in the host's own queue above all, would be held against the data.
        return;
    }
    let rtt_ns_smoothed = path.rtt.smoothed_or(view.config.rtt_ns_initial);
    let feedback = Feedback {
        now,
        delivered_bytes: tally.delivered_bytes,
        packets,
        marked: marked.min(packets),
        lost: tally.lost,
        rtt_ns_latest: tally.rtt_ns,
        rtt_ns_smoothed,
        rtt_ns_base: path.rtt.base_ns(),
        connection_window_bytes,
        inflight_bytes: path.sending.inflight_bytes,
        // Acknowledgements that come close together must each count: within a round trip nothing else was proved.
        // A window below a packet limits at all times.
        window_limited: path.window.window_bytes < bounds.packet_bytes
            || path.sending.limited_at.is_some_and(|at| now.since(at) <= 2 * rtt_ns_smoothed),
    };
    let before = path.window.window_bytes;
    view.config.congestion.on_feedback(&mut path.window, &feedback, &bounds);
    path.window.window_bytes =
        path.window.window_bytes.min(bounds.window_bytes_max).max(bounds.window_bytes_min);
    path.sending.on_window(now, before, path.window.window_bytes);
    let cut = before.saturating_sub(path.window.window_bytes);
    if cut > 0 && feedback.marked > 0 {
        steering::hand_over(view, connection, at, cut);
    }
    outflow::limit_windows(view, now, connection, plane);
    parking::adjust(view, now, connection, plane);
    steering::on_feedback(view, now, connection, at, (packets, marked.min(packets), tally.lost));
}

#[cfg(test)]
#[cfg(feature = "alloc")]
mod tests;
