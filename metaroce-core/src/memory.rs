//! The one callback of the core: the application's memory, reached by region and offset.

use crate::ids::RegionId;

/// Access to registered memory failed; the packet is refused and its stream ended with a RESULT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryError;

/// A 64-bit operation on memory, as an atomic or a signal carries it out. Values are in the byte order of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicOperation {
    /// Add, wrapping.
    FetchAdd(u64),
    /// Store `swap` if the value equals `compare`.
    CompareSwap {
        /// Expected value.
        compare: u64,
        /// New value.
        swap: u64,
    },
    /// Store unconditionally.
    Swap(u64),
    /// Store the smaller (unsigned).
    Min(u64),
    /// Store the larger (unsigned).
    Max(u64),
    /// Bitwise and.
    And(u64),
    /// Bitwise or.
    Or(u64),
    /// Bitwise exclusive or.
    Xor(u64),
}

impl AtomicOperation {
    /// The value to store when the word holds `old`.
    #[must_use]
    pub const fn apply(self, old: u64) -> u64 {
        match self {
            Self::FetchAdd(operand) => old.wrapping_add(operand),
            Self::CompareSwap { compare, swap } => {
                if old == compare {
                    swap
                } else {
                    old
                }
            }
            Self::Swap(operand) => operand,
            Self::Min(operand) => {
                if operand < old {
                    operand
                } else {
                    old
                }
            }
            Self::Max(operand) => {
                if operand > old {
                    operand
                } else {
                    old
                }
            }
            Self::And(operand) => old & operand,
            Self::Or(operand) => old | operand,
            Self::Xor(operand) => old ^ operand,
        }
    }
}

/// The memory behind the registered regions, implemented by the backend or the application.
///
/// The core has checked bounds, rights and key before each call: `offset` + length never passes the length that
/// the region was registered with. An implementation need not make a Rust reference over memory that others may
/// change; it may copy through raw pointers.
pub trait Memory {
    /// Copies `bytes` into the region.
    ///
    /// # Errors
    /// [`MemoryError`] if the memory is not there any more; the packet is then refused.
    fn write(&mut self, region: RegionId, offset: u64, bytes: &[u8]) -> Result<(), MemoryError>;

    /// Applies `operation` to the 8-byte aligned word at `offset` and returns the value before it. Must be atomic
    /// against other users of the word if there are any.
    ///
    /// # Errors
    /// [`MemoryError`] if the memory is not there any more.
    fn atomic(
        &mut self,
        region: RegionId,
        offset: u64,
        operation: AtomicOperation,
    ) -> Result<u64, MemoryError>;
}
