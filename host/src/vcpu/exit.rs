//! Dispatch of exits to their handlers.

use crate::boundary::{Command, Cost, Exit, GuestState, VcpuId, VcpuState};
use crate::interrupts::exits;
use crate::interrupts::pv_eoi;
use crate::pause;
use crate::sched::seam::GuestView;
use crate::step::Step;
use crate::timers::Timer;
use crate::vcpu::after::After;
use crate::vcpu::cpuid;
use crate::vcpu::entry;
use crate::vcpu::halt;
use crate::vcpu::hypercall;
use crate::vcpu::msr;
use crate::vcpu::nested;
use crate::vcpu::steal_time;
use crate::vcpu::userspace;
use crate::vcpu::{Activity, Mode};
use crate::wings::Wings;

/// Handles the exit of `vcpu` from guest mode on the executing pCPU. Returns what shall follow.
pub(crate) fn exit(on: &mut Wings, vcpu: VcpuId, exit: Exit, guest: GuestState, step: &mut Step<'_>) -> After {
    let at = &mut on.guests.vcpus[vcpu];
    at.mode.set(Mode::Outside);
    at.guest = guest;
    at.take_from_exit();
    at.thread.between_instructions = match exit {
        Exit::ExternalInterrupt(_) => true,
        Exit::Pause | Exit::Hypercall { .. } => on.guests.reports_yields,
        _ => false,
    };
    at.counters.exits += 1;
    at.set_state(VcpuState::HandlingExit, step);
    step.charge(Cost::ExitSoftware, 1);
    let seen = GuestView {
        in_kernel: guest.cpl == 0,
        masked: !guest.interrupts_enabled,
        spins: exit == Exit::Pause,
        halted: exit == Exit::Hlt,
        word: steal_time::read_word(on, vcpu, guest.word),
    };
    on.threads.sched.exited(vcpu, seen);
    // This comes first: the exit itself may be the end of another interrupt.
    pv_eoi::collect(on, vcpu, step);
    if nested::reflects(&on.guests.vcpus[vcpu], exit) {
        nested::leave_nested(on, vcpu, step);
        return After::Resume;
    }
    match exit {
        Exit::ExternalInterrupt(interrupt) => {
            on.guests.vcpus[vcpu].counters.irq_exits += 1;
            return After::Interrupt(interrupt);
        }
        Exit::Hypercall { number, arguments } => return hypercall::hypercall(on, vcpu, number, arguments, step),
        Exit::Pause => return pause::on_spin(on, vcpu, step),
        Exit::Shutdown => return shutdown(on, vcpu, step),
        Exit::Hlt => halt::begin_halt(on, vcpu, step),
        Exit::Userspace => userspace::leave_run(on, vcpu, step),
        Exit::Vmrun => nested::vmrun(on, vcpu, step),
        Exit::Cpuid { leaf } => {
            step.charge(Cost::Cpuid, 1);
            let value = cpuid::cpuid(on, vcpu, leaf);
            step.out.push(Command::ReplyCpuid { vcpu, value });
        }
        Exit::NestedFault | Exit::WriteFault => step.charge(Cost::NestedFault, 1),
        Exit::PageLogFull { entries } => step.charge(Cost::LoggedPage, entries),
        Exit::ReadMsr { msr } => msr::read_msr(on, vcpu, msr, step),
        Exit::WriteMsr { msr, value } => msr::write_msr(on, vcpu, msr, value, step),
        Exit::WriteCr8 { value } => entry::write_cr8(on, vcpu, value, step),
        Exit::InterruptWindow => {
            on.guests.vcpus[vcpu].counters.irq_window += 1;
            on.guests.request_event(vcpu);
        }
        Exit::Iret => {
            step.charge(Cost::InterruptWindow, 1);
            on.guests.vcpus[vcpu].pending.nmi_blocked = false;
            on.guests.request_event(vcpu);
        }
        _ => exits::exit(on, vcpu, exit, step),
    }
    After::Resume
}

/// Ends the thread of `vcpu`, which does not run again.
fn shutdown(on: &mut Wings, vcpu: VcpuId, step: &mut Step<'_>) -> After {
    let at = &mut on.guests.vcpus[vcpu];
    at.activity = Activity::Dead;
    at.steal.msr = 0;
    let (task, timer) = (at.thread.task, at.thread.timer);
    at.set_state(VcpuState::Dead, step);
    on.threads.timers.cancel(Timer::Lapic(timer));
    on.threads.timers.cancel(Timer::Sleep(task));
    on.threads.sched.exit(step.pcpu);
    After::Reschedule
}
