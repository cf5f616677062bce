//! The process that is written to.

use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use metaroce::{
    Access, CompletionKind, ConnectionHandle, Event, Operation, ProtectionDomain, Status, StreamId,
    WorkRequest,
};
use metaroce_mio::{Region, RegionMemory};

use super::link::{self, Listening, Role, TargetReport};
use crate::args::DemoTargetArgs;
use crate::interrupt::{self, Interrupted};
use crate::reactor::{IDLE_MAX, Reactor};
use crate::trace;

/// Offers a region, and answers with its hash when asked.
///
/// # Errors
/// When nobody connects, or the connection fails.
pub(crate) fn run(args: &DemoTargetArgs) -> anyhow::Result<()> {
    let seed = args.link.seed.context("--seed is missing")?;
    let mut reactor = Reactor::new(link::driver_config(args.listen, &args.link, seed, Role::Target))?;
    let length = usize::try_from(args.size).context("the size is more than this machine can address")?;
    let memory = RegionMemory::zeroed(length).context("no memory for the target")?;
    let access = Access::LOCAL_WRITE.and(Access::REMOTE_WRITE);
    let region = reactor.driver.register_region(memory, access, DOMAIN)?;
    let notes = RegionMemory::zeroed(NOTES_BYTES).context("no memory for the answer")?;
    let notes = reactor.driver.register_region(notes, Access::LOCAL_WRITE, DOMAIN)?;
    print_line(&Listening { listening: reactor.driver.local_address() })?;

    let mut target = Target { region, notes, connection: None, over: false };
    let end = Instant::now() + link::PATIENCE;
    while !target.over {
        reactor.turn()?;
        let mut idle = true;
        while let Some(event) = reactor.poll_event() {
            idle = false;
            target.on_event(&mut reactor, event)?;
        }
        if interrupt::requested() {
            return Err(Interrupted.into());
        }
        if target.connection.is_none() && Instant::now() > end {
            bail!("nobody connected");
        }
        if idle {
            reactor.sleep(IDLE_MAX)?;
        }
    }
    // The last acknowledgement of the peer's CLOSE may be lost: stay to repeat it.
    let end = Instant::now() + LINGER;
    while Instant::now() < end {
        reactor.turn()?;
        while reactor.poll_event().is_some() {}
        reactor.sleep(LINGER / 10)?;
    }
    let stats = reactor.driver.stats();
    let duplicates = reactor.driver.endpoint().stats().duplicates;
    print_line(&TargetReport { duplicates, socket_overflows: stats.receive_overflows })
}

struct Target {
    region: Region,
    notes: Region,
    connection: Option<ConnectionHandle>,
    over: bool,
}

impl Target {
    fn on_event(&mut self, reactor: &mut Reactor, event: Event) -> anyhow::Result<()> {
        match event {
            Event::Incoming { connection, .. } => {
                let offer = link::encode_region(self.region.remote(0), self.region.len());
                reactor.driver.accept(connection, DOMAIN, &offer).context("cannot accept")?;
                self.connection = Some(connection);
            }
            Event::StreamOpened { connection, stream } => {
                reactor.driver.post_recv(
                    connection,
                    stream,
                    QUESTION,
                    &[self.notes.segment(HASH_BYTES, 1)],
                )?;
            }
            Event::Completion(done) if done.status != Status::Success => {
                bail!("{:?} failed: {}", done.kind, trace::status(done.status));
            }
            Event::Completion(done) if done.kind == CompletionKind::Receive => {
                self.answer(reactor, done.connection, done.stream)?;
            }
            Event::Closed { .. } => self.over = true,
            _ => {}
        }
        Ok(())
    }

    /// Hashes the region, letting the protocol run in between, and sends the hash.
    fn answer(
        &self,
        reactor: &mut Reactor,
        connection: ConnectionHandle,
        stream: StreamId,
    ) -> anyhow::Result<()> {
        let mut hasher = blake3::Hasher::new();
        let mut piece = vec![0; PIECE_BYTES];
        let mut done = 0;
        while done < self.region.len() {
            piece.truncate(usize::try_from(self.region.len() - done).unwrap_or(PIECE_BYTES).min(PIECE_BYTES));
            reactor.driver.copy_out(self.region, done, &mut piece).ok().context("the region is gone")?;
            hasher.update(&piece);
            done += piece.len() as u64;
            reactor.turn()?;
        }
        let hash = hasher.finalize();
        reactor.driver.copy_in(self.notes, 0, hash.as_bytes()).ok().context("the answer is gone")?;
        let segment = self.notes.segment(0, 32);
        let request =
            WorkRequest::new(ANSWER, Operation::Send { immediate: None }, std::slice::from_ref(&segment));
        Ok(reactor.driver.post(connection, stream, request)?)
    }
}

fn print_line(line: &impl serde::Serialize) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(line)?)?;
    Ok(out.flush()?)
}

const DOMAIN: ProtectionDomain = ProtectionDomain(0);
const NOTES_BYTES: usize = 64;
const HASH_BYTES: u64 = 32;
const PIECE_BYTES: usize = 1 << 20;
const LINGER: Duration = Duration::from_millis(200);
const QUESTION: u64 = 1;
const ANSWER: u64 = 2;
