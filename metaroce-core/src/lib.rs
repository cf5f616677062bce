//! MetaRoCE as a pure, sans-IO protocol state machine.
//!
//! [`Endpoint`] is everything: hand it datagrams, time and work; take out datagrams to send, events, and a deadline.
//! It does no I/O, reads no clock, needs no heap, and never panics on what the network sends.
//!
//! Where to look: [`Config`] and [`Limits`] before the start, [`Endpoint`] while running, [`wire`] for the bytes.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(any(test, feature = "models"))]
extern crate std;

mod bits;
pub mod config;
pub mod congestion;
mod connection;
pub mod crc;
mod delivery;
mod endpoint;
pub mod event;
pub mod ids;
mod index;
pub mod lifecycle;
mod line;
mod list;
pub mod memory;
#[cfg(feature = "models")]
#[doc(hidden)]
pub mod models;
mod path;
mod pool;
pub mod region;
pub mod request;
mod ring;
mod rng;
mod share;
pub mod stats;
pub mod storage;
mod stream;
mod table;
pub mod time;
pub mod transmit;
mod view;
mod wheel;
pub mod wire;

pub use config::{Config, ConfigError, ConnectOptions, IdPrefix, Limits};
pub use crc::{Checksum, TableChecksum};
pub use endpoint::{CloseMode, ConnectError, Endpoint, Progress};
pub use event::{CloseReason, Completion, CompletionKind, DatagramReceived, Event, LastProgress, Status};
pub use ids::{ConnectionHandle, PathId, ProtectionDomain, QueueId, RegionId, RegionKey, StreamId};
pub use memory::{AtomicOperation, Memory, MemoryError};
pub use region::{Access, RegionError, RegionOptions, RegisteredRegion};
pub use request::{
    DatagramAddress, DatagramRequest, Operation, PostError, QueueOptions, RemoteAddress, Segment,
    StreamOptions, WorkRequest,
};
pub use stats::{
    ConnectionState, ConnectionStats, DropReason, EndpointStats, Limit, PathState, PathStats, PlaneState,
    PlaneStats, StreamStats,
};
#[cfg(feature = "alloc")]
pub use storage::HeapStorage;
pub use storage::{FixedStorage, Sizes, Storage};
pub use stream::TagEntry;
pub use time::Instant;
pub use transmit::{Datagram, Disposition, Ecn, PayloadPart, SourcePort, Transmit, segmented_run};
