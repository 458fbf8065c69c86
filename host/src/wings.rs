//! The state of the wings, and what all of them work on.
//!
//! - **State by wing**: [`Guests`] is the vCPU wing's, [`Threads`] the scheduler's, [`Apics`] the interrupt wing's.
//! - **What a function may reach** stands in its arguments: `&mut Wings` if it goes from wing to wing, otherwise the
//!   vCPU or the table that it changes. What the pCPUs do is [`Host`](crate::Host)'s: functions of wings return what
//!   shall follow, and it carries that out.

use alloc::vec::Vec;

use crate::boundary::{PcpuId, VcpuId};
use crate::config::HostConfig;
use crate::guests::Guests;
use crate::ids::IdVec;
use crate::interrupts::avic::Iommu;
use crate::interrupts::lapic::TimerBase;
use crate::interrupts::memory::HostMemory;
use crate::linux::Linux;
use crate::threads::Threads;

/// The state of all wings.
#[derive(Clone, Debug)]
pub(crate) struct Wings {
    pub(crate) config: HostConfig,
    /// VMs and vCPUs.
    pub(crate) guests: Guests,
    /// Threads, the scheduler, and timers.
    pub(crate) threads: Threads,
    pub(crate) apics: Apics,
}

/// What only interrupts need, of the whole host.
#[derive(Clone, Debug)]
pub(crate) struct Apics {
    /// Units of the LAPIC timer.
    pub(crate) timer_base: TimerBase,
    /// For each pCPU the vCPUs that went to sleep there and are woken by the wakeup vector of posted interrupts.
    pub(crate) posted_sleepers: IdVec<PcpuId, Vec<VcpuId>>,
    pub(crate) iommu: Iommu,
}

impl Wings {
    pub(crate) fn new(config: &HostConfig, threads: Threads) -> Wings {
        Wings {
            guests: Guests {
                planted: config.planted,
                reports_yields: config.policy.make().is_some_and(|policy| policy.reports_yields()),
                reports_all_leaves: config.kernel < Linux::V6_1,
                ..Guests::default()
            },
            apics: Apics {
                timer_base: TimerBase {
                    tsc_hz: config.tsc_hz,
                    min_period_ns: config.min_timer_period_ns,
                },
                posted_sleepers: IdVec::filled(Vec::new(), threads.sched.pcpus() as usize),
                iommu: Iommu::default(),
            },
            config: config.clone(),
            threads,
        }
    }

    /// Returns host-physical memory as interrupt hardware sees it.
    #[inline]
    pub(crate) fn memory(&self) -> HostMemory<'_> {
        HostMemory {
            guests: &self.guests,
            iommu: &self.apics.iommu,
        }
    }
}
