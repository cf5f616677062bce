//! Every state of a connection against every event: packets of every kind, time, and calls of the application.

use std::cell::RefCell;
use std::rc::Rc;

use crate::common::{packets, *};
use metaroce_conformance::{Faults, Network};
use metaroce_core::ids::{Csn, Msn, Psn, WireConnectionId};
use metaroce_core::wire::{
    AckBody, Base, Close, Confirm, Connect, Control, OpFlags, Opcode, PacketType, PlaneAddresses, Probe,
    ProbeReply, Reject, RejectReason, Reset, ResetProof, Retry, Vector256,
};
use metaroce_core::{
    CloseMode, ConnectOptions, ConnectionHandle, ConnectionState, Event, HeapStorage, Operation, PathId,
    ProtectionDomain, StreamId, WorkRequest,
};

type Net = Network<HeapStorage>;

/// What was seen on the wire of the two ends: id and nonce of each, and the DUT's last DATA header.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    id: [u32; 2],
    nonce: [u64; 2],
    data: Option<[u8; 20]>,
    next_csn: u32,
}

struct Case {
    net: Net,
    /// Of host 0, the device under test.
    handle: ConnectionHandle,
    seen: Seen,
}

/// Brings host 0 into a state. Host 1 is a real peer that falls silent where the state would pass by.
#[expect(clippy::too_many_lines, reason = "one arm for each state")]
fn bring(state: ConnectionState) -> Case {
    let mut net = network(77, Faults::NONE);
    let seen = Rc::new(RefCell::new(Seen::default()));
    let silent = Rc::new(RefCell::new([false; 2]));
    let (watched, muted) = (Rc::clone(&seen), Rc::clone(&silent));
    net.filter = Some(Box::new(move |from, transmit| {
        let (base, body) = Base::parse(transmit.header()).unwrap();
        let mut seen = watched.borrow_mut();
        match base.kind {
            PacketType::Control => {
                if let Ok((Control::Connect(hello) | Control::Accept(hello), _)) = Control::parse(body) {
                    seen.id[from] = hello.connection.0;
                    seen.nonce[from] = hello.nonce;
                }
            }
            PacketType::Data if from == 0 => {
                seen.data = transmit.header().first_chunk().copied();
            }
            _ => {}
        }
        muted.borrow()[from]
    }));
    let [zero, one] = [net.hosts[0].address, net.hosts[1].address];
    let now = net.now();
    let accept = |net: &mut Net, number: usize| {
        let mut found = None;
        net.run_for(MS);
        for event in net.hosts[number].take_events() {
            if let Event::Incoming { connection, .. } = event {
                found = Some(connection);
            }
        }
        let now = net.now();
        let connection = found.unwrap();
        net.hosts[number].endpoint.accept(now, connection, ProtectionDomain(0), b"").unwrap();
        net.settle();
        connection
    };
    let handle = match state {
        ConnectionState::Connecting | ConnectionState::Ending => {
            let handle = net.hosts[0].endpoint.connect(now, ConnectOptions::to(one)).unwrap();
            silent.borrow_mut()[1] = true;
            net.run_for(MS);
            if state == ConnectionState::Ending {
                let now = net.now();
                net.hosts[0].endpoint.close(now, handle, CloseMode::Drain).unwrap();
            }
            handle
        }
        ConnectionState::Incoming | ConnectionState::Accepting => {
            net.hosts[1].endpoint.connect(now, ConnectOptions::to(zero)).unwrap();
            if state == ConnectionState::Accepting {
                let mut sent = 0;
                let watched = Rc::clone(&seen);
                net.filter = Some(Box::new(move |from, transmit| {
                    let (_, body) = Base::parse(transmit.header()).unwrap();
                    if let Ok((Control::Connect(hello) | Control::Accept(hello), _)) = Control::parse(body) {
                        watched.borrow_mut().id[from] = hello.connection.0;
                        watched.borrow_mut().nonce[from] = hello.nonce;
                    }
                    sent += u32::from(from == 1);
                    from == 1 && sent > 1
                }));
                accept(&mut net, 0)
            } else {
                net.run_for(MS);
                net.hosts[0]
                    .take_events()
                    .iter()
                    .find_map(|event| match event {
                        Event::Incoming { connection, .. } => Some(*connection),
                        _ => None,
                    })
                    .unwrap()
            }
        }
        _ => {
            let handle = net.hosts[0].endpoint.connect(now, ConnectOptions::to(one)).unwrap();
            let peer = accept(&mut net, 1);
            net.run_for(MS);
            let now = net.now();
            silent.borrow_mut()[1] =
                state != ConnectionState::PeerClosing && state != ConnectionState::Resting;
            if state == ConnectionState::Draining || state == ConnectionState::PeerClosing {
                let request = WorkRequest::new(1, Operation::Send { immediate: None }, &[]);
                silent.borrow_mut()[0] = true;
                net.hosts[0].endpoint.post(now, handle, StreamId(0), request).unwrap();
                net.settle();
            }
            match state {
                ConnectionState::Draining | ConnectionState::Closing | ConnectionState::Resting => {
                    net.hosts[0].endpoint.close(now, handle, CloseMode::Drain).unwrap();
                    net.run_for(MS);
                }
                ConnectionState::PeerClosing => {
                    net.hosts[1].endpoint.close(now, peer, CloseMode::Drain).unwrap();
                    net.run_for(MS);
                }
                _ => {}
            }
            handle
        }
    };
    let stats = net.hosts[0].endpoint.connection_stats(handle).unwrap();
    assert_eq!(stats.state, state, "the set-up reaches the state");
    let mut seen = *seen.borrow();
    seen.next_csn = (seen.nonce[1] & 0xffff_ffff) as u32;
    // From here on host 1 is played by the test.
    net.filter = Some(Box::new(|_, _| true));
    Case { net, handle, seen }
}

