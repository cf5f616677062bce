extern crate std;
use std::collections::BTreeMap;
use std::vec;
use std::vec::Vec;

use quickcheck::{Gen, QuickCheck};

use super::{Expiry, Idx, Instant, LEVELS, Place, TimerNode, WORK, Wheel, WheelHead, digit, tick_of};
use crate::table::Table;

impl Wheel<'_> {
    /// Panics unless slots, bitmaps and timers agree and no timer is filed too late; O(timers and slots).
    fn invariants(&self) {
        let mut filed = 0;
        for level in 0..u32::try_from(LEVELS).unwrap_or(0) {
            for slot in 0..64 {
                let place = Place::new(level, slot);
                let bit = self.head.occupied[level as usize] >> slot & 1 == 1;
                assert_eq!(bit, self.is_occupied(place));
                let present = digit(self.head.now_tick, level);
                let pending = level == 0 || self.head.cascading == level;
                assert!(!bit || slot > present || (slot == present && pending), "{place:?} was passed");
                filed += self.check_slot(place);
            }
        }
        let nodes = (0..self.nodes.len()).map(|raw| self.nodes.at(Idx::new(raw)));
        assert_eq!(filed, nodes.filter(|node| node.place != Place::UNFILED).count());
        assert!(self.head.cursor.is_none() || self.nodes.at(self.head.cursor).place == self.present(0));
    }

    fn check_slot(&self, place: Place) -> usize {
        let (mut prev, mut idx, mut count) = (Idx::NONE, self.first(place), 0);
        while let Some(entry) = idx.get() {
            let node = self.nodes.at(entry);
            assert_eq!((node.prev, node.place), (prev, place));
            if place == self.present(0) {
                assert!(self.head.bound <= node.deadline, "the bound hides a timer");
            } else {
                assert!(self.start_of(place) <= tick_of(node.deadline), "a timer is filed too late");
            }
            (prev, idx, count) = (entry, node.next, count + 1);
        }
        count
    }

    /// All timers that are due, in order of their index, and how many calls it took.
    fn expire(&mut self, now: Instant) -> (Vec<u32>, usize) {
        let (mut expired, mut calls) = (Vec::new(), 0);
        loop {
            calls += 1;
            assert!(calls < 100_000, "the wheel does not come to rest");
            match self.poll_expired(now) {
                Expiry::Expired(idx) => expired.push(idx.raw()),
                Expiry::More => {}
                Expiry::Idle => break,
            }
        }
        expired.sort_unstable();
        (expired, calls)
    }
}

/// The exact deadlines.
#[derive(Default)]
struct Model {
    deadlines: BTreeMap<u32, u64>,
    now: u64,
}

impl Model {
    fn expire(&mut self, now: u64) -> Vec<u32> {
        self.now = self.now.max(now);
        let expired = self.deadlines.iter().filter(|(_, deadline)| **deadline <= self.now);
        let expired: Vec<u32> = expired.map(|(raw, _)| *raw).collect();
        self.deadlines.retain(|_, deadline| *deadline > self.now);
        expired
    }

    fn check_bound(&self, wheel: &Wheel<'_>) {
        let earliest = self.deadlines.values().min().copied();
        let bound = wheel.next_deadline().map(Instant::as_nanos);
        assert!(
            earliest.is_none_or(|earliest| bound.is_some_and(|bound| bound <= earliest)),
            "{bound:?} {earliest:?}"
        );
    }
}

/// A span of time whose length is random in its order of magnitude.
const fn span(random: u64, largest_bits: u64) -> u64 {
    (random >> 8) & ((1 << ((random & 0xff) % largest_bits)) - 1)
}

const TIMERS: u32 = 40;

