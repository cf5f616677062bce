//! What goes out: data, whose turn it is, what asks for an acknowledgement, and what an acknowledgement holds.

use super::*;
use crate::connection::ack;
use crate::connection::output::{self, Sink, pace, path_for, record};
use crate::connection::{fill_turns, fill_urgent};
use crate::delivery::{Packet, Place};
use crate::ids::{Csn, Psn, RegionKey, Serial, StreamId};
use crate::path::{OwedReply, Transmission};
use crate::request::{Operation, RemoteAddress, WorkRequest};
use crate::stream::{Cut, Work, WorkKind};
use crate::wire::{
    AckBody, DataHeader, Frame, FrameIter, OpFlags, Opcode, PacketType, ProbeReply, Vector256,
};

/// Posts SENDs of one byte on a stream of end 0.
fn post(pair: &mut Pair, stream: u16, count: u64) {
    for id in 0..count {
        let send = WorkRequest::new(id, Operation::Send { immediate: None }, &[]);
        let (now, connection) = (pair.now, pair.connections[0]);
        let request = WorkRequest { inline: b"x", ..send };
        pair.ends[0].post(now, connection, StreamId(stream), request).unwrap();
    }
}

/// The DATA header of a packet, if it is one, and its path.
fn data(transmit: &Transmit) -> Option<(DataHeader, u8)> {
    let mut bytes = transmit.header().to_vec();
    bytes.resize(transmit.datagram_length(), 0);
    let (base, body) = Base::parse(&bytes).unwrap();
    (base.kind == PacketType::Data).then(|| (DataHeader::parse(body).unwrap().0, base.path.0))
}

fn all_data(all: &[Transmit]) -> Vec<(DataHeader, u8)> {
    all.iter().filter_map(data).collect()
}

#[test]
fn the_packet_that_fills_a_small_window_and_the_first_two_in_flight_ask_for_an_answer() {
    //= MR-ACK-15 test
    //= MR-ACK-34 test
    // Packets and bytes in flight, window, whether one in flight asks; whether it asks.
    for (count, inflight, window, asking, asks) in [
        (1, 0, 100_000, true, true),
        (2, 0, 100_000, false, false),
        // 1,080 bytes each: eight of them are 8,640.
        (2, 6_480, 8_639, true, true),
        (2, 6_479, 8_639, false, false),
        (2, 9_000, 8_640, true, false),
        (2, 9_000, 8_640, false, true),
        (2, 6_480, 8_640, false, false),
    ] {
        let mut pair = Pair::quiet(1, 1, |_| {});
        post(&mut pair, 0, 1);
        let now = pair.now;
        let (mut view, slot) = pair.view(0);
        let at = path(&view, slot, 0);
        let stream = crate::stream::find(&view, slot, StreamId(0)).unwrap();
        let work = view.streams.at(stream).requester.works.front().unwrap();
        for _ in 0..count {
            let transmission = view.transmissions.allocate(Transmission::EMPTY).unwrap();
            view.paths.at_mut(at).sending.in_flight.push_back(&mut view.transmissions, transmission);
        }
        let sending = &mut view.paths.at_mut(at).sending;
        sending.inflight_bytes = inflight;
        sending.asked = asking.then_some(sending.psn_next);
        view.paths.at_mut(at).window.window_bytes = window;
        let (sent, length) = (1_000, 1_000);
        let packet = Packet { connection: slot, work, sent, length, void: true, ..Packet::EMPTY };
        let mut out = [Transmit::EMPTY];
        let emitted = output::emit_packet(&view, now, slot, at, &packet, &mut Sink::new(&mut out)).unwrap();
        let (header, _) = data(&out[0]).unwrap();
        assert_eq!(header.flags.contains(OpFlags::ACK_NOW), asks, "{count} {inflight} {window}");
        assert_eq!(emitted.asks, asks);
        assert_eq!(header.opcode, Opcode::Void);
        assert_eq!(usize::from(emitted.bytes), out[0].datagram_length());
    }
}

