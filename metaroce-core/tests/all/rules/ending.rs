//! Section 13: closing.

use std::collections::BTreeSet;

use metaroce_core::ids::{Csn, Serial, WireConnectionId};
use metaroce_core::wire::{Close, Control, Opcode, PacketType, Reset, ResetProof};
use metaroce_core::{
    CloseMode, CloseReason, ConnectOptions, ConnectionState, Disposition, DropReason, Event, ProtectionDomain,
};

use super::script::Script;
use super::tape::{Sent, id, nonce};
use crate::common::MS;

impl Script {
    /// The xor of both nonces.
    fn xor(&self) -> u64 {
        nonce(&self.tape, 0) ^ nonce(&self.tape, 1)
    }

    /// CLOSE or `CLOSE_ACK` as the peer would send it.
    fn close(&self) -> Close {
        let sender = WireConnectionId(id(&self.tape, 0));
        Close { reason: 0, next_csn: self.csn, sender, nonce_xor: self.xor(), quote: None }
    }

    fn control(&mut self, control: &Control<'_>) -> Disposition {
        self.control_from(self.address(), control)
    }

    fn control_from(&mut self, source: std::net::SocketAddr, control: &Control<'_>) -> Disposition {
        let base = self.base(PacketType::Control, 0, metaroce_core::ids::Psn::new(0));
        let base = metaroce_core::wire::Base { timestamp: 0, ..base };
        self.inject_from(source, base, |out| control.emit(out).unwrap())
    }

    fn state(&mut self) -> Option<ConnectionState> {
        let connection = self.pair.connection[1];
        self.pair.net.hosts[1].endpoint.connection_stats(connection).map(|stats| stats.state)
    }
}

fn closes(sent: &[Sent]) -> Vec<(u8, Close)> {
    let of = |sent: &Sent| match sent.control() {
        Some(Control::Close(close)) => Some((6, close)),
        Some(Control::CloseAck(close)) => Some((7, close)),
        _ => None,
    };
    sent.iter().filter_map(of).collect()
}

const BAD_PROOF: Disposition = Disposition::Dropped(DropReason::BadProof);

#[test]
//= MR-CLS-3 test
//= MR-HS-9 test
fn close_carries_its_proof_and_one_without_is_dropped() {
    let mut script = Script::new(1);
    let close = script.close();
    let other_id = WireConnectionId(close.sender.0 ^ 1);
    for (what, wrong) in [
        ("id", Close { sender: other_id, ..close }),
        ("nonces", Close { nonce_xor: close.nonce_xor ^ 1, ..close }),
    ] {
        assert_eq!(script.control(&Control::Close(wrong)), BAD_PROOF, "{what}");
        assert_eq!(script.control(&Control::CloseAck(wrong)), BAD_PROOF, "{what}");
    }
    let stranger = "10.0.0.9:4795".parse().unwrap();
    assert_eq!(script.control_from(stranger, &Control::Close(close)), BAD_PROOF, "another address");
    assert_eq!(script.state(), Some(ConnectionState::Open));
    assert_eq!(script.control(&Control::Close(close)), Disposition::Consumed);
    let sent = script.sent();
    let [(7, answer)] = closes(&sent)[..] else { panic!("a CLOSE_ACK: {sent:?}") };
    assert_eq!((answer.sender.0, answer.nonce_xor, answer.quote), (script.id, script.xor(), None));
    assert_eq!(answer.next_csn, Csn::new(nonce(&script.tape, 1) as u32), "no DATA was sent");
}

#[test]
//= MR-CLS-10 test
fn an_id_at_rest_answers_close_and_quotes_data_and_probes() {
    let mut script = Script::new(2);
    let close = script.close();
    script.control(&Control::Close(close));
    script.run(MS);
    assert_eq!(script.state(), Some(ConnectionState::Resting), "the connection is over");
    script.sent();
    let at_rest = Disposition::Dropped(DropReason::UnexpectedState);
    script.control(&Control::Close(close));
    assert_eq!(
        closes(&script.sent()).iter().map(|(kind, close)| (*kind, close.quote)).collect::<Vec<_>>(),
        [(7, None)]
    );
    let send = script.send(0, 0, 4);
    for probe in [false, true] {
        let result = if probe {
            script.probe(1, metaroce_core::StreamId::NONE, 5)
        } else {
            script.data(1, send, b"abcd")
        };
        assert_eq!(result, at_rest);
        let sent = script.sent();
        let [(7, answer)] = closes(&sent)[..] else { panic!("a CLOSE_ACK: {sent:?}") };
        let quote = metaroce_core::wire::Base::parse(&answer.quote.unwrap()).unwrap().0;
        assert_eq!((quote.path.0, quote.psn.plus(1), quote.timestamp), (1, script.psn[1], 77));
        assert_eq!(quote.connection.0, script.id);
    }
}

