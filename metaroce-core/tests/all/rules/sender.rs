//! Sections 6 to 10: what an endpoint sends, and sends again, by what its peer acknowledges.

use std::collections::BTreeSet;

use metaroce_core::ids::{Msn, Psn, ReceiveIndex, Serial};
use metaroce_core::wire::{DataHeader, Frame, NackReason, OpFlags, Opcode, PacketType};
use metaroce_core::{PathId, PathState, PathStats, Status, StreamId};

use super::script::{Script, vector};
use super::tape::{Sent, csn_number};
use crate::common::pair::outcome;
use crate::common::{MS, packets};

/// A DATA packet of host 1: path, PSN, header, time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    pub(super) path: u8,
    pub(super) psn: Psn,
    pub(super) header: DataHeader,
    time_ns: u64,
    bytes: usize,
    number: u32,
}

fn packets_of(script: &Script, sent: &[Sent]) -> Vec<Packet> {
    let of = |sent: &Sent| {
        let header = sent.data()?;
        let base = sent.base();
        let number = csn_number(&script.tape, 1, header.csn);
        let (time_ns, bytes) = (sent.time_ns, sent.bytes.len());
        Some(Packet { path: base.path.0, psn: base.psn, header, time_ns, bytes, number })
    };
    sent.iter().filter_map(of).collect()
}

pub(super) fn data(script: &mut Script) -> Vec<Packet> {
    let sent = script.sent();
    packets_of(script, &sent)
}

pub(super) fn accept(script: &mut Script, packets: &[Packet]) {
    for packet in packets {
        script.ack(packet.path, packet.psn, &[0], &[]);
    }
}

pub(super) fn path(script: &mut Script, number: u8) -> PathStats {
    let connection = script.pair.connection[1];
    script.pair.net.hosts[1].endpoint.path_stats(connection, PathId(number)).unwrap()
}

fn numbers(packets: &[Packet]) -> Vec<u32> {
    packets.iter().map(|packet| packet.number).collect()
}

/// One path, no tolerance of reordering.
fn one_path(seed: u64) -> Script {
    Script::with(seed, |_, config, _| {
        config.paths_per_plane = 1;
        config.reorder_tolerance = 0;
    })
}

#[test]
//= MR-DLV-8 test
//= MR-DLV-9 test
fn csns_are_given_in_order_and_never_beyond_the_window_of_the_peer() {
    let mut script = Script::with(1, |host, _, limits| {
        if host == 0 {
            limits.csn_window = 64;
        }
    });
    script.pair.write(1, 0, 1, 0..2_000_000, 0, None);
    let mut next = 0;
    let mut first = None;
    for _ in 0..200 {
        let sent = data(&mut script);
        for packet in &sent {
            if packet.number == 0 {
                first = Some(*packet);
                continue;
            }
            if packet.number > next {
                assert_eq!(packet.number, next + 1, "in the order of first sending");
                next = packet.number;
            }
            script.ack(packet.path, packet.psn, &[0], &[]);
        }
        script.run(20_000);
    }
    assert_eq!(next, 63, "the first is not judged: the window ends 64 behind it");
    accept(&mut script, &[first.unwrap()]);
    assert!(data(&mut script).iter().any(|packet| packet.number > 63));
}

