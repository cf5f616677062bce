//! A copy of the workspace in which the core is instrumented.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use crate::instrument::{Mutant, instrument};

/// What the core gets: which mutant is alive.
///
/// It is asked on every path of the core, so that the answer must cost one load and one comparison.
const SWITCH: &str = r#"
#[doc(hidden)]
#[allow(warnings, clippy::all, clippy::pedantic)]
pub(crate) mod mutant_switch {
    extern crate std;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    const UNKNOWN: u32 = u32::MAX;
    static ALIVE: AtomicU32 = AtomicU32::new(UNKNOWN);
    #[inline]
    pub(crate) fn mutant(number: u32) -> bool {
        let alive = ALIVE.load(Relaxed);
        if alive != UNKNOWN { alive == number } else { ask() == number }
    }
    #[cold]
    #[inline(never)]
    fn ask() -> u32 {
        let alive = std::env::var("MUTANT").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
        ALIVE.store(alive, Relaxed);
        alive
    }
}
"#;

/// The copy.
pub struct Tree {
    /// What it is a copy of.
    from: PathBuf,
    /// Its root.
    pub root: PathBuf,
}

impl Tree {
    /// Copies what git knows, and what is new and not ignored.
    pub fn prepare(from: &Path) -> anyhow::Result<Self> {
        let root = std::env::temp_dir().join("metaroce-mutants");
        let listed = Command::new("git")
            .current_dir(from)
            .args(["ls-files", "-z", "-co", "--exclude-standard"])
            .output()
            .context("git ls-files")?;
        ensure!(listed.status.success(), "git ls-files failed");
        let names = String::from_utf8(listed.stdout)?;
        let names: BTreeSet<&str> = names.split('\0').filter(|name| !name.is_empty()).collect();
        // What an earlier copy had, and is no more.
        let mut old = Vec::new();
        for folder in ["metaroce-core", "conformance"] {
            collect(&root.join(folder), &mut old)?;
        }
        for path in old {
            let name = path.strip_prefix(&root)?.to_string_lossy();
            if !names.contains(&*name) && !name.contains("/target/") {
                std::fs::remove_file(path)?;
            }
        }
        for name in names {
            let (source, to) = (from.join(name), root.join(name));
            let Ok(bytes) = std::fs::read(&source) else { continue };
            if !name.starts_with(SOURCES) || name.contains("tests") {
                put(&to, &bytes)?;
            }
        }
        Ok(Self { from: from.to_owned(), root })
    }

    /// Puts every mutant into the core, and lists them.
    pub fn instrument(&self) -> anyhow::Result<Vec<Mutant>> {
        let mut mutants = Vec::new();
        for (path, text) in instrumented(&self.from, &mut mutants)? {
            put(&self.root.join(path.strip_prefix(&self.from)?), text.as_bytes())?;
        }
        let library = Path::new(SOURCES).join("lib.rs");
        let text = std::fs::read_to_string(self.from.join(&library))?;
        // Lints are for people: what is generated keeps none of them.
        let allowed = "#![allow(warnings, clippy::all, arithmetic_overflow, unconditional_panic)]";
        let text = text.replace("#![no_std]", &format!("#![no_std]\n{allowed}"));
        put(&self.root.join(&library), (text + SWITCH).as_bytes())?;
        Ok(mutants)
    }
}

/// Writes a file, if that changes it: what has not changed keeps its time, so that cargo builds no more than it must.
fn put(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    if std::fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    std::fs::create_dir_all(path.parent().context("a file has a directory")?)?;
    Ok(std::fs::write(path, bytes)?)
}

const SOURCES: &str = "metaroce-core/src";

/// The mutants of a workspace, which stays as it is.
pub fn mutants(root: &Path) -> anyhow::Result<Vec<Mutant>> {
    let mut mutants = Vec::new();
    instrumented(root, &mut mutants)?;
    Ok(mutants)
}

/// The sources with all mutants in them.
fn instrumented(root: &Path, mutants: &mut Vec<Mutant>) -> anyhow::Result<Vec<(PathBuf, String)>> {
    let sources = root.join(SOURCES);
    let mut files = Vec::new();
    collect(&sources, &mut files)?;
    files.sort();
    let mut changed = Vec::new();
    for path in files {
        let name = path.strip_prefix(&sources)?.to_string_lossy().into_owned();
        if name.contains("tests") || name == "lib.rs" {
            continue;
        }
        let text = instrument(&name, &std::fs::read_to_string(&path)?, mutants)?;
        changed.push((path, text));
    }
    Ok(changed)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}
