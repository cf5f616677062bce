//! Packets of an open connection: DATA, ACK, PROBE, PROBE_REPLY.

use crate::connection::{Connection, State, ack, close, feedback, handshake, inflow, paths, planes, reply};
use crate::delivery::Seen;
use crate::memory::Memory;
use crate::path::{Arrival, Due, OwedReply, Path, Verdict};
use crate::share::{Claim, FRAMING_BYTES};
use crate::stats::DropReason;
use crate::stream::{self, Judged};
use crate::table::Idx;
use crate::time::Instant;
use crate::transmit::{Datagram, Disposition};
use crate::view::View;
use crate::wire::{AckBody, Base, DataHeader, OpFlags, Opcode, PacketType, Probe, ProbeReply};

/// A packet other than CONTROL arrived; its checksum has not been looked at.
pub(crate) fn on_packet(
    view: &mut View<'_>,
    now: Instant,
    datagram: &Datagram<'_>,
    base: &Base,
    body: &[u8],
    memory: &mut dyn Memory,
) -> Disposition {
    let Some(slot) = handshake::find_local(view, base.connection) else {
        //= MR-CLS-17
        if base.kind.takes_psn() {
            reply::reset_unknown(view, datagram);
        }
        return Disposition::Dropped(DropReason::UnknownConnection);
    };
    let owner = view.connections.at(slot);
    //= MR-SEC-6
    if !owner.planes.may_send_from(datagram.plane, datagram.source.ip()) {
        return Disposition::Dropped(DropReason::BadProof);
    }
    if let State::Resting { .. } = owner.state {
        if base.kind.takes_psn() {
            //= MR-CLS-10
            close::answer_at_rest(view, datagram, slot);
        }
        return Disposition::Dropped(DropReason::UnexpectedState);
    }
    if !owner.takes_packets() {
        return Disposition::Dropped(DropReason::UnexpectedState);
    }
    //= MR-PATH-5
    let Some(at) = owner.path(base.path) else { return Disposition::Dropped(DropReason::UnknownPath) };
    let Base { psn, timestamp, epoch, .. } = *base;
    let bytes = datagram.bytes.len() as u64 + FRAMING_BYTES;
    let proven = base.kind == PacketType::Data;
    let arrival = Arrival { psn, timestamp, epoch, ecn: datagram.ecn, bytes, proven };
    let result = match base.kind {
        PacketType::Data => on_data(view, now, slot, at, arrival, body, memory),
        PacketType::Probe => on_probe(view, now, slot, at, arrival, body),
        PacketType::Ack => on_ack(view, now, slot, body),
        PacketType::ProbeReply => on_probe_reply(view, now, slot, body),
        PacketType::Control => Disposition::Dropped(DropReason::UnexpectedState),
    };
    if !matches!(result, Disposition::Dropped(_)) {
        let plane = view.paths.at(at).plane;
        view.connections.at_mut(slot).planes.health.on_heard(now, plane);
        handshake::heard(view, now, slot);
    }
    result
}

fn on_data(
    view: &mut View<'_>,
    now: Instant,
    slot: Idx<Connection>,
    at: Idx<Path>,
    arrival: Arrival,
    body: &[u8],
    memory: &mut dyn Memory,
) -> Disposition {
    let Ok((header, payload)) = DataHeader::parse(body) else {
        return Disposition::Dropped(DropReason::Malformed);
    };
    if header.check(payload.len()).is_err() {
        return Disposition::Dropped(DropReason::Malformed);
    }
    if header.opcode == Opcode::Datagram {
        //= MR-OP-28
        if view.paths.at(at).received.has(arrival.psn) {
            return Disposition::Duplicate;
        }
        if !view.paths.at(at).received.is_plausible(arrival.psn, view.csn_window) {
            return Disposition::Dropped(DropReason::BadProof);
        }
        let arrival = Arrival { proven: false, ..arrival };
        let taken = stream::on_datagram(view, slot, &header, payload, memory);
        enter(view, now, slot, at, arrival, Verdict::Accepted, false);
        return if taken { Disposition::Consumed } else { Disposition::Dropped(DropReason::Datagram) };
    }
    let (inbound, words) = view.inbound(slot);
    let (verdict, duplicate) = match inbound.seen(words, header.csn) {
        //= MR-ACK-4, MR-DLV-2
        Seen::Outside => return Disposition::Dropped(DropReason::CsnOutsideWindow),
        //= MR-DLV-3, MR-DLV-4
        Seen::Judged(verdict) => (verdict, true),
        Seen::New => {
            // The application learns that the connection is open before anything that happens on it.
            handshake::heard(view, now, slot);
            (deliver(view, now, slot, &header, payload, memory), false)
        }
    };
    let stats = &mut view.connections.at_mut(slot).stats;
    if duplicate {
        stats.duplicates_received += 1;
    } else if verdict == Verdict::Accepted {
        stats.packets_accepted += 1;
        stats.bytes_placed += payload.len() as u64;
    }
    view.connections.at_mut(slot).clock.last_used = now;
    if header.flags.contains(OpFlags::ACK_NOW) {
        view.connections.at_mut(slot).planes.health.answer_twice();
    }
    let urgent = header.flags.contains(OpFlags::ACK_NOW) || header.flags.contains(OpFlags::LAST);
    claim(view, now, slot, at, arrival, header.demand_kib);
    enter(view, now, slot, at, arrival, verdict, urgent);
    if duplicate {
        view.stats.duplicates += 1;
        return Disposition::Duplicate;
    }
    if verdict == Verdict::Refused {
        view.stats.refused += 1;
    }
    if !header.opcode.takes_msn() {
        // It may have completed the last request.
        close::advance(view, now, slot);
    }
    Disposition::Consumed
}

