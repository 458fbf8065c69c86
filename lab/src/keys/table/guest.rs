//! Keys of guests.

use holdfast_host::VmGroup;
use holdfast_locks::LockKind;
use holdfast_workloads::{MmapLock, OwnerSpinning};

use super::{key, number};
use crate::draft::VCPUS_MAX;
use crate::groups::SHARES_DEFAULT;
use crate::keys::{Key, Target};
use crate::slot::{Choice, Slot, choices};

// Without `choices!`, since locks have names of their own.
impl Choice for LockKind {
    fn names(&self) -> Vec<&'static str> {
        LockKind::ALL.iter().map(|kind| kind.name()).collect()
    }

    fn name(&self) -> &'static str {
        LockKind::name(*self)
    }

    fn choose(&mut self, name: &str) -> bool {
        let kind = LockKind::ALL.iter().find(|kind| kind.name() == name);
        kind.map(|kind| *self = *kind).is_some()
    }
}

choices!(OwnerSpinning {
    "everyone" => OwnerSpinning::Everyone,
    "queued" => OwnerSpinning::Queued,
    "preemption-aware" => OwnerSpinning::PreemptionAware,
});

choices!(MmapLock {
    "sleeping" => MmapLock::Sleeping,
    "spinning" => MmapLock::Spinning,
    "downgrading" => MmapLock::Downgrading,
    "per-vma" => MmapLock::PerVma,
});

choices!(VmGroup {
    "root" => VmGroup::Root => VmGroup::Root,
    "own" => VmGroup::Own { .. } => VmGroup::Own { shares: SHARES_DEFAULT },
    "own-with-vcpu-groups" => VmGroup::OwnWithVcpuGroups { .. } => VmGroup::OwnWithVcpuGroups { shares: SHARES_DEFAULT },
});

/// A parameter of a guest that has a task group of its own.
macro_rules! own {
    ($slot:ident, $($field:ident).+) => {
        Target::Vm(|vm| match vm.host.group {
            VmGroup::Own { .. } | VmGroup::OwnWithVcpuGroups { .. } => Some(Slot::$slot(&mut vm.$($field).+)),
            VmGroup::Root => None,
        })
    };
}

/// A parameter of a guest whose vCPUs have a task group each.
macro_rules! vcpu {
    ($slot:ident, $($field:ident).+) => {
        Target::Vm(|vm| match vm.host.group {
            VmGroup::OwnWithVcpuGroups { .. } => Some(Slot::$slot(&mut vm.$($field).+)),
            VmGroup::Own { .. } | VmGroup::Root => None,
        })
    };
}

