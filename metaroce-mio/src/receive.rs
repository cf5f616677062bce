//! From the receive sockets into the core.

use std::io;

use metaroce_core::Endpoint;
use metaroce_core::HeapStorage;
use metaroce_core::time::Instant;
use metaroce_core::transmit::Datagram;

use crate::regions::RegionTable;
use crate::socket::{Capabilities, Sockets};
use crate::stats::DriverStats;
use crate::sys::{ReceiveBatch, SendFault};
use crate::tap::{Tapped, concrete};

/// Receives batches, one plane after the other.
pub(crate) struct Receiver {
    batch: ReceiveBatch,
    portable: bool,
    /// The plane that is served first next time.
    first_plane: usize,
}

/// What one round of receiving brought.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReceiveRound {
    /// Datagrams.
    pub(crate) datagrams: usize,
    /// Whether all sockets were found empty.
    pub(crate) drained: bool,
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
        sockets: &mut Sockets,
        endpoint: &mut Endpoint<HeapStorage>,
        regions: &mut RegionTable,
        stats: &mut DriverStats,
    ) -> io::Result<ReceiveRound> {
        let planes = sockets.planes();
        let mut round = ReceiveRound { datagrams: 0, drained: true };
        for offset in 0..planes {
            let plane = (self.first_plane + offset) % planes;
            let drained =
                self.drain_plane(now, plane, &mut round.datagrams, sockets, endpoint, regions, stats)?;
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
    #[expect(clippy::too_many_arguments, reason = "the parts of the driver, borrowed one by one")]
    fn drain_plane(
        &mut self,
        now: Instant,
        plane: usize,
        datagrams: &mut usize,
        sockets: &mut Sockets,
        endpoint: &mut Endpoint<HeapStorage>,
        regions: &mut RegionTable,
        stats: &mut DriverStats,
    ) -> io::Result<bool> {
        let mut errors = 0;
        while *datagrams < DATAGRAMS_PER_ROUND {
            let Some(socket) = sockets.receiving(plane) else { return Ok(true) };
            stats.receive_calls += 1;
            match self.batch.receive(socket, self.portable) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(error) if errors < ERRORS_PER_ROUND && is_passing(&error) => {
                    stats.receive_errors += 1;
                    errors += 1;
                    continue;
                }
                Err(error) => return Err(error),
            }
            *datagrams += self.hand_in(now, plane, sockets, endpoint, regions, stats);
            if self.batch.drained() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Hands each datagram of the batch to the core; returns how many there were.
    fn hand_in(
        &mut self,
        now: Instant,
        plane: usize,
        sockets: &mut Sockets,
        endpoint: &mut Endpoint<HeapStorage>,
        regions: &mut RegionTable,
        stats: &mut DriverStats,
    ) -> usize {
        let mut datagrams = 0;
        let local = sockets.local_addresses().nth(plane).map(concrete);
        for (message, bytes) in self.batch.messages() {
            if let Some(cumulative) = message.overflows {
                stats.receive_overflows += u64::from(sockets.on_overflows(plane, cumulative));
            }
            stats.bytes_received += bytes.len() as u64;
            if message.truncated {
                stats.receive_truncated += 1;
                datagrams += 1;
                continue;
            }
            let segments = bytes.chunks(message.segment_bytes.max(1));
            stats.gro_batches += u64::from(segments.len() > 1);
            datagrams += segments.len();
            for bytes in segments {
                let plane = u8::try_from(plane).unwrap_or(u8::MAX);
                if let (Some(tap), Some(local)) = (&mut sockets.tap.0, local) {
                    let (source, destination) = (message.source, local);
                    tap(&Tapped { at: now, sent: false, source, destination, ecn: message.ecn, bytes });
                }
                let datagram = Datagram { source: message.source, plane, ecn: message.ecn, bytes };
                // What the core drops it counts itself.
                let _ = endpoint.handle_datagram(now, datagram, regions);
            }
        }
        stats.datagrams_received += datagrams as u64;
        datagrams
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

/// Datagrams handed in before the core is asked for acknowledgements; a batch may pass it by its own size. The core's
/// vector of received packets spans 256 on each path.
const DATAGRAMS_PER_ROUND: usize = 128;

/// Passing errors that are skipped in one round.
const ERRORS_PER_ROUND: usize = 64;

/// Messages of one call with coalescing, each of up to 64 KiB: some 120 full datagrams.
const GRO_SLOTS: usize = 8;
const GRO_SLOT_BYTES: usize = 65_536;

/// Messages of one call without coalescing.
const SINGLE_SLOTS: usize = 64;

/// Room for the smallest legal datagram size and then some.
const DATAGRAM_BYTES_MIN: usize = 2048;
