//! File transfer over several planes, each a link with addresses of its own: one connection uses them all, and goes on
//! when some fail.
#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "in tests a failure is a panic"
)]

mod support;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use support::multiplane::Multiplane;
use support::noise;
use support::program::{Running, Server};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_mins(3);
/// Packets on a plane that show that the transfer is under way there.
const UNDER_WAY: u64 = 500;

/// Two hosts, and a server on B that listens on all planes.
struct Setup {
    // In the order in which they go.
    _server: Server,
    planes: Multiplane,
    count: usize,
    served: TempDir,
    local: TempDir,
    _alone: MutexGuard<'static, ()>,
}

impl Setup {
    fn new(test: &str, count: usize) -> Option<Self> {
        // One at a time: they would take the rates from each other that are measured here.
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let planes = match Multiplane::build(count) {
            Ok(planes) => planes,
            Err(reason) => {
                support::skip(test, &reason);
                return None;
            }
        };
        let (served, local) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let addresses = planes.addresses(2);
        let listen = format!("{}:4795", addresses[0]);
        let server = Server::start(&planes.host("B"), &listen, served.path(), &further(&addresses));
        Some(Self { _server: server, planes, count, served, local, _alone: alone })
    }

    fn put(&self, content: &[u8]) -> Running {
        self.put_over(content, 4)
    }

    /// With so many paths on each plane.
    fn put_over(&self, content: &[u8], paths: u8) -> Running {
        std::fs::write(self.local.path().join("a"), content).unwrap();
        let addresses = self.planes.addresses(1);
        let mut command = self.planes.host("A").metaroce();
        command.args(["--json", "put", "a", &self.planes.addresses(2)[0], "--paths", &paths.to_string()]);
        command.args(further(&addresses)).current_dir(self.local.path());
        Running::start(&mut command)
    }

    fn assert_served(&self, content: &[u8]) {
        assert!(std::fs::read(self.served.path().join("a")).unwrap() == content, "the file differs");
    }

