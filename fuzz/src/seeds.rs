//! Seeds: first inputs for each target, made anew each time, so that they never lag behind the format.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use metaroce_conformance::trace::{Observer, Record};
use metaroce_conformance::{Random, model};
use metaroce_core::wire::{BASE_BYTES, Base, PacketType};

/// Longest datagram that becomes a seed, bytes.
const DATAGRAM_BYTES_MAX: usize = 700;
/// Programs from which packets are taken.
const PROGRAMS: u64 = 12;

/// The seeds of a target, with names for files.
#[must_use]
pub fn of(target: &str) -> Vec<(String, Vec<u8>)> {
    match target {
        "header" => headers(),
        "scenario" => scenarios(),
        "program" => tapes(12, 400),
        "control" => [conversation(), tapes(24, 1_000)].concat(),
        _ => tapes(24, 1_000),
    }
}

/// Random bytes of growing length: every target but `header` and `scenario` takes instructions from any bytes.
fn tapes(count: u64, bytes_max: u64) -> Vec<(String, Vec<u8>)> {
    (0..count)
        .map(|number| {
            let mut random = Random::new(number);
            let length = bytes_max * (number + 1) / count;
            let bytes = (0..length).map(|_| u8::try_from(random.below(256)).unwrap_or(0)).collect();
            (format!("tape-{number}"), bytes)
        })
        .collect()
}

/// The first packet of each kind that random programs send: whole, and its body alone.
fn headers() -> Vec<(String, Vec<u8>)> {
    let kinds = Rc::new(RefCell::new(Kinds::default()));
    for seed in 0..PROGRAMS {
        let observer = Rc::clone(&kinds);
        model::run_on(seed, |net| net.observer = Some(Box::new(observer))).expect("the program is sound");
    }
    let mut seeds = Vec::new();
    for ((kind, opcode, flags), bytes) in &kinds.borrow().0 {
        let name = format!("{kind}-{opcode:02x}-{flags:02x}");
        let body: u8 = match kind {
            1 => 1,
            2 => 2,
            3 => 3,
            4 => 4,
            _ => 5,
        };
        seeds.push((format!("packet-{name}"), [&[7], &bytes[..]].concat()));
        seeds.push((format!("body-{name}"), [&[body], &bytes[BASE_BYTES..]].concat()));
    }
    seeds
}

fn scenarios() -> Vec<(String, Vec<u8>)> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/scenarios");
    let mut seeds = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the scenarios are there") {
        let path = entry.expect("a file").path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        seeds.push((name, std::fs::read(path).expect("a file that can be read")));
    }
    seeds.sort();
    seeds
}

/// The commands that `CONTROL.md` shows: each alone, and all in their order.
fn conversation() -> Vec<(String, Vec<u8>)> {
    let text = include_str!("../../conformance/CONTROL.md");
    let commands: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("> {")).collect();
    let line = |command: &str| format!("{{{command}\n").into_bytes();
    let mut seeds = vec![("all".to_owned(), commands.iter().flat_map(|command| line(command)).collect())];
    seeds.extend(
        commands.iter().enumerate().map(|(number, command)| (format!("line-{number}"), line(command))),
    );
    seeds
}

/// By packet type, then opcode and flags of DATA, or the kind of CONTROL.
#[derive(Default)]
struct Kinds(BTreeMap<(u8, u8, u8), Vec<u8>>);

impl Observer for Kinds {
    fn on_datagram(&mut self, record: &Record<'_>) {
        let Ok((base, body)) = Base::parse(record.bytes) else { return };
        if record.bytes.len() > DATAGRAM_BYTES_MAX {
            return;
        }
        let byte = |at: usize| body.get(at).copied().unwrap_or(0);
        let key = match base.kind {
            PacketType::Data => (1, byte(0), byte(1)),
            PacketType::Control => (3, byte(0), 0),
            kind => (kind as u8, 0, 0),
        };
        self.0.entry(key).or_insert_with(|| record.bytes.to_vec());
    }
}
