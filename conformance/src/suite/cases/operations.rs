//! What each operation does at its target: MR-OP.

use metaroce_core::ids::Serial as _;
use metaroce_core::wire::Opcode;

use super::super::case::{Case, Profile};
use super::super::control::{Command, DeviceEvent, Right, Settings, Tag};
use super::super::link::{Link, Region, atomic, read, send, write};
use super::super::script::{MS, Script, Shot};
use super::super::stop::{Outcome, Stop};
use super::super::wire::{BaseFields, DataFields, flag, kind, op};
use super::requests::{
    accepted, answer, data_since, local, refused, result, status_of, stream_reset, take_all, verdict,
};

pub(super) const CASES: &[Case] = &[
    Case::new(
        "operations/SEND in any order",
        "SENDs fill the receives that they name, whatever came before, and complete in their order",
        &["MR-OP-1", "MR-OP-2", "MR-OP-5", "MR-DLV-7"],
        sends,
    ),
    Case::new(
        "operations/SEND too long",
        "a SEND longer than its receive ends the stream, and the receive completes with local length",
        &["MR-OP-4"],
        too_long,
    ),
    Case::new(
        "operations/one receive, two messages",
        "a second message that names a claimed receive is refused and ends the stream",
        &["MR-OP-3"],
        claimed_twice,
    ),
    Case::new(
        "operations/WRITE with immediate",
        "its completion comes after all its packets and all earlier messages, and carries the immediate",
        &["MR-OP-6", "MR-OP-7", "MR-OP-19", "MR-OP-20"],
        write_immediate,
    ),
    Case::new(
        "operations/READ",
        "a READ waits for earlier messages, and is answered by READ_RESPONSE packets under its stream and MSN",
        &["MR-OP-8", "MR-WIRE-18", "MR-WIRE-19"],
        reads,
    ),
    Case::new(
        "operations/READs beyond the grant",
        "more READs than granted are refused",
        &["MR-OP-14"],
        reads_granted,
    )
    .with(Settings { reads_granted: Some(2), ..Settings::NONE }),
    Case::new(
        "operations/atomics",
        "each atomic runs once, in order, and answers with the value before it",
        &["MR-OP-12", "MR-WIRE-20", "MR-WIRE-21", "MR-DLV-4"],
        atomics,
    )
    .of(Profile::Atomics),
    Case::new(
        "operations/misaligned atomic",
        "a misaligned atomic ends the stream with remote invalid",
        &["MR-OP-13"],
        misaligned,
    )
    .of(Profile::Atomics),
    Case::new(
        "operations/zero length",
        "SEND, WRITE and READ of zero bytes are ordered and complete, and need no valid key",
        &["MR-OP-16", "MR-OP-17"],
        zero_length,
    ),
    Case::new(
        "operations/invalidate",
        "SEND with invalidate takes the key away, once, when its turn comes",
        &["MR-OP-21", "MR-MEM-12"],
        invalidate,
    ),
    Case::new(
        "operations/signal",
        "a signal adds once, after everything earlier in its stream is placed",
        &["MR-OP-22"],
        signal,
    )
    .of(Profile::Atomics),
    Case::new(
        "operations/tagged",
        "a tagged SEND takes the first posted entry that matches, in the order of the stream",
        &["MR-OP-23", "MR-OP-24", "MR-OP-29"],
        tagged,
    ),
    Case::new(
        "operations/ordered tails",
        "with ordered tails the last cache line of a WRITE lands after the rest and after earlier messages",
        &["MR-OP-25"],
        tails,
    ),
    Case::new(
        "operations/datagrams",
        "a datagram is delivered once to its queue if number, key and receive fit, is counted if not, and takes no CSN",
        &["MR-OP-26", "MR-OP-27", "MR-OP-28", "MR-ACK-3", "MR-ACK-4"],
        datagrams,
    )
    .of(Profile::Datagram),
    Case::new(
        "operations/fence",
        "a request with a fence starts when earlier READs are complete",
        &["MR-OP-15"],
        fence,
    ),
    Case::new(
        "operations/late response",
        "a response after the completion of its request touches no memory",
        &["MR-OP-11"],
        late_response,
    ),
    Case::new(
        "operations/segments",
        "a request gathers its bytes from four segments",
        &["MR-OP-18"],
        segments,
    ),
];

