//! Every header: parsing never panics, and what was parsed, emitted and parsed again is the same.
//!
//! The first byte picks the header, the rest is parsed.

use metaroce_core::wire::{
    AckBody, BASE_BYTES, Base, BufferTooSmall, Control, DataHeader, Frame, FrameIter, PacketType, Probe,
    ProbeReply, WireError,
};

/// Parses the rest as what the first byte picks.
pub fn run(bytes: &[u8]) {
    let Some((&kind, bytes)) = bytes.split_first() else { return };
    match kind % 8 {
        0 => again(bytes, Base::parse, Base::emit),
        1 => again(bytes, DataHeader::parse, DataHeader::emit),
        2 => again(bytes, AckBody::parse, AckBody::emit),
        3 => control(bytes),
        4 => again(bytes, Probe::parse, Probe::emit),
        5 => again(bytes, ProbeReply::parse, ProbeReply::emit),
        6 => frames(bytes),
        _ => packet(bytes),
    }
}

/// Base header and body, as an endpoint takes them apart.
fn packet(bytes: &[u8]) {
    again(bytes, Base::parse, Base::emit);
    let Ok((base, body)) = Base::parse(bytes) else { return };
    assert_eq!(body.len(), bytes.len() - BASE_BYTES);
    match base.kind {
        PacketType::Data => {
            again(body, DataHeader::parse, DataHeader::emit);
            if let Ok((header, payload)) = DataHeader::parse(body) {
                // The judgement itself must not panic either; what it allows must add up.
                if header.check(payload.len()).is_ok() && header.opcode.is_segmented() {
                    let end = u64::from(header.offset) + payload.len() as u64;
                    assert!(end <= u64::from(header.length), "{header:?} with {} bytes", payload.len());
                }
            }
        }
        PacketType::Ack => {
            again(body, AckBody::parse, AckBody::emit);
            if let Ok((_, rest)) = AckBody::parse(body) {
                frames(rest);
            }
        }
        PacketType::Control => control(body),
        PacketType::Probe => again(body, Probe::parse, Probe::emit),
        PacketType::ProbeReply => again(body, ProbeReply::parse, ProbeReply::emit),
    }
}

fn again<T: PartialEq + std::fmt::Debug>(
    bytes: &[u8],
    parse: impl Fn(&[u8]) -> Result<(T, &[u8]), WireError>,
    emit: impl Fn(&T, &mut [u8]) -> Result<usize, BufferTooSmall>,
) {
    let Ok((header, rest)) = parse(bytes) else { return };
    let taken = bytes.len() - rest.len();
    let mut out = vec![0; taken];
    assert_eq!(emit(&header, &mut out), Ok(taken), "{header:?}");
    // What follows belongs to it: a header may be judged by the length of its payload.
    let whole = [&out, rest].concat();
    let (second, rest_again) = parse(&whole).expect("emitted bytes parse");
    assert_eq!(second, header);
    assert_eq!(rest_again, rest);
    if taken > 0 {
        let short = emit(&header, &mut out[..taken - 1]);
        assert_eq!(short, Err(BufferTooSmall), "{header:?} emitted into one byte too few");
    }
}

fn control(bytes: &[u8]) {
    let Ok((control, rest)) = Control::parse(bytes) else { return };
    let taken = bytes.len() - rest.len();
    assert_eq!(control.encoded_length(), taken, "{control:?}");
    let mut out = vec![0; taken];
    assert_eq!(control.emit(&mut out), Ok(taken), "{control:?}");
    assert_eq!(Control::parse(&out), Ok((control, &[][..])));
}

fn frames(bytes: &[u8]) {
    if let Ok((Some(frame), rest)) = Frame::parse(bytes) {
        let taken = bytes.len() - rest.len();
        assert_eq!(frame.encoded_length(), taken, "{frame:?}");
        let mut out = vec![0; taken];
        assert_eq!(frame.emit(&mut out), Ok(taken), "{frame:?}");
        assert_eq!(Frame::parse(&out), Ok((Some(frame), &[][..])));
    }
    assert!(FrameIter::new(bytes).count() <= bytes.len());
}
