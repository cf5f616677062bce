//! Faults of what a device sends: headers, acknowledgements, handshake and ends.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use metaroce_core::Ecn;
use metaroce_core::ids::Serial as _;
use metaroce_core::wire::{Frame, PacketType, Vector256};

use super::Fault;
use super::hooks::{
    Hooks, block_at, control_kind, edit, edit_acks, field, is, opcode, outputs, put, set_field,
};
use crate::suite::in_process::{Inbound, Outbound, Shim};
use crate::suite::wire::{control, flag, op, seal};

pub(super) const FAULTS: &[Fault] = &[
    Fault::new("reserved bit", "MR-WIRE-5", "sets a reserved bit of the base header", || {
        outputs(|datagram| {
            put(&mut datagram.bytes, 1, &[1]);
            true
        })
    }),
    Fault::new("version one", "MR-WIRE-1", "sends PROBEs as version 1", || {
        outputs(|datagram| {
            if is(&datagram.bytes, PacketType::Probe) {
                put(&mut datagram.bytes, 0, &[0x14]);
            }
            true
        })
    }),
    Fault::new("PSN on acknowledgements", "MR-WIRE-6", "gives ACKs a PSN", || {
        outputs(|datagram| {
            if is(&datagram.bytes, PacketType::Ack) {
                set_field(&mut datagram.bytes, 8, 7);
            }
            true
        })
    }),
    Fault::new("unsealed CONTROL", "MR-WIRE-9", "sends CONTROL without a checksum", || {
        raw(|datagram| {
            if is(&datagram.bytes, PacketType::Control) {
                set_field(&mut datagram.bytes, 16, 0);
            }
        })
    }),
    Fault::new("wrong checksum", "MR-WIRE-10", "seals DATA over other bytes than it sends", || {
        raw(|datagram| {
            if is(&datagram.bytes, PacketType::Data) || is(&datagram.bytes, PacketType::Ack) {
                let crc = field(&datagram.bytes, 16);
                set_field(&mut datagram.bytes, 16, crc ^ 0x100);
            }
        })
    }),
    Fault::new("unwanted checksum", "MR-WIRE-10", "seals packets to a peer that wants no checksum", || {
        raw(|datagram| seal(&mut datagram.bytes))
    }),
    Fault::new("not ECN-capable", "MR-WIRE-13", "sends packets as not ECN-capable", || {
        outputs(|datagram| {
            datagram.ecn = Ecn::NotEct;
            true
        })
    }),
    Fault::new("LAST forgotten", "MR-WIRE-15", "sends the last packet of a WRITE without LAST", || {
        on_data(op::WRITE, |bytes| clear(bytes, 21, flag::LAST))
    }),
    Fault::new("short PROBE", "MR-WIRE-33", "sends PROBEs of 40 bytes", || {
        outputs(|datagram| {
            if is(&datagram.bytes, PacketType::Probe) {
                datagram.bytes.truncate(40);
            }
            true
        })
    }),
    Fault::new("CONNECT from elsewhere", "MR-WIRE-31", "sends CONNECT from the port of a path", || {
        outputs(|datagram| {
            if control_kind(&datagram.bytes) == Some(control::CONNECT) {
                datagram.source_port = 50_000;
            }
            true
        })
    }),
    Fault::new("VOID of another message", "MR-WIRE-22", "sends VOID under another MSN", || {
        on_data(op::VOID, |bytes| {
            let msn = field(bytes, 28);
            set_field(bytes, 28, msn.wrapping_add(1));
        })
    }),
    Fault::new("little-endian answer", "MR-WIRE-21", "answers atomics in little-endian", || {
        on_data(op::ATOMIC_RESPONSE, |bytes| {
            if let Some(word) = bytes.get_mut(48..56) {
                word.reverse();
            }
        })
    }),
    Fault::new("PSNs from zero", "MR-HS-7", "starts PSNs elsewhere than the nonce says", || {
        outputs(|datagram| {
            if is(&datagram.bytes, PacketType::Data) || is(&datagram.bytes, PacketType::Probe) {
                let psn = field(&datagram.bytes, 8);
                set_field(&mut datagram.bytes, 8, psn.wrapping_sub(100_000));
            }
            true
        })
    }),
    Fault::new("CSNs from elsewhere", "MR-HS-5", "starts CSNs elsewhere than the nonce says", || {
        on_every_data(|bytes| {
            let csn = field(bytes, 24);
            set_field(bytes, 24, csn ^ 0x8000_0000);
        })
    }),
    Fault::new("unpadded CONNECT", "MR-HS-1", "does not pad CONNECT", || {
        on_control(control::CONNECT, |datagram| {
            datagram.bytes.truncate(128);
            true
        })
    }),
    Fault::new("one CONNECT", "MR-HS-10", "never repeats CONNECT", || {
        let mut seen = BTreeSet::new();
        on_control(control::CONNECT, move |datagram| seen.insert(field(&datagram.bytes, 32)))
    }),
    Fault::new("fresh nonces", "MR-HS-10", "gives a repeated CONNECT another nonce", || {
        let mut count = 0;
        on_control(control::CONNECT, move |datagram| {
            count += 1;
            let nonce = field(&datagram.bytes, 28);
            set_field(&mut datagram.bytes, 28, nonce ^ count);
            true
        })
    }),
    Fault::new("wrong echo", "MR-HS-8", "echoes another nonce in ACCEPT", || {
        on_control(control::ACCEPT, |datagram| {
            put(&mut datagram.bytes, 84, &[1; 8]);
            true
        })
    }),
    Fault::new("REJECT once", "MR-HS-13", "does not answer a repeated CONNECT by REJECT again", || {
        let mut told = BTreeSet::new();
        on_control(control::REJECT, move |datagram| told.insert(field(&datagram.bytes, 24)))
    }),
    Fault::new("no CONFIRM", "MR-HS-15", "does not confirm a repeated ACCEPT", || {
        on_control(control::CONFIRM, |_| false)
    }),
    Fault::new("no RETRY", "MR-HS-18", "drops CONNECTs in silence when half-open ones are many", || {
        on_control(control::RETRY, |_| false)
    }),
    Fault::new(
        "amplifier",
        "MR-HS-21",
        "sends each ACCEPT twelve times to an address that is not verified",
        || repeated(|bytes| control_kind(bytes) == Some(control::ACCEPT), 12),
    ),
    Fault::new("missing bit", "MR-ACK-1", "leaves out one packet of each eight", || {
        acks(|ack, _| {
            for bit in (3..256).step_by(8) {
                ack.accepted.remove(bit);
            }
        })
    }),
    Fault::new("optimist", "MR-ACK-4", "acknowledges what never came", || {
        acks(|ack, _| {
            for bit in 0..64 {
                ack.accepted.insert(bit);
            }
        })
    }),
    Fault::new("REFUSED once", "MR-ACK-2", "tells a refusal in one acknowledgement only", || {
        let mut told = BTreeSet::new();
        acks(move |ack, refused| {
            for bit in *refused {
                if !told.insert((ack.path.0, ack.largest.raw().wrapping_sub(bit))) {
                    refused.remove(bit);
                }
            }
        })
    }),
    Fault::new(
        "changes a verdict",
        "MR-DLV-3",
        "tells a refused packet accepted when it is told again",
        || {
            let mut told = BTreeSet::new();
            acks(move |ack, refused| {
                for bit in *refused {
                    if !told.insert((ack.path.0, ack.largest.raw().wrapping_sub(bit))) {
                        refused.remove(bit);
                        ack.accepted.insert(bit);
                    }
                }
            })
        },
    ),
    Fault::new("wrong echoed timestamp", "MR-ACK-6", "echoes another timestamp", || {
        acks(|ack, _| ack.echoed_timestamp = ack.echoed_timestamp.wrapping_add(1))
    }),
    Fault::new("no hold time", "MR-ACK-6", "tells no hold time", || acks(|ack, _| ack.hold = 0)),
    Fault::new("counts what is new", "MR-ACK-5", "counts no duplicates", || {
        acks(|ack, refused| ack.packets = ack.packets.min(ack.accepted.count() + refused.count() - 1))
    }),
    Fault::new("counts no marks", "MR-ACK-5", "never counts a mark", || acks(|ack, _| ack.marked = 0)),
    Fault::new("late cumulative CSN", "MR-ACK-7", "tells a cumulative CSN one too low", || {
        acks(|ack, _| ack.cumulative = ack.cumulative.minus(1))
    }),
    Fault::new("no share", "MR-CC-24", "tells a share of 0", || acks(|ack, _| ack.share_kbps = 0)),
    Fault::new("slow acknowledgements", "MR-ACK-10", "holds every ACK for 10 ms", || {
        outputs(|datagram| {
            if is(&datagram.bytes, PacketType::Ack) {
                datagram.held_ns = 10_000_000;
            }
            true
        })
    }),
    Fault::new("one way for acknowledgements", "MR-ACK-17", "sends every ACK over path 0", || {
        outputs(|datagram| {
            if is(&datagram.bytes, PacketType::Ack) {
                put(&mut datagram.bytes, 2, &[0]);
            }
            true
        })
    }),
    Fault::new("answers without token", "MR-ACK-22", "answers PROBEs with a token of 0", || {
        outputs(|datagram| {
            if is(&datagram.bytes, PacketType::ProbeReply) {
                put(&mut datagram.bytes, 20, &[0; 8]);
            }
            true
        })
    }),
    Fault::new("no credit told", "MR-ACK-23", "sends no CREDIT", || {
        frames(|frame| !matches!(frame, Frame::Credit { .. }))
    }),
    Fault::new("no reasons", "MR-STR-14", "sends no NACK", || {
        frames(|frame| !matches!(frame, Frame::Nack { .. }))
    }),
    Fault::new("acknowledges acknowledgements", "MR-ACK-16", "answers each ACK by an ACK", answering_acks),
    Fault::new("never asks for an ACK", "MR-ACK-15", "never sets ACK_NOW", || {
        on_every_data(|bytes| clear(bytes, 21, flag::ACK_NOW))
    }),
    Fault::new("PSN twice", "MR-LOSS-10", "sends each packet twice under one PSN", || {
        repeated(|bytes| opcode(bytes).is_some(), 2)
    }),
    Fault::new("fixed token", "MR-LOSS-11", "gives every PROBE the same token", || {
        outputs(|datagram| {
            if is(&datagram.bytes, PacketType::Probe) {
                put(&mut datagram.bytes, 28, &[9; 8]);
            }
            true
        })
    }),
    Fault::new("one port", "MR-PATH-2", "sends all paths from one port", || {
        outputs(|datagram| {
            if !is(&datagram.bytes, PacketType::Control) {
                datagram.source_port = 50_000;
            }
            true
        })
    }),
    Fault::new("hidden epoch", "MR-PATH-4", "keeps the epoch when it moves a path", || {
        outputs(|datagram| {
            put(&mut datagram.bytes, 3, &[0]);
            true
        })
    }),
    Fault::new("path too many", "MR-PATH-1", "uses path ids beyond the number of paths", || {
        outputs(|datagram| {
            if is(&datagram.bytes, PacketType::Probe) {
                put(&mut datagram.bytes, 2, &[40]);
            }
            true
        })
    }),
    Fault::new("stubborn route", "MR-PATH-21", "probes a dead path by one route only", || {
        let mut routes = BTreeMap::new();
        outputs(move |datagram| {
            if is(&datagram.bytes, PacketType::Probe) || opcode(&datagram.bytes).is_some() {
                let path = datagram.bytes.get(2).copied();
                let epoch = datagram.bytes.get(3).copied().unwrap_or(0);
                let (port, epoch) = *routes.entry(path).or_insert((datagram.source_port, epoch));
                datagram.source_port = port;
                put(&mut datagram.bytes, 3, &[epoch]);
            }
            true
        })
    }),
    Fault::new("no demand", "MR-CC-17", "tells a demand of 0 while there is more", || {
        on_every_data(|bytes| set_field(bytes, 44, 0))
    }),
    Fault::new("endless demand", "MR-CC-17", "tells a demand when there is nothing left", || {
        on_every_data(|bytes| {
            let demand = field(bytes, 44);
            set_field(bytes, 44, demand.max(1));
        })
    }),
    Fault::new("asks about nothing", "MR-STR-12", "does not name the stream that waits for credit", || {
        outputs(|datagram| {
            if is(&datagram.bytes, PacketType::Probe) {
                put(&mut datagram.bytes, 20, &[0xff; 2]);
            }
            true
        })
    }),
    Fault::new("wrong status", "MR-MEM-4", "tells an access fault as another status", || {
        on_data(op::RESULT, |bytes| set_field(bytes, 48, 2))
    }),
    Fault::new("CLOSE once", "MR-CLS-6", "never repeats CLOSE", || {
        let mut seen = BTreeSet::new();
        on_control(control::CLOSE, move |datagram| seen.insert(field(&datagram.bytes, 28)))
    }),
    Fault::new("CLOSE without proof", "MR-CLS-3", "sends a CLOSE whose proof is 0", || {
        on_control(control::CLOSE, |datagram| {
            put(&mut datagram.bytes, 32, &[0; 8]);
            true
        })
    }),
    Fault::new("CLOSE unanswered", "MR-CLS-4", "does not answer CLOSE", || {
        on_control(control::CLOSE_ACK, |_| false)
    }),
    Fault::new("silent rest", "MR-CLS-10", "answers nothing from an id at rest but CLOSE", || {
        on_control(control::CLOSE_ACK, |datagram| datagram.bytes.get(21) == Some(&0))
    }),
    Fault::new("unknown in silence", "MR-CLS-12", "sends no RESET for an unknown id", || {
        on_control(control::RESET, |_| false)
    }),
    Fault::new("large RESET", "MR-CLS-13", "pads RESETs", || {
        on_control(control::RESET, |datagram| {
            datagram.bytes.resize(300, 0);
            true
        })
    }),
];

