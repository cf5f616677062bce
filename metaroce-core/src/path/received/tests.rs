//! The vector against a set of all PSNs that came, and the rule that nothing leaves it untold.

use std::collections::HashMap;
use std::vec::Vec;

use quickcheck::quickcheck;

use super::*;
use crate::connection::AckSnapshot;

const FIRST: u32 = u32::MAX - 300;

fn arrival(psn: u32, ecn: Ecn) -> Arrival {
    Arrival { psn: Psn::new(psn), timestamp: psn, epoch: 3, ecn, bytes: 4_242, proven: true }
}

fn enter(received: &mut Received, psn: u32, verdict: Verdict) -> Due {
    received.on_packet(Instant::ZERO, arrival(psn, Ecn::Ect0), verdict, 8)
}

fn ack(received: &mut Received, now_ns: u64) -> (AckBody, Vector256) {
    received.acknowledge(Instant::from_nanos(now_ns), AckSnapshot::EMPTY.body)
}

/// PSNs that come: mostly the next one, some skipped, some late, some twice.
fn psns(steps: &[u16]) -> Vec<u32> {
    let mut next = FIRST;
    let mut psns = Vec::new();
    for &step in steps {
        let psn = match step % 8 {
            0 => next.wrapping_add(u32::from(step >> 3) % 300),
            1 => next.wrapping_sub(1 + u32::from(step >> 3) % 400),
            2 => next.wrapping_add(u32::from(step >> 3) % 4),
            _ => next,
        };
        psns.push(psn);
        if next.wrapping_sub(psn) > 1 << 31 || psn == next {
            next = psn.wrapping_add(1);
        }
    }
    psns
}

quickcheck! {
    fn vector_tells_of_each_of_the_last_256_psns_whether_and_how_it_was_judged(steps: Vec<u16>) -> bool {
        let mut received = Received::NEW;
        let mut model: HashMap<u32, Verdict> = HashMap::new();
        let mut largest: Option<u32> = None;
        for psn in psns(&steps) {
            // A PSN has one verdict for ever, as its packet has.
            let verdict = if psn % 5 == 0 { Verdict::Refused } else { Verdict::Accepted };
            enter(&mut received, psn, verdict);
            let back = largest.map_or(0, |largest| largest.wrapping_sub(psn).cast_signed());
            if back <= 0 {
                largest = Some(psn);
            }
            if back < 256 {
                model.insert(psn, verdict);
            }
            let (body, refused) = received.acknowledge(Instant::ZERO, AckSnapshot::EMPTY.body);
            for bit in 0..256 {
                let psn = body.largest.raw().wrapping_sub(bit);
                let want = model.get(&psn);
                if body.accepted.contains(bit) != (want == Some(&Verdict::Accepted))
                    || refused.contains(bit) != (want == Some(&Verdict::Refused))
                {
                    return false;
                }
            }
            if largest != Some(body.largest.raw()) {
                return false;
            }
        }
        true
    }

    //= MR-ACK-14 test
    fn nothing_that_was_entered_leaves_the_vector_untold(steps: Vec<u16>, every: u8) -> bool {
        let mut received = Received::NEW;
        let mut untold: Vec<u32> = Vec::new();
        let tell = |received: &mut Received, untold: &mut Vec<u32>| {
            let (body, refused) = received.acknowledge(Instant::ZERO, AckSnapshot::EMPTY.body);
            let both = body.accepted.union(refused);
            untold.retain(|psn| !both.contains(body.largest.raw().wrapping_sub(*psn)));
        };
        for (number, psn) in psns(&steps).into_iter().enumerate() {
            if received.must_snapshot(Psn::new(psn)) {
                tell(&mut received, &mut untold);
            }
            let largest = received.newest.map(|newest| newest.psn);
            let late = largest.map_or(0, |largest| Psn::new(psn).distance(largest));
            enter(&mut received, psn, Verdict::Accepted);
            if late < 256 {
                untold.push(psn);
            }
            if number % (usize::from(every) + 1) == 0 {
                tell(&mut received, &mut untold);
            }
        }
        tell(&mut received, &mut untold);
        untold.is_empty()
    }
}

