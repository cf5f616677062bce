//! The same seed and inputs give the same outputs, byte for byte, whatever the storage.

use std::sync::Mutex;

use metaroce_conformance::model::{self, Program};
use metaroce_conformance::{Network, Random, Traffic};
use metaroce_core::{HeapStorage, Limits, fixed_storage};

const LIMITS: Limits = Limits {
    connections: 3,
    paths_per_connection: 8,
    streams: 16,
    requests: 128,
    receives: 96,
    messages: 64,
    packets: 256,
    regions: 40,
    queues: 2,
    csn_window: 256,
};

type Fixed = fixed_storage!(LIMITS);

// In static memory: no heap is asked for any of it.
static FIXED: Mutex<[Fixed; 2]> = Mutex::new([const { Fixed::new(LIMITS) }; 2]);

/// A program for two hosts.
fn program(random: &mut Random) -> Program {
    loop {
        let program = Program::random(random);
        if program.hosts == 2 {
            return Program { limits: LIMITS, ..program };
        }
    }
}

fn on_the_heap(seed: u64) -> Traffic {
    let mut random = Random::new(seed);
    let program = program(&mut random);
    let hosts = (0..2).map(|_| (model::config(&mut random), HeapStorage::new(&LIMITS)));
    let mut net = Network::new(seed, program.faults, hosts);
    model::play(&program, &mut net, seed).unwrap();
    net.traffic
}

fn in_a_static(seed: u64) -> Traffic {
    let mut random = Random::new(seed);
    let program = program(&mut random);
    let mut storages = FIXED.lock().unwrap();
    let hosts = storages.iter_mut().map(|storage| (model::config(&mut random), storage));
    let mut net = Network::new(seed, program.faults, hosts);
    model::play(&program, &mut net, seed).unwrap();
    net.traffic
}

#[test]
//= MR-SEC-8 test
fn heap_and_static_storage_send_the_same_bytes_at_the_same_times() {
    for seed in 0..30 {
        let first = on_the_heap(seed);
        assert!(first.sent > 10);
        assert_eq!(first, on_the_heap(seed), "seed {seed}, again");
        // A used storage is as good as a new one.
        assert_eq!(first, in_a_static(seed), "seed {seed}, in a static");
    }
}

#[test]
fn another_seed_sends_other_bytes() {
    assert_ne!(on_the_heap(1).hash, on_the_heap(2).hash);
}
