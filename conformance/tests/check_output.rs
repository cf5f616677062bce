//! What `check` writes: reports that programs and people can read, for a device that breaks a rule.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use metaroce_conformance::suite::control::{Answer, Command as Control, PROTOCOL, parse_command, to_line};
use pcap_file::pcapng::{Block, PcapNgReader};

const FAULT: &str = "wrong plane";
const CASE: &str = "planes/turns";
const BROKEN: &str = "MR-PATH-3";

fn check(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_metaroce-conformance")).arg("check").args(arguments).output().unwrap()
}

fn failing(folder: &Path) -> Output {
    let path = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let (junit, html, captures) = (path("r.xml"), path("r.html"), path("captures"));
    check(&[
        "--fault", FAULT, "--case", "planes/", "--json", "--junit", &junit, "--html", &html, "--pcap",
        &captures,
    ])
}

#[test]
fn a_failure_is_in_every_report_with_its_requirement_packets_and_capture() {
    let folder = tempfile::tempdir().unwrap();
    let output = failing(folder.path());
    assert_eq!(output.status.code(), Some(1));
    let capture = folder.path().join("captures").join("planes-turns.pcapng");

    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let cases = report["cases"].as_array().unwrap();
    let case = cases.iter().find(|case| case["name"] == CASE).unwrap();
    assert_eq!((&case["verdict"], &case["requirement"]), (&"failed".into(), &BROKEN.into()));
    assert!(
        case["packets"].as_array().unwrap().iter().any(|line| line.as_str().unwrap().contains("Data to"))
    );
    assert_eq!(case["capture"], capture.to_string_lossy().into_owned());

    let text = fs::read_to_string(folder.path().join("r.xml")).unwrap();
    let document = roxmltree::Document::parse(&text).unwrap();
    let suite = document.descendants().find(|node| node.has_tag_name("testsuite")).unwrap();
    let tests: Vec<_> = document.descendants().filter(|node| node.has_tag_name("testcase")).collect();
    let failures: Vec<_> = document.descendants().filter(|node| node.has_tag_name("failure")).collect();
    assert_eq!(suite.attribute("tests"), Some(tests.len().to_string().as_str()));
    assert_eq!(suite.attribute("failures"), Some(failures.len().to_string().as_str()));
    for test in &tests {
        assert!(test.attribute("name").is_some_and(|name| !name.is_empty()));
        assert_eq!(test.attribute("classname"), Some("planes"));
        test.attribute("time").unwrap().parse::<f64>().unwrap();
    }
    let failure = failures.iter().find(|failure| failure.attribute("type") == Some(BROKEN)).unwrap();
    assert!(failure.attribute("message").unwrap().starts_with(BROKEN));
    let said = failure.text().unwrap();
    assert!(said.contains("Data to") && said.contains("planes-turns.pcapng"), "{said}");

    let page = fs::read_to_string(folder.path().join("r.html")).unwrap();
    assert!(page.contains(BROKEN) && page.contains("Data to") && page.contains("planes-turns.pcapng"));
    assert!(
        !page.contains("http://") && !page.contains("https://") && !page.contains("src="),
        "it needs something else"
    );

    let mut reader = PcapNgReader::new(fs::File::open(capture).unwrap()).unwrap();
    let mut packets = 0;
    while let Some(block) = reader.next_block() {
        packets += usize::from(matches!(block.unwrap(), Block::EnhancedPacket(_)));
    }
    assert_eq!(
        packets as u64,
        case["datagrams"].as_u64().unwrap(),
        "every datagram of the case is in its capture"
    );
}

#[test]
fn the_profiles_choose_the_cases_and_the_others_are_not_applicable() {
    let all = check(&["--self", "--profile", "datagram", "--json"]);
    assert!(all.status.success());
    let report: serde_json::Value = serde_json::from_slice(&all.stdout).unwrap();
    for case in report["cases"].as_array().unwrap() {
        let wanted = if case["profile"] == "datagram" { "passed" } else { "not applicable" };
        assert_eq!(case["verdict"], wanted, "{}", case["name"]);
    }
}

#[test]
fn a_device_that_is_not_there_or_speaks_something_else_is_named() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let control = free.local_addr().unwrap().to_string();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = free.accept().unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
    });
    let target = ["--target", "127.0.0.1:1", "--control", &control];
    let said = |output: Output| {
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    let other = said(check(&target));
    server.join().unwrap();
    assert!(
        other.contains(&control) && other.contains("HTTP/1.1") && other.contains("CONTROL.md"),
        "{other}"
    );
    let nobody = said(check(&target));
    assert!(nobody.contains(&control) && nobody.contains("refused"), "{nobody}");
}

/// A device that goes away in its first case, and can be set up for no other.
fn flighty(listener: &TcpListener) {
    for first in [true, false] {
        let (stream, _) = listener.accept().unwrap();
        let mut lines = BufReader::new(&stream).lines();
        while let Some(Ok(line)) = lines.next() {
            let answer = match parse_command(line.as_bytes()).unwrap() {
                Control::Hello {} => Answer::Hello {
                    protocol: PROTOCOL,
                    name: "flighty".to_owned(),
                    profiles: Vec::new(),
                    address: "127.0.0.1:1".parse().unwrap(),
                },
                Control::Restart { .. } if first => Answer::Done,
                Control::Restart { .. } => Answer::Unsupported { reason: "no more".to_owned() },
                _ => break,
            };
            (&stream).write_all(to_line(&answer).as_bytes()).unwrap();
        }
    }
}

#[test]
fn a_device_that_goes_away_fails_that_case_and_the_others_are_tried() {
    let folder = tempfile::tempdir().unwrap();
    let junit = folder.path().join("r.xml").to_string_lossy().into_owned();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let control = listener.local_addr().unwrap().to_string();
    let device = std::thread::spawn(move || flighty(&listener));
    let output = check(&[
        "--target",
        "127.0.0.1:1",
        "--control",
        &control,
        "--case",
        "delivery/",
        "--json",
        "--junit",
        &junit,
    ]);
    device.join().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let cases = report["cases"].as_array().unwrap();
    assert_eq!(cases[0]["verdict"], "failed");
    assert!(cases[0]["broken"].as_str().unwrap().contains("closed"), "{}", cases[0]);
    assert!(cases.len() > 2);
    for case in &cases[1..] {
        assert!(case["verdict"] != "failed" && case["reason"].is_string(), "{case}");
    }
    let text = fs::read_to_string(junit).unwrap();
    let document = roxmltree::Document::parse(&text).unwrap();
    let suite = document.descendants().find(|node| node.has_tag_name("testsuite")).unwrap();
    assert_eq!((suite.attribute("failures"), suite.attribute("errors")), (Some("0"), Some("1")));
    assert_eq!(document.descendants().filter(|node| node.has_tag_name("error")).count(), 1);
}

#[test]
fn a_list_that_nobody_reads_to_its_end_is_no_panic() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_metaroce-conformance"))
        .args(["check", "--list"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
