//! Faults of what a device does with what it receives: windows, copies, memory, order, limits.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use metaroce_core::congestion::{CongestionControl, EcnAimd, Feedback, PathWindow, WindowBounds};
use metaroce_core::wire::{Base, DataHeader, PacketType};
use metaroce_core::{AtomicOperation, Disposition, DropReason, Ecn};

use super::Fault;
use super::hooks::{
    Hooks, answers, commands, configured, control_kind, events, field, inputs, is, opcode, put, set_field,
};
use crate::suite::control::{Answer, Command, DeviceEvent, Right};
use crate::suite::in_process::{Inbound, Outbound, Shim, ShimMemory};
use crate::suite::wire::{control, op, seal};

pub(super) const FAULTS: &[Fault] = &[
    Fault::new("any version", "MR-WIRE-2", "reads packets of every version as version 0", || {
        inputs(|datagram| {
            clear_high(&mut datagram.bytes);
            true
        })
    }),
    Fault::new("any checksum", "MR-WIRE-11", "takes packets whatever their checksum", || {
        let input = |mut datagram: Inbound| {
            if !is(&datagram.bytes, PacketType::Control) {
                seal(&mut datagram.bytes);
            }
            vec![datagram]
        };
        Box::new(Hooks { input: Some(Box::new(input)), ..Hooks::default() })
    }),
    Fault::new("strict reserved bits", "MR-WIRE-5", "drops packets with reserved bits", || {
        inputs(|datagram| datagram.bytes.get(1) == Some(&0))
    }),
    Fault::new("strict padding", "MR-WIRE-27", "drops PROBEs whose padding is not zero", || {
        inputs(|datagram| {
            !is(&datagram.bytes, PacketType::Probe) || datagram.bytes.iter().skip(36).all(|byte| *byte == 0)
        })
    }),
    Fault::new("unknown frames", "MR-WIRE-24", "drops an ACK with a frame that it does not know", || {
        inputs(|datagram| !is(&datagram.bytes, PacketType::Ack) || datagram.bytes.get(84) != Some(&200))
    }),
    Fault::new("half a datagram", "MR-WIRE-25", "uses the blocks before a frame that is malformed", || {
        inputs(|datagram| {
            bare_ack(&mut datagram.bytes);
            true
        })
    }),
    Fault::new(
        "REFUSED anywhere",
        "MR-WIRE-26",
        "takes a REFUSED frame for the block, wherever it stands",
        || {
            inputs(|datagram| {
                if is(&datagram.bytes, PacketType::Ack) && datagram.bytes.get(94) == Some(&1) {
                    datagram.bytes.drain(84..94);
                }
                true
            })
        },
    ),
    Fault::new("short CONNECT", "MR-HS-1", "takes a CONNECT that is too short", || {
        inputs(|datagram| {
            if control_kind(&datagram.bytes) == Some(control::CONNECT) {
                datagram.bytes.resize(640, 0);
            }
            true
        })
    }),
    Fault::new("any echo", "MR-HS-8", "takes an ACCEPT that echoes another nonce", any_echo),
    Fault::new("CONTROL from anywhere", "MR-HS-9", "takes CONTROL from any IP address", || {
        inputs(|datagram| {
            if is(&datagram.bytes, PacketType::Control) {
                datagram.source.set_ip([10, 0, 0, 1].into());
            }
            true
        })
    }),
    Fault::new("data from anywhere", "MR-SEC-6", "takes DATA and PROBE from any IP address", || {
        inputs(|datagram| {
            if !is(&datagram.bytes, PacketType::Control) {
                datagram.source.set_ip([10, 0, 0, 1].into());
            }
            true
        })
    }),
    Fault::new("any cookie", "MR-HS-19", "takes any cookie for the right one", any_cookie),
    Fault::new("any RESET", "MR-CLS-14", "believes a RESET whatever it quotes", any_reset),
    Fault::new("any proof", "MR-CLS-3", "believes CLOSE and CLOSE_ACK whatever their proof", any_proof),
    Fault::new("RESET for ACKs", "MR-CLS-17", "answers an ACK with an unknown id", reset_for_acks),
    Fault::new("CSN window ignored", "MR-DLV-2", "places what lies outside of the CSN window", || {
        judged(|data, payload, disposition, memory| {
            if disposition == Disposition::Dropped(DropReason::CsnOutsideWindow) {
                place(data, payload, memory);
            }
        })
    }),
    Fault::new("copies written", "MR-DLV-4", "writes a copy of a WRITE again", || {
        judged(|data, payload, disposition, memory| {
            if disposition == Disposition::Duplicate {
                place(data, payload, memory);
            }
        })
    }),
    Fault::new("atomics again", "MR-OP-12", "runs an atomic again when a copy comes", || {
        judged(|data, _, disposition, memory| {
            if let (Disposition::Duplicate, true, Some(remote)) =
                (disposition, data.opcode.is_atomic(), data.remote)
            {
                memory.poke_atomic(remote.key.0, remote.address, AtomicOperation::FetchAdd(1));
            }
        })
    }),
    Fault::new("acknowledged first", "MR-DLV-5", "acknowledges a packet before it is in place", placing_late),
    Fault::new("wrapping wrongly", "MR-DLV-1", "takes CSNs past 2^32 for old ones", || {
        inputs(|datagram| opcode(&datagram.bytes).is_none() || field(&datagram.bytes, 24) > 1_000)
    }),
    Fault::new("one port of the peer", "MR-PATH-5", "takes packets of a path from one port only", || {
        inputs(|datagram| opcode(&datagram.bytes).is_none() || datagram.source.port() != 40_002)
    }),
    Fault::new("blind to marks", "MR-ACK-5", "does not see congestion marks", || {
        inputs(|datagram| {
            if datagram.ecn == Ecn::Ce {
                datagram.ecn = Ecn::Ect0;
            }
            true
        })
    }),
    Fault::new("ACK for each packet", "MR-ACK-11", "acknowledges each packet at once", || {
        configured(|config, _| config.ack_packets = 1)
    }),
    Fault::new("ACK for many packets", "MR-ACK-11", "acknowledges 32 packets at a time", || {
        configured(|config, _| config.ack_packets = 32)
    }),
    Fault::new(
        "impossible blocks",
        "MR-ACK-28",
        "uses the good blocks of an ACK with an impossible one",
        || {
            inputs(|datagram| {
                bare_ack(&mut datagram.bytes);
                true
            })
        },
    ),
    Fault::new("no tolerance", "MR-LOSS-1", "takes every gap for a loss", || {
        configured(|config, _| config.reorder_tolerance = 0)
    }),
    Fault::new("endless tolerance", "MR-LOSS-1", "takes no gap under 32 for a loss", || {
        configured(|config, _| config.reorder_tolerance = 32)
    }),
    Fault::new("hasty probes", "MR-LOSS-12", "probes after 1 ms", || {
        configured(|config, _| config.pto_ns_min = 1_000_000)
    }),
    Fault::new("lazy probes", "MR-LOSS-12", "probes after 100 ms", || {
        configured(|config, _| config.pto_ns_min = 100_000_000)
    }),
    Fault::new("lazy CONNECT", "MR-HS-10", "repeats CONNECT after 100 ms", || {
        configured(|config, _| (config.rto_ns_min, config.rtt_ns_initial) = (100_000_000, 25_000_000))
    }),
    Fault::new("patience", "MR-HS-23", "never gives up an attempt", || {
        configured(|config, _| config.fail_after_ns = 1_000_000_000_000)
    }),
    Fault::new("endless hope", "MR-PATH-26", "never gives up a connection", || {
        configured(|config, _| config.fail_after_ns = 1_000_000_000_000)
    }),
    Fault::new("no suspicion", "MR-PATH-12", "keeps sending on a path that is silent", || {
        configured(|config, _| (config.rto_ns_min, config.fail_after_ns) = (20_000_000_000, 60_000_000_000))
    }),
    Fault::new("no keepalive", "MR-PATH-28", "leaves an idle connection alone", || {
        configured(|config, _| config.keepalive_ns = 1_000_000_000_000)
    }),
    Fault::new("no search", "MR-PATH-34", "never looks for a larger MTU", || {
        configured(|config, _| config.mtu_bytes = 1232)
    }),
    Fault::new("no limit in flight", "MR-CC-11", "sends beyond the limit of bytes in flight", || {
        configured(|config, _| config.window_bytes_max = 8 << 20)
    }),
    Fault::new("endless retries", "MR-STR-17", "retries a refused SEND for ever", || {
        configured(|config, _| config.rnr_retries = None)
    }),
    Fault::new("half-open without limit", "MR-HS-32", "gives one address all connections", || {
        configured(|config, _| config.half_open_per_address = 1_000)
    }),
    Fault::new("halves on loss", "MR-CC-8", "halves its window at a loss", || {
        configured(|config, _| config.congestion = &Loss)
    }),
    Fault::new("deaf to marks", "MR-CC-3", "keeps its window whatever is marked", || {
        configured(|config, _| config.congestion = &Deaf)
    }),
    Fault::new("no collapse", "MR-CC-10", "keeps its window at a timeout", || {
        configured(|config, _| config.congestion = &Calm)
    }),
    Fault::new("peer's CSN window", "MR-DLV-8", "ignores the CSN window of the peer", || {
        granted(|bytes| set_field(bytes, 72, 4096))
    }),
    Fault::new("peer's message window", "MR-STR-6", "ignores the message window of the peer", || {
        granted(|bytes| set_field(bytes, 68, 1024))
    }),
    Fault::new("unlimited credit", "MR-STR-9", "sends beyond its credit", || {
        granted(|bytes| set_field(bytes, 76, 16))
    }),
    Fault::new("impatient", "MR-STR-15", "sends refused packets again before the delay is over", || {
        inputs(|datagram| {
            if is(&datagram.bytes, PacketType::Ack)
                && let Some(at) = datagram.bytes.windows(2).skip(84).position(|head| head == [2, 8])
            {
                set_field(&mut datagram.bytes, 84 + at + 6, 1);
            }
            true
        })
    }),
    Fault::new("bytes of its own", "MR-OP-6", "places other bytes than it was sent", || {
        let write = |_, _, bytes: &mut Vec<u8>| {
            if let Some(first) = bytes.first_mut() {
                *first ^= 0x20;
            }
            true
        };
        Box::new(Hooks { write: Some(Box::new(write)), ..Hooks::default() })
    }),
    Fault::new("signals twice", "MR-OP-22", "adds a signal twice", || {
        atomics(|operation| match operation {
            AtomicOperation::FetchAdd(operand) => AtomicOperation::FetchAdd(operand.wrapping_mul(2)),
            other => other,
        })
    }),
    Fault::new("operands exchanged", "MR-WIRE-20", "compares with the wrong operand", || {
        atomics(|operation| match operation {
            AtomicOperation::CompareSwap { compare, swap } => {
                AtomicOperation::CompareSwap { compare: swap, swap: compare }
            }
            other => other,
        })
    }),
    Fault::new("domains leak", "MR-MEM-1", "lets a peer reach every protection domain", || {
        commands(|command| {
            if let Command::Register { domain, .. } | Command::Accept { domain, .. } = command {
                *domain = 0;
            }
            None
        })
    }),
    Fault::new("all rights", "MR-MEM-1", "gives every region every right", || {
        commands(|command| {
            if let Command::Register { rights, .. } = command {
                *rights = Right::ALL.to_vec();
            }
            None
        })
    }),
    Fault::new("past the end", "MR-MEM-1", "lets a peer write past the end of a region", || {
        commands(|command| {
            if let Command::Register { length, .. } = command {
                *length += 4096;
            }
            None
        })
    }),
    Fault::new("never deregistered", "MR-MEM-8", "keeps a region open that was deregistered", || {
        commands(|command| matches!(command, Command::Deregister { .. }).then_some(Answer::Done))
    }),
    Fault::new("old keys", "MR-MEM-12", "takes the old key of a region", old_keys),
    Fault::new("in use", "MR-MEM-7", "deregisters what posted work refers to", || {
        answers(|command, answer| {
            if matches!(command, Command::Deregister { .. }) {
                *answer = Answer::Done;
            }
        })
    }),
    Fault::new("unchecked segments", "MR-MEM-10", "takes segments without a look", || {
        answers(|command, answer| {
            if matches!(command, Command::Post { .. } | Command::PostReceive { .. }) {
                *answer = Answer::Done;
            }
        })
    }),
    Fault::new("out of order", "MR-OP-5", "reports completions in another order", || {
        answers(|_, answer| {
            if let Answer::Events { events } = answer {
                events.reverse();
            }
        })
    }),
    Fault::new("reported twice", "MR-DLV-4", "reports each completion twice", || {
        events(|event| 1 + usize::from(matches!(event, DeviceEvent::Completion { .. })))
    }),
    Fault::new("ends twice", "MR-CLS-18", "reports the end of a connection twice", || {
        events(|event| 1 + usize::from(matches!(event, DeviceEvent::Closed { .. })))
    }),
    Fault::new("immediate lost", "MR-OP-19", "does not report the immediate", || {
        events(|event| {
            if let DeviceEvent::Completion { immediate, .. } = event {
                *immediate = None;
            }
            1
        })
    }),
    Fault::new("solicited lost", "MR-OP-20", "does not report SOLICITED", || {
        events(|event| {
            if let DeviceEvent::Completion { solicited, .. } = event {
                *solicited = false;
            }
            1
        })
    }),
    Fault::new("all is well", "MR-STR-20", "reports failed requests as success", || {
        events(|event| {
            if let DeviceEvent::Completion { status, receive: false, .. } = event {
                "success".clone_into(status);
            }
            1
        })
    }),
    Fault::new("all for one", "MR-STR-20", "reports requests that are flushed as those that failed", || {
        events(|event| {
            if let DeviceEvent::Completion { status, receive: false, .. } = event
                && status == "flushed"
            {
                "rnr-exceeded".clone_into(status);
            }
            1
        })
    }),
    Fault::new("datagram twice", "MR-OP-28", "delivers a datagram again", || {
        events(|event| 1 + usize::from(matches!(event, DeviceEvent::Datagram { .. })))
    }),
    Fault::new("no fence", "MR-OP-15", "starts a request with a fence at once", || {
        commands(|command| {
            if let Command::Post { fence, .. } = command {
                *fence = false;
            }
            None
        })
    }),
    Fault::new("any tag", "MR-OP-23", "gives a tagged SEND the first entry, whatever its bits", || {
        commands(|command| {
            if let Command::PostReceive { tag: Some(tag), .. } = command {
                tag.ignored = u64::MAX;
            }
            None
        })
    }),
    Fault::new("tails as they come", "MR-OP-25", "promises ordered tails and does not keep them", || {
        commands(|command| {
            if let Command::Register { rights, .. } = command {
                rights.retain(|right| *right != Right::OrderedTails);
            }
            None
        })
    }),
    Fault::new("no drain", "MR-CLS-1", "closes without waiting for its requests", || {
        commands(|command| {
            if let Command::Close { flush, .. } = command {
                *flush = true;
            }
            None
        })
    }),
    Fault::new(
        "reasons of its own",
        "MR-HS-13",
        "rejects with another reason than the application's",
        || {
            commands(|command| {
                if let Command::Reject { reason, .. } = command {
                    *reason = 0x100;
                }
                None
            })
        },
    ),
];

