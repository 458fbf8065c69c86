//! Why a vCPU left its guest, and what interrupts a pCPU.

use holdfast_abi::avic::{IncompleteIpi, Unaccelerated};

#[cfg(doc)]
use super::{Command, Event, Run};

/// What the exit information says of the guest. The default is what INIT leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct GuestState {
    /// RFLAGS.IF.
    pub interrupts_enabled: bool,
    /// Current privilege level, 0-3.
    pub cpl: u8,
    /// CR8, bits 3:0 (SVM's V_TPR): what [`Command::SetCr8`] has set and the guest has not changed since.
    pub cr8: u8,
    /// The injected vector whose delivery this exit interrupted (SVM's EXITINTINFO): it is injected again.
    pub undelivered: Option<u8>,
    /// Bit 0 of the byte that [`Command::PvEoi`] has set for this stay in guest mode: the exit tests and clears it in
    /// one step. Without that command it is not looked at.
    pub pv_eoi: bool,
}

/// Why a vCPU left guest mode. Operands are the guest's: any value can come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Exit {
    /// A host interrupt is pending on this pCPU.
    ExternalInterrupt(HostInterrupt),
    /// HLT.
    Hlt,
    /// VMCALL or VMMCALL: number and four arguments. Answered by [`Command::Reply`].
    Hypercall {
        /// RAX.
        number: u64,
        /// RBX, RCX, RDX, RSI.
        arguments: [u64; 4],
    },
    /// CPUID; answered by [`Command::ReplyCpuid`].
    Cpuid {
        /// EAX.
        leaf: u32,
    },
    /// RDMSR; answered by [`Command::Reply`], or a fault.
    ReadMsr {
        /// ECX.
        msr: u32,
    },
    /// WRMSR.
    WriteMsr {
        /// ECX.
        msr: u32,
        /// EDX:EAX.
        value: u64,
    },
    /// A store to the emulated LAPIC's page.
    ApicWrite {
        /// Offset in the page.
        offset: u32,
        /// The 32 bits stored.
        value: u32,
    },
    /// A load from that page; answered by [`Command::Reply`].
    ApicRead {
        /// Offset in the page.
        offset: u32,
    },
    /// A store to an address where no memory is, and no page of the emulated LAPIC: the I/O APIC's registers, or
    /// nothing.
    MmioWrite {
        /// Guest-physical address.
        address: u64,
        /// The bytes stored, zero-extended.
        value: u64,
        /// How many: 1, 2, 4 or 8.
        bytes: u8,
    },
    /// A load from such an address; answered by [`Command::Reply`].
    MmioRead {
        /// Guest-physical address.
        address: u64,
        /// How many bytes: 1, 2, 4 or 8.
        bytes: u8,
    },
    /// AVIC: hardware could not deliver an IPI to all its targets (exit 0x401).
    AvicIncompleteIpi(IncompleteIpi),
    /// AVIC: an access to a register that hardware does not do alone (exit 0x402); reads are answered by
    /// [`Command::Reply`].
    AvicNoAccel {
        /// What the control block says.
        exit: Unaccelerated,
        /// Where in the page the instruction accesses, as its decoding has it: the control block names the register
        /// alone.
        offset: u32,
        /// What the instruction stores.
        value: u32,
    },
    /// APICv: a write to the register at this offset is stored, and its effect is the host's (exit reason 56).
    ApicvWrite {
        /// Offset in the page.
        offset: u32,
        /// The 32 bits stored.
        value: u32,
    },
    /// APICv: a level-triggered interrupt has ended (exit reason 45).
    ApicvEoi {
        /// Its vector.
        vector: u8,
    },
    /// OUT to an I/O port. Where a device's doorbell is (ioeventfd), it wakes the device's thread; elsewhere nothing
    /// happens.
    PortWrite {
        /// The port.
        port: u16,
        /// What is written, zero-extended.
        value: u32,
    },
    /// The guest can take interrupts again, and the host asked to be told ([`Run::Guest`]'s `window`).
    InterruptWindow,
    /// A write to CR8, while [`Command::InterceptCr8`] asks for it.
    WriteCr8 {
        /// The value; bits 3:0 count.
        value: u64,
    },
    /// IRET, while a non-maskable interrupt that was injected had not ended: it has now.
    Iret,
    /// What only the VMM's user space can deal with, such as an access to a device that it emulates. The vCPU's thread
    /// returns from `KVM_RUN` and is a task like any other, until one says [`Event::VcpuRuns`].
    Userspace,
    /// Pause-loop exiting: PAUSE after PAUSE for longer than the window.
    Pause,
    /// The guest begins (VMRUN), or ends, to run a guest of its own.
    Nested {
        /// Whether it runs one from now on.
        runs: bool,
    },
    /// The vCPU is done forever: powered off, or crashed.
    Shutdown,
}

/// What can interrupt a pCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HostInterrupt {
    /// The pCPU's timer, as last set by [`Command::Timer`].
    Timer,
    /// Another pCPU sent a reschedule IPI ([`Command::Ipi`]).
    Reschedule,
    /// A call from another CPU of the kernel that runs beside the guests; its own handler has dealt with it, and the
    /// host only hears that the interrupt came.
    Call,
    /// A device's interrupt, with this vector of the host's.
    Device(u8),
    /// The IOMMU's, for its guest APIC log.
    GaLog,
    /// The wakeup vector of posted interrupts: something was posted for a vCPU that sleeps on this pCPU's list.
    PostedWakeup,
}
