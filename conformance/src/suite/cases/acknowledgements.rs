//! What a receiver tells, and when: MR-ACK, with the device as the receiver; then as the sender who hears it.

use metaroce_core::ids::Serial as _;
use metaroce_core::wire::PacketType;

use super::super::case::{Case, Profile};
use super::super::control::Settings;
use super::super::link::{Link, Region, send, write};
use super::super::packet::{Block, Packet};
use super::super::script::{Fired, MS, Script, Shot, Treat};
use super::super::stop::{Outcome, Stop};
use super::super::wire::{DataFields, flag};
use super::requests::{local, write_request};

/// An ACK delay so long that what comes at once can be told from what comes after it, also on sockets.
const SLOW: Settings = Settings { ack_delay_us: Some(400_000), ..Settings::NONE };

pub(super) const CASES: &[Case] = &[
    Case::new(
        "acknowledgements/at once",
        "a gap, a refusal, ACK_NOW, LAST and the first mark are each acknowledged at once",
        &["MR-ACK-10"],
        at_once,
    )
    .with(SLOW),
    Case::new(
        "acknowledgements/count and delay",
        "seven packets wait for the ACK delay, the eighth does not",
        &["MR-ACK-11"],
        count_and_delay,
    )
    .with(SLOW),
    Case::new(
        "acknowledgements/vector",
        "each bit is set exactly if its PSN was accepted, through gaps, duplicates and refusals; counters and cumulative CSN fit",
        &["MR-WIRE-23", "MR-ACK-1", "MR-ACK-2", "MR-ACK-5", "MR-ACK-7"],
        vector,
    ),
    Case::new(
        "acknowledgements/hold",
        "timestamp and hold are those of the largest PSN",
        &["MR-ACK-6"],
        hold,
    )
    .with(SLOW),
    Case::new("acknowledgements/marks", "marked packets are counted, each once", &["MR-ACK-5"], marks),
    Case::new(
        "acknowledgements/REFUSED",
        "every acknowledgement tells a refusal again, as long as the vector reaches",
        &["MR-ACK-2"],
        refused,
    ),
    Case::new(
        "acknowledgements/PROBE",
        "a PROBE is answered with its token, its path and the credit of its stream, and is entered as accepted",
        &["MR-ACK-3", "MR-ACK-22", "MR-ACK-23"],
        probe,
    ),
    Case::new(
        "acknowledgements/batch",
        "packets that arrive together share one acknowledgement per path, up to four paths in one ACK",
        &["MR-ACK-13", "MR-ACK-20"],
        batch,
    )
    .of(Profile::Multipath),
    Case::new(
        "acknowledgements/jump",
        "before a PSN is entered that would push untold ones out of the vector, those are acknowledged",
        &["MR-ACK-14"],
        jump,
    ),
    Case::new(
        "acknowledgements/rotation",
        "successive ACKs travel over different paths, whatever path they acknowledge",
        &["MR-ACK-17"],
        rotation,
    )
    .of(Profile::Multipath),
    Case::new(
        "acknowledgements/never acknowledged",
        "an ACK is answered by nothing",
        &["MR-ACK-16"],
        unanswered,
    ),
    Case::new(
        "acknowledgements/epochs",
        "packets of any epoch of a path are entered in one vector",
        &["MR-ACK-8"],
        epochs,
    ),
    Case::new(
        "acknowledgements/of the unsent",
        "an ACK of a PSN that was never sent has no effect, nor have its other blocks",
        &["MR-ACK-28"],
        of_unsent,
    ),
    Case::new(
        "acknowledgements/old ones",
        "an older acknowledgement takes nothing back",
        &["MR-ACK-29", "MR-ACK-30"],
        old,
    ),
    Case::new(
        "acknowledgements/lost ones",
        "a later acknowledgement restores what lost ones told",
        &["MR-ACK-31"],
        lost,
    ),
    Case::new(
        "acknowledgements/ACK_NOW",
        "the device asks for an ACK at once while few packets are in flight",
        &["MR-ACK-15"],
        ack_now,
    ),
    Case::new(
        "acknowledgements/share",
        "every acknowledgement carries a share of the path's plane, never 0 for an active sender",
        &["MR-CC-24"],
        share,
    ),
];

/// The newest acknowledgement of `path` since `mark`.
pub(super) fn newest(s: &Script<'_>, mark: usize, path: u8) -> Option<Block> {
    s.since(mark).iter().rev().find_map(|packet| packet.block_of(path))
}

