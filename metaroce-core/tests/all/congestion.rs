//! Windows of a whole connection: shared growth, idle restart, and less than one packet per round trip.

use crate::common::*;
use metaroce_conformance::{Faults, Network};
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
