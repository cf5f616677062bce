//! Runs the tests: once to learn which reach which mutant, then for each mutant until one fails.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};

use crate::instrument::Mutant;
use crate::tree::Tree;

/// One test, and what it does without a mutant.
pub struct Test {
    run: Run,
    time: Duration,
    reaches: BTreeSet<u32>,
}

/// How a test is run.
#[derive(Clone)]
struct Run {
    binary: PathBuf,
    arguments: Vec<String>,
    name: String,
}

impl Run {
    /// A function of a test binary.
    fn function(binary: &Path, name: &str) -> Self {
        let arguments = ["--exact", "--quiet", "--test-threads", "1", name].map(str::to_owned).to_vec();
        Self { binary: binary.to_owned(), arguments, name: name.to_owned() }
    }

    /// A case of the compliance suite, against the core in process.
    fn case(binary: &Path, name: &str) -> Self {
        let arguments = ["check", "--self", "--case", name].map(str::to_owned).to_vec();
        Self { binary: binary.to_owned(), arguments, name: format!("case {name}") }
    }
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
            .args(["test", "-p", "metaroce-core", "-p", "metaroce-conformance", "--no-run"])
            .args(["--lib", "--test", "all", "--test", "simulator"])
            .args(["--config", "profile.test.debug=false", "--config", "profile.test.incremental=false"])
            .args(["--config", "profile.test.opt-level=2", "--config", "profile.test.codegen-units=16"])
            .args(["--message-format", "json-diagnostic-short"])
            .stderr(Stdio::inherit())
            .output()?;
        let mut binaries = Vec::new();
        for line in String::from_utf8(output.stdout)?.lines() {
            let message: serde_json::Value = serde_json::from_str(line)?;
            if let Some(rendered) =
                message["message"]["rendered"].as_str().filter(|text| text.contains("error"))
            {
                eprintln!("{rendered}");
            }
            if let Some(path) = message["executable"].as_str() {
                let is_program = message["target"]["kind"][0] == "bin";
                binaries.push((PathBuf::from(path), is_program));
            }
        }
        ensure!(output.status.success(), "the instrumented core does not build");
        let mut runs = Vec::new();
        for (binary, is_program) in binaries {
            runs.extend(if is_program { cases(&binary)? } else { functions(&binary)? });
        }
        let mut all: Vec<Test> =
            side_by_side(&runs, |number, run| record(tree, number, run))?.into_iter().flatten().collect();
        all.sort_by_key(|test| test.time);
        Ok(Self { all })
    }

    /// What all take.
    pub fn seconds(&self) -> f64 {
        self.all.iter().map(|test| test.time.as_secs_f64()).sum()
    }
}

/// The tests of a test binary.
fn functions(binary: &Path) -> anyhow::Result<Vec<Run>> {
    let listed = Command::new(binary).args(["--list", "--format", "terse"]).output()?;
    let text = String::from_utf8(listed.stdout)?;
    let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
    Ok(names.map(|name| Run::function(binary, name)).collect())
}

/// The cases of the suite that the program knows: `area/name (profile): about`, each at the start of a line.
fn cases(binary: &Path) -> anyhow::Result<Vec<Run>> {
    let listed = Command::new(binary).args(["check", "--list"]).output()?;
    let text = String::from_utf8(listed.stdout)?;
    let cases = text.lines().take_while(|line| !line.starts_with("every case")).filter_map(|line| {
        let (name, _) = line.split_once(" (")?;
        (name.contains('/') && !name.starts_with(' ')).then(|| Run::case(binary, name))
    });
    let cases: Vec<Run> = cases.collect();
    ensure!(!cases.is_empty(), "the program lists no case");
    Ok(cases)
}

/// How a run of one test ended.
enum End {
    Passed,
    Failed,
    /// Stopped, as it had used up its time.
    TooLong,
}