//= MR-OP-1, MR-OP-2, MR-OP-5, MR-DLV-7 test
fn sends(s: &mut Script<'_>) -> Outcome {
    let region = s.region(256)?;
    let mut link = s.connect()?;
    for index in 0..3 {
        s.post_receive(&link, 0, u64::from(index), local(&region, 64 * index, 64))?;
    }
    accepted(s, "MR-OP-1", &mut link, 0, &send(b"third").on(0, 2).receive(2))?;
    let seen = s.memory(&region, 128, 5)?;
    s.check("MR-OP-1", seen == b"third", || "a SEND ahead of its predecessors is not placed".to_owned())?;
    let whole = send(b"second one").on(0, 1).receive(1);
    let other = 1 % link.paths();
    accepted(s, "MR-OP-1", &mut link, other, &whole.clone().part(6, 10))?;
    let seen = s.memory(&region, 64, 10)?;
    s.check("MR-DLV-7", seen == b"\0\0\0\0\0\0 one", || format!("a later part lies as {seen:?}"))?;
    let early = s.completed_ids()?;
    s.check("MR-OP-5", early.is_empty(), || format!("receives {early:?} complete before their turn"))?;
    accepted(s, "MR-OP-1", &mut link, 0, &whole.part(0, 6))?;
    accepted(s, "MR-OP-1", &mut link, 0, &send(b"first").on(0, 0).receive(0))?;
    s.expect_completion("MR-OP-5", 2)?;
    let order = s.completed_ids()?;
    s.check("MR-OP-5", order == [0, 1, 2], || format!("receives complete in the order {order:?}"))?;
    let seen = s.memory(&region, 64, 10)?;
    s.check("MR-OP-1", seen == b"second one", || format!("the second SEND lies as {seen:?}"))
}

//= MR-OP-4 test
fn too_long(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = s.connect()?;
    s.post_receive(&link, 0, 1, local(&region, 0, 4))?;
    let mark = s.mark();
    refused(s, "MR-OP-4", &mut link, 0, &send(b"five!").on(0, 0))?;
    let status = result(s, "MR-OP-4", &mut link, mark, 0)?;
    s.check("MR-OP-4", status == 3, || format!("RESULT has status {status}, not 3, remote invalid"))?;
    s.send(&mut link, 0, &stream_reset(0, 1))?;
    let done = s.expect_completion("MR-OP-4", 1)?;
    s.check("MR-OP-4", status_of(&done) == "local-length", || format!("the receive ends as {done:?}"))?;
    let seen = s.memory(&region, 0, 8)?;
    s.check("MR-DLV-6", seen == [0; 8], || "a refused SEND placed bytes".to_owned())
}

//= MR-OP-3 test
fn claimed_twice(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = s.connect()?;
    s.post_receive(&link, 0, 1, local(&region, 0, 32))?;
    accepted(s, "MR-OP-2", &mut link, 0, &send(&[1; 8]).on(0, 0).part(0, 4))?;
    let mark = s.mark();
    refused(s, "MR-OP-3", &mut link, 0, &send(&[2; 8]).on(0, 1))?;
    result(s, "MR-OP-3", &mut link, mark, 1)?;
    let seen = s.memory(&region, 0, 8)?;
    s.check("MR-OP-3", seen == [1, 1, 1, 1, 0, 0, 0, 0], || format!("the receive holds {seen:?}"))
}

//= MR-OP-6, MR-OP-7, MR-OP-19, MR-OP-20 test
fn write_immediate(s: &mut Script<'_>) -> Outcome {
    let region = s.region(256)?;
    let mut link = s.connect()?;
    s.post_receive(&link, 0, 9, local(&region, 200, 8))?;
    let whole = write(&region, 8, b"0123456789abcdef").on(0, 1).immediate(0xfeed).with(flag::SOLICITED);
    accepted(s, "MR-OP-7", &mut link, 0, &whole.clone().part(8, 16))?;
    let early = s.completed_ids()?;
    s.check("MR-OP-7", early.is_empty(), || "it completes before its first packet".to_owned())?;
    accepted(s, "MR-OP-7", &mut link, 0, &whole.part(0, 8))?;
    s.settle()?;
    let early = s.completed_ids()?;
    s.check("MR-OP-7", early.is_empty(), || "it completes before the message before it".to_owned())?;
    accepted(s, "MR-OP-7", &mut link, 0, &write(&region, 0, b"earlier").on(0, 0))?;
    let done = s.expect_completion("MR-OP-7", 9)?;
    let DeviceEvent::Completion { status, immediate, solicited, .. } = &done else { return Ok(()) };
    s.check("MR-OP-19", status == "success" && *immediate == Some(0xfeed), || {
        format!("it completes as {done:?}")
    })?;
    s.check("MR-OP-20", *solicited, || "SOLICITED is not reported".to_owned())?;
    let seen = s.memory(&region, 0, 24)?;
    s.check("MR-OP-6", seen == b"earlier\x000123456789abcdef", || format!("memory holds {seen:?}"))
}

