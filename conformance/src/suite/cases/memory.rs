//! Who reaches which memory: MR-MEM.

use super::super::case::Case;
use super::super::control::{Answer, Command, Right};
use super::super::link::{Link, Region, atomic, read, write};
use super::super::script::Script;
use super::super::stop::{Outcome, Stop};
use super::super::wire::{DataFields, op};
use super::requests::{accepted, local, refused, result, write_request};

pub(super) const CASES: &[Case] = &[
    Case::new(
        "memory/rights",
        "WRITE, READ and atomic each need their right",
        &["MR-MEM-1", "MR-MEM-2", "MR-MEM-4"],
        rights,
    ),
    Case::new(
        "memory/domains",
        "a region of another protection domain is out of reach",
        &["MR-MEM-1", "MR-MEM-4"],
        domains,
    ),
    Case::new(
        "memory/bounds",
        "what passes the end of a region, or lies before it, is an access fault, and is counted",
        &["MR-MEM-1", "MR-MEM-3", "MR-MEM-4", "MR-MEM-5"],
        bounds,
    ),
    Case::new(
        "memory/every packet",
        "each packet of a WRITE is checked, also when its message began well",
        &["MR-MEM-2", "MR-DLV-6"],
        every_packet,
    ),
    Case::new(
        "memory/deregistered",
        "after deregistration no packet reaches the memory",
        &["MR-MEM-8"],
        deregistered,
    ),
    Case::new("memory/another key", "the old key of a region opens nothing", &["MR-MEM-12"], rekeyed),
    Case::new("memory/keys", "keys are not to be guessed from each other", &["MR-MEM-6"], keys),
    Case::new(
        "memory/in use",
        "a region to which posted work refers can't be deregistered",
        &["MR-MEM-7"],
        in_use,
    ),
    Case::new(
        "memory/local segments",
        "segments outside of their region or of another domain are refused when posted",
        &["MR-MEM-10"],
        local_segments,
    ),
    Case::new(
        "memory/checked again",
        "an atomic that had to wait is checked again when it runs",
        &["MR-MEM-9"],
        checked_again,
    ),
];

/// Sends DATA that must be refused as an access fault, and that ends its stream.
fn fault(s: &mut Script<'_>, requirement: &str, link: &mut Link, data: &DataFields) -> Outcome {
    let mark = s.mark();
    refused(s, requirement, link, 0, data)?;
    let status = result(s, "MR-MEM-4", link, mark, data.msn)?;
    s.check("MR-MEM-4", status == 1, || format!("RESULT has status {status}, not 1, remote access"))
}

//= MR-MEM-1, MR-MEM-2, MR-MEM-4 test
fn rights(s: &mut Script<'_>) -> Outcome {
    let mut link = s.connect()?;
    for (stream, right) in [(0, Right::RemoteWrite), (10, Right::RemoteRead), (20, Right::RemoteAtomic)] {
        let region = s.region_with(64, 0, &[right], 0)?;
        for (number, (needs, data)) in [
            (Right::RemoteWrite, write(&region, 0, b"bad!")),
            (Right::RemoteRead, read(&region, 0, 4)),
            (Right::RemoteAtomic, atomic(op::SWAP, &region, 8, [u64::MAX, 0])),
        ]
        .into_iter()
        .enumerate()
        {
            let data = data.on(stream + u16::try_from(number).unwrap_or(0), 0);
            if needs == right {
                accepted(s, "MR-MEM-1", &mut link, 0, &data)?;
            } else {
                fault(s, "MR-MEM-1", &mut link, &data)?;
            }
        }
        let seen = s.memory(&region, 0, 16)?;
        let clean = match right {
            Right::RemoteWrite => seen == *b"bad!\0\0\0\0\0\0\0\0\0\0\0\0",
            Right::RemoteAtomic => seen == [[0; 8], [0xff; 8]].concat(),
            _ => seen == [0; 16],
        };
        s.check("MR-MEM-1", clean, || format!("with {right:?} alone memory became {seen:?}"))?;
    }
    Ok(())
}

