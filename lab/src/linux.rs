//! What a version of Linux implies for a guest: its kernel's parameters, and the features that it uses where the host
//! offers them.

pub use holdfast_host::Linux;
use holdfast_locks::LockKind;
use holdfast_recordings::account;
use holdfast_workloads::{KernelConfig, KernelProfile, MmapLock, OwnerSpinning, Placement, RwLocks};

use crate::kernel::shipped;

/// The version of hosts and guests that name none: the long-term kernel of the distributions of 2025 and 2026.
pub const TODAY: Linux = Linux::V6_12;

/// Last components of the keys that a guest's version sets.
pub(crate) const IMPLIED: [&str; 21] = [
    "lock",
    "hz",
    "owner_spinning",
    "rwlocks",
    "mmap_lock",
    "rwsem_stealing",
    "kernel_paths",
    "pcid",
    "ttwu_queue",
    "wake_wide",
    "placement",
    "migrated_credit",
    "exclusive_pipes",
    "lock_free_calls",
    "ipi_shorthand",
    "wait_early_preempted",
    "pv_eoi",
    "pv_send_ipi",
    "pv_tlb_flush",
    "pv_sched_yield",
    "poll_control",
];

/// Returns the known version that is nearest below the kernel `release`.
pub(crate) fn nearest(release: &str) -> Option<Linux> {
    let numbers = account::release(release)?;
    let known = |version: &Linux| account::release(version.name().trim_start_matches("linux-"));
    Linux::ALL
        .into_iter()
        .rev()
        .find(|version| known(version).is_some_and(|known| known <= numbers))
}

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
    Some(Box::new(shipped(name).expect("the kernel is shipped").clone()))
}

/// Returns the parameters of a guest's kernel. Sources: the keys' own documentation, `docs/spec/guest-locks.md`.
pub(crate) fn kernel(version: Linux) -> KernelConfig {
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
        rwsem_stealing: since(Linux::V6_1),
        rwlocks: if since(Linux::V4_12) {
            RwLocks::Queued
        } else {
            RwLocks::Unqueued
        },
        ttwu_queue: since(Linux::V3_3),
        wake_wide: since(Linux::V4_12),
        placement: match version {
            Linux::V2_6_37 | Linux::V3_3 => Placement::Counts,
            Linux::V4_12 => Placement::ReadyAverages,
            _ => Placement::Averages,
        },
        migrated_credit: !since(Linux::V4_12),
        exclusive_pipes: since(Linux::V6_1),
        lock_free_calls: since(Linux::V4_12),
        profile: profile(version),
        ..KernelConfig::default()
    };
    kernel.apic.shorthand = since(Linux::V6_1);
    kernel
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_is_that_of_the_nearest_version_below_it() {
        for (release, expected) in [
            ("6.12.8-amd64", Some(Linux::V6_12)),
            ("6.11.0", Some(Linux::V6_6)),
            ("6.18.44-fc", Some(Linux::V6_18)),
            ("7.1.0-rc1", Some(Linux::V6_18)),
            ("5.10.0-33-amd64", Some(Linux::V4_12)),
            ("rolling", None),
        ] {
            assert_eq!(nearest(release), expected, "{release}");
        }
    }
}
