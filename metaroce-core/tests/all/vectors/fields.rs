//! Valid vectors: parsing gives their fields, and emitting what was parsed gives their bytes.

use metaroce_core::ids::Serial;
use metaroce_core::wire::{
    AckBody, BASE_BYTES, Base, Close, Connect, Control, DataHeader, Frame, FrameIter, OpFlags, Opcode,
    PacketType, Probe, ProbeReply, ResetProof, Vector256,
};
use serde_json::{Map, Value, json};

use super::{Vector, vectors};

#[test]
//= MR-WIRE-1 test
//= MR-WIRE-14 test
//= MR-WIRE-23 test
//= MR-WIRE-27 test
//= MR-WIRE-28 test
fn valid_vectors_parse_to_their_fields_and_are_emitted_to_their_bytes() {
    let mut valid = 0;
    for vector in vectors() {
        let Some(packet) = &vector.packet else { continue };
        let (fields, emitted) = parse(&vector);
        assert_eq!(&fields, packet, "{}", vector.name);
        if vector.canonical {
            assert_eq!(emitted, vector.bytes, "{}", vector.name);
        }
        valid += 1;
    }
    assert!(valid > 70, "{valid} valid vectors");
}

#[test]
fn every_packet_type_opcode_frame_and_control_kind_has_a_valid_vector() {
    let packets: Vec<_> = vectors().into_iter().filter_map(|vector| vector.packet).collect();
    let has = |name: &str, value: &str| packets.iter().any(|packet| packet[name] == value);
    let has_frame = |name: &str| {
        packets
            .iter()
            .filter_map(|packet| packet["frames"].as_array())
            .flatten()
            .any(|frame| frame["frame"] == name)
    };
    for kind in ["DATA", "ACK", "CONTROL", "PROBE", "PROBE_REPLY"] {
        assert!(has("type", kind), "{kind}");
    }
    for opcode in Opcode::ALL {
        assert!(has("opcode", opcode_name(opcode)), "{opcode:?}");
    }
    for kind in ["CONNECT", "ACCEPT", "CONFIRM", "REJECT", "RETRY", "CLOSE", "CLOSE_ACK", "RESET"] {
        assert!(has("kind", kind), "{kind}");
    }
    for frame in ["REFUSED", "NACK", "CREDIT", "PLANE", "START", "ACK"] {
        assert!(has_frame(frame), "{frame}");
    }
}

/// The fields of a packet, and the bytes that this crate emits for them (padding as zeros).
fn parse(vector: &Vector) -> (Value, Vec<u8>) {
    let length = vector.bytes.len();
    let (base, body) =
        Base::parse(&vector.bytes).unwrap_or_else(|error| panic!("{}: {error:?}", vector.name));
    let mut fields = Map::new();
    let mut out = vec![0; length];
    assert_eq!(base.emit(&mut out).unwrap(), BASE_BYTES);
    let rest = &mut out[BASE_BYTES..];
    set(
        &mut fields,
        json!({
            "type": type_name(base.kind), "flags": base.flags, "path": base.path.0, "epoch": base.epoch,
            "connection": base.connection.0, "psn": base.psn.raw(), "timestamp": base.timestamp, "checksum": base.checksum,
        }),
    );
    match base.kind {
        PacketType::Data => {
            let (header, payload) = DataHeader::parse(body).unwrap();
            let used = header.emit(rest).unwrap();
            rest[used..].copy_from_slice(payload);
            set(&mut fields, data(&header));
            fields.insert("payload".into(), hex(payload));
        }
        PacketType::Ack => {
            let (ack, frames) = AckBody::parse(body).unwrap();
            let used = ack.emit(rest).unwrap();
            fields.insert("ack".into(), block(&ack));
            fields.insert("frames".into(), all_frames(frames, &mut rest[used..]));
        }
        PacketType::Control => {
            let (control, _padding) = Control::parse(body).unwrap();
            control.emit(rest).unwrap();
            set(&mut fields, control_fields(&control));
        }
        PacketType::Probe => {
            let (probe, _padding) = Probe::parse(body).unwrap();
            probe.emit(rest).unwrap();
            set(
                &mut fields,
                json!({
                    "stream": probe.stream.0, "demand_kib": probe.demand_kib, "token": wide(probe.token),
                }),
            );
        }
        PacketType::ProbeReply => {
            let (reply, frames) = ProbeReply::parse(body).unwrap();
            let used = reply.emit(rest).unwrap();
            set(&mut fields, json!({ "token": wide(reply.token), "ack": block(&reply.ack) }));
            fields.insert("frames".into(), all_frames(frames, &mut rest[used..]));
        }
    }
    (Value::Object(fields), out)
}

