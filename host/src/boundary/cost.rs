//! Kinds of host work that take time.

/// A kind of host work, itemized as in docs/spec/host.md, "Exit costs". A machine profile gives the time of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cost {
    /// The software path out of the guest and back around every handled exit (prologue and epilogue).
    ExitSoftware,
    /// The handler of HLT.
    Hlt,
    /// Dispatch of a hypercall.
    Hypercall,
    /// Emulation of CPUID.
    Cpuid,
    /// Emulation of an MSR, or of CR8, which is a LAPIC register too.
    Msr,
    /// OUT to an I/O port: finding the device and signaling its eventfd.
    PortWrite,
    /// LAPIC page access: instruction fetch and decode, register emulation.
    ApicAccess,
    /// Building and delivering one interrupt to one LAPIC.
    ApicDeliver,
    /// Event injection at entry.
    Inject,
    /// Opening an interrupt window.
    InterruptWindow,
    /// The handler of a pause exit, for each candidate it examines.
    SpinCandidate,
    /// The handler of a host interrupt, without the work it triggers.
    HostInterrupt,
    /// A scheduler tick.
    Tick,
    /// Programming the timer of the pCPU.
    TimerProgram,
    /// Sending a reschedule IPI.
    IpiSend,
    /// Waking a thread (`try_to_wake_up`).
    Wake,
    /// Picking the next thread and switching to it. Direct cost only.
    ContextSwitch,
    /// One pass of load balancing.
    Balance,
    /// Loading or putting a vCPU (preempt notifiers).
    VcpuLoad,
    /// Updating the steal-time record.
    StealTime,
    /// Writing or reading the PV EOI word.
    PvEoi,
    /// Giving the guest a page at a nested page fault.
    NestedFault,
    /// Emulation of VMRUN: checking the guest hypervisor's control block and merging it with the host's.
    NestedEntry,
    /// Reflecting an exit of a nested guest to the guest's hypervisor.
    NestedExit,
    /// Recording one page that the CPU has logged as written.
    LoggedPage,
    /// Leaving the idle state.
    IdleExit,
    /// The way to the VMM's process and back, in addition to the exit itself.
    UserspaceExit,
    /// Ringing an AVIC doorbell.
    Doorbell,
    /// The handler of an AVIC exit, without what it sends or emulates.
    AvicExit,
    /// The handler of an APICv exit, without what it sends or emulates.
    ApicvExit,
}
