//! The shim that faults are made of: a closure for each seam, and the words in which they are written.

use metaroce_core::wire::{AckBody, Frame, FrameIter, PacketType, Vector256};
use metaroce_core::{AtomicOperation, Config, Disposition, Limits, RegionId};

use super::super::control::{Answer, Command};
use super::super::in_process::{Inbound, Outbound, Shim, ShimMemory};
use super::super::wire::seal;

type Configure = Box<dyn FnMut(&mut Config, &mut Limits)>;
type OnCommand = Box<dyn FnMut(&mut Command) -> Option<Answer>>;
type OnAnswer = Box<dyn FnMut(&Command, &mut Answer)>;
type Input = Box<dyn FnMut(Inbound) -> Vec<Inbound>>;
type Output = Box<dyn FnMut(Outbound) -> Vec<Outbound>>;
type Judged = Box<dyn FnMut(&Inbound, Disposition, &mut ShimMemory)>;
type Write = Box<dyn FnMut(RegionId, u64, &mut Vec<u8>) -> bool>;
type Atomic = Box<dyn FnMut(AtomicOperation) -> AtomicOperation>;
type Volunteer = Box<dyn FnMut() -> Vec<Outbound>>;

/// A closure for each seam of the device; those that are missing change nothing.
#[derive(Default)]
pub(super) struct Hooks {
    pub(super) configure: Option<Configure>,
    pub(super) command: Option<OnCommand>,
    pub(super) answer: Option<OnAnswer>,
    pub(super) input: Option<Input>,
    pub(super) output: Option<Output>,
    pub(super) judged: Option<Judged>,
    pub(super) write: Option<Write>,
    pub(super) atomic: Option<Atomic>,
    pub(super) volunteer: Option<Volunteer>,
}

impl Shim for Hooks {
    fn configure(&mut self, config: &mut Config, limits: &mut Limits) {
        if let Some(hook) = &mut self.configure {
            hook(config, limits);
        }
    }

    fn command(&mut self, command: &mut Command) -> Option<Answer> {
        self.command.as_mut().and_then(|hook| hook(command))
    }

    fn answer(&mut self, command: &Command, answer: &mut Answer) {
        if let Some(hook) = &mut self.answer {
            hook(command, answer);
        }
    }

    fn input(&mut self, _: u64, datagram: Inbound) -> Vec<Inbound> {
        match &mut self.input {
            Some(hook) => hook(datagram),
            None => vec![datagram],
        }
    }

    fn judged(&mut self, datagram: &Inbound, disposition: Disposition, memory: &mut ShimMemory) {
        if let Some(hook) = &mut self.judged {
            hook(datagram, disposition, memory);
        }
    }

    fn output(&mut self, _: u64, datagram: Outbound) -> Vec<Outbound> {
        match &mut self.output {
            Some(hook) => hook(datagram),
            None => vec![datagram],
        }
    }

    fn volunteer(&mut self, _: u64) -> Vec<Outbound> {
        self.volunteer.as_mut().map_or(Vec::new(), |hook| hook())
    }

    fn write(&mut self, region: RegionId, offset: u64, bytes: &mut Vec<u8>) -> bool {
        self.write.as_mut().is_none_or(|hook| hook(region, offset, bytes))
    }

    fn atomic(&mut self, operation: AtomicOperation) -> Option<AtomicOperation> {
        Some(match &mut self.atomic {
            Some(hook) => hook(operation),
            None => operation,
        })
    }
}

/// Another configuration.
pub(super) fn configured(hook: impl FnMut(&mut Config, &mut Limits) + 'static) -> Box<dyn Shim> {
    Box::new(Hooks { configure: Some(Box::new(hook)), ..Hooks::default() })
}

/// Other commands; `Some` is answered in the place of the device.
pub(super) fn commands(hook: impl FnMut(&mut Command) -> Option<Answer> + 'static) -> Box<dyn Shim> {
    Box::new(Hooks { command: Some(Box::new(hook)), ..Hooks::default() })
}

/// Other answers.
pub(super) fn answers(hook: impl FnMut(&Command, &mut Answer) + 'static) -> Box<dyn Shim> {
    Box::new(Hooks { answer: Some(Box::new(hook)), ..Hooks::default() })
}

/// Other datagrams come in: changed ones are sealed again, dropped if the hook says `false`.
pub(super) fn inputs(mut hook: impl FnMut(&mut Inbound) -> bool + 'static) -> Box<dyn Shim> {
    let input = move |mut datagram: Inbound| {
        let before = datagram.bytes.clone();
        let kept = hook(&mut datagram);
        if datagram.bytes != before {
            seal(&mut datagram.bytes);
        }
        if kept { vec![datagram] } else { Vec::new() }
    };
    Box::new(Hooks { input: Some(Box::new(input)), ..Hooks::default() })
}

