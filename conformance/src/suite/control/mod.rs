//! The control channel of a device under test: one JSON object a line, as CONTROL.md describes it.
//!
//! [`parse_command`] and [`parse_answer`] are pure; [`Interpreter`] carries commands out on anything that has an
//! endpoint of the core inside.

mod bytes;
mod interpret;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

pub use bytes::HexBytes;
pub use interpret::{Backend, Interpreter};

/// The number of this protocol.
pub const PROTOCOL: u32 = 1;

/// The longest line, bytes.
pub const LINE_BYTES_MAX: usize = 1 << 20;

/// What the suite asks of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Command {
    /// Who are you?
    Hello {},
    /// Forget everything, take these settings, and start anew on the same address.
    Restart {
        /// What differs from the defaults.
        #[serde(default)]
        settings: Settings,
    },
    /// Register memory of zeros.
    Register {
        /// Bytes, at most 1 MiB.
        length: u32,
        /// Address of the first byte in a peer's terms.
        #[serde(default)]
        base: u64,
        /// Rights.
        rights: Vec<Right>,
        /// Protection domain.
        #[serde(default)]
        domain: u32,
    },
    /// Give a region another key.
    Rekey {
        /// The region.
        region: u32,
    },
    /// End a registration.
    Deregister {
        /// The region.
        region: u32,
    },
    /// Show memory.
    Read {
        /// The region.
        region: u32,
        /// First byte.
        offset: u32,
        /// Bytes.
        length: u32,
    },
    /// Change memory.
    Write {
        /// The region.
        region: u32,
        /// First byte.
        offset: u32,
        /// The bytes.
        bytes: HexBytes,
    },
    /// Open a connection.
    Connect {
        /// Where the peer receives.
        remote: SocketAddr,
        /// Service number.
        #[serde(default)]
        service: u32,
        /// Open implicitly.
        #[serde(default)]
        implicit: bool,
        /// Protection domain that the peer may reach.
        #[serde(default)]
        domain: u32,
        /// For the peer's application.
        #[serde(default)]
        private: HexBytes,
    },
    /// Accept an incoming connection.
    Accept {
        /// The connection.
        connection: u32,
        /// Protection domain that the peer may reach.
        #[serde(default)]
        domain: u32,
        /// For the peer's application.
        #[serde(default)]
        private: HexBytes,
    },
    /// Refuse an incoming connection.
    Reject {
        /// The connection.
        connection: u32,
        /// The code on the wire.
        reason: u16,
        /// For the peer's application.
        #[serde(default)]
        private: HexBytes,
    },
    /// Close a connection.
    Close {
        /// The connection.
        connection: u32,
        /// Give up what is not complete.
        #[serde(default)]
        flush: bool,
    },
    /// Move a path to another source port.
    Repath {
        /// The connection.
        connection: u32,
        /// The path.
        path: u8,
    },
    /// Name a stream that is not in use.
    OpenStream {
        /// The connection.
        connection: u32,
    },
    /// Have a stream draw on a shared queue.
    ConfigureStream {
        /// The connection.
        connection: u32,
        /// The stream.
        stream: u16,
        /// The queue.
        queue: u32,
    },
    /// End a stream.
    ResetStream {
        /// The connection.
        connection: u32,
        /// The stream.
        stream: u16,
    },
    /// Post a request.
    Post {
        /// The connection.
        connection: u32,
        /// The stream.
        stream: u16,
        /// Returned in the completion.
        id: u64,
        /// What to do.
        request: Request,
        /// Local memory.
        #[serde(default)]
        segments: Vec<Stretch>,
        /// Start after earlier READs and atomics.
        #[serde(default)]
        fence: bool,
        /// Ask for a solicited completion.
        #[serde(default)]
        solicited: bool,
    },
    /// Post a receive to a stream, tagged if there is a tag.
    PostReceive {
        /// The connection.
        connection: u32,
        /// The stream.
        stream: u16,
        /// Returned in the completion.
        id: u64,
        /// Local memory.
        segments: Vec<Stretch>,
        /// What a tagged SEND must match.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tag: Option<Tag>,
    },
    /// Make a queue of receives; with a number and key it takes datagrams.
    CreateQueue {
        /// Protection domain.
        #[serde(default)]
        domain: u32,
        /// Number and key.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        datagrams: Option<(u32, u32)>,
    },
    /// Post a receive to a queue.
    PostQueueReceive {
        /// The queue.
        queue: u32,
        /// Returned in the completion.
        id: u64,
        /// Local memory.
        segments: Vec<Stretch>,
    },
    /// Send a datagram.
    PostDatagram {
        /// The connection.
        connection: u32,
        /// Returned in the completion.
        id: u64,
        /// Number of the peer's queue.
        queue: u32,
        /// Key of the peer's queue.
        key: u32,
        /// Local memory.
        segments: Vec<Stretch>,
    },
    /// Tell what happened since the last poll.
    Poll {},
    /// Tell the counters.
    Counters {},
    /// Tell of a path.
    Path {
        /// The connection.
        connection: u32,
        /// The path.
        path: u8,
    },
}

