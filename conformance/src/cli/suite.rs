//! All runs of scenarios, on several threads.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use metaroce_conformance::sim::scenario::{ScenarioError, Verdict};
use metaroce_conformance::sim::{Case, Outcome, Scenario};

/// A scenario and what came of it.
#[derive(Debug)]
pub struct Suite {
    /// The scenario.
    pub scenario: Scenario,
    /// One result for each case, in the same order.
    pub results: Vec<CaseResult>,
}

/// The runs of one case.
#[derive(Debug)]
pub struct CaseResult {
    /// One for each seed; of baselines, for the first.
    pub outcomes: Vec<Outcome>,
    /// One for each target.
    pub verdicts: Vec<Verdict>,
}

/// Steps of the progress bar for one run.
const STEPS: u64 = 1_000;

impl Suite {
    /// Runs every case of every scenario with every seed (baselines with the first: nothing judges them), on `jobs`
    /// threads, and tells each scenario as soon as all its runs are there, in the given order. The results do not
    /// depend on `jobs`.
    pub fn run_all(
        scenarios: Vec<Scenario>,
        seeds: &[u64],
        jobs: Option<usize>,
        mut tell: impl FnMut(Self) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let works = |(at, scenario): (usize, &Scenario)| {
            let cases = scenario.cases.clone().into_iter().enumerate();
            cases
                .flat_map(|(case_at, case)| {
                    seeds_of(&case, seeds).iter().map(move |&seed| (case_at, case.clone(), seed))
                })
                .map(move |(case_at, case, seed)| Work { at, case_at, case, seed })
                .collect::<Vec<Work>>()
        };
        let work: Vec<Work> = scenarios.iter().enumerate().flat_map(works).collect();
        let bar = ProgressBar::with_draw_target(
            Some(work.len() as u64 * STEPS),
            ProgressDrawTarget::stderr_with_hz(4),
        );
        bar.set_style(style());
        let next = AtomicUsize::new(0);
        let stop = AtomicBool::new(false);
        let (sender, receiver) = mpsc::channel();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let told = std::thread::scope(|scope| {
            for _ in 0..jobs.unwrap_or(cores).clamp(1, work.len().max(1)) {
                let (sender, work, bar, next, stop) = (sender.clone(), &work, &bar, &next, &stop);
                scope.spawn(move || {
                    while let Some(one) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                        if stop.load(Ordering::Relaxed) || sender.send((one, run_one(one, bar))).is_err() {
                            return;
                        }
                    }
                });
            }
            drop(sender);
            let told = collect(scenarios, seeds, &receiver, &bar, &mut tell);
            stop.store(true, Ordering::Relaxed);
            told
        });
        bar.finish_and_clear();
        told
    }

    /// Runs every case of one scenario with every seed.
    pub fn run(scenario: Scenario, seeds: &[u64], jobs: Option<usize>) -> anyhow::Result<Self> {
        let mut found = None;
        Self::run_all(vec![scenario], seeds, jobs, |suite| {
            found = Some(suite);
            Ok(())
        })?;
        found.context("there was nothing to run")
    }

    /// Whether every run was right and every target reached.
    pub fn reached(&self) -> bool {
        self.results.iter().all(|result| {
            result.outcomes.iter().all(|outcome| outcome.faults.is_empty())
                && result.verdicts.iter().all(|verdict| verdict.pass)
        })
    }
}

/// The seeds with which a case runs.
fn seeds_of<'a>(case: &Case, seeds: &'a [u64]) -> &'a [u64] {
    let most = if case.is_baseline() { 1 } else { seeds.len() };
    seeds.get(..most.min(seeds.len())).unwrap_or_default()
}

/// One run to be made.
struct Work {
    /// Which scenario.
    at: usize,
    /// Which of its cases.
    case_at: usize,
    case: Case,
    seed: u64,
}

type Done<'a> = (&'a Work, Result<Outcome, ScenarioError>);

/// Takes the outcomes as they come, and tells each scenario when it is complete, in order.
fn collect(
    scenarios: Vec<Scenario>,
    seeds: &[u64],
    receiver: &mpsc::Receiver<Done<'_>>,
    bar: &ProgressBar,
    tell: &mut impl FnMut(Suite) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut outcomes: Vec<Vec<Vec<Outcome>>> =
        scenarios.iter().map(|scenario| vec![Vec::new(); scenario.cases.len()]).collect();
    for (at, scenario) in scenarios.into_iter().enumerate() {
        bar.set_message(scenario.name.clone());
        let missing = |outcomes: &[Vec<Vec<Outcome>>]| {
            let cases = outcomes.get(at).into_iter().flatten().zip(&scenario.cases);
            cases.into_iter().any(|(runs, case)| runs.len() < seeds_of(case, seeds).len())
        };
        while missing(&outcomes) {
            let (work, outcome) = receiver.recv().context("a run ended without a result")?;
            let list = outcomes.get_mut(work.at).and_then(|cases| cases.get_mut(work.case_at));
            if let Some(list) = list {
                list.push(outcome?);
            }
        }
        let mut cases = outcomes.get_mut(at).map(std::mem::take).unwrap_or_default();
        for runs in &mut cases {
            runs.sort_by_key(|outcome| outcome.seed);
        }
        let results = judge(&scenario, cases);
        bar.suspend(|| tell(Suite { scenario, results }))?;
    }
    Ok(())
}

fn run_one(work: &Work, bar: &ProgressBar) -> Result<Outcome, ScenarioError> {
    let told = AtomicU64::new(0);
    let result = work.case.run(work.seed, &mut |placed, all| {
        let steps = (placed.saturating_mul(STEPS) / all.max(1)).min(STEPS);
        let before = told.swap(steps, Ordering::Relaxed);
        bar.inc(steps.saturating_sub(before));
    });
    bar.inc(STEPS - told.load(Ordering::Relaxed).min(STEPS));
    result
}

fn judge(scenario: &Scenario, outcomes: Vec<Vec<Outcome>>) -> Vec<CaseResult> {
    let verdicts: Vec<Vec<Verdict>> = scenario
        .cases
        .iter()
        .zip(&outcomes)
        .map(|(case, of_case)| {
            let others = |name: &str| {
                let at = scenario.cases.iter().position(|case| case.name == name)?;
                outcomes.get(at).map(Vec::as_slice)
            };
            case.spec.targets.iter().map(|target| target.judge(of_case, others)).collect()
        })
        .collect();
    outcomes.into_iter().zip(verdicts).map(|(outcomes, verdicts)| CaseResult { outcomes, verdicts }).collect()
}

fn style() -> ProgressStyle {
    ProgressStyle::with_template("{msg:16} {bar:40} {percent:>3} %  {elapsed}")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
}
