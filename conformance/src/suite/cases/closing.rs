//! Ends of connections, and what is believed about them: MR-CLS.

use metaroce_core::ids::Serial as _;
use metaroce_core::wire::{Close, Control, Opcode, PacketType};

use super::super::case::Case;
use super::super::control::{Command, DeviceEvent};
use super::super::link::{Link, Region, low, send, write};
use super::super::packet::Packet;
use super::super::port::Source;
use super::super::script::{MS, S, Script, Shot, Treat};
use super::super::stop::{Outcome, Stop};
use super::super::wire::{BaseFields, close, control, kind, reset_with_ids, reset_with_quote};
use super::acknowledgements::{calm, outgoing};
use super::requests::{accepted, local, refused};

pub(super) const CASES: &[Case] = &[
    Case::new(
        "closing/by the device",
        "CLOSE carries next CSN, id and proof, is repeated, and only a right CLOSE_ACK ends it",
        &["MR-CLS-3", "MR-CLS-6", "MR-CLS-18"],
        by_device,
    ),
    Case::new(
        "closing/not before the verdicts",
        "CLOSE waits for the verdict of every CSN; what needs a receive is refused with closed meanwhile",
        &["MR-CLS-1", "MR-CLS-8"],
        not_before,
    ),
    Case::new(
        "closing/flush",
        "a flushing close fails what is incomplete, closes its CSNs by VOID, and then sends CLOSE",
        &["MR-CLS-1", "MR-CLS-2"],
        flush,
    ),
    Case::new(
        "closing/by the peer",
        "a CLOSE without proof is dropped; the right one flushes receives and is answered by CLOSE_ACK",
        &["MR-CLS-3", "MR-CLS-4", "MR-CLS-18"],
        by_peer,
    ),
    Case::new("closing/crossing", "two CLOSEs that cross are each answered", &["MR-CLS-5"], crossing),
    Case::new(
        "closing/at rest",
        "an id at rest answers CLOSE with CLOSE_ACK and DATA with a CLOSE_ACK that quotes it; an old CONNECT opens nothing",
        &["MR-CLS-9", "MR-CLS-10", "MR-HS-12"],
        at_rest,
    ),
    Case::new(
        "closing/unanswered",
        "after eight CLOSEs without an answer the connection counts as failed",
        &["MR-CLS-7"],
        unanswered,
    ),
    Case::new(
        "closing/unknown id",
        "DATA and PROBE with an unknown id get a RESET no larger than themselves; ACK, PROBE_REPLY and CONTROL get nothing",
        &["MR-CLS-12", "MR-CLS-13", "MR-CLS-17"],
        unknown_id,
    ),
    Case::new(
        "closing/RESET with a quote",
        "it is believed if it quotes a transmission in flight, from the peer's address and port",
        &["MR-CLS-14"],
        reset_quote,
    ),
    Case::new(
        "closing/RESET with ids",
        "it is believed with both ids and the right proof only",
        &["MR-CLS-15"],
        reset_ids,
    ),
    Case::new(
        "closing/CLOSE_ACK unasked",
        "it is believed only with a quote of a transmission in flight",
        &["MR-CLS-11"],
        close_ack_unasked,
    ),
];

fn closed(link: &Link) -> impl Fn(&DeviceEvent) -> bool + use<> {
    let number = link.number;
    move |event| matches!(event, DeviceEvent::Closed { connection, .. } if *connection == number)
}

fn reason(event: &DeviceEvent) -> &str {
    match event {
        DeviceEvent::Closed { reason, .. } => reason,
        _ => "",
    }
}

fn close_of(packet: &Packet) -> Option<Close> {
    match packet.control() {
        Some(Control::Close(body)) => Some(body),
        _ => None,
    }
}

fn close_ack_of(packet: &Packet) -> Option<Close> {
    match packet.control() {
        Some(Control::CloseAck(body)) => Some(body),
        _ => None,
    }
}

/// The body of a CLOSE or CLOSE_ACK of the suite.
fn ending(link: &Link, kind: u8, quote: Option<&[u8]>) -> Vec<u8> {
    close(kind, link.next_csn, link.mine(), link.nonce_xor(), quote)
}

/// Has the device close.
fn let_close(s: &mut Script<'_>, link: &Link, flush: bool) -> Outcome {
    s.done(&Command::Close { connection: link.number, flush })
}

/// Nothing ended the connection within a short time.
fn still_open(s: &mut Script<'_>, requirement: &str, link: &Link, what: &str) -> Outcome {
    s.settle()?;
    let over = s.poll()?.iter().any(closed(link));
    s.check(requirement, !over, || format!("{what} ends the connection"))
}

