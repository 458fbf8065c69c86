//! Keys of the workloads hackbench, tar and netperf.

use holdfast_workloads::{Channel, Workload};

use super::{key, number};
use crate::keys::{Key, Target};
use crate::slot::{Slot, choices};

choices!(Channel {
    "pipes" => Channel::Pipes,
    "sockets" => Channel::Sockets,
});

/// Parameters of hackbench, tar and netperf.
pub(super) static IPC: &[Key] = &[
    key(
        "vm.*.hackbench.channel",
        "What messages go through. \"pipes\" is `hackbench -p`.",
        workload!(Hackbench, Choice, channel),
    ),
    number(
        "vm.*.hackbench.groups",
        "",
        (1.0, 1000.0),
        "Groups of senders and receivers (`hackbench -g`).",
        workload!(Hackbench, U32, groups),
    ),
    number(
        "vm.*.hackbench.pairs",
        "",
        (1.0, 1000.0),
        "Senders of a group, and as many receivers: half its file descriptors (`hackbench -f`).",
        workload!(Hackbench, U32, pairs),
    ),
    number(
        "vm.*.hackbench.loops",
        "",
        (1.0, 4e9),
        "Messages from each sender to each receiver of its group, at scale 1 (`hackbench -l`).",
        workload!(Hackbench, U32, loops),
    ),
    number(
        "vm.*.hackbench.bytes",
        "bytes",
        (1.0, 4096.0),
        "Size of a message's content (`hackbench -s`).",
        workload!(Hackbench, U32, bytes),
    ),
    key(
        "vm.*.hackbench.threads",
        "Threads of one process instead of processes (`hackbench -T`).",
        workload!(Hackbench, Flag, threads),
    ),
    key(
        "vm.*.hackbench.user_time",
        "Mean user time around each system call. Calibrated at the scale of avic-hackbench.",
        workload!(Hackbench, Nanos, user_ns),
    ),
    number(
        "vm.*.tar.files",
        "",
        (1.0, 4e9),
        "Files in the archive, at scale 1.",
        workload!(Tar, U32, files),
    ),
    number(
        "vm.*.tar.bytes",
        "bytes",
        (1.0, 1e8),
        "Mean size of a file.",
        workload!(Tar, U32, bytes),
    ),
    key(
        "vm.*.tar.decompress_time",
        "Mean user time to decompress 8 KiB of output. Calibrated.",
        workload!(Tar, Nanos, decompress_ns),
    ),
    key(
        "vm.*.tar.file_system",
        "File system of the disk. \"plain\" has one journal lock and no other locks of its own.",
        workload!(Tar, Choice, format),
    ),
    number(
        "vm.*.netperf.transactions",
        "",
        (1.0, 1e15),
        "Requests, each with its answer, at scale 1.",
        workload!(Netperf, U64, transactions),
    ),
    key(
        "vm.*.netperf.user_time",
        "User time of a transaction. Calibrated.",
        workload!(Netperf, Nanos, user_ns),
    ),
];
