//! Packets that must be dropped, ignored or passed over: MR-WIRE, MR-SEC.

use metaroce_core::ids::Serial as _;
use metaroce_core::wire::PacketType;

use super::super::case::Case;
use super::super::control::Settings;
use super::super::link::{Link, Region, send, write};
use super::super::port::Source;
use super::super::script::{MS, Script, Shot};
use super::super::stop::Outcome;
use super::super::wire::{BaseFields, DataFields, flag, frame, kind, op, seal};
use super::requests::{local, write_request};

pub(super) const CASES: &[Case] = &[
    Case::new(
        "packets/version",
        "a packet of another version is counted, not answered, and without effect",
        &["MR-WIRE-2", "MR-WIRE-3", "MR-WIRE-32"],
        version,
    ),
    Case::new(
        "packets/malformed",
        "undefined types, opcodes, flags, lengths and short packets are counted as malformed, and without effect",
        &["MR-WIRE-3", "MR-WIRE-4", "MR-WIRE-15", "MR-WIRE-16", "MR-WIRE-17", "MR-WIRE-32", "MR-SEC-2"],
        malformed,
    ),
    Case::new(
        "packets/checksum",
        "packets with a wrong checksum or none are dropped before any field has an effect",
        &["MR-WIRE-9", "MR-WIRE-11"],
        checksum,
    ),
    Case::new(
        "packets/checksum not wanted by the device",
        "a device that wants no checksum takes a packet whose field is wrong",
        &["MR-WIRE-10"],
        checksum_unwanted,
    )
    .with(Settings { checksum_wanted: Some(false), ..Settings::NONE }),
    Case::new(
        "packets/checksum not wanted by the peer",
        "to a peer that wants no checksum the field is 0 on all but CONTROL",
        &["MR-WIRE-10"],
        no_checksum_for_us,
    ),
    Case::new("packets/reserved", "reserved bits and bytes are ignored", &["MR-WIRE-5"], reserved),
    Case::new(
        "packets/frames",
        "a frame of unknown type is passed over; a frame that is cut or has a wrong length voids the whole datagram",
        &["MR-WIRE-24", "MR-WIRE-25"],
        frames,
    ),
    Case::new(
        "packets/stray REFUSED",
        "a REFUSED frame that does not follow its block is ignored",
        &["MR-WIRE-26"],
        stray_refused,
    ),
    Case::new("packets/PROBE padding", "the padding of a PROBE is ignored", &["MR-WIRE-27"], probe_padding),
    Case::new(
        "packets/junk",
        "random bytes and random changes of good packets neither kill the device nor touch memory",
        &["MR-SEC-1", "MR-SEC-2"],
        junk,
    ),
    Case::new(
        "packets/strangers",
        "DATA, ACK and PROBE from another IP address have no effect",
        &["MR-SEC-6"],
        strangers,
    ),
    Case::new(
        "packets/poisoned PSN",
        "a PROBE whose PSN lies far ahead is dropped",
        &["MR-SEC-7", "MR-WIRE-32"],
        poisoned,
    ),
    Case::new(
        "packets/CONTROL with junk behind it",
        "what follows a CONTROL body is padding",
        &["MR-WIRE-28"],
        control_padding,
    ),
];

/// Shows that the connection still works, and that nothing before took a PSN or CSN.
fn alive(s: &mut Script<'_>, requirement: &str, link: &mut Link, region: &Region) -> Outcome {
    let mark = s.mark();
    let fired = s.send(link, 0, &write(region, region.length - 5, b"alive").on(9, 0))?;
    let ack = s.expect(requirement, mark, "an ACK of what is good", |packet| {
        packet.block_of(0).is_some_and(|block| block.accepts(fired.psn))
    })?;
    let cumulative = ack.block_of(0).map(|block| block.body.cumulative.raw());
    s.check(requirement, cumulative == Some(link.next_csn), || {
        format!("the next CSN is {cumulative:?}, not {}", link.next_csn)
    })?;
    let seen = s.memory(region, region.length - 5, 5)?;
    s.check(requirement, seen == b"alive", || "a good WRITE is not placed".to_owned())
}

