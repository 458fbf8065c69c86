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
            PauseExit::DirectedYield2011 => self.yield_to_another(vcpu, step),
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

    /// 2.6.39 and later: round the vCPUs from behind the one boosted last; the first that the scheduler takes gets the
    /// boost.
    fn yield_to_another(&mut self, vcpu: VcpuId, step: &mut Step<'_>) {
        let at = self.at(vcpu);
        // Until it is entered again: as long as it has yielded, it is itself a candidate that only spins.
        at.in_spin_loop = true;
        let (vm, index, in_kernel) = (at.vm, at.index, at.guest.cpl == 0);
        let (count, last) = (self.vms[vm.0 as usize].vcpus, self.vms[vm.0 as usize].last_boosted);
        let mut tries = self.config.yield_filters.tries;
        for candidate in (last + 1..count).chain(0..(last + 1).min(count)) {
            if candidate == index {
                continue;
            }
            step.charge(Cost::SpinCandidate, 1);
            let target = self.vcpu_id(vm, candidate);
            if !self.is_candidate(target, in_kernel) {
                continue;
            }
            self.at(vcpu).counters.directed_yield_attempted += 1;
            let task = self.at(target).task;
            if tries > 0 && self.sched.both_alone(step.pcpu, task) {
                // No overcommit here: looking further would only keep the spinner from its lock.
                tries -= 1;
                if tries == 0 {
                    return;
                }
            } else if self.directed_yield(vcpu, target, step) {
                self.vms[vm.0 as usize].last_boosted = candidate;
                return;
            }
        }
    }

    /// Whether the filters let `target` be tried.
    fn is_candidate(&mut self, target: VcpuId, in_kernel: bool) -> bool {
        let filters = self.config.yield_filters;
        let at = self.at(target);
        let sleeps = matches!(at.state, VcpuState::Blocked | VcpuState::PauseSleep | VcpuState::Dead);
        if sleeps || at.state == VcpuState::InGuest {
            return false;
        }
        let waits = at.preempted || (filters.woken && at.ready);
        if filters.waiting && !waits {
            return false;
        }
        let hopeless = at.preempted && in_kernel && !at.preempted_in_kernel;
        if filters.in_kernel && hopeless && !(filters.pending_interrupt && at.apic.deliverable().is_some()) {
            return false;
        }
        if !filters.eligibility || !at.in_spin_loop {
            return true;
        }
        let eligible = at.dy_eligible;
        at.dy_eligible = !eligible;
        eligible
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HostConfig, PcpuPlace, VmConfig, YieldFilters};

    #[test]
    fn who_spins_itself_is_eligible_every_second_time() {
        let config = HostConfig {
            yield_filters: YieldFilters::LINUX_3_10,
            ..HostConfig::default()
        };
        let place = PcpuPlace {
            socket: 0,
            core: 0,
            thread: 0,
        };
        let mut host = Host::new(&config, &[place]).expect("a valid host");
        host.add_vm(&VmConfig::default(), 1, &[]).expect("a valid vm");
        let vcpu = VcpuId(0);
        host.at(vcpu).preempted = true;
        let mut looks = |spins: bool| {
            host.at(vcpu).in_spin_loop = spins;
            [(); 4].map(|()| host.is_candidate(vcpu, true))
        };
        assert_eq!(looks(true), [false, true, false, true]);
        assert_eq!(looks(false), [true; 4]);
    }
}
