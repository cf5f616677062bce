//! Makes one call into the core within the function `counted_call`, so that callgrind can count its instructions:
//!
//! ```text
//! valgrind --tool=callgrind --toggle-collect='*counted_call*' counted NAME               of metaroce_fuzz::worst
//! valgrind --tool=callgrind --toggle-collect='*counted_call*' counted FILE CALL NUMBER   as the program slowest shows them
//! ```

use std::process::ExitCode;

use metaroce_fuzz::probe::{Call, run_counted};
use metaroce_fuzz::{datagram, worst};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let found = match arguments[..] {
        [name] => worst::run(name),
        [file, call, number] => match (std::fs::read(file), Call::named(call), number.parse()) {
            (Ok(bytes), Some(call), Ok(number)) => run_counted(call, number, || datagram::run(&bytes)),
            _ => false,
        },
        _ => false,
    };
    if found {
        ExitCode::SUCCESS
    } else {
        eprintln!("no such call: see the documentation of this program");
        ExitCode::FAILURE
    }
}
