//! The commands `holdfast validate threads`, `kvm` and `linux-sched`: predictions compared with real machines.

mod comparison;
mod kvm;
mod linux_sched;
mod threads;

use crate::Done;
use crate::args::Against;
use crate::error::Result;

/// Runs the command for `against`.
pub fn validate(against: &Against) -> Result<Done> {
    match against {
        Against::Threads(args) => threads::validate(args),
        Against::Kvm(args) => kvm::validate(args),
        Against::LinuxSched(args) => linux_sched::validate(args),
    }
}
