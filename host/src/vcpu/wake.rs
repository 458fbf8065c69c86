//! Waking the thread of a sleeping vCPU (docs/spec/host.md, "Wake and kick").

use crate::boundary::{VcpuId, VcpuState};
use crate::guests::Guests;
use crate::step::Step;
use crate::threads::Threads;
use crate::timers::Timer;
use crate::vcpu::Activity;

impl Guests {
    /// Wakes the thread of `vcpu` if it sleeps in a halt or after a pause exit. Returns whether it did. Sends no IPI to
    /// guest mode.
    pub(crate) fn wake_up(&mut self, vcpu: VcpuId, threads: &mut Threads, step: &mut Step<'_>) -> bool {
        let at = self.vcpu_mut(vcpu);
        let (task, cpu) = (at.task, at.cpu);
        match at.activity {
            Activity::Poll { .. } => {
                // The thread is awake: its polling loop sees the reason to end in memory.
                self.poll_kicks.extend(cpu.filter(|&cpu| cpu != step.pcpu));
                return false;
            }
            Activity::Block | Activity::PauseSleep => {}
            Activity::Run | Activity::Dead => return false,
        }
        if !self.wake_thread(vcpu, threads, step) {
            return false;
        }
        threads.timers.cancel(Timer::Sleep(task));
        self.vcpu_mut(vcpu).counters.halt_wakeup += 1;
        true
    }

    /// Wakes the thread of `vcpu`. Returns `false` if it does not sleep.
    pub(crate) fn wake_thread(&mut self, vcpu: VcpuId, threads: &mut Threads, step: &mut Step<'_>) -> bool {
        let at = self.vcpu_mut(vcpu);
        let woken = threads.sched.wake(at.task, step);
        if woken {
            at.ready = true;
            at.set_state(VcpuState::Woken, step);
        }
        woken
    }
}
