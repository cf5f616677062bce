//! Packets with data, and packets that end something, on which much depends.

use std::rc::Rc;

use metaroce_core::ids::{Msn, Serial as _};
use metaroce_core::wire::{Base, DataHeader, Opcode};
use metaroce_core::{CloseMode, Limits, Operation, RemoteAddress, Segment, StreamId, TagEntry, WorkRequest};

use super::scene::{MS, PEER, REGION, Scene, VICTIM, seal};

/// A packet of 9,000 bytes with a checksum. Who knows a faster checksum than the core's table sets `Config::checksum`.
pub fn of_9000_bytes(limits: &Limits) {
    let mut scene = Scene::new(limits, 1);
    scene.lose(|packet| packet.from == PEER && packet.data.is_some());
    scene.post_writes(PEER, 0, 0, 100_000, 1);
    scene.net.settle();
    let mut packet = scene.first_of(Opcode::Write);
    packet.resize(9_000, 7);
    seal(&mut packet);
    scene.hand_in_counted(&packet);
}

/// Messages are in place that each add to a word of memory, and wait for the first of their stream.
pub fn that_lets_all_take_effect(limits: &Limits) {
    let mut scene = Scene::new(limits, 1);
    scene.lose(|packet| packet.from == PEER && packet.data.is_some_and(|data| data.msn == Msn::new(0)));
    let remote = scene.remote(PEER);
    let operation = Operation::WriteSignal { remote, signal: remote, addend: 1 };
    let request = WorkRequest { inline: &[7; 64], ..WorkRequest::new(0, operation, &[]) };
    let messages = (0..limits.messages).take_while(|_| scene.post(PEER, 0, 0, request).is_ok()).count();
    assert!(messages > 20, "{messages} messages");
    scene.net.run_for(100 * MS);
    let first = scene.first_of(Opcode::Write);
    scene.hand_in_counted(&first);
}

/// Tagged receives are posted of which the last matches no message but the newest, and no other matches any.
pub fn with_a_tag(limits: &Limits) {
    let mut scene = Scene::new(limits, 1);
    let handle = scene.connections[0][0];
    let into = [Segment { region: scene.regions[VICTIM].id, offset: 0, length: 64 }];
    let endpoint = &mut scene.net.hosts[VICTIM].endpoint;
    for receive in 1..=limits.receives {
        let entry = TagEntry { bits: if receive == limits.receives { 3 } else { 2 }, mask: u64::MAX };
        endpoint.post_tagged_recv(handle, StreamId(0), u64::from(receive), entry, &into).unwrap();
    }
    scene.lose(|packet| packet.from == PEER && packet.data.is_some());
    let operation = Operation::SendTagged { bits: 1, immediate: None };
    let request = WorkRequest { inline: &[7; 64], ..WorkRequest::new(0, operation, &[]) };
    scene.post(PEER, 0, 0, request).unwrap();
    scene.net.settle();
    let first = scene.first_of(Opcode::Send);
    // All are refused but the last.
    let waiting = limits.messages / 4;
    for number in 0..=waiting {
        let mut packet = first.clone();
        let (mut base, body) = Base::parse(&first).unwrap();
        let (mut data, payload) = DataHeader::parse(body).unwrap();
        base.psn = base.psn.plus(number);
        data.csn = data.csn.plus(number);
        data.msn = data.msn.plus(number);
        data.receive_index = data.receive_index.plus(number);
        data.match_bits = Some(if number == waiting { 3 } else { 1 });
        let at = base.emit(&mut packet).unwrap();
        let at = at + data.emit(&mut packet[at..]).unwrap();
        packet[at..].copy_from_slice(payload);
        seal(&mut packet);
        if number == waiting { scene.hand_in_counted(&packet) } else { scene.hand_in(&packet) }
    }
}

/// Requests are posted of which the first fails at the peer.
pub fn result_that_fails_all(limits: &Limits) {
    let mut scene = Scene::new(limits, 1);
    // What comes back is kept for later.
    scene.lose(|packet| packet.from == PEER);
    let segments = [Segment { region: scene.regions[VICTIM].id, offset: 0, length: 64 }];
    let nowhere = RemoteAddress { address: u64::from(REGION), ..scene.remote(VICTIM) };
    let operation = Operation::Write { remote: nowhere, immediate: None };
    scene.post(VICTIM, 0, 0, WorkRequest::new(0, operation, &segments)).unwrap();
    scene.net.settle();
    scene.net.run_for(MS);
    scene.lose(|packet| packet.from == VICTIM);
    scene.post_writes(VICTIM, 0, 0, 64, usize::MAX);
    scene.net.settle();
    let result = scene.first_of(Opcode::Result);
    scene.hand_in_counted(&result);
}

/// The peer ends the one stream, on which all receives are posted, all requests are, and messages wait for the first.
pub fn reset_of_everything(limits: &Limits) {
    let mut scene = with_everything_open(limits);
    let handle = scene.connections[0][1];
    scene.clear();
    // What is under way gets its verdict first, as VOID.
    scene.lose(|packet| {
        packet.data.is_some_and(|data| packet.from == VICTIM || data.opcode == Opcode::StreamReset)
    });
    let now = scene.net.now();
    scene.net.hosts[PEER].endpoint.reset_stream(now, handle, StreamId(0)).unwrap();
    let sent = Rc::clone(&scene.sent);
    let is_reset = |data: DataHeader| data.opcode == Opcode::StreamReset;
    let resets = scene
        .net
        .run_until(10_000 * MS, |_| sent.borrow().iter().any(|packet| packet.data.is_some_and(is_reset)));
    assert!(resets, "the peer ends the stream");
    let reset = scene.first_of(Opcode::StreamReset);
    scene.hand_in_counted(&reset);
}

/// The peer closes a connection with all receives posted.
pub fn close_with_receives(limits: &Limits) {
    let mut scene = Scene::new(limits, 1);
    let [ours, theirs] = scene.connections[0];
    let into = [Segment { region: scene.regions[VICTIM].id, offset: 0, length: 64 }];
    while scene.net.hosts[VICTIM].endpoint.post_recv(ours, StreamId(0), 0, &into).is_ok() {}
    scene.lose(|packet| packet.is_close);
    let now = scene.net.now();
    scene.net.hosts[PEER].endpoint.close(now, theirs, CloseMode::Drain).unwrap();
    scene.net.settle();
    let close = scene.sent.borrow().iter().find(|packet| packet.is_close).unwrap().header.clone();
    scene.hand_in_counted(&close);
}

/// All receives are posted, all requests are, and messages wait for the first of their stream.
pub fn with_everything_open(limits: &Limits) -> Scene {
    let mut scene = Scene::new(limits, 1);
    let handle = scene.connections[0][0];
    let into = [Segment { region: scene.regions[VICTIM].id, offset: 0, length: 64 }];
    let endpoint = &mut scene.net.hosts[VICTIM].endpoint;
    while endpoint.post_recv(handle, StreamId(0), 0, &into).is_ok() {}
    scene.lose(|packet| packet.from == PEER && packet.data.is_some_and(|data| data.msn == Msn::new(0)));
    scene.post_writes(PEER, 0, 0, 64, limits.messages as usize);
    scene.net.run_for(50 * MS);
    scene.lose(|packet| packet.from == VICTIM && packet.data.is_some());
    scene.post_writes(VICTIM, 0, 0, 64, usize::MAX);
    scene.net.settle();
    scene
}
