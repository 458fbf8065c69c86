//! Bringing a vCPU out of guest mode and into it, and waking its thread (docs/spec/host.md, "Wake and kick").

use super::avic::handshake::{self, Presence};
use crate::boundary::{VcpuId, VcpuState};
use crate::step::Step;
use crate::timers::Timer;
use crate::vcpu::{Activity, Mode, Vcpu};
use crate::wings::Wings;

impl Wings {
    /// Makes `vcpu` check its requests: wakes its thread, or interrupts guest mode. Does nothing if the vCPU will check
    /// them anyway.
    pub(crate) fn kick(&mut self, vcpu: VcpuId, step: &mut Step<'_>) {
        if self.wake_up(vcpu, step) {
            return;
        }
        // The first sender that finds the vCPU in guest mode sends the IPI. Later senders rely on that one.
        if self.claim_exit(vcpu)
            && let Some(cpu) = self.guests.vcpus[vcpu].thread.cpu
        {
            assert!(
                cpu != step.pcpu,
                "vcpu {} is in guest mode on pcpu {cpu}, where the host executes",
                vcpu.0
            );
            step.ipi(cpu);
        }
    }

    /// Sets the mode of `vcpu` to "in guest". A request that came in between would hold the entry back. Within a step
    /// none can.
    pub(crate) fn enter_guest(&mut self, vcpu: VcpuId) {
        let seen = &self.guests.vcpus[vcpu];
        let entered = handshake::enter(&self.memory(), seen, self.guests.planted.avic);
        assert!(entered, "vcpu {} enters guest mode with a request pending", vcpu.0);
        self.sync(vcpu);
    }

    /// Claims the exit of `vcpu` from guest mode. Returns whether the caller must send the IPI.
    pub(crate) fn claim_exit(&self, vcpu: VcpuId) -> bool {
        handshake::kick(&self.memory(), &self.guests.vcpus[vcpu])
    }

    /// Wakes the thread of `vcpu` if it sleeps in a halt or after a pause exit. Returns whether it did. Sends no IPI to
    /// guest mode.
    pub(crate) fn wake_up(&mut self, vcpu: VcpuId, step: &mut Step<'_>) -> bool {
        let at = &self.guests.vcpus[vcpu];
        let task = at.thread.task;
        match at.activity {
            Activity::Poll { .. } => {
                // The thread is awake: its polling loop sees the reason to end in memory.
                self.guests
                    .poll_kicks
                    .extend(at.thread.cpu.filter(|&cpu| cpu != step.pcpu));
                return false;
            }
            Activity::Block | Activity::PauseSleep => {}
            Activity::Run | Activity::Dead => return false,
        }
        if !self.wake_thread(vcpu, step) {
            return false;
        }
        self.threads.timers.cancel(Timer::Sleep(task));
        self.guests.vcpus[vcpu].counters.halt_wakeup += 1;
        true
    }

    /// Wakes the thread of `vcpu`. Returns `false` if it does not sleep.
    pub(crate) fn wake_thread(&mut self, vcpu: VcpuId, step: &mut Step<'_>) -> bool {
        let at = &mut self.guests.vcpus[vcpu];
        let woken = self.threads.sched.wake(at.thread.task, step);
        if woken {
            at.thread.ready = true;
            at.set_state(VcpuState::Woken, step);
        }
        woken
    }
}

/// A vCPU as the other sides of the handshake see it.
impl Presence for Vcpu {
    fn is_in_guest(&self) -> bool {
        self.mode.get() == Mode::InGuest
    }
    fn set_in_guest(&self) {
        self.mode.set(Mode::InGuest);
    }
    fn claim_exit(&self) -> bool {
        let claimed = self.is_in_guest();
        if claimed {
            self.mode.set(Mode::Exiting);
        }
        claimed
    }
    fn is_active(&self) -> bool {
        self.virtualization.avic().is_some_and(|avic| avic.active.get())
    }
    fn set_active(&self, active: bool) {
        if let Some(avic) = self.virtualization.avic() {
            avic.active.set(active);
        }
    }
    fn has_request(&self) -> bool {
        self.requests.any()
    }
    fn cpu(&self) -> Option<u32> {
        self.thread.cpu
    }
}
