//! The simulator as a whole: the same twice, every byte right, and each effect where it was asked for.
#![cfg(feature = "cli")]
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests, which fail by panicking"
)]

use metaroce_conformance::sim::metrics::Outcome;
use metaroce_conformance::sim::scenario::{Scenario, swarm};
use metaroce_conformance::sim::units::ratio;

const BASE: &str = r"
[fabric]
leaves = 2
hosts_per_leaf = 2
spines = 4
gbps = 100.0
rtt_us = 10.0
";

fn run(rest: &str, seed: u64) -> Outcome {
    let scenario = Scenario::parse("test", &format!("{BASE}{rest}")).unwrap();
    scenario.cases[0].run(seed, &mut |_, _| {}).unwrap()
}

fn right(rest: &str, seed: u64) -> Outcome {
    let outcome = run(rest, seed);
    assert!(outcome.done && outcome.faults.is_empty(), "seed {seed}: {:?}", outcome.faults);
    outcome
}

const STREAM: &str = "[workload]\nkind = \"stream\"\nmib = 2.0\nmessage_kib = 128.0\n";

#[test]
fn equal_seeds_give_equal_runs_and_others_do_not() {
    let faulty = format!("{STREAM}[fault]\nfrom = \"leaf*\"\nto = \"spine*\"\nloss = 0.03\n");
    let hashes: Vec<u64> = [5, 5, 6].into_iter().map(|seed| right(&faulty, seed).hash).collect();
    assert_eq!(hashes[0], hashes[1]);
    assert_ne!(hashes[0], hashes[2]);
}

#[test]
fn nothing_is_faster_than_the_ideal() {
    for kind in ["stream", "incast", "permutation", "all-to-all", "ring-all-reduce"] {
        let outcome = right(&format!("[workload]\nkind = \"{kind}\"\nmib = 2.0\nmessage_kib = 64.0\n"), 1);
        assert!(outcome.slowdown() >= 1.0 && outcome.slowdown() < 3.0, "{kind}: {}", outcome.slowdown());
        assert_eq!(outcome.sum.spurious, 0, "{kind}");
        assert_eq!(outcome.lost, 0, "{kind}");
    }
}

#[test]
fn bytes_are_right_over_links_that_do_everything() {
    for seed in 1..=3 {
        let rest = "[transport]\nchecksums = true\n[workload]\nkind = \"permutation\"\nmib = 0.5\n\
                    message_kib = 32.0\n[fault]\nfrom = \"*\"\nto = \"*\"\nloss = 0.01\nduplication = 0.01\n\
                    reordering = 0.01\nreorder_us = 30.0\ncorruption = 0.01\n";
        right(rest, seed);
    }
}

#[test]
fn losses_are_as_many_as_asked_for_and_each_is_made_good_once() {
    let rest = "[workload]\nkind = \"stream\"\nmib = 32.0\nmessage_kib = 512.0\n\
                [fault]\nfrom = \"leaf0\"\nto = \"spine*\"\nloss = 0.02\n";
    let outcome = right(rest, 3);
    let rate = ratio(outcome.lost, outcome.sum.packets_sent);
    assert!((rate - 0.02).abs() < 0.005, "{rate}");
    let again = outcome.sum.retransmitted + outcome.sum.retransmitted_by_timeout;
    assert!(again <= outcome.lost && again + 20 >= outcome.lost, "{again} for {}", outcome.lost);
}

#[test]
fn loss_of_one_path_spares_the_others() {
    let rest =
        format!("{STREAM}[fault]\nfrom = \"leaf0\"\nto = \"spine*\"\nloss = 1.0\npath = 2\npath_of = 8\n");
    let outcome = right(&rest, 1);
    assert!(outcome.lost > 0);
    assert!(outcome.slowdown() < 4.0, "{}", outcome.slowdown());
}

#[test]
fn an_incast_is_marked_and_a_stream_alone_is_not() {
    let incast = right("[workload]\nkind = \"incast\"\nmib = 4.0\n", 1);
    assert!(incast.marked > 0 && incast.queue_peak_bytes > 25_000);
    assert_eq!(right(STREAM, 1).marked, 0);
}

