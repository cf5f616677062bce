//! Half-open connections: how many there are in all, and of each address.

use crate::connection::{Connection, reply};
use crate::index::Key;
use crate::table::Idx;
use crate::view::{Kind, View, key};
use core::net::SocketAddr;

/// Whether the address may open no more connections until one of its half-open ones is heard of.
pub(crate) fn is_used_up(view: &View<'_>, source: SocketAddr) -> bool {
    view.index.find(address_key(view, source)).unwrap_or(0) >= u32::from(view.config.half_open_per_address)
}

/// One more is half open.
pub(crate) fn enter(view: &mut View<'_>, slot: Idx<Connection>) {
    *view.half_open = view.half_open.saturating_add(1);
    let at = address_key(view, view.connections.at(slot).remote);
    let count = view.index.remove(at).unwrap_or(0);
    // The index has an entry for every connection's address.
    let _entered = view.index.insert(at, count.saturating_add(1));
}

/// One fewer is.
pub(crate) fn leave(view: &mut View<'_>, slot: Idx<Connection>) {
    *view.half_open = view.half_open.saturating_sub(1);
    let at = address_key(view, view.connections.at(slot).remote);
    let count = view.index.remove(at).unwrap_or(0).saturating_sub(1);
    if count > 0 {
        let _entered = view.index.insert(at, count);
    }
}

fn address_key(view: &View<'_>, source: SocketAddr) -> Key {
    let hash = reply::hash_address(view, SocketAddr::new(source.ip(), 0));
    key(Kind::Address, super::handshake::high(hash), super::handshake::low(hash))
}
