//! Connections over several planes: addresses that are listed, turns, failure and return of a plane.

use std::collections::{BTreeMap, BTreeSet};

use metaroce_core::ids::Serial as _;
use metaroce_core::wire::PacketType;

use super::super::case::{Case, Profile};
use super::super::control::{Command, HexBytes, Settings};
use super::super::link::{Link, write};
use super::super::packet::Packet;
use super::super::port::Source;
use super::super::script::{MS, S, Script, Shot, Treat};
use super::super::stop::{Outcome, Stop};
use super::super::wire::{confirm, control, flag, plane};
use super::acknowledgements::calm;
use super::paths::{data, traffic, traffic_until};
use super::requests::{accepted, local, write_request};

pub(super) const CASES: &[Case] = &[
    Case::new(
        "planes/unverified address",
        "a listed address gets three PROBEs, then one a second, and nothing else until it returned a token",
        &["MR-HS-25"],
        unverified,
    )
    .of(Profile::Multipath)
    .with(TWO),
    Case::new(
        "planes/unproven peer",
        "no listed address gets anything before the address of the CONNECT is proven",
        &["MR-HS-35"],
        unproven,
    )
    .of(Profile::Multipath)
    .with(TWO),
    Case::new(
        "planes/another than the first",
        "a CONNECT to the second plane of a device opens a connection over that one alone",
        &["MR-HS-34"],
        second_plane,
    )
    .of(Profile::Multipath)
    .with(TWO),
    Case::new(
        "planes/turns",
        "paths belong to planes by their number, and planes take turns",
        &["MR-PATH-3", "MR-PATH-39"],
        turns,
    )
    .of(Profile::Multipath)
    .with(TWO),
    Case::new(
        "planes/acknowledgements",
        "ACKs rotate over the planes, and answers to ACK_NOW travel on two",
        &["MR-ACK-18", "MR-ACK-19"],
        acknowledgements,
    )
    .of(Profile::Multipath)
    .with(TWO),
    Case::new(
        "planes/named silent",
        "a plane that a PLANE frame names silent is asked by every path, and carries no ACK",
        &["MR-ACK-18", "MR-PATH-41"],
        named_silent,
    )
    .of(Profile::Multipath)
    .with(TWO),
    Case::new(
        "planes/silence is told",
        "PLANE tells on which plane nothing came while the other delivered, and that all is well again",
        &["MR-ACK-27"],
        silence,
    )
    .of(Profile::Multipath)
    .with(TWO),
    Case::new(
        "planes/death and return",
        "a dead plane carries no data, is told, is asked often, and comes back when it answers",
        &["MR-PATH-32", "MR-PATH-20", "MR-PATH-23", "MR-ACK-27"],
        death,
    )
    .of(Profile::Multipath)
    .with(TWO),
];

/// A device of two planes.
const TWO: Settings = Settings { planes: Some(2), ..Settings::NONE };

/// Paths of each plane that the suite asks for.
const PATHS: u8 = 4;

fn on_second(packet: &Packet) -> bool {
    packet.to == Source::Plane(1).number()
}

fn open(s: &mut Script<'_>) -> Outcome<Link> {
    s.connect_planes(2, PATHS, |_| {})
}

/// Open, both planes proven, and at rest.
fn open_and_calm(s: &mut Script<'_>) -> Outcome<Link> {
    let mut link = open(s)?;
    calm(s, &mut link)?;
    Ok(link)
}

/// Nothing but PROBEs came on the second plane.
fn only_probes(s: &Script<'_>, mark: usize) -> Outcome<usize> {
    let came: Vec<&Packet> = s.since(mark).iter().filter(|packet| on_second(packet)).collect();
    let other = came.iter().find(|packet| !packet.is(PacketType::Probe));
    s.check("MR-HS-25", other.is_none(), || {
        let kind = other.map_or(String::new(), |packet| format!("{:?}", packet.base.kind));
        format!("an address that returned no token gets {kind}")
    })?;
    Ok(came.len())
}