fn packet(case: &Case, kind: PacketType, emit: impl FnOnce(&mut [u8]) -> usize, pad: usize) -> Vec<u8> {
    // Where the peer's PSNs on path 0 start.
    let psn = Psn::new((case.seen.nonce[1] >> 32) as u32);
    packets::sealed(case.seen.id[0], kind, psn, emit, pad)
}

fn control(case: &Case, control: &Control<'_>, pad: usize) -> Vec<u8> {
    packet(case, PacketType::Control, |out| control.emit(out).unwrap(), pad)
}

fn data(case: &Case, opcode: Opcode, flags: OpFlags) -> Vec<u8> {
    let header = packets::header(opcode, flags, StreamId(9), Csn::new(case.seen.next_csn), Msn::new(0));
    packet(case, PacketType::Data, |out| header.emit(out).unwrap(), 0)
}

fn hello(case: &Case, nonce: u64, echoed_nonce: u64) -> Connect<'static> {
    Connect {
        wants_checksum: true,
        implicit: false,
        connection: WireConnectionId(if case.seen.id[1] == 0 { 0x55 } else { case.seen.id[1] }),
        nonce,
        incarnation: 1,
        features: 0,
        mtu_bytes: 4176,
        service: 0,
        streams: 16,
        paths: 8,
        reads: 8,
        held: 8,
        message_window: 64,
        csn_window: 256,
        initial_credits: 4,
        start_allowance_kib: 64,
        echoed_nonce,
        cookie: [0; 16],
        planes: PlaneAddresses::EMPTY,
        private_data: &[],
    }
}

/// The events, in the order of the columns below.
#[derive(Clone, Copy, Debug)]
enum Happens {
    ConnectAgain,
    Accept,
    Confirm,
    Reject,
    Retry,
    Close,
    CloseAck,
    CloseAckQuoting,
    ResetQuoting,
    ResetIds,
    Forged,
    Data,
    Ack,
    Probe,
    ProbeReply,
    LongSilence,
    AppAccept,
    AppReject,
    AppDrain,
    AppFlush,
}

