//! What waits on a stream, and for how long: refused packets, credit, windows of messages and of READs.

extern crate std;
use std::vec;
use std::vec::Vec;

use super::refusal::{enqueue, hurry};
use super::*;
use crate::connection::tests::{Anywhere, MS, Pair, US, path, take_due};
use crate::delivery::{Packet, Place};
use crate::event::Completion;
use crate::ids::{Msn, ReceiveIndex};
use crate::path::Verdict;
use crate::request::{Operation, RemoteAddress, WorkRequest};
use crate::view::View;
use crate::wire::{DataHeader, OpFlags, Opcode};

/// A pair of one path and end 0's stream 0, which has posted SENDs of so many bytes.
fn sending(lengths: &[usize], change: impl Fn(&mut crate::Config)) -> Pair {
    let mut pair = Pair::new(1, 1, change);
    for (id, length) in (0..).zip(lengths) {
        let send = WorkRequest::new(id, Operation::Send { immediate: None }, &[]);
        let request = WorkRequest { inline: &[7; 64][..*length], ..send };
        let (now, connection) = (pair.now, pair.connections[0]);
        pair.ends[0].post(now, connection, StreamId(0), request).unwrap();
    }
    pair
}

fn stream_of(view: &View<'_>, slot: Idx<Connection>) -> Idx<Stream> {
    find(view, slot, StreamId(0)).unwrap()
}

/// The works of a stream in order.
fn works(view: &View<'_>, stream: Idx<Stream>) -> Vec<Idx<Work>> {
    let works = &view.streams.at(stream).requester.works;
    core::iter::successors(works.front(), |at| works.next(&view.works, *at)).collect()
}

/// A packet of a work that was sent under the next CSN and got its verdict: it is in no list.
fn packet(
    view: &mut View<'_>,
    slot: Idx<Connection>,
    work: Idx<Work>,
    offset: u32,
    length: u16,
) -> Idx<Packet> {
    let packet = Packet { connection: slot, work, offset, length, sent: length, ..Packet::EMPTY };
    view.works.at_mut(work).outstanding += 1;
    view.packets.allocate(packet).unwrap()
}

fn refused(view: &mut View<'_>, stream: Idx<Stream>) -> Vec<Idx<Packet>> {
    let list = view.streams.at_mut(stream).requester.refusals.packets_mut();
    let front = list.front();
    let mut at = front;
    let mut all = Vec::new();
    while let Some(packet) = at {
        all.push(packet);
        at = view.streams.at_mut(stream).requester.refusals.packets_mut().next(&view.packets, packet);
    }
    all
}

#[test]
fn refused_packets_go_again_by_message_and_offset_however_they_come() {
    //= MR-DLV-10 test
    let mut pair = sending(&[8, 8, 8], |_| {});
    let now = pair.now;
    let orders: [[usize; 6]; 4] =
        [[0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0], [2, 5, 0, 4, 1, 3], [3, 1, 4, 0, 5, 2]];
    let (mut view, slot) = pair.view(0);
    let stream = stream_of(&view, slot);
    let works = works(&view, stream);
    for order in orders {
        let packets: Vec<_> = (0..6)
            .map(|number| packet(&mut view, slot, works[number / 2], if number % 2 == 0 { 0 } else { 4 }, 4))
            .collect();
        for number in order {
            enqueue(&mut view, now, stream, packets[number]);
            assert_eq!(view.packets.at(packets[number]).place, Place::Refused);
        }
        let refusals = &mut view.streams.at_mut(stream).requester.refusals;
        let mut taken = refusals.take(&mut view.packets, &view.works);
        for expected in packets {
            assert_eq!(taken.pop_front(&mut view.packets), Some(expected), "{order:?}");
            view.packets.free(expected);
        }
        assert!(taken.is_empty());
    }
    let counters = view.streams.at(stream).requester.refusals.counters();
    assert_eq!((counters.packets, view.connections.at(slot).stats.refused), (24, 24));
}

