//! What the device takes for lost, and what it then sends: MR-LOSS, MR-PATH-15, MR-PATH-16, MR-CC-10.

use std::collections::BTreeSet;

use metaroce_core::ids::Serial as _;
use metaroce_core::wire::PacketType;

use super::super::case::Case;
use super::super::control::{Answer, Command};
use super::super::link::{Link, Region};
use super::super::packet::Packet;
use super::super::script::{MS, Script, Treat};
use super::super::stop::{Outcome, Stop};
use super::acknowledgements::calm;
use super::requests::{local, write_request};

pub(super) const CASES: &[Case] = &[
    Case::new(
        "loss/gap",
        "a packet below a gap larger than the tolerance goes again at once, on its path, under its CSN and the next PSN; no other does",
        &["MR-LOSS-1", "MR-LOSS-8", "MR-LOSS-9", "MR-LOSS-10"],
        gap,
    ),
    Case::new(
        "loss/tolerance",
        "a gap within the tolerance is no loss",
        &["MR-LOSS-1", "MR-LOSS-6"],
        tolerance,
    ),
    Case::new(
        "loss/time",
        "a packet sent more than 9/8 RTT before the newest delivered one is lost without a gap",
        &["MR-LOSS-2"],
        time,
    ),
    Case::new("loss/refused", "what was refused is not lost", &["MR-LOSS-5", "MR-STR-18"], refused),
    Case::new(
        "loss/epochs",
        "the gap rule is not applied between epochs",
        &["MR-LOSS-4", "MR-PATH-4"],
        epochs,
    ),
    Case::new(
        "loss/silence",
        "in silence a PROBE comes after 10 ms, the oldest packet alone after 15 ms, at doubling distances; the path stays Good",
        &["MR-LOSS-12", "MR-LOSS-13", "MR-LOSS-14", "MR-LOSS-15", "MR-PATH-15", "MR-PATH-16", "MR-CC-10"],
        silence,
    ),
    Case::new(
        "loss/nothing lost",
        "without loss nothing goes again",
        &["MR-LOSS-9", "MR-CC-17"],
        nothing_lost,
    ),
];

/// Posts `count` WRITEs of 64 bytes on stream `stream`, with ids from `id`.
fn post_many(s: &mut Script<'_>, link: &Link, region: &Region, stream: u16, id: u64, count: u64) -> Outcome {
    for number in 0..count {
        s.post(link, stream, id + number, write_request(5, 0), local(region, 0, 64))?;
    }
    Ok(())
}

/// The device's DATA since `mark`, after `count` packets of it have come, each as it came first: on a slow machine a
/// timeout sends some again before the last one is posted.
fn collect(s: &mut Script<'_>, mark: usize, count: usize) -> Outcome<Vec<Packet>> {
    let until = s.now() + s.pick(5 * MS, 4_000 * MS);
    loop {
        let mut seen = BTreeSet::new();
        let first = |packet: &&Packet| packet.data().is_some() && seen.insert(csn(packet));
        let data: Vec<Packet> = s.since(mark).iter().filter(first).cloned().collect();
        if data.len() >= count {
            return Ok(data);
        }
        if s.now() >= until {
            return Err(Stop::failed(
                "MR-OP-9",
                format!("{} of {count} packets of the device came", data.len()),
            ));
        }
        s.run(s.pick(MS / 10, MS))?;
    }
}

fn csn(packet: &Packet) -> u32 {
    packet.data().map_or(0, |(data, _)| data.csn.raw())
}

/// The DATA packets since `mark` whose CSN is among `old`.
fn again(s: &Script<'_>, mark: usize, old: &[Packet]) -> Vec<Packet> {
    let csns: Vec<u32> = old.iter().map(csn).collect();
    let known = |packet: &&Packet| packet.data().is_some() && csns.contains(&csn(packet));
    s.since(mark).iter().filter(known).cloned().collect()
}

