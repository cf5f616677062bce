//! The debts that were there when the checker came: they may be paid, and no new ones made.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::requirement::{Id, references};
use super::{Coverage, Problem};

/// MUSTs that nothing cites yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Baseline {
    /// Not cited in code.
    pub uncited: BTreeSet<Id>,
    /// Not cited in a test.
    pub untested: BTreeSet<Id>,
}

impl Baseline {
    /// Reads the file: ids under `[uncited]` and `[untested]`, and comments from `#` on.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut baseline = Self::default();
        let mut untested = false;
        for line in text.lines() {
            match line.trim() {
                "[uncited]" => untested = false,
                "[untested]" => untested = true,
                other => {
                    let ids = references(other.split('#').next().unwrap_or_default());
                    let list = if untested { &mut baseline.untested } else { &mut baseline.uncited };
                    list.extend(ids.into_iter().map(|(id, _)| id));
                }
            }
        }
        baseline
    }

    /// What is owed now but not listed, and what is listed but no longer owed.
    #[must_use]
    pub fn problems(&self, coverage: &Coverage) -> Vec<Problem> {
        let mut problems = compare("uncited", &self.uncited, &coverage.uncited);
        problems.extend(compare("untested", &self.untested, &coverage.untested));
        problems
    }

    /// The file without what is no longer owed; nothing is ever added.
    #[must_use]
    pub fn shrunk(&self, coverage: &Coverage) -> String {
        let mut text = String::from(
            "# MUSTs of SPEC.md that nothing cites yet: a debt that may only shrink.\n\
             # METAROCE_SPEC_BASELINE=shrink cargo test -p metaroce-conformance --test spec_ids\n",
        );
        for (name, listed, owed) in
            [("uncited", &self.uncited, &coverage.uncited), ("untested", &self.untested, &coverage.untested)]
        {
            let _ = write!(text, "\n[{name}]");
            let mut area = "";
            for id in listed.iter().filter(|id| owed.contains(id)) {
                text.push(if id.area == area { ' ' } else { '\n' });
                area = &id.area;
                let _ = write!(text, "{id}");
            }
            text.push('\n');
        }
        text
    }
}

fn compare(name: &str, listed: &BTreeSet<Id>, owed: &[Id]) -> Vec<Problem> {
    let place = "conformance/spec-baseline.txt";
    let fresh = owed.iter().filter(|id| !listed.contains(*id)).map(|id| {
        format!("{id} is a MUST in force and {name}: cite it where it is kept, or tag it in SPEC.md")
    });
    let paid = listed
        .iter()
        .filter(|id| !owed.contains(*id))
        .map(|id| format!("{id} is no longer {name}: shrink the file as its second line says"));
    fresh.chain(paid).map(|what| Problem { place: place.to_owned(), what }).collect()
}
