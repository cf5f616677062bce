//! File transfer between two network namespaces over four equal-cost planes.
#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "in tests a failure is a panic"
)]

mod support;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use support::noise;
use support::planes::{ADDRESS_B, Planes};
use support::program::{Running, Server, run};
use tempfile::TempDir;

const PORT: u16 = 4795;
const LIMIT: Duration = Duration::from_mins(2);

/// Two hosts, four planes, a server on B.
struct Setup {
    // In the order in which they go.
    _server: Server,
    planes: Planes,
    served: TempDir,
    local: TempDir,
}

impl Setup {
    fn new(test: &str) -> Option<Self> {
        let planes = match Planes::build(4) {
            Ok(planes) => planes,
            Err(reason) => {
                support::skip(test, &reason);
                return None;
            }
        };
        // One packet is one loss, not a whole segmented batch.
        planes.no_segmentation_offload();
        let (served, local) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let server = Server::start(&planes.b(), &format!("0.0.0.0:{PORT}"), served.path(), &[]);
        Some(Self { _server: server, planes, served, local })
    }

    fn start(&self, arguments: &[&str]) -> Running {
        let mut command = self.planes.a().metaroce();
        command
            .arg("--json")
            .args(arguments)
            .args([ADDRESS_B, "--paths", "16"])
            .current_dir(self.local.path());
        Running::start(&mut command)
    }

    fn write(&self, name: &str, content: &[u8]) {
        std::fs::write(self.local.path().join(name), content).unwrap();
    }

    fn assert_served(&self, name: &str, content: &[u8]) {
        assert!(
            std::fs::read(self.served.path().join(name)).unwrap() == content,
            "{name} differs at the server"
        );
    }
}

fn count(report: &Value, name: &str) -> u64 {
    report[name].as_u64().unwrap_or_else(|| panic!("no {name} in {report}"))
}

#[test]
fn different_paths_take_different_spines() {
    let Some(setup) = Setup::new("different_paths_take_different_spines") else { return };
    setup.planes.watch_ports();
    let before: Vec<_> = (0..4).map(|spine| setup.planes.sent_into(spine)).collect();
    let content = noise(1, 32 << 20);
    setup.write("a", &content);
    let report = setup.start(&["put", "a"]).finish(LIMIT).expect_success().json();
    setup.assert_served("a", &content);

    let mut homes = std::collections::BTreeMap::new();
    for spine in 0..4 {
        for (port, packets) in setup.planes.ports(spine) {
            homes.entry(port).or_insert_with(Vec::new).push((spine, packets));
        }
    }
    let paths = report["paths"].as_array().unwrap();
    let busy = paths.iter().filter(|path| count(path, "packets_sent") > 0);
    let mut spines = BTreeSet::new();
    for path in busy {
        let port = u16::try_from(count(path, "source_port")).unwrap();
        let home = homes.get(&port).unwrap_or_else(|| panic!("port {port} was seen in no spine: {homes:?}"));
        assert_eq!(home.len(), 1, "port {port} took more than one spine: {homes:?}");
        spines.insert(home[0].0);
    }
    assert!(spines.len() >= 3, "{} spines only: {homes:?}", spines.len());
    for &spine in &spines {
        let packets = setup.planes.sent_into(spine) - before[spine];
        assert!(packets > 100, "only {packets} packets into spine {spine}");
    }
}

#[test]
fn one_percent_loss_in_every_spine_is_survived() {
    let Some(setup) = Setup::new("one_percent_loss_in_every_spine_is_survived") else { return };
    setup.planes.lose(100);
    let content = noise(2, 64 << 20);
    setup.write("a", &content);
    let report = setup.start(&["put", "a"]).finish(LIMIT).expect_success().json();
    setup.assert_served("a", &content);
    let dropped: u64 = (0..4).map(|spine| setup.planes.lost(spine)).sum();
    assert!(dropped > 50, "the spines dropped {dropped}");
    assert!(count(&report, "retransmitted") + count(&report, "retransmitted_by_timeout") > 0, "{report}");

    std::fs::remove_file(setup.local.path().join("a")).unwrap();
    setup.start(&["get", "a"]).finish(LIMIT).expect_success();
    assert!(
        std::fs::read(setup.local.path().join("a")).unwrap() == content,
        "the file differs at the client"
    );
}

