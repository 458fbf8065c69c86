//! The vCPU wing at work: what its handlers may touch.

use core::ops::{Deref, DerefMut};

use crate::boundary::{HostInterrupt, Run, VcpuId};
use crate::interrupts::InterruptWing;
use crate::step::Step;
use crate::vcpu::Activity;

/// Runs the threads of vCPUs: exits, entries, halts, hypercalls, pause exits.
///
/// It stands on the interrupt wing, and reaches all that this one reaches. It cannot reach what the pCPUs do: handlers
/// return what shall follow, and [`Host`](crate::Host) carries it out.
#[derive(Clone, Debug)]
pub(crate) struct VcpuWing {
    pub(crate) interrupts: InterruptWing,
}

impl Deref for VcpuWing {
    type Target = InterruptWing;

    #[inline]
    fn deref(&self) -> &InterruptWing {
        &self.interrupts
    }
}

impl DerefMut for VcpuWing {
    #[inline]
    fn deref_mut(&mut self) -> &mut InterruptWing {
        &mut self.interrupts
    }
}

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

impl VcpuWing {
    /// Resumes the thread of `vcpu`, which has the executing pCPU.
    pub(crate) fn resume(&mut self, vcpu: VcpuId, step: &mut Step<'_>) -> Resume {
        if self.guests.vcpus[vcpu].unplugged {
            self.park(vcpu, step);
            return Resume::Sleep;
        }
        if self.accept_events(vcpu, step) {
            return Resume::Again;
        }
        match self.guests.vcpus[vcpu].activity {
            Activity::Run => Resume::Run(self.enter(vcpu, step)),
            Activity::Poll { until } => self.poll(vcpu, until, step),
            Activity::Block => self.try_unblock(vcpu, step),
            Activity::PauseSleep => {
                self.guests.vcpus[vcpu].activity = Activity::Run;
                Resume::Again
            }
            Activity::Dead => Resume::Sleep,
        }
    }
}
