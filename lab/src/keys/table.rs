//! The table of all keys, in files by subject.

/// A parameter of the host.
macro_rules! host {
    ($slot:ident, $($field:ident).+) => { Target::Host(|host| Some(Slot::$slot(&mut host.$($field).+))) };
}

/// A parameter of a guest.
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

mod calls;
mod favor;
mod guest;
mod host;
mod interrupts;
mod ipc;
mod sched;
mod workload;

use std::sync::LazyLock;

use super::{Key, Target};
use crate::profile::{PCPUS_MAX, PauseDetection};
use crate::slot::{Range, Slot, choices};

/// All keys, in the order in which they are set.
pub static KEYS: LazyLock<Vec<&'static Key>> = LazyLock::new(|| {
    [
        RUN,
        MACHINE,
        host::HOST,
        sched::SCHED,
        host::GUESTS,
        favor::FAVOR,
        sched::GROUP,
        guest::GUEST,
        interrupts::INTERRUPTS,
        workload::WORKLOAD,
        calls::CALLS,
        ipc::IPC,
        interrupts::HARDWARE,
        TASK,
    ]
    .into_iter()
    .flatten()
    .collect()
});

pub(super) const ANY: Range = (0.0, f64::INFINITY);

/// Returns a key that takes a name, a flag or a time.
pub(super) const fn key(path: &'static str, doc: &'static str, target: Target) -> Key {
    Key {
        path,
        doc,
        unit: "",
        range: ANY,
        target,
    }
}

/// Returns a key that takes a number.
pub(super) const fn number(
    path: &'static str,
    unit: &'static str,
    range: Range,
    doc: &'static str,
    target: Target,
) -> Key {
    Key {
        path,
        doc,
        unit,
        range,
        target,
    }
}

/// A parameter of the machine's profile.
macro_rules! machine {
    ($slot:ident, $($field:ident).+) => { Target::Machine(|machine| Some(Slot::$slot(&mut machine.$($field).+))) };
}

/// A parameter of one vendor's pause detection.
macro_rules! pauses {
    ($vendor:ident, $slot:ident, $field:ident) => {
        Target::Machine(|machine| match &mut machine.pauses {
            PauseDetection::$vendor { $field, .. } => Some(Slot::$slot($field)),
            _ => None,
        })
    };
}

choices!(PauseDetection {
    "intel" => PauseDetection::Ple { .. } => PauseDetection::intel(false),
    "amd" => PauseDetection::Filter { .. } => PauseDetection::amd(false),
});

/// A parameter of a host task.
macro_rules! task {
    ($slot:ident, $field:ident) => {
        Target::Task(|task| Some(Slot::$slot(&mut task.$field)))
    };
}

static RUN: &[Key] = &[key(
    "limit",
    "Virtual time after which an unfinished run fails.",
    Target::Run(|d| Some(Slot::Nanos(&mut d.limit_ns))),
)];

static MACHINE: &[Key] = &[
    key(
        "machine.profile",
        "Machine profile: a shipped name (`holdfast list`) or a TOML file, relative to the experiment's folder.",
        Target::Machine(|machine| Some(Slot::Name(&mut machine.name))),
    ),
    number(
        "machine.sockets",
        "",
        (1.0, PCPUS_MAX as f64),
        "Number of sockets. Each socket has one last-level cache.",
        machine!(U32, topology.sockets),
    ),
    number(
        "machine.cores",
        "",
        (1.0, PCPUS_MAX as f64),
        "Number of cores in a socket.",
        machine!(U32, topology.cores),
    ),
    number(
        "machine.threads",
        "",
        (1.0, 8.0),
        "Number of hardware threads in a core.",
        machine!(U32, topology.threads),
    ),
    key(
        "machine.frequency",
        "Clock of the cores and of the time-stamp counter. Costs in cycles follow it.",
        machine!(Hertz, frequency_hz),
    ),
    key(
        "machine.vendor",
        "Whose pause detection the CPU has: Intel's pause-loop exiting or AMD's pause filter. A vendor other than \
         the profile's gets KVM's defaults.",
        Target::Machine(|machine| Some(Slot::Choice(&mut machine.pauses))),
    ),
    key(
        "machine.ple",
        "Whether pause-loop exiting is on. Intel only (kvm_intel `ple_gap` other than 0).",
        pauses!(Ple, Flag, enabled),
    ),
    key(
        "machine.ple_gap",
        "Longest time between two PAUSEs of one loop. Intel only (kvm_intel `ple_gap`).",
        pauses!(Ple, Amount, gap),
    ),
    key(
        "machine.ple_window",
        "How long a pause loop may last before it exits. Intel only (kvm_intel `ple_window`).",
        pauses!(Ple, Amount, window),
    ),
    key(
        "machine.pause_filter",
        "Whether the pause filter is on. AMD only.",
        pauses!(Filter, Flag, enabled),
    ),
    number(
        "machine.pause_filter_count",
        "PAUSEs",
        (1.0, 65_535.0),
        "Number of PAUSEs of one loop that pass before the next one exits. AMD only (kvm_amd `pause_filter_count`).",
        pauses!(Filter, U32, count),
    ),
    key(
        "machine.pause_filter_threshold",
        "Longest time between two PAUSEs of one loop. With 0 all PAUSEs count. AMD only (kvm_amd \
         `pause_filter_thresh`).",
        pauses!(Filter, Amount, threshold),
    ),
    key(
        "machine.costs.*",
        "One cost of the machine. The list of costs below has the names.",
        Target::Cost,
    ),
];

static TASK: &[Key] = &[
    number(
        "task.*.nice",
        "",
        (-20.0, 19.0),
        "Nice level of the task.",
        task!(I8, nice),
    ),
    key(
        "task.*.affinity",
        "pCPUs that the task may run on.",
        task!(Cpus, affinity),
    ),
    key("task.*.parent", "Task group that holds the task.", task!(Group, group)),
    key(
        "task.*.busy",
        "CPU time between two sleeps. With \"auto\" the task never sleeps.",
        task!(NanosOrNever, busy_ns),
    ),
    key("task.*.sleep", "How long the task sleeps.", task!(Nanos, sleep_ns)),
];
