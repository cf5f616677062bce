//! From the core into the ring.

use std::io;
use std::net::SocketAddr;

use metaroce_core::Ecn;
use metaroce_core::transmit::{SourcePort, Transmit};
use metaroce_mio::Host;
use metaroce_mio::backend::{Outcome, Packet};
use metaroce_mio::sys::{Target, destination};

use crate::files::Admission;
use crate::sys::slots::Means;
use crate::uring::Uring;

/// Where a send goes, and how large it is.
#[derive(Clone, Copy)]
struct Shipment {
    to: SocketAddr,
    plane: u8,
    source: SourcePort,
    ecn: Ecn,
    datagrams: usize,
    bytes: usize,
    segment_bytes: Option<u16>,
}

/// A slot for a send, or why there is none.
enum Place {
    Slot(u32),
    None(Outcome),
}

impl Uring {
    /// Takes up a run of datagrams.
    pub(crate) fn send(&mut self, run: &[Transmit], host: &mut Host) -> Outcome {
        let Some(first) = run.first() else { return Outcome::Gone };
        let segmented = run.len() > 1;
        let shipment = Shipment {
            to: first.destination,
            plane: first.plane,
            source: first.source,
            ecn: first.ecn,
            datagrams: run.len(),
            bytes: run.iter().map(Transmit::datagram_length).sum(),
            segment_bytes: if segmented { u16::try_from(first.datagram_length()).ok() } else { None },
        };
        let index = match self.place(&shipment, host) {
            Place::Slot(index) => index,
            Place::None(outcome) => return outcome,
        };
        if !self.slots.get_mut(index).is_some_and(|slot| slot.fill(run, &host.regions)) {
            host.stats.stale_payloads += run.len() as u64;
            self.slots.release(index);
            return Outcome::Gone;
        }
        self.launch(index, &shipment, host)
    }

    /// Takes up a copy of a datagram.
    pub(crate) fn send_copy(&mut self, packet: &Packet<'_>, host: &mut Host) -> Outcome {
        let shipment = Shipment {
            to: packet.destination,
            plane: packet.plane,
            source: packet.source,
            ecn: packet.ecn,
            datagrams: 1,
            bytes: packet.bytes.len(),
            segment_bytes: None,
        };
        let index = match self.place(&shipment, host) {
            Place::Slot(index) => index,
            Place::None(outcome) => return outcome,
        };
        if let Some(slot) = self.slots.get_mut(index) {
            slot.fill_bytes(packet.bytes);
        }
        self.launch(index, &shipment, host)
    }

    /// Finds a slot, if the socket may be sent from.
    fn place(&mut self, shipment: &Shipment, host: &mut Host) -> Place {
        let (plane, source) = (shipment.plane, shipment.source);
        if !self.files.is_registered() && !self.sockets.is_open(plane, source) {
            // Opening a socket may close another, which requests name by its descriptor.
            if self.ring.submit_all().is_err() {
                return Place::None(Outcome::Later);
            }
        }
        let Some(outlet) = self.sockets.outlet(plane, source) else {
            host.stats.send_errors.unroutable += shipment.datagrams as u64;
            return Place::None(Outcome::Gone);
        };
        if destination(shipment.to, outlet.v6).is_none() {
            host.stats.send_errors.unreachable += shipment.datagrams as u64;
            return Place::None(Outcome::Gone);
        }
        let file = match self.files.file(&mut self.ring, &outlet) {
            Ok(file) => file,
            Err(error) => {
                self.failure = Some(error);
                return Place::None(Outcome::Gone);
            }
        };
        let socket = outlet.slot;
        if self.files.admit(&outlet, shipment.bytes, shipment.segment_bytes, &mut self.other_calls)
            == Admission::After
        {
            self.hurry(host);
            let Some(outlet) = self.sockets.outlet(plane, source) else {
                return Place::None(Outcome::Gone);
            };
            if self.files.admit(&outlet, shipment.bytes, shipment.segment_bytes, &mut self.other_calls)
                == Admission::After
            {
                host.stats.send_errors.would_block += 1;
                return Place::None(Outcome::Later);
            }
        }
        let mut taken = self.slots.take();
        if taken.is_none() {
            self.hurry(host);
            taken = self.slots.take();
        }
        let Some(index) = taken else { return Place::None(Outcome::Later) };
        if let Some(slot) = self.slots.get_mut(index) {
            slot.job.socket = socket;
            slot.job.file = Some(file);
            slot.job.plane = plane;
        }
        Place::Slot(index)
    }

