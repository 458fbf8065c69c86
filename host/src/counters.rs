//! Statistics, by KVM's own names where KVM has them.

use crate::interrupts::lapic::Origin;

/// Defines the counters of a vCPU: one field and one published name each.
macro_rules! counters {
    ($($(#[doc = $doc:literal])* $name:ident,)*) => {
        /// What happened to one vCPU.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub(crate) struct Counters {
            $($(#[doc = $doc])* pub(crate) $name: u64,)*
        }

        impl Counters {
            /// Adds `other`.
            pub(crate) fn add(&mut self, other: &Counters) {
                $(self.$name += other.$name;)*
            }

            /// Names and values.
            pub(crate) fn all(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Exits from guest mode, for whatever reason.
    exits,
    /// Entries of `KVM_RUN` by another thread than the last (ours).
    thread_changes,
    /// HLT exits.
    halt_exits,
    /// Wakeups of the sleeping thread.
    halt_wakeup,
    /// Halts that polled.
    halt_attempted_poll,
    /// Halts whose polling saw the wakeup.
    halt_successful_poll,
    /// Nanoseconds of successful polling.
    halt_poll_success_ns,
    /// Nanoseconds of polling in vain.
    halt_poll_fail_ns,
    /// Nanoseconds asleep in halts.
    halt_wait_ns,
    /// Hypercalls.
    hypercalls,
    /// Exits by a host interrupt.
    irq_exits,
    /// Interrupts injected.
    irq_injections,
    /// Exits by an open interrupt window.
    irq_window,
    /// Requests to look for an interrupt to inject.
    req_event,
    /// Exits for I/O ports (KVM: `io_exits`).
    io_exits,
    /// LAPIC accesses and other instructions emulated.
    insn_emulation,
    /// Exits by a pause loop (ours: KVM counts them in tracepoints only).
    pause_exits,
    /// The window was larger after a pause exit (ours: KVM has a tracepoint).
    pause_window_grown,
    /// The window was smaller after waiting for a pCPU (ours).
    pause_window_shrunk,
    /// Windows at pause exits, summed: cycles or PAUSEs, as the part counts (ours).
    pause_window_sum,
    /// vCPUs looked at by pause exits (ours).
    directed_yield_looks,
    /// Directed yields tried.
    directed_yield_attempted,
    /// Directed yields done.
    directed_yield_successful,
    /// Directed yields done that moved virtual times too (ours).
    directed_yield_favored,
    /// The thread lost its pCPU although it could have gone on, and the guest was told.
    preemption_reported,
    /// The same, without the guest being told.
    preemption_other,
    /// Kick hypercalls made (ours).
    kicks_sent,
    /// Kicks taken (ours).
    kicks_received,
    /// Interrupt commands of the LAPIC (ours).
    ipis_sent,
    /// IPIs by hypercall: vCPUs that have taken one (ours).
    pv_ipis_sent,
    /// Interrupts whose end the guest left in memory (ours: KVM has a tracepoint).
    pv_eoi,
    /// Expiries of the LAPIC timer (ours).
    apic_timer,
    /// IPIs that AVIC left to software: not fixed and edge-triggered.
    avic_incomplete_ipi_0,
    /// IPIs for which AVIC found a target that does not run.
    avic_incomplete_ipi_1,
    /// IPIs for which AVIC found no target.
    avic_incomplete_ipi_2,
    /// IPIs for which AVIC found a bad backing page.
    avic_incomplete_ipi_3,
    /// IPIs with a vector below 16 under AVIC.
    avic_incomplete_ipi_4,
    /// Accesses to LAPIC registers that AVIC does not do alone.
    avic_unaccelerated_access,
    /// Searches for targets of an IPI that do not run.
    avic_kick_vcpu_slowpath,
    /// Doorbells rung by software for this vCPU.
    avic_doorbell,
    /// Entries of the IOMMU's log that were about this vCPU.
    avic_ga_log,
    /// Notifications of posted interrupts that software has sent to this vCPU in guest mode.
    posted_notifications,
    /// Times that the wakeup vector has woken this vCPU.
    posted_wakeups,
    /// Writes to LAPIC registers that APICv left to software.
    apicv_write,
    /// Ends of level-triggered interrupts under APICv.
    apicv_eoi,
    /// Changes of what inhibits AVIC.
    apicv_inhibit_changed,
    /// Interrupts with a vector given to the LAPIC from elsewhere (ours: KVM has the tracepoint `kvm_apic_accept_irq`).
    apic_accept_irq,
    /// Those of them that came as MSIs (tracepoint `kvm_msi_set_irq`).
    msi_set_irq,
    /// Those of them that came from the I/O APIC (tracepoint `kvm_ioapic_set_irq`).
    ioapic_set_irq,
    /// Non-maskable interrupts injected.
    nmi_injections,
    /// INITs taken (ours).
    init_received,
    /// Ways to the VMM's process and back (tracepoint `kvm_userspace_exit`).
    userspace_exits,
    /// Interrupts ended (tracepoint `kvm_eoi`).
    eoi,
}

impl Counters {
    /// The LAPIC was given an interrupt with a vector by `origin`.
    pub(crate) fn count_accepted(&mut self, origin: Origin) {
        self.apic_accept_irq += 1;
        self.msi_set_irq += u64::from(origin == Origin::Msi);
        self.ioapic_set_irq += u64::from(origin == Origin::Pin);
    }
}
