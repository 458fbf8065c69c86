//! Pause exits: handling a vCPU that spins (docs/spec/host.md, "Pause exits").
//!
//! - **Bounded**: a pause exit examines each other vCPU of the VM at most once, or twice with the relaxed pass of the
//!   IPI-aware proposal.
//! - **A hint**: a wrong choice costs time, never correctness.

pub(crate) mod config;
pub(crate) mod hint;
mod ipi;
pub(crate) mod window;

use crate::boundary::{Command, Cost, VcpuId, VcpuState};
use crate::step::Step;
use crate::timers::Timer;
use crate::vcpu::Activity;
use crate::vcpu::after::After;
use crate::vcpu::userspace;
use crate::wings::Wings;
use config::{PauseControls, PauseExit};

/// The result of trying one candidate, or all in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attempt {
    /// The scheduler prefers it.
    Boosted,
    /// It cannot be the target of a yield (0). For a round: none can.
    Unsuitable,
    /// Neither its pCPU nor the spinner's has anything else to run (−ESRCH). For a round: it gave up after too many.
    Undercommitted,
}

/// The search of a pause exit for the target of its directed yield.
#[derive(Clone, Copy, Debug)]
struct Search {
    spinner: VcpuId,
    /// The spinner spins in kernel mode.
    in_kernel: bool,
    /// Undercommitted candidates until the search gives up. 0: it never does.
    tries: u32,
    /// A candidate needs only to be preempted.
    relaxed: bool,
}

/// `vcpu` has paused for longer than the window.
pub(crate) fn on_spin(on: &mut Wings, vcpu: VcpuId, step: &mut Step<'_>) -> After {
    on.guests.vcpus[vcpu].counters.pause_exits += 1;
    window::grow_pause_window(on, vcpu, step);
    let amd = matches!(on.config.pause_controls, PauseControls::Filter { .. });
    if !amd || on.config.pause.skips_amd_pause {
        step.out.push(Command::SkipPause { vcpu });
    }
    match on.config.pause.exit {
        PauseExit::None => After::Resume,
        PauseExit::Sleep { ns } => pause_sleep(on, vcpu, ns, step),
        PauseExit::DirectedYield => yield_to_another(on, vcpu, step),
    }
}

/// 2.6.33 to 2.6.38: the vCPU sleeps on its own wait queue, so that the lock holder may get the pCPU.
fn pause_sleep(on: &mut Wings, vcpu: VcpuId, ns: u64, step: &mut Step<'_>) -> After {
    let at = &mut on.guests.vcpus[vcpu];
    at.activity = Activity::PauseSleep;
    let task = at.thread.task;
    at.set_state(VcpuState::PauseSleep, step);
    let timers = &mut on.threads.timers;
    timers.arm(Timer::Sleep(task), step.pcpu, step.now + ns);
    on.threads.sched.sleep(step.pcpu);
    After::Reschedule
}

/// 2.6.39 and later: searches the vCPUs from behind the one boosted last. The first that the scheduler accepts is
/// boosted.
fn yield_to_another(on: &mut Wings, vcpu: VcpuId, step: &mut Step<'_>) -> After {
    let filters = on.config.pause.filters;
    let at = &mut on.guests.vcpus[vcpu];
    // Stays set until re-entry: after a yield this vCPU still spins, so it is a poor yield target.
    at.spin.in_loop = true;
    let mut search = Search {
        spinner: vcpu,
        in_kernel: at.guest.cpl == 0,
        tries: filters.tries,
        relaxed: false,
    };
    if filters.ipi_aware
        && let Some(receiver) = on.guests.confirmed_receiver(vcpu, step.now)
        && look(on, &search, receiver, step) == Attempt::Boosted
    {
        return After::Reschedule;
    }
    if hint::yield_as_hinted(on, &search, step) {
        return After::Reschedule;
    }
    let mut end = round(on, &mut search, step);
    if end == Attempt::Unsuitable && filters.ipi_aware {
        search.relaxed = true;
        end = round(on, &mut search, step);
    }
    After::reschedule_if(end == Attempt::Boosted)
}

