//! Rules that hold for every packet of a device, whatever the case is about.

use std::collections::{BTreeMap, BTreeSet};

use metaroce_core::Ecn;
use metaroce_core::ids::Serial as _;
use metaroce_core::wire::{Base, Control, DataHeader, Opcode, PacketType, WireError};

use super::link::{Link, first_psn, low};
use super::packet::Packet;
use super::stop::{Outcome, Stop};
use super::wire::checksum_of;

/// What the suite knows of one connection.
#[derive(Clone, Debug)]
struct Watched {
    their_nonce: u64,
    paths: u8,
    paths_each: u8,
    csn_window: u32,
    wants_checksum: bool,
    /// Largest PSN of the device by path, and all that it used.
    psns: BTreeMap<u8, (u32, BTreeSet<u32>)>,
    /// Tokens of its PROBEs, and their paths.
    tokens: BTreeMap<u64, u8>,
    /// What each CSN of the device carried.
    csns: BTreeMap<u32, Carried>,
    /// The device's CSNs whose verdict it may know.
    told: BTreeSet<u32>,
    told_below: u32,
    /// Source port by path and epoch.
    ports: BTreeMap<u8, (u8, u16)>,
    /// What the suite sent, by path and PSN.
    sent: BTreeMap<(u8, u32), Sent>,
    first_sent: BTreeMap<u8, u32>,
    /// Verdicts that the device told, by the suite's CSN.
    verdicts: BTreeMap<u32, bool>,
    counters: BTreeMap<u8, u32>,
    cumulative: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Carried {
    opcode: Opcode,
    stream: u16,
    msn: u32,
    offset: u32,
    bytes: usize,
}

/// A transmission of the suite.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// Its CSN; none for a PROBE or DATAGRAM.
    pub csn: Option<u32>,
    /// Its timestamp.
    pub timestamp: u32,
    /// How often it was sent (a network may duplicate).
    pub copies: u32,
}

/// The rules, and what they need to remember.
#[derive(Clone, Debug, Default)]
pub struct Monitor {
    links: BTreeMap<u32, Watched>,
    receive_port: u16,
    /// Nonces of the device's CONNECTs.
    connects: BTreeSet<u64>,
    /// A fault of the suite's own packets: then acknowledgements are not judged.
    pub lenient_acks: bool,
}

impl Monitor {
    /// For a device that receives on this port.
    #[must_use]
    pub fn new(receive_port: u16) -> Self {
        Self { receive_port, ..Self::default() }
    }

    /// Watches a connection from now on.
    pub fn watch(&mut self, link: &Link) {
        self.links.insert(
            link.mine(),
            Watched {
                their_nonce: link.terms.nonce,
                paths: link.paths(),
                paths_each: link.paths_each(),
                csn_window: link.asked.csn_window.clamp(1, 1 << 21),
                wants_checksum: link.asked.flags & 1 != 0,
                psns: BTreeMap::new(),
                tokens: BTreeMap::new(),
                csns: BTreeMap::new(),
                told: BTreeSet::new(),
                told_below: low(link.terms.nonce),
                ports: BTreeMap::new(),
                sent: BTreeMap::new(),
                first_sent: BTreeMap::new(),
                verdicts: BTreeMap::new(),
                counters: BTreeMap::new(),
                cumulative: link.first_csn(),
            },
        );
    }

    /// The suite sends this on a connection.
    pub fn on_sent(&mut self, link: &Link, path: u8, psn: u32, sent: Sent) {
        let Some(watched) = self.links.get_mut(&link.mine()) else { return };
        watched.first_sent.entry(path).or_insert(psn);
        watched.sent.entry((path, psn)).and_modify(|sent| sent.copies += 1).or_insert(sent);
    }

    /// The suite tells the device this verdict.
    pub fn on_told(&mut self, link: &Link) {
        let Some(watched) = self.links.get_mut(&link.mine()) else { return };
        watched.told.extend(link.verdicts.keys());
        while watched.told.contains(&watched.told_below) {
            watched.told_below = watched.told_below.wrapping_add(1);
        }
    }