#[test]
fn a_spine_that_swallows_everything_is_survived() {
    let Some(setup) = Setup::new("a_spine_that_swallows_everything_is_survived") else { return };
    survive(&setup, Planes::blackhole);
}

#[test]
fn a_spine_whose_far_link_goes_down_is_survived() {
    let Some(setup) = Setup::new("a_spine_whose_far_link_goes_down_is_survived") else { return };
    survive(&setup, Planes::cut);
}

/// Breaks a spine that carries data, in the middle of a transfer.
fn survive(setup: &Setup, break_spine: impl FnOnce(&Planes, usize)) {
    let content = noise(3, 512 << 20);
    setup.write("a", &content);
    let mut client = setup.start(&["put", "a"]);
    let end = Instant::now() + LIMIT;
    let spine = loop {
        if !client.is_running() || Instant::now() > end {
            let outcome = client.finish(Duration::from_secs(1)).expect_success();
            panic!("no spine carried data: {}", outcome.stdout);
        }
        if let Some(spine) = (0..4).find(|&spine| setup.planes.sent_into(spine) > 2000) {
            break spine;
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    break_spine(&setup.planes, spine);
    assert!(client.is_running(), "the transfer was over before the failure");
    let report = client.finish(LIMIT).expect_success().json();
    setup.assert_served("a", &content);
    assert_eq!(report["verified"], true);
    assert!(count(&report, "retransmitted_by_timeout") > 0, "the failure was not felt: {report}");
}

/// Long: run by `cargo test --release --test planes -- --ignored`.
#[test]
#[ignore = "takes a minute and 8 GiB of disk"]
fn two_gibibytes_over_four_lossy_planes_come_back_the_same() {
    let Some(setup) = Setup::new("two_gibibytes_over_four_lossy_planes_come_back_the_same") else { return };
    setup.planes.lose(100);
    let hash = write_noise(&setup.local.path().join("a"), 2 << 30);
    let put = setup.start(&["put", "a"]).finish(10 * LIMIT).expect_success().json();
    assert_eq!(put["hash"], hash.as_str());
    assert_eq!(hash_file(&setup.served.path().join("a")), hash);
    let get = setup.start(&["get", "a", "-o", "b"]).finish(10 * LIMIT).expect_success().json();
    assert_eq!(get["hash"], hash.as_str());
    assert_eq!(hash_file(&setup.local.path().join("b")), hash);
    for (name, report) in [("put", put), ("get", get)] {
        println!("{name}: {} Gbit/s, {} spurious", report["goodput_gbps"], report["spurious"]);
    }
}

fn write_noise(path: &Path, length: u64) -> String {
    use std::io::Write as _;
    let mut file = std::fs::File::create(path).unwrap();
    let mut hasher = blake3::Hasher::new();
    for seed in 0..length.div_ceil(1 << 20) {
        let piece = noise(seed, 1 << 20);
        hasher.update(&piece);
        file.write_all(&piece).unwrap();
    }
    hasher.finalize().to_hex().to_string()
}

fn hash_file(path: &Path) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(std::fs::File::open(path).unwrap()).unwrap();
    hasher.finalize().to_hex().to_string()
}

#[test]
fn the_planes_go_when_they_are_dropped() {
    let planes = match Planes::build(2) {
        Ok(planes) => planes,
        Err(reason) => return support::skip("the_planes_go_when_they_are_dropped", &reason),
    };
    let place = planes.a();
    assert_eq!(planes.count(), 2);
    run(place.metaroce().arg("--version"), LIMIT).expect_success();
    drop(planes);
    assert!(!run(place.metaroce().arg("--version"), LIMIT).status.success());
}