    /// Waits until every plane carries data.
    fn wait_under_way(&self, client: &mut Running) {
        let end = Instant::now() + LIMIT;
        while !(0..self.count).all(|plane| self.planes.sent(plane) > UNDER_WAY) {
            assert!(client.is_running(), "the transfer was over before all planes carried data");
            assert!(Instant::now() < end, "not all planes carry data");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// The options that name the further planes.
fn further(addresses: &[String]) -> Vec<&str> {
    addresses[1..].iter().flat_map(|address| ["--plane", address]).collect()
}

/// Packets that the client sent on each plane, as it reports.
fn packets(report: &Value, count: usize) -> Vec<u64> {
    let mut sent = vec![0; count];
    for path in report["paths"].as_array().unwrap() {
        let plane = usize::try_from(path["plane"].as_u64().unwrap()).unwrap();
        sent[plane] += path["packets_sent"].as_u64().unwrap();
    }
    sent
}

#[test]
fn a_file_goes_over_all_of_four_and_eight_planes() {
    for count in [4, 8] {
        let name = "a_file_goes_over_all_of_four_and_eight_planes";
        let Some(setup) = Setup::new(name, count) else { return };
        let content = noise(1, 64 << 20);
        let report = setup.put(&content).finish(LIMIT).expect_success().json();
        setup.assert_served(&content);
        assert_eq!(report["paths"].as_array().unwrap().len(), count * 4);
        let sent = packets(&report, count);
        // How much each carries is up to the windows, which a busy machine moves.
        assert!(sent.iter().all(|packets| *packets > 100), "{sent:?}");
        for (plane, packets) in sent.iter().enumerate() {
            let seen = setup.planes.sent(plane);
            assert!(seen * 2 >= *packets, "plane {plane}: {packets} reported, {seen} seen on the link");
        }
    }
}

#[test]
fn planes_that_die_and_that_swallow_everything_are_routed_round() {
    for count in [4, 8] {
        let name = "planes_that_die_and_that_swallow_everything_are_routed_round";
        let Some(setup) = Setup::new(name, count) else { return };
        let content = noise(2, 512 << 20);
        let mut client = setup.put(&content);
        setup.wait_under_way(&mut client);
        let (killed, swallowed) = (1, count - 1);
        setup.planes.kill(killed);
        setup.planes.blackhole(swallowed);
        assert!(client.is_running(), "the transfer was over before the failure");
        let report = client.finish(LIMIT).expect_success().json();
        setup.assert_served(&content);
        assert_eq!(report["verified"], true);
        let sent = packets(&report, count);
        let broken = [killed, swallowed];
        // On a busy machine one that works may rest for a while, too.
        let mut whole: Vec<_> =
            (0..count).filter(|plane| !broken.contains(plane)).map(|plane| sent[plane]).collect();
        whole.sort_unstable();
        let median = whole[whole.len() / 2];
        for plane in broken {
            assert!(sent[plane] * 2 < median, "the others carried what plane {plane} did not: {sent:?}");
            let paths = report["paths"].as_array().unwrap().iter();
            let good = paths.filter(|path| path["plane"] == plane && path["state"] == "good").count();
            assert_eq!(good, 0, "plane {plane} is dead: {report}");
        }
        println!("{count} planes: {sent:?}");
    }
}

#[test]
fn a_plane_that_comes_back_is_used_again() {
    let Some(setup) = Setup::new("a_plane_that_comes_back_is_used_again", 4) else { return };
    let content = noise(3, 512 << 20);
    let mut client = setup.put(&content);
    setup.wait_under_way(&mut client);
    setup.planes.blackhole(2);
    // Until nothing but probes goes there: a few packets in the time of thousands on the others.
    let end = Instant::now() + LIMIT;
    loop {
        let (before, others) = (setup.planes.sent(2), setup.planes.sent(0));
        std::thread::sleep(Duration::from_millis(20));
        let (gone, beside) = (setup.planes.sent(2) - before, setup.planes.sent(0) - others);
        if gone * 20 < beside {
            break;
        }
        assert!(client.is_running() && Instant::now() < end, "the plane is not left in time");
    }
    setup.planes.heal(2);
    let healed = setup.planes.sent(2);
    let report = client.finish(LIMIT).expect_success().json();
    setup.assert_served(&content);
    let since = setup.planes.sent(2) - healed;
    assert!(since > UNDER_WAY, "{since} packets since the plane is back: {report}");
}

/// Goodput of a transfer over so many planes of 50 Mbit/s with so many paths each, bytes/s, and the packets that each carried.
fn limited(
    test: &str,
    count: usize,
    paths: u8,
    prepare: impl FnOnce(&Multiplane),
) -> Option<(f64, Vec<u64>)> {
    let setup = Setup::new(test, count)?;
    setup.planes.limit(50);
    prepare(&setup.planes);
    // Two seconds.
    let content = noise(4, count * 12_500_000);
    let report = setup.put_over(&content, paths).finish(LIMIT).expect_success().json();
    setup.assert_served(&content);
    let goodput = f64::from(u32::try_from(content.len()).unwrap()) / report["seconds"].as_f64().unwrap();
    Some((goodput, packets(&report, count)))
}

#[test]
fn goodput_rises_with_the_planes_as_their_limits_allow() {
    let test = "goodput_rises_with_the_planes_as_their_limits_allow";
    // A busy machine takes away and never gives: the best of three.
    let best = |count| {
        let tries: Option<Vec<_>> = (0..3).map(|_| limited(test, count, 4, |_| {})).collect();
        tries?.into_iter().map(|(goodput, _)| goodput).max_by(f64::total_cmp)
    };
    let Some(one) = best(1) else { return };
    for count in [4u32, 8] {
        let times = best(count as usize).unwrap() / one;
        println!("{count} planes: {times:.2} times the goodput of one");
        assert!((times / f64::from(count) - 1.0).abs() < 0.1, "{count} planes: {times} times as much");
    }
}

#[test]
fn marks_lower_the_share_of_the_marked_path_alone() {
    let test = "marks_lower_the_share_of_the_marked_path_alone";
    let Some((one, _)) = limited(test, 1, 1, |_| {}) else { return };
    let (goodput, sent) = limited(test, 4, 1, |planes| planes.mark(1, 80)).unwrap();
    let others = [0, 2, 3].map(|plane| sent[plane]);
    let (least, most) = (others.into_iter().min().unwrap(), others.into_iter().max().unwrap());
    println!("{:.2} times the goodput of one, packets {sent:?}", goodput / one);
    assert!(sent[1] * 2 < least, "the marked path: {sent:?}");
    assert!(most - least < most / 10, "the others share alike: {sent:?}");
    assert!(goodput > 0.9 * 3.0 * one, "the others are full: {goodput} of {one}");
}
