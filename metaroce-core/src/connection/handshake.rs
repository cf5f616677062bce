//! Opening a connection: CONNECT, ACCEPT, CONFIRM, REJECT, RETRY.

use core::net::SocketAddr;

use crate::config::ConnectOptions;
use crate::connection::implicit::Meeting;
use crate::connection::planes::PlaneSet;
use crate::connection::{
    Attempt, Connection, Ids, PrivateData, Role, State, Terms, close, implicit, inflow, paths, planes, quota,
    reply,
};
use crate::event::{CloseReason, Event};
use crate::ids::{Csn, ProtectionDomain, WireConnectionId};
use crate::region::slot_mask;
use crate::stats::{DropReason, Limit};
use crate::stream;
use crate::table::Idx;
use crate::time::Instant;
use crate::transmit::{Datagram, Disposition};
use crate::view::{Kind, View, key};
use crate::wire::{Base, CONTROL_BYTES_MAX, COOKIE_BYTES, Confirm, Connect, Control, Reject, RejectReason};

/// Size of every CONNECT, so that no answer is larger than what asked for it.
pub(crate) const CONNECT_BYTES: u16 = 640;
//= MR-HS-2
const _: () = assert!(CONTROL_BYTES_MAX <= CONNECT_BYTES as usize);

/// Makes a connection and has its CONNECT sent.
pub(crate) fn connect(
    view: &mut View<'_>,
    now: Instant,
    options: &ConnectOptions<'_>,
) -> Result<Idx<Connection>, OpenError> {
    let private = PrivateData::new(options.private_data).ok_or(OpenError::PrivateData)?;
    if options.implicit
        && let Some(slot) = implicit::find(view, options.remote, options.service)
    {
        if view.connections.at(slot).state == State::Incoming {
            // Opening what the peer has opened is accepting it.
            accept(view, now, slot, options.domain, options.private_data)?;
        }
        return Ok(slot);
    }
    let slot = allocate(view, now, 0, options.remote).ok_or(OpenError::Full)?;
    let owner = view.connections.at_mut(slot);
    owner.role = Role::Connector;
    owner.implicit = options.implicit;
    owner.service = options.service;
    owner.domain = options.domain;
    owner.private = private;
    owner.state = State::Connecting { attempt: Attempt::at(now), cookie: [0; COOKIE_BYTES] };
    // Streams may be opened and work posted already; what the peer grants is known only later.
    let terms = own_terms(view, slot);
    view.connections.at_mut(slot).terms = terms;
    if options.implicit {
        implicit::enter(view, slot);
    }
    view.arm(slot, now);
    Ok(slot)
}

/// Why a connection could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenError {
    Full,
    PrivateData,
}

fn own_terms(view: &View<'_>, slot: Idx<Connection>) -> Terms {
    let home = view.connections.at(slot).planes.local(0);
    let listed = planes::own_addresses(view.config, view.paths_per_connection, home);
    Terms {
        mtu_bytes: view.config.mtu_bytes,
        paths_each: planes::own_paths_each(view.config, view.paths_per_connection, &listed),
        streams: view.streams.capacity(),
        message_window: view.message_window(),
        reads: view.config.reads_granted,
        initial_credits: view.config.initial_credits,
        checksum_out: true,
    }
}

/// Takes a slot, and gives it ids and a nonce. The connection is opened over this endpoint's plane `home`.
fn allocate(view: &mut View<'_>, now: Instant, home: u8, remote: SocketAddr) -> Option<Idx<Connection>> {
    if !view.has_event_room() {
        return None;
    }
    let slot = view.connections.allocate(Connection {
        remote,
        planes: PlaneSet::new(home, remote),
        ..Connection::EMPTY
    })?;
    let mask = slot_mask(view.connections.capacity());
    //= MR-HS-4
    let drawn = (view.secrets.next_u32() & !mask) | slot.raw();
    let local = WireConnectionId(view.config.connection_prefix.put_into(drawn));
    let drawn = view.secrets.next_u64();
    let local_nonce = view.next_nonce.take().unwrap_or(drawn);
    let generation = *view.next_generation;
    *view.next_generation = generation.wrapping_add(1);
    let owner = view.connections.at_mut(slot);
    owner.generation = generation;
    owner.ids = Ids { local, local_nonce, ..Ids::default() };
    //= MR-HS-5
    owner.outbound.next_csn = Csn::new(low(local_nonce));
    owner.clock.last_heard = now;
    owner.clock.last_progress = now;
    owner.clock.busy_since = now;
    owner.clock.last_keepalive = now;
    owner.clock.last_used = now;
    Some(slot)
}