#[test]
fn a_window_below_a_packet_paces_in_proportion_to_the_base_rtt() {
    //= MR-CC-12 test
    for (bytes, window, rtt_us, wait) in [
        (1_000, 1_000, None, 0),
        (1_001, 1_000, None, 10_010),
        (1_000, 250, None, 40_000),
        (1_000, 250, Some(30), 120_000),
        (1_000, 0, None, 10_000_000),
    ] {
        let mut pair = Pair::quiet(1, 1, |_| {});
        let now = pair.now;
        let (mut view, slot) = pair.view(0);
        let at = path(&view, slot, 0);
        view.paths.at_mut(at).rtt = crate::path::Rtt::NEW;
        if let Some(us) = rtt_us {
            view.paths.at_mut(at).rtt.on_sample(now, us * US);
            view.paths.at_mut(at).rtt.on_sample(now, 9 * us * US);
        }
        view.paths.at_mut(at).window.window_bytes = window;
        pace(&mut view, now, at, bytes);
        assert_eq!(view.paths.at(at).sending.pace_until.since(now), wait, "{bytes} {window} {rtt_us:?}");
    }
}

#[test]
fn a_transmission_takes_the_next_psn_counts_in_flight_and_starts_the_timers() {
    //= MR-LOSS-10 test
    let mut pair = Pair::quiet(1, 1, |_| {});
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    let at = path(&view, slot, 0);
    view.paths.at_mut(at).rtt = crate::path::Rtt::NEW;
    let (psn, sent) = (view.paths.at(at).sending.psn_next, view.paths.at(at).counters.sent);
    let transmit = |view: &mut View<'_>, now, bytes, rescued| {
        view.connections.at_mut(slot).clock.armed = Instant::FAR_FUTURE;
        record(view, now, slot, at, Transmission { bytes, rescued, ..Transmission::EMPTY });
        view.connections.at(slot).clock.armed.since(now)
    };
    assert_eq!(transmit(&mut view, now, 700, false), 28 * US, "the probe timeout");
    assert_eq!(transmit(&mut view, now.after(5), 800, false), 28 * US);
    transmit(&mut view, now.after(9), 900, true);
    let path = view.paths.at(at);
    assert_eq!((path.sending.psn_next, path.counters.sent), (psn.plus(3), sent + 3));
    assert_eq!(path.sending.inflight_bytes, 1_500, "a copy elsewhere is not in flight");
    assert_eq!((path.timeouts.since, path.sending.last_sent), (now, now.after(9)));
    assert_eq!(path.sending.in_flight.len(), 3);
}

#[test]
fn a_burst_stays_on_its_path_for_so_many_packets_while_that_has_room() {
    for burst in [1u8, 2, 3] {
        let mut pair = Pair::quiet(1, 4, |config| config.burst_packets = burst);
        let now = pair.now;
        let (mut view, slot) = pair.view(0);
        let mut order = Vec::new();
        for _ in 0..48 {
            let at = path_for(&mut view, now, slot, 1_000).unwrap();
            // Each path is as loaded as it was used.
            view.paths.at_mut(at).sending.inflight_bytes += 1_000;
            order.push(view.paths.at(at).id.0);
        }
        for piece in order.chunks(usize::from(burst)) {
            assert!(piece.iter().all(|path| *path == piece[0]), "{order:?}");
        }
        let mut counts = [0; 4];
        for path in &order {
            counts[usize::from(*path)] += 1;
        }
        assert_eq!(counts, [12; 4], "{order:?}");
    }
    let mut pair = Pair::quiet(1, 2, |config| config.burst_packets = 64);
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    let first = path_for(&mut view, now, slot, 1_000).unwrap();
    view.paths.at_mut(first).sending.inflight_bytes = 99_001;
    assert_ne!(path_for(&mut view, now, slot, 1_000).unwrap(), first);
}

#[test]
fn requests_leave_a_quarter_of_the_packets_to_responses() {
    // 512 packets.
    for (free, goes) in [(129, 1), (128, 0)] {
        let mut pair = Pair::quiet(1, 1, |_| {});
        post(&mut pair, 0, 1);
        let (mut view, _) = pair.view(0);
        while view.packets.available() > free {
            view.packets.allocate(Packet::EMPTY).unwrap();
        }
        let all = pair.take(0);
        assert_eq!(all_data(&all).len(), goes, "{free} are free");
    }
    // Whoever is kept back by the table stays in line, and goes when there is room.
    let mut pair = Pair::quiet(1, 1, |_| {});
    post(&mut pair, 0, 1);
    let (mut view, _) = pair.view(0);
    let mut taken = Vec::new();
    while view.transmissions.available() > 0 {
        taken.push(view.transmissions.allocate(Transmission::EMPTY).unwrap());
    }
    assert!(all_data(&pair.take(0)).is_empty());
    let (mut view, _) = pair.view(0);
    view.transmissions.free(taken[0]);
    assert_eq!(all_data(&pair.take(0)).len(), 1);
}

