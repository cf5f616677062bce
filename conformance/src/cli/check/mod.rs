//! `check`: runs the compliance suite against a device, and reports.

mod html;
mod json;
mod junit;
mod markdown;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::BufWriter;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use metaroce_conformance::spec;
use metaroce_conformance::suite::{self, Case, InProcess, Profile, Report, Udp, Verdict};
use metaroce_conformance::trace::PcapWriter;

/// Which device: one of these.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct Device {
    /// Check the core of this project, in this process and in virtual time.
    #[arg(long = "self")]
    itself: bool,
    /// Check the device that receives at this address, over UDP.
    #[arg(long, value_name = "HOST:PORT")]
    target: Option<String>,
    /// Check the core with this fault seeded into it: the suite should find it.
    #[arg(long, value_name = "NAME")]
    fault: Option<String>,
    /// Check the core with each fault seeded into it: the suite should find them all.
    #[arg(long)]
    faults: bool,
    /// List the cases, the faults and what they judge.
    #[arg(long)]
    list: bool,
}

/// What to check, and how to tell.
#[derive(Debug, Args)]
pub(super) struct CheckArguments {
    #[command(flatten)]
    device: Device,
    /// Where the device's control channel listens; its own address and the port above that of UDP, if absent.
    #[arg(long, value_name = "HOST:PORT", requires = "target")]
    control: Option<String>,
    /// Only cases whose name contains this.
    #[arg(long, value_name = "TEXT")]
    case: Option<String>,
    /// Only cases of these profiles; those that the device claims, if absent.
    #[arg(long, value_delimiter = ',', value_parser = ["core", "multipath", "atomics", "datagram"])]
    profile: Vec<String>,
    /// The seed of all that is random.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
    /// Write a report for continuous integration.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Write a report for people, one file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write a capture of each failed case into this directory.
    #[arg(long, value_name = "DIR")]
    pcap: Option<PathBuf>,
    /// Write a capture of every case, not only of those that failed.
    #[arg(long, requires = "pcap")]
    pcap_all: bool,
}

/// All that is to be told of a run.
pub(super) struct Results {
    /// The device, in words.
    device: String,
    /// The cases that ran.
    reports: Vec<Report>,
    /// Captures by case.
    captures: BTreeMap<&'static str, PathBuf>,
    /// The sentence of each requirement, in Markdown.
    sentences: BTreeMap<String, String>,
}

impl Results {
    /// How many cases ended so.
    fn count(&self, name: &str) -> usize {
        self.reports.iter().filter(|report| report.verdict.name() == name).count()
    }

    /// What the specification says, as plain text.
    fn sentence(&self, requirement: &str) -> String {
        self.sentences.get(requirement).map_or_else(String::new, |sentence| markdown::plain(sentence))
    }

    /// The same as HTML.
    fn sentence_html(&self, requirement: &str) -> String {
        self.sentences.get(requirement).map_or_else(String::new, |sentence| markdown::html(sentence))
    }

    /// The last datagrams of a case, decoded, one a line.
    fn packets(report: &Report, most: usize) -> Vec<String> {
        let skipped = report.record.len().saturating_sub(most);
        // Ports tell paths; addresses, where there are several, planes and strangers.
        let ours = report.record.iter().filter(|entry| entry.ours).map(|entry| entry.from.ip());
        let several = ours.collect::<BTreeSet<_>>().len() > 1;
        let line = |entry: &suite::Entry| {
            let direction = if entry.ours { "->" } else { "<-" };
            let us = entry.at_ns / 1_000;
            let from = if several { entry.from.to_string() } else { format!("{:>5}", entry.from.port()) };
            format!(
                "{:>7}.{:03} ms {direction} {from} {}",
                us / 1_000,
                us % 1_000,
                suite::describe(&entry.bytes)
            )
        };
        report.record.iter().skip(skipped).map(line).collect()
    }
}

