//! Section 3 and its like on real traffic: every verb in both directions over links that lose, double and mark.

use std::collections::{BTreeMap, BTreeSet};

use metaroce_conformance::{Faults, Network};
use metaroce_core::ids::Serial;
use metaroce_core::wire::{Control, OpFlags, Opcode, PacketType};
use metaroce_core::{
    AtomicOperation, Checksum, DatagramAddress, DatagramRequest, Ecn, Event, HeapStorage, Operation,
    ProtectionDomain, QueueOptions, TableChecksum, WorkRequest, crc,
};

use super::tape::{Shared, csn_number, data_of, taped};
use crate::common::pair::{Pair, REGION};
use crate::common::{MS, all_good, connect, pattern};

const ATOMICS: [(AtomicOperation, Opcode, [u64; 2]); 8] = [
    (AtomicOperation::FetchAdd(11), Opcode::FetchAdd, [11, 0]),
    (AtomicOperation::CompareSwap { compare: 5, swap: 6 }, Opcode::CompareSwap, [5, 6]),
    (AtomicOperation::Swap(12), Opcode::Swap, [12, 0]),
    (AtomicOperation::Min(13), Opcode::Min, [13, 0]),
    (AtomicOperation::Max(14), Opcode::Max, [14, 0]),
    (AtomicOperation::And(15), Opcode::And, [15, 0]),
    (AtomicOperation::Or(16), Opcode::Or, [16, 0]),
    (AtomicOperation::Xor(17), Opcode::Xor, [17, 0]),
];

/// The hosts of a network, connected under its filter.
fn pair_of(mut net: Network<HeapStorage>) -> Pair {
    let connection = connect(&mut net);
    let region = [1, 2].map(|seed| net.hosts[seed as usize - 1].register(pattern(REGION, seed)));
    Pair { net, connection, region }
}

/// Every verb, from both hosts.
fn exercise(pair: &mut Pair) {
    for host in 0..2 {
        let other = 1 - host;
        for id in 0..6 {
            pair.receive(other, 0, 100 + id, 4_000_000..4_050_000);
        }
        for id in 0..4 {
            pair.send(host, 0, id, 0..20_000);
        }
        pair.write(host, 0, 4, 0..300_000, 1_000_000, None);
        pair.write(host, 0, 5, 0..10_000, 1_000_000, Some(9));
        pair.send_immediate(host, 0, 6, 0..30_000, Some(77));
        pair.read(host, 0, 7, 2_000_000..2_060_000, 0);
        for (id, (operation, _, _)) in (8..).zip(ATOMICS) {
            pair.atomic(host, 0, id, 3_000_000, 3_500_000, operation);
        }
    }
    for host in 0..2 {
        all_good(&pair.wait(host, 16 + 6));
    }
}

fn run(seed: u64) -> (Pair, Shared) {
    let faults = Faults { reorder_ns: 30_000, ..Faults::all(8_000) };
    let (mut pair, tape) =
        taped(seed, Faults { corruption: 0, truncation: 0, ..faults }, |host, config, _| {
            config.checksum_wanted = host == 1;
        });
    exercise(&mut pair);
    (pair, tape)
}

#[test]
//= MR-WIRE-10 test
//= MR-WIRE-13 test
//= MR-WIRE-33 test
//= MR-WIRE-9 test
//= MR-ACK-16 test
//= MR-ACK-21 test
//= MR-CC-24 test
fn every_datagram_keeps_the_rules_of_its_type() {
    for seed in 0..3 {
        let (_, tape) = run(seed);
        let mut kinds = BTreeMap::new();
        for sent in &tape.borrow().0 {
            let base = sent.base();
            *kinds.entry(base.kind as u8).or_insert(0) += 1;
            assert_eq!(sent.ecn, Ecn::Ect0);
            let mut bytes = sent.bytes.clone();
            metaroce_core::wire::Base::write_checksum(&mut bytes, 0);
            let right = crc::finish(TableChecksum.update(crc::SEED, &bytes));
            // Host 1 wants checksums, host 0 does not.
            let wanted = base.kind == PacketType::Control || sent.from == 0;
            assert_eq!(base.checksum, if wanted { right } else { 0 }, "{sent:?}");
            match base.kind {
                PacketType::Probe => assert!(sent.bytes.len() >= 64),
                PacketType::Ack | PacketType::ProbeReply => {
                    assert!(sent.bytes.len() <= 1_232 && base.psn.raw() == 0);
                    // At most 98 % of the 100 Gb/s that the configuration names.
                    assert!(sent.blocks().iter().all(|block| (1..=98_000_000).contains(&block.share_kbps)));
                }
                _ => {}
            }
        }
        assert_eq!(kinds.len(), 5, "every type was there: {kinds:?}");
    }
}