/// A control packet arrived; its checksum is right.
pub(crate) fn on_control(
    view: &mut View<'_>,
    now: Instant,
    datagram: &Datagram<'_>,
    base: &Base,
    control: &Control<'_>,
) -> Disposition {
    match control {
        Control::Connect(connect) => return on_connect(view, now, datagram, connect),
        Control::Reset(reset) => return close::on_reset(view, now, datagram, base, reset),
        _ => {}
    }
    let Some(slot) = find_local(view, base.connection) else {
        return Disposition::Dropped(DropReason::UnknownConnection);
    };
    let owner = view.connections.at(slot);
    //= MR-HS-9
    // Its port need not be the one on which the peer receives: see `control::source`.
    if !owner.planes.may_send_from(datagram.plane, datagram.source.ip()) {
        return Disposition::Dropped(DropReason::BadProof);
    }
    let nonce = owner.ids.local_nonce;
    match control {
        //= MR-HS-8
        Control::Accept(accept) if accept.echoed_nonce == nonce => {
            on_accept(view, now, datagram, slot, accept)
        }
        Control::Confirm(Confirm { echoed_nonce }) if *echoed_nonce == nonce => {
            heard(view, now, slot);
            Disposition::Consumed
        }
        Control::Reject(reject) if reject.echoed_nonce == nonce => on_reject(view, now, slot, reject),
        Control::Retry(retry) if retry.echoed_nonce == nonce => {
            let State::Connecting { .. } = view.connections.at(slot).state else {
                return Disposition::Dropped(DropReason::UnexpectedState);
            };
            //= MR-HS-20
            let attempt = Attempt::at(now);
            view.connections.at_mut(slot).become_state(State::Connecting { attempt, cookie: retry.cookie });
            view.arm(slot, now);
            Disposition::Consumed
        }
        Control::Close(close) => close::on_close(view, now, slot, base, close),
        Control::CloseAck(ack) => close::on_close_ack(view, now, slot, ack),
        _ => Disposition::Dropped(DropReason::BadProof),
    }
}

/// The connection whose id a peer puts into its packets.
pub(crate) fn find_local(view: &View<'_>, id: WireConnectionId) -> Option<Idx<Connection>> {
    //= MR-SEC-3
    let slot = Idx::new(id.0 & slot_mask(view.connections.capacity()));
    view.connections.get(slot).filter(|owner| owner.ids.local == id).map(|_| slot)
}

