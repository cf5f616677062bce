//! One verdict for each CSN: MR-DLV, with the device on both sides.

use metaroce_core::ids::Serial as _;
use metaroce_core::wire::Opcode;

use super::super::case::Case;
use super::super::control::{Command, DeviceEvent, Request, Settings};
use super::super::link::{read, send, write};
use super::super::packet::Packet;
use super::super::script::{MS, Script, Shot, Treat};
use super::super::stop::Outcome;
use super::super::wire::{DataFields, nack, op};
use super::acknowledgements::{calm, outgoing};
use super::requests::{
    accepted, answer, data_since, local, refused, result, status_of, take_all, verdict_of, write_request,
};

pub(super) const CASES: &[Case] = &[
    Case::new(
        "delivery/window",
        "CSNs outside of the window are dropped and counted, those at its edges are not",
        &["MR-DLV-1", "MR-DLV-2"],
        window,
    )
    .with(Settings { csn_window: Some(256), message_window: Some(1024), ..Settings::NONE }),
    Case::new(
        "delivery/copies",
        "a copy by another path, under another PSN, with other bytes, gets the same verdict and does nothing",
        &["MR-DLV-3", "MR-DLV-4"],
        copies,
    ),
    Case::new(
        "delivery/refused for ever",
        "what was refused stays refused when its receive is posted, and goes in under a new CSN",
        &["MR-DLV-3", "MR-DLV-6", "MR-STR-13"],
        refused_for_ever,
    ),
    Case::new(
        "delivery/placed first",
        "when a packet is acknowledged its payload is in place",
        &["MR-DLV-5", "MR-DLV-7"],
        placed_first,
    ),
    Case::new("delivery/wrap", "CSNs and PSNs pass 2^32 without a trace", &["MR-DLV-1", "MR-HS-7"], wrap),
    Case::new(
        "delivery/window of the peer",
        "the device keeps to a small CSN window",
        &["MR-DLV-8"],
        small_window,
    ),
    Case::new(
        "delivery/refused by the peer",
        "refused packets go again after the delay, in order, under new CSNs; nothing of their stream overtakes, others go on",
        &["MR-DLV-10", "MR-DLV-12", "MR-STR-4", "MR-STR-15"],
        refused_by_us,
    ),
    Case::new(
        "delivery/VOID of the device",
        "a CSN that will not be sent again is closed by VOID, and the request is reported when its verdict is in",
        &["MR-DLV-13", "MR-STR-21"],
        device_voids,
    ),
    Case::new(
        "delivery/VOID of the peer",
        "a VOID with a new CSN is refused and closes it; with an accepted one it is accepted",
        &["MR-DLV-14", "MR-DLV-15"],
        peer_voids,
    ),
    Case::new(
        "delivery/contradictions",
        "a packet that contradicts its live message ends the stream; one of a complete message is refused with ended",
        &["MR-DLV-16", "MR-DLV-17"],
        contradictions,
    ),
    Case::new(
        "delivery/contradicting response",
        "a response that contradicts its request ends the stream by STREAM_RESET",
        &["MR-DLV-18"],
        contradicting_response,
    ),
];

