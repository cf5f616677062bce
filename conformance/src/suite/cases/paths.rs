//! Spraying, death and return of paths, sizes, windows: MR-PATH, MR-CC.

use std::collections::{BTreeMap, BTreeSet};

use metaroce_core::Ecn;
use metaroce_core::ids::Serial as _;
use metaroce_core::wire::PacketType;

use super::super::case::{Case, Profile};
use super::super::control::{Command, DeviceEvent, Settings};
use super::super::link::{Link, Region, write};
use super::super::packet::Packet;
use super::super::port::Source;
use super::super::script::{MS, S, Script, Shot, Treat};
use super::super::stop::{Outcome, Stop};
use super::acknowledgements::calm;
use super::loss::TOO_BUSY;
use super::loss::path;
use super::requests::{local, write_request};

pub(super) const CASES: &[Case] = &[
    Case::new(
        "paths/spray",
        "new packets go to the least loaded path: all carry alike, each from its port",
        &["MR-PATH-2", "MR-PATH-9"],
        spray,
    )
    .of(Profile::Multipath),
    Case::new(
        "paths/any source port",
        "packets of a path are taken from any source port of the peer",
        &["MR-PATH-5"],
        any_port,
    ),
    Case::new(
        "paths/death and return",
        "a path that falls silent loses its data and its packets to the others, is probed by other routes, and returns after three answers",
        &[
            "MR-PATH-12", "MR-PATH-14", "MR-PATH-18", "MR-PATH-19", "MR-PATH-21", "MR-PATH-22", "MR-PATH-23",
            "MR-PATH-25",
        ],
        death,
    )
    .of(Profile::Multipath),
    Case::new(
        "paths/failure",
        "a connection fails when nothing progressed for the failure time, and not before",
        &["MR-PATH-26", "MR-CLS-18"],
        failure,
    )
    .with(Settings { fail_after_ms: Some(700), ..Settings::NONE }),
    Case::new(
        "paths/keepalive",
        "an idle connection is probed after the keepalive time, over its paths in rotation",
        &["MR-PATH-28"],
        keepalive,
    )
    .with(Settings { keepalive_ms: Some(150), ..Settings::NONE }),
    Case::new(
        "paths/small MTU",
        "while large PROBEs go unanswered no packet exceeds 1,232 bytes, and smaller sizes are tried, five times each",
        &["MR-PATH-33", "MR-PATH-34"],
        small_mtu,
    ),
    Case::new(
        "paths/found MTU",
        "once a size is answered, packets use it and no more",
        &["MR-PATH-33", "MR-PATH-35"],
        found_mtu,
    ),
    Case::new(
        "paths/marks",
        "marks shrink the windows",
        &["MR-CC-1", "MR-CC-2", "MR-CC-3"],
        marks,
    ),
    Case::new("paths/losses", "a little loss without marks shrinks no window", &["MR-CC-8"], losses),
    Case::new(
        "paths/bytes in flight",
        "the bytes in flight keep to the configured limit",
        &["MR-CC-11"],
        in_flight,
    )
    .with(Settings { window_bytes_max: Some(16_384), ..Settings::NONE }),
];

/// The device's DATA since `mark`.
pub(super) fn data(s: &Script<'_>, mark: usize) -> Vec<Packet> {
    s.since(mark).iter().filter(|packet| packet.data().is_some()).cloned().collect()
}

/// How many CSNs the device has used since `mark`.
fn sent_csns(s: &Script<'_>, mark: usize) -> usize {
    let csns = data(s, mark).into_iter().filter_map(|packet| Some(packet.data()?.0.csn.raw()));
    csns.collect::<BTreeSet<u32>>().len()
}

//= MR-PATH-2, MR-PATH-9 test
fn spray(s: &mut Script<'_>) -> Outcome {
    let region = s.region(1 << 16)?;
    for attempt in 0..MOST_ATTEMPTS {
        let mut link = s.connect()?;
        if link.paths() < 2 {
            return Err(Stop::NotApplicable("the device grants one path".to_owned()));
        }
        calm(s, &mut link)?;
        let (mark, count) = (s.mark(), u64::from(link.paths()) * 2);
        let first = attempt * 1_000;
        for id in first..first + count {
            s.post(&link, 0, id, write_request(5, 0), local(&region, 0, 1000))?;
        }
        let until = s.now() + s.pick(MS / 2, 4 * S);
        while s.now() < until && (sent_csns(s, mark) as u64) < count {
            s.run(s.pick(MS / 20, MS))?;
        }
        // What a timeout sends again, and elsewhere, loads the paths that it takes.
        let undisturbed = s.is_exact() || data(s, mark).len() == sent_csns(s, mark);
        if undisturbed {
            judge_spray(s, &link, mark)?;
        }
        s.serve_completion("MR-OP-9", &mut link, first)?;
        if undisturbed {
            return Ok(());
        }
        s.serve_completion("MR-OP-9", &mut link, first + count - 1)?;
    }
    Err(Stop::Skipped(TOO_BUSY.to_owned()))
}

