//! The command `holdfast`: parse, call, print.
//!
//! What was asked for goes to standard output; everything else (progress, remarks, errors) to standard error. Every outcome
//! becomes an exit status in [`status`], and nowhere else.
#![forbid(unsafe_code)]

mod args;
mod commands;
mod experiment;
mod output;
mod progress;
mod signal;

use std::io;
use std::process::ExitCode;

use clap::Parser as _;
use holdfast_lab::compare::CompareError;
use holdfast_lab::diagnostic::Problems;
use holdfast_lab::reality::linux::KernelError;
use holdfast_lab::results::ReadError;
use holdfast_lab::trace::TraceError;

use crate::args::{Cli, Command};
use crate::experiment::Unknown;

/// What a command came to, if nothing went wrong on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    /// All of it.
    Whole,
    /// A run failed, was called off, or was not the same twice.
    Failed,
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Run(args) => commands::run::run(&args),
        Command::List(args) => commands::list::list(&args),
        Command::Show(args) => commands::show::show(&args),
        Command::Keys(args) => commands::keys::keys(&args),
        Command::Explain(args) => commands::explain::explain(&args),
        Command::Compare(args) => commands::compare::compare(&args),
        Command::Bench(args) => commands::bench::bench(&args),
        Command::Report(args) => commands::report::report(&args),
        Command::Trace(args) => commands::trace::trace(&args),
        Command::Validate(args) => commands::validate::validate(&args),
        Command::Kvm(args) => commands::kvm::kvm(&args),
        Command::Calibrate(args) => commands::calibrate::calibrate(&args),
    };
    ExitCode::from(status(outcome))
}

/// The exit status: 0 done, 1 the run failed, 2 bad usage or input. (Bad options end earlier, also with 2.)
fn status(outcome: anyhow::Result<Done>) -> u8 {
    let error = match outcome {
        Ok(Done::Whole) => return 0,
        Ok(Done::Failed) => return 1,
        Err(error) => error,
    };
    // Who reads us has seen enough (`| head`).
    if error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    {
        return 0;
    }
    eprintln!("error: {error:#}");
    let bad_input = error.is::<Problems>()
        || error.is::<ReadError>()
        || error.is::<CompareError>()
        || error.is::<Unknown>()
        || error.is::<KernelError>()
        || matches!(error.downcast_ref(), Some(TraceError::Input(_)));
    if bad_input { 2 } else { 1 }
}
