//! Shares: what the receiver tells, and how a sender keeps to it.

use std::cell::RefCell;
use std::rc::Rc;

use crate::common::pair::data_of;
use crate::common::*;
use metaroce_conformance::{Faults, Network};
use metaroce_core::wire::{Base, PacketType, Probe};
use metaroce_core::{
    CloseMode, Config, ConnectOptions, ConnectionHandle, Datagram, Ecn, Endpoint, Event, HeapStorage, Limits,
    Operation, PathId, Progress, ProtectionDomain, RemoteAddress, Segment, StreamId, Transmit, WorkRequest,
};

type Net = Network<HeapStorage>;

/// 1 Gbit/s, of which 98 % are given out.
const SLOW: u32 = 1_000_000;

/// Demands of DATA and PROBE packets, in the order of sending, and whether each was a PROBE.
type Sent = Rc<RefCell<Vec<(bool, u32, usize)>>>;

fn watch(net: &mut Net) -> Sent {
    let sent = Sent::default();
    let shared = Rc::clone(&sent);
    net.filter = Some(Box::new(move |from, transmit: &Transmit| {
        if from == 0 {
            let length = transmit.payload_length();
            let (base, body) = Base::parse(transmit.header()).unwrap();
            if base.kind == PacketType::Probe {
                shared.borrow_mut().push((true, Probe::parse(body).unwrap().0.demand_kib, length));
            } else if let Some(header) = data_of(transmit) {
                shared.borrow_mut().push((false, header.demand_kib, length));
            }
        }
        false
    }));
    sent
}

fn slow_network(seed: u64, faults: Faults) -> Net {
    network_with(seed, faults, |config| config.inbound_rate_kbps = SLOW)
}

//= MR-CC-22 test
#[test]
fn a_sender_keeps_to_the_share_that_it_is_told() {
    // The wire is a hundred times as fast as what the receiver gives out.
    let faults = Faults { byte_ps: 80, delay_ns: 20_000, ..Faults::NONE };
    let mut net = slow_network(1, faults);
    let [connection, _] = connect(&mut net);
    net.run_for(20 * MS);
    write(&mut net, connection, 1, 4 << 20);
    net.run_for(2 * MS);
    let before = net.hosts[0].endpoint.connection_stats(connection).unwrap().bytes_sent;
    net.run_for(20 * MS);
    let after = net.hosts[0].endpoint.connection_stats(connection).unwrap().bytes_sent;
    // 20 ms at 980 Mbit/s are 2.45 MB of wire bytes; a packet of 4,096 bytes takes 4,242.
    let payload = after - before;
    assert!((2_200_000..=2_450_000).contains(&payload), "{payload} bytes in 20 ms");
    all_good(&wait(&mut net, 0, 1));
}

//= MR-CC-7 test
#[test]
fn windows_add_up_to_what_the_share_can_use() {
    let faults = Faults { byte_ps: 80, delay_ns: 20_000, ..Faults::NONE };
    let mut net = network_with(2, faults, |config| config.inbound_rate_kbps = 10 * SLOW);
    let [connection, _] = connect(&mut net);
    net.run_for(20 * MS);
    write(&mut net, connection, 1, 16 << 20);
    net.run_for(5 * MS);
    let stats: Vec<_> =
        (0..8).map(|path| net.hosts[0].endpoint.path_stats(connection, PathId(path)).unwrap()).collect();
    let sum: u64 = stats.iter().map(|path| path.window_bytes).sum();
    let rtt_ns = stats.iter().map(|path| path.rtt_ns_base).max().unwrap().max(50_000);
    // 9.8 Gbit/s are 1.225 bytes/ns; no window is scaled below a packet.
    let most = (rtt_ns * 1_225 / 1_000 * 2).max(8 * 4_200);
    assert!(sum <= most + most / 50, "{sum} bytes of {most}");
    all_good(&wait(&mut net, 0, 1));
}

//= MR-CC-13 test
#[test]
fn the_first_burst_is_the_product_of_rate_and_round_trip_shared_by_all_connections() {
    for others in [0, 7] {
        let faults = Faults { byte_ps: 1, delay_ns: 20_000, ..Faults::NONE };
        let mut net = network_with(3, faults, |config| {
            config.inbound_rate_kbps = 40 * SLOW;
            config.window_bytes_start = 1 << 20;
        });
        let [connection, _] = connect(&mut net);
        for _ in 0..others {
            connect(&mut net);
        }
        net.run_for(20 * MS);
        write(&mut net, connection, 1, 4 << 20);
        // It leaves at the rate of the line, and its first acknowledgement comes after 40 µs.
        net.run_for(39_000);
        let burst = net.hosts[0].endpoint.connection_stats(connection).unwrap().bytes_in_flight;
        // 40 Gbit/s in 50 µs are 250 KB; what was told may be out of date by a factor of 2.
        let product = 250_000 / (others + 1);
        assert!(burst <= 2 * product, "{burst} bytes with {others} other connections");
        assert!(burst + 8 * 4_200 >= product / 2, "{burst} bytes with {others} other connections");
    }
}

