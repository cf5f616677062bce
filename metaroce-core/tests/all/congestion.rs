//! Windows of a whole connection: shared growth, idle restart, less than one packet per round trip, other algorithms.

use crate::common::*;
use metaroce_conformance::{Faults, Network};
use metaroce_core::congestion::{CongestionControl, DelayTarget, Feedback, PathWindow, WindowBounds};
use metaroce_core::{ConnectionHandle, HeapStorage, PathId};

type Net = Network<HeapStorage>;

fn windows(net: &mut Net, connection: ConnectionHandle) -> Vec<u64> {
    (0..8)
        .map(|path| net.hosts[0].endpoint.path_stats(connection, PathId(path)).unwrap().window_bytes)
        .collect()
}

//= MR-CC-16 test
#[test]
fn windows_that_idled_start_anew() {
    let mut net = network(1, Faults { byte_ps: 80, ..Faults::NONE });
    let [connection, _] = connect(&mut net);
    write(&mut net, connection, 1, 16 << 20);
    all_good(&wait(&mut net, 0, 1));
    let busy: u64 = windows(&mut net, connection).iter().sum();
    assert!(busy > 512 << 10, "windows grew while there was work: {busy}");
    net.run_for(20 * MS);
    let mut first_burst = 0;
    write(&mut net, connection, 2, 1 << 20);
    net.settle();
    let stats = net.hosts[0].endpoint.connection_stats(connection).unwrap();
    first_burst += stats.bytes_in_flight;
    assert!(first_burst <= 80 << 10, "{first_burst} bytes at once after idling");
    all_good(&wait(&mut net, 0, 1));
}

//= MR-CC-12 test
#[test]
fn a_connection_that_is_always_marked_sends_less_than_one_packet_per_round_trip() {
    let faults = Faults { marking: 1_000_000, byte_ps: 80, delay_ns: 50_000, ..Faults::NONE };
    let mut net = network_with(2, faults, |config| config.pto_ns_min = 10 * MS);
    let [connection, _] = connect(&mut net);
    net.run_for(20 * MS);
    write(&mut net, connection, 1, 16 << 20);
    net.run_for(200 * MS);
    let least = windows(&mut net, connection).into_iter().min().unwrap();
    assert!(least < 1_000, "the smallest window is {least} bytes");
    let before = net.hosts[0].endpoint.connection_stats(connection).unwrap().packets_sent;
    net.run_for(100 * MS);
    let after = net.hosts[0].endpoint.connection_stats(connection).unwrap().packets_sent;
    // A thousand round trips of eight paths.
    assert!(after - before < 1_000, "{} packets in 1000 round trips", after - before);
    assert!(after > before, "it goes on all the same");
    // Marks end: it recovers.
    net.faults.marking = 0;
    all_good(&wait(&mut net, 0, 1));
}

/// On the same line, with every packet marked: the default stops at a fraction of a packet, delay alone does not care.
#[test]
fn another_algorithm_decides_by_delay_alone() {
    let faults = Faults { marking: 1_000_000, byte_ps: 80, delay_ns: 50_000, ..Faults::NONE };
    let mut net = network_with(3, faults, |config| {
        config.congestion = &DelayTarget;
        config.delay_target_ns = 50_000;
    });
    let [connection, _] = connect(&mut net);
    let start = net.now();
    write(&mut net, connection, 1, 16 << 20);
    let mut most = 0;
    let done = net.run_until(SECOND, |net| {
        let stats = net.hosts[0].endpoint.connection_stats(connection).unwrap();
        most = most.max(stats.bytes_in_flight);
        stats.bytes_in_flight == 0 && stats.bytes_sent >= 16 << 20
    });
    assert!(done, "it goes on for ever");
    // 12.5 GB/s and 100 µs hold 1.25 MB; the target of one path after the other adds up to twice 50 µs to it.
    assert!(most < 3 << 20, "{most} bytes in flight");
    let took = net.now().since(start);
    all_good(&wait(&mut net, 0, 1));
    assert!(took < 4 * MS, "16 MiB take 1.3 ms at the rate of the line: {took} ns");
}

/// As a user of the crate would write one: two packets on each path, come what may.
struct TwoPackets;

impl CongestionControl for TwoPackets {
    fn on_start(&self, window: &mut PathWindow, bounds: &WindowBounds) {
        window.window_bytes = 2 * bounds.packet_bytes;
    }
    fn on_feedback(&self, window: &mut PathWindow, _: &Feedback, bounds: &WindowBounds) {
        window.window_bytes = 2 * bounds.packet_bytes;
        window.scratch[0] += 1;
    }
    fn on_timeout(&self, _: &mut PathWindow, _: &WindowBounds) {}
}

#[test]
fn an_algorithm_of_the_users_own_sets_the_windows() {
    let mut net = network_with(4, Faults { loss: 10_000, ..Faults::NONE }, |config| {
        config.congestion = &TwoPackets;
    });
    let [connection, _] = connect(&mut net);
    write(&mut net, connection, 1, 4 << 20);
    net.run_for(5 * MS);
    let windows = windows(&mut net, connection);
    assert!(windows.iter().all(|bytes| (2_000..=2 * 9_100).contains(bytes)), "{windows:?}");
    let in_flight = net.hosts[0].endpoint.connection_stats(connection).unwrap().bytes_in_flight;
    assert!(in_flight <= windows.iter().sum(), "{in_flight}");
    all_good(&wait(&mut net, 0, 1));
}
