//! Opening a connection: MR-HS.

use metaroce_core::wire::{Control, RejectReason};

use super::super::case::Case;
use super::super::control::{Answer, Command, DeviceEvent, HexBytes, Request, Settings, Stretch};
use super::super::link::write;
use super::super::packet::Packet;
use super::super::port::Source;
use super::super::script::{MS, S, Script, Treat};
use super::super::stop::{Outcome, Stop};
use super::super::wire::{ConnectFields, confirm, control, reject, retry};

pub(super) const CASES: &[Case] = &[
    Case::new(
        "handshake/accept",
        "CONNECT, ACCEPT, CONFIRM: the ACCEPT echoes the nonce, is no larger than the CONNECT, and the connection opens",
        &["MR-HS-2", "MR-HS-3", "MR-HS-8", "MR-HS-14", "MR-WIRE-29"],
        accept,
    ),
    Case::new(
        "handshake/any packet confirms",
        "a PROBE to the id of the ACCEPT opens the connection as CONFIRM does",
        &["MR-HS-14"],
        any_packet_confirms,
    ),
    Case::new("handshake/short CONNECT", "a CONNECT under 640 bytes is dropped", &["MR-HS-1"], short_connect),
    Case::new(
        "handshake/repeated CONNECT",
        "the same CONNECT again gets the same ACCEPT, from another port nothing, and opens no second connection",
        &["MR-HS-11"],
        repeated_connect,
    ),
    Case::new(
        "handshake/reject",
        "a refused CONNECT gets REJECT, its repetition the same REJECT, and no second question",
        &["MR-HS-8", "MR-HS-12", "MR-HS-13"],
        rejected,
    ),
    Case::new(
        "handshake/retry",
        "with more than half of the table half-open a CONNECT gets RETRY, and only the right cookie passes",
        &["MR-HS-18", "MR-HS-19"],
        retried,
    )
    .with(Settings { connections: Some(8), half_open_per_address: Some(64), ..Settings::NONE }),
    Case::new(
        "handshake/retry of the device",
        "on RETRY the device sends the same CONNECT with the cookie",
        &["MR-HS-20"],
        device_retries,
    ),
    Case::new(
        "handshake/amplification",
        "a silent address gets no more bytes than came from it, though work is posted",
        &["MR-HS-21"],
        amplification,
    ),
    Case::new(
        "handshake/CONNECT of the device",
        "it is 640 bytes, repeated after 10 ms at least, at doubling distances, under one nonce",
        &["MR-HS-1", "MR-HS-10"],
        device_connects,
    ),
    Case::new(
        "handshake/forged ACCEPT",
        "an ACCEPT with another nonce, or from another address, is dropped; the right one opens; its repetition is confirmed",
        &["MR-HS-8", "MR-HS-9", "MR-HS-15"],
        forged_accept,
    ),
    Case::new(
        "handshake/rejected device",
        "a REJECT with a wrong nonce does nothing, the right one ends the attempt",
        &["MR-HS-8"],
        device_is_rejected,
    ),
    Case::new(
        "handshake/terms",
        "both ends use the smaller number of paths, and unknown feature bits and odd windows do no harm",
        &["MR-HS-16", "MR-HS-17", "MR-HS-24"],
        terms,
    ),
    Case::new(
        "handshake/silence",
        "an attempt that hears nothing, and one on which nobody decides, end after the failure time",
        &["MR-HS-22", "MR-HS-23"],
        silence,
    )
    .with(Settings { fail_after_ms: Some(700), ..Settings::NONE }),
    Case::new(
        "handshake/half-open limit",
        "an IP address that used up its half-open connections gets no more",
        &["MR-HS-32"],
        half_open_limit,
    )
    .with(Settings { half_open_per_address: Some(2), ..Settings::NONE }),
    Case::new(
        "handshake/ids",
        "ids and nonces of several connections have nothing in common",
        &["MR-HS-3", "MR-HS-4"],
        ids,
    ),
    Case::new(
        "handshake/implicit",
        "implicit CONNECTs that cross are each answered by an ACCEPT, and make one connection",
        &["MR-HS-26", "MR-HS-27", "MR-HS-31"],
        implicit,
    ),
    Case::new(
        "handshake/explicit ones never merge",
        "explicit CONNECTs that cross make two connections",
        &["MR-HS-29"],
        explicit,
    ),
];