#[test]
fn responses_and_requests_take_turns_and_so_do_streams() {
    //= MR-STR-4 test
    let mut pair = Pair::quiet(1, 1, |_| {});
    post(&mut pair, 0, 3);
    post(&mut pair, 2, 3);
    let (mut view, slot) = pair.view(0);
    for number in 0..2 {
        let response = Work {
            connection: slot,
            stream_id: StreamId(1),
            kind: WorkKind::Result { code: 0 },
            msn: crate::ids::Msn::new(number),
            progress: Cut::From(0),
            ..Work::EMPTY
        };
        let response = view.works.allocate(response).unwrap();
        view.connections.at_mut(slot).streams.responses.push_back(&mut view.works, response);
        view.mark_ready(slot);
    }
    let order: Vec<_> = all_data(&pair.take(0))
        .iter()
        .map(|(header, _)| (header.opcode == Opcode::Result, header.stream.0, header.msn.raw()))
        .collect();
    let expected = [
        (true, 1, 0),
        (false, 0, 0),
        (true, 1, 1),
        (false, 2, 0),
        (false, 0, 1),
        (false, 2, 1),
        (false, 0, 2),
        (false, 2, 2),
    ];
    assert_eq!(order, expected);
}

#[test]
fn a_connection_sends_64_packets_before_the_next_has_its_turn() {
    //= MR-SEC-13 test
    let mut pair = Pair::quiet(1, 1, |config| config.initial_credits = 1_000);
    let now = pair.now;
    let second = pair.ends[0].connect(now, ConnectOptions::to(address(1, 0, PORT))).unwrap();
    pair.exchange();
    while let Some(event) = pair.ends[1].poll_event() {
        if let Event::Incoming { connection, .. } = event {
            pair.ends[1].accept(now, connection, ProtectionDomain(0), b"").unwrap();
        }
    }
    pair.exchange();
    // The shares that were told meanwhile are stale by then.
    pair.run(MS);
    let now = pair.now;
    let both = [pair.connections[0], second];
    for connection in both {
        for id in 0..100 {
            let send = WorkRequest::new(id, Operation::Send { immediate: None }, &[]);
            let request = WorkRequest { inline: b"x", ..send };
            pair.ends[0].post(now, connection, StreamId(0), request).unwrap();
        }
    }
    let ids = both.map(|connection| {
        let (view, _) = pair.view(0);
        view.connections.at(Idx::new(connection.slot)).ids.remote
    });
    let all = pair.take(0);
    let turns: Vec<usize> = all
        .iter()
        .filter(|transmit| data(transmit).is_some())
        .map(|transmit| ids.iter().position(|id| *id == Base::parse(transmit.header()).unwrap().0.connection))
        .map(Option::unwrap)
        .collect();
    let mut runs = Vec::new();
    for turn in turns.chunk_by(|a, b| a == b) {
        runs.push((turn[0], turn.len()));
    }
    assert_eq!(runs, [(0, 64), (1, 64), (0, 36), (1, 36)]);
}

#[test]
fn data_waits_for_the_line_and_the_endpoint_for_its_opening() {
    //= MR-SEC-13 test
    let mut pair = Pair::quiet(1, 1, |_| {});
    post(&mut pair, 0, 1);
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    for _ in 0..100 {
        view.lines.on_sent(now, 0, 4_096);
    }
    let opens_at = view.lines.opens_at(now, 0);
    assert!(opens_at > now);
    take_due(&mut view, slot);
    let mut out = vec![Transmit::EMPTY; 8];
    let mut sink = Sink::new(&mut out);
    fill_turns(&mut view, now, &mut sink);
    assert_eq!((sink.used(), *view.line_opens_at), (0, Some(opens_at)));
    fill_turns(&mut view, Instant::from_nanos(opens_at.as_nanos() - 1), &mut sink);
    assert_eq!((sink.used(), *view.line_opens_at), (0, Some(opens_at)));
    assert!(pair.ends[0].next_deadline().is_some_and(|at| at <= opens_at));
    let (mut view, _) = pair.view(0);
    let mut sink = Sink::new(&mut out);
    fill_turns(&mut view, opens_at, &mut sink);
    assert_eq!((sink.used(), *view.line_opens_at), (1, None));
}