/// Runs the suite. Returns whether nothing failed.
///
/// # Errors
/// If the device can't be reached, or a file not be written.
pub(super) fn check(arguments: &CheckArguments) -> anyhow::Result<bool> {
    if arguments.device.list {
        table::print_list();
        return Ok(true);
    }
    if arguments.device.faults {
        return table::print_faults(arguments.seed);
    }
    let mut results = Results {
        device: String::new(),
        reports: Vec::new(),
        captures: BTreeMap::new(),
        sentences: sentences(),
    };
    let mut profiles = arguments.profile.clone();
    if let Some(target) = &arguments.device.target {
        let device = resolve(target)?;
        let control = match &arguments.control {
            Some(control) => resolve(control)?,
            None => SocketAddr::new(device.ip(), device.port().wrapping_add(1)),
        };
        let mut port = Udp::new(device, control).with_context(|| {
            format!(
                "cannot join the device at {device} by its control channel at {control} (CONTROL.md; --control \
                 names another)"
            )
        })?;
        results.device = format!("{} at {device}", port.name());
        if profiles.is_empty() {
            profiles = port.profiles().to_vec();
            profiles.push("core".to_owned());
        }
        run(arguments, &profiles, &mut port, &mut results)?;
    } else {
        debug_assert!(arguments.device.itself || arguments.device.fault.is_some(), "the group asks for one");
        let mut port = match &arguments.device.fault {
            Some(name) => {
                let fault =
                    suite::faults::find(name).with_context(|| format!("no fault is called {name:?}"))?;
                results.device = format!("metaroce-core with the fault {name:?}");
                InProcess::with_shim(arguments.seed, (fault.make)())
            }
            None => InProcess::new(arguments.seed),
        }
        .map_err(anyhow::Error::msg)?;
        if results.device.is_empty() {
            concat!("metaroce-core ", env!("CARGO_PKG_VERSION"), ", in process")
                .clone_into(&mut results.device);
        }
        if profiles.is_empty() {
            profiles = Profile::ALL.map(|profile| profile.name().to_owned()).to_vec();
        }
        run(arguments, &profiles, &mut port, &mut results)?;
    }
    tell(arguments, &results)?;
    Ok(results.count("failed") == 0)
}

fn run(
    arguments: &CheckArguments,
    profiles: &[String],
    port: &mut dyn suite::Port,
    results: &mut Results,
) -> anyhow::Result<()> {
    let wanted = |case: &&Case| arguments.case.as_ref().is_none_or(|part| case.name.contains(part.as_str()));
    let cases: Vec<&'static Case> = suite::all_cases().into_iter().filter(wanted).collect();
    if cases.is_empty() {
        bail!("no case has a name that contains {:?}", arguments.case.as_deref().unwrap_or(""));
    }
    let bar = ProgressBar::new(cases.len() as u64).with_style(
        ProgressStyle::with_template("{pos}/{len} [{bar:30}] {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    for case in cases {
        bar.set_message(case.name);
        let report = if profiles.iter().any(|profile| profile == case.profile.name()) {
            suite::run(port, case, arguments.seed)
        } else {
            let reason = format!("the device does not claim profile {}", case.profile.name());
            Report::without_run(case, Verdict::NotApplicable(reason))
        };
        let failed = report.verdict.is_failure();
        if let Some(directory) = arguments.pcap.as_ref().filter(|_| failed || arguments.pcap_all) {
            let path = capture(directory, &report)?;
            results.captures.insert(case.name, path);
        }
        results.reports.push(report);
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(())
}

fn tell(arguments: &CheckArguments, results: &Results) -> anyhow::Result<()> {
    if let Some(path) = &arguments.junit {
        write(path, &junit::document(results))?;
    }
    if let Some(path) = &arguments.html {
        write(path, &html::document(results))?;
    }
    if arguments.json {
        say!("{}", serde_json::to_string_pretty(&json::document(results))?);
    } else {
        table::print(results);
    }
    Ok(())
}

/// Writes the capture of a case.
fn capture(directory: &Path, report: &Report) -> anyhow::Result<PathBuf> {
    fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    let name: String =
        report.case.name.chars().map(|letter| if letter.is_alphanumeric() { letter } else { '-' }).collect();
    let path = directory.join(format!("{name}.pcapng"));
    let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    let mut writer = PcapWriter::new(BufWriter::new(file))?;
    for entry in &report.record {
        writer.write(entry.at_ns, entry.from, entry.to, entry.ecn, &entry.bytes)?;
    }
    writer.finish()?;
    Ok(path)
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn resolve(address: &str) -> anyhow::Result<SocketAddr> {
    let mut found = address.to_socket_addrs().with_context(|| format!("{address} is no HOST:PORT"))?;
    found.next().with_context(|| format!("{address} has no address"))
}

fn sentences() -> BTreeMap<String, String> {
    let (requirements, _) = spec::parse("SPEC.md", include_str!("../../../SPEC.md"));
    requirements.into_iter().map(|requirement| (requirement.id.to_string(), requirement.sentence)).collect()
}

/// Text that goes into XML or HTML. What a device says of itself may hold characters that neither allows.
fn escape(text: &str) -> String {
    let allowed = |letter: &char| !letter.is_control() || matches!(letter, '\n' | '\t');
    let text: String =
        text.chars().filter(allowed).filter(|letter| *letter < '\u{fffe}' || *letter > '\u{ffff}').collect();
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
