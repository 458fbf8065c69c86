//! Keys of workloads that test communication: hackbench, tar, netperf.

use holdfast_workloads::{Channel, Workload};

use super::{key, number};
use crate::keys::slot::{Slot, choices};
use crate::keys::{Key, Target};

choices!(Channel {
    "pipes" => Channel::Pipes,
    "sockets" => Channel::Sockets,
});

/// A parameter of hackbench.
macro_rules! hackbench {
    ($slot:ident, $field:ident) => {
        Target::Vm(|vm| match &mut vm.boot.workload {
            Workload::Hackbench(parameters) => Some(Slot::$slot(&mut parameters.$field)),
            _ => None,
        })
    };
}

/// A parameter of tar.
macro_rules! tar {
    ($slot:ident, $field:ident) => {
        Target::Vm(|vm| match &mut vm.boot.workload {
            Workload::Tar(parameters) => Some(Slot::$slot(&mut parameters.$field)),
            _ => None,
        })
    };
}

/// A parameter of netperf.
macro_rules! netperf {
    ($slot:ident, $field:ident) => {
        Target::Vm(|vm| match &mut vm.boot.workload {
            Workload::Netperf(parameters) => Some(Slot::$slot(&mut parameters.$field)),
            _ => None,
        })
    };
}

/// hackbench.
pub(super) static HACKBENCH: &[Key] = &[
    key(
        "vm.*.hackbench.channel",
        "What messages go through. \"pipes\" is `hackbench -p`.",
        hackbench!(Choice, channel),
    ),
    number(
        "vm.*.hackbench.groups",
        "",
        (1.0, 1000.0),
        "Groups of senders and receivers (`hackbench -g`).",
        hackbench!(U32, groups),
    ),
    number(
        "vm.*.hackbench.pairs",
        "",
        (1.0, 1000.0),
        "Senders of a group, and as many receivers: half its file descriptors (`hackbench -f`).",
        hackbench!(U32, pairs),
    ),
    number(
        "vm.*.hackbench.loops",
        "",
        (1.0, 4e9),
        "Messages from each sender to each receiver of its group, at scale 1 (`hackbench -l`).",
        hackbench!(U32, loops),
    ),
    number(
        "vm.*.hackbench.bytes",
        "bytes",
        (1.0, 4096.0),
        "Size of a message's content (`hackbench -s`).",
        hackbench!(U32, bytes),
    ),
    key(
        "vm.*.hackbench.threads",
        "Threads of one process instead of processes (`hackbench -T`).",
        hackbench!(Flag, threads),
    ),
    key(
        "vm.*.hackbench.user_time",
        "Mean user time around each system call. Calibrated at the scale of avic-hackbench.",
        hackbench!(Nanos, user_ns),
    ),
];

/// tar.
pub(super) static TAR: &[Key] = &[
    number(
        "vm.*.tar.files",
        "",
        (1.0, 4e9),
        "Files in the archive, at scale 1.",
        tar!(U32, files),
    ),
    number(
        "vm.*.tar.bytes",
        "bytes",
        (1.0, 1e8),
        "Mean size of a file.",
        tar!(U32, bytes),
    ),
    key(
        "vm.*.tar.decompress_time",
        "Mean user time to decompress 8 KiB of output. Calibrated.",
        tar!(Nanos, decompress_ns),
    ),
    key(
        "vm.*.tar.file_system",
        "File system of the disk. \"plain\" has one journal lock and no other locks of its own.",
        tar!(Choice, format),
    ),
];

/// netperf.
pub(super) static NETPERF: &[Key] = &[
    number(
        "vm.*.netperf.transactions",
        "",
        (1.0, 1e15),
        "Requests, each with its answer, at scale 1.",
        netperf!(U64, transactions),
    ),
    key(
        "vm.*.netperf.user_time",
        "User time of a transaction. Calibrated.",
        netperf!(Nanos, user_ns),
    ),
];
