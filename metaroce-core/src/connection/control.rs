//! Writing CONTROL packets.

use crate::connection::handshake::CONNECT_BYTES;
use crate::connection::output::{Sink, address};
use crate::connection::{Connection, Owed, State, inflow, plane_health, planes};
use crate::ids::{PathId, Psn, WireConnectionId};
use crate::table::Idx;
use crate::time::Instant;
use crate::transmit::{SourcePort, Transmit};
use crate::view::View;
use crate::wire::{
    BASE_BYTES, Base, BufferTooSmall, COOKIE_BYTES, Close, Confirm, Connect, Control, PacketType, Reject,
};

/// Sends the control packets that are owed.
pub(crate) fn fill(view: &mut View<'_>, now: Instant, slot: Idx<Connection>, sink: &mut Sink<'_>) {
    if view.connections.at(slot).owed == Owed::default() {
        return; // Choosing a source would move the rotation on.
    }
    let incarnation = view.incarnation;
    let owes = view.connections.at(slot).owed;
    let allowance_kib = if owes.connect || owes.accept { inflow::tell_allowance(view, slot) } else { 0 };
    let (plane, via) = source(view, now, slot);
    let owner = view.connections.at(slot);
    let planes = planes::own_addresses(view.config, view.paths_per_connection, owner.planes.local(0));
    let (owed, ids) = (owner.owed, owner.ids);
    let hello = |cookie, echoed_nonce, private_data| Connect {
        wants_checksum: view.config.checksum_wanted,
        implicit: owner.implicit,
        connection: ids.local,
        nonce: ids.local_nonce,
        incarnation,
        features: 0,
        mtu_bytes: u32::from(view.config.mtu_bytes),
        service: owner.service,
        streams: u16::try_from(owner.terms.streams).unwrap_or(u16::MAX),
        paths: planes::own_paths_each(view.config, view.paths_per_connection, &planes),
        reads: view.config.reads_granted,
        held: view.config.reads_granted,
        message_window: view.message_window(),
        csn_window: view.csn_window,
        initial_credits: view.config.initial_credits,
        start_allowance_kib: allowance_kib,
        echoed_nonce,
        cookie,
        planes,
        private_data,
    };
    let nonce_xor = ids.local_nonce ^ ids.remote_nonce;
    let next_csn = owner.outbound.next_csn;
    let closing = |quote| Close { reason: 0, next_csn, sender: ids.local, nonce_xor, quote };
    let private = owner.private.as_slice();
    let no_cookie = [0; COOKIE_BYTES];
    let mut done = owed;
    let mut unverified = owner.unverified;
    let mut send = |control: Control<'_>, to: WireConnectionId, pad: bool| {
        if let Some(left) = &mut unverified {
            let bytes = u32::try_from(BASE_BYTES + control.encoded_length()).unwrap_or(u32::MAX);
            // Dropped as if it had been lost: when more comes from there, it is owed again.
            let Some(rest) = left.checked_sub(bytes) else { return true };
            *left = if sink.is_full() { *left } else { rest };
        }
        sink.emit(|transmit| {
            //= MR-WIRE-9, MR-WIRE-31
            address(transmit, owner, plane, via, true);
            write_control(transmit, now, to, &control)?;
            transmit.padding = if pad { CONNECT_BYTES.saturating_sub(transmit.header_length) } else { 0 };
            Ok(())
        })
    };
    if let (true, State::Connecting { cookie, .. }) = (owed.connect, owner.state) {
        done.connect = !send(Control::Connect(hello(cookie, 0, private)), WireConnectionId(0), true);
    }
    if owed.accept {
        done.accept = !send(Control::Accept(hello(no_cookie, ids.remote_nonce, private)), ids.remote, false);
    }
    if owed.confirm {
        done.confirm = !send(Control::Confirm(Confirm { echoed_nonce: ids.remote_nonce }), ids.remote, false);
    }
    if let Some(reason) = owed.reject {
        let reject = Reject { reason, echoed_nonce: ids.remote_nonce, private_data: private };
        done.reject = if send(Control::Reject(reject), ids.remote, false) { None } else { owed.reject };
    }
    if owed.close {
        done.close = !send(Control::Close(closing(None)), ids.remote, false);
    }
    if owed.close_ack || owed.close_ack_quote.is_some() {
        let sent = send(Control::CloseAck(closing(owed.close_ack_quote)), ids.remote, false);
        done.close_ack = owed.close_ack && !sent;
        done.close_ack_quote = owed.close_ack_quote.filter(|_| !sent);
    }
    let owner = view.connections.at_mut(slot);
    owner.owed = done;
    owner.unverified = unverified;
}

/// Where control packets leave from. The peer answers a handshake to where it came from, so the first ones leave from
/// the receive port. What repeats, and what ends a connection, goes by its good paths in turn: the receive port has one
/// route, and that may be dead.
fn source(view: &mut View<'_>, now: Instant, slot: Idx<Connection>) -> (u8, SourcePort) {
    let owner = view.connections.at(slot);
    let answered = match owner.state {
        State::Connecting { .. } | State::Incoming => false,
        State::Accepting { attempt } => attempt.count > 1,
        _ => owner.owed.reject.is_none(),
    };
    if !answered || owner.paths.count == 0 {
        return (0, SourcePort::Receive);
    }
    let at = plane_health::next_ack_path(view, now, slot);
    let path = view.paths.at(at);
    (path.plane, SourcePort::Path(path.source_port))
}

/// Writes a control packet into a descriptor.
pub(crate) fn write_control(
    transmit: &mut Transmit,
    now: Instant,
    to: WireConnectionId,
    control: &Control<'_>,
) -> Result<(), BufferTooSmall> {
    let base = Base {
        //= MR-WIRE-30
        kind: PacketType::Control,
        flags: 0,
        path: PathId(0),
        epoch: 0,
        connection: to,
        psn: Psn::new(0),
        timestamp: now.wire_timestamp(),
        checksum: 0,
    };
    let mut length = base.emit(&mut transmit.header)?;
    length += control.emit(transmit.header.get_mut(length..).ok_or(BufferTooSmall)?)?;
    transmit.header_length = u16::try_from(length).map_err(|_| BufferTooSmall)?;
    Ok(())
}
