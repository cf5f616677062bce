//! Faults of planes and shares.

use std::cell::RefCell;
use std::rc::Rc;

use metaroce_core::wire::{Frame, PacketType, Vector256};

use super::Fault;
use super::hooks::{
    Hooks, block_at, control_kind, edit_acks, field, inputs, is, opcode, outputs, put, set_field,
};
use crate::suite::in_process::{Inbound, Outbound, Shim};
use crate::suite::wire::{BaseFields, control, kind, probe, seal};

pub(super) const FAULTS: &[Fault] = &[
    Fault::new("any token", "MR-HS-25", "takes any token as proof of a plane's address", any_token),
    Fault::new("believes lists", "MR-HS-25", "sends data to an address that the peer listed", || {
        outputs(|datagram| {
            if opcode(&datagram.bytes).is_some() {
                (datagram.plane, datagram.destination) = (1, SECOND.into());
            }
            true
        })
    }),
    Fault::new("asks for strangers", "MR-HS-35", "asks listed addresses before its peer is proven", || {
        let output = |datagram: Outbound| {
            let mut sent = vec![datagram.clone()];
            if control_kind(&datagram.bytes) == Some(control::ACCEPT) {
                let base = BaseFields { kind: kind::PROBE, ..BaseFields::default() };
                let bytes = base.datagram(&probe(0xffff, 0, 7, 64));
                sent.push(Outbound { plane: 1, destination: SECOND.into(), bytes, ..datagram });
            }
            sent
        };
        Box::new(Hooks { output: Some(Box::new(output)), ..Hooks::default() })
    }),
    Fault::new("planes for all", "MR-HS-34", "lists its planes whichever of them CONNECT came to", || {
        outputs(|datagram| {
            if datagram.plane == 1 && control_kind(&datagram.bytes) == Some(control::ACCEPT) {
                put(&mut datagram.bytes, 63, &[1]);
                let mut address = [0; 20];
                put(&mut address, 0, &[4, 0, 0x12, 0xbb, 10, 0, 2, 2]);
                datagram.bytes.splice(108..108, address);
            }
            true
        })
    }),
    Fault::new("wrong plane", "MR-PATH-3", "sends the paths of the second plane over the first", || {
        outputs(|datagram| {
            if opcode(&datagram.bytes).is_some() {
                (datagram.plane, datagram.destination) = (0, FIRST.into());
            }
            true
        })
    }),
    Fault::new("one plane", "MR-PATH-39", "leaves the second plane unused", || {
        inputs(|datagram| !is(&datagram.bytes, PacketType::ProbeReply) || path_of_reply(&datagram.bytes) < 4)
    }),
    Fault::new(
        "dead plane in use",
        "MR-PATH-32",
        "takes a plane for alive on which nothing is answered",
        answers_itself,
    ),
    Fault::new("no PLANE frames", "MR-ACK-27", "does not tell of planes", || {
        kept_frames(|frame| !matches!(frame, Frame::Plane { .. }))
    }),
    Fault::new("ACKs on one plane", "MR-ACK-18", "sends every ACK over the first plane", || {
        outputs(|datagram| {
            if is(&datagram.bytes, PacketType::Ack) {
                (datagram.plane, datagram.destination) = (0, FIRST.into());
            }
            true
        })
    }),
    Fault::new("one answer", "MR-ACK-19", "answers ACK_NOW on one plane", || {
        let mut last = Vec::new();
        outputs(move |datagram| {
            let body = datagram.bytes.get(20..).unwrap_or_default().to_vec();
            let again = is(&datagram.bytes, PacketType::Ack) && same_block(&last, &body);
            last = body;
            !again
        })
    }),
    Fault::new("deaf to PLANE", "MR-PATH-41", "does not read PLANE frames", || {
        inputs(|datagram| {
            edit_acks(&mut datagram.bytes, |_, _| {}, |frame| !matches!(frame, Frame::Plane { .. }));
            true
        })
    }),
    Fault::new("whole rate for all", "MR-CC-19", "tells everybody the whole rate", || told(|_| 10_000_000)),
    Fault::new("gives all", "MR-CC-19", "divides the whole inbound rate", || {
        told(|share| share.saturating_mul(100) / 98)
    }),
    Fault::new("equal parts", "MR-CC-19", "gives everybody the same part, whatever is asked for", || {
        told(|share| share.min(3_266_666))
    }),
    Fault::new("believes demands", "MR-CC-20", "believes every demand, whatever comes of it", || {
        told(|share| share.min(4_900_000))
    }),
    Fault::new("never leaves", "MR-CC-21", "keeps who asks for nothing in the division", || {
        inputs(|datagram| {
            if is(&datagram.bytes, PacketType::Probe) && field(&datagram.bytes, 24) == 0 {
                set_field(&mut datagram.bytes, 24, 1 << 20);
            }
            true
        })
    }),
    Fault::new("ignores shares", "MR-CC-22", "sends as if the share were the whole rate", || {
        heard(|_| 100_000_000)
    }),
    Fault::new("share for ever", "MR-CC-22", "keeps to a share however old it is", || {
        let mut count = 0;
        let output = move |mut datagram: Outbound| {
            if opcode(&datagram.bytes).is_some() {
                datagram.held_ns = count * 10_000_000;
                count += 1;
            }
            vec![datagram]
        };
        Box::new(Hooks { output: Some(Box::new(output)), ..Hooks::default() })
    }),
    Fault::new("stopped by zero", "MR-CC-23", "stops when the share is 0", || heard(|share| share.max(1))),
    Fault::new("unannounced start", "MR-CC-14", "starts with a window whatever the peer allows", || {
        inputs(|datagram| {
            if control_kind(&datagram.bytes) == Some(control::CONNECT) {
                set_field(&mut datagram.bytes, 80, 64);
            }
            true
        })
    }),
    Fault::new("no START", "MR-CC-15", "does not tell that the start allowance halved", || {
        kept_frames(|frame| !matches!(frame, Frame::Start { .. }))
    }),
    Fault::new("one allowance", "MR-CC-15", "allows every connection the same start", || {
        outputs(|datagram| {
            if control_kind(&datagram.bytes) == Some(control::ACCEPT) {
                set_field(&mut datagram.bytes, 80, 1_220);
            }
            true
        })
    }),
];