fn clear_high(bytes: &mut [u8]) {
    if let Some(first) = bytes.first_mut() {
        *first &= 15;
    }
}

/// Cuts an ACK down to its first block.
fn bare_ack(bytes: &mut Vec<u8>) {
    if is(bytes, PacketType::Ack) {
        bytes.truncate(84);
    }
}

/// Changes the terms of a peer's CONNECT or ACCEPT.
fn granted(change: impl Fn(&mut Vec<u8>) + 'static) -> Box<dyn Shim> {
    inputs(move |datagram| {
        if matches!(control_kind(&datagram.bytes), Some(control::CONNECT | control::ACCEPT)) {
            change(&mut datagram.bytes);
        }
        true
    })
}

fn atomics(hook: impl FnMut(AtomicOperation) -> AtomicOperation + 'static) -> Box<dyn Shim> {
    Box::new(Hooks { atomic: Some(Box::new(hook)), ..Hooks::default() })
}

/// Sees DATA and what became of it.
fn judged(mut hook: impl FnMut(&DataHeader, &[u8], Disposition, &mut ShimMemory) + 'static) -> Box<dyn Shim> {
    let judged = move |datagram: &Inbound, disposition: Disposition, memory: &mut ShimMemory| {
        if let Ok((base, body)) = Base::parse(&datagram.bytes)
            && base.kind == PacketType::Data
            && let Ok((header, payload)) = DataHeader::parse(body)
        {
            hook(&header, payload, disposition, memory);
        }
    };
    Box::new(Hooks { judged: Some(Box::new(judged)), ..Hooks::default() })
}

