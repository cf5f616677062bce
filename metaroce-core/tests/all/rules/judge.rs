//! Sections 9 to 12: what an endpoint makes of DATA.

use std::net::SocketAddr;

use metaroce_core::ids::{Msn, ReceiveIndex};
use metaroce_core::wire::{DataHeader, Frame, NackReason, OpFlags, Opcode, PacketType, Remote};
use metaroce_core::{
    Access, Disposition, Operation, PostError, ProtectionDomain, QueueOptions, RegionOptions, Segment,
    Status, StreamId, StreamOptions, WorkRequest,
};

use super::script::{Script, refused, vector};
use super::tape::Sent;
use crate::common::pair::outcome;
use crate::common::{MS, completions, packets};

fn nack_reasons(frames: &[Frame]) -> Vec<NackReason> {
    frames
        .iter()
        .filter_map(|frame| match frame {
            Frame::Nack { reason, .. } => Some(*reason),
            _ => None,
        })
        .collect()
}

#[test]
//= MR-DLV-5 test
fn bytes_are_in_place_before_a_packet_counts_as_accepted() {
    let mut script = Script::new(1);
    let write = script.write(0, 0, 4, 500);
    assert_eq!(script.data(0, write, b"abcd"), Disposition::Consumed);
    assert_eq!(script.pair.bytes(1, 500..504), b"abcd", "before anything is sent");
    assert!(script.one_ack().0.accepted.contains(0));
    // The memory is not there any more: the same packet is no longer acknowledged as accepted.
    let region = script.pair.region[1].id;
    script.pair.net.hosts[1].memory.attach(region, Vec::new());
    let write = script.write(1, 0, 4, 500);
    script.data(0, write, b"abcd");
    let (ack, frames) = script.one_ack();
    assert!(!ack.accepted.contains(0) && refused(&frames).contains(0));
}

#[test]
//= MR-OP-6 test
//= MR-OP-31 test
fn packets_of_a_write_land_on_arrival_each_at_its_own_address() {
    let mut script = Script::new(2);
    let whole = script.write(0, 0, 8, 1_000);
    let last = DataHeader { offset: 4, csn: script.next_csn(), ..whole };
    let last = DataHeader { remote: last.remote.map(|to| Remote { address: 3_000, ..to }), ..last };
    let first = DataHeader { flags: OpFlags::NONE, ..whole };
    script.data(0, last, b"efgh");
    assert_eq!(script.pair.bytes(1, 3_000..3_004), b"efgh", "the second is there, the first is missing");
    script.data(0, first, b"abcd");
    assert_eq!(script.pair.bytes(1, 1_000..1_004), b"abcd");
}

#[test]
fn refused_packets_are_counted_and_accepted_ones_are_not() {
    let mut script = Script::new(3);
    let refused = |script: &mut Script| script.pair.net.hosts[1].endpoint.stats().refused;
    let before = refused(&mut script);
    let write = script.write(0, 0, 1, 0);
    script.data(0, write, b"x");
    assert_eq!(refused(&mut script), before);
    let send = script.send(0, 1, 1);
    script.data(0, send, b"x");
    assert_eq!(refused(&mut script), before + 1, "no receive is posted");
}

#[test]
//= MR-DLV-16 test
fn packets_of_a_message_or_stream_that_is_over_are_refused_as_ended() {
    let mut script = Script::new(3);
    script.pair.receive(1, 0, 1, 0..100);
    script.pair.receive(1, 0, 2, 100..200);
    script.sent();
    let send = script.send(0, 0, 4);
    script.data(0, send, b"abcd");
    script.one_ack();
    // The message is complete; the packet bears a new CSN.
    let again = DataHeader { csn: script.next_csn(), ..send };
    script.data(0, again, b"wxyz");
    let (_, frames) = script.one_ack();
    assert_eq!((refused(&frames), nack_reasons(&frames)), (vector(&[0]), vec![NackReason::Ended]));
    assert_eq!(script.pair.bytes(1, 0..4), b"abcd");
    // The stream ended here.
    script.pair.reset_stream(1, 0);
    script.sent();
    let late = script.send(0, 1, 4);
    script.data(0, late, b"wxyz");
    let (_, frames) = script.one_ack();
    assert_eq!(nack_reasons(&frames), [NackReason::Ended]);
    assert!(refused(&frames).contains(0));
}