//= MR-WIRE-2, MR-WIRE-3 test
fn version(s: &mut Script<'_>) -> Outcome {
    s.monitor.lenient_acks = true; // What follows is judged by what it names.
    let region = s.region(64)?;
    let mut link = s.connect()?;
    s.settle()?;
    let before = s.dropped("version")?;
    let mark = s.mark();
    for version in [1_u8, 7, 15] {
        let (_, mut bytes) = s.data_bytes(&mut link.clone(), Shot::on(0), &write(&region, 0, b"bad"));
        if let Some(first) = bytes.first_mut() {
            *first |= version << 4;
        }
        seal(&mut bytes);
        s.send_raw(Source::Main, &bytes)?;
    }
    s.settle()?;
    let after = s.dropped("version")?;
    s.check("MR-WIRE-2", after == before.map(|count| count + 3), || {
        format!("3 packets of other versions, counted {before:?} before and {after:?} after")
    })?;
    let answered =
        s.since(mark).iter().any(|packet| packet.is(PacketType::Ack) || packet.is(PacketType::Control));
    s.check("MR-WIRE-3", !answered, || "another version is answered".to_owned())?;
    let seen = s.memory(&region, 0, 3)?;
    s.check("MR-WIRE-2", seen == [0; 3], || "a packet of another version is placed".to_owned())?;
    alive(s, "MR-WIRE-2", &mut link, &region)
}

/// DATA that the table of section 3.2 forbids, and what is wrong with it.
fn forbidden(region: &Region) -> Vec<(&'static str, &'static str, DataFields)> {
    let good = write(region, 0, b"bad!");
    let table = "MR-WIRE-15";
    vec![
        (table, "opcode 0", DataFields { opcode: 0, ..good.clone() }),
        (table, "opcode 0x0a", DataFields { opcode: 0x0a, ..good.clone() }),
        (table, "opcode 0x18", DataFields { opcode: 0x18, ..good.clone() }),
        (table, "a WRITE with TAGGED", good.clone().with(flag::TAGGED)),
        (table, "a WRITE with INVALIDATE", good.clone().with(flag::INVALIDATE)),
        (table, "a SEND with SIGNAL", send(b"bad!").with(flag::SIGNAL)),
        ("MR-WIRE-17", "a SEND with both", send(b"bad!").with(flag::IMMEDIATE | flag::INVALIDATE)),
        ("MR-WIRE-17", "a WRITE with both", good.clone().with(flag::IMMEDIATE | flag::SIGNAL)),
        ("MR-WIRE-16", "LAST missing", DataFields { flags: 0, ..good.clone() }),
        ("MR-WIRE-16", "LAST too early", DataFields { length: 9, ..good.clone() }),
        (table, "offset past the length", DataFields { offset: 1, ..good.clone() }),
        (table, "offset that wraps", DataFields { offset: u32::MAX - 1, ..good.clone() }),
        (table, "no payload of four bytes", DataFields { payload: Vec::new(), flags: 0, ..good.clone() }),
        (table, "a READ with payload", DataFields { opcode: op::READ_REQUEST, ..good.clone() }),
        (
            table,
            "an atomic of 4 bytes",
            DataFields { opcode: op::FETCH_ADD, payload: Vec::new(), length: 4, ..good.clone() },
        ),
        (table, "a VOID with payload", DataFields { opcode: op::VOID, ..good.clone() }),
        (table, "a RESULT without a status", DataFields { opcode: op::RESULT, payload: Vec::new(), ..good }),
    ]
}

