//! The data of a connection, in order of urgency: packets that go again, new packets, probes.

use crate::connection::{Connection, copies, datagram, outflow, paths, probes, timers};
use crate::delivery::{Cause, Packet, Place};
use crate::ids::{Psn, ReceiveIndex, Serial};
use crate::path::{Path, Transmission, Verdict};
use crate::stats::Limit;
use crate::stream::{self, Cut, NextCut, Stream, Work, WorkKind, may_cut, next_cut};
use crate::table::Idx;
use crate::time::Instant;
use crate::transmit::{Ecn, SourcePort, Transmit};
use crate::view::View;
use crate::wire::{Base, BufferTooSmall, DATA_HEADER_BYTES_MAX, DataHeader, OpFlags, Opcode, PacketType};

/// Packets that one connection sends before the next has its turn.
const TURN_PACKETS: usize = 64;
/// The window below which the packet that fills it asks for an acknowledgement at once, in packets.
const SMALL_WINDOW_PACKETS: u64 = 8;

/// The caller's descriptors, filled from the front.
pub(crate) struct Sink<'a> {
    out: &'a mut [Transmit],
    used: usize,
}

impl<'a> Sink<'a> {
    pub(crate) fn new(out: &'a mut [Transmit]) -> Self {
        Self { out, used: 0 }
    }

    pub(crate) const fn used(&self) -> usize {
        self.used
    }

    /// The descriptors that are filled.
    pub(crate) fn filled(&self) -> &[Transmit] {
        self.out.get(..self.used).unwrap_or_default()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.used >= self.out.len()
    }

    /// Writes the next descriptor with `write`; keeps it if that succeeds.
    pub(crate) fn emit(&mut self, write: impl FnOnce(&mut Transmit) -> Result<(), BufferTooSmall>) -> bool {
        let Some(transmit) = self.out.get_mut(self.used) else { return false };
        transmit.padding = 0;
        transmit.part_count = 0;
        let written = write(transmit).is_ok();
        debug_assert!(written, "a header did not fit");
        self.used += usize::from(written);
        written
    }
}

/// Addresses a descriptor to the peer on a plane, from the port of a path or from the receive port.
pub(crate) fn address(
    transmit: &mut Transmit,
    connection: &Connection,
    plane: u8,
    source: SourcePort,
    checksummed: bool,
) {
    //= MR-PATH-3
    transmit.destination = connection.planes.remote(plane);
    transmit.plane = connection.planes.local(plane);
    transmit.source = source;
    //= MR-WIRE-13
    transmit.ecn = Ecn::Ect0;
    transmit.checksummed = checksummed;
}

/// The base header of a packet over `path`.
pub(crate) fn base(now: Instant, connection: &Connection, path: &Path, kind: PacketType, psn: Psn) -> Base {
    Base {
        kind,
        flags: 0,
        path: path.id,
        epoch: path.epoch,
        connection: connection.ids.remote,
        psn,
        timestamp: now.wire_timestamp(),
        checksum: 0,
    }
}

/// Fills descriptors with what data the connection has to send. Returns whether it may have more.
pub(crate) fn fill(
    view: &mut View<'_>,
    now: Instant,
    connection: Idx<Connection>,
    sink: &mut Sink<'_>,
) -> bool {
    let start = sink.used();
    if !view.connections.at(connection).takes_packets() {
        return false;
    }
    loop {
        if sink.is_full() || sink.used() - start >= TURN_PACKETS {
            return true;
        }
        //= MR-LOSS-8
        let sent = fill_again(view, now, connection, sink)
            || fill_renewed(view, now, connection, sink)
            || fill_new(view, now, connection, sink);
        if !sent {
            break;
        }
    }
    probes::fill(view, now, connection, sink) || is_starved(view, connection)
}

/// Whether the endpoint's tables, which all connections share, are what keeps the connection from sending. It stays in
/// line then: nothing of its own would tell it that there is room again.
fn is_starved(view: &View<'_>, connection: Idx<Connection>) -> bool {
    let owner = view.connections.at(connection);
    //= MR-STR-29
    owner.has_data() && (view.transmissions.available() == 0 || !has_packet_for_request(view))
}

