//! Statistics, by KVM's own names where KVM has them.

use crate::interrupts::lapic::Origin;

/// Defines the counters of a vCPU: one field and one published name each.
macro_rules! counters {
    ($($(#[doc = $doc:literal])* $name:ident,)*) => {
        /// The counters of one vCPU.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub(crate) struct Counters {
            $($(#[doc = $doc])* pub(crate) $name: u64,)*
        }

        impl Counters {
            /// Adds the counters of `other`.
            pub(crate) fn add(&mut self, other: &Counters) {
                $(self.$name += other.$name;)*
            }

            /// Returns the names and values of all counters.
            pub(crate) fn all(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Exits from guest mode, for any reason.
    exits,
    /// Entries of `KVM_RUN` by another thread than the last one (not in KVM).
    thread_changes,
    /// Exits by HLT.
    halt_exits,
    /// Wakeups of the sleeping thread.
    halt_wakeup,
    /// Halts that polled.
    halt_attempted_poll,
    /// Halts whose polling saw the wakeup.
    halt_successful_poll,
    /// Nanoseconds of successful polling.
    halt_poll_success_ns,
    /// Nanoseconds of polling that saw no wakeup.
    halt_poll_fail_ns,
    /// Nanoseconds asleep in halts.
    halt_wait_ns,
    /// Hypercalls made.
    hypercalls,
    /// Exits by a host interrupt.
    irq_exits,
    /// Interrupts injected.
    irq_injections,
    /// Exits by an open interrupt window.
    irq_window,
    /// Entries of the guest's own guests.
    nested_run,
    /// Requests to evaluate pending interrupts before the next entry.
    req_event,
    /// Exits for I/O ports (KVM: `io_exits`).
    io_exits,
    /// LAPIC accesses and other instructions emulated.
    insn_emulation,
    /// Exits by a pause loop (KVM counts them in tracepoints only).
    pause_exits,
    /// Pause exits after which the window was larger (a tracepoint in KVM).
    pause_window_grown,
    /// Waits for a pCPU after which the window was smaller (not in KVM).
    pause_window_shrunk,
    /// Sum of the windows at pause exits, in cycles or PAUSEs as the CPU counts (not in KVM).
    pause_window_sum,
    /// vCPUs examined by pause exits (not in KVM).
    directed_yield_looks,
    /// Directed yields tried.
    directed_yield_attempted,
    /// Directed yields done.
    directed_yield_successful,
    /// Directed yields done to a thread that was preempted in the VMM's user space (not in KVM).
    directed_yield_userspace,
    /// Nanoseconds of stolen time that the steal-time records have reported (not in KVM).
    steal_ns,
    /// Preemptions of the thread that the guest could see in its steal-time record.
    preemption_reported,
    /// Preemptions of the thread that the guest could not see.
    preemption_other,
    /// Kick hypercalls made (not in KVM).
    kicks_sent,
    /// Kicks received (not in KVM).
    kicks_received,
    /// Interrupt commands of the LAPIC (not in KVM).
    ipis_sent,
    /// vCPUs that accepted an IPI sent by hypercall (not in KVM).
    pv_ipis_sent,
    /// Interrupts whose end the guest left in memory (a tracepoint in KVM).
    pv_eoi,
    /// Expiries of the LAPIC timer (not in KVM).
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
    /// Accesses to LAPIC registers that AVIC does not handle alone.
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
    /// Changes of the set of inhibit reasons.
    apicv_inhibit_changed,
    /// Times that a debugger became a reason against AVIC and APICv. For this counter and the next ones, KVM has the
    /// tracepoint `kvm_apicv_inhibit_changed`.
    inhibited_block_irq,
    /// Times that equal APIC IDs did.
    inhibited_physical_id_aliased,
    /// Times that a changed APIC ID did.
    inhibited_apic_id_modified,
    /// Times that a moved LAPIC did.
    inhibited_apic_base_modified,
    /// Times that logical APIC IDs did.
    inhibited_logical_id_aliased,
    /// Times that x2APIC mode did.
    inhibited_x2apic,
    /// Interrupts with a vector that reached the LAPIC from outside (tracepoint `kvm_apic_accept_irq`).
    apic_accept_irq,
    /// Those that came as MSIs (tracepoint `kvm_msi_set_irq`).
    msi_set_irq,
    /// Non-maskable interrupts injected.
    nmi_injections,
    /// INITs taken (not in KVM).
    init_received,
    /// Round trips to the VMM's process (tracepoint `kvm_userspace_exit`).
    userspace_exits,
    /// Interrupts ended (tracepoint `kvm_eoi`).
    eoi,
}

impl Counters {
    /// Counts an interrupt with a vector that `origin` gave to the LAPIC.
    pub(crate) fn count_accepted(&mut self, origin: Origin) {
        self.apic_accept_irq += 1;
        self.msi_set_irq += u64::from(origin == Origin::Msi);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_accepted_interrupt_counts_once_and_by_its_origin() {
        let mut counters = Counters::default();
        let origins = [Origin::Vcpu(0), Origin::Msi, Origin::Vcpu(0)];
        let expected = [(1, 0), (2, 1), (3, 1)];
        for (origin, expected) in origins.into_iter().zip(expected) {
            counters.count_accepted(origin);
            let found = (counters.apic_accept_irq, counters.msi_set_irq);
            assert_eq!(found, expected, "{origin:?}");
        }
    }
}