/// A guest's CPUs, kernel, task groups, and the features that the host offers it.
pub(super) static GUEST: &[Key] = &[
    number(
        "vm.*.vcpus",
        "",
        (1.0, VCPUS_MAX as f64),
        "Number of virtual CPUs.",
        vm!(U32, vcpus),
    ),
    key(
        "vm.*.affinity",
        "pCPUs that the vCPUs may run on.",
        vm!(Affinity, affinity),
    ),
    key(
        "vm.*.numa",
        "NUMA nodes that the guest's firmware reports: one for all vCPUs (QEMU's default), those of the sockets that \
         the vCPUs are pinned to, or as listed.",
        vm!(Nodes, numa),
    ),
    key(
        "vm.*.measured",
        "Whether the run waits for this guest. \"auto\" waits if the guest's workload ends.",
        vm!(OptionalFlag, measured),
    ),
    key(
        "vm.*.bare_metal",
        "The kernel runs on the machine itself, next to the guests, and there is no guest. It has all pCPUs and the \
         host's scheduler. Keys of guests and vCPUs (vcpus, hz, pv_unhalt) do not apply to it.",
        vm!(Flag, bare_metal),
    ),
    key(
        "vm.*.lock",
        "The guest kernel's spinlock.",
        vm!(Choice, boot.kernel.lock),
    ),
    number(
        "vm.*.hz",
        "1/s",
        (10.0, 10_000.0),
        "Timer interrupts of a busy vCPU in a second (CONFIG_HZ).",
        vm!(U32, boot.kernel.hz),
    ),
    number(
        "vm.*.spin_threshold",
        "iterations",
        (1.0, 4e9),
        "Iterations that a paravirtual waiter spins before it halts (SPIN_THRESHOLD).",
        vm!(U32, boot.spin_threshold),
    ),
    key(
        "vm.*.wait_early_preempted",
        "A queued waiter of a paravirtual spinlock halts at once behind a preempted vCPU, as it does behind a halted \
         one (Linux 4.11 to 5.3). It needs preempted_flag.",
        vm!(Flag, boot.wait_early_preempted),
    ),
    key(
        "vm.*.nopvspin",
        "Boot option `nopvspin`: no paravirtual spinlocks, even if the host offers them.",
        vm!(Flag, boot.kernel.nopvspin),
    ),
    key(
        "vm.*.shared_cache",
        "Whether CPUID says that the vCPUs share a last-level cache. QEMU's default is that they do not (QEMU \
         `l3-cache`).",
        vm!(Flag, boot.kernel.shared_cache),
    ),
    key(
        "vm.*.owner_spinning",
        "Which tasks spin for a mutex whose owner runs. \"everyone\" is Linux 2.6.30 to 3.9. \"queued\" lets one \
         task spin at a time (3.10). \"preemption-aware\" also stops while the host says that the owner's vCPU is \
         preempted (4.10); it needs pv_unhalt. Versions are uncertain by one release.",
        vm!(Choice, boot.kernel.owner_spinning),
    ),
    key(
        "vm.*.mmap_lock",
        "The address-space lock (`mmap_lock`). \"sleeping\": waiters sleep, and unmapping holds it to the end (until \
         Linux 3.15). \"spinning\": writers spin for a running writer (3.16). \"downgrading\": page faults run while \
         unmapping flushes TLBs (4.20). \"per-vma\": page faults lock their mapping instead (6.4).",
        vm!(Choice, boot.kernel.mmap_lock),
    ),
    key(
        "vm.*.ttwu_queue",
        "The guest hands a wakeup for another cache to the target CPU by IPI (Linux 3.0). Before, the waker takes \
         that CPU's run-queue lock.",
        vm!(Flag, boot.kernel.ttwu_queue),
    ),
    key(
        "vm.*.wake_wide",
        "Tasks that wake many others leave them on the CPUs where they slept (`wake_wide`, Linux 3.12).",
        vm!(Flag, boot.kernel.wake_wide),
    ),
    key(
        "vm.*.pv_unhalt",
        "Whether the host offers halt and kick for locks (KVM_FEATURE_PV_UNHALT).",
        vm!(Flag, host.pv_unhalt),
    ),
    key(
        "vm.*.pv_sched_yield",
        "Whether the host offers directed yield by hypercall (KVM_FEATURE_PV_SCHED_YIELD, 5.3).",
        vm!(Flag, host.pv_sched_yield),
    ),
    key(
        "vm.*.steal_time",
        "Whether the host offers the steal-time record (KVM_FEATURE_STEAL_TIME).",
        vm!(Flag, host.steal_time),
    ),
    key(
        "vm.*.preempted_flag",
        "Whether the host maintains the preempted flag of the steal-time record (4.10, uncertain).",
        vm!(Flag, host.preempted_flag),
    ),
    key(
        "vm.*.realtime_hint",
        "Whether the host says that vCPUs are never preempted for long (KVM_HINTS_REALTIME).",
        vm!(Flag, host.realtime_hint),
    ),
    number(
        "vm.*.nice",
        "",
        (-20.0, 19.0),
        "Nice level of the vCPU threads.",
        vm!(I8, host.nice),
    ),
    key(
        "vm.*.cgroup",
        "Task groups of the vCPU threads. \"root\" makes none, \"own\" one for the guest, \"own-with-vcpu-groups\" \
         another below it for each vCPU, as libvirt does.",
        vm!(Choice, host.group),
    ),
    number(
        "vm.*.shares",
        "",
        (2.0, 262_144.0),
        "Weight of the guest's own task group (cgroup v1 `cpu.shares`). It needs a cgroup other than \"root\".",
        Target::Vm(|vm| match &mut vm.host.group {
            VmGroup::Own { shares } | VmGroup::OwnWithVcpuGroups { shares } => Some(Slot::U64(shares)),
            VmGroup::Root => None,
        }),
    ),
    key(
        "vm.*.parent",
        "Task group that holds the vCPU threads or the guest's own group.",
        vm!(Group, group),
    ),
    key(
        "vm.*.quota",
        "CPU time of the guest's own task group in each period (`cpu.cfs_quota_us`). It needs a cgroup other than \
         \"root\". \"auto\" is no limit.",
        own!(OptionalNanos, limit.quota_ns),
    ),
    key(
        "vm.*.period",
        "Period of the guest's quota (`cpu.cfs_period_us`): from 1 ms to 1 s.",
        own!(Nanos, limit.period_ns),
    ),
    key(
        "vm.*.vcpu_quota",
        "CPU time of each vCPU's task group in each period (libvirt `vcpu_quota`). It needs cgroup = \
         \"own-with-vcpu-groups\". \"auto\" is no limit.",
        vcpu!(OptionalNanos, vcpu_limit.quota_ns),
    ),
    key(
        "vm.*.vcpu_period",
        "Period of the vCPUs' quotas (libvirt `vcpu_period`): from 1 ms to 1 s.",
        vcpu!(Nanos, vcpu_limit.period_ns),
    ),
    key(
        "vm.*.halt_poll_cap",
        "Longest halt polling for this guest (KVM_CAP_HALT_POLL). \"auto\" is host.halt_poll.",
        vm!(OptionalNanos, host.halt_poll_cap_ns),
    ),
];