#[test]
fn a_black_hole_of_all_routes_stops_everything_until_it_ends() {
    let rest = format!(
        "{STREAM}[[events]]\nat_us = 50.0\nfrom = \"leaf0\"\nto = \"spine*\"\naction = \"blackhole\"\n\
         [[events]]\nat_us = 550.0\nfrom = \"leaf0\"\nto = \"spine*\"\naction = \"unblackhole\"\n"
    );
    assert!(right(&rest, 1).time_ps > 550_000_000);
}

#[test]
fn roce_goes_back_and_metaroce_does_not() {
    let rest = |kind: &str| {
        format!(
            "{STREAM}[transport]\nkind = \"{kind}\"\n[fault]\nfrom = \"leaf0\"\nto = \"spine*\"\nloss = 0.02\n"
        )
    };
    let (ours, roce) = (right(&rest("metaroce"), 2), right(&rest("rocev2"), 2));
    assert!(ours.sum.retransmitted <= ours.lost);
    assert!(roce.sum.retransmitted > 4 * roce.lost, "{} for {}", roce.sum.retransmitted, roce.lost);
    assert!(roce.time_ps > ours.time_ps);
}

#[test]
fn the_signal_of_a_message_is_its_latency() {
    let outcome =
        right("[workload]\nkind = \"signals\"\nmib = 0.001\nmessage_kib = 0.0625\noutstanding = 1\n", 1);
    assert_eq!(outcome.latencies_ps.len(), 16);
    assert!((10.0..12.0).contains(&outcome.latency_us(50)), "{}", outcome.latency_us(50));
}

#[test]
fn runs_that_chance_made_up_are_right_and_the_same_twice() {
    for seed in 1..=12 {
        let outcome = swarm::run(seed).unwrap();
        assert!(
            outcome.faults.is_empty(),
            "seed {seed}: {:?}: replay with `metaroce-conformance swarm --runs 1 --show --seed {seed}`",
            outcome.faults
        );
    }
    assert_eq!(swarm::run(7).unwrap().hash, swarm::run(7).unwrap().hash);
}

#[test]
fn drifting_clocks_change_times_and_nothing_else() {
    let rest = |ppm: f64| {
        format!(
            "[transport]\nclock_ppm = {ppm:.1}\nclock_offset_ms = 50.0\n{STREAM}[fault]\nfrom = \"leaf0\"\nto = \"spine*\"\nloss = 0.02\n"
        )
    };
    let (true_clocks, others) = (right(&rest(0.0), 4), right(&rest(500.0), 4));
    assert_eq!((true_clocks.sum.spurious, others.sum.spurious), (0, 0));
    assert!(ratio(others.time_ps, true_clocks.time_ps) < 1.05);
}

#[test]
fn the_other_transports_and_workloads_bring_every_byte_too() {
    for kind in ["rocev2", "spray"] {
        for workload in ["all-to-all", "all-gather", "halving-doubling", "outcast-incast", "ring-all-reduce"]
        {
            let rest = format!(
                "[transport]\nkind = \"{kind}\"\n[workload]\nkind = \"{workload}\"\nmib = 0.5\nmessage_kib = 32.0\n\
                 [fault]\nfrom = \"leaf*\"\nto = \"spine*\"\nloss = 0.01\n"
            );
            assert!(right(&rest, 2).slowdown() >= 1.0, "{kind}, {workload}");
        }
    }
    for workload in ["all-gather", "halving-doubling", "key-value-reads", "outcast-incast"] {
        let rest = format!("[workload]\nkind = \"{workload}\"\nmib = 1.0\nmessage_kib = 32.0\n");
        assert!(right(&rest, 2).slowdown() >= 1.0, "{workload}");
    }
}

#[test]
fn four_planes_carry_more_than_one_can() {
    let rest = "[workload]\nkind = \"stream\"\nmib = 32.0\nmessage_kib = 1024.0\noutstanding = 16\n";
    let text = format!("{}planes = 4\n{rest}", BASE.trim_start());
    let scenario = Scenario::parse("test", &text).unwrap();
    let outcome = scenario.cases[0].run(1, &mut |_, _| {}).unwrap();
    assert!(outcome.faults.is_empty(), "{:?}", outcome.faults);
    assert!(outcome.goodput > 0.5, "of the rate of all four: {}", outcome.goodput);
}