/// Changes datagrams without sealing them again.
fn raw(hook: impl Fn(&mut Outbound) + 'static) -> Box<dyn Shim> {
    let output = move |mut datagram: Outbound| {
        hook(&mut datagram);
        vec![datagram]
    };
    Box::new(Hooks { output: Some(Box::new(output)), ..Hooks::default() })
}

/// Changes all DATA.
fn on_every_data(hook: impl Fn(&mut Vec<u8>) + 'static) -> Box<dyn Shim> {
    outputs(move |datagram| {
        if opcode(&datagram.bytes).is_some() {
            hook(&mut datagram.bytes);
        }
        true
    })
}

/// Changes DATA of one opcode.
fn on_data(of: u8, hook: impl Fn(&mut Vec<u8>) + 'static) -> Box<dyn Shim> {
    on_every_data(move |bytes| {
        if opcode(bytes) == Some(of) {
            hook(bytes);
        }
    })
}

/// Changes CONTROL of one kind, or drops it.
fn on_control(of: u8, mut hook: impl FnMut(&mut Outbound) -> bool + 'static) -> Box<dyn Shim> {
    outputs(move |datagram| control_kind(&datagram.bytes) != Some(of) || hook(datagram))
}

/// Sends some datagrams several times.
fn repeated(which: impl Fn(&[u8]) -> bool + 'static, times: usize) -> Box<dyn Shim> {
    let output = move |datagram: Outbound| {
        let count = if which(&datagram.bytes) { times } else { 1 };
        vec![datagram; count]
    };
    Box::new(Hooks { output: Some(Box::new(output)), ..Hooks::default() })
}

