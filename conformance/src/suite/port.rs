//! What the suite speaks through: datagrams, a clock, and the control channel of the device.

use std::net::SocketAddr;

use metaroce_core::Ecn;

use super::control::{Answer, Command};

/// Where the suite sends from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The port on which it receives: where its CONNECT comes from.
    Main,
    /// Another port of the same address, 1 to [`SOURCES`].
    Other(u8),
    /// Another IP address.
    Stranger,
}

/// Further source ports of the suite.
pub const SOURCES: u8 = 4;

/// A datagram of the device.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// When, ns of the port's clock.
    pub at_ns: u64,
    /// Where from.
    pub from: SocketAddr,
    /// Which of the suite's sources it came to: 0 is the receive port, 255 the stranger.
    pub to: u8,
    /// ECN codepoint.
    pub ecn: Ecn,
    /// The UDP payload.
    pub bytes: Vec<u8>,
}

/// Something that stops a case without judging the device.
#[derive(Debug)]
pub enum PortError {
    /// This port can't do that, or not on this machine.
    Unsupported(String),
    /// The sockets or the control channel are gone.
    Broken(String),
}

/// The way to a device.
pub trait Port {
    /// The clock, ns.
    fn now_ns(&self) -> u64;
    /// Whether time is virtual: then every bound is exact.
    fn is_exact(&self) -> bool;
    /// Where the device receives.
    fn device(&self) -> SocketAddr;
    /// Where the suite's sources are.
    fn local(&self, source: Source) -> Option<SocketAddr>;
    /// Sends a datagram. What is sent without waiting in between arrives together, as far as the port can.
    ///
    /// # Errors
    /// [`PortError`].
    fn send(&mut self, from: Source, ecn: Ecn, bytes: &[u8]) -> Result<(), PortError>;
    /// The next datagram of the device, if one comes before `until_ns`; waits for it.
    ///
    /// # Errors
    /// [`PortError`].
    fn receive(&mut self, until_ns: u64) -> Result<Option<Arrival>, PortError>;
    /// Has the device carry out a command.
    ///
    /// # Errors
    /// [`PortError`]; a refusal of the device is an answer.
    fn command(&mut self, command: &Command) -> Result<Answer, PortError>;
}