/// A WRITE of which more is to come: it asks for no ACK.
fn more(region: &Region, msn: u32) -> DataFields {
    write(region, 0, &[1; 64]).on(0, msn).part(0, 32)
}

/// Whether an ACK comes within a time that is short against the ACK delay.
fn soon(s: &mut Script<'_>, mark: usize) -> Outcome<Option<Packet>> {
    s.wait(mark, s.pick(100_000, 150 * MS), |packet| packet.is(PacketType::Ack))
}

//= MR-ACK-10 test
fn at_once(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = s.connect()?;
    s.settle()?;
    let first = more(&region, 0);
    let mark = s.mark();
    s.send(&mut link, 0, &first)?;
    let early = soon(s, mark)?;
    s.check("MR-ACK-11", early.is_none(), || "a single packet is acknowledged before the delay".to_owned())?;
    let steps: [(&str, DataFields, u32, bool); 5] = [
        ("a gap below it", more(&region, 1), 1, false),
        ("ACK_NOW", more(&region, 2).with(flag::ACK_NOW), 0, false),
        ("LAST", write(&region, 0, &[2; 8]).on(0, 3), 0, false),
        ("a refusal", send(&[1; 8]).on(3, 0).part(0, 4), 0, false),
        ("the first mark", more(&region, 4), 0, true),
    ];
    for (what, data, skip, marked) in steps {
        link.skip_psns(1, 0);
        link.skip_psns(0, skip);
        let mark = s.mark();
        let fired = s.fire(&mut link, Shot { marked, ..Shot::on(0) }, &data)?;
        let ack = soon(s, mark)?;
        let told =
            ack.and_then(|ack| ack.block_of(0)).is_some_and(|block| block.body.largest.raw() == fired.psn);
        s.check("MR-ACK-10", told, || format!("a packet with {what} is not acknowledged at once"))?;
    }
    Ok(())
}

//= MR-ACK-11 test
fn count_and_delay(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = s.connect()?;
    s.settle()?;
    let mark = s.mark();
    for msn in 0..8 {
        s.send(&mut link, 0, &more(&region, msn))?;
    }
    let ack = soon(s, mark)?;
    s.check("MR-ACK-11", ack.is_some(), || "eight packets are not acknowledged at once".to_owned())?;
    let mark = s.mark();
    let start = s.now();
    for msn in 8..15 {
        s.send(&mut link, 0, &more(&region, msn))?;
    }
    let ack = soon(s, mark)?;
    s.check("MR-ACK-11", ack.is_none(), || "seven packets are acknowledged at once".to_owned())?;
    let ack = s.expect("MR-ACK-11", mark, "an ACK after the delay", |packet| packet.is(PacketType::Ack))?;
    let after = ack.at_ns - start;
    s.check("MR-ACK-11", after >= 399 * MS && after <= s.pick(402 * MS, 3_000 * MS), || {
        format!("the ACK came {after} ns after the packets, the delay is 400 ms")
    })
}

