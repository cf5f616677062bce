//! Every counter wraps: PSN, CSN, MSN, receive index and timestamps start near their end.

use crate::common::pair::*;
use crate::common::*;
use metaroce_conformance::{Faults, Network};
use metaroce_core::ids::Serial;
use metaroce_core::wire::Base;
use metaroce_core::{AtomicOperation, HeapStorage, Instant, Limits, StreamId};

/// A pair whose CSNs start at `csn`, and the PSNs of whose first paths at `psn`.
fn pair(seed: u64, faults: Faults, csn: u32, psn: u32, start: Instant) -> Pair {
    let hosts = (0..2).map(|number| (config(seed * 2 + number), HeapStorage::new(&Limits::HOST)));
    let mut net = Network::new(seed, faults, hosts);
    net.start_at(start);
    for host in &mut net.hosts {
        host.endpoint.use_nonce((u64::from(psn) << 32) | u64::from(csn));
    }
    let connection = connect(&mut net);
    let region = [0, 1].map(|number| net.hosts[number].register(pattern(REGION, number as u64 + 1)));
    Pair { net, connection, region }
}

/// Traffic of all kinds in both directions, checked.
fn exercise(pair: &mut Pair, rounds: u64) {
    for round in 0..rounds {
        for host in 0..2 {
            pair.receive(1 - host, 0, 1_000 + round, 3_000_000..3_020_000);
            pair.receive(1 - host, 0, 2_000 + round, 0..0);
            pair.send(host, 0, round, 0..20_000);
            pair.write(host, 0, 10_000 + round, 100_000..200_000, 2_000_000, Some(round as u32));
            pair.read(host, 0, 20_000 + round, 4_000_000..4_050_000, 500_000);
            pair.atomic(host, 0, 30_000 + round, 5_000_000, 5_000_008, AtomicOperation::FetchAdd(1));
        }
        for host in 0..2 {
            let done = pair.wait(host, 6);
            all_good(&done);
            let posted: Vec<u64> = ids(&done).into_iter().filter(|id| id % 10_000 == round).collect();
            assert_eq!(posted, [round, 10_000 + round, 20_000 + round, 30_000 + round]);
            let peer = 1 - host;
            assert!(pair.bytes(host, 4_000_000..4_050_000) == pair.bytes(peer, 500_000..550_000));
            assert!(pair.bytes(peer, 2_000_000..2_100_000) == pair.bytes(host, 100_000..200_000));
            assert!(pair.bytes(peer, 3_000_000..3_020_000) == pair.bytes(host, 0..20_000));
        }
    }
}

const EARLY: Instant = Instant::from_nanos(1_000_000);

#[test]
fn csn_wraps_in_both_directions() {
    for seed in 0..8 {
        let faults = if seed == 0 { Faults::NONE } else { Faults::all(20_000) };
        for before in [1, 60, 400] {
            let mut pair = pair(seed, faults, 0_u32.wrapping_sub(before), 7, EARLY);
            exercise(&mut pair, 8);
            let stats = pair.net.hosts[0].endpoint.connection_stats(pair.connection[0]).unwrap();
            assert!(stats.packets_sent > u64::from(before), "the wrap was passed");
        }
    }
}

#[test]
fn psn_wraps_on_every_path() {
    for seed in 0..8 {
        let faults = if seed == 0 { Faults::NONE } else { Faults::all(20_000) };
        for path in 0..8_u32 {
            // The first PSNs of the paths are spread over the number space.
            let psn = 0_u32.wrapping_sub(path.wrapping_mul(0x9e37_79b9)).wrapping_sub(12);
            let mut pair = pair(seed, faults, 9, psn, EARLY);
            let wrapped = std::rc::Rc::new(std::cell::Cell::new([false; 2]));
            let seen = std::rc::Rc::clone(&wrapped);
            pair.net.filter = Some(Box::new(move |from, transmit| {
                let base = Base::parse(transmit.header()).unwrap().0;
                if data_of(transmit).is_some() && base.psn.raw() < 1_000 {
                    let mut flags = seen.get();
                    flags[from] = true;
                    seen.set(flags);
                }
                false
            }));
            exercise(&mut pair, 12);
            assert_eq!(wrapped.get(), [true; 2], "seed {seed} path {path}");
        }
    }
}

#[test]
fn msn_and_receive_index_wrap() {
    for seed in 0..8 {
        let faults = if seed == 0 { Faults::NONE } else { Faults::all(20_000) };
        for before in 0..10_u32 {
            let mut pair = pair(seed, faults, 5, 5, EARLY);
            for host in 0..2 {
                let start = 0_u32.wrapping_sub(before);
                let connection = pair.connection[host];
                let endpoint = &mut pair.net.hosts[host].endpoint;
                assert!(endpoint.start_counters_at(connection, StreamId(0), start, start));
            }
            exercise(&mut pair, 5);
        }
    }
}

#[test]
fn starved_sender_is_told_of_receives_across_the_wrap() {
    for before in 0..6_u32 {
        let mut pair = Pair::configured(3, Faults::NONE, |config| config.initial_credits = 1);
        for host in 0..2 {
            let start = 0_u32.wrapping_sub(before);
            let connection = pair.connection[host];
            assert!(pair.net.hosts[host].endpoint.start_counters_at(connection, S0, start, start));
        }
        for id in 0..20 {
            pair.send(0, 0, id, 0..100);
        }
        for id in 0..20 {
            pair.receive(1, 0, id, 0..100);
            let posted = pair.net.now();
            assert_eq!(ids(&pair.wait(1, 1)), [id]);
            assert!(pair.net.now().since(posted) < 2 * MS, "{before} before the wrap, message {id}");
        }
    }
}

#[test]
fn timestamps_wrap_with_no_false_round_trip_time() {
    for seed in 0..8 {
        let faults = if seed == 0 { Faults::NONE } else { Faults::all(20_000) };
        let wrap = 1_u64 << 36;
        let mut pair = pair(seed, faults, 1, 1, Instant::from_nanos(wrap - MS));
        exercise(&mut pair, 10);
        pair.net.run_for(2 * MS);
        exercise(&mut pair, 3);
        assert!(pair.net.now().as_nanos() > wrap);
        for path in 0..8 {
            let stats = pair.net.hosts[0]
                .endpoint
                .path_stats(pair.connection[0], metaroce_core::PathId(path))
                .unwrap();
            assert!(stats.rtt_ns_smoothed < MS, "{stats:?}");
        }
    }
}
