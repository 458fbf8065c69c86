//! Dispatch of exits to their handlers.

use crate::boundary::{Command, Cost, Exit, GuestState, VcpuId, VcpuState};
use crate::step::Step;
use crate::timers::Timer;
use crate::vcpu::wing::{After, VcpuWing};
use crate::vcpu::{Activity, Mode};

impl VcpuWing {
    /// Handles the exit of `vcpu` from guest mode on the executing pCPU. Returns what shall follow.
    pub(crate) fn exit(&mut self, vcpu: VcpuId, exit: Exit, guest: GuestState, step: &mut Step<'_>) -> After {
        let at = &mut self.guests.vcpus[vcpu];
        at.mode.set(Mode::Outside);
        at.guest = guest;
        at.take_from_exit();
        at.counters.exits += 1;
        at.set_state(VcpuState::HandlingExit, step);
        step.charge(Cost::ExitSoftware, 1);
        // This comes first: the exit itself may be the end of another interrupt.
        self.interrupts.collect_pv_eoi(vcpu, step);
        if self.reflects(vcpu, exit) {
            self.leave_nested(vcpu, step);
            return After::Resume;
        }
        match exit {
            Exit::ExternalInterrupt(interrupt) => {
                self.guests.vcpus[vcpu].counters.irq_exits += 1;
                return After::Interrupt(interrupt);
            }
            Exit::Hypercall { number, arguments } => return self.hypercall(vcpu, number, arguments, step),
            Exit::Pause => return self.on_spin(vcpu, step),
            Exit::Shutdown => return self.shutdown(vcpu, step),
            Exit::Hlt => self.begin_halt(vcpu, step),
            Exit::Userspace => self.leave_run(vcpu, step),
            Exit::Vmrun => self.vmrun(vcpu, step),
            Exit::Cpuid { leaf } => {
                step.charge(Cost::Cpuid, 1);
                let value = self.cpuid(vcpu, leaf);
                step.out.push(Command::ReplyCpuid { vcpu, value });
            }
            Exit::NestedFault | Exit::WriteFault => step.charge(Cost::NestedFault, 1),
            Exit::PageLogFull { entries } => step.charge(Cost::LoggedPage, entries),
            Exit::ReadMsr { msr } => self.read_msr(vcpu, msr, step),
            Exit::WriteMsr { msr, value } => self.write_msr(vcpu, msr, value, step),
            Exit::WriteCr8 { value } => self.write_cr8(vcpu, value, step),
            Exit::InterruptWindow => {
                self.guests.vcpus[vcpu].counters.irq_window += 1;
                self.guests.request_event(vcpu);
            }
            Exit::Iret => {
                step.charge(Cost::InterruptWindow, 1);
                self.guests.vcpus[vcpu].pending.nmi_blocked = false;
                self.guests.request_event(vcpu);
            }
            _ => self.interrupts.exit(vcpu, exit, step),
        }
        After::Resume
    }

    /// Ends the thread of `vcpu`, which does not run again.
    fn shutdown(&mut self, vcpu: VcpuId, step: &mut Step<'_>) -> After {
        let at = &mut self.guests.vcpus[vcpu];
        at.activity = Activity::Dead;
        at.steal.msr = 0;
        let (task, timer) = (at.task, at.timer);
        at.set_state(VcpuState::Dead, step);
        self.threads.timers.cancel(Timer::Lapic(timer));
        self.threads.timers.cancel(Timer::Sleep(task));
        self.threads.sched.exit(step.pcpu);
        After::Reschedule
    }
}
