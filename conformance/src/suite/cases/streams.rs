//! Order, credits, refusals and ends of streams: MR-STR.

use metaroce_core::ids::Serial as _;
use metaroce_core::wire::{Frame, Opcode, PacketType};

use super::super::case::Case;
use super::super::control::{Answer, Command, DeviceEvent, Place, Request, Settings};
use super::super::link::{Link, Region, read, send, write};
use super::super::packet::Packet;
use super::super::script::{MS, S, Script, Treat};
use super::super::stop::{Outcome, Stop};
use super::super::wire::{DataFields, credit, flag, nack, op};
use super::acknowledgements::calm;
use super::requests::{
    accepted, answer, data_since, local, refused, status_of, stream_reset, take_all, verdict, write_request,
};

pub(super) const CASES: &[Case] = &[
    Case::new(
        "streams/order of completions",
        "requests complete in order, each when its packets are accepted and its response is in",
        &["MR-STR-5"],
        completions,
    ),
    Case::new(
        "streams/independence",
        "a message that is missing on one stream delays no other",
        &["MR-STR-3", "MR-STR-4"],
        independence,
    ),
    Case::new(
        "streams/message window of the device",
        "what lies beyond the message window is refused with no slot",
        &["MR-STR-6"],
        window,
    )
    .with(Settings { message_window: Some(8), ..Settings::NONE }),
    Case::new(
        "streams/message window of the peer",
        "the device keeps to the window",
        &["MR-STR-6"],
        peer_window,
    ),
    Case::new(
        "streams/credits of the peer",
        "the device sends no SEND beyond its credit, asks for more, and ignores credit that is not ahead",
        &["MR-STR-9", "MR-STR-10", "MR-STR-12"],
        credits,
    ),
    Case::new(
        "streams/credits of the device",
        "a receive posted to a stream without credit is told at once; CREDIT counts and is repeated",
        &["MR-STR-10", "MR-STR-11", "MR-ACK-26"],
        device_credits,
    )
    .with(Settings { initial_credits: Some(1), ack_delay_us: Some(400_000), ..Settings::NONE }),
    Case::new(
        "streams/receiver not ready",
        "a SEND without a receive is refused with a NACK that says so",
        &["MR-STR-13", "MR-STR-14"],
        not_ready,
    ),
    Case::new(
        "streams/retry limit",
        "after the configured rounds the SEND fails with RNR exceeded, and later ones are flushed",
        &["MR-STR-17", "MR-STR-20"],
        retry_limit,
    )
    .with(Settings { rnr_retries: Some(2), ..Settings::NONE }),
    Case::new(
        "streams/credit ends the wait",
        "a CREDIT that is ahead lets refused packets go again at once",
        &["MR-STR-16"],
        credit_ends_wait,
    ),
    Case::new(
        "streams/RESULT",
        "a RESULT fails its request, flushes later ones, and leaves earlier ones alone",
        &["MR-STR-19", "MR-STR-20", "MR-STR-22", "MR-STR-24"],
        results,
    ),
    Case::new(
        "streams/reset by the peer",
        "STREAM_RESET flushes receives, is answered, and later packets are refused with ended",
        &["MR-STR-23", "MR-STR-24"],
        reset,
    ),
    Case::new(
        "streams/next use",
        "an id is used again after both STREAM_RESETs, and refused before",
        &["MR-STR-25", "MR-STR-26", "MR-HS-6"],
        next_use,
    ),
    Case::new(
        "streams/shared queue",
        "streams draw on a shared queue, need no credit, and give back what they did not use",
        &["MR-STR-31", "MR-STR-32"],
        shared_queue,
    ),
    Case::new("streams/posting", "posting to a stream that ended is an error", &["MR-STR-27"], posting),
];

fn immediate_send() -> Request {
    Request::Send { immediate: None }
}

//= MR-STR-5 test
fn completions(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = s.connect()?;
    calm(s, &mut link)?;
    let mark = s.mark();
    let from = Place { key: 9, address: 0 };
    s.post(&link, 0, 1, Request::Read { from }, local(&region, 0, 8))?;
    s.post(&link, 0, 2, write_request(9, 0), local(&region, 8, 8))?;
    answer(s, "MR-OP-9", &mut link, mark, Opcode::ReadRequest, 0)?;
    answer(s, "MR-OP-9", &mut link, mark, Opcode::Write, 1)?;
    s.serve(&mut link, s.pick(20 * MS, 60 * MS), &mut |_| Treat::Accept, &mut |_, _| Ok(false))?;
    let early = s.completed_ids()?;
    s.check("MR-STR-5", early.is_empty(), || format!("{early:?} complete before the response is in"))?;
    s.send(&mut link, 0, &DataFields { opcode: op::READ_RESPONSE, ..send(b"response").on(0, 0) })?;
    s.serve_completion("MR-STR-5", &mut link, 2)?;
    let order = s.completed_ids()?;
    s.check("MR-STR-5", order == [1, 2], || format!("requests complete as {order:?}"))
}

