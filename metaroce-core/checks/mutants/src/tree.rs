//! A copy of the workspace in which the core is instrumented.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use crate::instrument::{Mutant, instrument};

/// What the core gets: which mutant is alive, and in a recording run the numbers that were asked for.
const SWITCH: &str = r#"
#[doc(hidden)]
#[allow(warnings, clippy::all, clippy::pedantic)]
pub(crate) mod mutant_switch {
    extern crate std;
    use std::io::Write;
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    static ALIVE: LazyLock<u32> =
        LazyLock::new(|| std::env::var("MUTANT").ok().and_then(|text| text.parse().ok()).unwrap_or(0));
    static RECORD: LazyLock<Option<std::sync::Mutex<std::fs::File>>> = LazyLock::new(|| {
        let path = std::env::var_os("MUTANT_RECORD")?;
        Some(std::sync::Mutex::new(std::fs::File::options().create(true).append(true).open(path).ok()?))
    });
    static SEEN: [AtomicBool; 8192] = [const { AtomicBool::new(false) }; 8192];
    pub(crate) fn mutant(number: u32) -> bool {
        if let Some(file) = &*RECORD
            && !SEEN[number as usize].load(Relaxed)
            && !SEEN[number as usize].swap(true, Relaxed)
        {
            let _ = std::writeln!(file.lock().unwrap(), "{number}");
        }
        *ALIVE == number
    }
}
"#;

/// The copy.
pub struct Tree {
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
        for name in String::from_utf8(listed.stdout)?.split('\0').filter(|name| !name.is_empty()) {
            let (source, to) = (from.join(name), root.join(name));
            let Ok(bytes) = std::fs::read(&source) else { continue };
            // What has not changed keeps its time, so that cargo builds no more than it must.
            if !name.starts_with("metaroce-core/src/") && std::fs::read(&to).is_ok_and(|old| old == bytes) {
                continue;
            }
            std::fs::create_dir_all(to.parent().context("a file has a directory")?)?;
            std::fs::write(to, bytes)?;
        }
        Ok(Self { root })
    }

    /// Puts every mutant into the core, and lists them.
    pub fn instrument(&self) -> anyhow::Result<Vec<Mutant>> {
        let mut mutants = Vec::new();
        for (path, text) in instrumented(&self.root, &mut mutants)? {
            std::fs::write(path, text)?;
        }
        let library = self.root.join(SOURCES).join("lib.rs");
        let text = std::fs::read_to_string(&library)?;
        // Lints are for people: what is generated keeps none of them.
        let allowed = "#![allow(warnings, clippy::all, arithmetic_overflow, unconditional_panic)]";
        let text = text.replace("#![no_std]", &format!("#![no_std]\n{allowed}"));
        std::fs::write(&library, text + SWITCH)?;
        Ok(mutants)
    }
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
