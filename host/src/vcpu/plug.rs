//! VMs that come and go, and the threads of their vCPUs.
//!
//! - **The thread itself leaves**: a vCPU is off once its thread has come out of guest mode, a halt or a pause exit and
//!   has ended. Until then the vCPU may execute.
//! - **Nothing points at it**: its timers are off, its LAPIC is reset, no sleeper list, hint or record names it, and
//!   the tables of hardware say that it does not run.
//! - **Off**: interrupts and kicks for a vCPU that is off have no effect, and none is left when its VM starts.

use crate::boundary::{Command, VcpuId, VcpuState, VmId};
use crate::interrupts;
use crate::interrupts::lapic::Lapic;
use crate::pause::window;
use crate::step::Step;
use crate::timers::Timer;
use crate::vcpu::init;
use crate::vcpu::steal_time;
use crate::vcpu::{Activity, Halt, MpState, PendingEvents, Pid};
use crate::wings::Wings;

/// Makes the thread of `vcpu` leave, and the vCPU be off. Does nothing if the vCPU is dead.
fn unplug(on: &mut Wings, vcpu: VcpuId, step: &mut Step<'_>) {
    let at = &mut on.guests.vcpus[vcpu];
    if at.activity == Activity::Dead {
        return;
    }
    at.thread.unplugged = true;
    on.kick(vcpu, step);
}

/// The thread of `vcpu`, which has the executing pCPU and is to leave, ends.
pub(crate) fn park(on: &mut Wings, vcpu: VcpuId, step: &mut Step<'_>) {
    on.threads.sched.set_polling(step.pcpu, false);
    on.unblock(vcpu, step.pcpu);
    power_off(on, vcpu, step);
    let at = &mut on.guests.vcpus[vcpu];
    at.set_state(VcpuState::HandlingExit, step);
    at.thread.unplugged = false;
    at.activity = Activity::Dead;
    at.thread.ready = false;
    at.spin.in_loop = false;
    at.spin.dy_eligible = false;
    at.thread.ran = false;
    let (vm, task) = (at.vm, at.thread.task);
    at.set_state(VcpuState::Dead, step);
    on.threads.timers.cancel(Timer::Sleep(task));
    on.threads.records[task].generation += 1;
    on.threads.sched.exit(step.pcpu);
    report_end(on, vm, step);
}

/// Resets `vcpu` as at power-on.
fn power_off(on: &mut Wings, vcpu: VcpuId, step: &mut Step<'_>) {
    if on.guests.planted.plug.state_stays {
        return;
    }
    on.guests.change_apic(vcpu, Lapic::power_on);
    init::reset(on, vcpu, step);
    let at = &mut on.guests.vcpus[vcpu];
    at.requests.apic_update = at.virtualization.is_hardware();
    at.mp_state = MpState::Uninitialized;
    at.pending = PendingEvents::default();
    at.halt = Halt::default();
}

/// Makes `vcpu`, which is dead, ready for its thread. It will execute at once, or wait for INIT and SIPI.
///
/// # Panics
/// If the vCPU is not dead.
fn plug(on: &mut Wings, vcpu: VcpuId, executes: bool, step: &mut Step<'_>) {
    assert_eq!(
        on.guests.vcpus[vcpu].state,
        VcpuState::Dead,
        "vcpu {} is plugged twice",
        vcpu.0
    );
    // What came for it since its VM was added.
    power_off(on, vcpu, step);
    let task = on.guests.vcpus[vcpu].thread.task;
    let generation = on.threads.records[task].generation;
    let waited = steal_time::waited_ns(on, vcpu);
    let at = &mut on.guests.vcpus[vcpu];
    at.thread.pid = Pid { task, generation };
    at.steal.seen_ns = waited;
    at.thread.ready = true;
    (at.mp_state, at.activity) = match executes {
        true => (MpState::Runnable, Activity::Run),
        false => (MpState::Uninitialized, Activity::Block),
    };
    at.set_state(VcpuState::Woken, step);
    window::begin_pause_window(on, vcpu, step);
}

/// Starts `vm`, which was added without being started.
///
/// # Panics
/// If the VM has ended, or a vCPU of it is not dead.
pub(crate) fn start_vm(on: &mut Wings, vm: VmId, step: &mut Step<'_>) {
    assert!(!on.guests.vms[vm].ended, "vm {} has ended", vm.0);
    let config = on.guests.vms[vm].config;
    for vcpu in on.guests.vcpus_of(vm) {
        let executes = !config.waits_for_sipi || on.guests.vcpus[vcpu].index == 0;
        plug(on, vcpu, executes, step);
        let task = on.guests.vcpus[vcpu].thread.task;
        match config.vcpus_wait {
            true => on.threads.create_task(task, step),
            false => on.threads.start_task(task, step),
        }
    }
    if config.vcpus_wait {
        for vcpu in on.guests.vcpus_of(vm) {
            on.threads.sched.wake(on.guests.vcpus[vcpu].thread.task, step);
        }
    }
}

/// Ends `vm`: its vCPUs leave, and its devices are gone.
pub(crate) fn end_vm(on: &mut Wings, vm: VmId, step: &mut Step<'_>) {
    let this = &mut on.guests.vms[vm];
    if this.ended {
        return;
    }
    this.ended = true;
    this.doorbells.clear();
    interrupts::remove_devices(on, vm);
    for vcpu in on.guests.vcpus_of(vm) {
        unplug(on, vcpu, step);
    }
    report_end(on, vm, step);
}

/// Reports that `vm` has ended, once no thread of it is left.
fn report_end(on: &Wings, vm: VmId, step: &mut Step<'_>) {
    if on.guests.is_gone(vm) {
        step.out.push(Command::VmEnded { vm });
    }
}
