//! What the core reports: completions, and changes of connections and streams.

use core::net::SocketAddr;

use crate::ids::{ConnectionHandle, PathId, QueueId, RegionKey, StreamId};
use crate::stats::Limit;
use crate::time::Instant;

/// Something that the application may want to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A peer asks to connect: answer with `accept` or `reject`. Its private data: `Endpoint::private_data`.
    Incoming {
        /// The new connection.
        connection: ConnectionHandle,
        /// Where the peer receives.
        remote: SocketAddr,
        /// The service number that it asks for.
        service: u32,
        /// It is the one connection of its kind with this peer, opened without a connection manager.
        implicit: bool,
    },
    /// The connection is open; work may flow. Private data of the acceptor: `Endpoint::private_data`.
    Connected {
        /// The connection.
        connection: ConnectionHandle,
    },
    /// The connection is over; all its work requests have completed. The handle is dead.
    Closed {
        /// The connection.
        connection: ConnectionHandle,
        /// Why.
        reason: CloseReason,
        /// When the peer last told something delivered; `None` if it never did. Of a connection that timed out it tells
        /// until when it was good, and where.
        last_progress: Option<LastProgress>,
    },
    /// The peer was the first to use a stream.
    StreamOpened {
        /// The connection.
        connection: ConnectionHandle,
        /// The stream.
        stream: StreamId,
    },
    /// A stream ended in error or was reset; its work requests complete as flushed. Other streams go on.
    StreamEnded {
        /// The connection.
        connection: ConnectionHandle,
        /// The stream.
        stream: StreamId,
        /// The status that ended it.
        status: Status,
    },
    /// A limit was hit for the first time since this event was last taken: see `EndpointStats::limits_hit`.
    LimitReached {
        /// Which.
        limit: Limit,
    },
    /// A work request is finished.
    Completion(Completion),
    /// A datagram was sent, or flushed with its connection.
    DatagramSent {
        /// The connection.
        connection: ConnectionHandle,
        /// The id given at posting.
        id: u64,
        /// [`Status::Success`] or [`Status::Flushed`].
        status: Status,
    },
    /// A receive of a queue is finished: a datagram is in it, or the queue ended.
    DatagramReceived(DatagramReceived),
}

/// Where and when the peer last told something delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastProgress {
    /// The plane.
    pub plane: u8,
    /// The path.
    pub path: PathId,
    /// When.
    pub at: Instant,
}

/// The end of a queue's receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramReceived {
    /// The queue.
    pub queue: QueueId,
    /// The id given at posting.
    pub id: u64,
    /// [`Status::Success`], or [`Status::Flushed`] when the queue ended.
    pub status: Status,
    /// The connection that it came from; `None` when the queue ended.
    pub connection: Option<ConnectionHandle>,
    /// Number of the queue that the sender may be answered at.
    pub source_queue: u32,
    /// Bytes.
    pub bytes: u32,
    /// The immediate of the datagram.
    pub immediate: Option<u32>,
}

/// The end of one work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The connection.
    pub connection: ConnectionHandle,
    /// The stream.
    pub stream: StreamId,
    /// The id given at posting.
    pub id: u64,
    /// What kind of request.
    pub kind: CompletionKind,
    /// How it ended.
    pub status: Status,
    /// Bytes moved: of the message for a receive, of the request for others.
    pub bytes: u32,
    /// The immediate of the message, for receives.
    pub immediate: Option<u32>,
    /// Whether the sender asked for a solicited event, for receives.
    pub solicited: bool,
    /// The key that the message took away, for receives.
    pub invalidated: Option<RegionKey>,
    /// The match bits of the message, for tagged receives.
    pub tag: Option<u64>,
}

/// What kind of work request a completion ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CompletionKind {
    /// A posted SEND.
    Send,
    /// A posted WRITE, with or without immediate.
    Write,
    /// A posted READ.
    Read,
    /// A posted atomic.
    Atomic,
    /// A posted receive that a SEND consumed.
    Receive,
    /// A posted receive that a WRITE with immediate consumed.
    ReceiveWrite,
}

/// How a work request, or a stream, ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// It took effect.
    Success,
    /// The message does not fit the posted receive.
    LocalLength,
    /// A local region is gone or does not allow it.
    LocalProtection,
    /// The peer refused access: key, bounds or rights.
    RemoteAccess,
    /// The peer could not carry it out.
    RemoteOperation,
    /// The request is malformed in the eyes of the peer.
    RemoteInvalid,
    /// The peer had no receive posted for as many rounds as configured.
    RnrExceeded,
    /// Nothing progressed for the configured time.
    RetryExceeded,
    /// The stream or connection ended first.
    Flushed,
    /// The peer closed the connection first.
    PeerClosed,
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseReason {
    /// Closed from this side.
    Local,
    /// Closed by the peer.
    Peer,
    /// The peer refused the connection, with its reason.
    Rejected(crate::wire::RejectReason),
    /// The peer does not know this connection any more (it restarted, or ended it).
    Reset,
    /// Nothing came from the peer for the configured time.
    TimedOut,
}