//= MR-WIRE-3, MR-WIRE-4, MR-WIRE-15, MR-WIRE-16, MR-WIRE-17, MR-WIRE-32, MR-SEC-2 test
fn malformed(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = s.connect()?;
    s.settle()?;
    let mark = s.mark();
    let mut before = s.dropped("malformed")?;
    for (requirement, what, data) in forbidden(&region) {
        s.fire_in_vain(&link, Shot::on(0), &data)?;
        s.run(s.pick(200_000, 3 * MS))?;
        let after = s.dropped("malformed")?;
        s.check(requirement, after == before.map(|count| count + 1), || {
            format!("{what}: malformed was counted {before:?} before and {after:?} after")
        })?;
        before = after;
    }
    let (_, good) = s.data_bytes(&mut link.clone(), Shot::on(0), &write(&region, 0, b"bad!"));
    let base = BaseFields { connection: link.theirs(), ..BaseFields::default() };
    let short = |bytes: usize| {
        let mut short = good.get(..bytes).unwrap_or_default().to_vec();
        seal(&mut short);
        short
    };
    let mut broken = vec![short(0), short(1), short(19), short(20), short(47), short(59)];
    broken.push(BaseFields { kind: 0, ..base }.datagram(&[]));
    broken.push(BaseFields { kind: 6, ..base }.datagram(&[0; 64]));
    broken.push(BaseFields { kind: 15, ..base }.datagram(&[0; 64]));
    broken
        .push(BaseFields { kind: kind::DATA, path: 64, ..base }.datagram(good.get(20..).unwrap_or_default()));
    broken.push(BaseFields { kind: kind::ACK, ..base }.datagram(&[0; 63]));
    broken.push(BaseFields { kind: kind::PROBE, ..base }.datagram(&[0; 15]));
    broken.push(BaseFields { kind: kind::CONTROL, ..base }.datagram(&[9; 64]));
    broken.push(BaseFields { kind: kind::CONTROL, ..base }.datagram(&[]));
    for bytes in &broken {
        s.send_raw(Source::Main, bytes)?;
    }
    s.settle()?;
    let after = s.dropped("malformed")?;
    // An empty datagram may not reach a device whose system drops it.
    let (count, most) = (after.zip(before).map(|(after, before)| after - before), broken.len() as u64);
    s.check("MR-WIRE-4", count.is_none_or(|count| count == most || count + 1 == most), || {
        format!("{most} broken packets, {count:?} counted as malformed")
    })?;
    let answered =
        s.since(mark).iter().any(|packet| packet.is(PacketType::Ack) || packet.is(PacketType::Control));
    s.check("MR-WIRE-3", !answered, || "a malformed packet is answered".to_owned())?;
    let seen = s.memory(&region, 0, 4)?;
    s.check("MR-SEC-2", seen == [0; 4], || "a malformed packet is placed".to_owned())?;
    alive(s, "MR-SEC-2", &mut link, &region)
}

//= MR-WIRE-9, MR-WIRE-11 test
fn checksum(s: &mut Script<'_>) -> Outcome {
    s.monitor.lenient_acks = true; // What follows is judged by what it names.
    let region = s.region(64)?;
    let mut link = s.connect()?;
    s.settle()?;
    let before = s.dropped("checksum")?;
    let mark = s.mark();
    let (_, good) = s.data_bytes(&mut link.clone(), Shot::on(0), &write(&region, 0, b"bad!"));
    let end = good.len() - 1;
    // The checksum itself, the PSN, the payload, and none at all.
    for at in [16, 11, end] {
        let mut bytes = good.clone();
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= 0x10;
        }
        s.send_raw(Source::Main, &bytes)?;
    }
    let mut none = good;
    none.get_mut(16..20).into_iter().for_each(|field| field.fill(0));
    s.send_raw(Source::Main, &none)?;
    s.settle()?;
    let after = s.dropped("checksum")?;
    s.check("MR-WIRE-11", after == before.map(|count| count + 4), || {
        format!("4 wrong checksums, counted {before:?} before and {after:?} after")
    })?;
    let seen = s.memory(&region, 0, 4)?;
    s.check("MR-WIRE-11", seen == [0; 4], || "a packet with a wrong checksum is placed".to_owned())?;
    let acked = s.since(mark).iter().any(|packet| packet.is(PacketType::Ack));
    s.check("MR-WIRE-11", !acked, || "a packet with a wrong checksum is acknowledged".to_owned())?;
    let asked = s.new_terms(super::super::wire::control::CONNECT);
    let mut bytes = s.connect_bytes(&asked, 640);
    bytes.get_mut(16..20).into_iter().for_each(|field| field.fill(0));
    s.send_raw(Source::Main, &bytes)?;
    s.settle()?;
    let incoming = s.incoming_numbers()?.len();
    s.check("MR-WIRE-9", incoming == 1, || "a CONNECT without checksum opens a connection".to_owned())?;
    alive(s, "MR-WIRE-11", &mut link, &region)
}

