//! The command `holdfast`: parse, call, print.
//!
//! It is a library, too, so that a program of a few lines is this command with a lock, a policy of hosts or guests, or
//! a workload of its own:
//!
//! ```no_run
//! # use holdfast_locks::Ticket as Mine;
//! fn main() -> std::process::ExitCode {
//!     holdfast_cli::command().lock::<Mine>("mine").run()
//! }
//! ```
//!
//! Then `vm.*.lock = "mine"` names it in experiments, `--set` and sweeps, and `holdfast keys` lists it. With
//! `.policy::<Mine>("mine")`, `host.policy = "mine"` does, and `.guest_policy` and `.workload` add names for
//! `vm.*.guest_policy` and `vm.*.workload`.
//!
//! Results go to standard output, everything else (progress, remarks, errors) to standard error. Every outcome
//! becomes an exit status in `status` here and in `error.rs` only.
#![forbid(unsafe_code)]
// These macros panic if the stream is closed: see `say!` and `output`.
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod args;
mod commands;
mod error;
mod experiment;
mod extended;
mod output;
mod progress;
mod refused;
mod signal;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser as _;
use holdfast_lab::extensions::{Extensions, GuestPolicy, Load, Policy, SimLock};

use crate::args::{Cli, Command};
use crate::error::{Done, Error, Result};
use crate::output::say;

/// Returns the command as it is shipped.
pub fn command() -> Program {
    Program {
        extensions: Extensions::shipped(),
    }
}

/// The command `holdfast` with what a program adds to it.
#[derive(Debug)]
#[must_use = "it does nothing until it is run"]
pub struct Program {
    extensions: Extensions,
}

impl Program {
    /// Adds the lock `L`, which experiments call `name`.
    ///
    /// # Panics
    /// If a lock of that name is known, or if the lock that `L` names in `WITHOUT_KICKS` is not.
    #[track_caller]
    pub fn lock<L: SimLock>(self, name: &'static str) -> Program {
        Program {
            extensions: self.extensions.lock::<L>(name),
        }
    }

    /// Adds the host policy `P`, which experiments call `name`. Each host begins with `P::default()`.
    ///
    /// # Panics
    /// If a policy of that name is known.
    #[track_caller]
    pub fn policy<P: Policy + Default + 'static>(self, name: &'static str) -> Program {
        Program {
            extensions: self.extensions.policy::<P>(name),
        }
    }

    /// Adds the guest policy `P`, which experiments call `name`. Each guest begins with `P::default()`.
    ///
    /// # Panics
    /// If a guest policy of that name is known.
    #[track_caller]
    pub fn guest_policy<P: GuestPolicy + Default + 'static>(self, name: &'static str) -> Program {
        Program {
            extensions: self.extensions.guest_policy::<P>(name),
        }
    }

    /// Adds the workload `L`, which experiments call `name`. Each guest begins with `L::default()`, scaled.
    ///
    /// # Panics
    /// If a workload of that name is known.
    #[track_caller]
    pub fn workload<L: Load + 'static>(self, name: &'static str) -> Program {
        Program {
            extensions: self.extensions.workload::<L>(name),
        }
    }

    /// Does what the command line says. Returns the exit status.
    pub fn run(self) -> ExitCode {
        extended::set(self.extensions);
        let outcome = match Cli::try_parse() {
            Ok(cli) => {
                output::set_quiet(cli.quiet);
                execute(&cli.command)
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
}

fn execute(command: &Command) -> Result<Done> {
    match command {
        Command::Run(args) => commands::run::run(args),
        Command::Plan(args) => commands::plan::plan(args),
        Command::Merge(args) => commands::merge::merge(args),
        Command::Submit(args) => commands::submit::submit(args),
        Command::Status(args) => commands::status::status(args),
        Command::List(args) => commands::list::list(args),
        Command::Show(args) => commands::show::show(args),
        Command::New(args) => commands::new::new(args),
        Command::Keys(args) => commands::keys::keys(args),
        Command::Explain(args) => commands::explain::explain(args),
        Command::Compare(args) => commands::compare::compare(args),
        Command::Report(args) => commands::report::report(args),
        Command::Trace(args) => commands::trace::trace(args),
        Command::Import(args) => commands::import::import(args),
        Command::Advise(args) => commands::advise::advise(args),
        Command::Capacity(args) => commands::capacity::capacity(args),
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
