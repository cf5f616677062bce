//! Time as the core sees it: nanoseconds since an epoch that the caller picks.

use core::fmt;

/// A point in time, in nanoseconds since an epoch of the caller's choice (a monotonic clock or a simulator).
///
/// The core never reads a clock: every call that needs the time takes an `Instant`, and all that it does with
/// one is to compare and subtract. Two endpoints need not share an epoch or a rate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Instant(u64);

impl Instant {
    /// The epoch itself.
    pub const ZERO: Self = Self(0);
    /// Later than every other instant: "never" as a deadline.
    pub const FAR_FUTURE: Self = Self(u64::MAX);

    /// The instant `nanos` nanoseconds after the epoch.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the epoch.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Nanoseconds from `earlier` to `self`; 0 when `earlier` is later.
    #[must_use]
    //= MR-SEC-9
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The instant `nanos` nanoseconds later, at most [`Instant::FAR_FUTURE`].
    #[must_use]
    pub const fn after(self, nanos: u64) -> Self {
        Self(self.0.saturating_add(nanos))
    }

    /// The transmit timestamp of the base header: units of 16 ns, wrapping every 68.7 s.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "the wire field wraps by definition")]
    pub const fn wire_timestamp(self) -> u32 {
        (self.0 >> 4) as u32
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::FAR_FUTURE { f.write_str("never") } else { write!(f, "{}ns", self.0) }
    }
}
