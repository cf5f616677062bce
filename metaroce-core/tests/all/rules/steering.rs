//! Section 7: what marks and losses on one path mean for it and for its siblings.

use metaroce_core::ids::Psn;
use metaroce_core::wire::{AckBody, Frame, PacketType};
use metaroce_core::{PathId, PathState, PathStats};

use super::script::{EMPTY, Script, vector};
use super::sender::{accept, data, path};
use crate::common::MS;

/// One in 2^16.
const ONE: u32 = 1 << 16;

/// Host 1 sends; its peer counts for each path what arrived, and what of it was marked.
struct Steered {
    script: Script,
    /// By path: packets and marked packets that the peer has told of.
    told: [(u32, u32); 8],
}

impl Steered {
    fn new(seed: u64) -> Self {
        let mut script = Script::with(seed, |_, config, limits| {
            config.reorder_tolerance = 0;
            // Some dozens of packets in flight on each path.
            config.window_bytes_start = 1 << 20;
            config.inbound_rate_kbps = 1_000_000_000;
            limits.csn_window = 1 << 12;
            limits.packets = 1 << 12;
        });
        script.sent();
        let mut told = [(0, 0); 8];
        for sent in script.tape.borrow().0.iter().filter(|sent| sent.from == 0) {
            let Some((first, frames)) = sent.ack() else { continue };
            let others = frames.iter().filter_map(|frame| match frame {
                Frame::Ack(block) => Some(*block),
                _ => None,
            });
            for block in others.chain([first]) {
                let (packets, marked) = &mut told[usize::from(block.path.0)];
                (*packets, *marked) = (block.packets.max(*packets), block.marked.max(*marked));
            }
        }
        Self { script, told }
    }

    fn last_psn(&self, number: u8) -> Psn {
        let tape = self.script.tape.borrow();
        let of_path = |sent: &&super::tape::Sent| {
            sent.from == 1 && sent.base().kind.takes_psn() && sent.base().path == PathId(number)
        };
        tape.0.iter().rfind(of_path).unwrap().base().psn
    }

    /// The peer received `packets` more on a path, of which `marked` were; it told of them before, so nothing is lost.
    fn count(&mut self, number: u8, packets: u32, marked: u32) {
        let largest = self.last_psn(number);
        self.block(
            AckBody {
                path: PathId(number),
                largest,
                accepted: vector(&(0..256).collect::<Vec<_>>()),
                ..EMPTY
            },
            packets,
            marked,
        );
    }

    fn block(&mut self, body: AckBody, packets: u32, marked: u32) {
        let told = &mut self.told[usize::from(body.path.0)];
        *told = (told.0 + packets, told.1 + marked);
        let (packets, marked) = *told;
        self.script.ack_body(AckBody { packets, marked, ..body }, &[]);
    }

    fn path(&mut self, number: u8) -> PathStats {
        path(&mut self.script, number)
    }

    fn windows(&mut self) -> [u64; 8] {
        [0, 1, 2, 3, 4, 5, 6, 7].map(|number| self.path(number).window_bytes)
    }

    fn rtt_ns(&mut self) -> u64 {
        self.path(0).rtt_ns_smoothed
    }
}

#[test]
//= MR-PATH-29 test
fn the_marked_fraction_is_smoothed_over_16_packets() {
    let mut steered = Steered::new(1);
    steered.count(0, 16, 0);
    steered.count(0, 8, 2);
    assert_eq!(steered.path(0).marked_fraction, ONE / 8, "half of the weight for 8 packets");
    steered.count(0, 4, 0);
    assert_eq!(steered.path(0).marked_fraction, ONE / 8 / 16 * 12);
    steered.count(0, 1_000, 250);
    assert_eq!(steered.path(0).marked_fraction, ONE / 4, "all of the weight for 1,000");
    assert_eq!(steered.path(0).lost_fraction, 0);
}

#[test]
//= MR-PATH-29 test
fn a_path_is_congested_from_a_quarter_on_until_less_than_a_sixteenth_is_marked() {
    let mut steered = Steered::new(2);
    for (marked, state) in [
        (15, PathState::Good),
        (16, PathState::Congested),
        (4, PathState::Congested),
        (3, PathState::Good),
        (15, PathState::Good),
    ] {
        steered.count(3, 64, marked);
        assert_eq!(steered.path(3).state, state, "{marked} of 64 are marked");
    }
}

