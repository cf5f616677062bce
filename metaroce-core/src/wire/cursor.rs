//! Cursors over bytes: no header computes an offset, each reads or writes its fields in order.

use super::{BufferTooSmall, WireError};

/// Reads big-endian fields from the front of a slice.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    #[inline]
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// What has not been read yet.
    #[inline]
    pub(super) const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    #[inline]
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(WireError::Truncated)?;
        self.rest = rest;
        Ok(*head)
    }

    #[inline]
    pub(super) fn bytes(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        let (head, rest) = self.rest.split_at_checked(count).ok_or(WireError::Truncated)?;
        self.rest = rest;
        Ok(head)
    }

    /// Passes over `N` reserved bytes, whatever they hold.
    #[inline]
    pub(super) fn skip<const N: usize>(&mut self) -> Result<(), WireError> {
        self.array::<N>().map(|_| ())
    }

    #[inline]
    pub(super) fn u8(&mut self) -> Result<u8, WireError> {
        self.array().map(u8::from_be_bytes)
    }

    #[inline]
    pub(super) fn u16(&mut self) -> Result<u16, WireError> {
        self.array().map(u16::from_be_bytes)
    }

    #[inline]
    pub(super) fn u32(&mut self) -> Result<u32, WireError> {
        self.array().map(u32::from_be_bytes)
    }

    #[inline]
    pub(super) fn u64(&mut self) -> Result<u64, WireError> {
        self.array().map(u64::from_be_bytes)
    }
}

/// Writes big-endian fields to the front of a slice.
pub(super) struct Writer<'a> {
    rest: &'a mut [u8],
    written: usize,
}

impl<'a> Writer<'a> {
    #[inline]
    pub(super) const fn new(out: &'a mut [u8]) -> Self {
        Self { rest: out, written: 0 }
    }

    /// Bytes written so far.
    #[inline]
    pub(super) const fn written(&self) -> usize {
        self.written
    }

    #[inline]
    pub(super) fn array<const N: usize>(&mut self, bytes: [u8; N]) -> Result<(), BufferTooSmall> {
        let (head, rest) =
            core::mem::take(&mut self.rest).split_first_chunk_mut::<N>().ok_or(BufferTooSmall)?;
        *head = bytes;
        self.rest = rest;
        self.written = self.written.saturating_add(N);
        Ok(())
    }

    #[inline]
    pub(super) fn bytes(&mut self, bytes: &[u8]) -> Result<(), BufferTooSmall> {
        let (head, rest) =
            core::mem::take(&mut self.rest).split_at_mut_checked(bytes.len()).ok_or(BufferTooSmall)?;
        for (to, from) in head.iter_mut().zip(bytes) {
            *to = *from;
        }
        self.rest = rest;
        self.written = self.written.saturating_add(bytes.len());
        Ok(())
    }

    /// Writes `N` reserved bytes as zero.
    #[inline]
    //= MR-WIRE-5
    pub(super) fn reserved<const N: usize>(&mut self) -> Result<(), BufferTooSmall> {
        self.array([0; N])
    }

    #[inline]
    pub(super) fn u8(&mut self, value: u8) -> Result<(), BufferTooSmall> {
        self.array(value.to_be_bytes())
    }

    #[inline]
    pub(super) fn u16(&mut self, value: u16) -> Result<(), BufferTooSmall> {
        self.array(value.to_be_bytes())
    }

    #[inline]
    pub(super) fn u32(&mut self, value: u32) -> Result<(), BufferTooSmall> {
        self.array(value.to_be_bytes())
    }

    #[inline]
    pub(super) fn u64(&mut self, value: u64) -> Result<(), BufferTooSmall> {
        self.array(value.to_be_bytes())
    }
}
