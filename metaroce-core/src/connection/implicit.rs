//! Connections that need no connection manager: at most one per peer and service, whoever opens it first.

use core::net::SocketAddr;

use crate::connection::handshake::low;
use crate::connection::{Connection, State, paths, reply};
use crate::index::Key;
use crate::table::Idx;
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

/// What an implicit CONNECT meets.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Meeting {
    /// Nothing: it opens a connection.
    New,
    /// Our own CONNECT to the same peer and service.
    Crossing(Idx<Connection>),
    /// A connection that is there already.
    Doubted,
}

/// Compares an implicit CONNECT with what there is already.
///
/// A peer that opens another connection must have forgotten the one that is there; but anyone can write such a CONNECT.
/// So the peer is asked, by a PROBE of the old connection: if it has forgotten it, its RESET ends it, and its next
/// CONNECT opens a new one.
pub(crate) fn meet(view: &mut View<'_>, source: SocketAddr, connect: &Connect<'_>) -> Meeting {
    if connect.incarnation == view.incarnation {
        //= MR-HS-28
        // Connected to itself: two ends, two objects.
        return Meeting::New;
    }
    let Some(slot) = find(view, source, connect.service) else { return Meeting::New };
    let owner = view.connections.at(slot);
    if matches!(owner.state, State::Connecting { .. }) {
        return Meeting::Crossing(slot);
    }
    //= MR-HS-31
    if owner.takes_packets() {
        paths::ask_for_life(view, slot);
    }
    Meeting::Doubted
}
