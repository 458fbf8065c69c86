//! Keys of guests.

use holdfast_host::VmGroup;
use holdfast_locks::LockKind;
use holdfast_workloads::{MmapLock, OwnerSpinning};

use super::{key, number};
use crate::draft::VCPUS_MAX;
use crate::keys::slot::{Choice, Slot, choices};
use crate::keys::{Key, Target};

// Not by `choices!`: the locks name themselves.
impl Choice for LockKind {
    fn names(&self) -> Vec<&'static str> {
        LockKind::ALL.iter().map(|kind| kind.name()).collect()
    }

    fn name(&self) -> &'static str {
        LockKind::name(*self)
    }

    fn choose(&mut self, name: &str) -> bool {
        let Some(kind) = LockKind::ALL.iter().find(|kind| kind.name() == name) else {
            return false;
        };
        *self = *kind;
        true
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

/// Default `cpu.shares`.
const SHARES: u64 = 1024;

// Not by `choices!`: shares are kept where both have them.
impl Choice for VmGroup {
    fn names(&self) -> Vec<&'static str> {
        vec!["root", "own", "own-with-vcpu-groups"]
    }

    fn name(&self) -> &'static str {
        match self {
            VmGroup::Root => "root",
            VmGroup::Own { .. } => "own",
            VmGroup::OwnWithVcpuGroups { .. } => "own-with-vcpu-groups",
        }
    }

    fn choose(&mut self, name: &str) -> bool {
        *self = match name {
            "root" => VmGroup::Root,
            "own" => VmGroup::Own { shares: SHARES },
            "own-with-vcpu-groups" => VmGroup::OwnWithVcpuGroups { shares: SHARES },
            _ => return false,
        };
        true
    }
}

/// A place of a guest that has a task group of its own.
macro_rules! own {
    ($slot:ident, $($field:ident).+) => {
        Target::Vm(|vm| match vm.host.group {
            VmGroup::Own { .. } | VmGroup::OwnWithVcpuGroups { .. } => Some(Slot::$slot(&mut vm.$($field).+)),
            VmGroup::Root => None,
        })
    };
}

/// A place of a guest each of whose vCPUs has a task group of its own.
macro_rules! vcpu {
    ($slot:ident, $($field:ident).+) => {
        Target::Vm(|vm| match vm.host.group {
            VmGroup::OwnWithVcpuGroups { .. } => Some(Slot::$slot(&mut vm.$($field).+)),
            VmGroup::Own { .. } | VmGroup::Root => None,
        })
    };
}