/// What differs from the defaults of the device; one that it can't take is refused as *unsupported*.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[expect(missing_docs, reason = "each is the constant of that name in SPEC.md, section 15")]
pub struct Settings {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub streams: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub csn_window: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_window: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_credits: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reads_granted: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paths: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub planes: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inbound_rate_kbps: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu_bytes: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_bytes_max: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub half_open_per_address: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rnr_retries: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ack_delay_us: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reorder_tolerance: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fail_after_ms: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keepalive_ms: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer_port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checksum_wanted: Option<bool>,
}

impl Settings {
    /// Nothing differs.
    pub const NONE: Self = Self {
        connections: None,
        streams: None,
        messages: None,
        csn_window: None,
        message_window: None,
        initial_credits: None,
        reads_granted: None,
        paths: None,
        planes: None,
        inbound_rate_kbps: None,
        mtu_bytes: None,
        window_bytes_max: None,
        half_open_per_address: None,
        rnr_retries: None,
        ack_delay_us: None,
        reorder_tolerance: None,
        fail_after_ms: None,
        keepalive_ms: None,
        peer_port: None,
        checksum_wanted: None,
    };
}

/// A right of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Right {
    /// Receives, READ and atomic results.
    LocalWrite,
    /// A peer's WRITEs.
    RemoteWrite,
    /// A peer's READs.
    RemoteRead,
    /// A peer's atomics and signals.
    RemoteAtomic,
    /// No right: the last cache line of each WRITE lands last.
    OrderedTails,
}

impl Right {
    /// All rights.
    pub const ALL: [Self; 4] = [Self::LocalWrite, Self::RemoteWrite, Self::RemoteRead, Self::RemoteAtomic];
}

/// A stretch of a region of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stretch {
    /// The region.
    pub region: u32,
    /// First byte.
    pub offset: u32,
    /// Bytes.
    pub length: u32,
}

/// What a tagged SEND must match: `(bits xor its bits) and not ignored = 0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tag {
    /// The bits.
    pub bits: u64,
    /// Bits that are not compared.
    #[serde(default)]
    pub ignored: u64,
}

/// A place in the memory of the suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// The key.
    pub key: u32,
    /// The address.
    pub address: u64,
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// A SEND.
    Send {
        /// With an immediate.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        immediate: Option<u32>,
    },
    /// A SEND that invalidates a key.
    SendInvalidate {
        /// The key.
        key: u32,
    },
    /// A tagged SEND.
    SendTagged {
        /// The match bits.
        bits: u64,
    },
    /// A WRITE.
    Write {
        /// Where to.
        to: Place,
        /// With an immediate.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        immediate: Option<u32>,
    },
    /// A WRITE with a signal.
    WriteSignal {
        /// Where to.
        to: Place,
        /// The word.
        signal: Place,
        /// What to add.
        addend: u64,
    },
    /// A READ.
    Read {
        /// Where from.
        from: Place,
    },
    /// An atomic.
    Atomic {
        /// The word.
        word: Place,
        /// The opcode on the wire, 0x10 to 0x17.
        opcode: u8,
        /// The operands on the wire.
        operands: (u64, u64),
    },
}

