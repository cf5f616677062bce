//! Posted receives: consumed by SENDs and by WRITEs with immediate, in the order of their index.

use crate::connection::{Connection, acknowledge_now};
use crate::event::{Completion, CompletionKind, Event, Status};
use crate::ids::{Msn, ProtectionDomain, ReceiveIndex, RegionKey, Serial, StreamId};
use crate::list::{Linked, Links};
use crate::memory::{Memory, MemoryError};
use crate::region::{self, Access};
use crate::request::{PostError, SEGMENTS_MAX, Segment};
use crate::stream::{Stream, find_or_open, gather, make_urgent};
use crate::table::Idx;
use crate::view::{Kind, View, key};

/// One posted receive.
#[derive(Clone, Copy, Debug)]
pub struct Receive {
    pub(crate) index: ReceiveIndex,
    pub(crate) id: u64,
    pub(crate) segments: [Segment; SEGMENTS_MAX],
    pub(crate) segment_count: u8,
    /// Bytes of all segments.
    pub(crate) capacity: u32,
    /// A tagged receive: what it matches.
    pub(crate) entry: Option<TagEntry>,
    /// A message has placed bytes in it.
    pub(crate) used: bool,
    /// The message that consumes it.
    pub(crate) claimed: Option<Msn>,
    /// The message that would consume it is longer.
    pub(crate) too_short: bool,
    pub(crate) in_stream: Links<Self>,
}

/// What a tagged receive matches: messages with `(bits ^ self.bits) & mask == 0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagEntry {
    /// Bits to compare with.
    pub bits: u64,
    /// Bits that count.
    pub mask: u64,
}

impl TagEntry {
    pub(crate) const fn matches(self, bits: u64) -> bool {
        //= MR-OP-23
        (bits ^ self.bits) & self.mask == 0
    }
}

/// The list of a stream's posted receives.
#[derive(Debug)]
pub struct Posted;

impl Linked<Posted> for Receive {
    fn links(&self) -> &Links<Self> {
        &self.in_stream
    }
    fn links_mut(&mut self) -> &mut Links<Self> {
        &mut self.in_stream
    }
}

impl Receive {
    /// A slot of a pool, not in use.
    pub const EMPTY: Self = Self {
        index: ReceiveIndex::new(0),
        id: 0,
        segments: [Segment { region: crate::ids::RegionId { slot: 0, generation: 0 }, offset: 0, length: 0 };
            SEGMENTS_MAX],
        segment_count: 0,
        capacity: 0,
        entry: None,
        used: false,
        claimed: None,
        too_short: false,
        in_stream: Links::UNLINKED,
    };

    pub(crate) fn segments(&self) -> &[Segment] {
        self.segments.get(..usize::from(self.segment_count)).unwrap_or_default()
    }
}

/// Checks segments for posting, and sums up their bytes.
pub(crate) fn check_segments(
    view: &View<'_>,
    domain: ProtectionDomain,
    segments: &[Segment],
    access: Access,
) -> Result<([Segment; SEGMENTS_MAX], u8, u32), PostError> {
    let mut copy = [Segment::default(); SEGMENTS_MAX];
    let mut total: u32 = 0;
    let mut count = 0;
    if segments.len() > SEGMENTS_MAX {
        return Err(PostError::Length);
    }
    for (slot, segment) in copy.iter_mut().zip(segments) {
        //= MR-MEM-10
        if !region::check_local(&view.regions, domain, segment, access) {
            return Err(PostError::Segment);
        }
        total = total.checked_add(segment.length).ok_or(PostError::Length)?;
        *slot = *segment;
        count += 1;
    }
    Ok((copy, count, total))
}

