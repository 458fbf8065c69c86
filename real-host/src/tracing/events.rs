//! The tracepoints that a recording needs.

/// The folder of the kernel's tracing file system.
pub const TRACEFS: &str = "/sys/kernel/tracing";
/// The tracepoints that are recorded.
pub const EVENTS: [&str; 5] = [
    "sched/sched_switch",
    "sched/sched_waking",
    "kvm/kvm_entry",
    "kvm/kvm_exit",
    "kvm/kvm_hypercall",
];
