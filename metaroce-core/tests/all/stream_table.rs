//! Every state of a stream against every event: calls of the application, packets of the peer, verdicts.

use std::cell::RefCell;
use std::rc::Rc;

use crate::common::{packets, *};
use metaroce_conformance::{Faults, Network};
use metaroce_core::ids::{Csn, Msn, Psn, RegionKey};
use metaroce_core::wire::{
    AckBody, Base, Control, DataHeader, Frame, NackReason, OpFlags, Opcode, PacketType, Remote, Vector256,
};
use metaroce_core::{
    CloseMode, ConnectionHandle, HeapStorage, Operation, PathId, Segment, Status, WorkRequest,
};

type Net = Network<HeapStorage>;

/// Where the stream of host 0 is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Not there.
    Absent,
    /// Open, a receive posted.
    Idle,
    /// Open, a SEND on its way without verdict.
    Busy,
    /// Open, a SEND refused for want of a receive, waiting to go again.
    Refused,
    /// Reset here, a SEND still without verdict.
    Flushing,
    /// Reset here, the STREAM_RESET on its way.
    Resetting,
    /// Reset here, the STREAM_RESET has its verdict, the peer's is missing.
    Waiting,
}

const STATES: [At; 7] =
    [At::Absent, At::Idle, At::Busy, At::Refused, At::Flushing, At::Resetting, At::Waiting];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Happens {
    AppSend,
    AppReceive,
    AppReset,
    Send,
    SendBeyondWindow,
    WriteBadKey,
    UnaskedResponse,
    ResultOfFirst,
    ResultOfUnsent,
    StreamReset,
    Void,
    NackNoReceive,
    NackClosed,
    Credit,
    Accepted,
    Rejected,
}

const EVENTS: [Happens; 16] = [
    Happens::AppSend,
    Happens::AppReceive,
    Happens::AppReset,
    Happens::Send,
    Happens::SendBeyondWindow,
    Happens::WriteBadKey,
    Happens::UnaskedResponse,
    Happens::ResultOfFirst,
    Happens::ResultOfUnsent,
    Happens::StreamReset,
    Happens::Void,
    Happens::NackNoReceive,
    Happens::NackClosed,
    Happens::Credit,
    Happens::Accepted,
    Happens::Rejected,
];

/// What the test saw on the wire.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    id: u32,
    next_csn: u32,
    /// Path and PSN of host 0's newest DATA.
    newest: Option<(PathId, Psn)>,
    muted: [bool; 2],
}

struct Case {
    net: Net,
    handle: ConnectionHandle,
    seen: Rc<RefCell<Seen>>,
    inbox: Segment,
}

fn open() -> Case {
    let mut net = network(5, Faults::NONE);
    let seen = Rc::new(RefCell::new(Seen::default()));
    let watched = Rc::clone(&seen);
    net.filter = Some(Box::new(move |from, transmit| {
        let (base, body) = Base::parse(transmit.header()).unwrap();
        let mut seen = watched.borrow_mut();
        if let (PacketType::Control, Ok((Control::Connect(hello) | Control::Accept(hello), _))) =
            (base.kind, Control::parse(body))
        {
            if from == 0 {
                seen.id = hello.connection.0;
            } else {
                seen.next_csn = (hello.nonce & 0xffff_ffff) as u32;
            }
        }
        if from == 0 && base.kind == PacketType::Data {
            seen.newest = Some((base.path, base.psn));
        }
        seen.muted[from]
    }));
    let [handle, _] = connect(&mut net);
    net.run_for(20 * MS);
    let region = net.hosts[0].register(vec![0; 8]);
    Case { net, handle, seen, inbox: Segment { region: region.id, offset: 0, length: 8 } }
}

