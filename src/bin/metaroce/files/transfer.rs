//! One side of one transfer, from the first message to the last: the same code at client and server.

use std::path::PathBuf;
use std::rc::Rc;

use metaroce::Completion;
use metaroce_mio::Waker;

use super::channel::{Channel, Heard, Peer};
use super::disk::Writer;
use super::failure::TransferError;
use super::inflow::{Inflow, ReceiveWindow};
use super::message::{Failure, Hash, Message, Window};
use super::outflow::{Outflow, Source};
use super::store::{Incoming, Store};
use crate::backend::Driver;

/// A transfer under way.
#[derive(Debug)]
pub(crate) struct Transfer {
    peer: Peer,
    channel: Channel,
    role: Role,
    waker: Waker,
    summary: Summary,
    outcome: Option<Result<Hash, TransferError>>,
}

/// What is being transferred.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    /// `put` or `get`, once known.
    pub(crate) operation: &'static str,
    /// The name at the server.
    pub(crate) name: String,
    /// Bytes of the file, once known.
    pub(crate) size: Option<u64>,
}

#[derive(Debug)]
enum Role {
    /// A server that has not heard what the client wants.
    Listening(Rc<Store>),
    /// A client that waits for the server's window.
    Putting(Option<Source>),
    /// A client that waits for the file's size.
    Getting {
        window: Option<ReceiveWindow>,
        output: PathBuf,
    },
    Sending(Outflow),
    Receiving(Inflow),
}

impl Transfer {
    /// A server's side, ready for the client's request.
    ///
    /// # Errors
    /// When the endpoint has no room.
    pub(crate) fn serve(
        driver: &mut Driver,
        peer: Peer,
        store: Rc<Store>,
        waker: Waker,
    ) -> anyhow::Result<Self> {
        let channel = Channel::new(driver, peer)?;
        let role = Role::Listening(store);
        Ok(Self { peer, channel, role, waker, summary: Summary::default(), outcome: None })
    }

    /// A client's side that stores `source` under `name`.
    ///
    /// # Errors
    /// When the endpoint has no room, or the connection is gone.
    pub(crate) fn put(
        driver: &mut Driver,
        peer: Peer,
        source: Source,
        name: String,
        waker: Waker,
    ) -> anyhow::Result<Self> {
        let mut channel = Channel::new(driver, peer)?;
        let size = source.size;
        channel.send(driver, &Message::Put { name: name.clone(), size })?;
        let role = Role::Putting(Some(source));
        let summary = Summary { operation: "put", name, size: Some(size) };
        Ok(Self { peer, channel, role, waker, summary, outcome: None })
    }

    /// A client's side that fetches `name` into the file `output`.
    ///
    /// # Errors
    /// When the endpoint has no room, or the connection is gone.
    pub(crate) fn get(
        driver: &mut Driver,
        peer: Peer,
        name: String,
        output: PathBuf,
        waker: Waker,
    ) -> anyhow::Result<Self> {
        let mut channel = Channel::new(driver, peer)?;
        let window = ReceiveWindow::register(driver, peer)?;
        channel.send(driver, &Message::Get { name: name.clone(), window: window.describe() })?;
        let role = Role::Getting { window: Some(window), output };
        let summary = Summary { operation: "get", name, size: None };
        Ok(Self { peer, channel, role, waker, summary, outcome: None })
    }

    /// What is being transferred, as far as known.
    pub(crate) const fn summary(&self) -> &Summary {
        &self.summary
    }

    /// How it ended, once it has.
    pub(crate) const fn outcome(&self) -> Option<&Result<Hash, TransferError>> {
        self.outcome.as_ref()
    }

    /// Bytes that have arrived.
    pub(crate) const fn bytes_done(&self) -> u64 {
        match &self.role {
            Role::Sending(outflow) => outflow.bytes_done(),
            Role::Receiving(inflow) => inflow.bytes_done(),
            _ => 0,
        }
    }

    /// Whether all messages, the last one too, have arrived at the peer.
    pub(crate) fn is_quiet(&self) -> bool {
        self.channel.is_idle()
    }

    /// Takes a completion of this connection.
    pub(crate) fn on_completion(&mut self, driver: &mut Driver, done: Completion) {
        let heard = self.channel.on_completion(driver, done);
        if self.outcome.is_some() {
            return;
        }
        let result = heard.and_then(|heard| self.on_heard(driver, heard));
        self.conclude(driver, result);
    }

    /// Moves on whatever can be moved; `true` if anything was posted.
    pub(crate) fn pump(&mut self, driver: &mut Driver) -> bool {
        if self.outcome.is_some() {
            return false;
        }
        let result = match &mut self.role {
            Role::Sending(outflow) => outflow.pump(driver, &mut self.channel),
            Role::Receiving(inflow) => inflow.pump(driver, &mut self.channel),
            _ => Ok(false),
        };
        if let Role::Receiving(inflow) = &self.role {
            self.outcome = inflow.stored().map(Ok);
        }
        match result {
            Ok(posted) => posted,
            Err(error) => {
                self.conclude(driver, Err(error));
                true
            }
        }
    }

