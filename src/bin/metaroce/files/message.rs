//! The messages of the file protocol, as bytes.
//!
//! One transfer uses one connection and its stream 0. The side that receives the file registers a *window*, a ring of
//! chunks, and names it to the other side; the sender fills the ring by WRITE with immediate (chunk *n* of the file
//! goes to slot *n* modulo the number of slots, the immediate is *n*), and takes a slot again when `Freed` says so.
//!
//! ```text
//! put:  client  Put{name, size}    server  Ready{window}
//!       client  WRITE …            server  Freed{chunks} …
//!       client  Finish{hash}       server  Stored{hash}
//! get:  client  Get{name, window}  server  Sending{size}
//!       server  WRITE …            client  Freed{chunks} …
//!       server  Finish{hash}       client  Stored{hash}
//! ```
//!
//! Either side may say `Failed` at any time, which ends the transfer. The version is not in the messages but in the
//! private data of the connection, so that a server can refuse a stranger before it has to read its messages.

use std::fmt;

/// The service number under which a server is reached: "file".
pub(crate) const SERVICE: u32 = 0x6669_6c65;

/// Version of this protocol; a server takes only its own.
pub(crate) const VERSION: u16 = 1;

/// The longest encoded message, bytes.
pub(crate) const MESSAGE_BYTES_MAX: usize = 4096;

/// The longest name, bytes.
pub(crate) const NAME_BYTES_MAX: usize = 3072;

/// A BLAKE3 hash.
pub(crate) type Hash = [u8; 32];

const GREETING: &[u8; 6] = b"MRfile";

/// The ring of chunks into which the peer writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    /// Key of the region.
    pub(crate) key: u32,
    /// Address of the first chunk.
    pub(crate) address: u64,
    /// Bytes of a chunk; every chunk of a file but the last is full.
    pub(crate) chunk_bytes: u32,
    /// Slots of the ring.
    pub(crate) chunks: u16,
}

/// Why a transfer failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Failure {
    NotFound = 1,
    Permission = 2,
    Outside = 3,
    DiskFull = 4,
    NoFile = 5,
    ReadOnly = 6,
    Damaged = 7,
    Interrupted = 8,
    Protocol = 9,
    Other = 10,
}

impl Failure {
    const ALL: [Self; 10] = [
        Self::NotFound,
        Self::Permission,
        Self::Outside,
        Self::DiskFull,
        Self::NoFile,
        Self::ReadOnly,
        Self::Damaged,
        Self::Interrupted,
        Self::Protocol,
        Self::Other,
    ];

    /// The name of this failure in JSON.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::Permission => "permission",
            Self::Outside => "outside_directory",
            Self::DiskFull => "disk_full",
            Self::NoFile => "not_a_file",
            Self::ReadOnly => "read_only",
            Self::Damaged => "damaged",
            Self::Interrupted => "interrupted",
            Self::Protocol => "protocol",
            Self::Other => "other",
        }
    }
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// A client wants to store a file of this size.
    Put { name: String, size: u64 },
    /// A client wants a file, into this window.
    Get { name: String, window: Window },
    /// Answer to `Put`.
    Ready { window: Window },
    /// Answer to `Get`.
    Sending { size: u64 },
    /// How many chunks have left the window since the start of the transfer.
    Freed { chunks: u64 },
    /// All chunks are written; the hash of the whole.
    Finish { hash: Hash },
    /// The file is complete, verified and has its name.
    Stored { hash: Hash },
    /// The transfer is over, and why.
    Failed { failure: Failure, text: String },
}

/// Bytes that are no message of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the peer sent a message that is not of the file protocol")
    }
}

impl std::error::Error for Malformed {}

/// The private data with which a client connects and a server accepts or rejects.
pub(crate) fn greeting() -> Vec<u8> {
    let mut bytes = GREETING.to_vec();
    bytes.extend_from_slice(&VERSION.to_be_bytes());
    bytes
}

/// The version in a peer's private data, if it speaks the file protocol at all.
pub(crate) fn greeted_version(private_data: &[u8]) -> Option<u16> {
    let rest = private_data.strip_prefix(GREETING)?;
    rest.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
}

