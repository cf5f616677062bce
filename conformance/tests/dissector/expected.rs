//! What the dissector should say of a packet, from the core's parse of it.

use std::collections::BTreeMap;
use std::fmt::{Display, LowerHex};
use std::net::IpAddr;

use metaroce_core::ids::Serial;
use metaroce_core::wire::{
    ACK_FLAG_EMPTY, AckBody, Base, Close, Connect, Control, DataHeader, Frame, FrameIter, OpFlags, Opcode,
    PacketType, Probe, ProbeReply, ResetProof, Vector256, WireError,
};

/// Every field that is compared, in the order in which tshark is to print them, without `metaroce.`.
pub const FIELDS: &[&str] = &[
    "version",
    "type",
    "flags",
    "path",
    "epoch",
    "connection",
    "psn",
    "timestamp",
    "checksum",
    "opcode",
    "opflags",
    "opflags.last",
    "opflags.immediate",
    "opflags.invalidate",
    "opflags.tagged",
    "opflags.signal",
    "opflags.solicited",
    "opflags.ack_now",
    "stream",
    "csn",
    "msn",
    "offset",
    "length",
    "receive_index",
    "demand",
    "datagram.source_queue",
    "datagram.destination_queue",
    "datagram.key",
    "remote.key",
    "remote.address",
    "operand0",
    "operand1",
    "match_bits",
    "immediate",
    "invalidate",
    "result.status",
    "stream_reset.reason",
    "signal.key",
    "signal.address",
    "signal.addend",
    "payload_length",
    "payload",
    "ack.path",
    "ack.epoch",
    "ack.flags.empty",
    "ack.largest",
    "ack.accepted_count",
    "ack.accepted",
    "ack.missing_count",
    "ack.missing",
    "ack.echo",
    "ack.hold",
    "ack.packets",
    "ack.marked",
    "ack.cumulative",
    "ack.share",
    "refused.psns",
    "nack.stream",
    "nack.reason",
    "nack.delay",
    "credit.stream",
    "credit.flags.none_needed",
    "credit.posted",
    "plane.silent",
    "plane.unreachable",
    "start.allowance",
    "probe.stream",
    "probe.token",
    "padding",
    "control.kind",
    "connect.flags.wants_checksum",
    "connect.flags.implicit",
    "private_length",
    "connect.connection",
    "connect.nonce",
    "connect.incarnation",
    "connect.features",
    "connect.mtu",
    "connect.service",
    "connect.streams",
    "connect.paths",
    "connect.plane_count",
    "connect.reads",
    "connect.held",
    "connect.message_window",
    "connect.csn_window",
    "connect.initial_credits",
    "connect.start_allowance",
    "echoed_nonce",
    "cookie",
    "connect.plane.port",
    "connect.plane.ipv4",
    "connect.plane.ipv6",
    "private_data",
    "reject.reason",
    "close.flags.with_quote",
    "close.reason",
    "close.next_csn",
    "close.sender",
    "nonce_xor",
    "quote",
    "reset.flags.with_ids",
    "reset.yours",
    "reset.mine",
];

