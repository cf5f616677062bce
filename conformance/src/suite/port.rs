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
    /// Where the suite receives on a further plane, 1 to [`PLANES`]; what leaves from there goes to the device's address
    /// on that plane.
    Plane(u8),
    /// Another IP address.
    Stranger,
}

impl Source {
    /// As one number: 0 is the receive port, 255 the stranger.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Main => 0,
            Self::Other(number) => number,
            Self::Plane(plane) => PLANE_NUMBERS + plane,
            Self::Stranger => 255,
        }
    }

    /// The source of this number.
    #[must_use]
    pub const fn of_number(number: u8) -> Self {
        match number {
            0 => Self::Main,
            255 => Self::Stranger,
            PLANE_NUMBERS.. => Self::Plane(number - PLANE_NUMBERS),
            _ => Self::Other(number),
        }
    }
}

/// Further source ports of the suite.
pub const SOURCES: u8 = 4;

/// Further planes of the suite.
pub const PLANES: u8 = 3;

const PLANE_NUMBERS: u8 = 100;

/// A datagram of the device.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// When, ns of the port's clock.
    pub at_ns: u64,
    /// Where from.
    pub from: SocketAddr,
    /// Which of the suite's sources it came to, by [`Source::number`].
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
    /// The device receives at these addresses on its further planes.
    fn join(&mut self, planes: &[SocketAddr]);
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
