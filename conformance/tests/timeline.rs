//! The timeline of a run, in a browser: what a person would do with it, done by its own script.
#![cfg(feature = "cli")]
#![expect(clippy::unwrap_used, reason = "helpers of tests, which fail by panicking")]

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

const SCENARIO: &str = r#"
[fabric]
leaves = 2
hosts_per_leaf = 1
spines = 4
gbps = 100.0
rtt_us = 10.0

[transport]
paths = 4

[workload]
kind = "stream"
mib = 2.0
message_kib = 128.0

[fault]
from = "leaf0"
to = "spine*"
loss = 0.05
"#;

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_metaroce-conformance"))
}

fn page(directory: &Path) -> std::path::PathBuf {
    let (scenario, page) = (directory.join("lossy.toml"), directory.join("lossy.html"));
    std::fs::write(&scenario, SCENARIO).unwrap();
    let status = program().arg("sim").arg(&scenario).arg("--trace").arg(&page).status().unwrap();
    assert!(status.success());
    page
}

#[test]
fn the_page_needs_nothing_else_and_holds_the_run() {
    let directory = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(page(directory.path())).unwrap();
    for word in ["src=", "href=", "http:", "https:", "import ", "fetch("] {
        assert!(!text.contains(word), "{word}");
    }
    assert!(text.contains("const DATA = {") && text.contains("lossy, 1, seed 1"));
}

#[test]
fn a_person_can_zoom_move_and_ask_what_a_packet_is() {
    let Some(browser) =
        ["chromium", "chromium-browser", "google-chrome"].into_iter().find(|name| exists(name))
    else {
        println!("skipped: no chromium: the timeline was not looked at in a browser");
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let page = page(directory.path());
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--window-size=1200,800", "--virtual-time-budget=4000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", directory.path().join("profile").display()))
        .arg(format!("file://{}#selftest", page.display()))
        .stderr(Stdio::null())
        .output()
        .unwrap();
    let dom = String::from_utf8_lossy(&output.stdout);
    let (_, rest) =
        dom.split_once("<pre id=\"selftest\">").unwrap_or_else(|| panic!("no result in {dom:.2000}"));
    let (json, _) = rest.split_once("</pre>").unwrap();
    let found: Value = serde_json::from_str(&json.replace("&gt;", ">").replace("&lt;", "<")).unwrap();
    let number =
        |name: &str| found.get(name).and_then(Value::as_f64).unwrap_or_else(|| panic!("{name}: {found}"));
    assert!((number("lanes") - 4.0).abs() < 0.5, "{found}");
    assert!(number("flights") > 500.0 && (number("drawn") - number("flights")).abs() < 0.5, "{found}");
    assert!(number("pixels") > 10_000.0, "something was drawn: {found}");
    assert!(number("lost") > 5.0 && number("again") > 5.0 && number("samples") > 10.0, "{found}");
    assert!(number("again") <= number("lost") + 5.0, "what was lost went again, and little else: {found}");
    assert!(number("zoomed") < 0.2 && number("drawnZoomed") < number("drawn"), "{found}");
    assert!(found.get("kept") == Some(&Value::Bool(true)), "the point under the pointer stays: {found}");
    assert!(number("moved") > 0.0, "{found}");
    let tip = found.get("tip").and_then(Value::as_str).unwrap();
    assert!(tip.contains("PSN") && tip.contains("arrived"), "{found}");
    assert!(found.get("back") == Some(&Value::Bool(true)), "{found}");
    assert!(number("drawnWithoutData") < number("drawn"), "{found}");
}

fn exists(name: &str) -> bool {
    Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}
