//! Keys of guests and of what they run.

use holdfast_host::VmGroup;
use holdfast_locks::LockKind;
use holdfast_workloads::{
    Aim7, Allocation, Amqp, Contend, Ebizzy, Format, Hackbench, Hog, Ipi, Kernbench, MmapLock, Netperf, OwnerSpinning,
    Pgbench, Script, Startup, Tar, Workload,
};

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

choices!(Allocation {
    "heap" => Allocation::Heap,
    "mapping" => Allocation::Mapping,
});

choices!(Script {
    "tpc-b" => Script::TpcB,
    "select-only" => Script::SelectOnly,
});

choices!(Format {
    "plain" => Format::Plain,
    "ext4" => Format::Ext4,
    "xfs" => Format::Xfs,
});

choices!(Workload {
    "idle" => Workload::Idle => Workload::Idle,
    "hog" => Workload::Hog(_) => Workload::Hog(Hog::default()),
    "contend" => Workload::Contend(_) => Workload::Contend(Contend::default()),
    "ipi" => Workload::Ipi(_) => Workload::Ipi(Ipi::default()),
    "ebizzy" => Workload::Ebizzy(_) => Workload::Ebizzy(Ebizzy::default()),
    "kernbench" => Workload::Kernbench(_) => Workload::Kernbench(Kernbench::default()),
    "pgbench" => Workload::Pgbench(_) => Workload::Pgbench(Pgbench::default()),
    "aim7" => Workload::Aim7(_) => Workload::Aim7(Aim7::default()),
    "amqp" => Workload::Amqp(_) => Workload::Amqp(Amqp::default()),
    "hackbench" => Workload::Hackbench(_) => Workload::Hackbench(Hackbench::default()),
    "tar" => Workload::Tar(_) => Workload::Tar(Tar::default()),
    "netperf" => Workload::Netperf(_) => Workload::Netperf(Netperf::default()),
    "boot" => Workload::Startup(_) => Workload::Startup(Startup::default()),
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

/// A place of a guest.
macro_rules! vm {
    ($slot:ident, $($field:ident).+) => { Target::Vm(|vm| Some(Slot::$slot(&mut vm.$($field).+))) };
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

/// A parameter of one workload.
macro_rules! workload {
    ($kind:ident, $slot:ident, $field:ident) => {
        Target::Vm(|vm| match &mut vm.boot.workload {
            Workload::$kind(parameters) => Some(Slot::$slot(&mut parameters.$field)),
            _ => None,
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
    key("vm.*.lock", "the guest kernel's spinlock", vm!(Choice, boot.lock)),
    number(
        "vm.*.hz",
        "1/s",
        (10.0, 10_000.0),
        "timer interrupts per second of a busy vCPU (CONFIG_HZ)",
        vm!(U32, boot.hz),
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
        vm!(Flag, boot.nopvspin),
    ),
    key(
        "vm.*.no_steal_acc",
        "boot option no-steal-acc: the guest does not register its steal-time record",
        vm!(Flag, boot.no_steal_acc),
    ),
    key(
        "vm.*.shared_cache",
        "whether the vCPUs say in CPUID that they share a last-level cache; QEMU's default is that they do not",
        vm!(Flag, boot.shared_cache),
    ),
    key(
        "vm.*.owner_spinning",
        "who spins for a mutex whose owner runs: \"everyone\" (Linux 2.6.30 to 3.9), one at a time (\"queued\", since 3.10), or \
         also nobody while the host says that the owner's vCPU is preempted (\"preemption-aware\", since 4.10, where the host offers \
         pv_unhalt); uncertain by a release",
        vm!(Choice, boot.owner_spinning),
    ),
    key(
        "vm.*.mmap_lock",
        "what the lock of an address space keeps out: waiters sleep, and unmapping holds it until the end (\"sleeping\", to Linux \
         3.15); writers spin for a running writer (\"spinning\", 3.16); unmapping lets page faults in while it flushes TLBs \
         (\"downgrading\", 4.20); page faults lock their mapping instead (\"per-vma\", 6.4)",
        vm!(Choice, boot.mmap_lock),
    ),
    key(
        "vm.*.ttwu_queue",
        "whether the guest hands wake-ups across caches to the target CPU by IPI (Linux 3.0 and later); before, the waker \
         takes that CPU's run queue lock",
        vm!(Flag, boot.ttwu_queue),
    ),
    key(
        "vm.*.wake_wide",
        "whether tasks that wake many others leave them on the CPUs where they slept (wake_wide, Linux 3.12 and later)",
        vm!(Flag, boot.wake_wide),
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

/// What a guest runs.
pub(super) static WORKLOAD: &[Key] = &[
    key("vm.*.workload", "what the guest runs", vm!(Choice, boot.workload)),
    number(
        "vm.*.hog.tasks",
        "",
        (1.0, 1e5),
        "busy loops; \"auto\": one for each vCPU",
        workload!(Hog, OptionalU32, tasks),
    ),
    number(
        "vm.*.contend.tasks",
        "",
        (1.0, 1e5),
        "tasks that contend for one lock; \"auto\": one for each vCPU",
        workload!(Contend, OptionalU32, tasks),
    ),
    key(
        "vm.*.contend.held",
        "how long a call holds the lock",
        workload!(Contend, Nanos, held_ns),
    ),
    key(
        "vm.*.contend.think",
        "mean user time of a task between two calls",
        workload!(Contend, Nanos, think_ns),
    ),
    number(
        "vm.*.contend.calls",
        "",
        (1.0, 1e12),
        "calls to complete over all tasks, at scale 1",
        workload!(Contend, U64, calls),
    ),
    key(
        "vm.*.contend.span",
        "for how long calls are begun, in place of a number of them, at scale 1; \"auto\": the number ends the run",
        workload!(Contend, OptionalNanos, span_ns),
    ),
    number(
        "vm.*.kernbench.jobs",
        "",
        (1.0, 1e4),
        "job slots: make -j",
        workload!(Kernbench, U32, jobs),
    ),
    number(
        "vm.*.kernbench.user_cpu_seconds",
        "s",
        (1.0, 1e6),
        "CPU time of user work in a full build; calibrated",
        workload!(Kernbench, F64, user_cpu_seconds),
    ),
    number(
        "vm.*.kernbench.units",
        "",
        (1.0, 1e6),
        "compile units of a full build",
        workload!(Kernbench, U32, units),
    ),
    number(
        "vm.*.kernbench.serial_share",
        "",
        (0.0, 1.0),
        "share of that time that is serial: preparations, linking and compressing the kernel",
        workload!(Kernbench, F64, serial_share),
    ),
    number(
        "vm.*.kernbench.unit_faults",
        "",
        (0.0, 1e6),
        "page faults of the processes that build one unit: compilers grow",
        workload!(Kernbench, U32, unit_faults),
    ),
    number(
        "vm.*.kernbench.unit_tools",
        "",
        (3.0, 7.0),
        "small programs run for each unit beside compiler and assembler: kernel build rules grow",
        workload!(Kernbench, U32, unit_tools),
    ),
    key(
        "vm.*.kernbench.repeat",
        "builds again and again, so that who is measured beside it stays loaded; the first build is the result",
        workload!(Kernbench, Flag, repeat),
    ),
    number(
        "vm.*.pgbench.clients",
        "",
        (1.0, 1e4),
        "clients, each with a backend of its own",
        workload!(Pgbench, U32, clients),
    ),
    key(
        "vm.*.pgbench.script",
        "which script the clients run",
        workload!(Pgbench, Choice, script),
    ),
    number(
        "vm.*.pgbench.scale_factor",
        "",
        (1.0, 1e5),
        "rows in the branches table (pgbench -s)",
        workload!(Pgbench, U32, scale_factor),
    ),
    number(
        "vm.*.pgbench.transactions",
        "",
        (1.0, 1e12),
        "transactions to complete over all clients, at scale 1",
        workload!(Pgbench, U64, transactions),
    ),
    key(
        "vm.*.pgbench.client_time",
        "user time of the client for each statement; calibrated",
        workload!(Pgbench, Nanos, client_ns),
    ),
    key(
        "vm.*.pgbench.backend_time",
        "mean user time of the backend for each statement; calibrated",
        workload!(Pgbench, Nanos, backend_ns),
    ),
    number(
        "vm.*.aim7.users",
        "",
        (1.0, 1e4),
        "users, who all work at the same time",
        workload!(Aim7, U32, users),
    ),
    number(
        "vm.*.aim7.jobs",
        "",
        (1.0, 4095.0),
        "jobs on each user's list, at scale 1",
        workload!(Aim7, U32, jobs),
    ),
    key(
        "vm.*.aim7.file_system",
        "what the disks are formatted with; \"plain\" is none in particular",
        workload!(Aim7, Choice, format),
    ),
    number(
        "vm.*.aim7.disks",
        "",
        (1.0, 256.0),
        "RAM disks, each with a file system of its own",
        workload!(Aim7, U32, disks),
    ),
    key(
        "vm.*.aim7.user_time",
        "mean user time of a job; calibrated",
        workload!(Aim7, Nanos, user_ns),
    ),
    number(
        "vm.*.amqp.producers",
        "",
        (1.0, 1e4),
        "producing clients",
        workload!(Amqp, U32, producers),
    ),
    number(
        "vm.*.amqp.consumers",
        "",
        (1.0, 1e4),
        "consuming clients",
        workload!(Amqp, U32, consumers),
    ),
    number(
        "vm.*.amqp.queues",
        "",
        (1.0, 1e4),
        "queues, at most as many as producers or consumers",
        workload!(Amqp, U32, queues),
    ),
    number(
        "vm.*.amqp.workers",
        "",
        (1.0, 1e4),
        "worker threads of the broker; \"auto\": one more than vCPUs",
        workload!(Amqp, OptionalU32, workers),
    ),
    number(
        "vm.*.amqp.payload",
        "bytes",
        (0.0, 4096.0),
        "content of a message",
        workload!(Amqp, U32, payload),
    ),
    number(
        "vm.*.amqp.messages",
        "",
        (1.0, 4e9),
        "messages over all producers, at scale 1",
        workload!(Amqp, U64, messages),
    ),
    key(
        "vm.*.amqp.message_time",
        "user time of a message on its way through all programs, without its content; calibrated",
        workload!(Amqp, Nanos, message_ns),
    ),
    number(
        "vm.*.boot.devices",
        "",
        (1.0, 1e6),
        "devices to be probed over all CPUs, at scale 1",
        workload!(Startup, U32, devices),
    ),
    number(
        "vm.*.boot.accesses",
        "",
        (0.0, 1e6),
        "accesses to the PCI configuration space per device, each under its one spinlock",
        workload!(Startup, U32, accesses),
    ),
    key(
        "vm.*.boot.access_time",
        "how long such an access holds the lock",
        workload!(Startup, Nanos, access_ns),
    ),
];