/// Attempts on a slow machine.
const MOST_ATTEMPTS: u64 = 8;

/// The paths that carried the device's packets since `mark`.
fn judge_spray(s: &Script<'_>, link: &Link, mark: usize) -> Outcome {
    let mut counts: BTreeMap<u8, usize> = BTreeMap::new();
    let (mut seen, mut ports) = (BTreeSet::new(), BTreeSet::new());
    for packet in data(s, mark) {
        let Some((header, _)) = packet.data() else { continue };
        if seen.insert(header.csn.raw()) {
            *counts.entry(packet.base.path.0).or_default() += 1;
            ports.insert(packet.source_port);
        }
    }
    s.check("MR-PATH-9", counts.len() == usize::from(link.paths()), || {
        format!("{} packets over {} paths go as {counts:?}", seen.len(), link.paths())
    })?;
    s.check("MR-PATH-2", ports.len() == counts.len(), || format!("{} paths use {ports:?}", counts.len()))?;
    let most = counts.values().max().copied().unwrap_or(0);
    s.check("MR-PATH-9", !s.is_exact() || most <= 3, || format!("equal paths carry {counts:?}"))
}

//= MR-PATH-5 test
fn any_port(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = s.connect()?;
    let sources = [Source::Main, Source::Other(1), Source::Other(2), Source::Other(3), Source::Other(4)];
    for (msn, source) in (0..).zip(sources) {
        let mark = s.mark();
        let shot = Shot { source: Some(source), ..Shot::on(0) };
        let fired = s.fire(&mut link, shot, &write(&region, 0, b"x").on(0, msn))?;
        s.expect("MR-PATH-5", mark, &format!("an ACK of a packet from {source:?}"), |packet| {
            packet.block_of(0).is_some_and(|block| block.accepts(fired.psn))
        })?;
    }
    Ok(())
}

/// Keeps the device sending: up to eight WRITEs of 1,000 bytes at a time, for `span_ns`.
pub(super) fn traffic(
    s: &mut Script<'_>,
    link: &mut Link,
    region: &Region,
    next: &mut u64,
    span_ns: u64,
    policy: &mut dyn FnMut(&Packet) -> Treat,
) -> Outcome {
    let until = s.now() + span_ns;
    while s.now() < until {
        let done = s.completed_ids()?.len() as u64;
        while *next < done + 8 {
            s.post(link, 0, *next, write_request(5, 0), local(region, 0, 1000))?;
            *next += 1;
        }
        let pause = s.pick(MS / 2, 2 * MS).min(until.saturating_sub(s.now()));
        s.serve(link, pause, policy, &mut |_, _| Ok(false))?;
    }
    Ok(())
}

/// Waits until a path is in one of these states, under traffic.
pub(super) fn traffic_until(
    s: &mut Script<'_>,
    link: &mut Link,
    region: &Region,
    next: &mut u64,
    (number, states): (u8, &[&str]),
    policy: &mut dyn FnMut(&Packet) -> Treat,
) -> Outcome<String> {
    let until = s.now() + s.pick(2 * S, 6 * S);
    loop {
        traffic(s, link, region, next, s.pick(MS, 5 * MS), policy)?;
        let (state, ..) = path(s, link, number)?;
        if states.contains(&state.as_str()) || s.now() >= until {
            return Ok(state);
        }
    }
}

