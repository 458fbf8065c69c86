//! What a version of Linux implies for a guest: its kernel's parameters, and the features that it uses where the host
//! offers them.

use holdfast_host::{Linux, VmConfig};
use holdfast_locks::LockKind;
use holdfast_workloads::{Boot, KernelConfig, KernelProfile, MmapLock, OwnerSpinning, RwLocks};

use crate::draft::DraftVm;
use crate::kernel::MeasuredKernel;
use crate::shipped::{KERNELS, find};
use crate::slot::Choice;

/// The version of hosts and guests that name none: the long-term kernel of the distributions of 2025 and 2026.
pub const TODAY: Linux = Linux::V6_12;

/// Returns the shipped profile of a measured kernel that is nearest to `version` and not later, if there is one.
fn profile(version: Linux) -> Option<Box<KernelProfile>> {
    let name = match version {
        Linux::V2_6_37 | Linux::V3_3 | Linux::V4_12 => return None,
        // None was measured between 6.1 and 6.12.
        Linux::V6_1 | Linux::V6_6 => "linux-6.1",
        Linux::V6_12 => "linux-6.12",
        Linux::V6_18 => "linux-6.18",
        Linux::V7_3 => "linux-7.3",
    };
    let file = find(KERNELS, name).expect("the kernel is shipped");
    let kernel = MeasuredKernel::parse(file.file, file.text).expect("a test parses every shipped kernel");
    Some(Box::new(kernel.profile))
}

/// Returns the parameters of a guest's kernel. Sources: the keys' own documentation, `docs/spec/guest-locks.md`.
fn kernel(version: Linux) -> KernelConfig {
    let since = |first: Linux| version >= first;
    let mut kernel = KernelConfig {
        lock: match version {
            Linux::V2_6_37 | Linux::V3_3 => LockKind::Ticket,
            Linux::V4_12 => LockKind::PvQspin,
            _ => LockKind::HybridPvQspin,
        },
        hz: if since(Linux::V4_12) { 250 } else { 1000 },
        owner_spinning: if since(Linux::V4_12) {
            OwnerSpinning::PreemptionAware
        } else {
            OwnerSpinning::Everyone
        },
        mmap_lock: match version {
            Linux::V2_6_37 | Linux::V3_3 => MmapLock::Sleeping,
            Linux::V4_12 => MmapLock::Spinning,
            Linux::V6_1 => MmapLock::Downgrading,
            _ => MmapLock::PerVma,
        },
        rwlocks: if since(Linux::V4_12) {
            RwLocks::Queued
        } else {
            RwLocks::Unqueued
        },
        ttwu_queue: since(Linux::V3_3),
        wake_wide: since(Linux::V4_12),
        profile: profile(version),
        ..KernelConfig::default()
    };
    kernel.apic.shorthand = since(Linux::V6_1);
    kernel
}

impl DraftVm {
    /// Sets what `version` implies for the guest's kernel, and the features that both it and the host's kernel know.
    /// Nothing else changes: CPUs, groups, workload.
    pub(crate) fn set_kernel(&mut self, version: Linux) {
        self.kernel = version;
        self.boot = Boot {
            kernel: kernel(version),
            wait_early_preempted: version == Linux::V4_12,
            ..self.boot.clone()
        };
        let offered = VmConfig::of(version.min(self.host_kernel));
        self.host = VmConfig {
            pv_unhalt: offered.pv_unhalt,
            steal_time: offered.steal_time,
            preempted_flag: offered.preempted_flag,
            pv_eoi: offered.pv_eoi,
            pv_send_ipi: offered.pv_send_ipi,
            pv_tlb_flush: offered.pv_tlb_flush,
            pv_sched_yield: offered.pv_sched_yield,
            poll_control: offered.poll_control,
            ..self.host
        };
    }
}

// Without `choices!`, since the version sets other keys, which may refine it.
impl Choice for DraftVm {
    fn names(&self) -> Vec<&'static str> {
        Linux::ALL.map(Linux::name).to_vec()
    }

    fn name(&self) -> &'static str {
        self.kernel.name()
    }

    fn choose(&mut self, name: &str) -> bool {
        let version = Linux::by_name(name);
        version.map(|version| self.set_kernel(version)).is_some()
    }
}