fn is_accept(packet: &Packet) -> bool {
    matches!(packet.control(), Some(Control::Accept(_)))
}

fn is_connect(packet: &Packet) -> bool {
    matches!(packet.control(), Some(Control::Connect(_)))
}

/// Has the device accept.
fn let_in(s: &mut Script<'_>, number: u32) -> Outcome {
    s.done(&Command::Accept { connection: number, domain: 0, private: HexBytes::default() })
}

/// Has the device open a connection, whose name is returned.
fn let_connect(s: &mut Script<'_>, implicit: bool) -> Outcome<u32> {
    let remote = s.local(Source::Main)?;
    let command = Command::Connect { remote, service: 0, implicit, domain: 0, private: HexBytes::default() };
    match s.command(&command)? {
        Answer::Connection { connection } => Ok(connection),
        other => Err(Stop::Broken(format!("connect is answered by {other:?}"))),
    }
}

//= MR-HS-2, MR-HS-8, MR-WIRE-29 test
fn accept(s: &mut Script<'_>) -> Outcome {
    let mut asked = s.new_terms(control::CONNECT);
    asked.private = b"hello".to_vec();
    let mark = s.mark();
    s.send_connect(Source::Main, &asked)?;
    let number = s.incoming("MR-HS-1", 1)?;
    let private = s.poll()?.iter().find_map(|event| match event {
        DeviceEvent::Incoming { private, .. } => Some(private.0.clone()),
        _ => None,
    });
    s.check("MR-WIRE-28", private.as_deref() == Some(b"hello"), || {
        format!("private data became {private:?}")
    })?;
    s.done(&Command::Accept { connection: number, domain: 0, private: HexBytes(vec![7; 256]) })?;
    let terms = s.expect_accept(mark, &asked)?;
    s.check("MR-WIRE-28", terms.private == [7; 256], || "ACCEPT carries other private data".to_owned())?;
    s.check("MR-HS-3", terms.id != 0 && terms.nonce != 0 && terms.nonce != asked.nonce, || {
        format!("id {:x} and nonce {:x} are not random", terms.id, terms.nonce)
    })?;
    s.check("MR-WIRE-29", (1..=64).contains(&terms.paths), || format!("{} paths", terms.paths))?;
    let largest = s.since(mark).iter().map(|packet| packet.bytes.len()).max().unwrap_or(0);
    s.check("MR-HS-2", largest <= 640, || format!("an answer has {largest} bytes, CONNECT has 640"))?;
    s.send_control(terms.id, &confirm(terms.nonce))?;
    s.expect_event("MR-HS-14", "the connection opens after CONFIRM", |event| {
        *event == DeviceEvent::Connected { connection: number }
    })?;
    Ok(())
}

//= MR-HS-14 test
fn any_packet_confirms(s: &mut Script<'_>) -> Outcome {
    let asked = s.new_terms(control::CONNECT);
    let mark = s.mark();
    s.send_connect(Source::Main, &asked)?;
    let number = s.incoming("MR-HS-1", 1)?;
    let_in(s, number)?;
    let terms = s.expect_accept(mark, &asked)?;
    let mut link = super::super::link::Link::new(number, asked, terms);
    s.monitor.watch(&link);
    s.send_probe(&mut link, 0, 0xffff)?;
    s.expect_event("MR-HS-14", "the connection opens after a PROBE", |event| {
        *event == DeviceEvent::Connected { connection: number }
    })?;
    Ok(())
}

//= MR-HS-1 test
fn short_connect(s: &mut Script<'_>) -> Outcome {
    let asked = s.new_terms(control::CONNECT);
    let before = s.dropped("malformed")?;
    let mark = s.mark();
    let bytes = s.connect_bytes(&asked, 639);
    s.send_raw(Source::Main, &bytes)?;
    s.settle()?;
    let numbers = s.incoming_numbers()?;
    s.check("MR-HS-1", numbers.is_empty() && s.since(mark).is_empty(), || {
        "a CONNECT of 639 bytes has an effect".to_owned()
    })?;
    let after = s.dropped("malformed")?;
    s.check("MR-HS-1", after == before.map(|count| count + 1), || {
        format!("malformed was counted {before:?} before and {after:?} after")
    })
}

