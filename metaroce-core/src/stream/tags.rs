//! Tagged messages: matched with tagged receives in the order of their stream, or of their arrival.

use crate::event::Status;
use crate::ids::{ReceiveIndex, Serial};
use crate::stream::message::Effect;
use crate::stream::responder::fail;
use crate::stream::{Receive, Stream};
use crate::table::Idx;
use crate::time::Instant;
use crate::view::View;
use crate::wire::{DataHeader, NackReason};

/// Finds the receive of a tagged message, the `count`-th of its stream. Without one the message stays in the order,
/// with its bits, until it comes again. O(entries posted × messages waiting).
pub(crate) fn claim(
    view: &mut View<'_>,
    now: Instant,
    stream: Idx<Stream>,
    header: &DataHeader,
    count: ReceiveIndex,
) -> Result<Idx<Receive>, NackReason> {
    let responder = &mut view.streams.at_mut(stream).responder;
    let ordered = !responder.unordered_match;
    if ordered && responder.next_tagged.before(count) {
        return Err(NackReason::Order);
    }
    if !count.before(responder.next_tagged) {
        responder.next_tagged = count.plus(1);
    }
    let bits = header.match_bits.unwrap_or_default();
    let entry = first_match(view, stream, bits).ok_or(NackReason::NoReceive)?;
    //= MR-OP-24
    if ordered && is_wanted_before(view, stream, entry, count) {
        return Err(NackReason::Order);
    }
    let responder = &mut view.streams.at_mut(stream).responder;
    responder.tagged.remove(&mut view.receives, entry);
    responder.receives.push_back(&mut view.receives, entry);
    if view.receives.at(entry).capacity < header.length {
        view.receives.at_mut(entry).too_short = true;
        return Err(fail(view, now, stream, header.msn, Status::RemoteInvalid));
    }
    Ok(entry)
}

/// The first posted entry that matches.
pub(crate) fn first_match(view: &View<'_>, stream: Idx<Stream>, bits: u64) -> Option<Idx<Receive>> {
    let tagged = &view.streams.at(stream).responder.tagged;
    let mut at = tagged.front();
    while let Some(entry) = at {
        if view.receives.at(entry).entry.is_some_and(|entry| entry.matches(bits)) {
            return Some(entry);
        }
        at = tagged.next(&view.receives, entry);
    }
    None
}

/// Whether an earlier message of the stream waits for an entry, and this one matches it.
fn is_wanted_before(view: &View<'_>, stream: Idx<Stream>, entry: Idx<Receive>, count: ReceiveIndex) -> bool {
    let messages = &view.streams.at(stream).responder.messages;
    let mut at = messages.front();
    while let Some(slot) = at {
        let message = view.messages.at(slot);
        if let (Effect::Unmatched(earlier), Some(bits)) = (message.effect, message.tag)
            && earlier.before(count)
            && view.receives.at(entry).entry.is_some_and(|entry| entry.matches(bits))
        {
            return true;
        }
        at = messages.next(&view.messages, slot);
    }
    false
}