/// Has a path of end 0 have something go again, in this order.
fn go_again(view: &mut View<'_>, slot: Idx<Connection>, number: u8, count: usize) -> Vec<Csn> {
    let at = path(view, slot, number);
    let stream = crate::stream::find(view, slot, StreamId(0)).unwrap();
    let work = view.streams.at(stream).requester.works.front().unwrap();
    (0..count)
        .map(|_| {
            let packet = Packet { connection: slot, work, sent: 1, length: 1, ..Packet::EMPTY };
            let packet = view.packets.allocate(packet).unwrap();
            view.connections.at_mut(slot).outbound.enter(&mut view.packets, packet);
            let cause = crate::delivery::Cause::Lost;
            crate::connection::paths::queue_again(view, slot, packet, at, cause);
            view.packets.at(packet).csn
        })
        .collect()
}

#[test]
fn what_goes_again_goes_first_path_by_path_as_far_as_each_has_room() {
    //= MR-LOSS-8 test
    let mut pair = Pair::quiet(1, 3, |_| {});
    post(&mut pair, 0, 1);
    let (mut view, slot) = pair.view(0);
    let first = go_again(&mut view, slot, 0, 2);
    let second = go_again(&mut view, slot, 1, 1);
    let third = go_again(&mut view, slot, 2, 2);
    // Nothing is left on path 1; path 0 has no room, path 2 for one.
    let at = path(&view, slot, 1);
    let gone = view.paths.at_mut(at).sending.again.pop_front(&mut view.packets).unwrap();
    view.packets.at_mut(gone).place = Place::Refused;
    for (number, inflight) in [(0, 100_000), (2, 99_919)] {
        let at = path(&view, slot, number);
        view.paths.at_mut(at).sending.inflight_bytes = inflight;
    }
    let before = view.connections.at(slot).stats.retransmitted;
    let csns = |all: &[Transmit]| -> Vec<(Csn, u8)> {
        all_data(all).iter().map(|(header, path)| (header.csn, *path)).collect()
    };
    let all = pair.take(0);
    let again = csns(&all);
    assert_eq!(again[0], (third[0], 2));
    assert_eq!(again.len(), 2, "and the new one, on path 1: {again:?}");
    assert_eq!(again[1].1, 1);
    assert!(!again.iter().any(|(csn, _)| *csn == second[0]));
    let (mut view, slot) = pair.view(0);
    assert_eq!(view.connections.at(slot).stats.retransmitted, before + 1);
    // A rescue goes beyond the window, once.
    let at = path(&view, slot, 0);
    view.paths.at_mut(at).timeouts.rescue = true;
    view.mark_ready(slot);
    assert_eq!(csns(&pair.take(0)), [(first[0], 0)]);
    assert!(csns(&pair.take(0)).is_empty());
}

#[test]
fn a_rescue_goes_on_each_other_plane_too() {
    //= MR-PATH-17 test
    let mut pair = Pair::quiet(3, 2, |_| {});
    post(&mut pair, 0, 1);
    pair.take(0);
    let (mut view, slot) = pair.view(0);
    let csn = go_again(&mut view, slot, 0, 1)[0];
    let at = path(&view, slot, 0);
    view.paths.at_mut(at).timeouts.rescue = true;
    let narrow = path(&view, slot, 4);
    let other = path(&view, slot, 5);
    view.paths.at_mut(narrow).probing.mtu_bytes = 80;
    view.paths.at_mut(other).probing.mtu_bytes = 80;
    let sent = view.connections.at(slot).stats.packets_sent;
    let mut planes: Vec<u8> =
        pair.take(0).iter().filter(|all| data(all).is_some()).map(|all| all.plane).collect();
    planes.sort_unstable();
    assert_eq!(planes, [0, 1], "not where it does not fit");
    let (view, slot) = pair.view(0);
    assert_eq!(view.connections.at(slot).stats.packets_sent, sent + 2);
    // The copy is awaited nowhere.
    let rescued: Vec<u64> =
        view.connections.at(slot).path_indices().map(|at| view.paths.at(at).sending.inflight_bytes).collect();
    assert_eq!(rescued.iter().filter(|bytes| **bytes > 1_000).count(), 0, "{rescued:?} {csn:?}");
}

