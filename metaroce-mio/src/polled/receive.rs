//! From the receive sockets into the core.

use std::io;

use metaroce_core::time::Instant;

use crate::backend::{DATAGRAMS_PER_ROUND, ReceiveRound};
use crate::host::Host;
use crate::socket::{Capabilities, Sockets};
use crate::sys::{ReceiveBatch, SendFault};

/// Receives batches, one plane after the other.
pub(crate) struct Receiver {
    batch: ReceiveBatch,
    portable: bool,
    /// The plane that is served first next time.
    first_plane: usize,
}

impl Receiver {
    pub(crate) fn new(capabilities: Capabilities, mtu_bytes: usize) -> Self {
        let (slots, slot_bytes) = if capabilities.gro {
            (GRO_SLOTS, GRO_SLOT_BYTES)
        } else {
            (SINGLE_SLOTS, mtu_bytes.max(DATAGRAM_BYTES_MIN) + 1)
        };
        let batch = ReceiveBatch::new(slots, slot_bytes);
        Self { batch, portable: capabilities.portable, first_plane: 0 }
    }

    /// Hands some [`DATAGRAMS_PER_ROUND`] datagrams to the core, then stops, so that acknowledgements go out in time.
    pub(crate) fn receive(
        &mut self,
        now: Instant,
        sockets: &Sockets,
        host: &mut Host,
    ) -> io::Result<ReceiveRound> {
        let planes = sockets.planes();
        let mut round = ReceiveRound { datagrams: 0, drained: true };
        for offset in 0..planes {
            let plane = (self.first_plane + offset) % planes;
            let drained = self.drain_plane(now, plane, &mut round.datagrams, sockets, host)?;
            round.drained &= drained;
            if round.datagrams >= DATAGRAMS_PER_ROUND {
                // The planes not looked at may have something too.
                round.drained = drained && offset + 1 == planes && round.drained;
                self.first_plane = (plane + 1) % planes;
                break;
            }
        }
        Ok(round)
    }

    /// Receives from one plane until it is empty (`true`) or the round is full.
    fn drain_plane(
        &mut self,
        now: Instant,
        plane: usize,
        datagrams: &mut usize,
        sockets: &Sockets,
        host: &mut Host,
    ) -> io::Result<bool> {
        let mut errors = 0;
        while *datagrams < DATAGRAMS_PER_ROUND {
            let Some(socket) = sockets.receiving(plane) else { return Ok(true) };
            host.stats.receive_calls += 1;
            host.stats.system_calls += 1;
            match self.batch.receive(socket, self.portable) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(error) if errors < ERRORS_PER_ROUND && is_passing(&error) => {
                    host.stats.receive_errors += 1;
                    errors += 1;
                    continue;
                }
                Err(error) => return Err(error),
            }
            for (message, bytes) in self.batch.messages() {
                *datagrams += host.hand_in(now, plane, message, bytes);
            }
            if self.batch.drained() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Whether an error on receiving says nothing about the socket: an ICMP message about an earlier send, or a signal.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        SendFault::of(error),
        SendFault::Refused
            | SendFault::Unreachable
            | SendFault::TooLarge
            | SendFault::NoBuffers
            | SendFault::Interrupted
            | SendFault::Forbidden
    )
}

/// Passing errors that are skipped in one round.
const ERRORS_PER_ROUND: usize = 64;

/// Messages of one call with coalescing, each of up to 64 KiB: some 120 full datagrams.
const GRO_SLOTS: usize = 8;
const GRO_SLOT_BYTES: usize = 65_536;

/// Messages of one call without coalescing.
const SINGLE_SLOTS: usize = 64;

/// Room for the smallest legal datagram size and then some.
const DATAGRAM_BYTES_MIN: usize = 2048;
