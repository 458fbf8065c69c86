//! Keys of guests.

use holdfast_host::{Linux, VmGroup};
use holdfast_workloads::{Idle, MmapLock, OwnerSpinning, Placement, RwLocks};

use super::key;
use crate::draft::{DraftVm, VCPUS_MAX};
use crate::groups::SHARES_DEFAULT;
use crate::keys::{Key, Target};
use crate::slot::{Choice, Slot, choices};

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

choices!(Placement {
    "counts" => Placement::Counts,
    "ready-averages" => Placement::ReadyAverages,
    "averages" => Placement::Averages,
});

choices!(RwLocks {
    "writers-only" => RwLocks::WritersOnly,
    "unqueued" => RwLocks::Unqueued,
    "queued" => RwLocks::Queued,
});

choices!(Idle {
    "halt" => Idle::Halt,
    "poll" => Idle::Poll,
    "haltpoll" => Idle::HaltPoll,
    "poll-timer" => Idle::PollTimer,
});

choices!(VmGroup {
    "root" => VmGroup::Root => VmGroup::Root,
    "own" => VmGroup::Own { .. } => VmGroup::Own { shares: SHARES_DEFAULT },
    "own-with-vcpu-groups" => VmGroup::OwnWithVcpuGroups { .. } => VmGroup::OwnWithVcpuGroups { shares: SHARES_DEFAULT },
});

// Without `choices!`, since the version sets other keys, which may refine it.
impl Choice for DraftVm {
    fn names(&self) -> Vec<&'static str> {
        Linux::ALL.map(Linux::name).to_vec()
    }

    fn name(&self) -> &'static str {
        self.kernel.name()
    }

    fn choose(&mut self, name: &str) -> bool {
        let version = Linux::by_name(name);
        version.map(|version| self.set_kernel(version)).is_some()
    }
}

/// A parameter of a guest that has a task group of its own.
macro_rules! own {
    ($slot:ident, $($field:ident).+) => {(
        concat!("DraftVm" $(, ".", stringify!($field))+),
        Target::Vm(|vm| match vm.host.group {
            VmGroup::Own { .. } | VmGroup::OwnWithVcpuGroups { .. } => Some(Slot::$slot(&mut vm.$($field).+)),
            VmGroup::Root => None,
        }),
    )};
}

/// A parameter of a guest whose vCPUs have a task group each.
macro_rules! vcpu {
    ($slot:ident, $($field:ident).+) => {(
        concat!("DraftVm" $(, ".", stringify!($field))+),
        Target::Vm(|vm| match vm.host.group {
            VmGroup::OwnWithVcpuGroups { .. } => Some(Slot::$slot(&mut vm.$($field).+)),
            VmGroup::Own { .. } | VmGroup::Root => None,
        }),
    )};
}

