//! Two network namespaces joined by a veth pair, and a handle over either backend in each.
#![allow(dead_code, reason = "each test file uses a part")]
#![expect(clippy::expect_used, clippy::panic, reason = "a test may panic")]

use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use metaroce_xdp::{Attach, XdpOptions};

/// Namespaces A (10.76.0.1, `fd76::1`) and B (10.76.0.2, `fd76::2`), removed at the end. The interface of each is `eth0`.
pub struct Link {
    pub a: String,
    pub b: String,
}

impl Link {
    /// The reason where namespaces can't be made.
    ///
    /// # Errors
    /// In words for a person.
    pub fn new(mtu: u32, queues: u32) -> Result<Self, String> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let [a, b] = ["a", "b"].map(|side| format!("mrx{}x{number}-{side}", std::process::id()));
        let link = Self { a, b };
        let (a, b) = (&link.a, &link.b);
        let kind = format!("mtu {mtu} numtxqueues {queues} numrxqueues {queues}");
        let mut steps = vec![
            format!("ip netns add {a}"),
            format!("ip netns add {b}"),
            format!("ip -n {a} link add eth0 {kind} type veth peer name eth0 {kind} netns {b}"),
        ];
        for (name, host) in [(a, 1), (b, 2)] {
            steps.push(format!("ip -n {name} link set dev lo up"));
            steps.push(format!("ip -n {name} addr add 10.76.0.{host}/24 dev eth0"));
            steps.push(format!("ip -n {name} addr add fd76::{host}/64 dev eth0 nodad"));
            steps.push(format!("ip -n {name} link set dev eth0 up"));
        }
        match steps.iter().find(|step| !run(step)) {
            Some(step) => {
                Err(format!("no network namespaces here: `{step}` failed (root and iproute2 are needed)"))
            }
            None => Ok(link),
        }
    }

    /// A link on which both ends can have a filter, or why there is none.
    ///
    /// # Errors
    /// In words for a person.
    pub fn with_xdp(mtu: u32, queues: u32) -> Result<Self, String> {
        let link = Self::new(mtu, queues)?;
        let probe = link.inside_a(|| {
            let config = metaroce_mio::DriverConfig::with_seed(address("10.76.0.1:0"), 1);
            metaroce_xdp::Driver::with_options(config, vec![XdpOptions::new("eth0")]).map(|_| ())
        });
        match probe {
            Ok(()) => Ok(link),
            // What a machine may lack; everything else is a defect.
            Err(error) if LACKS.iter().any(|lack| error.to_string().contains(lack)) => {
                Err(format!("no AF_XDP here: {error}"))
            }
            Err(error) => panic!("AF_XDP should work here: {error}"),
        }
    }

    /// Runs `work` in a thread of its own in namespace A.
    pub fn inside_a<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        inside(&self.a, work)
    }

    /// Runs `work` in a thread of its own in namespace B.
    pub fn inside_b<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        inside(&self.b, work)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        for name in [&self.a, &self.b] {
            run(&format!("ip netns del {name}"));
        }
    }
}

/// Runs `work` in a thread of its own in a namespace.
pub fn inside<T: Send>(namespace: &str, work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            enter(namespace);
            work()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Moves this thread into a namespace.
pub fn enter(name: &str) {
    let namespace = File::open(format!("/run/netns/{name}")).expect("the namespace");
    // SAFETY: the call takes no pointer, and moves only this thread.
    let outcome = unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) };
    assert_eq!(outcome, 0, "cannot enter {name}");
}

/// Whether a command succeeds.
pub fn run(command: &str) -> bool {
    let mut words = command.split(' ');
    let program = words.next().unwrap_or("");
    let mut command = Command::new(program);
    command.args(words).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// What a command prints.
pub fn output(command: &str) -> String {
    let mut words = command.split(' ');
    let program = words.next().unwrap_or("");
    let output = Command::new(program).args(words).output().expect("it runs");
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The options of `eth0` in a mode.
pub fn options(attach: Attach) -> XdpOptions {
    let mut options = XdpOptions::new("eth0");
    options.attach = attach;
    options
}

pub fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

/// What an error says when the machine is not made for this.
const LACKS: [&str; 4] = [
    "AF_XDP needs",
    "cannot open an AF_XDP socket",
    "cannot make the map of AF_XDP sockets",
    "Operation not permitted",
];

/// Says why a test is not run, also where the output of tests is captured.
pub fn skip(test: &str, reason: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "\nskipped: {test}: {reason}");
}