/// Windows after path 0 was marked, its siblings' by how much they grew; its own cut must be as the rule says.
fn grown(steered: &mut Steered) -> [u64; 7] {
    // What came before is another period.
    steered.count(0, 4, 0);
    let rtt = steered.rtt_ns();
    steered.script.run(2 * rtt);
    let before = steered.windows();
    let alpha = u64::from(ONE) / 16;
    steered.count(0, 64, 64);
    let after = steered.windows();
    assert_eq!(before[0] - after[0], before[0] * alpha / (2 * u64::from(ONE)), "its own cut");
    std::array::from_fn(|number| after[number + 1] - before[number + 1])
}

#[test]
fn what_a_mark_takes_off_a_window_goes_to_clear_siblings_in_equal_parts() {
    let mut steered = Steered::new(3);
    let cut = steered.path(0).window_bytes / 32;
    assert!(cut > 100, "{cut}");
    assert_eq!(grown(&mut steered), [cut / 7; 7]);
    // Three of seven are marked, if not much: the other four take it all.
    let mut steered = Steered::new(3);
    for number in 1..4 {
        steered.count(number, 64, 8);
    }
    let cut = steered.path(0).window_bytes / 32;
    assert_eq!(grown(&mut steered), [0, 0, 0, cut / 4, cut / 4, cut / 4, cut / 4]);
    // Four of seven: the plane is full, and nobody takes it.
    let mut steered = Steered::new(3);
    for number in 1..5 {
        steered.count(number, 64, 8);
    }
    assert_eq!(grown(&mut steered), [0; 7]);
    let mut steered = Steered::new(3);
    for number in 1..8 {
        steered.count(number, 64, 8);
    }
    assert_eq!(grown(&mut steered), [0; 7], "none is clear");
}

#[test]
//= MR-PATH-29 test
fn a_path_that_stays_congested_moves_after_16_round_trips_and_again_after_32() {
    let mut steered = Steered::new(4);
    let (rtt, before) = (steered.rtt_ns(), steered.path(0));
    steered.count(0, 64, 64);
    steered.script.run(15 * rtt);
    steered.count(0, 64, 64);
    assert_eq!(steered.path(0).repaths, before.repaths, "15 round trips are too few");
    steered.script.run(rtt + rtt / 8);
    steered.count(0, 64, 64);
    let moved = steered.path(0);
    assert_eq!((moved.repaths, moved.state), (before.repaths + 1, PathState::Good));
    assert!(moved.source_port != before.source_port && moved.epoch == before.epoch.wrapping_add(1));
    assert_eq!((moved.marked_fraction, moved.mtu_bytes), (0, before.mtu_bytes));
    steered.count(0, 64, 64);
    steered.script.run(24 * rtt);
    steered.count(0, 64, 64);
    assert_eq!(steered.path(0).repaths, moved.repaths, "24 round trips after it moved");
    steered.script.run(8 * rtt + rtt / 8);
    steered.count(0, 64, 64);
    assert_eq!(steered.path(0).repaths, moved.repaths + 1);
}

#[test]
//= MR-PATH-29 test
fn of_two_congested_paths_one_moves_in_a_round_trip() {
    let mut steered = Steered::new(5);
    let rtt = steered.rtt_ns();
    for number in [0, 1] {
        steered.count(number, 64, 64);
    }
    steered.script.run(17 * rtt);
    let repaths = |steered: &mut Steered| steered.path(0).repaths + steered.path(1).repaths;
    let before = repaths(&mut steered);
    for number in [0, 1] {
        steered.count(number, 64, 64);
    }
    assert_eq!(repaths(&mut steered), before + 1, "an eighth of eight");
    steered.script.run(rtt + rtt / 8);
    steered.count(1, 64, 64);
    assert_eq!(repaths(&mut steered), before + 2);
}

#[test]
//= MR-PATH-29 test
//= MR-PATH-31 test
fn nothing_moves_unless_half_of_the_siblings_are_clear() {
    for (marked, moves) in [(3, 1), (4, 0), (7, 0)] {
        let mut steered = Steered::new(6);
        let (rtt, before) = (steered.rtt_ns(), steered.path(0).repaths);
        for number in 1..=marked {
            steered.count(number, 64, 8);
        }
        steered.count(0, 64, 64);
        steered.script.run(17 * rtt);
        steered.count(0, 64, 64);
        assert_eq!(steered.path(0).repaths - before, moves, "{marked} of 7 siblings are marked");
        assert_eq!(steered.path(0).state == PathState::Congested, moves == 0);
    }
}

