//! The bytes on the wire, *draft 0*. No other module knows a byte offset.
//!
//! Every header is a plain struct with `parse` and `emit`: `parse` takes a slice and returns the header and what
//! follows it; `emit` writes into a slice and returns the number of bytes written. Parsing then emitting is the
//! identity on every valid header whose reserved bits are zero; parsing never panics and never allocates. All
//! fields are big-endian. Reserved bits are sent as zero and ignored when received.

mod ack;
mod base;
mod connect;
mod control;
mod cursor;
mod data;
mod frame;
mod opcode;
mod probe;
mod vector;

#[cfg(test)]
mod tests;

pub use ack::{ACK_BODY_BYTES, ACK_FLAG_EMPTY, AckBody};
pub use base::{BASE_BYTES, Base, PATHS_MAX, PacketType, VERSION};
pub use connect::{
    CONNECT_FIXED_BYTES, COOKIE_BYTES, Connect, PLANE_ADDRESSES_MAX, PRIVATE_DATA_BYTES_MAX, PlaneAddresses,
};
pub use control::{
    CONTROL_BYTES_MAX, Close, Confirm, Control, QUOTE_BYTES, Reject, RejectReason, Reset, ResetProof, Retry,
};
pub use data::{DATA_FIXED_BYTES, DATA_HEADER_BYTES_MAX, DataHeader, Remote, Signal};
pub use frame::{FRAME_HEADER_BYTES, Frame, FrameIter, NackReason};
pub use opcode::{OpFlags, Opcode};
pub use probe::{PROBE_BYTES, PROBE_REPLY_BYTES, Probe, ProbeReply};
pub use vector::{Vector256, VectorBits};

/// The well-known UDP destination port (draft 0), configurable.
//= MR-WIRE-7
pub const UDP_PORT: u16 = 4795;

/// Why bytes are no valid header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// Fewer bytes than the header needs.
    Truncated,
    /// A version that this implementation does not speak.
    Version,
    /// A packet type, opcode or control kind that is not defined.
    Kind,
    /// A field has a value that its definition forbids.
    Field,
}

/// What `emit` was given does not hold the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferTooSmall;