//= MR-CLS-3, MR-CLS-6, MR-CLS-18 test
fn by_device(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = s.connect()?;
    calm(s, &mut link)?;
    s.post_receive(&link, 1, 3, local(&region, 0, 8))?;
    let (mark, start) = (s.mark(), s.now());
    let_close(s, &link, false)?;
    let first = s.expect("MR-CLS-1", mark, "a CLOSE", |packet| close_of(packet).is_some())?;
    let body = close_of(&first).ok_or_else(|| Stop::failed("MR-CLS-1", "no CLOSE"))?;
    let right = body.sender.0 == link.theirs()
        && body.nonce_xor == link.nonce_xor()
        && first.base.connection.0 == link.mine();
    s.check("MR-CLS-3", right, || format!("CLOSE carries {body:x?}"))?;
    s.check("MR-CLS-3", body.next_csn.raw() == low(link.terms.nonce), || {
        format!("CLOSE tells next CSN {}, none was used", body.next_csn.raw())
    })?;
    s.run(s.pick(100 * MS, 100 * MS))?;
    let times: Vec<u64> =
        s.since(mark).iter().filter(|packet| close_of(packet).is_some()).map(|packet| packet.at_ns).collect();
    s.check("MR-CLS-6", times.len() >= 2, || format!("{} CLOSEs in 100 ms", times.len()))?;
    let second = times.get(1).copied().unwrap_or(0);
    s.check("MR-CLS-6", second >= start + 9 * MS, || "CLOSE is repeated before 10 ms less 10 %".to_owned())?;
    s.check("MR-CLS-6", times.len() <= 5, || {
        format!("{} CLOSEs in 100 ms: the distances do not double", times.len())
    })?;
    let forged = close(control::CLOSE_ACK, link.next_csn, link.mine(), link.nonce_xor() ^ 1, None);
    s.send_control(link.theirs(), &forged)?;
    still_open(s, "MR-CLS-3", &link, "a CLOSE_ACK with a wrong proof")?;
    let forged = close(control::CLOSE_ACK, link.next_csn, link.mine() ^ 1, link.nonce_xor(), None);
    s.send_control(link.theirs(), &forged)?;
    still_open(s, "MR-CLS-3", &link, "a CLOSE_ACK of another id")?;
    s.send_control(link.theirs(), &ending(&link, control::CLOSE_ACK, None))?;
    let end = s.expect_event("MR-CLS-6", "the end of the connection", closed(&link))?;
    s.check("MR-CLS-18", reason(&end) == "local", || format!("the connection ends as {}", reason(&end)))?;
    let events = s.poll()?.to_vec();
    let place = |fits: &dyn Fn(&DeviceEvent) -> bool| events.iter().position(fits);
    let receive = place(&|event| matches!(event, DeviceEvent::Completion { id: 3, .. }));
    let over = place(&closed(&link));
    s.check("MR-CLS-18", receive.is_some() && receive < over, || {
        format!("the receive is reported at {receive:?}, the end at {over:?}")
    })?;
    let ends = events.iter().filter(|event| closed(&link)(event)).count();
    s.check("MR-CLS-18", ends == 1, || format!("the end is reported {ends} times"))
}

//= MR-CLS-1, MR-CLS-8 test
fn not_before(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = s.connect()?;
    outgoing(s, &mut link, &region, 64)?;
    let mark = s.mark();
    let_close(s, &link, false)?;
    refused(s, "MR-CLS-8", &mut link, 0, &send(b"x").on(4, 0))?;
    s.settle()?;
    let nack = s.since(mark).iter().find_map(|packet| packet.nack(4));
    s.check("MR-CLS-8", nack.is_none_or(|(reason, _)| reason == 6), || {
        format!("the NACK says {nack:?}, not 6, closed")
    })?;
    let early = s.since(mark).iter().any(|packet| close_of(packet).is_some());
    s.check("MR-CLS-1", !early, || "CLOSE is sent while a CSN has no verdict".to_owned())?;
    let status = s.serve_completion("MR-CLS-1", &mut link, 1)?;
    s.check("MR-CLS-1", status == "success", || format!("the WRITE ends as {status}"))?;
    s.expect("MR-CLS-1", mark, "a CLOSE after the verdict", |packet| close_of(packet).is_some())?;
    Ok(())
}