/// Blocks and frames of an ACK.
fn parse_ack(transmit: &Transmit) -> Option<(Vec<AckBody>, Vec<Frame>)> {
    let (base, body) = Base::parse(transmit.header()).unwrap();
    let (first, frames) = match base.kind {
        PacketType::Ack => AckBody::parse(body).unwrap(),
        PacketType::ProbeReply => {
            let (reply, frames) = ProbeReply::parse(body).unwrap();
            (reply.ack, frames)
        }
        _ => return None,
    };
    let mut blocks = vec![first];
    let mut others = Vec::new();
    for frame in FrameIter::new(frames).map(Result::unwrap) {
        match frame {
            Frame::Ack(block) => blocks.push(block),
            other => others.push(other),
        }
    }
    Some((blocks, others))
}

fn acks(all: &[Transmit]) -> Vec<Vec<u8>> {
    let paths = |(blocks, _): (Vec<AckBody>, Vec<Frame>)| blocks.iter().map(|block| block.path.0).collect();
    all.iter().filter_map(parse_ack).map(paths).collect()
}

#[test]
fn an_acknowledgement_speaks_of_four_paths_and_what_is_pending_goes_along() {
    //= MR-ACK-13 test
    //= MR-ACK-20 test
    let mut pair = Pair::quiet(1, 8, |_| {});
    for (due, pending, expected) in [
        (0, 0b1010, vec![]),
        (0b1, 0, vec![vec![0]]),
        (0b1, 0b1010_0000, vec![vec![0, 5, 7]]),
        (0b1111, 0, vec![vec![0, 1, 2, 3]]),
        (0b1111_1000, 0b1, vec![vec![0, 3, 4, 5], vec![6, 7]]),
    ] {
        let now = pair.now;
        let (mut view, slot) = pair.view(1);
        let owner = view.connections.at_mut(slot);
        (owner.paths.due, owner.paths.pending) = (due, pending);
        owner.clock.ack_at = now.after(9);
        let mut out = vec![Transmit::EMPTY; 8];
        let mut sink = Sink::new(&mut out);
        ack::fill_acks(&mut view, now, slot, &mut sink);
        let used = sink.used();
        assert_eq!(acks(&out[..used]), expected, "{due:b} {pending:b}");
        let owner = view.connections.at(slot);
        let (left, next) = if due == 0 { (pending, now.after(9)) } else { (0, Instant::FAR_FUTURE) };
        assert_eq!((owner.paths.due, owner.paths.pending, owner.clock.ack_at), (0, left, next));
    }
}

#[test]
fn an_acknowledgement_that_finds_no_descriptor_stays_due() {
    let mut pair = Pair::quiet(1, 8, |_| {});
    let now = pair.now;
    let (mut view, slot) = pair.view(1);
    view.connections.at_mut(slot).paths.due = 0xff;
    view.mark_owing(slot);
    let mut out = vec![Transmit::EMPTY; 1];
    fill_urgent(&mut view, now, &mut Sink::new(&mut out));
    assert_eq!(acks(&out), [vec![0, 1, 2, 3]]);
    assert_eq!(view.connections.at(slot).paths.due, 0xf0);
    fill_urgent(&mut view, now, &mut Sink::new(&mut out));
    assert_eq!(acks(&out), [vec![4, 5, 6, 7]]);
}

#[test]
fn the_answer_to_a_question_goes_on_two_planes_where_two_live() {
    //= MR-ACK-19 test
    for (planes, times) in [(1, 1), (2, 2), (3, 2)] {
        let mut pair = Pair::quiet(planes, 1, |_| {});
        let now = pair.now;
        let (mut view, slot) = pair.view(1);
        view.connections.at_mut(slot).planes.health.answer_twice();
        for expected in [times, 1] {
            view.connections.at_mut(slot).paths.due = 1;
            let mut out = vec![Transmit::EMPTY; 8];
            let mut sink = Sink::new(&mut out);
            ack::fill_acks(&mut view, now, slot, &mut sink);
            assert_eq!(sink.used(), expected, "{planes} planes");
            if expected == 2 {
                assert_ne!(out[0].plane, out[1].plane);
            }
        }
    }
}