#[test]
//= MR-DLV-10 test
//= MR-DLV-12 test
//= MR-STR-15 test
//= MR-STR-16 test
fn refused_packets_go_again_in_order_after_their_delay_and_hold_up_their_stream_alone() {
    let mut script = Script::new(2);
    script.pair.send(1, 0, 1, 0..12_000);
    let first = data(&mut script);
    assert!(first.len() >= 3, "{first:?}");
    // Refused from the last to the first.
    let nack = Frame::Nack { stream: StreamId(0), reason: NackReason::NoReceive, delay_us: 3_000 };
    for packet in first.iter().rev() {
        script.ack(packet.path, packet.psn, &[], &[Frame::Refused(vector(&[0])), nack]);
    }
    script.pair.send(1, 0, 2, 0..10);
    script.pair.send(1, 2, 3, 0..10);
    let others = data(&mut script);
    assert!(others.iter().all(|packet| packet.header.stream == StreamId(2)), "{others:?}");
    assert_eq!(others.len(), 1, "another stream goes on");
    accept(&mut script, &others);
    script.run(2_500_000);
    assert!(data(&mut script).is_empty(), "before the delay is over");
    script.run(600_000);
    let again = data(&mut script);
    let refused: Vec<_> = again.iter().filter(|packet| packet.header.msn == Msn::new(0)).collect();
    let offsets: Vec<_> = refused.iter().map(|packet| packet.header.offset).collect();
    assert!(offsets.is_sorted() && offsets[0] == 0, "in offset order: {offsets:?}");
    let bytes: usize = refused.iter().map(|packet| packet.bytes - 48).sum();
    assert_eq!(bytes, 12_000);
    let highest = first.iter().chain(&others).map(|packet| packet.number).max().unwrap();
    assert!(refused.iter().all(|packet| packet.number > highest), "under new CSNs");
    // Again refused: credit that is ahead brings them back at once.
    for packet in &again {
        script.ack(packet.path, packet.psn, &[], &[Frame::Refused(vector(&[0])), nack]);
    }
    assert!(data(&mut script).is_empty());
    let credit = Frame::Credit { stream: StreamId(0), none_needed: false, posted: ReceiveIndex::new(50) };
    script.ack(again[0].path, again[0].psn, &[], &[Frame::Refused(vector(&[0])), credit]);
    assert!(data(&mut script).iter().any(|packet| packet.header.msn == Msn::new(0)));
}

#[test]
//= MR-STR-9 test
//= MR-STR-10 test
//= MR-WIRE-19 test
fn receive_indices_stay_below_the_initial_credits_and_then_below_the_credit() {
    let mut script = Script::with(3, |_, config, _| config.initial_credits = 4);
    for id in 0..10 {
        script.pair.send(1, 0, id, 0..10);
    }
    let credit =
        |posted| Frame::Credit { stream: StreamId(0), none_needed: false, posted: ReceiveIndex::new(posted) };
    let mut next = 0;
    for (frame, until) in [(None, 4), (Some(credit(3)), 4), (Some(credit(6)), 6), (Some(credit(5)), 6)] {
        if let Some(frame) = frame {
            script.ack_body(metaroce_core::wire::AckBody { flags: 1, ..super::script::EMPTY }, &[frame]);
        }
        for _ in 0..3 {
            let sent = data(&mut script);
            for packet in &sent {
                assert_eq!(packet.header.receive_index.raw(), next, "one by one");
                next += 1;
            }
            accept(&mut script, &sent);
        }
        assert_eq!(next, until, "after {frame:?}");
    }
}

#[test]
//= MR-STR-12 test
fn a_stream_without_credit_asks_ever_more_rarely_down_to_every_ten_milliseconds() {
    let mut script = Script::with(4, |_, config, _| config.initial_credits = 1);
    script.pair.send(1, 6, 1, 0..10);
    script.pair.send(1, 6, 2, 0..10);
    let mut asked = Vec::new();
    for _ in 0..2_000 {
        for sent in script.sent() {
            let base = sent.base();
            if sent.probe().is_some_and(|probe| probe.stream == StreamId(6)) {
                asked.push(sent.time_ns);
            }
            if base.kind.takes_psn() {
                script.ack(base.path.0, base.psn, &[0], &[]);
            }
        }
        script.run(50_000);
    }
    let gaps: Vec<_> = asked.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.len() > 10, "{gaps:?}");
    assert!(gaps[0] < MS && gaps[1] > gaps[0] * 3 / 2 && gaps[2] > gaps[1] * 3 / 2, "doubled: {gaps:?}");
    assert!(gaps.iter().rev().take(4).all(|gap| (9 * MS..11 * MS).contains(gap)), "at last: {gaps:?}");
}

