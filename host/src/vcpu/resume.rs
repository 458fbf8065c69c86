//! A vCPU's thread, when it has a pCPU.

use crate::boundary::VcpuId;
use crate::step::Step;
use crate::vcpu::Activity;
use crate::vcpu::after::Resume;
use crate::vcpu::entry;
use crate::vcpu::halt;
use crate::vcpu::init;
use crate::vcpu::plug;
use crate::vcpu::throttle;
use crate::wings::Wings;

/// Resumes the thread of `vcpu`, which has the executing pCPU.
pub(crate) fn resume(on: &mut Wings, vcpu: VcpuId, step: &mut Step<'_>) -> Resume {
    if on.guests.vcpus[vcpu].thread.unplugged {
        plug::park(on, vcpu, step);
        return Resume::Sleep;
    }
    if init::accept_events(on, vcpu, step) {
        return Resume::Again;
    }
    if throttle::sleeps(on, vcpu, step) {
        return Resume::Sleep;
    }
    match on.guests.vcpus[vcpu].activity {
        Activity::Run => Resume::Run(entry::enter(on, vcpu, step)),
        Activity::Poll { until } => halt::poll(on, vcpu, until, step),
        Activity::Block => halt::try_unblock(on, vcpu, step),
        Activity::PauseSleep => {
            on.guests.vcpus[vcpu].activity = Activity::Run;
            Resume::Again
        }
        Activity::Dead => Resume::Sleep,
    }
}
