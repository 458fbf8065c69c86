//! The kernel's parameters, and what the kernel finds at boot that the host does for it.

use alloc::boxed::Box;

use holdfast_locks::{LockKind, READERS_MAX, UnqueuedRwlock};
use serde::{Deserialize, Serialize};

use crate::policy::GuestPolicyKind;
use crate::profile::KernelProfile;

/// The kernel's parameters: its configuration and its command line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// The guest kernel's spinlock.
    ///
    /// A paravirtual lock that the host does not support is replaced as the boot-selection rule says.
    #[serde(with = "crate::lock_name")]
    pub lock: LockKind,
    /// Timer interrupts of a busy vCPU in a second (CONFIG_HZ).
    pub hz: u32,
    /// Boot option `nopvspin`: no paravirtual spinlocks, even if the host offers them.
    pub nopvspin: bool,
    /// Whether CPUID says that the vCPUs share a last-level cache. QEMU's default is that they do not (QEMU
    /// `l3-cache`).
    ///
    /// Wakeups for a CPU with another cache go through that CPU's wake list and an IPI, and the scheduler does not look
    /// for an idle neighbor.
    pub shared_cache: bool,
    /// Which tasks spin for a mutex whose owner runs.
    ///
    /// The default is that of the published experiments' kernels (3.3 and 3.14, the latter without its queue): spinners
    /// do not check whether the owner's vCPU is preempted.
    pub owner_spinning: OwnerSpinning,
    /// What the address-space lock (`mmap_lock`) excludes.
    ///
    /// The default is that of the published experiments' kernels up to 3.14: its waiters sleep, and unmapping excludes
    /// page faults until the end.
    pub mmap_lock: MmapLock,
    /// Whether readers take a reader-writer semaphore ahead of sleeping writers, and writers spin for readers for 10 to
    /// 25 us, until a waiter's patience of 4 ms ends (`down_read`, `down_write`, Linux 5.11 and later).
    pub rwsem_stealing: bool,
    /// The form of the kernel's reader-writer locks: `tasklist_lock`, jbd2's `j_state_lock`, and XFS's `xc_ctx_lock`.
    ///
    /// By default only writers exclude each other, and a reader costs the transfers of the lock's cache line.
    pub rwlocks: RwLocks,
    /// Whether a wakeup for a CPU with another cache is handed over to that CPU by IPI (`TTWU_QUEUE`, Linux 3.0 and
    /// later). Before, the waker itself takes the run-queue lock of the CPU where the task slept, and then that of the
    /// CPU where the task goes.
    pub ttwu_queue: bool,
    /// Whether tasks that wake many others leave them on the CPUs where they slept (`wake_wide`, Linux 3.12 and later,
    /// here as of 4.3).
    pub wake_wide: bool,
    /// How a wakeup chooses between the waker's CPU and the one where the task slept.
    pub placement: Placement,
    /// Whether a task that wakes on another CPU than it slept on keeps the credit for what that CPU's running task has
    /// run since its last accounting (`enqueue_entity`, until Linux 4.6; a task that wakes where it slept always does).
    pub migrated_credit: bool,
    /// Whether a pipe wakes one reader or one writer at a time, and only if it was empty or full (Linux 5.6 and later,
    /// here as of 6.1). Before, each write wakes all waiters, readers and writers alike, and so does each read that
    /// frees a page.
    pub exclusive_pipes: bool,
    /// Whether calls to other CPUs are queued without a lock (`call_single_queue`, Linux 3.14 and later, here as of
    /// 4.12). Before, each CPU's queue has a spinlock.
    pub lock_free_calls: bool,
    /// Whether the kernel uses process-context identifiers where the CPU has them (Linux 4.14 and later): the TLB then
    /// keeps translations of the last six address spaces. `"auto"`: a measured kernel does, and the estimated one, that
    /// is Linux 3.3, does not.
    pub pcid: Option<bool>,
    /// How an idle CPU waits for work (boot option `idle`).
    pub idle: Idle,
    /// Whether the guest's memory is fresh: each page that it uses for the first time is an exit, in which the host
    /// gives it the page. Otherwise earlier runs have touched all memory.
    ///
    /// Anonymous pages count. Freed pages are used again before fresh ones.
    pub fresh_memory: bool,
    /// How the kernel uses its APIC. The default is Linux up to 5.3 in a KVM guest: x2APIC mode, and one command for
    /// each CPU.
    pub apic: ApicOptions,
    /// The policy that says to which CPUs tasks go, and what the kernel tells its host. `kernel` is none. A kernel on
    /// the machine itself, whose tasks are the host's threads, asks none.
    #[serde(skip)]
    pub policy: GuestPolicyKind,
    /// The measured kernel whose work and spinlocks the operations execute. `None`: this kernel's own, estimated for
    /// Linux 3.3.
    pub profile: Option<Box<KernelProfile>>,
}

impl Config {
    /// Nanoseconds per tick.
    pub(crate) fn tick_ns(&self) -> u64 {
        1_000_000_000 / u64::from(self.hz)
    }

    /// Whether readers take part in reader-writer locks.
    pub(crate) fn readers_share(&self) -> bool {
        self.rwlocks != RwLocks::WritersOnly
    }

    /// Returns the most CPUs that the kernel's locks can tell apart: those of [`Config::lock`] and of
    /// [`Config::rwlocks`].
    pub fn cpus_max(&self) -> u32 {
        let rwlocks = match self.rwlocks {
            RwLocks::WritersOnly => u32::MAX,
            RwLocks::Unqueued => UnqueuedRwlock::<()>::CPUS_MAX,
            RwLocks::Queued => READERS_MAX,
        };
        self.lock.cpus_max().min(rwlocks)
    }

