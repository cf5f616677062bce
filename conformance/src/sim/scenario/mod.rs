//! Scenarios: a fabric, a transport, a workload, faults, and what must be reached, in TOML.
//!
//! A scenario has a base and any number of cases; a case is a table that is laid over the base. Unknown keys are errors.

mod build;
mod limits;
mod spec;
pub mod swarm;
mod target;

pub use spec::*;
pub use target::{Metric, Target, Verdict};

use serde::Deserialize;
use toml::{Table, Value};

use super::metrics::Outcome;
use super::topology::Topology;
use super::units::US;

/// A file: a name, what it is about, and its cases.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Name, that of the file.
    pub name: String,
    /// One line for people.
    pub about: String,
    /// What others published about such a case, for reports: figure, setting, source.
    pub published: Vec<String>,
    /// What the horizontal axis of its plot is; loss if it says nothing.
    pub x_label: String,
    /// Cases, in the order of the file; at least one.
    pub cases: Vec<Case>,
}

/// One case of a scenario.
#[derive(Clone, Debug)]
pub struct Case {
    /// Name.
    pub name: String,
    /// What to build and do.
    pub spec: Spec,
}

/// What is wrong with a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioError(pub String);

impl std::fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ScenarioError {}

impl Scenario {
    /// Reads a scenario.
    ///
    /// # Errors
    /// [`ScenarioError`] says what is wrong, and in which case.
    pub fn parse(name: &str, text: &str) -> Result<Self, ScenarioError> {
        let error = |case: &str, what: String| ScenarioError(format!("scenario {name}{case}: {what}"));
        let mut base: Table = text.parse().map_err(|what| error("", format!("{what}")))?;
        let about = match base.remove("about") {
            Some(Value::String(about)) => about,
            _ => String::new(),
        };
        let published = match base.remove("published") {
            Some(Value::Array(lines)) => {
                lines.iter().filter_map(|line| line.as_str().map(str::to_owned)).collect()
            }
            _ => Vec::new(),
        };
        let x_label = match base.remove("x_label") {
            Some(Value::String(label)) => label,
            _ => "loss".to_owned(),
        };
        let cases = match base.remove("case") {
            Some(Value::Array(cases)) => cases,
            None => vec![Value::Table(Table::new())],
            Some(_) => return Err(error("", "`case` must be an array of tables: [[case]]".to_owned())),
        };
        let mut read = Vec::new();
        for case in cases {
            let Value::Table(mut case) = case else {
                return Err(error("", "a case must be a table".to_owned()));
            };
            let case_name = match case.remove("name") {
                Some(Value::String(case_name)) => case_name,
                _ => format!("{}", read.len() + 1),
            };
            let mut table = base.clone();
            overlay(&mut table, case);
            let spec = Spec::deserialize(Value::Table(table))
                .map_err(|what| error(&format!(", case {case_name}"), format!("{what}")))?;
            read.push(Case { name: case_name, spec });
        }
        Ok(Self { name: name.to_owned(), about, published, x_label, cases: read })
    }

    /// Keeps the cases for which `wanted` holds, and those that their targets compare them with.
    pub fn retain(&mut self, wanted: impl Fn(&Case) -> bool) {
        let kept: Vec<&Case> = self.cases.iter().filter(|case| wanted(case)).collect();
        let bases = |case: &Case| {
            case.spec.targets.iter().filter_map(|target| target.relative_to.clone()).collect::<Vec<String>>()
        };
        let mut names: Vec<String> = kept.iter().flat_map(|case| bases(case)).collect();
        names.extend(kept.iter().map(|case| case.name.clone()));
        self.cases.retain(|case| names.contains(&case.name));
    }

    /// The scenarios that come with this crate.
    ///
    /// # Errors
    /// [`ScenarioError`] if one of them is wrong; a test says that none is.
    pub fn catalog() -> Result<Vec<Self>, ScenarioError> {
        CATALOG.iter().map(|(name, text)| Self::parse(name, text)).collect()
    }
}