#[test]
fn a_probe_is_answered_with_its_token_on_two_planes_and_another_path_s_acknowledgement() {
    //= MR-ACK-22 test
    //= MR-ACK-24 test
    let mut pair = Pair::quiet(2, 2, |_| {});
    let now = pair.now;
    let (mut view, slot) = pair.view(1);
    for (number, token) in [(1u8, 77), (3, 99)] {
        let at = path(&view, slot, number);
        view.paths.at_mut(at).reply = Some(OwedReply { token, stream: StreamId::NONE });
        view.connections.at_mut(slot).paths.replies |= 1 << number;
    }
    let mut out = vec![Transmit::EMPTY; 8];
    let mut sink = Sink::new(&mut out);
    ack::fill_replies(&mut view, now, slot, &mut sink);
    let used = sink.used();
    let told: Vec<_> = out[..used]
        .iter()
        .map(|transmit| {
            let (_, body) = Base::parse(transmit.header()).unwrap();
            let reply = ProbeReply::parse(body).unwrap().0;
            (reply.token, reply.ack.path.0)
        })
        .collect();
    assert_eq!(told, [(77, 1), (77, 1), (99, 3), (99, 3)]);
    assert_ne!(out[0].plane, out[1].plane);
    assert_eq!(view.connections.at(slot).paths.replies, 0);
}

