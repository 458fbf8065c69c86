//! The chips' way to the vCPUs: ports, ticks, the wire to LINT0, and the window that a tick may need.
//!
//! - **One wire**: the output of the PICs reaches LINT0 of all LAPICs of a VM. The first vCPU whose LAPIC passes it on
//!   (ExtINT), or is switched off, is interrupted.
//! - **A window is AVIC's end**: AVIC cannot inject such an interrupt when the guest masks interrupts, nor open a
//!   window for it. So it is off for the VM until the vCPU has taken the interrupt (5.6).

use holdfast_abi::ioapic::PINS;

use super::pic::Pics;
use super::pit::Pit;
use super::{Legacy, SavedLegacy};
use crate::boundary::{Cost, Nanos, VcpuId, VmId};
use crate::interrupts::avic::AvicDriver;
use crate::interrupts::{Inhibit, InterruptWing};
use crate::step::Step;
use crate::timers::Timer;
use crate::vcpu::Activity;

/// The PIT's input of the PICs.
const TICK: u32 = 0;

impl InterruptWing {
    /// `vcpu` writes `value` to `port`, which has no effect if neither the PICs nor the PIT are there.
    pub(in crate::interrupts) fn legacy_write(&mut self, vcpu: VcpuId, port: u16, value: u8, step: &mut Step<'_>) {
        let vm = self.guests.vcpus[vcpu].vm;
        if Pics::has_port(port) {
            let ended = self.guests.vms[vm].legacy.pics.write(port, value);
            self.pics_used(vm, ended, step);
        } else if Pit::has_port(port) {
            let least = self.config.min_timer_period_ns;
            self.guests.vms[vm].legacy.pit.write(port, value, step.now, least);
            self.arm_pit(vm, step.pcpu);
        } else {
            return;
        }
        self.reach_legacy(vcpu, step);
    }

    /// `vcpu` reads `port`. Returns `None` if neither the PICs nor the PIT are there.
    pub(in crate::interrupts) fn legacy_read(&mut self, vcpu: VcpuId, port: u16, step: &mut Step<'_>) -> Option<u8> {
        let vm = self.guests.vcpus[vcpu].vm;
        let chips = &mut self.guests.vms[vm].legacy;
        let value = if Pics::has_port(port) {
            chips.pics.read(port)
        } else if Pit::has_port(port) {
            chips.pit.read(port, step.now)
        } else {
            return None;
        };
        self.reach_legacy(vcpu, step);
        Some(value)
    }

    /// In a split irqchip the chips are the VMM's.
    fn reach_legacy(&mut self, vcpu: VcpuId, step: &mut Step<'_>) {
        if self.guests.vm_of(vcpu).config.split_irqchip {
            self.visit_userspace(vcpu, step);
        }
    }

    /// The device at `pin` of the I/O APIC of `vm` asserts or releases its line, which is an input of the PICs, too
    /// (KVM's default routing). The PIT has input 0.
    pub(in crate::interrupts) fn set_pic_line(&mut self, vm: VmId, pin: u32, level: bool, step: &mut Step<'_>) {
        assert!(pin < PINS, "an I/O APIC has no pin {pin}");
        if pin != TICK && Pics::has_input(pin) {
            self.guests.vms[vm].legacy.pics.set(pin, level);
            self.pics_used(vm, false, step);
        }
    }

    /// The timer of the PIT of `vm` has expired.
    pub(crate) fn pit_expired(&mut self, vm: VmId, step: &mut Step<'_>) {
        let this = &mut self.guests.vms[vm];
        let requests = this.legacy.pit.expired(step.now, this.config.pit_reinject);
        self.arm_pit(vm, step.pcpu);
        if requests {
            self.request_tick(vm, step);
        }
    }

    fn arm_pit(&mut self, vm: VmId, pcpu: u32) {
        match self.guests.vms[vm].legacy.pit.deadline {
            Some(deadline) => self.threads.timers.arm(Timer::Pit(vm), pcpu, deadline),
            None => self.threads.timers.cancel(Timer::Pit(vm)),
        }
    }

