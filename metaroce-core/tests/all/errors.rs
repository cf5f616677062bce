//! A request that fails ends its stream, at both sides, and nothing else.

use std::cell::Cell;
use std::rc::Rc;

use crate::common::pair::*;
use crate::common::*;
use metaroce_conformance::Faults;
use metaroce_core::ids::Serial;
use metaroce_core::wire::{Base, DataHeader, Opcode};
use metaroce_core::{
    Access, AtomicOperation, Completion, ConnectionHandle, Event, Operation, ProtectionDomain, RegionKey,
    RegionOptions, RegisteredRegion, RemoteAddress, Status, WorkRequest,
};

fn region(pair: &mut Pair, access: Access, domain: u32, base_address: u64) -> RegisteredRegion {
    let options = RegionOptions { length: 4096, base_address, access, domain: ProtectionDomain(domain) };
    let region = pair.net.hosts[1].endpoint.register_region(options).unwrap();
    pair.net.hosts[1].memory.attach(region.id, vec![0x11; 4096]);
    region
}

/// What a request on stream 0 that must fail leads to, with one after it there and one on stream 2.
fn fails(pair: &mut Pair, operation: Operation, length: usize) -> Status {
    let segments = [pair.segment(0, 0..length)];
    pair.write(0, 0, 1, 0..5_000, 0, None);
    pair.post(0, 0, WorkRequest::new(2, operation, &segments));
    pair.write(0, 0, 3, 5_000..10_000, 10_000, None);
    pair.write(0, 2, 4, 5_000..10_000, 20_000, None);
    let done = pair.wait(0, 4);
    let status = |id| done.iter().find(|done| done.id == id).unwrap().status;
    assert_eq!((status(1), status(3), status(4)), (Status::Success, Status::Flushed, Status::Success));
    let of_stream: Vec<Completion> = done.iter().filter(|done| done.stream == S0).copied().collect();
    assert_eq!(ids(&of_stream), [1, 2, 3]);
    // Other streams go on, also new ones, in both directions.
    pair.write(0, 6, 5, 0..3_000, 0, None);
    pair.read(1, 2, 6, 0..3_000, 0);
    all_good(&pair.wait(0, 1));
    all_good(&pair.wait(1, 1));
    status(2)
}

#[test]
//= MR-MEM-1, MR-MEM-4 test
fn access_beyond_key_bounds_rights_or_domain_is_refused() {
    type Make = fn(&mut Pair) -> RemoteAddress;
    let cases: [(&str, Make); 6] = [
        ("a key never given out", |_| RemoteAddress { key: RegionKey(0x1234_5678), address: 0 }),
        ("one byte past the end", |pair| RemoteAddress {
            key: region(pair, Access::ALL, 0, 0).key,
            address: 4096 - 7,
        }),
        ("below the base", |pair| RemoteAddress {
            key: region(pair, Access::ALL, 0, 0x1000).key,
            address: 0xff8,
        }),
        ("an address that wraps", |pair| RemoteAddress {
            key: region(pair, Access::ALL, 0, 0).key,
            address: u64::MAX - 7,
        }),
        ("no such right", |pair| RemoteAddress {
            key: region(pair, Access::LOCAL_WRITE, 0, 0).key,
            address: 0,
        }),
        ("another domain", |pair| RemoteAddress { key: region(pair, Access::ALL, 9, 0).key, address: 0 }),
    ];
    for (name, make) in cases {
        for number in 0..3 {
            let mut pair = Pair::new(1, Faults::all(10_000));
            let remote = make(&mut pair);
            let operation = match number {
                0 => Operation::Write { remote, immediate: None },
                1 => Operation::Read { remote },
                _ => Operation::Atomic { remote, operation: AtomicOperation::FetchAdd(1) },
            };
            let status = fails(&mut pair, operation, 8);
            let misaligned = name == "one byte past the end" && number == 2;
            assert!(status == Status::RemoteAccess || misaligned, "{name}, operation {number}: {status:?}");
        }
    }
}

#[test]
//= MR-OP-13 test
fn atomic_on_an_odd_address_is_invalid() {
    let mut pair = Pair::new(2, Faults::NONE);
    let remote = pair.remote(0, 4);
    let operation = Operation::Atomic { remote, operation: AtomicOperation::FetchAdd(1) };
    assert_eq!(fails(&mut pair, operation, 8), Status::RemoteInvalid);
}

