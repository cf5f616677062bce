//! The surroundings of a program: configurations, tables, links.

use metaroce_core::{Config, Limits};

use super::flows::pick;
use super::program::Ending;
use crate::{Faults, Random};

/// A configuration of one host: what the defaults leave to chance is set by it.
#[must_use]
pub fn config(random: &mut Random) -> Config {
    let mut config = Config {
        rto_ns_min: 200_000,
        pto_ns_min: 100_000,
        rtt_ns_initial: 50_000,
        ..Config::sockets(random.next_u64())
    };
    let mut choose = |values: &[u32]| {
        let at = pick(random, values.len());
        values.get(at).copied().unwrap_or(1)
    };
    config.initial_credits = choose(&[1, 2, 16]);
    config.message_window = choose(&[2, 8, 1024]);
    config.window_bytes_max = choose(&[9_000, 64 << 10, 4 << 20]);
    config.mtu_bytes = u16::try_from(choose(&[1_232, 1_500, 4_176])).unwrap_or(1_232);
    config.reads_granted = u16::try_from(choose(&[1, 3, 64])).unwrap_or(1);
    config.burst_packets = u8::try_from(choose(&[1, 1, 8])).unwrap_or(1);
    config.ack_packets = u8::try_from(choose(&[1, 8, 64])).unwrap_or(1);
    config.reorder_tolerance = u8::try_from(choose(&[0, 3, 32])).unwrap_or(3);
    config.paths_per_plane = u8::try_from(choose(&[1, 2, 8])).unwrap_or(1);
    config.checksum_wanted = true;
    config
}

pub(super) fn limits(random: &mut Random) -> Limits {
    let small = random.chance(500_000);
    let choose = |random: &mut Random, few: u32, many: u32| if random.chance(500_000) { few } else { many };
    Limits {
        connections: 4,
        paths_per_connection: 8,
        streams: 32,
        requests: 128,
        receives: 96,
        messages: if small { choose(random, 8, 40) } else { 256 },
        packets: if small { choose(random, 16, 64) } else { 2048 },
        regions: 40,
        queues: 2,
        csn_window: if small { choose(random, 64, 128) } else { 1024 },
    }
}

/// Each kind of fault is on or off: one that is always on can hide what another shows.
pub(super) fn faults(random: &mut Random) -> Faults {
    let worst = if random.chance(200_000) { 200_000 } else { 30_000 };
    let mut rate = || {
        let on = random.chance(500_000);
        let rate = u32::try_from(random.below(worst)).unwrap_or(0);
        if on { rate } else { 0 }
    };
    let (loss, duplication, reordering) = (rate(), rate(), rate());
    let (corruption, truncation, marking) = (rate(), rate(), rate());
    Faults {
        loss,
        duplication,
        reordering,
        corruption,
        truncation,
        marking,
        reorder_ns: 1 << (10 + random.below(12)),
        delay_ns: 1 << (8 + random.below(12)),
        byte_ps: 1 << (6 + random.below(8)),
    }
}

pub(super) fn ending(random: &mut Random) -> Ending {
    let by = match random.below(3) {
        0 => [true, false],
        1 => [false, true],
        _ => [true, true],
    };
    Ending { early: random.chance(300_000), by, healed: random.chance(500_000) }
}
