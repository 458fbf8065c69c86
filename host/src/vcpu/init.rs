//! INIT and SIPI: how application processors start, and how a vCPU is reset (`kvm_apic_accept_events`).
//!
//! - **INIT is kept**: its vCPU handles it when it has a pCPU, before it enters the guest.
//! - **SIPI is not**: only a vCPU that INIT has reset, and no SIPI has started since, accepts it.

use crate::boundary::{Command, GuestState, VcpuId};
use crate::interrupts::lapic::{Action, Lapic};
use crate::step::Step;
use crate::vcpu::{Activity, MpState, PendingEvents, PvEoi};
use crate::wings::Wings;

/// Handles a pending INIT and SIPI of `vcpu`, which has the executing pCPU. Returns whether the vCPU's activity
/// changed.
pub(crate) fn accept_events(on: &mut Wings, vcpu: VcpuId, step: &mut Step<'_>) -> bool {
    let at = &mut on.guests.vcpus[vcpu];
    if (!at.pending.init && at.pending.sipi.is_none()) || at.activity == Activity::Dead {
        return false;
    }
    // A polling loop ends its halt first.
    if matches!(at.activity, Activity::Poll { .. }) {
        return false;
    }
    let init = core::mem::take(&mut at.pending.init);
    if init {
        on.guests.vcpus[vcpu].counters.init_received += 1;
        reset(on, vcpu, step);
    }
    let at = &mut on.guests.vcpus[vcpu];
    let sipi = at.pending.sipi.take();
    let Some(vector) = sipi.filter(|_| at.mp_state == MpState::InitReceived) else {
        return init;
    };
    at.mp_state = MpState::Runnable;
    at.activity = Activity::Run;
    step.out.push(Command::Startup { vcpu, vector });
    true
}

/// INIT: resets `vcpu`, except the mode and address of its LAPIC.
pub(super) fn reset(on: &mut Wings, vcpu: VcpuId, step: &mut Step<'_>) {
    let vm = on.guests.vcpus[vcpu].vm;
    on.guests.change_apic(vcpu, Lapic::init);
    on.forget(vcpu);
    on.apic_ids_changed(vm, step);
    let at = &mut on.guests.vcpus[vcpu];
    at.guest = GuestState::default();
    // A SIPI may have come right after the INIT.
    at.pending = PendingEvents {
        sipi: at.pending.sipi,
        ..PendingEvents::default()
    };
    at.halt.pv_unhalted = false;
    at.nested = false;
    at.armed.window = false;
    at.steal.msr = 0;
    at.pv_eoi = PvEoi::default();
    at.halt.guest_polls = false;
    (at.mp_state, at.activity) = if at.apic.is_bootstrap() {
        (MpState::Runnable, Activity::Run)
    } else {
        (MpState::InitReceived, Activity::Block)
    };
    at.halt.since = step.now;
    at.halt.blocked_at = None;
    step.out.push(Command::Init { vcpu });
    on.act(vcpu, Action::Timer, step);
}
