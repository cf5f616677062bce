//! PROBEs: for the path MTU, for probe timeouts, for paths that are down, for a blocked stream's question.

use crate::connection::output::{Sink, address, base, record};
use crate::connection::{Connection, outflow, planes};
use crate::ids::StreamId;
use crate::path::{Path, Transmission};
use crate::table::Idx;
use crate::time::Instant;
use crate::transmit::SourcePort;
use crate::view::View;
use crate::wire::{BufferTooSmall, PacketType, Probe};

/// UDP payload of every PROBE at least, so that a RESET or CLOSE_ACK that answers it is not larger.
const PROBE_BYTES_MIN: u16 = 64;

/// The wait for the answer to a padded PROBE doubles with the timeouts of its path, so often at most.
const BACKOFF: u32 = 2;

/// Sends the PROBEs that are owed: path MTU, probe timeouts, dead paths, a blocked stream's question. Returns whether
/// some could not go.
pub(crate) fn fill(
    view: &mut View<'_>,
    now: Instant,
    connection: Idx<Connection>,
    sink: &mut Sink<'_>,
) -> bool {
    let owner = view.connections.at(connection);
    if !owner.takes_packets() || owner.unverified.is_some() {
        return false;
    }
    if planes::fill_probes(view, now, connection, sink) {
        return true;
    }
    for at in view.connections.at(connection).path_indices() {
        // What a route carries is asked once it carries anything: a dead path's probes are few.
        let path = view.paths.at(at);
        if path.probing.owed && path.takes_data() {
            if sink.is_full() || view.transmissions.available() == 0 {
                return true;
            }
            let path = view.paths.at_mut(at);
            path.probing.owed = false;
            path.probing.tries = path.probing.tries.saturating_add(1);
            let rto = path.rtt.rto_ns(view.config.rtt_ns_initial, view.config.rto_ns_min);
            let rto = rto.saturating_mul(1 << path.timeouts.rto_count.min(BACKOFF));
            path.probing.deadline = now.after(rto);
            let (token, size) = (path.probing.token, path.probing.candidate_bytes);
            send_probe(view, now, connection, at, token, size, sink);
            view.arm(connection, now.after(rto));
        }
        let asks = view.connections.at(connection).paths.ask.is_some() && view.paths.at(at).takes_data();
        if view.paths.at(at).timeouts.probe_owed || asks {
            if sink.is_full() || view.transmissions.available() == 0 {
                return true;
            }
            view.paths.at_mut(at).timeouts.probe_owed = false;
            let token = view.secrets.next_u64();
            send_probe(view, now, connection, at, token, 0, sink);
        }
    }
    false
}

/// Sends one PROBE, padded to `size` bytes.
pub(crate) fn send_probe(
    view: &mut View<'_>,
    now: Instant,
    connection: Idx<Connection>,
    at: Idx<Path>,
    token: u64,
    size: u16,
    sink: &mut Sink<'_>,
) {
    let owner = view.connections.at_mut(connection);
    let stream = owner.paths.ask.take().unwrap_or(StreamId::NONE);
    let owner = view.connections.at(connection);
    let path = view.paths.at(at);
    let psn = path.sending.psn_next;
    let base = base(now, owner, path, PacketType::Probe, psn);
    let demand_kib = outflow::demand_kib(owner);
    let probe = Probe { stream, demand_kib, token };
    let source = SourcePort::Path(path.source_port);
    let sent = sink.emit(|transmit| {
        address(transmit, owner, path.plane, source, owner.terms.checksum_out);
        let mut at = base.emit(&mut transmit.header)?;
        at += probe.emit(transmit.header.get_mut(at..).ok_or(BufferTooSmall)?)?;
        transmit.header_length = u16::try_from(at).map_err(|_| BufferTooSmall)?;
        //= MR-WIRE-33
        transmit.padding = size.max(PROBE_BYTES_MIN).saturating_sub(transmit.header_length);
        Ok(())
    });
    if sent {
        let transmission = Transmission {
            psn,
            sent_at: now,
            bytes: PROBE_BYTES_MIN,
            epoch: path.epoch,
            ..Transmission::EMPTY
        };
        record(view, now, connection, at, transmission);
        // No window counts what pads it, but it takes its time on the line.
        //= MR-SEC-13
        if size > PROBE_BYTES_MIN {
            let path = view.paths.at(at);
            let plane = view.connections.at(connection).planes.local(path.plane);
            view.lines.on_padding(now, plane, u64::from(size - PROBE_BYTES_MIN));
        }
    }
}
