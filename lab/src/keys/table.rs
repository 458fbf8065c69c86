//! The keys themselves.

use holdfast_guest::LockKind;
use holdfast_host::{PauseExit, SchedulerKind, TickPhase, VmGroup};
use holdfast_workloads::{Hog, Kernbench, Pgbench, Script, Workload};

use super::slot::{Choice, Range, Slot, choices};
use super::{Key, Target};
use crate::draft::VCPUS_MAX;
use crate::profile::PCPUS_MAX;

choices!(LockKind {
    "tas" => LockKind::Tas,
    "ticket" => LockKind::Ticket,
    "pv-ticket" => LockKind::PvTicket,
});

choices!(SchedulerKind {
    "cfs-3.3" => SchedulerKind::Cfs33,
});

choices!(TickPhase {
    "aligned" => TickPhase::Aligned,
    "half-skewed" => TickPhase::HalfSkewed,
    "spread" => TickPhase::Spread,
});

choices!(PauseExit {
    "none" => PauseExit::None => PauseExit::None,
    // 2.6.33 to 2.6.38 slept for 100 us.
    "sleep" => PauseExit::Sleep { .. } => PauseExit::Sleep { ns: 100_000 },
    "directed-yield-2011" => PauseExit::DirectedYield2011 => PauseExit::DirectedYield2011,
});

choices!(Script {
    "tpc-b" => Script::TpcB,
    "select-only" => Script::SelectOnly,
});

choices!(Workload {
    "idle" => Workload::Idle => Workload::Idle,
    "hog" => Workload::Hog(_) => Workload::Hog(Hog::default()),
    "kernbench" => Workload::Kernbench(_) => Workload::Kernbench(Kernbench::default()),
    "pgbench" => Workload::Pgbench(_) => Workload::Pgbench(Pgbench::default()),
});

/// Default `cpu.shares`.
const SHARES: u64 = 1024;