fn set(fields: &mut Map<String, Value>, more: Value) {
    let Value::Object(more) = more else { panic!("an object") };
    fields.extend(more);
}

fn wide(number: u64) -> Value {
    json!(format!("{number:#018x}"))
}

fn hex(bytes: &[u8]) -> Value {
    json!(bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}")))
}

fn bits(vector: Vector256) -> Value {
    json!(vector.iter().collect::<Vec<_>>())
}

fn type_name(kind: PacketType) -> &'static str {
    match kind {
        PacketType::Data => "DATA",
        PacketType::Ack => "ACK",
        PacketType::Control => "CONTROL",
        PacketType::Probe => "PROBE",
        PacketType::ProbeReply => "PROBE_REPLY",
    }
}

fn opcode_name(opcode: Opcode) -> &'static str {
    match opcode {
        Opcode::Send => "SEND",
        Opcode::Write => "WRITE",
        Opcode::ReadRequest => "READ_REQUEST",
        Opcode::ReadResponse => "READ_RESPONSE",
        Opcode::AtomicResponse => "ATOMIC_RESPONSE",
        Opcode::Result => "RESULT",
        Opcode::Void => "VOID",
        Opcode::StreamReset => "STREAM_RESET",
        Opcode::Datagram => "DATAGRAM",
        Opcode::FetchAdd => "FETCH_ADD",
        Opcode::CompareSwap => "COMPARE_SWAP",
        Opcode::Swap => "SWAP",
        Opcode::Min => "MIN",
        Opcode::Max => "MAX",
        Opcode::And => "AND",
        Opcode::Or => "OR",
        Opcode::Xor => "XOR",
    }
}

fn data(header: &DataHeader) -> Value {
    let flags = [
        (OpFlags::LAST, "LAST"),
        (OpFlags::IMMEDIATE, "IMMEDIATE"),
        (OpFlags::INVALIDATE, "INVALIDATE"),
        (OpFlags::TAGGED, "TAGGED"),
        (OpFlags::SIGNAL, "SIGNAL"),
        (OpFlags::SOLICITED, "SOLICITED"),
        (OpFlags::ACK_NOW, "ACK_NOW"),
    ];
    let flags: Vec<_> =
        flags.iter().filter(|(flag, _)| header.flags.contains(*flag)).map(|(_, name)| name).collect();
    let mut fields = json!({
        "opcode": opcode_name(header.opcode), "op_flags": flags, "stream": header.stream.0, "csn": header.csn.raw(),
        "msn": header.msn.raw(), "offset": header.offset, "length": header.length,
        "receive_index": header.receive_index.raw(), "demand_kib": header.demand_kib,
    });
    if let Some(remote) = header.remote {
        fields["remote"] = json!({ "key": remote.key.0, "address": wide(remote.address) });
    }
    if let Some([first, second]) = header.operands {
        fields["operand_0"] = wide(first);
        fields["operand_1"] = wide(second);
    }
    if let Some(match_bits) = header.match_bits {
        fields["match_bits"] = wide(match_bits);
    }
    if let Some(immediate) = header.immediate {
        fields["immediate"] = json!(immediate);
    }
    if let Some(signal) = header.signal {
        fields["signal"] =
            json!({ "key": signal.key.0, "address": wide(signal.address), "addend": wide(signal.addend) });
    }
    fields
}

fn block(ack: &AckBody) -> Value {
    json!({
        "path": ack.path.0, "epoch": ack.epoch, "flags": ack.flags, "largest": ack.largest.raw(),
        "accepted": bits(ack.accepted), "echoed_timestamp": ack.echoed_timestamp, "hold": ack.hold,
        "packets": ack.packets, "marked": ack.marked, "cumulative_csn": ack.cumulative.raw(),
        "share_kbps": ack.share_kbps,
    })
}