//= MR-HS-11 test
fn repeated_connect(s: &mut Script<'_>) -> Outcome {
    let asked = s.new_terms(control::CONNECT);
    let mark = s.mark();
    s.send_connect(Source::Main, &asked)?;
    let number = s.incoming("MR-HS-1", 1)?;
    s.send_connect(Source::Main, &asked)?;
    s.settle()?;
    let numbers = s.incoming_numbers()?;
    s.check("MR-HS-11", numbers.len() == 1, || format!("one CONNECT was reported {} times", numbers.len()))?;
    let_in(s, number)?;
    let first = s.expect_accept(mark, &asked)?;
    for _ in 0..2 {
        let mark = s.mark();
        s.send_connect(Source::Main, &asked)?;
        let again = s.expect_accept(mark, &asked)?;
        s.check("MR-HS-11", again == first, || "a repeated CONNECT gets another ACCEPT".to_owned())?;
    }
    let mark = s.mark();
    s.send_connect(Source::Other(1), &asked)?;
    s.run(s.pick(2 * MS, 8 * MS))?;
    let stray = s.since(mark).iter().find(|packet| packet.to != 0);
    s.check("MR-HS-11", stray.is_none(), || "a CONNECT from another port is answered there".to_owned())?;
    let numbers = s.incoming_numbers()?;
    s.check("MR-HS-11", numbers.len() == 1, || "a repeated CONNECT opens another connection".to_owned())
}

//= MR-HS-12, MR-HS-13 test
fn rejected(s: &mut Script<'_>) -> Outcome {
    let asked = s.new_terms(control::CONNECT);
    let mark = s.mark();
    s.send_connect(Source::Main, &asked)?;
    let number = s.incoming("MR-HS-1", 1)?;
    let reason = 0x123;
    s.done(&Command::Reject { connection: number, reason, private: HexBytes(b"no".to_vec()) })?;
    for _ in 0..3 {
        let packet = s.expect("MR-HS-13", mark, "a REJECT", |packet| {
            matches!(packet.control(), Some(Control::Reject(_)))
        })?;
        let Some(Control::Reject(found)) = packet.control() else { continue };
        s.check("MR-HS-8", found.echoed_nonce == asked.nonce, || "REJECT echoes another nonce".to_owned())?;
        let same = found.reason == RejectReason::Application(reason) && found.private_data == b"no";
        s.check("MR-HS-13", same, || format!("REJECT became {found:?}"))?;
        let mark = s.mark();
        s.send_connect(Source::Main, &asked)?;
        s.expect("MR-HS-13", mark, "the same REJECT again", |packet| {
            matches!(packet.control(), Some(Control::Reject(_)))
        })?;
    }
    let numbers = s.incoming_numbers()?;
    s.check("MR-HS-12", numbers.len() == 1, || "a repeated CONNECT after REJECT opens again".to_owned())
}

fn retry_of(s: &mut Script<'_>, source: Source, asked: &ConnectFields) -> Outcome<Option<[u8; 16]>> {
    let mark = s.mark();
    s.send_connect(source, asked)?;
    let found = s.wait(mark, s.pick(10 * MS, 100 * MS), |packet| {
        packet.base.connection.0 == asked.id && matches!(packet.control(), Some(Control::Retry(_)))
    })?;
    let Some(packet) = found else { return Ok(None) };
    let Some(Control::Retry(retry)) = packet.control() else { return Ok(None) };
    s.check("MR-HS-8", retry.echoed_nonce == asked.nonce, || "RETRY echoes another nonce".to_owned())?;
    Ok(Some(retry.cookie))
}