#[test]
//= MR-CLS-11 test
fn a_close_ack_out_of_the_blue_is_believed_if_it_quotes_what_is_in_flight() {
    let mut script = Script::new(3);
    script.pair.write(1, 0, 1, 0..10, 0, None);
    let sent = script.sent().into_iter().find(|sent| sent.data().is_some()).unwrap();
    let close = script.close();
    assert_eq!(script.control(&Control::CloseAck(close)), BAD_PROOF, "no quote");
    let quote: [u8; 20] = sent.bytes[..20].try_into().unwrap();
    for (at, what) in [(2, "path"), (11, "PSN"), (15, "timestamp")] {
        let mut wrong = quote;
        wrong[at] ^= 1;
        let answer = Control::CloseAck(Close { quote: Some(wrong), ..close });
        assert_eq!(script.control(&answer), BAD_PROOF, "another {what}");
    }
    assert_eq!(script.state(), Some(ConnectionState::Open));
    let answer = Control::CloseAck(Close { quote: Some(quote), ..close });
    assert_eq!(script.control(&answer), Disposition::Consumed);
    script.run(MS);
    let events = script.pair.net.hosts[1].take_events();
    assert!(matches!(events.last(), Some(Event::Closed { reason: CloseReason::Peer, .. })), "{events:?}");
}

#[test]
//= MR-CLS-15 test
fn a_reset_with_ids_is_believed_with_both_ids_and_nonces_from_the_peers_port() {
    let mut script = Script::new(4);
    let (yours, mine) = (WireConnectionId(script.id), WireConnectionId(id(&script.tape, 0)));
    let nonce_xor = script.xor();
    let reset =
        |yours, mine, nonce_xor| Control::Reset(Reset { proof: ResetProof::Ids { yours, mine, nonce_xor } });
    for wrong in [
        reset(WireConnectionId(yours.0 ^ 1), mine, nonce_xor),
        reset(yours, WireConnectionId(mine.0 ^ 1), nonce_xor),
        reset(yours, mine, nonce_xor ^ 1),
    ] {
        assert_eq!(script.control(&wrong), BAD_PROOF, "{wrong:?}");
    }
    let right = reset(yours, mine, nonce_xor);
    let port = std::net::SocketAddr::new(script.address().ip(), 9);
    assert_eq!(script.control_from(port, &right), BAD_PROOF, "another port");
    assert_eq!(script.state(), Some(ConnectionState::Open));
    assert_eq!(script.control(&right), Disposition::Consumed);
    script.run(MS);
    let events = script.pair.net.hosts[1].take_events();
    assert!(matches!(events.last(), Some(Event::Closed { reason: CloseReason::Reset, .. })), "{events:?}");
}

#[test]
//= MR-CLS-20 test
fn what_waits_for_credit_is_sent_when_the_peer_has_closed() {
    let mut script = Script::with(5, |_, config, _| config.initial_credits = 2);
    for id in 0..5 {
        script.pair.send(1, 0, id, 0..10);
    }
    let sends = |script: &mut Script| {
        let sent = script.sent();
        let sends = sent.iter().filter_map(Sent::data).filter(|header| header.opcode == Opcode::Send);
        sends.map(|header| header.msn.raw()).collect::<BTreeSet<_>>()
    };
    assert_eq!(sends(&mut script), BTreeSet::from([0, 1]), "no more credit");
    let close = script.close();
    script.control(&Control::Close(close));
    assert!(sends(&mut script).is_superset(&BTreeSet::from([2, 3, 4])), "no credit is granted any more");
}

#[test]
//= MR-CLS-3 test
//= MR-CLS-1 test
fn the_close_of_this_end_bears_its_next_csn() {
    let mut script = Script::new(6);
    script.pair.write(1, 0, 1, 0..10, 0, None);
    let write = script.sent().into_iter().find(|sent| sent.data().is_some()).unwrap();
    script.pair.close(1, CloseMode::Drain);
    assert!(closes(&script.sent()).is_empty(), "the WRITE has no verdict yet");
    script.ack(write.base().path.0, write.base().psn, &[0], &[]);
    let sent = script.sent();
    let [(6, close)] = closes(&sent)[..] else { panic!("a CLOSE: {sent:?}") };
    assert_eq!(close.next_csn, write.data().unwrap().csn.plus(1));
    assert_eq!((close.sender.0, close.nonce_xor), (script.id, script.xor()));
}

#[test]
//= MR-CLS-22 test
fn an_accept_that_finds_the_connector_gone_draws_a_reset() {
    let (mut net, tape) = super::tape::network(7, metaroce_conformance::Faults::NONE, |_, _, _| {});
    let remote = net.hosts[1].address;
    let now = net.now();
    let ours = net.hosts[0].endpoint.connect(now, ConnectOptions::to(remote)).unwrap();
    net.run_for(MS / 10);
    let now = net.now();
    net.hosts[0].endpoint.close(now, ours, CloseMode::Drain).unwrap();
    net.run_for(MS / 10);
    let theirs = net.hosts[1].take_events().into_iter().find_map(|event| match event {
        Event::Incoming { connection, .. } => Some(connection),
        _ => None,
    });
    let now = net.now();
    net.hosts[1].endpoint.accept(now, theirs.unwrap(), ProtectionDomain(0), b"").unwrap();
    net.run_for(MS);
    let events = net.hosts[1].take_events();
    assert!(matches!(events[..], [Event::Closed { reason: CloseReason::Reset, .. }]), "{events:?}");
    let tape = tape.borrow();
    let accept = tape.0.iter().find(|sent| sent.from == 1 && sent.hello().is_some()).unwrap();
    let reset = tape.0.iter().find(|sent| matches!(sent.control(), Some(Control::Reset(_)))).unwrap();
    assert!(reset.bytes.len() <= accept.bytes.len());
}
