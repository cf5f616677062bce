//! The program's commands.

mod check;
mod json;
mod plot;
mod report;
mod suite;
mod swarm;
mod sweep;
mod tables;
mod timeline;

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::{Args, Parser, Subcommand};
use metaroce_conformance::sim::{Case, Scenario};
use metaroce_conformance::vectors;

use suite::Suite;

/// Checks implementations of MetaRoCE, and simulates it over fabrics that lose, mark and fail.
#[derive(Debug, Parser)]
#[command(version, name = "metaroce-conformance")]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run scenarios: those that come with the program by name, `all` of them, or a TOML file of your own.
    Sim(SimArguments),
    /// Check a device against SPEC.md: this project's core, or whatever answers over UDP.
    Check(check::CheckArguments),
    /// Run one case with one seed, twice: all its figures, and whether both runs were the same.
    Replay(ReplayArguments),
    /// Run fabrics, workloads and failures that chance made up, and check that every byte and completion is right.
    Swarm(swarm::Arguments),
    /// Vary rate, RTT, MTU, paths and seed of a case, one at a time: how far does each figure move?
    Sweep(sweep::Arguments),
    /// Write the golden vectors of SPEC.md into a directory, one JSON file for each kind of packet.
    Vectors(VectorsArguments),
}

#[derive(Debug, Args)]
struct VectorsArguments {
    /// An existing directory.
    #[arg(default_value = "conformance/vectors")]
    directory: PathBuf,
}

#[derive(Debug, Args)]
struct SimArguments {
    /// Names, `all`, or paths of TOML files.
    #[arg(required_unless_present = "list")]
    scenarios: Vec<String>,
    /// List the scenarios that come with the program, and their cases.
    #[arg(long)]
    list: bool,
    /// Only the cases that continuous integration runs: they take less than three minutes on two cores.
    #[arg(long)]
    ci: bool,
    /// Run each case with so many seeds, baselines with one; figures are medians.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only the case of this name, or the cases whose name contains this.
    #[arg(long)]
    case: Option<String>,
    /// Runs at a time; as many as there are cores if absent.
    #[arg(long)]
    jobs: Option<usize>,
    /// Print JSON instead of tables.
    #[arg(long)]
    json: bool,
    /// Write the first case that is left as a timeline of its packets: one HTML file that needs nothing else.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// The timeline begins there, µs.
    #[arg(long, default_value_t = 0.0)]
    trace_from_us: f64,
    /// Packets that the timeline shows.
    #[arg(long, default_value_t = 20_000)]
    trace_packets: usize,
    /// Write plots as SVG into this directory.
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    /// Which curves over time are among the plots.
    #[arg(long, value_enum, default_value_t = plot::Curves::All)]
    curves: plot::Curves,
    /// Write a report in Markdown, with what others published, into this file.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct ReplayArguments {
    /// Name of a scenario, or path of a TOML file.
    scenario: String,
    /// The case; the first whose name contains this.
    case: String,
    /// The seed.
    seed: u64,
    /// Print JSON instead of tables.
    #[arg(long)]
    json: bool,
}

/// Does what the arguments say. Returns whether all targets were reached.
///
/// # Errors
/// If a scenario can't be read or built, or a file not be written.
pub fn run(arguments: &Arguments) -> anyhow::Result<bool> {
    match &arguments.command {
        Command::Check(arguments) => check::check(arguments),
        Command::Sim(arguments) => sim(arguments),
        Command::Replay(arguments) => replay(arguments),
        Command::Swarm(arguments) => Ok(swarm::run(arguments)),
        Command::Sweep(arguments) => sweep::run(arguments),
        Command::Vectors(arguments) => write_vectors(arguments),
    }
}

fn write_vectors(arguments: &VectorsArguments) -> anyhow::Result<bool> {
    for file in vectors::files() {
        let path = arguments.directory.join(file.name);
        std::fs::write(&path, vectors::render(&file)?)
            .with_context(|| format!("can't write {}", path.display()))?;
        say!("{}: {} vectors", path.display(), file.vectors.len());
    }
    Ok(true)
}