//= MR-HS-18, MR-HS-19 test
fn retried(s: &mut Script<'_>) -> Outcome {
    for _ in 0..5 {
        let asked = s.new_terms(control::CONNECT);
        s.send_connect(Source::Main, &asked)?;
        s.settle()?;
    }
    let before = s.incoming_numbers()?.len();
    s.check("MR-HS-18", before >= 4, || format!("only {before} of 8 connections became half-open"))?;
    let asked = s.new_terms(control::CONNECT);
    let cookie = retry_of(s, Source::Main, &asked)?;
    let cookie = cookie.ok_or_else(|| Stop::failed("MR-HS-18", "no RETRY with 5 of 8 half-open"))?;
    let mut wrong = ConnectFields { cookie, ..asked.clone() };
    wrong.cookie[5] ^= 1;
    let other_nonce = ConnectFields { nonce: asked.nonce ^ 1, cookie, ..asked.clone() };
    let right = ConnectFields { cookie, ..asked };
    for (source, connect, what) in [
        (Source::Main, &wrong, "a wrong cookie"),
        (Source::Other(2), &right, "the cookie of another port"),
        (Source::Main, &other_nonce, "the cookie of another nonce"),
    ] {
        let again = retry_of(s, source, connect)?;
        s.check("MR-HS-19", again.is_some(), || format!("{what} gets no RETRY"))?;
        let now = s.incoming_numbers()?.len();
        s.check("MR-HS-19", now == before, || format!("{what} opens a connection"))?;
    }
    s.send_connect(Source::Main, &right)?;
    s.incoming("MR-HS-19", before + 1)?;
    Ok(())
}

//= MR-HS-20 test
fn device_retries(s: &mut Script<'_>) -> Outcome {
    let mark = s.mark();
    let connection = let_connect(s, false)?;
    let connect = s.expect("MR-HS-10", mark, "a CONNECT", is_connect)?;
    let first = connect.terms().ok_or_else(|| Stop::failed("MR-WIRE-28", "no terms"))?;
    let mark = s.mark();
    let cookie = [0xa5; 16];
    s.send_control(first.id, &retry(first.nonce, cookie))?;
    let again = s.expect("MR-HS-20", mark, "a CONNECT with the cookie", |packet| {
        packet.terms().is_some_and(|terms| terms.cookie == cookie)
    })?;
    let again = again.terms().ok_or_else(|| Stop::failed("MR-WIRE-28", "no terms"))?;
    s.check("MR-HS-20", (again.nonce, again.id) == (first.nonce, first.id), || {
        format!("after RETRY it is another CONNECT: {again:?}")
    })?;
    let answer = ConnectFields { echo: first.nonce, ..s.new_terms(control::ACCEPT) };
    s.send_control(first.id, &answer.body())?;
    s.expect_event("MR-HS-20", "the connection opens", |event| {
        *event == DeviceEvent::Connected { connection }
    })?;
    Ok(())
}

//= MR-HS-21 test
fn amplification(s: &mut Script<'_>) -> Outcome {
    let region = s.region(4096)?;
    let asked = s.new_terms(control::CONNECT);
    let mark = s.mark();
    s.send_connect(Source::Main, &asked)?;
    let number = s.incoming("MR-HS-1", 1)?;
    let_in(s, number)?;
    let local = Stretch { region: region.number, offset: 0, length: 4096 };
    let command = Command::Post {
        connection: number,
        stream: 1,
        id: 1,
        request: Request::Send { immediate: None },
        segments: vec![local],
        fence: false,
        solicited: false,
    };
    // Whether posting is possible before the connection opens is the device's affair.
    s.command(&command)?;
    let mut sent = 640;
    for _ in 0..3 {
        s.run(s.pick(3 * S, 250 * MS))?;
        let received: usize = s.since(mark).iter().map(|packet| packet.bytes.len()).sum();
        s.check("MR-HS-21", received <= sent, || format!("{sent} bytes drew {received}"))?;
        s.send_connect(Source::Main, &asked)?;
        sent += 640;
    }
    Ok(())
}

