//! The harness of the fuzz targets on random bytes, on the seeds, and on what once failed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use metaroce_fuzz::datagram::{self, Forged};
use metaroce_fuzz::{TARGETS, seeds};
use quickcheck::{Gen, QuickCheck};

/// The same bytes in every run, so that a failure can be replayed: libFuzzer is there to find new ones.
fn random(bytes: usize) -> Gen {
    let seed = std::env::var("METAROCE_SEED").map_or(1, |seed| seed.parse().unwrap());
    println!("METAROCE_SEED={seed}");
    Gen::from_size_and_seed(bytes, seed)
}

/// Runs a target on so many random inputs of up to so many bytes.
macro_rules! properties {
    ($($name:ident: $target:ident, $tests:literal, $bytes:literal;)*) => {$(
        #[test]
        fn $name() {
            fn property(input: Vec<u8>) -> bool {
                metaroce_fuzz::$target::run(&input);
                true
            }
            let mut check = QuickCheck::new().tests($tests).max_tests($tests).rng(random($bytes));
            check.quickcheck(property as fn(Vec<u8>) -> bool);
        }
    )*};
}

properties! {
    headers_survive_any_bytes: header, 20_000, 300;
    endpoints_survive_any_datagrams: datagram, 300, 1_500;
    programs_do_what_the_oracle_says: program, 60, 500;
    containers_do_what_their_models_do: containers, 500, 800;
    handshakes_survive_floods: handshake, 300, 1_000;
    congestion_control_keeps_its_bounds: congestion, 300, 2_000;
    frames_survive_any_bytes: frame, 20_000, 300;
    devices_survive_any_commands: control, 300, 1_500;
    scenarios_survive_any_bytes: scenario, 500, 500;
}

#[test]
fn every_seed_passes() {
    for (target, run) in TARGETS {
        let seeds = seeds::of(target);
        assert!(seeds.len() > 10, "{target} has seeds");
        for (name, bytes) in seeds {
            println!("{target} {name}");
            run(&bytes);
        }
    }
}

/// Otherwise the target would only ever see the first checks.
#[test]
fn most_forged_packets_pass_the_first_checks_and_a_tenth_is_taken() {
    let mut sum = Forged::default();
    for (_, bytes) in seeds::of("datagram") {
        let Forged { consumed, duplicates, dropped_early, dropped } = datagram::play(&bytes);
        sum.consumed += consumed;
        sum.duplicates += duplicates;
        sum.dropped_early += dropped_early;
        sum.dropped += dropped;
    }
    println!("{sum:?}");
    let all = sum.consumed + sum.duplicates + sum.dropped_early + sum.dropped;
    assert!(all > 50 && 2 * sum.dropped_early < all && 12 * sum.consumed > all, "{sum:?}");
}

/// `fuzz/regressions/TARGET/NAME`: minimised inputs that once failed.
#[test]
fn what_once_failed_passes() {
    for (target, run) in TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions").join(target);
        let Ok(entries) = std::fs::read_dir(folder) else { continue };
        for entry in entries {
            let path = entry.unwrap().path();
            println!("{}", path.display());
            run(&std::fs::read(path).unwrap());
        }
    }
}