/// Judges a packet whose CSN is new, and writes its verdict down.
fn deliver(
    view: &mut View<'_>,
    now: Instant,
    slot: Idx<Connection>,
    header: &DataHeader,
    payload: &[u8],
    memory: &mut dyn Memory,
) -> Verdict {
    let accepted = match header.opcode {
        //= MR-DLV-14
        Opcode::Void => false,
        Opcode::ReadResponse | Opcode::AtomicResponse => {
            stream::on_response(view, now, slot, header, payload, memory).is_some()
        }
        Opcode::Result => {
            stream::on_result(view, now, slot, header);
            true
        }
        Opcode::StreamReset => stream::on_stream_reset(view, now, slot, header),
        _ => stream::on_request(view, now, slot, header, payload, memory) == Judged::Accepted,
    };
    let verdict = if accepted { Verdict::Accepted } else { Verdict::Refused };
    let (inbound, words) = view.inbound(slot);
    //= MR-DLV-5
    inbound.judge(words, header.csn, verdict);
    if header.opcode == Opcode::StreamReset
        && let Some(stream) = stream::find(view, slot, header.stream)
    {
        // With this verdict the stream may have nothing left to wait for.
        stream::advance(view, now, stream);
    }
    verdict
}

/// What a packet says of its sender's demand.
fn claim(
    view: &mut View<'_>,
    now: Instant,
    slot: Idx<Connection>,
    at: Idx<Path>,
    arrival: Arrival,
    demand_kib: u32,
) {
    let Arrival { timestamp, bytes, .. } = arrival;
    let plane = view.paths.at(at).plane;
    inflow::on_packet(view, now, slot, plane, Claim { timestamp, bytes, demand_kib });
}

/// Enters a packet into its path, and has the acknowledgement sent when it is due.
fn enter(
    view: &mut View<'_>,
    now: Instant,
    slot: Idx<Connection>,
    at: Idx<Path>,
    arrival: Arrival,
    verdict: Verdict,
    urgent: bool,
) {
    //= MR-ACK-14
    if view.paths.at(at).received.must_snapshot(arrival.psn) {
        ack::snapshot(view, now, slot, at);
    }
    let ack_packets = u32::from(view.config.ack_packets);
    let ack_delay_ns = view.config.ack_delay_ns_max;
    let path = view.paths.at_mut(at);
    let due = path.received.on_packet(now, arrival, verdict, ack_packets);
    let bit = path.id.bit();
    let owner = view.connections.at_mut(slot);
    if urgent || due == Due::Now {
        owner.paths.due |= bit;
        view.mark_ready(slot);
    } else {
        owner.paths.pending |= bit;
        if owner.clock.ack_at == Instant::FAR_FUTURE {
            //= MR-ACK-11
            owner.clock.ack_at = now.after(ack_delay_ns);
        }
        let ack_at = owner.clock.ack_at;
        view.arm(slot, ack_at);
    }
}

fn on_probe(
    view: &mut View<'_>,
    now: Instant,
    slot: Idx<Connection>,
    at: Idx<Path>,
    arrival: Arrival,
    body: &[u8],
) -> Disposition {
    let Ok((probe, _padding)) = Probe::parse(body) else {
        return Disposition::Dropped(DropReason::Malformed);
    };
    //= MR-SEC-7
    if !view.paths.at(at).received.is_plausible(arrival.psn, view.csn_window) {
        return Disposition::Dropped(DropReason::BadProof);
    }
    claim(view, now, slot, at, arrival, probe.demand_kib);
    //= MR-ACK-3
    enter(view, now, slot, at, arrival, Verdict::Accepted, true);
    let path = view.paths.at_mut(at);
    path.reply = Some(OwedReply { token: probe.token, stream: probe.stream });
    let bit = path.id.bit();
    view.connections.at_mut(slot).paths.replies |= bit;
    view.mark_ready(slot);
    Disposition::Consumed
}

fn on_ack(view: &mut View<'_>, now: Instant, slot: Idx<Connection>, body: &[u8]) -> Disposition {
    let Ok((ack, frames)) = AckBody::parse(body) else { return Disposition::Dropped(DropReason::Malformed) };
    feedback::on_ack(view, now, slot, ack, frames)
}

fn on_probe_reply(view: &mut View<'_>, now: Instant, slot: Idx<Connection>, body: &[u8]) -> Disposition {
    let Ok((answer, frames)) = ProbeReply::parse(body) else {
        return Disposition::Dropped(DropReason::Malformed);
    };
    let result = feedback::on_ack(view, now, slot, answer.ack, frames);
    if result == Disposition::Consumed
        && let Some(at) = view.connections.at(slot).path(answer.ack.path)
    {
        planes::on_token(view, now, slot, at, answer.token);
        paths::on_probe_answered(view, now, slot, at, answer.token);
    }
    result
}
