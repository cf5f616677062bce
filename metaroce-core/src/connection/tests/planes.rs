//! Addresses that a peer listed: what may be asked there, how often, and what an answer proves.

use super::*;
use crate::connection::output::Sink;
use crate::connection::planes::{
    PlaneSet, fill_probes, leave_index, on_timer, on_token, own_addresses, own_paths_each, stats,
};
use crate::connection::{Recent, close, probes};
use crate::event::CloseReason;
use crate::rng::{Keyed, Secrets};
use crate::stats::PlaneState;
use crate::wire::{PacketType, Probe};

/// What end 0 asks of the address of plane 1 now, into so many descriptors: the tokens.
fn ask(view: &mut View<'_>, now: Instant, slot: Idx<Connection>, room: usize) -> (Vec<u64>, bool) {
    let mut out = vec![Transmit::EMPTY; room];
    let mut sink = Sink::new(&mut out);
    let left = fill_probes(view, now, slot, &mut sink);
    let used = sink.used();
    let token = |transmit: &Transmit| {
        let mut bytes = transmit.header().to_vec();
        bytes.resize(transmit.datagram_length(), 0);
        let (base, body) = Base::parse(&bytes).unwrap();
        assert_eq!((base.kind, transmit.plane), (PacketType::Probe, 1));
        Probe::parse(body).unwrap().0.token
    };
    (out[..used].iter().map(token).collect(), left)
}

/// A pair of two planes whose end 0 has no answer from plane 1 yet.
fn unanswered(paths: u8) -> Pair {
    let mut pair = Pair::new(2, paths, |_| {});
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    let own = view.config.planes;
    let mut secrets = Secrets::new(Keyed::new([1, 2]));
    let owner = view.connections.at_mut(slot);
    owner.planes.agree(
        &own,
        &PlaneAddresses::from_slice(&[address(1, 1, PORT)]).unwrap(),
        paths,
        &mut secrets,
    );
    let numbers: Vec<u8> = (paths..2 * paths).collect();
    set_states(&mut view, slot, &numbers, PathState::Unverified);
    on_timer(&mut view, now, slot);
    pair
}

#[test]
fn an_address_is_asked_three_times_after_an_rto_each_and_then_every_second() {
    //= MR-HS-25 test
    let mut pair = unanswered(2);
    let mut now = pair.now;
    let (mut view, slot) = pair.view(0);
    let mut tokens = Vec::new();
    for delay in [100 * US, 100 * US, 1_000 * MS, 1_000 * MS] {
        let (asked, left) = ask(&mut view, now, slot, 9);
        assert_eq!((asked.len(), left), (1, false));
        tokens.extend(asked);
        let next = on_timer(&mut view, now, slot);
        let wait = next.since(now);
        assert!(wait >= delay - delay / 10 && wait <= delay + delay / 10, "{wait} of {delay}");
        assert!(view.connections.at(slot).clock.armed <= next);
        assert!(ask(&mut view, now, slot, 9).0.is_empty(), "not before its time");
        assert_eq!(on_timer(&mut view, Instant::from_nanos(next.as_nanos() - 1), slot), next);
        assert!(ask(&mut view, now, slot, 9).0.is_empty());
        on_timer(&mut view, next, slot);
        now = next;
        // Only the newest is in flight.
        let at = path(&view, slot, 2);
        assert_eq!(view.paths.at(at).sending.in_flight.len(), 1);
    }
    assert!(tokens.windows(2).all(|pair| pair[0] == pair[1]), "one question");
}

#[test]
fn a_question_that_finds_no_descriptor_stays_owed() {
    let mut pair = unanswered(1);
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    assert_eq!(ask(&mut view, now, slot, 0), (vec![], true));
    let mut taken = Vec::new();
    while view.transmissions.available() > 0 {
        taken.push(view.transmissions.allocate(crate::path::Transmission::EMPTY).unwrap());
    }
    assert_eq!(ask(&mut view, now, slot, 1), (vec![], true));
    view.transmissions.free(taken[0]);
    assert_eq!(ask(&mut view, now, slot, 1).0.len(), 1);
}

