//! The golden vectors of `conformance/vectors`, which the codec of this crate had no part in.

mod fields;
mod verdicts;

use std::path::Path;

use serde_json::Value;

struct Vector {
    name: String,
    bytes: Vec<u8>,
    verdict: String,
    verdict_without_checksum: String,
    canonical: bool,
    packet: Option<Value>,
    /// Of a receiver without connections.
    answer: Option<Answer>,
}

/// What a datagram draws.
enum Answer {
    Nothing,
    Body(Vec<u8>),
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(hex.get(at..at + 2).unwrap(), 16).unwrap())
        .collect()
}

/// All vectors of all files.
fn vectors() -> Vec<Vector> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/vectors");
    let mut all = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let file: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        assert_eq!(file["version"], 0);
        for vector in file["vectors"].as_array().unwrap() {
            let text = |name: &str| vector[name].as_str().map(ToOwned::to_owned);
            let verdict = text("verdict").unwrap();
            all.push(Vector {
                name: text("name").unwrap(),
                bytes: bytes(vector["hex"].as_str().unwrap()),
                verdict_without_checksum: text("verdict_without_checksum").unwrap_or_else(|| verdict.clone()),
                verdict,
                canonical: vector["canonical"].as_bool().unwrap(),
                packet: vector.get("packet").cloned(),
                answer: vector.get("answer").map(|answer| {
                    answer["body"].as_str().map_or(Answer::Nothing, |body| Answer::Body(bytes(body)))
                }),
            });
        }
    }
    assert!(all.len() > 200, "{} vectors", all.len());
    all
}
