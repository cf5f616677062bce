//! Shares of the receiver's inbound rate, and what a sender makes of them.

use std::collections::BTreeSet;

use metaroce_core::ids::Serial as _;
use metaroce_core::wire::PacketType;

use super::super::case::Case;
use super::super::control::Settings;
use super::super::link::Link;
use super::super::packet::Packet;
use super::super::script::{MS, S, Script, Treat, US};
use super::super::stop::{Outcome, Stop};
use super::acknowledgements::calm;
use super::paths::data;
use super::requests::{local, write_request};

pub(super) const CASES: &[Case] = &[
    Case::new(
        "shares/max-min",
        "98 % of the inbound rate is divided max-min among those who ask for more than they get",
        &["MR-CC-19", "MR-CC-24"],
        max_min,
    )
    .with(RATE),
    Case::new(
        "shares/leaving",
        "who asks for nothing, or falls silent, leaves the division",
        &["MR-CC-21"],
        leaving,
    )
    .with(RATE),
    Case::new(
        "shares/doubted demand",
        "a demand counts for twice the measured rate at most, once more was allotted for a while",
        &["MR-CC-20"],
        doubted,
    )
    .with(RATE),
    Case::new("shares/lowered", "a sender keeps to the share that it was told last", &["MR-CC-22"], lowered),
    Case::new("shares/stale", "a share that is old limits nobody", &["MR-CC-22"], stale),
    Case::new("shares/zero", "a share of 0 counts as none, and stops nobody", &["MR-CC-23"], zero),
    Case::new(
        "shares/announcement",
        "who may start with less than a packet asks first, waits for a PTO at most, and then sends one packet",
        &["MR-CC-14"],
        announcement,
    ),
    Case::new(
        "shares/start allowance",
        "ACCEPT carries the part of one connection, and START tells when it halved",
        &["MR-CC-15"],
        allowance,
    )
    .with(RATE),
];

/// The inbound rate of the device, kbit/s: 10 Gb/s.
const KBPS: u32 = 10_000_000;
const RATE: Settings = Settings { inbound_rate_kbps: Some(KBPS), ..Settings::NONE };

/// What is divided.
const GIVEN_KBPS: u32 = KBPS / 100 * 98;

/// More than the whole rate.
const HUGE_KIB: u32 = 1 << 20;

/// The fabric's RTT by which demands are divided, T of MR-CC-19, for sockets.
const T_NS: u64 = MS;

/// Tells a demand, and returns the share that the answer carries, kbit/s.
fn ask(s: &mut Script<'_>, link: &mut Link, demand_kib: u32) -> Outcome<u32> {
    let mark = s.mark();
    let (token, _) = s.send_demand(link, 0, 0xffff, demand_kib)?;
    let reply = s.expect("MR-ACK-22", mark, "a PROBE_REPLY", |packet| packet.reply_token() == Some(token))?;
    let block = reply.block_of(0);
    block
        .map(|block| block.body.share_kbps)
        .ok_or_else(|| Stop::failed("MR-ACK-22", "the reply has no block"))
}

/// Whether a share is as it must be, to 1 %.
fn near(share: u32, wanted: u32) -> bool {
    share.abs_diff(wanted) <= wanted / 100
}

/// What is divided depends on the time between packets, to a millisecond: sockets of a busy machine don't keep that.
fn exact_only(s: &Script<'_>) -> Outcome {
    if s.is_exact() {
        return Ok(());
    }
    Err(Stop::NotApplicable("over UDP packets are not on time to a millisecond".to_owned()))
}

