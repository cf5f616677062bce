//! `serve`, `put` and `get` over loopback.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "in tests a failure is a panic"
)]

mod support;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use metaroce::mio::{Blocking, BlockingError};
use metaroce::wire::RejectReason;
use metaroce::{CloseReason, ConnectOptions, Event};
use serde_json::Value;
use support::noise;
use support::program::{Outcome, Place, Running, Server, run};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_mins(1);

/// A server with a directory, and another directory for the client.
struct Setup {
    server: Server,
    served: TempDir,
    local: TempDir,
}

impl Setup {
    fn new() -> Self {
        Self::with("127.0.0.1:0", &[])
    }

    fn with(listen: &str, more: &[&str]) -> Self {
        let (served, local) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let server = Server::start(&Place::here(), listen, served.path(), more);
        Self { server, served, local }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Place::here().metaroce();
        command.arg("--json").args(arguments).arg(&self.server.address).current_dir(self.local.path());
        command
    }

    fn run(&self, arguments: &[&str]) -> Outcome {
        run(&mut self.command(arguments), LIMIT)
    }

    fn round_trip(&self, name: &str, content: &[u8]) -> Value {
        std::fs::write(self.local.path().join(name), content).unwrap();
        let put = self.run(&["put", name]).expect_success().json();
        let hash = blake3::hash(content).to_hex().to_string();
        assert_eq!(put["hash"], hash.as_str());
        assert_eq!(put["verified"], true);
        assert!(
            std::fs::read(self.served.path().join(name)).unwrap() == content,
            "{name} differs at the server"
        );
        std::fs::remove_file(self.local.path().join(name)).unwrap();
        let get = self.run(&["get", name]).expect_success().json();
        assert_eq!(get["hash"], hash.as_str());
        assert!(
            std::fs::read(self.local.path().join(name)).unwrap() == content,
            "{name} differs at the client"
        );
        put
    }
}

struct Unmount<'a>(&'a Path);

impl Drop for Unmount<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

fn kind(outcome: &Outcome) -> String {
    outcome.json()["error"]["kind"].as_str().unwrap_or_default().to_owned()
}