//= MR-PATH-12, MR-PATH-14, MR-PATH-18, MR-PATH-19, MR-PATH-21, MR-PATH-22, MR-PATH-23, MR-PATH-25 test
fn death(s: &mut Script<'_>) -> Outcome {
    const BAD: u8 = 1;
    let region = s.region(1024)?;
    let mut link = s.connect_with(|asked| asked.paths = 3, 0)?;
    if link.paths() < 3 {
        return Err(Stop::NotApplicable("the device grants fewer than three paths".to_owned()));
    }
    calm(s, &mut link)?;
    let mut next = 0;
    let mut deaf = |packet: &Packet| if packet.base.path.0 == BAD { Treat::Lose } else { Treat::Accept };
    let state =
        traffic_until(s, &mut link, &region, &mut next, (BAD, &["suspect", "dead", "probing"]), &mut deaf)?;
    s.check("MR-PATH-12", state != "good", || {
        "a path that is silent while others progress stays Good".to_owned()
    })?;
    let mark = s.mark();
    let state = traffic_until(s, &mut link, &region, &mut next, (BAD, &["dead", "probing"]), &mut deaf)?;
    s.check("MR-PATH-18", state == "dead", || format!("after a second timeout the path is {state}"))?;
    let late = data(s, mark).into_iter().find(|packet| packet.base.path.0 == BAD);
    s.check("MR-PATH-14", late.is_none(), || "a Suspect path gets data".to_owned())?;
    let mark = s.mark();
    traffic(s, &mut link, &region, &mut next, s.pick(400 * MS, 400 * MS), &mut deaf)?;
    let late = data(s, mark).into_iter().find(|packet| packet.base.path.0 == BAD);
    s.check("MR-PATH-19", late.is_none(), || "a Dead path gets data".to_owned())?;
    let probes: Vec<Packet> = s
        .since(mark)
        .iter()
        .filter(|packet| packet.is(PacketType::Probe) && packet.base.path.0 == BAD)
        .cloned()
        .collect();
    s.check("MR-PATH-19", probes.len() >= 2, || {
        format!("a Dead path is probed {} times in 400 ms", probes.len())
    })?;
    s.check("MR-PATH-19", probes.iter().all(|probe| probe.bytes.len() <= 1232), || {
        "a Dead path is searched for its MTU".to_owned()
    })?;
    // At doubled intervals of at least 3 RTT, whatever that is: a flood would be hundreds.
    s.check("MR-PATH-19", probes.len() <= 40, || {
        format!("a Dead path is probed {} times in 400 ms", probes.len())
    })?;
    let routes: BTreeSet<(u8, u16)> =
        probes.iter().map(|probe| (probe.base.epoch, probe.source_port)).collect();
    s.check("MR-PATH-21", routes.len() == probes.len(), || {
        format!("{} PROBEs of a Dead path took {} routes", probes.len(), routes.len())
    })?;
    let done = s.completed_ids()?.len();
    s.check("MR-PATH-14", done > 20, || format!("{done} requests were completed beside a dead path"))?;
    // It answers again: data only after three answers, counted from now.
    let mark = s.mark();
    let mut all = |_: &Packet| Treat::Accept;
    let state = traffic_until(s, &mut link, &region, &mut next, (BAD, &["good"]), &mut all)?;
    s.check("MR-PATH-23", state == "good", || format!("a path that answers again stays {state}"))?;
    traffic(s, &mut link, &region, &mut next, s.pick(20 * MS, 60 * MS), &mut all)?;
    let back: Vec<Packet> =
        s.since(mark).iter().filter(|packet| packet.base.path.0 == BAD).cloned().collect();
    let answers =
        back.iter().take_while(|packet| packet.data().is_none()).filter(|p| p.is(PacketType::Probe)).count();
    let returned = back.iter().any(|packet| packet.data().is_some());
    s.check("MR-PATH-23", returned, || "a path that came back carries no data".to_owned())?;
    s.check("MR-PATH-23", answers >= 3, || format!("data came back after {answers} PROBEs"))?;
    Ok(())
}

//= MR-PATH-26, MR-CLS-18 test
fn failure(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = s.connect()?;
    calm(s, &mut link)?;
    let start = s.now();
    s.post_receive(&link, 1, 2, local(&region, 8, 8))?;
    s.post(&link, 0, 1, write_request(5, 0), local(&region, 0, 8))?;
    let number = link.number;
    let over = move |event: &DeviceEvent| matches!(event, DeviceEvent::Closed { connection, .. } if *connection == number);
    s.run((start + 600 * MS).saturating_sub(s.now()))?;
    let early = s.poll()?.iter().any(over);
    s.check("MR-PATH-26", !early, || "the connection fails before the failure time".to_owned())?;
    s.expect_event("MR-PATH-26", "the end of the connection", over)?;
    let events = s.poll()?.to_vec();
    let end = events.iter().position(over).unwrap_or(0);
    let completed = |id: u64| {
        events
            .iter()
            .take(end)
            .filter(|event| matches!(event, DeviceEvent::Completion { id: of, .. } if *of == id))
            .count()
    };
    s.check("MR-CLS-18", completed(1) == 1 && completed(2) == 1, || {
        format!(
            "before the end request and receive were reported {} and {} times",
            completed(1),
            completed(2)
        )
    })
}