//= MR-HS-25 test
fn unverified(s: &mut Script<'_>) -> Outcome {
    let region = s.region(1 << 16)?;
    let mark = s.mark();
    let mut link = open(s)?;
    let mut deaf = |packet: &Packet| if on_second(packet) { Treat::Lose } else { Treat::Accept };
    s.post(&link, 0, 1, write_request(5, 0), local(&region, 0, 16_384))?;
    s.serve(&mut link, 1_300 * MS, &mut deaf, &mut |_, _| Ok(false))?;
    let probes = only_probes(s, mark)?;
    s.check("MR-HS-25", (1..=5).contains(&probes), || {
        format!("a listed address gets {probes} PROBEs in 1.3 s, at most 3 and one a second are due")
    })?;
    // A token that was not asked with proves nothing.
    let asked = s.since(mark).iter().rfind(|packet| on_second(packet)).cloned();
    let mut wrong = asked.ok_or_else(|| Stop::failed("MR-HS-25", "the listed address is not asked"))?;
    link.enter(&wrong, true);
    if let Some(byte) = wrong.bytes.get_mut(30) {
        *byte ^= 0x55;
    }
    let mark = s.mark();
    s.reply(&link, &wrong, &[])?;
    s.settle()?;
    // Small ones: they would fit a path whose MTU nobody knows.
    for id in 2..10 {
        s.post(&link, 0, id, write_request(5, 0), local(&region, 0, 1000))?;
    }
    s.serve(&mut link, s.pick(200 * MS, 300 * MS), &mut deaf, &mut |_, _| Ok(false))?;
    only_probes(s, mark)?;
    // The right one does.
    let mark = s.mark();
    let carries =
        |s: &Script<'_>| s.since(mark).iter().any(|packet| on_second(packet) && packet.data().is_some());
    let until = s.now() + s.pick(2 * S, 4 * S);
    let mut id = 10;
    while !carries(s) && s.now() < until {
        s.post(&link, 0, id, write_request(5, 0), local(&region, 0, 1000))?;
        id += 1;
        s.serve(&mut link, 10 * MS, &mut |_| Treat::Accept, &mut |_, _| Ok(false))?;
    }
    s.check("MR-HS-25", carries(s), || "an address that returned its token carries no data".to_owned())
}

//= MR-HS-35 test
fn unproven(s: &mut Script<'_>) -> Outcome {
    let mut asked = s.new_terms(control::CONNECT);
    (asked.planes, asked.paths) = (vec![s.local(Source::Plane(1))?], PATHS);
    let mark = s.mark();
    s.send_connect(Source::Main, &asked)?;
    let number = s.incoming("MR-HS-1", 1)?;
    s.done(&Command::Accept { connection: number, domain: 0, private: HexBytes::default() })?;
    let terms = s.expect_accept(mark, &asked)?;
    if terms.planes.is_empty() {
        return Err(Stop::NotApplicable("the device has one plane".to_owned()));
    }
    s.join(&terms);
    s.run(s.pick(500 * MS, 300 * MS))?;
    let early = s.since(mark).iter().find(|packet| on_second(packet)).cloned();
    s.check("MR-HS-35", early.is_none(), || {
        format!(
            "a listed address gets {:?} on the word of a peer that did not answer",
            early.map(|it| it.base.kind)
        )
    })?;
    s.send_control(terms.id, &confirm(terms.nonce))?;
    s.expect("MR-HS-25", mark, "a PROBE of the listed address", |packet| {
        on_second(packet) && packet.is(PacketType::Probe)
    })?;
    Ok(())
}

//= MR-HS-34 test
fn second_plane(s: &mut Script<'_>) -> Outcome {
    let first = open(s)?;
    let mut asked = s.new_terms(control::CONNECT);
    (asked.planes, asked.paths) = (vec![s.local(Source::Main)?], PATHS);
    let mark = s.mark();
    let before = s.incoming_numbers()?.len();
    s.send_connect(Source::Plane(1), &asked)?;
    let number = s.incoming("MR-HS-34", before + 1)?;
    s.done(&Command::Accept { connection: number, domain: 0, private: HexBytes::default() })?;
    let terms = s.expect_accept(mark, &asked)?;
    s.check("MR-HS-34", terms.planes.is_empty(), || {
        format!("the ACCEPT of a CONNECT to the second plane lists {:?}", terms.planes)
    })?;
    let id = asked.id;
    let home = first.terms.planes.first().map(std::net::SocketAddr::ip);
    let accept = s.expect("MR-HS-34", mark, "the ACCEPT", |packet| packet.base.connection.0 == id)?;
    s.check("MR-HS-34", on_second(&accept) && Some(accept.source_ip) == home, || {
        format!("the ACCEPT comes from {}, the CONNECT went to {home:?}", accept.source_ip)
    })
}