impl Case {
    /// Whether another transport runs here, to compare with.
    #[must_use]
    pub fn is_baseline(&self) -> bool {
        self.spec.transport.kind != spec::TransportKind::Metaroce
    }

    /// Makes one run of the case, and notes what becomes of at most `most` packets of its first flow from `from_us` µs
    /// on; with samples, also if the scenario wants none.
    ///
    /// # Errors
    /// [`ScenarioError`] if the case can't be built.
    pub fn record(&self, seed: u64, from_us: f64, most: usize) -> Result<(Outcome, Topology), ScenarioError> {
        let mut plan = build::plan(&self.spec, seed)?;
        let quarter_ps = build::scaled(self.spec.fabric.rtt_us / 4.0, US).max(US / 10);
        plan.sample_ps = plan.sample_ps.map_or(Some(quarter_ps), |wanted| Some(wanted.min(quarter_ps)));
        plan.record = Some((build::scaled(from_us, US), most));
        let topology = build::topology(&self.spec.fabric, seed);
        Ok((plan.run(&mut |_, _| {}), topology))
    }

    /// Makes one run of the case.
    ///
    /// # Errors
    /// [`ScenarioError`] if the case can't be built.
    pub fn run(&self, seed: u64, progress: &mut dyn FnMut(u64, u64)) -> Result<Outcome, ScenarioError> {
        Ok(build::plan(&self.spec, seed)?.run(progress))
    }
}

/// Lays `over` on `base`: tables are merged, everything else is replaced.
fn overlay(base: &mut Table, over: Table) {
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(Value::Table(below)), Value::Table(above)) => overlay(below, above),
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}

macro_rules! catalog {
    ($($name:literal,)*) => {
        /// Names and texts of the scenarios that come with this crate.
        const CATALOG: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../../scenarios/", $name, ".toml"))),)*];
    };
}

catalog! {
    "p2p-loss",
    "p2p-bursts",
    "startup",
    "signals",
    "incast-15",
    "incast-127",
    "incast-1023",
    "outcast-incast",
    "ring-16",
    "all-to-all-16",
    "collectives-16",
    "ring-64",
    "all-to-all-64",
    "permutation",
    "fat-tree",
    "key-value",
    "list",
    "planes",
    "plane-failure",
    "plane-flap",
    "long-haul",
    "failures",
    "faults",
    "clocks",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_of_the_catalog_can_be_read_and_built() {
        for scenario in Scenario::catalog().unwrap() {
            assert!(!scenario.about.is_empty(), "{}", scenario.name);
            for case in &scenario.cases {
                build::try_out(&case.spec).unwrap();
            }
        }
    }

    #[test]
    fn the_example_of_the_readme_can_be_read_and_built() {
        let readme = include_str!("../../../README.md");
        let (_, example) = readme.split_once("```toml\n").unwrap();
        let (example, _) = example.split_once("```").unwrap();
        let scenario = Scenario::parse("example", example).unwrap();
        assert_eq!(scenario.cases.len(), 2);
        for case in &scenario.cases {
            build::try_out(&case.spec).unwrap();
        }
    }

    #[test]
    fn a_case_changes_only_what_it_names() {
        let text = "[fabric]\nleaves = 2\nhosts_per_leaf = 1\nspines = 1\ngbps = 100.0\nrtt_us = 10.0\n\
                    [workload]\nkind = \"stream\"\nmib = 1.0\n\
                    [[case]]\nname = \"slow\"\nfabric = { gbps = 10.0 }\n[[case]]\n";
        let scenario = Scenario::parse("test", text).unwrap();
        let rates: Vec<f64> = scenario.cases.iter().map(|case| case.spec.fabric.gbps).collect();
        assert_eq!(rates, [10.0, 100.0]);
        assert_eq!(scenario.cases[0].spec.fabric.leaves, 2);
    }

    #[test]
    fn a_key_that_nobody_knows_is_an_error_that_names_it() {
        let error = Scenario::parse("test", "speed = 3\n").unwrap_err();
        assert!(error.to_string().contains("speed"), "{error}");
    }
}
