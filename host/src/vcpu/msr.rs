//! Model-specific registers that guests may read and write. All others fault.

use holdfast_abi::{lapic as reg, msr};

use crate::boundary::{Command, Cost, VcpuId};
use crate::interrupts::pv_eoi;
use crate::step::Step;
use crate::vcpu::halt;
use crate::vcpu::steal_time;
use crate::wings::Wings;

/// Handles RDMSR.
pub(crate) fn read_msr(on: &mut Wings, vcpu: VcpuId, msr: u32, step: &mut Step<'_>) {
    step.charge(Cost::Msr, 1);
    match msr_value(on, vcpu, msr, step.now) {
        Some(value) => step.out.push(Command::Reply { vcpu, value }),
        None => step.out.push(Command::Fault { vcpu }),
    }
}

fn msr_value(on: &Wings, vcpu: VcpuId, msr: u32, now: u64) -> Option<u64> {
    let at = &on.guests.vcpus[vcpu];
    let vm = &on.guests.vms[at.vm];
    match msr {
        msr::TSC => Some(on.apics.timer_base.tsc(now)),
        msr::APIC_BASE => Some(at.apic.base),
        msr::TSC_DEADLINE => Some(at.apic.tsc_deadline()),
        msr::STEAL_TIME if vm.config.steal_time => Some(at.steal.msr),
        msr::PV_EOI if vm.config.pv_eoi => Some(at.pv_eoi.msr),
        msr::POLL_CONTROL if vm.config.poll_control => Some(at.halt.poll_control_msr()),
        msr::X2APIC_BASE..=msr::X2APIC_LAST if at.apic.is_x2apic() => match msr {
            msr::X2APIC_ICR => Some(at.apic.icr()),
            _ => {
                let offset = (msr - msr::X2APIC_BASE) * 16;
                let exists = is_x2apic_readable(offset);
                exists.then(|| u64::from(at.apic.read(offset, now)))
            }
        },
        _ => None,
    }
}

/// Handles WRMSR.
pub(crate) fn write_msr(on: &mut Wings, vcpu: VcpuId, msr: u32, value: u64, step: &mut Step<'_>) {
    step.charge(Cost::Msr, 1);
    let legal = match msr {
        msr::APIC_BASE => {
            let vm = on.guests.vcpus[vcpu].vm;
            let offered = value & msr::APIC_BASE_X2APIC == 0 || on.offers_x2apic(vm);
            let legal = offered && write_apic_base(on, vcpu, value, step);
            on.arm_apic_timer(vcpu, step.pcpu);
            on.guests.request_event(vcpu);
            legal
        }
        msr::TSC_DEADLINE => {
            let base = on.apics.timer_base;
            let apic = &mut on.guests.vcpus[vcpu].apic;
            let action = apic.write_tsc_deadline(value, step.now, &base);
            on.act(vcpu, action, step);
            true
        }
        msr::STEAL_TIME => steal_time::register_steal_time(on, vcpu, value),
        msr::PV_EOI => pv_eoi::register(on, vcpu, value),
        msr::POLL_CONTROL => halt::control_polling(on, vcpu, value),
        msr::X2APIC_BASE..=msr::X2APIC_LAST if on.guests.vcpus[vcpu].apic.is_x2apic() => {
            write_x2apic(on, vcpu, msr, value, step)
        }
        _ => false,
    };
    if !legal {
        step.out.push(Command::Fault { vcpu });
    }
}

/// Writes IA32_APIC_BASE. Returns `false` if that faults.
fn write_apic_base(on: &mut Wings, vcpu: VcpuId, value: u64, step: &mut Step<'_>) -> bool {
    let was_on = on.guests.vcpus[vcpu].apic.hardware_enabled();
    let legal = on.guests.change_apic(vcpu, |apic| apic.set_base(value));
    if was_on != on.guests.vcpus[vcpu].apic.hardware_enabled() {
        on.forget(vcpu);
    }
    on.apic_mode_changed(vcpu, step);
    legal
}

/// Writes a register of the x2APIC range. Returns `false` if that faults.
fn write_x2apic(on: &mut Wings, vcpu: VcpuId, msr: u32, value: u64, step: &mut Step<'_>) -> bool {
    let base = on.apics.timer_base;
    let apic = &mut on.guests.vcpus[vcpu].apic;
    let offset = (msr - msr::X2APIC_BASE) * 16;
    let action = match msr {
        msr::X2APIC_ICR => apic.write_icr(value),
        msr::X2APIC_SELF_IPI if value <= 0xff => apic.command(reg::ICR_SHORTHAND_SELF | value as u32, 0),
        // EOI and ESR accept only 0.
        _ if matches!(offset, reg::EOI | reg::ESR) && value != 0 => return false,
        _ if is_x2apic_writable(offset) && value <= u64::from(u32::MAX) => {
            apic.write(offset, value as u32, step.now, &base)
        }
        _ => return false,
    };
    on.act(vcpu, action, step);
    true
}

/// Returns whether the register exists in x2APIC mode and can be read.
fn is_x2apic_readable(offset: u32) -> bool {
    matches!(
        offset,
        reg::ID | reg::VERSION | reg::TPR | reg::PPR | reg::LDR | reg::SVR | reg::ISR..=0x270 | reg::ESR
            | reg::LVT_TIMER..=reg::TIMER_CURRENT | reg::TIMER_DIVIDE
    )
}

/// Returns whether the register exists in x2APIC mode and can be written, apart from ICR and self-IPI.
fn is_x2apic_writable(offset: u32) -> bool {
    matches!(
        offset,
        reg::TPR | reg::EOI | reg::SVR | reg::ESR | reg::LVT_TIMER..=reg::TIMER_INITIAL | reg::TIMER_DIVIDE
    )
}
