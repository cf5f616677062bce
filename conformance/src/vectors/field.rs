//! Bytes and what they mean, written in one go.

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::hex;

/// The value of a field, as it stands in the JSON files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Up to 32 bits: a number.
    Number(u32),
    /// 64 bits: a string of `0x` and 16 digits, since many readers of JSON keep no more than 53 bits of a number.
    Wide(u64),
    /// Bytes, as hexadecimal digits.
    Bytes(Vec<u8>),
    /// A name.
    Text(&'static str),
    /// Yes or no.
    Flag(bool),
    /// Several values.
    List(Vec<Value>),
    /// Named values, in the order of the wire.
    Object(Vec<(&'static str, Value)>),
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Number(number) => serializer.serialize_u32(*number),
            Self::Wide(number) => serializer.serialize_str(&format!("{number:#018x}")),
            Self::Bytes(bytes) => serializer.serialize_str(&hex(bytes)),
            Self::Text(text) => serializer.serialize_str(text),
            Self::Flag(flag) => serializer.serialize_bool(*flag),
            Self::List(values) => serializer.collect_seq(values),
            Self::Object(fields) => {
                let mut map = serializer.serialize_map(Some(fields.len()))?;
                for (name, value) in fields {
                    map.serialize_entry(name, value)?;
                }
                map.end()
            }
        }
    }
}

/// A part of a packet: its bytes so far, and the fields in them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    bytes: Vec<u8>,
    values: Vec<(&'static str, Value)>,
}

impl Fields {
    pub(super) fn u8(mut self, name: &'static str, value: u8) -> Self {
        self.bytes.push(value);
        self.told(name, Value::Number(value.into()))
    }

    pub(super) fn u16(mut self, name: &'static str, value: u16) -> Self {
        self.bytes.extend(value.to_be_bytes());
        self.told(name, Value::Number(value.into()))
    }

    pub(super) fn u32(mut self, name: &'static str, value: u32) -> Self {
        self.bytes.extend(value.to_be_bytes());
        self.told(name, Value::Number(value))
    }

    pub(super) fn u64(mut self, name: &'static str, value: u64) -> Self {
        self.bytes.extend(value.to_be_bytes());
        self.told(name, Value::Wide(value))
    }

    pub(super) fn octets(mut self, name: &'static str, value: &[u8]) -> Self {
        self.bytes.extend(value);
        self.told(name, Value::Bytes(value.to_vec()))
    }

    /// Bytes that are no field: reserved ones, lengths of what follows, padding.
    pub(super) fn silent(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend(bytes);
        self
    }

    /// A field whose bytes are written by [`silent`](Self::silent).
    pub(super) fn told(mut self, name: &'static str, value: Value) -> Self {
        self.values.push((name, value));
        self
    }

    /// A part with fields of its own.
    pub(super) fn part(mut self, name: &'static str, part: Self) -> Self {
        self.bytes.extend(part.bytes);
        self.told(name, Value::Object(part.values))
    }

    /// Several parts in a row.
    pub(super) fn parts(mut self, name: &'static str, parts: Vec<Self>) -> Self {
        let mut values = Vec::new();
        for part in parts {
            self.bytes.extend(part.bytes);
            values.push(Value::Object(part.values));
        }
        self.told(name, Value::List(values))
    }

    /// The fields of `after`, behind these.
    pub(super) fn then(mut self, after: Self) -> Self {
        self.bytes.extend(after.bytes);
        self.values.extend(after.values);
        self
    }

    pub(super) fn length(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes and fields.
    #[must_use]
    pub fn finish(self) -> (Vec<u8>, Value) {
        (self.bytes, Value::Object(self.values))
    }

    /// Bytes alone.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Changes what was written; fields stay as they are.
    pub(super) fn patched(mut self, at: usize, bytes: &[u8]) -> Self {
        for (to, from) in self.bytes.iter_mut().skip(at).zip(bytes) {
            *to = *from;
        }
        self
    }
}
