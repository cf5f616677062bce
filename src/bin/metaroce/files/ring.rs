//! Which chunk may be read, written or taken next: the bookkeeping of a transfer, without any I/O.

/// Bytes of a chunk that a receiver of this program offers.
pub(crate) const CHUNK_BYTES: u32 = 1 << 20;

/// Slots of the ring that a receiver of this program offers, and that a sender of it fills.
pub(crate) const CHUNKS: u16 = 32;

/// The largest chunk that a sender accepts in a window, bytes: it must hold as many in memory.
pub(crate) const CHUNK_BYTES_MAX: u32 = 8 << 20;

/// How a file of some size falls into chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    size: u64,
    chunk_bytes: u32,
}

impl Layout {
    /// `chunk_bytes` must not be 0.
    pub(crate) const fn new(size: u64, chunk_bytes: u32) -> Self {
        Self { size, chunk_bytes }
    }

    /// How many chunks there are; none in an empty file.
    pub(crate) const fn chunks(self) -> u64 {
        self.size.div_ceil(self.chunk_bytes as u64)
    }

    /// Bytes of chunk `index`: all are full but the last.
    pub(crate) fn length(self, index: u64) -> u32 {
        let start = index.saturating_mul(u64::from(self.chunk_bytes));
        let left = self.size.saturating_sub(start);
        u32::try_from(left).map_or(self.chunk_bytes, |left| left.min(self.chunk_bytes))
    }
}

/// Progress of a sending side, in chunks since the start: `completed ≤ posted ≤ filled ≤ asked`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendRing {
    total: u64,
    local_slots: u64,
    remote_slots: u64,
    asked: u64,
    filled: u64,
    posted: u64,
    completed: u64,
    freed: u64,
}

impl SendRing {
    pub(crate) fn new(total: u64, local_slots: u16, remote_slots: u16) -> Self {
        Self {
            total,
            local_slots: local_slots.into(),
            remote_slots: remote_slots.into(),
            asked: 0,
            filled: 0,
            posted: 0,
            completed: 0,
            freed: 0,
        }
    }

    /// The next chunk to read from the file, if its local slot is free.
    pub(crate) fn next_fill(&mut self) -> Option<u64> {
        let chunk = self.asked;
        if chunk >= self.total || chunk - self.completed >= self.local_slots {
            return None;
        }
        self.asked += 1;
        Some(chunk)
    }

    /// A chunk was read; they come in order.
    pub(crate) fn on_filled(&mut self) {
        self.filled += 1;
        debug_assert!(self.filled <= self.asked);
    }

    /// The next chunk to write to the peer, if it is filled and its remote slot is free. Say
    /// [`on_posted`](Self::on_posted) once it is posted.
    pub(crate) fn next_post(&self) -> Option<u64> {
        (self.posted < self.filled && self.posted - self.freed < self.remote_slots).then_some(self.posted)
    }

    pub(crate) fn on_posted(&mut self) {
        self.posted += 1;
        debug_assert!(self.posted <= self.filled);
    }

    /// The WRITE of a chunk completed; they complete in order.
    pub(crate) fn on_completed(&mut self) {
        self.completed += 1;
        debug_assert!(self.completed <= self.posted);
    }

    /// The peer has taken `chunks` in all. `false` if that can't be.
    #[must_use]
    pub(crate) fn on_freed(&mut self, chunks: u64) -> bool {
        let possible = (self.freed..=self.posted).contains(&chunks);
        if possible {
            self.freed = chunks;
        }
        possible
    }

    /// Whether every chunk is written.
    pub(crate) const fn is_complete(&self) -> bool {
        self.completed == self.total
    }

    /// Chunks read so far: the number of the one that is read next.
    pub(crate) const fn filled(&self) -> u64 {
        self.filled
    }

    /// Chunks written so far.
    pub(crate) const fn completed(&self) -> u64 {
        self.completed
    }

    /// The local slot of a chunk.
    pub(crate) const fn local_slot(&self, chunk: u64) -> u64 {
        chunk % self.local_slots
    }

    /// The slot of a chunk in the peer's window.
    pub(crate) const fn remote_slot(&self, chunk: u64) -> u64 {
        chunk % self.remote_slots
    }
}

/// Progress of a receiving side, in chunks since the start: `taken ≤ arrived`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceiveRing {
    total: u64,
    slots: u64,
    arrived: u64,
    taken: u64,
}

impl ReceiveRing {
    pub(crate) fn new(total: u64, slots: u16) -> Self {
        Self { total, slots: slots.into(), arrived: 0, taken: 0 }
    }

