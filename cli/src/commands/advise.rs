//! `holdfast advise`.

use holdfast_lab::advise::{self, Advice, NAME, Replays, words};
use holdfast_lab::replay::{Replay, ReplayError};
use holdfast_lab::run::Failure;
use holdfast_recordings::import::ImportError;

use crate::Done;
use crate::args::{AdviseArgs, Format};
use crate::commands::import;
use crate::error::Result;
use crate::experiment;
use crate::output;
use crate::progress::Bar;
use crate::signal;

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
    let recording = import::sorted(&args.files)?;
    let call_off = signal::call_off()?;
    let imported = import::read(&recording, &Bar::uncounted("reading"), call_off)?;
    if call_off.is_called() {
        return Ok(None);
    }
    let account = &imported.account;
    let proposals = advise::proposals(account);
    let repeated = match recording.repeats(&imported) {
        Ok(repeated) => repeated,
        Err(error @ ImportError::UnknownVms(_)) => {
            return Ok(Some(Advice::unmeasured(account, proposals, Err(error.to_string()))));
        }
        Err(error) => return Err(import::refused(error)),
    };
    let bar = Bar::uncounted("checking");
    let checked = bar.while_beating(call_off, || Replay::checked(NAME, account, &repeated, call_off));
    drop(bar);
    let (replay, check) = match checked {
        Ok((replay, check)) if check.passes() => (replay, check),
        Ok((_, check)) => return Ok(Some(Advice::unmeasured(account, proposals, Ok(check)))),
        Err(ReplayError::Run(Failure::CalledOff)) => return Ok(None),
        Err(error) => return Ok(Some(Advice::unmeasured(account, proposals, Err(error.to_string())))),
    };
    let replays = Replays::new(account, replay, &proposals);
    let plan = replays.plan(args.seeds)?;
    let outcomes = experiment::execute(&plan, args.jobs.count())?;
    let whole = outcomes.complete();
    Ok(whole.then(|| Advice::measured(account, proposals, check, &replays, (&plan, &outcomes))))
}
