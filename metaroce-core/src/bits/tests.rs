extern crate std;
use std::vec::Vec;

use quickcheck::{Gen, QuickCheck};

use super::{BitWindow, WindowHead, model};
use crate::ids::{Csn, Serial};

#[test]
fn window_does_what_a_set_does() {
    #[expect(clippy::needless_pass_by_value, reason = "quickcheck passes its arguments by value")]
    fn property(words: u8, origin: u32, near_wrap: bool, operations: Vec<(u8, u16, u16)>) -> bool {
        model::window_does_what_a_set_does(words, origin, near_wrap, &operations);
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