    /// Judges a datagram of the device, before it is taken apart.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub fn check_bytes(bytes: &[u8]) -> Outcome<Base> {
        let (base, body) = Base::parse(bytes).map_err(|error| match error {
            WireError::Truncated => Stop::failed("MR-WIRE-1", "a datagram is shorter than the base header"),
            WireError::Version => Stop::failed("MR-WIRE-1", "a datagram has a version other than 0"),
            _ => Stop::failed("MR-WIRE-1", "a datagram has an undefined type or a path above 63"),
        })?;
        //= MR-WIRE-5 test
        rule("MR-WIRE-5", base.flags == 0, || format!("reserved flags {:#x} are set", base.flags))?;
        let takes_psn = matches!(base.kind, PacketType::Data | PacketType::Probe);
        //= MR-WIRE-6 test
        rule("MR-WIRE-6", takes_psn || base.psn.raw() == 0, || {
            format!("{:?} carries PSN {}", base.kind, base.psn.raw())
        })?;
        if base.kind == PacketType::Control {
            //= MR-WIRE-9, MR-WIRE-8 test
            rule("MR-WIRE-9", base.checksum == checksum_of(bytes), || {
                format!("CONTROL has checksum {:08x}, right is {:08x}", base.checksum, checksum_of(bytes))
            })?;
            //= MR-WIRE-30 test
            rule("MR-WIRE-30", base.path.0 == 0 && base.epoch == 0, || {
                "CONTROL has a path or an epoch".to_owned()
            })?;
            rule("MR-WIRE-28", Control::parse(body).is_ok(), || "CONTROL body is malformed".to_owned())?;
        }
        if base.kind == PacketType::Data {
            let parsed = DataHeader::parse(body);
            //= MR-WIRE-15, MR-WIRE-16, MR-WIRE-17 test
            let (header, payload) = parsed.map_err(|error| {
                Stop::failed("MR-WIRE-15", format!("DATA is no combination of the table: {error:?}"))
            })?;
            //= MR-WIRE-5 test
            rule("MR-WIRE-5", body.get(1).is_some_and(|flags| flags & 0x80 == 0), || {
                "the reserved op flag is set".to_owned()
            })?;
            //= MR-WIRE-14 test
            rule("MR-WIRE-14", bytes.len() - payload.len() <= 80, || {
                format!("headers of {} bytes: {header:?}", bytes.len() - payload.len())
            })?;
        }
        if base.kind == PacketType::Probe {
            //= MR-WIRE-33 test
            rule("MR-WIRE-33", bytes.len() >= 64, || format!("a PROBE of {} bytes", bytes.len()))?;
        }
        if matches!(base.kind, PacketType::Ack | PacketType::ProbeReply) {
            //= MR-ACK-21 test
            rule("MR-ACK-21", bytes.len() <= 1232, || format!("an ACK of {} bytes", bytes.len()))?;
        }
        Ok(base)
    }

    /// Judges a packet of the device.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub fn check(&mut self, packet: &Packet, exact: bool) -> Outcome {
        //= MR-WIRE-13 test
        rule("MR-WIRE-13", packet.ecn == Ecn::Ect0, || format!("a packet is sent as {:?}", packet.ecn))?;
        if let Some(control) = packet.control() {
            let bound = match control {
                Control::Connect(connect) => self.connects.insert(connect.nonce),
                Control::Retry(_) | Control::Reject(_) | Control::Reset(_) => true,
                _ => false,
            };
            //= MR-WIRE-31 test
            return rule("MR-WIRE-31", !bound || packet.source_port == self.receive_port, || {
                format!("CONTROL comes from port {}, not {}", packet.source_port, self.receive_port)
            });
        }
        let Some(watched) = self.links.get_mut(&packet.base.connection.0) else { return Ok(()) };
        let path = packet.base.path.0;
        //= MR-WIRE-10 test
        let checksum = if watched.wants_checksum { checksum_of(&packet.bytes) } else { 0 };
        rule("MR-WIRE-10", packet.base.checksum == checksum, || {
            format!("the checksum is {:08x}, right is {checksum:08x}", packet.base.checksum)
        })?;
        //= MR-PATH-1 test
        rule("MR-PATH-1", path < watched.paths, || {
            format!("path {path} of {} paths is used", watched.paths)
        })?;
        if matches!(packet.base.kind, PacketType::Data | PacketType::Probe) {
            watched.check_psn(packet, exact)?;
            watched.check_port(packet)?;
        }
        if let Some(probe) = packet.probe() {
            //= MR-LOSS-11 test
            let other = watched.tokens.insert(probe.token, path);
            // The question whether the peer is at its address on a further plane may be the same each time.
            let asked_again = other == Some(path) && path >= watched.paths_each;
            rule("MR-LOSS-11", other.is_none() || asked_again, || {
                format!("a PROBE with token {:016x} is sent twice", probe.token)
            })?;
        }
        if let Some((header, payload)) = packet.data() {
            watched.check_csn(&header, payload.len())?;
        }
        if matches!(packet.base.kind, PacketType::Ack | PacketType::ProbeReply) && !self.lenient_acks {
            watched.check_ack(packet)?;
        }
        Ok(())
    }

    /// CSNs of the device that were never sent, although later ones were.
    ///
    /// # Errors
    /// MR-DLV-9.
    pub fn check_end(&self) -> Outcome {
        for watched in self.links.values() {
            let first = low(watched.their_nonce);
            let last = watched.csns.keys().map(|csn| csn.wrapping_sub(first)).max();
            let missing = last.filter(|last| *last as usize + 1 != watched.csns.len());
            //= MR-DLV-9 test
            rule("MR-DLV-9", missing.is_none(), || {
                format!("{} CSNs were used, up to the {last:?}th", watched.csns.len())
            })?;
        }
        Ok(())
    }
}

