//! HLT: polling, sleeping, and the end of both (docs/spec/host.md, "Halt and polling").
//!
//! - **No lost kick**: a kick latched before or during a halt ends it. Only the end of a halt clears the latch.

use crate::boundary::{Cost, Run, VcpuId, VcpuState};
use crate::step::Step;
use crate::vcpu::wing::{Resume, VcpuWing};
use crate::vcpu::{Activity, MpState};

impl VcpuWing {
    /// `vcpu` executed HLT.
    pub(crate) fn begin_halt(&mut self, vcpu: VcpuId, step: &mut Step<'_>) {
        step.charge(Cost::Hlt, 1);
        let cap = self.halt_poll_cap(vcpu);
        let at = &mut self.guests.vcpus[vcpu];
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
    fn halt_poll_cap(&self, vcpu: VcpuId) -> u64 {
        if self.guests.vcpus[vcpu].halt.guest_polls {
            return 0;
        }
        let own = self.guests.vm_of(vcpu).config.halt_poll_cap_ns;
        own.unwrap_or(self.config.halt_poll_ns)
    }

    /// Handles a write to `MSR_KVM_POLL_CONTROL`. Returns `false` if it faults.
    pub(crate) fn control_polling(&mut self, vcpu: VcpuId, value: u64) -> bool {
        let legal = self.guests.vm_of(vcpu).config.poll_control && value <= 1;
        if legal {
            self.guests.vcpus[vcpu].halt.guest_polls = value == 0;
        }
        legal
    }

    /// Runs the polling loop of `vcpu` once.
    pub(crate) fn poll(&mut self, vcpu: VcpuId, until: u64, step: &mut Step<'_>) -> Resume {
        let alone = self.threads.sched.runs_alone(step.pcpu) && !self.threads.sched.need_resched(step.pcpu);
        self.interrupts.sync(vcpu);
        let at = &mut self.guests.vcpus[vcpu];
        let polled = step.now - at.halt.since;
        if at.wake_condition() {
            at.counters.halt_successful_poll += 1;
            at.counters.halt_poll_success_ns += polled;
            at.set_state(VcpuState::HandlingExit, step);
            self.threads.sched.set_polling(step.pcpu, false);
            self.end_halt(vcpu, step);
            return Resume::Again;
        }
        if alone && step.now < until {
            at.set_state(VcpuState::Polling, step);
            self.threads.sched.set_polling(step.pcpu, true);
            return Resume::Run(Run::Poll(vcpu));
        }
        at.counters.halt_poll_fail_ns += polled;
        at.activity = Activity::Block;
        self.threads.sched.set_polling(step.pcpu, false);
        self.try_unblock(vcpu, step)
    }

    /// The thread of `vcpu` goes to sleep.
    fn block(&mut self, vcpu: VcpuId, step: &mut Step<'_>) {
        let at = &mut self.guests.vcpus[vcpu];
        at.halt.blocked_at.get_or_insert(step.now);
        at.set_state(VcpuState::Blocked, step);
        self.interrupts.block(vcpu, step.pcpu);
        self.yield_before_sleep(vcpu, step);
        self.threads.sched.sleep(step.pcpu);
    }

    /// Checks the halt of `vcpu`, whose thread was woken or is about to sleep.
    pub(crate) fn try_unblock(&mut self, vcpu: VcpuId, step: &mut Step<'_>) -> Resume {
        self.interrupts.prepare_block(vcpu);
        if self.guests.vcpus[vcpu].wake_condition() {
            self.end_halt(vcpu, step);
            return Resume::Again;
        }
        self.block(vcpu, step);
        Resume::Sleep
    }

    /// Ends the halt of `vcpu`: the guest continues after its HLT.
    fn end_halt(&mut self, vcpu: VcpuId, step: &mut Step<'_>) {
        let cap = self.halt_poll_cap(vcpu);
        self.interrupts.unblock(vcpu, step.pcpu);
        let at = &mut self.guests.vcpus[vcpu];
        at.mp_state = MpState::Runnable;
        at.pv_unhalted = false;
        at.activity = Activity::Run;
        if let Some(blocked_at) = at.halt.blocked_at {
            at.counters.halt_wait_ns += step.now - blocked_at;
        }
        let halted = step.now - at.halt.since;
        let poll = at.halt.poll_ns;
        self.guests.vcpus[vcpu].halt.poll_ns = self.adjusted(poll, halted, cap);
    }

    /// Returns the polling time after a halt that took `halted` nanoseconds and polled for `poll`.
    fn adjusted(&self, poll: u64, halted: u64, cap: u64) -> u64 {
        if cap == 0 {
            0
        } else if halted <= poll {
            poll
        } else if poll > 0 && halted > cap {
            self.shrunk(poll)
        } else if poll < cap && halted < cap {
            self.grown(poll).min(cap)
        } else {
            poll
        }
    }

    fn grown(&self, poll: u64) -> u64 {
        if self.config.halt_poll_grow == 0 {
            return poll;
        }
        (poll * self.config.halt_poll_grow).max(self.config.halt_poll_grow_start_ns)
    }

    fn shrunk(&self, poll: u64) -> u64 {
        let shrunk = poll.checked_div(self.config.halt_poll_shrink).unwrap_or(0);
        if shrunk < self.config.halt_poll_grow_start_ns {
            0
        } else {
            shrunk
        }
    }
}
