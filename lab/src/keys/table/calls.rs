//! Keys of workloads whose CPUs call each other: interrupts, and unmapping.

use holdfast_workloads::{Reach, Workload};

use super::{key, number};
use crate::keys::slot::{Slot, choices};
use crate::keys::{Key, Target};

choices!(Reach {
    "self" => Reach::Itself,
    "unicast" => Reach::Unicast,
    "broadcast" => Reach::Broadcast,
    "broadcast-lock" => Reach::BroadcastLock,
});

/// Interrupts and unmapping.
pub(super) static CALLS: &[Key] = &[
    key(
        "vm.*.ipi.reach",
        "whom each call reaches: the caller's own CPU, one other, all others, or all others whose handlers take one spinlock",
        workload!(Ipi, Choice, reach),
    ),
    key(
        "vm.*.ipi.busy",
        "whether the other vCPUs compute in user mode; else they are halted",
        workload!(Ipi, Flag, busy),
    ),
    number(
        "vm.*.ipi.calls",
        "",
        (1.0, 1e9),
        "calls to make, at scale 1",
        workload!(Ipi, U64, calls),
    ),
    number(
        "vm.*.ebizzy.threads",
        "",
        (1.0, 1e4),
        "threads; \"auto\": one for each vCPU",
        workload!(Ebizzy, OptionalU32, threads),
    ),
    number(
        "vm.*.ebizzy.pages",
        "",
        (1.0, 1e5),
        "pages of a chunk that a thread allocates, copies into and frees for each record",
        workload!(Ebizzy, U32, pages),
    ),
    key(
        "vm.*.ebizzy.allocation",
        "where chunks come from: the C library's heap (\"heap\", ebizzy -M), which keeps 32 pages and gives back what is beyond \
         (madvise), or a mapping each (\"mapping\", ebizzy -m: mmap, munmap)",
        workload!(Ebizzy, Choice, allocation),
    ),
    key(
        "vm.*.ebizzy.record_time",
        "mean user time of a record; an estimate",
        workload!(Ebizzy, Nanos, record_ns),
    ),
    number(
        "vm.*.ebizzy.records",
        "",
        (1.0, 1e12),
        "records over all threads, at scale 1",
        workload!(Ebizzy, U64, records),
    ),
];
