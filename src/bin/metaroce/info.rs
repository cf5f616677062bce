//! `metaroce info`: what this build and this machine have.

use metaroce::Limits;
use metaroce::wire;
use metaroce_mio::DriverConfig;
use serde_json::{Value, json};

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
    let capabilities = fields(&format!("{capabilities:#?}"));
    let limits = fields(&format!("{limits:#?}"));
    if output.json {
        let line = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "wire_version": wire::VERSION,
            "udp_port": wire::UDP_PORT,
            "backend": reactor.driver.backend().name(),
            "capabilities": object(&capabilities),
            "limits": object(&limits),
        });
        println!("{line}");
        return Ok(());
    }
    let mut rows = vec![
        row("version", env!("CARGO_PKG_VERSION")),
        row("wire version", format!("{} (draft)", wire::VERSION)),
        row("UDP port", wire::UDP_PORT.to_string()),
        row("backend", reactor.driver.backend().name()),
    ];
    for (kind, list) in [("capability", capabilities), ("limit", limits)] {
        rows.extend(
            list.iter()
                .map(|(name, value)| row(&format!("{kind}: {}", name.replace('_', " ")), value.as_str())),
        );
    }
    println!("{}", report::summary(rows));
    Ok(())
}

/// The `name: value` lines of a pretty-printed structure.
fn fields(pretty: &str) -> Vec<(String, String)> {
    let lines = pretty.lines().filter_map(|line| line.trim().trim_end_matches(',').split_once(": "));
    lines.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// The same as JSON; a value that is no number or truth value becomes a string.
fn object(fields: &[(String, String)]) -> Value {
    let pair = |(name, value): &(String, String)| {
        (name.clone(), serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.clone())))
    };
    Value::Object(fields.iter().map(pair).collect())
}
