//! Golden vectors of draft 0: every packet type as fields and bytes, and datagrams that must be dropped.
//!
//! The encoder here was written from section 3 of `SPEC.md` and shares nothing with the codec of the core, not even the
//! CRC32C: a fault of the core can't hide in the vectors that test it. `conformance/vectors/README.md` describes the
//! files; `metaroce-conformance vectors` writes them; a test compares them with what [`files`] makes.

mod ack;
mod base;
mod control;
mod data;
mod field;
mod layout;
mod probe;
mod unknown;

#[cfg(test)]
mod tests;

use std::fmt::Write;

use serde::Serialize;

pub use field::{Fields, Value};

/// One file of vectors.
#[derive(Clone, Debug, Serialize)]
pub struct File {
    /// Its name, without directory.
    #[serde(skip)]
    pub name: &'static str,
    /// The version nibble that all vectors are of, or are judged by.
    pub version: u8,
    /// What the file is about.
    pub about: &'static str,
    /// Its vectors.
    pub vectors: Vec<Vector>,
}

/// One UDP payload, and what a receiver makes of it.
#[derive(Clone, Debug, Serialize)]
pub struct Vector {
    /// Unique in all files.
    pub name: String,
    /// What is special about it.
    pub about: String,
    /// Requirements that it tests.
    pub requirements: Vec<&'static str>,
    /// The whole UDP payload, in hexadecimal digits.
    pub hex: String,
    /// By a receiver that sent *wants checksum*: `valid`, or the name in MR-WIRE-32 under which it is dropped.
    pub verdict: Verdict,
    /// By a receiver that did not, if that differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict_without_checksum: Option<Verdict>,
    /// All fields, if it is valid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packet: Option<Value>,
    /// Whether a sender of this packet writes just these bytes. False where reserved bits or padding are not zero, a
    /// field that this packet type does not use is not 0, or an unknown frame is there.
    pub canonical: bool,
    /// What a receiver sends in answer: the body of a CONTROL packet; no answer if null. Only in vectors whose
    /// receiver knows no connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<Answer>,
}

/// What a datagram draws from a receiver that knows no connection.
#[derive(Clone, Debug, Serialize)]
pub struct Answer {
    /// The answer after the base header, in hexadecimal digits, without padding; `None` if nothing may be sent.
    pub body: Option<String>,
}

/// What a receiver makes of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It is well-formed.
    Valid,
    /// Dropped as *malformed*.
    Malformed,
    /// Dropped as *version*.
    Version,
    /// Dropped as *checksum*.
    Checksum,
    /// Dropped as *unknown connection*.
    UnknownConnection,
}

impl Vector {
    /// A well-formed packet that a sender writes just so.
    fn valid(name: &str, about: &str, requirements: &[&'static str], packet: Fields) -> Self {
        let (bytes, value) = packet.finish();
        Self { packet: Some(value), canonical: true, ..Self::bare(name, about, requirements, &bytes) }
    }

    /// A well-formed packet that no sender writes so.
    fn odd(name: &str, about: &str, requirements: &[&'static str], packet: Fields) -> Self {
        Self { canonical: false, ..Self::valid(name, about, requirements, packet) }
    }

    /// A datagram that is dropped.
    fn dropped(
        name: &str,
        about: &str,
        requirements: &[&'static str],
        verdict: Verdict,
        bytes: &[u8],
    ) -> Self {
        Self { verdict, ..Self::bare(name, about, requirements, bytes) }
    }

    fn bare(name: &str, about: &str, requirements: &[&'static str], bytes: &[u8]) -> Self {
        Self {
            name: name.to_owned(),
            about: about.to_owned(),
            requirements: requirements.to_vec(),
            hex: hex(bytes),
            verdict: Verdict::Valid,
            verdict_without_checksum: None,
            packet: None,
            canonical: false,
            answer: None,
        }
    }
}

/// All files, in the order of section 3 of the specification.
#[must_use]
pub fn files() -> Vec<File> {
    vec![base::file(), data::file(), ack::file(), probe::file(), control::file(), unknown::file()]
}

/// A file as it is stored: JSON, indented, with a newline at its end.
///
/// # Errors
/// Those of the serialiser.
pub fn render(file: &File) -> serde_json::Result<String> {
    Ok(serde_json::to_string_pretty(file)? + "\n")
}

/// Bytes as lower-case hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