#[test]
//= MR-WIRE-18 test
//= MR-WIRE-19 test
//= MR-WIRE-20 test
//= MR-WIRE-21 test
//= MR-HS-6 test
fn headers_of_requests_and_responses_say_what_the_specification_says() {
    let (_, tape) = run(7);
    for host in 0..2 {
        let requests: BTreeMap<_, _> = data_of(&tape, host)
            .into_iter()
            .filter(|(_, header)| header.opcode.takes_msn())
            .map(|(_, header)| ((header.stream, header.msn.raw()), header))
            .collect();
        // 4 SENDs, 2 WRITEs, a SEND, a READ, 8 atomics, in one stream: MSNs from 0.
        assert_eq!(requests.keys().map(|(_, msn)| *msn).collect::<Vec<_>>(), (0..16).collect::<Vec<_>>());
        let consuming =
            |header: &metaroce_core::wire::DataHeader| header.opcode == Opcode::Send || header.msn.raw() == 5;
        for (_, header) in data_of(&tape, host).iter().filter(|(_, header)| header.opcode.takes_msn()) {
            let earlier = requests.values().filter(|other| consuming(other) && other.msn.before(header.msn));
            let expected = if consuming(header) { earlier.count() as u32 } else { 0 };
            assert_eq!(header.receive_index.raw(), expected, "{header:?}");
        }
        for (number, (_, opcode, operands)) in (8..).zip(ATOMICS) {
            let header = requests.values().find(|header| header.msn.raw() == number).unwrap();
            assert_eq!((header.opcode, header.operands), (opcode, Some(operands)));
        }
        for sent in tape.borrow().0.iter().filter(|sent| sent.from == 1 - host) {
            let Some(header) = sent.data().filter(|header| header.opcode.is_response()) else { continue };
            let request = requests.get(&(header.stream, header.msn.raw())).unwrap();
            match header.opcode {
                Opcode::ReadResponse => assert_eq!(request.opcode, Opcode::ReadRequest),
                _ => assert!(request.opcode.is_atomic()),
            }
        }
        // The word was what `pattern` made it; each response has the value before its operation.
        let mut word = u64::from_ne_bytes(
            crate::common::pattern(8 << 20, 2 - host as u64)[3_500_000..3_500_008].try_into().unwrap(),
        );
        for (number, (operation, _, _)) in (8..).zip(ATOMICS) {
            let tape = tape.borrow();
            let mut responses = tape.0.iter().filter(|sent| {
                sent.from == 1 - host
                    && sent.data().is_some_and(|header| {
                        header.opcode == Opcode::AtomicResponse && header.msn.raw() == number
                    })
            });
            assert_eq!(responses.next().unwrap().payload(), word.to_be_bytes());
            word = operation.apply(word);
        }
    }
}

#[test]
//= MR-DLV-9 test
//= MR-LOSS-9 test
//= MR-LOSS-10 test
fn csns_have_no_gap_and_only_what_was_not_delivered_goes_again() {
    // Loss alone, no reordering: whatever goes again was lost, or the acknowledgement of it was late.
    let (mut pair, tape) = taped(3, Faults { loss: 10_000, ..Faults::NONE }, |_, _, _| {});
    pair.write(0, 0, 1, 0..2_000_000, 0, None);
    all_good(&pair.wait(0, 1));
    let tape_data: Vec<_> =
        tape.borrow().0.iter().filter(|sent| sent.from == 0 && sent.data().is_some()).cloned().collect();
    let mut next = 0;
    let mut lost = BTreeSet::new();
    let mut psns = BTreeSet::new();
    let mut needless = 0;
    for sent in &tape_data {
        let number = csn_number(&tape, 0, sent.data().unwrap().csn);
        assert!(psns.insert((sent.base().path.0, sent.base().psn.raw())), "a PSN is sent once");
        if number == next {
            next += 1;
        } else {
            assert!(number < next, "in order, without a gap");
            needless += u32::from(!lost.remove(&number));
        }
        if sent.lost {
            lost.insert(number);
        }
    }
    assert!(lost.is_empty(), "all that was lost went again: {lost:?}");
    assert!(needless <= 2, "{needless} went again that had arrived");
    assert!(next > 400);
}

