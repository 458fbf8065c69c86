//! HLT: polling, sleeping, and the end of both (docs/spec/host.md, "Halt and polling").
//!
//! - **No lost kick**: a kick latched before or during a halt ends it. Only the end of a halt clears the latch.

use crate::boundary::{Cost, Run, VcpuId, VcpuState};
use crate::config::HostConfig;
use crate::step::Step;
use crate::vcpu::after::Resume;
use crate::vcpu::{Activity, MpState};
use crate::wings::Wings;

/// `vcpu` executed HLT.
pub(crate) fn begin_halt(on: &mut Wings, vcpu: VcpuId, step: &mut Step<'_>) {
    step.charge(Cost::Hlt, 1);
    let cap = halt_poll_cap(on, vcpu);
    let at = &mut on.guests.vcpus[vcpu];
    at.counters.halt_exits += 1;
    at.mp_state = MpState::Halted;
    at.halt.since = step.now;
    at.halt.blocked_at = None;
    at.halt.poll_ns = at.halt.poll_ns.min(cap);
    if at.halt.poll_ns > 0 {
        at.counters.halt_attempted_poll += 1;
        at.activity = Activity::Poll {
            until: step.now + at.halt.poll_ns,
        };
    } else {
        at.activity = Activity::Block;
    }
}

/// Returns the longest time that `vcpu` may poll.
fn halt_poll_cap(on: &Wings, vcpu: VcpuId) -> u64 {
    if on.guests.vcpus[vcpu].halt.guest_polls {
        return 0;
    }
    let own = on.guests.vm_of(vcpu).config.halt_poll_cap_ns;
    own.unwrap_or(on.config.halt_poll_ns)
}

/// Handles a write to `MSR_KVM_POLL_CONTROL`. Returns `false` if it faults.
pub(crate) fn control_polling(on: &mut Wings, vcpu: VcpuId, value: u64) -> bool {
    let legal = on.guests.vm_of(vcpu).config.poll_control && value <= 1;
    if legal {
        on.guests.vcpus[vcpu].halt.guest_polls = value == 0;
    }
    legal
}

/// Runs the polling loop of `vcpu` once.
pub(crate) fn poll(on: &mut Wings, vcpu: VcpuId, until: u64, step: &mut Step<'_>) -> Resume {
    let alone = on.threads.sched.runs_alone(step.pcpu) && !on.threads.sched.need_resched(step.pcpu);
    on.sync(vcpu);
    let at = &mut on.guests.vcpus[vcpu];
    let polled = step.now - at.halt.since;
    if at.wake_condition() {
        at.counters.halt_successful_poll += 1;
        at.counters.halt_poll_success_ns += polled;
        at.set_state(VcpuState::HandlingExit, step);
        on.threads.sched.set_polling(step.pcpu, false);
        end_halt(on, vcpu, step);
        return Resume::Again;
    }
    if alone && step.now < until {
        at.set_state(VcpuState::Polling, step);
        on.threads.sched.set_polling(step.pcpu, true);
        return Resume::Run(Run::Poll(vcpu));
    }
    at.counters.halt_poll_fail_ns += polled;
    at.activity = Activity::Block;
    on.threads.sched.set_polling(step.pcpu, false);
    try_unblock(on, vcpu, step)
}

/// The thread of `vcpu` goes to sleep.
fn block(on: &mut Wings, vcpu: VcpuId, step: &mut Step<'_>) {
    let at = &mut on.guests.vcpus[vcpu];
    at.halt.blocked_at.get_or_insert(step.now);
    at.set_state(VcpuState::Blocked, step);
    on.block(vcpu, step.pcpu);
    on.threads.sched.sleep(step.pcpu);
}

/// Checks the halt of `vcpu`, whose thread was woken or is about to sleep.
pub(crate) fn try_unblock(on: &mut Wings, vcpu: VcpuId, step: &mut Step<'_>) -> Resume {
    on.prepare_block(vcpu);
    if on.guests.vcpus[vcpu].wake_condition() {
        end_halt(on, vcpu, step);
        return Resume::Again;
    }
    block(on, vcpu, step);
    Resume::Sleep
}

/// Ends the halt of `vcpu`: the guest continues after its HLT.
fn end_halt(on: &mut Wings, vcpu: VcpuId, step: &mut Step<'_>) {
    let cap = halt_poll_cap(on, vcpu);
    on.unblock(vcpu, step.pcpu);
    let at = &mut on.guests.vcpus[vcpu];
    at.mp_state = MpState::Runnable;
    at.halt.pv_unhalted = false;
    at.activity = Activity::Run;
    if let Some(blocked_at) = at.halt.blocked_at {
        at.counters.halt_wait_ns += step.now - blocked_at;
    }
    let halted = step.now - at.halt.since;
    at.halt.poll_ns = adjusted(&on.config, at.halt.poll_ns, halted, cap);
}

/// Returns the polling time after a halt that took `halted` nanoseconds and polled for `poll`, if it may be up to
/// `cap`.
fn adjusted(config: &HostConfig, poll: u64, halted: u64, cap: u64) -> u64 {
    if cap == 0 {
        0
    } else if halted <= poll {
        poll
    } else if poll > 0 && halted > cap {
        shrunk(config, poll)
    } else if poll < cap && halted < cap {
        grown(config, poll).min(cap)
    } else {
        poll
    }
}

fn grown(config: &HostConfig, poll: u64) -> u64 {
    if config.halt_poll_grow == 0 {
        return poll;
    }
    (poll * config.halt_poll_grow).max(config.halt_poll_grow_start_ns)
}

fn shrunk(config: &HostConfig, poll: u64) -> u64 {
    let shrunk = poll.checked_div(config.halt_poll_shrink).unwrap_or(0);
    if shrunk < config.halt_poll_grow_start_ns {
        0
    } else {
        shrunk
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polling_adapts_to_halts_as_in_kvm() {
        // Grows by 2 from 10 and shrinks by 4. The polling time and the halt before, the longest time, and the polling
        // time after.
        let config = HostConfig {
            halt_poll_grow: 2,
            halt_poll_grow_start_ns: 10,
            halt_poll_shrink: 4,
            ..HostConfig::default()
        };
        for (poll, halted, cap, after) in [
            (0, 5, 200, 10),
            (0, 199, 200, 10),
            (0, 200, 200, 0),
            (0, 300, 200, 0),
            (20, 20, 200, 20),
            (20, 21, 200, 40),
            (20, 199, 200, 40),
            (20, 200, 200, 20),
            (150, 199, 200, 200),
            (200, 199, 200, 200),
            (200, 200, 200, 200),
            (200, 201, 200, 50),
            (40, 201, 200, 10),
            (39, 201, 200, 0),
            (20, 15, 0, 0),
            (20, 300, 0, 0),
        ] {
            assert_eq!(adjusted(&config, poll, halted, cap), after, "{poll}, {halted} of {cap}");
        }
        let fixed = HostConfig {
            halt_poll_grow: 0,
            halt_poll_shrink: 0,
            ..config
        };
        assert_eq!(adjusted(&fixed, 20, 30, 200), 20, "it does not grow");
        assert_eq!(adjusted(&fixed, 20, 300, 200), 0, "it shrinks to nothing");
    }
}
