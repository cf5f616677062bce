//! `serve`: any number of clients at once, on one endpoint.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use metaroce::wire::RejectReason;
use metaroce::{CloseMode, ConnectionHandle, Event, Limits, ProtectionDomain};
use metaroce_mio::DriverConfig;
use serde_json::json;

use super::channel::Peer;
use super::failure::TransferError;
use super::message::{self, Failure};
use super::store::Store;
use super::transfer::Transfer;
use crate::args::{OutputArgs, ServeArgs};
use crate::reactor::{IDLE_MAX, Reactor};
use crate::{backend, interrupt, net, quantity, trace};

/// Serves a directory until Ctrl-C.
///
/// # Errors
/// When the directory or the address can't be used, or the sockets fail.
pub(crate) fn serve(args: &ServeArgs, output: OutputArgs) -> anyhow::Result<()> {
    let store = Rc::new(Store::open(&args.dir, args.read_only)?);
    let listen = net::resolve(&args.listen)?;
    let mut config = DriverConfig::new(listen)?;
    config.local.extend(net::planes(&args.planes, listen.port())?);
    config.limits = limits(args.clients);
    config.endpoint.paths_per_plane = PATHS_MAX; // The client chooses.
    backend::tell_rate(&mut config);
    let mut server = Server {
        reactor: Reactor::new(config)?,
        store,
        sessions: BTreeMap::new(),
        clients_max: args.clients.into(),
        output,
        closing: None,
    };
    server.announce(args);
    server.run()
}

/// Tables for so many clients: each has 64 receives posted, and at most 48 requests under way.
fn limits(clients: u16) -> Limits {
    let clients = u32::from(clients);
    Limits {
        connections: clients + CONNECTIONS_SPARE,
        paths_per_connection: PATHS_MAX,
        streams: 2 * (clients + CONNECTIONS_SPARE),
        requests: Limits::HOST.requests.max(64 * clients),
        receives: Limits::HOST.receives.max(64 * clients),
        messages: Limits::HOST.messages.max(128 * clients),
        regions: Limits::HOST.regions.max(4 * clients),
        ..Limits::HOST
    }
}

struct Server {
    reactor: Reactor,
    store: Rc<Store>,
    sessions: BTreeMap<ConnectionHandle, Session>,
    clients_max: usize,
    output: OutputArgs,
    closing: Option<Instant>,
}

struct Session {
    remote: SocketAddr,
    transfer: Option<Transfer>,
    start: Instant,
    reported: bool,
    /// When the server closes this connection from its side.
    expiry: Option<Instant>,
}