// Not by `choices!`: a group that exists by its number is nothing that a file can name.
impl Choice for VmGroup {
    fn names(&self) -> Vec<&'static str> {
        vec!["root", "own", "own-with-vcpu-groups"]
    }

    fn name(&self) -> &'static str {
        match self {
            VmGroup::Root => "root",
            VmGroup::Own { .. } => "own",
            VmGroup::OwnWithVcpuGroups { .. } => "own-with-vcpu-groups",
            VmGroup::In(_) => "in",
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

const ANY: Range = (0.0, f64::INFINITY);

/// A key that takes names, flags or times.
const fn key(path: &'static str, doc: &'static str, target: Target) -> Key {
    Key {
        path,
        doc,
        unit: "",
        range: ANY,
        target,
    }
}

/// A key that takes a number.
const fn number(path: &'static str, unit: &'static str, range: Range, doc: &'static str, target: Target) -> Key {
    Key {
        path,
        doc,
        unit,
        range,
        target,
    }
}

/// A place of the host's configuration.
macro_rules! host {
    ($slot:ident, $($field:ident).+) => { Target::Host(|host| Some(Slot::$slot(&mut host.$($field).+))) };
}

/// A place of a guest.
macro_rules! vm {
    ($slot:ident, $($field:ident).+) => { Target::Vm(|vm| Some(Slot::$slot(&mut vm.$($field).+))) };
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

/// A place of the machine's profile.
macro_rules! machine {
    ($slot:ident, $($field:ident).+) => { Target::Machine(|machine| Some(Slot::$slot(&mut machine.$($field).+))) };
}

/// A place of a host task.
macro_rules! task {
    ($slot:ident, $field:ident) => {
        Target::Task(|task| Some(Slot::$slot(&mut task.$field)))
    };
}

/// All keys, in the order in which they are set.
pub static KEYS: &[Key] = &[
    key(
        "limit",
        "virtual time after which an unfinished run is a failure",
        Target::Run(|d| Some(Slot::Nanos(&mut d.limit_ns))),
    ),
    // --- machine ---
    key(
        "machine.profile",
        "machine profile: a shipped name (`holdfast list`) or a TOML file, seen from the experiment's folder",
        Target::Machine(|machine| Some(Slot::Name(&mut machine.name))),
    ),
    number(
        "machine.sockets",
        "",
        (1.0, PCPUS_MAX as f64),
        "sockets; one last-level cache each",
        machine!(U32, topology.sockets),
    ),
    number(
        "machine.cores",
        "",
        (1.0, PCPUS_MAX as f64),
        "cores per socket",
        machine!(U32, topology.cores),
    ),
    number(
        "machine.threads",
        "",
        (1.0, 8.0),
        "hardware threads per core",
        machine!(U32, topology.threads),
    ),
    key(
        "machine.frequency",
        "clock of cores and time-stamp counter; costs in cycles follow it",
        machine!(Hertz, frequency_hz),
    ),
    key("machine.ple", "whether pause-loop exiting is on", machine!(Flag, ple)),
    key(
        "machine.ple_gap",
        "longest time between two PAUSEs of one loop",
        machine!(Amount, ple_gap.amount),
    ),
    key(
        "machine.ple_window",
        "how long a pause loop may last before it exits",
        machine!(Amount, ple_window.amount),
    ),
    key(
        "machine.costs.*",
        "what something costs; see the list of costs",
        Target::Cost,
    ),
    // --- host ---
    number(
        "host.hz",
        "1/s",
        (10.0, 10_000.0),
        "scheduler ticks per second of each pCPU",
        host!(U32, hz),
    ),
    key(
        "host.tick_phase",
        "how the ticks of the pCPUs lie to each other",
        host!(Choice, tick_phase),
    ),
    key("host.scheduler", "the host's scheduler", host!(Choice, scheduler)),
    key(
        "host.latency",
        "period in which each runnable thread runs once (sched_latency), before scaling",
        host!(Nanos, latency_ns),
    ),
    key(
        "host.min_granularity",
        "shortest slice (sched_min_granularity), before scaling",
        host!(Nanos, min_granularity_ns),
    ),
    key(
        "host.wakeup_granularity",
        "by how much a woken thread must be behind to preempt (sched_wakeup_granularity), before scaling",
        host!(Nanos, wakeup_granularity_ns),
    ),
    key(
        "host.scale_by_pcpus",
        "whether those three are multiplied by 1 + log2(min(pCPUs, 8))",
        host!(Flag, scale_by_pcpus),
    ),
    key(
        "host.shares_window",
        "window over which a group's load on one pCPU is averaged",
        host!(Nanos, shares_window_ns),
    ),
    key(
        "host.features.gentle_fair_sleepers",
        "a woken thread gets half a period of credit instead of a whole one",
        host!(Flag, features.gentle_fair_sleepers),
    ),
    key(
        "host.features.start_debit",
        "a new thread starts one virtual slice late",
        host!(Flag, features.start_debit),
    ),
    key(
        "host.features.wakeup_preemption",
        "a woken thread that may preempt does so",
        host!(Flag, features.wakeup_preemption),
    ),
    key(
        "host.features.next_buddy",
        "the thread woken last is favoured even if it did not preempt",
        host!(Flag, features.next_buddy),
    ),
    key(
        "host.features.last_buddy",
        "the thread preempted last is favoured",
        host!(Flag, features.last_buddy),
    ),
    key(
        "host.features.cache_hot_buddy",
        "buddies count as cache-hot",
        host!(Flag, features.cache_hot_buddy),
    ),
    key(
        "host.features.affine_wakeups",
        "the waking pCPU is considered in wake placement",
        host!(Flag, features.affine_wakeups),
    ),
    key(
        "host.features.ttwu_queue",
        "a wake-up across last-level caches is carried out by the target pCPU on an IPI",
        host!(Flag, features.ttwu_queue),
    ),
    key(
        "host.features.lb_bias",
        "balancing compares loads biased by their history",
        host!(Flag, features.lb_bias),
    ),
    number(
        "host.balance.smt.min_interval_ms",
        "ms",
        (1.0, 1e6),
        "shortest interval between two balancing passes between threads of one core",
        host!(U64, balance.smt.min_interval_ms),
    ),
    number(
        "host.balance.smt.max_interval_ms",
        "ms",
        (1.0, 1e6),
        "longest interval between two balancing passes between threads of one core",
        host!(U64, balance.smt.max_interval_ms),
    ),
    number(
        "host.balance.smt.busy_factor",
        "",
        (1.0, 1e6),
        "by how much longer the interval is on a busy pCPU, between threads of one core",
        host!(U64, balance.smt.busy_factor),
    ),
    number(
        "host.balance.smt.imbalance_pct",
        "%",
        (100.0, 1000.0),
        "load, in per cent of the own, that makes pulling worth while between threads of one core",
        host!(U64, balance.smt.imbalance_pct),
    ),
    number(
        "host.balance.smt.cache_nice_tries",
        "",
        (0.0, 1000.0),
        "failed passes before cache-hot threads are moved too, between threads of one core",
        host!(U32, balance.smt.cache_nice_tries),
    ),
    number(
        "host.balance.cache.min_interval_ms",
        "ms",
        (1.0, 1e6),
        "shortest interval between two balancing passes between cores that share a last-level cache",
        host!(U64, balance.cache.min_interval_ms),
    ),
    number(
        "host.balance.cache.max_interval_ms",
        "ms",
        (1.0, 1e6),
        "longest interval between two balancing passes between cores that share a last-level cache",
        host!(U64, balance.cache.max_interval_ms),
    ),
    number(
        "host.balance.cache.busy_factor",
        "",
        (1.0, 1e6),
        "by how much longer the interval is on a busy pCPU, between cores that share a last-level cache",
        host!(U64, balance.cache.busy_factor),
    ),
    number(
        "host.balance.cache.imbalance_pct",
        "%",
        (100.0, 1000.0),
        "load, in per cent of the own, that makes pulling worth while between cores that share a last-level cache",
        host!(U64, balance.cache.imbalance_pct),
    ),
    number(
        "host.balance.cache.cache_nice_tries",
        "",
        (0.0, 1000.0),
        "failed passes before cache-hot threads are moved too, between cores that share a last-level cache",
        host!(U32, balance.cache.cache_nice_tries),
    ),
    number(
        "host.balance.package.min_interval_ms",
        "ms",
        (1.0, 1e6),
        "shortest interval between two balancing passes between sockets of one memory node",
        host!(U64, balance.package.min_interval_ms),
    ),
    number(
        "host.balance.package.max_interval_ms",
        "ms",
        (1.0, 1e6),
        "longest interval between two balancing passes between sockets of one memory node",
        host!(U64, balance.package.max_interval_ms),
    ),
    number(
        "host.balance.package.busy_factor",
        "",
        (1.0, 1e6),
        "by how much longer the interval is on a busy pCPU, between sockets of one memory node",
        host!(U64, balance.package.busy_factor),
    ),
    number(
        "host.balance.package.imbalance_pct",
        "%",
        (100.0, 1000.0),
        "load, in per cent of the own, that makes pulling worth while between sockets of one memory node",
        host!(U64, balance.package.imbalance_pct),
    ),
    number(
        "host.balance.package.cache_nice_tries",
        "",
        (0.0, 1000.0),
        "failed passes before cache-hot threads are moved too, between sockets of one memory node",
        host!(U32, balance.package.cache_nice_tries),
    ),
    number(
        "host.balance.numa.min_interval_ms",
        "ms",
        (1.0, 1e6),
        "shortest interval between two balancing passes between memory nodes",
        host!(U64, balance.numa.min_interval_ms),
    ),
    number(
        "host.balance.numa.max_interval_ms",
        "ms",
        (1.0, 1e6),
        "longest interval between two balancing passes between memory nodes",
        host!(U64, balance.numa.max_interval_ms),
    ),
    number(
        "host.balance.numa.busy_factor",
        "",
        (1.0, 1e6),
        "by how much longer the interval is on a busy pCPU, between memory nodes",
        host!(U64, balance.numa.busy_factor),
    ),
    number(
        "host.balance.numa.imbalance_pct",
        "%",
        (100.0, 1000.0),
        "load, in per cent of the own, that makes pulling worth while between memory nodes",
        host!(U64, balance.numa.imbalance_pct),
    ),
    number(
        "host.balance.numa.cache_nice_tries",
        "",
        (0.0, 1000.0),
        "failed passes before cache-hot threads are moved too, between memory nodes",
        host!(U32, balance.numa.cache_nice_tries),
    ),
    key(
        "host.balance.sockets_are_nodes",
        "whether each socket is a memory node of its own",
        host!(Flag, balance.sockets_are_nodes),
    ),
    number(
        "host.balance.nr_migrate",
        "",
        (1.0, 1e6),
        "threads looked at in one balancing pass (sched_nr_migrate)",
        host!(U32, balance.nr_migrate),
    ),
    key(
        "host.balance.migration_cost",
        "a thread that ran less than this long ago is cache-hot (sched_migration_cost)",
        host!(Nanos, balance.migration_cost_ns),
    ),
    number(
        "host.balance.smt_gain",
        "1/1024",
        (1.0, 1e6),
        "what all threads of a core can do together",
        host!(U64, balance.smt_gain),
    ),
    key(
        "host.halt_poll",
        "longest time for which a halted vCPU's pCPU polls before its thread sleeps (halt_poll_ns); 0: never",
        host!(Nanos, halt_poll_ns),
    ),
    number(
        "host.halt_poll_grow",
        "",
        (0.0, 1000.0),
        "factor by which the polling time grows",
        host!(U64, halt_poll_grow),
    ),
    key(
        "host.halt_poll_grow_start",
        "what it grows to from 0",
        host!(Nanos, halt_poll_grow_start_ns),
    ),
    number(
        "host.halt_poll_shrink",
        "",
        (0.0, 1000.0),
        "divisor by which it shrinks; 0: to nothing at once",
        host!(U64, halt_poll_shrink),
    ),
    key("host.pause_exit", "what a pause exit does", host!(Choice, pause_exit)),
    key(
        "host.pause_exit_sleep",
        "how long a pause exit sleeps at most, with host.pause_exit = \"sleep\"",
        Target::Host(|host| match &mut host.pause_exit {
            PauseExit::Sleep { ns } => Some(Slot::Nanos(ns)),
            PauseExit::None | PauseExit::DirectedYield2011 => None,
        }),
    ),
    key(
        "host.kick_yields",
        "whether the kick hypercall tries a directed yield to its target (since 2021)",
        host!(Flag, kick_yields),
    ),
    number(
        "host.apic_bus_hz",
        "Hz",
        (1e6, 1e11),
        "frequency that the emulated LAPIC timer divides",
        host!(U64, apic_bus_hz),
    ),
    key(
        "host.min_timer_period",
        "shortest period of a periodic LAPIC timer (min_timer_period_us)",
        host!(Nanos, min_timer_period_ns),
    ),
    // --- guests ---
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
        "vm.*.measured",
        "whether the run waits for this guest; \"auto\": if its workload ends",
        vm!(OptionalFlag, measured),
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
        "vm.*.pv_unhalt",
        "whether the host offers halt and kick for locks (KVM_FEATURE_PV_UNHALT)",
        vm!(Flag, host.pv_unhalt),
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
        "where the vCPU threads stand in the hierarchy of task groups",
        vm!(Choice, host.group),
    ),
    number(
        "vm.*.shares",
        "",
        (2.0, 262_144.0),
        "cpu.shares of the guest's own task group; needs a cgroup other than \"root\"",
        Target::Vm(|vm| match &mut vm.host.group {
            VmGroup::Own { shares } | VmGroup::OwnWithVcpuGroups { shares } => Some(Slot::U64(shares)),
            VmGroup::Root | VmGroup::In(_) => None,
        }),
    ),
    key(
        "vm.*.halt_poll_cap",
        "halt-polling limit of this guest; \"auto\": host.halt_poll",
        vm!(OptionalNanos, host.halt_poll_cap_ns),
    ),
    // --- workloads ---
    key("vm.*.workload", "what the guest runs", vm!(Choice, boot.workload)),
    number(
        "vm.*.hog.tasks",
        "",
        (1.0, 1e5),
        "busy loops; \"auto\": one for each vCPU",
        workload!(Hog, OptionalU32, tasks),
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
    // --- host tasks ---
    number("task.*.nice", "", (-20.0, 19.0), "nice level", task!(I8, nice)),
    key(
        "task.*.affinity",
        "pCPUs that the task may run on",
        task!(Cpus, affinity),
    ),
    key(
        "task.*.busy",
        "CPU time between two sleeps; \"auto\": it never sleeps",
        task!(NanosOrNever, busy_ns),
    ),
    key("task.*.sleep", "how long it sleeps", task!(Nanos, sleep_ns)),
];
