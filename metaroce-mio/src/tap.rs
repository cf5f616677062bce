//! A tap: sees every datagram that a driver sends or receives, byte for byte.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use metaroce_core::Ecn;
use metaroce_core::time::Instant;

/// One datagram, as it went out or came in.
#[derive(Clone, Copy, Debug)]
pub struct Tapped<'a> {
    /// When, in the driver's time.
    pub at: Instant,
    /// Whether it was sent; else it was received.
    pub sent: bool,
    /// Where it came from. A driver bound to the unspecified address does not know which of the host's addresses the
    /// system chose: then this is the loopback address.
    pub source: SocketAddr,
    /// Where it went to.
    pub destination: SocketAddr,
    /// Its ECN field.
    pub ecn: Ecn,
    /// The UDP payload.
    pub bytes: &'a [u8],
}

/// What is called for every datagram. It costs a copy of each datagram sent.
pub type Tap = Box<dyn FnMut(&Tapped<'_>) + Send>;

/// Where a tap sits; shows whether one does.
#[derive(Default)]
pub(crate) struct TapSlot(pub(crate) Option<Tap>);

impl std::fmt::Debug for TapSlot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "tapped" } else { "untapped" })
    }
}

/// An address that can stand in a capture.
pub(crate) fn concrete(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}
