//! Reasons of exits from guest mode, and kinds of host interrupts.

use holdfast_abi::avic::{IncompleteIpi, Unaccelerated};

#[cfg(doc)]
use super::{Command, Event, Run};

/// The state of the guest in the exit information. The default is the state after INIT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct GuestState {
    /// Interrupt flag (RFLAGS.IF).
    pub interrupts_enabled: bool,
    /// Current privilege level, 0-3.
    pub cpl: u8,
    /// CR8, bits 3:0 (SVM's V_TPR): the value of the last [`Command::SetCr8`], unless the guest changed it since.
    pub cr8: u8,
    /// The injected vector whose delivery this exit interrupted (SVM's EXITINTINFO). It is injected again.
    pub undelivered: Option<u8>,
    /// Bit 0 of the byte that [`Command::PvEoi`] set before this entry. The exit tests and clears it atomically.
    /// Ignored if there was no such command.
    pub pv_eoi: bool,
    /// The guest's word ([`StealTime::word`](holdfast_abi::StealTime)) in the record that [`Command::StealTime`] named
    /// last. 0 if there was no such command.
    pub word: u32,
}

/// Why a vCPU left guest mode. The guest chooses the operands: any value can come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Exit {
    /// A host interrupt is pending on this pCPU.
    ExternalInterrupt(HostInterrupt),
    /// The guest executed HLT.
    Hlt,
    /// VMCALL or VMMCALL, with its number and four arguments. Answered by [`Command::Reply`].
    Hypercall {
        /// The register RAX.
        number: u64,
        /// RBX, RCX, RDX, RSI.
        arguments: [u64; 4],
    },
    /// CPUID. Answered by [`Command::ReplyCpuid`].
    Cpuid {
        /// The register EAX.
        leaf: u32,
    },
    /// EPT violation or nested page fault: the guest touches memory for which the host has no page yet.
    NestedFault,
    /// EPT violation or nested page fault: the guest writes to a page that the host has write-protected.
    WriteFault,
    /// The CPU's log of written pages is full (Intel's PML), with so many entries.
    PageLogFull {
        /// Number of entries.
        entries: u32,
    },
    /// RDMSR. Answered by [`Command::Reply`] or [`Command::Fault`].
    ReadMsr {
        /// The register ECX.
        msr: u32,
    },
    /// The guest executed WRMSR.
    WriteMsr {
        /// The register ECX.
        msr: u32,
        /// The registers EDX:EAX.
        value: u64,
    },
    /// A store to the emulated LAPIC's page.
    ApicWrite {
        /// Offset in the page.
        offset: u32,
        /// The 32 bits stored.
        value: u32,
    },
    /// A load from the emulated LAPIC's page. Answered by [`Command::Reply`].
    ApicRead {
        /// Offset in the page.
        offset: u32,
    },
    /// AVIC: hardware could not deliver an IPI to all its targets (exit 0x401).
    AvicIncompleteIpi(IncompleteIpi),
    /// AVIC: an access to a register that hardware does not handle alone (exit 0x402). Reads are answered by
    /// [`Command::Reply`].
    AvicNoAccel {
        /// The exit information of the control block.
        exit: Unaccelerated,
        /// The offset in the page that the decoded instruction accesses. The control block names only the register.
        offset: u32,
        /// The value that the instruction stores.
        value: u32,
    },
    /// APICv: hardware stored a write to the register at this offset, and the host carries out its effect (exit reason
    /// 56).
    ApicvWrite {
        /// Offset in the page.
        offset: u32,
        /// The 32 bits stored.
        value: u32,
    },
    /// OUT to an I/O port. If a device's doorbell is there (ioeventfd), it wakes the device's thread. Otherwise it has
    /// no effect.
    PortWrite {
        /// The port number.
        port: u16,
        /// The value written, zero-extended.
        value: u32,
    },
    /// The guest can take interrupts again, and the host asked for this exit ([`Run::Guest`]'s `window`).
    InterruptWindow,
    /// A write to CR8, while [`Command::InterceptCr8`] asks for it.
    WriteCr8 {
        /// The value; only bits 3:0 have a meaning.
        value: u64,
    },
    /// IRET, which ends the handling of an injected non-maskable interrupt.
    Iret,
    /// An exit that only the VMM's user space can handle, such as an access to a device that it emulates. The vCPU's
    /// thread returns from `KVM_RUN` and is a task like any other, until a thread reports
    /// [`RunsVcpu`](crate::TaskEvent::RunsVcpu).
    Userspace,
    /// Pause-loop exiting: PAUSE instructions in a loop for longer than the window.
    Pause,
    /// VMRUN (Intel: VMLAUNCH and VMRESUME): the guest is a hypervisor, and enters a guest of its own. Until
    /// [`Command::LeaveNested`] all exits of the vCPU are those of that guest. Answered by [`Command::InvalidOpcode`]
    /// if the VM is not offered [`nested`](crate::VmConfig::nested) guests.
    Vmrun,
    /// The vCPU is powered off or has crashed, and does not run again.
    Shutdown,
}

/// An interrupt of a pCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HostInterrupt {
    /// The pCPU's timer, as last set by [`Command::Timer`].
    Timer,
    /// Another pCPU sent a reschedule IPI ([`Command::Ipi`]).
    Reschedule,
    /// A call from another CPU of a kernel that runs next to the guests. Its own handler has handled it. The host only
    /// accounts for the interrupt.
    Call,
    /// The interrupt of a device, with this host vector.
    Device(u8),
    /// The interrupt of the IOMMU's guest APIC log.
    GaLog,
    /// The wakeup vector of posted interrupts: an interrupt was posted for a vCPU that sleeps on this pCPU's list.
    PostedWakeup,
}
