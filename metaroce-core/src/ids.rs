//! The numbers that cross a boundary, each a type of its own.
//!
//! Sequence numbers wrap; they are compared only through [`Serial`] arithmetic (RFC 1982), never by `<`.

use core::fmt;

/// Serial-number arithmetic modulo 2^32.
///
/// `a.distance(b)` is how far `b` lies ahead of `a`, negative when it lies behind; exact while the true distance
/// is below 2^31.
pub trait Serial: Copy {
    /// The number as it stands on the wire.
    fn raw(self) -> u32;
    /// From the number as it stands on the wire.
    fn from_raw(raw: u32) -> Self;

    /// The number `count` further on, wrapping.
    #[must_use]
    fn plus(self, count: u32) -> Self {
        Self::from_raw(self.raw().wrapping_add(count))
    }

    /// The number `count` back, wrapping.
    #[must_use]
    fn minus(self, count: u32) -> Self {
        Self::from_raw(self.raw().wrapping_sub(count))
    }

    /// How far `other` lies ahead of `self` (negative: behind).
    fn distance(self, other: Self) -> i32 {
        other.raw().wrapping_sub(self.raw()).cast_signed()
    }

    /// Whether `self` comes before `other`.
    fn before(self, other: Self) -> bool {
        self.distance(other) > 0
    }

    /// Whether `self` comes after `other`.
    fn after(self, other: Self) -> bool {
        self.distance(other) < 0
    }
}

macro_rules! serial {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
        pub struct $name(u32);

        impl $name {
            /// The number `raw`.
            #[must_use]
            pub const fn new(raw: u32) -> Self {
                Self(raw)
            }
        }

        impl Serial for $name {
            fn raw(self) -> u32 {
                self.0
            }
            fn from_raw(raw: u32) -> Self {
                Self(raw)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }
    };
}

serial! {
    /// Path sequence number: names one *transmission* on one path, and is sent once.
    Psn
}
serial! {
    /// Connection sequence number: names one *packet* of one direction of a connection; a retransmission keeps it.
    Csn
}
serial! {
    /// Message sequence number: the place of a message in its stream and direction.
    Msn
}
serial! {
    /// A stream's own count of consumed receives.
    ReceiveIndex
}

/// A path of a connection, 0 to 63.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct PathId(pub u8);

impl PathId {
    /// Its bit in a set of paths; none beyond 63.
    pub(crate) const fn bit(self) -> u64 {
        match 1u64.checked_shl(self.0 as u32) {
            Some(bit) => bit,
            None => 0,
        }
    }
}

/// An ordered stream of a connection; the id alone names it, at both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct StreamId(pub u16);

impl StreamId {
    /// Names no stream (in a PROBE).
    pub const NONE: Self = Self(0xffff);
}

/// The connection id that a receiver chose and its peer puts into every packet to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
pub struct WireConnectionId(pub u32);

/// The local name of a connection; it never names another one, even after its slot was used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionHandle {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

impl ConnectionHandle {
    /// The slot, 0 to `Limits::connections` − 1: a dense index for a caller's own table.
    #[must_use]
    pub const fn slot(self) -> u32 {
        self.slot
    }
}

/// The local name of a registered memory region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RegionId {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

impl RegionId {
    /// The slot, 0 to `Limits::regions` − 1: a dense index for a backend's own table of addresses.
    #[must_use]
    pub const fn slot(self) -> u32 {
        self.slot
    }
}

/// The local name of a queue of receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

/// The key by which a peer names a region (an *rkey*).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct RegionKey(pub u32);

impl fmt::Debug for RegionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RegionKey({:#010x})", self.0)
    }
}

/// A protection domain: a connection reaches only the regions of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ProtectionDomain(pub u32);