#[test]
//= MR-STR-20 test
//= MR-STR-21 test
//= MR-STR-24 test
fn a_result_fails_its_request_and_flushes_later_ones_once_every_csn_is_judged() {
    let mut script = Script::new(5);
    for id in 0..4 {
        script.pair.send(1, 0, id, 0..10);
    }
    let sent = data(&mut script);
    assert_eq!(sent.len(), 4);
    accept(&mut script, &sent[..1]);
    let csn = script.next_csn();
    let result = packets::header(Opcode::Result, OpFlags::IMMEDIATE, StreamId(0), csn, Msn::new(1));
    script.data(0, DataHeader { immediate: Some(2), ..result }, b"");
    script.sent();
    assert_eq!(
        outcome(&script.pair.completions(1)),
        [(0, Status::Success)],
        "the others have no verdict yet"
    );
    accept(&mut script, &sent[1..3]);
    script.sent();
    let early = outcome(&script.pair.completions(1));
    assert!(early.iter().all(|(id, _)| *id != 3), "the last has none yet: {early:?}");
    accept(&mut script, &sent[3..]);
    let resets: Vec<_> =
        data(&mut script).into_iter().filter(|packet| packet.header.opcode == Opcode::StreamReset).collect();
    let all = [early, outcome(&script.pair.completions(1))].concat();
    assert_eq!(all, [(1, Status::RemoteOperation), (2, Status::Flushed), (3, Status::Flushed)]);
    assert_eq!(resets.len(), 1, "one STREAM_RESET, after its own requests have run out");
    accept(&mut script, &resets);
    script.run(5 * MS);
    assert!(data(&mut script).iter().all(|packet| packet.header.opcode != Opcode::StreamReset), "only one");
}

#[test]
//= MR-STR-22 test
fn the_codes_of_a_result_are_those_of_the_list() {
    for (code, status) in [
        (1, Status::RemoteAccess),
        (2, Status::RemoteOperation),
        (3, Status::RemoteInvalid),
        (4, Status::RnrExceeded),
        (5, Status::PeerClosed),
        (6, Status::Flushed),
        (7, Status::Flushed),
        (u32::MAX, Status::Flushed),
    ] {
        let mut script = Script::new(6);
        script.pair.send(1, 0, 1, 0..10);
        let sent = data(&mut script);
        accept(&mut script, &sent);
        script.sent();
        assert_eq!(outcome(&script.pair.completions(1)), [(1, Status::Success)]);
        script.pair.send(1, 2, 2, 0..10);
        let sent = data(&mut script);
        let csn = script.next_csn();
        let result = packets::header(Opcode::Result, OpFlags::IMMEDIATE, StreamId(2), csn, Msn::new(0));
        script.data(0, DataHeader { immediate: Some(code), ..result }, b"");
        accept(&mut script, &sent);
        script.sent();
        assert_eq!(outcome(&script.pair.completions(1)), [(2, status)], "code {code}");
    }
    // What this end sends: a WRITE with a key that nobody has.
    let mut script = Script::new(6);
    let write = script.write(0, 0, 1, 0);
    let remote =
        write.remote.map(|to| metaroce_core::wire::Remote { key: metaroce_core::RegionKey(1), ..to });
    script.data(0, DataHeader { remote, ..write }, b"x");
    let result = data(&mut script).into_iter().find(|packet| packet.header.opcode == Opcode::Result).unwrap();
    assert_eq!((result.header.immediate, result.header.msn), (Some(1), Msn::new(0)));
}