/// Where the suite receives.
const FIRST: ([u8; 4], u16) = ([10, 0, 0, 1], 4795);
const SECOND: ([u8; 4], u16) = ([10, 0, 1, 1], 4795);

/// The path that a PROBE_REPLY speaks of.
fn path_of_reply(bytes: &[u8]) -> u8 {
    bytes.get(28).copied().unwrap_or(0)
}

/// Whether two ACKs tell the same of their first path.
fn same_block(one: &[u8], other: &[u8]) -> bool {
    // Path to vector, then the counters: the hold time between differs.
    one.len() >= 64
        && other.len() >= 64
        && one.get(..40) == other.get(..40)
        && one.get(48..56) == other.get(48..56)
}

/// Keeps some frames of what is sent.
fn kept_frames(keep: impl Fn(&Frame) -> bool + 'static) -> Box<dyn Shim> {
    outputs(move |datagram| {
        edit_acks(&mut datagram.bytes, |_, _| {}, &keep);
        true
    })
}

/// Changes the shares that the device tells.
fn told(change: impl Fn(u32) -> u32 + 'static) -> Box<dyn Shim> {
    outputs(move |datagram| {
        edit_acks(&mut datagram.bytes, |ack, _| ack.share_kbps = change(ack.share_kbps), |_| true);
        true
    })
}

/// Changes the shares that the device is told.
fn heard(change: impl Fn(u32) -> u32 + 'static) -> Box<dyn Shim> {
    inputs(move |datagram| {
        edit_acks(&mut datagram.bytes, |ack, _| ack.share_kbps = change(ack.share_kbps), |_| true);
        true
    })
}

/// Puts the token that was asked with into every answer.
fn any_token() -> Box<dyn Shim> {
    let asked: Rc<RefCell<Vec<u8>>> = Rc::default();
    let shared = Rc::clone(&asked);
    let output = move |datagram: Outbound| {
        if datagram.plane == 1 && is(&datagram.bytes, PacketType::Probe) {
            *shared.borrow_mut() = datagram.bytes.get(28..36).unwrap_or_default().to_vec();
        }
        vec![datagram]
    };
    let input = move |mut datagram: Inbound| {
        if is(&datagram.bytes, PacketType::ProbeReply) && path_of_reply(&datagram.bytes) >= 4 {
            put(&mut datagram.bytes, 20, &asked.borrow());
            seal(&mut datagram.bytes);
        }
        vec![datagram]
    };
    Box::new(Hooks { output: Some(Box::new(output)), input: Some(Box::new(input)), ..Hooks::default() })
}

/// Answers the PROBEs of the second plane itself.
fn answers_itself() -> Box<dyn Shim> {
    let asked: Rc<RefCell<Vec<Vec<u8>>>> = Rc::default();
    let shared = Rc::clone(&asked);
    let output = move |datagram: Outbound| {
        if datagram.plane == 1 && is(&datagram.bytes, PacketType::Probe) {
            shared.borrow_mut().push(datagram.bytes.clone());
        }
        vec![datagram]
    };
    let input = move |datagram: Inbound| {
        let mut all = vec![datagram.clone()];
        let Some(block) = block_at(&datagram.bytes) else { return all };
        for probe in asked.borrow_mut().drain(..) {
            let mut bytes = datagram.bytes.get(..20).unwrap_or_default().to_vec();
            put(&mut bytes, 0, &[kind::PROBE_REPLY]);
            bytes.extend_from_slice(probe.get(28..36).unwrap_or_default());
            bytes.extend_from_slice(datagram.bytes.get(block..block + 64).unwrap_or_default());
            let mut vector = Vector256::EMPTY;
            vector.insert(0);
            edit_acks(
                &mut bytes,
                |ack, _| {
                    ack.accepted = vector;
                    ack.flags = 0;
                    ack.hold = 0;
                    (ack.packets, ack.marked) = (0, 0);
                },
                |_| false,
            );
            put(&mut bytes, 28, probe.get(2..4).unwrap_or_default());
            put(&mut bytes, 32, probe.get(8..12).unwrap_or_default());
            put(&mut bytes, 68, probe.get(12..16).unwrap_or_default());
            seal(&mut bytes);
            all.push(Inbound { bytes, ..datagram.clone() });
        }
        all
    };
    Box::new(Hooks { output: Some(Box::new(output)), input: Some(Box::new(input)), ..Hooks::default() })
}