#[test]
fn credit_is_told_of_urgent_streams_and_of_two_others_in_turn() {
    //= MR-ACK-21 test
    //= MR-ACK-26 test
    let mut pair = Pair::quiet(1, 1, |_| {});
    let connection = pair.connections[1];
    let (mut view, slot) = pair.view(1);
    while crate::connection::inflow::start_frame(&mut view, slot).is_some() {}
    for stream in 0..14 {
        for _ in 0..=stream {
            pair.ends[1].post_recv(connection, StreamId(stream), 1, &[]).unwrap();
        }
    }
    let credits = |pair: &mut Pair| {
        let now = pair.now;
        let (mut view, slot) = pair.view(1);
        view.connections.at_mut(slot).paths.due = 1;
        let mut out = vec![Transmit::EMPTY; 8];
        let mut sink = Sink::new(&mut out);
        ack::fill_acks(&mut view, now, slot, &mut sink);
        let (_, frames) = parse_ack(&out[0]).unwrap();
        frames
            .iter()
            .map(|frame| match frame {
                Frame::Credit { stream, none_needed: false, posted } => {
                    assert_eq!(posted.raw(), u32::from(stream.0) + 1);
                    stream.0
                }
                other => panic!("{other:?}"),
            })
            .collect::<Vec<_>>()
    };
    // Eight of those that were posted to, and two in turn, which are among them.
    assert_eq!(credits(&mut pair), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(credits(&mut pair), [8, 9, 10, 11, 12, 13, 2, 3]);
    assert_eq!(credits(&mut pair), [4, 5]);
    assert_eq!(credits(&mut pair), [6, 7]);
    for _ in 0..2 {
        credits(&mut pair);
    }
    assert_eq!(credits(&mut pair), [12, 13]);
    assert_eq!(credits(&mut pair), [0, 1], "and from the first on again");
}

#[test]
fn what_a_vector_no_longer_holds_is_written_down_before_it_leaves() {
    //= MR-ACK-14 test
    let mut pair = Pair::quiet(1, 1, |_| {});
    let now = pair.now;
    let (mut view, slot) = pair.view(1);
    let at = path(&view, slot, 0);
    ack::snapshot(&mut view, now, slot, at);
    let body = view.snapshots.pop().unwrap();
    assert_eq!((body.connection, body.body.path.0, body.refused), (slot, 0, Vector256::EMPTY));
    // One of a connection that is gone, or of another one in its place, goes nowhere.
    for (generation, sent) in [(0, 1), (1, 0)] {
        ack::snapshot(&mut view, now, slot, at);
        view.connections.at_mut(slot).generation += generation;
        let mut out = vec![Transmit::EMPTY; 2];
        let mut sink = Sink::new(&mut out);
        crate::connection::fill_snapshots(&mut view, now, &mut sink);
        assert_eq!(sink.used(), sent, "{generation}");
        assert!(view.snapshots.pop().is_none());
    }
}

/// A region of end 0.
fn region(pair: &mut Pair, length: u64) -> crate::RegionId {
    let domain = ProtectionDomain(0);
    let options = crate::RegionOptions { base_address: 0, length, domain, access: crate::Access::ALL };
    pair.ends[0].register_region(options).unwrap().id
}

#[test]
fn a_datagram_is_one_packet_that_counts_in_flight_and_completes_when_it_goes() {
    let mut pair = Pair::quiet(1, 1, |_| {});
    let region = region(&mut pair, 4_096);
    let connection = pair.connections[0];
    let send = |pair: &mut Pair, length| {
        let segments = [crate::Segment { region, offset: 0, length }];
        let request = crate::DatagramRequest {
            id: 5,
            source_queue: 1,
            destination_queue: 2,
            key: 3,
            immediate: Some(4),
            segments: &segments,
        };
        pair.ends[0].post_datagram(connection, request)
    };
    let stats = |pair: &mut Pair| pair.ends[0].connection_stats(connection).unwrap();
    let before = stats(&mut pair);
    send(&mut pair, 4_096).unwrap();
    let queued = |pair: &mut Pair| {
        let (view, slot) = pair.view(0);
        view.connections.at(slot).queued_bytes
    };
    assert_eq!(queued(&mut pair), 4_096);
    let all = pair.take(0);
    let [transmit] = &all[..] else { panic!("{all:?}") };
    assert_eq!((transmit.payload_length(), queued(&mut pair)), (4_096, 0));
    let after = stats(&mut pair);
    assert_eq!(after.packets_sent, before.packets_sent + 1);
    assert_eq!(after.bytes_sent, before.bytes_sent + 4_096);
    assert_eq!(after.bytes_in_flight, transmit.datagram_length() as u64);
    assert!(matches!(pair.ends[0].poll_event(), Some(Event::DatagramSent { id: 5, .. })));
    // A window that is full lets none out.
    let (mut view, slot) = pair.view(0);
    let at = path(&view, slot, 0);
    view.paths.at_mut(at).window.window_bytes = 5_000;
    send(&mut pair, 1_000).unwrap();
    assert!(pair.take(0).is_empty());
}

#[test]
fn a_region_s_key_and_place_are_in_every_packet_of_a_write() {
    let mut pair = Pair::quiet(1, 1, |_| {});
    let region = region(&mut pair, 10_000);
    let segments = [crate::Segment { region, offset: 0, length: 10_000 }];
    let remote = RemoteAddress { key: RegionKey(7), address: 500 };
    let request = WorkRequest::new(1, Operation::Write { remote, immediate: Some(3) }, &segments);
    let (now, connection) = (pair.now, pair.connections[0]);
    pair.ends[0].post(now, connection, StreamId(0), request).unwrap();
    let all = pair.take(0);
    let told: Vec<_> = all_data(&all)
        .iter()
        .map(|(header, _)| (header.offset, header.remote.unwrap().address, header.immediate, header.length))
        .collect();
    let expected = [(0, 500, None, 10_000), (4_096, 4_596, None, 10_000), (8_192, 8_692, Some(3), 10_000)];
    assert_eq!(told, expected);
    let lengths: Vec<_> =
        all.iter().filter(|all| data(all).is_some()).map(Transmit::payload_length).collect();
    assert_eq!(lengths, [4_096, 4_096, 1_808]);
    assert_eq!(Psn::new(1).plus(1), Psn::new(2));
}

#[test]
fn where_one_plane_is_full_the_pace_of_another_still_wakes_the_connection() {
    let mut pair = Pair::quiet(2, 1, |config| config.inbound_rate_kbps = 8_000_000);
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    let (full, paced) = (path(&view, slot, 0), path(&view, slot, 1));
    view.paths.at_mut(full).sending.inflight_bytes = 100_000;
    crate::connection::outflow::on_share(&mut view, now, slot, paced, 80_000);
    let opens_at = view.connections.at(slot).outflows.opens_at(now, 1);
    assert!(opens_at > now);
    assert_eq!(path_for(&mut view, now, slot, 4_176), None);
    let clock = view.connections.at(slot).clock;
    assert_eq!(
        (clock.pace_at, clock.armed.min(opens_at)),
        (opens_at, clock.armed),
        "it looks again by itself"
    );
}
