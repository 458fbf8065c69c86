//! The VMM throttles its vCPUs so that a live migration converges (QEMU `auto-converge`, `cpu-throttle.c`).
//!
//! A vCPU runs for 10 ms and then sleeps for the share of the time that the throttle takes, again and again. QEMU's
//! timer kicks the vCPU out of its guest for that. Here the sleep begins with the first exit after the 10 ms, at the
//! latest at the host's tick. A halted vCPU is not throttled.

use crate::boundary::{VcpuId, VcpuState};
use crate::step::Step;
use crate::timers::Timer;
use crate::vcpu::Activity;
use crate::wings::Wings;

/// Time between two sleeps (`CPU_THROTTLE_TIMESLICE_NS`). Nanoseconds.
const SLICE_NS: u64 = 10_000_000;

/// Puts the thread of `vcpu`, which has the executing pCPU, to sleep if the throttle wants that. Returns whether it
/// did.
pub(crate) fn sleeps(on: &mut Wings, vcpu: VcpuId, step: &mut Step<'_>) -> bool {
    let percent = u64::from(on.guests.throttle_percent);
    let at = &mut on.guests.vcpus[vcpu];
    if percent == 0 || at.activity != Activity::Run {
        return false;
    }
    let before = at.thread.throttled_until;
    let until = if step.now < before {
        // An interrupt has woken it.
        before
    } else if step.now >= before + SLICE_NS {
        step.now + SLICE_NS * percent / (100 - percent)
    } else {
        return false;
    };
    at.thread.throttled_until = until;
    let task = at.thread.task;
    at.set_state(VcpuState::PauseSleep, step);
    on.threads.timers.arm(Timer::Sleep(task), step.pcpu, until);
    on.threads.sched.sleep(step.pcpu);
    true
}
