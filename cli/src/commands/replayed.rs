//! A recording that replays are made of: read, and compared with its replay.

use std::path::PathBuf;

use holdfast_lab::advise::NAME;
use holdfast_lab::replay::{Check, Replay, ReplayError};
use holdfast_lab::run::Failure;
use holdfast_recordings::account::Account;
use holdfast_recordings::import::{Import, ImportError, Imported};
use holdfast_recordings::repeat::Repeated;

use crate::commands::import;
use crate::error::Result;
use crate::progress::Bar;
use crate::signal;

/// A recording that was read to its end.
pub struct Recording {
    import: Import,
    imported: Imported,
}

impl Recording {
    /// Reads the recording among `files`, or returns `None` if that was interrupted.
    pub fn read(files: &[PathBuf]) -> Result<Option<Recording>> {
        let import = import::sorted(files)?;
        let call_off = signal::call_off()?;
        let imported = import::read(&import, &Bar::uncounted("reading"), call_off)?;
        Ok((!call_off.is_called()).then_some(Recording { import, imported }))
    }

    /// Where the time of its VMs went.
    pub fn account(&self) -> &Account {
        &self.imported.account
    }

    /// Reads again what its threads did.
    pub fn repeated(&self) -> Result<Repeated, ImportError> {
        self.import.repeats(&self.imported)
    }

    /// Returns the replay of `repeated` that gives the recording back best, compared with it. `None`: interrupted.
    pub fn checked(&self, repeated: &Repeated) -> Result<Option<Result<(Replay, Check), ReplayError>>> {
        let call_off = signal::call_off()?;
        let bar = Bar::uncounted("checking");
        let checked = bar.while_beating(call_off, || Replay::checked(NAME, self.account(), repeated, call_off));
        Ok(match checked {
            Err(ReplayError::Run(Failure::CalledOff)) => None,
            checked => Some(checked),
        })
    }
}