//= MR-PATH-3, MR-PATH-39 test
fn turns(s: &mut Script<'_>) -> Outcome {
    let region = s.region(1 << 16)?;
    let mut link = open_and_calm(s)?;
    let mark = s.mark();
    for id in 0..16 {
        s.post(&link, 0, id, write_request(5, 0), local(&region, 0, 1000))?;
    }
    s.serve_completion("MR-OP-9", &mut link, 15)?;
    let homes = [Some(s.device().ip()), link.terms.planes.first().map(std::net::SocketAddr::ip)];
    let mut counts: BTreeMap<u8, usize> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for packet in data(s, mark) {
        let path = packet.base.path.0;
        let plane = link.plane_of(path);
        let (came_on, home) =
            (u8::from(on_second(&packet)), homes.get(usize::from(plane)).copied().flatten());
        s.check("MR-PATH-3", came_on == plane && Some(packet.source_ip) == home, || {
            format!("DATA of path {path} came on plane {came_on} from {}", packet.source_ip)
        })?;
        if packet.data().is_some_and(|(header, _)| seen.insert(header.csn.raw())) {
            *counts.entry(plane).or_default() += 1;
        }
    }
    let (most, least) = (counts.values().max().copied(), counts.values().min().copied());
    let fair = !s.is_exact() || most.unwrap_or(0) <= least.unwrap_or(0) + 2;
    s.check("MR-PATH-39", counts.len() == 2 && fair, || {
        format!("{} packets go over the planes as {counts:?}", seen.len())
    })
}

//= MR-ACK-18, MR-ACK-19 test
fn acknowledgements(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = open_and_calm(s)?;
    let mut planes = BTreeSet::new();
    for msn in 0..8 {
        // Neither LAST nor ACK_NOW: one ACK each, after the ACK delay.
        let mark = s.mark();
        let fired = s.send(&mut link, 0, &write(&region, 0, b"xy").on(0, msn).part(0, 1))?;
        let ack = s.expect("MR-ACK-11", mark, "an ACK", |packet| {
            packet.block_of(0).is_some_and(|block| block.accepts(fired.psn))
        })?;
        planes.insert(ack.to);
    }
    s.check("MR-ACK-18", planes.len() == 2, || {
        format!("eight ACKs in a row take {} of two planes", planes.len())
    })?;
    for msn in 8..14 {
        let mark = s.mark();
        let write = write(&region, 0, b"x").on(0, msn);
        let fired = s.send(&mut link, 0, &write.with(flag::ACK_NOW))?;
        let tells = |packet: &Packet| packet.block_of(0).is_some_and(|block| block.accepts(fired.psn));
        s.expect("MR-ACK-10", mark, "the answer to ACK_NOW", tells)?;
        s.settle()?;
        let answers: BTreeSet<u8> =
            s.since(mark).iter().filter(|packet| tells(packet)).map(|packet| packet.to).collect();
        s.check("MR-ACK-19", answers.len() == 2, || {
            format!("the answer to ACK_NOW travelled on {} of two planes", answers.len())
        })?;
    }
    Ok(())
}

//= MR-ACK-18, MR-PATH-41 test
fn named_silent(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = open_and_calm(s)?;
    let mark = s.mark();
    s.acknowledge_with(&link, &[0], &plane(1 << 1, 0))?;
    s.expect("MR-PATH-41", mark, "a PROBE on the plane that is named silent", |packet| {
        on_second(packet) && packet.is(PacketType::Probe)
    })?;
    s.settle()?;
    let asked: BTreeSet<u8> = s
        .since(mark)
        .iter()
        .filter(|packet| on_second(packet) && packet.is(PacketType::Probe))
        .map(|packet| packet.base.path.0)
        .collect();
    s.check("MR-PATH-41", asked.len() == usize::from(PATHS), || {
        format!("on a plane that is newly named silent paths {asked:?} ask, of {PATHS}")
    })?;
    let mut on_silent = 0;
    for msn in 0..8 {
        let mark = s.mark();
        // What the peer says holds for 8 RTO.
        s.acknowledge_with(&link, &[0], &plane(1 << 1, 0))?;
        let fired = s.send(&mut link, 0, &write(&region, 0, b"xy").on(0, msn).part(0, 1))?;
        let ack = s.expect("MR-ACK-11", mark, "an ACK", |packet| {
            packet.block_of(0).is_some_and(|block| block.accepts(fired.psn))
        })?;
        on_silent += usize::from(on_second(&ack));
    }
    s.check("MR-ACK-18", on_silent == 0, || {
        format!("{on_silent} of 8 ACKs take the plane that the peer named silent")
    })
}