#[test]
//= MR-DLV-16 test
fn a_packet_that_contradicts_its_message_is_refused() {
    let mut script = Script::new(4);
    script.pair.receive(1, 0, 1, 0..100);
    script.sent();
    let whole = script.send(0, 0, 8);
    script.data(0, DataHeader { flags: OpFlags::NONE, ..whole }, b"abcd");
    script.sent();
    let other = DataHeader { csn: script.next_csn(), offset: 4, length: 9, flags: OpFlags::NONE, ..whole };
    script.data(0, other, b"efgh");
    let (ack, frames) = script.one_ack();
    assert!(!ack.accepted.contains(0) && refused(&frames).contains(0));
}

#[test]
//= MR-OP-11 test
//= MR-WIRE-18 test
fn a_response_touches_no_memory_once_its_request_is_complete() {
    let mut script = Script::new(5);
    script.pair.read(1, 0, 7, 2_000..2_004, 0);
    let request = script.sent().into_iter().find(|sent| sent.data().is_some()).unwrap();
    let (base, header) = (request.base(), request.data().unwrap());
    assert_eq!(header.opcode, Opcode::ReadRequest);
    script.ack(base.path.0, base.psn, &[0], &[]);
    let response = |script: &mut Script, payload: &[u8]| {
        let csn = script.next_csn();
        let header = packets::header(Opcode::ReadResponse, OpFlags::LAST, header.stream, csn, header.msn);
        script.data(0, DataHeader { length: 4, ..header }, payload);
        script.one_ack()
    };
    let (ack, _) = response(&mut script, b"abcd");
    assert!(ack.accepted.contains(0));
    assert_eq!(outcome(&script.pair.completions(1)), [(7, Status::Success)]);
    let (ack, frames) = response(&mut script, b"wxyz");
    assert!(!ack.accepted.contains(0) && refused(&frames).contains(0));
    assert_eq!(script.pair.bytes(1, 2_000..2_004), b"abcd");
    // One that no request waits for, of another message.
    let csn = script.next_csn();
    let unasked = packets::header(Opcode::ReadResponse, OpFlags::LAST, StreamId(0), csn, Msn::new(9));
    script.data(0, DataHeader { length: 4, ..unasked }, b"wxyz");
    let (_, frames) = script.one_ack();
    assert!(refused(&frames).contains(0));
}

#[test]
//= MR-STR-31 test
//= MR-STR-32 test
fn a_shared_queue_gives_entries_for_all_indices_or_none() {
    let mut script = Script::new(6);
    let connection = script.pair.connection[1];
    let endpoint = &mut script.pair.net.hosts[1].endpoint;
    let queue = endpoint.create_queue(QueueOptions::default()).unwrap();
    let options = StreamOptions { shared_queue: Some(queue), ..StreamOptions::default() };
    endpoint.configure_stream(connection, StreamId(0), options).unwrap();
    let segment = |script: &Script, at: usize| script.pair.segment(1, at..at + 10);
    for id in 0..2 {
        let to = [segment(&script, 100 * id)];
        script.pair.net.hosts[1].endpoint.post_queue_recv(queue, id as u64, &to).unwrap();
    }
    script.sent();
    // The third message: three entries are needed, two are there.
    let third = script.send(0, 2, 1);
    script.data(0, third, b"3");
    let (_, frames) = script.one_ack();
    assert!(refused(&frames).contains(0));
    // None was taken: the first message gets the first.
    let first = script.send(0, 0, 1);
    script.data(0, first, b"1");
    let (ack, frames) = script.one_ack();
    assert!(ack.accepted.contains(0), "{frames:?}");
    let none_needed = |frame: &Frame| matches!(frame, Frame::Credit { none_needed: true, .. });
    assert!(frames.iter().any(none_needed), "{frames:?}");
    let to = [segment(&script, 200)];
    script.pair.net.hosts[1].endpoint.post_queue_recv(queue, 2, &to).unwrap();
    let third = script.send(0, 2, 1);
    script.data(0, third, b"3");
    assert!(script.one_ack().0.accepted.contains(0));
    assert_eq!((script.pair.bytes(1, 0..1), script.pair.bytes(1, 200..201)), (&b"1"[..], &b"3"[..]));
}