/// Whether a request may take a packet. A quarter of the table is kept for responses: else requests that wait, refused,
/// until the peer has sent its responses could keep ours from being sent, and the peer's likewise.
fn has_packet_for_request(view: &View<'_>) -> bool {
    view.packets.available() > view.packets.capacity() / 4
}

/// Sends one packet that goes again, of the first path that has one and room.
fn fill_again(view: &mut View<'_>, now: Instant, connection: Idx<Connection>, sink: &mut Sink<'_>) -> bool {
    let first = view.connections.at(connection).paths.first.raw();
    let mut left = view.connections.at(connection).paths.again;
    while left != 0 {
        let number = left.trailing_zeros();
        left &= left - 1;
        let at = Idx::new(first.wrapping_add(number));
        let path = view.paths.at_mut(at);
        let Some(packet) = path.sending.again.front() else {
            view.connections.at_mut(connection).paths.again &= !(1 << number);
            return fill_again_rest(view, now, connection, sink);
        };
        // What belongs to a request that can only fail goes as VOID.
        let entry = view.packets.at_mut(packet);
        //= MR-DLV-13
        entry.void |= view.works.at(entry.work).failed.is_some();
        let bytes = entry.bytes_max();
        let plane = path.plane;
        let owner = view.connections.at(connection);
        let line_opens_at = view.lines.opens_at(now, owner.planes.local(plane));
        let opens_at = owner.outflows.opens_at(now, plane).max(line_opens_at);
        if opens_at > now {
            paths::wait_for_pace(view, connection, opens_at);
            continue;
        }
        let room = path.has_room(now, bytes) || path.timeouts.rescue;
        if !room || !path.takes(bytes) {
            if !room && path.sending.inflight_bytes == 0 {
                let until = path.sending.pace_until;
                paths::wait_for_pace(view, connection, until);
            }
            continue;
        }
        if view.transmissions.available() == 0 {
            return false;
        }
        let rescue = core::mem::take(&mut path.timeouts.rescue);
        path.sending.again.remove(&mut view.packets, packet);
        let cause = match view.packets.at(packet).place {
            Place::Again { cause, .. } => cause,
            _ => Cause::Timeout,
        };
        let stats = &mut view.connections.at_mut(connection).stats;
        match cause {
            Cause::Lost => stats.retransmitted += 1,
            Cause::Timeout => stats.retransmitted_by_timeout += 1,
        }
        let sent = send_packet(view, now, connection, at, packet, sink);
        if sent && rescue {
            copies::send(view, now, connection, at, packet, sink);
        }
        return sent;
    }
    false
}

/// One path's queue turned out empty: its bit is clear now, so this recurs at most once per path.
fn fill_again_rest(
    view: &mut View<'_>,
    now: Instant,
    connection: Idx<Connection>,
    sink: &mut Sink<'_>,
) -> bool {
    view.connections.at(connection).paths.again != 0 && fill_again(view, now, connection, sink)
}

/// Sends one packet that was refused and whose time has come, under a new CSN.
fn fill_renewed(view: &mut View<'_>, now: Instant, connection: Idx<Connection>, sink: &mut Sink<'_>) -> bool {
    let Some(packet) = next_renewed(view, now, connection) else { return false };
    let owner = view.connections.at(connection);
    if !owner.outbound.has_room(&view.packets) || view.transmissions.available() == 0 {
        return false;
    }
    let payload_bytes = owner.paths.payload_bytes;
    let entry = view.packets.at_mut(packet);
    entry.sent = entry.length.min(payload_bytes);
    let bytes = entry.bytes_max();
    let Some(at) = path_for(view, now, connection, bytes) else { return false };
    let owner = view.connections.at_mut(connection);
    owner.renewed.remove(&mut view.packets, packet);
    owner.outbound.enter(&mut view.packets, packet);
    send_packet(view, now, connection, at, packet, sink)
}