//= MR-DLV-1, MR-DLV-2 test
fn window(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = s.connect()?;
    let width = link.terms.csn_window;
    s.check("MR-HS-16", width == 256, || format!("a window of {width} is granted, 256 was set"))?;
    s.settle()?;
    let first = link.first_csn();
    let one = |msn| write(&region, 0, b"x").on(0, msn);
    let before = s.dropped("csn-outside-window")?;
    s.fire_in_vain(&link, Shot::on(0).csn(first.wrapping_sub(1)), &one(0))?;
    s.fire_in_vain(&link, Shot::on(0).csn(first.wrapping_add(width)), &one(0))?;
    s.settle()?;
    let after = s.dropped("csn-outside-window")?;
    s.check("MR-DLV-2", after == before.map(|count| count + 2), || {
        format!("CSN outside window was counted {before:?} before and {after:?} after")
    })?;
    let seen = s.memory(&region, 0, 1)?;
    s.check("MR-DLV-2", seen == [0], || "a CSN outside of the window is placed".to_owned())?;
    let mark = s.mark();
    let edge = s.fire(&mut link, Shot::on(0).csn(first.wrapping_add(width - 1)), &one(300))?;
    let yes = verdict_of(s, mark, &edge)?;
    s.check("MR-DLV-1", yes, || "the last CSN of the window is refused".to_owned())?;
    // Past 300 CSNs, so that the lower edge is in force.
    for msn in 0..300 {
        if msn == 255 {
            link.take_csn();
        } else {
            s.send(&mut link, 0, &one(msn))?;
        }
        if msn % 32 == 31 {
            s.settle()?;
        }
    }
    s.settle()?;
    let mark = s.mark();
    let inside = s.fire(&mut link, Shot::on(0).csn(first.wrapping_add(300 - width)), &one(44))?;
    let yes = verdict_of(s, mark, &inside)?;
    s.check("MR-DLV-1", yes, || "the oldest CSN that is kept lost its verdict".to_owned())?;
    let before = s.dropped("csn-outside-window")?;
    s.fire_in_vain(&link, Shot::on(0).csn(first.wrapping_add(299 - width)), &one(43))?;
    s.settle()?;
    let after = s.dropped("csn-outside-window")?;
    s.check("MR-DLV-2", after == before.map(|count| count + 1), || {
        format!("below the window: counted {before:?} before and {after:?} after")
    })
}

//= MR-DLV-3, MR-DLV-4 test
fn copies(s: &mut Script<'_>) -> Outcome {
    let region = s.region(128)?;
    let mut link = s.connect()?;
    s.post_receive(&link, 2, 1, local(&region, 64, 8))?;
    s.post_receive(&link, 2, 2, local(&region, 72, 8))?;
    let mark = s.mark();
    let first = s.send(&mut link, 0, &write(&region, 0, b"first").on(0, 0))?;
    let message = s.send(&mut link, 0, &send(b"message").on(2, 0).immediate(1))?;
    verdict_of(s, mark, &first)?;
    verdict_of(s, mark, &message)?;
    s.fill(&region, 0, b"local")?;
    for path in 0..link.paths().min(4) {
        let mark = s.mark();
        let again =
            s.fire(&mut link, Shot::on(path).csn(first.csn), &write(&region, 0, b"copy!").on(0, 0))?;
        let yes = verdict_of(s, mark, &again)?;
        s.check("MR-DLV-3", yes, || "a copy of what was accepted is refused".to_owned())?;
        s.fire(&mut link, Shot::on(path).csn(message.csn), &send(b"message").on(2, 0).immediate(1))?;
        s.settle()?;
    }
    let seen = s.memory(&region, 0, 5)?;
    s.check("MR-DLV-4", seen == b"local", || format!("a copy wrote memory: {seen:?}"))?;
    let done = s.completed_ids()?;
    s.check("MR-DLV-4", done == [1], || format!("copies of one SEND completed receives {done:?}"))
}

//= MR-DLV-3, MR-DLV-6, MR-STR-13 test
fn refused_for_ever(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = s.connect()?;
    let mark = s.mark();
    let data = send(b"early").on(0, 0);
    let fired = s.send(&mut link, 0, &data)?;
    let yes = verdict_of(s, mark, &fired)?;
    s.check("MR-STR-13", !yes, || "a SEND without a receive is accepted".to_owned())?;
    s.post_receive(&link, 0, 1, local(&region, 0, 8))?;
    s.settle()?;
    let seen = s.memory(&region, 0, 5)?;
    s.check("MR-STR-13", seen == [0; 5], || "a refused SEND was buffered".to_owned())?;
    let mark = s.mark();
    let again = s.fire(&mut link, Shot::on(0).csn(fired.csn), &data)?;
    let yes = verdict_of(s, mark, &again)?;
    s.check("MR-DLV-3", !yes, || "a refused CSN is accepted later".to_owned())?;
    accepted(s, "MR-STR-13", &mut link, 0, &data)?;
    s.expect_completion("MR-STR-13", 1)?;
    Ok(())
}