//= MR-WIRE-10 test
fn checksum_unwanted(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = s.connect()?;
    s.check("MR-WIRE-10", !link.terms.wants_checksum, || "ACCEPT asks for checksums".to_owned())?;
    let (fired, mut bytes) = s.data_bytes(&mut link, Shot::on(0), &write(&region, 0, b"good"));
    bytes.get_mut(16..20).into_iter().for_each(|field| field.fill(0));
    let sent = super::super::monitor::Sent { csn: Some(fired.csn), timestamp: fired.timestamp, copies: 1 };
    s.monitor.on_sent(&link, 0, fired.psn, sent);
    s.send_raw(Source::Main, &bytes)?;
    s.settle()?;
    let seen = s.memory(&region, 0, 4)?;
    s.check("MR-WIRE-10", seen == b"good", || "a packet without checksum is dropped".to_owned())
}

//= MR-WIRE-10 test
fn no_checksum_for_us(s: &mut Script<'_>) -> Outcome {
    let region = s.region(8192)?;
    let mut link = s.connect_with(|asked| asked.flags = 0, 0)?;
    s.send(&mut link, 0, &write(&region, 0, b"good"))?;
    s.post(&link, 0, 1, write_request(5, 0), local(&region, 0, 8192))?;
    // The monitor looks at the field of every packet.
    let status = s.serve_completion("MR-WIRE-10", &mut link, 1)?;
    s.check("MR-WIRE-10", status == "success", || format!("the WRITE ends as {status}"))
}

//= MR-WIRE-5 test
fn reserved(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = s.connect()?;
    let (fired, mut bytes) = s.data_bytes(&mut link, Shot::on(0), &write(&region, 0, b"good"));
    for (at, bits) in [(1, 0xff), (21, 0x80)] {
        if let Some(byte) = bytes.get_mut(at) {
            *byte |= bits;
        }
    }
    seal(&mut bytes);
    let sent = super::super::monitor::Sent { csn: Some(fired.csn), timestamp: fired.timestamp, copies: 1 };
    s.monitor.on_sent(&link, 0, fired.psn, sent);
    let mark = s.mark();
    s.send_raw(Source::Main, &bytes)?;
    s.expect("MR-WIRE-5", mark, "an ACK of DATA with reserved bits", |packet| {
        packet.block_of(0).is_some_and(|block| block.accepts(fired.psn))
    })?;
    let seen = s.memory(&region, 0, 4)?;
    s.check("MR-WIRE-5", seen == b"good", || "DATA with reserved bits is not placed".to_owned())
}

/// Has the device send one WRITE, and waits for it.
fn one_write(s: &mut Script<'_>, link: &mut Link, region: &Region) -> Outcome {
    s.settle()?;
    let mark = s.mark();
    s.post(link, 0, 1, write_request(5, 0), local(region, 0, 16))?;
    let mine = link.mine();
    let packet = s.expect("MR-STR-5", mark, "the WRITE of the device", |packet| {
        packet.data().is_some() && packet.base.connection.0 == mine
    })?;
    link.enter(&packet, true);
    Ok(())
}

