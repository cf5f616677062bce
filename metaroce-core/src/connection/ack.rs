//! Acknowledgements: when they go, what they carry, and over which path.

use crate::connection::output::{Sink, address, base};
use crate::connection::{Connection, inflow, plane_health};
use crate::ids::{Csn, PathId, Psn};
use crate::path::{OwedReply, Path, Received};
use crate::stream::{Stream, find};
use crate::table::Idx;
use crate::time::Instant;
use crate::transmit::{SourcePort, Transmit};
use crate::view::View;
use crate::wire::{AckBody, BufferTooSmall, Frame, PacketType, ProbeReply, Vector256};

/// Paths that one ACK packet speaks of.
const BLOCKS: usize = 4;
/// CREDIT frames of one ACK packet, those of urgent streams aside.
const REPEATED_CREDITS: usize = 2;
/// Frames about urgent streams of one ACK packet.
//= MR-ACK-21
const URGENT_STREAMS: usize = 8;

/// An acknowledgement that had to be written down, because more arrived at once than a vector holds.
#[derive(Clone, Copy, Debug)]
pub struct AckSnapshot {
    pub(crate) connection: Idx<Connection>,
    pub(crate) generation: u32,
    pub(crate) body: AckBody,
    pub(crate) refused: Vector256,
}

impl AckSnapshot {
    /// A slot of a ring, not in use.
    pub const EMPTY: Self = Self {
        connection: Idx::NONE,
        generation: 0,
        body: AckBody {
            path: PathId(0),
            epoch: 0,
            flags: 0,
            largest: Psn::new(0),
            accepted: Vector256::EMPTY,
            echoed_timestamp: 0,
            hold: 0,
            packets: 0,
            marked: 0,
            cumulative: Csn::new(0),
            share_kbps: 0,
        },
        refused: Vector256::EMPTY,
    };
}

/// One block of an ACK packet and its REFUSED vector.
pub(crate) type Block = Option<(AckBody, Vector256)>;

/// The acknowledgement of what `received` has, marked as told.
pub(crate) fn build(
    now: Instant,
    path: PathId,
    received: &mut Received,
    cumulative: Csn,
    share_kbps: u32,
) -> (AckBody, Vector256) {
    let body = AckBody { path, cumulative, share_kbps, ..AckSnapshot::EMPTY.body };
    received.acknowledge(now, body)
}

fn build_for(
    view: &mut View<'_>,
    now: Instant,
    connection: Idx<Connection>,
    at: Idx<Path>,
) -> (AckBody, Vector256) {
    //= MR-ACK-7
    let cumulative = view.connections.at(connection).inbound.lowest_unseen();
    //= MR-CC-24
    let share = inflow::share_kbps(view, connection, view.paths.at(at).plane);
    let path = view.paths.at_mut(at);
    build(now, path.id, &mut path.received, cumulative, share)
}

/// Writes an acknowledgement down, to be sent as it is now.
pub(crate) fn snapshot(view: &mut View<'_>, now: Instant, connection: Idx<Connection>, at: Idx<Path>) {
    let (body, refused) = build_for(view, now, connection, at);
    let generation = view.connections.at(connection).generation;
    // A full ring loses one acknowledgement, as the network might.
    let _lost = view.snapshots.push(AckSnapshot { connection, generation, body, refused });
}

/// Has an acknowledgement go at once, of whatever path was heard of last.
pub(crate) fn acknowledge_now(view: &mut View<'_>, connection: Idx<Connection>) {
    let owner = view.connections.at_mut(connection);
    //= MR-HS-21
    // Nothing but its ACCEPT goes to an address that is not verified.
    if owner.paths.count > 0 && owner.takes_packets() && owner.unverified.is_none() {
        owner.paths.due |= if owner.paths.pending == 0 { 1 } else { owner.paths.pending };
        view.mark_ready(connection);
    }
}

