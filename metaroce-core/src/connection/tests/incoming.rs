//! What comes in: which packets count for what, and what may be said to whoever has not shown where it is.

use super::*;
use crate::connection::output::Sink;
use crate::connection::{State, control};
use crate::endpoint::CloseMode;
use crate::event::CloseReason;
use crate::ids::{Csn, Msn, Psn, ReceiveIndex, Serial, StreamId};
use crate::stats::{ConnectionState, DropReason, Limit};
use crate::wire::{Control, DataHeader, OpFlags, Opcode, PacketType, Probe, RejectReason};

/// A packet of end 0 on path 0, as it would write it, of `kind`; `body` follows the base header.
fn packet(pair: &mut Pair, kind: PacketType, psn: Psn, body: impl FnOnce(&mut [u8]) -> usize) -> Vec<u8> {
    let now = pair.now;
    let (view, slot) = pair.view(0);
    let base = Base {
        kind,
        flags: 0,
        path: PathId(0),
        epoch: 0,
        connection: view.connections.at(slot).ids.remote,
        psn,
        timestamp: now.wire_timestamp(),
        checksum: 0,
    };
    let mut bytes = vec![0; 200];
    let length = base.emit(&mut bytes).unwrap();
    let more = body(&mut bytes[length..]);
    bytes.truncate(length + more);
    let sum = crc::finish(TableChecksum.update(crc::SEED, &bytes));
    Base::write_checksum(&mut bytes, sum);
    bytes
}

fn probe(pair: &mut Pair, psn: Psn, demand_kib: u32) -> Vec<u8> {
    let probe = Probe { stream: StreamId::NONE, demand_kib, token: 7 };
    packet(pair, PacketType::Probe, psn, |out| probe.emit(out).unwrap() + 28)
}

/// The next PSN of end 0's path 0, which is taken.
fn next_psn(pair: &mut Pair) -> Psn {
    let (mut view, slot) = pair.view(0);
    let at = path(&view, slot, 0);
    let next = &mut view.paths.at_mut(at).sending.psn_next;
    let psn = *next;
    *next = psn.plus(1);
    psn
}

fn hand_in(pair: &mut Pair, bytes: &[u8]) -> Disposition {
    let source = address(0, 0, 50_000);
    let datagram = Datagram { source, plane: 0, ecn: crate::Ecn::Ect0, bytes };
    pair.ends[1].handle_datagram(pair.now, datagram, &mut Anywhere)
}

#[test]
fn a_probe_does_not_prove_where_the_newest_psn_is_and_data_does() {
    //= MR-SEC-11 test
    let mut pair = Pair::new(1, 1, |_| {});
    let far = next_psn(&mut pair).plus(300);
    let first = packet_of_data(&mut pair, 0);
    assert_eq!(hand_in(&mut pair, &first), Disposition::Consumed);
    // Anyone who guesses may send a PROBE; data that comes next starts the vector anew.
    let question = probe(&mut pair, far, 0);
    assert_eq!(hand_in(&mut pair, &question), Disposition::Consumed);
    let next = packet_of_data(&mut pair, 1);
    assert_eq!(hand_in(&mut pair, &next), Disposition::Consumed);
    assert_eq!(largest(&mut pair), next_psn(&mut pair).minus(1));
    // What comes after data that is as new does not.
    let (mut view, slot) = pair.view(0);
    let at = path(&view, slot, 0);
    let next = &mut view.paths.at_mut(at).sending.psn_next;
    *next = next.plus(300);
    let after = *next;
    let newest = packet_of_data(&mut pair, 2);
    assert_eq!(hand_in(&mut pair, &newest), Disposition::Consumed);
    let late = packet_at(&mut pair, after.minus(299), 3);
    assert_eq!(hand_in(&mut pair, &late), Disposition::Consumed);
    assert_eq!(largest(&mut pair), after);
}

/// The newest PSN of end 1's path 0.
fn largest(pair: &mut Pair) -> Psn {
    let now = pair.now;
    let (mut view, slot) = pair.view(1);
    let at = path(&view, slot, 0);
    let body = crate::connection::AckSnapshot::EMPTY.body;
    view.paths.at_mut(at).received.acknowledge(now, body).0.largest
}

fn packet_of_data(pair: &mut Pair, number: u32) -> Vec<u8> {
    let psn = next_psn(pair);
    packet_at(pair, psn, number)
}

/// A WRITE of nothing, the one with this number of its connection and stream.
fn packet_at(pair: &mut Pair, psn: Psn, number: u32) -> Vec<u8> {
    let (view, slot) = pair.view(0);
    let csn = view.connections.at(slot).outbound.next_csn.plus(number);
    let header = DataHeader {
        opcode: Opcode::Write,
        flags: OpFlags::LAST,
        stream: StreamId(0),
        csn,
        msn: Msn::new(number),
        offset: 0,
        length: 0,
        receive_index: ReceiveIndex::new(0),
        demand_kib: 0,
        remote: Some(crate::wire::Remote { key: crate::RegionKey(1), address: 0 }),
        operands: None,
        match_bits: None,
        immediate: None,
        signal: None,
    };
    packet(pair, PacketType::Data, psn, |out| header.emit(out).unwrap())
}

