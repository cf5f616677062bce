//! `swarm`: runs made up by chance.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Args;
use metaroce_conformance::sim::scenario::swarm;

#[derive(Debug, Args)]
pub struct Arguments {
    /// So many runs.
    #[arg(long, default_value_t = 200)]
    runs: u64,
    /// The seed of the first; the others follow it. One run with it replays that run.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Runs at a time; as many as there are cores if absent.
    #[arg(long)]
    jobs: Option<usize>,
    /// Print what each run is made of.
    #[arg(long)]
    show: bool,
}

/// Returns whether all runs were right.
pub fn run(arguments: &Arguments) -> bool {
    let next = AtomicU64::new(arguments.seed);
    let end = arguments.seed.saturating_add(arguments.runs);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let wrong = Mutex::new(0u64);
    let (packets, hash) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..arguments.jobs.unwrap_or(cores).max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    let faults = match swarm::run(seed) {
                        Ok(outcome) => {
                            packets.fetch_add(outcome.packets, Ordering::Relaxed);
                            hash.fetch_xor(
                                outcome.hash.rotate_left((seed % 64).try_into().unwrap_or(0)),
                                Ordering::Relaxed,
                            );
                            outcome.faults
                        }
                        Err(error) => vec![error.to_string()],
                    };
                    let Ok(mut wrong) = wrong.lock() else { return };
                    if arguments.show {
                        say!("seed {seed}: {:#?}", swarm::spec(seed));
                    }
                    if !faults.is_empty() {
                        *wrong += 1;
                        say!("WRONG, seed {seed}: {}", faults.join("; "));
                        say!("  replay: metaroce-conformance swarm --runs 1 --show --seed {seed}");
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap_or(u64::MAX);
    say!(
        "{} runs, {wrong} wrong, {} packets, hash {:016x}",
        arguments.runs,
        packets.into_inner(),
        hash.into_inner()
    );
    wrong == 0
}
