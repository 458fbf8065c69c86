//! The steal-time record and its preempted flag (docs/spec/host.md, "Steal time").

use holdfast_abi::{StealTime, msr};

use crate::boundary::{Command, Cost, PcpuId, VcpuId};
use crate::host::Host;
use crate::step::Step;
use crate::vcpu::Steal;

impl Host {
    /// Writes the steal-time MSR of `vcpu`; false if that is a fault.
    pub(crate) fn register_steal_time(&mut self, vcpu: VcpuId, value: u64) -> bool {
        let vm = self.at(vcpu).vm;
        if !self.vms[vm.0 as usize].config.steal_time || value & msr::STEAL_TIME_RESERVED != 0 {
            return false;
        }
        let seen_ns = self.waited_ns(vcpu);
        let at = self.at(vcpu);
        // Time stolen before there was a record is nobody's.
        at.steal = Steal {
            msr: value,
            seen_ns,
            preempted: false,
        };
        at.requests.steal_update = true;
        true
    }

    /// For how long the thread of `vcpu` was runnable and did not run, since ever. Nanoseconds.
    fn waited_ns(&self, vcpu: VcpuId) -> u64 {
        self.sched.run_delay(self.vcpus[vcpu.0 as usize].task)
    }

    /// `vcpu` has another thread: what that one waited before is not the guest's.
    pub(crate) fn count_waiting_anew(&mut self, vcpu: VcpuId) {
        let waited = self.waited_ns(vcpu);
        self.at(vcpu).steal.seen_ns = waited;
    }

    /// Where the record of `vcpu` is, if it has one. One that is not in memory is accepted, as KVM does it, and never
    /// written.
    fn record(&self, vcpu: VcpuId) -> Option<u64> {
        let value = self.vcpus[vcpu.0 as usize].steal.msr;
        let address = value & !(msr::STEAL_TIME_ENABLE | msr::STEAL_TIME_RESERVED);
        let usable =
            value & msr::STEAL_TIME_ENABLE != 0 && self.has_memory(vcpu, address, size_of::<StealTime>() as u64);
        usable.then_some(address)
    }

    /// Whether the guest of `vcpu` has memory at all `bytes` from `address` on.
    pub(crate) fn has_memory(&self, vcpu: VcpuId, address: u64, bytes: u64) -> bool {
        let memory = self.vms[self.vcpus[vcpu.0 as usize].vm.0 as usize].config.memory_bytes;
        address.checked_add(bytes).is_some_and(|end| end <= memory)
    }

    /// Before entry: adds what was stolen since the last time, and clears the preempted flag.
    pub(crate) fn update_steal_time(&mut self, vcpu: VcpuId, step: &mut Step<'_>) {
        let Some(address) = self.record(vcpu) else { return };
        let delay = self.waited_ns(vcpu);
        let vm = self.at(vcpu).vm;
        let flush = self.vms[vm.0 as usize].config.pv_tlb_flush;
        let at = self.at(vcpu);
        let steal = delay - at.steal.seen_ns;
        at.steal.seen_ns = delay;
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

    /// Whether the guest of `vcpu` is told of preemptions.
    pub(crate) fn reports_preemption(&self, vcpu: VcpuId) -> bool {
        let vm = &self.vms[self.vcpus[vcpu.0 as usize].vm.0 as usize];
        vm.config.preempted_flag && self.record(vcpu).is_some()
    }

    /// `vcpu` has lost or given up its pCPU: its record says so, also when it has halted.
    pub(crate) fn report_preempted(&mut self, vcpu: VcpuId, step: &mut Step<'_>) {
        if !self.reports_preemption(vcpu) || self.at(vcpu).steal.preempted {
            return;
        }
        let Some(address) = self.record(vcpu) else { return };
        self.at(vcpu).steal.preempted = true;
        step.out.push(Command::SetPreempted { vcpu, address });
    }
}