//= MR-HS-1, MR-HS-10 test
fn device_connects(s: &mut Script<'_>) -> Outcome {
    let (mark, start) = (s.mark(), s.now());
    let_connect(s, false)?;
    s.run(s.pick(2 * S, S))?;
    let connects: Vec<Packet> = s.since(mark).iter().filter(|packet| is_connect(packet)).cloned().collect();
    s.check("MR-HS-10", connects.len() >= 4, || format!("{} CONNECTs in a second", connects.len()))?;
    let first = connects.first().and_then(Packet::terms);
    for connect in &connects {
        s.check("MR-HS-1", connect.bytes.len() == 640, || {
            format!("a CONNECT of {} bytes", connect.bytes.len())
        })?;
        s.check("MR-HS-10", connect.terms() == first, || "a repeated CONNECT is another".to_owned())?;
        let zeros = connect.bytes.iter().rev().take(640 - 20 - 88 - 256).all(|byte| *byte == 0);
        s.check("MR-HS-1", zeros, || "the padding is not zero".to_owned())?;
    }
    let gaps: Vec<u64> =
        connects.iter().zip(connects.iter().skip(1)).map(|(a, b)| b.at_ns - a.at_ns).collect();
    for (number, gap) in gaps.iter().take(5).enumerate() {
        let nominal = (10 * MS) << number;
        // On sockets one may have been held up, and the next be on time: there the sum since the command counts.
        let (least, seen) = if s.is_exact() {
            (nominal * 9 / 10, *gap)
        } else {
            let at_ns = connects.get(number + 1).map_or(0, |connect| connect.at_ns);
            ((nominal * 2 - 10 * MS) * 9 / 10, at_ns - start)
        };
        s.check("MR-HS-10", seen >= least, || {
            format!("repetition {number} came after {seen} ns, {least} at least are asked for")
        })?;
        s.check("MR-HS-10", !s.is_exact() || *gap <= nominal * 11 / 10, || {
            format!("repetition {number} came after {gap} ns, {nominal} plus 10 % is allowed")
        })?;
    }
    Ok(())
}

//= MR-HS-8, MR-HS-9, MR-HS-15 test
fn forged_accept(s: &mut Script<'_>) -> Outcome {
    let mark = s.mark();
    let connection = let_connect(s, false)?;
    let connect = s.expect("MR-HS-10", mark, "a CONNECT", is_connect)?;
    let terms = connect.terms().ok_or_else(|| Stop::failed("MR-WIRE-28", "no terms"))?;
    let right = ConnectFields { echo: terms.nonce, ..s.new_terms(control::ACCEPT) };
    let wrong = ConnectFields { echo: terms.nonce ^ 1, ..right.clone() };
    let open = DeviceEvent::Connected { connection };
    s.send_control(terms.id, &wrong.body())?;
    let seen = s.wait_event(s.pick(2 * MS, 30 * MS), |event| *event == open)?;
    s.check("MR-HS-8", seen.is_none(), || "an ACCEPT that echoes another nonce opens".to_owned())?;
    let forged = s.base(3, terms.id).datagram(&right.body());
    s.send_raw(Source::Stranger, &forged)?;
    let seen = s.wait_event(s.pick(2 * MS, 30 * MS), |event| *event == open)?;
    s.check("MR-HS-9", seen.is_none(), || "an ACCEPT from another address opens".to_owned())?;
    s.send_control(terms.id, &right.body())?;
    s.expect_event("MR-HS-8", "the right ACCEPT opens", |event| *event == open)?;
    s.settle()?;
    let mark = s.mark();
    s.send_control(terms.id, &right.body())?;
    let confirm = s.expect("MR-HS-15", mark, "a CONFIRM for the repeated ACCEPT", |packet| {
        matches!(packet.control(), Some(Control::Confirm(_)))
    })?;
    let Some(Control::Confirm(body)) = confirm.control() else { return Ok(()) };
    s.check("MR-HS-15", body.echoed_nonce == right.nonce, || "CONFIRM echoes another nonce".to_owned())?;
    let opened = s.poll()?.iter().filter(|event| **event == open).count();
    s.check("MR-HS-15", opened == 1, || format!("the connection was reported open {opened} times"))
}

