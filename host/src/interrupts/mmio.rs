//! Accesses to guest-physical addresses without memory: a LAPIC's page, or nothing.

use holdfast_abi::{lapic as reg, msr};

use crate::boundary::{Command, Cost, VcpuId};
use crate::interrupts::lapic::Action;
use crate::step::Step;
use crate::vcpu::Vcpu;
use crate::wings::Wings;

/// Handles a store to the page where LAPICs are after reset.
pub(crate) fn apic_write(on: &mut Wings, vcpu: VcpuId, offset: u32, value: u32, step: &mut Step<'_>) {
    let address = msr::APIC_BASE_ADDRESS.wrapping_add(u64::from(offset));
    mmio_write(on, vcpu, address, u64::from(value), 4, step);
}

/// Handles a load from that page.
pub(crate) fn apic_read(on: &mut Wings, vcpu: VcpuId, offset: u32, step: &mut Step<'_>) {
    mmio_read(
        on,
        vcpu,
        msr::APIC_BASE_ADDRESS.wrapping_add(u64::from(offset)),
        4,
        step,
    );
}

/// Handles a store of `bytes` bytes at `address`.
pub(crate) fn mmio_write(on: &mut Wings, vcpu: VcpuId, address: u64, value: u64, bytes: u8, step: &mut Step<'_>) {
    let at = &mut on.guests.vcpus[vcpu];
    begin_mmio(at, step);
    let vm = at.vm;
    if at.apic.is_at(address) {
        // Registers take stores of 32 bits (SDM volume 3, "Local APIC Register Address Map"). KVM ignores others.
        if bytes == 4 {
            let (now, base) = (step.now, on.apics.timer_base);
            let offset = (address % reg::PAGE_BYTES as u64) as u32;
            let action = on
                .guests
                .change_apic(vcpu, |apic| apic.write(offset, value as u32, now, &base));
            on.apic_register_written(vm, offset, step);
            on.act(vcpu, action, step);
        }
        return;
    }
    visit_userspace(at, step);
}

/// Handles a load of `bytes` bytes from `address`.
pub(crate) fn mmio_read(on: &mut Wings, vcpu: VcpuId, address: u64, bytes: u8, step: &mut Step<'_>) {
    let at = &mut on.guests.vcpus[vcpu];
    begin_mmio(at, step);
    let value = if at.apic.is_at(address) {
        let offset = (address % reg::PAGE_BYTES as u64) as u32;
        u64::from(read_apic(on, vcpu, offset, bytes, step))
    } else {
        visit_userspace(at, step);
        // The bus has pull-up resistors.
        u64::MAX
    };
    let mask = match bytes {
        0..8 => (1 << (8 * u32::from(bytes))) - 1,
        _ => u64::MAX,
    };
    step.out.push(Command::Reply {
        vcpu,
        value: value & mask,
    });
}

/// Reads `bytes` bytes from `offset` of the LAPIC's page. An access across the 32 bits of a register reads as 0
/// (KVM).
fn read_apic(on: &mut Wings, vcpu: VcpuId, offset: u32, bytes: u8, step: &mut Step<'_>) -> u32 {
    let within = offset % reg::STRIDE;
    if within + u32::from(bytes) > 4 {
        return 0;
    }
    let register = offset - within;
    let apic = &mut on.guests.vcpus[vcpu].apic;
    let error = apic.note_access(register) != Action::None;
    let value = apic.read(register, step.now);
    if error {
        on.guests.request_event(vcpu);
    }
    value >> (8 * within)
}

fn begin_mmio(at: &mut Vcpu, step: &mut Step<'_>) {
    step.charge(Cost::ApicAccess, 1);
    at.counters.insn_emulation += 1;
}

/// Accounts for a round trip of `at` to the VMM's process, which has no device at the address.
fn visit_userspace(at: &mut Vcpu, step: &mut Step<'_>) {
    at.counters.userspace_exits += 1;
    step.charge(Cost::UserspaceExit, 1);
}
