//! The steal governor with preferred CPUs (Hegde, patches of 2025 and 2026, version 14): while more than 5 % of its CPU
//! time is stolen, a guest uses a core less each second, and at 2 % or below a core more.
//!
//! Here a core is a vCPU, and a step leaves out the last of them. CPU 0 stays. The share is that of the preferred CPUs.
//! A task on a CPU that is left out moves at that CPU's next tick. No task of this kernel has an affinity to break.

use core::cell::Cell;

use holdfast_locks::CpuId;

use crate::ids::TaskId;
use crate::policy::{Cpus, GuestPolicy, Placed};

/// The stolen share above which there is a CPU less, and up to which there is one more. Percent.
const HIGH: u64 = 5;
const LOW: u64 = 2;

/// The policy, which looks every `MILLISECONDS`.
#[derive(Debug, Default)]
pub struct StealGovernor<const MILLISECONDS: u64 = 1000> {
    /// The number of CPUs that are left out.
    left_out: Cell<u32>,
    /// When it has looked, and what had been stolen then. Nanoseconds.
    looked_at: Cell<u64>,
    stolen: Cell<u64>,
}

impl<const MILLISECONDS: u64> StealGovernor<MILLISECONDS> {
    fn preferred(&self, cpus: &Cpus<'_>) -> u32 {
        cpus.all().count() as u32 - self.left_out.get()
    }

    fn is_preferred(&self, cpus: &Cpus<'_>, cpu: CpuId) -> bool {
        cpu.0 < self.preferred(cpus)
    }

    /// Returns a CPU for a task that would be on `cpu`.
    fn instead(&self, cpus: &Cpus<'_>, cpu: CpuId) -> Option<CpuId> {
        match self.is_preferred(cpus, cpu) {
            true => None,
            false => cpus.least_loaded(|other| self.is_preferred(cpus, other)),
        }
    }

    fn look(&self, cpus: &Cpus<'_>) {
        let now = cpus.now_ns();
        // The clocks of two CPUs may differ.
        let passed = now.saturating_sub(self.looked_at.get());
        if passed < (MILLISECONDS * 1_000_000).max(1) {
            return;
        }
        let total = cpus.all().map(|cpu| cpus.steal_ns(cpu)).sum::<u64>();
        // A record that is registered again begins at 0.
        let stolen = total.saturating_sub(self.stolen.replace(total));
        self.looked_at.set(now);
        let preferred = self.preferred(cpus);
        let percent = stolen * 100 / (passed * u64::from(preferred));
        let left_out = self.left_out.get();
        if percent > HIGH && preferred > 1 {
            self.left_out.set(left_out + 1);
        } else if percent <= LOW && left_out > 0 {
            self.left_out.set(left_out - 1);
        }
    }
}

impl<const MILLISECONDS: u64> GuestPolicy for StealGovernor<MILLISECONDS> {
    fn about(&self) -> &'static str {
        "uses fewer vCPUs while more than 5 % of their time is stolen (2026)"
    }

    fn place(&self, cpus: &Cpus<'_>, _: Placed, kernel: CpuId) -> CpuId {
        self.instead(cpus, kernel).unwrap_or(kernel)
    }

    fn takes(&self, cpus: &Cpus<'_>, to: CpuId) -> bool {
        self.is_preferred(cpus, to)
    }

    fn tick(&self, cpus: &Cpus<'_>, _: Option<TaskId>) -> Option<CpuId> {
        self.look(cpus);
        self.instead(cpus, cpus.here())
    }
}