//= MR-DLV-5, MR-DLV-7 test
fn placed_first(s: &mut Script<'_>) -> Outcome {
    let region = s.region(1024)?;
    let mut link = s.connect()?;
    for number in (1..12_u32).rev() {
        let payload = [u8::try_from(number).unwrap_or(0); 64];
        accepted(s, "MR-DLV-7", &mut link, 0, &write(&region, 64 * number, &payload).on(0, number))?;
        let seen = s.memory(&region, 64 * number, 64)?;
        s.check("MR-DLV-5", seen == payload, || format!("WRITE {number} is acknowledged, and not in place"))?;
    }
    Ok(())
}

//= MR-DLV-8 test
fn small_window(s: &mut Script<'_>) -> Outcome {
    let region = s.region(1 << 16)?;
    let mut link = s.connect_with(|asked| asked.csn_window = 4, 0)?;
    calm(s, &mut link)?;
    let mark = s.mark();
    s.post(&link, 0, 1, write_request(5, 0), local(&region, 0, 1 << 16))?;
    // The monitor looks at every CSN; nothing is told yet.
    s.run(s.pick(60 * MS, 60 * MS))?;
    let mut csns: Vec<u32> =
        data_since(s, &link, mark, Opcode::Write).iter().map(|(header, _)| header.csn.raw()).collect();
    csns.sort_unstable();
    csns.dedup();
    s.check("MR-DLV-8", csns.len() == 4, || format!("{} CSNs are used of a window of 4", csns.len()))?;
    take_all(s, &mut link, mark)?;
    let status = s.serve_completion("MR-DLV-8", &mut link, 1)?;
    s.check("MR-DLV-8", status == "success", || format!("the WRITE ends as {status}"))
}

//= MR-DLV-10, MR-DLV-12, MR-STR-4, MR-STR-15 test
fn refused_by_us(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = s.connect()?;
    calm(s, &mut link)?;
    let mark = s.mark();
    let poster = link.clone();
    let post = |s: &mut Script<'_>, stream, id| {
        s.post(&poster, stream, id, Request::Send { immediate: None }, local(&region, 0, 16))
    };
    for id in 1..=3 {
        post(s, 0, id)?;
    }
    s.wait(mark, s.pick(MS, 4_000 * MS), |packet| {
        packet.data().is_some_and(|(data, _)| data.msn.raw() == 2)
    })?;
    let sent: Vec<Packet> = s.since(mark).iter().filter(|packet| packet.data().is_some()).cloned().collect();
    let old: Vec<u32> = sent.iter().filter_map(|packet| Some(packet.data()?.0.csn.raw())).collect();
    let mut paths = Vec::new();
    for packet in &sent {
        link.enter(packet, false);
        paths.push(packet.base.path.0);
    }
    paths.sort_unstable();
    paths.dedup();
    let (mark, start) = (s.mark(), s.now());
    s.acknowledge_with(&link, &paths, &nack(0, 1, 40_000))?;
    s.run(s.pick(MS / 10, 5 * MS))?;
    post(s, 0, 4)?;
    s.post(&link, 2, 5, Request::Send { immediate: None }, local(&region, 0, 16))?;
    s.serve(&mut link, s.pick(300 * MS, 600 * MS), &mut |_| Treat::Accept, &mut |s, _| {
        Ok(s.completion(4)?.is_some() && s.completion(5)?.is_some())
    })?;
    let again: Vec<(u64, u16, u32, u32)> = s
        .since(mark)
        .iter()
        .filter_map(|packet| {
            let (data, _) = packet.data()?;
            Some((packet.at_ns, data.stream.0, data.msn.raw(), data.csn.raw()))
        })
        // Over UDP a timeout may have come before the refusal did.
        .filter(|(at, _, _, csn)| s.is_exact() || !old.contains(csn) || *at > start + 30 * MS)
        .collect();
    let reused = again.iter().find(|(_, stream, _, csn)| *stream == 0 && old.contains(csn));
    s.check("MR-DLV-10", reused.is_none(), || {
        format!("a refused packet goes again under its old CSN: {reused:?}")
    })?;
    let order: Vec<u32> =
        again.iter().filter(|(_, stream, ..)| *stream == 0).map(|(_, _, msn, _)| *msn).collect();
    let first_four: Vec<u32> = order.iter().copied().take(4).collect();
    let id = if first_four.first() == Some(&3) { "MR-DLV-12" } else { "MR-DLV-10" };
    s.check(id, first_four == [0, 1, 2, 3], || format!("messages of the stream go again as {order:?}"))?;
    let early = again.iter().find(|(at, stream, ..)| *stream == 0 && *at < start + 40 * MS);
    s.check("MR-STR-15", early.is_none(), || {
        "a refused packet goes again before the delay of the NACK".to_owned()
    })?;
    let other = again.iter().find(|(_, stream, ..)| *stream == 2).map(|(at, ..)| *at);
    let soon = start + s.pick(10 * MS, 39 * MS);
    s.check("MR-STR-4", !s.is_exact() || other.is_some_and(|at| at < soon), || {
        "another stream waits for the one that was refused".to_owned()
    })
}

