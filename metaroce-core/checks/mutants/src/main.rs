//! Mutation tests of the core in one build: every mutant is compiled in and chosen by an environment variable.
//!
//! `cargo mutants` builds the crate and links its tests once for each of 3,000 mutants. Here each mutant is a branch,
//! `if mutant(17) { a - b } else { a + b }`; a mutant is tried by the compliance suite, the tests of the simulator and
//! those of the core, module by module, the quickest first, until one fails. Mutations are those of `cargo mutants`,
//! without those in `const fn` and without values of types that this program does not know how to make.
//!
//! ```sh
//! cargo run --release --manifest-path metaroce-core/checks/mutants/Cargo.toml -- [--sample N] [--seed N] [--minutes N] [--jobs N] [--again FILE] [FILE_PART…]
//! ```
//! `--list` prints the mutants that would be tried, in their order. `FILE_PART` chooses files of `metaroce-core/src` by a
//! part of their path; `--again FILE` only mutants of which a line of FILE tells, such as the survivors that an earlier run
//! printed, wherever they stand by now; `--sample` takes so many mutants of all of them, by chance; after `--minutes` no
//! other is begun; `--jobs` of them are tried at once, 2 by default.

mod instrument;
mod measure;
mod tree;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};

fn main() -> anyhow::Result<()> {
    let mut sample = usize::MAX;
    let mut seed = 1_u64;
    let mut minutes = u64::MAX / 60;
    let mut jobs = 2;
    let mut list = false;
    let mut again = None;
    let mut parts = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut next = || arguments.next().with_context(|| format!("a value must follow {argument}"));
        let mut number = || next()?.parse().context("not a number");
        match argument.as_str() {
            "--sample" => sample = usize::try_from(number()?)?,
            "--seed" => seed = number()?,
            "--minutes" => minutes = number()?,
            "--jobs" => jobs = usize::try_from(number()?)?.max(1),
            "--list" => list = true,
            "--again" => again = Some(std::fs::read_to_string(next()?)?),
            other if other.starts_with('-') => bail!("unknown option {other}"),
            part => parts.push(part.to_owned()),
        }
    }
    let here = std::env::var("CARGO_MANIFEST_DIR").unwrap_or(env!("CARGO_MANIFEST_DIR").to_owned());
    let root = PathBuf::from(here).join("../../..").canonicalize()?;
    let choose =
        |mutants: &[instrument::Mutant]| measure::choose(mutants, &parts, again.as_deref(), sample, seed);
    if list {
        for mutant in choose(&tree::mutants(&root)?) {
            println!("{}\t{mutant}", mutant.number);
        }
        return Ok(());
    }
    let tree = tree::Tree::prepare(&root)?;
    let mutants = tree.instrument()?;
    println!("{} mutants", mutants.len());
    let tests = measure::Tests::build(&tree)?;
    let (programs, seconds) = tests.extent();
    println!("{programs} programs that test, {seconds:.0} s of CPU time in all");
    let chosen = choose(&mutants);
    measure::run(&tests, &chosen, Duration::from_secs(minutes * 60), jobs)
}
