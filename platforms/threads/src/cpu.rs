//! The calling thread as a CPU.

#![expect(unsafe_code, reason = "implements the platform traits")]

use core::marker::PhantomData;
use core::sync::atomic::{self, Ordering};
use std::sync::OnceLock;
use std::thread;
use std::time::Instant;

use holdfast_locks::thread::{SHARING, Thread, wait_until};
use holdfast_locks::{Budget, CpuId, Interrupts, NodeTable, Nodes, Numa, Paravirt, Platform, Sharing, WaitTable, Word};

use crate::slot::{self, CPUS_MAX};
use crate::word::CompareStore;
use crate::{numa, park, spin, word};

/// A word that threads share.
#[derive(Debug)]
#[repr(transparent)]
pub struct ThreadWord(word::Word);

impl ThreadWord {
    /// A free lock's word.
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "each use makes a fresh word: statics and fields start from it"
    )]
    pub const ZERO: ThreadWord = ThreadWord(word::Word::new(0));
}

impl Word<u32> for ThreadWord {
    fn new(value: u32) -> Self {
        ThreadWord(word::Word::new(value))
    }
}

/// A pointer-sized word that threads share.
#[derive(Debug)]
#[repr(transparent)]
pub struct ThreadAddress(word::Address);

impl Word<usize> for ThreadAddress {
    fn new(value: usize) -> Self {
        ThreadAddress(word::Address::new(value))
    }
}

/// The CPU that is the calling thread.
///
/// It has no content: the thread's number is looked up when a lock asks for it, which none does before it has to wait. So
/// it costs nothing to make one for each call. Threads have no interrupts; there is nothing to mask.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThisThread(
    /// What was looked up on one thread must not be used on another.
    PhantomData<*const ()>,
);

impl ThisThread {
    /// The calling thread.
    #[inline(always)]
    pub const fn new() -> Self {
        ThisThread(PhantomData)
    }
}

// SAFETY: the operations of `word` are atomic, each with at least the ordering that it is given, or, on x86, with the
// one that **Total store order** gives it. `cpu` is the calling thread's number by **One thread per number**.
unsafe impl Platform for ThisThread {
    type Word = ThreadWord;
    type Address = ThreadAddress;

    #[inline]
    fn cpu(&self) -> CpuId {
        slot::current()
    }
    holdfast_locks::operations_of_words!(ThreadWord, ThreadAddress);

    #[inline(always)]
    fn compare_store_low8(&self, word: &ThreadWord, current: u8, new: u8, order: Ordering) -> Result<(), u8> {
        word.0.compare_store_low8(current, new, order)
    }
    #[inline(always)]
    fn compare_store_low16(&self, word: &ThreadWord, current: u16, new: u16, order: Ordering) -> Result<(), u16> {
        word.0.compare_store_low16(current, new, order)
    }
    fn settle(&self) -> bool {
        word::settle()
    }

    #[inline(always)]
    fn fence(&self, order: Ordering) {
        atomic::fence(order);
    }
    #[inline(always)]
    fn relax(&self) {
        core::hint::spin_loop();
    }
    fn wait_until(
        &self,
        word: &ThreadWord,
        budget: Budget,
        order: Ordering,
        until: impl Fn(u32) -> bool,
    ) -> Result<u32, u32> {
        wait_until(self, word, budget, order, until)
    }
}

impl Thread for ThisThread {
    fn give_way(&self) {
        thread::yield_now();
    }
    fn futex_wait(&self, word: &ThreadWord, value: u32) {
        park::wait(word, value);
    }
    fn futex_wake(&self, word: &ThreadWord) {
        park::wake(word);
    }
}

/// What the threads of a process share besides the locks themselves. Made when a thread first waits, never freed.
struct Tables {
    nodes: NodeTable<ThreadWord>,
    waiting: WaitTable<ThreadWord, ThreadAddress>,
}

fn tables() -> &'static Tables {
    static TABLES: OnceLock<Tables> = OnceLock::new();
    TABLES.get_or_init(|| Tables {
        nodes: NodeTable::new(CPUS_MAX as usize),
        waiting: WaitTable::new(CPUS_MAX as usize),
    })
}

// SAFETY: there is one table, with a place for each number below `CPUS_MAX`, and no others are given out.
unsafe impl Nodes for ThisThread {
    #[inline]
    fn nodes(&self) -> &NodeTable<ThreadWord> {
        &tables().nodes
    }
}

impl Numa for ThisThread {
    fn numa_node(&self, cpu: CpuId) -> u32 {
        numa::node(cpu)
    }
    fn monotonic_ns(&self) -> u64 {
        now_ns()
    }
}

// SAFETY: no handler runs: a thread has no interrupts. Signal handlers must not use these locks, as for any mutex.
unsafe impl Interrupts for ThisThread {
    #[inline(always)]
    fn irq_save(&self) -> bool {
        true
    }
    #[inline(always)]
    fn irq_restore(&self, _enabled: bool) {}
    #[inline(always)]
    fn in_nmi(&self) -> bool {
        false
    }
}

// SAFETY: `park` keeps **Sticky kick**; there is one table.
unsafe impl Paravirt for ThisThread {
    type Recorder = ();

    fn halt_masked(&self) {
        spin::end_streak();
        park::halt(self, slot::current());
    }
    fn halt_unmasked(&self) {
        self.halt_masked();
    }
    fn kick(&self, cpu: CpuId) {
        park::kick(self, cpu);
    }
    /// No host tells.
    #[inline(always)]
    fn is_preempted(&self, _cpu: CpuId) -> bool {
        false
    }
    #[inline]
    fn waiting(&self) -> &WaitTable<ThreadWord, ThreadAddress> {
        &tables().waiting
    }
    #[inline]
    fn spin_threshold(&self) -> Budget {
        spin::spin_threshold()
    }
    #[inline(always)]
    fn sharing(&self) -> Sharing {
        SHARING
    }
    #[inline]
    fn overtook(&self) -> bool {
        spin::overtook()
    }
    fn nap(&self) {
        spin::nap();
    }
    fn now_ns(&self) -> u64 {
        now_ns()
    }
    #[inline(always)]
    fn recorder(&self) -> &() {
        &()
    }
}

pub(crate) fn now_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}