#[test]
//= MR-STR-24 test
fn a_stream_that_is_reset_here_tells_so_after_its_requests_have_their_verdict() {
    let mut script = Script::new(7);
    script.pair.send(1, 0, 1, 0..10);
    let sent = data(&mut script);
    script.pair.reset_stream(1, 0);
    assert!(data(&mut script).is_empty(), "the SEND is not judged yet");
    accept(&mut script, &sent);
    let resets = data(&mut script);
    let opcodes: Vec<_> = resets.iter().map(|packet| packet.header.opcode).collect();
    assert_eq!(opcodes, [Opcode::StreamReset]);
    assert!(resets[0].number > sent[0].number);
}

#[test]
//= MR-LOSS-6 test
//= MR-LOSS-1 test
fn the_tolerance_doubles_when_what_was_declared_lost_turns_out_delivered() {
    let mut script = one_path(8);
    script.pair.write(1, 0, 1, 0..50_000, 0, None);
    let sent = data(&mut script);
    assert!(sent.len() > 8);
    let lost = |script: &mut Script| {
        let connection = script.pair.connection[1];
        script.pair.net.hosts[1].endpoint.connection_stats(connection).unwrap().lost
    };
    // Number 0 is missing: a gap of one.
    script.ack(0, sent[1].psn, &[0], &[]);
    assert_eq!(lost(&mut script), 1);
    // It was only late.
    script.ack(0, sent[1].psn, &[0, 1], &[]);
    script.ack(0, sent[3].psn, &[0, 2, 3], &[]);
    assert_eq!(lost(&mut script), 1, "a gap of one is tolerated now");
    script.ack(0, sent[4].psn, &[0, 1, 3, 4], &[]);
    assert_eq!(lost(&mut script), 2, "a gap of two is not");
    // Number 2 was only late, too: the tolerance is 2.
    script.ack(0, sent[4].psn, &[0, 1, 2, 3, 4], &[]);
    script.ack(0, sent[7].psn, &[0, 3, 4, 5, 6, 7], &[]);
    assert_eq!(lost(&mut script), 2, "gaps of one and two are tolerated");
    script.ack(0, sent[8].psn, &[0, 1, 4, 5, 6, 7, 8], &[]);
    assert_eq!(lost(&mut script), 3);
}

#[test]
//= MR-LOSS-8 test
//= MR-LOSS-9 test
fn a_lost_packet_goes_again_alone_first_and_on_the_path_that_lost_it() {
    let mut script = Script::with(9, |_, config, _| {
        config.reorder_tolerance = 0;
        config.paths_per_plane = 2;
    });
    script.pair.write(1, 0, 1, 0..1_000_000, 0, None);
    let mut sent = Vec::new();
    for _ in 0..4 {
        let fresh = data(&mut script);
        accept(&mut script, &fresh);
        script.run(20_000);
    }
    sent.extend(data(&mut script));
    let of_path: Vec<_> = sent.iter().filter(|packet| packet.path == 1).collect();
    assert!(of_path.len() >= 2, "{of_path:?}");
    let (lost, next) = (of_path[0], of_path[1]);
    script.ack(1, next.psn, &[0], &[]);
    let after = data(&mut script);
    assert_eq!((after[0].number, after[0].path), (lost.number, 1), "under its CSN, before new packets");
    let highest = of_path.last().unwrap().psn;
    assert_eq!(after[0].psn, highest.plus(1), "under the next PSN");
    let known: BTreeSet<_> = sent.iter().map(|packet| packet.number).collect();
    let again: Vec<_> = after.iter().filter(|packet| known.contains(&packet.number)).collect();
    assert_eq!(again.len(), 1, "nothing else goes again");
    assert_eq!(
        after[0].header,
        DataHeader { flags: after[0].header.flags, demand_kib: after[0].header.demand_kib, ..lost.header }
    );
}

