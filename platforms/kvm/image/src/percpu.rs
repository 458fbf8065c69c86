//! What each CPU has of its own.

#![expect(
    unsafe_code,
    reason = "found through GS; shared between CPUs where its fields can be"
)]

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
use crate::heap::FreeLists;
use crate::hypervisor::Hypervisor;
use crate::instructions::wrmsr;
use crate::pace::Pace;
use crate::tables::Tables;
use crate::word::{KvmAddress, KvmWord};

/// `MSR_GS_BASE`.
const GS_BASE: u32 = 0xc000_0101;

/// The state of one CPU.
#[derive(Debug)]
#[repr(C, align(4096))]
pub(crate) struct PerCpu {
    /// Its own address: what `gs:[0]` reads.
    this: Cell<*const PerCpu>,
    /// Its number.
    pub(crate) number: Cell<u32>,
    /// What all share, once CPU 0 has made it.
    shared: AtomicPtr<Shared>,
    /// How fast it executes.
    pub(crate) pace: Pace,
    /// Free blocks of memory.
    pub(crate) free: FreeLists,
    /// Kicks sent.
    pub(crate) kicks: AtomicU64,
    /// Halts.
    pub(crate) halts: AtomicU64,
    /// Times that a lock was found taken.
    pub(crate) contentions: AtomicU64,
    /// What it did of a bare contention.
    pub(crate) contended: Cell<Contended>,
    /// What its locks count: its own, so that counting causes no traffic between CPUs.
    pub(crate) lock_stats: LockStats,
    /// The NUMA node that it has joined. Others look at these three.
    pub(crate) node: AtomicU32,
    /// The host's record of stolen time.
    pub(crate) steal_time: StealTime,
    /// The host's word for ends of interrupts (`MSR_KVM_PV_EOI_EN`).
    pub(crate) pv_eoi: AtomicU32,
    /// The host's record of the time.
    pub(crate) clock: Record,
    /// Descriptor tables and the stacks of exceptions.
    pub(crate) tables: UnsafeCell<Tables>,
}

// SAFETY: the cells are written and read by their own CPU only, `contended` excepted, which the last CPU to finish
// reads after it has acquired that the others are done; `tables` are written by their own CPU before it enables
// interrupts.
unsafe impl Sync for PerCpu {}

static CPUS: [PerCpu; VCPUS_MAX as usize] = [const { PerCpu::new() }; VCPUS_MAX as usize];

/// What all CPUs share. Made by CPU 0 at boot, never freed.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) cpus: u32,
    pub(crate) seed: u64,
    pub(crate) guest: u32,
    pub(crate) spin_threshold: u32,
    pub(crate) hypervisor: Hypervisor,
    pub(crate) time: Time,
    /// Where each CPU's pace begins.
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
            free: FreeLists::new(),
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
            tables: UnsafeCell::new(Tables::new()),
        }
    }

    /// Gives this CPU what all share.
    pub(crate) fn begin(&self, shared: &'static Shared) {
        // ORDERING: Relaxed; only this CPU reads it.
        self.shared.store(ptr::from_ref(shared).cast_mut(), Relaxed);
        self.pace.begin(shared.pace);
    }

    /// What all CPUs share.
    ///
    /// # Panics
    /// Before [`PerCpu::begin`].
    #[inline(always)]
    pub(crate) fn shared(&self) -> &'static Shared {
        // ORDERING: Relaxed; this CPU has stored it itself.
        let shared = self.shared.load(Relaxed);
        debug_assert!(!shared.is_null(), "what the CPUs share is used before it is made");
        // SAFETY: `begin` stored a leaked box before this CPU ran anything that calls this.
        unsafe { &*shared }
    }
}

/// Makes CPU `number` the one that executes the caller.
///
/// # Safety
/// It is, and this is called once on each CPU, before all else.
pub(crate) unsafe fn enter(number: u32) -> &'static PerCpu {
    let block = &CPUS[number as usize];
    block.this.set(block);
    block.number.set(number);
    // SAFETY: the base of GS is this module's own; every CPU has it in long mode.
    unsafe { wrmsr(GS_BASE, ptr::from_ref(block).addr() as u64) };
    block
}

/// The CPU that executes the caller.
#[inline(always)]
pub(crate) fn this() -> &'static PerCpu {
    let block: *const PerCpu;
    // SAFETY: GS points to a block whose first word is its own address, since `enter`. Not `pure`: a caller that was
    // switched to another CPU must read it again.
    unsafe {
        asm!("mov {}, gs:[0]", out(reg) block, options(nostack, preserves_flags, readonly));
    }
    // SAFETY: blocks are static.
    unsafe { &*block }
}

/// CPU `number`.
#[inline]
pub(crate) fn of(number: u32) -> &'static PerCpu {
    &CPUS[number as usize]
}