#[test]
fn wheel_does_what_a_map_of_deadlines_does() {
    fn property(start: u64, bits: u8, operations: Vec<(u8, u8, u64)>) -> bool {
        let bits = u64::from(bits % 48) + 8;
        let mut slots = vec![TimerNode::new(); TIMERS as usize + 1];
        let mut head = WheelHead::new();
        let mut model = Model { now: start >> 4, ..Model::default() };
        let Some(table) = Table::new(&mut slots) else { return false };
        let mut wheel = Wheel::new(&mut head, table);
        assert_eq!(wheel.poll_expired(Instant::from_nanos(model.now)), Expiry::Idle);
        for (operation, raw, random) in operations {
            let raw = u32::from(raw) % TIMERS;
            match operation % 16 {
                0..=8 => {
                    let deadline = model.now + span(random, bits);
                    wheel.schedule(Idx::new(raw), Instant::from_nanos(deadline));
                    model.deadlines.insert(raw, deadline);
                }
                9 => {
                    let deadline = model.now.saturating_sub(span(random, bits));
                    wheel.schedule(Idx::new(raw), Instant::from_nanos(deadline));
                    model.deadlines.insert(raw, deadline);
                }
                10 => {
                    wheel.cancel(Idx::new(raw));
                    model.deadlines.remove(&raw);
                }
                11 => {
                    wheel.schedule(Idx::new(raw), Instant::FAR_FUTURE);
                    model.deadlines.remove(&raw);
                }
                12 => {
                    // One call only, so that other operations find the work half done.
                    model.now += span(random, bits);
                    if let Expiry::Expired(idx) = wheel.poll_expired(Instant::from_nanos(model.now)) {
                        assert!(
                            model.deadlines.remove(&idx.raw()).is_some_and(|deadline| deadline <= model.now)
                        );
                    }
                }
                _ => {
                    let now = match (operation % 16, wheel.next_deadline()) {
                        (13, Some(bound)) => bound.as_nanos(),
                        (14, _) => model.now.saturating_sub(random & 0xff),
                        _ => model.now + span(random, bits),
                    };
                    assert_eq!(wheel.expire(Instant::from_nanos(now)).0, model.expire(now));
                    let bound = wheel.next_deadline().map(Instant::as_nanos);
                    assert!(bound.is_none_or(|bound| bound > model.now), "the wheel is never at rest");
                }
            }
            wheel.invariants();
            model.check_bound(&wheel);
        }
        true
    }
    QuickCheck::new()
        .tests(200)
        .rng(Gen::new(400))
        .quickcheck(property as fn(u64, u8, Vec<(u8, u8, u64)>) -> bool);
}

#[test]
fn sleeping_until_the_next_deadline_expires_every_timer_exactly() {
    #[expect(clippy::needless_pass_by_value, reason = "quickcheck passes its arguments by value")]
    fn property(start: u64, deadlines: Vec<u64>) -> bool {
        let mut slots = vec![TimerNode::new(); deadlines.len() + 1];
        let mut head = WheelHead::new();
        let Some(table) = Table::new(&mut slots) else { return false };
        let mut wheel = Wheel::new(&mut head, table);
        let mut model = Model::default();
        if start.is_multiple_of(2) {
            // Otherwise the wheel learns the time only when it is first due.
            model.now = start >> 8;
            assert_eq!(wheel.poll_expired(Instant::from_nanos(model.now)), Expiry::Idle);
        }
        for (raw, random) in (0..).zip(&deadlines) {
            let deadline = (start >> 8) + span(*random, 60);
            wheel.schedule(Idx::new(raw), Instant::from_nanos(deadline));
            model.deadlines.insert(raw, deadline);
        }
        let mut wakes = 0;
        while let Some(bound) = wheel.next_deadline() {
            wakes += 1;
            let earliest = model.deadlines.values().min().copied().unwrap_or(u64::MAX);
            assert!(bound.as_nanos() <= earliest);
            assert_eq!(wheel.expire(bound).0, model.expire(bound.as_nanos()));
        }
        model.deadlines.is_empty() && wakes <= (LEVELS + 1) * deadlines.len()
    }
    QuickCheck::new().rng(Gen::new(60)).quickcheck(property as fn(u64, Vec<u64>) -> bool);
}