//= MR-ACK-27 test
fn silence(s: &mut Script<'_>) -> Outcome {
    let region = s.region(64)?;
    let mut link = open_and_calm(s)?;
    let mut msn = 0;
    for path in [0, PATHS, 0, PATHS] {
        accepted(s, "MR-PATH-5", &mut link, path, &write(&region, 0, b"x").on(0, msn))?;
        msn += 1;
    }
    let mark = s.mark();
    let until = s.now() + s.pick(300 * MS, S);
    let told = |s: &Script<'_>, mark: usize| s.since(mark).iter().filter_map(Packet::plane_frame).next_back();
    while told(s, mark).is_none_or(|(silent, _)| silent == 0) && s.now() < until {
        accepted(s, "MR-PATH-5", &mut link, 0, &write(&region, 0, b"x").on(0, msn))?;
        msn += 1;
        s.run(s.pick(2 * MS, 4 * MS))?;
    }
    let silent = told(s, mark).map_or(0, |(silent, _)| silent);
    s.check("MR-ACK-27", silent == 1 << 1, || {
        format!("while only plane 0 delivers the silent planes are told as {silent:#b}")
    })?;
    let mark = s.mark();
    for _ in 0..4 {
        accepted(s, "MR-PATH-5", &mut link, PATHS, &write(&region, 0, b"x").on(0, msn))?;
        msn += 1;
    }
    let told = told(s, mark);
    s.check("MR-ACK-27", told.is_some_and(|(silent, _)| silent == 0), || {
        format!("after a plane is heard again, PLANE tells {told:?}")
    })
}

//= MR-PATH-32, MR-PATH-20, MR-PATH-23, MR-ACK-27 test
fn death(s: &mut Script<'_>) -> Outcome {
    let region = s.region(1024)?;
    let mut link = open_and_calm(s)?;
    let mut next = 0;
    let mut deaf = |packet: &Packet| if on_second(packet) { Treat::Lose } else { Treat::Accept };
    for path in PATHS..2 * PATHS {
        let states = ["dead", "probing"];
        let state = traffic_until(s, &mut link, &region, &mut next, (path, &states), &mut deaf)?;
        s.check("MR-PATH-32", states.contains(&state.as_str()), || {
            format!("of a plane on which nothing arrives path {path} stays {state}")
        })?;
    }
    let mark = s.mark();
    let done = s.completed_ids()?.len();
    traffic(s, &mut link, &region, &mut next, 200 * MS, &mut deaf)?;
    let late = data(s, mark).into_iter().filter(on_second).count();
    s.check("MR-PATH-32", late == 0, || format!("a dead plane gets {late} packets of DATA"))?;
    let more = s.completed_ids()?.len() - done;
    s.check("MR-PATH-32", more > 20, || {
        format!("{more} requests are completed beside a dead plane in 200 ms")
    })?;
    let probes =
        s.since(mark).iter().filter(|packet| on_second(packet) && packet.is(PacketType::Probe)).count();
    s.check("MR-PATH-20", (10..=400).contains(&probes), || {
        format!("a dead plane is asked {probes} times in 200 ms, each 2 ms at most are due")
    })?;
    let mark = s.mark();
    let write = write(&region, 0, b"x").on(0, 0);
    s.fire(&mut link, Shot::on(0), &write)?;
    let told = s.expect("MR-ACK-27", mark, "a PLANE frame", |packet| packet.plane_frame().is_some())?;
    let unreachable = told.plane_frame().map_or(0, |(_, unreachable)| unreachable);
    s.check("MR-ACK-27", unreachable == 1 << 1, || {
        format!("with plane 1 dead the unreachable planes are told as {unreachable:#b}")
    })?;
    let mark = s.mark();
    let until = s.now() + s.pick(S, 4 * S);
    while !data(s, mark).iter().any(on_second) && s.now() < until {
        traffic(s, &mut link, &region, &mut next, s.pick(MS, 5 * MS), &mut |_| Treat::Accept)?;
    }
    let back: Vec<&Packet> = s.since(mark).iter().filter(|packet| on_second(packet)).collect();
    s.check("MR-PATH-23", back.iter().any(|packet| packet.data().is_some()), || {
        "a plane that answers again carries no data".to_owned()
    })?;
    let path = back.iter().find(|packet| packet.data().is_some()).map(|packet| packet.base.path.0);
    let answers = back
        .iter()
        .take_while(|packet| packet.data().is_none())
        .filter(|packet| packet.is(PacketType::Probe) && Some(packet.base.path.0) == path)
        .count();
    s.check("MR-PATH-23", answers >= 3, || format!("data came back after {answers} PROBEs of its path"))
}
