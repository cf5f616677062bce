//! `put` and `get`.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use metaroce::wire::RejectReason;
use metaroce::{CloseMode, CloseReason, ConnectOptions, ConnectionHandle, Event, Limits, ProtectionDomain};
use metaroce_mio::DriverConfig;
use serde::Serialize;

use super::channel::Peer;
use super::failure::TransferError;
use super::message::{self, Failure, Hash, NAME_BYTES_MAX};
use super::outflow::Source;
use super::store;
use super::transfer::Transfer;
use crate::args::{ClientArgs, GetArgs, OutputArgs, PutArgs};
use crate::backend;
use crate::interrupt::{self, Interrupted};
use crate::reactor::{IDLE_MAX, Reactor};
use crate::report::{self, TransportReport, row};
use crate::{net, quantity, trace};

/// Copies a file to a server.
///
/// # Errors
/// Whatever keeps it from arriving whole.
pub(crate) fn put(args: &PutArgs, output: OutputArgs) -> anyhow::Result<()> {
    let source = open_source(&args.file)?;
    let name = match &args.name {
        Some(name) => name.clone(),
        None => store::default_name(&args.file)?,
    };
    check_name(&name)?;
    let mut client = Client::connect(&args.host, &args.client, output)?;
    let waker = client.reactor.waker();
    let start = Instant::now();
    let transfer = Transfer::put(&mut client.reactor.driver, client.peer, source, name, waker)?;
    client.finish("put", transfer, start, &args.host)
}

/// Copies a file from a server.
///
/// # Errors
/// Whatever keeps it from arriving whole.
pub(crate) fn get(args: &GetArgs, output: OutputArgs) -> anyhow::Result<()> {
    check_name(&args.name)?;
    let to = match &args.output {
        Some(path) if path.is_dir() => path.join(store::default_name(Path::new(&args.name))?),
        Some(path) => path.clone(),
        None => PathBuf::from(store::default_name(Path::new(&args.name))?),
    };
    let mut client = Client::connect(&args.host, &args.client, output)?;
    let waker = client.reactor.waker();
    let start = Instant::now();
    let transfer = Transfer::get(&mut client.reactor.driver, client.peer, args.name.clone(), to, waker)?;
    client.finish("get", transfer, start, &args.host)
}

/// What the program prints at the end.
#[derive(Debug, Serialize)]
struct TransferReport<'a> {
    operation: &'a str,
    name: &'a str,
    host: &'a str,
    verified: bool,
    size: u64,
    seconds: f64,
    goodput_gbps: f64,
    hash: String,
    #[serde(flatten)]
    transport: TransportReport,
}

/// An open connection to a server.
struct Client {
    reactor: Reactor,
    peer: Peer,
    remote: SocketAddr,
    output: OutputArgs,
}

impl Client {
    fn connect(host: &str, args: &ClientArgs, output: OutputArgs) -> anyhow::Result<Self> {
        let remote = net::resolve(host)?;
        let mut config = DriverConfig::new(net::local_towards(remote)?)?;
        config.local.extend(net::planes(&args.planes, 0)?);
        let planes = u8::try_from(config.local.len()).unwrap_or(u8::MAX);
        let paths = args.paths.saturating_mul(planes).min(PATHS_MAX);
        config.limits = Limits { connections: 2, paths_per_connection: paths, ..Limits::HOST };
        config.endpoint.paths_per_plane = args.paths;
        backend::tell_rate(&mut config);
        let mut reactor = Reactor::new(config)?;
        let domain = ProtectionDomain(1);
        let private_data = message::greeting();
        let options = ConnectOptions {
            service: message::SERVICE,
            domain,
            private_data: &private_data,
            ..ConnectOptions::to(remote)
        };
        let connection = reactor.driver.connect(options).context("cannot connect")?;
        let mut this = Self { reactor, peer: Peer { connection, domain }, remote, output };
        this.wait_open(host)?;
        Ok(this)
    }

    fn wait_open(&mut self, host: &str) -> anyhow::Result<()> {
        let end = Instant::now() + CONNECT_PATIENCE;
        loop {
            self.reactor.turn()?;
            while let Some(event) = self.reactor.poll_event() {
                match event {
                    Event::Connected { .. } => return Ok(()),
                    Event::Closed { reason, .. } => bail!("{}", self.explain(host, reason)),
                    _ => {}
                }
            }
            if interrupt::requested() {
                return Err(Interrupted.into());
            }
            if Instant::now() > end {
                bail!("{}", self.explain(host, CloseReason::TimedOut));
            }
            self.reactor.sleep(IDLE_MAX)?;
        }
    }

    /// Why there is no connection.
    fn explain(&self, host: &str, reason: CloseReason) -> String {
        match reason {
            CloseReason::TimedOut => format!(
                "no answer from {host} ({}): is `metaroce serve` running there, and may UDP packets pass?",
                self.remote
            ),
            CloseReason::Rejected(RejectReason::Application(code)) => format!(
                "{host} speaks version {} of the file protocol, this program version {}",
                code.saturating_sub(RejectReason::APPLICATION_CODE_MIN),
                message::VERSION
            ),
            CloseReason::Rejected(RejectReason::NoListener) => format!("{host} does not serve files"),
            CloseReason::Rejected(RejectReason::Busy) => {
                format!("{host} serves as many clients as it may: try later")
            }
            other => format!("{host}: {}", trace::close_reason(other)),
        }
    }

