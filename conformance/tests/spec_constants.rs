//! The defaults in section 15 of `SPEC.md` are those of the code.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use std::path::Path;

use metaroce_core::{Config, Limits};

/// Rows of the table whose defaults are fields: the start of the name, and the field.
type Field = fn(&Config) -> Option<u64>;

const ROWS: [(&str, Field); 21] = [
    ("UDP payload, `mtu_bytes`", |config| Some(config.mtu_bytes.into())),
    ("port of peers, `peer_port`", |config| Some(config.peer_port.into())),
    ("paths per plane", |config| Some(config.paths_per_plane.into())),
    ("burst", |config| Some(config.burst_packets.into())),
    ("reordering tolerance", |config| Some(config.reorder_tolerance.into())),
    ("ACK count", |config| Some(config.ack_packets.into())),
    ("ACK delay", |config| Some(config.ack_delay_ns_max)),
    ("PTO floor", |config| Some(config.pto_ns_min)),
    ("RTO floor", |config| Some(config.rto_ns_min)),
    ("initial RTT", |config| Some(config.rtt_ns_initial)),
    ("delay target", |config| Some(config.delay_target_ns)),
    ("bytes in flight per connection", |config| Some(config.window_bytes_max.into())),
    ("half-open connections per address", |config| Some(config.half_open_per_address.into())),
    ("idle time before a close", |config| config.idle_close_ns),
    ("inbound rate of a plane", |config| Some(config.inbound_rate_kbps.into())),
    ("message window", |config| Some(config.message_window.into())),
    ("initial credits", |config| Some(config.initial_credits.into())),
    ("READs and atomics granted", |config| Some(config.reads_granted.into())),
    ("retry limit of *no receive*", |config| config.rnr_retries.map(u64::from)),
    ("failure time", |config| Some(config.fail_after_ns)),
    ("keepalive time", |config| Some(config.keepalive_ns)),
];

/// A number of the table: `10^7`, `8 × 10^8`, `4 MiB`, `50,000`, `none`.
fn number(text: &str) -> Option<u64> {
    if text == "none" {
        return None;
    }
    let text = text.replace(',', "");
    if let Some(mib) = text.strip_suffix(" MiB") {
        return Some(mib.parse::<u64>().unwrap() << 20);
    }
    let factors = text.split(" × ").map(|factor| match factor.split_once('^') {
        Some((base, exponent)) => base.parse::<u64>().unwrap().pow(exponent.parse().unwrap()),
        None => factor.parse().unwrap_or_else(|_| panic!("{text:?} is no number")),
    });
    Some(factors.product())
}

/// The defaults of a row: for sockets, and for hardware.
fn defaults<'a>(specification: &'a str, name: &str) -> [&'a str; 2] {
    let start = format!("| {name}");
    let (_, constants) = specification.split_once("## 15. Constants").unwrap();
    let row = constants.lines().find(|line| line.starts_with(&start));
    let cells: Vec<_> = row.unwrap_or_else(|| panic!("no row {name}")).split('|').map(str::trim).collect();
    [cells.get(4).copied().unwrap(), cells.get(5).copied().unwrap()]
}

#[test]
fn defaults_of_the_table_are_those_of_the_configuration() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("SPEC.md");
    let text = std::fs::read_to_string(file).unwrap();
    for (name, field) in ROWS {
        let [sockets, hardware] = defaults(&text, name);
        assert_eq!(number(sockets), field(&Config::sockets(1)), "{name}, sockets");
        assert_eq!(number(hardware), field(&Config::hardware(1)), "{name}, hardware");
    }
    let [window, _] = defaults(&text, "CSN window W");
    assert_eq!(number(window), Some(Limits::HOST.csn_window.into()));
}
