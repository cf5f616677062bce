//! The control channel: a thread reads lines, the loop of the device carries them out.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::Context as _;
use metaroce_conformance::suite::control::{Answer, Command, LINE_BYTES_MAX, parse_command, to_line};
use metaroce_mio::Waker;

/// The commands of whoever is connected, one client at a time.
pub(super) struct Channel {
    address: SocketAddr,
    commands: Receiver<Asked>,
    waker: Arc<Mutex<Option<Waker>>>,
}

/// A command that waits for its answer.
pub(super) struct Asked {
    pub(super) command: Command,
    answers: SyncSender<Answer>,
}

impl Asked {
    /// Sends the answer.
    pub(super) fn answer(self, answer: Answer) {
        // The client may have gone.
        let _ = self.answers.send(answer);
    }
}

impl Channel {
    /// Listens.
    ///
    /// # Errors
    /// When the address can't be used.
    pub(super) fn open(address: &str) -> anyhow::Result<Self> {
        let address = address.to_socket_addrs().with_context(|| format!("{address} is no HOST:PORT"))?.next();
        let address = address.context("the control address names nothing")?;
        let listener =
            TcpListener::bind(address).with_context(|| format!("cannot listen on TCP {address}"))?;
        let address = listener.local_addr()?;
        let (sender, commands) = channel();
        let waker = Arc::new(Mutex::new(None));
        let shared = Arc::clone(&waker);
        thread::Builder::new().name("control".to_owned()).spawn(move || {
            for stream in listener.incoming().flatten() {
                if let Err(error) = serve(&stream, &sender, &shared) {
                    eprintln!("control channel: {error}");
                }
            }
        })?;
        Ok(Self { address, commands, waker })
    }

    /// Where it listens.
    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// A command from now on wakes this.
    pub(super) fn wakes(&self, waker: Waker) {
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(waker);
    }

    /// The next command, if one waits.
    pub(super) fn next(&self) -> Option<Asked> {
        self.commands.try_recv().ok()
    }
}

fn serve(stream: &TcpStream, commands: &Sender<Asked>, waker: &Mutex<Option<Waker>>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    let mut writer = stream;
    loop {
        let mut line = Vec::new();
        let most = u64::try_from(LINE_BYTES_MAX).unwrap_or(u64::MAX);
        if reader.by_ref().take(most + 1).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        if !line.ends_with(b"\n") && line.len() > LINE_BYTES_MAX {
            return Err(io::Error::other("the line is too long"));
        }
        let answer = match parse_command(line.trim_ascii_end()) {
            Ok(command) => {
                let (answers, answer) = sync_channel(1);
                commands.send(Asked { command, answers }).map_err(io::Error::other)?;
                if let Some(waker) = &*waker.lock().unwrap_or_else(PoisonError::into_inner) {
                    waker.wake()?;
                }
                answer.recv().map_err(io::Error::other)?
            }
            Err(reason) => Answer::Unsupported { reason },
        };
        writer.write_all(to_line(&answer).as_bytes())?;
    }
}