/// Loses most packets in flight on each of the first `paths`, and tells how often path 0 moved.
fn moves_of_lossy(paths: u8) -> u32 {
    let mut steered = Steered::new(7);
    let before = steered.path(0).repaths;
    // Too little is known of the siblings for them to move.
    steered.count(0, 64, 0);
    steered.script.pair.write(1, 0, 1, 0..4_000_000, 0, None);
    let sent = data(&mut steered.script);
    // Only the newest of each lossy path arrived. Path 0 is judged last: it sees how the others fare.
    for number in (0..paths).rev() {
        let largest = steered.last_psn(number);
        let body = AckBody { path: PathId(number), largest, accepted: vector(&[0]), ..EMPTY };
        steered.block(body, 1, 0);
        let lost = steered.path(number).lost_fraction;
        assert!(number == 0 || lost >= ONE / 32, "path {number}: {lost} of {} sent", sent.len());
    }
    steered.path(0).repaths - before
}

#[test]
//= MR-PATH-30 test
fn a_path_that_loses_far_more_than_most_siblings_moves_and_not_when_they_lose_as_much() {
    assert_eq!([1, 4, 5, 8].map(moves_of_lossy), [1, 1, 0, 0]);
}

#[test]
//= MR-PATH-9 test
//= MR-PATH-11 test
fn a_marked_path_counts_as_fuller_than_it_is() {
    let mut steered = Steered::new(8);
    // Twice and a half as full.
    steered.count(0, 64, 48);
    for number in 4..8 {
        steered.count(number, 64, 64);
    }
    steered.script.run(MS);
    steered.script.pair.write(1, 0, 1, 0..4 * 4_000, 0, None);
    let sent = data(&mut steered.script);
    let paths: Vec<_> = sent.iter().map(|packet| packet.path).collect();
    assert!(paths.len() >= 4, "{paths:?}");
    assert!(paths.iter().take(3).all(|path| (1..4).contains(path)), "the clear ones first: {paths:?}");
    assert!(
        !paths.iter().take(4).any(|path| *path == 0),
        "a second one on a clear path is better: {paths:?}"
    );
}

/// Kinds of packets on `path` that were sent since the last call, after `span_ns` more.
fn kinds(steered: &mut Steered, path: u8, span_ns: u64) -> Vec<PacketType> {
    steered.script.run(span_ns);
    let sent = steered.script.sent();
    sent.iter()
        .map(super::tape::Sent::base)
        .filter(|base| base.path == PathId(path))
        .map(|base| base.kind)
        .collect()
}

#[test]
//= MR-LOSS-22 test
fn a_probe_follows_the_last_packet_of_a_path_that_loses_after_a_quarter_of_a_round_trip() {
    for loses in [false, true] {
        let mut steered = Steered::new(9);
        steered.script.pair.write(1, 0, 1, 0..400_000, 0, None);
        let sent = data(&mut steered.script);
        for number in 0..8 {
            let largest = steered.last_psn(number);
            let lost = u32::from(loses);
            let arrived: Vec<u32> =
                (0..256).filter(|back| *back != lost).chain((lost == 0).then_some(0)).collect();
            let body = AckBody { path: PathId(number), largest, accepted: vector(&arrived), ..EMPTY };
            steered.block(body, 1, 0);
        }
        let again = data(&mut steered.script);
        assert_eq!(again.len(), if loses { 8 } else { 0 }, "of {}", sent.len());
        accept(&mut steered.script, &again);
        // A path of its own choice has the last packet.
        steered.script.pair.write(1, 0, 2, 0..100, 0, None);
        let [last] = data(&mut steered.script)[..] else { panic!("one packet") };
        let rtt = path(&mut steered.script, last.path).rtt_ns_smoothed;
        assert_eq!(kinds(&mut steered, last.path, rtt / 4 - 1_000), []);
        let follows = kinds(&mut steered, last.path, 2_000);
        assert_eq!(follows, vec![PacketType::Probe; usize::from(loses)]);
        assert_eq!(kinds(&mut steered, last.path, rtt / 2), [], "one is enough");
    }
}