#[test]
//= MR-LOSS-11 test
fn lost_probes_are_no_loss_and_are_not_sent_again() {
    let (mut net, tape) = super::tape::network(4, Faults::NONE, |_, _, _| {});
    net.filter = Some(Box::new(|_, transmit| crate::common::pair::kind_of(transmit) == PacketType::Probe));
    let mut pair = pair_of(net);
    pair.write(0, 0, 1, 0..500_000, 0, None);
    all_good(&pair.wait(0, 1));
    pair.net.run_for(20 * MS);
    pair.write(0, 0, 2, 0..500_000, 0, None);
    all_good(&pair.wait(0, 1));
    let stats = pair.net.hosts[0].endpoint.connection_stats(pair.connection[0]).unwrap();
    assert_eq!((stats.lost, stats.retransmitted), (0, 0), "{stats:?}");
    let tape = tape.borrow();
    let lost: Vec<_> = tape.0.iter().filter(|sent| sent.lost).collect();
    let psns: BTreeSet<_> =
        lost.iter().map(|sent| (sent.from, sent.base().path.0, sent.base().psn.raw())).collect();
    assert!(lost.len() > 16 && psns.len() == lost.len(), "{} probes, each with a PSN of its own", lost.len());
}

#[test]
//= MR-OP-26 test
fn a_lost_datagram_is_not_sent_again_and_takes_no_csn() {
    let (mut pair, tape) = taped(5, Faults::NONE, |_, _, _| {});
    let options =
        QueueOptions { domain: ProtectionDomain(0), datagrams: Some(DatagramAddress { number: 3, key: 4 }) };
    let queue = pair.net.hosts[1].endpoint.create_queue(options).unwrap();
    let to = [pair.segment(1, 0..100)];
    pair.net.hosts[1].endpoint.post_queue_recv(queue, 1, &to).unwrap();
    pair.net.run_for(10 * MS);
    pair.net.filter = Some(Box::new(|_, transmit| {
        crate::common::pair::data_of(transmit).is_some_and(|header| header.opcode == Opcode::Datagram)
    }));
    let from = [pair.segment(0, 0..10)];
    let request = DatagramRequest {
        id: 1,
        source_queue: 0,
        destination_queue: 3,
        key: 4,
        immediate: None,
        segments: &from,
    };
    pair.net.hosts[0].endpoint.post_datagram(pair.connection[0], request).unwrap();
    pair.net.run_for(5 * MS);
    pair.write(0, 0, 2, 0..10, 0, None);
    all_good(&pair.wait(0, 1));
    pair.net.run_for(100 * MS);
    let data = data_of(&tape, 0);
    let opcodes: Vec<_> = data.iter().map(|(_, header)| header.opcode).collect();
    assert_eq!(opcodes, [Opcode::Datagram, Opcode::Write], "once");
    assert_eq!(data[0].1.csn.raw(), 0);
    assert_eq!(csn_number(&tape, 0, data[1].1.csn), 0, "the WRITE has the first CSN");
    let told = pair.net.hosts[1].take_events();
    assert!(told.iter().all(|event| matches!(event, Event::StreamOpened { .. })), "of the WRITE: {told:?}");
}

#[test]
//= MR-OP-29 test
fn tagged_sends_count_themselves_and_use_no_credit() {
    let (mut pair, tape) = taped(6, Faults::NONE, |_, config, _| config.initial_credits = 1);
    pair.net.filter = Some(Box::new(|from, _| from == 1));
    for id in 0..6 {
        let operation = if id == 2 {
            Operation::Send { immediate: None }
        } else {
            Operation::SendTagged { bits: id, immediate: None }
        };
        pair.post(0, 0, WorkRequest::new(id, operation, &[]));
    }
    pair.net.run_for(40_000);
    let sent: Vec<_> = data_of(&tape, 0)
        .iter()
        .map(|(_, header)| (header.flags.contains(OpFlags::TAGGED), header.receive_index.raw()))
        .collect();
    let expected = [(true, 0), (true, 1), (false, 0), (true, 2), (true, 3), (true, 4)];
    assert_eq!(sent, expected, "one credit, and five tagged ones besides");
}