/// The frames of `bytes`, each emitted behind the one before it.
fn all_frames(bytes: &[u8], mut out: &mut [u8]) -> Value {
    let mut fields = Vec::new();
    for frame in FrameIter::new(bytes) {
        let frame = frame.unwrap();
        let used = frame.emit(out).unwrap();
        out = &mut out[used..];
        fields.push(match frame {
            Frame::Refused(refused) => json!({ "frame": "REFUSED", "refused": bits(refused) }),
            Frame::Nack { stream, reason, delay_us } => {
                json!({ "frame": "NACK", "stream": stream.0, "reason": reason.code(), "delay_us": delay_us })
            }
            Frame::Credit { stream, none_needed, posted } => json!({
                "frame": "CREDIT", "stream": stream.0, "none_needed": none_needed, "posted": posted.raw(),
            }),
            Frame::Plane { silent, unreachable } => {
                json!({ "frame": "PLANE", "silent": silent, "unreachable": unreachable })
            }
            Frame::Start { allowance_kib } => json!({ "frame": "START", "allowance_kib": allowance_kib }),
            Frame::Ack(ack) => json!({ "frame": "ACK", "ack": block(&ack) }),
        });
    }
    Value::Array(fields)
}

fn control_fields(control: &Control<'_>) -> Value {
    match control {
        Control::Connect(connect) => opening("CONNECT", connect),
        Control::Accept(accept) => opening("ACCEPT", accept),
        Control::Confirm(confirm) => json!({ "kind": "CONFIRM", "echoed_nonce": wide(confirm.echoed_nonce) }),
        Control::Reject(reject) => json!({
            "kind": "REJECT", "reason": reject.reason.code(), "echoed_nonce": wide(reject.echoed_nonce),
            "private_data": hex(reject.private_data),
        }),
        Control::Retry(retry) => json!({
            "kind": "RETRY", "echoed_nonce": wide(retry.echoed_nonce), "cookie": hex(&retry.cookie),
        }),
        Control::Close(close) => closing("CLOSE", close),
        Control::CloseAck(close) => closing("CLOSE_ACK", close),
        Control::Reset(reset) => match reset.proof {
            ResetProof::Quote(quote) => json!({ "kind": "RESET", "quote": hex(&quote) }),
            ResetProof::Ids { yours, mine, nonce_xor } => json!({
                "kind": "RESET", "receiver": yours.0, "sender": mine.0, "nonce_xor": wide(nonce_xor),
            }),
        },
    }
}

fn opening(kind: &str, connect: &Connect<'_>) -> Value {
    let planes: Vec<_> = connect
        .planes
        .as_slice()
        .iter()
        .map(|plane| {
            let (family, address) = match plane.ip() {
                std::net::IpAddr::V4(address) => (4, address.octets().to_vec()),
                std::net::IpAddr::V6(address) => (6, address.octets().to_vec()),
            };
            json!({ "family": family, "port": plane.port(), "address": hex(&address) })
        })
        .collect();
    json!({
        "kind": kind, "wants_checksum": connect.wants_checksum, "implicit": connect.implicit,
        "sender": connect.connection.0, "nonce": wide(connect.nonce), "incarnation": wide(connect.incarnation),
        "features": wide(connect.features), "mtu_bytes": connect.mtu_bytes, "service": connect.service,
        "streams": connect.streams, "paths": connect.paths, "reads": connect.reads, "held": connect.held,
        "message_window": connect.message_window, "csn_window": connect.csn_window,
        "initial_credits": connect.initial_credits, "start_allowance_kib": connect.start_allowance_kib,
        "echoed_nonce": wide(connect.echoed_nonce), "cookie": hex(&connect.cookie), "planes": planes,
        "private_data": hex(connect.private_data),
    })
}

fn closing(kind: &str, close: &Close) -> Value {
    let mut fields = json!({
        "kind": kind, "reason": close.reason, "next_csn": close.next_csn.raw(), "sender": close.sender.0,
        "nonce_xor": wide(close.nonce_xor),
    });
    if let Some(quote) = close.quote {
        fields["quote"] = hex(&quote);
    }
    fields
}
