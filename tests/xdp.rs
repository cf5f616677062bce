//! The program over `AF_XDP`, between two network namespaces joined by four equal-cost planes.
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
use std::process::Command;
use std::time::{Duration, Instant};

use metaroce_conformance::suite::Udp;
use support::noise;
use support::planes::{ADDRESS_B, Planes};
use support::program::{Device, Running, Server, run};
use tempfile::TempDir;

const LISTEN: &str = "0.0.0.0:4795";
const LIMIT: Duration = Duration::from_mins(1);
const SIZE: usize = 16 << 20;
const XDP: [&str; 4] = ["--backend", "xdp", "--interface", "eth0"];

/// Two hosts, four planes, two directories.
struct Setup {
    planes: Planes,
    served: TempDir,
    local: TempDir,
}

impl Setup {
    /// `None`, and a word about it, where there are no namespaces or no `AF_XDP`.
    fn new(test: &str) -> Option<Self> {
        let planes = match Planes::build(4) {
            Ok(planes) => planes,
            Err(reason) => {
                support::skip(test, &reason);
                return None;
            }
        };
        let setup =
            Self { planes, served: tempfile::tempdir().unwrap(), local: tempfile::tempdir().unwrap() };
        // A client that reaches nobody tells whether it could open the interface.
        let outcome = setup.start(&XDP, &["get", "nothing", "10.77.0.1"]).finish(LIMIT);
        let lacks = ["AF_XDP needs", "cannot open an AF_XDP socket", "Operation not permitted"];
        if lacks.iter().any(|lack| outcome.stderr.contains(lack)) {
            support::skip(test, outcome.stderr.trim());
            return None;
        }
        Some(setup)
    }

    fn serve(&self, backend: &[&str]) -> Server {
        Server::start(&self.planes.b(), LISTEN, self.served.path(), backend)
    }

    /// The program on A.
    fn start(&self, backend: &[&str], arguments: &[&str]) -> Running {
        let mut command = self.planes.a().metaroce();
        command.arg("--json").args(backend).args(arguments).current_dir(self.local.path());
        Running::start(&mut command)
    }

    /// A file there and back, compared at both ends.
    fn there_and_back(&self, backend: &[&str], paths: &str) {
        let content = noise(1, SIZE);
        std::fs::write(self.local.path().join("a"), &content).unwrap();
        let paths = ["--paths", paths];
        let put = self.start(backend, &[&["put", "a", ADDRESS_B][..], &paths].concat());
        assert_eq!(put.finish(LIMIT).expect_success().json()["verified"], true);
        assert!(std::fs::read(self.served.path().join("a")).unwrap() == content, "it differs at the server");
        let get = self.start(backend, &[&["get", "a", ADDRESS_B, "-o", "b"][..], &paths].concat());
        assert_eq!(get.finish(LIMIT).expect_success().json()["verified"], true);
        assert!(std::fs::read(self.local.path().join("b")).unwrap() == content, "it differs at the client");
    }
}

fn with(attach: &str) -> Vec<&str> {
    [&XDP[..], &["--attach", attach]].concat()
}

#[test]
fn files_go_between_xdp_ends_in_every_mode() {
    let Some(setup) = Setup::new("files_go_between_xdp_ends_in_every_mode") else { return };
    for (server, client) in [("native", "native"), ("generic", "generic"), ("native", "generic")] {
        let _server = setup.serve(&with(server));
        setup.there_and_back(&with(client), "8");
    }
}

#[test]
fn files_go_between_an_xdp_end_and_a_mio_end() {
    let Some(setup) = Setup::new("files_go_between_an_xdp_end_and_a_mio_end") else { return };
    for attach in ["native", "generic"] {
        let server = setup.serve(&with(attach));
        setup.there_and_back(&[], "8");
        drop(server);
        let _server = setup.serve(&[]);
        setup.there_and_back(&with(attach), "8");
    }
}