//= MR-WIRE-23, MR-ACK-1, MR-ACK-2, MR-ACK-5, MR-ACK-7 test
fn vector(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = s.connect()?;
    s.settle()?;
    let (mut accepted, mut refused, mut arrivals) = (Vec::new(), Vec::new(), 0);
    let mut copy = None;
    for msn in 0..24_u32 {
        link.skip_psns(0, u32::from(msn % 5 == 3));
        let fired = if msn % 7 == 6 {
            let fired = s.send(&mut link, 0, &send(&[0; 4]).on(100 + u16::try_from(msn).unwrap_or(0), 0))?;
            refused.push(fired.psn);
            fired
        } else {
            let fired = s.send(&mut link, 0, &more(&region, msn))?;
            accepted.push(fired.psn);
            fired
        };
        arrivals += 1;
        if msn == 8 {
            copy = Some((fired.csn, more(&region, msn)));
        }
        s.run(s.pick(20_000, 200_000))?;
    }
    // A duplicate under a new PSN counts as arrival, and its bit is that of the first verdict.
    if let Some((csn, data)) = &copy {
        accepted.push(s.fire(&mut link, Shot::on(0).csn(*csn), data)?.psn);
        arrivals += 1;
    }
    let mark = s.mark();
    let last = s.send(&mut link, 0, &write(&region, 0, b"end").on(50, 0))?;
    accepted.push(last.psn);
    arrivals += 1;
    let ack = s.expect("MR-ACK-10", mark, "an ACK", |packet| {
        packet.block_of(0).is_some_and(|block| block.body.largest.raw() == last.psn)
    })?;
    let Some(block) = ack.block_of(0) else { return Ok(()) };
    for bit in 0..64 {
        let psn = last.psn.wrapping_sub(bit);
        s.check("MR-ACK-1", block.accepts(psn) == accepted.contains(&psn), || {
            format!("PSN {psn}, bit {bit}: accepted is {}", block.accepts(psn))
        })?;
        s.check("MR-ACK-2", block.refuses(psn) == refused.contains(&psn), || {
            format!("PSN {psn}, bit {bit}: refused is {}", block.refuses(psn))
        })?;
    }
    s.check("MR-ACK-5", block.body.packets == arrivals, || {
        format!("{} packets are counted, {arrivals} came", block.body.packets)
    })?;
    s.check("MR-ACK-7", block.body.cumulative.raw() == link.next_csn, || {
        format!("the cumulative CSN is {}, not {}", block.body.cumulative.raw(), link.next_csn)
    })?;
    // Now one CSN is missing.
    let hole = link.take_csn();
    let mark = s.mark();
    let last = s.send(&mut link, 0, &write(&region, 0, b"end").on(51, 0))?;
    s.expect("MR-ACK-10", mark, "an ACK", |packet| {
        packet.block_of(0).is_some_and(|block| block.accepts(last.psn))
    })?;
    let told = newest(s, mark, 0).map(|block| block.body.cumulative.raw());
    s.check("MR-ACK-7", told == Some(hole), || format!("the cumulative CSN is {told:?}, {hole} is missing"))
}

//= MR-ACK-6 test
fn hold(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = s.connect()?;
    s.settle()?;
    let mark = s.mark();
    let start = s.now();
    for msn in 0..3 {
        s.send(&mut link, 0, &more(&region, msn))?;
        s.run(20 * MS)?;
    }
    // An older PSN that comes late changes neither.
    let late = link.clone();
    link.skip_psns(0, 1);
    s.send(&mut link, 0, &more(&region, 3))?;
    let ack = s.expect("MR-ACK-10", mark, "an ACK for the gap", |packet| packet.is(PacketType::Ack))?;
    let held = ack.block_of(0).map(|block| u64::from(block.body.hold) * 16);
    s.check("MR-ACK-6", held.is_some_and(|held| held <= s.pick(1_000, 100 * MS)), || {
        format!("a packet that was answered at once was held {held:?} ns")
    })?;
    let mark = s.mark();
    let mut late = late;
    let csn = link.take_csn();
    s.fire(&mut late, Shot::on(0).csn(csn), &more(&region, 4))?;
    s.run(30 * MS)?;
    let last = s.fire(&mut link, Shot { psn: None, ..Shot::on(0) }, &more(&region, 5))?;
    s.run(60 * MS)?;
    let pause = s.now() - start;
    let fired = s.send(&mut link, 1, &more(&region, 6).with(flag::ACK_NOW))?;
    s.expect("MR-ACK-10", mark, "an ACK", |packet| {
        packet.block_of(1).is_some_and(|block| block.accepts(fired.psn))
    })?;
    let block = newest(s, mark, 0);
    if let Some(block) = block.filter(|block| block.body.largest.raw() == last.psn) {
        let held = u64::from(block.body.hold) * 16;
        s.check("MR-ACK-6", held >= 55 * MS && held <= pause, || {
            format!("the largest PSN came 60 ms before the ACK, and was held {held} ns")
        })?;
    }
    // Held back until the delay is over.
    let mark = s.mark();
    let fired = s.send(&mut link, 2, &more(&region, 7))?;
    let ack = s.expect("MR-ACK-11", mark, "an ACK after the delay", |packet| packet.block_of(2).is_some())?;
    let Some(block) = ack.block_of(2) else { return Ok(()) };
    let held = u64::from(block.body.hold) * 16;
    s.check("MR-ACK-6", block.body.echoed_timestamp == fired.timestamp, || "another timestamp".to_owned())?;
    s.check("MR-ACK-6", held >= 399 * MS && held <= s.pick(401 * MS, 3_000 * MS), || {
        format!("a packet that waited 400 ms was held {held} ns")
    })?;
    Ok(())
}

