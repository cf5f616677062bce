//! Section 5: what an endpoint acknowledges, when, and in which packets.

use std::collections::BTreeSet;

use metaroce_core::ids::{ReceiveIndex, Serial};
use metaroce_core::wire::{DataHeader, Frame, NackReason, OpFlags, Opcode, PacketType};
use metaroce_core::{Disposition, DropReason, StreamId};

use super::script::{Script, refused, vector};
use crate::common::packets;

/// The first bits of a vector, lowest first.
fn bits(vector: metaroce_core::wire::Vector256, below: u32) -> Vec<u32> {
    vector.iter().filter(|bit| *bit < below).collect()
}

#[test]
//= MR-ACK-1 test
//= MR-ACK-2 test
//= MR-DLV-6 test
fn copies_are_entered_under_their_own_psn_with_the_verdict_of_the_first() {
    let mut script = Script::new(1);
    script.pair.receive(1, 0, 1, 0..100);
    script.sent();
    let first = script.send(0, 0, 4);
    assert_eq!(script.data(0, first, b"abcd"), Disposition::Consumed);
    let (ack, frames) = script.one_ack();
    assert_eq!((bits(ack.accepted, 1), refused(&frames)), (vec![0], vector(&[])));
    assert_eq!(script.data(0, first, b"abcd"), Disposition::Duplicate);
    let (ack, _) = script.one_ack();
    assert_eq!(bits(ack.accepted, 2), [0, 1], "the copy too");

    // No receive is posted for the second.
    let second = script.send(0, 1, 4);
    assert_eq!(script.data(0, second, b"efgh"), Disposition::Consumed);
    assert_eq!(script.data(0, second, b"efgh"), Disposition::Duplicate);
    script.pair.receive(1, 0, 2, 100..200);
    let before = script.pair.bytes(1, 100..104).to_vec();
    assert_eq!(script.data(0, second, b"efgh"), Disposition::Duplicate);
    let (ack, frames) = script.one_ack();
    assert_eq!(bits(ack.accepted, 5), [3, 4]);
    assert_eq!(bits(refused(&frames), 5), [0, 1, 2], "refused for ever, though a receive is there now");
    assert_eq!(script.pair.bytes(1, 100..104), before, "nothing of it is placed");
}

#[test]
//= MR-ACK-2 test
fn a_refusal_is_told_by_every_acknowledgement_until_it_leaves_the_vector() {
    let mut script = Script::new(2);
    let lost = script.send(0, 0, 4);
    script.data(0, lost, b"abcd");
    let (_, frames) = script.one_ack();
    assert_eq!(refused(&frames), vector(&[0]));
    for back in 1..300 {
        let write = script.write(1, back - 1, 1, 0);
        assert_eq!(script.data(0, write, b"x"), Disposition::Consumed);
        let (_, frames) = script.one_ack();
        let expected = if back < 256 { vector(&[back]) } else { vector(&[]) };
        assert_eq!(refused(&frames), expected, "{back} packets later");
    }
}

#[test]
//= MR-ACK-3 test
//= MR-ACK-4 test
//= MR-OP-26 test
fn probes_and_datagrams_are_entered_and_what_is_dropped_is_not() {
    let mut script = Script::new(3);
    script.probe(2, StreamId::NONE, 5);
    let reply = script.sent().iter().find_map(super::tape::Sent::reply).unwrap();
    assert!(reply.ack.accepted.contains(0), "the PROBE");
    let (largest, packets) = (reply.ack.largest, reply.ack.packets);

    // No queue has this number: the datagram is dropped, but its PSN was received.
    let header = packets::header(
        Opcode::Datagram,
        OpFlags::LAST,
        StreamId::NONE,
        script.csn,
        metaroce_core::ids::Msn::new(0),
    );
    let header = DataHeader { length: 1, ..header };
    assert_eq!(script.data(2, header, b"x"), Disposition::Dropped(DropReason::Datagram));
    // A CSN outside of the window: the packet is dropped, and its PSN with it.
    let outside = DataHeader { csn: script.csn.plus(100_000), ..script.send(0, 0, 1) };
    script.csn = script.csn.minus(1);
    let psn = script.psn[2].plus(5);
    assert_eq!(script.data_at(2, psn, outside, b"x"), Disposition::Dropped(DropReason::CsnOutsideWindow));
    script.probe(2, StreamId::NONE, 6);
    let reply = script.sent().iter().find_map(super::tape::Sent::reply).unwrap();
    assert_eq!(reply.ack.largest, largest.plus(2));
    assert_eq!(bits(reply.ack.accepted, 3), [0, 1, 2]);
    assert_eq!(reply.ack.packets, packets + 2);
}