impl Message {
    /// The bytes of this message, at most [`MESSAGE_BYTES_MAX`]; a longer name or text is cut.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        match self {
            Self::Put { name, size } => {
                out.push(1);
                out.extend_from_slice(&size.to_be_bytes());
                put_text(&mut out, name);
            }
            Self::Get { name, window } => {
                out.push(2);
                put_window(&mut out, window);
                put_text(&mut out, name);
            }
            Self::Ready { window } => {
                out.push(3);
                put_window(&mut out, window);
            }
            Self::Sending { size } => {
                out.push(4);
                out.extend_from_slice(&size.to_be_bytes());
            }
            Self::Freed { chunks } => {
                out.push(5);
                out.extend_from_slice(&chunks.to_be_bytes());
            }
            Self::Finish { hash } => {
                out.push(6);
                out.extend_from_slice(hash);
            }
            Self::Stored { hash } => {
                out.push(7);
                out.extend_from_slice(hash);
            }
            Self::Failed { failure, text } => {
                out.push(8);
                out.push(*failure as u8);
                put_text(&mut out, text);
            }
        }
        out
    }

    /// The message in `bytes`, which it must fill exactly.
    ///
    /// # Errors
    /// [`Malformed`] for anything else.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader(bytes);
        let message = match reader.byte()? {
            1 => {
                let size = reader.long()?;
                Self::Put { name: reader.text()?, size }
            }
            2 => {
                let window = reader.window()?;
                Self::Get { name: reader.text()?, window }
            }
            3 => Self::Ready { window: reader.window()? },
            4 => Self::Sending { size: reader.long()? },
            5 => Self::Freed { chunks: reader.long()? },
            6 => Self::Finish { hash: reader.array()? },
            7 => Self::Stored { hash: reader.array()? },
            8 => {
                let code = reader.byte()?;
                let failure =
                    Failure::ALL.into_iter().find(|failure| *failure as u8 == code).ok_or(Malformed)?;
                Self::Failed { failure, text: reader.text()? }
            }
            _ => return Err(Malformed),
        };
        if reader.0.is_empty() { Ok(message) } else { Err(Malformed) }
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, rest) = self.0.split_first_chunk().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*head)
    }

    fn byte(&mut self) -> Result<u8, Malformed> {
        self.array().map(u8::from_be_bytes)
    }

    fn long(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_be_bytes)
    }

    fn window(&mut self) -> Result<Window, Malformed> {
        let window = Window {
            key: self.array().map(u32::from_be_bytes)?,
            address: self.long()?,
            chunk_bytes: self.array().map(u32::from_be_bytes)?,
            chunks: self.array().map(u16::from_be_bytes)?,
        };
        if window.chunk_bytes == 0 || window.chunks == 0 { Err(Malformed) } else { Ok(window) }
    }

    fn text(&mut self) -> Result<String, Malformed> {
        let length = usize::from(self.array().map(u16::from_be_bytes)?);
        let (text, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        String::from_utf8(text.to_vec()).map_err(|_| Malformed)
    }
}

fn put_window(out: &mut Vec<u8>, window: &Window) {
    out.extend_from_slice(&window.key.to_be_bytes());
    out.extend_from_slice(&window.address.to_be_bytes());
    out.extend_from_slice(&window.chunk_bytes.to_be_bytes());
    out.extend_from_slice(&window.chunks.to_be_bytes());
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    let mut end = text.len().min(NAME_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let text = text.get(..end).unwrap_or("");
    out.extend_from_slice(&u16::try_from(text.len()).unwrap_or(0).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<Message> {
        let window = Window { key: 0xdead_beef, address: 1 << 40, chunk_bytes: 1 << 21, chunks: 16 };
        vec![
            Message::Put { name: "a/ä.bin".to_owned(), size: u64::MAX },
            Message::Get { name: String::new(), window },
            Message::Ready { window },
            Message::Sending { size: 7 },
            Message::Freed { chunks: 3 },
            Message::Finish { hash: [7; 32] },
            Message::Stored { hash: [9; 32] },
            Message::Failed { failure: Failure::DiskFull, text: "no space left".to_owned() },
        ]
    }

    #[test]
    fn every_message_survives_the_round_trip() {
        for message in samples() {
            assert_eq!(Message::decode(&message.encode()), Ok(message));
        }
    }

    #[test]
    fn truncated_and_lengthened_messages_are_refused() {
        for message in samples() {
            let mut bytes = message.encode();
            for length in 0..bytes.len() {
                assert_eq!(Message::decode(&bytes[..length]), Err(Malformed), "{message:?} cut to {length}");
            }
            bytes.push(0);
            assert_eq!(Message::decode(&bytes), Err(Malformed), "{message:?} with a byte more");
        }
    }

    #[test]
    fn random_bytes_never_panic() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..100_000 {
            let length = random.usize(..80);
            let mut bytes: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
            if let Some(first) = bytes.first_mut() {
                *first %= 10;
            }
            let _ = Message::decode(&bytes);
        }
    }

    #[test]
    fn a_window_without_room_is_refused() {
        let window = Window { key: 1, address: 0, chunk_bytes: 0, chunks: 16 };
        assert_eq!(Message::decode(&Message::Ready { window }.encode()), Err(Malformed));
    }

    #[test]
    fn long_text_is_cut_at_a_character_and_fits_a_message() {
        let text = "ä".repeat(5000);
        let bytes = Message::Failed { failure: Failure::Other, text }.encode();
        assert!(bytes.len() <= MESSAGE_BYTES_MAX);
        assert!(Message::decode(&bytes).is_ok());
    }

    #[test]
    fn every_failure_has_its_own_code() {
        for failure in Failure::ALL {
            let message = Message::Failed { failure, text: String::new() };
            assert_eq!(Message::decode(&message.encode()), Ok(message));
        }
    }

    #[test]
    fn the_greeting_carries_the_version() {
        assert_eq!(greeted_version(&greeting()), Some(VERSION));
        assert_eq!(greeted_version(b"MRfile\x01\x02more later"), Some(0x0102));
        assert_eq!(greeted_version(b"MRfil"), None);
        assert_eq!(greeted_version(b"MRfile\x01"), None);
    }
}
