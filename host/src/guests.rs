//! The tables of VMs and vCPUs, and what concerns only them: lookup, wakeups and the records in guest memory.

use alloc::vec::Vec;

use crate::boundary::{GroupId, TaskId, VcpuId, VmId};
use crate::config::VmConfig;
use crate::faults::Planted;
use crate::ids::IdVec;
use crate::interrupts::lapic::Lapic;
use crate::interrupts::{Inhibits, VcpuApic, VmApic};
use crate::vcpu::{Activity, Vcpu};

/// A virtual machine.
#[derive(Clone, Debug, Default)]
pub(crate) struct Vm {
    pub(crate) config: VmConfig,
    /// The number of its first vCPU; the others follow.
    pub(crate) first: u32,
    pub(crate) vcpus: u32,
    /// The task groups that were made for it.
    pub(crate) groups: Vec<GroupId>,
    /// Index of the vCPU that last received a directed yield.
    pub(crate) last_boosted: u32,
    /// Why hardware does not virtualize its LAPICs, whichever hardware the host uses.
    pub(crate) inhibits: Inhibits,
    /// What virtualizes its LAPICs, with the tables that hardware reads.
    pub(crate) apic: VmApic,
    /// Ports of device doorbells, and the thread that a write to each wakes.
    pub(crate) doorbells: Vec<(u16, TaskId)>,
    /// The VMM has removed it. Its vCPUs leave, or have left.
    pub(crate) ended: bool,
    /// How many of its vCPUs have an APIC ID that the guest changed.
    pub(crate) renamed: u32,
    /// How many of its vCPUs have their LAPIC in x2APIC mode.
    pub(crate) x2apic: u32,
}

/// All VMs and vCPUs of the host.
#[derive(Clone, Debug, Default)]
pub(crate) struct Guests {
    pub(crate) vms: IdVec<VmId, Vm>,
    pub(crate) vcpus: IdVec<VcpuId, Vcpu>,
    /// pCPUs that poll for a vCPU to which a wakeup was sent. They are examined before the step ends.
    pub(crate) poll_kicks: Vec<u32>,
    /// Share of the time for which the VMM makes running vCPUs sleep, in percent.
    pub(crate) throttle_percent: u32,
    /// A vCPU that halts, or leaves for the VMM, counts as preempted for its guest, and so does one that is preempted
    /// in the handler of an exit. Until 5.18 (54aa83c90198, 6cd88243c7e0). Seen in 6.1 and 7.3.
    pub(crate) reports_all_leaves: bool,
    /// So does one that gives its pCPU away in a pause exit or a hypercall, where no instruction is emulated, if the
    /// policy says so.
    pub(crate) reports_yields: bool,
    /// Faults planted by tests.
    pub(crate) planted: Planted,
}

impl Guests {
    /// Returns the vCPU with index `index` of `vm`.
    pub(crate) fn vcpu_of(&self, vm: VmId, index: u32) -> &Vcpu {
        &self.vcpus[self.vcpu_id(vm, index)]
    }

    /// Returns the id of the vCPU with index `index` of `vm`.
    pub(crate) fn vcpu_id(&self, vm: VmId, index: u32) -> VcpuId {
        VcpuId(self.vms[vm].first + index)
    }

    /// Returns the vCPUs of `vm` in the order of their indexes.
    pub(crate) fn vcpus_of(&self, vm: VmId) -> impl Iterator<Item = VcpuId> + use<> {
        let vm = &self.vms[vm];
        (vm.first..vm.first + vm.vcpus).map(VcpuId)
    }

    /// Returns whether `vm` has ended and no thread executes it any more.
    pub(crate) fn is_gone(&self, vm: VmId) -> bool {
        let mut vcpus = self.vcpus_of(vm).map(|vcpu| &self.vcpus[vcpu]);
        self.vms[vm].ended && vcpus.all(|vcpu| vcpu.activity == Activity::Dead)
    }

    /// Returns the VM of `vcpu`.
    pub(crate) fn vm_of(&self, vcpu: VcpuId) -> &Vm {
        &self.vms[self.vcpus[vcpu].vm]
    }

    /// Returns what virtualizes the LAPIC of `vcpu`.
    #[inline]
    pub(crate) fn hardware(&self, vcpu: VcpuId) -> &VcpuApic {
        &self.vcpus[vcpu].virtualization
    }

    /// As [`Guests::hardware`], to change it.
    pub(crate) fn hardware_mut(&mut self, vcpu: VcpuId) -> &mut VcpuApic {
        &mut self.vcpus[vcpu].virtualization
    }

    /// Applies `change` to the LAPIC of `vcpu`, and keeps the VM's counts of changed IDs and x2APIC modes in line with
    /// it.
    pub(crate) fn change_apic<R>(&mut self, vcpu: VcpuId, change: impl FnOnce(&mut Lapic) -> R) -> R {
        let at = &mut self.vcpus[vcpu];
        let identity = |apic: &Lapic| [apic.is_renamed(), apic.is_x2apic()].map(u32::from);
        let before = identity(&at.apic);
        let result = change(&mut at.apic);
        let (after, vm) = (identity(&at.apic), at.vm);
        let vm = &mut self.vms[vm];
        vm.renamed = vm.renamed - before[0] + after[0];
        vm.x2apic = vm.x2apic - before[1] + after[1];
        result
    }

    /// Asks `vcpu` to evaluate its pending interrupts before its next entry.
    pub(crate) fn request_event(&mut self, vcpu: VcpuId) {
        let at = &mut self.vcpus[vcpu];
        at.requests.event = true;
        at.counters.req_event += 1;
    }

    /// Returns whether the guest of `vcpu` has memory at all `bytes` bytes from `address` on.
    pub(crate) fn has_memory(&self, vcpu: VcpuId, address: u64, bytes: u64) -> bool {
        let memory = self.vm_of(vcpu).config.memory_bytes;
        address.checked_add(bytes).is_some_and(|end| end <= memory)
    }
}