/// The first refused packet whose time has come. Those of requests that can only fail have their verdict: they go.
fn next_renewed(view: &mut View<'_>, now: Instant, connection: Idx<Connection>) -> Option<Idx<Packet>> {
    for _ in 0..view.connections.at(connection).renewed.len() {
        let packet = view.connections.at(connection).renewed.front()?;
        if view.works.at(view.packets.at(packet).work).failed.is_none() {
            return Some(packet);
        }
        view.connections.at_mut(connection).renewed.remove(&mut view.packets, packet);
        //= MR-DLV-11
        stream::on_verdict(view, now, packet, Verdict::Refused);
    }
    None
}

/// Cuts one new packet off a response or a request, and sends it.
fn fill_new(view: &mut View<'_>, now: Instant, connection: Idx<Connection>, sink: &mut Sink<'_>) -> bool {
    let owner = view.connections.at(connection);
    if !owner.outbound.has_room(&view.packets) {
        return false;
    }
    //= MR-CC-14
    if owner.outflows.waits_for_share() && !owner.outbound.packets.is_empty() {
        return false;
    }
    let Some(work) = next_work(view, now, connection) else { return false };
    if view.connections.at(connection).outbound.packets.is_empty()
        && !outflow::start(view, now, connection, u64::from(work_left(view.works.at(work))))
    {
        return false;
    }
    if view.packets.available() == 0 || view.transmissions.available() == 0 {
        view.hit(Limit::Packets);
        return false;
    }
    let payload_bytes = view.connections.at(connection).paths.payload_bytes;
    if let WorkKind::Datagram { .. } = view.works.at(work).kind {
        return datagram::send(view, now, connection, work, sink);
    }
    let left = work_left(view.works.at(work));
    let bytes = u64::from(left.min(u32::from(payload_bytes))) + DATA_HEADER_BYTES_MAX as u64;
    let Some(at) = path_for(view, now, connection, bytes) else { return false };
    let NextCut { offset, length } = next_cut(view, now, work, payload_bytes);
    let owner = view.connections.at_mut(connection);
    owner.clock.last_used = now;
    if owner.outbound.packets.is_empty() {
        owner.clock.busy_since = now;
    }
    let Some(packet) =
        view.packets.allocate(Packet { connection, work, offset, length, sent: length, ..Packet::EMPTY })
    else {
        return false;
    };
    owner.outbound.enter(&mut view.packets, packet);
    send_packet(view, now, connection, at, packet, sink)
}

/// The work whose turn it is: responses and requests alternate, streams go round robin by message piece.
fn next_work(view: &mut View<'_>, now: Instant, connection: Idx<Connection>) -> Option<Idx<Work>> {
    let stream = if has_packet_for_request(view) { next_stream(view, now, connection) } else { None };
    let owner = view.connections.at_mut(connection);
    let streams = &mut owner.streams;
    let response = streams.responses.front();
    let serve_response = match (response, stream) {
        (Some(_), None) => true,
        (Some(_), Some(_)) => !streams.responses_served,
        _ => false,
    };
    streams.responses_served = serve_response;
    //= MR-STR-4
    // The next stream, or response, has its turn after this burst.
    let rotate = owner.paths.burst.is_none();
    if serve_response {
        let work = response?;
        if rotate {
            streams.responses.remove(&mut view.works, work);
            streams.responses.push_back(&mut view.works, work);
        }
        return Some(work);
    }
    let stream = stream?;
    if rotate {
        streams.scheduled.remove(&mut view.streams, stream);
        streams.scheduled.push_back(&mut view.streams, stream);
    }
    view.streams.at(stream).requester.cursor.get()
}

/// The first scheduled stream that may send. Each stream is looked at once at most.
fn next_stream(view: &mut View<'_>, now: Instant, connection: Idx<Connection>) -> Option<Idx<Stream>> {
    for _ in 0..view.connections.at(connection).streams.scheduled.len() {
        let stream = view.connections.at(connection).streams.scheduled.front()?;
        if may_cut(view, now, stream) {
            return Some(stream);
        }
    }
    None
}