#[test]
//= MR-LOSS-14 test
//= MR-LOSS-15 test
//= MR-LOSS-16 test
//= MR-CC-10 test
//= MR-PATH-15 test
fn an_unanswered_packet_goes_again_at_doubled_timeouts_up_to_the_ceiling() {
    let mut script = one_path(10);
    script.pair.write(1, 0, 1, 0..50_000, 0, None);
    let mut sent = data(&mut script);
    let mut probes = Vec::new();
    for _ in 0..3_000 {
        script.run(50_000);
        let fresh = script.sent();
        probes.extend(fresh.iter().filter(|sent| sent.probe().is_some()).map(|sent| sent.time_ns));
        sent.extend(packets_of(&script, &fresh));
    }
    let start = sent[0].time_ns;
    let mut times: Vec<_> = sent.iter().map(|packet| packet.time_ns).collect();
    times.dedup();
    let gaps: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let rto = 200_000;
    assert!(gaps[0] >= rto && gaps[0] < 2 * rto, "{gaps:?}");
    assert!(probes[0] - start < gaps[0] * 2 / 3 + 1_000, "the PROBE goes first: {probes:?}");
    let mut due = gaps[0];
    for gap in &gaps[1..] {
        due = (2 * due).min(100 * rto);
        assert!((due * 89 / 100..=due * 111 / 100).contains(gap), "doubled, more or less: {gaps:?}");
    }
    assert_eq!(due, 100 * rto, "the ceiling: {gaps:?}");
    let stats = path(&mut script, 0);
    assert_eq!(stats.state, PathState::Good, "the last good path stays good");
    assert!(stats.window_bytes <= 2 * 4_176, "{stats:?}");
    let oldest = sent.iter().filter(|packet| packet.time_ns > start).map(|packet| packet.number);
    assert!(oldest.clone().count() > 8 && oldest.clone().next() == Some(0));
}

#[test]
//= MR-ACK-15 test
fn acknow_is_on_what_finds_few_in_flight_and_on_what_fills_a_small_window() {
    let mut script = Script::with(11, |_, config, _| {
        config.paths_per_plane = 1;
        config.mtu_bytes = 9_000;
    });
    script.pair.write(1, 0, 1, 0..200_000, 0, None);
    let sent = data(&mut script);
    let asks: Vec<_> = sent.iter().map(|packet| packet.header.flags.contains(OpFlags::ACK_NOW)).collect();
    assert_eq!(asks, [true, true, false, false, false, false, true], "65,536 bytes hold 7 packets of 9,000");
}

#[test]
//= MR-CC-1 test
//= MR-CC-11 test
//= MR-PATH-9 test
fn windows_of_path_and_connection_bound_what_is_in_flight() {
    let mut script = Script::with(12, |_, config, _| config.window_bytes_max = 40_000);
    script.pair.write(1, 0, 1, 0..1_000_000, 0, None);
    let sent = data(&mut script);
    let bytes: usize = sent.iter().map(|packet| packet.bytes).sum();
    assert!((30_000..=40_000).contains(&bytes), "{bytes} bytes in flight: {:?}", numbers(&sent));
    let first: BTreeSet<_> = sent.iter().take(8).map(|packet| packet.path).collect();
    assert_eq!(first.len(), 8, "each of equal paths has one before any has two");
    let mut script = Script::new(12);
    script.pair.write(1, 0, 1, 0..1_000_000, 0, None);
    assert!(!data(&mut script).is_empty());
    for number in 0..8 {
        let stats = path(&mut script, number);
        assert!(stats.inflight_bytes <= stats.window_bytes, "{stats:?}");
        assert!(stats.inflight_bytes + 4_176 > stats.window_bytes, "and is used: {stats:?}");
    }
}

#[test]
//= MR-CC-17 test
fn the_demand_is_what_is_left_in_kib_rounded_up() {
    let mut script = Script::new(13);
    script.pair.write(1, 0, 1, 0..10_000, 0, None);
    let sent = data(&mut script);
    let demands: Vec<_> = sent.iter().map(|packet| packet.header.demand_kib).collect();
    assert!(demands.len() >= 3 && demands.is_sorted_by(|one, next| one > next), "{demands:?}");
    assert!((6..=10).contains(&demands[0]) && *demands.last().unwrap() <= 2, "{demands:?}");
}