/// Sends ACK packets for all paths that are due. What waits for its delay goes along.
pub(crate) fn fill_acks(view: &mut View<'_>, now: Instant, connection: Idx<Connection>, sink: &mut Sink<'_>) {
    let owner = view.connections.at_mut(connection);
    if owner.paths.due == 0 {
        return;
    }
    //= MR-ACK-13
    owner.paths.due |= owner.paths.pending;
    owner.paths.pending = 0;
    owner.clock.ack_at = Instant::FAR_FUTURE;
    //= MR-ACK-19
    let twice = owner.planes.health.take_twice() && plane_health::several_live(&owner.planes);
    while view.connections.at(connection).paths.due != 0 && !sink.is_full() {
        //= MR-ACK-20
        let mut blocks: [Block; BLOCKS] = [None; BLOCKS];
        for block in &mut blocks {
            let paths = &mut view.connections.at_mut(connection).paths;
            if paths.due == 0 {
                break;
            }
            let number = paths.due.trailing_zeros();
            paths.due &= paths.due - 1;
            let at = Idx::new(paths.first.raw().wrapping_add(number));
            *block = Some(build_for(view, now, connection, at));
        }
        emit(view, now, connection, &blocks, sink);
        if twice {
            emit(view, now, connection, &blocks, sink);
        }
    }
}

/// Sends one ACK packet.
pub(crate) fn emit(
    view: &mut View<'_>,
    now: Instant,
    connection: Idx<Connection>,
    blocks: &[Block],
    sink: &mut Sink<'_>,
) {
    let at = plane_health::next_ack_path(view, now, connection);
    let mut frames = StreamFrames::collect(view, connection);
    let plane = plane_health::frame(view, now, connection);
    let start = inflow::start_frame(view, connection);
    let owner = view.connections.at(connection);
    let path = view.paths.at(at);
    //= MR-ACK-16
    let base = base(now, owner, path, PacketType::Ack, Psn::new(0));
    let source = SourcePort::Path(path.source_port);
    sink.emit(|transmit| {
        address(transmit, owner, path.plane, source, owner.terms.checksum_out);
        let mut writer = Appender { length: base.emit(&mut transmit.header)?, transmit };
        for (number, (body, refused)) in blocks.iter().flatten().enumerate() {
            if number == 0 {
                writer.append(|out| body.emit(out))?;
            } else {
                writer.append(|out| Frame::Ack(*body).emit(out))?;
            }
            //= MR-ACK-2
            if !refused.is_empty() {
                writer.append(|out| Frame::Refused(*refused).emit(out))?;
            }
        }
        if let Some(plane) = plane {
            writer.append(|out| plane.emit(out))?;
        }
        if let Some(start) = start {
            writer.append(|out| start.emit(out))?;
        }
        frames.append(&mut writer)?;
        writer.finish()
    });
}

/// Sends the PROBE_REPLYs that are owed.
pub(crate) fn fill_replies(
    view: &mut View<'_>,
    now: Instant,
    connection: Idx<Connection>,
    sink: &mut Sink<'_>,
) {
    while !sink.is_full() {
        let paths = &mut view.connections.at_mut(connection).paths;
        if paths.replies == 0 {
            break;
        }
        //= MR-ACK-24
        let number = paths.replies.trailing_zeros();
        paths.replies &= paths.replies - 1;
        let at = Idx::new(paths.first.raw().wrapping_add(number));
        let Some(OwedReply { token, stream }) = view.paths.at_mut(at).reply.take() else { continue };
        let (ack, refused) = build_for(view, now, connection, at);
        let named = find(view, connection, stream);
        let mut frames = StreamFrames::collect(view, connection);
        //= MR-ACK-23
        if let Some(stream) = named {
            frames.push(credit(view, stream));
        }
        let reply = ProbeReply { token, ack };
        emit_reply(view, now, connection, &reply, &refused, &mut frames, sink);
        if plane_health::several_live(&view.connections.at(connection).planes) {
            emit_reply(view, now, connection, &reply, &refused, &mut frames, sink);
        }
    }
}