//= MR-PATH-28 test
fn keepalive(s: &mut Script<'_>) -> Outcome {
    let mut link = s.connect()?;
    calm(s, &mut link)?;
    let mark = s.mark();
    let start = s.now();
    s.serve(&mut link, s.pick(S, 1_200 * MS), &mut |_| Treat::Accept, &mut |_, _| Ok(false))?;
    // Larger ones look for the path MTU.
    let small = |packet: &&Packet| packet.is(PacketType::Probe) && packet.bytes.len() <= 1232;
    let probes: Vec<Packet> = s.since(mark).iter().filter(small).cloned().collect();
    s.check("MR-PATH-28", (3..=9).contains(&probes.len()), || {
        format!("{} PROBEs in a second of rest, the keepalive time is 150 ms", probes.len())
    })?;
    // Something came from the peer shortly before: the time counts from there.
    let first = probes.first().map_or(0, |probe| probe.at_ns - start);
    s.check("MR-PATH-28", first >= s.pick(100 * MS, 60 * MS), || {
        format!("the first PROBE came after {first} ns")
    })?;
    let paths: BTreeSet<u8> = probes.iter().map(|probe| probe.base.path.0).collect();
    s.check("MR-PATH-28", link.paths() < 3 || paths.len() >= 3, || {
        format!("keepalives take paths {paths:?} only")
    })
}

//= MR-PATH-33, MR-PATH-34 test
fn small_mtu(s: &mut Script<'_>) -> Outcome {
    let region = s.region(16_384)?;
    let mut link = s.connect_with(|asked| asked.paths = 1, 0)?;
    let mark = s.mark();
    let mut narrow = |packet: &Packet| if packet.bytes.len() > 1232 { Treat::Lose } else { Treat::Accept };
    let span = s.pick(S, 900 * MS);
    s.serve(&mut link, span, &mut narrow, &mut |_, _| Ok(false))?;
    s.post(&link, 0, 1, write_request(5, 0), local(&region, 0, 16_384))?;
    s.serve(&mut link, s.pick(300 * MS, 2 * S), &mut narrow, &mut |s, _| Ok(s.completion(1)?.is_some()))?;
    let done = s.completion(1)?.is_some();
    s.check("MR-PATH-33", done, || "a WRITE over a narrow path never completes".to_owned())?;
    let largest = data(s, mark).iter().map(|packet| packet.bytes.len()).max().unwrap_or(0);
    s.check("MR-PATH-33", largest <= 1232, || {
        format!("DATA of {largest} bytes, no larger PROBE was answered")
    })?;
    let mut tried: Vec<(usize, usize)> = Vec::new();
    for packet in
        s.since(mark).iter().filter(|packet| packet.is(PacketType::Probe) && packet.bytes.len() > 1232)
    {
        match tried.last_mut() {
            Some((size, count)) if *size == packet.bytes.len() => *count += 1,
            _ => tried.push((packet.bytes.len(), 1)),
        }
    }
    let sizes: Vec<usize> = tried.iter().map(|(size, _)| *size).collect();
    // The first is the smaller of both ends' largest: ours is 4,176.
    let first = sizes.first().copied().unwrap_or(0);
    let smaller = [2128, 1452, 1392].into_iter().filter(|&size| size < first);
    let wanted: Vec<usize> = std::iter::once(first).chain(smaller).collect();
    s.check("MR-PATH-34", (1393..=4176).contains(&first) && wanted.starts_with(&sizes), || {
        format!("sizes are tried as {tried:?}, not {wanted:?}")
    })?;
    s.check("MR-PATH-34", tried.iter().all(|(_, count)| *count <= 5), || {
        format!("sizes are tried as {tried:?}")
    })
}

//= MR-PATH-33, MR-PATH-35 test
fn found_mtu(s: &mut Script<'_>) -> Outcome {
    let region = s.region(32_768)?;
    let mut link = s.connect_with(|asked| asked.paths = 1, 0)?;
    let mut medium = |packet: &Packet| if packet.bytes.len() > 2128 { Treat::Lose } else { Treat::Accept };
    let mark = s.mark();
    let span = s.pick(S, 2 * S);
    s.serve(&mut link, span, &mut medium, &mut |s, _| {
        Ok(s.since(mark).iter().any(|packet| packet.is(PacketType::Probe) && packet.bytes.len() == 2128))
    })?;
    s.run(s.pick(MS, 5 * MS))?;
    let mark = s.mark();
    s.post(&link, 0, 1, write_request(5, 0), local(&region, 0, 32_768))?;
    s.serve(&mut link, s.pick(300 * MS, 2 * S), &mut medium, &mut |s, _| Ok(s.completion(1)?.is_some()))?;
    let largest = data(s, mark).iter().map(|packet| packet.bytes.len()).max().unwrap_or(0);
    s.check("MR-PATH-33", largest <= 2128, || {
        format!("DATA of {largest} bytes, a PROBE of 2128 was answered")
    })?;
    s.check("MR-PATH-35", largest > 1452, || {
        format!("DATA of {largest} bytes at most, a PROBE of 2128 was answered")
    })
}