//= MR-STR-3, MR-STR-4 test
fn independence(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = s.connect()?;
    s.post_receive(&link, 2, 5, local(&region, 32, 8))?;
    // Stream 0 waits for its message 0.
    accepted(s, "MR-STR-4", &mut link, 0, &read(&region, 0, 8).on(0, 1))?;
    let mark = s.mark();
    accepted(s, "MR-STR-4", &mut link, 0, &send(b"other").on(2, 0))?;
    s.expect_completion("MR-STR-4", 5)?;
    accepted(s, "MR-STR-4", &mut link, 0, &read(&region, 32, 5).on(4, 0))?;
    let (_, payload) = answer(s, "MR-STR-4", &mut link, mark, Opcode::ReadResponse, 0)?;
    s.check("MR-STR-4", payload == b"other", || format!("another stream reads {payload:?}"))?;
    let early =
        data_since(s, &link, mark, Opcode::ReadResponse).iter().any(|(header, _)| header.stream.0 == 0);
    s.check("MR-STR-3", !early, || "a READ is answered before the message before it".to_owned())
}

//= MR-STR-6 test
fn window(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = s.connect()?;
    let width = link.terms.message_window;
    s.check("MR-STR-6", width <= 8, || format!("a message window of {width} is granted, 8 was set"))?;
    accepted(s, "MR-STR-6", &mut link, 0, &write(&region, 0, b"x").on(0, width - 1))?;
    let mark = s.mark();
    refused(s, "MR-STR-6", &mut link, 0, &write(&region, 0, b"x").on(0, width + 1))?;
    s.settle()?;
    let reason = s.since(mark).iter().find_map(|packet| packet.nack(0));
    s.check("MR-STR-6", reason.is_some_and(|(reason, _)| reason == 2), || {
        format!("the NACK says {reason:?}, not 2, no slot")
    })
}

//= MR-STR-6 test
fn peer_window(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = s.connect_with(|asked| asked.message_window = 2, 0)?;
    calm(s, &mut link)?;
    let mark = s.mark();
    for id in 0..8 {
        s.post(&link, 0, id, write_request(9, 0), local(&region, 0, 8))?;
    }
    s.expect("MR-OP-9", mark, "a WRITE of the device", |packet| packet.data().is_some())?;
    s.run(5 * MS)?;
    let most = data_since(s, &link, mark, Opcode::Write).iter().map(|(header, _)| header.msn.raw()).max();
    s.check("MR-STR-6", most.is_some_and(|most| most <= 2), || {
        format!("message {most:?} is under way, message 0 is not accepted, the window is 2")
    })?;
    take_all(s, &mut link, mark)?;
    let status = s.serve_completion("MR-STR-6", &mut link, 7)?;
    s.check("MR-STR-6", status == "success", || format!("the WRITE ends as {status}"))
}

