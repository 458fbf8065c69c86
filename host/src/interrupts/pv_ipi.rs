//! IPIs by hypercall: one vector to up to 128 APIC IDs (`KVM_HC_SEND_IPI`).
//!
//! Source: the kernel's KVM hypercall documentation; docs/spec/guest-host-interface.md, "IPIs by hypercall".

use holdfast_abi::{hypercall, lapic as reg};

use crate::boundary::VcpuId;
use crate::interrupts::lapic::Message;
use crate::step::Step;
use crate::wings::Wings;

/// Sends the IPIs of `vcpu` that `arguments` ask for: bitmap low and high, APIC ID of bit 0, ICR. Returns how many
/// vCPUs accepted one, or an error.
///
/// Bits for IDs that do not exist are ignored. The IDs do not wrap.
pub(crate) fn send(on: &mut Wings, vcpu: VcpuId, arguments: [u64; 4], step: &mut Step<'_>) -> i64 {
    let [low, high, base, icr] = arguments;
    // As in KVM, the upper half of a register that holds 32 bits is ignored.
    let shifted = u32::from(on.guests.planted.pv.pv_ipi_shifted);
    let (base, icr) = ((base as u32).saturating_add(shifted), icr as u32);
    if icr & (reg::ICR_LOGICAL | reg::ICR_SHORTHAND) != 0 {
        return hypercall::EINVAL;
    }
    let (vm, sender) = (on.guests.vcpus[vcpu].vm, on.guests.vcpus[vcpu].index);
    let this = &on.guests.vms[vm];
    // IDs are indexes, unless the guest has changed the IDs of its xAPICs.
    let ids = if this.renamed == 0 { this.vcpus } else { reg::BROADCAST };
    let mut taken = 0;
    for (bits, first) in [(low, Some(base)), (high, base.checked_add(u64::BITS))] {
        let Some(first) = first else { continue };
        let mut left = bits;
        while left != 0 {
            let id = first.checked_add(left.trailing_zeros());
            left &= left - 1;
            let Some(id) = id.filter(|id| *id < ids) else { break };
            let message = Message::of_icr(sender, icr, id, true);
            taken += on.deliver(vm, &message, step);
        }
    }
    on.guests.vcpus[vcpu].counters.pv_ipis_sent += u64::from(taken);
    i64::from(taken)
}