/// Looks at each other vCPU of the VM once, until one is boosted or the search gives up.
fn round(on: &mut Wings, search: &mut Search, step: &mut Step<'_>) -> Attempt {
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
    let vm = on.guests.vcpus[search.spinner].vm;
    let target = on.guests.vcpu_id(vm, candidate);
    on.guests.vcpus[search.spinner].counters.directed_yield_looks += 1;
    if !is_candidate(on, target, search) {
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

/// Returns whether the filters let `target` be tried.
fn is_candidate(on: &mut Wings, target: VcpuId, search: &Search) -> bool {
    let handling = on.config.pause;
    let filters = handling.filters;
    let stays = on.guests.planted.pause.eligibility_stays;
    let at = &mut on.guests.vcpus[target];
    // A woken vCPU waits no longer.
    let sleeps = matches!(at.state, VcpuState::Blocked | VcpuState::PauseSleep | VcpuState::Dead);
    if sleeps || at.state == VcpuState::InGuest {
        return false;
    }
    if search.relaxed {
        return at.thread.preempted;
    }
    let waits = at.thread.preempted || (filters.ready && at.thread.ready);
    if filters.preempted && !waits {
        return false;
    }
    let hopeless = at.thread.preempted && search.in_kernel && !at.thread.preempted_in_kernel;
    let interrupts = filters.pending_interrupt || filters.ipi_aware;
    if filters.in_kernel && hopeless && !(interrupts && at.has_interrupt()) {
        return false;
    }
    if !filters.eligibility || !at.spin.in_loop {
        return true;
    }
    let eligible = at.spin.dy_eligible;
    at.spin.dy_eligible = !eligible && !stays;
    eligible
}

/// Yields from `vcpu`, which runs here, to `target`. Returns whether the scheduler accepted it. If so, the caller
/// reschedules the pCPU.
pub(crate) fn directed_yield(on: &mut Wings, vcpu: VcpuId, target: VcpuId, step: &mut Step<'_>) -> bool {
    let task = userspace::thread_of(on, target);
    let done = task.is_some_and(|task| on.threads.sched.yield_to(step.pcpu, task, step));
    step.out.push(Command::DirectedYield {
        from: vcpu,
        to: target,
        done,
    });
    if done {
        on.guests.vcpus[vcpu].counters.directed_yield_successful += 1;
        let in_userspace = on.guests.vcpus[target].state == VcpuState::Userspace;
        on.guests.vcpus[vcpu].counters.directed_yield_userspace += u64::from(in_userspace);
    }
    done
}

#[cfg(test)]
mod tests {
    use super::config::{PauseHandling, YieldFilters};
    use super::*;
    use crate::faults::{Planted, SpinFaults};
    use crate::{Host, HostConfig, PcpuPlace, VmConfig};

    /// Returns four results of the filter for a vCPU that is itself in the handler, or is not.
    fn looks(spins: bool, faults: SpinFaults) -> [bool; 4] {
        let pause = PauseHandling {
            filters: YieldFilters::LINUX_3_10,
            ..PauseHandling::DIRECTED_YIELD_2011
        };
        let config = HostConfig {
            pause,
            planted: Planted {
                pause: faults,
                ..Planted::default()
            },
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
        host.wings.guests.vcpus[vcpu].thread.preempted = true;
        host.wings.guests.vcpus[vcpu].spin.in_loop = spins;
        let search = Search {
            spinner: vcpu,
            in_kernel: true,
            tries: 0,
            relaxed: false,
        };
        [(); 4].map(|()| is_candidate(&mut host.wings, vcpu, &search))
    }

    #[test]
    fn who_spins_itself_is_eligible_every_second_time() {
        assert_eq!(looks(true, SpinFaults::default()), [false, true, false, true]);
        assert_eq!(looks(false, SpinFaults::default()), [true; 4]);
    }

    #[test]
    fn a_vcpu_preempted_in_user_code_is_a_candidate_if_an_interrupt_waits() {
        let config = HostConfig {
            pause: PauseHandling {
                filters: YieldFilters::LINUX_6_9,
                ..PauseHandling::DIRECTED_YIELD_2011
            },
            ..HostConfig::default()
        };
        let place = PcpuPlace {
            socket: 0,
            core: 0,
            thread: 0,
        };
        for (in_kernel, enabled, expected) in [
            (true, true, true),
            (true, false, true),
            (false, true, true),
            (false, false, false),
        ] {
            let mut host = Host::new(&config, &[place]).expect("a valid host");
            host.add_vm(&VmConfig::default(), 1, &[]).expect("a valid vm");
            let vcpu = VcpuId(0);
            let base = host.wings.apics.timer_base;
            let at = &mut host.wings.guests.vcpus[vcpu];
            (at.thread.preempted, at.thread.preempted_in_kernel) = (true, in_kernel);
            if enabled {
                at.apic.write(holdfast_abi::lapic::SVR, 0x1ff, 0, &base);
            }
            at.apic.accept(0x41, false);
            let search = Search {
                spinner: vcpu,
                in_kernel: true,
                tries: 0,
                relaxed: false,
            };
            assert_eq!(
                is_candidate(&mut host.wings, vcpu, &search),
                expected,
                "{in_kernel}, {enabled}"
            );
        }
    }

    #[test]
    fn without_the_toggle_who_spins_itself_is_never_eligible() {
        let faults = SpinFaults {
            eligibility_stays: true,
            ..SpinFaults::default()
        };
        assert_eq!(looks(true, faults), [false; 4]);
    }
}
