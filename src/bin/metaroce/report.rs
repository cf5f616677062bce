//! What a transfer did, for people and for programs.

use std::time::Duration;

use comfy_table::{CellAlignment, LineStyle, Table, presets};
use metaroce::{ConnectionHandle, ConnectionStats, Endpoint, PathId, PathStats, Storage};
use serde::Serialize;

use crate::quantity;

/// Counters of one connection as seen by its sender, in the names that `--json` prints.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct TransportReport {
    /// Data packets sent, retransmissions included.
    pub(crate) packets_sent: u64,
    /// Payload bytes sent, retransmissions included.
    pub(crate) bytes_sent: u64,
    /// Packets declared lost by the gap rule or the time rule.
    pub(crate) lost: u64,
    /// Packets sent again by the gap rule or the time rule.
    pub(crate) retransmitted: u64,
    /// Packets declared lost by these rules that turned out to have arrived.
    pub(crate) spurious: u64,
    /// Packets sent again by a timeout.
    pub(crate) retransmitted_by_timeout: u64,
    /// Packets that the peer refused (no receive posted in time, for example).
    pub(crate) refused: u64,
    /// Data packets accepted from the peer.
    pub(crate) packets_received: u64,
    /// Data packets received again after they had been judged.
    pub(crate) duplicates: u64,
    /// The paths.
    pub(crate) paths: Vec<PathReport>,
}

/// One path.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PathReport {
    pub(crate) path: u8,
    pub(crate) plane: u8,
    pub(crate) source_port: u16,
    pub(crate) state: &'static str,
    pub(crate) epoch: u8,
    pub(crate) rtt_us_base: f64,
    pub(crate) rtt_us_smoothed: f64,
    pub(crate) rtt_us_latest: f64,
    pub(crate) window_bytes: u64,
    pub(crate) mtu_bytes: u16,
    pub(crate) packets_sent: u64,
    pub(crate) packets_delivered: u64,
    pub(crate) packets_lost: u64,
    pub(crate) packets_marked: u64,
    pub(crate) timeouts: u64,
    pub(crate) repaths: u32,
    #[serde(skip)]
    rtt_ns_smoothed: u64,
}

impl TransportReport {
    /// From the counters of an endpoint's connection; zeros when it is gone.
    pub(crate) fn of<S: Storage>(endpoint: &mut Endpoint<S>, connection: ConnectionHandle) -> Self {
        let stats = endpoint.connection_stats(connection).unwrap_or_default();
        Self::new(&stats, paths(endpoint, connection))
    }

    fn new(connection: &ConnectionStats, paths: impl IntoIterator<Item = PathStats>) -> Self {
        Self {
            packets_sent: connection.packets_sent,
            bytes_sent: connection.bytes_sent,
            lost: connection.lost,
            retransmitted: connection.retransmitted,
            spurious: connection.spurious,
            retransmitted_by_timeout: connection.retransmitted_by_timeout,
            refused: connection.refused,
            packets_received: connection.packets_accepted,
            duplicates: connection.duplicates_received,
            paths: paths.into_iter().map(|path| PathReport::new(&path)).collect(),
        }
    }

    /// The lines of a table that tell about packets.
    pub(crate) fn rows(&self) -> Vec<[String; 2]> {
        let share = |count| format!("{count}  ({:.2} %)", quantity::percent(count, self.packets_sent));
        vec![
            row("packets sent", self.packets_sent.to_string()),
            row("declared lost", share(self.lost)),
            row("retransmitted", share(self.retransmitted)),
            row("… of these needlessly (spurious)", self.spurious.to_string()),
            row("retransmitted by timeout", share(self.retransmitted_by_timeout)),
        ]
    }

    /// A table with a line for each path.
    pub(crate) fn path_table(&self) -> Table {
        let mut table = new_table();
        table.set_header([
            "path", "plane", "port", "state", "RTT", "window", "sent", "lost", "marked", "timeouts",
            "repaths",
        ]);
        for path in &self.paths {
            let loss = quantity::percent(path.packets_lost, path.packets_sent);
            let marks = quantity::percent(path.packets_marked, path.packets_delivered);
            table.add_row([
                path.path.to_string(),
                path.plane.to_string(),
                path.source_port.to_string(),
                path.state.to_owned(),
                quantity::nanos(path.rtt_ns_smoothed),
                quantity::bytes(path.window_bytes),
                path.packets_sent.to_string(),
                format!("{} ({loss:.2} %)", path.packets_lost),
                format!("{} ({marks:.2} %)", path.packets_marked),
                path.timeouts.to_string(),
                path.repaths.to_string(),
            ]);
        }
        align_right(&mut table, &[0, 1, 2, 4, 5, 6, 7, 8, 9, 10]);
        table
    }
}

impl PathReport {
    fn new(path: &PathStats) -> Self {
        Self {
            path: path.path.0,
            plane: path.plane,
            source_port: path.source_port,
            state: path.state.name(),
            epoch: path.epoch,
            rtt_us_base: micros(path.rtt_ns_base),
            rtt_us_smoothed: micros(path.rtt_ns_smoothed),
            rtt_us_latest: micros(path.rtt_ns_latest),
            window_bytes: path.window_bytes,
            mtu_bytes: path.mtu_bytes,
            packets_sent: path.packets_sent,
            packets_delivered: path.packets_delivered,
            packets_lost: path.packets_lost,
            packets_marked: path.packets_marked,
            timeouts: path.timeouts,
            repaths: path.repaths,
            rtt_ns_smoothed: path.rtt_ns_smoothed,
        }
    }
}

/// All paths of a connection.
pub(crate) fn paths<S: Storage>(
    endpoint: &mut Endpoint<S>,
    connection: ConnectionHandle,
) -> impl Iterator<Item = PathStats> {
    (0..).map_while(move |path| endpoint.path_stats(connection, PathId(path)))
}

/// A table of names and values.
pub(crate) fn summary(rows: impl IntoIterator<Item = [String; 2]>) -> Table {
    let mut table = new_table();
    table.add_rows(rows);
    table
}

/// One line of a [`summary`].
pub(crate) fn row(name: &str, value: impl Into<String>) -> [String; 2] {
    [name.to_owned(), value.into()]
}

/// The lines of a summary that tell about amount and speed.
pub(crate) fn speed_rows(bytes: u64, time: Duration) -> Vec<[String; 2]> {
    vec![
        row("bytes", format!("{} ({bytes})", quantity::bytes(bytes))),
        row("time", format!("{:.3} s", time.as_secs_f64())),
        row("goodput", format!("{:.3} Gbit/s", quantity::gbps(bytes, time))),
    ]
}

fn new_table() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING.header_separator(LineStyle::none().fill('─').junction('─')));
    table
}

fn align_right(table: &mut Table, columns: &[usize]) {
    for &index in columns {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a time shown with three decimals")]
fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1e3
}
