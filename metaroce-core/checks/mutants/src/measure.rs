//! Runs the tests: once to see what they take, then for each mutant until one fails.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};

use crate::instrument::Mutant;
use crate::tree::Tree;

/// A program that tests: the suite, or a part of a test binary.
struct Program {
    name: String,
    binary: PathBuf,
    arguments: Vec<String>,
    /// Where it finds its files.
    folder: PathBuf,
    /// CPU time that it takes, and the most of it from one line that it prints to the next.
    time: Duration,
    gap: Duration,
}

impl Program {
    /// The compliance suite, against the core in process.
    fn suite(tree: &Tree, binary: &Path) -> Self {
        Self::new(tree, "the suite".to_owned(), binary, &["check", "--self"])
    }

    /// The tests of a test binary whose names begin with `module`.
    fn tests(tree: &Tree, binary: &Path, module: &str) -> Self {
        let mut arguments = vec!["--test-threads", "1", module];
        // Of a filter, names need only hold it somewhere: each test is run by the part that it belongs to.
        if !module.ends_with("::") {
            arguments.push("--exact");
        }
        Self::new(tree, module.to_owned(), binary, &arguments)
    }

    fn new(tree: &Tree, name: String, binary: &Path, arguments: &[&str]) -> Self {
        Self {
            name,
            binary: binary.to_owned(),
            arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
            folder: tree.root.join("metaroce-core"),
            time: Duration::ZERO,
            gap: Duration::ZERO,
        }
    }
}

/// All tests of the core.
pub struct Tests {
    /// In the order of their duration.
    all: Vec<Program>,
}

impl Tests {
    /// Builds the instrumented core with its tests, and runs all once.
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
        let mut all = Vec::new();
        for line in String::from_utf8(output.stdout)?.lines() {
            let message: serde_json::Value = serde_json::from_str(line)?;
            if let Some(rendered) =
                message["message"]["rendered"].as_str().filter(|text| text.contains("error"))
            {
                eprintln!("{rendered}");
            }
            let Some(binary) = message["executable"].as_str().map(PathBuf::from) else { continue };
            if message["target"]["kind"][0] == "bin" {
                all.push(Program::suite(tree, &binary));
            } else {
                let modules = modules(&binary)?;
                all.extend(modules.iter().map(|module| Program::tests(tree, &binary, module)));
            }
        }
        ensure!(output.status.success(), "the instrumented core does not build");
        for program in &mut all {
            let run = execute(program, 0, Duration::MAX)?;
            ensure!(run.end == End::Passed, "{} fails without a mutant", program.name);
            (program.time, program.gap) = (run.time, run.gap);
        }
        all.sort_by_key(|program| program.time);
        Ok(Self { all })
    }

    /// How many programs, and the CPU time that all take.
    pub fn extent(&self) -> (usize, f64) {
        (self.all.len(), self.all.iter().map(|program| program.time.as_secs_f64()).sum())
    }
}

/// The first parts of the names of a test binary's tests: `module::`, or the whole name of what is in none.
fn modules(binary: &Path) -> anyhow::Result<BTreeSet<String>> {
    let listed = Command::new(binary).args(["--list", "--format", "terse"]).output()?;
    let text = String::from_utf8(listed.stdout)?;
    let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
    let module = |name: &str| match name.split_once("::") {
        Some((module, _)) => format!("{module}::"),
        None => name.to_owned(),
    };
    Ok(names.map(module).collect())
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Passed,
    Failed,
    /// Stopped, as it came to no end.
    TooLong,
}

struct Run {
    end: End,
    time: Duration,
    gap: Duration,
}