/// A connection of one path, what it has in flight, the id of the last request, and whether no timeout has sent
/// anything again so far.
struct Flight {
    link: Link,
    packets: Vec<Packet>,
    last: u64,
    undisturbed: bool,
}

/// A connection of one path at rest, and `count` packets in flight on it. Over sockets one on which timeouts came in
/// between, as each packet takes a command, is given up for another.
fn in_flight(s: &mut Script<'_>, region: &Region, count: u64) -> Outcome<Flight> {
    let mut first = 1;
    loop {
        let mut link = s.connect_with(|asked| asked.paths = 1, 0)?;
        calm(s, &mut link)?;
        let mark = s.mark();
        post_many(s, &link, region, 0, first, count)?;
        let packets = collect(s, mark, usize::try_from(count).unwrap_or(0))?;
        let sent = s.since(mark).iter().filter(|packet| packet.data().is_some()).count();
        let last = first + count - 1;
        let undisturbed = s.is_exact() || sent == packets.len();
        if undisturbed || first > MOST_ATTEMPTS * NEXT_IDS {
            return Ok(Flight { link, packets, last, undisturbed });
        }
        s.serve_completion("MR-LOSS-8", &mut link, last)?;
        first += NEXT_IDS;
    }
}

/// Attempts that are given up on a slow machine, and how far apart the ids of their requests are.
const MOST_ATTEMPTS: u64 = 8;
const NEXT_IDS: u64 = 1_000;

/// Why a case is skipped in which a timeout would be taken for something else.
pub(super) const TOO_BUSY: &str = "this machine is so busy that timeouts came while the requests were posted";

fn enter(link: &mut Link, packets: &[Packet], which: impl IntoIterator<Item = usize>) {
    for number in which {
        if let Some(packet) = packets.get(number) {
            link.enter(packet, true);
        }
    }
}

//= MR-LOSS-1, MR-LOSS-8, MR-LOSS-9, MR-LOSS-10 test
fn gap(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let Flight { mut link, packets, last, .. } = in_flight(s, &region, 12)?;
    enter(&mut link, &packets, (0..12).filter(|number| *number != 3));
    let (mark, start) = (s.mark(), s.now());
    s.acknowledge(&link, &[0])?;
    let lost = packets.get(3).map_or(0, csn);
    let found = s.expect("MR-LOSS-1", mark, "the packet below the gap, again", |packet| {
        packet.data().is_some() && csn(packet) == lost
    })?;
    s.check("MR-LOSS-1", !s.is_exact() || found.at_ns - start <= 60_000, || {
        format!("it goes again {} ns after the acknowledgement, not at once", found.at_ns - start)
    })?;
    s.check("MR-LOSS-8", found.base.path.0 == 0, || "it goes again on another path".to_owned())?;
    let newest = packets.last().map_or(0, Packet::psn);
    s.check("MR-LOSS-10", found.psn().wrapping_sub(newest).cast_signed() > 0, || {
        format!("it goes again under PSN {}, {newest} was sent", found.psn())
    })?;
    s.run(s.pick(MS, 5 * MS))?;
    let mut sent = again(s, mark, &packets);
    if !s.is_exact() {
        // Before that copy the device need not have had the acknowledgement: a timeout may have sent the oldest.
        sent.retain(|packet| packet.psn().wrapping_sub(found.psn()).cast_signed() >= 0);
    }
    s.check("MR-LOSS-9", sent.iter().all(|packet| csn(packet) == lost), || {
        let csns: Vec<u32> = sent.iter().map(csn).collect();
        format!("CSNs {csns:?} go again, only {lost} was lost")
    })?;
    s.check("MR-LOSS-9", !s.is_exact() || sent.len() == 1, || format!("it goes again {} times", sent.len()))?;
    let status = s.serve_completion("MR-LOSS-8", &mut link, last)?;
    s.check("MR-LOSS-8", status == "success", || format!("the WRITE ends as {status}"))
}

