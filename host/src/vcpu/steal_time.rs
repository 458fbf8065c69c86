//! The steal-time record and its preempted flag (docs/spec/host.md, "Steal time").

use holdfast_abi::{StealTime, msr};

use crate::boundary::{Command, Cost, PcpuId, VcpuId};
use crate::guests::Guests;
use crate::sched::seam::GuestWord;
use crate::step::Step;
use crate::vcpu::Steal;
use crate::wings::Wings;

/// Writes the steal-time MSR of `vcpu`. Returns `false` if that faults.
pub(crate) fn register_steal_time(on: &mut Wings, vcpu: VcpuId, value: u64) -> bool {
    if !on.guests.vm_of(vcpu).config.steal_time || value & msr::STEAL_TIME_RESERVED != 0 {
        return false;
    }
    let seen_ns = waited_ns(on, vcpu);
    let at = &mut on.guests.vcpus[vcpu];
    // Time stolen before there was a record is not reported.
    at.steal = Steal {
        msr: value,
        seen_ns,
        preempted: false,
        slice_ends: 0,
        granted: false,
    };
    at.requests.steal_update = true;
    true
}

/// Returns how long the thread of `vcpu` has been runnable without running, in total. Nanoseconds.
pub(crate) fn waited_ns(on: &Wings, vcpu: VcpuId) -> u64 {
    on.threads.sched.run_delay(on.guests.vcpus[vcpu].thread.task)
}

/// Before entry: adds the time stolen since the last update, and clears the preempted flag.
pub(crate) fn update_steal_time(on: &mut Wings, vcpu: VcpuId, step: &mut Step<'_>) {
    let Some(address) = on.guests.steal_record(vcpu) else {
        return;
    };
    let delay = waited_ns(on, vcpu);
    let flush = on.guests.vm_of(vcpu).config.pv_tlb_flush;
    let at = &mut on.guests.vcpus[vcpu];
    let steal = delay - at.steal.seen_ns;
    at.steal.seen_ns = delay;
    at.counters.steal_ns += steal;
    at.steal.preempted = false;
    step.charge(Cost::StealTime, 1);
    step.out.push(Command::StealTime {
        pcpu: PcpuId(step.pcpu),
        vcpu,
        address,
        steal,
        flush,
    });
}

/// Before entry: tells the guest when the slice of `vcpu` ends, if that is new.
pub(crate) fn tell_slice_end(on: &mut Wings, vcpu: VcpuId, step: &mut Step<'_>) {
    if !on.guests.vm_of(vcpu).config.slice_end {
        return;
    }
    let Some(address) = on.guests.steal_record(vcpu) else {
        return;
    };
    let ends = on.threads.sched.slice_told(step.pcpu).unwrap_or(0);
    let told = &mut on.guests.vcpus[vcpu].steal.slice_ends;
    if core::mem::replace(told, ends) != ends {
        step.out.push(Command::SliceEnd { vcpu, address, ends });
    }
}

/// Before entry: tells a guest that shares a word whether `vcpu` runs on after its slice, if that is new.
pub(crate) fn tell_grant(on: &mut Wings, vcpu: VcpuId, step: &mut Step<'_>) {
    if !on.guests.vm_of(vcpu).config.guest_word {
        return;
    }
    let Some(address) = on.guests.steal_record(vcpu) else {
        return;
    };
    let granted = on.threads.sched.has_grace(step.pcpu);
    let told = &mut on.guests.vcpus[vcpu].steal.granted;
    if core::mem::replace(told, granted) != granted {
        step.out.push(Command::Grant { vcpu, address, granted });
    }
}

/// Returns what the `word` of `vcpu` says, or `None` if the guest shares none.
pub(crate) fn read_word(on: &Wings, vcpu: VcpuId, word: u32) -> Option<GuestWord> {
    let at = &on.guests.vcpus[vcpu];
    let vm = &on.guests.vms[at.vm];
    if !vm.config.guest_word || at.steal.msr & msr::STEAL_TIME_ENABLE == 0 {
        return None;
    }
    let target = word >> StealTime::TARGET_SHIFT;
    let waits = word & StealTime::WAITS_FOR_IPI != 0 && target < vm.vcpus && target != at.index;
    Some(GuestWord {
        in_section: word & StealTime::IN_SECTION != 0,
        in_queue: word & StealTime::IN_QUEUE != 0,
        waits_for: waits.then(|| on.guests.vcpu_id(at.vm, target)),
    })
}

impl Guests {
    /// Returns the address of the record of `vcpu`, or `None` if there is none. As in KVM, a record outside memory is
    /// accepted and never written.
    fn steal_record(&self, vcpu: VcpuId) -> Option<u64> {
        let value = self.vcpus[vcpu].steal.msr;
        let address = value & !(msr::STEAL_TIME_ENABLE | msr::STEAL_TIME_RESERVED);
        let usable =
            value & msr::STEAL_TIME_ENABLE != 0 && self.has_memory(vcpu, address, size_of::<StealTime>() as u64);
        usable.then_some(address)
    }

    /// Returns whether the guest of `vcpu` can see preemptions.
    pub(crate) fn reports_preemption(&self, vcpu: VcpuId) -> bool {
        self.vm_of(vcpu).config.preempted_flag && self.steal_record(vcpu).is_some()
    }

    /// Sets the preempted flag of `vcpu`, which has lost or given up its pCPU.
    pub(crate) fn report_preempted(&mut self, vcpu: VcpuId, step: &mut Step<'_>) {
        if !self.reports_preemption(vcpu) || self.vcpus[vcpu].steal.preempted {
            return;
        }
        let Some(address) = self.steal_record(vcpu) else { return };
        self.vcpus[vcpu].steal.preempted = true;
        step.out.push(Command::SetPreempted { vcpu, address });
    }
}
