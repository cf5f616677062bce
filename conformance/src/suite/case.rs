//! A case, and how it ran.

use std::time::{Duration, Instant};

use super::control::Settings;
use super::port::Port;
use super::script::{Entry, Script};
use super::stop::{Outcome, Stop};

/// What a device may claim besides *core*.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Profile {
    /// Every device.
    Core,
    /// More than one path.
    Multipath,
    /// READs aside, operations on words: atomics and signals.
    Atomics,
    /// Unreliable datagrams.
    Datagram,
}

impl Profile {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Core, Self::Multipath, Self::Atomics, Self::Datagram];

    /// Its name at the control channel and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Core => "core",
            Self::Multipath => "multipath",
            Self::Atomics => "atomics",
            Self::Datagram => "datagram",
        }
    }
}

/// One thing that is tried.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Its name: area, then what.
    pub name: &'static str,
    /// What it does, in one sentence.
    pub about: &'static str,
    /// Who has to pass it.
    pub profile: Profile,
    /// Ids that it judges, besides those of [`ALWAYS`](super::monitor::ALWAYS).
    pub requirements: &'static [&'static str],
    /// How the device is set up.
    pub settings: Settings,
    /// What happens.
    pub run: fn(&mut Script<'_>) -> Outcome,
}

impl Case {
    /// A case of profile *core* with default settings.
    #[must_use]
    pub const fn new(
        name: &'static str,
        about: &'static str,
        requirements: &'static [&'static str],
        run: fn(&mut Script<'_>) -> Outcome,
    ) -> Self {
        Self { name, about, profile: Profile::Core, requirements, settings: Settings::NONE, run }
    }

    /// With these settings.
    #[must_use]
    pub const fn with(self, settings: Settings) -> Self {
        Self { settings, ..self }
    }

    /// Of another profile.
    #[must_use]
    pub const fn of(self, profile: Profile) -> Self {
        Self { profile, ..self }
    }
}

/// How a case ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing to blame.
    Passed,
    /// The device broke a rule.
    Failed {
        /// Which.
        requirement: String,
        /// What was seen, and what was asked for.
        text: String,
    },
    /// The device, its control channel or a socket failed the suite in the middle of the case: it has failed, by no rule
    /// in particular.
    Broken(String),
    /// The suite could not look.
    Skipped(String),
    /// The rule asks nothing of such a device.
    NotApplicable(String),
}

impl Verdict {
    /// Whether the device did not pass.
    #[must_use]
    pub const fn is_failure(&self) -> bool {
        matches!(self, Self::Failed { .. } | Self::Broken(_))
    }

    /// In one word.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed { .. } | Self::Broken(_) => "failed",
            Self::Skipped(_) => "skipped",
            Self::NotApplicable(_) => "not applicable",
        }
    }
}

/// A case that was run.
#[derive(Clone, Debug)]
pub struct Report {
    /// The case.
    pub case: &'static Case,
    /// How it ended.
    pub verdict: Verdict,
    /// What it took.
    pub duration: Duration,
    /// All datagrams of both sides.
    pub record: Vec<Entry>,
}

impl Report {
    /// Of a case that was not run.
    #[must_use]
    pub const fn without_run(case: &'static Case, verdict: Verdict) -> Self {
        Self { case, verdict, duration: Duration::ZERO, record: Vec::new() }
    }
}

/// Runs a case. One that can't go on has failed; the next begins with a device that is set up anew.
pub fn run(port: &mut dyn Port, case: &'static Case, seed: u64) -> Report {
    let start = Instant::now();
    let (outcome, record) = match Script::new(port, case.settings, seed) {
        Ok(mut script) => {
            let outcome = (case.run)(&mut script);
            let outcome = outcome.and_then(|()| script.monitor.check_end());
            (outcome, script.record)
        }
        Err(stop) => (Err(stop), Vec::new()),
    };
    let verdict = match outcome {
        Ok(()) => Verdict::Passed,
        Err(Stop::Failed { requirement, text }) => Verdict::Failed { requirement, text },
        Err(Stop::Skipped(reason)) => Verdict::Skipped(reason),
        Err(Stop::NotApplicable(reason)) => Verdict::NotApplicable(reason),
        Err(Stop::Broken(reason)) => Verdict::Broken(reason),
    };
    Report { case, verdict, duration: start.elapsed(), record }
}
