//! Descriptors of sends under way: what the kernel reads, pinned until it says that it is done.

use std::io;
use std::net::SocketAddr;

use io_uring::{opcode, squeue};
use metaroce_core::ids::RegionId;
use metaroce_core::transmit::Transmit;
use metaroce_mio::memory::{APRON_BYTES, Mapping, RawPart};
use metaroce_mio::regions::RegionTable;
use metaroce_mio::sys::Target;
use metaroce_mio::sys::linux::Control;
use socket2::SockAddr;

use super::registered::{PLACE_BYTES, Pieces};
use super::ring::{File, Ring, Tag};

/// A fixed number of descriptors, which never move.
pub(crate) struct Slots {
    slots: Box<[Slot]>,
    free: Vec<u32>,
}

/// One send: a datagram, or a run of them for one segmented send. Headers are copied into it, payload is referred to.
pub(crate) struct Slot {
    message: libc::msghdr,
    name: SockAddr,
    control: Control,
    headers: Vec<u8>,
    parts: Vec<libc::iovec>,
    segments: Vec<Segment>,
    regions: Vec<RegionId>,
    target: Option<Target>,
    pub(crate) job: Job,
}

/// What is known about the send in a slot.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Job {
    /// Where it stands.
    pub(crate) stage: Stage,
    /// Place of its socket.
    pub(crate) socket: usize,
    /// The socket.
    pub(crate) file: Option<File>,
    /// Plane.
    pub(crate) plane: u8,
    /// How it goes out.
    pub(crate) means: Means,
    /// The segment that is being sent alone, since the kernel refused all of them together.
    pub(crate) single: Option<usize>,
    /// Whether it was sent again for an error of an earlier datagram.
    pub(crate) repeated: bool,
    /// Notices still to come that say that the kernel has let go of the memory.
    pub(crate) notices: u8,
}

/// How a send goes out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Means {
    /// Copied by the kernel.
    #[default]
    Copied,
    /// From where the bytes are.
    Direct,
    /// The same, from a registered buffer.
    Registered(u16),
}

/// Where a slot stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Nobody's.
    #[default]
    Free,
    /// With a send that is not over.
    Taken,
    /// Its send is over; it is free once the kernel has let go of the memory.
    Finished,
}

/// A datagram of a slot.
#[derive(Clone, Copy)]
struct Segment {
    first_part: usize,
    parts: usize,
    bytes: usize,
}

// SAFETY: the pointers in a slot are to its own fields and to regions; both may be reached from any thread, by one at a
// time.
unsafe impl Send for Slots {}

impl Slots {
    pub(crate) fn new(count: u16) -> Self {
        let count = count.clamp(1, SLOTS_MAX);
        let slots = std::iter::repeat_with(Slot::new).take(count.into()).collect();
        Self { slots, free: (0..u32::from(count)).rev().collect() }
    }

    /// A slot that is free.
    pub(crate) fn take(&mut self) -> Option<u32> {
        let index = self.free.pop()?;
        if let Some(slot) = self.get_mut(index) {
            slot.job = Job { stage: Stage::Taken, ..Job::default() };
        }
        Some(index)
    }

    /// Frees a slot of which the kernel knows nothing any more.
    pub(crate) fn release(&mut self, index: u32) {
        let Some(slot) = self.get_mut(index) else { return };
        if slot.job.stage != Stage::Free {
            slot.job.stage = Stage::Free;
            slot.clear();
            self.free.push(index);
        }
    }

    /// Has the ring send what [`Job::single`] says of a slot.
    pub(crate) fn submit(&mut self, index: u32, ring: &mut Ring) -> io::Result<()> {
        let slot = self.get_mut(index).ok_or(io::ErrorKind::NotFound)?;
        let entry = slot.request().ok_or(io::ErrorKind::NotFound)?;
        // SAFETY: the request refers to the slot, which is taken, boxed, and left alone until the last completion, and
        // to regions, which `release_region` keeps alive until then. Whoever drops the slots ends all requests first.
        unsafe { ring.push(entry, Tag::Send(index)) }
    }

    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut Slot> {
        self.slots.get_mut(index as usize)
    }