const EVENTS: [Happens; 20] = [
    Happens::ConnectAgain,
    Happens::Accept,
    Happens::Confirm,
    Happens::Reject,
    Happens::Retry,
    Happens::Close,
    Happens::CloseAck,
    Happens::CloseAckQuoting,
    Happens::ResetQuoting,
    Happens::ResetIds,
    Happens::Forged,
    Happens::Data,
    Happens::Ack,
    Happens::Probe,
    Happens::ProbeReply,
    Happens::LongSilence,
    Happens::AppAccept,
    Happens::AppReject,
    Happens::AppDrain,
    Happens::AppFlush,
];

fn inject(case: &mut Case, bytes: &[u8]) {
    let source = case.net.hosts[1].address;
    let _ = case.net.inject(0, source, bytes);
}

fn happen(case: &mut Case, event: Happens) {
    let Seen { id, nonce, data: quoted, .. } = case.seen;
    let close = |nonce_xor, quote| Close {
        reason: 0,
        next_csn: Csn::new(0),
        sender: WireConnectionId(id[1]),
        nonce_xor,
        quote,
    };
    let xor = nonce[0] ^ nonce[1];
    let ack = AckBody {
        path: PathId(0),
        epoch: 0,
        flags: 1,
        largest: Psn::new(0),
        accepted: Vector256::EMPTY,
        echoed_timestamp: 0,
        hold: 0,
        packets: 0,
        marked: 0,
        cumulative: Csn::new(0),
        share_kbps: 0,
    };
    let now = case.net.now();
    let endpoint =
        |case: &mut Case, call: &dyn Fn(&mut metaroce_core::Endpoint<HeapStorage>, ConnectionHandle)| {
            call(&mut case.net.hosts[0].endpoint, case.handle);
        };
    let bytes = match event {
        Happens::ConnectAgain => control(case, &Control::Connect(hello(case, nonce[1], 0)), 640),
        Happens::Accept => control(case, &Control::Accept(hello(case, 0x77_0000_0099, nonce[0])), 0),
        Happens::Confirm => control(case, &Control::Confirm(Confirm { echoed_nonce: nonce[0] }), 0),
        Happens::Reject => {
            let reject = Reject { reason: RejectReason::Busy, echoed_nonce: nonce[0], private_data: &[] };
            control(case, &Control::Reject(reject), 0)
        }
        Happens::Retry => {
            control(case, &Control::Retry(Retry { echoed_nonce: nonce[0], cookie: [1; 16] }), 0)
        }
        Happens::Close => control(case, &Control::Close(close(xor, None)), 0),
        Happens::CloseAck => control(case, &Control::CloseAck(close(xor, None)), 0),
        Happens::CloseAckQuoting => control(case, &Control::CloseAck(close(xor, quoted)), 0),
        Happens::ResetQuoting => {
            let proof = ResetProof::Quote(quoted.unwrap_or([0; 20]));
            control(case, &Control::Reset(Reset { proof }), 0)
        }
        Happens::ResetIds => {
            let proof = ResetProof::Ids {
                yours: WireConnectionId(id[0]),
                mine: WireConnectionId(id[1]),
                nonce_xor: xor,
            };
            control(case, &Control::Reset(Reset { proof }), 0)
        }
        Happens::Forged => {
            // Everything destructive, with one bit of the proof wrong.
            for forged in [Control::Close(close(xor ^ 1, None)), Control::CloseAck(close(xor ^ 1, quoted))] {
                let bytes = control(case, &forged, 0);
                inject(case, &bytes);
            }
            let mut quote = quoted.unwrap_or([9; 20]);
            quote[15] ^= 1;
            control(case, &Control::Reset(Reset { proof: ResetProof::Quote(quote) }), 0)
        }
        Happens::Data => data(case, Opcode::Send, OpFlags::LAST),
        Happens::Ack => packet(case, PacketType::Ack, |out| ack.emit(out).unwrap(), 0),
        Happens::Probe => {
            let probe = Probe { stream: StreamId::NONE, demand_kib: 0, token: 1 };
            packet(case, PacketType::Probe, |out| probe.emit(out).unwrap(), 0)
        }
        Happens::ProbeReply => {
            let reply = ProbeReply { token: 1, ack };
            packet(case, PacketType::ProbeReply, |out| reply.emit(out).unwrap(), 0)
        }
        Happens::LongSilence => return case.net.run_for(40 * SECOND),
        Happens::AppAccept => {
            return endpoint(case, &|endpoint, handle| {
                let _ = endpoint.accept(now, handle, ProtectionDomain(0), b"");
            });
        }
        Happens::AppReject => {
            return endpoint(case, &|endpoint, handle| {
                let _ = endpoint.reject(now, handle, RejectReason::Busy, b"");
            });
        }
        Happens::AppDrain => {
            return endpoint(case, &|endpoint, handle| {
                let _ = endpoint.close(now, handle, CloseMode::Drain);
            });
        }
        Happens::AppFlush => {
            return endpoint(case, &|endpoint, handle| {
                let _ = endpoint.close(now, handle, CloseMode::Flush);
            });
        }
    };
    inject(case, &bytes);
}

