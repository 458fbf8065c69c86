//! Commands that run on the real machine.

mod bench;
mod calibrate;
mod kvm;
mod record;
mod validate;
mod worker;

use crate::Done;
use crate::args::RealHostCommand;
use crate::error::Result;

pub use validate::validate;

/// Runs `command`.
pub fn run(command: &RealHostCommand) -> Result<Done> {
    match command {
        RealHostCommand::Bench(args) => bench::bench(args),
        RealHostCommand::Calibrate(args) => calibrate::calibrate(args),
        RealHostCommand::Kvm(args) => kvm::kvm(args),
        RealHostCommand::Record(args) => record::record(args),
    }
}