//= MR-WIRE-24, MR-WIRE-25 test
fn frames(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    for (requirement, extra, good) in [
        ("MR-WIRE-25", vec![3, 8, 0, 0], false),
        ("MR-WIRE-25", frame(3, &[0; 7]), false),
        ("MR-WIRE-25", frame(2, &[0, 0, 99, 0, 0, 0, 0, 0]), false),
        ("MR-WIRE-25", vec![200], false),
        ("MR-WIRE-24", frame(200, &[1, 2, 3]), true),
    ] {
        let mut link = s.connect()?;
        one_write(s, &mut link, &region)?;
        let path = s.since(0).last().map_or(0, |packet| packet.base.path.0);
        let before = s.poll()?.len();
        let block = link.acknowledgement(path, s.now());
        s.monitor.on_told(&link);
        s.send_ack(&link, &[block], &extra)?;
        s.run(s.pick(MS, 5 * MS))?;
        let completed = s.poll()?.len() > before;
        s.check(requirement, completed == good, || {
            let effect = if completed { "an" } else { "no" };
            format!("an ACK with the frame bytes {extra:02x?} has {effect} effect")
        })?;
    }
    Ok(())
}

//= MR-WIRE-26 test
fn stray_refused(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = s.connect()?;
    one_write(s, &mut link, &region)?;
    let path = s.since(0).iter().rev().find(|packet| packet.data().is_some()).map_or(0, |p| p.base.path.0);
    let mut block = link.acknowledgement(path, s.now());
    let vector = block.vector;
    // Nothing is told by the block; the frame that would refuse follows another one.
    block.vector = [0; 32];
    let mut extra = super::super::wire::credit(0, 7);
    extra.extend(frame(1, &vector));
    let mark = s.mark();
    s.send_ack(&link, &[block], &extra)?;
    s.run(s.pick(2 * MS, 20 * MS))?;
    s.monitor.on_told(&link);
    // What was refused goes again under a new CSN; a timeout would take the old one.
    let csn = link.cumulative.wrapping_sub(1);
    let again =
        s.since(mark).iter().any(|packet| packet.data().is_some_and(|(data, _)| data.csn.raw() != csn));
    s.check("MR-WIRE-26", !again, || "a stray REFUSED frame refuses".to_owned())?;
    let status = s.serve_completion("MR-WIRE-26", &mut link, 1)?;
    s.check("MR-WIRE-26", status == "success", || format!("the WRITE ends as {status}"))
}

//= MR-WIRE-27 test
fn probe_padding(s: &mut Script<'_>) -> Outcome {
    let mut link = s.connect()?;
    let psn = link.take_psn(0);
    let base = BaseFields { psn, ..s.base(kind::PROBE, link.theirs()) };
    let mut body = super::super::wire::probe(0xffff, 0, 0x1234_5678_9abc, 1000);
    body.iter_mut().skip(16).for_each(|byte| *byte = 0xee);
    let sent = super::super::monitor::Sent { csn: None, timestamp: base.timestamp, copies: 1 };
    s.monitor.on_sent(&link, 0, psn, sent);
    let mark = s.mark();
    s.send_raw(Source::Main, &base.datagram(&body))?;
    s.expect("MR-WIRE-27", mark, "a PROBE_REPLY", |packet| packet.reply_token() == Some(0x1234_5678_9abc))?;
    Ok(())
}

//= MR-SEC-1, MR-SEC-2 test
fn junk(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = s.connect()?;
    s.settle()?;
    let (_, good) = s.data_bytes(&mut link.clone(), Shot::on(0), &write(&region, 0, b"bad!"));
    for round in 0..400_u64 {
        let mut bytes = if round % 2 == 0 {
            let length = s.random() % 200;
            (0..length).map(|_| s.random().to_be_bytes()[0]).collect()
        } else {
            good.clone()
        };
        for _ in 0..=round % 3 {
            let at = usize::try_from(s.random()).unwrap_or(0) % bytes.len().max(1);
            let flip = s.random().to_be_bytes()[7] | 1;
            bytes.get_mut(at).into_iter().for_each(|byte| *byte ^= flip);
        }
        // Half of them unsealed, so that the checksum stops them; of the others all but DATA of this connection.
        if round % 4 == 0 && bytes.len() > 20 && bytes.get(4..8) != Some(&link.theirs().to_be_bytes()) {
            seal(&mut bytes);
        }
        s.send_raw(Source::Other(1), &bytes)?;
        if round % 50 == 0 {
            s.run(s.pick(MS, 3 * MS))?;
        }
    }
    s.settle()?;
    let seen = s.memory(&region, 0, 4)?;
    s.check("MR-SEC-2", seen == [0; 4], || "junk is placed".to_owned())?;
    alive(s, "MR-SEC-1", &mut link, &region)
}