//= MR-DLV-13, MR-STR-21 test
fn device_voids(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = s.connect()?;
    let packets = outgoing(s, &mut link, &region, 64)?;
    let csn = packets.first().and_then(|packet| Some(packet.data()?.0.csn.raw())).unwrap_or(0);
    let mark = s.mark();
    s.done(&Command::ResetStream { connection: link.number, stream: 0 })?;
    let void = s.expect("MR-DLV-13", mark, "a VOID under the CSN of the WRITE", |packet| {
        packet.data().is_some_and(|(data, _)| data.opcode == Opcode::Void && data.csn.raw() == csn)
    })?;
    let early = s.completion(1)?;
    s.check("MR-STR-21", early.is_none(), || "a request is reported whose CSN has no verdict".to_owned())?;
    link.enter(&void, true);
    s.acknowledge(&link, &[void.base.path.0])?;
    let status = s.serve_completion("MR-STR-21", &mut link, 1)?;
    s.check("MR-STR-20", status == "flushed", || format!("the WRITE ends as {status}"))
}

//= MR-DLV-14, MR-DLV-15 test
fn peer_voids(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = s.connect()?;
    let data = write(&region, 0, b"never").on(0, 0);
    let void = DataFields { opcode: op::VOID, payload: Vec::new(), ..data.clone() };
    let mark = s.mark();
    let closed = s.send(&mut link, 0, &void)?;
    let yes = verdict_of(s, mark, &closed)?;
    s.check("MR-DLV-14", !yes, || "a VOID with a new CSN is accepted".to_owned())?;
    s.fire(&mut link, Shot::on(0).csn(closed.csn), &data)?;
    s.settle()?;
    let seen = s.memory(&region, 0, 5)?;
    s.check("MR-DLV-14", seen == [0; 5], || "a CSN that a VOID closed is placed".to_owned())?;
    let mark = s.mark();
    let placed = s.send(&mut link, 0, &write(&region, 0, b"there").on(1, 0))?;
    verdict_of(s, mark, &placed)?;
    let mark = s.mark();
    let void = DataFields { opcode: op::VOID, payload: Vec::new(), ..write(&region, 0, b"there").on(1, 0) };
    let asked = s.fire(&mut link, Shot::on(0).csn(placed.csn), &void)?;
    let yes = verdict_of(s, mark, &asked)?;
    s.check("MR-DLV-15", yes, || "the VOID of what was accepted is refused".to_owned())
}