    /// How many are taken.
    pub(crate) fn taken(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The slots that refer to a region.
    pub(crate) fn of_region(&self, region: RegionId) -> impl Iterator<Item = u32> {
        let slots = self.slots.iter().zip(0..);
        slots
            .filter(move |(slot, _)| slot.job.stage != Stage::Free && slot.regions.contains(&region))
            .map(|(_, index)| index)
    }
}

impl Slot {
    fn new() -> Self {
        Self {
            // SAFETY: a `msghdr` of zeros is a valid value: no name, no parts, no control messages.
            message: unsafe { std::mem::zeroed() },
            name: SockAddr::from(SocketAddr::from(([0, 0, 0, 0], 0))),
            control: Control::ZERO,
            headers: Vec::with_capacity(HEADER_BYTES),
            parts: Vec::with_capacity(PARTS),
            segments: Vec::with_capacity(SEGMENTS),
            regions: Vec::with_capacity(4),
            target: None,
            job: Job::default(),
        }
    }

    fn clear(&mut self) {
        self.headers.clear();
        self.parts.clear();
        self.segments.clear();
        self.regions.clear();
    }

    /// Takes up a run of datagrams; `false` if a region is gone.
    pub(crate) fn fill(&mut self, run: &[Transmit], regions: &RegionTable) -> bool {
        self.clear();
        // Room first: the parts point into it.
        self.headers.reserve(run.iter().map(|transmit| transmit.header().len()).sum());
        for transmit in run {
            let first_part = self.parts.len();
            self.push_header(transmit.header());
            for part in transmit.payload() {
                let Some(raw) = regions.raw(part) else { return false };
                self.push(raw);
                if !self.regions.contains(&part.region) {
                    self.regions.push(part.region);
                }
            }
            self.push(RawPart::zeros(transmit.padding()));
            let parts = self.parts.len() - first_part;
            self.segments.push(Segment { first_part, parts, bytes: transmit.datagram_length() });
        }
        true
    }

    /// Takes up one whole datagram, copied.
    pub(crate) fn fill_bytes(&mut self, bytes: &[u8]) {
        self.clear();
        self.headers.reserve(bytes.len());
        self.push_header(bytes);
        self.segments.push(Segment { first_part: 0, parts: self.parts.len(), bytes: bytes.len() });
    }

    /// Sets where it goes: all of it, as `target` says.
    pub(crate) fn aim(&mut self, to: SocketAddr, target: Target) {
        self.name = SockAddr::from(to);
        self.target = Some(target);
    }

    /// Datagrams.
    pub(crate) fn count(&self) -> usize {
        self.segments.len()
    }

    /// Bytes of a datagram.
    pub(crate) fn segment_bytes(&self, index: usize) -> usize {
        self.segments.get(index).map_or(0, |segment| segment.bytes)
    }