//= MR-CLS-1, MR-CLS-2 test
fn flush(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = s.connect()?;
    let packets = outgoing(s, &mut link, &region, 64)?;
    let csn = packets.first().and_then(|packet| Some(packet.data()?.0.csn.raw())).unwrap_or(0);
    let mark = s.mark();
    let_close(s, &link, true)?;
    let void = s.expect("MR-CLS-2", mark, "a VOID for the CSN of the WRITE", |packet| {
        packet.data().is_some_and(|(data, _)| data.opcode == Opcode::Void && data.csn.raw() == csn)
    })?;
    let early = s.since(mark).iter().any(|packet| close_of(packet).is_some());
    s.check("MR-CLS-1", !early, || "CLOSE is sent while a CSN has no verdict".to_owned())?;
    link.enter(&void, true);
    s.acknowledge(&link, &[void.base.path.0])?;
    // What ends the stream may take further CSNs.
    s.serve(&mut link, s.pick(S, 3 * S), &mut |_| Treat::Accept, &mut |s, _| {
        Ok(s.since(mark).iter().any(|packet| close_of(packet).is_some()))
    })?;
    let ending =
        s.expect("MR-CLS-1", mark, "a CLOSE after the verdict", |packet| close_of(packet).is_some())?;
    let next = close_of(&ending).map(|body| body.next_csn.raw());
    s.check("MR-CLS-3", next.is_some_and(|next| next.wrapping_sub(csn).cast_signed() > 0), || {
        format!("CLOSE tells next CSN {next:?}, {csn} was used")
    })?;
    let status = s.serve_completion("MR-CLS-2", &mut link, 1)?;
    s.check("MR-CLS-2", status == "flushed", || format!("the WRITE ends as {status}"))
}

//= MR-CLS-3, MR-CLS-4, MR-CLS-18 test
fn by_peer(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = s.connect()?;
    calm(s, &mut link)?;
    s.post_receive(&link, 0, 3, local(&region, 0, 8))?;
    let before = s.dropped("bad-proof")?;
    let mark = s.mark();
    for wrong in [
        close(control::CLOSE, link.next_csn, link.mine(), link.nonce_xor() ^ (1 << 40), None),
        close(control::CLOSE, link.next_csn, link.mine() ^ 2, link.nonce_xor(), None),
    ] {
        s.send_control(link.theirs(), &wrong)?;
        still_open(s, "MR-CLS-3", &link, "a CLOSE with a wrong proof")?;
    }
    let after = s.dropped("bad-proof")?;
    s.check("MR-CLS-3", after == before.map(|count| count + 2), || {
        format!("bad proof was counted {before:?} before and {after:?} after")
    })?;
    let answered = s.since(mark).iter().any(|packet| close_ack_of(packet).is_some());
    s.check("MR-CLS-3", !answered, || "a CLOSE with a wrong proof is answered".to_owned())?;
    s.send_control(link.theirs(), &ending(&link, control::CLOSE, None))?;
    let ack = s.expect("MR-CLS-4", mark, "a CLOSE_ACK", |packet| close_ack_of(packet).is_some())?;
    let body = close_ack_of(&ack).ok_or_else(|| Stop::failed("MR-CLS-4", "no CLOSE_ACK"))?;
    let right = body.sender.0 == link.theirs() && body.nonce_xor == link.nonce_xor();
    s.check("MR-CLS-3", right, || format!("CLOSE_ACK carries {body:x?}"))?;
    let end = s.expect_event("MR-CLS-4", "the end of the connection", closed(&link))?;
    s.check("MR-CLS-4", reason(&end) == "peer", || format!("the connection ends as {}", reason(&end)))?;
    let done = s.completion(3)?;
    s.check("MR-CLS-4", done.is_some(), || "a posted receive never completes".to_owned())
}

//= MR-CLS-5 test
fn crossing(s: &mut Script<'_>) -> Outcome {
    let mut link = s.connect()?;
    calm(s, &mut link)?;
    let mark = s.mark();
    let_close(s, &link, false)?;
    s.send_control(link.theirs(), &ending(&link, control::CLOSE, None))?;
    s.expect("MR-CLS-5", mark, "a CLOSE_ACK for the CLOSE that crossed", |packet| {
        close_ack_of(packet).is_some()
    })?;
    s.send_control(link.theirs(), &ending(&link, control::CLOSE_ACK, None))?;
    s.expect_event("MR-CLS-5", "the end of the connection", closed(&link))?;
    Ok(())
}