/// Values by field; a field that appears several times has several.
#[derive(Default)]
pub struct Values(pub BTreeMap<&'static str, Vec<String>>);

impl Values {
    fn text(&mut self, field: &'static str, value: String) {
        assert!(FIELDS.contains(&field), "{field} is not compared");
        self.0.entry(field).or_default().push(value);
    }

    fn number(&mut self, field: &'static str, value: impl Display) {
        self.text(field, value.to_string());
    }

    fn hex<T: LowerHex>(&mut self, field: &'static str, value: T) {
        self.text(field, format!("{value:#0width$x}", width = 2 + 2 * size_of::<T>()));
    }

    fn flag(&mut self, field: &'static str, value: bool) {
        self.number(field, u8::from(value));
    }

    fn bytes(&mut self, field: &'static str, bytes: &[u8]) {
        if !bytes.is_empty() {
            let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            self.text(field, digits.concat());
        }
    }

    fn data(&mut self, header: &DataHeader, payload: &[u8]) {
        let flags = header.flags;
        self.hex("opcode", header.opcode.code());
        self.hex("opflags", flags.bits());
        self.flag("opflags.last", flags.contains(OpFlags::LAST));
        self.flag("opflags.immediate", flags.contains(OpFlags::IMMEDIATE));
        self.flag("opflags.invalidate", flags.contains(OpFlags::INVALIDATE));
        self.flag("opflags.tagged", flags.contains(OpFlags::TAGGED));
        self.flag("opflags.signal", flags.contains(OpFlags::SIGNAL));
        self.flag("opflags.solicited", flags.contains(OpFlags::SOLICITED));
        self.flag("opflags.ack_now", flags.contains(OpFlags::ACK_NOW));
        self.number("stream", header.stream.0);
        self.number("csn", header.csn.raw());
        if header.opcode == Opcode::Datagram {
            self.number("datagram.source_queue", header.msn.raw());
            self.number("datagram.destination_queue", header.offset);
            self.hex("datagram.key", header.receive_index.raw());
        } else {
            self.number("msn", header.msn.raw());
            self.number("offset", header.offset);
            self.number("receive_index", header.receive_index.raw());
        }
        self.number("length", header.length);
        self.number("demand", header.demand_kib);
        if let Some(remote) = header.remote {
            self.hex("remote.key", remote.key.0);
            self.hex("remote.address", remote.address);
        }
        if let Some([first, second]) = header.operands {
            self.number("operand0", first);
            self.number("operand1", second);
        }
        if let Some(bits) = header.match_bits {
            self.hex("match_bits", bits);
        }
        if let Some(immediate) = header.immediate {
            match header.opcode {
                Opcode::Result => self.number("result.status", immediate),
                Opcode::StreamReset => self.number("stream_reset.reason", immediate),
                _ if flags.contains(OpFlags::INVALIDATE) => self.hex("invalidate", immediate),
                _ => self.hex("immediate", immediate),
            }
        }
        if let Some(signal) = header.signal {
            self.hex("signal.key", signal.key.0);
            self.hex("signal.address", signal.address);
            self.number("signal.addend", signal.addend);
        }
        self.number("payload_length", payload.len());
        self.bytes("payload", payload);
    }

    /// One block; `refused` is what the frame after it says.
    fn ack(&mut self, ack: &AckBody, refused: Vector256) {
        self.number("ack.path", ack.path.0);
        self.number("ack.epoch", ack.epoch);
        self.flag("ack.flags.empty", ack.flags & ACK_FLAG_EMPTY != 0);
        self.number("ack.largest", ack.largest.raw());
        self.number("ack.accepted_count", ack.accepted.count());
        self.text("ack.accepted", ranges(ack.largest.raw(), ack.accepted));
        let known = ack.accepted.union(refused);
        let oldest = known.iter().last();
        let mut missing = Vector256::EMPTY;
        (0..oldest.unwrap_or(0)).filter(|i| !known.contains(*i)).for_each(|i| missing.insert(i));
        self.number("ack.missing_count", missing.count());
        self.text("ack.missing", ranges(ack.largest.raw(), missing));
        self.number("ack.echo", ack.echoed_timestamp);
        self.number("ack.hold", ack.hold);
        self.number("ack.packets", ack.packets);
        self.number("ack.marked", ack.marked);
        self.number("ack.cumulative", ack.cumulative.raw());
        self.number("ack.share", ack.share_kbps);
    }

    fn ack_and_frames(&mut self, first: &AckBody, bytes: &[u8]) -> Result<(), WireError> {
        let frames: Vec<Frame> = FrameIter::new(bytes).collect::<Result<_, _>>()?;
        let refused_after = |index: usize| match frames.get(index) {
            Some(Frame::Refused(vector)) => *vector,
            _ => Vector256::EMPTY,
        };
        self.ack(first, refused_after(0));
        let mut largest = first.largest;
        for (index, frame) in frames.iter().enumerate() {
            match frame {
                Frame::Refused(vector) => self.text("refused.psns", ranges(largest.raw(), *vector)),
                Frame::Nack { stream, reason, delay_us } => {
                    self.number("nack.stream", stream.0);
                    self.number("nack.reason", reason.code());
                    self.number("nack.delay", delay_us);
                }
                Frame::Credit { stream, none_needed, posted } => {
                    self.number("credit.stream", stream.0);
                    self.flag("credit.flags.none_needed", *none_needed);
                    self.number("credit.posted", posted.raw());
                }
                Frame::Plane { silent, unreachable } => {
                    self.hex("plane.silent", *silent);
                    self.hex("plane.unreachable", *unreachable);
                }
                Frame::Start { allowance_kib } => self.number("start.allowance", allowance_kib),
                Frame::Ack(ack) => {
                    self.ack(ack, refused_after(index + 1));
                    largest = ack.largest;
                }
            }
        }
        Ok(())
    }

    fn connect(&mut self, connect: &Connect<'_>) {
        self.flag("connect.flags.wants_checksum", connect.wants_checksum);
        self.flag("connect.flags.implicit", connect.implicit);
        self.hex("connect.connection", connect.connection.0);
        self.hex("connect.nonce", connect.nonce);
        self.hex("connect.incarnation", connect.incarnation);
        self.hex("connect.features", connect.features);
        self.number("connect.mtu", connect.mtu_bytes);
        self.hex("connect.service", connect.service);
        self.number("connect.streams", connect.streams);
        self.number("connect.paths", connect.paths);
        self.number("connect.plane_count", connect.planes.len());
        self.number("connect.reads", connect.reads);
        self.number("connect.held", connect.held);
        self.number("connect.message_window", connect.message_window);
        self.number("connect.csn_window", connect.csn_window);
        self.number("connect.initial_credits", connect.initial_credits);
        self.number("connect.start_allowance", connect.start_allowance_kib);
        self.hex("echoed_nonce", connect.echoed_nonce);
        self.bytes("cookie", &connect.cookie);
        for plane in connect.planes.as_slice() {
            self.number("connect.plane.port", plane.port());
            match plane.ip() {
                IpAddr::V4(address) => self.number("connect.plane.ipv4", address),
                IpAddr::V6(address) => self.number("connect.plane.ipv6", address),
            }
        }
        self.private_data(connect.private_data);
    }

    fn private_data(&mut self, bytes: &[u8]) {
        self.number("private_length", bytes.len());
        self.bytes("private_data", bytes);
    }

    fn close(&mut self, close: &Close) {
        self.flag("close.flags.with_quote", close.quote.is_some());
        self.number("close.reason", close.reason);
        self.number("close.next_csn", close.next_csn.raw());
        self.hex("close.sender", close.sender.0);
        self.hex("nonce_xor", close.nonce_xor);
        self.bytes("quote", close.quote.as_ref().map_or(&[], |quote| &quote[..]));
    }

    fn control(&mut self, kind: u8, control: &Control<'_>) {
        self.number("control.kind", kind);
        match control {
            Control::Connect(connect) | Control::Accept(connect) => self.connect(connect),
            Control::Confirm(confirm) => self.hex("echoed_nonce", confirm.echoed_nonce),
            Control::Reject(reject) => {
                self.number("reject.reason", reject.reason.code());
                self.hex("echoed_nonce", reject.echoed_nonce);
                self.private_data(reject.private_data);
            }
            Control::Retry(retry) => {
                self.hex("echoed_nonce", retry.echoed_nonce);
                self.bytes("cookie", &retry.cookie);
            }
            Control::Close(close) | Control::CloseAck(close) => self.close(close),
            Control::Reset(reset) => {
                self.flag("reset.flags.with_ids", matches!(reset.proof, ResetProof::Ids { .. }));
                match reset.proof {
                    ResetProof::Quote(quote) => self.bytes("quote", &quote),
                    ResetProof::Ids { yours, mine, nonce_xor } => {
                        self.hex("reset.yours", yours.0);
                        self.hex("reset.mine", mine.0);
                        self.hex("nonce_xor", nonce_xor);
                    }
                }
            }
        }
    }
}

/// Parses a whole datagram.
pub fn expected(bytes: &[u8]) -> Result<Values, WireError> {
    let (base, body) = Base::parse(bytes)?;
    let mut values = Values::default();
    values.number("version", bytes[0] >> 4);
    values.number("type", base.kind as u8);
    values.hex("flags", base.flags);
    values.number("path", base.path.0);
    values.number("epoch", base.epoch);
    values.hex("connection", base.connection.0);
    values.number("psn", base.psn.raw());
    values.number("timestamp", base.timestamp);
    values.hex("checksum", base.checksum);
    match base.kind {
        PacketType::Data => {
            let (header, payload) = DataHeader::parse(body)?;
            values.data(&header, payload);
        }
        PacketType::Ack => {
            let (ack, rest) = AckBody::parse(body)?;
            values.ack_and_frames(&ack, rest)?;
        }
        PacketType::Control => {
            let (control, padding) = Control::parse(body)?;
            values.control(body[0], &control);
            values.bytes("padding", padding);
        }
        PacketType::Probe => {
            let (probe, padding) = Probe::parse(body)?;
            values.number("probe.stream", probe.stream.0);
            values.number("demand", probe.demand_kib);
            values.hex("probe.token", probe.token);
            values.bytes("padding", padding);
        }
        PacketType::ProbeReply => {
            let (reply, rest) = ProbeReply::parse(body)?;
            values.hex("probe.token", reply.token);
            values.ack_and_frames(&reply.ack, rest)?;
        }
    }
    Ok(values)
}

/// The PSNs of a vector, oldest first, neighbours joined.
fn ranges(largest: u32, vector: Vector256) -> String {
    let mut ranges: Vec<[u32; 2]> = Vec::new();
    let mut bits: Vec<u32> = vector.iter().collect();
    bits.reverse();
    for bit in bits {
        let psn = largest.wrapping_sub(bit);
        match ranges.last_mut() {
            Some([_, end]) if end.wrapping_add(1) == psn => *end = psn,
            _ => ranges.push([psn, psn]),
        }
    }
    let text = |[from, to]: &[u32; 2]| if from == to { from.to_string() } else { format!("{from}-{to}") };
    ranges.iter().map(text).collect::<Vec<_>>().join(", ")
}