#[test]
fn refused_packets_go_again_after_ten_rtts_doubled_each_time_up_to_ten_milliseconds() {
    //= MR-STR-15 test
    for (rtt_us, delays_us) in [
        (10, vec![100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000]),
        (600, vec![6_000, 10_000, 10_000]),
        (2_000, vec![20_000, 20_000]),
    ] {
        let mut pair = sending(&[8], |_| {});
        let mut now = pair.now;
        let (mut view, slot) = pair.view(0);
        let stream = stream_of(&view, slot);
        let work = works(&view, stream)[0];
        let at = path(&view, slot, 0);
        view.paths.at_mut(at).rtt.on_sample(now, rtt_us * US);
        for delay_us in &delays_us {
            let again = packet(&mut view, slot, work, 0, 8);
            enqueue(&mut view, now, stream, again);
            let wakes = now.after(delay_us * US);
            assert_eq!(view.streams.at(stream).wake_at, wakes, "RTT {rtt_us} µs");
            assert!(!view.streams.at(stream).is_scheduled(), "nothing new goes before it");
            // Another one of the same round does not put it off.
            let second = packet(&mut view, slot, work, 4, 4);
            enqueue(&mut view, now.after(1), stream, second);
            assert_eq!(view.streams.at(stream).wake_at, wakes);
            let early = resume(&mut view, Instant::from_nanos(wakes.as_nanos() - 1), stream);
            assert_eq!((early.ask, early.next), (false, wakes));
            assert_eq!(refused(&mut view, stream).len(), 2);
            now = wakes;
            view.connections.at_mut(slot).streams.waiting.remove(&mut view.streams, stream);
            let woken = resume(&mut view, now, stream);
            assert_eq!(woken.next, Instant::FAR_FUTURE);
            let mut renewed = Vec::new();
            while let Some(packet) = view.connections.at_mut(slot).renewed.pop_front(&mut view.packets) {
                renewed.push(packet);
                view.packets.free(packet);
            }
            assert_eq!(renewed, [again, second]);
        }
        // An acceptance ends the row.
        view.streams.at_mut(stream).requester.refusals.on_acceptance();
        let last = packet(&mut view, slot, work, 0, 8);
        enqueue(&mut view, now, stream, last);
        assert_eq!(view.streams.at(stream).wake_at, now.after(delays_us[0] * US));
    }
}

#[test]
fn a_nack_says_when_to_come_again_and_how_often_that_is_done() {
    //= MR-STR-17 test
    // Reason, delay, when it goes again (None: as before), rounds counted.
    for (reason, delay_us, again, rounds) in [
        (NackReason::NoReceive, 0, None, 1),
        (NackReason::NoReceive, 7, Some(7 * US), 1),
        (NackReason::NoSlot, 0, Some(10 * US), 0),
        (NackReason::NoSlot, 7, Some(10 * US), 0),
    ] {
        let mut pair = sending(&[8], |_| {});
        let now = pair.now;
        let (mut view, slot) = pair.view(0);
        let stream = stream_of(&view, slot);
        on_nack(&mut view, now, slot, StreamId(0), reason, delay_us);
        assert_eq!(view.streams.at(stream).wake_at, Instant::FAR_FUTURE, "nothing was refused");
        let work = works(&view, stream)[0];
        let packet = packet(&mut view, slot, work, 0, 8);
        enqueue(&mut view, now, stream, packet);
        on_nack(&mut view, now, slot, StreamId(0), reason, delay_us);
        on_nack(&mut view, now, slot, StreamId(0), reason, delay_us);
        let wakes = now.after(again.unwrap_or(100 * US));
        assert_eq!(view.streams.at(stream).wake_at, wakes, "{reason:?} {delay_us}");
        let counters = view.streams.at(stream).requester.refusals.counters();
        assert_eq!(counters.rnr_rounds, rounds, "once a round");
        // News of a receive has it go at once.
        hurry(&mut view, now.after(3), stream);
        assert_eq!(view.streams.at(stream).wake_at, now.after(3));
        hurry(&mut view, now.after(9), stream);
        assert_eq!(view.streams.at(stream).wake_at, now.after(3), "it is due already");
    }
}

fn completions(pair: &mut Pair) -> Vec<(u64, Status)> {
    let mut all = Vec::new();
    while let Some(event) = pair.ends[0].poll_event() {
        if let Event::Completion(Completion { id, status, .. }) = event {
            all.push((id, status));
        }
    }
    all
}

