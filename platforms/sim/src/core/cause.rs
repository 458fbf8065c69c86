//! Why a vCPU is not doing its own work: the parts of lost time (docs/spec/virtual-time.md, "Lost time").

/// Declares the causes, each with its name in the results.
macro_rules! causes {
    ($($(#[$doc:meta])* $cause:ident => $name:literal,)+) => {
        /// What a stretch of a vCPU's time was spent on. Every picosecond of every vCPU has exactly one cause.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Cause {
            $($(#[$doc])* $cause,)+
        }

        impl Cause {
            /// All causes, in the order of their numbers.
            pub const ALL: [Cause; [$($name),+].len()] = [$(Cause::$cause),+];

            /// The cause's name in the results.
            pub fn name(self) -> &'static str {
                [$($name),+][self as usize]
            }
        }
    };
}

causes! {
    /// Its own work, user or kernel, outside critical sections.
    Useful => "useful",
    /// Its own work inside a critical section.
    CriticalSection => "critical_section",
    /// Spinning for a lock whose holder is running.
    SpinRunningHolder => "spin_running_holder",
    /// Spinning for a lock whose holder, or a vCPU that the holder waits for in turn, has lost its pCPU.
    SpinPreemptedHolder => "spin_preempted_holder",
    /// Spinning for a free lock whose next owner in line has lost its pCPU, or is halted and not yet back.
    SpinPreemptedWaiter => "spin_preempted_waiter",
    /// Spinning for a lock whose holder, or a vCPU that the holder waits for in turn, is throttled.
    SpinThrottledHolder => "spin_throttled_holder",
    /// Spinning for a free lock whose next owner in line is throttled.
    SpinThrottledWaiter => "spin_throttled_waiter",
    /// Waiting for the acknowledgement of an IPI by a vCPU that is running.
    IpiRunningTarget => "ipi_running_target",
    /// Waiting for the acknowledgement of an IPI by a vCPU that has lost its pCPU.
    IpiPreemptedTarget => "ipi_preempted_target",
    /// Halted until a lock's holder kicks it.
    HaltedForLock => "halted_for_lock",
    /// Nothing to do.
    Idle => "idle",
    /// Ready to run and preempted: another thread has its pCPU.
    Runnable => "runnable",
    /// Ready to run and throttled: the quota of its task group is spent.
    Throttled => "throttled",
    /// Woken or kicked, and waiting for a pCPU.
    WakeLatency => "wake_latency",
    /// Waiting for cache lines.
    CacheTransfer => "cache_transfer",
    /// Taking an interrupt: IDT, saved registers, return.
    InterruptEntry => "interrupt_entry",
    /// LAPIC accesses and IPIs that hardware executes without an exit.
    VirtualApic => "virtual_apic",
    /// Exit for HLT.
    ExitHlt => "exit_hlt",
    /// Exit for a hypercall.
    ExitHypercall => "exit_hypercall",
    /// Exit for an MSR.
    ExitMsr => "exit_msr",
    /// Exit for CPUID.
    ExitCpuid => "exit_cpuid",
    /// Exit for a LAPIC register, or an IPI that hardware could not deliver.
    ExitApic => "exit_apic",
    /// Exit for an I/O port: notification of a device.
    ExitPort => "exit_port",
    /// Exit for a host interrupt: tick, timer, reschedule IPI.
    ExitInterrupt => "exit_interrupt",
    /// Exit for an interrupt window.
    ExitWindow => "exit_window",
    /// Exit for a pause loop.
    ExitPause => "exit_pause",
    /// Chosen to run and not yet in the guest: context switch, host work on its pCPU.
    HostOverhead => "host_overhead",
    /// Powered off.
    Off => "off",
    /// Exit for a nested page fault: first touch of a page, or a write that a migration must know of.
    ExitNestedFault => "exit_nested_fault",
    /// Executing a guest of its own, whose vCPU's time has causes of its own.
    NestedGuest => "nested_guest",
    /// Exit to enter a guest of its own, or of that guest.
    ExitNested => "exit_nested",
    /// Its own work takes longer, since the other threads of its core compute or pause too.
    SharedCore => "shared_core",
    /// Its user code takes longer, since its memory is on another node.
    RemoteMemory => "remote_memory",
    /// Chosen to run: fetching cache lines again that other threads displaced, or that are on another pCPU.
    ColdCaches => "cold_caches",
    /// Stopped for a live migration.
    MigrationStop => "migration_stop",
    /// Made to sleep by the VMM, so that a live migration converges.
    MigrationThrottle => "migration_throttle",
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