    /// Bytes of all datagrams.
    pub(crate) fn bytes(&self) -> usize {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    /// Whether the kernel can send it from where its bytes are: a packet, segmented or not, has room for so many pieces,
    /// none of which crosses a page.
    pub(crate) fn can_be_direct(&self) -> bool {
        self.pieces(PAGE_BYTES) <= PIECES_MAX
    }

    /// The pieces that it consists of, if memory is in pages of that size.
    fn pieces(&self, page_bytes: usize) -> usize {
        let pages = |part: &libc::iovec| {
            let start = part.iov_base.addr();
            (start + part.iov_len).div_ceil(page_bytes) - start / page_bytes
        };
        self.parts.iter().map(pages).sum()
    }

    /// The region that all payload is of, if there is one.
    pub(crate) fn only_region(&self) -> Option<RegionId> {
        match self.regions.as_slice() {
            [region] => Some(*region),
            _ => None,
        }
    }

    /// Copies whatever does not lie in the region of the mapping to its apron, to this slot's place at `room`, and refers to
    /// it there; `false`, and nothing is done, if it does not fit or has too many pieces. The region must be one of this
    /// slot's, so that the mapping lives as long as the request.
    pub(crate) fn move_headers(&mut self, mapping: &Mapping, room: usize, pieces: Pieces) -> bool {
        let region = mapping.base().addr()..mapping.apron().addr();
        let moves = |part: &libc::iovec| !region.contains(&part.iov_base.addr());
        let bytes: usize = self.parts.iter().filter(|part| moves(part)).map(|part| part.iov_len).sum();
        let page_bytes = match pieces {
            Pieces::Huge => HUGE_PAGE_BYTES,
            Pieces::Pages => PAGE_BYTES,
        };
        if bytes > PLACE_BYTES || room + PLACE_BYTES > APRON_BYTES || self.pieces(page_bytes) > PIECES_MAX {
            return false;
        }
        let mut to = mapping.apron().wrapping_add(room);
        for part in self.parts.iter_mut().filter(|part| moves(part)) {
            // SAFETY: the part is readable, being one of this slot's headers or static zeros; `to` and what follows, as far
            // as all parts together reach, is in this slot's place of the apron, which is mapped and nobody else's.
            unsafe { std::ptr::copy_nonoverlapping(part.iov_base.cast::<u8>(), to, part.iov_len) };
            part.iov_base = to.cast();
            to = to.wrapping_add(part.iov_len);
        }
        true
    }

    /// Where it goes.
    pub(crate) fn destination(&self) -> Option<SocketAddr> {
        self.target.map(|target| target.to)
    }

    /// The request that sends what [`Job::single`] says. It refers to this slot and to the regions in it.
    fn request(&mut self) -> Option<squeue::Entry> {
        let (mut target, file) = (self.target?, self.job.file?);
        let parts = match self.job.single {
            None => self.parts.as_mut_slice(),
            Some(index) => {
                target.segment_bytes = None;
                let segment = *self.segments.get(index)?;
                self.parts.get_mut(segment.first_part..segment.first_part + segment.parts)?
            }
        };
        let (control, used) = Control::for_send(&target);
        self.control = control;
        self.message.msg_iov = parts.as_mut_ptr();
        self.message.msg_iovlen = parts.len() as _;
        self.message.msg_name = self.name.as_ptr().cast_mut().cast();
        self.message.msg_namelen = self.name.len();
        self.message.msg_control = if used > 0 { self.control.as_mut_ptr() } else { std::ptr::null_mut() };
        self.message.msg_controllen = used as _;
        let message = &raw const self.message;
        let buffer = match self.job.means {
            Means::Copied => {
                return Some(file.entry(
                    |fixed| opcode::SendMsg::new(fixed, message).build(),
                    |raw| opcode::SendMsg::new(raw, message).build(),
                ));
            }
            Means::Direct => None,
            Means::Registered(buffer) => Some(buffer),
        };
        Some(file.entry(
            |fixed| opcode::SendMsgZc::new(fixed, message).ioprio(REPORT_USAGE).buf_index(buffer).build(),
            |raw| opcode::SendMsgZc::new(raw, message).ioprio(REPORT_USAGE).buf_index(buffer).build(),
        ))
    }

    /// Appends bytes for which `headers` has room.
    fn push_header(&mut self, bytes: &[u8]) {
        let start = self.headers.len();
        self.headers.extend_from_slice(bytes);
        if let Some(copied) = self.headers.get(start..).filter(|copied| !copied.is_empty()) {
            let part = libc::iovec { iov_base: copied.as_ptr().cast_mut().cast(), iov_len: copied.len() };
            self.parts.push(part);
        }
    }

    fn push(&mut self, part: RawPart<'_>) {
        if !part.is_empty() {
            self.parts.push(libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() });
        }
    }
}

/// Have the notice say whether the device copied after all (`IORING_SEND_ZC_REPORT_USAGE`, Linux 6.2).
const REPORT_USAGE: u16 = 1 << 3;

/// Whether a notice says so.
pub(crate) fn was_copied(result: i32) -> bool {
    result < 0
}

const SLOTS_MAX: u16 = 4096;

/// Room in a slot before it grows: a run of data packets takes no more.
const HEADER_BYTES: usize = 1024;
const PARTS: usize = 32;
const SEGMENTS: usize = 16;

/// Pieces of a packet that the kernel takes as they are (`MAX_SKB_FRAGS`, which may be configured higher).
const PIECES_MAX: usize = 17;

/// The smallest page that there is.
const PAGE_BYTES: usize = 4096;

/// A huge page on most processors.
const HUGE_PAGE_BYTES: usize = 2 << 20;
