//! What is counted: each packet once, where it belongs.

use super::*;
use crate::connection::{Attempt, State};
use crate::ids::{RegionKey, StreamId};
use crate::request::{Operation, RemoteAddress, Segment, WorkRequest};
use crate::stats::{ConnectionState, ConnectionStats, DropReason};
use crate::wire::PacketType;

/// A region of an end, of 20,000 bytes.
fn region(pair: &mut Pair, end: usize) -> crate::RegisteredRegion {
    let domain = ProtectionDomain(0);
    let options =
        crate::RegionOptions { base_address: 0, length: 20_000, domain, access: crate::Access::ALL };
    pair.ends[end].register_region(options).unwrap()
}

fn stats(pair: &mut Pair, end: usize) -> ConnectionStats {
    let connection = pair.connections[end];
    pair.ends[end].connection_stats(connection).unwrap()
}

fn write(pair: &mut Pair, from: crate::RegionId, key: RegionKey, length: u32) {
    let segments = [Segment { region: from, offset: 0, length }];
    let remote = RemoteAddress { key, address: 0 };
    let request = WorkRequest::new(1, Operation::Write { remote, immediate: None }, &segments);
    let (now, connection) = (pair.now, pair.connections[0]);
    pair.ends[0].post(now, connection, StreamId(0), request).unwrap();
}

fn is_data(transmit: &Transmit) -> bool {
    Base::parse(transmit.header()).unwrap().0.kind == PacketType::Data
}

fn take_data(pair: &mut Pair) -> Vec<Transmit> {
    pair.take(0).into_iter().filter(is_data).collect()
}

/// A pair at rest.
fn quiet() -> Pair {
    let mut pair = Pair::new(1, 1, |_| {});
    pair.run(MS);
    pair.exchange();
    pair.run(MS);
    pair
}

#[test]
fn packets_bytes_copies_and_losses_are_counted_at_both_ends() {
    let mut pair = quiet();
    let (from, to) = (region(&mut pair, 0).id, region(&mut pair, 1).key);
    let before = [0, 1].map(|end| stats(&mut pair, end));
    let endpoints = [0, 1].map(|end| *pair.ends[end].stats());
    // 20,000 bytes are four packets of 4,096 and one of 3,616. The first is lost, the second comes twice.
    write(&mut pair, from, to, 20_000);
    let packets = take_data(&mut pair);
    assert_eq!(packets.len(), 5);
    let bytes: usize = packets.iter().map(Transmit::datagram_length).sum();
    assert_eq!(stats(&mut pair, 0).bytes_in_flight, bytes as u64);
    assert_eq!(pair.deliver(0, &packets[1]), Disposition::Consumed);
    assert_eq!(pair.deliver(0, &packets[1]), Disposition::Duplicate);
    for packet in &packets[2..] {
        assert_eq!(pair.deliver(0, packet), Disposition::Consumed);
    }
    pair.exchange();
    // Its share lets the next one out.
    pair.run(10 * US);
    pair.exchange();
    let [sender, receiver] = [0, 1].map(|end| stats(&mut pair, end));
    let expected = ConnectionStats {
        packets_sent: before[0].packets_sent + 6,
        bytes_sent: before[0].bytes_sent + 20_000 + 4_096,
        lost: before[0].lost + 1,
        retransmitted: before[0].retransmitted + 1,
        streams: 1,
        ..before[0]
    };
    assert_eq!(sender, expected);
    let expected = ConnectionStats {
        packets_accepted: before[1].packets_accepted + 5,
        bytes_placed: before[1].bytes_placed + 20_000,
        duplicates_received: before[1].duplicates_received + 1,
        streams: 1,
        ..before[1]
    };
    assert_eq!(receiver, expected);
    let after = [0, 1].map(|end| *pair.ends[end].stats());
    assert_eq!(after[1].duplicates - endpoints[1].duplicates, 1);
    assert_eq!(after[1].refused, endpoints[1].refused);
    let connection = pair.connections[0];
    let path = pair.ends[0].path_stats(connection, PathId(0)).unwrap();
    assert_eq!(path.packets_lost, 1);
    assert_eq!(path.packets_sent, path.packets_delivered + 1, "all but the lost one");
}

#[test]
fn refusals_and_faults_are_counted_at_both_ends() {
    let mut pair = quiet();
    let from = region(&mut pair, 0).id;
    let before = [0, 1].map(|end| *pair.ends[end].stats());
    let refused = stats(&mut pair, 0).refused;
    write(&mut pair, from, RegionKey(1), 5_000);
    pair.exchange();
    let after = [0, 1].map(|end| *pair.ends[end].stats());
    assert_eq!(
        after[1].access_faults - before[1].access_faults,
        1,
        "the rest of the message is refused as such"
    );
    assert_eq!(after[1].refused - before[1].refused, 2);
    assert!(stats(&mut pair, 0).refused - refused <= 2);
    assert_eq!(stats(&mut pair, 1).bytes_placed, 0);
}

