//! Byte-exact traces: who sent which datagram, when, and whether it was lost; and captures that Wireshark reads.
//!
//! A [`Network`](crate::Network) hands every datagram to its [`Observer`]. [`PcapWriter`] is one, and also stands by
//! itself: a backend or program calls [`PcapWriter::write`] for each datagram that it sends and receives.

mod framing;
mod pcap;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use metaroce_core::Ecn;

pub use framing::{DATAGRAM_BYTES_MAX, frame_datagram};
pub use pcap::PcapWriter;

/// One datagram, as its sender put it on the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Record<'a> {
    /// When it was sent, in nanoseconds of the network's clock.
    pub time_ns: u64,
    /// The host that sent it, an index.
    pub from: usize,
    /// The host that it goes to, an index; `None` if nobody has that address.
    pub to: Option<usize>,
    /// Address and port that it comes from.
    pub source: SocketAddr,
    /// Address and port that it goes to.
    pub destination: SocketAddr,
    /// ECN codepoint, as sent.
    pub ecn: Ecn,
    /// The UDP payload, as sent: a link may corrupt or cut what arrives.
    pub bytes: &'a [u8],
    /// Whether the link lost it.
    pub lost: bool,
}

/// Sees every datagram that is sent.
pub trait Observer {
    /// A datagram was sent; calls come in the order of time.
    fn on_datagram(&mut self, record: &Record<'_>);
}

/// A shared observer, so that what it saw can be taken while the network still holds it.
impl<O: Observer> Observer for Rc<RefCell<O>> {
    fn on_datagram(&mut self, record: &Record<'_>) {
        self.borrow_mut().on_datagram(record);
    }
}