//= MR-OP-8, MR-WIRE-18, MR-WIRE-19 test
fn reads(s: &mut Script<'_>) -> Outcome {
    let region = s.region(8192)?;
    let mut link = s.connect()?;
    let pattern: Vec<u8> = (0..5000_u32).map(|at| at.to_le_bytes()[0] ^ at.to_le_bytes()[1]).collect();
    s.fill(&region, 1000, &pattern)?;
    let mark = s.mark();
    accepted(s, "MR-OP-8", &mut link, 0, &read(&region, 1000, 5000).on(4, 1))?;
    s.settle()?;
    let early = data_since(s, &link, mark, Opcode::ReadResponse);
    s.check("MR-OP-8", early.is_empty(), || "a READ is answered before the message before it".to_owned())?;
    accepted(s, "MR-OP-8", &mut link, 0, &write(&region, 1000, b"first").on(4, 0))?;
    answer(s, "MR-OP-8", &mut link, mark, Opcode::ReadResponse, 1)?;
    let served = s.pick(100 * MS, 300 * MS);
    s.serve(&mut link, served, &mut |_| super::super::script::Treat::Accept, &mut |s, link| {
        let bytes: usize =
            data_since(s, link, mark, Opcode::ReadResponse).iter().map(|(_, payload)| payload.len()).sum();
        Ok(bytes >= 5000)
    })?;
    let mut seen = vec![0; 5000];
    for (header, payload) in data_since(s, &link, mark, Opcode::ReadResponse) {
        let names = (header.stream.0, header.msn.raw(), header.length, header.receive_index.raw());
        s.check("MR-WIRE-18", names.0 == 4 && names.1 == 1, || format!("a response carries {names:?}"))?;
        s.check("MR-WIRE-19", names.3 == 0, || "a response names a receive".to_owned())?;
        s.check("MR-OP-8", names.2 == 5000, || format!("a response tells a length of {}", names.2))?;
        let start = header.offset as usize;
        seen.get_mut(start..start + payload.len()).into_iter().for_each(|to| to.copy_from_slice(&payload));
    }
    let mut expected = pattern;
    expected.get_mut(..5).into_iter().for_each(|to| to.copy_from_slice(b"first"));
    s.check("MR-OP-8", seen == expected, || "a READ brings other bytes".to_owned())
}

//= MR-OP-14 test
fn reads_granted(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = s.connect()?;
    s.check("MR-OP-14", link.terms.reads == 2, || format!("ACCEPT grants {} READs", link.terms.reads))?;
    // They wait for message 0, and so stay outstanding.
    accepted(s, "MR-OP-14", &mut link, 0, &read(&region, 0, 8).on(0, 1))?;
    accepted(s, "MR-OP-14", &mut link, 0, &read(&region, 0, 8).on(0, 2))?;
    let mark = s.mark();
    refused(s, "MR-OP-14", &mut link, 0, &read(&region, 0, 8).on(0, 3))?;
    let reason = s.since(mark).iter().find_map(|packet| packet.nack(0));
    s.check("MR-OP-14", reason.is_some_and(|(reason, _)| reason == 2), || {
        format!("the NACK says {reason:?}, not 2, no slot")
    })
}

fn word(s: &mut Script<'_>, region: &Region) -> Outcome<u64> {
    let bytes = s.memory(region, 0, 8)?;
    // Words of memory are in the byte order of the device's machine; the suite's is taken to be the same.
    Ok(u64::from_ne_bytes(bytes.try_into().unwrap_or_default()))
}