fn work_left(work: &Work) -> u32 {
    match work.progress {
        Cut::From(offset) => work.carried().saturating_sub(offset),
        Cut::Done => 0,
    }
}

/// The path of the burst under way while it has room, else the start of a new burst.
pub(crate) fn path_for(
    view: &mut View<'_>,
    now: Instant,
    connection: Idx<Connection>,
    bytes: u64,
) -> Option<Idx<Path>> {
    let owner = view.connections.at(connection);
    if let Some((at, left)) = owner.paths.burst {
        let path = view.paths.at(at);
        if path.takes(bytes) && path.has_room(now, bytes) {
            view.connections.at_mut(connection).paths.burst =
                left.checked_sub(1).map(|left| (at, left)).filter(|(_, left)| *left > 0);
            return Some(at);
        }
        view.connections.at_mut(connection).paths.burst = None;
    }
    let at = paths::choose(view, now, connection, bytes)?;
    let burst = view.config.burst_packets.saturating_sub(1);
    view.connections.at_mut(connection).paths.burst = (burst > 0).then_some((at, burst));
    Some(at)
}

/// Sends a packet over a path: a new transmission under the path's next PSN.
fn send_packet(
    view: &mut View<'_>,
    now: Instant,
    connection: Idx<Connection>,
    at: Idx<Path>,
    packet: Idx<Packet>,
    sink: &mut Sink<'_>,
) -> bool {
    let entry = *view.packets.at(packet);
    let Some(transmission) = emit_packet(view, now, connection, at, &entry, sink) else { return false };
    view.packets.at_mut(packet).place = Place::InFlight { path: at, psn: transmission.psn };
    let owner = view.connections.at_mut(connection);
    let drained = !owner.has_data();
    owner.outflows.on_data(drained);
    record(view, now, connection, at, Transmission { packet, ..transmission });
    pace(view, now, at, transmission.bytes);
    let stats = &mut view.connections.at_mut(connection).stats;
    stats.packets_sent += 1;
    stats.bytes_sent += u64::from(if entry.void { 0 } else { entry.sent });
    true
}

/// Writes a packet into a descriptor, as a new transmission of a path.
pub(super) fn emit_packet(
    view: &View<'_>,
    now: Instant,
    connection: Idx<Connection>,
    at: Idx<Path>,
    entry: &Packet,
    sink: &mut Sink<'_>,
) -> Option<Transmission> {
    let work = *view.works.at(entry.work);
    let path = view.paths.at(at);
    let psn = path.sending.psn_next;
    let owner = view.connections.at(connection);
    let header = data_header(owner, path, &work, entry);
    let base = base(now, owner, path, PacketType::Data, psn);
    let source = SourcePort::Path(path.source_port);
    let mut bytes = 0;
    let sent = sink.emit(|transmit| {
        address(transmit, owner, path.plane, source, owner.terms.checksum_out);
        let mut at = base.emit(&mut transmit.header)?;
        at += header.emit(transmit.header.get_mut(at..).ok_or(BufferTooSmall)?)?;
        if let WorkKind::AtomicResponse { value } = work.kind
            && header.opcode == Opcode::AtomicResponse
        {
            let room = transmit.header.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<8>());
            //= MR-WIRE-21
            *room.ok_or(BufferTooSmall)? = value.to_be_bytes();
            at += 8;
        }
        transmit.header_length = u16::try_from(at).map_err(|_| BufferTooSmall)?;
        if !entry.void && work.inline_length > 0 {
            for byte in work.inline() {
                *transmit.header.get_mut(at).ok_or(BufferTooSmall)? = *byte;
                at += 1;
            }
            transmit.header_length = u16::try_from(at).map_err(|_| BufferTooSmall)?;
        } else if !entry.void {
            (transmit.parts, transmit.part_count) = work.gather(entry.offset, u32::from(entry.sent));
        }
        bytes = transmit.datagram_length();
        Ok(())
    });
    sent.then_some(Transmission {
        csn: entry.csn,
        psn,
        sent_at: now,
        bytes: u16::try_from(bytes).unwrap_or(u16::MAX),
        epoch: path.epoch,
        asks: header.flags.contains(OpFlags::ACK_NOW),
        ..Transmission::EMPTY
    })
}

