//! Reading and writing files on threads of their own, so that a slow disk never holds up the network.

use std::fs::File;
use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread::{self, JoinHandle};

use super::failure::TransferError;
use super::message::{Failure, Hash};
use super::ring::Layout;
use super::store::Incoming;

/// Called on the disk's thread when a result is ready, to wake the loop that takes it.
pub(crate) type Wake = Box<dyn Fn() + Send>;

/// Reads a file chunk by chunk. Dropped, it stops.
#[derive(Debug)]
pub(crate) struct Reader {
    orders: Sender<Vec<u8>>,
    results: Receiver<Result<ReadResult, TransferError>>,
}

/// What a [`Reader`] gives.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReadResult {
    /// The next chunk.
    Chunk(Vec<u8>),
    /// The hash of the whole file, after its last chunk.
    Hash(Hash),
}

impl Reader {
    /// Starts a thread that reads `file`, whose name for error messages is `shown`.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(crate) fn start(
        file: File,
        shown: String,
        layout: Layout,
        wake: Wake,
    ) -> Result<Self, TransferError> {
        let (orders, ordered) = mpsc::channel();
        let (report, results) = mpsc::channel();
        let work = move || {
            let result = read_all(file, &shown, layout, &ordered, |result| {
                let _ = report.send(Ok(result));
                wake();
            });
            if let Err(error) = result {
                let _ = report.send(Err(error));
                wake();
            }
        };
        let thread = thread::Builder::new().name("reader".to_owned()).spawn(work);
        thread.map_err(|error| TransferError::io("the reading thread", &error))?;
        Ok(Self { orders, results })
    }

    /// Orders the next chunk, to be read into `buffer`.
    pub(crate) fn order(&self, buffer: Vec<u8>) {
        // If the thread is gone, its last result says why.
        let _ = self.orders.send(buffer);
    }

    /// The next result, if there is one.
    ///
    /// # Errors
    /// When reading failed.
    pub(crate) fn poll(&self) -> Result<Option<ReadResult>, TransferError> {
        match self.results.try_recv() {
            Ok(result) => result.map(Some),
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => Ok(None),
        }
    }
}

fn read_all(
    mut file: File,
    shown: &str,
    layout: Layout,
    ordered: &Receiver<Vec<u8>>,
    mut give: impl FnMut(ReadResult),
) -> Result<(), TransferError> {
    let mut hasher = blake3::Hasher::new();
    for chunk in 0..layout.chunks() {
        let Ok(mut buffer) = ordered.recv() else { return Ok(()) };
        let length = u64::from(layout.length(chunk));
        buffer.clear();
        let read = file.by_ref().take(length).read_to_end(&mut buffer);
        let read = read.map_err(|error| TransferError::io(shown, &error))?;
        if u64::try_from(read).unwrap_or(u64::MAX) != length {
            let text = format!("{shown}: the file became shorter while it was read");
            return Err(TransferError::new(Failure::Damaged, text));
        }
        hasher.update(&buffer);
        give(ReadResult::Chunk(buffer));
    }
    give(ReadResult::Hash(*hasher.finalize().as_bytes()));
    Ok(())
}

/// Writes a file chunk by chunk. Dropped before the end, it stops after the chunk in hand and leaves no file.
#[derive(Debug)]
pub(crate) struct Writer {
    orders: Sender<WriteOrder>,
    results: Receiver<Result<WriteResult, TransferError>>,
    abandoned: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// What a [`Writer`] gives.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WriteResult {
    /// One more chunk is in the file; its buffer, to be used again.
    Taken(Vec<u8>),
    /// The file is verified and has its name.
    Stored(Hash),
}

#[derive(Debug)]
enum WriteOrder {
    Chunk(Vec<u8>),
    Finish(Hash),
    Abandon,
}