/// A guest's CPUs, kernel, task groups, and the features that the host offers it.
pub(super) static GUEST: &[Key] = &[
    key(
        "vm.*.kernel",
        ("DraftVm.kernel", Target::Vm(|vm| Some(Slot::Choice(vm)))),
    )
    .note(
        "It sets lock, hz, owner_spinning, rwlocks, mmap_lock, rwsem_stealing, kernel_paths, ttwu_queue, wake_wide, \
         placement, migrated_credit, exclusive_pipes, lock_free_calls, ipi_shorthand, wait_early_preempted, \
         pv_eoi, pv_send_ipi, pv_tlb_flush, pv_sched_yield and \
         poll_control; these then refine it, in whatever order the file has them. It sets no task group: groups are \
         the host's, made by what starts the VMM, whatever the guest runs. cgroup = \"own-with-vcpu-groups\" is \
         libvirt; bare VMMs share the host's root group.",
    ),
    key("vm.*.vcpus", vm!(U32, vcpus)).range(1.0, VCPUS_MAX as f64),
    key("vm.*.affinity", vm!(Affinity, affinity)),
    key("vm.*.numa", vm!(Nodes, numa)),
    key("vm.*.from", vm!(Nanos, from_ns)),
    key("vm.*.vcpus_wait", vm!(Flag, host.vcpus_wait)).note("It needs a time `from` at which the VMM starts the guest."),
    key("vm.*.until", vm!(OptionalNanos, until_ns)).note("\"auto\" keeps it. Such a guest is not measured."),
    key("vm.*.vmm_period", vm!(OptionalNanos, vmm_period_ns)),
    key("vm.*.disk_latency", vm!(OptionalNanos, disk.latency_ns))
        .note("Not with bare_metal, inside, until or migrations. What is read from it: kernbench.cold."),
    key("vm.*.disk_depth", vm!(U32, disk.depth)).range(1.0, 256.0).unit("requests"),
    key("vm.*.disk_rate", vm!(U32, disk.mib_per_second))
        .range(1.0, 1e6)
        .unit("MiB/s"),
    key("vm.*.memory", vm!(OptionalU32, memory_mib))
        .range(1.0, 67_108_864.0)
        .unit("MiB"),
    key("vm.*.dirty_rate", vm!(OptionalU32, dirty_mib_per_second))
        .range(1.0, 1e6)
        .unit("MiB/s"),
    key("vm.*.bare_metal", vm!(Flag, bare_metal))
        .note("Keys of guests and vCPUs (vcpus, hz, pv_unhalt) do not apply to it."),
    key("vm.*.inside", vm!(Guest, inside)).note(
        "The other guest is not measured and runs no workload. Its interrupts reach the inner guest by its hypervisor \
         only, and hardware delivers none there. Not with migrations, a network, bare_metal or cpu_pm.",
    ),
    key(
        "vm.*.lock",
        (
            "DraftVm.boot.kernel.lock",
            Target::Vm(|vm| Some(Slot::Lock(&mut vm.boot.kernel.lock, vm.locks))),
        ),
    ),
    key("vm.*.hz", vm!(U32, boot.kernel.hz))
        .range(10.0, 10_000.0)
        .unit("1/s"),
    key("vm.*.spin_threshold", vm!(U32, boot.spin_threshold))
        .range(1.0, 4e9)
        .unit("iterations"),
    key("vm.*.wait_early_preempted", vm!(Flag, boot.wait_early_preempted)),
    key("vm.*.nopvspin", vm!(Flag, boot.kernel.nopvspin)),
    key("vm.*.shared_cache", vm!(Flag, boot.kernel.shared_cache)),
    key("vm.*.owner_spinning", vm!(Choice, boot.kernel.owner_spinning)).note(
        "\"everyone\" is Linux 2.6.30 to 3.9. \"queued\" lets one task spin at a time (3.10). \
         \"preemption-aware\" also stops while the host says that the owner's vCPU is preempted (4.10); it \
         needs pv_unhalt. Versions are uncertain by one release.",
    ),
    key("vm.*.rwlocks", vm!(Choice, boot.kernel.rwlocks)).note(
        "\"unqueued\": all waiters spin on the lock's word, and readers overtake writers (until Linux 3.15). \
         \"queued\": waiters queue (3.16).",
    ),
    key("vm.*.mmap_lock", vm!(Choice, boot.kernel.mmap_lock)).note(
        "\"sleeping\": waiters sleep, and unmapping holds it to the end (until Linux 3.15). \"spinning\": \
         writers spin for a running writer (3.16). \"downgrading\": page faults run while unmapping flushes \
         TLBs (4.20). \"per-vma\": page faults lock their mapping instead (6.4).",
    ),
    key("vm.*.kernel_paths", vm!(Choice, boot.kernel.profile)).note(
        "\"estimated\" is Linux 3.3 as estimated. The others are measured (docs/kernels.md): faults, mmap, munmap, \
         files, fork, exit and wait do the work and take the spinlocks of that kernel. vm.*.kernel sets it.",
    ),
    key("vm.*.pcid", vm!(OptionalFlag, boot.kernel.pcid)),
    key("vm.*.idle", vm!(Choice, boot.kernel.idle)).note(
        "\"halt\" is HLT, or MWAIT where the host leaves that to the guest (cpu_pm). \"poll\" is the boot option \
         idle=poll. \"haltpoll\" polls for up to 200 us and then halts (poll_control). \"poll-timer\" reads a timer that the VMM \
         emulates, as an old Windows does with the ACPI PM timer: each read goes to the VMM.",
    ),
    key("vm.*.fresh_memory", vm!(Flag, boot.kernel.fresh_memory)),
    key("vm.*.ttwu_queue", vm!(Flag, boot.kernel.ttwu_queue)),
    key("vm.*.wake_wide", vm!(Flag, boot.kernel.wake_wide)),
    key("vm.*.placement", vm!(Choice, boot.kernel.placement)).note(
        "\"counts\": by how many tasks are ready on the waker's CPU and on that where the task slept (until Linux \
         4.1). \"ready-averages\": by averages of their loads (4.2 to 4.13). \"averages\": an idle one first, and then \
         by averages that include sleeping tasks (4.14, 5.5). A halted vCPU does not \
         count as idle (4.18), and an idle one puts the task on its run queue itself (5.8).",
    ),
    key("vm.*.migrated_credit", vm!(Flag, boot.kernel.migrated_credit)),
    key("vm.*.rwsem_stealing", vm!(Flag, boot.kernel.rwsem_stealing)),
    key("vm.*.exclusive_pipes", vm!(Flag, boot.kernel.exclusive_pipes)),
    key("vm.*.lock_free_calls", vm!(Flag, boot.kernel.lock_free_calls)),
    key(
        "vm.*.guest_policy",
        (
            "DraftVm.boot.kernel.policy",
            Target::Vm(|vm| Some(Slot::GuestPolicy(&mut vm.boot.kernel.policy, vm.guest_policies))),
        ),
    ),
    key("vm.*.pv_unhalt", vm!(Flag, host.pv_unhalt)),
    key("vm.*.pv_sched_yield", vm!(Flag, host.pv_sched_yield)),
    key("vm.*.steal_time", vm!(Flag, host.steal_time)),
    key("vm.*.preempted_flag", vm!(Flag, host.preempted_flag)),
    key("vm.*.guest_word", vm!(Flag, host.guest_word)),
    key("vm.*.slice_end", vm!(Flag, host.slice_end)),
    key("vm.*.poll_control", vm!(Flag, host.poll_control)),
    key("vm.*.cpu_pm", vm!(Flag, host.cpu_pm)),
    key("vm.*.realtime_hint", vm!(Flag, host.realtime_hint)),
    key("vm.*.nice", vm!(I8, host.nice)).range(-20.0, 19.0),
    key("vm.*.cgroup", vm!(Choice, host.group)).note(
        "\"root\" makes none, \"own\" one for the guest, \"own-with-vcpu-groups\" another below it for each \
         vCPU, as libvirt does.",
    ),
    key(
        "vm.*.shares",
        (
            "",
            Target::Vm(|vm| match &mut vm.host.group {
                VmGroup::Own { shares } | VmGroup::OwnWithVcpuGroups { shares } => Some(Slot::U64(shares)),
                VmGroup::Root => None,
            }),
        ),
    )
    .range(2.0, 262_144.0)
    .note(
        "Weight of the guest's own task group (cgroup v1 `cpu.shares`). It needs a cgroup other than \
         \"root\".",
    ),
    key("vm.*.parent", vm!(Group, group)),
    key("vm.*.quota", own!(OptionalNanos, limit.quota_ns)).note(
        "It applies to the guest's own task group (`cpu.cfs_quota_us`), which needs a cgroup other than \"root\".",
    ),
    key("vm.*.period", own!(Nanos, limit.period_ns))
        .note("It applies to the guest's own task group (`cpu.cfs_period_us`)."),
    key(
        "vm.*.cpu.weight",
        (
            "",
            Target::Vm(|vm| match &mut vm.host.group {
                VmGroup::Own { shares } | VmGroup::OwnWithVcpuGroups { shares } => Some(Slot::Weight(shares)),
                VmGroup::Root => None,
            }),
        ),
    )
    .range(1.0, 10_000.0)
    .form_of(&["shares"])
    .note("The key shares in the unit of cgroup v2 (`cpu.weight`): 100 is 1024 shares."),
    key("vm.*.cpu.max", own!(CpuMax, limit))
        .form_of(&["quota", "period"])
        .note("The keys quota and period as in the file `cpu.max` of cgroup v2."),
    key("vm.*.burst", own!(Nanos, limit.burst_ns)).note(
        "It applies to the guest's own task group (`cpu.max.burst`, Linux 5.14), and needs a quota.",
    ),
    key("vm.*.vcpu_quota", vcpu!(OptionalNanos, vcpu_limit.quota_ns)).note(
        "It applies to each vCPU's task group (libvirt `vcpu_quota`), which needs cgroup = \"own-with-vcpu-groups\".",
    ),
    key("vm.*.vcpu_period", vcpu!(Nanos, vcpu_limit.period_ns))
        .note("It applies to each vCPU's task group (libvirt `vcpu_period`)."),
];
