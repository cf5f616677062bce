//! Faults of what a device sends again: copies under new PSNs, which the device behind the shim knows nothing of.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use metaroce_core::ids::{Psn, Serial as _};
use metaroce_core::wire::{AckBody, Base, PacketType, Vector256};

use super::Fault;
use super::hooks::{Hooks, edit_acks, field, is, opcode, set_field};
use crate::suite::in_process::{Inbound, Outbound, Shim};
use crate::suite::wire::seal;

pub(super) const FAULTS: &[Fault] = &[
    Fault::new("sends again without cause", "MR-LOSS-9", "sends every tenth packet twice", || {
        copying(|packet, _| packet.new && packet.number % 10 == 5, |_, _| Vec::new())
    }),
    Fault::new("sends again twice", "MR-LOSS-9", "sends what is lost twice", || {
        copying(|packet, _| !packet.new, |_, _| Vec::new())
    }),
    Fault::new("gap across epochs", "MR-LOSS-4", "applies the gap rule between epochs", || {
        copying(
            |_, _| false,
            |ack, sent| {
                let older = |packet: &&Known| packet.path == ack.path.0 && packet.epoch != ack.epoch;
                sent.iter().filter(older).map(|packet| packet.csn).take(1).collect()
            },
        )
    }),
    Fault::new("refused as lost", "MR-LOSS-5", "sends what was refused again under its CSN", || {
        copying(
            |_, _| false,
            |ack, sent| {
                let told = |packet: &&Known| {
                    packet.path == ack.path.0
                        && !ack.accepted.contains(ack.largest.raw().wrapping_sub(packet.psn))
                        && ack.largest.raw().wrapping_sub(packet.psn) < 64
                };
                sent.iter().filter(told).map(|packet| packet.csn).take(1).collect()
            },
        )
    }),
    Fault::new("a timeout for all", "MR-PATH-16", "sends two packets at a timeout", || {
        copying(|packet, _| !packet.new, |_, _| Vec::new())
    }),
];

/// A packet that goes out.
#[derive(Clone, Debug)]
struct Known {
    path: u8,
    epoch: u8,
    psn: u32,
    csn: u32,
    /// How many DATA packets came before.
    number: usize,
    /// Its CSN goes out for the first time.
    new: bool,
    datagram: Outbound,
}

#[derive(Default)]
struct State {
    /// PSNs of copies, as they stand on the wire, by path.
    inserted: BTreeMap<u8, BTreeSet<u32>>,
    sent: Vec<Known>,
    csns: BTreeSet<u32>,
    copied: BTreeSet<u32>,
    owed: Vec<u32>,
}

/// Copies DATA for which `again` says so when it goes out, and the CSNs that `answer` names when an ACK comes. A CSN is
/// copied for an ACK at most once.
fn copying(
    again: impl Fn(&Known, &[Known]) -> bool + 'static,
    answer: impl Fn(&AckBody, &[Known]) -> Vec<u32> + 'static,
) -> Box<dyn Shim> {
    let state: Rc<RefCell<State>> = Rc::default();
    let (heard, asked) = (Rc::clone(&state), Rc::clone(&state));
    let output = move |datagram: Outbound| state.borrow_mut().send(datagram, &again);
    let input = move |mut datagram: Inbound| {
        heard.borrow_mut().hear(&mut datagram, &answer);
        vec![datagram]
    };
    let volunteer = move || asked.borrow_mut().volunteer();
    Box::new(Hooks {
        input: Some(Box::new(input)),
        output: Some(Box::new(output)),
        volunteer: Some(Box::new(volunteer)),
        ..Hooks::default()
    })
}