/// Changes acknowledgements.
fn acks(
    mut change: impl FnMut(&mut metaroce_core::wire::AckBody, &mut Vector256) + 'static,
) -> Box<dyn Shim> {
    outputs(move |datagram| {
        edit_acks(&mut datagram.bytes, &mut change, |_| true);
        true
    })
}

/// Drops frames.
fn frames(keep: impl Fn(&Frame) -> bool + 'static) -> Box<dyn Shim> {
    outputs(move |datagram| {
        edit_acks(&mut datagram.bytes, |_, _| {}, &keep);
        true
    })
}

fn clear(bytes: &mut [u8], at: usize, bits: u8) {
    if let Some(byte) = bytes.get_mut(at) {
        *byte &= !bits;
    }
}

/// Repeats its last acknowledgement whenever one of the peer comes.
fn answering_acks() -> Box<dyn Shim> {
    let last: Rc<RefCell<(Option<Outbound>, bool)>> = Rc::default();
    let (heard, sent) = (Rc::clone(&last), Rc::clone(&last));
    let input = move |datagram: Inbound| {
        if is(&datagram.bytes, PacketType::Ack) {
            heard.borrow_mut().1 = true;
        }
        vec![datagram]
    };
    let output = move |datagram: Outbound| {
        if block_at(&datagram.bytes).is_some()
            || opcode(&datagram.bytes).is_some()
            || is(&datagram.bytes, PacketType::Probe)
        {
            let mut copy = datagram.clone();
            // An ACK of nothing.
            let _ = edit(&mut copy, &mut |copy: &mut Outbound| {
                copy.bytes.truncate(20);
                put(&mut copy.bytes, 0, &[PacketType::Ack as u8]);
                set_field(&mut copy.bytes, 8, 0);
                copy.bytes.extend([0, 0, 1, 0]);
                copy.bytes.resize(84, 0);
                true
            });
            sent.borrow_mut().0 = Some(copy);
        }
        vec![datagram]
    };
    let volunteer = move || {
        let mut last = last.borrow_mut();
        let due = std::mem::take(&mut last.1);
        last.0.iter().filter(|_| due).cloned().collect()
    };
    Box::new(Hooks {
        input: Some(Box::new(input)),
        output: Some(Box::new(output)),
        volunteer: Some(Box::new(volunteer)),
        ..Hooks::default()
    })
}