fn place(data: &DataHeader, payload: &[u8], memory: &mut ShimMemory) {
    if let Some(remote) = data.remote {
        memory.poke(remote.key.0, remote.address, payload);
    }
}

/// Writes land when the next datagram is handed in.
fn placing_late() -> Box<dyn Shim> {
    let held = Rc::new(RefCell::new(Vec::new()));
    let landing = Rc::clone(&held);
    let write = move |region, offset, bytes: &mut Vec<u8>| {
        held.borrow_mut().push((region, offset, std::mem::take(bytes), 0));
        false
    };
    let judged = move |_: &Inbound, _: Disposition, memory: &mut ShimMemory| {
        landing.borrow_mut().retain_mut(|(region, offset, bytes, age)| {
            *age += 1;
            if *age > 1 {
                memory.place(*region, *offset, bytes);
            }
            *age <= 1
        });
    };
    Box::new(Hooks { write: Some(Box::new(write)), judged: Some(Box::new(judged)), ..Hooks::default() })
}

/// A hook that sees what goes out, and one that changes what comes in, over one memory.
fn remembering<T: Default + 'static>(
    seen: impl Fn(&mut T, &Outbound) + 'static,
    mut change: impl FnMut(&T, &mut Inbound) + 'static,
) -> Box<dyn Shim> {
    let memory: Rc<RefCell<T>> = Rc::default();
    let shared = Rc::clone(&memory);
    let output = move |datagram: Outbound| {
        seen(&mut memory.borrow_mut(), &datagram);
        vec![datagram]
    };
    let input = move |mut datagram: Inbound| {
        let before = datagram.bytes.clone();
        change(&shared.borrow(), &mut datagram);
        if datagram.bytes != before {
            seal(&mut datagram.bytes);
        }
        vec![datagram]
    };
    Box::new(Hooks { input: Some(Box::new(input)), output: Some(Box::new(output)), ..Hooks::default() })
}