#[test]
fn a_sender_that_uses_little_of_its_share_is_measured_by_what_it_sends_with_its_framing() {
    //= MR-CC-20 test
    // 8 Gbit/s: a byte is a nanosecond. Its share is half of 7.84; it sends 130 bytes every 1,300 ns, a tenth.
    let mut pair = Pair::new(1, 1, |config| {
        config.inbound_rate_kbps = 8_000_000;
        config.rtt_ns_initial = 100 * US;
    });
    let now = pair.now;
    let (mut view, slot) = pair.view(1);
    let planes = view.connections.at(slot).planes;
    let other = view.connections.allocate(Connection { planes, ..Connection::EMPTY }).unwrap();
    // It has no timer: it asks for as much for ever.
    view.connections.at_mut(other).clock.armed = Instant::ZERO;
    let share = |pair: &mut Pair, slot| {
        let (mut view, _) = pair.view(1);
        crate::connection::inflow::share_kbps(&mut view, slot, 0)
    };
    let claim = crate::share::Claim { timestamp: now.wire_timestamp(), bytes: 4_162, demand_kib: 1 << 20 };
    crate::connection::inflow::on_packet(&mut view, now, other, 0, claim);
    let mut shares = Vec::new();
    for number in 0..2_000 {
        pair.run(1_300);
        let psn = next_psn(&mut pair);
        let bytes = probe(&mut pair, psn, 1 << 20);
        assert_eq!(hand_in(&mut pair, &bytes), Disposition::Consumed);
        pair.take(1);
        if number % 500 == 250 {
            shares.push(share(&mut pair, other));
        }
    }
    assert_eq!(shares[0], 3_920_000, "what it asks for counts at first");
    // Then twice what it was measured at: 130 bytes in 1,300 ns are 800,000 kbit/s.
    let left = 7_840_000 - 2 * 800_000;
    assert!(shares[3].abs_diff(left) < left / 50, "{shares:?}");
}

/// What the connection of an end owes, written into `room` descriptors.
fn controls(view: &mut View<'_>, now: Instant, slot: Idx<Connection>, room: usize) -> usize {
    let mut out = vec![Transmit::EMPTY; room];
    let mut sink = Sink::new(&mut out);
    control::fill(view, now, slot, &mut sink);
    sink.used()
}

#[test]
fn an_accept_goes_to_an_unverified_address_only_if_as_much_came_from_there() {
    //= MR-HS-21 test
    let mut pair = Pair::new(2, 1, |_| {});
    let now = pair.now;
    let (mut view, slot) = pair.view(1);
    view.connections.at_mut(slot).owed.accept = true;
    view.connections.at_mut(slot).unverified = None;
    let mut out = [Transmit::EMPTY];
    let mut sink = Sink::new(&mut out);
    control::fill(&mut view, now, slot, &mut sink);
    assert_eq!(sink.used(), 1);
    let bytes = u32::try_from(out[0].datagram_length()).unwrap();
    for (left, room, sent, owed, then) in [
        (bytes, 1, 1, false, 0),
        (bytes + 9, 1, 1, false, 9),
        (bytes - 1, 1, 0, false, bytes - 1),
        // Without a descriptor it is owed still, and nothing was used up.
        (bytes, 0, 0, true, bytes),
    ] {
        let owner = view.connections.at_mut(slot);
        (owner.owed.accept, owner.unverified) = (true, Some(left));
        assert_eq!(controls(&mut view, now, slot, room), sent, "{left} bytes");
        let owner = view.connections.at(slot);
        assert_eq!((owner.owed.accept, owner.unverified), (owed, Some(then)));
    }
}

#[test]
fn what_is_owed_goes_each_in_one_packet_of_its_kind_and_once() {
    let mut pair = Pair::new(1, 1, |_| {});
    let now = pair.now;
    let (mut view, slot) = pair.view(1);
    let quote = [9; crate::wire::QUOTE_BYTES];
    let owner = view.connections.at_mut(slot);
    owner.owed.accept = true;
    owner.owed.confirm = true;
    owner.owed.reject = Some(RejectReason::Busy);
    owner.owed.close = true;
    (owner.owed.close_ack, owner.owed.close_ack_quote) = (true, Some(quote));
    let mut kinds = Vec::new();
    // One descriptor at a time: the others stay owed.
    for left in (0..6).rev() {
        let mut out = [Transmit::EMPTY];
        let mut sink = Sink::new(&mut out);
        control::fill(&mut view, now, slot, &mut sink);
        assert_eq!(sink.used(), usize::from(left > 0));
        if left > 0 {
            let (_, body) = Base::parse(out[0].header()).unwrap();
            kinds.push(match Control::parse(body).unwrap().0 {
                Control::Accept(_) => "accept",
                Control::Confirm(_) => "confirm",
                Control::Reject(_) => "reject",
                Control::Close(_) => "close",
                Control::CloseAck(close) if close.quote == Some(quote) => "close_ack",
                _ => "another",
            });
        }
    }
    assert_eq!(kinds, ["accept", "confirm", "reject", "close", "close_ack"]);
}

