//! What follows a handler.

use crate::boundary::{HostInterrupt, Run};

/// What follows a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum After {
    /// The thread goes on, if the scheduler lets it.
    Resume,
    /// The scheduler picks a thread for the executing pCPU.
    Reschedule,
    /// This host interrupt is handled: it ended guest mode.
    Interrupt(HostInterrupt),
}

impl After {
    /// Returns [`After::Reschedule`] if `gives_way`.
    pub(crate) fn reschedule_if(gives_way: bool) -> After {
        if gives_way { After::Reschedule } else { After::Resume }
    }
}

/// What a vCPU's thread does when it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resume {
    /// Its pCPU runs this.
    Run(Run),
    /// It sleeps, and the pCPU is free.
    Sleep,
    /// It has done one step, and may be preempted before the next.
    Again,
}