#[cfg(feature = "uring")]
#[test]
fn files_go_between_an_xdp_end_and_an_io_uring_end() {
    const URING: [&str; 2] = ["--backend", "uring"];
    let Some(setup) = Setup::new("files_go_between_an_xdp_end_and_an_io_uring_end") else { return };
    if let Err(error) = metaroce::uring::check() {
        return support::skip("files_go_between_an_xdp_end_and_an_io_uring_end", &error.to_string());
    }
    for attach in ["native", "generic"] {
        let server = setup.serve(&with(attach));
        setup.there_and_back(&URING, "8");
        drop(server);
        let server = setup.serve(&URING);
        setup.there_and_back(&with(attach), "8");
        // Killed, it would leave its port to a ring that the kernel takes down in its own time.
        assert!(server.interrupt(LIMIT).success());
    }
}

#[test]
fn losses_on_every_plane_are_survived() {
    let Some(setup) = Setup::new("losses_on_every_plane_are_survived") else { return };
    setup.planes.lose(100);
    let _server = setup.serve(&XDP);
    setup.there_and_back(&XDP, "64");
    assert!((0..4).all(|spine| setup.planes.lost(spine) > 0), "a plane lost nothing");
}

#[test]
fn each_path_has_a_source_port_and_no_socket_and_all_planes_carry_data() {
    // The ports are drawn at random: with 16, every 25th draw would leave a plane out; with 64, one in 25 million.
    const PATHS: usize = 64;
    let Some(setup) = Setup::new("each_path_has_a_source_port_and_no_socket_and_all_planes_carry_data")
    else {
        return;
    };
    setup.planes.watch_ports();
    let _server = setup.serve(&XDP);
    std::fs::write(setup.local.path().join("a"), noise(1, 4 * SIZE)).unwrap();
    let mut client = setup.start(&XDP, &["put", "a", ADDRESS_B, "--paths", &PATHS.to_string()]);
    let mut sockets = 0;
    while client.is_running() {
        sockets = sockets.max(udp_sockets(client.id()));
        std::thread::sleep(Duration::from_millis(1));
    }
    client.finish(LIMIT).expect_success();
    assert_eq!(sockets, 1, "the one that holds the port");
    let ports: Vec<BTreeSet<u16>> = (0..4)
        .map(|spine| {
            let ports = setup.planes.ports(spine).into_iter();
            ports.filter(|(_, packets)| *packets > 10).map(|(port, _)| port).collect()
        })
        .collect();
    println!("source ports in each plane: {ports:?}");
    assert!(ports.iter().all(|ports| !ports.is_empty()), "a plane carried nothing: {ports:?}");
    let all: BTreeSet<u16> = ports.iter().flatten().copied().collect();
    assert!(all.len() >= PATHS && all.iter().all(|port| *port >= 49_152), "{all:?}");
    assert_eq!(all.len(), ports.iter().map(BTreeSet::len).sum::<usize>(), "a flow keeps to its plane");
}

/// UDP sockets in the namespace of a process.
fn udp_sockets(process: u32) -> usize {
    // Until the program runs it is `ip`, on its way into the namespace.
    let name = std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    if name.trim() != "metaroce" {
        return 0;
    }
    let lines = |file: &str| {
        let table = std::fs::read_to_string(format!("/proc/{process}/net/{file}")).unwrap_or_default();
        table.lines().count().saturating_sub(1)
    };
    lines("udp") + lines("udp6")
}

/// The XDP program on B's interface, as `ip link` has it.
fn attached(setup: &Setup) -> Option<u64> {
    let listing = setup.planes.run_on_b("ip", &["-j", "link", "show", "dev", "eth0"]);
    let listing: serde_json::Value = serde_json::from_str(&listing).unwrap();
    listing[0]["xdp"]["prog"]["id"].as_u64()
}

