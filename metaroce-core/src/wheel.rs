//! The timer wheel: one timer for each connection, filed lazily, exact when polled.
//!
//! A hierarchical timing wheel (Varghese and Lauck, 1987). Time is cut into ticks of 1024 ns; a deadline is filed at
//! the level of the highest six-bit digit in which its tick differs from the wheel's own, in the slot of that digit.
//! So all slots of a level lie ahead of the wheel's present digit there, and nine levels hold every [`Instant`].
//!
//! A timer that moves later stays filed where it is and is filed again when its slot comes. Only the slot of the
//! present tick is looked at deadline by deadline; `bound` spares that look while none of them can be due.

use crate::table::{Idx, Table};
use crate::time::Instant;

/// One timer.
#[derive(Clone, Debug)]
pub struct TimerNode {
    prev: Idx<TimerNode>,
    next: Idx<TimerNode>,
    place: Place,
    deadline: Instant,
}

impl TimerNode {
    /// A timer that is not scheduled.
    #[must_use]
    pub const fn new() -> Self {
        Self { prev: Idx::NONE, next: Idx::NONE, place: Place::UNFILED, deadline: Instant::FAR_FUTURE }
    }
}

impl Default for TimerNode {
    fn default() -> Self {
        Self::new()
    }
}

/// What a wheel knows besides its timers.
#[derive(Clone, Debug)]
pub struct WheelHead {
    /// The first timer of each slot.
    heads: [[Idx<TimerNode>; 64]; LEVELS],
    /// For each level the slots with timers.
    occupied: [u64; LEVELS],
    /// The latest time that was polled.
    now: Instant,
    /// How far the wheel has turned; it lags behind `now` while work is left.
    now_tick: u64,
    /// No timer in the slot of the present tick is due before.
    bound: Instant,
    /// The next timer of the present slot to look at; none unless a look is under way.
    cursor: Idx<TimerNode>,
    /// The earliest deadline that the look under way has passed.
    passed: Instant,
    /// The level whose present slot is being filed again into lower ones; 0 when none is.
    cascading: u32,
}

impl WheelHead {
    /// The head of a wheel without timers.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            heads: [[Idx::NONE; 64]; LEVELS],
            occupied: [0; LEVELS],
            now: Instant::ZERO,
            now_tick: 0,
            bound: Instant::FAR_FUTURE,
            cursor: Idx::NONE,
            passed: Instant::FAR_FUTURE,
            cascading: 0,
        }
    }
}

impl Default for WheelHead {
    fn default() -> Self {
        Self::new()
    }
}

/// What a poll of the wheel found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expiry {
    /// This timer is due; it is no longer scheduled.
    Expired(Idx<TimerNode>),
    /// Not done yet: poll again.
    More,
    /// No timer is due.
    Idle,
}

/// The wheel. Time never goes back: a poll with an earlier time is one with the latest time polled.
pub(crate) struct Wheel<'a> {
    head: &'a mut WheelHead,
    nodes: Table<'a, TimerNode>,
}

impl<'a> Wheel<'a> {
    /// The wheel over these timers.
    pub(crate) fn new(head: &'a mut WheelHead, nodes: Table<'a, TimerNode>) -> Self {
        Self { head, nodes }
    }

    /// Sets the deadline of a timer, earlier or later than before; [`Instant::FAR_FUTURE`] never comes.
    pub(crate) fn schedule(&mut self, idx: Idx<TimerNode>, deadline: Instant) {
        let node = self.nodes.at_mut(idx);
        node.deadline = deadline;
        let place = node.place;
        if place == Place::UNFILED {
            if deadline != Instant::FAR_FUTURE {
                self.file(idx, deadline);
            }
        } else if place == self.present(0) {
            self.lower_bound(deadline);
        } else if tick_of(deadline) < self.start_of(place) {
            self.unlink(idx);
            self.file(idx, deadline);
        }
    }

    /// Takes the deadline of a timer away.
    pub(crate) fn cancel(&mut self, idx: Idx<TimerNode>) {
        let node = self.nodes.at_mut(idx);
        node.deadline = Instant::FAR_FUTURE;
        if node.place != Place::UNFILED {
            self.unlink(idx);
        }
    }