//= MR-MEM-1, MR-MEM-4 test
fn domains(s: &mut Script<'_>) -> Outcome {
    let ours = s.region_with(64, 0, &Right::ALL, 1)?;
    let other = s.region_with(64, 0, &Right::ALL, 2)?;
    let mut link = s.connect_with(|_| {}, 1)?;
    accepted(s, "MR-MEM-1", &mut link, 0, &write(&ours, 0, b"good").on(0, 0))?;
    fault(s, "MR-MEM-1", &mut link, &write(&other, 0, b"bad!").on(1, 0))?;
    fault(s, "MR-MEM-1", &mut link, &read(&other, 0, 8).on(2, 0))?;
    let seen = s.memory(&other, 0, 4)?;
    s.check("MR-MEM-1", seen == [0; 4], || "a region of another domain was written".to_owned())
}

//= MR-MEM-1, MR-MEM-3, MR-MEM-4, MR-MEM-5 test
fn bounds(s: &mut Script<'_>) -> Outcome {
    let base = 1 << 40;
    let region = s.region_with(64, base, &Right::ALL, 0)?;
    let mut link = s.connect()?;
    let before = faults(s)?;
    let at = |address: u64, length: usize| DataFields { address, ..write(&region, 0, &vec![9; length]) };
    accepted(s, "MR-MEM-1", &mut link, 0, &at(base + 60, 4).on(0, 0))?;
    let wrong = [
        ("MR-MEM-1", at(base + 61, 4)),
        ("MR-MEM-1", at(base + 64, 1)),
        ("MR-MEM-1", at(base - 1, 2)),
        ("MR-MEM-1", at(0, 4)),
        ("MR-MEM-3", at(u64::MAX - 1, 4)),
        ("MR-MEM-3", DataFields { address: base + 32, length: 33, ..read(&region, 0, 0) }),
        ("MR-MEM-3", DataFields { address: u64::MAX, length: u32::MAX, ..read(&region, 0, 0) }),
        ("MR-MEM-1", atomic(op::SWAP, &region, 64, [1, 0])),
    ];
    for (number, (requirement, data)) in wrong.iter().enumerate() {
        let stream = 1 + u16::try_from(number).unwrap_or(0);
        fault(s, requirement, &mut link, &data.clone().on(stream, 0))?;
    }
    let after = faults(s)?;
    s.check("MR-MEM-5", after >= before.map(|count| count + 8), || {
        format!("access faults were counted {before:?} before and {after:?} after")
    })?;
    let seen = s.memory(&region, 0, 60)?;
    s.check("MR-MEM-1", seen == [0; 60], || "a fault changed memory".to_owned())
}

fn faults(s: &mut Script<'_>) -> Outcome<Option<u64>> {
    match s.command(&Command::Counters {})? {
        Answer::Counters { access_faults, .. } => Ok(Some(access_faults)),
        _ => Ok(None),
    }
}

//= MR-MEM-2, MR-DLV-6 test
fn every_packet(s: &mut Script<'_>) -> Outcome {
    let (region, other) = (s.region(64)?, s.region_with(64, 0, &[Right::RemoteRead], 0)?);
    let mut link = s.connect()?;
    let whole = write(&region, 0, &[5; 32]).on(0, 0);
    accepted(s, "MR-MEM-2", &mut link, 0, &whole.clone().part(0, 16))?;
    // Its second half names memory that may not be written.
    fault(s, "MR-MEM-2", &mut link, &DataFields { key: other.key, ..whole.part(16, 32) })?;
    let seen = [s.memory(&region, 16, 16)?, s.memory(&other, 16, 16)?].concat();
    s.check("MR-DLV-6", seen == [0; 32], || "a refused packet placed bytes".to_owned())
}

//= MR-MEM-8 test
fn deregistered(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = s.connect()?;
    accepted(s, "MR-MEM-8", &mut link, 0, &write(&region, 0, b"good").on(0, 0))?;
    s.done(&Command::Deregister { region: region.number })?;
    fault(s, "MR-MEM-8", &mut link, &write(&region, 0, b"bad!").on(0, 1))?;
    // The slot is used again: the old key must not open the new region.
    let next = s.region(64)?;
    s.check("MR-MEM-8", next.key != region.key, || {
        "the key of a region that is gone is given again".to_owned()
    })?;
    fault(s, "MR-MEM-8", &mut link, &write(&region, 0, b"bad!").on(1, 0))?;
    let seen = s.memory(&next, 0, 4)?;
    s.check("MR-MEM-8", seen == [0; 4], || "an old key opens the region that came after".to_owned())
}

