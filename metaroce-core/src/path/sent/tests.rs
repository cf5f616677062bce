//! The rules that judge transmissions: delivered, lost by a gap, lost by time, thought lost wrongly.

use std::vec::Vec;

use super::*;
use crate::connection::AckSnapshot;
use crate::path::Tolerance;
use crate::pool::{PoolHead, Slot};

/// A path with 512 transmissions, sent 1 µs apart from PSN `first` on, each of 100 bytes.
struct Bench {
    slots: Vec<Slot<Transmission>>,
    head: PoolHead,
    path: Path,
    first: u32,
}

/// PSNs by their number from the first.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    delivered: Vec<u32>,
    refused: Vec<u32>,
    lost: Vec<u32>,
    spurious: u32,
}

const TIME_RULE_NS: u64 = 1_000_000;

impl Bench {
    fn new(first: u32, tolerance: u32) -> Self {
        let mut path = Path::EMPTY;
        path.sending.psn_first = Psn::new(first);
        path.sending.psn_next = Psn::new(first);
        path.sending.tolerance = Tolerance::new(tolerance);
        Self { slots: std::vec![Slot::new(Transmission::EMPTY); 513], head: PoolHead::new(), path, first }
    }

    fn send(&mut self, count: u32, epoch: u8) {
        for _ in 0..count {
            let psn = self.path.sending.psn_next;
            let number = psn.raw().wrapping_sub(self.first);
            self.send_at(u64::from(number) * 1_000, epoch);
        }
    }

    fn send_at(&mut self, sent_ns: u64, epoch: u8) {
        let mut pool = Pool::new(&mut self.slots, &mut self.head).unwrap();
        let sending = &mut self.path.sending;
        let sent_at = Instant::from_nanos(sent_ns);
        let transmission =
            Transmission { psn: sending.psn_next, sent_at, bytes: 100, epoch, ..Transmission::EMPTY };
        let slot = pool.allocate(transmission).unwrap();
        sending.in_flight.push_back(&mut pool, slot);
        sending.inflight_bytes += 100;
        sending.psn_next = sending.psn_next.plus(1);
    }

    /// An acknowledgement of the given numbers, the largest first.
    fn ack(&mut self, accepted: &[u32], refused: &[u32]) -> Outcome {
        let largest = *accepted.iter().chain(refused).max().unwrap();
        let vector = |numbers: &[u32]| {
            let mut vector = Vector256::EMPTY;
            for number in numbers {
                vector.insert(largest - number);
            }
            vector
        };
        let psn = Psn::new(self.first.wrapping_add(largest));
        let body = AckBody { largest: psn, accepted: vector(accepted), ..AckSnapshot::EMPTY.body };
        let mut pool = Pool::new(&mut self.slots, &mut self.head).unwrap();
        let mut judge = Judge::new(&self.path, body, vector(refused));
        let sending = &mut self.path.sending;
        let mut outcome = Outcome::default();
        while let Some((transmission, verdict)) = judge.next_delivered(sending, &mut pool) {
            Judge::on_delivered(sending, &transmission);
            let number = transmission.psn.raw().wrapping_sub(self.first);
            match verdict {
                Verdict::Accepted => outcome.delivered.push(number),
                Verdict::Refused => outcome.refused.push(number),
            }
        }
        outcome.spurious = judge.spurious(sending);
        judge.rewind(sending);
        while let Some(transmission) = judge.next_lost(sending, &mut pool, TIME_RULE_NS) {
            outcome.lost.push(transmission.psn.raw().wrapping_sub(self.first));
        }
        pool.invariants();
        assert_eq!(sending.inflight_bytes, 100 * u64::from(sending.in_flight.len()));
        outcome
    }
}

fn delivered(numbers: &[u32]) -> Outcome {
    Outcome { delivered: numbers.to_vec(), ..Outcome::default() }
}

#[test]
//= MR-LOSS-1 test
fn gap_makes_lost_what_lies_below_it_by_more_than_the_tolerance() {
    for first in [0, u32::MAX - 5] {
        let mut bench = Bench::new(first, 0);
        bench.send(10, 0);
        assert_eq!(bench.ack(&[0, 1, 2], &[]), delivered(&[0, 1, 2]));
        assert_eq!(
            bench.ack(&[0, 1, 2, 4], &[]),
            Outcome { delivered: [4].to_vec(), lost: [3].to_vec(), ..Outcome::default() }
        );
        let mut tolerant = Bench::new(first, 3);
        tolerant.send(10, 0);
        assert_eq!(tolerant.ack(&[0, 2, 3, 4], &[]), delivered(&[0, 2, 3, 4]), "1 is three behind");
        assert_eq!(
            tolerant.ack(&[0, 2, 3, 4, 5], &[]),
            Outcome { delivered: [5].to_vec(), lost: [1].to_vec(), ..Outcome::default() }
        );
    }
}

#[test]
//= MR-LOSS-5 test
fn refused_packet_was_delivered_and_is_no_gap() {
    let mut bench = Bench::new(7, 0);
    bench.send(5, 0);
    let outcome = bench.ack(&[0, 2, 4], &[1, 3]);
    assert_eq!(
        outcome,
        Outcome { delivered: [0, 2, 4].to_vec(), refused: [1, 3].to_vec(), ..Outcome::default() }
    );
    assert_eq!(bench.ack(&[], &[4]), Outcome::default(), "told before");
}