/// Other datagrams go out: changed ones are sealed again, dropped if the hook says `false`.
pub(super) fn outputs(mut hook: impl FnMut(&mut Outbound) -> bool + 'static) -> Box<dyn Shim> {
    let output = move |mut datagram: Outbound| {
        let kept = edit(&mut datagram, &mut hook);
        if kept { vec![datagram] } else { Vec::new() }
    };
    Box::new(Hooks { output: Some(Box::new(output)), ..Hooks::default() })
}

/// Changes a datagram, and seals it again if it was sealed.
pub(super) fn edit(datagram: &mut Outbound, hook: &mut impl FnMut(&mut Outbound) -> bool) -> bool {
    let before = datagram.bytes.clone();
    let kept = hook(datagram);
    if datagram.bytes != before && datagram.bytes.get(16..20) != Some(&[0; 4]) {
        seal(&mut datagram.bytes);
    }
    kept
}

/// Other events: each is changed, or dropped or repeated by the count returned.
pub(super) fn events(
    mut hook: impl FnMut(&mut super::super::control::DeviceEvent) -> usize + 'static,
) -> Box<dyn Shim> {
    answers(move |_, answer| {
        if let Answer::Events { events } = answer {
            let told = std::mem::take(events);
            for mut event in told {
                let count = hook(&mut event);
                events.extend(std::iter::repeat_n(event, count));
            }
        }
    })
}

/// What a packet is.
pub(super) fn is(bytes: &[u8], kind: PacketType) -> bool {
    bytes.first().is_some_and(|first| first & 15 == kind as u8)
}

/// The opcode of DATA.
pub(super) fn opcode(bytes: &[u8]) -> Option<u8> {
    bytes.get(20).copied().filter(|_| is(bytes, PacketType::Data))
}

/// The kind of CONTROL.
pub(super) fn control_kind(bytes: &[u8]) -> Option<u8> {
    bytes.get(20).copied().filter(|_| is(bytes, PacketType::Control))
}

/// A 32-bit field.
pub(super) fn field(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk::<4>()).map_or(0, |field| u32::from_be_bytes(*field))
}

/// Writes a 32-bit field.
pub(super) fn set_field(bytes: &mut [u8], at: usize, value: u32) {
    put(bytes, at, &value.to_be_bytes());
}

/// Writes bytes, if they fit.
pub(super) fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(to) = bytes.get_mut(at..at + value.len()) {
        to.copy_from_slice(value);
    }
}

/// Where the first acknowledgement of an ACK or PROBE_REPLY starts.
pub(super) fn block_at(bytes: &[u8]) -> Option<usize> {
    if is(bytes, PacketType::Ack) {
        Some(20)
    } else if is(bytes, PacketType::ProbeReply) {
        Some(28)
    } else {
        None
    }
}

/// Changes every acknowledgement of an ACK or PROBE_REPLY, with what was refused; keeps the frames that `keep` names.
pub(super) fn edit_acks(
    bytes: &mut Vec<u8>,
    mut change: impl FnMut(&mut AckBody, &mut Vector256),
    mut keep: impl FnMut(&Frame) -> bool,
) {
    let Some(start) = block_at(bytes) else { return };
    let Some((first, frames)) = bytes.get(start..).and_then(|body| AckBody::parse(body).ok()) else { return };
    let mut blocks = vec![(first, Vector256::EMPTY)];
    let mut others = Vec::new();
    for frame in FrameIter::new(frames).flatten() {
        match frame {
            Frame::Ack(body) => blocks.push((body, Vector256::EMPTY)),
            Frame::Refused(vector) => {
                if let Some((_, refused)) = blocks.last_mut() {
                    *refused = vector;
                }
            }
            other if keep(&other) => others.push(other),
            _ => {}
        }
    }
    let mut out = bytes.get(..start).unwrap_or_default().to_vec();
    for (number, (mut body, mut refused)) in blocks.into_iter().enumerate() {
        change(&mut body, &mut refused);
        let mut room = [0; 80];
        let written =
            if number == 0 { body.emit(&mut room) } else { Frame::Ack(body).emit(&mut room) }.unwrap_or(0);
        out.extend(room.get(..written).unwrap_or_default());
        if !refused.is_empty() {
            let written = Frame::Refused(refused).emit(&mut room).unwrap_or(0);
            out.extend(room.get(..written).unwrap_or_default());
        }
    }
    for frame in others {
        let mut room = [0; 80];
        let written = frame.emit(&mut room).unwrap_or(0);
        out.extend(room.get(..written).unwrap_or_default());
    }
    *bytes = out;
}
