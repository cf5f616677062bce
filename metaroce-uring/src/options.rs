//! What is particular to this backend.

use std::time::Duration;

/// How the ring is set up. The defaults are right for most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UringOptions {
    /// Entries of the submission queue, 8 to 4096; default 256. The completion queue has four times as many.
    pub entries: u32,
    /// Sends under way at once, 1 to 4096; default 256. Each holds a descriptor of some kilobytes.
    pub sends_max: u16,
    /// Buffers for receiving, a power of two from 2 to 4096; `None`, the default: 8 of 66 KiB with coalescing, 128
    /// of the size of a datagram without. They are used in turn, so many of them outgrow the processor's caches.
    pub receive_buffers: Option<u16>,
    /// Bytes of datagrams that are collected before the kernel is given them in the middle of a round; default 128 KiB. The
    /// more, the fewer system calls; but what was sealed too long ago has left the processor's caches. The first sends of a
    /// round do not wait for it, so that the peer is not idle meanwhile.
    pub submit_bytes: usize,
    /// Let a thread of the kernel submit, which sleeps after having been idle for that long: no system calls while it is
    /// busy, but it keeps a processor to itself. Default `None`.
    pub sq_poll_idle: Option<Duration>,
    /// Sending without copying; default [`ZeroCopy::Auto`].
    pub zero_copy: ZeroCopy,
    /// Bytes of regions to register with the ring at most, where sending without a copy pays; 0 for none, default 256 MiB.
    /// Registered memory is pinned: it takes up RAM whole, and an ordinary user's limit of locked memory counts it. A
    /// region that finds no room under either limit is sent from as if it were not registered.
    pub registered_bytes_max: usize,
}

impl Default for UringOptions {
    fn default() -> Self {
        Self {
            entries: 256,
            sends_max: 256,
            receive_buffers: None,
            submit_bytes: 128 << 10,
            sq_poll_idle: None,
            zero_copy: ZeroCopy::Auto,
            registered_bytes_max: 256 << 20,
        }
    }
}

/// When a send goes out from the registered memory itself, instead of from a copy in the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ZeroCopy {
    /// Never.
    Never,
    /// Towards destinations whose device does send without a copy, which a trial of each finds out; and for sends above
    /// the size at which that pays, which is measured when the first such device is found. A send must consist of at most
    /// 17 pieces, none of which crosses a page: with datagrams of 4 KiB that are 5 in one segmented send, so
    /// `gso_segments_max` must be lowered for this to happen.
    #[default]
    Auto,
    /// For every such send of at least that many bytes, even if the device copies in the end (for measurements).
    From(usize),
}
