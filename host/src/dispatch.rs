//! What a pCPU does next: switching threads, resuming a vCPU's thread, setting the timer, and the `Run` that ends a
//! step.

use alloc::vec::Vec;

use crate::boundary::{Command, Cost, Nanos, PcpuId, Run, VcpuId, VcpuState};
use crate::host::Host;
use crate::pause::window;
use crate::step::Step;
use crate::threads::ThreadKind;
use crate::vcpu::Activity;
use crate::vcpu::after::Resume;
use crate::vcpu::load;
use crate::vcpu::resume;

impl Host {
    /// Lets the scheduler pick a thread for the executing pCPU, and switches to it.
    pub(crate) fn reschedule(&mut self, step: &mut Step<'_>) {
        let pcpu = PcpuId(step.pcpu);
        let prev = self.wings.threads.sched.current(pcpu.0);
        let next = self.wings.threads.sched.schedule(pcpu.0, step);
        if prev == next {
            return;
        }
        match prev.map(|task| (task, self.wings.threads.kind(task))) {
            Some((_, ThreadKind::Vcpu(vcpu))) => load::put(&mut self.wings, vcpu, step),
            Some((task, ThreadKind::Voluntary)) => self.wings.threads.report_waiting(task, step),
            _ => {}
        }
        // The kernel of a voluntary task counts the switch to it as its own time.
        let kind = next.map(|task| self.wings.threads.kind(task));
        if kind != Some(ThreadKind::Voluntary) {
            step.charge(Cost::ContextSwitch, 1);
        }
        if let Some(ThreadKind::Vcpu(vcpu)) = kind {
            load::load(&mut self.wings, vcpu, step);
            if core::mem::replace(&mut self.wings.guests.vcpus[vcpu].thread.ran, true) {
                window::shrink_pause_window(&self.wings.config, &mut self.wings.guests.vcpus[vcpu], step);
            }
        }
        match (prev, next) {
            (None, Some(_)) => self.pcpus.rows[pcpu].tick_at = Some(self.pcpus.next_tick(pcpu, step.now)),
            (_, None) => self.pcpus.rows[pcpu].tick_at = None,
            _ => {}
        }
    }

    /// Ends a step: finds what the executing pCPU does now, sets its timer and appends its `Run`.
    pub(crate) fn finish(&mut self, step: &mut Step<'_>) {
        let run = loop {
            if self.wings.threads.sched.need_resched(step.pcpu) && self.may_reschedule(step.pcpu) {
                self.reschedule(step);
            }
            let Some(task) = self.wings.threads.sched.current(step.pcpu) else {
                break Run::Idle;
            };
            let ThreadKind::Vcpu(vcpu) = self.wings.threads.kind(task) else {
                break Run::Task(task);
            };
            match resume::resume(&mut self.wings, vcpu, step) {
                Resume::Run(run) => break run,
                Resume::Sleep => self.reschedule(step),
                Resume::Again => {}
            }
        };
        let pcpu = PcpuId(step.pcpu);
        self.pcpus.rows[pcpu].doing = Some(run);
        self.note_throttling(step);
        while let Some((timer, at)) = self.wings.threads.sched.next_timer() {
            self.wings.threads.timers.arm(timer, pcpu.0, at);
        }
        self.program_timer(step);
        step.out.push(Command::Run { pcpu, run });
    }

    /// Returns whether the thread on `pcpu` can be taken off it now: not while it polls, or keeps it to a yield point.
    fn may_reschedule(&mut self, pcpu: u32) -> bool {
        !self.polls(pcpu) && !self.wings.threads.is_voluntary(pcpu) && !self.wings.threads.sched.runs_on(pcpu)
    }

    /// Reports vCPUs whose waiting threads were throttled, or are no longer.
    fn note_throttling(&mut self, step: &mut Step<'_>) {
        while let Some(task) = self.wings.threads.sched.next_throttle_change() {
            let ThreadKind::Vcpu(vcpu) = self.wings.threads.kind(task) else {
                continue;
            };
            let throttled = self.wings.threads.sched.is_throttled(task);
            let at = &mut self.wings.guests.vcpus[vcpu];
            let waits = match (at.state, throttled, at.thread.preempted) {
                (VcpuState::Preempted | VcpuState::Woken, true, _) => VcpuState::Throttled,
                (VcpuState::Throttled, false, true) => VcpuState::Preempted,
                (VcpuState::Throttled, false, false) => VcpuState::Woken,
                _ => continue,
            };
            at.set_state(waits, step);
        }
    }

    /// Returns until when `pcpu` polls, or `None` if it does not.
    pub(crate) fn poll_until(&self, pcpu: PcpuId) -> Option<u64> {
        match self.pcpus.rows[pcpu].doing {
            Some(Run::Poll(vcpu)) => self.poll_end_of(vcpu),
            _ => None,
        }
    }

    fn poll_end_of(&self, vcpu: VcpuId) -> Option<u64> {
        match self.wings.guests.vcpus[vcpu].activity {
            Activity::Poll { until } => Some(until),
            _ => None,
        }
    }

    /// Returns whether the thread on `pcpu` polls. The polling loop checks by itself whether it is to be rescheduled.
    fn polls(&self, pcpu: u32) -> bool {
        let current = self
            .wings
            .threads
            .sched
            .current(pcpu)
            .map(|task| self.wings.threads.kind(task));
        matches!(current, Some(ThreadKind::Vcpu(vcpu)) if self.poll_end_of(vcpu).is_some())
    }

    /// Sets the executing pCPU's hardware timer to the first time at which something is due.
    fn program_timer(&mut self, step: &mut Step<'_>) {
        let pcpu = PcpuId(step.pcpu);
        let other = earlier(self.poll_until(pcpu), self.wings.threads.timers.next(pcpu.0));
        let slice = self.wings.threads.sched.arm_slice_timer(pcpu.0);
        let row = &mut self.pcpus.rows[pcpu];
        let at = earlier(earlier(row.tick_at, slice), other).map(|at| at.max(step.now));
        if at == row.programmed {
            return;
        }
        row.programmed = at;
        step.charge(Cost::TimerProgram, 1);
        step.out.push(Command::Timer {
            pcpu,
            at: at.map(Nanos),
        });
    }

    /// Runs the polling loops to which this step has given a reason to end, but not that of `except`: they see it in
    /// memory.
    #[inline]
    pub(crate) fn end_polls(&mut self, except: Option<PcpuId>, now: Nanos, out: &mut Vec<Command>) {
        if !self.wings.guests.poll_kicks.is_empty() || !self.wings.threads.sched.poll_ends.is_empty() {
            self.end_polling(except, now, out);
        }
    }

    #[inline(never)]
    fn end_polling(&mut self, except: Option<PcpuId>, now: Nanos, out: &mut Vec<Command>) {
        let next = |host: &mut Host| {
            host.wings
                .guests
                .poll_kicks
                .pop()
                .or_else(|| host.wings.threads.sched.poll_ends.pop())
        };
        while let Some(pcpu) = next(self) {
            let pcpu = PcpuId(pcpu);
            if Some(pcpu) != except && self.poll_until(pcpu).is_some() {
                self.finish(&mut Step::new(now, pcpu, out));
            }
        }
    }
}

/// Returns the earlier of two times, where `None` is never.
fn earlier(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        _ => a.or(b),
    }
}
