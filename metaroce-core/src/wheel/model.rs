//! The wheel against a map of exact deadlines.
#![allow(
    clippy::missing_panics_doc,
    clippy::indexing_slicing,
    reason = "a model panics where the container differs from it"
)]

extern crate std;
use std::collections::BTreeMap;
use std::vec;
use std::vec::Vec;

use super::{Expiry, Idx, Instant, LEVELS, Place, TimerNode, Wheel, WheelHead, digit, tick_of};
use crate::table::Table;

impl Wheel<'_> {
    /// Panics unless slots, bitmaps and timers agree and no timer is filed too late; O(timers and slots).
    pub(super) fn invariants(&self) {
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
    pub(super) fn expire(&mut self, now: Instant) -> (Vec<u32>, usize) {
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
pub(super) struct Model {
    pub(super) deadlines: BTreeMap<u32, u64>,
    pub(super) now: u64,
}

impl Model {
    pub(super) fn expire(&mut self, now: u64) -> Vec<u32> {
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
pub(super) const fn span(random: u64, largest_bits: u64) -> u64 {
    (random >> 8) & ((1 << ((random & 0xff) % largest_bits)) - 1)
}

const TIMERS: u32 = 40;

/// A wheel that starts at `start` / 16 ns, with spans of up to 2^(8 + `bits` modulo 48) ns, does what a map does.
pub fn wheel_does_what_a_map_of_deadlines_does(start: u64, bits: u8, operations: &[(u8, u8, u64)]) {
    let bits = u64::from(bits % 48) + 8;
    let mut slots = vec![TimerNode::new(); TIMERS as usize + 1];
    let mut head = WheelHead::new();
    let mut model = Model { now: start >> 4, ..Model::default() };
    let table = Table::new(&mut slots);
    assert!(table.is_some(), "there is a spill");
    let Some(table) = table else { return };
    let mut wheel = Wheel::new(&mut head, table);
    assert_eq!(wheel.poll_expired(Instant::from_nanos(model.now)), Expiry::Idle);
    for (operation, raw, random) in operations.iter().copied() {
        step(&mut wheel, &mut model, operation, u32::from(raw) % TIMERS, random, bits);
        wheel.invariants();
        model.check_bound(&wheel);
    }
}

fn step(wheel: &mut Wheel<'_>, model: &mut Model, operation: u8, raw: u32, random: u64, bits: u64) {
    match operation % 16 {
        0..=8 => {
            let deadline = model.now.saturating_add(span(random, bits));
            schedule(wheel, model, raw, deadline);
        }
        9 => {
            let deadline = model.now.saturating_sub(span(random, bits));
            schedule(wheel, model, raw, deadline);
        }
        10 => {
            wheel.cancel(Idx::new(raw));
            model.deadlines.remove(&raw);
        }
        11 => schedule(wheel, model, raw, u64::MAX),
        12 => {
            // One call only, so that other operations find the work half done.
            model.now = model.now.saturating_add(span(random, bits)).min(u64::MAX - 1);
            if let Expiry::Expired(idx) = wheel.poll_expired(Instant::from_nanos(model.now)) {
                assert!(model.deadlines.remove(&idx.raw()).is_some_and(|deadline| deadline <= model.now));
            }
        }
        _ => {
            let now = match (operation % 16, wheel.next_deadline()) {
                (13, Some(bound)) => bound.as_nanos(),
                (14, _) => model.now.saturating_sub(random & 0xff),
                _ => model.now.saturating_add(span(random, bits)).min(u64::MAX - 1),
            };
            assert_eq!(wheel.expire(Instant::from_nanos(now)).0, model.expire(now));
            let bound = wheel.next_deadline().map(Instant::as_nanos);
            assert!(bound.is_none_or(|bound| bound > model.now), "the wheel is never at rest");
        }
    }
}

/// The last instant stands for never.
fn schedule(wheel: &mut Wheel<'_>, model: &mut Model, raw: u32, deadline: u64) {
    wheel.schedule(Idx::new(raw), Instant::from_nanos(deadline));
    if deadline == u64::MAX {
        model.deadlines.remove(&raw);
    } else {
        model.deadlines.insert(raw, deadline);
    }
}