#[test]
fn a_send_fails_after_more_rounds_without_a_receive_than_it_may_take() {
    //= MR-STR-17 test
    let mut pair = sending(&[8, 8], |config| config.rnr_retries = Some(2));
    let mut now = pair.now;
    let (mut view, slot) = pair.view(0);
    let stream = stream_of(&view, slot);
    let first = works(&view, stream)[0];
    view.works.at_mut(first).progress = Cut::Done;
    for round in 0..3 {
        let again = packet(&mut view, slot, first, 0, 8);
        enqueue(&mut view, now, stream, again);
        on_nack(&mut view, now, slot, StreamId(0), NackReason::NoReceive, 0);
        if round < 2 {
            assert_eq!(view.works.at(first).failed, None, "{round}");
            now = view.streams.at(stream).wake_at;
            view.connections.at_mut(slot).streams.waiting.remove(&mut view.streams, stream);
            resume(&mut view, now, stream);
            let again = view.connections.at_mut(slot).renewed.pop_front(&mut view.packets).unwrap();
            view.packets.free(again);
            view.works.at_mut(first).outstanding -= 1;
        }
    }
    assert_eq!(completions(&mut pair), [(0, Status::RnrExceeded), (1, Status::Flushed)]);
}

#[test]
fn an_older_message_without_verdict_keeps_a_refused_one_from_failing() {
    let mut pair = sending(&[8, 8], |config| config.rnr_retries = Some(0));
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    let stream = stream_of(&view, slot);
    let [first, second] = works(&view, stream)[..] else { panic!("two") };
    view.works.at_mut(first).outstanding = 1;
    let packet = packet(&mut view, slot, second, 0, 8);
    enqueue(&mut view, now, stream, packet);
    on_nack(&mut view, now, slot, StreamId(0), NackReason::NoReceive, 0);
    assert_eq!(view.works.at(second).failed, None);
    view.works.at_mut(first).outstanding = 0;
    on_nack(&mut view, now, slot, StreamId(0), NackReason::NoReceive, 0);
    assert_eq!(view.works.at(second).failed, Some(Status::RnrExceeded));
}

#[test]
fn a_peer_that_is_closing_has_what_it_refused_fail_at_once() {
    let mut pair = sending(&[8], |_| {});
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    let stream = stream_of(&view, slot);
    let work = works(&view, stream)[0];
    view.works.at_mut(work).progress = Cut::Done;
    let packet = packet(&mut view, slot, work, 0, 8);
    enqueue(&mut view, now, stream, packet);
    on_nack(&mut view, now, slot, StreamId(0), NackReason::Closed, 0);
    assert_eq!(completions(&mut pair), [(0, Status::PeerClosed)]);
}

/// The header of a whole message without payload of end 0's stream 0.
fn header(opcode: Opcode, msn: u32, length: u32) -> DataHeader {
    DataHeader {
        opcode,
        flags: OpFlags::LAST,
        stream: StreamId(0),
        csn: Csn::new(0),
        msn: Msn::new(msn),
        offset: 0,
        length,
        receive_index: ReceiveIndex::new(msn),
        demand_kib: 0,
        remote: Some(crate::wire::Remote { key: crate::RegionKey(1), address: 0 }),
        operands: None,
        match_bits: None,
        immediate: None,
        signal: None,
    }
}

/// Has end 1 judge a request.
fn judge(pair: &mut Pair, header: &DataHeader) -> Judged {
    let now = pair.now;
    let (mut view, slot) = pair.view(1);
    on_request(&mut view, now, slot, header, &[], &mut Anywhere)
}

#[test]
fn messages_are_taken_up_to_the_window_beyond_the_oldest_that_is_not_whole() {
    //= MR-STR-6 test
    let mut pair = Pair::new(1, 1, |config| config.message_window = 4);
    // The first is to have one byte more, so that those behind it wait.
    assert_eq!(judge(&mut pair, &header(Opcode::Write, 0, 1)), Judged::Accepted);
    assert_eq!(judge(&mut pair, &header(Opcode::Write, 3, 0)), Judged::Accepted);
    assert_eq!(judge(&mut pair, &header(Opcode::Write, 4, 0)), Judged::Refused(NackReason::NoSlot));
    let (view, slot) = pair.view(1);
    assert_eq!(view.connections.at(slot).streams.messages, 2);
    let stream = stream_of(&view, slot);
    assert_eq!(view.streams.at(stream).responder.nack, Some(NackReason::NoSlot));
}

