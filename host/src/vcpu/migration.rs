//! A vCPU's state, saved and restored: what live migration transfers to the other host.
//!
//! - **The latch is saved**: a kick that the target has not consumed yet is part of the state, whether it came before
//!   or after HLT. KVM's own interface folds it into `mp_state`, which cannot express the first case.

use core::fmt;

use crate::boundary::{GuestState, Nanos, VcpuId};
use crate::guests::Guests;
use crate::interrupts::lapic::{REGISTERS, SavedTimer};
use crate::interrupts::pv_eoi;
use crate::timers::Timer;
use crate::vcpu::halt;
use crate::vcpu::steal_time;
use crate::vcpu::{Activity, MpState, PendingEvents};
use crate::wings::Wings;

/// State of a vCPU between two entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavedVcpu {
    /// The guest state at the last exit. For a vCPU in guest mode the caller, which has its registers, must set it.
    pub guest: GuestState,
    /// Whether it has halted.
    pub mp_state: MpState,
    /// Whether a kick is latched.
    pub pv_unhalted: bool,
    /// NMI, INIT, SIPI, and an injection that was interrupted (KVM_GET_VCPU_EVENTS).
    pub pending: PendingEvents,
    /// The LAPIC's page, pending and in-service interrupts included: word `o / 16` is the register at offset `o`.
    pub lapic: [u32; REGISTERS],
    /// LAPIC errors that the guest has not read yet.
    pub lapic_errors: u32,
    /// The MSR IA32_APIC_BASE.
    pub apic_base: u64,
    /// The LAPIC timer.
    pub timer: SavedTimer,
    /// The steal-time MSR.
    pub steal_time_msr: u64,
    /// The MSR of PV EOI.
    pub pv_eoi_msr: u64,
    /// The MSR of halt polling: 1 unless the guest polls itself.
    pub poll_control_msr: u64,
    /// The vCPU was in guest mode with bit 0 of the PV EOI word set. [`GuestState::pv_eoi`] then says whether it still
    /// was.
    pub pv_eoi_pending: bool,
}

impl SavedVcpu {
    /// Forgets the latched kick, except for what `mp_state` can say of it: what a VMM transfers that saves the states
    /// of KVM's interface and no flag. KVM_GET_MP_STATE calls a halted vCPU with a latched kick runnable. A kick taken
    /// before the halt is lost. Returns `true` if one was.
    pub fn forget_kick(&mut self) -> bool {
        let latched = core::mem::take(&mut self.pv_unhalted);
        let halted = self.mp_state == MpState::Halted;
        if latched && halted {
            self.mp_state = MpState::Runnable;
        }
        latched && !halted
    }
}

/// Why a vCPU's state cannot be restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestoreError {
    /// The host already runs.
    Started,
    /// There is no such vCPU.
    UnknownVcpu(VcpuId),
    /// IA32_APIC_BASE has a value that no guest can have written.
    BadApicBase(u64),
    /// Too many non-maskable interrupts are pending.
    BadPending(PendingEvents),
    /// The VM is not offered steal time, or the MSR has reserved bits set.
    BadStealTime(u64),
    /// The VM is not offered PV EOI, or the word is unaligned or not in memory.
    BadPvEoi(u64),
    /// The MSR of halt polling is neither 0 nor 1, or it is 0 and the VM is not offered it.
    BadPollControl(u64),
}

impl fmt::Display for RestoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot restore ")?;
        match self {
            RestoreError::Started => write!(f, "a state: the host runs already"),
            RestoreError::UnknownVcpu(vcpu) => write!(f, "vcpu {}: there is no such vcpu", vcpu.0),
            RestoreError::BadApicBase(value) => write!(f, "apic base {value:#x}: not a legal mode"),
            RestoreError::BadPending(PendingEvents { nmis, .. }) => {
                write!(f, "pending events: found {nmis} nmis, expected at most 2")
            }
            RestoreError::BadStealTime(value) => {
                write!(f, "steal-time msr {value:#x}: not offered, or reserved bits set")
            }
            RestoreError::BadPollControl(value) => {
                write!(f, "poll-control msr {value:#x}: not offered, or reserved bits set")
            }
            RestoreError::BadPvEoi(value) => {
                write!(
                    f,
                    "pv-eoi msr {value:#x}: not offered, or not an aligned word in memory"
                )
            }
        }
    }
}