impl Watched {
    fn check_psn(&mut self, packet: &Packet, exact: bool) -> Outcome {
        let (path, psn) = (packet.base.path.0, packet.psn());
        let first = first_psn(self.their_nonce, path);
        let fresh = self.psns.is_empty();
        let (largest, used) =
            self.psns.entry(path).or_insert_with(|| (first.wrapping_sub(1), BTreeSet::new()));
        //= MR-LOSS-10 test
        rule("MR-LOSS-10", used.insert(psn), || format!("PSN {psn} of path {path} is sent twice"))?;
        let step = psn.wrapping_sub(*largest);
        if exact {
            //= MR-HS-7 test
            let id = if used.len() == 1 && !fresh || used.len() == 1 { "MR-HS-7" } else { "MR-WIRE-6" };
            rule(id, step == 1, || format!("PSN {psn} of path {path} follows {largest}"))?;
        } else {
            rule("MR-WIRE-6", step < 1 << 16, || format!("PSN {psn} of path {path} follows {largest}"))?;
        }
        *largest = psn;
        Ok(())
    }

    fn check_port(&mut self, packet: &Packet) -> Outcome {
        let (path, epoch, port) = (packet.base.path.0, packet.base.epoch, packet.source_port);
        let other = self.ports.iter().find(|(other, (_, used))| **other != path && *used == port);
        //= MR-PATH-2 test
        rule("MR-PATH-2", other.is_none(), || {
            format!("paths {path} and {} share source port {port}", other.map_or(0, |(path, _)| *path))
        })?;
        if let Some((old_epoch, old_port)) = self.ports.insert(path, (epoch, port)) {
            //= MR-PATH-4 test
            rule("MR-PATH-4", (old_epoch == epoch) == (old_port == port), || {
                format!("path {path} went from epoch {old_epoch}, port {old_port} to {epoch}, {port}")
            })?;
        }
        Ok(())
    }

    fn check_csn(&mut self, header: &DataHeader, bytes: usize) -> Outcome {
        if header.opcode == Opcode::Datagram {
            return Ok(());
        }
        let csn = header.csn.raw();
        let first = low(self.their_nonce);
        //= MR-HS-5 test
        rule("MR-HS-5", csn.wrapping_sub(first) < 1 << 24, || {
            format!("CSN {csn} is used, the first is {first}")
        })?;
        //= MR-DLV-8 test
        rule(
            "MR-DLV-8",
            csn.wrapping_sub(first) < self.told_below.wrapping_sub(first) + self.csn_window,
            || format!("CSN {csn} is beyond {} + {}", self.told_below, self.csn_window),
        )?;
        let carried = Carried {
            opcode: header.opcode,
            stream: header.stream.0,
            msn: header.msn.raw(),
            offset: header.offset,
            bytes,
        };
        let Some(before) = self.csns.get(&csn) else {
            self.csns.insert(csn, carried);
            return Ok(());
        };
        let same = if header.opcode == Opcode::Void {
            (before.stream, before.msn, before.offset) == (carried.stream, carried.msn, carried.offset)
        } else {
            *before == carried || before.opcode == Opcode::Void
        };
        //= MR-LOSS-8, MR-WIRE-22 test
        let id = if header.opcode == Opcode::Void { "MR-WIRE-22" } else { "MR-LOSS-8" };
        rule(id, same, || format!("CSN {csn} carried {before:?}, and now {carried:?}"))
    }

