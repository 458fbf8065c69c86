//! Pause exits: handling a vCPU that spins (docs/spec/host.md, "Pause exits").
//!
//! - **Bounded**: a pause exit examines each other vCPU of the VM at most once.
//! - **A hint**: a wrong choice costs time, never correctness.

pub(crate) mod config;
pub(crate) mod search;
pub(crate) mod window;

use crate::boundary::{Command, VcpuId, VcpuState};
use crate::sched::seam::Pause;
use crate::step::Step;
use crate::timers::Timer;
use crate::vcpu::Activity;
use crate::vcpu::after::After;
use crate::wings::Wings;
use config::{PauseControls, PauseExit};
use search::{Attempt, Search};

/// `vcpu` has paused for longer than the window.
pub(crate) fn on_spin(on: &mut Wings, vcpu: VcpuId, step: &mut Step<'_>) -> After {
    let at = &mut on.guests.vcpus[vcpu];
    at.counters.pause_exits += 1;
    window::grow_pause_window(&on.config, at, step);
    let amd = matches!(on.config.pause_controls, PauseControls::Filter { .. });
    if !amd || on.config.pause.skips_amd_pause {
        step.out.push(Command::SkipPause { vcpu });
    }
    match on.threads.sched.pause_exit(vcpu) {
        Pause::Resume => return After::Resume,
        Pause::Leave => {
            on.threads.sched.end_slice(step.pcpu);
            return After::Resume;
        }
        Pause::Sleep(ns) => return pause_sleep(on, vcpu, ns.0, step),
        Pause::Boost(target) => {
            search::boost(on, vcpu, target, step);
            return After::Resume;
        }
        Pause::YieldTo(target) if search::yield_to_ready(on, vcpu, target, step) => return After::Reschedule,
        Pause::YieldTo(_) | Pause::Kernel => {}
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
    let at = &mut on.guests.vcpus[vcpu];
    // Stays set until re-entry: after a yield this vCPU still spins, so it is a poor yield target.
    at.spin.in_loop = true;
    let mut search = Search {
        spinner: vcpu,
        in_kernel: at.guest.cpl == 0,
        tries: on.config.pause.filters.tries,
    };
    let end = search::round(on, &mut search, step);
    After::reschedule_if(end == Attempt::Boosted)
}