#[test]
fn closing_an_incoming_connection_refuses_it() {
    let mut pair = Pair::new(1, 1, |_| {});
    let now = pair.now;
    let ours = pair.ends[0].connect(now, ConnectOptions::to(address(1, 0, PORT))).unwrap();
    pair.exchange();
    let Some(Event::Incoming { connection, .. }) = pair.ends[1].poll_event() else { panic!("none") };
    let half_open = |pair: &mut Pair| *pair.view(1).0.half_open;
    assert_eq!(half_open(&mut pair), 1);
    pair.ends[1].close(now, connection, CloseMode::Drain).unwrap();
    pair.exchange();
    assert_eq!(half_open(&mut pair), 0);
    let closed = |event: Option<Event>| match event {
        Some(Event::Closed { reason, .. }) => Some(reason),
        _ => None,
    };
    assert_eq!(closed(pair.ends[1].poll_event()), Some(CloseReason::Local));
    assert_eq!(closed(pair.ends[0].poll_event()), Some(CloseReason::Rejected(RejectReason::Closed)));
    assert_eq!(pair.ends[0].connection_stats(ours).unwrap().state, ConnectionState::Resting);
}

#[test]
fn whoever_is_heard_of_or_gone_counts_no_more_among_the_half_open_of_its_address() {
    //= MR-HS-32 test
    let mut pair = Pair::new(1, 1, |config| config.half_open_per_address = 2);
    let entries = |pair: &mut Pair| pair.view(1).0.index.len();
    let before = entries(&mut pair);
    let open = |pair: &mut Pair| {
        let now = pair.now;
        pair.ends[0].connect(now, ConnectOptions::to(address(1, 0, PORT))).unwrap();
        pair.exchange();
        match pair.ends[1].poll_event() {
            Some(Event::Incoming { connection, .. }) => Some(connection),
            _ => None,
        }
    };
    let (first, second) = (open(&mut pair).unwrap(), open(&mut pair).unwrap());
    assert_eq!(open(&mut pair), None, "two are half open");
    let hits = pair.ends[1].stats().limits_hit[Limit::HalfOpenPerAddress as usize];
    assert_eq!(hits, 1);
    assert!(pair.ends[1].stats().dropped[DropReason::NoRoom as usize] > 0);
    let now = pair.now;
    pair.ends[1].reject(now, first, RejectReason::Busy, b"").unwrap();
    pair.ends[1].reject(now, second, RejectReason::Busy, b"").unwrap();
    pair.exchange();
    // Once they have rested nothing is left of them, nor of their address.
    pair.run(20 * MS);
    pair.take(1);
    let (view, _) = pair.view(1);
    assert_eq!(*view.half_open, 0);
    assert_eq!(entries(&mut pair), before);
}

#[test]
fn a_close_is_answered_according_to_the_state() {
    //= MR-CLS-5 test
    //= MR-CLS-10 test
    let mut pair = Pair::new(1, 1, |_| {});
    let now = pair.now;
    let (mut view, slot) = pair.view(1);
    let owner = view.connections.at(slot);
    let close = crate::wire::Close {
        reason: 0,
        next_csn: Csn::new(0),
        sender: owner.ids.remote,
        nonce_xor: owner.ids.local_nonce ^ owner.ids.remote_nonce,
        quote: None,
    };
    let base = Base {
        kind: PacketType::Control,
        flags: 0,
        path: PathId(0),
        epoch: 0,
        connection: owner.ids.local,
        psn: Psn::new(0),
        timestamp: 0,
        checksum: 0,
    };
    let attempt = crate::connection::Attempt::at(now);
    for (state, answer, name) in [
        (State::Closing { attempt }, true, ConnectionState::Ending),
        (State::Ending { reason: CloseReason::Local }, true, ConnectionState::Ending),
        (State::Resting { until: now.after(MS) }, true, ConnectionState::Resting),
        (State::Open, true, ConnectionState::Ending),
    ] {
        let owner = view.connections.at_mut(slot);
        (owner.state, owner.owed.close_ack) = (state, false);
        let result = crate::connection::close::on_close(&mut view, now, slot, &base, &close);
        assert_eq!(result, Disposition::Consumed);
        let owner = view.connections.at(slot);
        assert_eq!((owner.owed.close_ack, owner.state.name()), (answer, name), "{state:?}");
    }
    view.connections.at_mut(slot).state = State::Incoming;
    let result = crate::connection::close::on_close(&mut view, now, slot, &base, &close);
    assert_eq!(result, Disposition::Dropped(DropReason::UnexpectedState));
    let forged = crate::wire::Close { nonce_xor: close.nonce_xor ^ 1, ..close };
    let result = crate::connection::close::on_close(&mut view, now, slot, &base, &forged);
    assert_eq!(result, Disposition::Dropped(DropReason::BadProof));
}