//= MR-ACK-5 test
fn marks(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = s.connect()?;
    s.settle()?;
    let mark = s.mark();
    for msn in 0..20 {
        let shot = Shot { marked: msn % 4 == 1, ..Shot::on(0) };
        s.fire(&mut link, shot, &more(&region, msn))?;
    }
    let last = s.send(&mut link, 0, &write(&region, 0, b"end").on(1, 0))?;
    let ack = s.expect("MR-ACK-10", mark, "an ACK", |packet| {
        packet.block_of(0).is_some_and(|block| block.body.largest.raw() == last.psn)
    })?;
    let counts = ack.block_of(0).map(|block| (block.body.packets, block.body.marked));
    s.check("MR-ACK-5", counts == Some((21, 5)), || {
        format!("packets and marks are counted as {counts:?}, not 21 and 5")
    })
}

//= MR-ACK-2 test
fn refused(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = s.connect()?;
    s.settle()?;
    let refused = s.send(&mut link, 0, &send(&[1; 4]).on(3, 0))?;
    for msn in 0..6 {
        let mark = s.mark();
        let fired = s.send(&mut link, 0, &write(&region, 0, b"x").on(0, msn))?;
        let ack = s.expect("MR-ACK-10", mark, "an ACK", |packet| {
            packet.block_of(0).is_some_and(|block| block.accepts(fired.psn))
        })?;
        let told = ack.block_of(0).is_some_and(|block| block.refuses(refused.psn));
        s.check("MR-ACK-2", told, || {
            format!("the ACK after {} more packets keeps the refusal back", msn + 1)
        })?;
    }
    Ok(())
}

//= MR-ACK-3, MR-ACK-22, MR-ACK-23 test
fn probe(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = s.connect()?;
    s.settle()?;
    for _ in 0..3 {
        s.post_receive(&link, 5, 1, local(&region, 0, 8))?;
    }
    for stream in [0xffff, 5] {
        let mark = s.mark();
        let (token, fired) = s.send_probe(&mut link, 0, stream)?;
        let reply = s.expect("MR-ACK-22", mark, "a PROBE_REPLY with the token", |packet| {
            packet.reply_token() == Some(token)
        })?;
        let block = reply.block_of(0);
        let block = block.ok_or_else(|| Stop::failed("MR-ACK-22", "the reply acknowledges another path"))?;
        s.check("MR-ACK-3", block.accepts(fired.psn), || "the PROBE is not entered as accepted".to_owned())?;
        if stream == 5 {
            let credit = reply.credit(5);
            s.check("MR-ACK-23", credit == Some(3), || format!("credit of the stream is {credit:?}, not 3"))?;
        }
    }
    Ok(())
}

//= MR-ACK-13, MR-ACK-20 test
fn batch(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = s.connect()?;
    s.settle()?;
    let paths = link.paths();
    if paths < 4 {
        return Err(Stop::NotApplicable("the device grants fewer than four paths".to_owned()));
    }
    if !s.is_exact() {
        return Err(Stop::NotApplicable("only in process can packets be handed in together".to_owned()));
    }
    let mark = s.mark();
    let mut msn = 0;
    for path in [0, 1, 2, 3] {
        for _ in 0..5 {
            s.send(&mut link, path, &write(&region, 0, b"x").on(0, msn))?;
            msn += 1;
        }
    }
    s.run(MS)?;
    let acks: Vec<Packet> =
        s.since(mark).iter().filter(|packet| packet.is(PacketType::Ack)).cloned().collect();
    let blocks: usize = acks.iter().map(|ack| ack.blocks().len()).sum();
    s.check("MR-ACK-13", blocks == 4, || format!("{blocks} acknowledgements for four paths"))?;
    s.check("MR-ACK-20", acks.len() == 1, || format!("{} ACKs for four paths", acks.len()))
}

//= MR-ACK-14 test
fn jump(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = s.connect()?;
    s.settle()?;
    let mark = s.mark();
    let mut early = Vec::new();
    for msn in 0..4 {
        early.push(s.send(&mut link, 0, &more(&region, msn))?);
    }
    link.skip_psns(0, 300);
    let late = s.send(&mut link, 0, &write(&region, 0, b"x").on(1, 0))?;
    s.expect("MR-ACK-10", mark, "an ACK of the late one", |packet| {
        packet.block_of(0).is_some_and(|block| block.accepts(late.psn))
    })?;
    for fired in early {
        let told = s
            .since(mark)
            .iter()
            .filter_map(|packet| packet.block_of(0))
            .any(|block| block.accepts(fired.psn));
        s.check("MR-ACK-14", told, || format!("PSN {} left the vector untold", fired.psn))?;
    }
    Ok(())
}