/// The letter of a state; `-` when the connection is gone.
fn letter(state: Option<ConnectionState>) -> char {
    match state {
        None => '-',
        Some(ConnectionState::Connecting) => 'C',
        Some(ConnectionState::Incoming) => 'I',
        Some(ConnectionState::Accepting) => 'A',
        Some(ConnectionState::Open) => 'O',
        Some(ConnectionState::Draining) => 'D',
        Some(ConnectionState::Closing) => 'L',
        Some(ConnectionState::PeerClosing) => 'P',
        Some(ConnectionState::Ending) => 'E',
        Some(_) => 'R',
    }
}

#[test]
fn every_state_meets_every_event_as_the_table_says() {
    // A row per state, a column per event, in the order of EVENTS; the letter is the state right after the event.
    let table = [
        (ConnectionState::Connecting, "COCECCCCCCCCCCC-CCEE"),
        (ConnectionState::Incoming, "IIIIIIIIIIIIIII-AEEE"),
        (ConnectionState::Accepting, "AAOAAEAAAEAOOOO-AALL"),
        (ConnectionState::Open, "OOOOOEOOOEOOOOO-OOLL"),
        (ConnectionState::Draining, "DDDDDPDEEEDDDDD-DDDD"),
        (ConnectionState::Closing, "LLLLLEEELELLLLL-LLLL"),
        (ConnectionState::PeerClosing, "PPPPPPPEEEPPPPP-PPPP"),
        (ConnectionState::Ending, "EEEEEEEEEEEEEEE-EEEE"),
        (ConnectionState::Resting, "RRRRRRRRRRRRRRR-RRRR"),
    ];
    let mut wrong = Vec::new();
    for (state, row) in table {
        assert_eq!(row.len(), EVENTS.len());
        let mut seen = String::new();
        for event in EVENTS {
            let mut case = bring(state);
            happen(&mut case, event);
            let after = case.net.hosts[0].endpoint.connection_stats(case.handle).map(|stats| stats.state);
            seen.push(letter(after));
            // Whatever happened: afterwards it goes on, and comes to an end.
            case.net.run_for(60 * SECOND);
            let end = case.net.hosts[0].endpoint.connection_stats(case.handle).map(|stats| stats.state);
            assert_eq!(end, None, "{state:?} then {event:?} comes to an end when the peer is gone");
        }
        if seen != row {
            wrong.push(format!("{state:?}: table {row}, seen {seen}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