/// Sends one PROBE_REPLY.
fn emit_reply(
    view: &mut View<'_>,
    now: Instant,
    connection: Idx<Connection>,
    reply: &ProbeReply,
    refused: &Vector256,
    frames: &mut StreamFrames,
    sink: &mut Sink<'_>,
) {
    //= MR-ACK-25
    // Not by the path that asks: its way back may be what is broken. The path's acknowledgement goes by yet another.
    let by = plane_health::next_ack_path(view, now, connection);
    let plane = plane_health::frame(view, now, connection);
    let owner = view.connections.at(connection);
    let path = view.paths.at(by);
    let base = base(now, owner, path, PacketType::ProbeReply, Psn::new(0));
    let source = SourcePort::Path(path.source_port);
    sink.emit(|transmit| {
        address(transmit, owner, path.plane, source, owner.terms.checksum_out);
        let mut writer = Appender { length: base.emit(&mut transmit.header)?, transmit };
        //= MR-ACK-22
        writer.append(|out| reply.emit(out))?;
        if !refused.is_empty() {
            writer.append(|out| Frame::Refused(*refused).emit(out))?;
        }
        if let Some(plane) = plane {
            writer.append(|out| plane.emit(out))?;
        }
        frames.append(&mut writer)?;
        writer.finish()
    });
}

/// The CREDIT of a stream, marked as told; the initial count if it never posted a receive.
fn credit(view: &mut View<'_>, stream: Idx<Stream>) -> Frame {
    let entry = view.streams.at_mut(stream);
    entry.responder.told = entry.responder.posted;
    //= MR-STR-32
    let none_needed = entry.responder.queue.is_some();
    Frame::Credit { stream: entry.id, none_needed, posted: entry.responder.posted }
}

/// Frames about streams, for one packet.
struct StreamFrames {
    frames: [Option<Frame>; 2 * URGENT_STREAMS + REPEATED_CREDITS + 2],
    count: usize,
}

impl StreamFrames {
    /// Takes the frames of urgent streams, and repeats the credit of a few others, in rotation.
    fn collect(view: &mut View<'_>, connection: Idx<Connection>) -> Self {
        let mut frames = Self { frames: [None; 2 * URGENT_STREAMS + REPEATED_CREDITS + 2], count: 0 };
        //= MR-STR-30
        if let Some((stream, reason)) = view.connections.at_mut(connection).streams.unopened.take() {
            frames.push(Frame::Nack { stream, reason, delay_us: 0 });
        }
        for _ in 0..URGENT_STREAMS {
            let streams = &mut view.connections.at_mut(connection).streams;
            let Some(stream) = streams.urgent.pop_front(&mut view.streams) else { break };
            let entry = view.streams.at_mut(stream);
            //= MR-STR-14
            if let Some(reason) = entry.responder.nack.take() {
                frames.push(Frame::Nack { stream: entry.id, reason, delay_us: 0 });
            }
            if entry.responder.speaks_credit() {
                let credit = credit(view, stream);
                frames.push(credit);
            }
        }
        //= MR-ACK-26
        for _ in 0..REPEATED_CREDITS {
            let streams = &view.connections.at(connection).streams;
            let here = streams
                .credit_cursor
                .get()
                .filter(|&at| view.streams.get(at).is_some_and(|s| s.connection == connection));
            let Some(stream) = here.or(streams.all.front()) else { break };
            let next = streams.all.next(&view.streams, stream).unwrap_or(Idx::NONE);
            view.connections.at_mut(connection).streams.credit_cursor = next;
            if view.streams.at(stream).responder.speaks_credit() {
                let credit = credit(view, stream);
                frames.push(credit);
            }
        }
        frames
    }

    /// Adds a frame, unless it is there already.
    fn push(&mut self, frame: Frame) {
        if self.frames.iter().flatten().any(|there| *there == frame) {
            return;
        }
        if let Some(slot) = self.frames.get_mut(self.count) {
            *slot = Some(frame);
            self.count += 1;
        }
    }

    fn append(&mut self, writer: &mut Appender<'_>) -> Result<(), BufferTooSmall> {
        for frame in self.frames.iter().flatten() {
            writer.append(|out| frame.emit(out))?;
        }
        Ok(())
    }
}

/// Appends headers to a descriptor.
struct Appender<'a> {
    transmit: &'a mut Transmit,
    length: usize,
}

impl Appender<'_> {
    fn append(
        &mut self,
        emit: impl FnOnce(&mut [u8]) -> Result<usize, BufferTooSmall>,
    ) -> Result<(), BufferTooSmall> {
        self.length += emit(self.transmit.header.get_mut(self.length..).ok_or(BufferTooSmall)?)?;
        Ok(())
    }

    fn finish(self) -> Result<(), BufferTooSmall> {
        self.transmit.header_length = u16::try_from(self.length).map_err(|_| BufferTooSmall)?;
        Ok(())
    }
}