    /// Makes the request of a slot that is filled.
    fn launch(&mut self, index: u32, shipment: &Shipment, host: &mut Host) -> Outcome {
        let v6 = self.planes_v6(shipment.plane);
        let Some(to) = destination(shipment.to, v6) else { return Outcome::Gone };
        let means = self.means(index, shipment, host);
        let Some(slot) = self.slots.get_mut(index) else { return Outcome::Gone };
        let target = Target {
            to: shipment.to,
            socket_v6: v6,
            ecn: shipment.ecn,
            segment_bytes: shipment.segment_bytes,
            portable: false,
        };
        slot.aim(to, target);
        slot.job.means = means;
        let socket = slot.job.socket;
        self.stats.zero_copy_sends += u64::from(means != Means::Copied);
        self.stats.registered_sends += u64::from(matches!(means, Means::Registered(_)));
        host.stats.send_calls += 1;
        self.files.on_sent(socket, shipment.bytes, shipment.segment_bytes);
        self.submit_slot(index);
        self.collected_bytes += shipment.bytes;
        self.collected += 1;
        if self.collected_bytes >= self.submit_bytes || self.collected >= self.quota {
            self.quota = self.quota.saturating_mul(2);
            self.hurry(host);
        }
        Outcome::Gone
    }

    /// How the send of a slot is to go out. Its region may get registered here.
    fn means(&mut self, index: u32, shipment: &Shipment, host: &Host) -> Means {
        let Some(slot) = self.slots.get_mut(index) else { return Means::Copied };
        let (plane, to, bytes) = (shipment.plane, shipment.to.ip(), shipment.bytes);
        if self.zero_copy.wants_registered(plane, to, bytes)
            && let Some(buffer) = self.registered.adopt(&self.ring, index, slot, &host.regions)
        {
            return Means::Registered(buffer);
        }
        let direct = slot.can_be_direct() && self.zero_copy.wants(plane, to, bytes);
        if direct { Means::Direct } else { Means::Copied }
    }

    /// Gives the ring what a slot says; if that fails the backend is useless.
    pub(crate) fn submit_slot(&mut self, index: u32) {
        if let Err(error) = self.slots.submit(index, &mut self.ring) {
            self.failure = Some(error);
            self.finish(index);
        }
    }

    /// Sends again what the system had no buffers for.
    pub(crate) fn repeat(&mut self) -> io::Result<()> {
        self.repeat_at = None;
        while let Some(index) = self.repeats.pop_front() {
            self.slots.submit(index, &mut self.ring)?;
        }
        Ok(())
    }

    /// Gives up a send that the kernel has no request for.
    pub(crate) fn drop_unsubmitted(&mut self, index: u32) {
        if let Some(at) = self.repeats.iter().position(|waiting| *waiting == index) {
            self.repeats.remove(at);
            self.finish(index);
            if self.slots.get_mut(index).is_some_and(|slot| slot.job.notices == 0) {
                self.slots.release(index);
            }
        }
    }

    /// Has the kernel work on what it was not given yet.
    fn hurry(&mut self, host: &mut Host) {
        self.collected_bytes = 0;
        self.collected = 0;
        if let Err(error) = self.ring.submit() {
            self.failure = Some(error);
        }
        self.poll(host);
    }

    fn planes_v6(&self, plane: u8) -> bool {
        self.sockets.local_addresses().nth(plane.into()).is_some_and(|local| local.is_ipv6())
    }
}

/// When to try again what the system had no buffers for, ns.
pub(crate) const REPEAT_NS: u64 = 1_000_000;
