//! Keys of the workloads ipi and ebizzy, which test calls between CPUs.

use holdfast_workloads::{Reach, Workload};

use super::{key, number};
use crate::keys::{Key, Target};
use crate::slot::{Slot, choices};

choices!(Reach {
    "self" => Reach::Itself,
    "unicast" => Reach::Unicast,
    "broadcast" => Reach::Broadcast,
    "broadcast-lock" => Reach::BroadcastLock,
});

/// Parameters of ipi and ebizzy.
pub(super) static CALLS: &[Key] = &[
    key(
        "vm.*.ipi.reach",
        "Which CPUs each call reaches: the caller's own, one other, all others, or all others whose handlers take \
         one spinlock.",
        workload!(Ipi, Choice, reach),
    ),
    key(
        "vm.*.ipi.busy",
        "Whether the other vCPUs compute in user mode. Otherwise they are halted.",
        workload!(Ipi, Flag, busy),
    ),
    number(
        "vm.*.ipi.calls",
        "",
        (1.0, 1e9),
        "Number of calls, at scale 1.",
        workload!(Ipi, U64, calls),
    ),
    number(
        "vm.*.ebizzy.threads",
        "",
        (1.0, 1e4),
        "Number of threads (`ebizzy -t`). \"auto\" is one for each vCPU.",
        workload!(Ebizzy, OptionalU32, threads),
    ),
    number(
        "vm.*.ebizzy.pages",
        "",
        (1.0, 1e5),
        "Pages of a chunk. For each record a thread allocates a chunk, copies into it and frees it.",
        workload!(Ebizzy, U32, pages),
    ),
    key(
        "vm.*.ebizzy.allocation",
        "Source of the chunks. \"heap\" (`ebizzy -M`) is the C library's heap, which keeps 32 pages and gives back \
         the rest (`madvise`). \"mapping\" (`ebizzy -m`) maps and unmaps each chunk.",
        workload!(Ebizzy, Choice, allocation),
    ),
    key(
        "vm.*.ebizzy.record_time",
        "Mean user time of a record. An estimate.",
        workload!(Ebizzy, Nanos, record_ns),
    ),
    number(
        "vm.*.ebizzy.records",
        "",
        (1.0, 1e12),
        "Records over all threads, at scale 1.",
        workload!(Ebizzy, U64, records),
    ),
];
