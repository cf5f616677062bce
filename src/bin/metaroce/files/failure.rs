//! Why a transfer failed, as both sides say it.

use std::fmt;
use std::io;

use super::message::Failure;

/// A failed transfer: what kind, and a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TransferError {
    pub(crate) failure: Failure,
    pub(crate) text: String,
}

impl TransferError {
    pub(crate) fn new(failure: Failure, text: impl Into<String>) -> Self {
        Self { failure, text: text.into() }
    }

    /// An I/O error on `what`, sorted by its kind.
    pub(crate) fn io(what: impl fmt::Display, error: &io::Error) -> Self {
        let escaped = error.kind() == io::ErrorKind::PermissionDenied && error.raw_os_error().is_none();
        let (failure, reason) = match error.kind() {
            _ if escaped => (Failure::Outside, "leads outside of the served directory".to_owned()),
            io::ErrorKind::NotFound => (Failure::NotFound, "no such file or directory".to_owned()),
            io::ErrorKind::PermissionDenied => (Failure::Permission, "permission denied".to_owned()),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                (Failure::DiskFull, "no space left on the disk".to_owned())
            }
            io::ErrorKind::IsADirectory => (Failure::NoFile, "is a directory".to_owned()),
            io::ErrorKind::NotADirectory => {
                (Failure::NotFound, "a part of the path is no directory".to_owned())
            }
            io::ErrorKind::ReadOnlyFilesystem => (Failure::ReadOnly, "read-only file system".to_owned()),
            _ => (Failure::Other, error.to_string()),
        };
        Self::new(failure, format!("{what}: {reason}"))
    }

    /// What the peer did is not the file protocol.
    pub(crate) fn protocol(text: impl Into<String>) -> Self {
        Self::new(Failure::Protocol, text)
    }
}

impl fmt::Display for TransferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for TransferError {}