//= MR-LOSS-1, MR-LOSS-6 test
fn tolerance(s: &mut Script<'_>) -> Outcome {
    if !s.is_exact() {
        return Err(Stop::NotApplicable("over UDP a timeout can't be told from a gap".to_owned()));
    }
    let region = s.region(64)?;
    let Flight { mut link, packets, .. } = in_flight(s, &region, 12)?;
    enter(&mut link, &packets, [0, 1, 3, 4, 5]);
    let mark = s.mark();
    s.acknowledge(&link, &[0])?;
    s.run(MS)?;
    let early = again(s, mark, &packets);
    s.check("MR-LOSS-1", early.is_empty(), || "a gap of three is taken for a loss".to_owned())?;
    enter(&mut link, &packets, [6]);
    s.acknowledge(&link, &[0])?;
    s.run(MS)?;
    let sent = again(s, mark, &packets);
    s.check("MR-LOSS-1", sent.len() == 1, || format!("a gap of four sends {} packets", sent.len()))?;
    // It had only been late: from now on a gap of six is no loss.
    enter(&mut link, &packets, [2, 7, 8, 9, 10, 11]);
    s.acknowledge(&link, &[0])?;
    s.serve(&mut link, 40 * MS, &mut |_| Treat::Accept, &mut |_, _| Ok(false))?;
    let mark = s.mark();
    post_many(s, &link, &region, 0, 100, 12)?;
    let packets = collect(s, mark, 12)?;
    enter(&mut link, &packets, [0, 1, 3, 4, 5, 6, 7, 8]);
    let mark = s.mark();
    s.acknowledge(&link, &[0])?;
    s.run(MS)?;
    let early = again(s, mark, &packets);
    s.check("MR-LOSS-6", early.is_empty(), || {
        "the tolerance did not double after a needless loss".to_owned()
    })?;
    enter(&mut link, &packets, [9, 10]);
    s.acknowledge(&link, &[0])?;
    s.run(MS)?;
    let sent = again(s, mark, &packets);
    s.check("MR-LOSS-6", sent.len() == 1, || format!("a gap of eight sends {} packets", sent.len()))
}

//= MR-LOSS-2 test
fn time(s: &mut Script<'_>) -> Outcome {
    if !s.is_exact() {
        return Err(Stop::NotApplicable("over UDP a timeout can't be told from the rule".to_owned()));
    }
    let region = s.region(64)?;
    let Flight { mut link, packets, .. } = in_flight(s, &region, 1)?;
    // Much later than an RTT, much earlier than a timeout.
    s.run(2 * MS)?;
    let mark = s.mark();
    post_many(s, &link, &region, 0, 50, 1)?;
    let later = collect(s, mark, 1)?;
    enter(&mut link, &later, [0]);
    let mark = s.mark();
    s.acknowledge(&link, &[0])?;
    s.run(MS)?;
    let sent = again(s, mark, &packets);
    s.check("MR-LOSS-2", sent.len() == 1, || format!("a packet of long ago goes again {} times", sent.len()))
}

//= MR-LOSS-5, MR-STR-18 test
fn refused(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let Flight { mut link, packets, last, undisturbed } = in_flight(s, &region, 12)?;
    if !undisturbed {
        return Err(Stop::Skipped(TOO_BUSY.to_owned()));
    }
    let lost_before = path(s, &link, 0)?.2;
    enter(&mut link, &packets, (0..12).filter(|number| *number != 3));
    if let Some(packet) = packets.get(3) {
        link.enter(packet, false);
    }
    let mark = s.mark();
    s.acknowledge(&link, &[0])?;
    let status = s.serve_completion("MR-LOSS-5", &mut link, last)?;
    s.check("MR-LOSS-5", status == "success", || format!("the WRITE ends as {status}"))?;
    let mut sent = again(s, mark, &packets);
    if !s.is_exact() {
        // Until it has the acknowledgement, a timeout may send the oldest; not the refused one, before which there are
        // three.
        let refused = packets.get(3).map_or(0, csn);
        sent.retain(|packet| csn(packet) == refused);
    }
    s.check("MR-LOSS-5", sent.is_empty(), || {
        "a refused packet goes again under its CSN, as if lost".to_owned()
    })?;
    let lost = path(s, &link, 0)?.2;
    s.check("MR-STR-18", lost == lost_before, || "a refusal is counted as a loss".to_owned())
}