fn sim(arguments: &SimArguments) -> anyhow::Result<bool> {
    if arguments.list {
        tables::print_list(&Scenario::catalog()?);
        return Ok(true);
    }
    let mut scenarios = Vec::new();
    for name in &arguments.scenarios {
        scenarios.extend(find(name)?);
    }
    for scenario in &mut scenarios {
        if arguments.ci {
            scenario.retain(|case| case.spec.ci);
        }
        if let Some(part) = &arguments.case {
            let exact = scenario.cases.iter().any(|case| case.name == *part);
            scenario.retain(|case| if exact { case.name == *part } else { case.name.contains(part) });
        }
    }
    scenarios.retain(|scenario| !scenario.cases.is_empty());
    if scenarios.is_empty() {
        bail!("no case is left to run");
    }
    if let Some(file) = &arguments.trace {
        let scenario = scenarios.first().context("there is nothing to trace")?;
        let wanted = |case: &&Case| arguments.case.as_ref().is_none_or(|part| case.name.contains(part));
        let case = scenario.cases.iter().find(wanted).context("there is no case to trace")?;
        let (outcome, topology) =
            case.record(arguments.seed, arguments.trace_from_us, arguments.trace_packets)?;
        let title = format!("{}, {}, seed {}", scenario.name, case.name, arguments.seed);
        timeline::write(file, &title, &outcome, &topology)?;
        eprintln!("{}: {} packets of {title}", file.display(), outcome.flights.len());
        return Ok(outcome.faults.is_empty());
    }
    let seeds: Vec<u64> = (arguments.seed..).take(usize::try_from(arguments.seeds)?).collect();
    let mut reached = true;
    let mut documents = Vec::new();
    let mut report = report::Report::default();
    Suite::run_all(scenarios, &seeds, arguments.jobs, |suite| {
        reached &= suite.reached();
        if let Some(directory) = &arguments.svg {
            plot::write(&suite, directory, arguments.curves)?;
        }
        if arguments.json {
            documents.push(json::document(&suite));
        } else {
            tables::print_suite(&suite);
        }
        report.add(&suite);
        Ok(())
    })?;
    if let Some(file) = &arguments.report {
        std::fs::write(file, report.text(&seeds))
            .with_context(|| format!("can't write {}", file.display()))?;
    }
    if arguments.json {
        say!("{}", serde_json::to_string_pretty(&documents)?);
    }
    Ok(reached)
}

fn replay(arguments: &ReplayArguments) -> anyhow::Result<bool> {
    let Some(mut scenario) = find(&arguments.scenario)?.into_iter().next() else {
        bail!("no such scenario");
    };
    let named = |case: &&Case| case.name == arguments.case;
    let case = scenario.cases.iter().find(named).cloned();
    let case =
        case.or_else(|| scenario.cases.iter().find(|case| case.name.contains(&arguments.case)).cloned());
    let case = case.with_context(|| format!("no case has a name that contains {:?}", arguments.case))?;
    scenario.cases = vec![case.clone()];
    let suite = Suite::run(scenario, &[arguments.seed], None)?;
    let again = case.run(arguments.seed, &mut |_, _| {})?;
    let same = suite.results.iter().flat_map(|result| &result.outcomes).all(|one| one.hash == again.hash);
    if arguments.json {
        say!("{}", serde_json::to_string_pretty(&json::document(&suite))?);
    } else {
        tables::print_suite(&suite);
        tables::print_flows(&again);
    }
    eprintln!(
        "hash {:016x}: {}",
        again.hash,
        if same { "both runs were the same" } else { "THE RUNS DIFFER" }
    );
    Ok(same && again.faults.is_empty())
}

/// The scenarios that a name or a path stands for.
fn find(name: &str) -> anyhow::Result<Vec<Scenario>> {
    if Path::new(name).extension().is_some_and(|extension| extension == "toml") {
        let text = std::fs::read_to_string(name).with_context(|| format!("can't read {name}"))?;
        let stem = Path::new(name).file_stem().map_or(name.into(), |stem| stem.to_string_lossy());
        let mut scenario = Scenario::parse(&stem, &text)?;
        for case in &mut scenario.cases {
            let workload = &mut case.spec.workload;
            if let Some(list) = &workload.list_file {
                let list = Path::new(name).with_file_name(list);
                workload.list = std::fs::read_to_string(&list)
                    .with_context(|| format!("can't read {}", list.display()))?;
            }
        }
        return Ok(vec![scenario]);
    }
    let mut catalog = Scenario::catalog()?;
    if name != "all" {
        catalog.retain(|scenario| scenario.name == name);
    }
    if catalog.is_empty() {
        bail!("no scenario is called {name:?}: see `sim --list`, or give the path of a .toml file");
    }
    Ok(catalog)
}
