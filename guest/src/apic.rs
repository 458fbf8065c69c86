//! The local APIC of one CPU: its registers, the end of an interrupt, and the one-shot timer.
//!
//! The kernel uses x2APIC mode where CPUID offers it, as Linux does in a KVM guest, and the memory-mapped registers
//! otherwise. An IPI is one exit in x2APIC mode and three with memory-mapped registers.

use holdfast_abi::{cpuid, lapic, msr};
use holdfast_locks::CpuId;

use crate::costs;
use crate::local::{Local, Local32};
use crate::machine::Cpu;

/// Linux's `LOCAL_TIMER_VECTOR`.
pub const TIMER_VECTOR: u8 = 0xef;
/// Linux's `CALL_FUNCTION_VECTOR`.
pub(crate) const CALL_VECTOR: u8 = 0xfc;
/// The network device's vector for received packets. Like any device's, it is below the system's vectors.
pub(crate) const NETWORK_VECTOR: u8 = 0x41;
/// The block device's vector.
pub(crate) const DISK_VECTOR: u8 = 0x42;
/// Linux's `RESCHEDULE_VECTOR`.
pub const RESCHEDULE_VECTOR: u8 = 0xfd;
/// Linux's `SPURIOUS_APIC_VECTOR`.
const SPURIOUS_VECTOR: u32 = 0xff;

/// Nanoseconds per timer count: KVM's APIC bus runs at 1 GHz, and Linux divides it by 16.
const TIMER_COUNT_NS: u64 = TIMER_DIVIDER;
/// By how much the timer divides the bus's frequency.
pub(crate) const TIMER_DIVIDER: u64 = 16;
/// Divide configuration for 16 (SDM volume 3, "Divide Configuration Register").
const DIVIDE_BY_16: u32 = 0b0011;

/// The most xAPIC CPUs that logical IDs of the flat model can address.
const FLAT_CPUS: u32 = 8;

/// A kernel's state of one CPU's APIC.
#[derive(Debug)]
pub struct LocalApic {
    /// The time in nanoseconds for which the timer is set. `u64::MAX`: the timer is off.
    pub(crate) timer: Local,
    pub(crate) x2apic: Local32,
    /// Not 0: this CPU has a paravirtual EOI word.
    pv_eoi: Local32,
}

/// Returns the logical destination register of one of at most eight CPUs in the flat model: a bit of its own.
fn flat_id(id: CpuId) -> u32 {
    1 << (24 + id.0)
}

/// Returns `true` if a CPU with these features has x2APIC mode.
fn has_x2apic([_, _, ecx, _]: [u32; 4]) -> bool {
    ecx & cpuid::X2APIC != 0
}

impl Default for LocalApic {
    fn default() -> Self {
        LocalApic::new()
    }
}

impl LocalApic {
    /// An APIC that is off.
    pub const fn new() -> Self {
        LocalApic {
            timer: Local::new(u64::MAX),
            x2apic: Local32::new(0),
            pv_eoi: Local32::new(0),
        }
    }

    /// Switches the APIC of CPU `id` on. The machine has `cpus` CPUs.
    pub fn enable(&self, cpu: &impl Cpu, id: CpuId, cpus: u32, nox2apic: bool) {
        // CPUID exits, also in a guest that does not use the mode.
        if has_x2apic(cpu.cpuid(cpuid::FEATURES)) && !nox2apic {
            let base = cpu.rdmsr(msr::APIC_BASE);
            cpu.wrmsr(msr::APIC_BASE, base | msr::APIC_BASE_ENABLE | msr::APIC_BASE_X2APIC);
            self.x2apic.set(1);
        }
        if !self.x2apic.is_set() && is_flat(cpus) {
            self.write(cpu, lapic::DFR, lapic::DFR_FLAT);
            self.write(cpu, lapic::LDR, flat_id(id));
        }
        self.write(cpu, lapic::SVR, lapic::SVR_ENABLE | SPURIOUS_VECTOR);
        self.write(cpu, lapic::TPR, 0);
        self.write(cpu, lapic::TIMER_DIVIDE, DIVIDE_BY_16);
        self.write(
            cpu,
            lapic::LVT_TIMER,
            u32::from(TIMER_VECTOR) | lapic::LVT_TIMER_ONE_SHOT,
        );
    }

    /// Registers the paravirtual EOI word at guest-physical `address` with the host.
    pub(crate) fn enable_pv_eoi(&self, cpu: &impl Cpu, address: u64) {
        cpu.wrmsr(msr::PV_EOI, address | msr::PV_EOI_ENABLE);
        self.pv_eoi.set(1);
    }

