//! Files on disk: reading within one directory, and writing under a temporary name until verified.
//!
//! All names given by a peer go through `cap-std`, which resolves them beneath the directory also against `..` and
//! symbolic links.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write as _;
use std::path::{Component, Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions};

use super::failure::TransferError;
use super::message::{Failure, Hash};

/// A directory that is offered to peers.
#[derive(Debug)]
pub(crate) struct Store {
    dir: Dir,
    read_only: bool,
}

/// A file being received. Dropped before [`finish`](Incoming::finish), it leaves nothing behind.
#[derive(Debug)]
pub(crate) struct Incoming {
    dir: Dir,
    temporary: String,
    name: OsString,
    shown: String,
    file: File,
    hasher: blake3::Hasher,
    size: u64,
    written: u64,
    renamed: bool,
}

impl Store {
    /// Opens the directory at `path`.
    ///
    /// # Errors
    /// When there is no such directory, or no right to it.
    pub(crate) fn open(path: &Path, read_only: bool) -> Result<Self, TransferError> {
        let dir = Dir::open_ambient_dir(path, ambient_authority())
            .map_err(|error| TransferError::io(path.display(), &error))?;
        Ok(Self { dir, read_only })
    }

    /// Opens a file for reading; also its size.
    ///
    /// # Errors
    /// When it is missing, no regular file, not readable, or outside of the directory.
    pub(crate) fn read(&self, name: &str) -> Result<(File, u64), TransferError> {
        let path = relative(name)?;
        let metadata = self.dir.metadata(&path).map_err(|error| TransferError::io(quoted(name), &error))?;
        // Looked at before opening: opening a pipe would block.
        if !metadata.is_file() {
            return Err(TransferError::new(Failure::NoFile, format!("{}: is no regular file", quoted(name))));
        }
        let file = self.dir.open(&path).map_err(|error| TransferError::io(quoted(name), &error))?.into_std();
        let size = file.metadata().map_err(|error| TransferError::io(quoted(name), &error))?.len();
        Ok((file, size))
    }

    /// Starts a file of `size` bytes.
    ///
    /// # Errors
    /// When the directory is read-only or not writable, or the name leads outside of it or names no file.
    pub(crate) fn create(&self, name: &str, size: u64) -> Result<Incoming, TransferError> {
        if self.read_only {
            return Err(TransferError::new(
                Failure::ReadOnly,
                "the server does not take files (--read-only)",
            ));
        }
        let path = relative(name)?;
        let file_name = path.file_name().ok_or_else(|| no_file(name))?.to_owned();
        let parent = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => self.dir.open_dir(parent),
            _ => self.dir.try_clone(),
        };
        let parent = parent.map_err(|error| TransferError::io(quoted(name), &error))?;
        Incoming::create(parent, file_name, quoted(name), size)
    }
}

impl Incoming {
    /// Starts a file of `size` bytes at a path that the user of this process gave.
    ///
    /// # Errors
    /// When its directory is missing or not writable, or it names no file.
    pub(crate) fn at(path: &Path, size: u64) -> Result<Self, TransferError> {
        let shown = path.display().to_string();
        let name = path.file_name().ok_or_else(|| no_file(&shown))?.to_owned();
        let parent = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let dir = Dir::open_ambient_dir(parent, ambient_authority())
            .map_err(|error| TransferError::io(parent.display(), &error))?;
        Self::create(dir, name, shown, size)
    }

    fn create(dir: Dir, name: OsString, shown: String, size: u64) -> Result<Self, TransferError> {
        if dir.symlink_metadata(&name).is_ok_and(|metadata| metadata.is_dir()) {
            return Err(TransferError::new(Failure::NoFile, format!("{shown}: is a directory")));
        }
        let temporary = format!(".metaroce-{:016x}.part", fastrand::u64(..));
        let file = dir
            .open_with(&temporary, OpenOptions::new().write(true).create_new(true))
            .map_err(|error| TransferError::io(&shown, &error))?
            .into_std();
        let hasher = blake3::Hasher::new();
        Ok(Self { dir, temporary, name, shown, file, hasher, size, written: 0, renamed: false })
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// When the disk is full or fails, or the bytes pass the announced size.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), TransferError> {
        let count = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.written = self.written.saturating_add(count);
        if self.written > self.size {
            return Err(TransferError::protocol("the peer sent more than the size that it announced"));
        }
        self.file.write_all(bytes).map_err(|error| TransferError::io(&self.shown, &error))?;
        self.hasher.update(bytes);
        Ok(())
    }

    /// Verifies size and hash, and gives the file its name, in place of any older one.
    ///
    /// # Errors
    /// When it is not what the sender says it sent, or the disk fails.
    pub(crate) fn finish(mut self, expected: &Hash) -> Result<Hash, TransferError> {
        if self.written != self.size {
            let text = format!("{}: got {} of {} bytes", self.shown, self.written, self.size);
            return Err(TransferError::new(Failure::Damaged, text));
        }
        let hash = *self.hasher.finalize().as_bytes();
        if hash != *expected {
            let text = format!("{}: checksum mismatch, nothing was stored", self.shown);
            return Err(TransferError::new(Failure::Damaged, text));
        }
        self.file.flush().map_err(|error| TransferError::io(&self.shown, &error))?;
        self.dir
            .rename(&self.temporary, &self.dir, &self.name)
            .map_err(|error| TransferError::io(&self.shown, &error))?;
        self.renamed = true;
        Ok(hash)
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if !self.renamed {
            // Nothing more can be done about it here.
            let _ = self.dir.remove_file(&self.temporary);
        }
    }
}

/// The name under which a file at `path` is stored by default: its last part.
///
/// # Errors
/// When it has none, or one that is not Unicode.
pub(crate) fn default_name(path: &Path) -> Result<String, TransferError> {
    let shown = path.display().to_string();
    let name = path.file_name().ok_or_else(|| no_file(&shown))?;
    let name = name.to_str().ok_or_else(|| {
        TransferError::new(
            Failure::Other,
            format!("{shown}: the name is not Unicode; give another with --name"),
        )
    })?;
    Ok(name.to_owned())
}

fn relative(name: &str) -> Result<PathBuf, TransferError> {
    if name.is_empty() || name.contains('\0') {
        return Err(no_file(name));
    }
    let path = Path::new(name);
    let outside = path.components().any(|part| matches!(part, Component::Prefix(_) | Component::RootDir));
    if outside {
        return Err(TransferError::new(
            Failure::Outside,
            format!("{}: leads outside of the served directory", quoted(name)),
        ));
    }
    Ok(path.to_owned())
}

fn no_file(name: &str) -> TransferError {
    TransferError::new(Failure::NoFile, format!("{}: names no file", quoted(name)))
}

fn quoted(name: &str) -> String {
    format!("{name:?}")
}

#[cfg(test)]
#[path = "store/tests.rs"]
mod tests;
