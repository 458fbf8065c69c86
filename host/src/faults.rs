//! Faults that tests plant in a host, so that its properties can catch them.

pub use crate::interrupts::apicv::posting::PostingFaults;
pub use crate::interrupts::avic::handshake::AvicFaults;

/// All planted faults of a host. The default is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Planted {
    /// Faults of AVIC's handshake and tables.
    pub avic: AvicFaults,
    /// Faults of posted interrupts.
    pub posting: PostingFaults,
    /// Faults of pause handling and directed yield.
    pub pause: SpinFaults,
    /// Faults of paravirtual features.
    pub pv: PvFaults,
    /// Faults of VMs that come and go.
    pub plug: PlugFaults,
    /// A thread is not charged for the time that a policy lets it run on.
    pub grace_is_free: bool,
}

/// Faults of VMs that come and go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlugFaults {
    /// A vCPU that leaves keeps its state: LAPIC, timer, pending events, records.
    pub state_stays: bool,
}

/// Faults of pause handling and directed yield.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpinFaults {
    /// Every search starts behind the same vCPU.
    pub last_boosted_stays: bool,
    /// A vCPU in the handler is skipped every time.
    pub eligibility_stays: bool,
    /// The window never shrinks.
    pub window_stays: bool,
    /// A kick of a vCPU to itself yields to itself.
    pub self_kick_yields: bool,
    /// A later thread with the same number is taken for the ended one.
    pub dead_threads_stay: bool,
}

/// Faults of paravirtual features, in the host and in the machine under it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PvFaults {
    /// The bit that requests a TLB flush is dropped.
    pub flush_lost: bool,
    /// The record's state byte is read first and cleared later.
    pub exchange_torn: bool,
    /// An exit leaves the PV EOI bit set.
    pub pv_eoi_stays: bool,
    /// The end of an interrupt is left to the guest although another one is requested.
    pub pv_eoi_hides_next: bool,
    /// An end that the guest left in memory is dropped.
    pub pv_eoi_lost: bool,
    /// IPIs by hypercall start one ID too high.
    pub pv_ipi_shifted: bool,
}