impl State {
    fn send(&mut self, mut datagram: Outbound, again: &impl Fn(&Known, &[Known]) -> bool) -> Vec<Outbound> {
        let takes_psn = is(&datagram.bytes, PacketType::Probe) || opcode(&datagram.bytes).is_some();
        if !takes_psn {
            return vec![datagram];
        }
        let path = datagram.bytes.get(2).copied().unwrap_or(0);
        let before = self.inserted.get(&path).map_or(0, BTreeSet::len);
        let psn = field(&datagram.bytes, 8).wrapping_add(u32::try_from(before).unwrap_or(0));
        if before > 0 {
            set_field(&mut datagram.bytes, 8, psn);
            seal(&mut datagram.bytes);
        }
        if opcode(&datagram.bytes).is_none() {
            return vec![datagram];
        }
        let csn = field(&datagram.bytes, 24);
        let known = Known {
            path,
            epoch: datagram.bytes.get(3).copied().unwrap_or(0),
            psn,
            csn,
            number: self.sent.len(),
            new: self.csns.insert(csn),
            datagram: datagram.clone(),
        };
        let copy = again(&known, &self.sent);
        self.sent.push(known);
        let mut out = vec![datagram.clone()];
        if copy {
            out.push(self.copy(path, psn.wrapping_add(1), datagram));
        }
        out
    }

    fn copy(&mut self, path: u8, psn: u32, mut datagram: Outbound) -> Outbound {
        self.inserted.entry(path).or_default().insert(psn);
        set_field(&mut datagram.bytes, 8, psn);
        seal(&mut datagram.bytes);
        datagram
    }

    fn volunteer(&mut self) -> Vec<Outbound> {
        let owed = std::mem::take(&mut self.owed);
        owed.into_iter()
            .filter_map(|csn| {
                let known = self.sent.iter().find(|known| known.csn == csn)?.clone();
                let newest = self.sent.iter().rev().find(|other| other.path == known.path)?.psn;
                let last = self.inserted.get(&known.path).and_then(|all| all.last().copied());
                let psn =
                    last.map_or(newest, |last| if last > newest { last } else { newest }).wrapping_add(1);
                Some(self.copy(known.path, psn, known.datagram))
            })
            .collect()
    }

    fn hear(&mut self, datagram: &mut Inbound, answer: &impl Fn(&AckBody, &[Known]) -> Vec<u32>) {
        if !is(&datagram.bytes, PacketType::Ack) && !is(&datagram.bytes, PacketType::ProbeReply) {
            return;
        }
        if let Some(body) = Base::parse(&datagram.bytes).ok().and_then(|(_, body)| AckBody::parse(body).ok())
            && is(&datagram.bytes, PacketType::Ack)
        {
            for csn in answer(&body.0, &self.sent) {
                if self.copied.insert(csn) {
                    self.owed.push(csn);
                }
            }
        }
        if self.inserted.is_empty() {
            return;
        }
        let inserted = &self.inserted;
        edit_acks(
            &mut datagram.bytes,
            |ack, refused| translate(inserted.get(&ack.path.0), ack, refused),
            |_| true,
        );
        seal(&mut datagram.bytes);
    }
}

/// Writes an acknowledgement anew in the PSNs of the device, which knows no copies.
fn translate(inserted: Option<&BTreeSet<u32>>, ack: &mut AckBody, refused: &mut Vector256) {
    let Some(inserted) = inserted else { return };
    let original = |psn: u32| {
        let before = inserted.range(..psn).count();
        (!inserted.contains(&psn)).then(|| psn.wrapping_sub(u32::try_from(before).unwrap_or(0)))
    };
    let wire = ack.largest.raw();
    let Some(largest) = (0..256).find_map(|bit| original(wire.wrapping_sub(bit))) else { return };
    let moved = |vector: &Vector256| {
        let mut out = Vector256::EMPTY;
        for bit in *vector {
            if let Some(psn) = original(wire.wrapping_sub(bit)) {
                out.insert(largest.wrapping_sub(psn));
            }
        }
        out
    };
    (ack.accepted, *refused) = (moved(&ack.accepted), moved(refused));
    ack.largest = Psn::new(largest);
}
