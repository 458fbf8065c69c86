//! Counters: the engine's own work, and what APIC hardware and the IOMMU did for a guest.

use holdfast_machine::iommu::{Delivery, Notice};

/// Counts of the engine's own work.
#[derive(Clone, Copy, Debug, Default)]
pub struct EngineStats {
    /// Ordered memory operations.
    pub operations: u64,
    /// Switches between flows.
    pub switches: u64,
    /// Skipped spins.
    pub parks: u64,
    /// Events that the loop played.
    pub events: u64,
    /// Steps of the host.
    pub host_steps: u64,
    /// Lock acquisitions that guests announced.
    pub acquisitions: u64,
}

impl EngineStats {
    /// Names and values.
    pub fn counters(&self) -> [(&'static str, u64); 6] {
        [
            ("operations", self.operations),
            ("switches", self.switches),
            ("parks", self.parks),
            ("events", self.events),
            ("host_steps", self.host_steps),
            ("acquisitions", self.acquisitions),
        ]
    }
}

/// What AVIC or APICv did for a guest.
#[derive(Clone, Copy, Debug, Default)]
pub struct ApicCounts {
    /// Register accesses without an exit.
    pub accesses: u64,
    /// IPIs sent, with and without an exit (AVIC).
    pub ipis: u64,
    /// IPIs sent without an exit.
    pub ipis_without_exit: u64,
    /// Interrupts taken without the host.
    pub interrupts: u64,
    /// Doorbells or notifications that hardware sent.
    pub signals: u64,
    /// Doorbells, from hardware or software, that found their pCPU out of guest mode.
    pub doorbells_missed: u64,
    /// HLTs without an exit, since an interrupt was pending.
    pub halts_skipped: u64,
    /// Notifications taken in guest mode.
    pub notified: u64,
}

impl ApicCounts {
    /// Names and values for a guest with AVIC.
    pub fn of_avic(&self) -> [(&'static str, u64); 7] {
        [
            ("avic_accesses", self.accesses),
            ("avic_ipis", self.ipis),
            ("avic_ipis_without_exit", self.ipis_without_exit),
            ("avic_interrupts", self.interrupts),
            ("avic_doorbells_by_hardware", self.signals),
            ("avic_doorbells_in_vain", self.doorbells_missed),
            ("avic_halts_without_exit", self.halts_skipped),
        ]
    }

    /// Names and values for a guest with APICv.
    pub fn of_apicv(&self) -> [(&'static str, u64); 5] {
        [
            ("apicv_accesses", self.accesses),
            ("apicv_ipis_without_exit", self.ipis_without_exit),
            ("apicv_interrupts", self.interrupts),
            ("apicv_notifications_by_hardware", self.signals),
            ("apicv_notified_in_guest", self.notified),
        ]
    }
}

/// What the IOMMU did with the interrupts of a guest's devices.
#[derive(Clone, Copy, Debug, Default)]
pub struct IommuCounts {
    /// Interrupts delivered through the host.
    by_host: u64,
    /// Interrupts put into a guest's page.
    posted: u64,
    /// Of these, interrupts for which it rang a doorbell.
    doorbells: u64,
    /// Of these, interrupts that it logged.
    logged: u64,
}

impl IommuCounts {
    /// Counts `delivery`.
    pub fn delivered(&mut self, delivery: &Delivery) {
        match delivery {
            Delivery::Blocked => {}
            Delivery::Host { .. } => self.by_host += 1,
            Delivery::Guest { notice, .. } => {
                self.posted += 1;
                match notice {
                    Notice::Doorbell(_) => self.doorbells += 1,
                    Notice::Log { .. } => self.logged += 1,
                    Notice::None => {}
                }
            }
        }
    }

    /// Names and values.
    pub fn counters(&self) -> [(&'static str, u64); 4] {
        [
            ("iommu_by_host", self.by_host),
            ("iommu_posted", self.posted),
            ("iommu_doorbells", self.doorbells),
            ("iommu_logged", self.logged),
        ]
    }
}