/// What a device answers to a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Answer {
    /// It is done.
    Done,
    /// It can't be done, and nothing was.
    Refused {
        /// Why.
        reason: String,
    },
    /// The device does not know the command or setting.
    Unsupported {
        /// Which.
        reason: String,
    },
    /// Who it is.
    Hello {
        /// [`PROTOCOL`].
        protocol: u32,
        /// Name and version.
        name: String,
        /// Where it receives.
        address: SocketAddr,
        /// Optional profiles that it claims besides *core*: `multipath`, `atomics`, `datagram`.
        profiles: Vec<String>,
    },
    /// A region.
    Region {
        /// Its name here.
        region: u32,
        /// Its key on the wire.
        key: u32,
    },
    /// Memory.
    Memory {
        /// The bytes.
        bytes: HexBytes,
    },
    /// A connection.
    Connection {
        /// Its name here.
        connection: u32,
    },
    /// A stream.
    Stream {
        /// Its id.
        stream: u16,
    },
    /// A queue.
    Queue {
        /// Its name here.
        queue: u32,
    },
    /// What happened.
    Events {
        /// In order.
        events: Vec<DeviceEvent>,
    },
    /// Counters.
    Counters {
        /// Dropped datagrams by the names of SPEC.md, section 3.7, in kebab-case.
        dropped: BTreeMap<String, u64>,
        /// Packets whose key, bounds or rights did not allow what they wanted.
        access_faults: u64,
    },
    /// A path.
    Path {
        /// `good`, `suspect`, `dead` or `probing`.
        state: String,
        /// Its epoch.
        epoch: u8,
        /// Congestion window, bytes.
        window_bytes: u64,
        /// Bytes in flight.
        inflight_bytes: u64,
        /// Smoothed RTT, ns.
        rtt_ns: u64,
        /// Source port.
        source_port: u16,
        /// Packets sent.
        packets_sent: u64,
        /// Packets declared lost.
        packets_lost: u64,
        /// Packets that were marked.
        packets_marked: u64,
    },
}

/// Something that happened at the device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum DeviceEvent {
    /// A peer asks to connect.
    Incoming {
        /// The connection.
        connection: u32,
        /// Where the peer receives.
        remote: SocketAddr,
        /// Service number.
        service: u32,
        /// Opened implicitly.
        implicit: bool,
        /// The peer's private data.
        #[serde(default)]
        private: HexBytes,
    },
    /// A connection is open.
    Connected {
        /// The connection.
        connection: u32,
    },
    /// A connection is over.
    Closed {
        /// The connection.
        connection: u32,
        /// `local`, `peer`, `rejected`, `reset` or `timed-out`.
        reason: String,
    },
    /// A stream ended.
    StreamEnded {
        /// The connection.
        connection: u32,
        /// The stream.
        stream: u16,
        /// As in a completion.
        status: String,
    },
    /// A request or receive is complete.
    Completion {
        /// The connection.
        connection: u32,
        /// The stream.
        stream: u16,
        /// The id given at posting.
        id: u64,
        /// Whether it was a receive.
        receive: bool,
        /// `success`, `local-length`, `local-protection`, `remote-access`, `remote-operation`, `remote-invalid`,
        /// `rnr-exceeded`, `retry-exceeded`, `flushed` or `peer-closed`.
        status: String,
        /// Bytes.
        bytes: u32,
        /// The immediate of the message.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        immediate: Option<u32>,
        /// Solicited.
        #[serde(default)]
        solicited: bool,
        /// The key that the message took away.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        invalidated: Option<u32>,
    },
    /// A datagram arrived.
    Datagram {
        /// The queue.
        queue: u32,
        /// The id given at posting.
        id: u64,
        /// Bytes.
        bytes: u32,
        /// Number of the queue that the sender may be answered at.
        source_queue: u32,
    },
    /// Anything else, in words.
    Other {
        /// What.
        text: String,
    },
}

/// Reads one line of the suite's.
///
/// # Errors
/// A text that says what is wrong with it.
pub fn parse_command(line: &[u8]) -> Result<Command, String> {
    parse(line)
}

/// Reads one line of a device's.
///
/// # Errors
/// A text that says what is wrong with it.
pub fn parse_answer(line: &[u8]) -> Result<Answer, String> {
    parse(line)
}

/// One line, with its end.
///
/// # Panics
/// Never: all these types have string keys.
#[must_use]
pub fn to_line(value: &impl Serialize) -> String {
    let mut line = serde_json::to_string(value).unwrap_or_default();
    line.push('\n');
    line
}

fn parse<'a, T: Deserialize<'a>>(line: &'a [u8]) -> Result<T, String> {
    if line.len() > LINE_BYTES_MAX {
        return Err(format!("a line has at most {LINE_BYTES_MAX} bytes"));
    }
    serde_json::from_slice(line).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;