fn bring(at: At) -> Case {
    let mut case = open();
    let now = case.net.now();
    let handle = case.handle;
    let send = WorkRequest::new(1, Operation::Send { immediate: None }, &[]);
    let mute = |case: &Case, muted| case.seen.borrow_mut().muted = muted;
    let endpoint = &mut case.net.hosts[0].endpoint;
    match at {
        At::Absent => {}
        At::Idle => endpoint.post_recv(handle, S0, 1, &[case.inbox]).unwrap(),
        At::Busy | At::Flushing => {
            case.seen.borrow_mut().muted = [true; 2];
            endpoint.post(now, handle, S0, send).unwrap();
            if at == At::Flushing {
                case.net.settle();
                case.net.hosts[0].endpoint.reset_stream(now, handle, S0).unwrap();
            }
        }
        At::Refused => {
            endpoint.post(now, handle, S0, send).unwrap();
            let done = case
                .net
                .run_until(MS, |net| net.hosts[0].endpoint.stream_stats(handle, S0).unwrap().refused == 1);
            assert!(done);
        }
        At::Resetting | At::Waiting => {
            endpoint.post_recv(handle, S0, 1, &[case.inbox]).unwrap();
            endpoint.reset_stream(now, handle, S0).unwrap();
            if at == At::Resetting {
                mute(&case, [true; 2]);
            } else {
                // The peer's STREAM_RESET is lost, its acknowledgement is not.
                let muted = Rc::clone(&case.seen);
                let watched = case.net.filter.take();
                let mut watched = watched.unwrap();
                case.net.filter = Some(Box::new(move |from, transmit| {
                    let lost = watched(from, transmit);
                    let data = Base::parse(transmit.header()).unwrap().0.kind == PacketType::Data;
                    lost || (from == 1 && data) || muted.borrow().muted[from]
                }));
                case.net.run_for(MS);
            }
        }
    }
    case.net.settle();
    case.seen.borrow_mut().muted = [true; 2];
    case.net.run_for(100_000);
    case.net.hosts[0].take_events();
    case
}

fn inject(case: &mut Case, kind: PacketType, emit: impl FnOnce(&mut [u8]) -> usize) {
    let id = case.seen.borrow().id;
    let bytes = packets::sealed(id, kind, Psn::new(0x4000_0000), emit, 0);
    let source = case.net.hosts[1].address;
    let _ = case.net.inject(0, source, &bytes);
}

fn data(case: &mut Case, header: DataHeader) {
    inject(case, PacketType::Data, |out| header.emit(out).unwrap());
}

/// An acknowledgement of the newest DATA of host 0, with the verdict, or of nothing.
fn acknowledge(case: &mut Case, verdict: Option<bool>, frames: &[Frame]) {
    let newest = case.seen.borrow().newest;
    let mut bit = Vector256::EMPTY;
    bit.insert(0);
    let (path, largest, flags) = match (newest, verdict) {
        (Some((path, psn)), Some(_)) => (path, psn, 0),
        _ => (PathId(0), Psn::new(0), 1),
    };
    let body = AckBody {
        path,
        epoch: 0,
        flags,
        largest,
        accepted: if verdict == Some(true) { bit } else { Vector256::EMPTY },
        echoed_timestamp: 0,
        hold: 0,
        packets: 1,
        marked: 0,
        cumulative: Csn::new(0),
        share_kbps: 0,
    };
    let refused = (verdict == Some(false)).then_some(Frame::Refused(bit));
    inject(case, PacketType::Ack, |out| {
        let mut length = body.emit(out).unwrap();
        for frame in refused.iter().chain(frames) {
            length += frame.emit(&mut out[length..]).unwrap();
        }
        length
    });
}