#[test]
//= MR-MEM-2 test
fn write_that_leaves_its_region_half_way_fails_and_touches_nothing_outside() {
    let mut pair = Pair::new(3, Faults::all(20_000));
    let target = region(&mut pair, Access::ALL, 0, 0);
    let remote = RemoteAddress { key: target.key, address: 0 };
    let status = fails(&mut pair, Operation::Write { remote, immediate: None }, 40_000);
    assert_eq!(status, Status::RemoteAccess);
}

#[test]
//= MR-MEM-11 test
fn memory_that_fails_is_a_remote_operation_error() {
    let mut pair = Pair::new(4, Faults::NONE);
    let target = region(&mut pair, Access::ALL, 0, 0);
    pair.net.hosts[1].memory.attach(target.id, Vec::new());
    let remote = RemoteAddress { key: target.key, address: 0 };
    assert_eq!(fails(&mut pair, Operation::Write { remote, immediate: None }, 64), Status::RemoteOperation);
}

#[test]
//= MR-STR-36 test
fn both_ends_are_told_that_the_stream_ended_and_why() {
    let mut pair = Pair::new(5, Faults::all(50_000));
    pair.receive(1, 0, 9, 0..10);
    let remote = RemoteAddress { key: RegionKey(0), address: 0 };
    let segments = [pair.segment(0, 0..10)];
    pair.post(0, 0, WorkRequest::new(1, Operation::Write { remote, immediate: None }, &segments));
    pair.net.run_for(SECOND);
    for host in 0..2 {
        let events = pair.net.hosts[host].take_events();
        let ended: Vec<_> = events
            .iter()
            .filter_map(|event| match event {
                Event::StreamEnded { status, .. } => Some(*status),
                _ => None,
            })
            .collect();
        assert_eq!(ended, [Status::RemoteAccess], "host {host}: {events:?}");
        assert_eq!(completions(&events).len(), 1, "host {host}: {events:?}");
    }
    // And the id is free again.
    pair.write(0, 0, 2, 0..10, 0, None);
    all_good(&pair.wait(0, 1));
}

#[test]
//= MR-STR-19 test
fn requests_before_the_failed_one_run_to_their_end_with_their_responses() {
    for seed in 0..20 {
        let mut pair = Pair::new(seed, Faults::all(50_000));
        for id in 0..10 {
            pair.read(0, 0, id, id as usize * 9_000..(id as usize + 1) * 9_000, 100_000);
        }
        let remote = RemoteAddress { key: RegionKey(1), address: 0 };
        let segments = [pair.segment(0, 0..10)];
        pair.post(0, 0, WorkRequest::new(10, Operation::Write { remote, immediate: None }, &segments));
        pair.read(0, 0, 11, 200_000..209_000, 100_000);
        let done = pair.wait(0, 12);
        let mut want: Vec<_> = (0..10).map(|id| (id, Status::Success)).collect();
        want.extend([(10, Status::RemoteAccess), (11, Status::Flushed)]);
        assert_eq!(outcome(&done), want, "seed {seed}");
        let source = pair.bytes(1, 100_000..109_000).to_vec();
        for id in 0..10 {
            assert!(pair.bytes(0, id * 9_000..(id + 1) * 9_000) == source);
        }
    }
}

/// An atomic is held behind a SEND that is lost; meanwhile its region goes.
#[test]
//= MR-MEM-9 test
fn held_atomic_whose_region_went_ends_the_stream_and_nothing_after_it_takes_effect() {
    let mut pair = Pair::new(6, Faults::NONE);
    let target = region(&mut pair, Access::ALL, 0, 0);
    for id in 0..2 {
        pair.receive(1, 0, id, 0..100);
    }
    let held = Rc::new(Cell::new(true));
    let flag = Rc::clone(&held);
    pair.net.filter =
        Some(Box::new(move |from, transmit| from == 0 && flag.get() && is(transmit, Opcode::Send, 0)));
    pair.send(0, 0, 1, 0..100);
    let remote = RemoteAddress { key: target.key, address: 0 };
    let segments = [pair.segment(0, 200..208)];
    let operation = Operation::Atomic { remote, operation: AtomicOperation::FetchAdd(1) };
    pair.post(0, 0, WorkRequest::new(2, operation, &segments));
    pair.send(0, 0, 3, 0..100);
    pair.net.run_for(2 * MS);
    pair.net.hosts[1].endpoint.deregister_region(target.id).unwrap();
    held.set(false);
    let sent = pair.wait(0, 3);
    assert_eq!(outcome(&sent), [(1, Status::Success), (2, Status::RemoteAccess), (3, Status::Flushed)]);
    assert_eq!(outcome(&pair.wait(1, 2)), [(0, Status::Success), (1, Status::Flushed)]);
}

