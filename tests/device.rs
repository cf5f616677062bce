//! `metaroce serve --control` under the compliance suite, over real UDP: one test for each backend.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use metaroce_conformance::suite::Udp;

#[test]
fn mio_passes_the_suite() {
    passes_the_suite("mio");
}

#[cfg(all(feature = "uring", target_os = "linux"))]
#[test]
fn uring_passes_the_suite() {
    match metaroce::uring::check() {
        Ok(()) => passes_the_suite("uring"),
        Err(error) => {
            use std::io::Write as _;
            let _ = writeln!(std::io::stderr(), "\nskipped: uring_passes_the_suite: {error}");
        }
    }
}

/// The device in a process of its own; it ends with the test.
struct Device {
    child: Child,
    listening: SocketAddr,
    control: SocketAddr,
}

impl Device {
    fn start(backend: &str) -> Result<Self, String> {
        let mut child = Command::new(env!("CARGO_BIN_EXE_metaroce"))
            .args(["--json", "--backend", backend, "serve"])
            .args(["--listen", "127.0.0.1:0", "--control", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let Ok(told) = serde_json::from_str::<serde_json::Value>(&line) else {
            let status = child.wait().unwrap();
            return Err(format!("serve --backend {backend} ended with {status}: {line}"));
        };
        let address = |name: &str| told.get(name)?.as_str().and_then(|text| text.parse().ok());
        match (address("listening"), address("control")) {
            (Some(listening), Some(control)) => Ok(Self { child, listening, control }),
            _ => Err(format!("serve --backend {backend} says {line}")),
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Every case passes; what the suite can't look at here is printed. A backend that a machine can't run is skipped.
fn passes_the_suite(backend: &str) {
    let device = match Device::start(backend) {
        Ok(device) => device,
        Err(reason) => {
            assert!(backend == "xdp", "{reason}");
            println!("skipped: {reason}");
            return;
        }
    };
    let mut port = Udp::new(device.listening, device.control).unwrap();
    let failures = support::suite::failures(&mut port);
    assert!(failures.is_empty(), "{failures:#?}");
}