#[test]
//= MR-MEM-10 test
fn local_segments_are_judged_when_they_are_posted() {
    let mut script = Script::new(7);
    let pair = &mut script.pair;
    let register = |pair: &mut crate::common::pair::Pair, access, domain| {
        let options =
            RegionOptions { length: 100, base_address: 0, access, domain: ProtectionDomain(domain) };
        pair.net.hosts[1].endpoint.register_region(options).unwrap().id
    };
    let own = register(pair, Access::ALL, 0);
    let foreign = register(pair, Access::ALL, 5);
    let fixed = register(pair, Access::LOCAL_READ, 0);
    let beyond = Segment { region: own, offset: 1, length: 100 };
    let wrapping = Segment { region: own, offset: u64::MAX, length: 10 };
    let other_domain = Segment { region: foreign, offset: 0, length: 10 };
    let read_only = Segment { region: fixed, offset: 0, length: 10 };
    let remote = pair.remote(1, 0);
    for segment in [beyond, wrapping, other_domain] {
        for operation in [
            Operation::Send { immediate: None },
            Operation::Write { remote, immediate: None },
            Operation::Read { remote },
        ] {
            let posted = pair.try_post(1, 0, WorkRequest::new(1, operation, &[segment]));
            assert_eq!(posted, Err(PostError::Segment), "{operation:?} {segment:?}");
        }
    }
    let connection = pair.connection[1];
    for segment in [beyond, wrapping, other_domain, read_only] {
        let posted = pair.net.hosts[1].endpoint.post_recv(connection, StreamId(0), 1, &[segment]);
        assert_eq!(posted, Err(PostError::Segment), "{segment:?}");
    }
    let to = [read_only];
    let read = WorkRequest::new(1, Operation::Read { remote }, &to);
    assert_eq!(pair.try_post(1, 0, read), Err(PostError::Segment), "its bytes may not be written");
    assert!(script.sent().iter().all(|sent| sent.kind() != PacketType::Data), "nothing was queued");
}

#[test]
//= MR-WIRE-12 test
//= MR-PATH-5 test
fn source_port_and_ecn_bits_enter_neither_checksum_nor_path() {
    let mut script = Script::new(8);
    let from = SocketAddr::new(script.address().ip(), 12_345);
    let write = script.write(0, 0, 1, 0);
    let psn = script.next_psn(0);
    let base = script.base(PacketType::Data, 0, psn);
    let bytes = {
        let mut bytes = vec![0; 200];
        let mut length = base.emit(&mut bytes).unwrap();
        length += write.emit(&mut bytes[length..]).unwrap();
        bytes.truncate(length + 1);
        let sum = metaroce_core::crc::finish(metaroce_core::Checksum::update(
            &metaroce_core::TableChecksum,
            metaroce_core::crc::SEED,
            &bytes,
        ));
        metaroce_core::wire::Base::write_checksum(&mut bytes, sum);
        bytes
    };
    let now = script.pair.net.now_at(1);
    let host = &mut script.pair.net.hosts[1];
    let datagram =
        metaroce_core::Datagram { source: from, plane: 0, ecn: metaroce_core::Ecn::Ce, bytes: &bytes };
    assert_eq!(host.endpoint.handle_datagram(now, datagram, &mut host.memory), Disposition::Consumed);
    let (ack, _) = script.one_ack();
    assert_eq!((ack.path.0, ack.largest, ack.marked), (0, psn, 1));
}

#[test]
//= MR-WIRE-26 test
//= MR-LOSS-5 test
fn a_refused_frame_counts_only_behind_its_block() {
    let mut script = Script::new(9);
    script.pair.send(1, 0, 1, 0..10);
    let send = script.sent().into_iter().find(|sent| sent.data().is_some()).unwrap();
    let (path, psn) = (send.base().path.0, send.base().psn);
    let (stream, none) = (StreamId(0), Frame::Start { allowance_kib: 1 });
    let refusals = |script: &mut Script| {
        let connection = script.pair.connection[1];
        script.pair.net.hosts[1].endpoint.stream_stats(connection, stream).unwrap().refused
    };
    script.ack(path, psn, &[], &[none, Frame::Refused(vector(&[0]))]);
    assert_eq!(refusals(&mut script), 0, "another frame stands between");
    script.ack(path, psn, &[], &[Frame::Refused(vector(&[0]))]);
    assert_eq!(refusals(&mut script), 1);
    let connection = script.pair.connection[1];
    let stats = script.pair.net.hosts[1].endpoint.connection_stats(connection).unwrap();
    assert_eq!(stats.lost, 0, "a refusal is no loss");
}