#[test]
fn nothing_is_asked_on_the_word_of_a_peer_that_has_not_answered_itself() {
    //= MR-HS-35 test
    let mut pair = unanswered(1);
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    ask(&mut view, now, slot, 1);
    view.connections.at_mut(slot).unverified = Some(9);
    assert_eq!(on_timer(&mut view, now.after(1_000 * MS), slot), Instant::FAR_FUTURE);
    assert!(ask(&mut view, now.after(1_000 * MS), slot, 1).0.is_empty());
    let mut out = [Transmit::EMPTY];
    view.paths.at_mut(path(&view, slot, 0)).timeouts.probe_owed = true;
    let mut sink = Sink::new(&mut out);
    assert!(!probes::fill(&mut view, now, slot, &mut sink));
    assert_eq!(sink.used(), 0);
}

#[test]
fn only_the_token_that_was_sent_there_opens_the_paths_of_a_plane() {
    let mut pair = unanswered(2);
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    let token = ask(&mut view, now, slot, 9).0[0];
    let (first, third) = (path(&view, slot, 0), path(&view, slot, 2));
    let state = |view: &View<'_>| stats(view, slot, 1).map(|stats| (stats.state, stats.paths_good));
    on_token(&mut view, now, slot, third, token ^ 1);
    on_token(&mut view, now, slot, first, token);
    assert_eq!(state(&view), Some((PlaneState::Unverified, 0)));
    assert_eq!(view.connections.at(slot).planes.verified(), 1);
    let later = now.after(7);
    on_token(&mut view, later, slot, third, token);
    assert_eq!(state(&view), Some((PlaneState::Up, 2)));
    assert_eq!(view.connections.at(slot).planes.verified(), 2);
    for number in [2, 3] {
        let path = view.paths.at(path(&view, slot, number));
        assert_eq!((path.timeouts.since, path.probing.owed), (later, true));
        assert_eq!(path.recent, Recent::NEW);
    }
    assert_eq!(stats(&view, slot, 2), None);
}

#[test]
fn stats_of_a_plane_count_parked_paths_as_good_while_another_is_in_use() {
    let mut pair = Pair::new(2, 3, |_| {});
    let (mut view, slot) = pair.view(0);
    for (states, good) in [
        ([PathState::Good, PathState::Parked, PathState::Dead], 2),
        ([PathState::Parked, PathState::Parked, PathState::Dead], 0),
        ([PathState::Good, PathState::Good, PathState::Congested], 3),
        ([PathState::Dead, PathState::Probing, PathState::Suspect], 0),
    ] {
        for (number, state) in (3..).zip(states) {
            set_states(&mut view, slot, &[number], state);
        }
        let stats = stats(&view, slot, 1).unwrap();
        assert_eq!((stats.paths, stats.paths_good), (3, good), "{states:?}");
    }
}

#[test]
fn an_address_that_cannot_be_a_peer_s_is_not_asked() {
    //= MR-HS-33 test
    let v4 = |a, b, c, d, port| SocketAddr::new(IpAddr::V4(Ipv4Addr::new(a, b, c, d)), port);
    let (host, local) = (v4(10, 0, 0, 1, PORT), v4(127, 0, 0, 1, PORT));
    for (peer, listed, asked) in [
        (host, v4(10, 0, 1, 1, PORT), true),
        (host, v4(10, 0, 1, 1, 0), false),
        (host, v4(0, 0, 0, 0, PORT), false),
        (host, v4(224, 0, 0, 1, PORT), false),
        (host, v4(255, 255, 255, 255, PORT), false),
        (host, v4(127, 0, 0, 2, PORT), false),
        (local, v4(127, 0, 0, 2, PORT), true),
    ] {
        let mut planes = PlaneSet::new(0, peer);
        let list = PlaneAddresses::from_slice(&[listed]).unwrap();
        planes.agree(&list, &list, 1, &mut Secrets::new(Keyed::new([1, 2])));
        assert_eq!((planes.count(), planes.is_verified(1)), (2, false));
        let mut pair = Pair::new(2, 1, |_| {});
        let now = pair.now;
        let (mut view, slot) = pair.view(0);
        view.connections.at_mut(slot).planes = planes;
        on_timer(&mut view, now, slot);
        assert_eq!(ask(&mut view, now, slot, 9).0.len(), usize::from(asked), "{listed} of {peer}");
    }
}