#[test]
fn acknowledgement_is_due_at_once_on_a_gap_a_refusal_a_first_mark_and_enough_packets() {
    let mut received = Received::NEW;
    assert_eq!(enter(&mut received, 10, Verdict::Accepted), Due::Later);
    assert_eq!(enter(&mut received, 11, Verdict::Accepted), Due::Later);
    assert_eq!(enter(&mut received, 13, Verdict::Accepted), Due::Now, "12 is missing");
    assert_eq!(enter(&mut received, 12, Verdict::Accepted), Due::Later, "late, and no gap any more");
    assert_eq!(enter(&mut received, 14, Verdict::Refused), Due::Now);
    ack(&mut received, 0);
    let marked = arrival(15, Ecn::Ce);
    assert_eq!(received.on_packet(Instant::ZERO, marked, Verdict::Accepted, 8), Due::Now);
    let again = arrival(16, Ecn::Ce);
    assert_eq!(
        received.on_packet(Instant::ZERO, again, Verdict::Accepted, 8),
        Due::Later,
        "one mark is news, two are not"
    );
    for psn in 17..22 {
        assert_eq!(enter(&mut received, psn, Verdict::Accepted), Due::Later);
    }
    assert_eq!(enter(&mut received, 22, Verdict::Accepted), Due::Now, "eight since the last acknowledgement");
}

#[test]
//= MR-ACK-6 test
//= MR-ACK-9 test
fn hold_counts_from_the_newest_packet_and_counters_count_every_packet() {
    let mut received = Received::NEW;
    let (body, _) = ack(&mut received, 5);
    assert_eq!(body.flags & ACK_FLAG_EMPTY, ACK_FLAG_EMPTY, "nothing came yet");
    received.on_packet(Instant::from_nanos(1_600), arrival(8, Ecn::Ce), Verdict::Accepted, 8);
    received.on_packet(Instant::from_nanos(3_200), arrival(7, Ecn::Ect0), Verdict::Accepted, 8);
    received.on_packet(Instant::from_nanos(3_200), arrival(8, Ecn::Ce), Verdict::Accepted, 8);
    let (body, _) = ack(&mut received, 4_800);
    assert_eq!((body.largest, body.echoed_timestamp), (Psn::new(8), 8));
    assert_eq!((body.hold, body.packets, body.marked), (3_200 >> 4, 3, 2));
    let (body, _) = ack(&mut received, u64::MAX);
    assert_eq!(body.hold, u32::MAX, "saturated");
}

#[test]
fn packet_older_than_the_vector_changes_nothing_but_the_count() {
    let mut received = Received::NEW;
    enter(&mut received, 1_000, Verdict::Accepted);
    enter(&mut received, 744, Verdict::Accepted);
    enter(&mut received, 745, Verdict::Accepted);
    let (body, _) = ack(&mut received, 0);
    assert_eq!(body.accepted.iter().collect::<Vec<_>>(), [0, 255]);
    assert_eq!(body.packets, 3);
}

#[test]
//= MR-SEC-11 test
fn what_a_forged_probe_hides_is_found_again_by_the_next_data() {
    let mut received = Received::starting_at(Psn::new(FIRST));
    for psn in 0..10 {
        enter(&mut received, FIRST.wrapping_add(psn), Verdict::Accepted);
    }
    let far = FIRST.wrapping_add(20_000);
    assert!(received.is_plausible(Psn::new(far), 64));
    assert!(!received.is_plausible(Psn::new(far.wrapping_add(20_000)), 64));
    let probe = Arrival { proven: false, ..arrival(far, Ecn::NotEct) };
    received.on_packet(Instant::ZERO, probe, Verdict::Accepted, 8);
    assert_eq!(ack(&mut received, 0).0.largest, Psn::new(far));
    let next = FIRST.wrapping_add(10);
    assert_eq!(enter(&mut received, next, Verdict::Accepted), Due::Now);
    let (body, _) = ack(&mut received, 0);
    assert_eq!((body.largest, body.packets), (Psn::new(next), 12));
    assert!(body.accepted.contains(0) && !body.accepted.contains(1));
    // A PSN that came with a CSN stays, whatever comes late.
    enter(&mut received, far, Verdict::Accepted);
    enter(&mut received, next.wrapping_add(1), Verdict::Accepted);
    assert_eq!(ack(&mut received, 0).0.largest, Psn::new(far));
}