    /// The PIT requests an interrupt, by a pulse.
    fn request_tick(&mut self, vm: VmId, step: &mut Step<'_>) {
        step.charge(Cost::ApicDeliver, 1);
        let pics = &mut self.guests.vms[vm].legacy.pics;
        pics.set(TICK, true);
        pics.set(TICK, false);
        self.pics_used(vm, false, step);
    }

    /// The state of the PICs of `vm` may have changed. `tick_ended`: the guest has ended an interrupt of the PIT.
    fn pics_used(&mut self, vm: VmId, tick_ended: bool, step: &mut Step<'_>) {
        if tick_ended && self.guests.vms[vm].legacy.pit.request_ended() {
            return self.request_tick(vm, step);
        }
        let first = VcpuId(self.guests.vms[vm].first);
        let output = self.guests.vms[vm].legacy.pics.output();
        if self.guests.vcpus[first].external == output {
            return;
        }
        self.set_output(vm);
        let takes = |&vcpu: &VcpuId| {
            let at = &self.guests.vcpus[vcpu];
            at.activity != Activity::Dead && at.has_external()
        };
        if let Some(vcpu) = self.guests.vcpus_of(vm).find(takes) {
            self.guests.request_event(vcpu);
            self.kick(vcpu, step);
        }
    }

    /// Tells all vCPUs of `vm` the output of the PICs.
    fn set_output(&mut self, vm: VmId) {
        let output = self.guests.vms[vm].legacy.pics.output();
        for vcpu in self.guests.vcpus_of(vm) {
            self.guests.vcpus[vcpu].external = output;
        }
    }

    /// Acknowledges the interrupt of the PICs for `vcpu`, which takes it with its next entry. Returns its vector.
    pub(crate) fn acknowledge_external(&mut self, vcpu: VcpuId, step: &mut Step<'_>) -> u8 {
        self.reach_legacy(vcpu, step);
        let vm = self.guests.vcpus[vcpu].vm;
        let (vector, ended) = self.guests.vms[vm].legacy.pics.acknowledge();
        self.pics_used(vm, ended, step);
        vector
    }

    /// Records whether an interrupt of the PICs waits until `vcpu` enables interrupts. AVIC is off for the VM while one
    /// does. The driver of 4.7 leaves AVIC on and lets the interrupt wait for an exit.
    pub(crate) fn external_waits(&mut self, vcpu: VcpuId, waits: bool, step: &mut Step<'_>) {
        let at = &mut self.guests.vcpus[vcpu];
        let vm = at.vm;
        if core::mem::replace(&mut at.external_waits, waits) == waits
            || self.guests.vms[vm].apic.avic().is_none()
            || self.config.avic.driver == AvicDriver::Linux4_7
        {
            return;
        }
        let any = self
            .guests
            .vcpus_of(vm)
            .any(|vcpu| self.guests.vcpus[vcpu].external_waits);
        self.set_inhibit(vm, Inhibit::IrqWindow, any, step);
    }

    /// Ends the PIT and the PICs of `vm`, which ends.
    pub(crate) fn end_legacy(&mut self, vm: VmId) {
        self.guests.vms[vm].legacy = Legacy::default();
        self.set_output(vm);
        self.arm_pit(vm, 0);
    }

    /// Returns the state of the chips of `vm` at `now`.
    pub(crate) fn save_legacy(&self, vm: VmId, now: Nanos) -> SavedLegacy {
        let Legacy { pics, pit } = self.guests.vms[vm].legacy;
        SavedLegacy(Legacy {
            pics,
            pit: pit.relative_to(now.0),
        })
    }

    /// Gives the chips of `vm` the state `saved`, at `now`.
    pub(crate) fn restore_legacy(&mut self, vm: VmId, saved: &SavedLegacy, now: Nanos) {
        self.guests.vms[vm].legacy = Legacy {
            pics: saved.0.pics,
            pit: saved.0.pit.continued_at(now.0),
        };
        self.set_output(vm);
        self.arm_pit(vm, 0);
    }
}