fn copied(bytes: &[u8], from: usize, length: usize) -> Vec<u8> {
    bytes.get(from..from + length).unwrap_or_default().to_vec()
}

fn any_echo() -> Box<dyn Shim> {
    remembering::<Vec<u8>>(
        |nonce, datagram| {
            if control_kind(&datagram.bytes) == Some(control::CONNECT) {
                *nonce = copied(&datagram.bytes, 28, 8);
            }
        },
        |nonce, datagram| {
            if control_kind(&datagram.bytes) == Some(control::ACCEPT) {
                put(&mut datagram.bytes, 84, nonce);
            }
        },
    )
}

/// The cookie that the device gave out last for a nonce stands for any other.
fn any_cookie() -> Box<dyn Shim> {
    remembering::<BTreeMap<Vec<u8>, Vec<u8>>>(
        |cookies, datagram| {
            if control_kind(&datagram.bytes) == Some(control::RETRY) {
                cookies.insert(copied(&datagram.bytes, 24, 8), copied(&datagram.bytes, 32, 16));
            }
        },
        |cookies, datagram| {
            if control_kind(&datagram.bytes) == Some(control::CONNECT)
                && let Some(cookie) = cookies.get(&copied(&datagram.bytes, 28, 8))
            {
                put(&mut datagram.bytes, 92, cookie);
            }
        },
    )
}

