//! Section 10: requests that are refused for want of a receive, and which of them fails at the limit.

use metaroce_core::ids::Msn;
use metaroce_core::wire::{DataHeader, Frame, NackReason, OpFlags, Opcode};
use metaroce_core::{Status, StreamId};

use super::script::{Script, vector};
use super::sender::{Packet, accept, data};
use crate::common::pair::outcome;
use crate::common::{MS, packets};

const NOT_READY: Frame = Frame::Nack { stream: StreamId(0), reason: NackReason::NoReceive, delay_us: 1_000 };

fn refuse(script: &mut Script, packet: &Packet) {
    script.ack(packet.path, packet.psn, &[], &[Frame::Refused(vector(&[0])), NOT_READY]);
}

/// Two SENDs on one stream, the second of them just refused once more than the limit allows: the first has gone
/// again, too, and has no verdict.
fn second_at_its_limit(seed: u64) -> (Script, Packet) {
    let mut script = Script::with(seed, |_, config, _| config.rnr_retries = Some(1));
    script.pair.send(1, 0, 1, 0..10);
    script.pair.send(1, 0, 2, 0..10);
    let first = data(&mut script);
    assert_eq!(first.len(), 2, "{first:?}");
    for packet in &first {
        refuse(&mut script, packet);
    }
    script.run(3 * MS / 2);
    let again = data(&mut script);
    let of = |msn| again.iter().find(|packet| packet.header.msn == Msn::new(msn)).copied().unwrap();
    refuse(&mut script, &of(1));
    script.sent();
    (script, of(0))
}

#[test]
//= MR-STR-17 test
//= MR-STR-20 test
fn at_the_limit_of_retries_the_first_request_fails_though_the_second_was_refused_before_it() {
    let (mut script, first) = second_at_its_limit(1);
    refuse(&mut script, &first);
    script.run(5 * MS);
    assert_eq!(
        outcome(&script.pair.completions(1)),
        [(1, Status::RnrExceeded), (2, Status::Flushed)],
        "one request exceeds the limit, and those after it are flushed"
    );
}

#[test]
//= MR-STR-17 test
fn an_earlier_request_that_is_accepted_meanwhile_starts_the_rounds_of_later_ones_anew() {
    let (mut script, first) = second_at_its_limit(2);
    accept(&mut script, &[first]);
    script.run(3 * MS / 2);
    let again = data(&mut script);
    // Twice, if its timeout comes meanwhile.
    let goes_again = |packet: &Packet| packet.header.csn == again[0].header.csn;
    assert!(again.iter().all(goes_again), "the second goes again: {again:?}");
    accept(&mut script, &again);
    script.sent();
    assert_eq!(outcome(&script.pair.completions(1)), [(1, Status::Success), (2, Status::Success)]);
}

#[test]
//= MR-STR-19 test
//= MR-STR-20 test
fn of_two_results_the_lower_counts_and_the_request_of_the_other_is_flushed() {
    let mut script = Script::new(3);
    for id in 0..4 {
        script.pair.send(1, 0, id, 0..10);
    }
    let sent = data(&mut script);
    for (msn, code) in [(2, 2), (1, 1)] {
        let csn = script.next_csn();
        let result = packets::header(Opcode::Result, OpFlags::IMMEDIATE, StreamId(0), csn, Msn::new(msn));
        script.data(0, DataHeader { immediate: Some(code), ..result }, b"");
    }
    accept(&mut script, &sent);
    script.sent();
    assert_eq!(
        outcome(&script.pair.completions(1)),
        [(0, Status::Success), (1, Status::RemoteAccess), (2, Status::Flushed), (3, Status::Flushed)]
    );
}