/// Runs a program with a mutant until a test fails, or uses more CPU time than `most` before it prints another line. Not
/// by the clock: others may be using the machine.
fn execute(program: &Program, mutant: u32, most: Duration) -> anyhow::Result<Run> {
    let mut child = Command::new("bash")
        .current_dir(&program.folder)
        .args(["-c", r#"ulimit -v 8388608; exec "$@""#, "bash"])
        .arg(&program.binary)
        .args(&program.arguments)
        .env("RUST_BACKTRACE", "0")
        .env("MUTANT", mutant.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("a test does not start")?;
    let output = child.stdout.take().context("it has an output")?;
    let (sender, lines) = channel();
    let reader = std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    let (mut time, mut last, mut gap) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
    let cut = loop {
        let line = lines.recv_timeout(Duration::from_millis(100));
        time = cpu_time(&child).unwrap_or(time);
        gap = gap.max(time.saturating_sub(last));
        match line {
            Ok(line) if line.ends_with("... FAILED") => break Some(End::Failed),
            Ok(_) => last = time,
            Err(RecvTimeoutError::Timeout) if time.saturating_sub(last) > most => break Some(End::TooLong),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break None,
        }
    };
    if cut.is_some() {
        child.kill()?;
    }
    let status = child.wait()?;
    let _ = reader.join();
    let end = cut.unwrap_or(if status.success() { End::Passed } else { End::Failed });
    Ok(Run { end, time, gap })
}

/// What a process has used.
fn cpu_time(child: &Child) -> Option<Duration> {
    /// Of the times that the system tells; the same on every Linux.
    const TICK: Duration = Duration::from_millis(10);
    let text = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).ok()?;
    let mut fields = text.rsplit_once(')')?.1.split_whitespace().skip(11);
    let (user, system): (u32, u32) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(TICK * (user + system))
}

/// Does something with each item, `at_once` at a time, and returns the results in the order of the items.
fn side_by_side<T: Sync, R: Send>(
    items: &[T],
    at_once: usize,
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
        let workers: Vec<_> = (0..at_once).map(|_| scope.spawn(worker)).collect();
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
}

/// Tries each mutant, `jobs` at a time, as far as `span` allows, prints what became of it, and sums up by file.
pub fn run(tests: &Tests, mutants: &[Mutant], span: Duration, jobs: usize) -> anyhow::Result<()> {
    let start = Instant::now();
    let outcomes = side_by_side(mutants, jobs, |_, mutant| {
        if start.elapsed() > span {
            return Ok(None);
        }
        let (outcome, by) = try_one(tests, mutant)?;
        let word = match outcome {
            Outcome::Caught => "caught",
            Outcome::TimedOut => "caught by time",
            Outcome::Missed => "missed",
        };
        let by = if by.is_empty() { by } else { format!(" by {by}") };
        println!("{word}{by}\t{mutant}");
        std::io::stdout().flush()?;
        Ok(Some(outcome))
    })?;
    let mut sums: BTreeMap<&str, [usize; 3]> = BTreeMap::new();
    for (mutant, outcome) in mutants.iter().zip(outcomes) {
        if let Some(outcome) = outcome {
            sums.entry(&mutant.file).or_default()[outcome as usize] += 1;
        }
    }
    println!("\n| file | mutants | caught | of them by time | missed |\n|---|---|---|---|---|");
    let mut total = [0; 3];
    for (file, counts) in sums {
        for (sum, count) in total.iter_mut().zip(counts) {
            *sum += count;
        }
        print_row(file, counts);
    }
    print_row("all", total);
    let [caught, late, missed] = total;
    let (low, high) = wilson(caught + late, caught + late + missed);
    println!("\nshare caught, 95 % confidence interval: {:.1} % to {:.1} %", low * 100.0, high * 100.0);
    Ok(())
}

fn print_row(name: &str, [caught, late, missed]: [usize; 3]) {
    let all = caught + late + missed;
    println!("| {name} | {all} | {} | {late} | {missed} |", caught + late);
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

fn try_one(tests: &Tests, mutant: &Mutant) -> anyhow::Result<(Outcome, String)> {
    for program in &tests.all {
        // A mutant that loops is caught.
        let most = program.gap * 5 + Duration::from_secs(3);
        match execute(program, mutant.number, most)?.end {
            End::Passed => {}
            End::Failed => return Ok((Outcome::Caught, program.name.clone())),
            End::TooLong => return Ok((Outcome::TimedOut, program.name.clone())),
        }
    }
    Ok((Outcome::Missed, String::new()))
}
