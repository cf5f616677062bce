//! A datagram put together once: its header, its payload out of the registered memory and its padding, with the checksum
//! computed on the way, while the bytes are in the first-level cache.

use metaroce_core::crc::{self, Checksum};
use metaroce_core::transmit::Transmit;
use metaroce_core::wire::Base;
use metaroce_mio::RegionTable;

use crate::memory::{FilledFrame, FreeFrame};
use crate::socket::QueueSocket;

/// Where a datagram is put together: a row of buffers.
pub(crate) trait Output {
    /// What is free of the buffer that is being filled, or of the next one when that is full; empty when there is none.
    fn space(&mut self) -> &mut [u8];

    /// The first `length` bytes of the space are written.
    fn advance(&mut self, length: usize);

    /// The datagram's first bytes, which lie in the first buffer.
    fn head(&mut self, length: usize) -> &mut [u8];
}

/// Why a datagram was not put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AssembleError {
    /// A region that the payload refers to is gone.
    Stale,
    /// The output is full.
    Full,
}

/// Writes the datagram of `transmit`, with its checksum if it wants one.
pub(crate) fn assemble(
    transmit: &Transmit,
    regions: &RegionTable,
    checksum: &dyn Checksum,
    out: &mut impl Output,
) -> Result<(), AssembleError> {
    let header = transmit.header();
    let wanted = transmit.wants_checksum();
    put(header, out)?;
    let mut state = crc::SEED;
    if wanted {
        let head = out.head(header.len());
        // The checksum is over a field of zeros, and one may be in it from an earlier try.
        Base::write_checksum(head, 0);
        state = checksum.update(state, head);
    }
    for part in transmit.payload() {
        let raw = regions.raw(part).ok_or(AssembleError::Stale)?;
        let mut done = 0;
        while done < raw.len() {
            let space = out.space();
            let step = space.len().min(raw.len() - done).min(STEP);
            let Some(to) = space.get_mut(..step).filter(|to| !to.is_empty()) else {
                return Err(AssembleError::Full);
            };
            raw.copy_out(done, to);
            if wanted {
                state = checksum.update(state, to);
            }
            out.advance(step);
            done += step;
        }
    }
    let mut padding = transmit.padding();
    while padding > 0 {
        let step = padding.min(ZEROS.len());
        put(ZEROS.get(..step).unwrap_or(&[]), out)?;
        padding -= step;
    }
    if wanted {
        let state = transmit.checksum_padding(checksum, state);
        Base::write_checksum(out.head(header.len()), crc::finish(state));
    }
    Ok(())
}

fn put(mut bytes: &[u8], out: &mut impl Output) -> Result<(), AssembleError> {
    while !bytes.is_empty() {
        let space = out.space();
        let step = space.len().min(bytes.len());
        let (Some(to), Some((now, later))) = (space.get_mut(..step), bytes.split_at_checked(step)) else {
            return Err(AssembleError::Full);
        };
        if step == 0 {
            return Err(AssembleError::Full);
        }
        to.copy_from_slice(now);
        out.advance(step);
        bytes = later;
    }
    Ok(())
}

/// One buffer.
#[derive(Debug)]
pub(crate) struct Whole<'a> {
    buffer: &'a mut [u8],
    written: usize,
}

impl<'a> Whole<'a> {
    /// A buffer that is as long as the datagram.
    pub(crate) fn new(buffer: &'a mut [u8]) -> Self {
        Self { buffer, written: 0 }
    }
}

impl Output for Whole<'_> {
    fn space(&mut self) -> &mut [u8] {
        self.buffer.get_mut(self.written..).unwrap_or(&mut [])
    }

    fn advance(&mut self, length: usize) {
        self.written += length;
    }

    fn head(&mut self, length: usize) -> &mut [u8] {
        self.buffer.get_mut(..length).unwrap_or(&mut [])
    }
}

/// Frames of a socket, behind room for the headers in the first one.
#[derive(Debug)]
pub(crate) struct Frames<'a> {
    socket: &'a mut QueueSocket,
    headers: usize,
    /// The frames, the first ones full; as many as a packet can take.
    taken: [Option<FreeFrame>; FRAMES_MAX],
    /// The frame that is being filled, and the bytes written to it.
    current: usize,
    written: usize,
}

impl<'a> Frames<'a> {
    /// Frames for `headers` bytes of headers and a datagram of `bytes`; `None` if that many are not free, or it takes
    /// more than [`FRAMES_MAX`].
    pub(crate) fn take(socket: &'a mut QueueSocket, headers: usize, bytes: usize) -> Option<Self> {
        let wanted = (headers + bytes).div_ceil(socket.chunk_bytes().max(1));
        let mut taken = [const { None }; FRAMES_MAX];
        if socket.free(wanted) < wanted {
            return None;
        }
        for frame in taken.get_mut(..wanted)? {
            *frame = socket.take_free();
        }
        Some(Self { socket, headers, taken, current: 0, written: headers })
    }

    /// Has `write` fill in the headers, then hands the frames to the socket.
    pub(crate) fn send(mut self, write: impl FnOnce(&mut QueueSocket, &mut [Option<FilledFrame>])) {
        let chunk_bytes = self.socket.chunk_bytes();
        let mut filled = [const { None }; FRAMES_MAX];
        let last = self.current;
        for (index, (frame, place)) in self.taken.iter_mut().zip(&mut filled).enumerate() {
            let Some(frame) = frame.take() else { continue };
            if index > last {
                self.socket.put_back(frame);
                continue;
            }
            let length = if index == last { self.written } else { chunk_bytes };
            *place = Some(frame.finish(u32::try_from(length).unwrap_or(u32::MAX), index < last));
        }
        write(self.socket, &mut filled);
        for frame in filled.into_iter().flatten() {
            self.socket.send(frame);
        }
    }

    /// Gives the frames back.
    pub(crate) fn abandon(mut self) {
        for frame in self.taken.iter_mut().filter_map(Option::take) {
            self.socket.put_back(frame);
        }
    }
}

impl Output for Frames<'_> {
    fn space(&mut self) -> &mut [u8] {
        if self.written >= self.socket.chunk_bytes() && self.current + 1 < FRAMES_MAX {
            self.current += 1;
            self.written = 0;
        }
        let Some(Some(frame)) = self.taken.get_mut(self.current) else { return &mut [] };
        self.socket.buffer(frame).get_mut(self.written..).unwrap_or(&mut [])
    }

    fn advance(&mut self, length: usize) {
        self.written += length;
    }

    fn head(&mut self, length: usize) -> &mut [u8] {
        let Some(Some(frame)) = self.taken.first_mut() else { return &mut [] };
        self.socket.buffer(frame).get_mut(self.headers..self.headers + length).unwrap_or(&mut [])
    }
}

/// Chunks that a packet takes at most: 9000 bytes in chunks of 2048.
pub(crate) const FRAMES_MAX: usize = 5;

/// Bytes copied before their checksum is computed: they are still in the first-level cache then.
const STEP: usize = 4096;

static ZEROS: [u8; 1024] = [0; 1024];