//= MR-CC-14 test
#[test]
fn who_may_start_with_less_than_a_packet_asks_first() {
    let faults = Faults { byte_ps: 80, delay_ns: 20_000, ..Faults::NONE };
    // The product is 500 Mbit/s × 50 µs = 3 KB.
    let mut net = network_with(4, faults, |config| config.inbound_rate_kbps = SLOW / 2);
    let [connection, _] = connect(&mut net);
    net.run_for(20 * MS);
    let sent = watch(&mut net);
    write(&mut net, connection, 1, 200);
    net.settle();
    assert_eq!(sent.borrow().as_slice(), [(false, 0, 200)], "so little needs no announcement");
    all_good(&wait(&mut net, 0, 1));
    net.run_for(20 * MS);
    sent.borrow_mut().clear();
    write(&mut net, connection, 2, 100_000);
    net.settle();
    assert_eq!(sent.borrow().as_slice(), [(true, 98, 0)], "one PROBE with the demand, and no data");
    net.run_for(45_000);
    assert!(sent.borrow().iter().all(|&(is_probe, ..)| is_probe), "not before the answer");
    all_good(&wait(&mut net, 0, 1));

    // Nobody answers: after a PTO one packet goes all the same.
    net.run_for(20 * MS);
    sent.borrow_mut().clear();
    let shared = Rc::clone(&sent);
    net.filter = Some(Box::new(move |from, transmit| {
        let is_data = Base::parse(transmit.header()).is_ok_and(|(base, _)| base.kind == PacketType::Data);
        if from == 0 && is_data {
            shared.borrow_mut().push((false, 0, transmit.payload_length()));
        }
        from == 1
    }));
    write(&mut net, connection, 3, 100_000);
    net.run_for(190_000);
    assert_eq!(sent.borrow().len(), 1, "{:?}", sent.borrow());
    net.filter = None;
    all_good(&wait(&mut net, 0, 1));
}

//= MR-CC-17 test
//= MR-CC-18 test
#[test]
fn the_demand_ends_with_the_last_packet_and_counts_nothing_that_waits_for_credit() {
    let faults = Faults { byte_ps: 80, delay_ns: 20_000, ..Faults::NONE };
    let mut net = network_with(5, faults, |config| config.initial_credits = 1);
    let [connection, _] = connect(&mut net);
    net.run_for(20 * MS);
    let sent = watch(&mut net);
    write(&mut net, connection, 1, 10_000);
    net.settle();
    let demands: Vec<u32> = sent.borrow().iter().map(|&(_, demand, _)| demand).collect();
    assert_eq!(demands, [6, 2, 0], "KiB left after each packet, rounded up");
    all_good(&wait(&mut net, 0, 1));
    sent.borrow_mut().clear();
    // The second SEND has no credit: after the first nothing can be sent.
    let from = net.hosts[0].register(vec![1; 2_000]);
    for id in 2..4 {
        let now = net.now();
        let segments = [Segment { region: from.id, offset: 0, length: 2_000 }];
        let operation = Operation::Send { immediate: None };
        let request = WorkRequest::new(id, operation, &segments);
        net.hosts[0].endpoint.post(now, connection, StreamId(0), request).unwrap();
    }
    net.settle();
    let demands: Vec<u32> = sent.borrow().iter().map(|&(_, demand, _)| demand).collect();
    assert_eq!(demands, [0]);
}

//= MR-PATH-31 test
#[test]
fn nothing_moves_when_all_paths_are_marked() {
    let faults = Faults { marking: 500_000, byte_ps: 80, delay_ns: 20_000, ..Faults::NONE };
    let mut net = network(6, faults);
    let [connection, _] = connect(&mut net);
    net.run_for(20 * MS);
    write(&mut net, connection, 1, 8 << 20);
    all_good(&wait(&mut net, 0, 1));
    for path in 0..8 {
        let stats = net.hosts[0].endpoint.path_stats(connection, PathId(path)).unwrap();
        assert!(stats.packets_marked > 0);
        assert_eq!(stats.repaths, 0, "{stats:?}");
    }
}

