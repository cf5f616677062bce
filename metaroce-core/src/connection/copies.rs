//! Copies of a packet on other planes, to find out which of them still work.

use crate::connection::output::{Sink, emit_packet, record};
use crate::connection::{Connection, plane_health};
use crate::delivery::Packet;
use crate::path::{Path, Transmission};
use crate::table::Idx;
use crate::time::Instant;
use crate::view::View;

/// Sends a packet that was sent to find out whether the peer is there on one path of every other plane too. Whichever
/// arrives tells; none is awaited.
pub(crate) fn send(
    view: &mut View<'_>,
    now: Instant,
    connection: Idx<Connection>,
    at: Idx<Path>,
    packet: Idx<Packet>,
    sink: &mut Sink<'_>,
) {
    //= MR-PATH-17
    let others = plane_health::next_of_others(view, connection, view.paths.at(at).plane);
    for other in others.into_iter().flatten() {
        let entry = *view.packets.at(packet);
        if view.transmissions.available() == 0 || !view.paths.at(other).takes(entry.bytes_max()) {
            continue;
        }
        if let Some(transmission) = emit_packet(view, now, connection, other, &entry, sink) {
            record(view, now, connection, other, Transmission { packet, rescued: true, ..transmission });
            let stats = &mut view.connections.at_mut(connection).stats;
            stats.packets_sent += 1;
            stats.retransmitted_by_timeout += 1;
        }
    }
}
