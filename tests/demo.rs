//! The demonstration: two processes over real UDP sockets.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "in tests a failure is a panic"
)]

mod support;

use std::time::Duration;

use serde_json::Value;
use support::program::{Place, run};

const LIMIT: Duration = Duration::from_mins(2);

fn demo(arguments: &[&str]) -> Value {
    let mut command = Place::here().metaroce();
    command.args(["demo", "--json", "--seed", "1"]).args(arguments);
    let report = run(&mut command, LIMIT).expect_success().json();
    assert_eq!(report["verified"], true, "{report}");
    assert!(report["goodput_gbps"].as_f64().unwrap() > 0.0, "{report}");
    report
}

fn count(report: &Value, name: &str) -> u64 {
    report[name].as_u64().unwrap_or_else(|| panic!("no {name} in {report}"))
}

#[test]
fn one_percent_loss_is_repaired_without_needless_retransmissions() {
    let report = demo(&["--size", "64MiB", "--loss", "0.01"]);
    assert_eq!(count(&report, "size"), 64 << 20);
    assert!(count(&report, "packets_sent") >= (64 << 20) / 9000);
    assert!(count(&report, "injected_lost") > 0, "{report}");
    assert!(count(&report, "retransmitted") > 0, "{report}");
    assert_eq!(count(&report, "spurious"), 0, "{report}");
}

#[test]
fn ten_percent_loss_is_repaired_without_needless_retransmissions() {
    let report = demo(&["--size", "32MiB", "--loss", "0.1"]);
    assert!(count(&report, "lost") > 100, "{report}");
    assert_eq!(count(&report, "spurious"), 0, "{report}");
}

#[test]
fn nothing_is_lost_or_sent_again_without_loss() {
    let report = demo(&["--size", "64MiB", "--loss", "0"]);
    assert_eq!(count(&report, "injected_lost"), 0);
    if count(&report, "socket_overflows") == 0 {
        assert_eq!(count(&report, "spurious"), 0, "{report}");
        assert_eq!(count(&report, "retransmitted"), 0, "{report}");
    } else {
        support::skip(
            "nothing_is_lost_or_sent_again_without_loss",
            "a socket buffer of this machine overflowed",
        );
    }
}

#[test]
fn reordering_is_survived() {
    let report = demo(&["--size", "32MiB", "--loss", "0.01", "--reorder"]);
    assert!(count(&report, "injected_reordered") > 0, "{report}");
}

#[test]
fn the_same_works_over_ipv6() {
    if std::net::UdpSocket::bind("[::1]:0").is_err() {
        return support::skip("the_same_works_over_ipv6", "this machine has no IPv6 loopback");
    }
    let report = demo(&["--size", "32MiB", "--loss", "0.01", "--ipv6"]);
    assert!(count(&report, "retransmitted") > 0, "{report}");
}

#[test]
fn every_path_carries_its_share_from_its_own_port() {
    let report = demo(&["--size", "32MiB", "--loss", "0.01", "--paths", "4"]);
    let paths = report["paths"].as_array().unwrap();
    assert_eq!(paths.len(), 4, "{report}");
    let mut ports: Vec<_> = paths.iter().map(|path| path["source_port"].as_u64().unwrap()).collect();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 4, "{report}");
    for path in paths {
        assert!(count(path, "packets_sent") > 0, "{report}");
        assert!(path["rtt_us_smoothed"].as_f64().unwrap() > 0.0, "{report}");
        assert!(count(path, "window_bytes") > 0, "{report}");
    }
}

#[test]
fn a_table_is_printed_for_people() {
    let mut command = Place::here().metaroce();
    command.args(["demo", "--size", "1MiB", "-v"]);
    let outcome = run(&mut command, LIMIT).expect_success();
    for word in ["verified", "goodput", "retransmitted", "RTT", "window", "marked"] {
        assert!(outcome.stdout.contains(word), "no {word} in {}", outcome.stdout);
    }
    assert!(outcome.stderr.contains("connection 0: open"), "{}", outcome.stderr);
}

#[test]
fn nonsense_arguments_are_refused_with_a_hint() {
    for arguments in [["--size", "much"], ["--loss", "2"], ["--paths", "0"]] {
        let mut command = Place::here().metaroce();
        let error = run(command.arg("demo").args(arguments), LIMIT).expect_failure();
        assert!(error.contains(arguments[0]), "{error}");
    }
}

#[test]
fn a_backend_that_is_not_compiled_in_says_what_to_do() {
    for (name, there) in [("uring", cfg!(feature = "uring")), ("xdp", cfg!(feature = "xdp"))] {
        if !there {
            let mut command = Place::here().metaroce();
            let error = run(command.args(["--backend", name, "info"]), LIMIT).expect_failure();
            assert!(
                error.contains(&format!("--features {name}")) && error.contains("--backend mio"),
                "{error}"
            );
        }
    }
}
