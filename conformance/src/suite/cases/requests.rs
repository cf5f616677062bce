//! What several cases say in the same words.

use metaroce_core::ids::Serial as _;
use metaroce_core::wire::{DataHeader, Opcode};

use super::super::control::{DeviceEvent, Place, Request, Stretch};
use super::super::link::{Link, Region};
use super::super::script::{Fired, Script};
use super::super::stop::{Outcome, Stop};
use super::super::wire::{DataFields, flag, op};

/// A WRITE into the suite's memory, which is there only in name.
pub(super) const fn write_request(key: u32, address: u64) -> Request {
    Request::Write { to: Place { key, address }, immediate: None }
}

/// Bytes of a region of the device.
pub(super) const fn local(region: &Region, offset: u32, length: u32) -> Stretch {
    Stretch { region: region.number, offset, length }
}

/// Sends DATA and waits for its verdict: accepted or refused.
pub(super) fn verdict(s: &mut Script<'_>, link: &mut Link, path: u8, data: &DataFields) -> Outcome<bool> {
    let mark = s.mark();
    let fired = s.send(link, path, data)?;
    verdict_of(s, mark, &fired)
}

/// The verdict of what was sent.
pub(super) fn verdict_of(s: &mut Script<'_>, mark: usize, fired: &Fired) -> Outcome<bool> {
    let Fired { path, psn, .. } = *fired;
    let ack = s.expect("MR-ACK-11", mark, "a verdict", |packet| {
        packet.block_of(path).is_some_and(|block| block.accepts(psn) || block.refuses(psn))
    })?;
    Ok(ack.block_of(path).is_some_and(|block| block.accepts(psn)))
}

/// Sends DATA that must be accepted.
pub(super) fn accepted(
    s: &mut Script<'_>,
    requirement: &str,
    link: &mut Link,
    path: u8,
    data: &DataFields,
) -> Outcome {
    let yes = verdict(s, link, path, data)?;
    s.check(requirement, yes, || {
        format!("opcode {:#x}, stream {}, msn {} is refused", data.opcode, data.stream, data.msn)
    })
}

/// Sends DATA that must be refused.
pub(super) fn refused(
    s: &mut Script<'_>,
    requirement: &str,
    link: &mut Link,
    path: u8,
    data: &DataFields,
) -> Outcome {
    let yes = verdict(s, link, path, data)?;
    s.check(requirement, !yes, || {
        format!("opcode {:#x}, stream {}, msn {} is accepted", data.opcode, data.stream, data.msn)
    })
}

/// The DATA packets of the device since `mark` of one opcode: header and payload.
pub(super) fn data_since(
    s: &Script<'_>,
    link: &Link,
    mark: usize,
    opcode: Opcode,
) -> Vec<(DataHeader, Vec<u8>)> {
    let mine = link.mine();
    s.since(mark)
        .iter()
        .filter(|packet| packet.base.connection.0 == mine)
        .filter_map(|packet| packet.data().map(|(header, payload)| (header, payload.to_vec())))
        .filter(|(header, _)| header.opcode == opcode)
        .collect()
}

/// Waits for a DATA packet of the device of one opcode, and enters and acknowledges it with all that came before.
pub(super) fn answer(
    s: &mut Script<'_>,
    requirement: &str,
    link: &mut Link,
    mark: usize,
    opcode: Opcode,
    msn: u32,
) -> Outcome<(DataHeader, Vec<u8>)> {
    let mine = link.mine();
    let what = format!("{opcode:?} of message {msn}");
    let packet = s.expect(requirement, mark, &what, |packet| {
        packet.base.connection.0 == mine
            && packet.data().is_some_and(|(header, _)| header.opcode == opcode && header.msn.raw() == msn)
    })?;
    take_all(s, link, mark)?;
    packet
        .data()
        .map(|(header, payload)| (header, payload.to_vec()))
        .ok_or_else(|| Stop::failed(requirement, "no DATA"))
}

/// Enters and acknowledges all that came since `mark`; what was entered before is entered as a duplicate.
pub(super) fn take_all(s: &mut Script<'_>, link: &mut Link, mark: usize) -> Outcome {
    let batch = s.since(mark).to_vec();
    s.take_in(link, &batch, &mut |_| super::super::script::Treat::Accept)
}

/// The status of a completion.
pub(super) fn status_of(event: &DeviceEvent) -> &str {
    match event {
        DeviceEvent::Completion { status, .. } => status,
        _ => "",
    }
}

/// The status that a RESULT of the device carries, waited for.
pub(super) fn result(
    s: &mut Script<'_>,
    requirement: &str,
    link: &mut Link,
    mark: usize,
    msn: u32,
) -> Outcome<u32> {
    let (header, _) = answer(s, requirement, link, mark, Opcode::Result, msn)?;
    header.immediate.ok_or_else(|| Stop::failed("MR-STR-22", "a RESULT without a status"))
}

/// A STREAM_RESET of a stream whose next message would be `msn`.
pub(super) fn stream_reset(stream: u16, msn: u32) -> DataFields {
    DataFields { opcode: op::STREAM_RESET, flags: flag::LAST, ..DataFields::default() }
        .on(stream, msn)
        .immediate(6)
}
