//! Interrupts that software delivers to a vCPU with APICv, and the wakeup vector (`vmx_deliver_interrupt`).

use holdfast_abi::{Memory, lapic as reg, posted};

use crate::boundary::{Command, Cost, PcpuId, VcpuId};
use crate::interrupts::apicv;
use crate::interrupts::lapic::ApicRegisters;
use crate::step::Step;
use crate::vcpu::Mode;
use crate::wings::Wings;

/// Posts `vector` for `vcpu`, whose LAPIC is enabled, and notifies it. Returns `false` if hardware does not
/// virtualize its LAPIC at present.
pub(crate) fn deliver(on: &mut Wings, vcpu: VcpuId, vector: u8, level: bool, step: &mut Step<'_>) -> bool {
    if !on.is_virtualized(vcpu) {
        return false;
    }
    let page = on.guests.vcpus[vcpu].apic.registers();
    if level {
        page.insert(reg::TMR, vector);
    } else {
        page.remove(reg::TMR, vector);
    }
    let memory = on.memory();
    if !apicv::setup::descriptor(on, &memory, vcpu).post(vector) {
        return true;
    }
    // Pairs with the fence between mode and ON at entry.
    memory.fence();
    let at = &on.guests.vcpus[vcpu];
    let (in_guest, cpu) = (at.mode.get() == Mode::InGuest, at.thread.cpu);
    match cpu {
        Some(cpu) if in_guest => {
            // On the executing pCPU the vCPU is not in guest mode: it is about to enter, and reads ON.
            assert!(
                cpu != step.pcpu,
                "vcpu {} is in guest mode where the host executes",
                vcpu.0
            );
            on.guests.vcpus[vcpu].counters.posted_notifications += 1;
            step.charge(Cost::IpiSend, 1);
            step.out.push(Command::Notify {
                from: PcpuId(step.pcpu),
                to: PcpuId(cpu),
                vector: posted::NOTIFICATION_VECTOR,
            });
        }
        _ => {
            on.wake_up(vcpu, step);
        }
    }
    true
}

/// Handles the wakeup vector on `pcpu`: wakes the sleepers of its list that have a posted interrupt
/// (`pi_wakeup_handler`).
pub(crate) fn posted_wakeup(on: &mut Wings, pcpu: u32, step: &mut Step<'_>) {
    let sleepers = core::mem::take(&mut on.apics.posted_sleepers[PcpuId(pcpu)]);
    for &vcpu in &sleepers {
        let memory = on.memory();
        if apicv::setup::descriptor(on, &memory, vcpu).control().is_on() {
            on.guests.vcpus[vcpu].counters.posted_wakeups += 1;
            on.wake_up(vcpu, step);
        }
    }
    on.apics.posted_sleepers[PcpuId(pcpu)] = sleepers;
}