impl Writer {
    /// Starts a thread that writes `file`.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(crate) fn start(file: Incoming, wake: Wake) -> Result<Self, TransferError> {
        let (orders, ordered) = mpsc::channel();
        let (report, results) = mpsc::channel();
        let abandoned = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&abandoned);
        let work = move || {
            let result = write_all(file, &ordered, &stop, |result| {
                let _ = report.send(Ok(result));
                wake();
            });
            if let Err(error) = result {
                let _ = report.send(Err(error));
                wake();
            }
        };
        let thread = thread::Builder::new().name("writer".to_owned()).spawn(work);
        let thread = thread.map_err(|error| TransferError::io("the writing thread", &error))?;
        Ok(Self { orders, results, abandoned, thread: Some(thread) })
    }

    /// Appends `chunk`.
    pub(crate) fn write(&self, chunk: Vec<u8>) {
        let _ = self.orders.send(WriteOrder::Chunk(chunk));
    }

    /// Ends the file, which must have this hash.
    pub(crate) fn finish(&self, expected: Hash) {
        let _ = self.orders.send(WriteOrder::Finish(expected));
    }

    /// The next result, if there is one.
    ///
    /// # Errors
    /// When writing failed, or the file is not what its sender sent.
    pub(crate) fn poll(&self) -> Result<Option<WriteResult>, TransferError> {
        match self.results.try_recv() {
            Ok(result) => result.map(Some),
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => Ok(None),
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.abandoned.store(true, Ordering::Relaxed);
        let _ = self.orders.send(WriteOrder::Abandon);
        // Waited for, so that the temporary file is gone before the process may end.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn write_all(
    mut file: Incoming,
    ordered: &Receiver<WriteOrder>,
    abandoned: &AtomicBool,
    mut give: impl FnMut(WriteResult),
) -> Result<(), TransferError> {
    while let Ok(order) = ordered.recv() {
        match order {
            _ if abandoned.load(Ordering::Relaxed) => break,
            WriteOrder::Abandon => break,
            WriteOrder::Chunk(chunk) => {
                file.write(&chunk)?;
                give(WriteResult::Taken(chunk));
            }
            WriteOrder::Finish(expected) => {
                give(WriteResult::Stored(file.finish(&expected)?));
                break;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn wait<T>(mut poll: impl FnMut() -> Result<Option<T>, TransferError>) -> Result<T, TransferError> {
        let end = Instant::now() + Duration::from_secs(10);
        loop {
            if let Some(result) = poll()? {
                return Ok(result);
            }
            assert!(Instant::now() < end, "the disk thread is silent");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_file_read_in_chunks_and_written_again_is_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let content: Vec<u8> = (0..=255).cycle().take(1000).collect();
        std::fs::write(dir.path().join("a"), &content).unwrap();
        let layout = Layout::new(1000, 64);
        let file = File::open(dir.path().join("a")).unwrap();
        let reader = Reader::start(file, "a".to_owned(), layout, Box::new(|| ())).unwrap();
        let incoming = Incoming::at(&dir.path().join("b"), 1000).unwrap();
        let writer = Writer::start(incoming, Box::new(|| ())).unwrap();
        let mut buffer = Vec::new();
        for _ in 0..layout.chunks() {
            reader.order(buffer);
            let Ok(ReadResult::Chunk(chunk)) = wait(|| reader.poll()) else { panic!("no chunk") };
            writer.write(chunk);
            let Ok(WriteResult::Taken(used)) = wait(|| writer.poll()) else { panic!("not taken") };
            buffer = used;
        }
        let Ok(ReadResult::Hash(hash)) = wait(|| reader.poll()) else { panic!("no hash") };
        assert_eq!(&hash, blake3::hash(&content).as_bytes());
        writer.finish(hash);
        assert_eq!(wait(|| writer.poll()), Ok(WriteResult::Stored(hash)));
        assert_eq!(std::fs::read(dir.path().join("b")).unwrap(), content);
    }

    #[test]
    fn a_file_that_shrinks_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), [1; 100]).unwrap();
        let file = File::open(dir.path().join("a")).unwrap();
        let reader = Reader::start(file, "a".to_owned(), Layout::new(200, 64), Box::new(|| ())).unwrap();
        reader.order(Vec::new());
        reader.order(Vec::new());
        assert!(matches!(wait(|| reader.poll()), Ok(ReadResult::Chunk(_))));
        assert_eq!(wait(|| reader.poll()).unwrap_err().failure, Failure::Damaged);
    }

    #[test]
    fn an_abandoned_writer_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let writer = Writer::start(Incoming::at(&dir.path().join("b"), 4).unwrap(), Box::new(|| ())).unwrap();
        writer.write(vec![1, 2]);
        assert!(matches!(wait(|| writer.poll()), Ok(WriteResult::Taken(_))));
        drop(writer);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "a file is left");
    }
}