/// What a guest is like, and what the host offers it.
pub(super) static GUEST: &[Key] = &[
    number(
        "vm.*.vcpus",
        "",
        (1.0, VCPUS_MAX as f64),
        "virtual CPUs",
        vm!(U32, vcpus),
    ),
    key(
        "vm.*.affinity",
        "pCPUs that the vCPUs may run on",
        vm!(Affinity, affinity),
    ),
    key(
        "vm.*.numa",
        "NUMA nodes that the guest's firmware tells of: all on one, those of the sockets that the vCPUs are pinned to, or as \
         listed; QEMU's default is one",
        vm!(Nodes, numa),
    ),
    key(
        "vm.*.measured",
        "whether the run waits for this guest; \"auto\": if its workload ends",
        vm!(OptionalFlag, measured),
    ),
    key(
        "vm.*.bare_metal",
        "no guest: this kernel runs on the machine itself, beside the guests, with all pCPUs for its CPUs and the host's \
         scheduler for its own; what concerns guests and vCPUs (vcpus, hz, pv_unhalt, ...) does not apply to it",
        vm!(Flag, bare_metal),
    ),
    key(
        "vm.*.lock",
        "the guest kernel's spinlock",
        vm!(Choice, boot.kernel.lock),
    ),
    number(
        "vm.*.hz",
        "1/s",
        (10.0, 10_000.0),
        "timer interrupts per second of a busy vCPU (CONFIG_HZ)",
        vm!(U32, boot.kernel.hz),
    ),
    number(
        "vm.*.spin_threshold",
        "iterations",
        (1.0, 4e9),
        "iterations that a paravirtual waiter spins before it halts (SPIN_THRESHOLD)",
        vm!(U32, boot.spin_threshold),
    ),
    key(
        "vm.*.wait_early_preempted",
        "whether a waiter in the queue of a paravirtual spinlock halts at once behind a preempted vCPU, as it does behind a \
         halted one (Linux 4.11 to 5.3); takes preempted_flag",
        vm!(Flag, boot.wait_early_preempted),
    ),
    key(
        "vm.*.nopvspin",
        "boot option nopvspin: no paravirtual spinlocks even if the host offers them",
        vm!(Flag, boot.kernel.nopvspin),
    ),
    key(
        "vm.*.shared_cache",
        "whether the vCPUs say in CPUID that they share a last-level cache; QEMU's default is that they do not",
        vm!(Flag, boot.kernel.shared_cache),
    ),
    key(
        "vm.*.owner_spinning",
        "who spins for a mutex whose owner runs: \"everyone\" (Linux 2.6.30 to 3.9), one at a time (\"queued\", since 3.10), or \
         also nobody while the host says that the owner's vCPU is preempted (\"preemption-aware\", since 4.10, where the host offers \
         pv_unhalt); uncertain by a release",
        vm!(Choice, boot.kernel.owner_spinning),
    ),
    key(
        "vm.*.mmap_lock",
        "what the lock of an address space keeps out: waiters sleep, and unmapping holds it until the end (\"sleeping\", to Linux \
         3.15); writers spin for a running writer (\"spinning\", 3.16); unmapping lets page faults in while it flushes TLBs \
         (\"downgrading\", 4.20); page faults lock their mapping instead (\"per-vma\", 6.4)",
        vm!(Choice, boot.kernel.mmap_lock),
    ),
    key(
        "vm.*.ttwu_queue",
        "whether the guest hands wake-ups across caches to the target CPU by IPI (Linux 3.0 and later); before, the waker \
         takes that CPU's run queue lock",
        vm!(Flag, boot.kernel.ttwu_queue),
    ),
    key(
        "vm.*.wake_wide",
        "whether tasks that wake many others leave them on the CPUs where they slept (wake_wide, Linux 3.12 and later)",
        vm!(Flag, boot.kernel.wake_wide),
    ),
    key(
        "vm.*.pv_unhalt",
        "whether the host offers halt and kick for locks (KVM_FEATURE_PV_UNHALT)",
        vm!(Flag, host.pv_unhalt),
    ),
    key(
        "vm.*.pv_sched_yield",
        "whether the host offers directed yield by hypercall (KVM_FEATURE_PV_SCHED_YIELD, 5.3)",
        vm!(Flag, host.pv_sched_yield),
    ),
    key(
        "vm.*.steal_time",
        "whether the host offers the steal-time record (KVM_FEATURE_STEAL_TIME)",
        vm!(Flag, host.steal_time),
    ),
    key(
        "vm.*.preempted_flag",
        "whether the host keeps the record's preempted flag (since 4.10, uncertain)",
        vm!(Flag, host.preempted_flag),
    ),
    key(
        "vm.*.realtime_hint",
        "whether the host says that vCPUs are never preempted for long (KVM_HINTS_REALTIME)",
        vm!(Flag, host.realtime_hint),
    ),
    number(
        "vm.*.nice",
        "",
        (-20.0, 19.0),
        "nice level of the vCPU threads",
        vm!(I8, host.nice),
    ),
    key(
        "vm.*.cgroup",
        "which task groups are made for the vCPU threads: none, one, or one and another beneath it for each vCPU",
        vm!(Choice, host.group),
    ),
    number(
        "vm.*.shares",
        "",
        (2.0, 262_144.0),
        "cpu.shares of the guest's own task group; needs a cgroup other than \"root\"",
        Target::Vm(|vm| match &mut vm.host.group {
            VmGroup::Own { shares } | VmGroup::OwnWithVcpuGroups { shares } => Some(Slot::U64(shares)),
            VmGroup::Root => None,
        }),
    ),
    key(
        "vm.*.parent",
        "task group in or beneath which the vCPU threads are",
        vm!(Group, group),
    ),
    key(
        "vm.*.quota",
        "CPU time of the guest's own task group in each period; needs a cgroup other than \"root\"; \"auto\": no limit",
        own!(OptionalNanos, limit.quota_ns),
    ),
    key(
        "vm.*.period",
        "period of the guest's quota: 1 ms to 1 s",
        own!(Nanos, limit.period_ns),
    ),
    key(
        "vm.*.vcpu_quota",
        "CPU time of each vCPU's task group in each period; needs cgroup = \"own-with-vcpu-groups\"; \"auto\": no limit",
        vcpu!(OptionalNanos, vcpu_limit.quota_ns),
    ),
    key(
        "vm.*.vcpu_period",
        "period of the vCPUs' quotas: 1 ms to 1 s",
        vcpu!(Nanos, vcpu_limit.period_ns),
    ),
    key(
        "vm.*.halt_poll_cap",
        "halt-polling limit of this guest; \"auto\": host.halt_poll",
        vm!(OptionalNanos, host.halt_poll_cap_ns),
    ),
];
