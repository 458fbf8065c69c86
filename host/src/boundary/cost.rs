//! What the host's work is made of.

/// Host work that takes time, itemized as in docs/spec/host.md, "Exit costs". A machine profile says how much each
/// takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cost {
    /// The in-kernel way out of and back into the guest around every handled exit (software prologue and epilogue).
    ExitSoftware,
    /// HLT handler.
    Hlt,
    /// Hypercall dispatch.
    Hypercall,
    /// CPUID emulation.
    Cpuid,
    /// MSR emulation, and that of CR8, which is one register of the LAPIC, too.
    Msr,
    /// OUT to an I/O port: which device it is for, signalling its eventfd.
    PortWrite,
    /// LAPIC or I/O APIC page access: instruction fetch and decode, register emulation.
    ApicAccess,
    /// Building and delivering one interrupt to one LAPIC.
    ApicDeliver,
    /// Event injection at entry.
    Inject,
    /// Opening an interrupt window.
    InterruptWindow,
    /// Pause-exit handler, for each candidate looked at.
    SpinCandidate,
    /// A host interrupt's handler, without what it does.
    HostInterrupt,
    /// Scheduler tick.
    Tick,
    /// Programming the pCPU's timer.
    TimerProgram,
    /// Sending a reschedule IPI.
    IpiSend,
    /// Waking a thread (try_to_wake_up).
    Wake,
    /// Picking the next thread and switching to it, direct cost.
    ContextSwitch,
    /// One pass of load balancing.
    Balance,
    /// Loading or putting a vCPU (preempt notifiers).
    VcpuLoad,
    /// Updating the steal-time record.
    StealTime,
    /// Writing or reading the word for ends of interrupts without exit.
    PvEoi,
    /// Leaving the idle state.
    IdleExit,
    /// The way to the VMM's process and back, beyond what every exit takes.
    UserspaceExit,
    /// Ringing an AVIC doorbell.
    Doorbell,
    /// Handler of an AVIC exit, without what it sends or emulates.
    AvicExit,
    /// Handler of an exit of APIC virtualization, without what it sends or emulates.
    ApicvExit,
}
