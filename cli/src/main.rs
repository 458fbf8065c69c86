//! The command `holdfast`: parse, call, print.
//!
//! `signal.rs` is what an interruption does. The feature `real-host` adds the commands of that crate; without it
//! `without_real_host.rs` answers them.
//!
//! Results go to standard output, everything else (progress, remarks, errors) to standard error. Every outcome
//! becomes an exit status in [`status`] and [`Error::status`] only.
#![forbid(unsafe_code)]
// These macros panic if the stream is closed: see `say!` and `output`.
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod args;
mod commands;
mod error;
mod experiment;
mod output;
mod progress;
mod refused;
mod signal;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser as _;

use crate::args::{Cli, Command};
use crate::error::{Done, Error, Result};
use crate::output::say;

fn main() -> ExitCode {
    let outcome = match Cli::try_parse() {
        Ok(cli) => {
            output::set_quiet(cli.quiet);
            command(&cli.command)
        }
        Err(error) if error.use_stderr() => {
            // If stderr is closed the error is lost; the exit status still says 2.
            let _ = error.print();
            return ExitCode::from(Error::BAD_INPUT);
        }
        Err(help) => print(&help),
    };
    ExitCode::from(status(outcome))
}

fn command(command: &Command) -> Result<Done> {
    match command {
        Command::Run(args) => commands::run::run(args),
        Command::Plan(args) => commands::plan::plan(args),
        Command::Merge(args) => commands::merge::merge(args),
        Command::Submit(args) => commands::submit::submit(args),
        Command::Status(args) => commands::status::status(args),
        Command::List(args) => commands::list::list(args),
        Command::Show(args) => commands::show::show(args),
        Command::Keys(args) => commands::keys::keys(args),
        Command::Explain(args) => commands::explain::explain(args),
        Command::Compare(args) => commands::compare::compare(args),
        Command::Report(args) => commands::report::report(args),
        Command::Trace(args) => commands::trace::trace(args),
        Command::Validate(args) => commands::validate::validate(args),
        Command::Completions(args) => commands::generated::completions(args),
        Command::Man(args) => commands::generated::man(args),
        Command::RealHost(command) => commands::real_host::run(command),
    }
}

/// Prints help or the version.
fn print(help: &clap::Error) -> Result<Done> {
    help.print()
        .and_then(|()| io::stdout().flush())
        .map_err(Error::of_output)?;
    Ok(Done::Whole)
}

/// Returns the exit status: 0 done, 1 the run failed, 2 bad usage or input, 77 not possible on this machine, 130
/// interrupted (143 by SIGTERM, 129 by SIGHUP). (Bad options end earlier, also with 2.)
fn status(outcome: Result<Done>) -> u8 {
    match outcome {
        Ok(Done::Whole) => 0,
        Ok(Done::Failed) => 1,
        Ok(Done::Interrupted) => signal::interrupted(),
        Err(error) => {
            match &error {
                Error::Closed => {}
                Error::Skipped(skipped) => say!("SKIPPED: {skipped}"),
                error => say!("error: {error}"),
            }
            error.status()
        }
    }
}
