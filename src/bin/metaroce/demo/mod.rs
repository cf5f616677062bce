//! `metaroce demo`: two processes, one Write of everything, and the proof that it arrived.
//!
//! This process sends; it starts the other one, which offers a region of zeros. Once all is written, it asks the other
//! side by a SEND, which is ordered after the WRITEs, for the hash of what lies in that region.

mod link;
mod sender;
mod target;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde::Serialize;

use crate::args::{DemoArgs, OutputArgs};
use crate::backend::{self, BackendKind};
use crate::quantity;
use crate::report::{self, TransportReport, row};

pub(crate) use target::run as run_target;

/// What the program prints at the end.
#[derive(Debug, Serialize)]
struct DemoReport {
    verified: bool,
    size: u64,
    seconds: f64,
    goodput_gbps: f64,
    hash: String,
    loss: f64,
    reorder: bool,
    seed: u64,
    #[serde(flatten)]
    transport: TransportReport,
    /// Datagrams that the sending process really dropped, acknowledgements of its peer not included.
    injected_lost: u64,
    /// Datagrams that the sending process really held back.
    injected_reordered: u64,
    /// Datagrams that the system dropped since a socket's buffer was full, at both ends.
    socket_overflows: u64,
    #[serde(skip)]
    time: Duration,
}

/// Runs the demonstration; `false` when the target's memory is not what was written.
///
/// # Errors
/// When it can't be carried out.
pub(crate) fn run(mut args: DemoArgs, output: OutputArgs) -> anyhow::Result<bool> {
    if backend::chosen() == BackendKind::Xdp {
        bail!(
            "the demonstration runs over loopback, where AF_XDP does not work: take `serve` on one machine and `put` on \
             another"
        );
    }
    let seed = match args.link.seed {
        Some(seed) => seed,
        None => getrandom::u64().context("the system gives no random seed")?,
    };
    args.link.seed = Some(seed);
    let loopback = if args.ipv6 { IpAddr::V6(Ipv6Addr::LOCALHOST) } else { IpAddr::V4(Ipv4Addr::LOCALHOST) };
    let any_port = SocketAddr::new(loopback, 0);
    if !output.json {
        eprintln!(
            "{} over loopback UDP into another process, {} paths, {:.2} % loss each way{}, seed {seed}",
            quantity::bytes(args.size),
            args.link.paths,
            args.link.loss * 100.0,
            if args.link.reorder { ", reordering" } else { "" },
        );
    }
    let prepared = sender::prepare(&args, seed, any_port)?;
    let target = link::TargetProcess::start(&args, any_port, output)?;
    let sent = sender::run(&args, prepared, &target, output)?;
    let received = target.finish()?;
    let report = DemoReport {
        verified: sent.verified,
        size: args.size,
        seconds: sent.time.as_secs_f64(),
        goodput_gbps: quantity::gbps(args.size, sent.time),
        hash: sent.hash,
        loss: args.link.loss,
        reorder: args.link.reorder,
        seed,
        // Those of the target tell; the sender receives next to nothing.
        transport: TransportReport { duplicates: received.duplicates, ..sent.transport },
        injected_lost: sent.driver.injected.lost,
        injected_reordered: sent.driver.injected.reordered,
        socket_overflows: sent.driver.receive_overflows + received.socket_overflows,
        time: sent.time,
    };
    if output.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        print_table(&report);
    }
    Ok(report.verified)
}

fn print_table(report: &DemoReport) {
    let verdict = if report.verified { "yes, the target's memory has the hash of the source" } else { "NO" };
    let mut rows = vec![row("verified", verdict)];
    rows.extend(report::speed_rows(report.size, report.time));
    rows.extend(report.transport.rows());
    rows.push(row("dropped by injected loss", report.injected_lost.to_string()));
    rows.push(row("duplicates at the target", report.transport.duplicates.to_string()));
    rows.push(row("dropped by full socket buffers", report.socket_overflows.to_string()));
    println!("{}\n\n{}", report::summary(rows), report.transport.path_table());
}
