//! Exit dispatch: why the guest left, and who handles it.

use crate::boundary::{Command, Cost, Exit, GuestState, VcpuId, VcpuState};
use crate::host::Host;
use crate::step::Step;
use crate::timer::Timer;
use crate::vcpu::{Activity, Mode};

impl Host {
    /// `vcpu` left guest mode on the executing pCPU.
    pub(crate) fn exit(&mut self, vcpu: VcpuId, exit: Exit, guest: GuestState, step: &mut Step<'_>) {
        let at = self.at(vcpu);
        at.mode.set(Mode::Outside);
        at.guest = guest;
        at.take_from_exit();
        at.counters.exits += 1;
        at.set_state(VcpuState::HandlingExit, step);
        step.charge(Cost::ExitSoftware, 1);
        // Before the exit itself is handled, which may be the end of another interrupt.
        self.collect_pv_eoi(vcpu, step);
        match exit {
            Exit::ExternalInterrupt(interrupt) => {
                self.at(vcpu).counters.irq_exits += 1;
                self.interrupt(interrupt, step);
            }
            Exit::Hlt => self.begin_halt(vcpu, step),
            Exit::Hypercall { number, arguments } => self.hypercall(vcpu, number, arguments, step),
            Exit::Cpuid { leaf } => {
                step.charge(Cost::Cpuid, 1);
                let value = self.cpuid(vcpu, leaf);
                step.out.push(Command::ReplyCpuid { vcpu, value });
            }
            Exit::ReadMsr { msr } => self.read_msr(vcpu, msr, step),
            Exit::WriteMsr { msr, value } => self.write_msr(vcpu, msr, value, step),
            Exit::ApicWrite { offset, value } => self.apic_write(vcpu, offset, value, step),
            Exit::ApicRead { offset } => self.apic_read(vcpu, offset, step),
            Exit::MmioWrite { address, value, bytes } => self.mmio_write(vcpu, address, value, bytes, step),
            Exit::MmioRead { address, bytes } => self.mmio_read(vcpu, address, bytes, step),
            Exit::Nested { runs } => self.set_nested(vcpu, runs, step),
            Exit::AvicIncompleteIpi(exit) => self.avic_incomplete_ipi(vcpu, exit, step),
            Exit::AvicNoAccel { exit, offset, value } => self.avic_unaccelerated(vcpu, exit, offset, value, step),
            Exit::ApicvWrite { offset, value } => self.apicv_write(vcpu, offset, value, step),
            Exit::ApicvEoi { vector } => self.apicv_eoi(vcpu, vector, step),
            Exit::PortWrite { port, .. } => self.port_write(vcpu, port, step),
            Exit::InterruptWindow => {
                self.at(vcpu).counters.irq_window += 1;
                self.request_event(vcpu);
            }
            Exit::WriteCr8 { value } => self.write_cr8(vcpu, value, step),
            Exit::Iret => {
                step.charge(Cost::InterruptWindow, 1);
                self.at(vcpu).pending.nmi_blocked = false;
                self.request_event(vcpu);
            }
            Exit::Userspace => self.leave_run(vcpu, step),
            Exit::Pause => self.on_spin(vcpu, step),
            Exit::Shutdown => self.shutdown(vcpu, step),
        }
    }

    /// `vcpu` is done for ever: its thread ends.
    fn shutdown(&mut self, vcpu: VcpuId, step: &mut Step<'_>) {
        let at = self.at(vcpu);
        at.activity = Activity::Dead;
        at.steal.msr = 0;
        let (task, timer) = (at.task, at.timer);
        at.set_state(VcpuState::Dead, step);
        self.timers.cancel(Timer::Lapic(timer));
        self.timers.cancel(Timer::Sleep(task));
        self.sched.exit(step.pcpu);
        self.reschedule(step);
    }
}