//= MR-CC-19, MR-CC-24 test
fn max_min(s: &mut Script<'_>) -> Outcome {
    exact_only(s)?;
    let mut links = [s.connect()?, s.connect()?, s.connect()?];
    let [first, second, third] = &mut links;
    let alone = ask(s, first, HUGE_KIB)?;
    s.check("MR-CC-19", near(alone, GIVEN_KBPS), || {
        format!("a sender alone is told {alone} kbit/s of {KBPS}, 98 % are due")
    })?;
    let half = [ask(s, second, HUGE_KIB)?, ask(s, first, HUGE_KIB)?];
    s.check("MR-CC-19", half.into_iter().all(|share| near(share, GIVEN_KBPS / 2)), || {
        format!("two that ask for everything are told {half:?} kbit/s, half of {GIVEN_KBPS} is due")
    })?;
    // 125 KiB in an RTT of the fabric.
    let wanted = 125 * 1024 * 8;
    let small = ask(s, third, 125)?;
    s.check("MR-CC-19", small >= wanted, || {
        format!("a sender that asks for {wanted} kbit/s, less than a third, is told {small}")
    })?;
    let rest = [ask(s, first, HUGE_KIB)?, ask(s, second, HUGE_KIB)?];
    s.check("MR-CC-19", rest.into_iter().all(|share| near(share, (GIVEN_KBPS - wanted) / 2)), || {
        format!(
            "beside a sender of {wanted} kbit/s two others are told {rest:?}, half of what is left is due"
        )
    })
}

//= MR-CC-21 test
fn leaving(s: &mut Script<'_>) -> Outcome {
    exact_only(s)?;
    let mut links = [s.connect()?, s.connect()?];
    let [first, second] = &mut links;
    ask(s, first, HUGE_KIB)?;
    ask(s, second, HUGE_KIB)?;
    let half = ask(s, first, HUGE_KIB)?;
    s.check("MR-CC-19", near(half, GIVEN_KBPS / 2), || format!("one of two is told {half} kbit/s"))?;
    ask(s, second, 0)?;
    let alone = ask(s, first, HUGE_KIB)?;
    s.check("MR-CC-21", near(alone, GIVEN_KBPS), || {
        format!("after the other asked for nothing a sender is told {alone} kbit/s, all {GIVEN_KBPS} are due")
    })?;
    ask(s, second, HUGE_KIB)?;
    s.run(10 * T_NS)?;
    let alone = ask(s, first, HUGE_KIB)?;
    s.check("MR-CC-21", near(alone, GIVEN_KBPS), || {
        format!(
            "after the other was silent for 10 ms a sender is told {alone} kbit/s, all {GIVEN_KBPS} are due"
        )
    })
}

//= MR-CC-20 test
fn doubted(s: &mut Script<'_>) -> Outcome {
    exact_only(s)?;
    let mut links = [s.connect()?, s.connect()?];
    let [first, second] = &mut links;
    ask(s, first, HUGE_KIB)?;
    let before = ask(s, second, HUGE_KIB)?;
    // Both ask for everything and send some hundred bytes in a millisecond.
    let until = s.now() + 15 * T_NS;
    let mut after = before;
    while s.now() < until {
        ask(s, first, HUGE_KIB)?;
        after = ask(s, second, HUGE_KIB)?;
        s.run(200 * US)?;
    }
    ask(s, second, 0)?;
    s.check("MR-CC-20", after > GIVEN_KBPS / 10 * 4, || format!("a sender is told {after} kbit/s"))?;
    // What the doubted ones hold is little: a third gets nearly all.
    let mut third = s.connect()?;
    ask(s, first, HUGE_KIB)?;
    let rest = ask(s, &mut third, HUGE_KIB)?;
    s.check("MR-CC-20", rest > GIVEN_KBPS / 10 * 9, || {
        format!(
            "beside a sender that never used what it asks for another is told {rest} of {GIVEN_KBPS} kbit/s"
        )
    })
}

/// Bytes of DATA on the wire, framing included, that came in a window of time.
fn wire_bytes(s: &Script<'_>, mark: usize, from_ns: u64, to_ns: u64) -> u64 {
    let inside = |packet: &&Packet| (from_ns..to_ns).contains(&packet.at_ns);
    data(s, mark).iter().filter(inside).map(|packet| packet.bytes.len() as u64 + 66).sum()
}

