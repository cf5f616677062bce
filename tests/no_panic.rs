//! The proof that the core's data path has no panic and no allocator: the symbol table of a static library.
//!
//! `metaroce-core/checks/no-panic` is the core as firmware links it. It is built with full optimisation and linked from
//! its C functions on with `--gc-sections`; what is left must contain neither panic code nor an allocator.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![allow(clippy::unwrap_used, clippy::panic, reason = "in tests a failure is a panic")]

mod support;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The C functions of the static library: what firmware calls while data flows.
const ROOTS: [&str; 7] = [
    "metaroce_handle_datagram",
    "metaroce_handle_timeout",
    "metaroce_poll_transmit",
    "metaroce_poll_event",
    "metaroce_next_deadline",
    "metaroce_post",
    "metaroce_post_recv",
];

/// Parts of names that panic code, unwinding, formatting or an allocator would bring.
const FORBIDDEN: [&str; 8] = [
    "metaroce_panic_reached",
    "panicking",
    "rust_begin_unwind",
    "unwrap_failed",
    "expect_failed",
    "__rust_alloc",
    "alloc::",
    "core::fmt",
];

/// All that may stay undefined: memory functions that every platform has.
const ALLOWED_UNDEFINED: [&str; 5] = ["memcpy", "memmove", "memset", "memcmp", "bcmp"];

#[test]
//= MR-SEC-1 test
//= MR-SEC-4 test
fn no_panic_and_no_allocator_is_reached_from_the_data_path() {
    let test = "no_panic_and_no_allocator_is_reached_from_the_data_path";
    for tool in ["cc", "nm", "objdump"] {
        if Command::new(tool).arg("--version").output().is_err() {
            return support::skip(test, &format!("the program {tool} is not installed"));
        }
    }
    let linked = link(&build());
    let symbols = output(Command::new("nm").arg("--demangle").arg(&linked));
    for root in ROOTS {
        assert!(symbols.lines().any(|line| line.ends_with(root)), "{root} is not in {symbols}");
    }
    let forbidden: Vec<_> =
        symbols.lines().filter(|line| FORBIDDEN.iter().any(|name| line.contains(name))).collect();
    let undefined: Vec<_> = symbols
        .lines()
        .filter_map(|line| line.trim().strip_prefix("U "))
        .filter(|name| !ALLOWED_UNDEFINED.contains(name))
        .collect();
    assert!(
        forbidden.is_empty() && undefined.is_empty(),
        "reached: {forbidden:#?}\nundefined: {undefined:?}\nfrom: {:#?}",
        callers(&linked)
    );
}

/// Builds the static library; its path.
fn build() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("no-panic");
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("metaroce-core/checks/no-panic/Cargo.toml");
    let mut cargo = Command::new(env!("CARGO"));
    // Settings of the outer build, such as a sanitizer, would bring their own symbols.
    cargo.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS").env_remove("CARGO_BUILD_TARGET");
    cargo.args(["build", "--release", "--quiet", "--manifest-path"]).arg(manifest);
    output(cargo.arg("--target-dir").arg(&target));
    target.join("release/libmetaroce_no_panic.a")
}

/// Links what the roots reach.
fn link(library: &Path) -> PathBuf {
    let linked = library.with_file_name("linked");
    let mut cc = Command::new("cc");
    cc.args(["-nostdlib", "-static", "-Wl,--gc-sections", "-Wl,--unresolved-symbols=ignore-all"]);
    cc.arg(format!("-Wl,--entry={}", ROOTS.first().unwrap()));
    cc.args(ROOTS.map(|root| format!("-Wl,--undefined={root}")));
    output(cc.arg("-o").arg(&linked).arg(library));
    linked
}

/// The functions that call or jump to something forbidden, to find the line that is to blame.
fn callers(linked: &Path) -> BTreeSet<String> {
    let listing = output(
        Command::new("objdump").args(["--disassemble", "--demangle", "--no-show-raw-insn"]).arg(linked),
    );
    let mut function = "";
    let mut callers = BTreeSet::new();
    for line in listing.lines() {
        if let Some(name) = line.strip_suffix(">:").and_then(|line| line.split_once('<')) {
            function = name.1;
        } else if let Some((_, called)) = line.split_once(" <")
            && (line.contains("call") || line.contains("jmp"))
            && FORBIDDEN.iter().any(|name| called.contains(name))
            && !FORBIDDEN.iter().any(|name| function.contains(name))
        {
            callers.insert(format!("{function} -> {}", called.trim_end_matches('>')));
        }
    }
    callers
}

fn output(command: &mut Command) -> String {
    let result = command.output().unwrap();
    assert!(result.status.success(), "{command:?}: {}", String::from_utf8_lossy(&result.stderr));
    String::from_utf8_lossy(&result.stdout).into_owned()
}