fn names(path: &Path) -> Vec<String> {
    std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn files_of_all_sizes_come_back_the_same() {
    let setup = Setup::new();
    let chunk = 1 << 20;
    for (index, length) in
        [0, 1, 4096, chunk - 1, chunk, chunk + 1, 40 * chunk + 12345].into_iter().enumerate()
    {
        let put = setup.round_trip(&format!("file {index}"), &noise(index as u64, length));
        assert_eq!(put["size"], length as u64);
    }
}

/// 4 MiB take 67 ms at 500 Mb/s, whatever else the machine does.
#[test]
fn a_transfer_is_no_faster_than_the_rate_of_the_line_that_either_end_is_told() {
    const GBPS: f64 = 0.5;
    let content = noise(5, 4 << 20);
    let goodput = |setup: &Setup, arguments: &[&str]| {
        let report = setup.run(arguments).expect_success().json();
        report["goodput_gbps"].as_f64().unwrap()
    };
    let setup = Setup::new();
    std::fs::write(setup.local.path().join("file"), &content).unwrap();
    let sender = goodput(&setup, &["put", "file", "--rate", "500M"]);
    assert!(sender <= GBPS, "{sender} Gb/s");
    let setup = Setup::with("127.0.0.1:0", &["--rate", "500M"]);
    std::fs::write(setup.served.path().join("file"), &content).unwrap();
    let server = goodput(&setup, &["get", "file"]);
    assert!(server <= GBPS, "{server} Gb/s");
}

#[test]
fn the_same_works_over_ipv6() {
    if std::net::UdpSocket::bind("[::1]:0").is_err() {
        return support::skip("the_same_works_over_ipv6", "this machine has no IPv6 loopback");
    }
    let setup = Setup::with("[::1]:0", &[]);
    setup.round_trip("six", &noise(6, 3 << 20));
}

#[test]
fn several_clients_are_served_at_once() {
    let setup = Setup::new();
    let names: Vec<_> = (0..4).map(|index| format!("file{index}")).collect();
    for (seed, name) in (0..).zip(&names) {
        std::fs::write(setup.local.path().join(name), noise(seed, 16 << 20)).unwrap();
    }
    let clients: Vec<_> =
        names.iter().map(|name| Running::start(&mut setup.command(&["put", name]))).collect();
    for client in clients {
        client.finish(LIMIT).expect_success();
    }
    for (seed, name) in (0..).zip(&names) {
        assert!(
            std::fs::read(setup.served.path().join(name)).unwrap() == noise(seed, 16 << 20),
            "{name} differs"
        );
    }
}

#[test]
fn put_takes_another_name_and_subdirectories_and_replaces() {
    let setup = Setup::new();
    std::fs::create_dir(setup.served.path().join("sub")).unwrap();
    for content in [b"one".as_slice(), b"two"] {
        std::fs::write(setup.local.path().join("a"), content).unwrap();
        setup.run(&["put", "a", "--name", "sub/b"]).expect_success();
        assert_eq!(std::fs::read(setup.served.path().join("sub/b")).unwrap(), content);
    }
    setup.run(&["get", "sub/b", "-o", "c"]).expect_success();
    assert_eq!(std::fs::read(setup.local.path().join("c")).unwrap(), b"two");
    setup.run(&["get", "sub/b"]).expect_success();
    assert_eq!(std::fs::read(setup.local.path().join("b")).unwrap(), b"two");
}

#[test]
fn names_outside_of_the_directory_are_refused() {
    let setup = Setup::new();
    std::fs::write(setup.local.path().join("a"), b"a").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", setup.served.path().join("link")).unwrap();
    std::os::unix::fs::symlink("/tmp", setup.served.path().join("dir")).unwrap();
    for name in ["../x", "/etc/passwd", "link", "dir/x"] {
        let outcome = setup.run(&["get", name]);
        assert!(!outcome.status.success());
        assert_eq!(kind(&outcome), "outside_directory", "{name}: {}", outcome.stderr);
        assert!(outcome.stderr.contains("outside of the served directory"), "{}", outcome.stderr);
    }
    for name in ["../x", "/tmp/metaroce-x", "dir/x"] {
        let outcome = setup.run(&["put", "a", "--name", name]);
        assert_eq!(kind(&outcome), "outside_directory", "{name}: {}", outcome.stderr);
    }
}

#[test]
fn missing_files_and_directories_have_clear_errors() {
    let setup = Setup::new();
    std::fs::create_dir(setup.served.path().join("sub")).unwrap();
    let outcome = setup.run(&["get", "nothing"]);
    assert_eq!(kind(&outcome), "not_found");
    assert!(outcome.stderr.contains("\"nothing\": no such file"), "{}", outcome.stderr);
    assert_eq!(kind(&setup.run(&["get", "sub"])), "not_a_file");
    assert_eq!(kind(&setup.run(&["put", "nothing"])), "not_found");
    assert_eq!(kind(&setup.run(&["put", "."])), "not_a_file");
    std::fs::write(setup.local.path().join("a"), b"a").unwrap();
    assert_eq!(kind(&setup.run(&["put", "a", "--name", "none/a"])), "not_found");
    assert_eq!(kind(&setup.run(&["put", "a", "--name", "sub"])), "not_a_file");
    assert_eq!(names(setup.local.path()), ["a"], "a failed get leaves nothing");
    assert_eq!(names(setup.served.path()), ["sub"], "a failed put leaves nothing");
}

#[test]
fn a_read_only_server_takes_nothing() {
    let setup = Setup::with("127.0.0.1:0", &["--read-only"]);
    std::fs::write(setup.local.path().join("a"), b"a").unwrap();
    std::fs::write(setup.served.path().join("b"), b"b").unwrap();
    assert_eq!(kind(&setup.run(&["put", "a"])), "read_only");
    setup.run(&["get", "b"]).expect_success();
}

#[test]
fn a_host_that_does_not_exist_or_answer_has_a_clear_error() {
    let place = Place::here();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a");
    std::fs::write(&file, b"a").unwrap();
    let mut command = place.metaroce();
    let error = run(command.arg("put").arg(&file).arg("no-such-host.invalid"), LIMIT).expect_failure();
    assert!(error.contains("cannot find the host \"no-such-host.invalid\""), "{error}");

    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let start = Instant::now();
    let mut command = place.metaroce();
    let error = run(command.arg("put").arg(&file).arg(&address), LIMIT).expect_failure();
    assert!(error.contains(&format!("no answer from {address}")), "{error}");
    assert!(start.elapsed() < Duration::from_secs(30));
}

#[test]
fn a_server_of_another_version_is_named() {
    let mut server = Blocking::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = server.driver().local_address().to_string();
    let refuser = std::thread::spawn(move || {
        let end = Instant::now() + LIMIT;
        while Instant::now() < end {
            let event = server.wait_event(Duration::from_millis(200)).unwrap();
            if let Some(Event::Incoming { connection, .. }) = event {
                let reason = RejectReason::Application(RejectReason::APPLICATION_CODE_MIN + 9);
                server.driver_mut().reject(connection, reason, &[]).unwrap();
                let _ = server.wait_event(Duration::from_millis(500));
                return;
            }
        }
    });
    let mut command = Place::here().metaroce();
    let error = run(command.args(["get", "a", &address]), LIMIT).expect_failure();
    refuser.join().unwrap();
    assert!(error.contains("speaks version 9 of the file protocol, this program version 1"), "{error}");
}

#[test]
fn a_client_of_another_version_or_kind_is_refused() {
    let setup = Setup::new();
    let remote = setup.server.address.parse().unwrap();
    let (file, other) = (0x6669_6c65, 7);
    let told = RejectReason::Application(RejectReason::APPLICATION_CODE_MIN + 1);
    for (service, private_data, expected) in [
        (file, b"MRfile\x00\x02".as_slice(), told),
        (file, b"something", RejectReason::NoListener),
        (other, b"MRfile\x00\x01", RejectReason::NoListener),
    ] {
        let mut client = Blocking::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let options = ConnectOptions { service, private_data, ..ConnectOptions::to(remote) };
        let refused = client.connect_with(options, Duration::from_secs(5));
        let Err(BlockingError::Closed(CloseReason::Rejected(reason))) = refused else {
            panic!("{refused:?}")
        };
        assert_eq!(reason, expected);
    }
}

#[test]
fn a_full_server_says_so() {
    let setup = Setup::with("127.0.0.1:0", &["--clients", "1"]);
    std::fs::write(setup.local.path().join("big"), noise(1, 256 << 20)).unwrap();
    std::fs::write(setup.local.path().join("a"), b"a").unwrap();
    let big = Running::start(&mut setup.command(&["put", "big"]));
    let end = Instant::now() + LIMIT;
    while names(setup.served.path()).is_empty() {
        assert!(Instant::now() < end, "the first transfer does not start");
        std::thread::sleep(Duration::from_millis(1));
    }
    let outcome = setup.run(&["put", "a"]);
    assert!(outcome.stderr.contains("serves as many clients as it may"), "{}", outcome.stderr);
    big.finish(LIMIT).expect_success();
}

#[test]
fn a_full_disk_has_a_clear_error_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mount =
        Command::new("mount").args(["-t", "tmpfs", "-o", "size=8m", "tmpfs"]).arg(dir.path()).output();
    if !mount.is_ok_and(|mount| mount.status.success()) {
        return support::skip(
            "a_full_disk_has_a_clear_error_and_leaves_nothing",
            "a small tmpfs can't be mounted",
        );
    }
    let _unmount = Unmount(dir.path());
    let local = tempfile::tempdir().unwrap();
    let file = local.path().join("big");
    std::fs::write(&file, noise(1, 32 << 20)).unwrap();
    let server = Server::start(&Place::here(), "127.0.0.1:0", dir.path(), &[]);
    let mut command = Place::here().metaroce();
    let outcome = run(command.args(["--json", "put"]).arg(&file).arg(&server.address), LIMIT);
    assert_eq!(kind(&outcome), "disk_full", "{}", outcome.stderr);
    assert!(outcome.stderr.contains("no space left"), "{}", outcome.stderr);
    drop(server);
    assert!(names(dir.path()).is_empty(), "{:?}", names(dir.path()));
}

