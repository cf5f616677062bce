//! What both processes of the demonstration share, and how the first starts the second.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use metaroce::{Limits, RegionKey, RemoteAddress};
use metaroce_mio::{DriverConfig, Faults};
use serde::{Deserialize, Serialize};

use crate::args::{DemoArgs, LinkArgs, OutputArgs};
use crate::backend;

/// The service number of the demonstration: "demo".
pub(super) const SERVICE: u32 = 0x6465_6d6f;

/// How long a process of the demonstration waits for the other to appear or to go.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// Which of the two processes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Role {
    Sender = 1,
    Target = 2,
}

/// A driver on `local`, with the faults that were asked for on what it sends.
pub(super) fn driver_config(local: SocketAddr, args: &LinkArgs, seed: u64, role: Role) -> DriverConfig {
    // Two processes with one seed must neither draw the same faults nor choose the same connection ids.
    let seed = fastrand::Rng::with_seed(seed ^ ((role as u64) << 32)).u64(..);
    let mut config = DriverConfig::with_seed(local, seed);
    config.limits = Limits { connections: 4, paths_per_connection: args.paths, ..Limits::HOST };
    config.endpoint.paths_per_plane = args.paths;
    backend::tell_rate(&mut config);
    config.faults = Faults::loss(args.loss, seed);
    if args.reorder {
        config.faults.reorder = REORDERED;
    }
    config
}

/// The region of the target, as its private data tells.
pub(super) fn encode_region(remote: RemoteAddress, length: u64) -> Vec<u8> {
    let mut bytes = remote.key.0.to_be_bytes().to_vec();
    bytes.extend_from_slice(&remote.address.to_be_bytes());
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes
}

/// The inverse of [`encode_region`].
pub(super) fn decode_region(bytes: &[u8]) -> Option<(RemoteAddress, u64)> {
    let (key, bytes) = bytes.split_first_chunk()?;
    let (address, bytes) = bytes.split_first_chunk()?;
    let length = u64::from_be_bytes(bytes.try_into().ok()?);
    let key = RegionKey(u32::from_be_bytes(*key));
    Some((RemoteAddress { key, address: u64::from_be_bytes(*address) }, length))
}

/// The first line that the target prints.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Listening {
    pub(super) listening: SocketAddr,
}

/// The last line that the target prints.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct TargetReport {
    pub(super) duplicates: u64,
    pub(super) socket_overflows: u64,
}

/// The target, running; killed when dropped.
#[derive(Debug)]
pub(super) struct TargetProcess {
    child: Child,
    lines: BufReader<ChildStdout>,
    address: SocketAddr,
}

impl TargetProcess {
    /// Starts it and waits until it listens.
    pub(super) fn start(args: &DemoArgs, listen: SocketAddr, output: OutputArgs) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        let mut command = Command::new(program);
        command.arg("demo-target").arg(format!("--listen={listen}")).arg(format!("--size={}", args.size));
        command.args(["--backend", backend::chosen().name()]);
        command.arg(format!("--paths={}", args.link.paths)).arg(format!("--loss={}", args.link.loss));
        if args.link.reorder {
            command.arg("--reorder");
        }
        if let Some(seed) = args.link.seed {
            command.arg(format!("--seed={seed}"));
        }
        command.args(std::iter::repeat_n("-v", output.verbose.into()));
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the second process")?;
        let stdout = child.stdout.take().context("the second process has no output")?;
        let mut this = Self { child, lines: BufReader::new(stdout), address: listen };
        let first: Listening =
            serde_json::from_str(&this.line()?).context("the second process did not start")?;
        this.address = first.listening;
        Ok(this)
    }

    /// Where it listens.
    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until it ends; what it counted.
    pub(super) fn finish(mut self) -> anyhow::Result<TargetReport> {
        let report = serde_json::from_str(&self.line()?).context("the second process died")?;
        let end = Instant::now() + PATIENCE;
        while self.child.try_wait().context("cannot wait for the second process")?.is_none() {
            if Instant::now() > end {
                bail!("the second process does not end");
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(report)
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        self.lines.read_line(&mut line).context("cannot read from the second process")?;
        Ok(line)
    }
}

impl Drop for TargetProcess {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Fraction of datagrams held back with `--reorder`.
const REORDERED: f64 = 0.02;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_region_survives_the_private_data() {
        let remote = RemoteAddress { key: RegionKey(7), address: 1 << 33 };
        let bytes = encode_region(remote, 99);
        assert_eq!(decode_region(&bytes), Some((remote, 99)));
        assert_eq!(decode_region(&bytes[..bytes.len() - 1]), None);
        assert_eq!(decode_region(&[]), None);
    }

    #[test]
    fn the_two_processes_draw_different_faults() {
        let local = "127.0.0.1:0".parse().unwrap();
        let args = LinkArgs { loss: 0.5, ..LinkArgs::default() };
        let sender = driver_config(local, &args, 1, Role::Sender);
        let target = driver_config(local, &args, 1, Role::Target);
        assert_ne!(sender.faults.seed, target.faults.seed);
        assert_ne!(sender.endpoint.seed, target.endpoint.seed);
    }
}
