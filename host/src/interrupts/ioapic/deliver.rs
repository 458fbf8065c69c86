//! Lines, accesses and EOIs: what the I/O APIC sends to the LAPICs.

use holdfast_abi::ioapic as reg;

use super::{AfterEnd, SavedIoapic};
use crate::boundary::{Command, Cost, Nanos, VcpuId, VmId};
use crate::interrupts::lapic::Message;
use crate::step::Step;
use crate::timers::Timer;
use crate::wings::Wings;

/// How long an interrupt that never stops coming is held back (KVM: a hundredth of a second). Nanoseconds.
const LATER_NS: u64 = 10_000_000;

impl Wings {
    /// The device at `pin` of `vm` asserts or releases its line.
    pub(crate) fn set_line(&mut self, vm: VmId, pin: u32, level: bool, step: &mut Step<'_>) {
        if self.guests.vms[vm].ioapic.set_line(pin, level) {
            self.send_pin(vm, pin, step);
        }
    }

    /// Sends the interrupt of `pin`.
    fn send_pin(&mut self, vm: VmId, pin: u32, step: &mut Step<'_>) {
        let message = Message::of_entry(self.guests.vms[vm].ioapic.entries[pin as usize]);
        let accepted = self.deliver(vm, &message, step);
        if message.level && accepted > 0 {
            self.guests.vms[vm].ioapic.taken(pin);
        }
    }

    /// Handles a store of `value` at `offset` of the I/O APIC's page of `vm`.
    pub(crate) fn ioapic_write(&mut self, vm: VmId, offset: u32, value: u32, step: &mut Step<'_>) {
        let ioapic = &mut self.guests.vms[vm].ioapic;
        match offset {
            reg::SELECT => ioapic.select = value as u8,
            reg::WINDOW => {
                if let Some(pin) = ioapic.write_selected(value).filter(|&pin| ioapic.wants_to_send(pin)) {
                    self.send_pin(vm, pin, step);
                }
            }
            reg::EOI => self.ioapic_eoi(vm, value as u8, step),
            _ => {}
        }
    }

    /// The LAPIC of `vcpu` has ended the level-triggered interrupt `vector`.
    pub(crate) fn lapic_eoi(&mut self, vm: VmId, vcpu: VcpuId, vector: u8, step: &mut Step<'_>) {
        if self.guests.vms[vm].config.split_irqchip && self.guests.vms[vm].ioapic.owns(vector) {
            self.visit_userspace(vcpu, step);
        }
        self.ioapic_eoi(vm, vector, step);
    }

    /// Accounts for a round trip of `vcpu` to the VMM's process.
    pub(crate) fn visit_userspace(&mut self, vcpu: VcpuId, step: &mut Step<'_>) {
        self.guests.vcpus[vcpu].counters.userspace_exits += 1;
        step.charge(Cost::UserspaceExit, 1);
    }

    /// A LAPIC of `vm`, or the guest by the EOI register, has ended the level-triggered interrupt `vector`.
    pub(crate) fn ioapic_eoi(&mut self, vm: VmId, vector: u8, step: &mut Step<'_>) {
        for pin in self.guests.vms[vm].ioapic.waiting_for_end(vector) {
            let ioapic = &mut self.guests.vms[vm].ioapic;
            let after = ioapic.end(pin);
            if ioapic.is_resampled(pin) {
                step.out.push(Command::Resample { vm, pin });
            }
            match after {
                AfterEnd::Nothing => {}
                AfterEnd::Again => self.send_pin(vm, pin, step),
                AfterEnd::Later => self
                    .threads
                    .timers
                    .arm(Timer::Ioapic(vm), step.pcpu, step.now + LATER_NS),
            }
        }
    }

    /// Gives the I/O APIC of `vm` the state `saved`. What no LAPIC has accepted yet is sent at `now`.
    pub(crate) fn restore_ioapic(&mut self, vm: VmId, saved: &SavedIoapic, now: Nanos) {
        self.guests.vms[vm].ioapic.load(saved);
        self.threads.timers.arm(Timer::Ioapic(vm), 0, now.0);
    }

    /// Sends the interrupts of `vm` that were held back.
    pub(crate) fn ioapic_later(&mut self, vm: VmId, step: &mut Step<'_>) {
        for pin in 0..reg::PINS {
            if self.guests.vms[vm].ioapic.wants_to_send(pin) {
                self.send_pin(vm, pin, step);
            }
        }
    }
}
