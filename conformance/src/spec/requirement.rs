//! Requirements: list items of `SPEC.md`.

use std::collections::BTreeSet;
use std::fmt;

use super::Problem;

/// The id of a requirement, `MR-<AREA>-<number>`; ordered by area, then number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id {
    /// The area, in capitals.
    pub area: String,
    /// The number in the area, from 1.
    pub number: u32,
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MR-{}-{}", self.area, self.number)
    }
}

/// How binding a requirement is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// An implementation that breaks it does not conform.
    Must,
    /// It may be broken for a good reason.
    Should,
    /// It is allowed.
    May,
}

/// How far the code of this repository is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The code keeps it, as far as anybody knows.
    InForce,
    /// The code has not got that far.
    Planned,
    /// The code is known to break it.
    Defect,
}

/// One requirement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// Its name.
    pub id: Id,
    /// How binding it is.
    pub level: Level,
    /// How far the code is.
    pub status: Status,
    /// What it asks for, on one line.
    pub sentence: String,
    /// Its first line in the file, from 1.
    pub line: usize,
}

impl Requirement {
    /// Whether citations in code and test are owed: a MUST with no tag.
    #[must_use]
    pub fn is_owed(&self) -> bool {
        self.level == Level::Must && self.status == Status::InForce
    }
}

/// The requirements of a specification, in its order, and what is wrong with them.
#[must_use]
pub fn parse(file: &str, text: &str) -> (Vec<Requirement>, Vec<Problem>) {
    let mut requirements: Vec<Requirement> = Vec::new();
    let mut problems = Vec::new();
    let mut open = false;
    for (line, content) in (1..).zip(text.lines()) {
        if let Some(item) = content.strip_prefix("- **MR-") {
            open = true;
            if let Some(requirement) = parse_item(item, line) {
                requirements.push(requirement);
            } else {
                open = false;
                problems.push(Problem { place: format!("{file}:{line}"), what: FORM.to_owned() });
            }
        } else if let (true, Some(more)) = (open, content.strip_prefix("  ")) {
            if let Some(last) = requirements.last_mut() {
                last.sentence.push(' ');
                last.sentence.push_str(more.trim());
            }
        } else {
            open = false;
        }
    }
    let mut seen = BTreeSet::new();
    for requirement in &requirements {
        let place = format!("{file}:{}", requirement.line);
        if !seen.insert(&requirement.id) {
            problems
                .push(Problem { place: place.clone(), what: format!("{} is there twice", requirement.id) });
        }
        if !is_one_sentence(&requirement.sentence) {
            let what = format!("{} must be one sentence that ends with a full stop", requirement.id);
            problems.push(Problem { place, what });
        }
    }
    for (id, line) in references(text) {
        if !seen.contains(&id) {
            problems.push(Problem { place: format!("{file}:{line}"), what: format!("{id} is not defined") });
        }
    }
    (requirements, problems)
}

/// Every id that a text names, with its line.
#[must_use]
pub fn references(text: &str) -> Vec<(Id, usize)> {
    let mut found = Vec::new();
    for (line, content) in (1..).zip(text.lines()) {
        for piece in content.split("MR-").skip(1) {
            if let Some((id, _)) = parse_id(piece) {
                found.push((id, line));
            }
        }
    }
    found
}

/// An id without its `MR-` at the start of `text`, and what follows it.
pub(super) fn parse_id(text: &str) -> Option<(Id, &str)> {
    let (area, rest) = text.split_once('-')?;
    if area.is_empty() || !area.bytes().all(|byte| byte.is_ascii_uppercase()) {
        return None;
    }
    let end = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
    let (digits, rest) = rest.split_at_checked(end)?;
    let number = digits.parse().ok().filter(|number| *number > 0)?;
    Some((Id { area: area.to_owned(), number }, rest))
}

fn parse_item(item: &str, line: usize) -> Option<Requirement> {
    let (id, rest) = parse_id(item)?;
    let rest = rest.strip_prefix("** [")?;
    let (level, rest) = rest.split_once("] ")?;
    let level = match level {
        "MUST" => Level::Must,
        "SHOULD" => Level::Should,
        "MAY" => Level::May,
        _ => return None,
    };
    let (status, sentence) = match rest.strip_prefix('[').and_then(|rest| rest.split_once("] ")) {
        None => (Status::InForce, rest),
        Some(("planned", sentence)) => (Status::Planned, sentence),
        Some(("defect", sentence)) => (Status::Defect, sentence),
        Some(_) => return None,
    };
    Some(Requirement { id, level, status, sentence: sentence.trim().to_owned(), line })
}

fn is_one_sentence(sentence: &str) -> bool {
    sentence.ends_with('.')
        && !sentence.contains(". ")
        && sentence.starts_with(|first: char| !first.is_lowercase())
}

const FORM: &str =
    "an item is `- **MR-AREA-1** [MUST|SHOULD|MAY] [planned|defect] Sentence.`, the second tag optional";
