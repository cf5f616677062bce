//! Counters that only this backend has.

/// What the ring has done so far. [`DriverStats`](metaroce_mio::DriverStats) holds what all backends count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct UringStats {
    /// Requests given to the ring.
    pub requests: u64,
    /// Times that `io_uring_enter` was called.
    pub enters: u64,
    /// Times that the receive buffers ran out (`ENOBUFS`), and receiving was started anew.
    pub buffers_exhausted: u64,
    /// Times that receiving was started anew for another reason.
    pub receive_restarts: u64,
    /// Times that the completion queue overflowed; the kernel keeps what does not fit.
    pub completion_overflows: u64,
    /// Sends without a copy that were asked for.
    pub zero_copy_sends: u64,
    /// Of these, those that the device copied all the same.
    pub zero_copy_copied: u64,
    /// Of these, those that were refused for want of locked memory, and went out as copies.
    pub zero_copy_refused: u64,
    /// Of these, those from regions that are registered with the ring.
    pub registered_sends: u64,
    /// Of those, the ones that the kernel refused, and that went out as copies.
    pub registered_refused: u64,
    /// Regions that are registered at the moment.
    pub regions_registered: usize,
    /// Regions that could not be registered, for want of locked memory or under
    /// [`UringOptions::registered_bytes_max`](crate::UringOptions::registered_bytes_max).
    pub regions_refused: u64,
    /// Sends under way at the moment.
    pub sends_under_way: usize,
    /// Sends that were cancelled, since a region was to be given back.
    pub cancelled: u64,
    /// Whether the sockets are registered with the ring.
    pub registered_files: bool,
    /// Whether completions are handed over only when asked for (`IORING_SETUP_DEFER_TASKRUN`, Linux 6.1).
    pub deferred: bool,
}