fn on_connect(
    view: &mut View<'_>,
    now: Instant,
    datagram: &Datagram<'_>,
    connect: &Connect<'_>,
) -> Disposition {
    let nonce_key = key(Kind::Nonce, high(connect.nonce), low(connect.nonce));
    if let Some(slot) = view.index.find(nonce_key).map(Idx::new) {
        //= MR-HS-11
        return on_repeated_connect(view, now, datagram, slot);
    }
    //= MR-HS-1
    if datagram.bytes.len() < usize::from(CONNECT_BYTES) {
        return Disposition::Dropped(DropReason::Malformed);
    }
    let proven = reply::cookie_is_right(view, now, datagram, connect);
    //= MR-HS-18
    if *view.half_open > view.connections.capacity() / 2 && !proven {
        reply::retry(view, now, datagram, connect);
        return Disposition::Consumed;
    }
    //= MR-HS-29
    if connect.implicit {
        match implicit::meet(view, datagram.source, connect) {
            Meeting::New => {}
            Meeting::Crossing(slot) => return answer_crossing(view, slot, connect),
            Meeting::Doubted => return Disposition::Dropped(DropReason::UnexpectedState),
        }
    }
    //= MR-HS-32
    if quota::is_used_up(view, datagram.source) {
        view.hit(Limit::HalfOpenPerAddress);
        return Disposition::Dropped(DropReason::NoRoom);
    }
    let Some(slot) = allocate(view, now, datagram.plane, datagram.source) else {
        view.hit(Limit::Connections);
        reply::reject(view, datagram, connect, RejectReason::Limits);
        return Disposition::Dropped(DropReason::NoRoom);
    };
    if !view.index.insert(nonce_key, slot.raw()) {
        view.connections.free(slot);
        return Disposition::Dropped(DropReason::NoRoom);
    }
    let own = own_terms(view, slot);
    let owner = view.connections.at_mut(slot);
    owner.state = State::Incoming;
    //= MR-HS-21
    owner.unverified = if proven { None } else { u32::try_from(datagram.bytes.len()).ok() };
    owner.service = connect.service;
    owner.implicit = connect.implicit;
    owner.private = PrivateData::new(connect.private_data).unwrap_or(PrivateData::EMPTY);
    agree(view, slot, own, connect);
    quota::enter(view, slot);
    if connect.implicit {
        implicit::enter(view, slot);
    }
    let owner = view.connections.at(slot);
    let event = Event::Incoming {
        connection: owner.handle(slot),
        remote: owner.remote,
        service: owner.service,
        implicit: owner.implicit,
    };
    view.push_event(event);
    view.arm(slot, now.after(view.config.fail_after_ns));
    Disposition::Consumed
}

/// The same CONNECT again gets the same ACCEPT again.
fn on_repeated_connect(
    view: &mut View<'_>,
    now: Instant,
    datagram: &Datagram<'_>,
    slot: Idx<Connection>,
) -> Disposition {
    let Some(owner) = view.connections.get_mut(slot).filter(|owner| owner.remote == datagram.source) else {
        return Disposition::Dropped(DropReason::BadProof);
    };
    let more = u32::try_from(datagram.bytes.len()).unwrap_or(0);
    owner.unverified = owner.unverified.map(|bytes| bytes.saturating_add(more));
    match owner.state {
        State::Accepting { attempt } => {
            owner.become_state(State::Accepting { attempt: Attempt { next: now, ..attempt } });
            view.arm(slot, now);
        }
        State::Incoming => {}
        _ if owner.takes_packets() => owner.owed.accept = true,
        //= MR-HS-12, MR-HS-13
        _ => owner.owed.reject = owner.rejected,
    }
    view.mark_ready(slot);
    Disposition::Duplicate
}

/// Takes the peer's ids and the smaller of both sides' terms.
fn agree(view: &mut View<'_>, slot: Idx<Connection>, own: Terms, peer: &Connect<'_>) {
    let owner = view.connections.at_mut(slot);
    owner.ids.remote = peer.connection;
    owner.ids.remote_nonce = peer.nonce;
    owner.ids.remote_incarnation = peer.incarnation;
    let mtu = u16::try_from(peer.mtu_bytes).unwrap_or(u16::MAX);
    //= MR-HS-16
    owner.terms = Terms {
        mtu_bytes: own.mtu_bytes.min(mtu),
        //= MR-PATH-1
        paths_each: own.paths_each.min(peer.paths).max(1),
        streams: own.streams.min(u32::from(peer.streams)),
        message_window: own.message_window.min(peer.message_window.max(1)),
        reads: peer.reads,
        initial_credits: peer.initial_credits.max(1),
        //= MR-WIRE-10
        checksum_out: peer.wants_checksum,
    };
    let listed = planes::own_addresses(view.config, view.paths_per_connection, owner.planes.local(0));
    owner.planes.agree(&listed, &peer.planes, owner.terms.paths_each, view.secrets);
    //= MR-HS-17
    owner.outflows.allow(peer.start_allowance_kib);
    owner.outbound.window = peer.csn_window.clamp(1, 1 << 21);
    let (remote, peer_id) = (owner.remote, peer.connection);
    let window = view.csn_window;
    let (inbound, words) = view.inbound(slot);
    //= MR-HS-5
    inbound.start(words, Csn::new(low(peer.nonce)), window);
    let peer_key = peer_key(view, remote, peer_id);
    // A clash only means that a RESET will not be believed: timeouts end the connection then.
    let _ = view.index.insert(peer_key, slot.raw());
}

