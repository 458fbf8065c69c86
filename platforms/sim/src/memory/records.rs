//! Words in guests' memory that the host uses: steal-time records, and bits for ends of interrupts.

use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;

use holdfast_abi::{StealTime, msr::PV_EOI_BIT};
use holdfast_host::PvFaults;

use crate::core::engine::Engine;

/// Where a guest's steal-time records lie in its memory, one after another.
pub const STEAL_TIME_BASE: u64 = 0x10_0000;
/// Where its words for ends of interrupts lie, each on a cache line of its own, as a kernel's per-CPU variables.
pub const PV_EOI_BASE: u64 = 0x20_0000;
/// From one of them to the next.
pub const PV_EOI_STRIDE: u64 = 64;

impl Engine {
    fn steal_record(&self, vcpu: u32, address: u64) -> Option<&StealTime> {
        let vm = &self.vms[self.vcpus[vcpu as usize].vm.0 as usize];
        let index = address.checked_sub(STEAL_TIME_BASE)? / size_of::<StealTime>() as u64;
        vm.steal_time.get(usize::try_from(index).ok()?)
    }

    /// The host brings the record up to date. Whether the guest has asked for a flush.
    pub fn update_steal_time(&mut self, vcpu: u32, address: u64, steal: u64) -> bool {
        let torn = self.faults_of(vcpu).exchange_torn;
        let Some(record) = self.steal_record(vcpu, address) else {
            return false;
        };
        // One history, one thread: the version's odd phase is never seen, and is gone through all the same.
        record.version.fetch_add(1, Relaxed);
        record.steal.fetch_add(steal, Relaxed);
        let state = if torn {
            record.preempted.load(Relaxed)
        } else {
            record.preempted.swap(0, Relaxed)
        };
        record.version.fetch_add(1, Relaxed);
        if torn {
            self.vcpus[vcpu as usize].torn = Some(address);
        }
        state & StealTime::FLUSH_TLB != 0
    }

    /// A planted fault's second half, long after its first.
    #[inline]
    pub fn finish_torn_exchange(&mut self, vcpu: u32) {
        if let Some(address) = self.vcpus[vcpu as usize].torn.take()
            && let Some(record) = self.steal_record(vcpu, address)
        {
            record.preempted.store(0, Relaxed);
        }
    }

    /// The host says that `vcpu` has no pCPU.
    pub fn set_preempted(&mut self, vcpu: u32, address: u64) {
        if let Some(record) = self.steal_record(vcpu, address) {
            record.preempted.store(StealTime::PREEMPTED, Relaxed);
        }
    }

    /// The host flushes the TLB of `vcpu`, which is about to run on `pcpu`, since its guest has asked for that.
    pub fn flush_for_guest(&mut self, pcpu: u32, vcpu: u32) {
        if !self.faults_of(vcpu).flush_lost {
            self.flush_tlb(vcpu);
            self.pcpus[pcpu as usize].charged += self.costs.tlb_flush;
        }
    }

    /// The host leaves the end of an interrupt to the guest.
    pub fn set_pv_eoi(&mut self, vcpu: u32, address: u64) {
        self.vcpus[vcpu as usize].pv_eoi = Some(address);
        if let Some(word) = self.pv_eoi_word(vcpu, address) {
            word.set(word.get() | PV_EOI_BIT);
        }
    }

    fn pv_eoi_word(&self, vcpu: u32, address: u64) -> Option<&Cell<u8>> {
        let vm = &self.vms[self.vcpus[vcpu as usize].vm.0 as usize];
        let index = address.checked_sub(PV_EOI_BASE)? / PV_EOI_STRIDE;
        vm.pv_eoi.get(usize::try_from(index).ok()?)
    }

    /// The exit tests and clears the bit that the host has set, if it has.
    pub fn take_pv_eoi(&mut self, vcpu: u32) -> bool {
        let Some(address) = self.vcpus[vcpu as usize].pv_eoi.take() else {
            return false;
        };
        let stays = self.faults_of(vcpu).pv_eoi_stays;
        let Some(word) = self.pv_eoi_word(vcpu, address) else {
            return false;
        };
        let found = word.get();
        if !stays {
            word.set(found & !PV_EOI_BIT);
        }
        found & PV_EOI_BIT != 0
    }

    fn faults_of(&self, vcpu: u32) -> PvFaults {
        self.vms[self.vcpus[vcpu as usize].vm.0 as usize].faults
    }
}