#[test]
//= MR-PATH-16 test
fn when_nothing_progresses_the_oldest_of_each_path_goes_again_on_another_and_none_is_suspect() {
    let mut script = Script::new(14);
    script.pair.write(1, 0, 1, 0..1_000_000, 0, None);
    let sent = data(&mut script);
    let oldest = |path| sent.iter().find(|packet| packet.path == path).unwrap().number;
    script.run(350_000);
    let again = data(&mut script);
    assert!(!again.is_empty());
    let mut oldest_again = 0;
    for packet in &again {
        // What a timeout gave up makes room for new packets, too.
        let Some(first) = sent.iter().find(|first| first.number == packet.number) else { continue };
        oldest_again += 1;
        let home = first.path;
        assert_eq!(packet.number, oldest(home), "only the oldest of path {home}: {:?}", numbers(&again));
        assert_ne!(packet.path, home);
    }
    assert!(oldest_again > 0);
    assert!((0..8).all(|number| path(&mut script, number).state == PathState::Good));
}

/// Runs for `steps` of 50 µs; acknowledges what host 1 sends on any path but `dead`, and returns the DATA.
fn without(script: &mut Script, dead: u8, steps: u32) -> Vec<Packet> {
    let mut seen = Vec::new();
    for _ in 0..steps {
        for sent in script.sent() {
            let base = sent.base();
            if base.kind.takes_psn() && base.path.0 != dead {
                script.ack(base.path.0, base.psn, &[0], &[]);
            }
            seen.extend(packets_of(script, &[sent]));
        }
        script.run(50_000);
    }
    seen
}

#[test]
//= MR-PATH-12 test
//= MR-PATH-14 test
//= MR-PATH-18 test
//= MR-PATH-25 test
fn an_unanswered_path_is_suspect_gets_no_data_and_is_good_again_at_an_answer() {
    let mut script = Script::new(15);
    script.pair.write(1, 0, 1, 0..4_000_000, 0, None);
    let mut seen = Vec::new();
    while path(&mut script, 2).state == PathState::Good {
        seen.extend(without(&mut script, 2, 1));
        assert!(seen.len() < 10_000);
    }
    assert_eq!(path(&mut script, 2).state, PathState::Suspect);
    let owed: BTreeSet<_> =
        seen.iter().filter(|packet| packet.path == 2).map(|packet| packet.number).collect();
    // All of it goes again under its CSNs, as fast as the windows of the others open; no time passes.
    let mut moved: BTreeSet<_> =
        seen.iter().filter(|packet| packet.path != 2).map(|packet| packet.number).collect();
    loop {
        let after = data(&mut script);
        assert!(after.iter().all(|packet| packet.path != 2), "no data on it");
        moved.extend(after.iter().map(|packet| packet.number));
        accept(&mut script, &after);
        if owed.is_subset(&moved) || after.is_empty() {
            break;
        }
    }
    assert!(owed.is_subset(&moved), "{owed:?} {moved:?}");
    let late = seen.iter().find(|packet| packet.path == 2).unwrap();
    let before = path(&mut script, 2).packets_delivered;
    script.ack(2, late.psn, &[0], &[]);
    assert_eq!(path(&mut script, 2).state, PathState::Good);
    assert_eq!(path(&mut script, 2).packets_delivered, before + 1, "what is late counts");
}

