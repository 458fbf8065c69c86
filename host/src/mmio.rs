//! Accesses to guest-physical addresses that are no memory: who is there, if anybody.

use holdfast_abi::ioapic;

use crate::boundary::{Command, Cost, VcpuId};
use crate::host::Host;
use crate::step::Step;

impl Host {
    /// A store of `bytes` bytes at `address`.
    pub(crate) fn mmio_write(&mut self, vcpu: VcpuId, address: u64, value: u64, bytes: u8, step: &mut Step<'_>) {
        self.begin_mmio(vcpu, step);
        let vm = self.at(vcpu).vm;
        // Registers are 32 bits wide; a narrower store is of the low bits (KVM), a wider one of two registers is none.
        if let (Some(offset), 1 | 2 | 4) = (ioapic_offset(address), bytes) {
            let value = value as u32 & (u32::MAX >> (32 - 8 * u32::from(bytes)));
            self.ioapic_write(vm, offset, value, step);
        }
    }

    /// A load of `bytes` bytes from `address`.
    pub(crate) fn mmio_read(&mut self, vcpu: VcpuId, address: u64, bytes: u8, step: &mut Step<'_>) {
        self.begin_mmio(vcpu, step);
        let vm = self.at(vcpu).vm;
        let value = match ioapic_offset(address) {
            Some(offset) => u64::from(self.vms[vm.0 as usize].ioapic.read(offset)),
            None => u64::MAX,
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

    fn begin_mmio(&mut self, vcpu: VcpuId, step: &mut Step<'_>) {
        step.charge(Cost::ApicAccess, 1);
        self.at(vcpu).counters.insn_emulation += 1;
    }
}

/// Where in the I/O APIC's page `address` is.
fn ioapic_offset(address: u64) -> Option<u32> {
    let offset = address.checked_sub(ioapic::ADDRESS)?;
    (offset < ioapic::SIZE).then_some(offset as u32)
}