//= MR-CLS-9, MR-CLS-10, MR-HS-12 test
fn at_rest(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = s.connect()?;
    calm(s, &mut link)?;
    s.send_control(link.theirs(), &ending(&link, control::CLOSE, None))?;
    s.expect_event("MR-CLS-4", "the end of the connection", closed(&link))?;
    s.run(s.pick(300 * MS, 50 * MS))?;
    let mark = s.mark();
    s.send_control(link.theirs(), &ending(&link, control::CLOSE, None))?;
    s.expect("MR-CLS-10", mark, "a CLOSE_ACK of an id at rest", |packet| close_ack_of(packet).is_some())?;
    let mark = s.mark();
    let (_, bytes) = s.data_bytes(&mut link.clone(), Shot::on(0), &write(&region, 0, b"late").on(9, 0));
    s.send_raw(Source::Other(1), &bytes)?;
    let ack = s.expect("MR-CLS-10", mark, "a CLOSE_ACK for DATA to an id at rest", |packet| {
        close_ack_of(packet).is_some()
    })?;
    let quote = close_ack_of(&ack).and_then(|body| body.quote);
    s.check("MR-CLS-10", quote.is_some_and(|quote| bytes.starts_with(&quote)), || {
        "the CLOSE_ACK does not quote the DATA".to_owned()
    })?;
    let seen = s.memory(&region, 0, 4)?;
    s.check("MR-CLS-9", seen == [0; 4], || "DATA to an id at rest is placed".to_owned())?;
    let before = s.incoming_numbers()?.len();
    s.send_connect(Source::Main, &link.asked)?;
    s.settle()?;
    let now = s.incoming_numbers()?.len();
    s.check("MR-HS-12", now == before, || "an old CONNECT opens a connection while its id rests".to_owned())
}

//= MR-CLS-7 test
fn unanswered(s: &mut Script<'_>) -> Outcome {
    let mut link = s.connect()?;
    calm(s, &mut link)?;
    let mark = s.mark();
    let_close(s, &link, false)?;
    let found = s.wait_event(10 * S, closed(&link))?;
    let end = found.ok_or_else(|| Stop::failed("MR-CLS-7", "a close that nobody answers never ends"))?;
    let count = s.since(mark).iter().filter(|packet| close_of(packet).is_some()).count();
    s.check("MR-CLS-7", count == 8, || format!("{count} CLOSEs are sent, 8 are asked for"))?;
    s.check("MR-CLS-7", reason(&end) != "peer", || "it counts as closed by the peer".to_owned())
}

//= MR-CLS-12, MR-CLS-13, MR-CLS-17 test
fn unknown_id(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = s.connect()?;
    calm(s, &mut link)?;
    let unknown = BaseFields { connection: link.theirs() ^ 0x5000_0000, psn: 77, ..s.base(kind::DATA, 0) };
    let data = unknown.datagram(&write(&region, 0, &[1; 32]).body());
    let probe =
        BaseFields { kind: kind::PROBE, ..unknown }.datagram(&super::super::wire::probe(0xffff, 0, 1, 64));
    for bytes in [&data, &probe] {
        let mark = s.mark();
        s.send_raw(Source::Other(2), bytes)?;
        let answer = s.expect("MR-CLS-12", mark, "a RESET for an unknown id", |packet| {
            matches!(packet.control(), Some(Control::Reset(_)))
        })?;
        let quoted = answer.body().get(4..24).is_some_and(|quote| bytes.starts_with(quote));
        s.check("MR-CLS-12", quoted, || "the RESET does not quote the packet".to_owned())?;
        s.check("MR-CLS-12", answer.to == 0, || {
            "the RESET goes to the source port of the packet".to_owned()
        })?;
        s.check("MR-CLS-13", answer.bytes.len() <= bytes.len(), || {
            format!("a packet of {} bytes draws a RESET of {}", bytes.len(), answer.bytes.len())
        })?;
    }
    let mark = s.mark();
    let short =
        BaseFields { kind: kind::PROBE, ..unknown }.datagram(&super::super::wire::probe(0xffff, 0, 1, 36));
    s.send_raw(Source::Other(2), &short)?;
    s.settle()?;
    let answered = s.since(mark).iter().any(|packet| packet.is(PacketType::Control));
    s.check("MR-CLS-13", !answered, || "a packet that is too short for a RESET gets one".to_owned())?;
    let mark = s.mark();
    let (ack, _) = link.acknowledgement(0, s.now()).block();
    let reply = [vec![0; 8], ack.clone()].concat();
    for (of, body) in [
        (kind::ACK, ack),
        (kind::PROBE_REPLY, reply),
        (kind::CONTROL, ending(&link, control::CLOSE, None)),
        (kind::CONTROL, super::super::wire::confirm(1)),
        (kind::CONTROL, reset_with_quote(&data)),
    ] {
        s.send_raw(Source::Main, &BaseFields { kind: of, psn: 0, ..unknown }.datagram(&body))?;
    }
    s.settle()?;
    let answered = s.since(mark).iter().any(|packet| !packet.is(PacketType::Probe));
    s.check("MR-CLS-17", !answered, || "ACK, PROBE_REPLY or CONTROL for an unknown id is answered".to_owned())
}

