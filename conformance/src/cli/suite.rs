//! All runs of a scenario, on several threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

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
    /// One for each seed.
    pub outcomes: Vec<Outcome>,
    /// One for each target.
    pub verdicts: Vec<Verdict>,
}

/// Steps of the progress bar for one run.
const STEPS: u64 = 1_000;

impl Suite {
    /// Runs every case with every seed. The results do not depend on `jobs`.
    pub fn run(scenario: Scenario, seeds: &[u64], jobs: Option<usize>) -> Result<Self, ScenarioError> {
        let work: Vec<(usize, &Case, u64)> = scenario
            .cases
            .iter()
            .enumerate()
            .flat_map(|(at, case)| seeds.iter().map(move |&seed| (at, case, seed)))
            .collect();
        let bar = ProgressBar::with_draw_target(
            Some(work.len() as u64 * STEPS),
            ProgressDrawTarget::stderr_with_hz(4),
        );
        bar.set_style(style());
        bar.set_message(scenario.name.clone());
        let next = AtomicUsize::new(0);
        let done = Mutex::new(Vec::new());
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            for _ in 0..jobs.unwrap_or(cores).clamp(1, work.len().max(1)) {
                scope.spawn(|| {
                    while let Some(&(at, case, seed)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let result = run_one(case, seed, &bar);
                        if let Ok(mut done) = done.lock() {
                            done.push((at, seed, result));
                        }
                    }
                });
            }
        });
        bar.finish_and_clear();
        let mut done = done.into_inner().unwrap_or_default();
        done.sort_by_key(|(at, seed, _)| (*at, *seed));
        let mut outcomes = vec![Vec::new(); scenario.cases.len()];
        for (at, _, result) in done {
            if let Some(list) = outcomes.get_mut(at) {
                list.push(result?);
            }
        }
        let results = judge(&scenario, outcomes);
        Ok(Self { scenario, results })
    }

    /// Whether every run was right and every target reached.
    pub fn reached(&self) -> bool {
        self.results.iter().all(|result| {
            result.outcomes.iter().all(|outcome| outcome.faults.is_empty())
                && result.verdicts.iter().all(|verdict| verdict.pass)
        })
    }
}

fn run_one(case: &Case, seed: u64, bar: &ProgressBar) -> Result<Outcome, ScenarioError> {
    let told = AtomicU64::new(0);
    let result = case.run(seed, &mut |placed, all| {
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
