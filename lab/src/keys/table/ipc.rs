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
        "what messages go through; \"pipes\": option -p",
        hackbench!(Choice, channel),
    ),
    number(
        "vm.*.hackbench.groups",
        "",
        (1.0, 1000.0),
        "groups of senders and receivers",
        hackbench!(U32, groups),
    ),
    number(
        "vm.*.hackbench.pairs",
        "",
        (1.0, 1000.0),
        "senders of a group, and receivers: half its file descriptors",
        hackbench!(U32, pairs),
    ),
    number(
        "vm.*.hackbench.loops",
        "",
        (1.0, 4e9),
        "messages from each sender to each receiver of its group, at scale 1 (option -l)",
        hackbench!(U32, loops),
    ),
    number(
        "vm.*.hackbench.bytes",
        "bytes",
        (1.0, 4096.0),
        "content of a message",
        hackbench!(U32, bytes),
    ),
    key(
        "vm.*.hackbench.threads",
        "threads of one process (option -T) instead of processes",
        hackbench!(Flag, threads),
    ),
    key(
        "vm.*.hackbench.user_time",
        "mean user time around each system call; calibrated at avic-hackbench's own scale",
        hackbench!(Nanos, user_ns),
    ),
];

/// tar.
pub(super) static TAR: &[Key] = &[
    number(
        "vm.*.tar.files",
        "",
        (1.0, 4e9),
        "files in the archive, at scale 1",
        tar!(U32, files),
    ),
    number(
        "vm.*.tar.bytes",
        "bytes",
        (1.0, 1e8),
        "mean size of a file",
        tar!(U32, bytes),
    ),
    key(
        "vm.*.tar.decompress_time",
        "mean user time to decompress 8 KiB of output; calibrated",
        tar!(Nanos, decompress_ns),
    ),
    key(
        "vm.*.tar.file_system",
        "what the disk is formatted with; \"plain\" is none in particular",
        tar!(Choice, format),
    ),
];

/// netperf.
pub(super) static NETPERF: &[Key] = &[
    number(
        "vm.*.netperf.transactions",
        "",
        (1.0, 1e15),
        "requests, each with its answer, at scale 1",
        netperf!(U64, transactions),
    ),
    key(
        "vm.*.netperf.user_time",
        "user time for a transaction; calibrated",
        netperf!(Nanos, user_ns),
    ),
];