#[test]
fn a_message_that_must_wait_leaves_room_to_those_that_need_not() {
    //= MR-STR-7 test
    //= MR-STR-8 test
    // HOST has 8,192 messages and 1,024 streams; a connection may have three quarters of the table.
    let mut pair = Pair::new(1, 1, |config| config.message_window = 65_536);
    let next = header(Opcode::Write, 0, 1);
    let waits = header(Opcode::Write, 1, 1);
    let set = |pair: &mut Pair, used: u32, of_connection: u32| {
        let (mut view, slot) = pair.view(1);
        view.connections.at_mut(slot).streams.messages = of_connection;
        while view.messages.used() < used {
            view.messages.allocate(Message::EMPTY).unwrap();
        }
    };
    let free_last = |pair: &mut Pair, msn: u32| {
        let (mut view, slot) = pair.view(1);
        let stream = stream_of(&view, slot);
        let message = view.index.find(key(Kind::Message, stream.raw(), msn)).map(Idx::new).unwrap();
        super::effect::drop_message(&mut view, stream, message);
    };
    let no_room = Judged::Refused(NackReason::NoSlot);
    set(&mut pair, 0, 6_143);
    assert_eq!(judge(&mut pair, &waits), Judged::Accepted);
    free_last(&mut pair, 1);
    set(&mut pair, 0, 6_144);
    assert_eq!(judge(&mut pair, &waits), no_room, "three quarters are its");
    assert_eq!(judge(&mut pair, &next), Judged::Accepted, "what is next takes effect, and goes");
    free_last(&mut pair, 0);
    // 1,024 are kept for what is next on each stream.
    set(&mut pair, 8_192 - 1_025, 0);
    assert_eq!(judge(&mut pair, &waits), Judged::Accepted);
    free_last(&mut pair, 1);
    set(&mut pair, 8_192 - 1_024, 0);
    assert_eq!(judge(&mut pair, &waits), no_room);
    assert_eq!(judge(&mut pair, &next), Judged::Accepted);
    free_last(&mut pair, 0);
    set(&mut pair, 8_192, 0);
    assert_eq!(judge(&mut pair, &next), no_room, "the table is full");
}

#[test]
fn a_read_that_must_wait_leaves_room_for_responses_and_other_messages_need_none() {
    //= MR-STR-7 test
    // An eighth of the works is kept.
    let eighth = Pair::new(1, 1, |_| {}).view(1).0.works.capacity() / 8;
    let (accepted, no_slot) = (Judged::Accepted, Judged::Refused(NackReason::NoSlot));
    for (opcode, msn, free, judged) in [
        (Opcode::ReadRequest, 1, eighth + 1, accepted),
        (Opcode::ReadRequest, 1, eighth, no_slot),
        (Opcode::ReadRequest, 0, 1, accepted),
        (Opcode::ReadRequest, 0, 0, no_slot),
        (Opcode::Write, 1, 0, accepted),
        (Opcode::Write, 0, 0, accepted),
    ] {
        let mut pair = Pair::new(1, 1, |_| {});
        let (mut view, slot) = pair.view(1);
        while view.works.available() > free {
            view.works.allocate(Work { connection: slot, ..Work::EMPTY }).unwrap();
        }
        assert_eq!(judge(&mut pair, &header(opcode, msn, 0)), judged, "{opcode:?} {msn}, {free} free");
    }
}

#[test]
fn a_message_keeps_its_opcode_and_length() {
    //= MR-DLV-17 test
    for (opcode, length, kept) in
        [(Opcode::Write, 9, true), (Opcode::Write, 8, false), (Opcode::Send, 9, false)]
    {
        let mut pair = Pair::new(1, 1, |_| {});
        assert_eq!(judge(&mut pair, &header(Opcode::Write, 0, 9)), Judged::Accepted);
        let judged = judge(&mut pair, &header(opcode, 0, length));
        assert_eq!(judged == Judged::Accepted, kept, "{opcode:?} {length}");
        let (view, slot) = pair.view(1);
        let failed = view.streams.at(stream_of(&view, slot)).responder.end;
        assert_eq!(failed, if kept { None } else { Some(Msn::new(0)) });
        // The peer is told.
        assert_eq!(view.connections.at(slot).streams.responses_owed, u32::from(!kept));
    }
}

#[test]
fn the_peer_is_told_of_receives_once_there_were_some_or_it_asked_for_one() {
    let speaks = |pair: &mut Pair| {
        let (view, slot) = pair.view(1);
        view.streams.at(stream_of(&view, slot)).responder.speaks_credit()
    };
    let mut pair = Pair::new(1, 1, |_| {});
    assert_eq!(judge(&mut pair, &header(Opcode::Write, 0, 0)), Judged::Accepted);
    assert!(!speaks(&mut pair), "a stream of WRITEs alone");
    assert_eq!(judge(&mut pair, &header(Opcode::Send, 1, 0)), Judged::Refused(NackReason::NoReceive));
    assert!(speaks(&mut pair));
    let mut pair = Pair::new(1, 1, |_| {});
    let connection = pair.connections[1];
    pair.ends[1].post_recv(connection, StreamId(0), 1, &[]).unwrap();
    assert!(speaks(&mut pair));
}

