//! The vCPU wing at work: what its handlers may touch.

use crate::boundary::{HostInterrupt, Run, VcpuId};
use crate::config::HostConfig;
use crate::guests::Guests;
use crate::interrupts::{InterruptState, InterruptWing};
use crate::step::Step;
use crate::threads::Threads;
use crate::vcpu::Activity;

/// Access for the code that runs a vCPU's thread: exits, entries, halts, hypercalls, pause exits.
///
/// It cannot reach what the pCPUs do: handlers return what shall follow, and [`Host`](crate::Host) carries it out.
#[derive(Debug)]
pub(crate) struct VcpuWing<'h> {
    pub(crate) config: &'h HostConfig,
    pub(crate) guests: &'h mut Guests,
    pub(crate) threads: &'h mut Threads,
    pub(crate) interrupt_state: &'h mut InterruptState,
}

impl VcpuWing<'_> {
    /// Returns access to the interrupt wing.
    #[inline]
    pub(crate) fn interrupts(&mut self) -> InterruptWing<'_> {
        InterruptWing {
            config: self.config,
            guests: self.guests,
            threads: self.threads,
            own: self.interrupt_state,
        }
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

impl VcpuWing<'_> {
    /// Resumes the thread of `vcpu`, which has the executing pCPU.
    pub(crate) fn resume(&mut self, vcpu: VcpuId, step: &mut Step<'_>) -> Resume {
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