/// Runs one test for so many seconds of CPU time at most, and tells how much it took. Not by the clock: others may be
/// using the machine.
fn execute(
    tree: &Tree,
    run: &Run,
    seconds: u64,
    environment: (&str, &OsStr),
) -> anyhow::Result<(End, Duration)> {
    let script = r#"ulimit -t "$1" -v 8388608; shift; "$@" >/dev/null 2>&1; code=$?; times; exit "$code""#;
    let output = Command::new("bash")
        .current_dir(tree.root.join("metaroce-core"))
        .args(["-c", script, "bash", &seconds.to_string()])
        .arg(&run.binary)
        .args(&run.arguments)
        .env("RUST_BACKTRACE", "0")
        .env(environment.0, environment.1)
        .stderr(Stdio::null())
        .output()
        .context("a test does not start")?;
    let text = String::from_utf8(output.stdout)?;
    let time = text.lines().last().unwrap_or_default().split_whitespace().filter_map(duration).sum();
    let end = match output.status.code() {
        Some(0) => End::Passed,
        // Signals that the shell reports: SIGXCPU, and SIGKILL, which follows it.
        Some(152 | 137) => End::TooLong,
        _ => End::Failed,
    };
    Ok((end, time))
}

/// Reads `1m2.345s`.
fn duration(text: &str) -> Option<Duration> {
    let (minutes, seconds) = text.strip_suffix('s')?.split_once('m')?;
    Some(
        Duration::from_secs(minutes.parse::<u64>().ok()? * 60)
            + Duration::from_secs_f64(seconds.parse().ok()?),
    )
}

/// A test that takes more CPU time than this is left out: the share that is caught is then a lower bound.
const LONGEST_SECONDS: u64 = 6;

fn record(tree: &Tree, number: usize, run: &Run) -> anyhow::Result<Option<Test>> {
    let name = &run.name;
    let file = tree.root.join(format!("record.{number}"));
    let _ = std::fs::remove_file(&file);
    let (end, time) = execute(tree, run, LONGEST_SECONDS, ("MUTANT_RECORD", file.as_os_str()))?;
    let reaches = std::fs::read_to_string(&file).unwrap_or_default();
    let _ = std::fs::remove_file(&file);
    match end {
        End::Passed => {}
        End::Failed => bail!("{name} fails without a mutant"),
        End::TooLong => {
            println!("left out, since it takes too long: {name}");
            return Ok(None);
        }
    }
    let reaches = reaches.lines().filter_map(|line| line.parse().ok()).collect();
    Ok(Some(Test { run: run.clone(), time, reaches }))
}

/// How many run at once.
const AT_ONCE: usize = 2;

/// Does something with each item, `AT_ONCE` at a time, and returns the results in the order of the items.
fn side_by_side<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(usize, &T) -> anyhow::Result<R> + Sync,
) -> anyhow::Result<Vec<R>> {
    let next = AtomicUsize::new(0);
    let worker = || -> anyhow::Result<Vec<(usize, R)>> {
        let mut done = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(number) else { return Ok(done) };
            done.push((number, work(number, item)?));
        }
    };
    let mut done = std::thread::scope(|scope| -> anyhow::Result<Vec<(usize, R)>> {
        let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(worker)).collect();
        let mut all = Vec::new();
        for worker in workers {
            all.extend(worker.join().map_err(|_| anyhow!("a worker died"))??);
        }
        Ok(all)
    })?;
    done.sort_by_key(|(number, _)| *number);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}

/// `sample` mutants, by chance, of all those in files whose path contains one of `parts`, and of which `again` has a line
/// if there is such a text.
pub fn choose(
    mutants: &[Mutant],
    parts: &[String],
    again: Option<&str>,
    sample: usize,
    seed: u64,
) -> Vec<Mutant> {
    let known: Option<BTreeSet<[&str; 3]>> = again.map(|text| text.lines().filter_map(place).collect());
    let asked = |mutant: &&Mutant| {
        let by_file = parts.is_empty() || parts.iter().any(|part| mutant.file.contains(part.as_str()));
        let place = [mutant.file.as_str(), &mutant.function, &mutant.what];
        by_file && known.as_ref().is_none_or(|known| known.contains(&place))
    };
    let mut chosen: Vec<&Mutant> = mutants.iter().filter(asked).collect();
    println!("{} mutants in these files", chosen.len());
    chosen.sort_by_key(|mutant| mix(seed, mutant.number.into()));
    chosen.into_iter().take(sample).cloned().collect()
}

