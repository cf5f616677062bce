//! Opcodes and flags of DATA, and which of them go together.
//!
//! | opcode                | code         | may carry besides LAST, SOLICITED, ACK-NOW                     | must carry |
//! |-----------------------|--------------|----------------------------------------------------------------|------------|
//! | SEND                  | 0x01         | TAGGED, and either IMMEDIATE or INVALIDATE                     |            |
//! | WRITE                 | 0x02         | on the last packet either IMMEDIATE or SIGNAL                  |            |
//! | `READ_REQUEST`        | 0x03         |                                                                | LAST       |
//! | `READ_RESPONSE`       | 0x04         |                                                                |            |
//! | `ATOMIC_RESPONSE`     | 0x05         |                                                                | LAST       |
//! | RESULT                | 0x06         |                                                                | IMMEDIATE  |
//! | VOID                  | 0x07         | (nor SOLICITED)                                                |            |
//! | `STREAM_RESET`        | 0x08         |                                                                | IMMEDIATE  |
//! | DATAGRAM              | 0x09         | IMMEDIATE                                                      | LAST       |
//! | atomic requests       | 0x10 to 0x17 |                                                                | LAST       |

use super::WireError;

/// What a DATA packet asks for or answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Opcode {
    /// Payload for a posted receive.
    Send = 0x01,
    /// Payload for remote memory.
    Write = 0x02,
    /// Asks for bytes of remote memory.
    ReadRequest = 0x03,
    /// Payload that answers a READ.
    ReadResponse = 0x04,
    /// The word that an atomic found.
    AtomicResponse = 0x05,
    /// The final status of a message that failed at the responder.
    Result = 0x06,
    /// Closes a CSN that will not be sent again.
    Void = 0x07,
    /// Ends a stream.
    StreamReset = 0x08,
    /// An unreliable datagram.
    Datagram = 0x09,
    /// Adds operand 0 to a word.
    FetchAdd = 0x10,
    /// Stores operand 1 into a word that equals operand 0.
    CompareSwap = 0x11,
    /// Stores operand 0 into a word.
    Swap = 0x12,
    /// Stores the smaller of operand 0 and the word.
    Min = 0x13,
    /// Stores the larger of operand 0 and the word.
    Max = 0x14,
    /// Ands operand 0 into a word.
    And = 0x15,
    /// Ors operand 0 into a word.
    Or = 0x16,
    /// Xors operand 0 into a word.
    Xor = 0x17,
}

impl Opcode {
    /// Every opcode.
    pub const ALL: [Self; 17] = [
        Self::Send,
        Self::Write,
        Self::ReadRequest,
        Self::ReadResponse,
        Self::AtomicResponse,
        Self::Result,
        Self::Void,
        Self::StreamReset,
        Self::Datagram,
        Self::FetchAdd,
        Self::CompareSwap,
        Self::Swap,
        Self::Min,
        Self::Max,
        Self::And,
        Self::Or,
        Self::Xor,
    ];

    /// From the code on the wire.
    ///
    /// # Errors
    /// [`WireError::Kind`] for a code that is not defined.
    pub const fn from_code(code: u8) -> Result<Self, WireError> {
        Ok(match code {
            0x01 => Self::Send,
            0x02 => Self::Write,
            0x03 => Self::ReadRequest,
            0x04 => Self::ReadResponse,
            0x05 => Self::AtomicResponse,
            0x06 => Self::Result,
            0x07 => Self::Void,
            0x08 => Self::StreamReset,
            0x09 => Self::Datagram,
            0x10 => Self::FetchAdd,
            0x11 => Self::CompareSwap,
            0x12 => Self::Swap,
            0x13 => Self::Min,
            0x14 => Self::Max,
            0x15 => Self::And,
            0x16 => Self::Or,
            0x17 => Self::Xor,
            _ => return Err(WireError::Kind),
        })
    }

    /// The code on the wire.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Whether this is an atomic request.
    #[must_use]
    pub const fn is_atomic(self) -> bool {
        self.code() >= Self::FetchAdd.code()
    }

    /// Whether the header names remote memory: WRITE, READ request, atomics.
    #[must_use]
    pub const fn has_remote(self) -> bool {
        matches!(self, Self::Write | Self::ReadRequest) || self.is_atomic()
    }

    /// Whether the message takes an MSN of its direction: SEND, WRITE, READ request, atomics.
    #[must_use]
    pub const fn takes_msn(self) -> bool {
        matches!(self, Self::Send | Self::Write | Self::ReadRequest) || self.is_atomic()
    }

