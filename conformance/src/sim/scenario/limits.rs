//! Sizes of endpoints: each as large as what its host has to hold.

use metaroce_core::Limits;

use super::build::bdp_bytes;
use super::{Spec, WorkloadKind};
use crate::sim::units::from_f64;
use crate::sim::workload::Pair;

/// For each host its limits, and the receives that it keeps posted for each connection.
pub(super) fn limits(spec: &Spec, hosts: u32, pairs: &[Pair]) -> Vec<(Limits, u64)> {
    let mut connections = vec![Vec::new(); hosts as usize];
    for pair in pairs {
        for (host, peer) in [(pair.from, pair.receiver()), (pair.to, pair.sender())] {
            if let Some(list) = connections.get_mut(host as usize) {
                list.push(peer);
            }
        }
    }
    let count = |mut peers: Vec<_>| {
        peers.sort_unstable();
        peers.dedup();
        u32::try_from(peers.len()).unwrap_or(u32::MAX)
    };
    connections.into_iter().map(|peers| of_host(spec, count(peers))).collect()
}

fn of_host(spec: &Spec, peers: u32) -> (Limits, u64) {
    let (fabric, wanted) = (&spec.fabric, &spec.workload);
    let bdp_packets = f64::from(fabric.planes) * bdp_bytes(fabric) / 4_096.0;
    let bdp_packets = u32::try_from(from_f64(bdp_packets)).unwrap_or(u32::MAX >> 8).clamp(64, 1 << 20);
    // Collectives post all slices of a step at once.
    let (receives, posted) = match wanted.kind {
        WorkloadKind::RingAllReduce | WorkloadKind::AllGather | WorkloadKind::HalvingDoubling => (256, 8_192),
        WorkloadKind::List => (0, 4_096),
        _ => (0, 256),
    };
    let paths = u32::from(spec.transport.paths) * fabric.planes;
    let csn_window = if peers > 64 { bdp_packets * 16 / (peers / 64) } else { bdp_packets * 16 };
    // What one connection can have in flight: all that is posted, or two bandwidth-delay products.
    let message = u32::try_from(from_f64(wanted.message_kib / 4.0)).unwrap_or(u32::MAX).max(1);
    let of_peer = message.saturating_mul(wanted.outstanding).min(2 * bdp_packets);
    let limits = Limits {
        connections: peers + 8,
        paths_per_connection: u8::try_from(paths).unwrap_or(64).min(64),
        streams: 2 * peers + 16,
        requests: peers * wanted.outstanding.min(1 << 10) * 2 + posted,
        receives: (receives * (peers + 2)).max(64),
        messages: peers * 64 + posted,
        packets: (bdp_packets * 16).max(2_048).max(peers.saturating_mul(of_peer)).min(1 << 22),
        queues: 1,
        regions: 8,
        csn_window: csn_window.next_power_of_two().clamp(4_096, 1 << 21),
    };
    (limits, u64::from(receives))
}