impl Server {
    fn run(&mut self) -> anyhow::Result<()> {
        loop {
            self.reactor.turn()?;
            let mut idle = true;
            while let Some(event) = self.reactor.poll_event() {
                idle = false;
                self.on_event(event);
            }
            idle &= !self.pump();
            if interrupt::requested() && self.closing.is_none() {
                self.begin_closing();
                idle = false;
            }
            if self.closing.is_some_and(|end| self.sessions.is_empty() || Instant::now() > end) {
                return Ok(());
            }
            if idle {
                self.reactor.sleep(IDLE_MAX)?;
            }
        }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Incoming { connection, remote, service, .. } => {
                self.on_incoming(connection, remote, service);
            }
            Event::Completion(done) => {
                let session = self.sessions.get_mut(&done.connection);
                if let Some(transfer) = session.and_then(|session| session.transfer.as_mut()) {
                    transfer.on_completion(&mut self.reactor.driver, done);
                }
            }
            Event::StreamEnded { connection, status, .. } => {
                let text = format!("the stream ended: {}", trace::status(status));
                self.lose(connection, text);
            }
            Event::Closed { connection, reason, .. } => {
                self.lose(connection, format!("the connection ended: {}", trace::close_reason(reason)));
                self.report(connection);
                if let Some(transfer) = self.sessions.remove(&connection).and_then(|session| session.transfer)
                {
                    transfer.release(&mut self.reactor.driver);
                }
            }
            _ => {}
        }
    }

    fn on_incoming(&mut self, connection: ConnectionHandle, remote: SocketAddr, service: u32) {
        let greeting = self.reactor.driver.endpoint_mut().private_data(connection).unwrap_or_default();
        let refusal = if self.closing.is_some() {
            Some(RejectReason::Closed)
        } else if service != message::SERVICE {
            Some(RejectReason::NoListener)
        } else {
            match message::greeted_version(greeting) {
                None => Some(RejectReason::NoListener),
                Some(message::VERSION) if self.sessions.len() >= self.clients_max => Some(RejectReason::Busy),
                Some(message::VERSION) => None,
                Some(_) => {
                    Some(RejectReason::Application(RejectReason::APPLICATION_CODE_MIN + message::VERSION))
                }
            }
        };
        let driver = &mut self.reactor.driver;
        if let Some(reason) = refusal {
            // It may have gone meanwhile.
            let _ = driver.reject(connection, reason, &[]);
            return;
        }
        if driver.accept(connection, domain(connection), &message::greeting()).is_err() {
            return;
        }
        let start = Instant::now();
        let mut session = Session {
            remote,
            transfer: None,
            start,
            reported: false,
            expiry: Some(start + REQUEST_PATIENCE),
        };
        let peer = Peer { connection, domain: domain(connection) };
        let waker = self.reactor.waker();
        // Before the client can have sent anything, so that its request finds a receive.
        match Transfer::serve(&mut self.reactor.driver, peer, Rc::clone(&self.store), waker) {
            Ok(transfer) => session.transfer = Some(transfer),
            Err(error) => {
                eprintln!("{remote}: {error:#}");
                let _ = self.reactor.driver.close(connection, CloseMode::Flush);
            }
        }
        self.sessions.insert(connection, session);
    }

    /// Moves every session on; `true` if anything was posted.
    fn pump(&mut self) -> bool {
        let mut posted = false;
        let now = Instant::now();
        let mut reports = Vec::new();
        for (&connection, session) in &mut self.sessions {
            if let Some(transfer) = &mut session.transfer {
                posted |= transfer.pump(&mut self.reactor.driver);
                if transfer.outcome().is_some() && !session.reported {
                    session.expiry = Some(now + CLOSE_PATIENCE);
                    reports.push(connection);
                } else if !session.reported && !transfer.summary().operation.is_empty() {
                    session.expiry = None;
                }
            }
            if session.expiry.is_some_and(|expiry| now > expiry) {
                session.expiry = None;
                // It may have ended meanwhile, which an event tells.
                let _ = self.reactor.driver.close(connection, CloseMode::Flush);
                posted = true;
            }
        }
        for connection in reports {
            self.report(connection);
        }
        posted
    }

    fn lose(&mut self, connection: ConnectionHandle, text: String) {
        let session = self.sessions.get_mut(&connection);
        if let Some(transfer) = session.and_then(|session| session.transfer.as_mut()) {
            transfer.on_lost(TransferError::new(Failure::Other, text));
        }
    }

    /// Prints how a transfer ended, once.
    fn report(&mut self, connection: ConnectionHandle) {
        let Some(session) = self.sessions.get_mut(&connection) else { return };
        let Some(transfer) = &session.transfer else { return };
        let (Some(outcome), false) = (transfer.outcome(), session.reported) else { return };
        session.reported = true;
        let summary = transfer.summary();
        let time = session.start.elapsed();
        let size = summary.size.unwrap_or(0);
        if self.output.json {
            let mut line = json!({
                "operation": summary.operation, "name": summary.name, "peer": session.remote.to_string(),
                "size": summary.size, "seconds": time.as_secs_f64(), "verified": outcome.is_ok(),
            });
            if let Some(fields) = line.as_object_mut() {
                match outcome {
                    Ok(hash) => fields.insert("hash".to_owned(), super::hex(hash).into()),
                    Err(error) => fields.insert("error".to_owned(), error_json(error)),
                };
            }
            print_line(&line.to_string());
        } else {
            let what = format!("{} {:?} of {}", summary.operation, summary.name, session.remote);
            match outcome {
                Ok(hash) => print_line(&format!(
                    "{what}: {} in {:.3} s, {:.3} Gbit/s, BLAKE3 {}",
                    quantity::bytes(size),
                    time.as_secs_f64(),
                    quantity::gbps(size, time),
                    super::hex(hash)
                )),
                Err(error) => print_line(&format!("{what}: failed: {error}")),
            }
        }
    }

    /// Tells all clients, and gives them a moment.
    fn begin_closing(&mut self) {
        self.closing = Some(Instant::now() + STOP_PATIENCE);
        for (&connection, session) in &mut self.sessions {
            if let Some(transfer) = &mut session.transfer {
                let error = TransferError::new(Failure::Interrupted, "the server was stopped");
                transfer.abandon(&mut self.reactor.driver, error);
            }
            let _ = self.reactor.driver.close(connection, CloseMode::Drain);
        }
    }

    fn announce(&self, args: &ServeArgs) {
        let address = self.reactor.driver.local_address();
        let dir = std::path::absolute(&args.dir).unwrap_or_else(|_| args.dir.clone());
        if self.output.json {
            print_line(
                &json!({ "listening": address.to_string(), "dir": dir.to_string_lossy() }).to_string(),
            );
        } else {
            print_line(&format!("serving {} on UDP {address}, Ctrl-C ends it", dir.display()));
        }
    }
}

fn domain(connection: ConnectionHandle) -> ProtectionDomain {
    // Each connection has its own, so that no client can reach another's window.
    ProtectionDomain(connection.slot() + 1)
}

pub(crate) fn error_json(error: &TransferError) -> serde_json::Value {
    json!({ "kind": error.failure.name(), "message": error.text })
}

fn print_line(line: &str) {
    let mut out = std::io::stdout().lock();
    // Nobody reads it any more: serving goes on.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

const PATHS_MAX: u8 = 64;
const CONNECTIONS_SPARE: u32 = 32;

/// How long a client may stay without saying what it wants.
const REQUEST_PATIENCE: Duration = Duration::from_secs(10);

/// How long a client may stay after its transfer.
const CLOSE_PATIENCE: Duration = Duration::from_secs(5);

/// How long Ctrl-C waits for clients.
const STOP_PATIENCE: Duration = Duration::from_secs(2);