/// The DATA header of a packet.
fn data_header(owner: &Connection, path: &Path, work: &Work, packet: &Packet) -> DataHeader {
    let carried = work.carried();
    let last = packet.offset.saturating_add(u32::from(packet.sent)) >= carried;
    let packet_bytes = u64::from(packet.sent) + DATA_HEADER_BYTES_MAX as u64;
    //= MR-ACK-15, MR-ACK-34
    let fills_window = path.sending.inflight_bytes + 2 * packet_bytes > path.window.window_bytes;
    let is_small = path.window.window_bytes < SMALL_WINDOW_PACKETS * packet_bytes;
    let few_in_flight = path.sending.in_flight.len() < 2;
    let mut flags = if packet.void { OpFlags::NONE } else { work.flags(last) };
    if few_in_flight || (fills_window && (is_small || !path.sending.is_asking())) {
        flags = flags.with(OpFlags::ACK_NOW);
    }
    let header = DataHeader {
        opcode: if packet.void { Opcode::Void } else { work.opcode() },
        flags,
        stream: work.stream_id,
        csn: packet.csn,
        msn: work.msn,
        offset: packet.offset,
        length: work.length,
        //= MR-WIRE-19
        receive_index: if work.consumes_receive() { work.receive_index } else { ReceiveIndex::new(0) },
        demand_kib: outflow::demand_kib(owner),
        remote: None,
        operands: None,
        match_bits: None,
        immediate: None,
        signal: None,
    };
    //= MR-WIRE-22
    if packet.void {
        return header;
    }
    DataHeader {
        remote: work.remote_at(packet.offset),
        operands: work.operands(),
        match_bits: work.tag(),
        immediate: work.immediate(last),
        signal: work.signal(last),
        ..header
    }
}

/// After data of `bytes` on a path whose window holds less, the next waits in proportion. A PROBE makes nobody wait:
/// whoever asked for leave to start may start when it has it.
pub(crate) fn pace(view: &mut View<'_>, now: Instant, at: Idx<Path>, bytes: u16) {
    let path = view.paths.at_mut(at);
    let bytes = u64::from(bytes);
    if path.window.window_bytes < bytes {
        //= MR-CC-12
        // Of the base RTT: whoever sends so seldom learns late that a queue is gone.
        let rtt = path.rtt.base_or(view.config.rtt_ns_initial);
        let interval = rtt.saturating_mul(bytes) / path.window.window_bytes.max(1);
        path.sending.pace_until = now.after(interval);
    }
}

/// Enters a transmission into its path, and arms the path's timers.
pub(crate) fn record(
    view: &mut View<'_>,
    now: Instant,
    connection: Idx<Connection>,
    at: Idx<Path>,
    transmission: Transmission,
) {
    let path = view.paths.at_mut(at);
    //= MR-LOSS-10
    path.sending.psn_next = path.sending.psn_next.plus(1);
    path.counters.sent += 1;
    if path.sending.inflight_bytes == 0 {
        path.timeouts.since = now;
    }
    path.sending.last_sent = now;
    if transmission.asks {
        path.sending.asked = Some(transmission.psn);
    }
    let bytes = u64::from(transmission.bytes);
    if !transmission.rescued {
        path.sending.inflight_bytes += u64::from(transmission.bytes);
    }
    let plane = path.plane;
    if let Some(slot) = view.transmissions.allocate(transmission) {
        path.sending.in_flight.push_back(&mut view.transmissions, slot);
    }
    let fabric_rtt_ns = view.config.rtt_ns_initial;
    let owner = view.connections.at_mut(connection);
    owner.outflows.on_sent(now, plane, bytes, fabric_rtt_ns, view.rng);
    view.lines.on_sent(now, owner.planes.local(plane), bytes);
    let pto_at = timers::pto_at(view, view.connections.at(connection), view.paths.at(at));
    view.arm(connection, pto_at);
}
