//! The process that writes.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use metaroce::{
    Access, CloseMode, CompletionKind, ConnectOptions, ConnectionHandle, Event, Operation, PostError,
    ProtectionDomain, RemoteAddress, Status, StreamId, WorkRequest,
};
use metaroce_mio::{DriverStats, Region, RegionMemory};

use super::link::{self, Role, TargetProcess};
use crate::args::{DemoArgs, OutputArgs};
use crate::interrupt::{self, Interrupted};
use crate::reactor::{IDLE_MAX, Reactor};
use crate::report::{self, TransportReport};
use crate::trace;

/// What the sending process found.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) verified: bool,
    pub(super) time: Duration,
    pub(super) hash: String,
    pub(super) transport: TransportReport,
    pub(super) driver: DriverStats,
}

/// What is to be sent, before there is anybody to send it to: on a busy machine that takes long, and the target waits only
/// so long for a connection.
pub(super) struct Prepared {
    reactor: Reactor,
    source: Region,
    hash: blake3::Hash,
}

/// Fills the source.
pub(super) fn prepare(args: &DemoArgs, seed: u64, local: SocketAddr) -> anyhow::Result<Prepared> {
    let mut reactor = Reactor::new(link::driver_config(local, &args.link, seed, Role::Sender))?;
    let (source, hash) = fill_source(&mut reactor, args.size, seed)?;
    Ok(Prepared { reactor, source, hash })
}

/// Writes everything into the target and compares hashes.
pub(super) fn run(
    args: &DemoArgs,
    prepared: Prepared,
    target: &TargetProcess,
    output: OutputArgs,
) -> anyhow::Result<Sent> {
    let Prepared { mut reactor, source, hash } = prepared;
    let notes = RegionMemory::zeroed(NOTES_BYTES).context("no memory for the answer")?;
    let notes = reactor.driver.register_region(notes, Access::LOCAL_WRITE, DOMAIN)?;

    let (connection, remote) = connect(&mut reactor, args, target)?;
    let stream = reactor.driver.open_stream(connection)?;
    reactor.driver.post_recv(connection, stream, ANSWER, &[notes.segment(0, HASH_BYTES)])?;
    let bar = progress_bar(args.size, output);
    let mut sending =
        Sending { connection, stream, source, notes, remote, size: args.size, posted: 0, completed: 0 };
    let start = Instant::now();
    let time = sending.write_all(&mut reactor, &bar, start)?;
    bar.finish_and_clear();
    let answer = sending.ask(&mut reactor)?;
    let transport = TransportReport::of(reactor.driver.endpoint_mut(), connection);
    sending.close(&mut reactor)?;
    let driver = reactor.driver.stats();
    Ok(Sent {
        verified: answer == *hash.as_bytes(),
        time,
        hash: hash.to_hex().to_string(),
        transport,
        driver,
    })
}

struct Sending {
    connection: ConnectionHandle,
    stream: StreamId,
    source: Region,
    notes: Region,
    remote: RemoteAddress,
    size: u64,
    posted: u64,
    completed: u64,
}

impl Sending {
    /// Posts WRITEs until all are complete; the time that took.
    fn write_all(
        &mut self,
        reactor: &mut Reactor,
        bar: &ProgressBar,
        start: Instant,
    ) -> anyhow::Result<Duration> {
        let mut shown = start;
        while self.completed < self.size {
            self.post_writes(reactor)?;
            reactor.turn()?;
            let mut idle = true;
            while let Some(event) = reactor.poll_event() {
                idle = false;
                self.on_write_event(event)?;
            }
            let now = Instant::now();
            if now.duration_since(shown) >= REDRAW {
                shown = now;
                bar.set_position(self.progress(reactor));
            }
            if interrupt::requested() {
                let _ = reactor.driver.close(self.connection, CloseMode::Flush);
                reactor.turn()?;
                return Err(Interrupted.into());
            }
            if idle {
                reactor.sleep(IDLE_MAX)?;
            }
        }
        Ok(start.elapsed())
    }