/// The key under which a connection is found by the peer's id.
pub(crate) fn peer_key(view: &View<'_>, remote: SocketAddr, id: WireConnectionId) -> crate::index::Key {
    key(Kind::Peer, id.0, low(reply::hash_address(view, remote)))
}

/// Half of a nonce: where CSNs start.
pub(crate) const fn low(nonce: u64) -> u32 {
    (nonce & 0xffff_ffff) as u32
}

/// The other half.
pub(crate) const fn high(nonce: u64) -> u32 {
    (nonce >> 32) as u32
}

/// Two implicit CONNECTs crossed: each is answered by an ACCEPT, whose echo of the nonce proves that its sender is the
/// one that was asked. Until such an answer comes, nothing is believed.
fn answer_crossing(view: &mut View<'_>, slot: Idx<Connection>, connect: &Connect<'_>) -> Disposition {
    //= MR-HS-27
    let owner = view.connections.at_mut(slot);
    owner.ids.remote = connect.connection;
    owner.ids.remote_nonce = connect.nonce;
    owner.owed.accept = true;
    view.mark_ready(slot);
    Disposition::Consumed
}

fn on_accept(
    view: &mut View<'_>,
    now: Instant,
    datagram: &Datagram<'_>,
    slot: Idx<Connection>,
    accept: &Connect<'_>,
) -> Disposition {
    let owner = view.connections.at_mut(slot);
    if !matches!(owner.state, State::Connecting { .. }) {
        //= MR-HS-15
        // Our CONFIRM was lost.
        if owner.takes_packets() && owner.ids.remote_nonce == accept.nonce {
            owner.owed.confirm = true;
            view.mark_ready(slot);
            return Disposition::Duplicate;
        }
        let over = matches!(owner.state, State::Ending { .. } | State::Resting { .. });
        if over && owner.paths.count == 0 {
            //= MR-CLS-22
            let ids = owner.ids;
            reply::reset_accept(view, datagram, ids.local, ids.local_nonce, accept);
        }
        return Disposition::Dropped(DropReason::UnexpectedState);
    }
    owner.private = PrivateData::new(accept.private_data).unwrap_or(PrivateData::EMPTY);
    owner.become_state(State::Open);
    owner.owed.connect = false;
    owner.owed.confirm = true;
    let own = owner.terms;
    let implicit = owner.implicit;
    agree(view, slot, own, accept);
    if implicit {
        // If the peer's CONNECT crossed ours and comes again, it finds the connection by this.
        let _entered = view.index.insert(key(Kind::Nonce, high(accept.nonce), low(accept.nonce)), slot.raw());
    }
    let owner = view.connections.at_mut(slot);
    owner.clock.last_heard = now;
    owner.clock.last_progress = now;
    let event = Event::Connected { connection: owner.handle(slot) };
    view.push_event(event);
    start_work(view, now, slot);
    Disposition::Consumed
}

/// Opens the paths, and lets streams with work posted early send it.
fn start_work(view: &mut View<'_>, now: Instant, slot: Idx<Connection>) {
    paths::open(view, now, slot);
    inflow::on_count_changed(view);
    let credits = view.connections.at(slot).terms.initial_credits;
    let mut at = view.connections.at(slot).streams.all.front();
    while let Some(entry) = at {
        at = view.connections.at(slot).streams.all.next(&view.streams, entry);
        view.streams.at_mut(entry).requester.credits.grant(credits);
        stream::refresh(view, now, entry);
    }
    view.arm(slot, now);
}