/// State, window and losses of a path.
pub(super) fn path(s: &mut Script<'_>, link: &Link, number: u8) -> Outcome<(String, u64, u64)> {
    match s.command(&Command::Path { connection: link.number, path: number })? {
        Answer::Path { state, window_bytes, packets_lost, .. } => Ok((state, window_bytes, packets_lost)),
        other => Err(Stop::Broken(format!("path is answered by {other:?}"))),
    }
}

//= MR-LOSS-4, MR-PATH-4 test
fn epochs(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = s.connect_with(|asked| asked.paths = 1, 0)?;
    calm(s, &mut link)?;
    // At one instant, as far as the port can: a packet of much earlier would be lost by the rule of time.
    let mark = s.mark();
    post_many(s, &link, &region, 0, 46, 4)?;
    s.done(&Command::Repath { connection: link.number, path: 0 })?;
    post_many(s, &link, &region, 0, 50, 8)?;
    let mut packets = collect(s, mark, 12)?;
    let later = packets.split_off(4);
    let old_port = packets.first().map_or(0, |packet| packet.source_port);
    let (epoch, port) = later.first().map_or((0, 0), |packet| (packet.base.epoch, packet.source_port));
    s.check("MR-PATH-4", epoch == 1 && port != old_port, || {
        format!("after a repath it is epoch {epoch}, port {port}; it was 0 and {old_port}")
    })?;
    enter(&mut link, &later, 0..8);
    let mark = s.mark();
    s.acknowledge(&link, &[0])?;
    if s.is_exact() {
        s.run(2 * MS)?;
        let sent = again(s, mark, &packets);
        s.check("MR-LOSS-4", sent.is_empty(), || "a gap across epochs is taken for a loss".to_owned())?;
    }
    enter(&mut link, &packets, 0..4);
    s.acknowledge(&link, &[0])?;
    let status = s.serve_completion("MR-LOSS-4", &mut link, 57)?;
    s.check("MR-LOSS-4", status == "success", || format!("the WRITE ends as {status}"))
}

