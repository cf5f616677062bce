//! Running the program `metaroce`.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::Value;

/// A finished run.
pub(crate) struct Outcome {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Outcome {
    /// The one JSON object on standard output.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(self.stdout.trim())
            .unwrap_or_else(|error| panic!("{error} in {:?}; stderr: {}", self.stdout, self.stderr))
    }

    /// Panics with all output unless the run succeeded.
    #[track_caller]
    pub(crate) fn expect_success(self) -> Self {
        assert!(self.status.success(), "{}\nstdout: {}\nstderr: {}", self.status, self.stdout, self.stderr);
        self
    }

    /// Panics with all output if the run succeeded; else gives the error line.
    #[track_caller]
    pub(crate) fn expect_failure(self) -> String {
        assert!(!self.status.success(), "succeeded\nstdout: {}\nstderr: {}", self.stdout, self.stderr);
        self.stderr
    }
}

/// Where a program runs: here, or in a network namespace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place {
    namespace: Option<String>,
}

impl Place {
    pub(crate) fn here() -> Self {
        Self::default()
    }

    pub(crate) fn namespace(name: impl Into<String>) -> Self {
        Self { namespace: Some(name.into()) }
    }

    /// Runs `work` in a thread of its own in this place.
    #[cfg(target_os = "linux")]
    pub(crate) fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
        use std::os::fd::AsFd as _;

        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                if let Some(name) = &self.namespace {
                    let namespace = std::fs::File::open(format!("/run/netns/{name}")).unwrap();
                    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
                }
                work()
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// The program `metaroce` in this place.
    pub(crate) fn metaroce(&self) -> Command {
        let program = env!("CARGO_BIN_EXE_metaroce");
        match &self.namespace {
            None => Command::new(program),
            Some(name) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", name, program]);
                command
            }
        }
    }
}

/// Runs to the end, at most `limit`; then the process is killed and the test fails.
#[track_caller]
pub(crate) fn run(command: &mut Command, limit: Duration) -> Outcome {
    Running::start(command).finish(limit)
}

/// A running program; killed when dropped.
pub(crate) struct Running {
    child: Child,
    stdout: Option<mpsc::Receiver<String>>,
    stderr: Option<mpsc::Receiver<String>>,
}

impl Running {
    #[track_caller]
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let stdout = child.stdout.take().map(drain);
        let stderr = child.stderr.take().map(drain);
        Self { child, stdout, stderr }
    }

    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// The process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the end; kills and panics after `limit`.
    #[track_caller]
    pub(crate) fn finish(mut self, limit: Duration) -> Outcome {
        let end = Instant::now() + limit;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break Some(status);
            }
            if Instant::now() > end {
                let _ = self.child.kill();
                break None;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let stdout = self.stdout.take().unwrap().recv().unwrap_or_default();
        let stderr = self.stderr.take().unwrap().recv().unwrap_or_default();
        let Some(status) = status else {
            panic!("no end after {limit:?}\nstdout: {stdout}\nstderr: {stderr}")
        };
        Outcome { status, stdout, stderr }
    }

    /// Asks the program to end, as Ctrl-C does.
    pub(crate) fn interrupt(&self) {
        let id = self.child.id().to_string();
        let _ = Command::new("kill").args(["-INT", &id]).status();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.is_running() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// `metaroce serve --control`, a device under test; killed when dropped.
pub(crate) struct Device {
    child: Child,
    pub(crate) listening: SocketAddr,
    pub(crate) control: SocketAddr,
}

impl Device {
    /// Starts it and waits until it listens.
    #[track_caller]
    pub(crate) fn start(place: &Place, listen: &str, control: &str, more: &[&str]) -> Self {
        let mut command = place.metaroce();
        command.args(["--json", "serve", "--listen", listen, "--control", control]).args(more);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let told: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line:?}"));
        let address = |name: &str| told[name].as_str().unwrap().parse().unwrap();
        Self { child, listening: address("listening"), control: address("control") }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `metaroce serve` on a free port, with its directory.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: String,
    pub(crate) dir: PathBuf,
}

impl Server {
    /// Starts a server and waits until it listens.
    #[track_caller]
    pub(crate) fn start(place: &Place, listen: &str, dir: &Path, more: &[&str]) -> Self {
        let mut command = place.metaroce();
        command.args(["serve", "--json", "--listen", listen, "--dir"]).arg(dir).args(more);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        // The rest is read, so that the server never blocks on a full pipe.
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        let first: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line:?}"));
        let address =
            first["listening"].as_str().unwrap_or_else(|| panic!("no address in {line}")).to_owned();
        Self { child, address, dir: dir.to_owned() }
    }

    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Kills it, as nothing can prevent, and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Asks the server to end, as Ctrl-C does, and waits at most `limit`.
    #[track_caller]
    pub(crate) fn interrupt(mut self, limit: Duration) -> ExitStatus {
        let id = self.child.id().to_string();
        let _ = Command::new("kill").args(["-INT", &id]).status();
        let end = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < end, "the server did not end within {limit:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.is_running() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn drain(mut from: impl std::io::Read + Send + 'static) -> mpsc::Receiver<String> {
    let (to, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = from.read_to_end(&mut text);
        let _ = to.send(String::from_utf8_lossy(&text).into_owned());
    });
    receiver
}