    /// The connection or stream is gone, or the user stopped: ends what is not over.
    pub(crate) fn on_lost(&mut self, error: TransferError) {
        self.outcome.get_or_insert(Err(error));
    }

    /// Ends the transfer from this side and tells the peer.
    pub(crate) fn abandon(&mut self, driver: &mut Driver, error: TransferError) {
        if self.outcome.is_none() {
            self.conclude(driver, Err(error));
        }
    }

    /// Gives all memory back, once the connection is over.
    pub(crate) fn release(self, driver: &mut Driver) {
        match self.role {
            Role::Sending(outflow) => outflow.release(driver),
            Role::Receiving(inflow) => inflow.release(driver),
            Role::Getting { window: Some(window), .. } => window.release(driver),
            Role::Listening(_) | Role::Putting(_) | Role::Getting { window: None, .. } => {}
        }
        self.channel.release(driver);
    }

    fn on_heard(&mut self, driver: &mut Driver, heard: Heard) -> Result<(), TransferError> {
        match (heard, &mut self.role) {
            (Heard::Nothing, _) => Ok(()),
            (Heard::Written, Role::Sending(outflow)) => {
                outflow.on_written();
                Ok(())
            }
            (Heard::Chunk { immediate, bytes }, Role::Receiving(inflow)) => {
                inflow.on_chunk(driver, immediate, bytes)
            }
            (Heard::Message(message), _) => self.on_message(driver, message),
            _ => Err(unexpected("a chunk")),
        }
    }

    fn on_message(&mut self, driver: &mut Driver, message: Message) -> Result<(), TransferError> {
        match (&mut self.role, message) {
            (_, Message::Failed { failure, text }) => {
                // Not told back to who said it.
                self.outcome = Some(Err(TransferError::new(failure, text)));
                Ok(())
            }
            (Role::Listening(store), Message::Put { name, size }) => {
                let store = Rc::clone(store);
                self.accept_put(driver, &store, name, size)
            }
            (Role::Listening(store), Message::Get { name, window }) => {
                let store = Rc::clone(store);
                self.accept_get(driver, &store, name, window)
            }
            (Role::Putting(source), Message::Ready { window }) => {
                let source = source.take().ok_or_else(|| unexpected("Ready"))?;
                let wake = wake(&self.waker);
                self.role = Role::Sending(Outflow::start(driver, self.peer, source, window, wake)?);
                Ok(())
            }
            (Role::Getting { window, output }, Message::Sending { size }) => {
                self.summary.size = Some(size);
                let writer = Writer::start(Incoming::at(output, size)?, wake(&self.waker))?;
                let window = window.take().ok_or_else(|| unexpected("Sending"))?;
                self.role = Role::Receiving(Inflow::new(window, writer, size));
                Ok(())
            }
            (Role::Sending(outflow), Message::Freed { chunks }) => outflow.on_freed(chunks),
            (Role::Sending(outflow), Message::Stored { hash }) => {
                outflow.on_stored(&hash)?;
                self.outcome = Some(Ok(hash));
                Ok(())
            }
            (Role::Receiving(inflow), Message::Finish { hash }) => inflow.on_finish(hash),
            (_, other) => Err(unexpected(&format!("{other:?}"))),
        }
    }

    fn accept_put(
        &mut self,
        driver: &mut Driver,
        store: &Store,
        name: String,
        size: u64,
    ) -> Result<(), TransferError> {
        let opened = store.create(&name, size);
        self.summary = Summary { operation: "put", name, size: Some(size) };
        let writer = Writer::start(opened?, wake(&self.waker))?;
        let window = ReceiveWindow::register(driver, self.peer)?;
        let message = Message::Ready { window: window.describe() };
        self.role = Role::Receiving(Inflow::new(window, writer, size));
        self.channel.send(driver, &message)
    }

    fn accept_get(
        &mut self,
        driver: &mut Driver,
        store: &Store,
        name: String,
        window: Window,
    ) -> Result<(), TransferError> {
        let opened = store.read(&name);
        let shown = format!("{name:?}");
        self.summary = Summary { operation: "get", name, size: None };
        let (file, size) = opened?;
        self.summary.size = Some(size);
        let source = Source { file, shown, size };
        let outflow = Outflow::start(driver, self.peer, source, window, wake(&self.waker))?;
        self.role = Role::Sending(outflow);
        self.channel.send(driver, &Message::Sending { size })
    }

    fn conclude(&mut self, driver: &mut Driver, result: Result<(), TransferError>) {
        let Err(error) = result else { return };
        let message = Message::Failed { failure: error.failure, text: error.text.clone() };
        self.outcome = Some(Err(error));
        // If the connection is gone too, the peer finds out by itself.
        let _ = self.channel.send(driver, &message);
    }
}

fn wake(waker: &Waker) -> super::disk::Wake {
    let waker = waker.clone();
    Box::new(move || {
        // Fails only when the loop is gone.
        let _ = waker.wake();
    })
}

fn unexpected(what: &str) -> TransferError {
    TransferError::new(Failure::Protocol, format!("the peer sent {what} out of turn"))
}