fn happen(case: &mut Case, event: Happens) {
    let now = case.net.now();
    let (handle, inbox) = (case.handle, case.inbox);
    let csn = Csn::new(case.seen.borrow().next_csn);
    let header = |opcode, flags, msn| packets::header(opcode, flags, S0, csn, Msn::new(msn));
    let endpoint = &mut case.net.hosts[0].endpoint;
    match event {
        Happens::AppSend => {
            let request = WorkRequest::new(9, Operation::Send { immediate: None }, &[]);
            let _ = endpoint.post(now, handle, S0, request);
        }
        Happens::AppReceive => {
            let _ = endpoint.post_recv(handle, S0, 9, &[inbox]);
        }
        Happens::AppReset => {
            let _ = endpoint.reset_stream(now, handle, S0);
        }
        Happens::Send => data(case, header(Opcode::Send, OpFlags::LAST, 0)),
        Happens::SendBeyondWindow => data(case, header(Opcode::Send, OpFlags::LAST, 1 << 20)),
        Happens::WriteBadKey => {
            let remote = Some(Remote { key: RegionKey(0xdead_beef), address: 0 });
            let header = DataHeader { remote, length: 4, ..header(Opcode::Write, OpFlags::LAST, 0) };
            inject(case, PacketType::Data, |out| {
                let length = header.emit(out).unwrap();
                out[length..length + 4].copy_from_slice(&[1; 4]);
                length + 4
            });
        }
        Happens::UnaskedResponse => data(case, header(Opcode::ReadResponse, OpFlags::LAST, 0)),
        Happens::ResultOfFirst | Happens::ResultOfUnsent => {
            let msn = if event == Happens::ResultOfFirst { 0 } else { 77 };
            data(case, header(Opcode::Result, OpFlags::IMMEDIATE, msn));
        }
        Happens::StreamReset => data(case, header(Opcode::StreamReset, OpFlags::IMMEDIATE, 0)),
        Happens::Void => data(case, header(Opcode::Void, OpFlags::NONE, 0)),
        Happens::NackNoReceive | Happens::NackClosed => {
            let reason =
                if event == Happens::NackClosed { NackReason::Closed } else { NackReason::NoReceive };
            acknowledge(case, None, &[Frame::Nack { stream: S0, reason, delay_us: 0 }]);
        }
        Happens::Credit => {
            let posted = metaroce_core::ids::ReceiveIndex::new(100);
            acknowledge(case, None, &[Frame::Credit { stream: S0, none_needed: false, posted }]);
        }
        Happens::Accepted => acknowledge(case, Some(true), &[]),
        Happens::Rejected => acknowledge(case, Some(false), &[]),
    }
    case.net.settle();
}

#[test]
fn every_state_of_a_stream_meets_every_event_as_the_table_says() {
    // A row per state, a column per event in the order of EVENTS: the stream is absent (-), open (O) or ending (E).
    let table = [
        (At::Absent, "OO-OOO---E------"),
        (At::Idle, "OOEOOOOOOEOOOOOO"),
        (At::Busy, "OOEOOOOOOEOOOOOO"),
        (At::Refused, "OOEOOOOEOEOOEOOO"),
        (At::Flushing, "EEEEEEEEEEEEEEEE"),
        // A refused STREAM_RESET: the peer has no such stream.
        (At::Resetting, "EEEEEEEEEEEEEEE-"),
        (At::Waiting, "EEEEEEEEE-EEEEEE"),
    ];
    let mut wrong = Vec::new();
    for (at, row) in table {
        let mut letters = String::new();
        for event in EVENTS {
            let mut case = bring(at);
            happen(&mut case, event);
            let stats = case.net.hosts[0].endpoint.stream_stats(case.handle, S0);
            letters.push(match stats {
                None => '-',
                Some(stats) if stats.ending => 'E',
                Some(_) => 'O',
            });
            // Whatever happened: the connection ends, and with it everything that was posted, once.
            let now = case.net.now();
            let _ = case.net.hosts[0].endpoint.close(now, case.handle, CloseMode::Flush);
            case.net.run_for(60 * SECOND);
            let events = case.net.hosts[0].take_events();
            let mut ids: Vec<_> = completions(&events).iter().map(|end| (end.id, end.kind)).collect();
            let count = ids.len();
            ids.dedup();
            assert_eq!(ids.len(), count, "{at:?} {event:?}: {events:?}");
            assert!(completions(&events).iter().all(|end| end.status != Status::LocalProtection));
        }
        if letters != row {
            wrong.push(format!("{at:?}: table {row}, seen {letters}"));
        }
    }
    assert_eq!(STATES.len(), 7);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