#[test]
//= MR-PATH-33 test
//= MR-PATH-34 test
//= MR-PATH-35 test
//= MR-PATH-36 test
fn packets_are_as_large_as_probes_that_their_path_answered() {
    // What each route carries, by path id: from the path id in the header.
    let limits = [4_176_usize, 2_200, 1_460, 4_176, 9_000, 9_000, 9_000, 9_000];
    let (mut net, tape) = super::tape::network(8, Faults::NONE, |_, _, _| {});
    net.filter = Some(Box::new(move |_, transmit| {
        let path = usize::from(transmit.header()[2]);
        transmit.datagram_length() > limits[path]
    }));
    let mut pair = pair_of(net);
    pair.net.run_for(200 * MS);
    let from = tape.borrow().0.len();
    for id in 0..4 {
        pair.write(0, 0, id, 0..1_000_000, 0, None);
        all_good(&pair.wait(0, 1));
    }
    let tape = tape.borrow();
    // Sizes tried on the path of 1,460 bytes: five of each, from the negotiated one down the ladder.
    let sizes = |path: u8| -> Vec<usize> {
        let probes = tape.0.iter().filter(|sent| sent.from == 0 && sent.probe().is_some());
        probes
            .filter(|sent| sent.base().path.0 == path && sent.bytes.len() > 64)
            .map(|sent| sent.bytes.len())
            .collect()
    };
    let start = |path, count: usize| sizes(path).into_iter().take(count).collect::<Vec<_>>();
    assert_eq!(start(2, 11), [vec![4_176; 5], vec![2_128; 5], vec![1_452]].concat());
    assert_eq!(start(1, 6), [vec![4_176; 5], vec![2_128]].concat());
    assert_eq!(start(0, 1), [4_176]);
    // DATA is no larger than what was answered in this epoch, and never lost.
    let mut largest = BTreeMap::new();
    for sent in tape.0[from..].iter().filter(|sent| sent.from == 0 && sent.data().is_some()) {
        assert!(!sent.lost, "{} bytes on path {}", sent.bytes.len(), sent.base().path.0);
        let entry = largest.entry(sent.base().path.0).or_insert(0);
        *entry = sent.bytes.len().max(*entry);
    }
    // 2,128 is at least half of 4,176, 1,452 is not: full packets carry 2,128 less 80, and path 2 stays out.
    let full = 2_128 - 80 + 20 + 28 + 12;
    assert_eq!(largest.get(&0), Some(&full));
    assert!(largest.get(&2).is_none_or(|bytes| *bytes <= 1_452), "{largest:?}");
    assert!(tape.0.iter().any(|sent| matches!(sent.control(), Some(Control::Accept(_)))));
}

#[test]
//= MR-PATH-33 test
//= MR-PATH-34 test
fn a_new_route_is_asked_for_its_size_before_it_carries_large_packets() {
    let (mut pair, tape) = taped(9, Faults::NONE, |_, _, _| {});
    pair.net.run_for(20 * MS);
    // Nobody hears the large probes of the new route.
    pair.net.filter = Some(Box::new(|_, transmit| {
        transmit.header()[3] == 1
            && crate::common::pair::kind_of(transmit) == PacketType::Probe
            && transmit.datagram_length() > 1_232
    }));
    pair.net.hosts[0].endpoint.repath(pair.connection[0], metaroce_core::PathId(3)).unwrap();
    let from = tape.borrow().0.len();
    pair.write(0, 0, 1, 0..1_000_000, 0, None);
    all_good(&pair.wait(0, 1));
    let tape = tape.borrow();
    let of_path: Vec<_> =
        tape.0[from..].iter().filter(|sent| sent.from == 0 && sent.base().path.0 == 3).collect();
    let asked = |sent: &&&super::tape::Sent| sent.probe().is_some() && sent.bytes.len() == 4_176;
    assert_eq!(of_path.iter().find(asked).unwrap().base().epoch, 1);
    assert!(of_path.iter().filter(|sent| sent.data().is_some()).all(|sent| sent.bytes.len() <= 1_232));
}