#[test]
//= MR-OP-19 test
fn an_immediate_is_told_by_the_receive_alone() {
    let mut script = Script::new(10);
    script.pair.receive(1, 0, 1, 0..100);
    script.pair.receive(1, 0, 2, 100..200);
    let send = script.send(0, 0, 4);
    let flags = OpFlags::LAST.with(OpFlags::IMMEDIATE);
    script.data(0, DataHeader { flags, immediate: Some(0xabcd_0123), ..send }, b"wxyz");
    let write = script.write(0, 1, 4, 5_000);
    let index = ReceiveIndex::new(1);
    script.data(
        0,
        DataHeader { flags, immediate: Some(0xabcd_4567), receive_index: index, ..write },
        b"abcd",
    );
    script.sent();
    let events = script.pair.net.hosts[1].take_events();
    let told: Vec<_> = completions(&events).iter().map(|done| (done.id, done.immediate)).collect();
    assert_eq!(told, [(1, Some(0xabcd_0123)), (2, Some(0xabcd_4567))]);
    assert_eq!(script.pair.bytes(1, 0..4), b"wxyz", "payload only");
    assert_eq!(&script.pair.bytes(1, 0..200)[4..8], &crate::common::pattern(200, 2)[4..8]);
}

#[test]
//= MR-STR-25 test
//= MR-STR-26 test
//= MR-HS-6 test
fn a_stream_is_used_again_from_zero_once_both_ends_have_ended_it() {
    let mut script = Script::new(11);
    script.pair.receive(1, 0, 1, 0..100);
    let send = script.send(0, 0, 4);
    script.data(0, send, b"abcd");
    script.pair.reset_stream(1, 0);
    let reset = script.sent().into_iter().find(|sent| is(sent, Opcode::StreamReset)).unwrap();
    let connection = script.pair.connection[1];
    let next_use = |script: &mut Script| {
        let send = script.send(0, 0, 4);
        script.data(0, send, b"next");
        let (ack, frames) = script.one_ack();
        (ack.accepted.contains(0), nack_reasons(&frames))
    };
    assert_eq!(next_use(&mut script), (false, vec![NackReason::Ended]), "neither condition holds");
    // Ours has its verdict; the peer's comes with a CSN below it missing.
    script.ack(reset.base().path.0, reset.base().psn, &[0], &[]);
    assert_eq!(next_use(&mut script), (false, vec![NackReason::Ended]), "the peer's is missing");
    let missing = script.send(0, 1, 4);
    let csn = script.next_csn();
    let theirs = packets::header(Opcode::StreamReset, OpFlags::IMMEDIATE, StreamId(0), csn, Msn::new(2));
    script.data(0, theirs, b"");
    script.sent();
    assert_eq!(next_use(&mut script), (false, vec![NackReason::Ended]), "a CSN below it was not seen");
    script.data(0, missing, b"late");
    script.run(MS);
    script.sent();
    script.pair.net.hosts[1].take_events();
    let to = [script.pair.segment(1, 0..100)];
    script.pair.net.hosts[1].endpoint.post_recv(connection, StreamId(0), 9, &to).unwrap();
    script.sent();
    assert_eq!(next_use(&mut script), (true, vec![]), "both hold: message 0 fills receive 0 of the next use");
    assert_eq!(outcome(&script.pair.completions(1)), [(9, Status::Success)]);
}

#[test]
//= MR-STR-30 test
fn a_packet_of_a_stream_that_finds_no_room_is_explained() {
    let mut script = Script::with(12, |host, _, limits| {
        if host == 1 {
            limits.streams = 2;
        }
    });
    for stream in [0, 2, 4] {
        let write = script.write(stream, 0, 1, 0);
        script.data(0, write, b"x");
        let (ack, frames) = script.one_ack();
        assert_eq!(ack.accepted.contains(0), stream < 4);
        let nack = Frame::Nack { stream: StreamId(stream), reason: NackReason::NoSlot, delay_us: 0 };
        assert_eq!(frames.contains(&nack), stream == 4, "{frames:?}");
    }
}

fn is(sent: &Sent, opcode: Opcode) -> bool {
    sent.data().is_some_and(|header| header.opcode == opcode)
}
