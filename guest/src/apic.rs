//! The local APIC: end of interrupt, IPIs, the one-shot timer.
//!
//! The kernel uses x2APIC mode where CPUID offers it, as Linux does in a KVM guest, and the memory-mapped registers
//! otherwise: one exit per IPI or three.

use holdfast_abi::{cpuid, lapic, msr};

use crate::class::Event;
use crate::costs;
use crate::ipi;
use crate::kernel::{CpuIndex, OnCpu};
use crate::local::{Local, Local32};
use crate::machine::{Cpu, Machine};

/// `LOCAL_TIMER_VECTOR`.
pub(crate) const TIMER_VECTOR: u8 = 0xef;
/// `CALL_FUNCTION_VECTOR`.
pub(crate) const CALL_VECTOR: u8 = 0xfc;
/// The network device's vector for received packets, below the system's as any device's is.
pub(crate) const NETWORK_VECTOR: u8 = 0x41;
/// `RESCHEDULE_VECTOR`.
pub(crate) const RESCHEDULE_VECTOR: u8 = 0xfd;
/// `SPURIOUS_APIC_VECTOR`.
const SPURIOUS_VECTOR: u32 = 0xff;

/// Nanoseconds per timer count: KVM's APIC bus runs at 1 GHz, and Linux divides it by 16.
const TIMER_COUNT_NS: u64 = 16;
/// Divide configuration for 16 (SDM volume 3, "Divide Configuration Register").
const DIVIDE_BY_16: u32 = 0b0011;

/// The timer of one CPU.
pub(crate) struct Timer {
    /// When the next tick is due, nanoseconds.
    pub(crate) next_tick: Local,
    /// Not 0: this idle CPU has no tick.
    pub(crate) tick_stopped: Local32,
    /// What the hardware is set to; `u64::MAX`: off.
    programmed: Local,
    x2apic: Local32,
    /// Not 0: the host has this CPU's word for ends of interrupts.
    pub(crate) pv_eoi: Local32,
}

impl Timer {
    pub(crate) const fn new() -> Self {
        Timer {
            next_tick: Local::new(0),
            tick_stopped: Local32::new(0),
            programmed: Local::new(u64::MAX),
            x2apic: Local32::new(0),
            pv_eoi: Local32::new(0),
        }
    }
}

/// Switches this CPU's APIC on.
pub(crate) fn enable<M: Machine>(on: &OnCpu<'_, M>) {
    if on.cpu.cpuid(cpuid::FEATURES)[2] & cpuid::X2APIC != 0 && !on.kernel.config.apic.nox2apic {
        let base = on.cpu.rdmsr(msr::APIC_BASE);
        on.cpu
            .wrmsr(msr::APIC_BASE, base | msr::APIC_BASE_ENABLE | msr::APIC_BASE_X2APIC);
        on.local.timer.x2apic.set(1);
    }
    if !is_x2apic(on) && ipi::is_flat(on) {
        write(on, lapic::DFR, lapic::DFR_FLAT);
        write(on, lapic::LDR, 1 << (24 + on.index));
    }
    write(on, lapic::SVR, lapic::SVR_ENABLE | SPURIOUS_VECTOR);
    write(on, lapic::TPR, 0);
    write(on, lapic::TIMER_DIVIDE, DIVIDE_BY_16);
    write(
        on,
        lapic::LVT_TIMER,
        u32::from(TIMER_VECTOR) | lapic::LVT_TIMER_ONE_SHOT,
    );
}

fn write<M: Machine>(on: &OnCpu<'_, M>, offset: u32, value: u32) {
    if on.local.timer.x2apic.is_set() {
        on.cpu.wrmsr(msr::X2APIC_BASE + offset / 16, u64::from(value));
    } else {
        on.cpu.apic_write(offset, value);
    }
}

/// Ends the interrupt in service.
pub(crate) fn end_of_interrupt<M: Machine>(on: &OnCpu<'_, M>) {
    if on.kernel.machine.threads().is_some() {
        return;
    }
    if on.local.timer.pv_eoi.is_set() && on.cpu.take_pv_eoi() {
        on.local.count(Event::PvEois);
        return;
    }
    write(on, lapic::EOI, 0);
}

