//! Ranks inputs of the target `datagram` by their slowest single call into the core, for each kind of call: candidates for
//! `fuzz/worst/`, which `tests/work.rs` counts the instructions of.

use std::path::PathBuf;

use metaroce_fuzz::datagram;
use metaroce_fuzz::probe::{Call, slowest};

/// Inputs shown for each kind.
const SHOWN: usize = 6;

fn main() -> std::io::Result<()> {
    let mut all = Vec::new();
    for file in std::env::args_os().skip(1).map(PathBuf::from) {
        let bytes = std::fs::read(&file)?;
        all.push((slowest(|| datagram::run(&bytes)), file));
    }
    for (kind, at) in Call::ALL.into_iter().zip(0..) {
        all.sort_by_key(|(spans, _)| std::cmp::Reverse(spans.get(at).copied()));
        println!("{kind:?}");
        for (spans, file) in all.iter().take(SHOWN) {
            println!("{:>8} ns {}", spans.get(at).map_or(0, std::time::Duration::as_nanos), file.display());
        }
    }
    Ok(())
}