//= MR-DLV-16, MR-DLV-17 test
fn contradictions(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = s.connect()?;
    let whole = write(&region, 0, &[1; 16]).on(0, 0);
    accepted(s, "MR-DLV-17", &mut link, 0, &whole.clone().part(0, 8))?;
    let mark = s.mark();
    refused(s, "MR-DLV-17", &mut link, 0, &write(&region, 32, &[2; 24]).on(0, 0).part(8, 16))?;
    let status = result(s, "MR-DLV-17", &mut link, mark, 0)?;
    s.check("MR-STR-22", (1..=6).contains(&status), || format!("RESULT has status {status}"))?;
    let seen = s.memory(&region, 32, 32)?;
    s.check("MR-DLV-6", seen == [0; 32], || "a packet that contradicts its message is placed".to_owned())?;
    accepted(s, "MR-DLV-16", &mut link, 0, &write(&region, 0, b"whole").on(1, 0))?;
    let mark = s.mark();
    refused(s, "MR-DLV-16", &mut link, 0, &write(&region, 40, b"again").on(1, 0))?;
    s.settle()?;
    let reason = s.since(mark).iter().find_map(|packet| packet.nack(1));
    s.check("MR-DLV-16", reason.is_some_and(|(reason, _)| reason == 3), || {
        format!("the NACK says {reason:?}, not 3, ended")
    })
}

//= MR-DLV-18 test
fn contradicting_response(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = s.connect()?;
    calm(s, &mut link)?;
    let mark = s.mark();
    let from = super::super::control::Place { key: 9, address: 0 };
    s.post(&link, 0, 1, Request::Read { from }, local(&region, 0, 8))?;
    answer(s, "MR-OP-9", &mut link, mark, Opcode::ReadRequest, 0)?;
    s.send(&mut link, 0, &DataFields { opcode: op::READ_RESPONSE, ..send(&[7; 16]).on(0, 0) })?;
    s.expect("MR-DLV-18", mark, "a STREAM_RESET", |packet| {
        packet.data().is_some_and(|(data, _)| data.opcode == Opcode::StreamReset)
    })?;
    take_all(s, &mut link, mark)?;
    let done = s.expect_completion("MR-DLV-18", 1)?;
    s.check("MR-DLV-18", status_of(&done) != "success", || "the READ ends in success".to_owned())?;
    let seen = s.memory(&region, 0, 16)?;
    s.check("MR-DLV-18", seen == [0; 16], || "a response that contradicts its request is placed".to_owned())?;
    let other = read(&region, 0, 8).on(2, 0);
    accepted(s, "MR-STR-4", &mut link, 0, &other)?;
    let ended = s.poll()?.iter().any(|event| matches!(event, DeviceEvent::Closed { .. }));
    s.check("MR-STR-4", !ended, || "the connection ended".to_owned())
}

//= MR-DLV-1, MR-HS-7 test
fn wrap(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = s.connect_with(|asked| asked.nonce = 0xffff_fff4_ffff_fff6, 0)?;
    for msn in 0..32_u32 {
        let byte = msn.to_be_bytes();
        let mark = s.mark();
        let fired =
            s.send(&mut link, 0, &write(&region, msn, byte.get(3..).unwrap_or_default()).on(0, msn))?;
        s.expect("MR-DLV-1", mark, &format!("an ACK of CSN {}", fired.csn), |packet| {
            packet.block_of(0).is_some_and(|block| {
                block.accepts(fired.psn) && block.body.cumulative.raw() == fired.csn.wrapping_add(1)
            })
        })?;
    }
    let seen = s.memory(&region, 0, 32)?;
    let expected: Vec<u8> = (0..32).collect();
    s.check("MR-DLV-1", seen == expected, || format!("memory holds {seen:?}"))
}