    /// Whether the kernel uses process-context identifiers where the CPU has them.
    pub(crate) fn uses_pcids(&self) -> bool {
        self.pcid.unwrap_or(self.profile.is_some())
    }
}

impl Default for Config {
    /// Native ticket locks and a 1000 Hz tick.
    fn default() -> Self {
        Config {
            lock: LockKind::Ticket,
            hz: 1000,
            nopvspin: false,
            shared_cache: false,
            owner_spinning: OwnerSpinning::Everyone,
            mmap_lock: MmapLock::Sleeping,
            rwsem_stealing: false,
            rwlocks: RwLocks::WritersOnly,
            ttwu_queue: true,
            wake_wide: false,
            placement: Placement::Counts,
            migrated_credit: true,
            exclusive_pipes: false,
            lock_free_calls: false,
            pcid: None,
            idle: Idle::default(),
            fresh_memory: false,
            apic: ApicOptions::default(),
            policy: GuestPolicyKind::KERNEL,
            profile: None,
        }
    }
}

/// How a wakeup chooses between the waker's CPU and the one where the task slept (`wake_affine`,
/// `select_idle_sibling`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Placement {
    /// By how many tasks are ready on each (until 4.1).
    #[default]
    Counts,
    /// By averages of the loads of the tasks that are ready on each (4.2 to 4.13).
    ReadyAverages,
    /// An idle one first, and then by averages of their loads, which include tasks that sleep (4.14, 5.5). A CPU whose
    /// vCPU the host has preempted, or that has halted, does not count as idle (`available_idle_cpu`, 4.18). An idle
    /// CPU puts the task on its run queue itself, even if it shares the waker's cache (5.8). Here as of 6.1.
    Averages,
}

/// Which tasks spin for a mutex whose owner runs, and what stops them. Linux versions are from memory, uncertain by one
/// release.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OwnerSpinning {
    /// All waiters at once, until the owner's task is taken off its CPU or the spinner must reschedule (2.6.30 to 3.9).
    #[default]
    Everyone,
    /// As before, but one at a time: the others wait in a queue (3.10). Waiters may leave the queue when they must
    /// reschedule (3.15).
    Queued,
    /// As before, but the spinner also stops when the host says that the owner's vCPU is preempted, and a queued waiter
    /// when its predecessor's vCPU is (4.10, `vcpu_is_preempted`). A kernel without paravirtual locks does not check,
    /// even with a steal-time record: until about 5.17, `kvm_spinlock_init` makes the kernel check.
    PreemptionAware,
}

/// The form of the kernel's reader-writer locks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RwLocks {
    /// Readers take no part.
    #[default]
    WritersOnly,
    /// Readers and writers spin on the lock's word, and readers overtake writers (until 3.15).
    Unqueued,
    /// Readers and writers queue, by a spinlock of the kernel's kind (`qrwlock`, 3.16).
    Queued,
}

/// What the lock of an address space excludes, and whether its waiters spin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum MmapLock {
    /// Waiters sleep. Unmapping holds the lock for writing until the end (to 3.15).
    #[default]
    Sleeping,
    /// Waiting writers spin while a writer runs (3.16, 4fc828e24cd9).
    Spinning,
    /// As before, but unmapping holds the lock only for reading once the mappings are gone, while pages are freed and
    /// TLBs flushed (4.20, dd2283f2605e).
    Downgrading,
    /// As before, but page faults lock their own mapping instead (6.4, 0bff0aaea03e). Each thread's memory is a mapping
    /// of its own here. Linux would merge adjacent mappings.
    PerVma,
}

/// How an idle CPU waits for work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Idle {
    /// By HLT. If the CPU offers MWAIT, by MWAIT on a word that wakers write instead of sending an IPI.
    #[default]
    Halt,
    /// In a loop that reads such a word (`idle=poll`). The tick goes on.
    Poll,
    /// In such a loop for up to 200 µs, then by HLT (cpuidle's haltpoll, 5.4). The time grows while waits are short.
    /// The kernel asks the host not to poll; where the host does not offer that, this is [`Idle::Halt`].
    HaltPoll,
    /// In a loop that reads a timer which the VMM emulates (an old Windows with the ACPI PM timer). Each read leaves
    /// the guest for the VMM's user space. The tick goes on.
    PollTimer,
}

/// How the kernel uses its APIC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApicOptions {
    /// Boot option `nox2apic`: memory-mapped APIC registers although the host offers x2APIC mode. Each access is an
    /// exit.
    pub nox2apic: bool,
    /// Whether the guest sends one x2APIC command for up to 16 CPUs. Linux does so only with interrupt remapping, which
    /// KVM guests rarely have.
    ///
    /// Without it Linux addresses CPUs physically, one by one.
    pub cluster: bool,
    /// Whether calls to all other CPUs use the shorthand "all but self" (Linux 5.4). Up to 8 CPUs in xAPIC mode always
    /// use it.
    pub shorthand: bool,
}

/// What the host does for this kernel, as its CPUID says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Assists {
    /// The kernel yields to preempted vCPUs after a call to several (`pv_sched_yield`).
    pub(crate) yields: bool,
    /// The host flushes the TLBs of preempted vCPUs (`pv_tlb_flush`).
    pub(crate) flushes: bool,
    /// Interrupts for several CPUs are sent by hypercall (`pv_ipi`).
    pub(crate) ipis: bool,
    /// The host reads the word in which each CPU says what it is in the midst of.
    pub(crate) word: bool,
}
