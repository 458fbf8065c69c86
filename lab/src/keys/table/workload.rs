//! Keys of workloads.

use holdfast_workloads::{Allocation, Channel, Format, Reach, Workload};

use super::key;
use crate::keys::{Key, Target};
use crate::slot::{Slot, choices};

choices!(Allocation {
    "heap" => Allocation::Heap,
    "mapping" => Allocation::Mapping,
});

choices!(Format {
    "plain" => Format::Plain,
    "ext4" => Format::Ext4,
    "xfs" => Format::Xfs,
});

choices!(Reach {
    "self" => Reach::Itself,
    "unicast" => Reach::Unicast,
    "broadcast" => Reach::Broadcast,
    "broadcast-lock" => Reach::BroadcastLock,
    "backtrace" => Reach::Backtrace,
});

choices!(Channel {
    "pipes" => Channel::Pipes,
    "sockets" => Channel::Sockets,
});

/// The choice of the workload, and parameters of workloads.
pub(super) static WORKLOAD: &[Key] = &[
    key(
        "vm.*.workload",
        (
            "DraftVm.boot.workload",
            Target::Vm(|vm| Some(Slot::Workload(&mut vm.boot.workload, vm.workloads))),
        ),
    ),
    key("vm.*.work", vm!(F64, work)).range(1e-4, 1e4),
    key("vm.*.own.*", ("", Target::Own))
        .note("Parameter of a workload or guest policy that a program adds, by its name there."),
    key("vm.*.hog.tasks", workload!(Hog, OptionalU32, tasks)).range(1.0, 1e5),
    key("vm.*.contend.tasks", workload!(Contend, OptionalU32, tasks)).range(1.0, 1e5),
    key("vm.*.contend.held", workload!(Contend, Nanos, held_ns)),
    key("vm.*.contend.think", workload!(Contend, Nanos, think_ns)),
    key("vm.*.contend.calls", workload!(Contend, U64, calls)).range(1.0, 1e12),
    key("vm.*.contend.span", workload!(Contend, OptionalNanos, span_ns)),
    key("vm.*.kernbench.jobs", workload!(Kernbench, U32, jobs)).range(1.0, 1e4),
    key(
        "vm.*.kernbench.user_cpu_seconds",
        workload!(Kernbench, F64, user_cpu_seconds),
    )
    .range(1.0, 1e6)
    .unit("s"),
    key("vm.*.kernbench.units", workload!(Kernbench, U32, units)).range(1.0, 1e6),
    key("vm.*.kernbench.serial_share", workload!(Kernbench, F64, serial_share)).range(0.0, 1.0),
    key("vm.*.kernbench.unit_faults", workload!(Kernbench, U32, unit_faults)).range(0.0, 1e6),
    key("vm.*.kernbench.unit_tools", workload!(Kernbench, U32, unit_tools)).range(3.0, 7.0),
    key("vm.*.kernbench.repeat", workload!(Kernbench, Flag, repeat)),
    key("vm.*.kernbench.cold", workload!(Kernbench, Flag, cold)).note("It needs disk_latency."),
    key("vm.*.kernbench.file_system", workload!(Kernbench, Choice, format))
        .note("\"plain\" has one journal lock and no other locks of its own."),
    key("vm.*.pgbench.clients", workload!(Pgbench, U32, clients)).range(1.0, 1e4),
    key("vm.*.pgbench.transactions", workload!(Pgbench, U64, transactions)).range(1.0, 1e12),
    key("vm.*.aim7.users", workload!(Aim7, U32, users)).range(1.0, 1e4),
    key("vm.*.aim7.file_system", workload!(Aim7, Choice, format))
        .note("\"plain\" has one journal lock and no other locks of its own."),
    key("vm.*.dbench.clients", workload!(Dbench, OptionalU32, clients)).range(1.0, 1e4),
    key("vm.*.dbench.megabytes", workload!(Dbench, U64, megabytes)).range(1.0, 1e9),
    key("vm.*.dbench.file_system", workload!(Dbench, Choice, format))
        .note("\"plain\" has one journal lock and no other locks of its own."),
    key("vm.*.amqp.producers", workload!(Amqp, U32, producers)).range(1.0, 1e4),
    key("vm.*.amqp.consumers", workload!(Amqp, U32, consumers)).range(1.0, 1e4),
    key("vm.*.amqp.payload", workload!(Amqp, U32, payload))
        .range(0.0, 4096.0)
        .unit("bytes"),
    key("vm.*.boot.exits", workload!(Startup, Flag, exits)),
    key("vm.*.ipi.reach", workload!(Ipi, Choice, reach)),
    key("vm.*.ipi.busy", workload!(Ipi, Flag, busy)),
    key("vm.*.ipi.calls", workload!(Ipi, U64, calls)).range(1.0, 1e9),
    key("vm.*.ebizzy.allocation", workload!(Ebizzy, Choice, allocation)).note(
        "\"heap\" (`ebizzy -M`) is the C library's heap, which keeps 32 pages and gives back the rest \
         (`madvise`). \"mapping\" (`ebizzy -m`) maps and unmaps each chunk.",
    ),
    key("vm.*.ebizzy.threads_per_vcpu", workload!(Ebizzy, U32, threads_per_vcpu)).range(1.0, 100.0),
    key("vm.*.ebizzy.records", workload!(Ebizzy, U64, records)).range(1.0, 1e12),
    key("vm.*.hackbench.channel", workload!(Hackbench, Choice, channel)).note("\"pipes\" is `hackbench -p`."),
    key("vm.*.hackbench.groups", workload!(Hackbench, U32, groups)).range(1.0, 1000.0),
    key("vm.*.hackbench.pairs", workload!(Hackbench, U32, pairs)).range(1.0, 1000.0),
    key("vm.*.hackbench.threads", workload!(Hackbench, Flag, threads)),
    key("vm.*.tar.file_system", workload!(Tar, Choice, format))
        .note("\"plain\" has one journal lock and no other locks of its own."),
    key("vm.*.recorded.file", workload!(Recorded, Text, file)),
    key("vm.*.recorded.guest", workload!(Recorded, Text, guest)),
    key("vm.*.netperf.transactions", workload!(Netperf, U64, transactions)).range(1.0, 1e15),
];