//= MR-HS-8 test
fn device_is_rejected(s: &mut Script<'_>) -> Outcome {
    let mark = s.mark();
    let connection = let_connect(s, false)?;
    let connect = s.expect("MR-HS-10", mark, "a CONNECT", is_connect)?;
    let terms = connect.terms().ok_or_else(|| Stop::failed("MR-WIRE-28", "no terms"))?;
    let ended = |event: &DeviceEvent| matches!(event, DeviceEvent::Closed { connection: of, .. } if *of == connection);
    s.send_control(terms.id, &reject(0x200, terms.nonce ^ 4))?;
    let seen = s.wait_event(s.pick(2 * MS, 30 * MS), ended)?;
    s.check("MR-HS-8", seen.is_none(), || "a REJECT with another nonce ends the attempt".to_owned())?;
    s.send_control(terms.id, &reject(0x200, terms.nonce))?;
    let event = s.expect_event("MR-HS-8", "the attempt ends", ended)?;
    let DeviceEvent::Closed { reason, .. } = event else { return Ok(()) };
    s.check("MR-HS-8", reason == "rejected", || format!("the attempt ends as {reason}"))
}

//= MR-HS-16, MR-HS-17, MR-HS-24 test
fn terms(s: &mut Script<'_>) -> Outcome {
    let region = s.region(1 << 16)?;
    let mut link = s.connect_with(
        |asked| {
            asked.paths = 2;
            asked.features = u64::MAX;
            asked.csn_window = 0;
            asked.flags = 0xfd;
        },
        0,
    )?;
    let local = Stretch { region: region.number, offset: 0, length: 3000 };
    s.post(&link, 0, 1, Request::Send { immediate: None }, local)?;
    // A window of 1, one packet at a time; the monitor watches window and paths.
    let status = s.serve_completion("MR-HS-17", &mut link, 1)?;
    s.check("MR-HS-17", status == "success", || format!("the SEND ends as {status}"))?;
    let write = write(&region, 0, b"hello");
    s.send(&mut link, 0, &write)?;
    s.settle()?;
    let seen = s.memory(&region, 0, 5)?;
    s.check("MR-HS-24", seen == b"hello", || "unknown features break the connection".to_owned())?;
    let beyond = s.mark();
    s.fire_in_vain(&link, super::super::script::Shot::on(2), &write)?;
    s.settle()?;
    let acks = s.since(beyond).iter().any(|packet| packet.block_of(2).is_some());
    s.check("MR-HS-16", !acks, || "path 2 is acknowledged though 2 paths were granted".to_owned())
}

//= MR-HS-22, MR-HS-23 test
fn silence(s: &mut Script<'_>) -> Outcome {
    let connection = let_connect(s, false)?;
    let asked = s.new_terms(control::CONNECT);
    s.send_connect(Source::Main, &asked)?;
    let number = s.incoming("MR-HS-1", 1)?;
    let start = s.now();
    for (requirement, connection) in [("MR-HS-23", connection), ("MR-HS-22", number)] {
        let ended = |event: &DeviceEvent| matches!(event, DeviceEvent::Closed { connection: of, .. } if *of == connection);
        s.run((start + 500 * MS).saturating_sub(s.now()))?;
        let early = s.poll()?.iter().any(ended);
        s.check(requirement, !early, || "it ends before the failure time".to_owned())?;
    }
    for (requirement, connection) in [("MR-HS-23", connection), ("MR-HS-22", number)] {
        s.expect_event(
            requirement,
            "the attempt ends after the failure time",
            |event| matches!(event, DeviceEvent::Closed { connection: of, .. } if *of == connection),
        )?;
    }
    let reason = s.poll()?.iter().find_map(|event| match event {
        DeviceEvent::Closed { connection: of, reason } if *of == connection => Some(reason.clone()),
        _ => None,
    });
    s.check("MR-HS-23", reason.as_deref() == Some("timed-out"), || format!("the attempt ends as {reason:?}"))
}

//= MR-HS-32 test
fn half_open_limit(s: &mut Script<'_>) -> Outcome {
    for _ in 0..4 {
        let asked = s.new_terms(control::CONNECT);
        s.send_connect(Source::Main, &asked)?;
        s.settle()?;
    }
    let numbers = s.incoming_numbers()?;
    s.check("MR-HS-32", numbers.len() == 2, || {
        format!("{} half-open connections of one address, 2 are allowed", numbers.len())
    })
}