#[test]
fn timer_that_moves_later_is_not_touched_until_its_slot_comes() {
    let mut slots = vec![TimerNode::new(); 2];
    let mut head = WheelHead::new();
    let Some(table) = Table::new(&mut slots) else { unreachable!() };
    let mut wheel = Wheel::new(&mut head, table);
    wheel.schedule(Idx::new(0), Instant::from_nanos(10_000));
    let place = wheel.nodes.at(Idx::new(0)).place;
    for later in 1..1000 {
        wheel.schedule(Idx::new(0), Instant::from_nanos(10_000 + later * 1_000_000));
        assert_eq!(wheel.nodes.at(Idx::new(0)).place, place);
    }
    assert_eq!(wheel.expire(Instant::from_nanos(20_000)).0, []);
    assert_ne!(wheel.nodes.at(Idx::new(0)).place, place);
    assert_eq!(wheel.expire(Instant::from_nanos(999_009_999)).0, []);
    assert_eq!(wheel.expire(Instant::from_nanos(999_010_000)).0, [0]);
}

#[test]
fn work_of_a_call_is_bounded_and_that_of_all_is_linear() {
    const MANY: usize = 10_000;
    let mut slots = vec![TimerNode::new(); MANY + 1];
    let mut head = WheelHead::new();
    let Some(table) = Table::new(&mut slots) else { unreachable!() };
    let mut wheel = Wheel::new(&mut head, table);
    let all = || (0..).map(Idx::new).take(MANY);
    // All in one tick far ahead, and then moved later: each is moved once a level and looked at once.
    let deadline = Instant::from_nanos(3_600_000_000_000);
    all().for_each(|idx| wheel.schedule(idx, deadline));
    all().for_each(|idx| wheel.schedule(idx, deadline.after(5_000_000_000)));
    let (expired, calls) = wheel.expire(deadline);
    assert_eq!((expired.len(), calls <= 4 * MANY / WORK), (0, true), "{calls} calls");
    wheel.invariants();
    let (expired, calls) = wheel.expire(deadline.after(5_000_000_000));
    assert_eq!((expired.len(), calls <= MANY + LEVELS * MANY / WORK), (MANY, true), "{calls} calls");
    assert_eq!(wheel.next_deadline(), None);
}

#[test]
fn timers_of_the_present_tick_expire_at_their_own_nanosecond() {
    let mut slots = vec![TimerNode::new(); 301];
    let mut head = WheelHead::new();
    let Some(table) = Table::new(&mut slots) else { unreachable!() };
    let mut wheel = Wheel::new(&mut head, table);
    for raw in 0..300 {
        wheel.schedule(Idx::new(raw), Instant::from_nanos(1024 + 3 * u64::from(raw)));
    }
    for now in 0..1024 + 900 {
        let due = now >= 1024 && (now - 1024) % 3 == 0;
        let (expired, _) = wheel.expire(Instant::from_nanos(now));
        assert_eq!(expired.len(), usize::from(due), "at {now}");
        assert!(wheel.next_deadline().is_none_or(|bound| bound > Instant::from_nanos(now)));
    }
}

#[test]
fn last_instant_but_never_can_be_scheduled() {
    let mut slots = vec![TimerNode::new(); 3];
    let mut head = WheelHead::new();
    let Some(table) = Table::new(&mut slots) else { unreachable!() };
    let mut wheel = Wheel::new(&mut head, table);
    wheel.schedule(Idx::new(0), Instant::from_nanos(u64::MAX - 1));
    wheel.schedule(Idx::new(1), Instant::from_nanos(5));
    wheel.schedule(Idx::new(1), Instant::FAR_FUTURE);
    assert_eq!(wheel.expire(Instant::from_nanos(u64::MAX - 2)).0, []);
    assert_eq!(wheel.expire(Instant::FAR_FUTURE).0, [0]);
    assert_eq!(wheel.next_deadline(), None);
}
