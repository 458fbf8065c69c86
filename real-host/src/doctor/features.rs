//! Paravirtual features of KVM, and what their absence costs.

/// PV features that matter to guests that share CPUs: bit, name, consequence if it is missing
/// (Documentation/virt/kvm/x86/cpuid.rst).
pub(super) const FEATURES: [(u32, &str, &str); 6] = [
    (
        5,
        "STEAL_TIME",
        "guests do not know which of their vCPUs are preempted, nor how much time they lost",
    ),
    (
        7,
        "PV_UNHALT",
        "no halting and kicking for locks: Linux guests fall back to test-and-set",
    ),
    (
        6,
        "PV_EOI",
        "each end of interrupt takes an exit, unless AVIC or APICv is on",
    ),
    (9, "PV_TLB_FLUSH", "a TLB shootdown waits for preempted vCPUs"),
    (
        11,
        "PV_SEND_IPI",
        "an IPI to several vCPUs takes one exit for each target",
    ),
    (
        13,
        "PV_SCHED_YIELD",
        "a vCPU that waits for an IPI acknowledgement cannot yield to the target",
    ),
];