#[test]
fn a_posted_receive_is_told_at_once_to_whoever_may_wait_for_it() {
    //= MR-STR-11 test
    let mut pair = Pair::new(1, 1, |_| {});
    let connection = pair.connections[1];
    let post = |pair: &mut Pair| {
        let (mut view, slot) = pair.view(1);
        take_due(&mut view, slot);
        pair.ends[1].post_recv(connection, StreamId(0), 1, &[]).unwrap();
        let (mut view, slot) = pair.view(1);
        take_due(&mut view, slot)
    };
    assert!(post(&mut pair), "there was none");
    assert!(!post(&mut pair), "one is left");
    let used = header(Opcode::Send, 0, 0);
    assert_eq!(judge(&mut pair, &used), Judged::Accepted);
    assert!(!post(&mut pair));
    // The fourth was asked for.
    let (mut view, slot) = pair.view(1);
    let stream = stream_of(&view, slot);
    view.streams.at_mut(stream).responder.wanted = ReceiveIndex::new(3);
    assert!(post(&mut pair));
    assert!(!post(&mut pair));
}

#[test]
fn a_request_waits_for_the_window_of_messages_of_the_peer() {
    let mut pair = sending(&[1; 6], |config| config.message_window = 4);
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    let stream = stream_of(&view, slot);
    let mut cut = 0;
    while may_cut(&mut view, now, stream) {
        let work = view.streams.at(stream).requester.cursor;
        assert_eq!(next_cut(&mut view, now, work, 1_000).length, 1);
        cut += 1;
    }
    assert_eq!((cut, view.streams.at(stream).is_scheduled()), (4, false));
    assert_eq!(view.connections.at(slot).queued_bytes, 2);
}

/// Posts READs of nothing on a stream of end 0.
fn read(pair: &mut Pair, stream: u16, count: u64) {
    for id in 0..count {
        let remote = RemoteAddress { key: crate::RegionKey(1), address: 0 };
        let request = WorkRequest::new(id, Operation::Read { remote }, &[]);
        let (now, connection) = (pair.now, pair.connections[0]);
        pair.ends[0].post(now, connection, StreamId(stream), request).unwrap();
    }
}

#[test]
fn reads_of_all_streams_together_keep_within_what_the_peer_grants() {
    //= MR-OP-14 test
    //= MR-STR-29 test
    let mut pair = Pair::new(1, 1, |config| config.reads_granted = 3);
    read(&mut pair, 0, 2);
    read(&mut pair, 2, 3);
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    let [first, second] = [0, 2].map(|id| find(&view, slot, StreamId(id)).unwrap());
    let cut = |view: &mut View<'_>, stream| {
        let open = may_cut(view, now, stream);
        if open {
            let work = view.streams.at(stream).requester.cursor;
            next_cut(view, now, work, 1_000);
        }
        open
    };
    assert!(cut(&mut view, first) && cut(&mut view, first) && !cut(&mut view, first));
    assert!(cut(&mut view, second) && !cut(&mut view, second), "three in all");
    assert_eq!(view.connections.at(slot).streams.responses_due, 3);
    assert!(view.streams.at(second).is_blocked() && !view.streams.at(second).is_scheduled());
    // One is answered, and lets one more go.
    let oldest = works(&view, first)[0];
    let packet = packet(&mut view, slot, oldest, 0, 0);
    view.works.at_mut(oldest).outstanding = 1;
    view.works.at_mut(oldest).answered = true;
    on_verdict(&mut view, now, packet, Verdict::Accepted);
    assert_eq!(view.connections.at(slot).streams.responses_due, 2);
    assert!(view.streams.at(second).is_scheduled());
    assert!(cut(&mut view, second) && !cut(&mut view, second));
}