/// Has the device send without end, told `kbps`; returns what came in `span_ns` after some time to settle, kbit/s.
fn rate_at(s: &mut Script<'_>, link: &mut Link, kbps: u32, span_ns: u64) -> Outcome<u64> {
    link.share_kbps = kbps;
    let mark = s.mark();
    let from = s.now() + s.pick(8 * MS, 30 * MS);
    let span = from + span_ns - s.now();
    s.serve(link, span, &mut |_| Treat::Accept, &mut |_, _| Ok(false))?;
    Ok(wire_bytes(s, mark, from, from + span_ns) * 8_000_000 / span_ns)
}

//= MR-CC-22 test
fn lowered(s: &mut Script<'_>) -> Outcome {
    const HIGH: u32 = 400_000;
    const LOW: u32 = 80_000;
    let region = s.region(1 << 20)?;
    let mut link = s.connect_with(|asked| asked.paths = 2, 0)?;
    calm(s, &mut link)?;
    for id in 0..8 {
        s.post(&link, 0, id, write_request(5, 0), local(&region, 0, 1 << 20))?;
    }
    for share in [HIGH, LOW, HIGH] {
        let rate = rate_at(s, &mut link, share, 40 * MS)?;
        s.check("MR-CC-22", rate <= u64::from(share) * 11 / 10, || {
            format!("a sender that is told {share} kbit/s sends {rate}")
        })?;
        s.check("MR-CC-22", !s.is_exact() || rate >= u64::from(share) / 2, || {
            format!("a sender with much to send and a share of {share} kbit/s sends {rate}")
        })?;
    }
    Ok(())
}

//= MR-CC-22 test
fn stale(s: &mut Script<'_>) -> Outcome {
    exact_only(s)?;
    let region = s.region(1024)?;
    let mut link = s.connect_with(|asked| asked.paths = 2, 0)?;
    calm(s, &mut link)?;
    // At 800 kbit/s a packet of a kilobyte takes 10 ms, a full one 42.
    link.share_kbps = 800;
    s.post(&link, 0, 1, write_request(5, 0), local(&region, 0, 8))?;
    s.serve_completion("MR-OP-9", &mut link, 1)?;
    s.run(S)?;
    let mark = s.mark();
    for id in 2..5 {
        s.post(&link, 0, id, write_request(5, 0), local(&region, 0, 1000))?;
    }
    s.run(5 * MS)?;
    let came = data(s, mark).len();
    s.check("MR-CC-22", came >= 3, || {
        format!("a share of a second ago lets {came} of 3 packets out in 5 ms")
    })?;
    s.serve_completion("MR-OP-9", &mut link, 4)?;
    Ok(())
}

//= MR-CC-23 test
fn zero(s: &mut Script<'_>) -> Outcome {
    let region = s.region(1 << 16)?;
    let mut link = s.connect_with(|asked| asked.paths = 2, 0)?;
    link.share_kbps = 0;
    calm(s, &mut link)?;
    s.post(&link, 0, 1, write_request(5, 0), local(&region, 0, 1 << 16))?;
    let span = s.pick(S, 5 * S);
    s.serve(&mut link, span, &mut |_| Treat::Accept, &mut |s, _| Ok(s.completion(1)?.is_some()))?;
    let done = s.completion(1)?.is_some();
    s.check("MR-CC-23", done, || "64 KiB are not sent in a second, the share is told as 0".to_owned())
}