//= MR-HS-3, MR-HS-4 test
fn ids(s: &mut Script<'_>) -> Outcome {
    let mut links = Vec::new();
    for _ in 0..8 {
        links.push(s.connect()?);
    }
    let (mut ones, mut zeros) = (0, 0);
    for (number, link) in links.iter().enumerate() {
        (ones, zeros) = (ones | link.terms.nonce, zeros | !link.terms.nonce);
        let other = links.iter().skip(number + 1).find(|other| {
            other.theirs() == link.theirs() || other.terms.nonce.abs_diff(link.terms.nonce) < 1 << 20
        });
        s.check("MR-HS-3", other.is_none(), || "two connections have like ids or nonces".to_owned())?;
    }
    // Of 64 bits, each the same in 8 random nonces with 1/128: more than 12 of them never happens.
    s.check("MR-HS-3", (ones & zeros).count_zeros() <= 12, || {
        format!("nonces differ in {:016x} only", ones & zeros)
    })
}

//= MR-HS-26, MR-HS-27, MR-HS-31 test
fn implicit(s: &mut Script<'_>) -> Outcome {
    let mark = s.mark();
    let connection = let_connect(s, true)?;
    let connect = s.expect("MR-HS-10", mark, "an implicit CONNECT", is_connect)?;
    let theirs = connect.terms().ok_or_else(|| Stop::failed("MR-WIRE-28", "no terms"))?;
    s.check("MR-HS-27", theirs.implicit, || "the CONNECT is not marked implicit".to_owned())?;
    let mut asked = s.new_terms(control::CONNECT);
    asked.flags |= 2;
    let mark = s.mark();
    s.send_connect(Source::Main, &asked)?;
    let accept = s.expect("MR-HS-27", mark, "an ACCEPT for the CONNECT that crossed", is_accept)?;
    let echoed = accept.terms().is_some_and(|terms| terms.echo == asked.nonce);
    s.check("MR-HS-27", echoed, || "the ACCEPT does not echo the CONNECT that crossed".to_owned())?;
    let answer = ConnectFields { kind: control::ACCEPT, echo: theirs.nonce, ..asked.clone() };
    s.send_control(theirs.id, &answer.body())?;
    s.expect_event("MR-HS-27", "the connection opens", |event| {
        *event == DeviceEvent::Connected { connection }
    })?;
    let incoming = s.incoming_numbers()?;
    s.check("MR-HS-26", incoming.iter().all(|number| *number == connection), || {
        "implicit CONNECTs that crossed make two connections".to_owned()
    })?;
    // A new implicit CONNECT, as after a restart of this end, does not replace the one that is open, but asks.
    let mark = s.mark();
    let mut other = s.new_terms(control::CONNECT);
    (other.flags, other.incarnation) = (3, 77);
    s.send_connect(Source::Main, &other)?;
    s.expect("MR-HS-31", mark, "a PROBE to the peer of the open connection", |packet| {
        packet.probe().is_some() && packet.base.connection.0 == asked.id
    })?;
    let over = s.poll()?.iter().any(|event| matches!(event, DeviceEvent::Closed { .. }));
    s.check("MR-HS-31", !over, || "an implicit CONNECT ends the open connection".to_owned())
}

//= MR-HS-29 test
fn explicit(s: &mut Script<'_>) -> Outcome {
    let mark = s.mark();
    let connection = let_connect(s, false)?;
    let connect = s.expect("MR-HS-10", mark, "a CONNECT", is_connect)?;
    let theirs = connect.terms().ok_or_else(|| Stop::failed("MR-WIRE-28", "no terms"))?;
    let mut second = s.connect()?;
    let answer = ConnectFields { echo: theirs.nonce, ..s.new_terms(control::ACCEPT) };
    s.send_control(theirs.id, &answer.body())?;
    s.expect_event("MR-HS-29", "the first connection opens too", |event| {
        *event == DeviceEvent::Connected { connection }
    })?;
    s.check("MR-HS-29", second.number != connection, || "two openings merge".to_owned())?;
    let done = s.serve(&mut second, s.pick(MS, 20 * MS), &mut |_| Treat::Accept, &mut |_, _| Ok(false))?;
    debug_assert!(!done);
    Ok(())
}
