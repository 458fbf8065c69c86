//! What a guest boots with: kernel command line and workload.

use holdfast_guest::{ApicOptions, MmapLock, OwnerSpinning};
use holdfast_locks::LockKind;
use serde::{Deserialize, Serialize};

use crate::workload::Workload;

/// A guest's kernel parameters and what it runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Boot {
    /// The spinlock algorithm asked for. A paravirtual one that the host does not support is replaced as the
    /// boot-selection rule says.
    #[serde(with = "holdfast_guest::lock_name")]
    pub lock: LockKind,
    /// Timer interrupts per second of a busy CPU (`CONFIG_HZ`).
    pub hz: u32,
    /// Iterations that a paravirtual waiter spins before it halts. Linux: 2^15. It reaches the lock through
    /// [`Paravirt::spin_threshold`](holdfast_locks::Paravirt::spin_threshold).
    pub spin_threshold: u32,
    /// `nopvspin`: do not use paravirtual spinlocks even if the host offers them.
    pub nopvspin: bool,
    /// `no-steal-acc`: do not register the steal-time record, so that nobody knows which vCPUs are preempted.
    pub no_steal_acc: bool,
    /// Whether the vCPUs say in CPUID that they share a last-level cache. By default they do not: QEMU makes each vCPU a
    /// socket of its own. The guest's scheduler then looks for no idle neighbour when a task wakes, and hands wake-ups for
    /// other CPUs over by IPI.
    pub shared_cache: bool,
    /// Who spins for a sleeping lock whose owner runs. By default as the kernels of the published experiments (3.3 and
    /// 3.14, the latter without its queue): nobody looks whether the owner's vCPU is preempted.
    pub owner_spinning: OwnerSpinning,
    /// What the lock of an address space (`mmap_sem`) keeps out. By default as the kernels of the published experiments up to
    /// 3.14: its waiters sleep, and unmapping keeps page faults out until the end.
    pub mmap_lock: MmapLock,
    /// Whether a waiter in the queue of a paravirtual spinlock also halts when the vCPU before it is preempted (Linux 4.11 to
    /// 5.3), which takes a host that keeps the preempted flag. It reaches the lock through
    /// [`Paravirt::halts_behind_preempted`](holdfast_locks::Paravirt::halts_behind_preempted).
    pub wait_early_preempted: bool,
    /// Whether wake-ups across caches are handed over by IPI (Linux 3.0 and later). Before, the waker takes the other CPU's
    /// run queue lock.
    pub ttwu_queue: bool,
    /// Whether tasks that wake many others leave them on the CPUs where they slept (`wake_wide`, Linux 3.12 and later).
    pub wake_wide: bool,
    /// How the kernel uses its APIC. By default as Linux up to 5.3 in a KVM guest: x2APIC mode, CPUs addressed one by one.
    pub apic: ApicOptions,
    /// The program.
    pub workload: Workload,
}

impl Default for Boot {
    /// An idle guest with native ticket locks and a 1000 Hz tick.
    fn default() -> Self {
        Boot {
            lock: LockKind::Ticket,
            hz: 1000,
            spin_threshold: 1 << 15,
            nopvspin: false,
            no_steal_acc: false,
            shared_cache: false,
            owner_spinning: OwnerSpinning::Everyone,
            mmap_lock: MmapLock::Sleeping,
            wait_early_preempted: false,
            ttwu_queue: true,
            wake_wide: false,
            apic: ApicOptions::default(),
            workload: Workload::Idle,
        }
    }
}
