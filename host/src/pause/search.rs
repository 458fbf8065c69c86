//! The search of a pause exit for the target of its directed yield.

use super::config::YieldFilters;
use crate::boundary::{Command, Cost, VcpuId, VcpuState};
use crate::step::Step;
use crate::vcpu::Vcpu;
use crate::vcpu::userspace;
use crate::wings::Wings;

/// The result of trying one candidate, or all in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    /// The scheduler prefers it.
    Boosted,
    /// It cannot be the target of a yield (0). For a round: none can.
    Unsuitable,
    /// Neither its pCPU nor the spinner's has anything else to run (−ESRCH). For a round: it gave up after too many.
    Undercommitted,
}

/// The search of a pause exit for the target of its directed yield.
#[derive(Clone, Copy, Debug)]
pub(super) struct Search {
    pub(super) spinner: VcpuId,
    /// The spinner spins in kernel mode.
    pub(super) in_kernel: bool,
    /// Undercommitted candidates until the search gives up. 0: it never does.
    pub(super) tries: u32,
}

/// Looks at each other vCPU of the VM once, until one is boosted or the search gives up.
pub(super) fn round(on: &mut Wings, search: &mut Search, step: &mut Step<'_>) -> Attempt {
    let at = &on.guests.vcpus[search.spinner];
    let (vm, index) = (at.vm, at.index);
    let (count, last) = (on.guests.vms[vm].vcpus, on.guests.vms[vm].last_boosted);
    for candidate in (last + 1..count).chain(0..(last + 1).min(count)) {
        if candidate == index {
            continue;
        }
        match look(on, search, candidate, step) {
            Attempt::Boosted => return Attempt::Boosted,
            // There is no overcommit here. Searching further would only delay the spinner.
            Attempt::Undercommitted if search.tries == 1 => return Attempt::Undercommitted,
            Attempt::Undercommitted => search.tries = search.tries.saturating_sub(1),
            Attempt::Unsuitable => {}
        }
    }
    Attempt::Unsuitable
}

/// Examines the vCPU with index `candidate`, and yields to it if the filters allow it.
fn look(on: &mut Wings, search: &Search, candidate: u32, step: &mut Step<'_>) -> Attempt {
    step.charge(Cost::SpinCandidate, 1);
    let spinner = &mut on.guests.vcpus[search.spinner];
    let vm = spinner.vm;
    spinner.counters.directed_yield_looks += 1;
    let target = on.guests.vcpu_id(vm, candidate);
    let stays = on.config.planted.pause.eligibility_stays;
    if !is_candidate(&mut on.guests.vcpus[target], &on.config.pause.filters, stays, search) {
        return Attempt::Unsuitable;
    }
    on.guests.vcpus[search.spinner].counters.directed_yield_attempted += 1;
    let Some(task) = userspace::thread_of(on, target) else {
        return Attempt::Unsuitable;
    };
    let handling = &on.config.pause;
    if handling.filters.undercommit && on.threads.sched.both_alone(step.pcpu, task) {
        return Attempt::Undercommitted;
    }
    let stays = on.guests.planted.pause.last_boosted_stays;
    if !directed_yield(on, search.spinner, target, step) {
        return Attempt::Unsuitable;
    }
    if !stays {
        // The vCPU's index, not the loop's counter, which differs once the round has wrapped.
        on.guests.vms[vm].last_boosted = candidate;
    }
    Attempt::Boosted
}

/// Returns whether `filters` let `at` be tried. `stays` is a fault planted by tests: eligibility is not toggled.
fn is_candidate(at: &mut Vcpu, filters: &YieldFilters, stays: bool, search: &Search) -> bool {
    // A woken vCPU waits no longer.
    let sleeps = matches!(at.state, VcpuState::Blocked | VcpuState::PauseSleep | VcpuState::Dead);
    if sleeps || at.state == VcpuState::InGuest {
        return false;
    }
    let waits = at.thread.preempted || (filters.ready && at.thread.ready);
    if filters.preempted && !waits {
        return false;
    }
    let hopeless = at.thread.preempted && search.in_kernel && !at.thread.preempted_in_kernel;
    if filters.in_kernel && hopeless && !(filters.pending_interrupt && at.has_interrupt()) {
        return false;
    }
    if !filters.eligibility || !at.spin.in_loop {
        return true;
    }
    let eligible = at.spin.dy_eligible;
    at.spin.dy_eligible = !eligible && !stays;
    eligible
}