//= MR-MEM-12 test
fn rekeyed(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = s.connect()?;
    let key = match s.command(&Command::Rekey { region: region.number })? {
        Answer::Region { key, .. } => key,
        other => return Err(Stop::Broken(format!("rekey is answered by {other:?}"))),
    };
    s.check("MR-MEM-12", key != region.key, || "the new key is the old one".to_owned())?;
    fault(s, "MR-MEM-12", &mut link, &write(&region, 0, b"bad!").on(0, 0))?;
    let renewed = Region { key, ..region };
    accepted(s, "MR-MEM-12", &mut link, 0, &write(&renewed, 8, b"good").on(1, 0))?;
    let seen = s.memory(&region, 0, 12)?;
    s.check("MR-MEM-12", seen == b"\0\0\0\0\0\0\0\0good", || format!("memory holds {seen:?}"))
}

//= MR-MEM-6 test
fn keys(s: &mut Script<'_>) -> Outcome {
    let mut all = Vec::new();
    for _ in 0..16 {
        all.push(s.region(8)?.key);
    }
    let (ones, zeros) = all.iter().fold((0, 0), |(ones, zeros), key| (ones | key, zeros | !key));
    // Each bit that is random stays the same in 16 keys once in 2^15.
    s.check("MR-MEM-6", (ones & zeros).count_ones() >= 12, || {
        format!("16 keys differ in {:08x} only", ones & zeros)
    })?;
    let near = all.iter().zip(all.iter().skip(1)).filter(|(a, b)| a.abs_diff(**b) < 1 << 8).count();
    s.check("MR-MEM-6", near <= 1, || format!("keys follow each other: {all:08x?}"))
}

//= MR-MEM-7 test
fn in_use(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let link = s.connect()?;
    s.post_receive(&link, 0, 1, local(&region, 0, 8))?;
    let answer = s.command(&Command::Deregister { region: region.number })?;
    s.check("MR-MEM-7", matches!(answer, Answer::Refused { .. }), || {
        format!("a region with a posted receive is deregistered: {answer:?}")
    })?;
    let other = s.region(64)?;
    s.post(&link, 1, 2, write_request(9, 0), local(&other, 0, 8))?;
    let answer = s.command(&Command::Deregister { region: other.number })?;
    s.check("MR-MEM-7", matches!(answer, Answer::Refused { .. }), || {
        format!("a region that is being sent is deregistered: {answer:?}")
    })
}

//= MR-MEM-10 test
fn local_segments(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let foreign = s.region_with(64, 0, &Right::ALL, 3)?;
    let fixed = s.region_with(64, 0, &[Right::RemoteRead], 0)?;
    let link = s.connect()?;
    for (what, segment, receive) in [
        ("past the end", local(&region, 60, 8), false),
        ("far past the end", local(&region, u32::MAX, 8), false),
        ("of another domain", local(&foreign, 0, 8), false),
        ("of another domain", local(&foreign, 0, 8), true),
        ("not to be written", local(&fixed, 0, 8), true),
    ] {
        let (connection, stream, id, segments) = (link.number, 0, 1, vec![segment]);
        let answer = if receive {
            s.command(&Command::PostReceive { connection, stream, id, segments, tag: None })?
        } else {
            let request = write_request(9, 0);
            let (fence, solicited) = (false, false);
            s.command(&Command::Post { connection, stream, id, request, segments, fence, solicited })?
        };
        s.check("MR-MEM-10", matches!(answer, Answer::Refused { .. }), || {
            format!("a segment {what} is taken: {answer:?}")
        })?;
    }
    Ok(())
}

//= MR-MEM-9 test
fn checked_again(s: &mut Script<'_>) -> Outcome {
    let (region, word) = (s.region(64)?, s.region(64)?);
    let mut link = s.connect()?;
    accepted(s, "MR-MEM-9", &mut link, 0, &atomic(op::SWAP, &word, 0, [u64::MAX, 0]).on(0, 1))?;
    // Rekeyed, since a device may refuse to deregister what is waited for.
    s.command(&Command::Rekey { region: word.number })?;
    let mark = s.mark();
    accepted(s, "MR-MEM-9", &mut link, 0, &write(&region, 0, b"x").on(0, 0))?;
    let status = result(s, "MR-MEM-9", &mut link, mark, 1)?;
    s.check("MR-MEM-9", status == 1, || format!("RESULT has status {status}, not 1, remote access"))?;
    let seen = s.memory(&word, 0, 8)?;
    s.check("MR-MEM-9", seen == [0; 8], || "an atomic ran under a key that is gone".to_owned())
}
