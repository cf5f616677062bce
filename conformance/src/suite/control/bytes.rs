//! Bytes as hexadecimal text.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Bytes that JSON carries as a string of hexadecimal digits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HexBytes(pub Vec<u8>);

impl From<&[u8]> for HexBytes {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }
}

impl Serialize for HexBytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const DIGITS: [char; 16] =
            ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
        let digit = |nibble: u8| DIGITS.get(usize::from(nibble & 15)).copied().unwrap_or('0');
        let text: String = self.0.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect();
        serializer.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for HexBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let nibble = |digit: &u8| char::from(*digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        if !rest.is_empty() {
            return Err(D::Error::custom("hexadecimal digits come in pairs"));
        }
        let bytes: Option<Vec<u8>> =
            pairs.iter().map(|[high, low]| Some(nibble(high)? << 4 | nibble(low)?)).collect();
        bytes.map(Self).ok_or_else(|| D::Error::custom("not hexadecimal"))
    }
}