#[test]
//= MR-PATH-18 test
//= MR-PATH-22 test
//= MR-PATH-23 test
fn a_dead_path_returns_with_two_packets_after_three_answers_of_its_present_route() {
    let mut script = Script::new(16);
    script.pair.write(1, 0, 1, 0..8_000_000, 0, None);
    let mut steps = 0;
    while path(&mut script, 2).state != PathState::Dead {
        without(&mut script, 2, 1);
        steps += 1;
        assert!(steps < 1_000);
    }
    let old = path(&mut script, 2);
    // What the old route delivered late does not bring it back.
    let psn = script.tape.borrow().0.iter().rev().find_map(|sent| {
        (sent.from == 1
            && sent.base().path.0 == 2
            && sent.base().epoch != old.epoch
            && sent.kind() != PacketType::Ack)
            .then(|| sent.base())
    });
    let psn = psn.filter(|base| base.kind.takes_psn()).map(|base| base.psn);
    if let Some(psn) = psn {
        script.ack(2, psn, &[0], &[]);
    }
    assert_eq!(path(&mut script, 2).state, PathState::Dead, "only the present epoch counts");
    let mut answers = 0;
    for _ in 0..2_000 {
        for sent in script.sent() {
            let base = sent.base();
            if !base.kind.takes_psn() {
                continue;
            }
            let stats = path(&mut script, 2);
            script.ack(base.path.0, base.psn, &[0], &[]);
            if base.path.0 == 2 && base.epoch == stats.epoch {
                answers += 1;
                let expected = if answers < 3 { PathState::Probing } else { PathState::Good };
                assert_eq!(path(&mut script, 2).state, expected, "answer {answers}");
            }
            if answers == 3 {
                let stats = path(&mut script, 2);
                assert!(stats.window_bytes <= 2 * 4_176 && stats.window_bytes > 0, "{stats:?}");
                return;
            }
        }
        script.run(20_000);
    }
    panic!("{answers} answers");
}

#[test]
//= MR-PATH-15 test
fn the_last_good_path_is_not_suspected_when_a_dead_one_answers() {
    let mut script = Script::with(17, |_, config, _| config.paths_per_plane = 2);
    script.pair.write(1, 0, 1, 0..8_000_000, 0, None);
    let mut steps = 0;
    while path(&mut script, 0).state != PathState::Dead {
        without(&mut script, 0, 1);
        steps += 1;
        assert!(steps < 1_000);
    }
    // Now nothing is answered but one PROBE of the dead path, sent after all that the good one owes.
    let timeouts = path(&mut script, 1).timeouts;
    for _ in 0..200 {
        for sent in script.sent() {
            let base = sent.base();
            if base.kind == PacketType::Probe
                && base.path.0 == 0
                && path(&mut script, 0).state == PathState::Dead
            {
                script.ack(0, base.psn, &[0], &[]);
            }
        }
        script.run(20_000);
        let stats = path(&mut script, 1);
        assert_eq!(stats.state, PathState::Good, "{stats:?}");
    }
    assert!(path(&mut script, 1).timeouts > timeouts, "it did time out");
}

#[test]
//= MR-STR-35 test
fn a_refused_stream_reset_ends_the_use_of_the_stream() {
    let mut script = Script::new(18);
    // The peer has no room for the stream: it refuses the SEND, and then the STREAM_RESET.
    script.pair.send(1, 0, 1, 0..10);
    let nack = Frame::Nack { stream: StreamId(0), reason: NackReason::NoSlot, delay_us: 0 };
    for packet in data(&mut script) {
        script.ack(packet.path, packet.psn, &[], &[Frame::Refused(vector(&[0])), nack]);
    }
    script.pair.reset_stream(1, 0);
    let resets = data(&mut script);
    assert_eq!(resets.iter().map(|packet| packet.header.opcode).collect::<Vec<_>>(), [Opcode::StreamReset]);
    let connection = script.pair.connection[1];
    let streams =
        |script: &mut Script| script.pair.net.hosts[1].endpoint.connection_stats(connection).unwrap().streams;
    assert_eq!(streams(&mut script), 1);
    script.ack(resets[0].path, resets[0].psn, &[], &[Frame::Refused(vector(&[0]))]);
    script.run(MS);
    assert_eq!(streams(&mut script), 0, "the peer never had it, and will say nothing more");
}