#[test]
fn packets_may_come_from_listed_addresses_and_proofs_from_verified_ones() {
    let mut pair = unanswered(1);
    let (view, slot) = pair.view(0);
    let planes = &view.connections.at(slot).planes;
    let ip = |end, plane| address(end, plane, 1).ip();
    assert!(planes.may_send_from(0, ip(1, 0)) && planes.may_send_from(1, ip(1, 1)));
    assert!(planes.may_send_from(1, ip(1, 0)), "by another plane than it is known for");
    assert!(!planes.may_send_from(0, ip(1, 2)) && !planes.may_send_from(9, ip(0, 0)));
    assert!(planes.receives_at(address(1, 0, PORT)));
    assert!(!planes.receives_at(address(1, 1, PORT)), "it was only listed");
    assert!(!planes.receives_at(address(1, 0, PORT + 1)));
}

#[test]
fn planes_and_paths_are_as_many_as_both_ends_and_the_tables_hold() {
    //= MR-HS-34 test
    //= MR-PATH-1 test
    let list = |count: u8| {
        let all: Vec<_> = (1..=count).map(|plane| address(0, plane, PORT)).collect();
        PlaneAddresses::from_slice(&all).unwrap()
    };
    for (listed, paths_per_plane, table, home, addresses, each) in [
        (0, 8, 8, 0, 0, 8),
        (3, 8, 8, 0, 3, 2),
        (3, 1, 8, 0, 3, 1),
        (3, 8, 3, 0, 2, 1),
        (7, 8, 1, 0, 0, 1),
        (7, 64, 64, 0, 7, 8),
        (3, 8, 8, 2, 0, 8),
        (2, 8, 8, 0, 2, 2),
    ] {
        let config = Config { planes: list(listed), paths_per_plane, ..Config::hardware(1) };
        let own = own_addresses(&config, table, home);
        let found = (own.len(), own_paths_each(&config, table, &own));
        assert_eq!(found, (addresses, each), "{listed} {paths_per_plane} {table} {home}");
    }
    let mut planes = PlaneSet::new(3, address(1, 0, PORT));
    planes.agree(&list(2), &list(5), 4, &mut Secrets::new(Keyed::new([1, 2])));
    assert_eq!((planes.count(), planes.paths(), planes.paths_each()), (3, 12, 4));
    assert_eq!([0, 3, 4, 11].map(|path| planes.plane_of(PathId(path))), [0, 0, 1, 2]);
    assert_eq!(planes.paths_of(1).map(|id| id.0).collect::<Vec<_>>(), [4, 5, 6, 7]);
    assert_eq!([0, 1, 2].map(|plane| planes.local(plane)), [3, 1, 2]);
}

#[test]
fn a_connection_that_is_gone_is_found_by_none_of_its_peer_s_addresses() {
    let mut pair = Pair::new(3, 1, |_| {});
    let (mut view, slot) = pair.view(0);
    let before = view.index.len();
    leave_index(&mut view, slot);
    assert_eq!(view.index.len(), before - 3);
    let mut pair = Pair::new(3, 1, |_| {});
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    close::finish(&mut view, now, slot, CloseReason::Local);
    pair.take(0);
    pair.run(20 * MS);
    pair.take(0);
    assert_eq!(pair.view(0).0.index.len(), 0);
}
