//! DATAGRAM: unreliable, one packet, no CSN.

use crate::connection::Connection;
use crate::connection::output::{Sink, address, base, pace, path_for, record};
use crate::event::{Event, Status};
use crate::ids::{Csn, Msn, ReceiveIndex, StreamId};
use crate::path::Transmission;
use crate::region;
use crate::stream::{Work, WorkKind};
use crate::table::Idx;
use crate::time::Instant;
use crate::transmit::SourcePort;
use crate::view::View;
use crate::wire::{BufferTooSmall, DATA_HEADER_BYTES_MAX, DataHeader, OpFlags, Opcode, PacketType};

/// Sends a datagram, which completes it. Without room on any path it waits at the head of the line.
pub(crate) fn send(
    view: &mut View<'_>,
    now: Instant,
    connection: Idx<Connection>,
    slot: Idx<Work>,
    sink: &mut Sink<'_>,
) -> bool {
    let work = *view.works.at(slot);
    let WorkKind::Datagram { address: to, immediate } = work.kind else { return false };
    let bytes = u64::from(work.length) + DATA_HEADER_BYTES_MAX as u64;
    let Some(at) = path_for(view, now, connection, bytes) else { return false };
    let owner = view.connections.at(connection);
    let path = view.paths.at(at);
    let psn = path.sending.psn_next;
    let base = base(now, owner, path, PacketType::Data, psn);
    let immediate_flag = if immediate.is_some() { OpFlags::IMMEDIATE } else { OpFlags::NONE };
    let header = DataHeader {
        opcode: Opcode::Datagram,
        flags: OpFlags::LAST.with(immediate_flag),
        stream: StreamId::NONE,
        //= MR-OP-26
        csn: Csn::new(0),
        msn: Msn::new(to.source_queue),
        offset: to.destination_queue,
        length: work.length,
        receive_index: ReceiveIndex::new(to.key),
        demand_kib: 0,
        remote: None,
        operands: None,
        match_bits: None,
        immediate,
        signal: None,
    };
    let source = SourcePort::Path(path.source_port);
    let mut length = 0;
    let sent = sink.emit(|transmit| {
        address(transmit, owner, path.plane, source, owner.terms.checksum_out);
        let mut at = base.emit(&mut transmit.header)?;
        at += header.emit(transmit.header.get_mut(at..).ok_or(BufferTooSmall)?)?;
        transmit.header_length = u16::try_from(at).map_err(|_| BufferTooSmall)?;
        (transmit.parts, transmit.part_count) = work.gather(0, work.length);
        length = transmit.datagram_length();
        Ok(())
    });
    let bytes = u16::try_from(length).unwrap_or(u16::MAX);
    let transmission = Transmission { psn, sent_at: now, bytes, epoch: path.epoch, ..Transmission::EMPTY };
    if !sent {
        return false;
    }
    record(view, now, connection, at, transmission);
    pace(view, now, at, transmission.bytes);
    let owner = view.connections.at_mut(connection);
    owner.queued_bytes = owner.queued_bytes.saturating_sub(u64::from(work.length));
    owner.stats.packets_sent += 1;
    owner.stats.bytes_sent += u64::from(work.length);
    owner.streams.responses.remove(&mut view.works, slot);
    finish(view, connection, slot, Status::Success);
    true
}

/// Frees a datagram, and reports it.
pub(crate) fn finish(view: &mut View<'_>, connection: Idx<Connection>, slot: Idx<Work>, status: Status) {
    let work = *view.works.at(slot);
    region::count_references(&mut view.regions, work.segments(), false);
    view.works.free(slot);
    *view.reserved = view.reserved.saturating_sub(1);
    let connection = view.connections.at(connection).handle(connection);
    view.push_event(Event::DatagramSent { connection, id: work.id, status });
}