//= MR-OP-12, MR-WIRE-20, MR-WIRE-21, MR-DLV-4 test
fn atomics(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = s.connect()?;
    s.fill(&region, 0, &100_u64.to_ne_bytes())?;
    let steps: [(u8, [u64; 2], u64); 8] = [
        (0x10, [u64::MAX, 0], 99),
        (0x11, [99, 7], 7),
        (0x12, [12, 0], 12),
        (0x13, [u64::MAX, 0], 12),
        (0x14, [0xff00, 0], 0xff00),
        (0x15, [0x0f00, 0], 0x0f00),
        (0x16, [0x00f0, 0], 0x0ff0),
        (0x17, [0x0fff, 0], 0x000f),
    ];
    let mark = s.mark();
    let mut fired = Vec::new();
    // The later ones first: they must wait.
    for (number, (opcode, operands, _)) in steps.iter().enumerate().skip(1) {
        let msn = u32::try_from(number).unwrap_or(0);
        let data = atomic(*opcode, &region, 0, *operands).on(0, msn);
        fired.push((s.send(&mut link, 0, &data)?, data));
    }
    s.settle()?;
    let now = word(s, &region)?;
    s.check("MR-OP-12", now == 100, || format!("an atomic ran before the message before it: {now}"))?;
    let first = atomic(steps[0].0, &region, 0, steps[0].1).on(0, 0);
    fired.push((s.send(&mut link, 0, &first)?, first));
    let mut before = 100;
    for (number, (opcode, _, after)) in steps.iter().enumerate() {
        let msn = u32::try_from(number).unwrap_or(0);
        let (_, payload) = answer(s, "MR-OP-12", &mut link, mark, Opcode::AtomicResponse, msn)?;
        let told = u64::from_be_bytes(payload.try_into().unwrap_or_default());
        // A later one shows what the one before it did.
        let id = if number == 0 { "MR-WIRE-21" } else { "MR-WIRE-20" };
        s.check(id, told == before, || format!("opcode {opcode:#x} answers {told:#x}, not {before:#x}"))?;
        before = *after;
    }
    let now = word(s, &region)?;
    s.check("MR-WIRE-20", now == before, || format!("the word is {now:#x}, not {before:#x}"))?;
    // Copies under new PSNs, over other paths.
    for (number, (fired, data)) in fired.iter().enumerate() {
        let path = u8::try_from(number).unwrap_or(0) % link.paths();
        s.fire(&mut link, Shot::on(path).csn(fired.csn), data)?;
    }
    s.settle()?;
    take_all(s, &mut link, mark)?;
    let now = word(s, &region)?;
    s.check("MR-OP-12", now == before, || format!("copies of atomics ran again: the word is {now:#x}"))
}

//= MR-OP-13 test
fn misaligned(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = s.connect()?;
    let mark = s.mark();
    refused(s, "MR-OP-13", &mut link, 0, &atomic(op::FETCH_ADD, &region, 4, [1, 0]).on(0, 0))?;
    let status = result(s, "MR-OP-13", &mut link, mark, 0)?;
    s.check("MR-OP-13", status == 3, || format!("RESULT has status {status}, not 3, remote invalid"))
}

//= MR-OP-16, MR-OP-17 test
fn zero_length(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let nowhere = Region { key: region.key ^ 0x5555_5555, ..region };
    let mut link = s.connect()?;
    s.post_receive(&link, 0, 7, local(&region, 0, 0))?;
    let mark = s.mark();
    accepted(s, "MR-OP-17", &mut link, 0, &write(&nowhere, 0, b"").on(0, 0))?;
    accepted(s, "MR-OP-17", &mut link, 0, &read(&nowhere, 0, 0).on(0, 1))?;
    accepted(s, "MR-OP-16", &mut link, 0, &send(b"").on(0, 2))?;
    let (header, payload) = answer(s, "MR-OP-16", &mut link, mark, Opcode::ReadResponse, 1)?;
    s.check("MR-OP-16", payload.is_empty() && header.length == 0, || format!("{header:?}"))?;
    let done = s.expect_completion("MR-OP-16", 7)?;
    s.check("MR-OP-16", status_of(&done) == "success", || format!("the receive ends as {done:?}"))
}

