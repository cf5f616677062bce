//! The window of bits against a set of numbers.
#![allow(
    clippy::missing_panics_doc,
    clippy::indexing_slicing,
    reason = "a model panics where the container differs from it"
)]

extern crate std;
use std::collections::BTreeSet;
use std::vec;

use super::{BitWindow, WindowHead};
use crate::ids::{Csn, Serial};

/// Numbers that were inserted and have not left, as distances from the first start.
struct Model {
    origin: Csn,
    start: u64,
    capacity: u64,
    bits: BTreeSet<u64>,
}

impl Model {
    #[expect(clippy::cast_possible_truncation, reason = "serial numbers wrap")]
    fn csn(&self, place: u64) -> Csn {
        self.origin.plus(place as u32)
    }

    fn covers(&self, place: u64) -> bool {
        (self.start..self.start + self.capacity).contains(&place)
    }

    fn first_zero_from(&self, place: u64, limit: u64) -> u64 {
        (place..limit).find(|place| !self.bits.contains(place)).unwrap_or(limit.max(place))
    }
}

/// A window of so many words (modulo 9) that starts near `origin`, or near the wrap, does what a set does.
pub fn window_does_what_a_set_does(words: u8, origin: u32, near_wrap: bool, operations: &[(u8, u16, u16)]) {
    let origin = Csn::new(if near_wrap { origin % 2000 } else { origin }.wrapping_sub(1000));
    let mut words = vec![0; usize::from(words % 9)];
    let mut head = WindowHead::new(origin);
    let mut window = BitWindow::new(&mut words, &mut head);
    let capacity = u64::from(window.capacity());
    let mut model = Model { origin, start: 4096, capacity, bits: BTreeSet::new() };
    window.reset(model.csn(model.start));
    for (operation, a, b) in operations.iter().copied() {
        step(&mut window, &mut model, operation, a, b);
        window.invariants();
        assert_eq!(window.start(), model.csn(model.start));
        for place in model.start - 70..model.start + capacity + 70 {
            assert_eq!(window.contains(model.csn(place)), model.bits.contains(&place), "at {place}");
        }
    }
}

fn step(window: &mut BitWindow<'_>, model: &mut Model, operation: u8, a: u16, b: u16) {
    let capacity = model.capacity;
    // From a little before the window to a little behind it.
    let place = model.start - 10 + u64::from(a) % (capacity + 20);
    let csn = model.csn(place);
    match operation % 8 {
        0..=2 => {
            assert_eq!(window.insert(csn), model.covers(place));
            model.bits.extend(model.covers(place).then_some(place));
        }
        3 | 4 => {
            for place in place..place + u64::from(b) % 150 {
                assert_eq!(window.insert(model.csn(place)), model.covers(place));
                model.bits.extend(model.covers(place).then_some(place));
            }
        }
        5 => {
            let step = u64::from(a) % if b.is_multiple_of(8) { 3 * capacity + 1 } else { 100 };
            model.start += step;
            window.advance_to(model.csn(model.start));
            model.bits.retain(|place| *place >= model.start);
        }
        6 => window.advance_to(model.csn(model.start - u64::from(b) % 100)),
        _ => {
            let limit = place + u64::from(b) % (capacity + 20) - 10;
            let found = window.first_zero_from(csn, model.csn(limit));
            assert_eq!(found, model.csn(model.first_zero_from(place, limit)));
        }
    }
}