/// Bytes of a packet from host 0 to host 1, as if the peer had sent it; no checksum.
fn forged(base: Base, header: DataHeader, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 100];
    let mut length = base.emit(&mut bytes).unwrap();
    length += header.emit(&mut bytes[length..]).unwrap();
    bytes.truncate(length);
    bytes.extend_from_slice(payload);
    bytes
}

/// A pair without checksums, and the headers of a SEND from host 0 that the peer has consumed.
fn forger(seed: u64) -> (Pair, Base, DataHeader) {
    let mut pair = Pair::configured(seed, Faults::NONE, |config| config.checksum_wanted = false);
    let last = Rc::new(Cell::new(None));
    let cell = Rc::clone(&last);
    pair.net.filter = Some(Box::new(move |from, transmit| {
        if let (0, Some(header)) = (from, data_of(transmit)) {
            cell.set(Some((Base::parse(transmit.header()).unwrap().0, header)));
        }
        false
    }));
    pair.receive(1, 0, 1, 0..1_000);
    pair.receive(1, 0, 2, 1_000..2_000);
    pair.receive(1, 2, 3, 2_000..3_000);
    pair.send(0, 0, 1, 0..100);
    all_good(&pair.wait(1, 1));
    pair.wait(0, 1);
    let (base, header) = last.get().unwrap();
    (pair, base, header)
}

fn inject(pair: &mut Pair, base: Base, header: DataHeader, ahead: u32, payload: &[u8]) {
    let base = Base { psn: base.psn.plus(ahead), ..base };
    let header = DataHeader { csn: header.csn.plus(ahead), ..header };
    let source = pair.net.hosts[0].address;
    let _ = pair.net.inject(1, source, &forged(base, header, payload)).unwrap();
}

#[test]
//= MR-OP-3 test
fn two_messages_that_name_one_receive_end_the_stream() {
    let (mut pair, base, header) = forger(7);
    let first = DataHeader { msn: header.msn.plus(2), receive_index: header.receive_index.plus(1), ..header };
    inject(&mut pair, base, first, 1, &[1; 100]);
    inject(&mut pair, base, DataHeader { msn: header.msn.plus(1), ..first }, 2, &[2; 100]);
    // A third arrives when the receive is gone.
    inject(&mut pair, base, DataHeader { msn: header.msn.plus(3), ..first }, 3, &[3; 100]);
    pair.net.run_for(100 * MS);
    assert_eq!(pair.bytes(1, 1_000..1_100), [1; 100]);
}

#[test]
//= MR-DLV-17 test
fn packet_that_contradicts_its_message_ends_the_stream_alone() {
    let (mut pair, base, header) = forger(8);
    let start = DataHeader {
        msn: header.msn.plus(1),
        receive_index: header.receive_index.plus(1),
        length: 500,
        flags: metaroce_core::wire::OpFlags::NONE,
        ..header
    };
    inject(&mut pair, base, start, 1, &[1; 100]);
    inject(&mut pair, base, DataHeader { offset: 100, length: 600, ..start }, 2, &[2; 100]);
    pair.net.run_for(20 * MS);
    assert_eq!(pair.bytes(1, 1_100..1_200), &pattern(REGION, 2)[1_100..1_200], "nothing of it is placed");
    pair.receive(1, 4, 9, 0..10);
    let _: ConnectionHandle = pair.connection[1];
}

#[test]
//= MR-DLV-2 test
fn packets_outside_of_the_csn_window_are_dropped() {
    let (mut pair, base, header) = forger(9);
    let before = pair.net.hosts[1].endpoint.stats().dropped;
    for ahead in [8_192 + 1, 1 << 30, u32::MAX - 20_000] {
        inject(&mut pair, base, header, ahead, &[1; 100]);
    }
    let dropped: u64 =
        pair.net.hosts[1].endpoint.stats().dropped.iter().zip(before).map(|(now, then)| now - then).sum();
    assert_eq!(dropped, 3);
}
