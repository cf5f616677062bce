//! Whose turn it is to send: first the control packets and acknowledgements of all connections, then their data in turns, as
//! far as the lines have room.

use crate::connection::output::{Sink, fill};
use crate::connection::{ack, control};
use crate::time::Instant;
use crate::view::View;

/// Fills descriptors with acknowledgements that had to be written down.
pub(crate) fn fill_snapshots(view: &mut View<'_>, now: Instant, sink: &mut Sink<'_>) {
    while !sink.is_full() {
        let Some(snapshot) = view.snapshots.pop() else { break };
        let alive = view
            .connections
            .get(snapshot.connection)
            .is_some_and(|owner| owner.generation == snapshot.generation && owner.takes_packets());
        if alive {
            ack::emit(view, now, snapshot.connection, &[Some((snapshot.body, snapshot.refused))], sink);
        }
    }
}

/// Fills descriptors with the control packets and acknowledgements that all connections owe, before any of their data.
//= MR-SEC-12
pub(crate) fn fill_urgent(view: &mut View<'_>, now: Instant, sink: &mut Sink<'_>) {
    for _ in 0..view.owing.len() {
        if sink.is_full() {
            return;
        }
        let Some(connection) = view.owing.pop_front(&mut view.connections) else { return };
        control::fill(view, now, connection, sink);
        if view.connections.at(connection).takes_packets() {
            ack::fill_replies(view, now, connection, sink);
            ack::fill_acks(view, now, connection, sink);
        }
        if sink.is_full() {
            // It may owe more.
            view.mark_owing(connection);
        }
    }
}

/// Fills descriptors with data, connection by connection, as far as the lines have room.
//= MR-SEC-13
pub(crate) fn fill_turns(view: &mut View<'_>, now: Instant, sink: &mut Sink<'_>) {
    let planes = u8::try_from(view.config.planes.as_slice().len()).unwrap_or(u8::MAX).saturating_add(1);
    // Each once; then those that stopped at the end of their turn, while others had nothing.
    let mut first = view.ready.len();
    loop {
        *view.line_opens_at = None;
        if sink.is_full() || view.ready.is_empty() {
            return;
        }
        *view.line_opens_at = view.lines.closed_until(now, planes);
        if view.line_opens_at.is_some() {
            return;
        }
        let Some(connection) = view.ready.pop_front(&mut view.connections) else { return };
        let before = sink.used();
        if fill(view, now, connection, sink) {
            view.mark_data(connection);
        }
        if first == 0 && sink.used() == before {
            return;
        }
        first = first.saturating_sub(1);
    }
}
