//! `metaroce info`: what this build and this machine have.

use metaroce::Limits;
use metaroce::wire;
use metaroce_mio::DriverConfig;
use serde_json::json;

use crate::args::OutputArgs;
use crate::reactor::Reactor;
use crate::report::{self, row};

/// Opens a socket on loopback, and prints what the system was found to support.
///
/// # Errors
/// When not even that socket opens.
pub(crate) fn run(output: OutputArgs) -> anyhow::Result<()> {
    let reactor = Reactor::new(DriverConfig::new("127.0.0.1:0".parse()?)?)?;
    let capabilities = reactor.driver.capabilities();
    let limits = Limits::HOST;
    if output.json {
        let line = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "wire_version": wire::VERSION,
            "udp_port": wire::UDP_PORT,
            "backend": "mio",
            "capabilities": format!("{capabilities:?}"),
            "limits": format!("{limits:?}"),
        });
        println!("{line}");
        return Ok(());
    }
    let mut rows = vec![
        row("version", env!("CARGO_PKG_VERSION")),
        row("wire version", format!("{} (draft)", wire::VERSION)),
        row("UDP port", wire::UDP_PORT.to_string()),
        row("backend", "mio: UDP sockets"),
    ];
    rows.extend(fields("capability", &format!("{capabilities:#?}")));
    rows.extend(fields("limit", &format!("{limits:#?}")));
    println!("{}", report::summary(rows));
    Ok(())
}

/// The `name: value` lines of a pretty-printed structure.
fn fields(kind: &str, pretty: &str) -> Vec<[String; 2]> {
    let lines = pretty.lines().filter_map(|line| line.trim().trim_end_matches(',').split_once(": "));
    lines.map(|(name, value)| row(&format!("{kind}: {}", name.replace('_', " ")), value)).collect()
}
