//! Section 16 of `SPEC.md`, drawn from the core's tables.

use std::fmt::{Debug, Write};

use metaroce_core::lifecycle::{self, Transition};

const BEGIN: &str = "<!-- state-machines: begin.";
const END: &str = "<!-- state-machines: end -->";

/// The specification with its state machines drawn anew; `None` if the marks are missing.
#[must_use]
pub fn with_diagrams(specification: &str) -> Option<String> {
    let (before, rest) = specification.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN} {}{END}{after}", diagrams()))
}

fn diagrams() -> String {
    format!(
        "Drawn from `metaroce_core::lifecycle` by METAROCE_SPEC_DIAGRAMS=write cargo test -p metaroce-conformance --test spec_ids -->\n\n\
         Connection:\n\n{}\nPath:\n\n{}\nStream:\n\n{}\n",
        diagram(lifecycle::CONNECTION),
        diagram(lifecycle::PATH),
        diagram(lifecycle::STREAM)
    )
}

fn diagram<S: Copy + Debug>(table: &[Transition<S>]) -> String {
    let name = |state: Option<S>| state.map_or("[*]".to_owned(), |state| format!("{state:?}"));
    let mut text = String::from("```mermaid\nstateDiagram-v2\n");
    for step in table {
        let _ = writeln!(text, "    {} --> {}: {}", name(step.from), name(step.to), step.cause);
    }
    text + "```\n"
}
