//! Keys of workloads.

use holdfast_workloads::{Allocation, Format, Script, Workload};

use super::{key, number};
use crate::keys::{Key, Target};
use crate::slot::{Choice, Slot, choices};

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

// Without `choices!`, since workloads have names of their own.
impl Choice for Workload {
    fn names(&self) -> Vec<&'static str> {
        Workload::all().iter().map(Workload::name).collect()
    }

    fn name(&self) -> &'static str {
        Workload::name(self)
    }

    fn choose(&mut self, name: &str) -> bool {
        // The current workload keeps its parameters.
        if Workload::name(self) == name {
            return true;
        }
        let chosen = Workload::all().into_iter().find(|workload| workload.name() == name);
        chosen.map(|workload| *self = workload).is_some()
    }
}

/// The choice of the workload, and parameters of workloads.
pub(super) static WORKLOAD: &[Key] = &[
    key("vm.*.workload", "What the guest runs.", vm!(Choice, boot.workload)),
    number(
        "vm.*.hog.tasks",
        "",
        (1.0, 1e5),
        "Number of busy loops. \"auto\" is one for each vCPU.",
        workload!(Hog, OptionalU32, tasks),
    ),
    number(
        "vm.*.contend.tasks",
        "",
        (1.0, 1e5),
        "Number of tasks that contend for one lock. \"auto\" is one for each vCPU.",
        workload!(Contend, OptionalU32, tasks),
    ),
    key(
        "vm.*.contend.held",
        "How long a call holds the lock.",
        workload!(Contend, Nanos, held_ns),
    ),
    key(
        "vm.*.contend.think",
        "Mean user time of a task between two calls.",
        workload!(Contend, Nanos, think_ns),
    ),
    number(
        "vm.*.contend.calls",
        "",
        (1.0, 1e12),
        "Calls over all tasks, at scale 1.",
        workload!(Contend, U64, calls),
    ),
    key(
        "vm.*.contend.span",
        "Time in which calls begin, at scale 1; it replaces the number of calls. With \"auto\" the number ends the \
         run.",
        workload!(Contend, OptionalNanos, span_ns),
    ),
    number(
        "vm.*.kernbench.jobs",
        "",
        (1.0, 1e4),
        "Job slots (`make -j`).",
        workload!(Kernbench, U32, jobs),
    ),
    number(
        "vm.*.kernbench.user_cpu_seconds",
        "s",
        (1.0, 1e6),
        "CPU time of user work in a full build. Calibrated.",
        workload!(Kernbench, F64, user_cpu_seconds),
    ),
    number(
        "vm.*.kernbench.units",
        "",
        (1.0, 1e6),
        "Compile units of a full build.",
        workload!(Kernbench, U32, units),
    ),
    number(
        "vm.*.kernbench.serial_share",
        "",
        (0.0, 1.0),
        "Share of the user work that is serial: preparations, linking and compressing the kernel.",
        workload!(Kernbench, F64, serial_share),
    ),
    number(
        "vm.*.kernbench.unit_faults",
        "",
        (0.0, 1e6),
        "Page faults of the processes that build one unit. Newer compilers have more.",
        workload!(Kernbench, U32, unit_faults),
    ),
    number(
        "vm.*.kernbench.unit_tools",
        "",
        (3.0, 7.0),
        "Small programs for each unit in addition to compiler and assembler. Newer kernel build rules run more.",
        workload!(Kernbench, U32, unit_tools),
    ),
    key(
        "vm.*.kernbench.repeat",
        "The guest builds again and again, so that the other guests stay loaded. The first build is the result.",
        workload!(Kernbench, Flag, repeat),
    ),
    number(
        "vm.*.pgbench.clients",
        "",
        (1.0, 1e4),
        "Number of clients (`pgbench -c`). Each has a backend of its own.",
        workload!(Pgbench, U32, clients),
    ),
    key(
        "vm.*.pgbench.script",
        "Script that the clients run. \"select-only\" is `pgbench -S`.",
        workload!(Pgbench, Choice, script),
    ),
    number(
        "vm.*.pgbench.scale_factor",
        "",
        (1.0, 1e5),
        "Rows in the branches table (`pgbench -s`).",
        workload!(Pgbench, U32, scale_factor),
    ),
    number(
        "vm.*.pgbench.transactions",
        "",
        (1.0, 1e12),
        "Transactions over all clients, at scale 1.",
        workload!(Pgbench, U64, transactions),
    ),
    key(
        "vm.*.pgbench.client_time",
        "User time of the client for each statement. Calibrated.",
        workload!(Pgbench, Nanos, client_ns),
    ),
    key(
        "vm.*.pgbench.backend_time",
        "Mean user time of the backend for each statement. Calibrated.",
        workload!(Pgbench, Nanos, backend_ns),
    ),
    number(
        "vm.*.aim7.users",
        "",
        (1.0, 1e4),
        "Number of users. All work at the same time.",
        workload!(Aim7, U32, users),
    ),
    number(
        "vm.*.aim7.jobs",
        "",
        (1.0, 4095.0),
        "Jobs on each user's list, at scale 1.",
        workload!(Aim7, U32, jobs),
    ),
    key(
        "vm.*.aim7.file_system",
        "File system of the disks. \"plain\" has one journal lock and no other locks of its own.",
        workload!(Aim7, Choice, format),
    ),
    number(
        "vm.*.aim7.disks",
        "",
        (1.0, 256.0),
        "Number of RAM disks. Each has a file system of its own.",
        workload!(Aim7, U32, disks),
    ),
    key(
        "vm.*.aim7.user_time",
        "Mean user time of a job. Calibrated.",
        workload!(Aim7, Nanos, user_ns),
    ),
    number(
        "vm.*.amqp.producers",
        "",
        (1.0, 1e4),
        "Number of producing clients.",
        workload!(Amqp, U32, producers),
    ),
    number(
        "vm.*.amqp.consumers",
        "",
        (1.0, 1e4),
        "Number of consuming clients.",
        workload!(Amqp, U32, consumers),
    ),
    number(
        "vm.*.amqp.queues",
        "",
        (1.0, 1e4),
        "Number of queues, at most as many as producers or consumers.",
        workload!(Amqp, U32, queues),
    ),
    number(
        "vm.*.amqp.workers",
        "",
        (1.0, 1e4),
        "Worker threads of the broker (`erl +S`). \"auto\" is one more than the number of vCPUs.",
        workload!(Amqp, OptionalU32, workers),
    ),
    number(
        "vm.*.amqp.payload",
        "bytes",
        (0.0, 4096.0),
        "Size of a message's content.",
        workload!(Amqp, U32, payload),
    ),
    number(
        "vm.*.amqp.messages",
        "",
        (1.0, 4e9),
        "Messages over all producers, at scale 1.",
        workload!(Amqp, U64, messages),
    ),
    key(
        "vm.*.amqp.message_time",
        "User time of a message in all programs, without its content. Calibrated.",
        workload!(Amqp, Nanos, message_ns),
    ),
    number(
        "vm.*.boot.devices",
        "",
        (1.0, 1e6),
        "Devices that the CPUs probe, at scale 1.",
        workload!(Startup, U32, devices),
    ),
];