#[test]
fn gap_says_nothing_across_epochs_and_time_does() {
    let mut bench = Bench::new(0, 0);
    bench.send(3, 0);
    bench.send(3, 1);
    assert_eq!(bench.ack(&[4], &[]).lost, [3], "only what was sent over the same route");
    // Much later something else is delivered: what is old by then is lost.
    bench.send_at(5_000 + TIME_RULE_NS, 1);
    bench.send_at(7_000 + TIME_RULE_NS, 1);
    assert_eq!(bench.ack(&[4, 6], &[]).lost, [0, 1, 2, 5], "by time, and 5 by the gap");
    assert_eq!(bench.ack(&[4, 6, 7], &[]), delivered(&[7]));
}

#[test]
fn time_rule_waits_for_exactly_its_time() {
    let mut bench = Bench::new(0, 32);
    bench.send_at(1_000, 0);
    bench.send_at(1_000 + TIME_RULE_NS, 0);
    bench.send_at(1_001 + TIME_RULE_NS, 0);
    assert_eq!(bench.ack(&[1], &[]).lost, [] as [u32; 0]);
    assert_eq!(bench.ack(&[1, 2], &[]).lost, [0]);
}

#[test]
fn what_the_vector_no_longer_covers_is_lost_by_time_and_not_by_a_gap() {
    let mut bench = Bench::new(0, 0);
    bench.send(300, 0);
    // Number 10 lies 289 below the largest. It was sent 289 µs before, less than the time rule wants.
    let all: Vec<u32> = (0..200).filter(|number| *number != 10).collect();
    let outcome = bench.ack(&all, &[]);
    assert_eq!(outcome.lost, [10], "covered, and a gap");
    let mut bench = Bench::new(0, 0);
    bench.send(300, 0);
    let newest: Vec<u32> = (44..300).collect();
    let outcome = bench.ack(&newest, &[]);
    assert_eq!((outcome.delivered.len(), outcome.lost.len()), (256, 0), "44 are not covered, and wait");
    bench.send_at(2 * TIME_RULE_NS, 0);
    let outcome = bench.ack(&[300], &[]);
    assert_eq!(outcome.lost, (0..44).collect::<Vec<_>>());
}

#[test]
fn packet_declared_lost_that_arrives_after_all_is_counted_once() {
    let mut bench = Bench::new(u32::MAX - 2, 0);
    bench.send(10, 0);
    assert_eq!(bench.ack(&[0, 3], &[]).lost, [1, 2]);
    let late = bench.ack(&[0, 1, 3], &[]);
    assert_eq!((late.spurious, late.delivered, late.lost), (1, [].to_vec(), [].to_vec()));
    let more = bench.ack(&[0, 1, 2, 3, 4], &[]);
    assert_eq!((more.spurious, more.delivered), (1, [4].to_vec()));
    assert_eq!(bench.ack(&[0, 1, 2, 3, 4], &[]), Outcome::default());
}

#[test]
fn acknowledgement_that_is_overtaken_takes_nothing_back() {
    let mut bench = Bench::new(0, 0);
    bench.send(10, 0);
    assert_eq!(bench.ack(&[0, 1, 2, 3, 4, 5], &[]).delivered.len(), 6);
    assert_eq!(bench.ack(&[0, 1], &[]), Outcome::default(), "older, and all of it known");
    assert_eq!(bench.ack(&[0, 1, 2, 3, 4, 5, 6], &[]), delivered(&[6]));
}

#[test]
fn rescued_transmission_no_longer_counts_in_flight_but_may_still_be_delivered() {
    let mut bench = Bench::new(0, 0);
    bench.send(2, 0);
    {
        let mut pool = Pool::new(&mut bench.slots, &mut bench.head).unwrap();
        let front = bench.path.sending.in_flight.front().unwrap();
        pool.at_mut(front).rescued = true;
        bench.path.sending.inflight_bytes -= 100;
        let mut judge = Judge::new(
            &bench.path,
            AckBody {
                largest: Psn::new(1),
                accepted: Vector256::from_words([3, 0, 0, 0]),
                ..AckSnapshot::EMPTY.body
            },
            Vector256::EMPTY,
        );
        let sending = &mut bench.path.sending;
        let mut numbers = Vec::new();
        while let Some((transmission, _)) = judge.next_delivered(sending, &mut pool) {
            numbers.push((transmission.psn.raw(), transmission.rescued));
        }
        assert_eq!(numbers, [(0, true), (1, false)]);
    }
    assert_eq!(bench.path.sending.inflight_bytes, 0);
}

#[test]
fn what_an_earlier_route_carried_is_late_by_the_rtt_of_that_route() {
    //= MR-LOSS-3 test
    for (earlier_rule_ns, lost) in [(2 * TIME_RULE_NS, false), (TIME_RULE_NS / 2, true), (0, false)] {
        let mut bench = Bench::new(0, 0);
        bench.send_at(0, 0);
        bench.send_at(TIME_RULE_NS * 3 / 4, 1);
        bench.path.epoch = 1;
        bench.path.sending.earlier_rule_ns = earlier_rule_ns;
        let lost = if lost { [0].to_vec() } else { Vec::new() };
        assert_eq!(bench.ack(&[1], &[]), Outcome { delivered: [1].to_vec(), lost, ..Outcome::default() });
    }
    // The present route's own, whatever came before it.
    let mut bench = Bench::new(0, 9);
    bench.send_at(0, 1);
    bench.send_at(TIME_RULE_NS + 1, 1);
    bench.path.epoch = 1;
    bench.path.sending.earlier_rule_ns = 10 * TIME_RULE_NS;
    assert_eq!(bench.ack(&[1], &[]).lost, [0]);
    // It is kept when a path moves.
    let mut path = Path::EMPTY;
    path.rtt.on_sample(Instant::ZERO, 8_000);
    path.move_to(50_000);
    assert_eq!(path.sending.earlier_rule_ns, 9_000);
}
