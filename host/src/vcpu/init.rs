//! INIT and SIPI: how the other vCPUs of a guest come to run, and how one is reset (`kvm_apic_accept_events`).
//!
//! - **INIT is kept**: it is taken up when its vCPU has the pCPU next, before the guest is entered.
//! - **SIPI is not**: it means something only to a vCPU that INIT has reset and no SIPI has started since.

use crate::boundary::{Command, GuestState, VcpuId};
use crate::interrupts::lapic::{Action, Lapic};
use crate::step::Step;
use crate::vcpu::wing::VcpuWing;
use crate::vcpu::{Activity, MpState, PendingEvents, PvEoi};

impl VcpuWing<'_> {
    /// Takes up what has come of INIT and SIPI for `vcpu`, which has the executing pCPU. True if that changed what it
    /// does.
    pub(crate) fn accept_events(&mut self, vcpu: VcpuId, step: &mut Step<'_>) -> bool {
        let at = self.guests.vcpu_mut(vcpu);
        if (!at.pending.init && at.pending.sipi.is_none()) || at.activity == Activity::Dead {
            return false;
        }
        // A polling loop ends its halt first.
        if matches!(at.activity, Activity::Poll { .. }) {
            return false;
        }
        let init = core::mem::take(&mut at.pending.init);
        if init {
            self.reset(vcpu, step);
        }
        let at = self.guests.vcpu_mut(vcpu);
        let sipi = at.pending.sipi.take();
        let Some(vector) = sipi.filter(|_| at.mp_state == MpState::InitReceived) else {
            return init;
        };
        at.mp_state = MpState::Runnable;
        at.activity = Activity::Run;
        step.out.push(Command::Startup { vcpu, vector });
        true
    }

    /// INIT: `vcpu` forgets all but its LAPIC's mode and place.
    fn reset(&mut self, vcpu: VcpuId, step: &mut Step<'_>) {
        let at = self.guests.vcpu_mut(vcpu);
        at.counters.init_received += 1;
        let vm = at.vm;
        self.guests.change_apic(vcpu, Lapic::init);
        self.interrupts().forget(vcpu);
        self.interrupts().apic_ids_changed(vm, step);
        let at = self.guests.vcpu_mut(vcpu);
        at.guest = GuestState::default();
        // A SIPI may have come right behind.
        at.pending = PendingEvents {
            sipi: at.pending.sipi,
            ..PendingEvents::default()
        };
        at.pv_unhalted = false;
        at.window = false;
        at.steal.msr = 0;
        at.pv_eoi = PvEoi::default();
        (at.mp_state, at.activity) = if at.apic.is_bootstrap() {
            (MpState::Runnable, Activity::Run)
        } else {
            (MpState::InitReceived, Activity::Block)
        };
        at.halt.since = step.now;
        at.halt.blocked_at = None;
        step.out.push(Command::Init { vcpu });
        self.interrupts().act(vcpu, Action::Timer, step);
    }
}
