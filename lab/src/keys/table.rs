//! The table of all keys, in files by subject.

/// A parameter with its field: `parameter!(HostConfig, Host, U32, hz)`.
macro_rules! parameter {
    ($root:ident, $target:ident, $slot:ident, $($field:ident).+) => {(
        concat!(stringify!($root) $(, ".", stringify!($field))+),
        Target::$target(|root| Some(Slot::$slot(&mut root.$($field).+))),
    )};
}

/// A parameter of the host.
macro_rules! host {
    ($($parameter:tt)+) => { parameter!(HostConfig, Host, $($parameter)+) };
}

/// A parameter of a guest.
macro_rules! vm {
    ($($parameter:tt)+) => { parameter!(DraftVm, Vm, $($parameter)+) };
}

/// A parameter of one workload.
macro_rules! workload {
    ($kind:ident, $slot:ident, $field:ident) => {
        (
            concat!(stringify!($kind), ".", stringify!($field)),
            Target::Vm(|vm| match &mut vm.boot.workload {
                Workload::$kind(parameters) => Some(Slot::$slot(&mut parameters.$field)),
                _ => None,
            }),
        )
    };
}

mod guest;
mod host;
mod interrupts;
mod sched;
mod workload;

use std::sync::LazyLock;

use super::{Key, Target};
use crate::profile::{PCPUS_MAX, PauseDetection};
use crate::slot::{Slot, choices};
use holdfast_machine::Numbering;

/// All keys, in the order in which they are set.
pub static KEYS: LazyLock<Vec<&'static Key>> = LazyLock::new(|| {
    [
        RUN,
        MACHINE,
        host::HOST,
        sched::SCHED,
        host::GUESTS,
        sched::GROUP,
        guest::GUEST,
        interrupts::INTERRUPTS,
        workload::WORKLOAD,
        interrupts::HARDWARE,
        TASK,
        DESTINATION,
    ]
    .into_iter()
    .flatten()
    .collect()
});

/// Returns the key at `path` that sets the parameter, a field with its target.
pub(super) const fn key(path: &'static str, (field, target): (&'static str, Target)) -> Key {
    Key {
        path,
        field,
        note: "",
        unit: "",
        range: (0.0, f64::INFINITY),
        form_of: &[],
        target,
    }
}

impl Key {
    /// Sets the smallest and the largest number.
    const fn range(self, min: f64, max: f64) -> Key {
        let range = (min, max);
        Key { range, ..self }
    }

    /// Sets the unit of a bare number.
    const fn unit(self, unit: &'static str) -> Key {
        Key { unit, ..self }
    }

    /// States the keys of which this one is another form, by their last components.
    const fn form_of(self, form_of: &'static [&'static str]) -> Key {
        Key { form_of, ..self }
    }

    /// Sets what concerns the key only, not the field.
    const fn note(self, note: &'static str) -> Key {
        Key { note, ..self }
    }
}

/// A parameter of the machine's profile.
macro_rules! machine {
    ($($parameter:tt)+) => { parameter!(MachineProfile, Machine, $($parameter)+) };
}

/// A parameter of one vendor's pause detection.
macro_rules! pauses {
    ($vendor:ident, $slot:ident, $field:ident) => {
        (
            concat!(stringify!($vendor), ".", stringify!($field)),
            Target::Machine(|machine| match &mut machine.pauses {
                PauseDetection::$vendor { $field, .. } => Some(Slot::$slot($field)),
                _ => None,
            }),
        )
    };
}

/// A parameter of a host task.
macro_rules! task {
    ($($parameter:tt)+) => { parameter!(HostTask, Task, $($parameter)+) };
}

choices!(Numbering {
    "linux" => Numbering::Linux,
    "siblings-adjacent" => Numbering::SiblingsAdjacent,
    "sockets-alternate" => Numbering::SocketsAlternate,
});