//= MR-CC-19 test
#[test]
fn two_senders_divide_a_receiver_evenly() {
    let faults = Faults { byte_ps: 80, delay_ns: 20_000, ..Faults::NONE };
    let hosts: Vec<_> = (0..3)
        .map(|number| {
            let config = Config { inbound_rate_kbps: SLOW, ..config(40 + number) };
            (config, HeapStorage::new(&Limits::HOST))
        })
        .collect();
    let mut net = Network::new(7, faults, hosts);
    let remote = net.hosts[2].address;
    let now = net.now();
    let connections: Vec<ConnectionHandle> = (0..2)
        .map(|host| net.hosts[host].endpoint.connect(now, ConnectOptions::to(remote)).unwrap())
        .collect();
    let mut incoming = Vec::new();
    let accept = |net: &mut Net| {
        for event in net.hosts[2].take_events() {
            if let Event::Incoming { connection, .. } = event {
                let now = net.now();
                incoming.push(connection);
                let endpoint: &mut Endpoint<HeapStorage> = &mut net.hosts[2].endpoint;
                endpoint.accept(now, connection, ProtectionDomain(0), &[]).unwrap();
            }
        }
        false
    };
    net.run_until(20 * MS, accept);
    let to = net.hosts[2].register(vec![0; 4 << 20]);
    for (host, &connection) in connections.iter().enumerate() {
        let from = net.hosts[host].register(vec![1; 4 << 20]);
        let remote = RemoteAddress { key: to.key, address: 0 };
        let segments = [Segment { region: from.id, offset: 0, length: 4 << 20 }];
        let request = WorkRequest::new(1, Operation::Write { remote, immediate: None }, &segments);
        let now = net.now();
        net.hosts[host].endpoint.post(now, connection, StreamId(0), request).unwrap();
    }
    net.run_for(5 * MS);
    for (host, &connection) in connections.iter().enumerate() {
        let stats = net.hosts[host].endpoint.path_stats(connection, PathId(0)).unwrap();
        assert_eq!(stats.share_kbps, SLOW * 98 / 100 / 2, "host {host}");
    }
    let now = net.now();
    // In the middle of what its peer sends.
    net.hosts[2].endpoint.close(now, incoming[0], CloseMode::Flush).unwrap();
    net.run_for(10 * MS);
    let mut share = |host: usize| {
        net.hosts[host].endpoint.path_stats(connections[host], PathId(0)).map(|stats| stats.share_kbps)
    };
    assert_eq!(share(0).max(share(1)), Some(SLOW * 98 / 100), "a connection that is closed takes no part");
}

/// Found by fuzzing: the answer to a question for a share comes after that share is stale, and asked the next question.
#[test]
fn a_pair_with_nothing_to_send_falls_silent_however_late_its_answers_come() {
    let mut net = network_with(9, Faults { delay_ns: 0, byte_ps: 1, ..Faults::NONE }, |config| {
        *config = Config { checksum_wanted: false, ..Config::hardware(config.seed) };
    });
    let [connection, _] = connect(&mut net);
    write(&mut net, connection, 1, 100_000);
    all_good(&wait(&mut net, 0, 1));
    net.run_for(10 * MS);
    write(&mut net, connection, 2, 10_000);
    // From here on each host looks at the network every 20 µs only, and its peer knows how long it held the packets.
    let mut now = net.now();
    let mut batch = vec![Transmit::EMPTY; 64];
    let mut packets = Vec::new();
    for _ in 0..500 {
        let mut sent = 0;
        for from in 0..2 {
            now = now.after(20_000);
            while net.hosts[from].endpoint.handle_timeout(now) == Progress::More {}
            let count = net.hosts[from].endpoint.poll_transmit(now, &mut batch);
            sent += count;
            let source = net.hosts[from].address;
            let host = &mut net.hosts[1 - from];
            for transmit in &batch[..count] {
                let mut bytes = transmit.header().to_vec();
                bytes.resize(transmit.datagram_length(), 0);
                let datagram = Datagram { source, plane: 0, ecn: Ecn::Ect0, bytes: &bytes };
                let _ = host.endpoint.handle_datagram(now, datagram, &mut host.memory);
            }
        }
        packets.push(sent);
    }
    assert!(packets.iter().sum::<usize>() > 4, "{packets:?}");
    assert_eq!(packets[400..], [0; 100], "8 ms after the last data");
}