/// Receive indices of the SENDs since `mark`.
fn indices(s: &Script<'_>, link: &Link, mark: usize) -> Vec<u32> {
    let mut all: Vec<u32> = data_since(s, link, mark, Opcode::Send)
        .iter()
        .map(|(header, _)| header.receive_index.raw())
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

//= MR-STR-9, MR-STR-10, MR-STR-12 test
fn credits(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = s.connect_with(|asked| asked.initial_credits = 2, 0)?;
    calm(s, &mut link)?;
    let mark = s.mark();
    for id in 0..6 {
        s.post(&link, 0, id, immediate_send(), local(&region, 0, 8))?;
    }
    s.serve(&mut link, s.pick(60 * MS, 150 * MS), &mut |_| Treat::Accept, &mut |_, _| Ok(false))?;
    let used = indices(s, &link, mark);
    s.check("MR-STR-9", used == [0, 1], || format!("with a credit of 2 receives {used:?} are used"))?;
    let asks =
        s.since(mark).iter().filter(|packet| packet.probe().is_some_and(|probe| probe.stream.0 == 0)).count();
    s.check("MR-STR-12", asks >= 2, || format!("a blocked stream asked {asks} times in 60 ms"))?;
    s.acknowledge_with(&link, &[0], &credit(0, 4))?;
    s.acknowledge_with(&link, &[0], &credit(0, 1))?;
    s.serve(&mut link, s.pick(20 * MS, 60 * MS), &mut |_| Treat::Accept, &mut |_, _| Ok(false))?;
    let used = indices(s, &link, mark);
    let id = if used.len() < 4 { "MR-STR-10" } else { "MR-STR-9" };
    s.check(id, used == [0, 1, 2, 3], || format!("with a credit of 4, then an old one, {used:?} are used"))?;
    s.acknowledge_with(&link, &[0], &credit(0, 6))?;
    let status = s.serve_completion("MR-STR-10", &mut link, 5)?;
    s.check("MR-STR-10", status == "success", || format!("the SEND ends as {status}"))
}

//= MR-STR-10, MR-STR-11, MR-ACK-26 test
fn device_credits(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = s.connect()?;
    s.check("MR-HS-16", link.terms.initial_credits == 1, || "another initial credit is granted".to_owned())?;
    s.post_receive(&link, 0, 0, local(&region, 0, 8))?;
    accepted(s, "MR-STR-10", &mut link, 0, &send(b"one").on(0, 0))?;
    s.settle()?;
    let mark = s.mark();
    s.post_receive(&link, 0, 1, local(&region, 8, 8))?;
    let told = s.wait(mark, s.pick(MS, 200 * MS), |packet| packet.credit(0) == Some(2))?;
    s.check("MR-STR-11", told.is_some(), || {
        "a receive posted without credit left is not told at once".to_owned()
    })?;
    for number in 2..4 {
        s.post_receive(&link, 0, number, local(&region, 16, 8))?;
    }
    // That told may be lost: it is told again with ACKs about something else.
    let mark = s.mark();
    for msn in 0..8 {
        accepted(s, "MR-ACK-26", &mut link, 0, &write(&region, 32, b"x").on(4, msn))?;
    }
    let told = s.since(mark).iter().any(|packet| packet.credit(0) == Some(4));
    s.check("MR-ACK-26", told, || "eight ACKs tell nothing of the credit of a stream".to_owned())
}

//= MR-STR-13, MR-STR-14 test
fn not_ready(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = s.connect()?;
    for (stream, data) in [(0, send(b"x").on(0, 0)), (2, write(&region, 0, b"y").on(2, 0).immediate(1))] {
        let mark = s.mark();
        refused(s, "MR-STR-13", &mut link, 0, &data)?;
        s.settle()?;
        let reason = s.since(mark).iter().find_map(|packet| packet.nack(stream));
        s.check("MR-STR-14", reason.is_some_and(|(reason, _)| reason == 1), || {
            format!("the NACK says {reason:?}, not 1, no receive")
        })?;
    }
    let seen = s.memory(&region, 0, 1)?;
    s.check("MR-STR-13", seen == [0], || "a refused WRITE with immediate is placed".to_owned())
}

//= MR-STR-17, MR-STR-20 test
fn retry_limit(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = s.connect()?;
    calm(s, &mut link)?;
    let mark = s.mark();
    s.post(&link, 0, 1, immediate_send(), local(&region, 0, 8))?;
    s.post(&link, 0, 2, immediate_send(), local(&region, 0, 8))?;
    let until = s.now() + s.pick(S, 4 * S);
    let mut from = mark;
    while s.now() < until && s.completion(2)?.is_none() {
        let batch: Vec<Packet> = s.since(from).to_vec();
        from += batch.len();
        let mut paths = Vec::new();
        for packet in &batch {
            match packet.data() {
                Some((header, _)) => {
                    link.enter(packet, header.opcode != Opcode::Send);
                    paths.push(packet.base.path.0);
                }
                None if packet.is(PacketType::Probe) => {
                    link.enter(packet, true);
                    s.reply(&link, packet, &[])?;
                }
                None => {}
            }
        }
        paths.dedup();
        if !paths.is_empty() {
            s.acknowledge_with(&link, &paths, &nack(0, 1, 2_000))?;
        }
        s.run(s.pick(MS / 2, 2 * MS))?;
    }
    let (one, two) = (s.completion(1)?, s.completion(2)?);
    let status = |event: &Option<DeviceEvent>| event.as_ref().map_or("", status_of).to_owned();
    s.check("MR-STR-17", status(&one) == "rnr-exceeded", || format!("the refused SEND ends as {one:?}"))?;
    s.check("MR-STR-20", status(&two) == "flushed", || format!("the SEND after it ends as {two:?}"))?;
    let rounds =
        data_since(s, &link, mark, Opcode::Send).iter().filter(|(header, _)| header.msn.raw() == 0).count();
    s.check("MR-STR-17", (3..=4).contains(&rounds) || !s.is_exact(), || {
        format!("the SEND was tried {rounds} times, 2 retries were allowed")
    })
}

//= MR-STR-16 test
fn credit_ends_wait(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = s.connect()?;
    calm(s, &mut link)?;
    let mark = s.mark();
    s.post(&link, 0, 1, immediate_send(), local(&region, 0, 8))?;
    let packet = s.expect("MR-OP-9", mark, "the SEND", |packet| packet.data().is_some())?;
    link.enter(&packet, false);
    s.acknowledge_with(&link, &[packet.base.path.0], &nack(0, 1, 60_000_000))?;
    s.run(s.pick(20 * MS, 40 * MS))?;
    let mark = s.mark();
    s.acknowledge_with(&link, &[packet.base.path.0], &credit(0, 20))?;
    s.expect("MR-STR-16", mark, "the SEND again, after a CREDIT", |packet| packet.data().is_some())?;
    let status = s.serve_completion("MR-STR-16", &mut link, 1)?;
    s.check("MR-STR-16", status == "success", || format!("the SEND ends as {status}"))
}

//= MR-STR-19, MR-STR-20, MR-STR-22, MR-STR-24 test
fn results(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = s.connect()?;
    calm(s, &mut link)?;
    let mark = s.mark();
    for id in 1..=3 {
        s.post(&link, 0, id, write_request(9, 0), local(&region, 0, 8))?;
    }
    s.wait(mark, s.pick(MS, 4 * S), |packet| packet.data().is_some_and(|(data, _)| data.msn.raw() == 2))?;
    let failed = DataFields { opcode: op::RESULT, flags: flag::LAST, ..DataFields::default() };
    let yes = verdict(s, &mut link, 0, &failed.on(0, 1).immediate(1))?;
    s.check("MR-STR-19", yes, || "a RESULT is refused".to_owned())?;
    let reported = s.completed_ids()?;
    s.check("MR-STR-21", !reported.contains(&2) && !reported.contains(&3), || {
        format!("requests {reported:?} are reported before their CSNs have verdicts")
    })?;
    take_all(s, &mut link, mark)?;
    for (id, expected, requirement) in
        [(1, "success", "MR-STR-19"), (2, "remote-access", "MR-STR-20"), (3, "flushed", "MR-STR-20")]
    {
        let status = s.serve_completion(requirement, &mut link, id)?;
        s.check(requirement, status == expected, || {
            format!("request {id} ends as {status}, not {expected}")
        })?;
    }
    s.serve(&mut link, s.pick(50 * MS, 200 * MS), &mut |_| Treat::Accept, &mut |s, link| {
        Ok(!data_since(s, link, mark, Opcode::StreamReset).is_empty())
    })?;
    let resets = data_since(s, &link, mark, Opcode::StreamReset);
    s.check("MR-STR-24", !resets.is_empty(), || "no STREAM_RESET after a RESULT".to_owned())
}

//= MR-STR-23, MR-STR-24 test
fn reset(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = s.connect()?;
    calm(s, &mut link)?;
    s.post_receive(&link, 0, 7, local(&region, 0, 8))?;
    accepted(s, "MR-STR-23", &mut link, 0, &send(&[1; 8]).on(0, 0).part(0, 4))?;
    let mark = s.mark();
    let yes = verdict(s, &mut link, 0, &stream_reset(0, 1))?;
    s.check("MR-STR-23", yes, || "a STREAM_RESET is refused".to_owned())?;
    let done = s.expect_completion("MR-STR-23", 7)?;
    s.check("MR-STR-23", status_of(&done) == "flushed", || format!("the receive ends as {done:?}"))?;
    s.expect("MR-STR-24", mark, "a STREAM_RESET in answer", |packet| {
        packet.data().is_some_and(|(data, _)| data.opcode == Opcode::StreamReset && data.stream.0 == 0)
    })?;
    let mark = s.mark();
    refused(s, "MR-STR-23", &mut link, 0, &write(&region, 32, b"late").on(0, 2))?;
    s.settle()?;
    let reason = s.since(mark).iter().find_map(|packet| packet.nack(0));
    s.check("MR-STR-23", reason.is_some_and(|(reason, _)| reason == 3), || {
        format!("the NACK says {reason:?}, not 3, ended")
    })?;
    let seen = s.memory(&region, 32, 4)?;
    s.check("MR-STR-23", seen == [0; 4], || "a packet of a stream that ended is placed".to_owned())?;
    let mut csns: Vec<u32> =
        data_since(s, &link, 0, Opcode::StreamReset).iter().map(|(header, _)| header.csn.raw()).collect();
    csns.dedup();
    s.check("MR-STR-24", csns.len() == 1, || format!("{} STREAM_RESETs are sent", csns.len()))
}

//= MR-STR-25, MR-STR-26, MR-HS-6 test
fn next_use(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = s.connect()?;
    calm(s, &mut link)?;
    accepted(s, "MR-STR-25", &mut link, 0, &write(&region, 0, b"first").on(0, 0))?;
    let mark = s.mark();
    let yes = verdict(s, &mut link, 0, &stream_reset(0, 1))?;
    s.check("MR-STR-23", yes, || "a STREAM_RESET is refused".to_owned())?;
    // The device's own STREAM_RESET has no verdict yet.
    refused(s, "MR-STR-26", &mut link, 0, &write(&region, 8, b"second").on(0, 0))?;
    answer(s, "MR-STR-24", &mut link, mark, Opcode::StreamReset, 0)?;
    s.settle()?;
    accepted(s, "MR-STR-25", &mut link, 0, &write(&region, 16, b"third").on(0, 0))?;
    let seen = s.memory(&region, 0, 24)?;
    s.check("MR-HS-6", seen == b"first\0\0\0\0\0\0\0\0\0\0\0third\0\0\0", || format!("memory holds {seen:?}"))
}

//= MR-STR-31, MR-STR-32 test
fn shared_queue(s: &mut Script<'_>) -> Outcome {
    let region: Region = s.region(256)?;
    let mut link = s.connect()?;
    let Answer::Queue { queue } = s.command(&Command::CreateQueue { domain: 0, datagrams: None })? else {
        return Err(Stop::Broken("create-queue is not answered by a queue".to_owned()));
    };
    for stream in [0, 2] {
        s.done(&Command::ConfigureStream { connection: link.number, stream, queue })?;
    }
    for id in 0..3 {
        let segments = vec![local(&region, 32 * id, 32)];
        s.done(&Command::PostQueueReceive { queue, id: u64::from(id), segments })?;
    }
    let mark = s.mark();
    accepted(s, "MR-STR-31", &mut link, 0, &send(b"of two").on(2, 0))?;
    // Index 1 of stream 0 takes entries for 0 and 1, which is all that is left.
    accepted(s, "MR-STR-31", &mut link, 0, &send(b"second").on(0, 1).receive(1))?;
    refused(s, "MR-STR-31", &mut link, 0, &send(b"third").on(2, 1).receive(1))?;
    accepted(s, "MR-STR-31", &mut link, 0, &send(b"first").on(0, 0))?;
    let (token, _) = s.send_probe(&mut link, 0, 2)?;
    let reply = s.expect("MR-ACK-22", mark, "a PROBE_REPLY", |packet| packet.reply_token() == Some(token))?;
    let needless = reply
        .frames()
        .iter()
        .any(|frame| matches!(frame, Frame::Credit { stream, none_needed: true, .. } if stream.0 == 2));
    s.check("MR-STR-32", needless, || {
        "CREDIT of a stream on a shared queue does not say none needed".to_owned()
    })?;
    let seen = s.memory(&region, 0, 96)?;
    let expected = [b"of two".as_slice(), &[0; 26], b"first", &[0; 27], b"second", &[0; 26]].concat();
    s.check("MR-STR-31", seen == expected, || format!("the entries hold {seen:?}"))
}

//= MR-STR-27 test
fn posting(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = s.connect()?;
    calm(s, &mut link)?;
    accepted(s, "MR-STR-27", &mut link, 0, &write(&region, 0, b"x").on(0, 0))?;
    s.send(&mut link, 0, &stream_reset(0, 1))?;
    s.settle()?;
    let command = Command::Post {
        connection: link.number,
        stream: 0,
        id: 1,
        request: immediate_send(),
        segments: vec![local(&region, 0, 8)],
        fence: false,
        solicited: false,
    };
    let answer = s.command(&command)?;
    s.check("MR-STR-27", matches!(answer, Answer::Refused { .. }), || {
        format!("a request to a stream that ended is answered by {answer:?}")
    })?;
    let done = s.completed_ids()?;
    s.check("MR-STR-27", done.is_empty(), || format!("what was not queued completes: {done:?}"))
}