fn any_reset() -> Box<dyn Shim> {
    remembering::<Vec<u8>>(
        |quote, datagram| {
            if opcode(&datagram.bytes).is_some() {
                *quote = copied(&datagram.bytes, 0, 20);
            }
        },
        |quote, datagram| {
            if control_kind(&datagram.bytes) == Some(control::RESET) {
                put(&mut datagram.bytes, 24, quote);
            }
        },
    )
}

/// What the proof of a connection is made of.
#[derive(Default)]
struct Proof {
    ours: Vec<u8>,
    theirs: Vec<u8>,
    id: Vec<u8>,
}

/// Puts the right proof into every CLOSE and CLOSE_ACK.
fn any_proof() -> Box<dyn Shim> {
    let proof: Rc<RefCell<Proof>> = Rc::default();
    let shared = Rc::clone(&proof);
    let output = move |datagram: Outbound| {
        if matches!(control_kind(&datagram.bytes), Some(control::CONNECT | control::ACCEPT)) {
            proof.borrow_mut().ours = copied(&datagram.bytes, 28, 8);
        }
        vec![datagram]
    };
    let input = move |mut datagram: Inbound| {
        let kind = control_kind(&datagram.bytes);
        let mut proof = shared.borrow_mut();
        if matches!(kind, Some(control::CONNECT | control::ACCEPT)) {
            proof.theirs = copied(&datagram.bytes, 28, 8);
            proof.id = copied(&datagram.bytes, 24, 4);
        }
        if matches!(kind, Some(control::CLOSE | control::CLOSE_ACK)) {
            let xor: Vec<u8> = proof.ours.iter().zip(&proof.theirs).map(|(a, b)| a ^ b).collect();
            put(&mut datagram.bytes, 28, &proof.id);
            put(&mut datagram.bytes, 32, &xor);
            seal(&mut datagram.bytes);
        }
        vec![datagram]
    };
    Box::new(Hooks { input: Some(Box::new(input)), output: Some(Box::new(output)), ..Hooks::default() })
}

