//! Runs the tests: once to learn which reach which mutant, then for each mutant until one fails.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use crate::instrument::Mutant;
use crate::tree::Tree;

/// One test, and what it does without a mutant.
pub struct Test {
    binary: PathBuf,
    name: String,
    time: Duration,
    reaches: BTreeSet<u32>,
}

/// All tests of the core.
pub struct Tests {
    /// In the order of their duration.
    pub all: Vec<Test>,
}

impl Tests {
    /// Builds the instrumented core with its tests, and runs each once.
    pub fn build(tree: &Tree) -> anyhow::Result<Self> {
        let output = Command::new("cargo")
            .current_dir(&tree.root)
            .env("CARGO_TARGET_DIR", tree.root.join("target"))
            .args(["test", "-p", "metaroce-core", "--lib", "--test", "all", "--no-run"])
            .args(["--config", "profile.test.debug=false", "--config", "profile.test.incremental=false"])
            .args(["--message-format", "json-diagnostic-short"])
            .stderr(Stdio::inherit())
            .output()?;
        let mut binaries = Vec::new();
        for line in String::from_utf8(output.stdout)?.lines() {
            let message: serde_json::Value = serde_json::from_str(line)?;
            if let Some(rendered) =
                message["message"]["rendered"].as_str().filter(|text| text.starts_with("error"))
            {
                eprintln!("{rendered}");
            }
            if let Some(path) = message["executable"].as_str() {
                binaries.push(PathBuf::from(path));
            }
        }
        ensure!(output.status.success(), "the instrumented core does not build");
        let mut all = Vec::new();
        for binary in binaries {
            let listed = Command::new(&binary).args(["--list", "--format", "terse"]).output()?;
            for line in String::from_utf8(listed.stdout)?.lines() {
                if let Some(name) = line.strip_suffix(": test") {
                    all.extend(record(tree, &binary, name)?);
                }
            }
        }
        all.sort_by_key(|test| test.time);
        Ok(Self { all })
    }

    /// What all take.
    pub fn seconds(&self) -> f64 {
        self.all.iter().map(|test| test.time.as_secs_f64()).sum()
    }
}

fn command(tree: &Tree, binary: &Path, names: &[&str]) -> Command {
    let mut command = Command::new(binary);
    command
        .current_dir(tree.root.join("metaroce-core"))
        .args(["--exact", "--quiet", "--test-threads", "1"])
        .args(names)
        .env("RUST_BACKTRACE", "0")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// A test that takes longer than this is left out: the share that is caught is then a lower bound.
const LONGEST: Duration = Duration::from_secs(20);

fn record(tree: &Tree, binary: &Path, name: &str) -> anyhow::Result<Option<Test>> {
    let file = tree.root.join("record");
    let _ = std::fs::remove_file(&file);
    let start = Instant::now();
    let mut child = command(tree, binary, &[name]).env("MUTANT_RECORD", &file).spawn()?;
    let Some(success) = wait(&mut child, start + LONGEST)? else {
        println!("left out, since it takes too long: {name}");
        return Ok(None);
    };
    ensure!(success, "{name} fails without a mutant");
    let time = start.elapsed();
    let reaches = std::fs::read_to_string(&file).unwrap_or_default();
    let reaches = reaches.lines().filter_map(|line| line.parse().ok()).collect();
    Ok(Some(Test { binary: binary.to_owned(), name: name.to_owned(), time, reaches }))
}

/// Whether a test succeeded; none if it did not end in time, and was killed.
fn wait(child: &mut Child, limit: Instant) -> anyhow::Result<Option<bool>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status.success()));
        }
        if Instant::now() > limit {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The mutants of the files whose path contains one of `parts`, `sample` of each file at most, by chance.
pub fn choose(mutants: &[Mutant], parts: &[String], sample: usize, seed: u64) -> Vec<Mutant> {
    let mut by_file: BTreeMap<&str, Vec<(u64, &Mutant)>> = BTreeMap::new();
    for mutant in mutants {
        if parts.is_empty() || parts.iter().any(|part| mutant.file.contains(part.as_str())) {
            by_file.entry(&mutant.file).or_default().push((mix(seed, mutant.number.into()), mutant));
        }
    }
    let mut chosen = Vec::new();
    for of_file in by_file.values_mut() {
        of_file.sort_by_key(|(order, _)| *order);
        chosen.extend(of_file.iter().take(sample).map(|(_, mutant)| (*mutant).clone()));
    }
    chosen
}

/// SplitMix64.
fn mix(seed: u64, number: u64) -> u64 {
    let mut z = seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Caught,
    TimedOut,
    Missed,
    Unreached,
}

/// Tries each mutant, prints what became of it, and sums up by file.
pub fn run(tree: &Tree, tests: &Tests, mutants: &[Mutant]) -> anyhow::Result<()> {
    let mut sums: BTreeMap<&str, [usize; 4]> = BTreeMap::new();
    for mutant in mutants {
        let outcome = try_one(tree, tests, mutant)?;
        sums.entry(&mutant.file).or_default()[outcome as usize] += 1;
        let word = match outcome {
            Outcome::Caught => "caught",
            Outcome::TimedOut => "caught by time",
            Outcome::Missed => "missed",
            Outcome::Unreached => "unreached",
        };
        println!("{word}\t{mutant}");
        std::io::stdout().flush()?;
    }
    println!(
        "\n| file | mutants | caught | of them by time | missed | unreached |\n|---|---|---|---|---|---|"
    );
    for (file, [caught, late, missed, unreached]) in sums {
        let all = caught + late + missed + unreached;
        println!("| {file} | {all} | {} | {late} | {missed} | {unreached} |", caught + late);
    }
    Ok(())
}

fn try_one(tree: &Tree, tests: &Tests, mutant: &Mutant) -> anyhow::Result<Outcome> {
    let reaching: Vec<_> = tests.all.iter().filter(|test| test.reaches.contains(&mutant.number)).collect();
    if reaching.is_empty() {
        return Ok(Outcome::Unreached);
    }
    for test in reaching {
        let mut child = command(tree, &test.binary, &[&test.name])
            .env("MUTANT", mutant.number.to_string())
            .spawn()
            .context("a test does not start")?;
        // A mutant that loops is caught: generous, since others may be using the machine.
        let limit = Instant::now() + test.time * 20 + Duration::from_secs(10);
        match wait(&mut child, limit)? {
            Some(true) => {}
            Some(false) => return Ok(Outcome::Caught),
            None => return Ok(Outcome::TimedOut),
        }
    }
    Ok(Outcome::Missed)
}