#[test]
fn a_killed_server_leaves_no_filter_and_the_next_one_starts_at_once() {
    let Some(setup) = Setup::new("a_killed_server_leaves_no_filter_and_the_next_one_starts_at_once") else {
        return;
    };
    for attach in ["native", "generic"] {
        let mut server = setup.serve(&with(attach));
        assert!(attached(&setup).is_some(), "nothing is attached");
        let content = noise(2, SIZE);
        std::fs::write(setup.local.path().join("a"), &content).unwrap();
        let client = setup.start(&with(attach), &["put", "a", ADDRESS_B]);
        // In the middle of the transfer, with frames under way.
        let end = Instant::now() + LIMIT;
        while setup.planes.sent_into(0) + setup.planes.sent_into(1) < 200 && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        server.kill();
        let end = Instant::now() + Duration::from_secs(5);
        while attached(&setup).is_some() {
            assert!(Instant::now() < end, "the filter is still there");
            std::thread::sleep(Duration::from_millis(10));
        }
        drop(client);
        let _server = setup.serve(&with(attach));
        setup.there_and_back(&with(attach), "8");
    }
}

#[test]
fn the_compliance_suite_passes_in_every_mode() {
    let Some(setup) = Setup::new("the_compliance_suite_passes_in_every_mode") else { return };
    for attach in ["native", "generic"] {
        let (udp, tcp) = (format!("{ADDRESS_B}:4795"), format!("{ADDRESS_B}:4796"));
        let device = Device::start(&setup.planes.b(), &udp, &tcp, &with(attach));
        let failures = setup.planes.a().inside(|| {
            let mut port = Udp::new(device.listening, device.control).unwrap();
            support::suite::failures(&mut port)
        });
        assert!(failures.is_empty(), "{attach}: {failures:#?}");
    }
}

#[test]
fn a_program_of_somebody_else_is_reported_and_left_alone() {
    let Some(setup) = Setup::new("a_program_of_somebody_else_is_reported_and_left_alone") else { return };
    let _server = setup.serve(&XDP);
    let id = attached(&setup).unwrap();
    let mut second = setup.planes.b().metaroce();
    second.args(["serve", "--listen", "0.0.0.0:4796", "--dir"]).arg(setup.served.path()).args(XDP);
    let error = run(&mut second, LIMIT).expect_failure();
    assert!(error.contains(&format!("metaroce_udp (id {id}) is attached to eth0")), "{error}");
    assert_eq!(attached(&setup), Some(id));
    setup.there_and_back(&[], "8");
}

#[test]
fn what_is_missing_is_named() {
    let Some(setup) = Setup::new("what_is_missing_is_named") else { return };
    let program = setup.planes.b().metaroce();
    // No interface, one that is not there, and a queue that is not there.
    for (arguments, wanted) in [
        (&["--backend", "xdp"][..], "needs `--interface IF`"),
        (&["--backend", "xdp", "--interface", "nowhere"], "there is no interface nowhere"),
        (&["--backend", "xdp", "--interface", "eth0", "--queue", "7"], "there is no queue 7"),
    ] {
        let mut command = Command::new(program.get_program());
        command.args(program.get_args()).args(["serve", "--dir"]).arg(setup.served.path()).args(arguments);
        let error = run(&mut command, LIMIT).expect_failure();
        assert!(error.contains(wanted), "{error}");
    }
    if !Path::new("/usr/bin/setpriv").exists() {
        return support::skip("what_is_missing_is_named", "the program setpriv is not installed");
    }
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", "-net_raw,-bpf,-sys_admin", "--inh-caps", "-all"]);
    command.arg(env!("CARGO_BIN_EXE_metaroce")).args(["serve", "--backend", "xdp", "--interface", "lo"]);
    let error = run(&mut command, LIMIT).expect_failure();
    assert!(error.contains("AF_XDP needs CAP_NET_RAW and CAP_BPF"), "{error}");
}