//= MR-OP-21, MR-MEM-12 test
fn invalidate(s: &mut Script<'_>) -> Outcome {
    let (region, window) = (s.region(64)?, s.region(64)?);
    let mut link = s.connect()?;
    s.post_receive(&link, 0, 3, local(&region, 0, 8))?;
    let take = DataFields { immediate: window.key, ..send(b"x").on(0, 1) }.with(flag::INVALIDATE);
    accepted(s, "MR-OP-21", &mut link, 0, &take)?;
    accepted(s, "MR-OP-21", &mut link, 0, &write(&window, 0, b"still").on(1, 0))?;
    accepted(s, "MR-OP-21", &mut link, 0, &write(&region, 32, b"before").on(0, 0))?;
    let done = s.expect_completion("MR-OP-21", 3)?;
    let told =
        matches!(&done, DeviceEvent::Completion { invalidated, .. } if *invalidated == Some(window.key));
    s.check("MR-OP-21", told, || format!("the completion does not name the key: {done:?}"))?;
    let mark = s.mark();
    refused(s, "MR-MEM-12", &mut link, 0, &write(&window, 0, b"gone?").on(1, 1))?;
    result(s, "MR-MEM-12", &mut link, mark, 1)?;
    let seen = s.memory(&window, 0, 5)?;
    s.check("MR-MEM-12", seen == b"still", || "a key that was taken away still opens".to_owned())
}

//= MR-OP-22 test
fn signal(s: &mut Script<'_>) -> Outcome {
    let region = s.region(256)?;
    let mut link = s.connect()?;
    let data = DataFields { signal: (region.key, 0, 5), ..write(&region, 64, b"data").on(0, 1) };
    let data = data.with(flag::SIGNAL);
    let mark = s.mark();
    let fired = s.send(&mut link, 0, &data)?;
    super::requests::verdict_of(s, mark, &fired)?;
    let early = word(s, &region)?;
    s.check("MR-OP-22", early == 0, || {
        "a signal is given before the message before it is placed".to_owned()
    })?;
    accepted(s, "MR-OP-22", &mut link, 0, &write(&region, 128, b"first").on(0, 0))?;
    s.settle()?;
    let now = word(s, &region)?;
    s.check("MR-OP-22", now == 5, || format!("the word is {now}, not 5"))?;
    s.fire(&mut link, Shot::on(0).csn(fired.csn), &data)?;
    s.settle()?;
    let now = word(s, &region)?;
    s.check("MR-OP-22", now == 5, || format!("a copy adds again: the word is {now}"))
}

//= MR-OP-23, MR-OP-24, MR-OP-29 test
fn tagged(s: &mut Script<'_>) -> Outcome {
    let region = s.region(256)?;
    let mut link = s.connect()?;
    for (number, (bits, ignored)) in [(0x10, 0xf), (0x12, 0), (0x20, 0)].into_iter().enumerate() {
        let number = u32::try_from(number).unwrap_or(0);
        s.done(&Command::PostReceive {
            connection: link.number,
            stream: 0,
            id: u64::from(number),
            segments: vec![local(&region, 16 * number, 16)],
            tag: Some(Tag { bits, ignored }),
        })?;
    }
    let tagged = |bits: u64, msn: u32, payload: &[u8]| DataFields {
        match_bits: bits,
        ..send(payload).on(0, msn).receive(msn).with(flag::TAGGED)
    };
    accepted(s, "MR-OP-23", &mut link, 0, &tagged(0x12, 0, b"one"))?;
    accepted(s, "MR-OP-23", &mut link, 0, &tagged(0x12, 1, b"two"))?;
    refused(s, "MR-OP-23", &mut link, 0, &tagged(0x33, 2, b"nobody"))?;
    // What was refused keeps its place: a later one may take only what none before would match.
    accepted(s, "MR-OP-24", &mut link, 0, &tagged(0x20, 3, b"three"))?;
    let seen = s.memory(&region, 0, 48)?;
    let expected = [b"one".as_slice(), &[0; 13], b"two", &[0; 13], b"three", &[0; 11]].concat();
    s.check("MR-OP-23", seen == expected, || format!("entries hold {seen:?}"))?;
    // A second refused one with the bits of an entry that comes later, then one that it would match.
    s.done(&Command::PostReceive {
        connection: link.number,
        stream: 0,
        id: 9,
        segments: vec![local(&region, 64, 16)],
        tag: Some(Tag { bits: 0x33, ignored: 0 }),
    })?;
    let late = verdict(s, &mut link, 0, &tagged(0x33, 4, b"thief"))?;
    s.check("MR-OP-24", !late, || {
        "a later SEND takes the entry of an earlier one that was refused".to_owned()
    })?;
    accepted(s, "MR-OP-24", &mut link, 0, &tagged(0x33, 2, b"owners"))?;
    let seen = s.memory(&region, 64, 6)?;
    s.check("MR-OP-24", seen == b"owners", || format!("the entry holds {seen:?}"))
}

