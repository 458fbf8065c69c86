//! Pause exits: what to do with a vCPU that spins (§3.3).

use crate::boundary::{Command, Cost, Nanos, VcpuId, VcpuState};
use crate::config::PauseExit;
use crate::host::Host;
use crate::sched::YieldTo;
use crate::step::Step;
use crate::timer::Timer;
use crate::vcpu::Activity;

impl Host {
    /// `vcpu` has paused for longer than the window.
    pub(crate) fn on_spin(&mut self, vcpu: VcpuId, step: &mut Step<'_>) {
        self.at(vcpu).counters.pause_exits += 1;
        match self.config.pause_exit {
            PauseExit::None => {}
            PauseExit::Sleep { ns } => self.pause_sleep(vcpu, ns, step),
            PauseExit::DirectedYield2011 => self.directed_yield_2011(vcpu, step),
        }
    }

    /// 2.6.33 to 2.6.38: sleep on one's own wait queue, in the hope that the lock holder gets the pCPU.
    fn pause_sleep(&mut self, vcpu: VcpuId, ns: u64, step: &mut Step<'_>) {
        let at = self.at(vcpu);
        at.activity = Activity::PauseSleep;
        let task = at.task;
        at.set_state(VcpuState::PauseSleep, step);
        self.timers.arm(Timer::Sleep(task), step.pcpu, Nanos(step.now + ns).0);
        self.sched.sleep(step.pcpu);
        self.reschedule(step);
    }

    /// 2.6.39: round the vCPUs from behind the one boosted last; the first that the scheduler takes gets the boost.
    fn directed_yield_2011(&mut self, vcpu: VcpuId, step: &mut Step<'_>) {
        let at = self.at(vcpu);
        let (vm, index) = (at.vm, at.index);
        let (count, last) = (self.vms[vm.0 as usize].vcpus, self.vms[vm.0 as usize].last_boosted);
        for candidate in (last + 1..count).chain(0..(last + 1).min(count)) {
            if candidate == index {
                continue;
            }
            step.charge(Cost::SpinCandidate, 1);
            let target = self.vcpu_id(vm, candidate);
            let at = self.at(target);
            let waits = matches!(at.state, VcpuState::Blocked | VcpuState::PauseSleep | VcpuState::Dead);
            if waits || at.state == VcpuState::InGuest {
                continue;
            }
            self.at(vcpu).counters.directed_yield_attempted += 1;
            if self.directed_yield(vcpu, target, step) {
                self.vms[vm.0 as usize].last_boosted = candidate;
                return;
            }
        }
    }

    /// Yields from `vcpu`, which runs here, to `target`; the pCPU is rescheduled if the scheduler takes it up.
    pub(crate) fn directed_yield(&mut self, vcpu: VcpuId, target: VcpuId, step: &mut Step<'_>) -> bool {
        let task = self.at(target).task;
        let done = self.sched.yield_to(step.pcpu, task, step) == YieldTo::Done;
        step.out.push(Command::DirectedYield {
            from: vcpu,
            to: target,
            done,
        });
        if done {
            self.at(vcpu).counters.directed_yield_successful += 1;
            self.reschedule(step);
        }
        done
    }
}