    /// When to poll next: no timer is due earlier. After an idle poll it lies ahead of that poll; it may be early,
    /// at most once for each level, and then a poll finds nothing. `None`: never. O(levels).
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let present = self.is_occupied(self.present(0)).then_some(self.head.bound);
        if self.head.cascading != 0 {
            return Some(instant_of(self.head.now_tick).min(present.unwrap_or(Instant::FAR_FUTURE)));
        }
        present.or_else(|| self.next_slot().map(|place| instant_of(self.start_of(place))))
    }

    /// Takes out one timer whose deadline is at most `now`; the order among them is deterministic, not that of time.
    ///
    /// Polled until idle it has given every such timer. Each call looks at no more than [`WORK`] timers.
    pub(crate) fn poll_expired(&mut self, now: Instant) -> Expiry {
        let now = now.max(self.head.now);
        self.head.now = now;
        for _ in 0..WORK {
            if self.head.cascading != 0 {
                self.cascade_one();
            } else if self.is_occupied(self.present(0)) && self.head.bound <= now {
                if let Some(idx) = self.examine_one(now) {
                    return Expiry::Expired(idx);
                }
            } else if !self.advance(tick_of(now)) {
                return Expiry::Idle;
            }
        }
        Expiry::More
    }

    /// Looks at one timer of the present slot and gives it if it is due.
    fn examine_one(&mut self, now: Instant) -> Option<Idx<TimerNode>> {
        if self.head.cursor.is_none() {
            self.head.passed = Instant::FAR_FUTURE;
            self.head.cursor = self.first(self.present(0));
        }
        let idx = self.head.cursor;
        let TimerNode { deadline, next, .. } = *self.nodes.at(idx);
        if deadline == Instant::FAR_FUTURE {
            self.unlink(idx);
        } else if deadline <= now {
            self.unlink(idx);
            return Some(idx);
        } else if tick_of(deadline) > self.head.now_tick {
            self.unlink(idx);
            self.file(idx, deadline);
        } else {
            self.head.passed = self.head.passed.min(deadline);
            self.move_cursor(next);
        }
        None
    }

    /// Files one timer of the slot that was reached at a higher level again.
    fn cascade_one(&mut self) {
        let Some(idx) = self.first(self.present(self.head.cascading)).get() else {
            self.head.cascading = 0;
            return;
        };
        let deadline = self.nodes.at(idx).deadline;
        self.unlink(idx);
        if deadline != Instant::FAR_FUTURE {
            self.file(idx, deadline);
        }
    }

    /// Turns the wheel to the next slot with timers; false when `target` comes first.
    fn advance(&mut self, target: u64) -> bool {
        if target <= self.head.now_tick {
            return false;
        }
        debug_assert!(!self.is_occupied(self.present(0)), "a timer of a tick gone by is left");
        let reached = self.next_slot().filter(|place| self.start_of(*place) <= target);
        self.head.now_tick = reached.map_or(target, |place| self.start_of(place));
        self.head.cascading = reached.map_or(0, Place::level);
        self.head.bound = if self.is_occupied(self.present(0)) {
            instant_of(self.head.now_tick)
        } else {
            Instant::FAR_FUTURE
        };
        reached.is_some()
    }

    /// The earliest slot with timers after the present ones.
    fn next_slot(&self) -> Option<Place> {
        self.head.occupied.iter().zip(0..).find_map(|(occupied, level)| {
            let ahead = occupied & ((u64::MAX << digit(self.head.now_tick, level)) << 1);
            (ahead != 0).then(|| Place::new(level, ahead.trailing_zeros()))
        })
    }

    /// The slot of the present tick at a level.
    fn present(&self, level: u32) -> Place {
        Place::new(level, digit(self.head.now_tick, level))
    }

    /// The first tick of a slot that lies ahead, or of a present one.
    fn start_of(&self, place: Place) -> u64 {
        let shift = place.level() * 6;
        ((self.head.now_tick >> shift & !63) | u64::from(place.slot())) << shift
    }

    /// Puts a timer that is in no slot into the one of its deadline.
    fn file(&mut self, idx: Idx<TimerNode>, deadline: Instant) {
        let tick = tick_of(deadline);
        let place = if tick <= self.head.now_tick {
            self.present(0)
        } else {
            let level = (tick ^ self.head.now_tick).checked_ilog2().unwrap_or(0) / 6;
            Place::new(level, digit(tick, level))
        };
        if place == self.present(0) {
            self.lower_bound(deadline);
        }
        let next = self.first(place);
        if let Some(next) = next.get() {
            self.nodes.at_mut(next).prev = idx;
        }
        let node = self.nodes.at_mut(idx);
        (node.prev, node.next, node.place) = (Idx::NONE, next, place);
        self.set_first(place, idx);
    }

    /// Takes a timer out of its slot.
    fn unlink(&mut self, idx: Idx<TimerNode>) {
        let node = self.nodes.at_mut(idx);
        let TimerNode { prev, next, place, .. } = *node;
        (node.prev, node.next, node.place) = (Idx::NONE, Idx::NONE, Place::UNFILED);
        if let Some(next) = next.get() {
            self.nodes.at_mut(next).prev = prev;
        }
        if self.head.cursor == idx {
            self.move_cursor(next);
        }
        match prev.get() {
            Some(prev) => self.nodes.at_mut(prev).next = next,
            None => self.set_first(place, next),
        }
        if self.head.cascading == place.level() && self.first(self.present(self.head.cascading)).is_none() {
            self.head.cascading = 0;
        }
    }

    /// Goes on to the next timer of the present slot; at its end the look has found a new bound.
    fn move_cursor(&mut self, next: Idx<TimerNode>) {
        self.head.cursor = next;
        if next.is_none() {
            self.head.bound = self.head.passed;
        }
    }

    /// Notes a deadline in the present slot.
    fn lower_bound(&mut self, deadline: Instant) {
        self.head.bound = self.head.bound.min(deadline);
        self.head.passed = self.head.passed.min(deadline);
    }

    fn is_occupied(&self, place: Place) -> bool {
        self.first(place).is_some()
    }

    fn first(&self, place: Place) -> Idx<TimerNode> {
        let level = self.head.heads.get(place.level() as usize);
        level.and_then(|slots| slots.get(place.slot() as usize)).copied().unwrap_or(Idx::NONE)
    }

    /// Makes a timer (or none) the first of a slot.
    fn set_first(&mut self, place: Place, idx: Idx<TimerNode>) {
        let level = place.level() as usize;
        if let Some(first) =
            self.head.heads.get_mut(level).and_then(|slots| slots.get_mut(place.slot() as usize))
        {
            *first = idx;
        }
        if let Some(occupied) = self.head.occupied.get_mut(level) {
            let bit = 1 << place.slot();
            *occupied = if idx.is_some() { *occupied | bit } else { *occupied & !bit };
        }
        if idx.is_none() && place == self.present(0) {
            self.head.bound = Instant::FAR_FUTURE;
        }
    }
}

/// A slot of the wheel: its level and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place(u32);

impl Place {
    const UNFILED: Self = Self(u32::MAX);

    const fn new(level: u32, slot: u32) -> Self {
        Self(level << 6 | slot)
    }

    const fn level(self) -> u32 {
        self.0 >> 6
    }

    const fn slot(self) -> u32 {
        self.0 & 63
    }
}

/// The six bits of a tick that choose its slot at a level.
const fn digit(tick: u64, level: u32) -> u32 {
    ((tick >> (level * 6)) & 63) as u32
}

/// The tick that an instant lies in.
const fn tick_of(instant: Instant) -> u64 {
    instant.as_nanos() >> TICK_BITS
}

/// The first instant of a tick.
const fn instant_of(tick: u64) -> Instant {
    Instant::from_nanos(tick << TICK_BITS)
}

/// A tick is 2^10 ns.
const TICK_BITS: u32 = 10;
/// As many as 54 bits of ticks have digits of six bits.
const LEVELS: usize = 9;
/// How many timers a poll looks at or moves at most.
const WORK: usize = 64;

#[cfg(any(test, feature = "models"))]
pub(crate) mod model;
#[cfg(test)]
mod tests;
