//! Nested guests: a guest that is a hypervisor runs guests of its own (docs/spec/host.md, "Nested guests").
//!
//! Hardware knows one level of guests. The host executes VMRUN for its guest: it enters the inner guest itself, and
//! gives the guest's hypervisor each exit that is not the host's own. The guest's hypervisor intercepts all exits and
//! all interrupts, as KVM does.
//!
//! - **The LAPIC stays outside**: while a vCPU executes its own guest, no hardware virtualizes its LAPIC. An interrupt
//!   for the vCPU ends that guest's run and does not enter it.

use crate::boundary::{Command, Cost, Exit, VcpuId};
use crate::step::Step;
use crate::vcpu::Vcpu;
use crate::wings::Wings;

/// `vcpu` executes VMRUN.
pub(super) fn vmrun(on: &mut Wings, vcpu: VcpuId, step: &mut Step<'_>) {
    if !on.guests.vm_of(vcpu).config.nested {
        step.out.push(Command::InvalidOpcode { vcpu });
        return;
    }
    step.charge(Cost::NestedEntry, 1);
    set_nested(&mut on.guests.vcpus[vcpu], true);
}

/// Returns whether `exit` of `at` is an exit of its own guest that its hypervisor handles. The others are the
/// host's: its interrupts, and what it wants to know of the guest's memory.
pub(super) fn reflects(at: &Vcpu, exit: Exit) -> bool {
    let is_own = matches!(
        exit,
        Exit::ExternalInterrupt(_) | Exit::WriteFault | Exit::PageLogFull { .. }
    );
    at.nested && !is_own
}

/// Gives `vcpu` back to its hypervisor, behind its VMRUN. The global interrupt flag is clear there.
pub(super) fn leave_nested(on: &mut Wings, vcpu: VcpuId, step: &mut Step<'_>) {
    step.charge(Cost::NestedExit, 1);
    let at = &mut on.guests.vcpus[vcpu];
    set_nested(at, false);
    at.guest.interrupts_enabled = false;
    on.guests.request_event(vcpu);
    step.out.push(Command::LeaveNested { vcpu });
}

/// An interrupt that is pending for `vcpu` ends the run of its own guest (`nested_svm` intercepts INTR and NMI).
pub(super) fn interrupt_nested(on: &mut Wings, vcpu: VcpuId, step: &mut Step<'_>) {
    let at = &mut on.guests.vcpus[vcpu];
    if !at.nested {
        return;
    }
    if at.virtualization.is_hardware() {
        at.apic.expect_requests();
    }
    if at.pending.has_nmi() || at.has_interrupt() {
        leave_nested(on, vcpu, step);
    }
}

fn set_nested(at: &mut Vcpu, nested: bool) {
    at.nested = nested;
    at.requests.apic_update |= at.virtualization.is_hardware();
    at.counters.nested_run += u64::from(nested);
}