    /// Writes the register at `offset`.
    pub(crate) fn write(&self, cpu: &impl Cpu, offset: u32, value: u32) {
        if self.x2apic.is_set() {
            cpu.wrmsr(msr::X2APIC_BASE + offset / 16, u64::from(value));
        } else {
            cpu.apic_write(offset, value);
        }
    }

    /// Ends the interrupt in service. Returns `true` if the paravirtual EOI word did, without a register write.
    pub fn end_of_interrupt(&self, cpu: &impl Cpu) -> bool {
        if self.pv_eoi.is_set() && cpu.take_pv_eoi() {
            return true;
        }
        self.write(cpu, lapic::EOI, 0);
        false
    }

    /// Sends the caller's own CPU `vector`.
    pub(crate) fn send_self(&self, cpu: &impl Cpu, vector: u8) {
        if self.x2apic.is_set() {
            cpu.wrmsr(msr::X2APIC_SELF_IPI, u64::from(vector));
        } else {
            self.command(cpu, 0, u32::from(vector) | lapic::ICR_SHORTHAND_SELF);
        }
    }

    /// Starts CPU `target` at `page`, by INIT and two SIPIs (MultiProcessor Specification 1.4, B.4).
    pub(crate) fn start_cpu(&self, cpu: &impl Cpu, target: CpuId, page: u8) {
        let init = lapic::DeliveryMode::Init.bits() | lapic::ICR_LEVEL;
        self.command(cpu, target.0, init | lapic::ICR_ASSERT);
        cpu.compute(costs::INIT_DELAY);
        self.command(cpu, target.0, init);
        for _ in 0..2 {
            self.command(cpu, target.0, lapic::DeliveryMode::Startup.bits() | u32::from(page));
            cpu.compute(costs::STARTUP_DELAY);
        }
    }

    /// Writes the interrupt command `low` for `destination`.
    pub fn command(&self, cpu: &impl Cpu, destination: u32, low: u32) {
        if self.x2apic.is_set() {
            cpu.wrmsr(msr::X2APIC_ICR, u64::from(destination) << 32 | u64::from(low));
            return;
        }
        // The manual's order: wait until the last command is delivered, then write the destination first. Interrupts
        // are masked because a handler could send a command between the two writes.
        let enabled = cpu.irq_save();
        while cpu.apic_read(lapic::ICR_LOW) & lapic::ICR_BUSY != 0 {
            cpu.relax();
        }
        if low & lapic::ICR_SHORTHAND == lapic::ICR_SHORTHAND_NONE {
            let destination = u8::try_from(destination).expect("an xAPIC destination is above 255");
            cpu.apic_write(lapic::ICR_HIGH, lapic::icr_high(destination));
        }
        cpu.apic_write(lapic::ICR_LOW, low);
        cpu.irq_restore(enabled);
    }

    /// Sets the timer for `at` nanoseconds, or switches it off for `u64::MAX`. Interrupts are masked. Returns `false`
    /// if the timer was off already, so that no register was written.
    pub fn set_timer(&self, cpu: &impl Cpu, at: u64) -> bool {
        if at == u64::MAX && self.timer.get() == u64::MAX {
            return false;
        }
        self.timer.set(at);
        let count = match at {
            u64::MAX => 0,
            // A count of 0 would switch the timer off, so a time in the past gets a count of 1. A time too far for the
            // counter is reached in several steps.
            at => at
                .saturating_sub(cpu.now_ns())
                .div_ceil(TIMER_COUNT_NS)
                .clamp(1, u64::from(u32::MAX)),
        };
        self.write(cpu, lapic::TIMER_INITIAL, count as u32);
        true
    }
}

/// Returns `true` if xAPIC CPUs have logical IDs in the flat model (`apic_flat`, as opposed to `apic_physflat`).
pub(crate) fn is_flat(cpus: u32) -> bool {
    cpus <= FLAT_CPUS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x2apic_mode_is_used_only_where_it_is_offered() {
        // SDM volume 2, "CPUID": leaf 1, ECX, bit 21.
        for bit in 0..32 {
            assert_eq!(has_x2apic([0, 0, 1 << bit, 0]), bit == 21, "bit {bit}");
            assert_eq!(has_x2apic([!0, !0, !(1 << bit), !0]), bit != 21, "all but bit {bit}");
        }
    }

    #[test]
    fn in_the_flat_model_each_cpu_has_a_bit_of_the_upper_byte() {
        assert!(is_flat(8));
        assert!(!is_flat(9), "the logical destination register has eight bits");
        let mut all = 0;
        for cpu in 0..8 {
            let id = flat_id(CpuId(cpu));
            assert_eq!((id.count_ones(), all & id), (1, 0), "CPU {cpu}");
            all |= id;
        }
        assert_eq!(all, 0xff00_0000);
    }
}
