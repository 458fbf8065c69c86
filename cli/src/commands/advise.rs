//! `holdfast advise`.

use holdfast_lab::advise::{self, Advice, Replays, words};
use holdfast_recordings::import::ImportError;

use crate::Done;
use crate::args::{AdviseArgs, Format};
use crate::commands::import;
use crate::commands::replayed::Recording;
use crate::error::Result;
use crate::experiment;
use crate::output;

/// Reads a recording, and says what would help its VMs.
pub fn advise(args: &AdviseArgs) -> Result<Done> {
    let advice = match advice(args)? {
        Some(advice) => advice,
        None => return Ok(Done::Interrupted),
    };
    match args.format {
        Format::Json => output::json(&advice)?,
        Format::Table => output::raw(&words(&advice))?,
    }
    Ok(Done::Whole)
}

/// Returns the advice, or `None` if it was interrupted.
fn advice(args: &AdviseArgs) -> Result<Option<Advice>> {
    let Some(recording) = Recording::read(&args.files)? else {
        return Ok(None);
    };
    let account = recording.account();
    let proposals = advise::proposals(account);
    let repeated = match recording.repeated() {
        Ok(repeated) => repeated,
        Err(error @ (ImportError::NoVcpu(_) | ImportError::UnknownVms(_))) => {
            return Ok(Some(Advice::unmeasured(account, proposals, Err(error.to_string()))));
        }
        Err(error) => return Err(import::refused(error)),
    };
    let Some(checked) = recording.checked(&repeated)? else {
        return Ok(None);
    };
    let (replay, check) = match checked {
        Ok((replay, check)) if check.passes() => (replay, check),
        Ok((_, check)) => return Ok(Some(Advice::unmeasured(account, proposals, Ok(check)))),
        Err(error) => return Ok(Some(Advice::unmeasured(account, proposals, Err(error.to_string())))),
    };
    let replays = Replays::new(account, replay, &proposals);
    let plan = replays.plan(args.seeds)?;
    let outcomes = experiment::execute(&plan, args.jobs.count())?;
    let whole = outcomes.complete();
    Ok(whole.then(|| Advice::measured(account, proposals, check, &replays, (&plan, &outcomes))))
}