//= MR-OP-25 test
fn tails(s: &mut Script<'_>) -> Outcome {
    let mut rights = Right::ALL.to_vec();
    rights.push(Right::OrderedTails);
    let region = s.region_with(512, 0, &rights, 0)?;
    let mut link = s.connect()?;
    let whole = write(&region, 0, &[7; 256]).on(0, 1);
    accepted(s, "MR-OP-25", &mut link, 0, &whole.clone().part(128, 256))?;
    let early = s.memory(&region, 192, 64)?;
    s.check("MR-OP-25", early == [0; 64], || "the last line landed before the rest".to_owned())?;
    accepted(s, "MR-OP-25", &mut link, 0, &whole.part(0, 128))?;
    let early = s.memory(&region, 192, 64)?;
    s.check("MR-OP-25", early == [0; 64], || "the last line landed before an earlier message".to_owned())?;
    accepted(s, "MR-OP-25", &mut link, 0, &write(&region, 300, &[1; 8]).on(0, 0))?;
    s.settle()?;
    let seen = s.memory(&region, 0, 256)?;
    s.check("MR-OP-25", seen == [7; 256], || "the held line never landed".to_owned())
}

fn datagram(
    s: &mut Script<'_>,
    link: &mut Link,
    queue: (u32, u32),
    payload: &[u8],
    psn: Option<u32>,
) -> Outcome<u32> {
    let psn = psn.unwrap_or_else(|| link.take_psn(0));
    let data = DataFields {
        opcode: op::DATAGRAM,
        flags: flag::LAST,
        offset: queue.0,
        length: u32::try_from(payload.len()).unwrap_or(0),
        msn: 77,
        receive_index: queue.1,
        payload: payload.to_vec(),
        ..DataFields::default()
    };
    let base = BaseFields { psn, ..s.base(kind::DATA, link.theirs()) };
    let sent = super::super::monitor::Sent { csn: None, timestamp: base.timestamp, copies: 1 };
    s.monitor.on_sent(link, 0, psn, sent);
    let bytes = base.datagram(&data.body());
    s.send_raw(super::super::port::Source::Other(1), &bytes)?;
    Ok(psn)
}

//= MR-OP-26, MR-OP-27, MR-OP-28, MR-ACK-3, MR-ACK-4 test
fn datagrams(s: &mut Script<'_>) -> Outcome {
    let region = s.region(256)?;
    let mut link = s.connect()?;
    let queue = match s.command(&Command::CreateQueue { domain: 0, datagrams: Some((5, 99)) })? {
        super::super::control::Answer::Queue { queue } => queue,
        other => return Err(Stop::Broken(format!("create-queue is answered by {other:?}"))),
    };
    for id in 0..2 {
        let segments = vec![local(&region, 32 * id, 16)];
        s.done(&Command::PostQueueReceive { queue, id: u64::from(id), segments })?;
    }
    s.settle()?;
    let before = s.dropped("datagram")?;
    let mark = s.mark();
    let good = datagram(s, &mut link, (5, 99), b"good", None)?;
    let done = s.expect_event("MR-OP-27", "a datagram", |event| {
        matches!(event, DeviceEvent::Datagram { id: 0, .. })
    })?;
    let fits = matches!(done, DeviceEvent::Datagram { bytes: 4, source_queue: 77, .. });
    s.check("MR-OP-27", fits, || format!("it arrives as {done:?}"))?;
    datagram(s, &mut link, (5, 99), b"good", Some(good))?;
    s.settle()?;
    let twice = s.poll()?.iter().filter(|event| matches!(event, DeviceEvent::Datagram { .. })).count();
    s.check("MR-OP-28", twice == 1, || "a datagram is delivered twice".to_owned())?;
    datagram(s, &mut link, (5, 98), b"key", None)?;
    datagram(s, &mut link, (6, 99), b"number", None)?;
    let last = datagram(s, &mut link, (5, 99), b"longer than sixteen", None)?;
    s.settle()?;
    let after = s.dropped("datagram")?;
    s.check("MR-OP-27", after == before.map(|count| count + 3), || {
        format!("dropped datagrams were counted {before:?} before and {after:?} after")
    })?;
    let seen = s.memory(&region, 0, 64)?;
    s.check("MR-OP-27", seen.iter().skip(4).all(|byte| *byte == 0), || {
        "a wrong datagram is placed".to_owned()
    })?;
    let (_, _) = s.send_probe(&mut link, 0, 0xffff)?;
    s.settle()?;
    let block = super::acknowledgements::newest(s, mark, 0);
    let told = block.is_some_and(|block| block.accepts(good) && block.accepts(last));
    s.check("MR-ACK-3", told, || format!("datagrams are not entered: {block:?}"))?;
    let cumulative = block.map(|block| block.body.cumulative.raw());
    s.check("MR-OP-26", cumulative == Some(link.next_csn), || "a datagram took a CSN".to_owned())
}

