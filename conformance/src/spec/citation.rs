//! Citations: ids in the comments of Rust sources.

use std::io;
use std::path::{Path, PathBuf};

use super::requirement::{Id, parse_id};

/// One id in one comment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Citation {
    /// What is cited.
    pub id: Id,
    /// By which file, relative to the workspace, with slashes.
    pub file: String,
    /// In which line, from 1.
    pub line: usize,
    /// Whether a test cites it.
    pub test: bool,
}

/// The citations of one file; `file` is relative to the workspace.
///
/// `// MR-ACK-3, MR-ACK-4: why` cites in code. `//= MR-ACK-3 test` cites in a test. In a file of tests or tools a
/// comment without the word `test` cites nothing, but its ids are checked all the same, as tests.
#[must_use]
pub fn citations(file: &str, text: &str) -> Vec<Citation> {
    let mut found = Vec::new();
    let tools = is_of_tests(file);
    for (line, content) in (1..).zip(text.lines()) {
        let Some((_, comment)) = content.split_once("//") else { continue };
        let test = comment.starts_with('=') && comment.trim_end().ends_with(" test");
        for piece in comment.split("MR-").skip(1) {
            if let Some((id, _)) = parse_id(piece)
                && (test || !tools)
            {
                found.push(Citation { id, file: file.to_owned(), line, test });
            }
        }
    }
    found
}

/// Whether code of this file is test or tool, and no implementation.
fn is_of_tests(file: &str) -> bool {
    file.starts_with("conformance/")
        || file.starts_with("fuzz/")
        || file.split('/').any(|part| matches!(part, "tests" | "tests.rs" | "benches" | "examples"))
}

/// All Rust sources of a workspace but those of this module, relative to it, in order.
///
/// # Errors
/// Those of the file system.
pub fn sources(workspace: &Path) -> io::Result<Vec<(String, String)>> {
    let mut files = Vec::new();
    let mut waiting = vec![PathBuf::new()];
    while let Some(folder) = waiting.pop() {
        for entry in std::fs::read_dir(workspace.join(&folder))? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let path = folder.join(&*name);
            if entry.file_type()?.is_dir() {
                if !name.starts_with('.') && name != "target" && path != Path::new("conformance/src/spec") {
                    waiting.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let relative = path.to_string_lossy().replace('\\', "/");
                files.push((relative, std::fs::read_to_string(workspace.join(&path))?));
            }
        }
    }
    files.sort();
    Ok(files)
}
