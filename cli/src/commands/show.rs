//! `holdfast show`.

use holdfast_lab::shipped::{self, EXPERIMENTS, MACHINES};

use crate::Done;
use crate::args::ShowArgs;
use crate::error::Result;
use crate::experiment::names;
use crate::output;
use crate::refused::Refused;

/// Prints a shipped file.
pub fn show(args: &ShowArgs) -> Result<Done> {
    let found = shipped::find(EXPERIMENTS, &args.name).or_else(|| shipped::find(MACHINES, &args.name));
    match found {
        Some(shipped) => output::raw(shipped.text)?,
        None => {
            let known = names(EXPERIMENTS).chain(names(MACHINES));
            return Err(Refused::among(&args.name, known).into());
        }
    }
    Ok(Done::Whole)
}
