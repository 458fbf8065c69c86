//! `holdfast validate threads`: the locks on threads of this machine.

use holdfast_real_host::validate::{Settings, threads};

use super::comparison::{Comparison, locks};
use crate::Done;
use crate::args::{ContendedArgs, given};
use crate::error::Result;

/// Runs the locks on host threads and in the simulator.
pub fn validate(args: &ContendedArgs) -> Result<Done> {
    let mut settings = Settings::threads();
    given(&mut settings.locks, &locks(&args.locks)?);
    given(&mut settings.sections_ns, &args.sections);
    let comparison = Comparison {
        against: "threads",
        in_guests: false,
        guest: None,
        settings,
    };
    comparison.run(args, threads::compare)
}