//= MR-SEC-6 test
fn strangers(s: &mut Script<'_>) -> Outcome {
    s.monitor.lenient_acks = true; // What follows is judged by what it names.
    let region = s.region(64)?;
    let mut link = s.connect()?;
    s.settle()?;
    let mark = s.mark();
    let shot = Shot { source: Some(Source::Stranger), ..Shot::on(0) };
    s.fire_in_vain(&link, shot, &write(&region, 0, b"bad!"))?;
    let mut copy = link.clone();
    let psn = copy.take_psn(0);
    let base = BaseFields { psn, ..s.base(kind::PROBE, link.theirs()) };
    s.send_raw(Source::Stranger, &base.datagram(&super::super::wire::probe(0xffff, 0, 9, 64)))?;
    s.settle()?;
    let seen = s.memory(&region, 0, 4)?;
    s.check("MR-SEC-6", seen == [0; 4], || "a stranger's WRITE is placed".to_owned())?;
    let answered = s.since(mark).iter().any(|packet| packet.to == 255 || packet.reply_token().is_some());
    s.check("MR-SEC-6", !answered, || "a stranger is answered".to_owned())?;
    alive(s, "MR-SEC-6", &mut link, &region)
}

//= MR-SEC-7 test
fn poisoned(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = s.connect()?;
    s.send(&mut link, 0, &write(&region, 0, b"x"))?;
    s.settle()?;
    let before = s.dropped("bad-proof")?;
    let mark = s.mark();
    for far in [(1 << 20) + 10, 1 << 30] {
        let psn = link.clone().take_psn(0).wrapping_add(far);
        let base = BaseFields { psn, ..s.base(kind::PROBE, link.theirs()) };
        s.send_raw(Source::Main, &base.datagram(&super::super::wire::probe(0xffff, 0, 9, 64)))?;
    }
    s.settle()?;
    let answered = s.since(mark).iter().any(|packet| packet.reply_token() == Some(9));
    s.check("MR-SEC-7", !answered, || "a PROBE far ahead is answered".to_owned())?;
    let after = s.dropped("bad-proof")?;
    s.check("MR-SEC-7", after == before.map(|count| count + 2), || {
        format!("bad proof was counted {before:?} before and {after:?} after")
    })?;
    alive(s, "MR-SEC-7", &mut link, &region)
}

//= MR-WIRE-28 test
fn control_padding(s: &mut Script<'_>) -> Outcome {
    let asked = s.new_terms(super::super::wire::control::CONNECT);
    let mut body = asked.body();
    body.resize(900, 0xee);
    let mark = s.mark();
    let bytes = s.base(kind::CONTROL, 0).datagram(&body);
    s.send_raw(Source::Main, &bytes)?;
    let number = s.incoming("MR-WIRE-28", 1)?;
    s.done(&super::super::control::Command::Accept {
        connection: number,
        domain: 0,
        private: super::super::control::HexBytes::default(),
    })?;
    let terms = s.expect_accept(mark, &asked)?;
    let mut link = Link::new(number, asked, terms);
    s.monitor.watch(&link);
    let mut body = super::super::wire::confirm(link.terms.nonce);
    body.extend([0xee; 30]);
    s.send_control(link.theirs(), &body)?;
    s.expect_event("MR-WIRE-28", "the connection opens", |event| {
        *event == super::super::control::DeviceEvent::Connected { connection: number }
    })?;
    s.send_probe(&mut link, 0, 0xffff)?;
    s.settle()
}