#[test]
//= MR-ACK-7 test
fn the_cumulative_csn_is_the_lowest_that_was_not_seen() {
    let mut script = Script::new(4);
    let first = script.csn;
    let headers: Vec<_> = (0..4).map(|number| script.write(0, number, 1, u64::from(number))).collect();
    for (number, expected) in [(0, 1), (2, 1), (3, 1), (1, 4)] {
        script.data(0, headers[number], b"x");
        let (ack, _) = script.one_ack();
        assert_eq!(ack.cumulative.raw().wrapping_sub(first.raw()), expected, "after number {number}");
    }
    // A refused one was seen.
    let refused = script.send(1, 0, 1);
    script.data(0, refused, b"x");
    assert_eq!(script.one_ack().0.cumulative.raw().wrapping_sub(first.raw()), 5);
}

/// Packets of one long WRITE, without LAST.
fn pieces(script: &mut Script, count: u32) -> Vec<DataHeader> {
    let whole = script.write(0, 0, 1_000, 0);
    script.csn = script.csn.minus(1);
    (0..count)
        .map(|number| DataHeader {
            csn: script.next_csn(),
            flags: OpFlags::NONE,
            offset: number,
            remote: whole
                .remote
                .map(|remote| metaroce_core::wire::Remote { address: number.into(), ..remote }),
            ..whole
        })
        .collect()
}

#[test]
//= MR-ACK-11 test
fn packets_in_order_are_acknowledged_after_eight_or_after_the_delay() {
    let mut script = Script::with(5, |_, config, _| {
        config.ack_packets = 8;
        config.ack_delay_ns_max = 50_000;
    });
    let pieces = pieces(&mut script, 24);
    for header in &pieces[..7] {
        script.data(0, *header, b"x");
        assert!(script.sent().is_empty(), "not yet");
    }
    script.data(0, pieces[7], b"x");
    assert_eq!(bits(script.one_ack().0.accepted, 8), (0..8).collect::<Vec<_>>(), "the eighth");

    script.data(0, pieces[8], b"x");
    script.sent();
    script.run(30_000);
    script.data(0, pieces[9], b"x");
    script.run(19_000);
    assert!(script.sent().is_empty(), "49 µs");
    script.run(1_000);
    assert_eq!(bits(script.one_ack().0.accepted, 2), [0, 1], "50 µs after the first of them");
    script.run(1_000_000);
    assert!(script.sent().is_empty(), "told once");
}

#[test]
//= MR-ACK-13 test
//= MR-ACK-20 test
//= MR-ACK-16 test
fn a_batch_is_answered_by_one_block_of_each_path_and_four_blocks_a_packet() {
    let mut script = Script::new(6);
    for path in [0, 0, 0, 1, 1] {
        let write = script.write(0, script.csn.raw(), 1, 0);
        script.csn = write.csn.plus(1);
        script.data(path, DataHeader { stream: StreamId(9), ..write }, b"x");
    }
    let sent = script.sent();
    assert_eq!(sent.len(), 1, "one datagram: {sent:?}");
    let paths: Vec<_> = sent[0].blocks().iter().map(|block| block.path.0).collect();
    assert_eq!(paths, [0, 1]);

    for path in 0..8 {
        let write = script.write(1, u32::from(path), 1, 0);
        script.data(path, write, b"x");
    }
    let sent = script.sent();
    assert_eq!(sent.len(), 2, "{sent:?}");
    let mut paths = BTreeSet::new();
    for packet in &sent {
        assert_eq!(packet.blocks().len(), 4);
        assert_eq!(packet.base().psn.raw(), 0, "an ACK takes no PSN");
        paths.extend(packet.blocks().iter().map(|block| block.path.0));
    }
    assert_eq!(paths, (0..8).collect());
    // An acknowledgement is not acknowledged.
    script.ack_body(super::script::EMPTY, &[]);
    script.ack_body(metaroce_core::wire::AckBody { flags: 1, ..super::script::EMPTY }, &[]);
    script.run(1_000_000);
    assert!(script.sent().is_empty());
}

