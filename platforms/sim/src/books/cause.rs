//! Why a vCPU is not doing its own work: the parts of lost time (docs/spec/virtual-time.md, "Lost time").

/// What a stretch of a vCPU's time was spent on. Every picosecond of every vCPU has exactly one cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Cause {
    /// Its own work, user or kernel, outside critical sections.
    Useful,
    /// Its own work inside a critical section.
    CriticalSection,
    /// Spinning for a lock whose holder is running.
    SpinRunningHolder,
    /// Spinning for a lock whose holder, or a vCPU that the holder waits for in turn, has lost its pCPU.
    SpinPreemptedHolder,
    /// Spinning for a free lock whose next owner in line has lost its pCPU, or is halted and not yet back.
    SpinPreemptedWaiter,
    /// Spinning for a lock whose holder, or a vCPU that the holder waits for in turn, is throttled.
    SpinThrottledHolder,
    /// Spinning for a free lock whose next owner in line is throttled.
    SpinThrottledWaiter,
    /// Waiting for the acknowledgement of an IPI by a vCPU that is running.
    IpiRunningTarget,
    /// Waiting for the acknowledgement of an IPI by a vCPU that has lost its pCPU.
    IpiPreemptedTarget,
    /// Halted until a lock's holder kicks it.
    HaltedForLock,
    /// Nothing to do.
    Idle,
    /// Ready to run and preempted: another thread has its pCPU.
    Runnable,
    /// Ready to run and throttled: the quota of its task group is spent.
    Throttled,
    /// Woken or kicked, and waiting for a pCPU.
    WakeLatency,
    /// Waiting for cache lines.
    CacheTransfer,
    /// Taking an interrupt: IDT, saved registers, return.
    InterruptEntry,
    /// LAPIC accesses and IPIs that hardware executes without an exit.
    VirtualApic,
    /// Exit for HLT.
    ExitHlt,
    /// Exit for a hypercall.
    ExitHypercall,
    /// Exit for an MSR.
    ExitMsr,
    /// Exit for CPUID.
    ExitCpuid,
    /// Exit for a LAPIC register, or an IPI that hardware could not deliver.
    ExitApic,
    /// Exit for an I/O port: notification of a device.
    ExitPort,
    /// Exit for a host interrupt: tick, timer, reschedule IPI.
    ExitInterrupt,
    /// Exit for an interrupt window.
    ExitWindow,
    /// Exit for a pause loop.
    ExitPause,
    /// Chosen to run and not yet in the guest: context switch, cold caches, host work on its pCPU.
    HostOverhead,
    /// Powered off.
    Off,
}

impl Cause {
    /// All causes, in the order of their numbers.
    pub const ALL: [Cause; 28] = [
        Cause::Useful,
        Cause::CriticalSection,
        Cause::SpinRunningHolder,
        Cause::SpinPreemptedHolder,
        Cause::SpinPreemptedWaiter,
        Cause::SpinThrottledHolder,
        Cause::SpinThrottledWaiter,
        Cause::IpiRunningTarget,
        Cause::IpiPreemptedTarget,
        Cause::HaltedForLock,
        Cause::Idle,
        Cause::Runnable,
        Cause::Throttled,
        Cause::WakeLatency,
        Cause::CacheTransfer,
        Cause::InterruptEntry,
        Cause::VirtualApic,
        Cause::ExitHlt,
        Cause::ExitHypercall,
        Cause::ExitMsr,
        Cause::ExitCpuid,
        Cause::ExitApic,
        Cause::ExitPort,
        Cause::ExitInterrupt,
        Cause::ExitWindow,
        Cause::ExitPause,
        Cause::HostOverhead,
        Cause::Off,
    ];

    /// The cause's name in the results.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Useful => "useful",
            Cause::CriticalSection => "critical_section",
            Cause::SpinRunningHolder => "spin_running_holder",
            Cause::SpinPreemptedHolder => "spin_preempted_holder",
            Cause::SpinPreemptedWaiter => "spin_preempted_waiter",
            Cause::SpinThrottledHolder => "spin_throttled_holder",
            Cause::SpinThrottledWaiter => "spin_throttled_waiter",
            Cause::IpiRunningTarget => "ipi_running_target",
            Cause::IpiPreemptedTarget => "ipi_preempted_target",
            Cause::HaltedForLock => "halted_for_lock",
            Cause::Idle => "idle",
            Cause::Runnable => "runnable",
            Cause::Throttled => "throttled",
            Cause::WakeLatency => "wake_latency",
            Cause::CacheTransfer => "cache_transfer",
            Cause::InterruptEntry => "interrupt_entry",
            Cause::VirtualApic => "virtual_apic",
            Cause::ExitHlt => "exit_hlt",
            Cause::ExitHypercall => "exit_hypercall",
            Cause::ExitMsr => "exit_msr",
            Cause::ExitCpuid => "exit_cpuid",
            Cause::ExitApic => "exit_apic",
            Cause::ExitPort => "exit_port",
            Cause::ExitInterrupt => "exit_interrupt",
            Cause::ExitWindow => "exit_window",
            Cause::ExitPause => "exit_pause",
            Cause::HostOverhead => "host_overhead",
            Cause::Off => "off",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Cause;

    #[test]
    fn causes_are_listed_in_the_order_of_their_numbers() {
        for (number, cause) in Cause::ALL.into_iter().enumerate() {
            assert_eq!(cause as usize, number);
        }
    }
}
