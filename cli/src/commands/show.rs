//! `holdfast show`.

use holdfast_lab::shipped::{self, EXPERIMENTS, MACHINES};

use crate::Done;
use crate::args::ShowArgs;
use crate::experiment::Unknown;
use crate::output;

/// Prints a shipped file.
pub fn show(args: &ShowArgs) -> anyhow::Result<Done> {
    let found = shipped::find(EXPERIMENTS, &args.name).or_else(|| shipped::find(MACHINES, &args.name));
    match found {
        Some(shipped) => output::raw(shipped.text)?,
        None => return Err(Unknown::nothing_shipped(&args.name).into()),
    }
    Ok(Done::Whole)
}