fn on_reject(view: &mut View<'_>, now: Instant, slot: Idx<Connection>, reject: &Reject<'_>) -> Disposition {
    let owner = view.connections.at_mut(slot);
    if !matches!(owner.state, State::Connecting { .. }) {
        return Disposition::Dropped(DropReason::UnexpectedState);
    }
    if owner.implicit && matches!(reject.reason, RejectReason::NoListener | RejectReason::Busy) {
        //= MR-HS-30
        // Not ready yet: CONNECT goes on.
        return Disposition::Consumed;
    }
    owner.private = PrivateData::new(reject.private_data).unwrap_or(PrivateData::EMPTY);
    close::finish(view, now, slot, CloseReason::Rejected(reject.reason));
    Disposition::Consumed
}

/// A valid packet of the peer arrived: it has our ACCEPT.
pub(crate) fn heard(view: &mut View<'_>, now: Instant, slot: Idx<Connection>) {
    let owner = view.connections.at_mut(slot);
    owner.clock.last_heard = now;
    let verified = owner.unverified.take().is_some();
    match owner.state {
        State::Accepting { .. } => {
            //= MR-HS-14
            owner.become_state(State::Open);
            owner.owed.accept = false;
            quota::leave(view, slot);
            let owner = view.connections.at(slot);
            let event = Event::Connected { connection: owner.handle(slot) };
            view.push_event(event);
        }
        // It is there, and drains its side: the CLOSEs in a row count from here.
        State::Closing { attempt } => {
            //= MR-CLS-7
            let attempt = Attempt { count: attempt.count.min(1), ..attempt };
            owner.become_state(State::Closing { attempt });
        }
        _ => {}
    }
    if verified {
        refresh_streams(view, now, slot);
        view.mark_ready(slot);
        // Now the further addresses that it listed are asked.
        view.arm(slot, now);
    }
}

/// What the application posted before it could be sent goes now. O(streams), once in the life of a connection.
fn refresh_streams(view: &mut View<'_>, now: Instant, slot: Idx<Connection>) {
    let mut at = view.connections.at(slot).streams.all.front();
    while let Some(entry) = at {
        at = view.connections.at(slot).streams.all.next(&view.streams, entry);
        stream::refresh(view, now, entry);
    }
}

/// The application accepts.
pub(crate) fn accept(
    view: &mut View<'_>,
    now: Instant,
    slot: Idx<Connection>,
    domain: ProtectionDomain,
    private_data: &[u8],
) -> Result<(), OpenError> {
    let private = PrivateData::new(private_data).ok_or(OpenError::PrivateData)?;
    let owner = view.connections.at_mut(slot);
    owner.domain = domain;
    owner.private = private;
    owner.become_state(State::Accepting { attempt: Attempt::at(now) });
    start_work(view, now, slot);
    view.arm(slot, now);
    Ok(())
}

/// The application refuses.
pub(crate) fn reject(
    view: &mut View<'_>,
    now: Instant,
    slot: Idx<Connection>,
    reason: RejectReason,
    private_data: &[u8],
) -> Result<(), OpenError> {
    let private = PrivateData::new(private_data).ok_or(OpenError::PrivateData)?;
    refuse(view, slot, reason, &private);
    close::finish(view, now, slot, CloseReason::Local);
    Ok(())
}

/// Tells the peer of an incoming connection that there will be none, now and whenever it asks again.
pub(crate) fn refuse(
    view: &mut View<'_>,
    slot: Idx<Connection>,
    reason: RejectReason,
    private: &PrivateData,
) {
    let owner = view.connections.at_mut(slot);
    owner.private = *private;
    owner.rejected = Some(reason);
    owner.owed.reject = Some(reason);
}