    fn check_ack(&mut self, packet: &Packet) -> Outcome {
        let blocks = packet.blocks();
        //= MR-ACK-20 test
        rule("MR-ACK-20", blocks.len() <= 4, || format!("{} blocks in one ACK", blocks.len()))?;
        for block in blocks {
            let (path, body) = (block.body.path.0, block.body);
            let Some(first) = self.first_sent.get(&path).copied() else {
                //= MR-ACK-9 test
                rule("MR-ACK-9", body.flags & 1 == 1, || {
                    format!("path {path} is acknowledged, on which nothing was sent")
                })?;
                continue;
            };
            if body.flags & 1 == 1 {
                continue;
            }
            let largest = body.largest.raw();
            let sent = self.sent.get(&(path, largest)).copied();
            let sent = sent.ok_or_else(|| {
                Stop::failed("MR-ACK-4", format!("PSN {largest} of path {path} is acknowledged, never sent"))
            })?;
            //= MR-ACK-6 test
            rule("MR-ACK-6", body.echoed_timestamp == sent.timestamp, || {
                format!("timestamp {:08x} is echoed for {:08x}", body.echoed_timestamp, sent.timestamp)
            })?;
            let copies: u32 =
                self.sent.range((path, 0)..=(path, u32::MAX)).map(|(_, sent)| sent.copies).sum();
            //= MR-ACK-5 test
            rule("MR-ACK-5", body.packets <= copies, || {
                format!("{} packets are counted, {copies} were sent", body.packets)
            })?;
            let before = self.counters.insert(path, body.packets).unwrap_or(0);
            rule("MR-ACK-5", body.packets.wrapping_sub(before).cast_signed() >= 0, || {
                format!("the packet counter went from {before} to {}", body.packets)
            })?;
            for bit in 0..256 {
                let (accepted, refused) = (body.accepted.contains(bit), block.refused.contains(bit));
                if !accepted && !refused {
                    continue;
                }
                let psn = largest.wrapping_sub(bit);
                let before_first = psn.wrapping_sub(first).cast_signed() < 0;
                let sent = self.sent.get(&(path, psn));
                //= MR-ACK-1, MR-ACK-4 test
                rule("MR-ACK-4", sent.is_some() && !before_first, || {
                    format!("PSN {psn} of path {path} is acknowledged, but was not sent or had to be dropped")
                })?;
                //= MR-ACK-2 test
                rule("MR-ACK-2", !(accepted && refused), || {
                    format!("PSN {psn} of path {path} is both accepted and refused")
                })?;
                let Some(csn) = sent.and_then(|sent| sent.csn) else { continue };
                let first = *self.verdicts.entry(csn).or_insert(accepted);
                //= MR-DLV-3 test
                rule("MR-DLV-3", first == accepted, || {
                    format!("the verdict of CSN {csn} changed: accepted was {first}, is {accepted}")
                })?;
            }
            let step = body.cumulative.raw().wrapping_sub(self.cumulative).cast_signed();
            self.cumulative = self.cumulative.wrapping_add(step.max(0).cast_unsigned());
        }
        Ok(())
    }
}

fn rule(requirement: &str, kept: bool, text: impl FnOnce() -> String) -> Outcome {
    if kept { Ok(()) } else { Err(Stop::failed(requirement, text())) }
}

/// The requirements that every case judges.
pub const ALWAYS: [&str; 29] = [
    "MR-WIRE-1",
    "MR-WIRE-5",
    "MR-WIRE-6",
    "MR-WIRE-8",
    "MR-WIRE-9",
    "MR-WIRE-10",
    "MR-WIRE-13",
    "MR-WIRE-14",
    "MR-WIRE-15",
    "MR-WIRE-22",
    "MR-WIRE-28",
    "MR-WIRE-30",
    "MR-WIRE-31",
    "MR-WIRE-33",
    "MR-HS-5",
    "MR-HS-7",
    "MR-ACK-2",
    "MR-ACK-4",
    "MR-ACK-5",
    "MR-ACK-6",
    "MR-ACK-9",
    "MR-ACK-20",
    "MR-ACK-21",
    "MR-PATH-1",
    "MR-PATH-2",
    "MR-DLV-3",
    "MR-LOSS-10",
    "MR-LOSS-11",
    "MR-DLV-9",
];