//= MR-LOSS-12, MR-LOSS-13, MR-LOSS-14, MR-LOSS-15, MR-PATH-15, MR-PATH-16, MR-CC-10 test
fn silence(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let start = s.now();
    let Flight { mut link, packets, last: id, .. } = in_flight(s, &region, 8)?;
    let last = packets.last().map_or(start, |packet| packet.at_ns);
    let mark = s.mark();
    s.run(700 * MS)?;
    let slack = s.pick(20_000, 2 * MS);
    let probes: Vec<u64> = s
        .since(mark)
        .iter()
        .filter(|packet| packet.is(PacketType::Probe))
        .map(|packet| packet.at_ns)
        .collect();
    let first = probes.first().copied();
    let first = first.ok_or_else(|| Stop::failed("MR-LOSS-13", "no PROBE after the probe timeout"))?;
    s.check("MR-LOSS-12", !s.is_exact() || first + slack >= last + 10 * MS, || {
        format!("the first PROBE came {} ns after the last packet", first - last)
    })?;
    s.check("MR-LOSS-12", first <= last + s.pick(12 * MS, 2_000 * MS), || {
        format!("the first PROBE came {} ns after the last packet", first - last)
    })?;
    let sent = again(s, mark, &packets);
    let csns: Vec<u32> = sent.iter().map(csn).collect();
    let oldest: Vec<u32> = packets.iter().map(csn).take(csns.len()).collect();
    s.check("MR-PATH-16", csns.first() == oldest.first(), || {
        format!("a timeout sends CSN {:?}, the oldest is {:?}", csns.first(), oldest.first())
    })?;
    let times: Vec<u64> = sent.iter().map(|packet| packet.at_ns).collect();
    let alone = times.iter().zip(times.iter().skip(1)).all(|(a, b)| a < b);
    s.check("MR-PATH-16", !s.is_exact() || alone, || "one timeout sends several packets".to_owned())?;
    s.check("MR-LOSS-14", times.len() >= 3, || format!("{} timeouts in 700 ms", times.len()))?;
    let early = times.first().is_some_and(|at| at + slack < last + 15 * MS);
    s.check("MR-LOSS-14", !s.is_exact() || !early, || {
        "the first timeout comes before 3/2 of the probe timeout".to_owned()
    })?;
    if s.is_exact() {
        let gaps: Vec<u64> = times.iter().zip(times.iter().skip(1)).map(|(a, b)| b - a).collect();
        let doubled = gaps.iter().zip(gaps.iter().skip(1)).all(|(a, b)| *b >= a * 3 / 2);
        s.check("MR-LOSS-15", doubled, || format!("timeouts follow each other after {gaps:?} ns"))?;
    } else {
        // 15, 30, 60, 120, 240 ms: five fit, twice as many never do.
        s.check("MR-LOSS-15", times.len() <= 8, || format!("{} timeouts in 700 ms", times.len()))?;
    }
    let (state, window, _) = path(s, &link, 0)?;
    s.check("MR-PATH-15", state == "good", || format!("the only path is {state}"))?;
    s.check("MR-CC-10", window <= 2 * 4_176, || {
        format!("a window of {window} bytes is left after timeouts")
    })?;
    let status = s.serve_completion("MR-LOSS-8", &mut link, id)?;
    s.check("MR-LOSS-8", status == "success", || format!("the WRITE ends as {status}"))
}

//= MR-LOSS-9, MR-CC-17 test
fn nothing_lost(s: &mut Script<'_>) -> Outcome {
    let region = s.region(1 << 16)?;
    let mut link = s.connect()?;
    calm(s, &mut link)?;
    let mark = s.mark();
    s.post(&link, 0, 1, write_request(5, 0), local(&region, 0, 1 << 16))?;
    let status = s.serve_completion("MR-OP-9", &mut link, 1)?;
    s.check("MR-OP-9", status == "success", || format!("the WRITE ends as {status}"))?;
    let data: Vec<Packet> = s.since(mark).iter().filter(|packet| packet.data().is_some()).cloned().collect();
    let mut csns: Vec<u32> = data.iter().map(csn).collect();
    let count = csns.len();
    csns.sort_unstable();
    csns.dedup();
    s.check("MR-LOSS-9", !s.is_exact() || csns.len() == count, || {
        format!("{} of {count} packets go again, though nothing was lost", count - csns.len())
    })?;
    let mut seen = BTreeSet::new();
    for packet in &data {
        let Some((header, payload)) = packet.data() else { continue };
        if !seen.insert(header.csn.raw()) {
            continue; // What a timeout sends again tells what is left then.
        }
        let end = header.offset + u32::try_from(payload.len()).unwrap_or(0);
        s.check("MR-CC-17", header.demand_kib > 0 || end == header.length, || {
            format!("demand 0 with {} bytes to come", header.length - end)
        })?;
    }
    let last =
        data.iter().filter_map(|packet| Some(packet.data()?.0)).find(|header| header.flags.bits() & 1 == 1);
    s.check("MR-CC-17", last.is_some_and(|header| header.demand_kib == 0), || {
        format!("the last packet tells a demand: {last:?}")
    })
}
