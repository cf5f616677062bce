//! Counters of a plane, beside those of every driver.

use crate::socket::QueueCounters;

/// How a plane is used, and what happened on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PortStats {
    /// Whether the filter runs in the driver.
    pub native: bool,
    /// Whether the device reads and writes the frames itself.
    pub zero_copy: bool,
    /// Whether packets may take several chunks.
    pub multi_buffer: bool,
    /// Calls to the kernel.
    pub queue: QueueCounters,
    /// Packets that the kernel dropped since there was no frame to receive into, or no room in the ring.
    pub dropped: u64,
    /// Descriptors that the kernel refused to send. Always 0.
    pub refused: u64,
    /// Frames received that were no datagrams for this endpoint after all: a wrong checksum of the IP header, or a length
    /// that does not fit.
    pub not_datagrams: u64,
    /// Packets received that took several chunks.
    pub received_in_parts: u64,
    /// Packets sent in frames.
    pub sent: u64,
    /// Packets sent that took several chunks.
    pub sent_in_parts: u64,
    /// Datagrams sent through the kernel: the neighbour was not known yet, or the route leads elsewhere.
    pub sent_through_kernel: u64,
    /// Times that the kernel's tables of routes and neighbours were asked.
    pub lookups: u64,
}