//= MR-OP-15 test
fn fence(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = s.connect()?;
    s.settle()?;
    let mark = s.mark();
    let from = super::super::control::Place { key: 9, address: 0 };
    s.post(&link, 0, 1, super::super::control::Request::Read { from }, local(&region, 0, 8))?;
    s.done(&Command::Post {
        connection: link.number,
        stream: 0,
        id: 2,
        request: super::requests::write_request(9, 0),
        segments: vec![local(&region, 8, 8)],
        fence: true,
        solicited: false,
    })?;
    answer(s, "MR-OP-9", &mut link, mark, Opcode::ReadRequest, 0)?;
    s.serve(
        &mut link,
        s.pick(20 * MS, 60 * MS),
        &mut |_| super::super::script::Treat::Accept,
        &mut |_, _| Ok(false),
    )?;
    let early = data_since(s, &link, mark, Opcode::Write);
    s.check("MR-OP-15", early.is_empty(), || {
        "a request with a fence starts before the READ is complete".to_owned()
    })?;
    s.send(&mut link, 0, &response(0, b"response"))?;
    answer(s, "MR-OP-15", &mut link, mark, Opcode::Write, 1)?;
    let status = s.serve_completion("MR-OP-15", &mut link, 2)?;
    s.check("MR-OP-15", status == "success", || format!("the WRITE ends as {status}"))?;
    let seen = s.memory(&region, 0, 8)?;
    s.check("MR-OP-8", seen == b"response", || "a READ_RESPONSE is not placed".to_owned())
}

/// A READ_RESPONSE of message `msn` of stream 0.
fn response(msn: u32, payload: &[u8]) -> DataFields {
    DataFields { opcode: op::READ_RESPONSE, ..send(payload).on(0, msn) }
}

//= MR-OP-11 test
fn late_response(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = s.connect()?;
    s.settle()?;
    let mark = s.mark();
    let from = super::super::control::Place { key: 9, address: 0 };
    s.post(&link, 0, 1, super::super::control::Request::Read { from }, local(&region, 0, 8))?;
    answer(s, "MR-OP-9", &mut link, mark, Opcode::ReadRequest, 0)?;
    accepted(s, "MR-OP-11", &mut link, 0, &response(0, b"in time!"))?;
    let status = s.serve_completion("MR-OP-11", &mut link, 1)?;
    s.check("MR-OP-11", status == "success", || format!("the READ ends as {status}"))?;
    verdict(s, &mut link, 0, &response(0, b"too late"))?;
    let seen = s.memory(&region, 0, 8)?;
    s.check("MR-OP-11", seen == b"in time!", || "a response after the completion is placed".to_owned())
}

//= MR-OP-18 test
fn segments(s: &mut Script<'_>) -> Outcome {
    let region = s.region(256)?;
    let mut link = s.connect()?;
    s.fill(&region, 0, &(0..=255).collect::<Vec<u8>>())?;
    s.settle()?;
    let mark = s.mark();
    s.done(&Command::Post {
        connection: link.number,
        stream: 0,
        id: 1,
        request: super::requests::write_request(9, 0),
        segments: [200, 3, 100, 7].map(|offset| local(&region, offset, 2)).to_vec(),
        fence: false,
        solicited: false,
    })?;
    let (_, payload) = answer(s, "MR-OP-18", &mut link, mark, Opcode::Write, 0)?;
    s.check("MR-OP-18", payload == [200, 201, 3, 4, 100, 101, 7, 8], || format!("it gathers {payload:?}"))
}