pub(crate) fn is_x2apic<M: Machine>(on: &OnCpu<'_, M>) -> bool {
    on.local.timer.x2apic.is_set()
}

/// Sends `vector` to CPU `target`, whose APIC ID is its number.
pub(crate) fn send<M: Machine>(on: &OnCpu<'_, M>, target: CpuIndex, vector: u8) {
    if let Some(threads) = on.kernel.machine.threads() {
        assert_eq!(vector, CALL_VECTOR, "only calls are this kernel's to send");
        return threads.call(holdfast_locks::CpuId(target));
    }
    command(on, target, u32::from(vector) | lapic::ICR_SHORTHAND_NONE);
}

/// Starts CPU `target`, which begins at `page`: INIT, and SIPI twice (MultiProcessor Specification 1.4, B.4).
pub(crate) fn start_cpu<M: Machine>(on: &OnCpu<'_, M>, target: CpuIndex, page: u8) {
    let init = lapic::DeliveryMode::Init.bits() | lapic::ICR_LEVEL;
    command(on, target, init | lapic::ICR_ASSERT);
    on.work(costs::INIT_DELAY);
    command(on, target, init);
    for _ in 0..2 {
        command(on, target, lapic::DeliveryMode::Startup.bits() | u32::from(page));
        on.work(costs::STARTUP_DELAY);
    }
}

/// Sends the caller's own CPU `vector`.
pub(crate) fn send_self<M: Machine>(on: &OnCpu<'_, M>, vector: u8) {
    if is_x2apic(on) {
        on.cpu.wrmsr(msr::X2APIC_SELF_IPI, u64::from(vector));
    } else {
        command(on, 0, u32::from(vector) | lapic::ICR_SHORTHAND_SELF);
    }
}

/// Gives the APIC the interrupt command `low` for `destination`.
pub(crate) fn command<M: Machine>(on: &OnCpu<'_, M>, destination: u32, low: u32) {
    if is_x2apic(on) {
        on.cpu
            .wrmsr(msr::X2APIC_ICR, u64::from(destination) << 32 | u64::from(low));
        return;
    }
    // The manual's order: not while the last command is on its way; destination first. An interrupt in between could
    // send one of its own.
    let masked = holdfast_locks::Interrupts::irq_save(&on.cpu);
    while on.cpu.apic_read(lapic::ICR_LOW) & lapic::ICR_BUSY != 0 {
        holdfast_locks::Platform::relax(&on.cpu);
    }
    if low & lapic::ICR_SHORTHAND == lapic::ICR_SHORTHAND_NONE {
        let destination = u8::try_from(destination).expect("an xAPIC reaches 255 CPUs");
        on.cpu.apic_write(lapic::ICR_HIGH, lapic::icr_high(destination));
    }
    on.cpu.apic_write(lapic::ICR_LOW, low);
    holdfast_locks::Interrupts::irq_restore(&on.cpu, masked);
}

/// Sets the timer for `at`, nanoseconds; `u64::MAX` switches it off. Interrupts are masked.
pub(crate) fn set_timer<M: Machine>(on: &OnCpu<'_, M>, at: u64) {
    let timer = &on.local.timer;
    if at == u64::MAX && timer.programmed.get() == u64::MAX {
        return;
    }
    timer.programmed.set(at);
    on.local.count(Event::TimerPrograms);
    let count = match at {
        u64::MAX => 0,
        // 0 would switch it off: what is past comes at once. A far time comes in instalments.
        at => at
            .saturating_sub(on.now())
            .div_ceil(TIMER_COUNT_NS)
            .clamp(1, u64::from(u32::MAX)),
    };
    write(on, lapic::TIMER_INITIAL, count as u32);
}

/// The hardware's timer has fired: it is off.
pub(crate) fn timer_fired<M: Machine>(on: &OnCpu<'_, M>) {
    on.local.timer.programmed.set(u64::MAX);
}

/// What the timer is set to.
pub(crate) fn timer_setting<M: Machine>(on: &OnCpu<'_, M>) -> u64 {
    on.local.timer.programmed.get()
}
