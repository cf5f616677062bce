//! What every backend works on: the endpoint, the memory and the counters.

use std::fmt;
use std::net::SocketAddr;

use metaroce_core::Endpoint;
use metaroce_core::HeapStorage;
use metaroce_core::config::PLANES_MAX;
use metaroce_core::time::Instant;
use metaroce_core::transmit::Datagram;

use crate::memory::RegionMemory;
use crate::regions::RegionTable;
use crate::stats::DriverStats;
use crate::sys::Received;
use crate::tap::{TapSlot, Tapped, concrete};

/// The parts of a driver that its backend reads and writes.
pub struct Host {
    /// The protocol.
    pub endpoint: Endpoint<HeapStorage>,
    /// The memory of its regions.
    pub regions: RegionTable,
    /// What happened so far.
    pub stats: DriverStats,
    pub(crate) local: Vec<SocketAddr>,
    pub(crate) tap: TapSlot,
    /// Memory of regions that are gone, but that the system did not let go of; it lives as long as the driver.
    pub(crate) unreleased: Vec<RegionMemory>,
    /// The last count of drops that each plane's socket told.
    overflows: [u32; PLANES_MAX],
}

impl Host {
    pub(crate) fn new(endpoint: Endpoint<HeapStorage>, local: Vec<SocketAddr>) -> Self {
        Self {
            endpoint,
            regions: RegionTable::new(),
            stats: DriverStats::default(),
            local,
            tap: TapSlot::default(),
            unreleased: Vec::new(),
            overflows: [0; PLANES_MAX],
        }
    }

    /// Hands a received message to the core, each of its datagrams; returns how many there were. Counts them.
    pub fn hand_in(&mut self, now: Instant, plane: usize, message: &Received, bytes: &[u8]) -> usize {
        if let Some(cumulative) = message.overflows {
            self.on_overflows(plane, cumulative);
        }
        self.stats.bytes_received += bytes.len() as u64;
        if message.truncated {
            self.stats.receive_truncated += 1;
            self.stats.datagrams_received += 1;
            return 1;
        }
        let segments = bytes.chunks(message.segment_bytes.max(1));
        let count = segments.len();
        self.stats.gro_batches += u64::from(count > 1);
        self.stats.datagrams_received += count as u64;
        let local = self.local.get(plane).copied().map(concrete);
        let plane = u8::try_from(plane).unwrap_or(u8::MAX);
        for bytes in segments {
            if let (Some(tap), Some(local)) = (&mut self.tap.0, local) {
                let (source, destination) = (message.source, local);
                tap(&Tapped { at: now, sent: false, source, destination, ecn: message.ecn, bytes });
            }
            let datagram = Datagram { source: message.source, plane, ecn: message.ecn, bytes };
            // What the core drops it counts itself.
            let _ = self.endpoint.handle_datagram(now, datagram, &mut self.regions);
        }
        count
    }

    /// Takes note of the cumulative count of drops that a receive socket reports.
    fn on_overflows(&mut self, plane: usize, cumulative: u32) {
        let Some(last) = self.overflows.get_mut(plane) else { return };
        self.stats.receive_overflows += u64::from(cumulative.wrapping_sub(*last));
        *last = cumulative;
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("local", &self.local).field("stats", &self.stats).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use metaroce_core::config::{Config, Limits};

    use super::*;

    #[test]
    fn overflow_counts_are_differences_even_when_they_wrap() {
        let storage = HeapStorage::new(&Limits::SMALL);
        let mut host =
            Host::new(Endpoint::new(Config::sockets(1), storage).expect("an endpoint"), Vec::new());
        let mut total = 0;
        for (plane, cumulative, new) in [(0, 5, 5), (0, u32::MAX, u32::MAX - 5), (0, 1, 2), (9, 1, 0)] {
            host.on_overflows(plane, cumulative);
            total += u64::from(new);
            assert_eq!(host.stats.receive_overflows, total, "plane {plane}, {cumulative}");
        }
    }
}