    /// Whether payload of the message is cut over packets by offset: SEND, WRITE, READ response.
    #[must_use]
    pub const fn is_segmented(self) -> bool {
        matches!(self, Self::Send | Self::Write | Self::ReadResponse)
    }

    /// Whether the packet answers a request of the other direction: READ response, atomic response, RESULT.
    #[must_use]
    pub const fn is_response(self) -> bool {
        matches!(self, Self::ReadResponse | Self::AtomicResponse | Self::Result)
    }

    /// The flags that a packet of this opcode may carry.
    #[must_use]
    pub const fn allowed_flags(self) -> OpFlags {
        let own = match self {
            Self::Send => OpFlags::IMMEDIATE.with(OpFlags::INVALIDATE).with(OpFlags::TAGGED),
            Self::Write => OpFlags::IMMEDIATE.with(OpFlags::SIGNAL),
            Self::Result | Self::StreamReset | Self::Datagram => OpFlags::IMMEDIATE,
            _ => OpFlags::NONE,
        };
        let common = OpFlags::LAST.with(OpFlags::ACK_NOW);
        if matches!(self, Self::Void) { common } else { common.with(OpFlags::SOLICITED).with(own) }
    }

    /// The flags that a packet of this opcode must carry.
    #[must_use]
    pub const fn required_flags(self) -> OpFlags {
        match self {
            Self::ReadRequest | Self::AtomicResponse | Self::Datagram => OpFlags::LAST,
            Self::Result | Self::StreamReset => OpFlags::IMMEDIATE,
            _ if self.is_atomic() => OpFlags::LAST,
            _ => OpFlags::NONE,
        }
    }

    /// Whether a packet of this opcode may carry just these flags.
    #[must_use]
    pub const fn permits(self, flags: OpFlags) -> bool {
        let last = flags.contains(OpFlags::LAST);
        let immediate = flags.contains(OpFlags::IMMEDIATE);
        self.allowed_flags().contains(flags)
            && flags.contains(self.required_flags())
            //= MR-WIRE-17
            && !(immediate && flags.contains(OpFlags::INVALIDATE))
            && !(flags.contains(OpFlags::SIGNAL) && (immediate || !last))
            && !(matches!(self, Self::Write) && immediate && !last)
    }
}

/// The flags of a DATA packet.
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct OpFlags(u8);

impl OpFlags {
    /// No flag.
    pub const NONE: Self = Self(0);
    /// The last packet of its message.
    pub const LAST: Self = Self(1);
    /// The header carries an immediate.
    pub const IMMEDIATE: Self = Self(2);
    /// The header carries a key to invalidate, in the place of the immediate.
    pub const INVALIDATE: Self = Self(4);
    /// The header carries match bits.
    pub const TAGGED: Self = Self(8);
    /// The header carries a signal.
    pub const SIGNAL: Self = Self(16);
    /// The completion at the target wakes who waits for solicited ones.
    pub const SOLICITED: Self = Self(32);
    /// The receiver is to acknowledge at once.
    pub const ACK_NOW: Self = Self(64);
    /// Every flag that is defined; bit 128 is reserved.
    pub const ALL: Self = Self(127);

    /// From the byte on the wire; reserved bits are dropped.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits & Self::ALL.0)
    }

    /// The byte on the wire.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Whether all of `flags` are set.
    #[must_use]
    pub const fn contains(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Whether any of `flags` is set.
    #[must_use]
    pub const fn intersects(self, flags: Self) -> bool {
        self.0 & flags.0 != 0
    }

    /// These and `flags`.
    #[must_use]
    pub const fn with(self, flags: Self) -> Self {
        Self(self.0 | flags.0)
    }

    /// These without `flags`.
    #[must_use]
    pub const fn without(self, flags: Self) -> Self {
        Self(self.0 & !flags.0)
    }
}

impl core::fmt::Debug for OpFlags {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        const NAMES: [(OpFlags, &str); 7] = [
            (OpFlags::LAST, "last"),
            (OpFlags::IMMEDIATE, "immediate"),
            (OpFlags::INVALIDATE, "invalidate"),
            (OpFlags::TAGGED, "tagged"),
            (OpFlags::SIGNAL, "signal"),
            (OpFlags::SOLICITED, "solicited"),
            (OpFlags::ACK_NOW, "ack-now"),
        ];
        let mut set = f.debug_set();
        for (flag, name) in NAMES {
            if self.contains(flag) {
                set.entry(&format_args!("{name}"));
            }
        }
        set.finish()
    }
}