#[test]
fn what_is_dropped_is_counted_by_its_reason_and_what_is_taken_is_not() {
    let mut pair = quiet();
    let (from, to) = (region(&mut pair, 0).id, region(&mut pair, 1).key);
    write(&mut pair, from, to, 8);
    let packet = take_data(&mut pair).remove(0);
    let before = *pair.ends[1].stats();
    let drop = |pair: &mut Pair, change: &dyn Fn(&mut Transmit)| {
        let mut changed = packet.clone();
        change(&mut changed);
        pair.deliver(0, &changed)
    };
    for (offset, mask, reason) in [
        (0, 0xf0, DropReason::Version),
        (2, 0x01, DropReason::UnknownPath),
        (4, 0x80, DropReason::UnknownConnection),
        (24, 0x80, DropReason::CsnOutsideWindow),
    ] {
        let result = drop(&mut pair, &|transmit| transmit.header[offset] ^= mask);
        assert_eq!(result, Disposition::Dropped(reason), "byte {offset}");
        let now = pair.ends[1].stats();
        assert_eq!(now.dropped[reason as usize], before.dropped[reason as usize] + 1);
    }
    let dropped: u64 = pair.ends[1].stats().dropped.iter().sum();
    assert_eq!(dropped, before.dropped.iter().sum::<u64>() + 4);
    assert_eq!(pair.ends[1].stats().datagrams_received, before.datagrams_received);
    assert_eq!(pair.deliver(0, &packet), Disposition::Consumed);
    assert_eq!(pair.ends[1].stats().datagrams_received, before.datagrams_received + 1);
    let sent = pair.ends[1].stats().datagrams_sent;
    let answers = pair.take(1).len() as u64;
    assert_eq!(pair.ends[1].stats().datagrams_sent, sent + answers);
}

#[test]
fn each_state_has_its_name() {
    let mut pair = quiet();
    let now = pair.now;
    let attempt = Attempt::at(now);
    for (state, name) in [
        (State::Connecting { attempt, cookie: [0; 16] }, ConnectionState::Connecting),
        (State::Incoming, ConnectionState::Incoming),
        (State::Accepting { attempt }, ConnectionState::Accepting),
        (State::Open, ConnectionState::Open),
        (State::Draining, ConnectionState::Draining),
        (State::Closing { attempt }, ConnectionState::Closing),
        (State::PeerClosing, ConnectionState::PeerClosing),
        (State::Ending { reason: crate::CloseReason::Local }, ConnectionState::Ending),
        (State::Resting { until: now }, ConnectionState::Resting),
    ] {
        let (mut view, slot) = pair.view(0);
        view.connections.at_mut(slot).state = state;
        let owner = view.connections.at_mut(slot);
        let open =
            matches!(name, ConnectionState::Connecting | ConnectionState::Accepting | ConnectionState::Open);
        assert_eq!(owner.takes_new_work(), open, "{name:?}");
        owner.unverified = None;
        let requests = matches!(
            name,
            ConnectionState::Accepting
                | ConnectionState::Open
                | ConnectionState::Draining
                | ConnectionState::PeerClosing
        );
        assert_eq!(owner.may_send_requests(), requests, "{name:?}");
        owner.unverified = Some(1);
        assert!(!owner.may_send_requests());
        owner.unverified = None;
        assert_eq!(owner.takes_packets(), requests || name == ConnectionState::Closing, "{name:?}");
        assert_eq!(stats(&mut pair, 0).state, name);
    }
}

#[test]
fn a_route_is_another_epoch_and_what_was_sent_is_known_for_half_of_the_numbers() {
    use crate::ids::{Psn, Serial};
    let mut path = Path::EMPTY;
    let first = Psn::new(u32::MAX - 2);
    (path.sending.psn_first, path.sending.psn_next) = (first, first);
    assert!(!path.was_sent(first));
    path.sending.psn_next = first.plus(6);
    for (back, sent) in [(0, false), (1, true), (6, true), (7, false)] {
        assert_eq!(path.was_sent(path.sending.psn_next.minus(back)), sent, "{back}");
    }
    path.counters.sent = 1 << 31;
    let next = path.sending.psn_next;
    for (back, sent) in [(7, true), ((1 << 31) - 1, true), (1 << 31, false)] {
        assert_eq!(path.was_sent(next.minus(back)), sent, "{back}");
    }
    path.counters.sent = (1 << 31) - 1;
    assert!(!path.was_sent(next.minus(7)));
    path.epoch = 255;
    path.recent.marked = 9;
    path.move_to(50_001);
    assert_eq!((path.epoch, path.source_port, path.counters.repaths, path.recent.marked), (0, 50_001, 1, 0));
}

#[test]
fn returns_of_a_path_that_flaps_take_ever_more_answers() {
    //= MR-PATH-24 test
    let mut returns = crate::path::Path::EMPTY.timeouts.returns;
    let mut now = Instant::from_nanos(5);
    for (later, answers) in [
        (0, 3),
        (1_000 * MS - 1, 6),
        (1_000 * MS - 1, 12),
        (0, 24),
        (1, 24),
        (1_000 * MS, 3),
        (1_000 * MS - 1, 6),
    ] {
        now = now.after(later);
        returns.on_return(now);
        assert_eq!((returns.answers, returns.last), (answers, Some(now)), "{later}");
    }
}

#[test]
fn a_window_that_grows_shortens_the_wait_for_its_pace() {
    let now = Instant::from_nanos(1_000);
    for (before, after, wait) in
        [(1_000, 2_000, 500), (1_000, 1_000, 1_000), (2_000, 1_000, 1_000), (1, 3, 333)]
    {
        let mut path = Path::EMPTY;
        path.sending.pace_until = now.after(1_000);
        path.sending.on_window(now, before, after);
        assert_eq!(path.sending.pace_until, now.after(wait), "{before} {after}");
        path.sending.pace_until = now;
        path.sending.on_window(now.after(1), 1, 2);
        assert_eq!(path.sending.pace_until, now, "it is over");
    }
}
