use super::*;
use std::vec::Vec;

const TERMS: Terms = Terms { rate_kbps: 800_000_000, fabric_rtt_ns: 10_000, packet_bytes: 4_242 };
/// A demand that no rate satisfies, KiB.
const MUCH: u32 = 1 << 20;

fn at(us: u64) -> Instant {
    Instant::from_nanos(us * 1_000)
}

fn claim(timestamp: u32, bytes: u64, demand_kib: u32) -> Claim {
    Claim { timestamp, bytes, demand_kib }
}

/// What the division gives each sender once everyone has been heard of twice.
fn settle(division: &mut Division, senders: &mut [(Inflow, u32)]) -> Vec<u64> {
    for round in 1..3u32 {
        for (sender, demand) in senders.iter_mut() {
            sender.on_packet(division, &TERMS, at(u64::from(round)), claim(round, 4_242, *demand));
        }
    }
    senders.iter_mut().map(|(sender, _)| u64::from(sender.share_kbps(division, &TERMS))).collect()
}

//= MR-CC-19 test
#[test]
fn those_who_ask_for_little_get_it_and_the_others_divide_the_rest_evenly() {
    let mut division = Division::NEW;
    // 50 KiB in 10 µs is 40.96 Gbit/s.
    let mut senders = [(Inflow::NEW, 50), (Inflow::NEW, MUCH), (Inflow::NEW, MUCH)];
    let shares = settle(&mut division, &mut senders);
    let rest = (784_000_000 - 40_960_000) / 2;
    assert_eq!(shares.get(1..), Some([rest, rest].as_slice()));
    assert!(shares.first().is_some_and(|&share| share >= 40_960_000), "it may ask for more: {shares:?}");
}

//= MR-CC-19 test
#[test]
fn a_sender_alone_gets_98_percent_and_many_an_equal_part_each() {
    let mut division = Division::NEW;
    let mut alone = [(Inflow::NEW, MUCH)];
    assert_eq!(settle(&mut division, &mut alone), [784_000_000]);
    let mut division = Division::NEW;
    let mut many = [(Inflow::NEW, MUCH); 127];
    assert!(settle(&mut division, &mut many).iter().all(|&share| share == 784_000_000 / 127));
}

//= MR-CC-21 test
#[test]
fn a_sender_leaves_when_it_wants_nothing_or_is_silent_and_its_part_goes_to_the_others() {
    let mut division = Division::NEW;
    let mut senders = [(Inflow::NEW, MUCH); 4];
    settle(&mut division, &mut senders);
    let [(first, _), (second, _), (third, _), _] = &mut senders;
    first.on_packet(&mut division, &TERMS, at(9), claim(9, 4_242, 0));
    assert_eq!(u64::from(third.share_kbps(&mut division, &TERMS)), 784_000_000 / 3);
    let leaves = second.leaves_at(&TERMS, 10_000);
    assert_eq!(leaves, Some(at(2).after(20_000)), "two RTTs after its last packet");
    second.leave(&mut division);
    assert_eq!(second.leaves_at(&TERMS, 10_000), None);
    assert_eq!(u64::from(third.share_kbps(&mut division, &TERMS)), 784_000_000 / 2);
}

//= MR-CC-20 test
#[test]
fn a_sender_that_uses_less_than_it_asks_for_is_taken_at_twice_what_it_uses() {
    let mut division = Division::NEW;
    let (mut slow, mut fast) = (Inflow::NEW, Inflow::NEW);
    // One packet in 4 µs, 8.5 Gbit/s, though it asks for everything; the other uses what it is given.
    for step in 0..40u32 {
        let now = at(u64::from(step) * 4);
        slow.on_packet(&mut division, &TERMS, now, claim(step, 4_242, MUCH));
        let bytes = bytes_in(u64::from(fast.share_kbps(&mut division, &TERMS)), 4_000);
        fast.on_packet(&mut division, &TERMS, now, claim(step, bytes, MUCH));
        slow.share_kbps(&mut division, &TERMS);
    }
    let share = u64::from(fast.share_kbps(&mut division, &TERMS));
    assert!((760_000_000..=768_000_000).contains(&share), "{share}");
}

#[test]
fn what_an_overtaken_packet_asks_for_is_out_of_date() {
    let mut division = Division::NEW;
    let mut sender = Inflow::NEW;
    sender.on_packet(&mut division, &TERMS, at(1), claim(10, 4_242, 0));
    sender.on_packet(&mut division, &TERMS, at(2), claim(9, 4_242, MUCH));
    assert_eq!(division, Division::NEW);
}

#[test]
fn demands_that_add_up_to_too_much_still_leave_everyone_an_equal_part() {
    let mut division = Division { active: 4, hungry: 0, satisfied_kbps: 900_000_000 };
    let mut sender = Inflow::NEW;
    assert_eq!(u64::from(sender.share_kbps(&mut division, &TERMS)), 784_000_000 / 5);
}

#[test]
fn what_is_left_over_is_not_promised_to_everyone_at_once() {
    let mut division = Division::NEW;
    // Each asks for 4 KiB in 10 µs, 3.3 Gbit/s.
    let mut senders = [(Inflow::NEW, 4); 100];
    let shares = settle(&mut division, &mut senders);
    assert!(shares.iter().sum::<u64>() <= 2 * 784_000_000, "{shares:?}");
    let mut late = Inflow::NEW;
    assert_eq!(u64::from(late.share_kbps(&mut division, &TERMS)), 784_000_000 / 101);
}

/// Whether a sender is still in the division after it asked for much, and then, `later` of its time stamps on and after
/// `pause_ns`, for nothing.
fn stays(later: u32, pause_ns: u64) -> bool {
    let mut division = Division::NEW;
    let mut sender = Inflow::NEW;
    sender.on_packet(&mut division, &TERMS, at(1), claim(100, 4_242, MUCH));
    let now = at(1).after(pause_ns);
    sender.on_packet(&mut division, &TERMS, now, claim(100_u32.wrapping_add(later), 4_242, 0));
    sender.leaves_at(&TERMS, 10_000).is_some()
}

#[test]
fn what_an_older_packet_asks_for_counts_no_more_until_time_stamps_may_have_gone_round() {
    for older in [1, 2, 1 << 31] {
        assert!(stays(0_u32.wrapping_sub(older), 1_000), "{older} before");
        assert!(stays(0_u32.wrapping_sub(older), FORGET_NS), "{older} before");
        assert!(!stays(0_u32.wrapping_sub(older), FORGET_NS + 1), "{older} before, a pause ago");
        assert!(!stays(0_u32.wrapping_sub(older), 2 * FORGET_NS), "{older} before, a pause ago");
    }
    for newer in [0, 1, (1 << 31) - 1] {
        assert!(!stays(newer, 1_000), "{newer} behind");
    }
}
