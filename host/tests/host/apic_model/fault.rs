//! What can be broken on purpose, between the host and what its commands do, in the hardware, or in the host's drivers:
//! the comparison has to notice.

use holdfast_abi::avic::{IncompleteIpi, IpiFailure};
use holdfast_abi::lapic as reg;
use holdfast_host::{AvicDriver, Exit, HostConfig};

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No fault.
    None,
    /// IPIs to other pCPUs are lost.
    LostKick,
    /// Interrupt windows do not exit.
    NoWindow,
    /// A vector whose delivery was interrupted is forgotten.
    ForgottenInjection,
    /// CR8 is never intercepted.
    NoCr8Intercept,
    /// CR8 as the guest left it is not reported.
    StaleCr8,
    /// The end of a non-maskable interrupt is not reported.
    NoIret,
    /// An EOI's value is taken for another register's.
    LostEoi,
    /// TMR has no bits for level-triggered interrupts.
    StaleTmr,
    /// Hardware: doorbells and notifications are lost.
    LostSignal,
    /// Hardware: that a target does not run is not reported.
    LostNotRunning,
    /// Hardware: that a target does not exist is not reported.
    LostInvalidTarget,
    /// Hardware: the end of a level-triggered interrupt is not reported.
    LostLevelEoi,
    /// Hardware: the effect of a register that software completes is not reported.
    LostTrap,
    /// Hardware: EOI ends the lowest interrupt in service.
    EoiOfLowest,
    /// Hardware: the lowest vector is taken first.
    LowestFirst,
    /// Hardware: processor priority is that of the task alone.
    NoServicePriority,
    /// What is requested is lost when the hardware is switched off.
    IrrLostAtInhibit,
    /// AVIC's driver: IsRunning stays set while the vCPU sleeps.
    RunningWhileBlocked,
    /// AVIC's driver: an IPI with a missing target is ignored, as in 4.7.
    IgnoresInvalidTarget,
    /// Posted interrupts' driver: a sleeper keeps the runner's vector.
    BlockKeepsVector,
    /// Posted interrupts' driver: a sleeper suppresses notifications.
    BlockSuppresses,
}

impl Fault {
    /// Plants the fault in the host's driver, if it is one of the driver.
    pub fn configure(self, config: &mut HostConfig) {
        match self {
            Fault::RunningWhileBlocked => config.planted.avic.running_while_blocked = true,
            Fault::IgnoresInvalidTarget => config.avic.driver = AvicDriver::Linux4_7,
            Fault::BlockKeepsVector => config.planted.posting.block_keeps_vector = true,
            Fault::BlockSuppresses => config.planted.posting.block_suppresses = true,
            _ => {}
        }
    }

    /// Returns whether the fault hides `exit` from software.
    pub fn swallows(self, exit: &Exit) -> bool {
        let fails = |ipi: &IncompleteIpi, failure: IpiFailure| ipi.id() == failure as u32;
        match (self, exit) {
            (Fault::LostNotRunning, Exit::AvicIncompleteIpi(ipi)) => fails(ipi, IpiFailure::TargetNotRunning),
            (Fault::LostInvalidTarget, Exit::AvicIncompleteIpi(ipi)) => fails(ipi, IpiFailure::InvalidTarget),
            (Fault::LostLevelEoi, Exit::AvicNoAccel { offset, .. }) => *offset == reg::EOI,
            (Fault::LostTrap, Exit::AvicNoAccel { offset, .. } | Exit::ApicvWrite { offset, .. }) => {
                matches!(*offset, reg::LDR | reg::ID | reg::DFR)
            }
            _ => false,
        }
    }
}