#[test]
//= MR-ACK-21 test
fn acknowledgements_fit_every_path_however_much_there_is_to_tell() {
    let mut script = Script::new(7);
    for stream in 0..60 {
        script.pair.receive(1, stream, u64::from(stream), 0..10);
    }
    script.run(1_000_000);
    script.sent();
    // Refusals on every path and of many streams at once.
    let mut told = BTreeSet::new();
    for round in 0..20 {
        for number in 0..64_u8 {
            let send = script.send(u16::from(number), 1 + round, 1);
            script.data(number % 8, send, b"x");
        }
        for path in 0..8 {
            script.probe(path, StreamId(u16::from(path)), 9);
        }
        for packet in script.sent() {
            assert!(packet.bytes.len() <= 1_232, "{} bytes", packet.bytes.len());
            told.extend(packet.frames().iter().filter_map(|frame| match frame {
                Frame::Nack { stream, reason: NackReason::NoReceive, .. } => Some(stream.0),
                _ => None,
            }));
        }
    }
    assert!(told.len() > 50, "all streams were told of in the end: {told:?}");
}

#[test]
//= MR-ACK-22 test
//= MR-ACK-23 test
//= MR-ACK-16 test
fn a_probe_is_answered_with_its_token_its_path_and_the_credit_it_asks_for() {
    let mut script = Script::new(8);
    for id in 0..5 {
        script.pair.receive(1, 4, id, 0..10);
    }
    script.run(1_000_000);
    script.sent();
    script.probe(3, StreamId(4), 0x1234_5678_9abc);
    let psn = script.psn[3].minus(1);
    let sent = script.sent();
    let reply = sent.iter().find(|sent| sent.kind() == PacketType::ProbeReply).unwrap();
    let body = reply.reply().unwrap();
    assert_eq!((body.token, body.ack.path.0, body.ack.largest), (0x1234_5678_9abc, 3, psn));
    assert_eq!(reply.base().psn.raw(), 0, "a PROBE_REPLY takes no PSN");
    let credit = Frame::Credit { stream: StreamId(4), none_needed: false, posted: ReceiveIndex::new(5) };
    assert!(reply.frames().contains(&credit), "{:?}", reply.frames());
    // Of a stream that is not there, nothing is told.
    script.probe(3, StreamId(40), 7);
    let sent = script.sent();
    let frames = sent.iter().find(|sent| sent.kind() == PacketType::ProbeReply).unwrap().frames();
    let about = |frame: &Frame| matches!(frame, Frame::Credit { stream: StreamId(40), .. });
    assert!(!frames.iter().any(about), "{frames:?}");
    // Nothing comes of it when the answer is lost.
    script.run(3_000_000);
    assert!(script.sent().iter().all(|sent| sent.kind() != PacketType::ProbeReply));
}

#[test]
//= MR-ACK-26 test
//= MR-STR-10 test
fn credit_is_repeated_stream_by_stream_so_that_a_lost_acknowledgement_loses_none() {
    let mut script = Script::new(9);
    for stream in 0..6 {
        for id in 0..=stream {
            script.pair.receive(1, stream, u64::from(id), 0..10);
        }
    }
    script.run(1_000_000);
    script.sent();
    let mut told = BTreeSet::new();
    for msn in 0..6 {
        let write = script.write(0, msn, 1, 0);
        script.data(0, write, b"x");
        for frame in script.one_ack().1 {
            if let Frame::Credit { stream, none_needed: false, posted } = frame {
                assert_eq!(posted.raw(), u32::from(stream.0) + 1, "receives posted so far");
                told.insert(stream.0);
            }
        }
    }
    assert_eq!(told, (0..6).collect(), "each again, with nothing new to tell");
}

#[test]
//= MR-STR-14 test
fn the_newest_reason_of_a_refusal_goes_with_the_next_acknowledgement_once() {
    let mut script = Script::new(10);
    let send = script.send(0, 0, 4);
    script.data(0, send, b"abcd");
    let nack = |reason| Frame::Nack { stream: StreamId(0), reason, delay_us: 0 };
    let (_, frames) = script.one_ack();
    assert!(frames.contains(&nack(NackReason::NoReceive)), "{frames:?}");
    // Two refusals, for two reasons, before the next acknowledgement.
    let send = script.send(0, 1, 4);
    script.data(0, send, b"abcd");
    let beyond = script.send(0, 1 << 20, 4);
    script.data(0, beyond, b"abcd");
    let (_, frames) = script.one_ack();
    let reasons: Vec<_> = frames
        .iter()
        .filter_map(|frame| match frame {
            Frame::Nack { reason, .. } => Some(*reason),
            _ => None,
        })
        .collect();
    assert_eq!(reasons, [NackReason::NoSlot], "the newest");
}
