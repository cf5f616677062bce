extern crate std;
use std::vec;
use std::vec::Vec;

use quickcheck::{Gen, QuickCheck};

use super::model::{self, Model, span};
use super::{Expiry, Idx, Instant, LEVELS, TimerNode, WORK, Wheel, WheelHead};
use crate::table::Table;

#[test]
fn wheel_does_what_a_map_of_deadlines_does() {
    #[expect(clippy::needless_pass_by_value, reason = "quickcheck passes its arguments by value")]
    fn property(start: u64, bits: u8, operations: Vec<(u8, u8, u64)>) -> bool {
        model::wheel_does_what_a_map_of_deadlines_does(start, bits, &operations);
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