/// Posts a receive; the peer learns of it with the next acknowledgement.
pub(crate) fn post_recv(
    view: &mut View<'_>,
    connection: Idx<Connection>,
    id: StreamId,
    work_id: u64,
    segments: &[Segment],
    entry: Option<TagEntry>,
) -> Result<(), PostError> {
    if !view.connections.at(connection).takes_new_work() {
        return Err(PostError::NoConnection);
    }
    let domain = view.connections.at(connection).domain;
    let (copy, segment_count, capacity) = check_segments(view, domain, segments, Access::LOCAL_WRITE)?;
    if !view.has_completion_room() || view.receives.available() == 0 {
        return Err(PostError::Full);
    }
    let stream = find_or_open(view, connection, id).ok_or(PostError::NoStream)?;
    let owner = view.streams.at_mut(stream);
    if !owner.is_open() || owner.responder.queue.is_some() {
        return Err(PostError::NoStream);
    }
    let responder = &mut owner.responder;
    let index = responder.posted;
    let receive =
        Receive { index, id: work_id, segments: copy, segment_count, capacity, entry, ..Receive::EMPTY };
    let Some(slot) = view.receives.allocate(receive) else { return Err(PostError::Full) };
    if entry.is_some() {
        responder.tagged.push_back(&mut view.receives, slot);
        *view.reserved = view.reserved.saturating_add(1);
        region::count_references(&mut view.regions, segments, true);
        return Ok(());
    }
    if !view.index.insert(key(Kind::Receive, stream.raw(), index.raw()), slot.raw()) {
        view.receives.free(slot);
        return Err(PostError::Full);
    }
    let starved = responder.unclaimed == 0 || responder.wanted == index;
    responder.unclaimed = responder.unclaimed.saturating_add(1);
    responder.receives.push_back(&mut view.receives, slot);
    responder.posted = index.plus(1);
    *view.reserved = view.reserved.saturating_add(1);
    region::count_references(&mut view.regions, segments, true);
    if starved {
        //= MR-STR-11
        // The sender may have used all that it was told of: tell it at once.
        make_urgent(view, stream);
        acknowledge_now(view, connection);
    }
    Ok(())
}

/// The receive of index `index`, if it is posted and not consumed.
pub(crate) fn find(view: &View<'_>, stream: Idx<Stream>, index: ReceiveIndex) -> Option<Idx<Receive>> {
    view.index.find(key(Kind::Receive, stream.raw(), index.raw())).map(Idx::new)
}

/// Places `bytes` of a message at `offset` of the receive's segments.
///
/// # Errors
/// [`MemoryError`] of the application's memory.
pub(crate) fn scatter(
    memory: &mut dyn Memory,
    segments: &[Segment],
    offset: u32,
    bytes: &[u8],
) -> Result<(), MemoryError> {
    let length = u32::try_from(bytes.len()).map_err(|_| MemoryError)?;
    let (parts, count) = gather(segments, offset, length);
    let mut rest = bytes;
    for part in parts.iter().take(usize::from(count)) {
        let (now, later) = rest.split_at_checked(part.length as usize).ok_or(MemoryError)?;
        memory.write(part.region, part.offset, now)?;
        rest = later;
    }
    if rest.is_empty() { Ok(()) } else { Err(MemoryError) }
}

/// How a receive ends.
pub(crate) struct ReceiveEnd {
    pub(crate) kind: CompletionKind,
    pub(crate) status: Status,
    pub(crate) bytes: u32,
    pub(crate) immediate: Option<u32>,
    pub(crate) solicited: bool,
    pub(crate) invalidated: Option<RegionKey>,
    pub(crate) tag: Option<u64>,
}

impl ReceiveEnd {
    /// Without a message.
    pub(crate) const fn failed(status: Status) -> Self {
        Self {
            kind: CompletionKind::Receive,
            status,
            bytes: 0,
            immediate: None,
            solicited: false,
            invalidated: None,
            tag: None,
        }
    }
}

/// Completes a receive and frees it.
pub(crate) fn complete(view: &mut View<'_>, stream: Idx<Stream>, receive: Idx<Receive>, end: &ReceiveEnd) {
    let entry = *view.receives.at(receive);
    let owner = view.streams.at_mut(stream);
    owner.responder.receives.remove(&mut view.receives, receive);
    let (connection, id) = (owner.connection, owner.id);
    if entry.entry.is_none() {
        view.index.remove(key(Kind::Receive, stream.raw(), entry.index.raw()));
    }
    region::count_references(&mut view.regions, entry.segments(), false);
    view.receives.free(receive);
    *view.reserved = view.reserved.saturating_sub(1);
    let handle = view.connections.at(connection).handle(connection);
    view.push_event(Event::Completion(Completion {
        connection: handle,
        stream: id,
        id: entry.id,
        kind: end.kind,
        status: end.status,
        bytes: end.bytes,
        immediate: end.immediate,
        solicited: end.solicited,
        invalidated: end.invalidated,
        tag: end.tag,
    }));
}