#[test]
fn a_client_killed_in_mid_transfer_leaves_the_server_serving() {
    let setup = Setup::new();
    std::fs::write(setup.local.path().join("long"), noise(1, 256 << 20)).unwrap();
    std::fs::write(setup.local.path().join("short"), noise(2, 4 << 20)).unwrap();
    for _ in 0..3 {
        let mut client = Running::start(&mut setup.command(&["put", "long"]));
        std::thread::sleep(Duration::from_millis(150));
        assert!(client.is_running(), "it was to be killed while it runs");
        drop(client); // which kills it
        setup.run(&["put", "short"]).expect_success();
    }
    assert!(std::fs::read(setup.served.path().join("short")).unwrap() == noise(2, 4 << 20));
    assert!(!setup.served.path().join("long").exists(), "half a file has no name");
}

#[test]
fn ctrl_c_ends_client_and_server_cleanly() {
    let setup = Setup::new();
    std::fs::write(setup.local.path().join("big"), noise(1, 512 << 20)).unwrap();
    let client = Running::start(&mut setup.command(&["put", "big"]));
    let end = Instant::now() + LIMIT;
    while names(setup.served.path()).is_empty() {
        assert!(Instant::now() < end, "the transfer does not start");
        std::thread::sleep(Duration::from_millis(1));
    }
    client.interrupt();
    let outcome = client.finish(Duration::from_secs(10));
    assert_eq!(outcome.status.code(), Some(130), "{}", outcome.stderr);
    assert_eq!(kind(&outcome), "interrupted");
    let end = Instant::now() + Duration::from_secs(10);
    while !names(setup.served.path()).is_empty() {
        assert!(Instant::now() < end, "the server keeps {:?}", names(setup.served.path()));
        std::thread::sleep(Duration::from_millis(1));
    }
    std::fs::write(setup.local.path().join("a"), b"a").unwrap();
    setup.run(&["put", "a"]).expect_success();

    let client = Running::start(&mut setup.command(&["put", "big"]));
    std::thread::sleep(Duration::from_millis(200));
    let Setup { server, local: _local, served } = setup;
    assert!(server.interrupt(Duration::from_secs(10)).success());
    let outcome = client.finish(Duration::from_secs(30));
    assert!(!outcome.status.success());
    assert_eq!(names(served.path()), ["a"], "a stopped server leaves no part of a file");
}

#[test]
fn an_address_in_use_is_named() {
    let setup = Setup::new();
    let mut command = Place::here().metaroce();
    let error = run(command.args(["serve", "--listen", &setup.server.address]), LIMIT).expect_failure();
    assert!(error.contains(&format!("cannot listen on {}", setup.server.address)), "{error}");
    let mut command = Place::here().metaroce();
    let error = run(command.args(["serve", "--dir", "/nonexistent"]), LIMIT).expect_failure();
    assert!(error.contains("/nonexistent: no such file or directory"), "{error}");
}
