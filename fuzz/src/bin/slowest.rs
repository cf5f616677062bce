//! Ranks inputs of the target `datagram` by their slowest single call into the core, for each kind of call: candidates for
//! `metaroce_fuzz::worst`. The program `counted` counts the instructions of one of them.

use std::path::PathBuf;

use metaroce_fuzz::datagram;
use metaroce_fuzz::probe::{Call, timed};

/// Inputs shown for each kind.
const SHOWN: usize = 12;

fn main() -> std::io::Result<()> {
    let mut all = Vec::new();
    for file in std::env::args_os().skip(1).map(PathBuf::from) {
        let bytes = std::fs::read(&file)?;
        all.push((timed(|| datagram::run(&bytes)), file));
    }
    for kind in Call::ALL {
        let slowest = |(calls, file): &(Vec<_>, PathBuf)| {
            let first = calls.iter().find(|timed: &&metaroce_fuzz::probe::Timed| timed.call == kind)?;
            Some((first.span, first.number, file.clone()))
        };
        let mut ranked: Vec<_> = all.iter().filter_map(slowest).collect();
        ranked.sort_by_key(|(span, ..)| std::cmp::Reverse(*span));
        for (span, number, file) in ranked.iter().take(SHOWN) {
            println!("{} {kind:?} {number}  {} ns", file.display(), span.as_nanos());
        }
    }
    Ok(())
}