static RUN: &[Key] = &[
    key("limit", parameter!(Draft, Run, Nanos, limit_ns)),
    key(
        "host.migration.every",
        parameter!(Draft, Run, OptionalNanos, migration.every_ns),
    )
    .note("\"auto\" never does. All interrupts are audited: a lost or doubled one fails the run."),
    key(
        "host.migration.downtime",
        parameter!(Draft, Run, OptionalNanos, migration.downtime_ns),
    )
    .note(
        "\"auto\" is 300 ms, as QEMU allows, but at most a tenth of `host.migration.every`. Without \
         `host.migration.bandwidth` the guests' memory is not copied.",
    ),
    key(
        "host.migration.bandwidth",
        parameter!(Draft, Run, OptionalU32, migration.mib_per_second),
    )
    .range(1.0, 1e6)
    .unit("MiB/s"),
    key(
        "host.migration.auto_converge",
        parameter!(Draft, Run, Flag, migration.auto_converge),
    ),
    key(
        "host.migration.rounds",
        parameter!(Draft, Run, OptionalU32, migration.rounds_max),
    )
    .range(1.0, 1e6),
    key(
        "host.migration.mp_state_only",
        parameter!(Draft, Run, Flag, migration.mp_state_only),
    ),
    key("zero_at", parameter!(Draft, Run, OptionalNanos, zero_at_ns)).note(
        "Locks' counters, the histogram of blocked time, lock classes, the guest kernel's events, exits, and the \
         host's counters are zeroed then. Times and lost time are those of the whole run, and a wait counts when it \
         ends.",
    ),
];

static MACHINE: &[Key] = &[
    key(
        "machine.profile",
        ("", Target::Machine(|machine| Some(Slot::Name(&mut machine.name)))),
    )
    .note(
        "Machine profile: a shipped name (`holdfast list`) or a TOML file, relative to the experiment's \
         folder.",
    ),
    key("machine.sockets", machine!(U32, topology.sockets)).range(1.0, PCPUS_MAX as f64),
    key("machine.cores", machine!(U32, topology.cores)).range(1.0, PCPUS_MAX as f64),
    key("machine.threads", machine!(U32, topology.threads)).range(1.0, 8.0),
    key("machine.numbering", machine!(Choice, numbering)).note(
        "With \"linux\" the second threads of all cores follow the first ones: on 2 sockets of 16 cores, 0 and 32 are \
         siblings, and a socket is 0-15,32-47. With \"siblings-adjacent\" 0 and 1 are, and a socket is 0-31. With \
         \"sockets-alternate\" the sockets have even and odd numbers.",
    ),
    key(
        "machine.topology",
        ("", Target::Machine(|machine| Some(Slot::Name(&mut machine.name)))),
    )
    // Its value is that of the keys that it sets.
    .form_of(&[""])
    .note(
        "File with the output of `lscpu -p` or `virsh capabilities`, relative to the experiment's folder. It sets \
         sockets, cores, threads and numbering, which then refine it. Where a socket has several last-level caches, \
         each counts as a socket.",
    ),
    key("machine.cpu", machine!(Choice, cpu)).note("The costs stay the profile's."),
    key("machine.frequency", machine!(Hertz, frequency_hz)),
    key("machine.ple", pauses!(Ple, Flag, enabled)),
    key("machine.ple_gap", pauses!(Ple, Amount, gap)),
    key("machine.ple_window", pauses!(Ple, Amount, window)),
    key("machine.pause_filter", pauses!(Filter, Flag, enabled)),
    key("machine.pause_filter_count", pauses!(Filter, U32, count))
        .range(1.0, 65_535.0)
        .unit("PAUSEs"),
    key("machine.pause_filter_threshold", pauses!(Filter, Amount, threshold)),
    key("machine.costs.*", ("", Target::Cost)).note("One cost of the machine. The list of costs below has the names."),
];

/// Set after the first host's keys, whose values it begins with.
static DESTINATION: &[Key] = &[key("host.migration.to.*", ("", Target::Destination)).note(
    "Live migrations go to another kind of host, and back: there the key `host.KEY` has this value, or `machine.KEY` for \
     cpu, profile, ple, ple_gap, ple_window, pause_filter, pause_filter_count and pause_filter_threshold. All costs and \
     the number of pCPUs stay.",
)];

static TASK: &[Key] = &[
    key("task.*.nice", task!(I8, nice)).range(-20.0, 19.0),
    key("task.*.affinity", task!(Cpus, affinity)),
    key("task.*.parent", task!(Group, group)),
    key("task.*.busy", task!(NanosOrNever, busy_ns)).note("With \"auto\" the task never sleeps."),
    key("task.*.sleep", task!(Nanos, sleep_ns)),
];