/// File, function and change that a printed line tells: lines move, these seldom do.
fn place(line: &str) -> Option<[&str; 3]> {
    let mut fields = line.rsplit('\t');
    let (what, function, file) = (fields.next()?, fields.next()?, fields.next()?);
    Some([file.rsplit_once(':')?.0, function, what])
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

/// Tries each mutant, as far as `span` allows, prints what became of it, and sums up by file.
pub fn run(tree: &Tree, tests: &Tests, mutants: &[Mutant], span: Duration) -> anyhow::Result<()> {
    let start = Instant::now();
    let outcomes = side_by_side(mutants, |_, mutant| {
        if start.elapsed() > span {
            return Ok(None);
        }
        let outcome = try_one(tree, tests, mutant)?;
        let word = match outcome {
            Outcome::Caught => "caught",
            Outcome::TimedOut => "caught by time",
            Outcome::Missed => "missed",
            Outcome::Unreached => "unreached",
        };
        println!("{word}\t{mutant}");
        std::io::stdout().flush()?;
        Ok(Some(outcome))
    })?;
    let mut sums: BTreeMap<&str, [usize; 4]> = BTreeMap::new();
    for (mutant, outcome) in mutants.iter().zip(outcomes) {
        if let Some(outcome) = outcome {
            sums.entry(&mutant.file).or_default()[outcome as usize] += 1;
        }
    }
    println!(
        "\n| file | mutants | caught | of them by time | missed | unreached |\n|---|---|---|---|---|---|"
    );
    let mut total = [0; 4];
    for (file, counts) in sums {
        for (sum, count) in total.iter_mut().zip(counts) {
            *sum += count;
        }
        print_row(file, counts);
    }
    print_row("all", total);
    let [caught, late, missed, unreached] = total;
    let (low, high) = wilson(caught + late, caught + late + missed + unreached);
    println!("\nshare caught, 95 % confidence interval: {:.1} % to {:.1} %", low * 100.0, high * 100.0);
    Ok(())
}

fn print_row(name: &str, [caught, late, missed, unreached]: [usize; 4]) {
    let all = caught + late + missed + unreached;
    println!("| {name} | {all} | {} | {late} | {missed} | {unreached} |", caught + late);
}

/// Wilson's score interval of a share, for 95 %.
#[expect(clippy::cast_precision_loss, reason = "some thousands")]
fn wilson(hits: usize, all: usize) -> (f64, f64) {
    let (n, z) = (all as f64, 1.96_f64);
    let share = hits as f64 / n;
    let middle = share + z * z / (2.0 * n);
    let half = z * (share * (1.0 - share) / n + z * z / (4.0 * n * n)).sqrt();
    ((middle - half) / (1.0 + z * z / n), (middle + half) / (1.0 + z * z / n))
}

fn try_one(tree: &Tree, tests: &Tests, mutant: &Mutant) -> anyhow::Result<Outcome> {
    let mut reached = false;
    for test in tests.all.iter().filter(|test| test.reaches.contains(&mutant.number)) {
        reached = true;
        // A mutant that loops is caught.
        let seconds = test.time.as_secs() * 10 + 3;
        let number = mutant.number.to_string();
        match execute(tree, &test.run, seconds, ("MUTANT", OsStr::new(&number)))?.0 {
            End::Passed => {}
            End::Failed => return Ok(Outcome::Caught),
            End::TooLong => return Ok(Outcome::TimedOut),
        }
    }
    Ok(if reached { Outcome::Missed } else { Outcome::Unreached })
}
