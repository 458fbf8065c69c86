//! What the host's work takes on this machine, and what exits count as.

use holdfast_host::{Cost, Exit};
use holdfast_machine::Picos;

use crate::books::cause::Cause;
use crate::core::engine::Engine;

impl Engine {
    /// How long `cost` takes.
    pub fn cost(&self, cost: Cost) -> Picos {
        let costs = &self.costs;
        match cost {
            Cost::ExitSoftware => costs.exit_software,
            Cost::Hlt => costs.hlt,
            Cost::Hypercall => costs.hypercall,
            Cost::Cpuid => costs.cpuid,
            Cost::Msr => costs.msr,
            Cost::PortWrite => costs.port_write,
            Cost::ApicAccess => costs.apic_access,
            Cost::ApicDeliver => costs.apic_deliver,
            Cost::Inject => costs.inject,
            Cost::InterruptWindow => costs.interrupt_window,
            Cost::SpinCandidate => costs.spin_candidate,
            Cost::HostInterrupt => costs.host_interrupt,
            Cost::Tick => costs.tick,
            Cost::TimerProgram => costs.timer_program,
            Cost::IpiSend => costs.ipi_send,
            Cost::Wake => costs.wake,
            Cost::ContextSwitch => costs.context_switch,
            Cost::Balance => costs.balance,
            Cost::VcpuLoad => costs.vcpu_load,
            Cost::StealTime => costs.steal_time,
            Cost::PvEoi => costs.pv_eoi,
            Cost::IdleExit => costs.idle_exit,
            Cost::UserspaceExit => costs.userspace_exit,
            Cost::Doorbell => self.avic.map_or(Picos::ZERO, |part| part.doorbell),
            Cost::ApicvExit => self.apicv.map_or(Picos::ZERO, |part| part.exit),
            Cost::AvicExit => self.avic.map_or(Picos::ZERO, |part| part.exit),
        }
    }
}

/// What the time of `exit` counts as.
pub fn exit_cause(exit: &Exit) -> Cause {
    match exit {
        Exit::ExternalInterrupt(_) => Cause::ExitInterrupt,
        Exit::Hlt => Cause::ExitHlt,
        Exit::Hypercall { .. } => Cause::ExitHypercall,
        Exit::Cpuid { .. } => Cause::ExitCpuid,
        Exit::ReadMsr { .. } | Exit::WriteMsr { .. } | Exit::WriteCr8 { .. } => Cause::ExitMsr,
        Exit::PortWrite { .. } => Cause::ExitPort,
        Exit::InterruptWindow | Exit::Iret => Cause::ExitWindow,
        Exit::AvicIncompleteIpi(_)
        | Exit::AvicNoAccel { .. }
        | Exit::ApicvWrite { .. }
        | Exit::ApicvEoi { .. }
        | Exit::ApicWrite { .. }
        | Exit::ApicRead { .. }
        | Exit::MmioWrite { .. }
        | Exit::MmioRead { .. } => Cause::ExitApic,
        Exit::Pause => Cause::ExitPause,
        Exit::Userspace => Cause::HostOverhead,
        Exit::Nested { .. } => Cause::HostOverhead,
        Exit::Shutdown => Cause::Off,
    }
}
