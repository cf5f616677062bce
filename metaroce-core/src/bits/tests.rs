extern crate std;
use std::collections::BTreeSet;
use std::vec;
use std::vec::Vec;

use quickcheck::{Gen, QuickCheck};

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

#[test]
fn window_does_what_a_set_does() {
    fn property(words: u8, origin: u32, near_wrap: bool, operations: Vec<(u8, u16, u16)>) -> bool {
        let origin = Csn::new(if near_wrap { origin % 2000 } else { origin }.wrapping_sub(1000));
        let mut words = vec![0; usize::from(words % 9)];
        let mut head = WindowHead::new(origin);
        let mut window = BitWindow::new(&mut words, &mut head);
        let capacity = u64::from(window.capacity());
        let mut model = Model { origin, start: 4096, capacity, bits: BTreeSet::new() };
        window.reset(model.csn(model.start));
        for (operation, a, b) in operations {
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
                    let step = u64::from(a) % if b % 8 == 0 { 3 * capacity + 1 } else { 100 };
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
            window.invariants();
            assert_eq!(window.start(), model.csn(model.start));
            for place in model.start - 70..model.start + capacity + 70 {
                assert_eq!(window.contains(model.csn(place)), model.bits.contains(&place), "at {place}");
            }
        }
        true
    }
    QuickCheck::new()
        .rng(Gen::new(200))
        .quickcheck(property as fn(u8, u32, bool, Vec<(u8, u16, u16)>) -> bool);
}

#[test]
fn full_window_has_its_first_zero_behind_its_end() {
    let mut words = [u64::MAX; 2];
    let mut head = WindowHead::new(Csn::new(u32::MAX - 20));
    let window = BitWindow::new(&mut words, &mut head);
    let start = window.start();
    assert_eq!(window.first_zero_from(start, start.plus(1000)), start.plus(128));
    assert_eq!(window.first_zero_from(start.plus(5), start.plus(70)), start.plus(70));
    assert_eq!(window.first_zero_from(start.plus(128), start.plus(1000)), start.plus(128));
}

#[test]
fn window_without_words_covers_nothing() {
    let mut head = WindowHead::new(Csn::new(5));
    let mut window = BitWindow::new(&mut [], &mut head);
    assert_eq!(
        (window.capacity(), window.insert(Csn::new(5)), window.contains(Csn::new(5))),
        (0, false, false)
    );
    window.advance_to(Csn::new(9));
    assert_eq!(window.start(), Csn::new(9));
    assert_eq!(window.first_zero_from(Csn::new(9), Csn::new(20)), Csn::new(9));
}
