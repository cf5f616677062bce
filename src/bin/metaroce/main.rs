//! The program `metaroce`: a demonstration, and file transfer over `MetaRoCE`.

mod args;
mod backend;
mod capture;
mod demo;
mod device;
mod files;
mod info;
mod interrupt;
mod net;
mod quantity;
mod reactor;
mod report;
mod trace;

use std::process::ExitCode;

use clap::Parser as _;
use serde_json::json;

use crate::args::{Cli, Command, DemoArgs, OutputArgs};
use crate::files::TransferError;
use crate::interrupt::Interrupted;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let output = cli.output;
    trace::set_level(output.verbose);
    match interrupt::install().and_then(|()| run(cli)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => fail(&error, output),
    }
}

/// Runs a command; `false` when it ran but its verification failed.
fn run(cli: Cli) -> anyhow::Result<bool> {
    let output = cli.output;
    backend::choose(cli.backend);
    if let Some(path) = &cli.pcap {
        capture::open(path)?;
    }
    match cli.command.unwrap_or_else(|| Command::Demo(DemoArgs::default())) {
        Command::Demo(args) => return demo::run(args, output),
        Command::DemoTarget(args) => demo::run_target(&args)?,
        Command::Serve(args) => match &args.control {
            Some(control) => device::serve(&args.listen, &args.planes, control, output)?,
            None => files::serve(&args, output)?,
        },
        Command::Put(args) => files::put(&args, output)?,
        Command::Get(args) => files::get(&args, output)?,
        Command::Info => info::run(output)?,
    }
    Ok(true)
}

fn fail(error: &anyhow::Error, output: OutputArgs) -> ExitCode {
    eprintln!("metaroce: {error:#}");
    let interrupted = error.is::<Interrupted>();
    if output.json {
        let kind = match error.downcast_ref::<TransferError>() {
            Some(error) => error.failure.name(),
            None if interrupted => "interrupted",
            None => "other",
        };
        println!(
            "{}",
            json!({ "verified": false, "error": { "kind": kind, "message": format!("{error:#}") } })
        );
    }
    if interrupted {
        u8::try_from(interrupt::EXIT_STATUS).map_or(ExitCode::FAILURE, ExitCode::from)
    } else {
        ExitCode::FAILURE
    }
}
