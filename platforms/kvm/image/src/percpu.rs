//! The state of each CPU.

#![expect(
    unsafe_code,
    reason = "found through GS; shared between CPUs where its fields can be"
)]

use alloc::vec::Vec;
use core::arch::asm;
use core::cell::{Cell, UnsafeCell};
use core::ptr;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};

use holdfast_abi::StealTime;
use holdfast_locks::{LockStats, NodeTable, WaitTable};
use holdfast_protocol::Contended;
use holdfast_protocol::layout::VCPUS_MAX;

use crate::clock::{Record, Time};
use crate::hypervisor::Hypervisor;
use crate::instructions::wrmsr;
use crate::pace::Pace;
use crate::tables::Tables;
use crate::word::{KvmAddress, KvmWord};

/// Number of sizes of the heap's blocks.
pub(crate) const CLASSES: usize = 40;

/// The MSR with the base address of GS.
const GS_BASE: u32 = 0xc000_0101;

/// The most lines of one CPU that another one fetches at a time.
pub(crate) const DATA_LINES: usize = 64;

/// A cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct DataLine(pub(crate) AtomicU64);

/// The state of one CPU.
#[derive(Debug)]
#[repr(C, align(4096))]
pub(crate) struct PerCpu {
    /// Address of this block, which `gs:[0]` reads.
    this: Cell<*const PerCpu>,
    /// Number of the CPU, which is its APIC ID.
    pub(crate) number: Cell<u32>,
    /// The state that all CPUs share, or null before CPU 0 has created it.
    shared: AtomicPtr<Shared>,
    /// Pace of computing on this CPU.
    pub(crate) pace: Pace,
    /// Free blocks of the heap, one list for each size.
    pub(crate) free: [Cell<*mut u8>; CLASSES],
    /// Number of kicks sent.
    pub(crate) kicks: AtomicU64,
    /// Number of halts.
    pub(crate) halts: AtomicU64,
    /// Number of lock acquisitions that had to wait.
    pub(crate) contentions: AtomicU64,
    /// Counts of this CPU in [`Task::Contention`](holdfast_protocol::Task::Contention).
    pub(crate) contended: Cell<Contended>,
    /// Counters of the locks. They are per CPU, so that counting causes no traffic between CPUs.
    pub(crate) lock_stats: LockStats,
    /// NUMA node that the CPU has joined. Other CPUs read this field.
    pub(crate) node: AtomicU32,
    /// Steal-time record, which the host writes and other CPUs read.
    pub(crate) steal_time: StealTime,
    /// Word for paravirtual end of interrupt (`MSR_KVM_PV_EOI_EN`), which the host writes.
    pub(crate) pv_eoi: AtomicU32,
    /// Record of KVM's clock, which the host writes.
    pub(crate) clock: Record,
    /// Lines that the CPU changes and other CPUs read, as data behind a lock, and thousandths of a line that are due.
    pub(crate) lines: [DataLine; DATA_LINES],
    pub(crate) lines_due: Cell<u32>,
    /// Descriptor tables and the stacks of exceptions.
    pub(crate) tables: UnsafeCell<Tables>,
}

// SAFETY: only its own CPU reads and writes a block's cells. The exception is `contended`, which the last CPU to finish
// reads after it has acquired that the others are done. Only its own CPU writes `tables`, before it enables interrupts.
unsafe impl Sync for PerCpu {}

static CPUS: [PerCpu; VCPUS_MAX as usize] = [const { PerCpu::new() }; VCPUS_MAX as usize];

/// The state that all CPUs share. CPU 0 creates it at boot, and it is never freed.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) cpus: u32,
    pub(crate) seed: u64,
    pub(crate) guest: u32,
    pub(crate) spin_threshold: u32,
    pub(crate) halts_behind_preempted: bool,
    /// The proximity domain of each CPU, or nothing.
    pub(crate) domains: Vec<u32>,
    pub(crate) hypervisor: Hypervisor,
    pub(crate) time: Time,
    /// Initial pace of each CPU.
    pub(crate) pace: u64,
    pub(crate) nodes: NodeTable<KvmWord>,
    pub(crate) waiting: WaitTable<KvmWord, KvmAddress>,
}

impl PerCpu {
    const fn new() -> PerCpu {
        PerCpu {
            this: Cell::new(ptr::null()),
            number: Cell::new(0),
            shared: AtomicPtr::new(ptr::null_mut()),
            pace: Pace::new(),
            free: [const { Cell::new(ptr::null_mut()) }; CLASSES],
            kicks: AtomicU64::new(0),
            halts: AtomicU64::new(0),
            contentions: AtomicU64::new(0),
            contended: Cell::new(Contended {
                cpu: 0,
                acquisitions: 0,
                waits: 0,
                kicks: 0,
                halts: 0,
                longest_wait_ns: 0,
            }),
            lock_stats: LockStats::new(),
            node: AtomicU32::new(0),
            steal_time: StealTime::new(),
            pv_eoi: AtomicU32::new(0),
            clock: Record::new(),
            lines: [const { DataLine(AtomicU64::new(0)) }; DATA_LINES],
            lines_due: Cell::new(0),
            tables: UnsafeCell::new(Tables::new()),
        }
    }

    /// Gives this CPU the shared state.
    pub(crate) fn begin(&self, shared: &'static Shared) {
        // ORDERING: Relaxed; only this CPU reads the pointer.
        self.shared.store(ptr::from_ref(shared).cast_mut(), Relaxed);
        self.pace.begin(shared.pace);
    }

    /// Returns the state that all CPUs share.
    ///
    /// # Panics
    /// Panics in debug builds if it is called before [`PerCpu::begin`].
    #[inline(always)]
    pub(crate) fn shared(&self) -> &'static Shared {
        // ORDERING: Relaxed; this CPU has stored the pointer itself.
        let shared = self.shared.load(Relaxed);
        debug_assert!(!shared.is_null(), "what the CPUs share is used before it is made");
        // SAFETY: `begin` has stored a leaked box before this CPU runs any code that calls this.
        unsafe { &*shared }
    }
}

/// Makes the block of CPU `number` that of the executing CPU.
///
/// # Safety
/// `number` must be that of the executing CPU. Each CPU must call this once, before anything else.
pub(crate) unsafe fn enter(number: u32) -> &'static PerCpu {
    let block = &CPUS[number as usize];
    block.this.set(block);
    block.number.set(number);
    // SAFETY: only this module uses GS, and every CPU has its base register in long mode.
    unsafe { wrmsr(GS_BASE, ptr::from_ref(block).addr() as u64) };
    block
}

/// Returns the block of the executing CPU.
#[inline(always)]
pub(crate) fn this() -> &'static PerCpu {
    let block: *const PerCpu;
    // SAFETY: since `enter`, GS points to a block whose first word is its own address. The assembly is not `pure`,
    // since a caller that was switched to another CPU must read the word again.
    unsafe {
        asm!("mov {}, gs:[0]", out(reg) block, options(nostack, preserves_flags, readonly));
    }
    // SAFETY: blocks are static.
    unsafe { &*block }
}

/// Returns the block of CPU `number`.
#[inline]
pub(crate) fn of(number: u32) -> &'static PerCpu {
    &CPUS[number as usize]
}
