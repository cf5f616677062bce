//! The Internet checksum (RFC 1071): a sum of 16-bit words in one's complement.

/// A running sum. Pieces are fed in order; all but the last must have an even length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InternetSum(u64);

impl InternetSum {
    /// Continues the sum over `bytes`; an odd last byte counts as if a zero followed it. O(bytes).
    #[must_use]
    pub fn with(self, bytes: &[u8]) -> Self {
        let (words, rest) = bytes.as_chunks::<4>();
        // A word of 32 bits stands for two of 16, since 2^16 is 1 modulo 2^16 - 1. The sum is taken in memory order
        // and turned around once: the checksum does not care about the order of bytes, if it is the same throughout.
        let mut sum: u64 = words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum();
        let mut tail = [0; 4];
        for (to, from) in tail.iter_mut().zip(rest) {
            *to = *from;
        }
        sum += u64::from(u32::from_ne_bytes(tail));
        Self(u64::from(fold(self.0)) + u64::from(fold(sum)))
    }

    /// Continues the sum by one word.
    #[must_use]
    pub fn with_word(self, word: u16) -> Self {
        self.with(&word.to_be_bytes())
    }

    /// The sum over what both were fed.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self(u64::from(fold(self.0)) + u64::from(fold(other.0)))
    }

    /// The checksum field that makes the whole sum right.
    #[must_use]
    pub fn checksum(self) -> u16 {
        !u16::from_be_bytes(fold(self.0).to_ne_bytes())
    }

    /// Whether the bytes fed, checksum field included, are right.
    #[must_use]
    pub fn is_right(self) -> bool {
        fold(self.0) == u16::MAX
    }
}

/// Adds the carries back in until 16 bits are left.
fn fold(sum: u64) -> u16 {
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    let [b0, b1, ..] = sum.to_le_bytes();
    u16::from_le_bytes([b0, b1])
}

#[cfg(test)]
mod tests {
    use super::InternetSum;

    /// Word by word, as RFC 1071 has it.
    fn slow(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !u16::try_from(sum).unwrap()
    }

    #[test]
    fn the_example_of_rfc_1071_comes_out() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(InternetSum::default().with(&bytes).checksum(), !0xddf2);
    }

    #[test]
    fn a_well_known_ipv4_header_is_right_and_a_flipped_bit_is_seen() {
        let mut header = [
            0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0x00, 0x01,
            0xc0, 0xa8, 0x00, 0xc7,
        ];
        assert!(InternetSum::default().with(&header).is_right());
        header[15] ^= 4;
        assert!(!InternetSum::default().with(&header).is_right());
    }

    #[test]
    fn pieces_of_even_length_give_the_same_as_one_word_at_a_time() {
        #[expect(clippy::needless_pass_by_value, reason = "quickcheck passes its arguments by value")]
        fn property(pieces: Vec<Vec<u8>>, last: Vec<u8>) -> bool {
            let even = pieces.iter().map(|piece| &piece[..piece.len() / 2 * 2]);
            let sum = even.clone().fold(InternetSum::default(), InternetSum::with).with(&last);
            let whole: Vec<u8> = even.flatten().chain(&last).copied().collect();
            sum.checksum() == slow(&whole)
        }
        quickcheck::quickcheck(property as fn(Vec<Vec<u8>>, Vec<u8>) -> bool);
    }

    #[test]
    fn carries_of_long_input_are_not_lost() {
        let bytes = vec![0xff; 9000];
        assert_eq!(InternetSum::default().with(&bytes).checksum(), slow(&bytes));
        assert_eq!(InternetSum::default().with(&bytes).with(&bytes).with_word(0x1234).checksum(), !0x1234);
    }
}