    /// A chunk arrived with the low bits of its number; they arrive in order, which the stream guarantees of an honest
    /// peer. `None` if it is not the next one, or passes the end or the window.
    pub(crate) fn on_arrived(&mut self, immediate: u32) -> Option<u64> {
        let chunk = self.arrived;
        if chunk >= self.total || chunk - self.taken >= self.slots || immediate_of(chunk) != immediate {
            return None;
        }
        self.arrived += 1;
        Some(chunk)
    }

    /// A chunk is in the file and its slot free; how many are by now.
    pub(crate) fn on_taken(&mut self) -> u64 {
        self.taken += 1;
        debug_assert!(self.taken <= self.arrived);
        self.taken
    }

    /// Whether every chunk has arrived.
    pub(crate) const fn all_arrived(&self) -> bool {
        self.arrived == self.total
    }

    /// The slot of a chunk.
    pub(crate) const fn slot(&self, chunk: u64) -> u64 {
        chunk % self.slots
    }
}

/// The immediate that goes with chunk `chunk`.
#[expect(clippy::cast_possible_truncation, reason = "the low 32 bits, by definition")]
pub(crate) const fn immediate_of(chunk: u64) -> u32 {
    chunk as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chunks_of_a_layout_add_up_to_its_size() {
        for size in [0, 1, 7, 8, 9, 16, 1000] {
            let layout = Layout::new(size, 8);
            let sum: u64 = (0..layout.chunks()).map(|chunk| u64::from(layout.length(chunk))).sum();
            assert_eq!(sum, size);
            assert!((0..layout.chunks()).all(|chunk| layout.length(chunk) > 0));
        }
        assert_eq!(Layout::new(u64::MAX, u32::MAX).length(0), u32::MAX);
    }

    #[test]
    fn a_slot_is_never_in_use_twice() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..200 {
            let (total, local, remote) = (random.u64(0..200), random.u16(1..9), random.u16(1..9));
            let mut send = SendRing::new(total, local, remote);
            let mut receive = ReceiveRing::new(total, remote);
            let (mut filling, mut flying, mut placed) = (0, Vec::new(), Vec::new());
            let mut owner = vec![None; usize::from(local)];
            let mut steps = 0;
            while receive.taken < total || !send.is_complete() {
                steps += 1;
                assert!(steps < 100_000, "stalled");
                match random.u8(0..5) {
                    0 => {
                        if let Some(chunk) = send.next_fill() {
                            let slot = &mut owner[usize::try_from(send.local_slot(chunk)).unwrap()];
                            assert_eq!(slot.replace(chunk), None, "local slot in use");
                            filling += 1;
                        }
                    }
                    1 if filling > 0 => {
                        filling -= 1;
                        send.on_filled();
                    }
                    2 => {
                        if let Some(chunk) = send.next_post() {
                            assert!(
                                placed
                                    .iter()
                                    .all(|&other| send.remote_slot(other) != send.remote_slot(chunk))
                            );
                            send.on_posted();
                            flying.push(chunk);
                            placed.push(chunk);
                        }
                    }
                    3 if !flying.is_empty() => {
                        let chunk = flying.remove(0);
                        owner[usize::try_from(send.local_slot(chunk)).unwrap()] = None;
                        send.on_completed();
                        assert_eq!(receive.on_arrived(immediate_of(chunk)), Some(chunk));
                    }
                    4 if placed.len() > flying.len() => {
                        placed.remove(0);
                        assert!(send.on_freed(receive.on_taken()));
                    }
                    _ => {}
                }
            }
        }
    }

    #[test]
    fn chunks_out_of_turn_or_beyond_the_window_are_refused() {
        let mut ring = ReceiveRing::new(10, 2);
        assert_eq!(ring.on_arrived(1), None);
        assert_eq!(ring.on_arrived(0), Some(0));
        assert_eq!(ring.on_arrived(0), None);
        assert_eq!(ring.on_arrived(1), Some(1));
        assert_eq!(ring.on_arrived(2), None, "both slots are in use");
        assert_eq!(ring.on_taken(), 1);
        assert_eq!(ring.on_arrived(2), Some(2));
    }

    #[test]
    fn freeing_what_was_never_sent_is_refused() {
        let mut ring = SendRing::new(10, 2, 2);
        assert!(!ring.on_freed(1));
        ring.next_fill();
        ring.on_filled();
        ring.on_posted();
        assert!(ring.on_freed(1));
        assert!(!ring.on_freed(0));
    }
}