/// A connection with one packet of the device in flight.
fn one_in_flight(s: &mut Script<'_>) -> Outcome<(Link, Region, Packet)> {
    let region = s.region(64)?;
    let mut link = s.connect()?;
    let packets = outgoing(s, &mut link, &region, 64)?;
    let packet =
        packets.into_iter().next().ok_or_else(|| Stop::failed("MR-OP-9", "no packet of the device"))?;
    Ok((link, region, packet))
}

/// `packet` with one byte of its base header changed.
fn tampered(packet: &Packet, at: usize) -> Vec<u8> {
    let mut bytes = packet.bytes.clone();
    bytes.get_mut(at).into_iter().for_each(|byte| *byte ^= 0x41);
    bytes
}

//= MR-CLS-14 test
fn reset_quote(s: &mut Script<'_>) -> Outcome {
    let (link, _, packet) = one_in_flight(s)?;
    for (at, what) in [(11, "PSN"), (14, "timestamp")] {
        s.send_control(link.theirs(), &reset_with_quote(&tampered(&packet, at)))?;
        s.send_control(0, &reset_with_quote(&tampered(&packet, at)))?;
        still_open(s, "MR-CLS-14", &link, &format!("a RESET that quotes another {what}"))?;
    }
    let bytes = s.base(kind::CONTROL, 0).datagram(&reset_with_quote(&packet.bytes));
    s.send_raw(Source::Stranger, &bytes)?;
    still_open(s, "MR-CLS-14", &link, "a RESET from another address")?;
    s.send_raw(Source::Other(2), &bytes)?;
    still_open(s, "MR-CLS-14", &link, "a RESET from another port")?;
    s.send_control(0, &reset_with_quote(&packet.bytes))?;
    let end = s.expect_event("MR-CLS-14", "the end of the connection", closed(&link))?;
    s.check("MR-CLS-14", reason(&end) == "reset", || format!("the connection ends as {}", reason(&end)))
}

//= MR-CLS-15 test
fn reset_ids(s: &mut Script<'_>) -> Outcome {
    let mut link = s.connect()?;
    calm(s, &mut link)?;
    for (what, body) in [
        ("a wrong proof", reset_with_ids(link.theirs(), link.mine(), link.nonce_xor() ^ 1)),
        ("another id", reset_with_ids(link.theirs(), link.mine() ^ 1, link.nonce_xor())),
    ] {
        s.send_control(link.theirs(), &body)?;
        still_open(s, "MR-CLS-15", &link, &format!("a RESET with {what}"))?;
    }
    let right = reset_with_ids(link.theirs(), link.mine(), link.nonce_xor());
    let bytes = s.base(kind::CONTROL, link.theirs()).datagram(&right);
    s.send_raw(Source::Other(2), &bytes)?;
    still_open(s, "MR-CLS-15", &link, "a RESET from another port")?;
    s.send_control(link.theirs(), &right)?;
    let end = s.expect_event("MR-CLS-15", "the end of the connection", closed(&link))?;
    s.check("MR-CLS-15", reason(&end) == "reset", || format!("the connection ends as {}", reason(&end)))
}

//= MR-CLS-11 test
fn close_ack_unasked(s: &mut Script<'_>) -> Outcome {
    let (mut link, region, packet) = one_in_flight(s)?;
    s.send_control(link.theirs(), &ending(&link, control::CLOSE_ACK, None))?;
    still_open(s, "MR-CLS-11", &link, "a CLOSE_ACK that nobody asked for")?;
    let wrong = tampered(&packet, 11);
    s.send_control(link.theirs(), &ending(&link, control::CLOSE_ACK, wrong.get(..20)))?;
    still_open(s, "MR-CLS-11", &link, "a CLOSE_ACK that quotes another PSN")?;
    accepted(s, "MR-CLS-11", &mut link, 0, &write(&region, 32, b"x").on(8, 0))?;
    s.send_control(link.theirs(), &ending(&link, control::CLOSE_ACK, packet.bytes.get(..20)))?;
    let end = s.expect_event("MR-CLS-11", "the end of the connection", closed(&link))?;
    s.check("MR-CLS-11", reason(&end) == "peer", || format!("the connection ends as {}", reason(&end)))?;
    s.serve(&mut link, MS, &mut |_| Treat::Accept, &mut |_, _| Ok(true))?;
    Ok(())
}