    /// Runs the transfer to its end, closes, and reports.
    fn finish(
        mut self,
        operation: &str,
        mut transfer: Transfer,
        start: Instant,
        host: &str,
    ) -> anyhow::Result<()> {
        let bar = progress_bar(self.output);
        let hash = self.drive(&mut transfer, &bar);
        let time = start.elapsed();
        bar.finish_and_clear();
        let transport = TransportReport::of(self.reactor.driver.endpoint_mut(), self.peer.connection);
        self.close(&transfer);
        let hash = hash?;
        let summary = transfer.summary();
        let size = summary.size.unwrap_or(0);
        let report = TransferReport {
            operation,
            name: &summary.name,
            host,
            verified: true,
            size,
            seconds: time.as_secs_f64(),
            goodput_gbps: quantity::gbps(size, time),
            hash: super::hex(&hash),
            transport,
        };
        if self.output.json {
            println!("{}", serde_json::to_string(&report)?);
        } else {
            print_table(&report, time);
        }
        Ok(())
    }

    fn drive(&mut self, transfer: &mut Transfer, bar: &ProgressBar) -> anyhow::Result<Hash> {
        let mut shown = Instant::now();
        loop {
            self.reactor.turn()?;
            let mut idle = true;
            while let Some(event) = self.reactor.poll_event() {
                idle = false;
                self.on_event(transfer, event);
            }
            idle &= !transfer.pump(&mut self.reactor.driver);
            match transfer.outcome() {
                Some(Ok(hash)) => return Ok(*hash),
                Some(Err(error)) => return Err(error.clone().into()),
                None => {}
            }
            if interrupt::requested() {
                let error = TransferError::new(Failure::Interrupted, "the client was interrupted");
                transfer.abandon(&mut self.reactor.driver, error);
                return Err(Interrupted.into());
            }
            if shown.elapsed() >= REDRAW {
                shown = Instant::now();
                bar.set_length(transfer.summary().size.unwrap_or(0));
                bar.set_position(transfer.bytes_done());
            }
            if idle {
                self.reactor.sleep(IDLE_MAX)?;
            }
        }
    }

    fn on_event(&mut self, transfer: &mut Transfer, event: Event) {
        match event {
            Event::Completion(done) => transfer.on_completion(&mut self.reactor.driver, done),
            Event::Closed { reason, .. } => {
                let text =
                    format!("the connection to {} ended: {}", self.remote, trace::close_reason(reason));
                transfer.on_lost(TransferError::new(Failure::Other, text));
            }
            Event::StreamEnded { status, .. } => {
                let text = format!("the transfer broke off: {}", trace::status(status));
                transfer.on_lost(TransferError::new(Failure::Other, text));
            }
            _ => {}
        }
    }

    /// Closes, and waits a while until the peer has heard of it.
    fn close(&mut self, transfer: &Transfer) {
        let failed = !matches!(transfer.outcome(), Some(Ok(_)));
        let mode = if failed && transfer.is_quiet() { CloseMode::Flush } else { CloseMode::Drain };
        if self.reactor.driver.close(self.peer.connection, mode).is_err() {
            return; // It is over already.
        }
        let end = Instant::now() + CLOSE_PATIENCE;
        while Instant::now() < end && self.reactor.turn().is_ok() {
            while let Some(event) = self.reactor.poll_event() {
                if is_closed(&event, self.peer.connection) {
                    return;
                }
            }
            if self.reactor.sleep(IDLE_MAX).is_err() {
                return;
            }
        }
    }
}

fn is_closed(event: &Event, wanted: ConnectionHandle) -> bool {
    matches!(event, Event::Closed { connection, .. } if *connection == wanted)
}

fn open_source(path: &Path) -> Result<Source, TransferError> {
    let shown = path.display().to_string();
    let metadata = std::fs::metadata(path).map_err(|error| TransferError::io(&shown, &error))?;
    if !metadata.is_file() {
        return Err(TransferError::new(Failure::NoFile, format!("{shown}: is no regular file")));
    }
    let file = File::open(path).map_err(|error| TransferError::io(&shown, &error))?;
    Ok(Source { file, shown, size: metadata.len() })
}

fn check_name(name: &str) -> anyhow::Result<()> {
    if name.len() > NAME_BYTES_MAX {
        bail!("the name is longer than {NAME_BYTES_MAX} bytes");
    }
    Ok(())
}

fn print_table(report: &TransferReport<'_>, time: Duration) {
    let mut rows = vec![row(report.operation, report.name), row("verified, BLAKE3", report.hash.clone())];
    rows.extend(report::speed_rows(report.size, time));
    rows.extend(report.transport.rows());
    rows.push(row("packets received", report.transport.packets_received.to_string()));
    println!("{}\n\n{}", report::summary(rows), report.transport.path_table());
}

fn progress_bar(output: OutputArgs) -> ProgressBar {
    if output.json {
        return ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::hidden());
    }
    let style = ProgressStyle::with_template(
        "{bar:40} {percent:>3} %  {bytes} of {total_bytes}  {bytes_per_sec}  {eta}",
    );
    ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Paths of a connection over all planes.
const PATHS_MAX: u8 = 64;

/// Longer than the transport itself tries, which then tells more.
const CONNECT_PATIENCE: Duration = Duration::from_secs(15);
const CLOSE_PATIENCE: Duration = Duration::from_secs(5);
const REDRAW: Duration = Duration::from_millis(100);