#[test]
fn a_fence_waits_for_the_answers_of_its_stream() {
    //= MR-OP-15 test
    let mut pair = Pair::new(1, 1, |_| {});
    read(&mut pair, 0, 1);
    let send = WorkRequest::new(9, Operation::Send { immediate: None }, &[]);
    let (now, connection) = (pair.now, pair.connections[0]);
    let request = WorkRequest { fence: true, ..send };
    pair.ends[0].post(now, connection, StreamId(0), request).unwrap();
    let (mut view, slot) = pair.view(0);
    let stream = stream_of(&view, slot);
    let work = view.streams.at(stream).requester.cursor;
    next_cut(&mut view, now, work, 1_000);
    assert!(!may_cut(&mut view, now, stream));
    let packet = packet(&mut view, slot, work, 0, 0);
    view.works.at_mut(work).outstanding = 1;
    view.works.at_mut(work).answered = true;
    on_verdict(&mut view, now, packet, Verdict::Accepted);
    assert!(may_cut(&mut view, now, stream));
}

#[test]
fn a_stream_without_credit_asks_after_a_probe_timeout_and_stops_when_it_has_some() {
    //= MR-STR-12 test
    let mut pair = sending(&[1; 3], |config| config.initial_credits = 2);
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    let stream = stream_of(&view, slot);
    for _ in 0..2 {
        assert!(may_cut(&mut view, now, stream));
        let work = view.streams.at(stream).requester.cursor;
        next_cut(&mut view, now, work, 1_000);
    }
    assert!(!may_cut(&mut view, now, stream));
    assert_eq!(view.streams.at(stream).wake_at, now.after(20 * US));
    let mut then = now.after(20 * US);
    for delay_us in [40, 80, 160, 320, 640, 1_280, 2_560, 5_120, 10_000, 10_000] {
        let wake = resume(&mut view, then, stream);
        assert_eq!((wake.ask, wake.next), (true, then.after(delay_us * US)));
        then = wake.next;
    }
    on_credit(&mut view, now, slot, StreamId(0), Some(ReceiveIndex::new(3)));
    assert!(may_cut(&mut view, now, stream));
    assert_eq!(view.streams.at(stream).requester.credits.ask_at(), Instant::FAR_FUTURE);
    assert!(then > now.after(MS));
}

#[test]
fn of_a_packet_that_went_in_part_the_rest_goes_under_another_csn() {
    // What was sent of 8 bytes from 2 on, whether it was VOID as too large, the verdict; what is left to send.
    for (sent, too_large, verdict, rest) in [
        (5, false, Verdict::Accepted, Some((7, 3))),
        (8, false, Verdict::Accepted, None),
        (8, true, Verdict::Refused, Some((2, 8))),
        (8, true, Verdict::Accepted, None),
    ] {
        let mut pair = sending(&[20], |_| {});
        let now = pair.now;
        let (mut view, slot) = pair.view(0);
        let stream = stream_of(&view, slot);
        let work = works(&view, stream)[0];
        let packet = packet(&mut view, slot, work, 2, 8);
        let entry = view.packets.at_mut(packet);
        (entry.sent, entry.too_large, entry.void, entry.losses) = (sent, too_large, too_large, 3);
        on_verdict(&mut view, now, packet, verdict);
        let renewed = view.connections.at(slot).renewed.front();
        let left = renewed.map(|packet| {
            let entry = view.packets.at(packet);
            assert!(!entry.void && !entry.too_large && entry.losses == 0);
            (entry.offset, entry.length)
        });
        assert_eq!(left, rest, "{sent} {too_large} {verdict:?}");
        assert_eq!(view.works.at(work).outstanding, u32::from(rest.is_some()));
    }
}

#[test]
fn a_stream_that_waits_for_a_gap_of_its_peer_looks_less_and_less_often() {
    //= MR-STR-25 test
    let mut pair = sending(&[], |config| config.rto_ns_min = 100 * US);
    let now = pair.now;
    let (mut view, slot) = pair.view(0);
    let stream = find_or_open(&mut view, slot, StreamId(0)).unwrap();
    let gap = view.connections.at(slot).inbound.lowest_unseen();
    let theirs = Some(crate::ids::Serial::plus(gap, 1));
    view.streams.at_mut(stream).phase = Phase::Ending { ours: ResetProgress::Judged, theirs };
    let mut looks = 0;
    let mut at = now;
    view.connections.at_mut(slot).clock.last_progress = now;
    while at < now.after(10_000 * MS) {
        advance(&mut view, at, stream);
        let next = view.streams.at(stream).wake_at;
        let idle = at.since(now);
        assert_eq!(next, at.after((100 * US).max(idle / 8)), "after {idle} ns");
        view.connections.at_mut(slot).streams.waiting.remove(&mut view.streams, stream);
        (at, looks) = (next, looks + 1);
    }
    assert!(looks < 100, "{looks} times in ten seconds");
}
