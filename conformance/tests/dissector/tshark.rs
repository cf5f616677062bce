//! Captures, and what tshark says of them.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use metaroce_conformance::trace::PcapWriter;
use metaroce_core::Ecn;

/// Sent before the fields of a test's own: what every packet must say.
const COMMON: &[&str] = &["frame.protocols", "_ws.malformed", "_ws.lua.error", "_ws.expert.severity"];

/// Severity of an error, as `_ws.expert.severity` has it.
const ERROR: u32 = 0x0080_0000;

/// One packet, as tshark sees it.
#[derive(Debug)]
pub struct Row {
    /// Whether the dissector took it.
    pub is_metaroce: bool,
    /// Whether some dissector reports an error.
    pub has_error: bool,
    /// The fields asked for; several values of one are joined by `;`.
    pub fields: Vec<String>,
}

/// Whether there is a tshark; says so if not.
pub fn is_missing() -> bool {
    let missing =
        Command::new("tshark").arg("--version").output().is_err_and(|e| e.kind() == ErrorKind::NotFound);
    if missing {
        println!("skipped: tshark not found");
    }
    missing
}

/// A place for a file of one test.
pub fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Writes datagrams from `source` to `destination`, one a microsecond.
pub fn write(name: &str, source: &str, destination: &str, packets: &[Vec<u8>]) -> PathBuf {
    let path = file(name);
    let output = std::io::BufWriter::new(std::fs::File::create(&path).unwrap());
    let mut writer = PcapWriter::new(output).unwrap();
    let [source, destination]: [SocketAddr; 2] = [source, destination].map(|text| text.parse().unwrap());
    for (time_us, bytes) in (1_800_000_000_000_000..).zip(packets) {
        writer.write(time_us * 1_000, source, destination, Ecn::Ect0, bytes).unwrap();
    }
    writer.finish().unwrap();
    path
}

/// Runs tshark with the dissector on a capture.
pub fn dissect(capture: &PathBuf, fields: &[&str], options: &[&str]) -> Vec<Row> {
    let script = concat!("lua_script:", env!("CARGO_MANIFEST_DIR"), "/wireshark/metaroce.lua");
    // Not the user's own settings, which may hold another copy of the dissector.
    let home = file("home");
    std::fs::create_dir_all(&home).unwrap();
    let mut command = Command::new("tshark");
    command.env("HOME", &home).env("XDG_CONFIG_HOME", &home).env_remove("WIRESHARK_CONFIG_DIR");
    command.args(["-n", "-X", script, "-T", "fields", "-E", "separator=/t", "-E", "aggregator=;"]);
    command.args(["-E", "occurrence=a", "-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE"]);
    for field in COMMON.iter().chain(fields) {
        command.args(["-e", field]);
    }
    let output = command.args(options).arg("-r").arg(capture).output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{errors}");
    assert!(!errors.contains("Lua"), "{errors}");
    String::from_utf8(output.stdout).unwrap().lines().map(row).collect()
}

fn row(line: &str) -> Row {
    let mut columns = line.split('\t').map(str::to_owned);
    let mut next = || columns.next().unwrap();
    let (protocols, malformed, lua_error, severity) = (next(), next(), next(), next());
    assert_eq!(lua_error, "", "{line}");
    let has_error = severity.split(';').filter_map(|text| text.parse().ok()).any(|level: u32| level >= ERROR);
    Row {
        is_metaroce: protocols.split(':').any(|name| name == "metaroce"),
        has_error: has_error || !malformed.is_empty(),
        fields: columns.collect(),
    }
}