    fn post_writes(&mut self, reactor: &mut Reactor) -> anyhow::Result<()> {
        while self.posted < self.size {
            let length = (self.size - self.posted).min(WRITE_BYTES_MAX);
            let remote = RemoteAddress { address: self.remote.address + self.posted, ..self.remote };
            let segment = self.source.segment(self.posted, u32::try_from(length).unwrap_or(u32::MAX));
            let operation = Operation::Write { remote, immediate: None };
            let request = WorkRequest::new(self.posted, operation, std::slice::from_ref(&segment));
            match reactor.driver.post(self.connection, self.stream, request) {
                Ok(()) => self.posted += length,
                Err(PostError::Full) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn on_write_event(&mut self, event: Event) -> anyhow::Result<()> {
        match event {
            Event::Completion(done) if done.kind == CompletionKind::Write => {
                if done.status != Status::Success {
                    bail!("a write failed: {}", trace::status(done.status));
                }
                self.completed += u64::from(done.bytes);
            }
            other => check(&other)?,
        }
        Ok(())
    }

    /// Bytes that have arrived, as far as the paths know.
    fn progress(&self, reactor: &mut Reactor) -> u64 {
        let endpoint = reactor.driver.endpoint_mut();
        let Some(stats) = endpoint.connection_stats(self.connection) else { return self.completed };
        let delivered: u64 =
            report::paths(endpoint, self.connection).map(|path| path.packets_delivered).sum();
        let mean = stats.bytes_sent / stats.packets_sent.max(1);
        (delivered * mean).clamp(self.completed, self.size)
    }

    /// Asks the target for the hash of its region.
    fn ask(&mut self, reactor: &mut Reactor) -> anyhow::Result<[u8; 32]> {
        let question = self.notes.segment(u64::from(HASH_BYTES), 1);
        let request =
            WorkRequest::new(QUESTION, Operation::Send { immediate: None }, std::slice::from_ref(&question));
        reactor.driver.post(self.connection, self.stream, request)?;
        loop {
            reactor.turn()?;
            while let Some(event) = reactor.poll_event() {
                match event {
                    Event::Completion(done) if done.status != Status::Success => {
                        bail!("the verification failed: {}", trace::status(done.status));
                    }
                    Event::Completion(done) if done.id == ANSWER => {
                        let mut hash = [0; 32];
                        let copied = reactor.driver.copy_out(self.notes, 0, &mut hash);
                        copied.ok().context("the answer is gone")?;
                        return Ok(hash);
                    }
                    other => check(&other)?,
                }
            }
            if interrupt::requested() {
                return Err(Interrupted.into());
            }
            reactor.sleep(IDLE_MAX)?;
        }
    }

    fn close(&self, reactor: &mut Reactor) -> anyhow::Result<()> {
        reactor.driver.close(self.connection, CloseMode::Drain).context("cannot close the connection")?;
        let end = Instant::now() + link::PATIENCE;
        while Instant::now() < end {
            reactor.turn()?;
            while let Some(event) = reactor.poll_event() {
                if matches!(event, Event::Closed { .. }) {
                    return Ok(());
                }
            }
            reactor.sleep(IDLE_MAX)?;
        }
        bail!("the connection does not close")
    }
}

fn fill_source(reactor: &mut Reactor, size: u64, seed: u64) -> anyhow::Result<(Region, blake3::Hash)> {
    let length = usize::try_from(size).context("the size is more than this machine can address")?;
    let memory = RegionMemory::zeroed(length).context("no memory for the source")?;
    let region = reactor.driver.register_region(memory, Access::LOCAL_READ, DOMAIN)?;
    let mut random = fastrand::Rng::with_seed(seed);
    let mut hasher = blake3::Hasher::new();
    let mut piece = vec![0; PIECE_BYTES];
    let mut done = 0;
    while done < length {
        piece.truncate(length - done);
        random.fill(&mut piece);
        hasher.update(&piece);
        let copied = reactor.driver.copy_in(region, done as u64, &piece);
        copied.ok().context("the source is gone")?;
        done += piece.len();
    }
    Ok((region, hasher.finalize()))
}

fn connect(
    reactor: &mut Reactor,
    args: &DemoArgs,
    target: &TargetProcess,
) -> anyhow::Result<(ConnectionHandle, RemoteAddress)> {
    let options =
        ConnectOptions { service: link::SERVICE, domain: DOMAIN, ..ConnectOptions::to(target.address()) };
    let connection = reactor.driver.connect(options).context("cannot connect")?;
    loop {
        reactor.turn()?;
        while let Some(event) = reactor.poll_event() {
            check(&event)?;
            if matches!(event, Event::Connected { .. }) {
                let data = reactor.driver.endpoint_mut().private_data(connection).unwrap_or_default();
                let (remote, length) = link::decode_region(data).context("the target names no region")?;
                if length != args.size {
                    bail!("the target offers {length} bytes");
                }
                return Ok((connection, remote));
            }
        }
        if interrupt::requested() {
            return Err(Interrupted.into());
        }
        reactor.sleep(IDLE_MAX)?;
    }
}

/// Fails when the connection or the stream has ended.
fn check(event: &Event) -> anyhow::Result<()> {
    match event {
        Event::Closed { reason, .. } => bail!("the connection ended: {}", trace::close_reason(*reason)),
        Event::StreamEnded { status, .. } => bail!("the stream ended: {}", trace::status(*status)),
        _ => Ok(()),
    }
}

fn progress_bar(size: u64, output: OutputArgs) -> ProgressBar {
    if output.json {
        return ProgressBar::with_draw_target(Some(size), ProgressDrawTarget::hidden());
    }
    let style = ProgressStyle::with_template(
        "{bar:40} {percent:>3} %  {bytes} of {total_bytes}  {bytes_per_sec}  {eta}",
    );
    ProgressBar::new(size).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

const DOMAIN: ProtectionDomain = ProtectionDomain(0);
const WRITE_BYTES_MAX: u64 = 1 << 30;
const PIECE_BYTES: usize = 1 << 20;
const HASH_BYTES: u32 = 32;
const NOTES_BYTES: usize = 64;
const ANSWER: u64 = u64::MAX;
const QUESTION: u64 = u64::MAX - 1;
const REDRAW: Duration = Duration::from_millis(100);