//= MR-ACK-17 test
fn rotation(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = s.connect()?;
    s.settle()?;
    let mut travelled = Vec::new();
    for msn in 0..16 {
        let mark = s.mark();
        s.send(&mut link, 0, &write(&region, 0, b"x").on(0, msn))?;
        let ack = s.expect("MR-ACK-10", mark, "an ACK", |packet| packet.is(PacketType::Ack))?;
        travelled.push(ack.base.path.0);
    }
    let paths = usize::from(link.paths());
    let repeated = travelled.iter().zip(travelled.iter().skip(1)).any(|(a, b)| a == b);
    s.check("MR-ACK-17", paths == 1 || !repeated, || format!("ACKs travelled over paths {travelled:?}"))?;
    for path in 0..link.paths() {
        s.check("MR-ACK-17", paths > 16 || travelled.contains(&path), || {
            format!("no ACK travelled over path {path}: {travelled:?}")
        })?;
    }
    Ok(())
}

//= MR-ACK-16 test
fn unanswered(s: &mut Script<'_>) -> Outcome {
    let mut link = s.connect()?;
    s.settle()?;
    // The device's PROBEs of the path MTU are answered, so that it comes to rest.
    s.serve(&mut link, s.pick(20 * MS, 60 * MS), &mut |_| Treat::Accept, &mut |_, _| Ok(false))?;
    let mark = s.mark();
    for _ in 0..20 {
        s.acknowledge(&link, &[0])?;
    }
    s.run(s.pick(8 * MS, 30 * MS))?;
    let answer = s.since(mark).iter().any(|packet| !packet.is(PacketType::Probe));
    s.check("MR-ACK-16", !answer, || "an ACK is answered".to_owned())
}

//= MR-ACK-8 test
fn epochs(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = s.connect()?;
    s.settle()?;
    let old = s.send(&mut link, 0, &more(&region, 0))?;
    link.epochs.insert(0, 1);
    let mark = s.mark();
    let new = s.send(&mut link, 0, &write(&region, 0, b"x").on(1, 0))?;
    let ack = s.expect("MR-ACK-8", mark, "an ACK of both", |packet| {
        packet.block_of(0).is_some_and(|block| block.accepts(new.psn) && block.accepts(old.psn))
    })?;
    let epoch = ack.block_of(0).map(|block| block.body.epoch);
    s.check("MR-ACK-8", epoch == Some(1), || format!("the epoch is told as {epoch:?}, not 1"))
}

/// Lets the device find the path MTU, so that nothing but what a case asks for is in flight.
pub(super) fn calm(s: &mut Script<'_>, link: &mut Link) -> Outcome {
    let span = s.pick(30 * MS, 60 * MS);
    s.serve(link, span, &mut |_| Treat::Accept, &mut |_, _| Ok(false))?;
    Ok(())
}

/// Has the device send a WRITE of `length` bytes as message 0 of stream 0, and returns its packets.
pub(super) fn outgoing(
    s: &mut Script<'_>,
    link: &mut Link,
    region: &Region,
    length: u32,
) -> Outcome<Vec<Packet>> {
    calm(s, link)?;
    let mark = s.mark();
    s.post(link, 0, 1, write_request(5, 0), local(region, 0, length))?;
    s.expect("MR-OP-9", mark, "the WRITE of the device", |packet| packet.data().is_some())?;
    s.run(s.pick(MS, 5 * MS))?;
    Ok(s.since(mark).iter().filter(|packet| packet.data().is_some()).cloned().collect())
}

//= MR-ACK-28 test
fn of_unsent(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = s.connect()?;
    let packets = outgoing(s, &mut link, &region, 64)?;
    let packet = packets.first().ok_or_else(|| Stop::failed("MR-ACK-28", "no packet of the device"))?;
    link.enter(packet, true);
    let before = s.dropped("ack-of-unsent")?;
    let path = packet.base.path.0;
    let good = link.acknowledgement(path, s.now());
    let mut ahead = good;
    ahead.largest = ahead.largest.wrapping_add(1_000);
    let other = (path + 1) % link.paths();
    let mut elsewhere = link.acknowledgement(other, s.now());
    (elsewhere.flags, elsewhere.path, elsewhere.largest) = (0, other, good.largest);
    let nowhere = super::super::wire::AckFields { path: 63, ..good };
    for blocks in [[good, elsewhere], [elsewhere, good], [good, nowhere], [ahead, good]] {
        s.send_ack(&link, &blocks, &[])?;
        s.run(s.pick(300_000, 4 * MS))?;
        let done = s.completion(1)?;
        s.check("MR-ACK-28", done.is_none(), || "an ACK with an impossible block has an effect".to_owned())?;
    }
    let after = s.dropped("ack-of-unsent")?;
    s.check("MR-ACK-28", after == before.map(|count| count + 4), || {
        format!("ACK of unsent was counted {before:?} before and {after:?} after")
    })?;
    s.acknowledge(&link, &[path])?;
    s.expect_completion("MR-STR-5", 1)?;
    Ok(())
}