/// Reads an ACK for an id that it never gave out as a PROBE.
fn reset_for_acks() -> Box<dyn Shim> {
    remembering::<Vec<u32>>(
        |ids, datagram| {
            if matches!(control_kind(&datagram.bytes), Some(control::CONNECT | control::ACCEPT)) {
                ids.push(field(&datagram.bytes, 24));
            }
        },
        |ids, datagram| {
            if is(&datagram.bytes, PacketType::Ack) && !ids.contains(&field(&datagram.bytes, 4)) {
                put(&mut datagram.bytes, 0, &[PacketType::Probe as u8]);
            }
        },
    )
}

/// Knows every key that a region ever had.
fn old_keys() -> Box<dyn Shim> {
    let keys: Rc<RefCell<BTreeMap<u32, Vec<u32>>>> = Rc::default();
    let shared = Rc::clone(&keys);
    let answer = move |_: &Command, answer: &mut Answer| {
        if let Answer::Region { region, key } = answer {
            keys.borrow_mut().entry(*region).or_default().push(*key);
        }
    };
    let input = move |mut datagram: Inbound| {
        if matches!(opcode(&datagram.bytes), Some(op::WRITE | op::READ_REQUEST)) {
            let key = field(&datagram.bytes, 48);
            let newest = shared
                .borrow()
                .values()
                .find(|keys| keys.contains(&key))
                .and_then(|keys| keys.last().copied());
            if let Some(newest) = newest.filter(|newest| *newest != key) {
                set_field(&mut datagram.bytes, 48, newest);
                seal(&mut datagram.bytes);
            }
        }
        vec![datagram]
    };
    Box::new(Hooks { answer: Some(Box::new(answer)), input: Some(Box::new(input)), ..Hooks::default() })
}

/// Halves at a loss, and else does as the default.
struct Loss;

impl CongestionControl for Loss {
    fn on_start(&self, window: &mut PathWindow, bounds: &WindowBounds) {
        EcnAimd.on_start(window, bounds);
    }
    fn on_feedback(&self, window: &mut PathWindow, feedback: &Feedback, bounds: &WindowBounds) {
        EcnAimd.on_feedback(window, feedback, bounds);
        if feedback.lost > 0 {
            window.window_bytes /= 2;
        }
    }
    fn on_timeout(&self, window: &mut PathWindow, bounds: &WindowBounds) {
        EcnAimd.on_timeout(window, bounds);
    }
}

/// Sees no marks, and else does as the default.
struct Deaf;

impl CongestionControl for Deaf {
    fn on_start(&self, window: &mut PathWindow, bounds: &WindowBounds) {
        EcnAimd.on_start(window, bounds);
    }
    fn on_feedback(&self, window: &mut PathWindow, feedback: &Feedback, bounds: &WindowBounds) {
        EcnAimd.on_feedback(window, &Feedback { marked: 0, ..*feedback }, bounds);
    }
    fn on_timeout(&self, window: &mut PathWindow, bounds: &WindowBounds) {
        EcnAimd.on_timeout(window, bounds);
    }
}

/// Does nothing at a timeout, and else does as the default.
struct Calm;

impl CongestionControl for Calm {
    fn on_start(&self, window: &mut PathWindow, bounds: &WindowBounds) {
        EcnAimd.on_start(window, bounds);
    }
    fn on_feedback(&self, window: &mut PathWindow, feedback: &Feedback, bounds: &WindowBounds) {
        EcnAimd.on_feedback(window, feedback, bounds);
    }
    fn on_timeout(&self, _: &mut PathWindow, _: &WindowBounds) {}
}