impl core::error::Error for RestoreError {}

impl Guests {
    /// Returns the state of `vcpu` at `now`.
    pub(crate) fn save(&self, vcpu: VcpuId, now: Nanos) -> SavedVcpu {
        let at = &self.vcpus[vcpu];
        SavedVcpu {
            guest: at.guest,
            mp_state: at.mp_state,
            pv_unhalted: at.halt.pv_unhalted,
            pending: at.pending,
            lapic: at.apic.page(),
            lapic_errors: at.apic.errors,
            apic_base: at.apic.base,
            timer: at.apic.save_timer(now.0),
            steal_time_msr: at.steal.msr,
            pv_eoi_msr: at.pv_eoi.msr,
            poll_control_msr: at.halt.poll_control_msr(),
            pv_eoi_pending: at.pv_eoi.pending,
        }
    }

    /// Takes over the statistics of `before`, which has the same VMs.
    pub(crate) fn continue_counters(&mut self, before: &Guests) {
        assert_eq!(
            self.vcpus.len(),
            before.vcpus.len(),
            "cannot continue counters: not the same vms"
        );
        for (to, from) in self.vcpus.iter_mut().zip(before.vcpus.iter()) {
            to.counters = from.counters;
            to.spin.window_max = from.spin.window_max;
        }
    }
}

/// Gives `vcpu` the state `saved`, which may come from anywhere and is checked.
pub(crate) fn restore(on: &mut Wings, vcpu: VcpuId, saved: &SavedVcpu, now: Nanos) -> Result<(), RestoreError> {
    if on.guests.vcpus.get(vcpu).is_none() {
        return Err(RestoreError::UnknownVcpu(vcpu));
    }
    if !crate::interrupts::lapic::is_legal_base(saved.apic_base) {
        return Err(RestoreError::BadApicBase(saved.apic_base));
    }
    if saved.pending.nmis > 2 {
        return Err(RestoreError::BadPending(saved.pending));
    }
    if saved.steal_time_msr != 0 && !steal_time::register_steal_time(on, vcpu, saved.steal_time_msr) {
        return Err(RestoreError::BadStealTime(saved.steal_time_msr));
    }
    on.guests.change_apic(vcpu, |apic| {
        apic.load(&saved.lapic, saved.apic_base, saved.lapic_errors)
    });
    if saved.pv_eoi_msr != 0 && !pv_eoi::register(on, vcpu, saved.pv_eoi_msr) {
        return Err(RestoreError::BadPvEoi(saved.pv_eoi_msr));
    }
    if saved.poll_control_msr != 1 && !halt::control_polling(on, vcpu, saved.poll_control_msr) {
        return Err(RestoreError::BadPollControl(saved.poll_control_msr));
    }
    let at = &mut on.guests.vcpus[vcpu];
    at.guest = saved.guest;
    at.mp_state = saved.mp_state;
    at.halt.pv_unhalted = saved.pv_unhalted;
    at.apic.load_timer(&saved.timer, now.0);
    if saved.pv_eoi_pending && !saved.guest.pv_eoi {
        // The request for an event below covers this EOI too.
        let _ = at.apic.ended();
    }
    at.pending = saved.pending;
    at.guest.undelivered = None;
    at.activity = match saved.mp_state {
        MpState::Runnable => Activity::Run,
        MpState::Halted | MpState::Uninitialized | MpState::InitReceived => Activity::Block,
    };
    at.halt.since = now.0;
    at.requests.event = true;
    on.restored(vcpu);
    let at = &mut on.guests.vcpus[vcpu];
    // The timer moves to the pCPU where the vCPU is loaded first.
    let (task, deadline) = (at.thread.timer, at.apic.timer.deadline);
    if let Some(deadline) = deadline {
        on.threads.timers.arm(Timer::Lapic(task), 0, deadline);
    }
    Ok(())
}