//= MR-ACK-29, MR-ACK-30 test
fn old(s: &mut Script<'_>) -> Outcome {
    let region = s.region(8192)?;
    let mut link = s.connect_with(|asked| asked.paths = 1, 0)?;
    let packets = outgoing(s, &mut link, &region, 8192)?;
    s.check("MR-DLV-9", packets.len() >= 2, || "8 KiB came in one packet".to_owned())?;
    let mut stale = None;
    for packet in &packets {
        stale = stale.or_else(|| Some(link.acknowledgement(0, s.now())).filter(|ack| ack.flags == 0));
        link.enter(packet, true);
    }
    s.acknowledge(&link, &[0])?;
    s.run(s.pick(200_000, 5 * MS))?;
    let mark = s.mark();
    let stale = stale.ok_or_else(|| Stop::failed("MR-DLV-9", "one packet only"))?;
    for _ in 0..4 {
        s.send_ack(&link, &[stale], &[])?;
    }
    s.serve(&mut link, s.pick(60 * MS, 60 * MS), &mut |_| Treat::Accept, &mut |_, _| Ok(false))?;
    let first: Vec<u32> = packets.iter().filter_map(|p| Some(p.data()?.0.csn.raw())).collect();
    let again =
        s.since(mark).iter().filter_map(|p| Some(p.data()?.0.csn.raw())).find(|csn| first.contains(csn));
    s.check("MR-ACK-29", again.is_none(), || format!("CSN {again:?} goes again after it was acknowledged"))?;
    let status = s.serve_completion("MR-ACK-29", &mut link, 1)?;
    s.check("MR-ACK-30", status == "success", || format!("the WRITE ends as {status}"))
}

//= MR-ACK-31 test
fn lost(s: &mut Script<'_>) -> Outcome {
    let region = s.region(8192)?;
    let mut link = s.connect_with(|asked| asked.paths = 1, 0)?;
    let packets = outgoing(s, &mut link, &region, 8192)?;
    for packet in &packets {
        link.enter(packet, true);
    }
    // One ACK for everything: those before it were lost.
    let mark = s.mark();
    s.acknowledge(&link, &[0])?;
    let status = s.serve_completion("MR-ACK-31", &mut link, 1)?;
    s.check("MR-ACK-31", status == "success", || format!("the WRITE ends as {status}"))?;
    let first: Vec<u32> = packets.iter().filter_map(|p| Some(p.data()?.0.csn.raw())).collect();
    let again =
        s.since(mark).iter().filter_map(|p| Some(p.data()?.0.csn.raw())).any(|csn| first.contains(&csn));
    s.check("MR-ACK-31", !again, || "what the last ACK told goes again".to_owned())
}

//= MR-ACK-15 test
fn ack_now(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = s.connect_with(|asked| asked.paths = 1, 0)?;
    let packets = outgoing(s, &mut link, &region, 64)?;
    let flagged = packets
        .first()
        .and_then(|packet| packet.data())
        .is_some_and(|(data, _)| data.flags.bits() & flag::ACK_NOW != 0);
    s.check("MR-ACK-15", flagged, || "the only packet in flight does not ask for an ACK".to_owned())
}

//= MR-CC-24 test
fn share(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = s.connect()?;
    s.settle()?;
    let mut told = Vec::new();
    for msn in 0..4 {
        let mark = s.mark();
        let data = DataFields { demand_kib: 100, ..write(&region, 0, b"x").on(0, msn) };
        let fired: Fired = s.send(&mut link, 0, &data)?;
        let ack = s.expect("MR-ACK-10", mark, "an ACK", |packet| {
            packet.block_of(0).is_some_and(|block| block.accepts(fired.psn))
        })?;
        told.extend(ack.blocks().iter().map(|block| block.body.share_kbps));
    }
    s.check("MR-CC-24", told.iter().all(|share| *share > 0), || format!("shares are {told:?}"))
}