/// The sum of the windows of all paths.
fn windows(s: &mut Script<'_>, link: &Link) -> Outcome<u64> {
    let mut sum = 0;
    for number in 0..link.paths() {
        sum += path(s, link, number)?.1;
    }
    Ok(sum)
}

//= MR-CC-1, MR-CC-2, MR-CC-3 test
fn marks(s: &mut Script<'_>) -> Outcome {
    let region = s.region(1024)?;
    let mut link = s.connect_with(|asked| asked.paths = 2, 0)?;
    calm(s, &mut link)?;
    let mut next = 0;
    traffic(s, &mut link, &region, &mut next, s.pick(30 * MS, 100 * MS), &mut |_| Treat::Accept)?;
    let before = windows(s, &link)?;
    // From now on every packet is counted as marked. A slow machine has few round trips in the same time.
    let until = s.now() + s.pick(60 * MS, 2_000 * MS);
    while s.now() < until && (s.is_exact() || windows(s, &link)? * 3 > before * 2) {
        let mut counted = BTreeMap::new();
        let mut count = |packet: &Packet| {
            *counted.entry(packet.base.path.0).or_insert(0) += u32::from(packet.ecn != Ecn::Ce);
            Treat::Accept
        };
        // Marks go with the next acknowledgement: a batch late, which changes nothing here.
        traffic(s, &mut link, &region, &mut next, s.pick(300_000, 3 * MS), &mut count)?;
        for (path, count) in counted {
            link.mark(path, count);
        }
    }
    let after = windows(s, &link)?;
    s.check("MR-CC-3", after * 3 <= before * 2, || {
        format!("windows of {before} bytes became {after} while all packets were marked")
    })
}

//= MR-CC-8 test
fn losses(s: &mut Script<'_>) -> Outcome {
    if !s.is_exact() {
        return Err(Stop::NotApplicable(
            "over UDP a busy machine adds timeouts, which do shrink windows".to_owned(),
        ));
    }
    let region = s.region(1024)?;
    let mut link = s.connect_with(|asked| asked.paths = 2, 0)?;
    calm(s, &mut link)?;
    let mut next = 0;
    traffic(s, &mut link, &region, &mut next, 30 * MS, &mut |_| Treat::Accept)?;
    let before = windows(s, &link)?;
    let mut number = 0_u64;
    let mut lossy = |_: &Packet| {
        number += 1;
        if number % 40 == 7 { Treat::Lose } else { Treat::Accept }
    };
    traffic(s, &mut link, &region, &mut next, 60 * MS, &mut lossy)?;
    let after = windows(s, &link)?;
    s.check("MR-CC-8", after * 10 >= before * 9, || {
        format!("windows of {before} bytes became {after} at 2.5 % loss without marks")
    })
}

//= MR-CC-11 test
fn in_flight(s: &mut Script<'_>) -> Outcome {
    let region = s.region(1 << 17)?;
    let mut link = s.connect()?;
    calm(s, &mut link)?;
    let mark = s.mark();
    s.post(&link, 0, 1, write_request(5, 0), local(&region, 0, 1 << 17))?;
    s.expect("MR-OP-9", mark, "the WRITE of the device", |packet| packet.data().is_some())?;
    s.run(5 * MS)?;
    let mut seen = BTreeSet::new();
    let mut bytes = 0;
    for packet in data(s, mark) {
        if packet.data().is_some_and(|(header, _)| seen.insert(header.csn.raw())) {
            bytes += packet.bytes.len();
        }
    }
    s.check("MR-CC-11", bytes <= 16_384 && bytes > 0, || {
        format!("{bytes} bytes are in flight, the limit is 16384")
    })?;
    let status = s.serve_completion("MR-CC-11", &mut link, 1)?;
    s.check("MR-CC-11", status == "success", || format!("the WRITE ends as {status}"))?;
    s.done(&Command::Close { connection: link.number, flush: true })
}
