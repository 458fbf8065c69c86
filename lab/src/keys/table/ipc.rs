//! Keys of workloads that test communication: hackbench.

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
        "user time around each system call; calibrated",
        hackbench!(Nanos, user_ns),
    ),
];