//= MR-CC-14 test
fn announcement(s: &mut Script<'_>) -> Outcome {
    let region = s.region(1 << 14)?;
    let open =
        |s: &mut Script<'_>| s.connect_with(|asked| (asked.paths, asked.start_allowance_kib) = (2, 0), 0);
    // Full packets that came by then. What a timeout sends again, on a slow machine, is none more.
    let full = |s: &Script<'_>, mark: usize, until: u64| {
        let csn = |packet: Packet| {
            let (header, bytes) = packet.data()?;
            (bytes.len() > 256 && packet.at_ns <= until).then_some(header.csn.raw())
        };
        data(s, mark).into_iter().filter_map(csn).collect::<BTreeSet<u32>>().len()
    };
    // Without an answer: a PROBE, then, after the PTO, one packet.
    let mut link = open(s)?;
    calm(s, &mut link)?;
    let (mark, start) = (s.mark(), s.now());
    s.post(&link, 0, 1, write_request(5, 0), local(&region, 0, 1 << 14))?;
    s.run(4 * MS)?;
    // What was waited for too long is not early.
    let early = full(s, mark, start + s.pick(5 * MS, 4 * MS));
    s.check("MR-CC-14", early == 0, || {
        format!("{early} packets were sent 4 ms after a start without allowance, nothing was answered")
    })?;
    let demand = s.since(mark).iter().filter_map(Packet::probe).map(|probe| probe.demand_kib).max();
    let small =
        data(s, mark).into_iter().find_map(|packet| packet.data().map(|(header, _)| header.demand_kib));
    s.check("MR-CC-14", demand.or(small).is_some_and(|kib| kib > 0), || {
        format!("the start is announced with a demand of {demand:?} KiB")
    })?;
    let late = s.expect("MR-CC-14", mark, "a packet after the PTO", |packet| {
        packet.data().is_some_and(|(_, bytes)| bytes.len() > 256)
    })?;
    s.run(s.pick(2 * MS, MS))?;
    let count = full(s, mark, u64::MAX);
    s.check("MR-CC-14", count == 1, || {
        format!(
            "{count} packets are sent after a PTO without an answer, the first as PSN {}",
            late.base.psn.raw()
        )
    })?;
    s.serve_completion("MR-CC-14", &mut link, 1)?;
    // With one: data follows at once.
    let mut link = open(s)?;
    calm(s, &mut link)?;
    let mark = s.mark();
    let start = s.now();
    s.post(&link, 0, 2, write_request(5, 0), local(&region, 0, 1 << 14))?;
    s.serve_completion("MR-CC-14", &mut link, 2)?;
    let first = data(s, mark).first().map_or(u64::MAX, |packet| packet.at_ns - start);
    s.check("MR-CC-14", !s.is_exact() || first < 5 * MS, || {
        format!("the first packet leaves {first} ns after the start, and a share was told at once")
    })?;
    let probes = s.since(mark).iter().any(|packet| packet.is(PacketType::Probe));
    s.check("MR-CC-14", probes, || "a start without allowance is not announced".to_owned())
}

//= MR-CC-15 test
fn allowance(s: &mut Script<'_>) -> Outcome {
    let first = s.connect()?;
    let mark = s.mark();
    let told = first.terms.start_allowance_kib;
    // One BDP: the rate for T.
    let whole = u64::from(KBPS) * T_NS / 8_000_000 / 1024;
    s.check("MR-CC-15", u64::from(told).abs_diff(whole) <= whole / 20, || {
        format!("the first ACCEPT allows {told} KiB, one BDP of {whole} KiB is due")
    })?;
    let second = s.connect()?;
    let half = second.terms.start_allowance_kib;
    s.check("MR-CC-15", half.abs_diff(told / 2) <= told / 20, || {
        format!("the second ACCEPT allows {half} KiB, the first {told}")
    })?;
    for _ in 0..3 {
        s.connect()?;
    }
    let mine = first.mine();
    let frame = s.expect("MR-CC-15", mark, "START to a connection whose allowance halved", |packet| {
        packet.base.connection.0 == mine && packet.start_frame().is_some()
    })?;
    let now = frame.start_frame().unwrap_or(u32::MAX);
    s.check("MR-CC-15", now <= told / 2 + told / 20, || {
        format!("START tells {now} KiB, ACCEPT told {told}, and there are up to five connections")
    })
}
