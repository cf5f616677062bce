//! The requirements of `SPEC.md`, where sources cite them, and what is missing.
//!
//! A citation is an id in a Rust comment: `// MR-ACK-3` in code, `//= MR-ACK-3 test` in a test. Comments of tests and of
//! the tools (`conformance/`, `fuzz/`) count as citations of a test only, and only in the second form.

mod baseline;
mod citation;
mod diagram;
mod requirement;

#[cfg(test)]
mod tests;

pub use baseline::Baseline;
pub use citation::{Citation, citations, sources};
pub use diagram::with_diagrams;
pub use requirement::{Id, Level, Requirement, Status, parse, references};

use std::collections::BTreeMap;

/// Something that must be put right.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// File and line, or the file alone.
    pub place: String,
    /// What is wrong, and what to do.
    pub what: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

/// Requirements against citations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Citations in code, by id.
    pub code: BTreeMap<Id, usize>,
    /// Citations in tests, by id.
    pub tests: BTreeMap<Id, usize>,
    /// Requirements in force, not tagged, level MUST, without a citation in code.
    pub uncited: Vec<Id>,
    /// The same without a citation in a test.
    pub untested: Vec<Id>,
    /// Citations of ids that do not exist, and of planned requirements in code.
    pub problems: Vec<Problem>,
}

impl Coverage {
    /// Compares both sides.
    #[must_use]
    pub fn new(requirements: &[Requirement], citations: &[Citation]) -> Self {
        let mut coverage = Self::default();
        let known: BTreeMap<&Id, &Requirement> =
            requirements.iter().map(|entry| (&entry.id, entry)).collect();
        for citation in citations {
            let Some(requirement) = known.get(&citation.id) else {
                coverage.problem(citation, "is not in SPEC.md");
                continue;
            };
            if citation.test {
                *coverage.tests.entry(citation.id.clone()).or_default() += 1;
            } else {
                *coverage.code.entry(citation.id.clone()).or_default() += 1;
                if requirement.status == Status::Planned {
                    coverage
                        .problem(citation, "is tagged [planned] in SPEC.md: remove the tag or the citation");
                }
            }
        }
        for requirement in requirements.iter().filter(|entry| entry.is_owed()) {
            if !coverage.code.contains_key(&requirement.id) {
                coverage.uncited.push(requirement.id.clone());
            }
            if !coverage.tests.contains_key(&requirement.id) {
                coverage.untested.push(requirement.id.clone());
            }
        }
        coverage
    }

    fn problem(&mut self, citation: &Citation, what: &str) {
        let place = format!("{}:{}", citation.file, citation.line);
        self.problems.push(Problem { place, what: format!("{} {what}", citation.id) });
    }
}

/// One line for people: how many of what.
#[must_use]
pub fn summary(requirements: &[Requirement], coverage: &Coverage) -> String {
    let count =
        |wanted: &dyn Fn(&Requirement) -> bool| requirements.iter().filter(|entry| wanted(entry)).count();
    format!(
        "{} requirements: {} MUST, {} SHOULD, {} MAY; {} planned, {} with a known defect; of {} MUSTs in force {} are cited in code and {} in tests",
        requirements.len(),
        count(&|entry| entry.level == Level::Must),
        count(&|entry| entry.level == Level::Should),
        count(&|entry| entry.level == Level::May),
        count(&|entry| entry.status == Status::Planned),
        count(&|entry| entry.status == Status::Defect),
        count(&Requirement::is_owed),
        count(&Requirement::is_owed) - coverage.uncited.len(),
        count(&Requirement::is_owed) - coverage.untested.len(),
    )
}
