//! Connections that need no connection manager: at most one per peer and service, whoever opens it first.

use core::net::SocketAddr;

use crate::connection::handshake::low;
use crate::connection::{Connection, State, close, reply};
use crate::event::CloseReason;
use crate::index::Key;
use crate::table::Idx;
use crate::time::Instant;
use crate::view::{Kind, View, key};
use crate::wire::Connect;

fn name(view: &View<'_>, remote: SocketAddr, service: u32) -> Key {
    key(Kind::Implicit, service, low(reply::hash_address(view, remote)))
}

/// The implicit connection to this peer and service, if there is one that is not over.
pub(crate) fn find(view: &View<'_>, remote: SocketAddr, service: u32) -> Option<Idx<Connection>> {
    //= MR-HS-26
    let slot = Idx::new(view.index.find(name(view, remote, service))?);
    view.connections
        .get(slot)
        .filter(|owner| owner.remote == remote && owner.service == service)
        .map(|_| slot)
}

/// Makes a connection the one that [`find`] finds, unless there is one.
pub(crate) fn enter(view: &mut View<'_>, slot: Idx<Connection>) {
    let owner = view.connections.at(slot);
    let at = name(view, owner.remote, owner.service);
    let _first = view.index.insert(at, slot.raw());
}

/// The connection is over: the next one may be opened.
pub(crate) fn leave(view: &mut View<'_>, slot: Idx<Connection>) {
    let owner = view.connections.at(slot);
    let at = name(view, owner.remote, owner.service);
    if view.index.find(at) == Some(slot.raw()) {
        view.index.remove(at);
    }
}

/// An implicit CONNECT meets what there is already. `Some`: it crossed ours, and counts as its answer. A connection
/// that the peer must have forgotten, since it opens another, is over.
pub(crate) fn resolve(
    view: &mut View<'_>,
    now: Instant,
    source: SocketAddr,
    connect: &Connect<'_>,
) -> Option<Idx<Connection>> {
    if connect.incarnation == view.incarnation {
        //= MR-HS-28
        // Connected to itself: two ends, two objects.
        return None;
    }
    let slot = find(view, source, connect.service)?;
    if matches!(view.connections.at(slot).state, State::Connecting { .. }) {
        return Some(slot);
    }
    close::finish(view, now, slot, CloseReason::Reset);
    None
}
