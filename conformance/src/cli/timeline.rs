//! A run as a page to look at: one HTML file with everything in it.

use std::path::Path;

use anyhow::Context;
use metaroce_conformance::sim::Outcome;
use metaroce_conformance::sim::metrics::Sample;
use metaroce_conformance::sim::timeline::{End, Flight, Kind};
use metaroce_conformance::sim::topology::Topology;
use metaroce_conformance::sim::units::{US, ratio};
use serde_json::{Value, json};

/// The page, with a mark where the data go.
const PAGE: &str = include_str!("timeline.html");
const MARK: &str = "/*DATA*/null";

/// Writes the timeline of a run.
pub fn write(file: &Path, title: &str, outcome: &Outcome, topology: &Topology) -> anyhow::Result<()> {
    // `<` could end the script that the data are in.
    let data = document(title, outcome, topology).to_string().replace('<', "\\u003c");
    std::fs::write(file, PAGE.replacen(MARK, &data, 1))
        .with_context(|| format!("can't write {}", file.display()))
}

/// Times in µs since the start of the workload.
fn document(title: &str, outcome: &Outcome, topology: &Topology) -> Value {
    let us = |at_ps: u64| ratio(at_ps.saturating_sub(outcome.start_ps), US);
    let link = |number: u32| {
        let link = topology.links.get(number as usize);
        link.map(|link| format!("{} → {}", topology.name(link.from), topology.name(link.to)))
    };
    let flight = |flight: &Flight| {
        let (end, lost_at) = match flight.end {
            End::Open => (0, None),
            End::Arrived => (1, None),
            End::Gone(number) => (2, link(number)),
        };
        let kind = match flight.kind {
            Kind::Data => 0,
            Kind::Again => 1,
            Kind::Answer => 2,
            Kind::Probe => 3,
            Kind::Other => 4,
        };
        json!([
            us(flight.sent_ps),
            us(flight.end_ps),
            end,
            u8::from(flight.forward),
            kind,
            flight.path,
            flight.plane,
            flight.source_port,
            flight.psn,
            flight.csn,
            flight.bytes,
            u8::from(flight.marked),
            lost_at,
        ])
    };
    let last_us = outcome.flights.iter().map(|flight| us(flight.end_ps)).fold(0.0, f64::max);
    let seen = |sample: &&Sample| ratio(sample.at_ps, US) <= last_us;
    let sample = |sample: &Sample| {
        let paths = sample.paths.iter();
        let paths = paths.map(|path| json!([path.window_bytes, path.inflight_bytes, path.state]));
        json!([ratio(sample.at_ps, US), paths.collect::<Vec<Value>>()])
    };
    json!({
        "title": title,
        "rtt_us": ratio(outcome.rtt_ps, US),
        "flights": outcome.flights.iter().map(flight).collect::<Vec<Value>>(),
        "samples": outcome.samples.iter().filter(seen).map(sample).collect::<Vec<Value>>(),
    })
}