/// Yields from `spinner` to `target`, which a policy has chosen, if that one is ready. Returns whether the scheduler
/// accepted it.
pub(super) fn yield_to_ready(on: &mut Wings, spinner: VcpuId, target: VcpuId, step: &mut Step<'_>) -> bool {
    step.charge(Cost::SpinCandidate, 1);
    let at = &mut on.guests.vcpus[spinner];
    at.spin.in_loop = true;
    at.counters.directed_yield_looks += 1;
    at.counters.directed_yield_attempted += 1;
    on.guests.vcpus[target].thread.ready && directed_yield(on, spinner, target, step)
}

/// Lets `target`, which a policy has chosen, take the pCPU for which it waits, while `spinner` spins on.
pub(super) fn boost(on: &mut Wings, spinner: VcpuId, target: VcpuId, step: &mut Step<'_>) {
    step.charge(Cost::SpinCandidate, 1);
    let counters = &mut on.guests.vcpus[spinner].counters;
    counters.directed_yield_looks += 1;
    counters.directed_yield_attempted += 1;
    let ready = on.guests.vcpus[target].thread.ready;
    let task = userspace::thread_of(on, target).filter(|_| ready);
    let done = task.is_some_and(|task| on.threads.sched.boost(task, step));
    record(on, spinner, target, done, step);
}

/// Yields from `vcpu`, which runs here, to `target`. Returns whether the scheduler accepted it. If so, the caller
/// reschedules the pCPU.
pub(crate) fn directed_yield(on: &mut Wings, vcpu: VcpuId, target: VcpuId, step: &mut Step<'_>) -> bool {
    let task = userspace::thread_of(on, target);
    let done = task.is_some_and(|task| on.threads.sched.yield_to(step.pcpu, task, step));
    record(on, vcpu, target, done, step);
    done
}

/// Records whether the scheduler accepted `target` as the one that `from` lets run.
fn record(on: &mut Wings, from: VcpuId, to: VcpuId, done: bool, step: &mut Step<'_>) {
    step.out.push(Command::DirectedYield { from, to, done });
    if done {
        let in_userspace = on.guests.vcpus[to].state == VcpuState::Userspace;
        let counters = &mut on.guests.vcpus[from].counters;
        counters.directed_yield_successful += 1;
        counters.directed_yield_userspace += u64::from(in_userspace);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boundary::{TaskId, VmId};
    use crate::interrupts::lapic::TimerBase;

    fn vcpu() -> Vcpu {
        let mut vcpu = Vcpu::new(VcpuId(0), VmId(0), 0, TaskId(0));
        vcpu.thread.preempted = true;
        vcpu
    }

    const SEARCH: Search = Search {
        spinner: VcpuId(1),
        in_kernel: true,
        tries: 0,
    };

    /// Returns four results of the filter for a vCPU that is itself in the handler, or is not.
    fn looks(spins: bool, stays: bool) -> [bool; 4] {
        let mut vcpu = vcpu();
        vcpu.spin.in_loop = spins;
        [(); 4].map(|()| is_candidate(&mut vcpu, &YieldFilters::LINUX_3_10, stays, &SEARCH))
    }

    #[test]
    fn who_spins_itself_is_eligible_every_second_time() {
        assert_eq!(looks(true, false), [false, true, false, true]);
        assert_eq!(looks(false, false), [true; 4]);
    }

    #[test]
    fn a_vcpu_preempted_in_user_code_is_a_candidate_if_an_interrupt_waits() {
        let base = TimerBase {
            tsc_hz: 1_000_000_000,
            min_period_ns: 1,
        };
        for (in_kernel, enabled, expected) in [
            (true, true, true),
            (true, false, true),
            (false, true, true),
            (false, false, false),
        ] {
            let mut at = vcpu();
            at.thread.preempted_in_kernel = in_kernel;
            if enabled {
                at.apic.write(holdfast_abi::lapic::SVR, 0x1ff, 0, &base);
            }
            at.apic.accept(0x41, false);
            let found = is_candidate(&mut at, &YieldFilters::LINUX_6_9, false, &SEARCH);
            assert_eq!(found, expected, "{in_kernel}, {enabled}");
        }
    }

    #[test]
    fn without_the_toggle_who_spins_itself_is_never_eligible() {
        assert_eq!(looks(true, true), [false; 4]);
    }
}
